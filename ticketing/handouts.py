"""What a fan takes away of a confirmed order: pages to print and an entry for a calendar.

Both are made anew each time, of the order as it is: what was voided since is no longer on them.
"""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import icalendar

from ticketing import accounts, orders
from ticketing.errors import NotFound
from ticketing.mongo import Database, Document
from ticketing.printing import Sheets, Ticket
from ticketing.states import OrderState
from ticketing.ticket_codes import Admission, Signer

PRODUCT = "-//Ticketing//Tickets//EN"


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
    show = order["event"]
    starts_at = show["startsAt"].astimezone(ZoneInfo(show["timezone"]))
    return Sheets(
        title=title(order),
        made_at=int(now.timestamp()),
        tickets=[
            Ticket(
                event=show["name"],
                venue=show["venueName"],
                # Names of days and months as the page's language has them, whatever the system's.
                day=f"{starts_at:%A}, {starts_at.day} {starts_at:%B} {starts_at.year}",
                time=f"{starts_at:%H:%M}",
                zone=f"{show['timezone']} time, UTC{starts_at.isoformat()[-6:]}",
                place=_place(ticket),
                holder=profile["name"] if profile else None,
                reference=order["reference"],
                position=f"Ticket {position} of {len(order['tickets'])}",
                code=signer.sign(Admission(ticket["ticketId"], order["eventId"], ticket["seatId"])),
            )
            for position, ticket in numbered
        ],
    )


def calendar(order: Document) -> bytes:
    """The order's event as iCalendar (RFC 5545). The same order always gives the same octets.

    An end is not told, since nobody knows it. The start is in UTC, which every calendar shows in
    its owner's zone; the event's own zone is in the description.
    """
    show = order["event"]
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
                f"Order {order['reference']}",
                *map(_line, order["tickets"]),
                f"Starts at {local:%H:%M} ({show['timezone']})",
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


def _place(ticket: Document) -> list[tuple[str, str]]:
    parts = (
        ("Section", ticket["section"]),
        ("Row", ticket["row"]),
        ("Seat", ticket["number"]),
    )
    return [(name, value) for name, value in parts if value is not None]


def _line(ticket: Document) -> str:
    return " · ".join(f"{name} {value}" for name, value in _place(ticket))
