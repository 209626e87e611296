"""My tickets: a fan sees them, saves them as PDF and puts them into a calendar."""

import re
from pathlib import Path

import vobject
from playwright.sync_api import Page, expect

from tests import pdf
from tests.web.conftest import PHONE

NAME = "Zoë 李 O'Brien <script>alert(1)</script>"


def path_for(service, fan: str, *, role: str = "fan") -> str:
    return f"/tickets#token={service.bearer(role, fan)}"


def saved(page: Page, button: str) -> tuple[str, bytes]:
    """The name and the content of the file that this button saves."""
    with page.expect_download() as waiting:
        page.get_by_role("button", name=button).click()
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()


def bought(make_sale, service, name: str = "The evening", seats: int = 2):
    sale = make_sale(name)
    order = sale.order(seats, "A")
    service.client.post(f"/v1/sandbox/payments/{order['paymentId']}/pay").raise_for_status()
    return order


def test_a_fan_saves_all_tickets_one_ticket_and_the_calendar_entry(make_sale, visit, service):
    order = bought(make_sale, service, NAME)
    body = {"name": NAME, "email": "zoe@example.org"}
    service.call("PUT", "/v1/me", role="fan", subject=order["fan"], body=body)
    page = visit(path_for(service, order["fan"])).page
    expect(page.get_by_role("heading", level=2)).to_have_text(NAME)
    expect(page.get_by_role("list", name="Tickets for").get_by_role("listitem")).to_have_count(2)
    stem = f"{NAME.translate(str.maketrans('<>/', '___'))} {order['reference']}"

    name, content = saved(page, "Save tickets (PDF)")
    assert name == f"{stem}.pdf"
    assert len(pdf.pages(content)) == 2
    expect(page.get_by_role("status")).to_have_text(f"Saved: {name}")

    seat = order["seats"][1]
    _, content = saved(page, f"PDF for A · row {seat['row']} · seat {seat['number']}")
    [only] = pdf.pages(content)
    assert f"Seat\n{seat['number']}\n" in only.text
    assert NAME.replace(" ", "") in only.text.replace("\n", "").replace(" ", "")

    name, content = saved(page, "Save calendar entry")
    assert name == f"{stem}.ics"
    assert vobject.readOne(content.decode()).vevent.summary.value == NAME


def test_the_token_leaves_the_address(make_sale, visit, service):
    order = bought(make_sale, service)
    page = visit(path_for(service, order["fan"])).page
    expect(page.get_by_role("heading", level=2)).to_have_text("The evening")
    assert page.evaluate("location.href").endswith("/tickets")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Access token")).to_be_visible()
    expect(page.get_by_role("heading", name="The evening")).to_have_count(0)


def test_a_fan_without_tickets_is_told_so(visit, service):
    page = visit(path_for(service, "fan_without_tickets")).page
    expect(page.get_by_role("status")).to_contain_text("You have no tickets")


def test_a_token_that_is_no_fans_leads_to_the_form(visit, service):
    opened = visit(path_for(service, "somebody", role="organiser"))
    expect(opened.page.locator("#token-error")).to_contain_text(
        "Sign in with the token you buy with"
    )
    expect(opened.page.get_by_label("Access token")).to_be_focused()
    opened.forgive_lost_requests()


def test_a_ticket_that_was_voided_meanwhile_is_told(make_sale, visit, service):
    order = bought(make_sale, service)
    opened = visit(path_for(service, order["fan"]))
    button = opened.page.get_by_role("button", name="Save tickets (PDF)")
    expect(button).to_be_visible()
    cancel = f"/v1/orders/{order['orderId']}/cancel"
    service.call("POST", cancel, role="fan", subject=order["fan"])
    button.click()
    expect(opened.page.get_by_role("status")).to_contain_text("not valid any more")
    opened.forgive_lost_requests()


def test_a_press_that_is_busy_is_told_and_may_be_asked_again(make_sale, visit, service):
    order = bought(make_sale, service)
    opened = visit(path_for(service, order["fan"]))
    pattern = re.compile(r"/tickets\.pdf$")
    opened.page.route(pattern, lambda route: route.fulfill(status=503))
    opened.page.get_by_role("button", name="Save tickets (PDF)").click()
    expect(opened.page.get_by_role("status")).to_contain_text("Try again")
    opened.page.unroute(pattern)
    assert saved(opened.page, "Save tickets (PDF)")
    opened.forgive_lost_requests()


def test_the_page_fits_a_phone_and_is_used_by_the_keyboard(make_sale, visit, service):
    order = bought(make_sale, service, "W" * 120, 1)
    page = visit(path_for(service, order["fan"]), viewport=PHONE).page
    expect(page.get_by_role("heading", level=2)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("button", name="Save tickets (PDF)").focus()
    with page.expect_download():
        page.keyboard.press("Enter")
