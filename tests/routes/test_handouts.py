"""Tickets in the fan's hands: pages to print, a calendar entry, and what a gate needs for them."""

import re
from datetime import UTC, datetime
from email.message import Message
from urllib.parse import unquote

import httpx
import pytest
import vobject
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tests import pdf
from tests.routes.conftest import Api, Json, assert_invalid, assert_problem
from ticketing import ticket_codes
from ticketing.api.downloads import disposition

NAME = "Zoë 李 O'Brien <script>"


async def save_name(api: Api, name: str) -> None:
    saved = await api.http.put(
        "/v1/me", json={"name": name, "email": "zoe@example.org"}, headers=api.as_fan
    )
    assert saved.status_code == 200, saved.text


async def printed(api: Api, order: Json, **query: str) -> httpx.Response:
    return await api.http.get(
        f"/v1/orders/{order['orderId']}/tickets.pdf", params=query, headers=api.as_fan
    )


async def tickets(api: Api) -> list[Json]:
    listed = await api.http.get("/v1/me/tickets", headers=api.as_fan)
    return list(listed.json()["items"])


async def gate_keys(api: Api) -> dict[str, Ed25519PublicKey]:
    downloaded = await api.http.get("/v1/ticket-keys")
    assert downloaded.status_code == 200
    return ticket_codes.public_keys(downloaded.json()["keys"])


async def test_each_ticket_is_a_page_whose_code_a_gate_believes_without_asking(api: Api) -> None:
    await save_name(api, NAME)
    event_id = await api.sale(name="Zoë & 李: <b>live</b>")
    order = await api.confirmed_order(event_id, 0, 10)
    keys = await gate_keys(api)
    answer = await printed(api, order)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/pdf"
    assert answer.headers["cache-control"] == "private, no-store"
    pages = pdf.pages(answer.content)
    assert len(pages) == 2
    for page, ticket in zip(pages, await tickets(api), strict=True):
        assert "Zoë & 李: <b>live</b>" in page.text
        assert "Winterland" in page.text
        assert NAME in page.text
        assert order["reference"] in page.text
        [code] = page.codes
        admission = ticket_codes.read(code, keys)
        assert (admission.event_id, admission.ticket_id) == (event_id, ticket["ticketId"])
        assert admission.seat_id in [seat["seatId"] for seat in order["seats"]]
        # What the API tells as `code` is another thing, and stays what it was.
        assert re.fullmatch(r"[\w-]{22}", ticket["code"])
    assert "Section\nA\nRow\n1\nSeat\n1\n" in pages[0].text
    assert "Section\nFloor\n" in pages[1].text
    assert "Row" not in pages[1].text


@pytest.mark.parametrize(
    ("timezone", "starts_at", "day", "time"),
    [
        ("Asia/Tokyo", "2099-06-30T15:30:00Z", "Wednesday, 1 July 2099", "00:30"),
        ("America/New_York", "2099-01-01T00:30:00Z", "Wednesday, 31 December 2098", "19:30"),
        ("Asia/Kathmandu", "2099-06-30T12:00:00Z", "Tuesday, 30 June 2099", "17:45"),
    ],
)
async def test_a_show_starts_by_the_clock_of_its_own_place(
    api: Api, timezone: str, starts_at: str, day: str, time: str
) -> None:
    order = await api.confirmed_order(await api.sale(timezone=timezone, startsAt=starts_at), 0)
    [page] = pdf.pages((await printed(api, order)).content)
    assert day in page.text
    assert time in page.text
    assert f"{timezone} time, UTC" in page.text


async def test_one_ticket_of_an_order_can_be_printed_by_itself(api: Api) -> None:
    order = await api.confirmed_order(await api.sale(), 0, 1, 2)
    second = (await tickets(api))[1]
    [page] = pdf.pages((await printed(api, order, ticketId=second["ticketId"])).content)
    assert "Ticket 2 of 3" in page.text
    assert_problem(await printed(api, order, ticketId="tkt_nobody"), 404, "not-found")
    other = await api.confirmed_order(await api.sale(), 0)
    assert_problem(await printed(api, other, ticketId=second["ticketId"]), 404, "not-found")


@pytest.mark.parametrize("file", ["tickets.pdf", "calendar.ics"])
async def test_only_the_fan_of_the_order_gets_its_files(api: Api, file: str) -> None:
    order = await api.confirmed_order(await api.sale(), 0)
    path = f"/v1/orders/{order['orderId']}/{file}"
    assert_problem(await api.http.get(path), 401, "unauthenticated")
    for headers, status, slug in (
        (api.as_organiser, 403, "forbidden"),
        (api.as_other_fan, 404, "not-found"),
    ):
        assert_problem(await api.http.get(path, headers=headers), status, slug)
    nobody = await api.http.get(f"/v1/orders/ord_nobody/{file}", headers=api.as_fan)
    assert_problem(nobody, 404, "not-found")
    assert (await api.http.get(path, headers=api.as_fan)).status_code == 200


