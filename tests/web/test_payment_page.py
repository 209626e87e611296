"""The sandbox payment page: pay, be declined, run out of time; what is not known is not guessed."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Page, Route, expect


def pay_path(order) -> str:
    return f"/pay/{order['paymentId']}"


def heading(page: Page, text: str):
    return page.get_by_role("heading", level=1, name=text)


def test_a_paid_order_shows_its_reference(make_sale, visit):
    sale = make_sale("The evening")
    order = sale.order(2, "A")
    page = visit(pay_path(order)).page
    expect(page.get_by_role("heading", name="The evening")).to_be_visible()
    expect(page.locator("#seats li")).to_have_text(
        [re.compile(r"^A · row 1 · seat \d+€45\.50$")] * 2
    )
    expect(page.locator("#total")).to_have_text("€91.00")
    expect(page.get_by_role("timer")).to_have_text(re.compile(r"^(10:00|9:\d\d)$"))
    page.get_by_role("button", name="Pay €91.00").click()
    expect(heading(page, "Your tickets are booked")).to_be_focused()
    expect(page.locator("#reference")).to_have_text(order["reference"])
    expect(page.get_by_role("button")).to_have_count(0)
    page.reload()
    expect(heading(page, "Your tickets are booked")).to_be_visible()


def test_a_declined_payment_may_be_tried_again(make_sale, visit):
    order = make_sale().order(3, "Floor")
    page = visit(pay_path(order)).page
    expect(page.locator("#seats li")).to_have_text(["Floor \u00d7 3€136.50"])
    decline = page.get_by_role("button", name="Decline")
    decline.click()
    expect(page.get_by_role("status")).to_contain_text("declined and nothing was charged")
    expect(decline).to_be_focused()
    page.get_by_role("button", name="Pay").click()
    expect(heading(page, "Your tickets are booked")).to_be_visible()
    expect(page.get_by_role("status")).to_have_text("")


def test_an_order_whose_seats_were_let_go_cannot_be_paid(make_sale, visit, service):
    sale = make_sale()
    order = sale.order(1)
    page = visit(pay_path(order)).page
    expect(page.get_by_role("button", name="Pay")).to_be_visible()
    service.call("DELETE", f"/v1/holds/{order['holdId']}", role="fan", subject=order["fan"])
    page.reload()
    expect(heading(page, "Your time ran out")).to_be_visible()
    expect(page.get_by_role("button")).to_have_count(0)


def test_a_cancelled_order_says_so(make_sale, visit, service):
    sale = make_sale()
    order = sale.order(1)
    service.client.post(f"/v1/sandbox/payments/{order['paymentId']}/pay").raise_for_status()
    path = f"/v1/orders/{order['orderId']}/cancel"
    service.call("POST", path, role="fan", subject=order["fan"])
    page = visit(pay_path(order)).page
    expect(heading(page, "This order was cancelled")).to_be_visible()
    expect(page.get_by_role("button")).to_have_count(0)


def test_an_unknown_payment_is_named(visit):
    opened = visit("/pay/pay_unknown")
    expect(heading(opened.page, "No such payment")).to_be_visible()
    expect(opened.page.get_by_role("button")).to_have_count(0)
    opened.forgive_lost_requests()


def test_time_runs_out_by_the_services_clock(make_sale, visit):
    """The visitor's clock is an hour fast; what counts is the `now` of the answer."""
    order = make_sale().order(1)
    opened = visit()
    page = opened.page
    page.clock.install(time=datetime.now(UTC) + timedelta(hours=1))
    ends = []

    def shorten(route: Route) -> None:
        answer = route.fetch()
        payment = answer.json()
        if not ends:
            ends.append(datetime.fromisoformat(payment["now"]) + timedelta(seconds=4))
        payment["expiresAt"] = ends[0].isoformat()
        route.fulfill(response=answer, body=json.dumps(payment))

    page.route("**/v1/sandbox/payments/*", shorten)
    page.goto(pay_path(order))
    expect(page.get_by_role("timer")).to_have_text(re.compile("^0:0[1-4]$"))
    expect(page.get_by_role("status")).to_contain_text("Less than a minute")
    expect(heading(page, "Your time ran out")).to_be_focused()
    expect(page.get_by_role("button")).to_have_count(0)
    expect(page.get_by_role("status")).to_have_text("")


