"""The organiser's page: it moves by itself, says when it does not, and keeps others out."""

import re
import time
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Page, expect

PHONE = {"width": 360, "height": 740}
MOVE_SECONDS_MAX = 3.0


def figure(page: Page, name: str):
    return page.locator(f"#{name}")


def expect_live(page: Page) -> None:
    expect(page.locator("#connection")).to_contain_text("Live")
    expect(page.locator("body")).to_have_attribute("data-connection", "live")


def test_a_purchase_moves_the_figures_within_a_second(make_sale, visit, capsys):
    sale = make_sale("Midsummer")
    dashboard = visit(sale.signed_in_path()).page
    expect_live(dashboard)
    expect(figure(dashboard, "seats-sold")).to_have_text("0")
    expect(figure(dashboard, "recent-none")).to_be_visible()

    order = sale.order(3, "A")
    expect(figure(dashboard, "seats-held")).to_have_text("3")
    expect(figure(dashboard, "seats-available")).to_have_text("537")
    expect(figure(dashboard, "orders-pendingPayment")).to_have_text("1")
    expect(figure(dashboard, "holds-created")).to_have_text("1")

    payment = visit(f"/pay/{order['paymentId']}").page
    pay = payment.get_by_role("button", name="Pay €136.50")
    expect(pay).to_be_visible()
    began = time.perf_counter()
    pay.click()
    expect(figure(dashboard, "seats-sold")).to_have_text("3", timeout=MOVE_SECONDS_MAX * 1000)
    seconds = time.perf_counter() - began
    with capsys.disabled():
        print(f"\nfrom the click on Pay to the figure on the organiser's page: {seconds:.2f} s")
    assert seconds < MOVE_SECONDS_MAX

    expect(figure(dashboard, "seats-held")).to_have_text("0")
    expect(figure(dashboard, "revenue")).to_have_text("€136.50")
    expect(figure(dashboard, "orders-confirmed")).to_have_text("1")
    expect(figure(dashboard, "orders-pendingPayment")).to_have_text("0")
    last = dashboard.locator("#recent-list li").first
    expect(last).to_contain_text(order["reference"])
    expect(last).to_contain_text("3 seats")
    expect(dashboard).to_have_title("3/540 sold · Midsummer")
    expect(payment.get_by_role("heading", name="Your tickets are booked")).to_be_visible()


def test_each_section_has_a_bar_and_numbers_of_its_own(make_sale, visit):
    sale = make_sale()
    page = visit(sale.signed_in_path()).page
    sale.buy(4, "A")
    sale.hold(2, "Floor")
    table = page.get_by_role("table", name="Sections")
    row = table.get_by_role("row").filter(has=page.get_by_role("rowheader", name="A", exact=True))
    expect(row.get_by_role("cell")).to_have_text(["10%", "4", "0", "36", "€182.00"])
    bar = row.get_by_role("progressbar", name="A")
    expect(bar).to_have_attribute("aria-valuetext", "4 of 40 seats sold, 10%")
    floor = table.get_by_role("row").filter(has=page.get_by_role("rowheader", name="Floor"))
    expect(floor.get_by_role("cell")).to_have_text(["0%", "0", "2", "498", "€0.00"])
    expect(table.get_by_role("columnheader")).to_have_text(
        ["Section", "Sold so far", "Sold", "Held", "Free", "Revenue"]
    )


def test_sales_draw_a_line_and_a_table_of_it(make_sale, visit):
    sale = make_sale()
    page = visit(sale.signed_in_path()).page
    expect_live(page)
    expect(page.locator("#sales-chart path.line")).to_have_count(0)
    sale.buy(2)
    expect(page.locator("#sales-chart path.line")).to_have_count(1)
    page.locator("#sales-chart").hover(position={"x": 1, "y": 60})
    expect(page.locator("#sales-chart .mark text")).to_contain_text("0 seats")
    page.get_by_text("The numbers behind the line").click()
    expect(page.locator("#sales-rows tr").first).to_contain_text("€91.00")
    sale.buy(1)
    expect(page.locator("#recent-list li")).to_have_count(2)
    figures = page.locator("#sales-rows tr td:nth-child(2)").all_inner_texts()
    assert sum(map(int, figures)) == 3