@pytest.mark.parametrize("file", ["tickets.pdf", "calendar.ics"])
async def test_an_order_has_files_only_while_it_is_confirmed(api: Api, file: str) -> None:
    event_id = await api.sale()
    order = await api.order(event_id, 0)
    path = f"/v1/orders/{order['orderId']}/{file}"
    refused = await api.http.get(path, headers=api.as_fan)
    assert assert_problem(refused, 409, "order-state")["state"] == "pendingPayment"
    bought = await api.confirmed_order(event_id, 1)
    cancelled = await api.http.post(f"/v1/orders/{bought['orderId']}/cancel", headers=api.as_fan)
    assert cancelled.status_code == 200
    refused = await api.http.get(f"/v1/orders/{bought['orderId']}/{file}", headers=api.as_fan)
    assert assert_problem(refused, 409, "order-state")["state"] == "cancelled"


async def test_a_void_ticket_is_not_printed(api: Api) -> None:
    order = await api.confirmed_order(await api.sale(), 0, 1)
    [first, second] = await tickets(api)
    await void(api, order, 0)
    [page] = pdf.pages((await printed(api, order)).content)
    assert "Ticket 1 of 1" in page.text
    [code] = page.codes
    assert ticket_codes.read(code, await gate_keys(api)).ticket_id == second["ticketId"]
    assert_problem(await printed(api, order, ticketId=first["ticketId"]), 404, "not-found")
    await void(api, order, 1)
    assert_problem(await printed(api, order), 404, "not-found")
    calendar = f"/v1/orders/{order['orderId']}/calendar.ics"
    assert_problem(await api.http.get(calendar, headers=api.as_fan), 404, "not-found")


async def void(api: Api, order: Json, place: int) -> None:
    """Void one ticket of a confirmed order, as a refund of one seat does."""
    services = api.application.state["services"]
    await services.database.orders.update_one(
        {"_id": order["orderId"]}, {"$set": {f"tickets.{place}.status": "void"}}
    )


async def test_the_calendar_has_the_event_once_and_under_one_name_for_good(api: Api) -> None:
    event_id = await api.sale(name="Zoë; 李, O'Brien\\n", startsAt="2099-07-01T18:30:00Z")
    order = await api.confirmed_order(event_id, 0, 1)
    path = f"/v1/orders/{order['orderId']}/calendar.ics"
    answer = await api.http.get(path, headers=api.as_fan)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/calendar; charset=utf-8"
    assert answer.headers["cache-control"] == "private, no-store"
    entry = vobject.readOne(answer.text).vevent
    assert entry.uid.value == f"{order['orderId']}@ticketing"
    assert entry.summary.value == "Zoë; 李, O'Brien\\n"
    assert entry.dtstart.value == datetime(2099, 7, 1, 18, 30, tzinfo=UTC)
    assert "Section A · Row 1 · Seat 2" in entry.description.value
    assert (await api.http.get(path, headers=api.as_fan)).content == answer.content


async def test_a_file_is_called_by_the_event_in_any_script(api: Api) -> None:
    order = await api.confirmed_order(await api.sale(name='Zoë 李 "live"/..'), 0)
    for file, suffix in (("tickets.pdf", "pdf"), ("calendar.ics", "ics")):
        answer = await api.http.get(f"/v1/orders/{order['orderId']}/{file}", headers=api.as_fan)
        shown = file_name(answer.headers["content-disposition"])
        assert shown == f"Zoë 李 _live__.. {order['reference']}.{suffix}"


def file_name(header: str) -> str:
    """The name a browser gives the file."""
    kind, plain, extended = header.split("; ")
    assert kind == "attachment"
    assert re.fullmatch(r'filename="[ -~]+"', plain)
    message = Message()
    message["Content-Disposition"] = header
    assert message.get_filename()
    assert header.isascii()
    return unquote(extended.removeprefix("filename*=UTF-8''"))


