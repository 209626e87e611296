"""A ticket opens the door for one seat. It lives inside its order and dies with it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ticketing import identifiers, mongo, pages
from ticketing.mongo import Database, Document
from ticketing.pages import Page, Position

UPCOMING = "tickets-upcoming"
PAST = "tickets-past"
VOID = "tickets-void"


def issue(order: Document) -> list[Document]:
    """A ticket with an unguessable code for each seat of the order."""
    return [
        {
            "ticketId": identifiers.fresh("tkt"),
            "code": identifiers.ticket_code(),
            "seatId": seat["seatId"],
            "section": seat["section"],
            "row": seat["row"],
            "number": seat["number"],
            "status": "valid",
        }
        for seat in order["seats"]
    ]


def void(order: Document) -> list[Document]:
    """The order's tickets, none of which opens a door any more."""
    return [{**ticket, "status": "void"} for ticket in order["tickets"]]


@dataclass(frozen=True)
class PageRequest:
    """A fan's wish to see the first page of their tickets."""

    fan_id: str
    limit: int


async def first_pages(
    database: Database, requests: Sequence[PageRequest], *, now: datetime
) -> list[Page]:
    """The first page of each: valid tickets for coming events, soonest first, then past ones.

    One read for all of them; one more each for fans with more orders than fit on a page.
    """
    count_max = sum(request.limit + 2 for request in requests)
    fan_ids = list({request.fan_id for request in requests})
    reading = database.orders.find(
        {"fanId": {"$in": fan_ids}, "status": "confirmed"}, {"fanId": 1, "event": 1, "tickets": 1}
    )
    found = await reading.limit(count_max).to_list(count_max)
    by_fan: dict[str, list[Document]] = {fan_id: [] for fan_id in fan_ids}
    for order in sorted(found, key=_by_show):
        by_fan[order["fanId"]].append(order)
    pages_: list[Page] = []
    for request in requests:
        mine = by_fan[request.fan_id]
        # Where the read came to its limit, somebody's orders may be missing from it.
        if len(found) < count_max and len(mine) < request.limit + 2:
            coming = [order for order in mine if order["event"]["startsAt"] >= now]
            past = mine[: len(mine) - len(coming)]
            pages_.append(_cut(coming + past[::-1], None, now, request.limit))
        else:
            page = await _page(database, request.fan_id, None, now=now, limit=request.limit)
            pages_.append(page)
    return pages_


def _by_show(order: Document) -> tuple[datetime, str]:
    return order["event"]["startsAt"], order["_id"]


async def listing(
    database: Database, fan_id: str, *, now: datetime, limit: int, cursor: str | None = None
) -> Page:
    """One page of one fan's tickets, in the same order. Raises Invalid for a bad cursor."""
    if cursor is None:
        return (await first_pages(database, [PageRequest(fan_id, limit)], now=now))[0]
    position = pages.decode(cursor, UPCOMING, PAST)
    return await _page(database, fan_id, position, now=now, limit=limit)


async def _page(
    database: Database, fan_id: str, position: Position | None, *, now: datetime, limit: int
) -> Page:
    """Two ranges of one index, the second only as far as the first leaves room."""
    # Coming and past part where the first page parted them. A show that begins while the fan turns
    # pages would otherwise change sides, and be shown twice or never.
    if position and position.border:
        now = position.border
    if position and position.kind == PAST:
        pipeline = _half(fan_id, {"$lt": now, "$lte": position.instant}, position, -1, limit)
    else:
        upcoming = {"$gte": position.instant if position else now}
        pipeline = [
            *_half(fan_id, upcoming, position, 1, limit),
            {
                "$unionWith": {
                    "coll": "orders",
                    "pipeline": _half(fan_id, {"$lt": now}, None, -1, limit),
                }
            },
            {"$limit": limit + 2},
        ]
    orders = await mongo.aggregate(database.orders, pipeline, length=limit + 2)
    return _cut(orders, position, now, limit)


async def voided(
    database: Database, event_id: str, *, limit: int, cursor: str | None = None
) -> Page:
    """The event's void tickets, by the age of their orders: what a gate must not let in.

    A ticket that is voided while the pages are read may be on one that was read already. So a gate
    reads all of them anew each time.
    """
    position = pages.decode(cursor, VOID)
    filter_: Document = {"eventId": event_id, "tickets.status": "void"}
    if position:
        filter_["createdAt"] = {"$gte": position.instant}
        filter_["$or"] = [
            {"createdAt": {"$gt": position.instant}},
            {"_id": {"$gte": position.identifier}},
        ]
    found = database.orders.find(filter_, {"createdAt": 1, "tickets": 1})
    # Each order but the first has a ticket to show: so this many give a page and one ticket more.
    every = await found.sort([("createdAt", 1), ("_id", 1)]).limit(limit + 2).to_list(limit + 2)
    items: list[dict[str, Any]] = []
    ends: list[Position] = []
    for order in every:
        skip = position.offset if position and position.identifier == order["_id"] else 0
        for offset, ticket in enumerate(order["tickets"][skip:], start=skip + 1):
            if ticket["status"] == "void":
                items.append({"ticketId": ticket["ticketId"], "seatId": ticket["seatId"]})
                ends.append(Position(VOID, order["createdAt"], order["_id"], offset))
    if len(items) <= limit:
        return Page(items, None)
    return Page(items[:limit], pages.encode(ends[limit - 1]))


def _half(
    fan_id: str, starts: Document, position: Position | None, direction: int, limit: int
) -> list[Document]:
    """Confirmed orders on one side of now, from the one on in which the last page ended."""
    match: Document = {"fanId": fan_id, "status": "confirmed", "event.startsAt": starts}
    if position:
        beyond, at_or_beyond = ("$gt", "$gte") if direction == 1 else ("$lt", "$lte")
        match["$or"] = [
            {"event.startsAt": {beyond: position.instant}},
            {"_id": {at_or_beyond: position.identifier}},
        ]
    return [
        {"$match": match},
        {"$sort": {"event.startsAt": direction, "_id": direction}},
        # Each order has a ticket at least, and the first may have been shown to its end: so this
        # many orders give a full page and the one ticket more that tells there is another.
        {"$limit": limit + 2},
        {"$project": {"event": 1, "tickets": 1}},
    ]


def _cut(orders: list[Document], position: Position | None, now: datetime, limit: int) -> Page:
    items: list[dict[str, Any]] = []
    ends: list[Position] = []
    for order in orders:
        starts_at = order["event"]["startsAt"].astimezone(UTC)
        kind = UPCOMING if starts_at >= now else PAST
        skip = position.offset if position and position.identifier == order["_id"] else 0
        for offset, ticket in enumerate(order["tickets"]):
            if offset < skip or ticket["status"] != "valid":
                continue
            items.append(
                {
                    "ticketId": ticket["ticketId"],
                    "code": ticket["code"],
                    "orderId": order["_id"],
                    "event": order["event"],
                    "section": ticket["section"],
                    "row": ticket["row"],
                    "number": ticket["number"],
                }
            )
            ends.append(Position(kind, starts_at, order["_id"], offset + 1, now))
    if len(items) <= limit:
        return Page(items, None)
    return Page(items[:limit], pages.encode(ends[limit - 1]))