def test_a_step_without_sales_is_a_zero_and_long_spans_have_longer_steps(make_sale, visit):
    page = visit(make_sale().signed_in_path()).page
    points = """async ([minutes, now, zone]) => {
        const { evenSteps } = await import("/static/chart.js");
        const { Clock } = await import("/static/format.js");
        const sales = minutes.map((minute) => ({ minute, orders: 1, seats: 2, amount: 5 }));
        const { step, points } = evenSteps(sales, Date.parse(now), new Clock(zone));
        return [step, points.map(({ at, seats }) => [new Date(at).toISOString(), seats])];
    }"""
    step, steps = page.evaluate(
        points, [["2026-03-01T10:00:00Z", "2026-03-01T10:03:00Z"], "2026-03-01T10:20:30Z", "UTC"]
    )
    assert step == 1
    assert [seats for _, seats in steps] == [2, 0, 0, 2] + [0] * 17
    step, steps = page.evaluate(
        points,
        [["2026-03-01T10:00:00Z", "2026-03-04T10:03:00Z"], "2026-03-04T10:20:30Z", "Asia/Kolkata"],
    )
    # Hours of the venue's clock, half an hour off those of UTC.
    assert step == 60
    assert steps[0] == ["2026-03-01T09:30:00.000Z", 2]
    assert sum(seats for _, seats in steps) == 4
    assert len(steps) <= 120


@pytest.mark.parametrize(
    ("currency", "price", "shown"),
    [("JPY", 6500, "JP¥13,000"), ("KWD", 12345, "KWD 24.690"), ("IQD", 1000, "IQD 2.000")],
)
def test_money_is_written_with_its_currencys_own_digits(make_sale, visit, currency, price, shown):
    sale = make_sale(currency=currency, price=price)
    page = visit(sale.signed_in_path()).page
    sale.buy(2)
    expect(figure(page, "revenue")).to_have_text(shown)
    expect(page.locator("#recent-list li").first).to_contain_text(shown.replace("\xa0", " "))


def test_times_are_those_of_the_events_own_zone(make_sale, visit):
    sale = make_sale(timezone="Asia/Kathmandu")
    page = visit(sale.signed_in_path()).page
    sale.buy(1)
    shown = page.locator("#recent-list time").first
    expect(shown).to_be_visible()
    at = datetime.fromisoformat(shown.get_attribute("datetime"))
    expect(shown).to_have_text(f"{at.astimezone(ZoneInfo('Asia/Kathmandu')):%H:%M:%S}")
    expect(page.locator("#footer")).to_contain_text("Asia/Kathmandu")


def test_times_are_put_right_when_the_event_arrives_after_its_sales(make_sale, visit):
    sale = make_sale(timezone="Asia/Kathmandu")
    sale.buy(1)
    page = visit().page
    waiting = []

    def keep_waiting(route) -> None:
        waiting.append(route)

    page.route(re.compile(f"/v1/events/{sale.event_id}$"), keep_waiting)
    page.goto(sale.signed_in_path())
    shown = page.locator("#recent-list time").first
    expect(shown).to_be_visible()
    at = datetime.fromisoformat(shown.get_attribute("datetime"))
    expect(shown).to_have_text(f"{at:%H:%M:%S}")
    waiting[0].continue_()
    expect(shown).to_have_text(f"{at.astimezone(ZoneInfo('Asia/Kathmandu')):%H:%M:%S}")
    expect(page.locator("#event-status")).to_have_text("On sale")


def test_nothing_is_said_of_sales_before_they_are_known(make_sale, visit):
    sale = make_sale()
    page = visit().page
    waiting = []

    def keep_waiting(route) -> None:
        waiting.append(route)

    page.route(re.compile(r"/dashboard/sales$"), keep_waiting)
    page.goto(sale.signed_in_path())
    expect(page.locator("#event-status")).to_have_text("On sale")
    expect(figure(page, "recent-none")).to_have_text("Loading…")
    expect(figure(page, "sales-caption")).to_have_text("Loading…")
    waiting[0].continue_()
    expect(figure(page, "recent-none")).to_have_text("Nobody has bought yet.")
    expect(figure(page, "sales-caption")).to_have_text("No sale yet.")


def test_names_with_markup_are_shown_as_text(make_sale, visit):
    name = '<img src=x onerror="window.harmed=1"><b>Bold</b>'
    section = "<script>window.harmed=1</script>"
    sale = make_sale(name, sections=(section, "&lt;Floor"), venue="<i>Hall</i>")
    page = visit(sale.signed_in_path()).page
    expect(page.get_by_role("heading", level=1)).to_have_text(name)
    expect(page.locator("#event-facts")).to_contain_text("<i>Hall</i>")
    expect(page.locator("#sections-rows th")).to_have_text([section, "&lt;Floor"])
    payment = visit(f"/pay/{sale.order(1, section)['paymentId']}").page
    expect(payment.get_by_role("heading", level=2)).to_have_text(name)
    expect(payment.locator("#seats li").first).to_contain_text(section)
    for each in (page, payment):
        assert each.evaluate("window.harmed") is None