@pytest.mark.parametrize(
    ("name", "shown", "plain"),
    [
        ("Café.pdf", "Café.pdf", "Cafe.pdf"),
        ("李.pdf", "李.pdf", "file.pdf"),
        ("evil\u202efdp.exe.pdf", "evilfdp.exe.pdf", "evilfdp.exe.pdf"),
        ('a"\r\nSet-Cookie: x.pdf', "a_Set-Cookie_ x.pdf", "a_Set-Cookie_ x.pdf"),
        ("../../etc/passwd.pdf", "_.._etc_passwd.pdf", "_.._etc_passwd.pdf"),
        (".pdf", "file.pdf", "file.pdf"),
        ("漢" * 300 + ".pdf", "漢" * 120 + ".pdf", "file.pdf"),
        ("50 %; off's.pdf", "50 _; off's.pdf", "50 _; off's.pdf"),
    ],
)
def test_a_name_cannot_leave_the_header_or_the_folder(name: str, shown: str, plain: str) -> None:
    header = disposition(name)
    assert header.startswith(f"attachment; filename=\"{plain}\"; filename*=UTF-8''")
    assert unquote(header.rpartition("''")[2]) == shown
    assert "\r" not in header
    assert "\n" not in header


async def test_the_public_keys_are_told_to_everybody(api: Api) -> None:
    answer = await api.http.get("/v1/ticket-keys")
    [key] = answer.json()["keys"]
    assert key.keys() == {"kty", "crv", "alg", "use", "kid", "x"}
    assert (key["kty"], key["crv"]) == ("OKP", "Ed25519")


async def test_an_organiser_reads_which_tickets_a_gate_must_refuse(api: Api) -> None:
    event_id = await api.sale()
    kept, given_back, partly = [
        await api.confirmed_order(event_id, *places) for places in ((0,), (1, 2), (3, 10, 11))
    ]
    printed_before = pdf.pages((await printed(api, given_back)).content)
    await api.http.post(f"/v1/orders/{given_back['orderId']}/cancel", headers=api.as_fan)
    await void(api, partly, 1)
    listed, cursor = [], None
    while True:
        query = {"limit": "1"} | ({"cursor": cursor} if cursor else {})
        answer = await api.http.get(
            f"/v1/events/{event_id}/void-tickets", params=query, headers=api.as_organiser
        )
        assert answer.status_code == 200, answer.text
        listed += answer.json()["items"]
        cursor = answer.json()["nextCursor"]
        if cursor is None:
            break
    assert [item["seatId"] for item in listed] == [
        *(seat["seatId"] for seat in given_back["seats"]),
        partly["seats"][1]["seatId"],
    ]
    # A gate that was offline since: the printed code is genuine, and only the list tells.
    keys = await gate_keys(api)
    shown = {ticket_codes.read(page.codes[0], keys).ticket_id for page in printed_before}
    assert shown == {item["ticketId"] for item in listed[:2]}
    whole = await api.http.get(f"/v1/events/{event_id}/void-tickets", headers=api.as_organiser)
    assert whole.json() == {"items": listed, "nextCursor": None}
    assert kept["seats"][0]["seatId"] not in str(whole.json())


async def test_void_tickets_are_told_to_the_organiser_alone(api: Api) -> None:
    path = f"/v1/events/{await api.sale()}/void-tickets"
    assert_problem(await api.http.get(path), 401, "unauthenticated")
    assert_problem(await api.http.get(path, headers=api.as_fan), 403, "forbidden")
    refused = await api.http.get(path, headers=api.as_other_organiser)
    assert_problem(refused, 404, "not-found")
    assert (await api.http.get(path, headers=api.as_admin)).json()["items"] == []
    odd = await api.http.get(path, params={"cursor": "x"}, headers=api.as_organiser)
    assert_invalid(odd, "cursor")


async def test_a_press_that_is_busy_asks_to_come_again(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = await api.confirmed_order(await api.sale(), 0)
    monkeypatch.setattr("ticketing.printing.WAITING_MAX", 0)
    refused = await printed(api, order)
    assert_problem(refused, 503, "unavailable")
    assert refused.headers["retry-after"]


async def test_whoever_speaks_german_gets_german_tickets_and_entries(api: Api) -> None:
    saved = await api.http.put(
        "/v1/me",
        json={"name": NAME, "email": "zoe@example.org", "language": "de"},
        headers=api.as_fan,
    )
    assert saved.status_code == 200
    order = await api.confirmed_order(await api.sale(), 0)
    (page,) = pdf.pages((await printed(api, order)).content)
    for word in ("Beginn", "Bereich", "Reihe", "Platz", "Bestellung", "Ticket 1 von 1"):
        assert word in page.text
    entry = await api.http.get(f"/v1/orders/{order['orderId']}/calendar.ics", headers=api.as_fan)
    assert f"Bestellung {order['reference']}" in entry.text
