"""What a fan takes away of a confirmed order, in their language: pages to print, a calendar entry.

Both are made anew each time, of the order as it is: what was voided since is no longer on them.
"""

import tomllib
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import icalendar
from babel.dates import format_date

from ticketing import accounts, orders
from ticketing.errors import NotFound
from ticketing.mongo import Database, Document
from ticketing.printing import Sheets, Ticket
from ticketing.states import OrderState
from ticketing.ticket_codes import Admission, Signer

PRODUCT = "-//Ticketing//Tickets//EN"

_FOLDER = Path(__file__).parent / "handout_texts"
TEXTS = {
    language: tomllib.loads((_FOLDER / f"{language}.toml").read_text())
    for language in accounts.LANGUAGES
}


async def order_of(database: Database, order_id: str, fan_id: str) -> Document:
    """The fan's confirmed order with only its valid tickets.

    Raises NotFound, also for another fan's order and where no ticket is valid any more; OrderState
    for an order that is not confirmed.
    """
    order = await orders.find(database, order_id, fan_id)
    if order["status"] != "confirmed":
        raise OrderState(order["status"], "Only a confirmed order has tickets.")
    valid = [ticket for ticket in order["tickets"] if ticket["status"] == "valid"]
    if not valid:
        raise NotFound("None of the order's tickets is valid.")
    return {**order, "tickets": valid}


async def sheets(
    database: Database,
    signer: Signer,
    order_id: str,
    fan_id: str,
    *,
    now: datetime,
    ticket_id: str | None = None,
) -> Sheets:
    """The pages of the order's valid tickets, or of one of them. Raises as `order_of` does."""
    order = await order_of(database, order_id, fan_id)
    numbered = [
        (position, ticket)
        for position, ticket in enumerate(order["tickets"], start=1)
        if ticket_id in (None, ticket["ticketId"])
    ]
    if not numbered:
        raise NotFound("There is no such ticket.")
    profile = await accounts.profile(database, fan_id)
    language = accounts.language_of(profile)
    words = TEXTS[language]
    show = order["event"]
    starts_at = show["startsAt"].astimezone(ZoneInfo(show["timezone"]))
    return Sheets(
        title=title(order),
        language=language,
        words=words,
        made_at=int(now.timestamp()),
        tickets=[
            Ticket(
                event=show["name"],
                venue=show["venueName"],
                day=format_date(starts_at, words["day"], locale=language),
                time=f"{starts_at:%H:%M}",
                zone=words["zone"].format(zone=show["timezone"], offset=starts_at.isoformat()[-6:]),
                place=_place(ticket, words),
                holder=profile["name"] if profile else None,
                reference=order["reference"],
                position=words["position"].format(number=position, count=len(order["tickets"])),
                code=signer.sign(Admission(ticket["ticketId"], order["eventId"], ticket["seatId"])),
            )
            for position, ticket in numbered
        ],
    )


def calendar(order: Document, language: str) -> bytes:
    """The order's event as iCalendar (RFC 5545). The same order always gives the same octets.

    An end is not told, since nobody knows it. The start is in UTC, which every calendar shows in
    its owner's zone; the event's own zone is in the description.
    """
    show, words = order["event"], TEXTS[language]
    starts_at = show["startsAt"].astimezone(UTC)
    local = starts_at.astimezone(ZoneInfo(show["timezone"]))
    entry = icalendar.Event()
    entry.add("uid", f"{order['_id']}@ticketing")
    # With no method DTSTAMP tells when the entry last changed: with its order.
    entry.add("dtstamp", order["confirmedAt"].astimezone(UTC))
    entry.add("dtstart", starts_at)
    entry.add("summary", show["name"])
    entry.add("location", show["venueName"])
    entry.add(
        "description",
        "\n".join(
            [
                f"{words['order']} {order['reference']}",
                *(_line(ticket, words) for ticket in order["tickets"]),
                words["starts_at"].format(time=f"{local:%H:%M}", zone=show["timezone"]),
            ]
        ),
    )
    entry.add("status", "CONFIRMED")
    whole = icalendar.Calendar()
    whole.add("prodid", PRODUCT)
    whole.add("version", "2.0")
    whole.add_component(entry)
    content: bytes = whole.to_ical()
    return content


def title(order: Document) -> str:
    """What the fan's files are called: the event's name first, since that is what they look for."""
    return f"{order['event']['name']} {order['reference']}"


def _place(ticket: Document, words: dict[str, str]) -> list[tuple[str, str]]:
    parts = (
        (words["section"], ticket["section"]),
        (words["row"], ticket["row"]),
        (words["seat"], ticket["number"]),
    )
    return [(name, value) for name, value in parts if value is not None]


def _line(ticket: Document, words: dict[str, str]) -> str:
    return " · ".join(f"{name} {value}" for name, value in _place(ticket, words))