def test_the_token_leaves_the_address_and_stays_in_the_tab(make_sale, visit):
    sale = make_sale()
    opened = visit(sale.signed_in_path())
    page = opened.page
    expect_live(page)
    assert page.url.endswith(sale.page_path)
    page.reload()
    expect_live(page)
    other = opened.context.new_page()
    other.goto(sale.page_path)
    expect(other.get_by_label("Access token")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Access token")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0


def test_the_form_takes_a_token_and_says_what_is_wrong_with_a_bad_one(make_sale, visit, service):
    sale = make_sale()
    opened = visit(sale.page_path)
    page = opened.page
    field = page.get_by_label("Access token")
    field.fill("not a token")
    page.keyboard.press("Enter")
    expect(page.locator("#token-error")).to_contain_text("three parts")
    field.fill(service.bearer("organiser", sale.organiser, hours=-1))
    page.keyboard.press("Enter")
    expect(page.locator("#token-error")).to_contain_text("expired")
    expect(field).to_be_focused()
    expect(page.locator("#figures")).to_be_hidden()
    field.fill("Bearer " + service.bearer("organiser", sale.organiser))
    page.keyboard.press("Enter")
    expect_live(page)
    opened.forgive_lost_requests()


@pytest.mark.parametrize(
    ("role", "subject", "heading"),
    [
        ("fan", "fan_x", "This dashboard is for organisers"),
        ("organiser", "organiser_x", "No such event of yours"),
    ],
)
def test_the_wrong_person_is_told_and_sees_no_figure(
    make_sale, visit, service, role, subject, heading
):
    sale = make_sale()
    bearer = service.bearer(role, subject)
    opened = visit(f"{sale.page_path}#token={bearer}")
    expect(opened.page.get_by_role("heading", name=heading)).to_be_focused()
    expect(opened.page.locator("#figures")).to_be_hidden()
    opened.forgive_lost_requests()


def test_a_token_that_expires_while_watching_leads_to_the_form(make_sale, visit):
    opened = visit(make_sale().signed_in_path(hours=4 / 3600))
    expect_live(opened.page)
    expect(opened.page.locator("#token-error")).to_contain_text("expired")
    expect(opened.page.locator("#figures")).to_be_hidden()
    opened.forgive_lost_requests()


def test_a_lost_network_is_shown_and_comes_back_alone(make_sale, visit):
    sale = make_sale()
    opened = visit(sale.signed_in_path())
    page = opened.page
    expect_live(page)
    opened.context.set_offline(True)
    expect(page.get_by_role("status")).to_contain_text("Connection lost. The figures are those of")
    expect(page.locator("body")).to_have_attribute("data-connection", "lost")
    sale.buy(2)
    expect(figure(page, "seats-sold")).to_have_text("0")
    opened.context.set_offline(False)
    expect_live(page)
    expect(figure(page, "seats-sold")).to_have_text("2")
    opened.forgive_lost_requests()


def test_a_restart_of_the_service_is_shown_and_survived(make_sale, visit, service):
    sale = make_sale()
    opened = visit(sale.signed_in_path())
    page = opened.page
    expect_live(page)
    service.end_api()
    expect(page.get_by_role("status")).to_contain_text("Connection lost", timeout=15_000)
    expect(page.locator("#connection")).to_contain_text("Live", timeout=60_000)
    sale.buy(2)
    expect(figure(page, "seats-sold")).to_have_text("2")
    opened.forgive_lost_requests()


def test_a_socket_that_is_dead_without_knowing_is_found_out(make_sale, visit):
    """A network that drops packets closes nothing: only asking shows that changes are missed."""
    sale = make_sale()
    opened = visit()
    page = opened.page
    sockets = []
    page.route_web_socket(
        re.compile("/live$"),
        lambda socket: sockets.append(socket) if len(sockets) else _deaf_after_one(socket, sockets),
    )
    page.goto(sale.signed_in_path())
    expect_live(page)
    sale.buy(2)
    sale.wait_until_counted(2)
    expect(figure(page, "seats-sold")).to_have_text("0")
    # As a tab does that is looked at again.
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.locator("body")).to_have_attribute("data-connection", "lost", timeout=15_000)
    expect(figure(page, "seats-sold")).to_have_text("2")
    opened.forgive_lost_requests()


def _deaf_after_one(socket, sockets) -> None:
    """Pass the first document on and nothing after it."""
    sockets.append(socket)
    server = socket.connect_to_server()
    passed = []

    def pass_first(message) -> None:
        if not passed:
            passed.append(message)
            socket.send(message)

    server.on_message(pass_first)


def test_the_live_region_speaks_of_the_connection_and_never_of_figures(make_sale, visit):
    sale = make_sale()
    page = visit(sale.signed_in_path()).page
    expect_live(page)
    page.evaluate(
        """() => {
            window.spoken = 0;
            for (const region of document.querySelectorAll("[aria-live], [role=status]")) {
                new MutationObserver(() => { window.spoken += 1; }).observe(
                    region, { childList: true, characterData: true, subtree: true });
            }
        }"""
    )
    for _ in range(3):
        sale.buy(1)
    expect(figure(page, "seats-sold")).to_have_text("3")
    assert page.evaluate("window.spoken") == 0


