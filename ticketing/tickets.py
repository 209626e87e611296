"""A ticket opens the door for one seat. It lives inside its order and dies with it."""

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


async def listing(
    database: Database, fan_id: str, *, now: datetime, limit: int, cursor: str | None = None
) -> Page:
    """The fan's valid tickets: those of coming events, soonest first, then those of past ones.

    One read for all but the first page of a fan with more orders than fit on it.
    """
    position = pages.decode(cursor, UPCOMING, PAST)
    if position is None:
        every = await _newest(database, fan_id, limit + 2)
        if len(every) < limit + 2:
            return _cut(_upcoming_first(every, now), None, now, limit)
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


async def _newest(database: Database, fan_id: str, count: int) -> list[Document]:
    """So many of the fan's confirmed orders, the show that is last first."""
    found = database.orders.find(
        {"fanId": fan_id, "status": "confirmed"}, {"event": 1, "tickets": 1}
    )
    return await found.sort([("event.startsAt", -1), ("_id", -1)]).limit(count).to_list(count)


def _upcoming_first(orders: list[Document], now: datetime) -> list[Document]:
    """The coming ones soonest first, then the past ones latest first."""
    coming = [order for order in orders if order["event"]["startsAt"] >= now]
    return coming[::-1] + orders[len(coming) :]


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
