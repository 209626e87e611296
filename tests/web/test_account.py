"""My account: made, confirmed by a mailed link, logged in to, its password replaced."""

from datetime import timedelta

import pymongo
import pytest
from playwright.sync_api import Page, expect

from tests.web.conftest import PHONE
from ticketing import clock, signed_links
from ticketing.mongo import Document
from ticketing.settings import Settings

PASSWORD = "a rather long password"


def link(service, purpose: str) -> str:
    """What the last mail of that purpose links to."""
    with pymongo.MongoClient[Document](service.mongodb_uri) as client:
        requests = client["ticketing"].account_requests.find({"purpose": purpose})
        [request] = requests.sort("createdAt", -1).limit(1)
    settings = Settings.from_environment({})
    made = signed_links.make(settings, purpose, request["_id"], clock.now() + timedelta(hours=1))
    return f"/account#{purpose}={made}"


def fill(page: Page, form: str, button: str, **fields: str) -> None:
    for name, text in fields.items():
        page.locator(f"#{form} [name={name}]").fill(text)
    page.locator(f"#{form}").get_by_role("button", name=button).click()


def log_in(page: Page, email: str, password: str) -> None:
    fill(page, "log-in", "Log in", email=email, password=password)


def made(visit, service, email: str) -> Page:
    """A confirmed account; the page that its confirmation led to."""
    page = visit("/account").page
    fill(page, "register", "Make an account", name="Zoë", email=email, password=PASSWORD)
    expect(page.get_by_role("status")).to_contain_text("Look into your mail")
    page = visit(link(service, "register")).page
    assert "register=" not in page.url
    fill(page, "confirm", "Confirm", password=PASSWORD)
    return page


def test_an_account_is_made_confirmed_and_leads_to_the_tickets(visit, service):
    page = made(visit, service, "zoe@example.org")
    page.wait_for_url("**/tickets")
    expect(page.get_by_role("heading", level=1)).to_have_text("My tickets")
    expect(page.locator("#token-form")).to_be_hidden()


def test_a_wrong_password_is_told_and_the_right_one_logs_in(visit, service):
    made(visit, service, "ada@example.org").wait_for_url("**/tickets")
    visited = visit("/account")
    page = visited.page
    log_in(page, "ada@example.org", "another password")
    expect(page.get_by_role("status")).to_contain_text("is wrong")
    visited.forgive_lost_requests()
    log_in(page, "ada@example.org", PASSWORD)
    page.wait_for_url("**/tickets")


def test_a_forgotten_password_is_replaced_by_the_mailed_link(visit, service):
    made(visit, service, "bea@example.org").wait_for_url("**/tickets")
    page = visit("/account").page
    fill(page, "forgotten", "Send me a link", email="bea@example.org")
    expect(page.get_by_role("status")).to_contain_text("Look into your mail")
    page = visit(link(service, "reset")).page
    fill(page, "reset", "Set the password", password="an even longer password")
    expect(page.get_by_role("status")).to_contain_text("Your password is changed")
    log_in(page, "bea@example.org", "an even longer password")
    page.wait_for_url("**/tickets")


def test_a_guest_comes_back_to_their_tickets_by_the_link(visit, service):
    answer = service.client.post("/v1/guests", json={"name": "G", "email": "g@example.org"})
    settings = Settings.from_environment({})
    ends_at = clock.now() + timedelta(days=1)
    mailed = signed_links.make(settings, "guest", answer.json()["fanId"], ends_at)
    page = visit(f"/tickets#link={mailed}").page
    expect(page.get_by_role("status")).to_contain_text("no tickets")
    assert "link=" not in page.url


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_a_phone_and_is_used_by_the_keyboard(visit, scheme):
    page = visit("/account", viewport=PHONE, color_scheme=scheme).page
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    for form in ("log-in", "forgotten", "register"):
        fields = page.locator(f"#{form} input:visible")
        for number in range(fields.count()):
            assert fields.nth(number).evaluate("field => field.labels.length") == 1
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the form")).to_be_focused()
    page.locator("#log-in-email").focus()
    page.keyboard.type("nobody@example.org")
    page.keyboard.press("Tab")
    expect(page.locator("#log-in-password")).to_be_focused()