def test_a_lost_answer_is_asked_for_again_and_never_guessed(make_sale, visit):
    order = make_sale().order(1)
    opened = visit(pay_path(order))
    page = opened.page

    def lose_the_answer(route: Route) -> None:
        route.fetch()
        route.abort()

    page.route("**/pay", lose_the_answer)
    page.get_by_role("button", name="Pay").click()
    expect(heading(page, "Your tickets are booked")).to_be_visible()
    expect(page.locator("#reference")).to_have_text(order["reference"])
    opened.forgive_lost_requests()


def test_a_payment_that_never_left_may_be_tried_again(make_sale, visit):
    opened = visit(pay_path(make_sale().order(1)))
    page = opened.page
    page.route("**/v1/sandbox/payments/*/pay", lambda route: route.abort())
    page.get_by_role("button", name="Pay").click()
    expect(page.get_by_role("status")).to_contain_text("No payment has arrived so far")
    page.unroute("**/v1/sandbox/payments/*/pay")
    page.get_by_role("button", name="Pay").click()
    expect(heading(page, "Your tickets are booked")).to_be_visible()
    opened.forgive_lost_requests()


def test_a_lost_connection_is_told_and_recovers_alone(make_sale, visit):
    opened = visit(pay_path(make_sale().order(1)))
    page = opened.page
    expect(page.get_by_role("button", name="Pay")).to_be_visible()
    opened.context.set_offline(True)
    page.get_by_role("button", name="Pay").click()
    expect(page.get_by_role("status")).to_contain_text("cannot be reached")
    opened.context.set_offline(False)
    expect(page.get_by_role("status")).to_have_text("")
    page.get_by_role("button", name="Pay").click()
    expect(heading(page, "Your tickets are booked")).to_be_visible()
    opened.forgive_lost_requests()


@pytest.mark.parametrize(
    ("order_status", "payment_status", "title"),
    [
        ("pendingPayment", "succeeded", "Payment received"),
        ("pendingPayment", "uncertain", "Checking your payment"),
        ("expired", "succeeded", "Paid after the time ran out"),
        ("expired", "uncertain", "Your time ran out"),
    ],
)
def test_the_orders_state_and_the_moneys_are_told_apart(
    make_sale, visit, order_status, payment_status, title
):
    order = make_sale().order(1)
    opened = visit()

    def change(route: Route) -> None:
        answer = route.fetch()
        states = {"orderStatus": order_status, "paymentStatus": payment_status}
        route.fulfill(response=answer, body=json.dumps({**answer.json(), **states}))

    opened.page.route("**/v1/sandbox/payments/*", change)
    opened.page.goto(pay_path(order))
    expect(heading(opened.page, title)).to_be_visible()
    expect(opened.page.get_by_role("button")).to_have_count(0)


def test_the_page_is_used_by_keyboard_alone_on_a_phone(make_sale, visit):
    sale = make_sale("W" * 40, sections=("M" * 40, "i" * 40), price=999_999_99)
    page = visit(pay_path(sale.order(8, "M" * 40)), viewport={"width": 360, "height": 740}).page
    expect(page.get_by_role("button", name="Pay")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    pay = page.get_by_role("button", name="Pay")
    decline = page.get_by_role("button", name="Decline")
    for _ in range(4):
        page.keyboard.press("Tab")
        if pay.evaluate("(button) => button === document.activeElement"):
            break
    expect(pay).to_be_focused()
    page.keyboard.press("Tab")
    expect(decline).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("declined")
    page.keyboard.press("Shift+Tab")
    expect(pay).to_be_focused()
    page.keyboard.press("Space")
    expect(heading(page, "Your tickets are booked")).to_be_focused()