def test_the_page_is_used_by_keyboard_alone(make_sale, visit, service):
    sale = make_sale()
    sale.buy(1)
    page = visit(sale.page_path).page
    press = page.keyboard.press
    press("Tab")
    expect(page.get_by_role("link", name="Skip to the figures")).to_be_focused()
    press("Tab")
    expect(page.get_by_label("Access token")).to_be_focused()
    page.keyboard.insert_text(service.bearer("organiser", sale.organiser))
    press("Enter")
    expect_live(page)
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    press("Tab")
    expect(page.get_by_role("button", name="Sign out")).to_be_focused()
    summary = page.get_by_text("The numbers behind the line")
    expect(summary).to_be_visible()
    press("Tab")
    expect(summary).to_be_focused()
    press("Enter")
    expect(page.locator("#sales-rows tr").first).to_be_visible()
    press("Tab")
    expect(page.get_by_role("region", name="Sales over time as a table")).to_be_focused()
    press("Shift+Tab")
    press("Shift+Tab")
    press("Enter")
    expect(page.get_by_label("Access token")).to_be_visible()


def test_a_screen_reader_finds_its_way(make_sale, visit):
    page = visit(make_sale("The evening").signed_in_path()).page
    expect_live(page)
    for landmark in ("banner", "main", "contentinfo"):
        expect(page.get_by_role(landmark)).to_have_count(1)
    headings = ["Seats", "Revenue", "Orders", "Sales over time", "Sections", "Last sales"]
    for heading in headings:
        expect(page.get_by_role("heading", name=heading, level=2, exact=True)).to_be_visible()
    expect(page.get_by_role("progressbar", name="Seats")).to_have_attribute(
        "aria-valuetext", "0 of 540 seats sold, 0%"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 360, 820, 1366])
def test_no_width_needs_sideways_scrolling(make_sale, visit, width, scheme):
    sale = make_sale("W" * 40, sections=("M" * 40, "i" * 40), price=999_999_99)
    sale.buy(8, "M" * 40)
    page = visit(
        sale.signed_in_path(), viewport={"width": width, "height": 740}, color_scheme=scheme
    ).page
    expect(figure(page, "seats-sold")).to_have_text("8")
    expect(page.locator("#recent-list li")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    beyond = """(width) => [...document.querySelectorAll("main *")].filter((node) => {
        const box = node.getBoundingClientRect();
        return box.width > 0 && !node.closest(".visually-hidden, thead, svg") && box.right > width;
    }).map((node) => node.outerHTML.slice(0, 80))"""
    assert page.evaluate(beyond, width) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground_also_when_it_is_stale(make_sale, visit, scheme):
    sale = make_sale()
    sale.buy(2)
    opened = visit(
        sale.signed_in_path(), color_scheme=scheme, viewport=PHONE, reduced_motion="reduce"
    )
    page = opened.page
    expect(page.locator("#recent-list li")).to_have_count(1)
    assert page.evaluate(FAINT_TEXTS) == []
    opened.context.set_offline(True)
    expect(page.locator("body")).to_have_attribute("data-connection", "lost")
    assert page.evaluate(FAINT_TEXTS) == []
    opened.forgive_lost_requests()


# WCAG 2.2, 1.4.3: 4.5 to 1 for every text that shows.
FAINT_TEXTS = """() => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    const rgba = (color) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = color;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const luminance = (color) => {
        const [r, g, b] = color.map((each) => each / 255)
            .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = (node) => {
        for (let each = node; each; each = each.parentElement) {
            const color = rgba(getComputedStyle(each).backgroundColor);
            if (color[3] === 255) return color;
        }
        return [255, 255, 255, 255];
    };
    const faint = [];
    for (const node of document.querySelectorAll("body *")) {
        const isText = (child) => child.nodeType === Node.TEXT_NODE && child.data.trim();
        if (![...node.childNodes].some(isText)) continue;
        if (node.closest("svg") || !node.checkVisibility()) continue;
        const pair = [luminance(rgba(getComputedStyle(node).color)), luminance(ground(node))];
        const ratio = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
        if (ratio < 4.5) faint.push(`${node.outerHTML.slice(0, 80)} ${ratio.toFixed(2)}`);
    }
    return faint;
}"""


def test_nothing_moves_for_who_asked_for_calm(make_sale, visit):
    sale = make_sale()
    page = visit(sale.signed_in_path(), reduced_motion="reduce").page
    expect_live(page)
    sale.buy(2)
    expect(figure(page, "seats-sold")).to_have_text("2")
    expect(page.locator("#recent-list li")).to_have_count(1)
    assert page.evaluate("document.getAnimations().length") == 0
