"""What an organiser watches: the counters of an event, kept by the changes worker.

The counters follow the change stream. A batch of changes, its effect on the counters and the
place in the stream are saved in one transaction, so that a worker killed at any point, or two
workers at once, count each change exactly once. `recount` counts the seats and orders themselves;
at rest the two are equal.
"""

import logging
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from bson.timestamp import Timestamp
from pymongo import ReplaceOne

from ticketing import boards, mongo, orders, outbox, seats
from ticketing.errors import NotFound
from ticketing.mongo import Database, Document, Session

RECENT_SALES_MAX = 10
SALES_MINUTES_MAX = 120
SEAT_STATUSES = ("available", "held", "sold", "blocked")
POSITION_ID = "changes"
EVENTS_PER_READ_MAX = 100_000
# After one of these the stream tells nothing of what the collection had in it: only a recount does.
_COUNTED = ("seats", "orders", "refunds")
UPHEAVALS = ("drop", "rename", "dropDatabase", "invalidate")

log = logging.getLogger("ticketing.dashboards")

# What the changes worker asks of the change stream: no document, only what moves a counter. Slim
# records can't grow past what a change stream can carry.
CHANGES: list[Document] = [
    {
        "$match": {
            "$or": [
                {
                    "ns.coll": {"$in": [*_COUNTED]},
                    "operationType": "update",
                    "updateDescription.updatedFields.status": {"$exists": True},
                },
                {"ns.coll": "orders", "operationType": "insert"},
                {"ns.coll": "heartbeats", "operationType": {"$in": ["insert", "replace"]}},
                {"ns.coll": {"$in": [*_COUNTED, "dashboards"]}, "operationType": "drop"},
                {"ns.coll": {"$in": [*_COUNTED, "dashboards"]}, "operationType": "rename"},
                {"operationType": {"$in": ["dropDatabase", "invalidate"]}},
                {
                    "ns.coll": "refunds",
                    "operationType": "insert",
                    "$or": [
                        {"fullDocument.lines": {"$exists": True}},
                        {"fullDocument.status": "done"},
                    ],
                },
            ]
        }
    },
    {
        "$project": {
            "operationType": 1,
            "ns.coll": 1,
            "documentKey": 1,
            "updateDescription.updatedFields.status": 1,
            "updateDescription.updatedFields.from": 1,
            "updateDescription.updatedFields.cause": 1,
            "updateDescription.updatedFields.holdLead": 1,
            "updateDescription.removedFields": 1,
            "fullDocument.status": 1,
            "fullDocument.lines": 1,
            "fullDocument.at": 1,
        }
    },
]


async def beat(database: Database, now: datetime) -> None:
    """Write what the stream must bring back in a moment: so a quiet sale is told from a stream
    that has gone silent, and the lag is known when nobody buys.
    """
    heartbeat: Document = {"_id": POSITION_ID, "at": now}
    await database.heartbeats.replace_one({"_id": POSITION_ID}, heartbeat, upsert=True)


class Overtaken(Exception):
    """Another worker has saved a later place in the stream: read the place again and go on."""


# --- Beginning and reading -----------------------------------------------------------------------


def _blank(event: Document, now: datetime) -> Document:
    return {
        "_id": event["_id"],
        "version": 1,
        "seats": _seat_counts(event["seatCount"]),
        "orders": dict.fromkeys(orders.STATUSES, 0),
        "revenue": 0,
        "refunds": 0,
        "currency": event["currency"],
        "holds": {"created": 0, "released": 0, "expired": 0},
        "sections": [
            {"name": section["name"], **_seat_counts(section["seatCount"]), "revenue": 0}
            for section in event["sections"]
        ],
        "recentSales": [],
        "salesByMinute": [],
        "updatedAt": now,
    }


def _seat_counts(total: int) -> Document:
    return {"total": total, "available": total, "held": 0, "sold": 0, "blocked": 0}


async def begin(database: Database, event: Document, now: datetime) -> None:
    """Make the counters of an event whose seats are all laid out and none of them sold."""
    blank = _blank(event, now)
    await database.dashboards.update_one(
        {"_id": event["_id"]}, {"$setOnInsert": blank}, upsert=True
    )


async def find(database: Database, event_id: str) -> Document:
    """The counters of an event. Raises NotFound."""
    dashboard = await database.dashboards.find_one({"_id": event_id})
    if dashboard is None:
        raise NotFound("There is no such event.")
    return dashboard


# --- Following the change stream ---------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """How far the change stream has been counted: after `token`, or after `operation_time`."""

    sequence: int
    token: Document | None
    operation_time: Timestamp | None

    def stream_options(self) -> dict[str, Any]:
        """How to open a change stream that goes on from here."""
        if self.token is not None:
            return {"start_after": self.token}
        assert self.operation_time is not None
        # The counters hold all up to and including that time; times are counted in increments.
        after = Timestamp(self.operation_time.time, self.operation_time.inc + 1)
        return {"start_at_operation_time": after}


async def place(database: Database) -> Place | None:
    """The saved place, or None before the first start."""
    saved = await database.resume_tokens.find_one({"_id": POSITION_ID})
    if saved is None:
        return None
    return Place(saved["sequence"], saved["token"], saved["operationTime"])


async def apply(
    database: Database, current: Place, changes: Sequence[Document], token: Document, now: datetime
) -> Place:
    """Count these changes and save the place after them, both or neither; returns the new place.

    Raises Overtaken if another worker was faster; nothing was counted then.
    """
    after = Place(current.sequence + 1, token, None)
    place_now: Document = {
        "sequence": after.sequence,
        "token": token,
        "operationTime": None,
        "savedAt": now,
    }
    if heartbeats := [change for change in changes if is_heartbeat(change)]:
        place_now["heartbeatAt"] = heartbeats[-1]["fullDocument"]["at"]

    async def body(session: Session) -> None:
        # The place is the fence. Two workers with the same changes both name the sequence they
        # began from; the second finds it gone, and its counting is undone with its transaction.
        saved = await database.resume_tokens.update_one(
            {"_id": POSITION_ID, "sequence": current.sequence},
            {"$set": place_now},
            session=session,
        )
        if saved.matched_count == 0:
            raise Overtaken
        # Inside the transaction, since just after an election a read outside it may be answered as
        # of a moment before the changes, and an order not found would go uncounted.
        tally, indigestible = await _tally(database, changes, session)
        if indigestible:
            await _set_aside(database, indigestible, now, session)
        if not tally:
            return
        found = database.dashboards.find({"_id": {"$in": list(tally)}}, session=session)
        stored = await found.to_list(len(tally))
        if stored:
            fresh = [counted(old, tally[old["_id"]], now) for old in stored]
            await database.dashboards.bulk_write(
                [ReplaceOne({"_id": new["_id"]}, new) for new in fresh], session=session
            )
            await database.seat_changes.insert_many(
                [
                    boards.record(new["_id"], new["version"], tally[new["_id"]].ordinals, now)
                    for new in fresh
                ],
                session=session,
            )
            await _tell_sold_out(database, zip(stored, fresh, strict=True), now, session)

    await mongo.transaction(database, body, seconds_max=None)
    return after


async def _tell_sold_out(
    database: Database,
    counters: Iterable[tuple[Document, Document]],
    now: datetime,
    session: Session,
) -> None:
    """Write a message for each event whose last seat was sold between old and new counters.

    In the transaction that moves them, so that it is told once however many workers there are.
    """
    messages = [
        outbox.message("event.soldOut", new["_id"], None, {"seatCount": new["seats"]["sold"]}, now)
        for old, new in counters
        if _is_sold_out(new) and not _is_sold_out(old)
    ]
    if messages:
        await database.outbox.insert_many(messages, session=session)


def _is_sold_out(counters: Document) -> bool:
    seat_counts = counters["seats"]
    return bool(seat_counts["sold"]) and not seat_counts["available"] and not seat_counts["held"]


@dataclass
class Moves:
    """What a batch of changes does to one event's counters."""

    seats: list[tuple[int, str, str]] = field(default_factory=list)
    """Seats that moved: the section's place in the event, the status before, the status now."""
    ordinals: list[tuple[int, str]] = field(default_factory=list)
    """The same seats for the boards: the place in the plan and the status now."""
    orders: list[tuple[str | None, str]] = field(default_factory=list)
    """Orders that moved: the status before (None for a new one), the status now."""
    holds_created: int = 0
    holds_released: int = 0
    holds_expired: int = 0
    revenue: list[tuple[int, int]] = field(default_factory=list)
    """Money that came or went: the section's place in the event, the amount."""
    refunds: int = 0
    sales: list[Document] = field(default_factory=list)
    """Orders that were confirmed, oldest first: reference, seats, amount, at."""


class _Indigestible(Exception):
    """A change that tells what can't be counted; the text says why."""


def is_heartbeat(change: Document) -> bool:
    """Whether a change is the stream's own heartbeat."""
    return change["operationType"] in ("insert", "replace") and change["ns"]["coll"] == "heartbeats"


async def _tally(
    database: Database, changes: Sequence[Document], session: Session
) -> tuple[dict[str, Moves], list[tuple[Document, str]]]:
    """The moves of each event in a batch of changes; and the changes nobody can count, and why."""
    by_collection: dict[str, list[Document]] = {name: [] for name in _COUNTED}
    for change in changes:
        by_collection.setdefault(change["ns"]["coll"], []).append(change)
    documents = {
        "orders": await _documents(database.orders, by_collection["orders"], session),
        "refunds": await _documents(database.refunds, by_collection["refunds"], session),
    }
    event_ids = {_event_of_seat(change) for change in by_collection["seats"]}
    for found in documents.values():
        event_ids |= {document["eventId"] for document in found.values()}
    layouts = await _layouts(database, event_ids, session)
    tally = {event_id: Moves() for event_id in layouts}
    indigestible: list[tuple[Document, str]] = []
    for collection in _COUNTED:
        for change in by_collection[collection]:
            document = documents.get(collection, {}).get(change["documentKey"]["_id"])
            event_id = document["eventId"] if document else _event_of_seat(change)
            if event_id not in tally:
                continue
            try:
                _move(tally[event_id], layouts[event_id], change, document)
            except (_Indigestible, LookupError, TypeError, ValueError, AttributeError) as error:
                # One that nobody foresaw must not hold up those behind it for ever.
                indigestible.append((change, str(error) or type(error).__name__))
    return tally, indigestible


def _event_of_seat(change: Document) -> str:
    return str(change["documentKey"]["_id"]).partition(":")[0]


def _move(moves: Moves, layout: "_Layout", change: Document, document: Document | None) -> None:
    """Add one change to the moves of its event: all of it, or nothing where it raises."""
    match change["ns"]["coll"]:
        case "seats":
            _move_seat(moves, layout, change)
        case "orders" if document is not None:
            _move_order(moves, layout, document, change)
        case "refunds" if document is not None:
            _move_refund(moves, layout, document, change)


async def _set_aside(
    database: Database,
    indigestible: Iterable[tuple[Document, str]],
    now: datetime,
    session: Session,
) -> None:
    """Keep what could not be counted, for a person; the counters are off until a recount."""
    writes = []
    for change, problem in indigestible:
        log.error("A change of %s can't be counted: %s", change["documentKey"]["_id"], problem)
        record: Document = {
            "_id": change["_id"]["_data"],
            "collection": change["ns"]["coll"],
            "documentId": str(change["documentKey"]["_id"]),
            "operation": change["operationType"],
            "fields": change.get("updateDescription", {}).get("updatedFields", {}),
            "problem": problem,
            "open": True,
            "setAsideAt": now,
        }
        writes.append(ReplaceOne({"_id": record["_id"]}, record, upsert=True))
    await database.changes_set_aside.bulk_write(writes, session=session)


async def _documents(
    collection: mongo.Collection, changes: Sequence[Document], session: Session
) -> dict[str, Document]:
    """The changed documents, for their fields that never change (money, seats, event)."""
    ids = list({change["documentKey"]["_id"] for change in changes})
    if not ids:
        return {}
    fields = {"history": 0, "tickets": 0}
    found = collection.find({"_id": {"$in": ids}}, fields, session=session)
    return {document["_id"]: document for document in await found.to_list(len(ids))}


@dataclass(frozen=True)
class _Layout:
    """Where the sections of an event lie in its plan."""

    currency: str
    seat_count: int
    starts: list[int]
    names: list[str]

    def section_at(self, ordinal: int) -> int:
        """The place of the section that the seat of this ordinal is in."""
        return bisect_right(self.starts, ordinal) - 1


async def _layouts(
    database: Database, event_ids: Iterable[str], session: Session
) -> dict[str, _Layout]:
    ids = list(event_ids)
    if not ids:
        return {}
    fields = {"currency": 1, "seatCount": 1, "sections.name": 1, "sections.firstOrdinal": 1}
    found = await database.events.find({"_id": {"$in": ids}}, fields, session=session).to_list(
        len(ids)
    )
    return {
        event["_id"]: _Layout(
            event["currency"],
            event["seatCount"],
            [section["firstOrdinal"] for section in event["sections"]],
            [section["name"] for section in event["sections"]],
        )
        for event in found
    }


def _move_seat(moves: Moves, layout: _Layout, change: Document) -> None:
    ordinal = seats.ordinal_of(change["documentKey"]["_id"])
    description = change["updateDescription"]
    fields = description["updatedFields"]
    if ordinal >= layout.seat_count or fields["status"] not in SEAT_STATUSES:
        raise _Indigestible("there is no such seat or status in the plan")
    # What a seat is now holds for the boards, however it came to be.
    moves.ordinals.append((ordinal, fields["status"]))
    if not {"from", "cause"} <= fields.keys() or fields["from"] not in SEAT_STATUSES:
        raise _Indigestible("the seat was changed outside the service")
    moves.seats.append((layout.section_at(ordinal), fields["from"], fields["status"]))
    # One seat of each hold is its lead, so holds are counted once whatever their size. The mark
    # is set with the hold and goes with it: then it is among the removed fields.
    was_lead = "holdLead" in description.get("removedFields", [])
    match fields["cause"]:
        case "placed" if fields.get("holdLead"):
            moves.holds_created += 1
        case "yielded" if was_lead:
            moves.holds_created -= 1  # It was refused after all: it never was a hold.
        case "released" if was_lead:
            moves.holds_released += 1
        case "lapsed" if was_lead:
            moves.holds_expired += 1


def _move_order(moves: Moves, layout: _Layout, order: Document, change: Document) -> None:
    if change["operationType"] == "insert":
        moves.orders.append((None, _known(change["fullDocument"]["status"])))
        return
    fields = change["updateDescription"]["updatedFields"]
    before, after = _known(fields.get("from")), _known(fields["status"])
    sign = (after == "confirmed") - (before == "confirmed")
    revenue = []
    if sign:
        revenue += [
            (layout.names.index(seat["section"]), sign * seat["price"]) for seat in order["seats"]
        ]
    if sign == -1:
        # What was refunded line by line has left the revenue before, and after this nothing more
        # of the order is: so its lines as they are now are those there were.
        revenue += [
            (layout.names.index(line["section"]), line["amount"])
            for line in order.get("refundedLines", [])
        ]
    sales = [_sale(order)] if sign == 1 else []
    moves.orders.append((before, after))
    moves.revenue += revenue
    moves.sales += sales


def _known(status: str | None) -> str:
    if status not in orders.STATUSES:
        raise _Indigestible("the order was changed outside the service")
    return status


def _move_refund(moves: Moves, layout: _Layout, refund: Document, change: Document) -> None:
    revenue: list[tuple[int, int]] = []
    if change["operationType"] == "insert":
        before, after = None, change["fullDocument"]["status"]
        revenue = [
            (layout.names.index(line["section"]), -line["amount"])
            for line in change["fullDocument"].get("lines", [])
        ]
    else:
        fields = change["updateDescription"]["updatedFields"]
        before, after = fields.get("from"), fields["status"]
    if refund["currency"] == layout.currency:
        moves.refunds += ((after == "done") - (before == "done")) * refund["amount"]
    moves.revenue += revenue


def _sale(order: Document) -> Document:
    return {
        "reference": order["reference"],
        "seats": len(order["seats"]),
        "amount": order["total"],
        "at": order["confirmedAt"],
    }


def counted(old: Document, moves: Moves, now: datetime) -> Document:
    """The counters after these moves. Pure."""
    new: Document = {
        **old,
        "version": old["version"] + 1,
        "seats": dict(old["seats"]),
        "orders": dict(old["orders"]),
        "sections": [dict(section) for section in old["sections"]],
        "holds": {
            "created": old["holds"]["created"] + moves.holds_created,
            "released": old["holds"]["released"] + moves.holds_released,
            "expired": old["holds"]["expired"] + moves.holds_expired,
        },
        "revenue": old["revenue"] + sum(amount for _, amount in moves.revenue),
        "refunds": old["refunds"] + moves.refunds,
        "recentSales": _latest([*reversed(moves.sales), *old["recentSales"]]),
        "salesByMinute": _by_minute(old["salesByMinute"], moves.sales),
        "updatedAt": now,
    }
    for section, before, after in moves.seats:
        for counts in (new["seats"], new["sections"][section]):
            counts[before] -= 1
            counts[after] += 1
    for order_before, order_after in moves.orders:
        if order_before is not None:
            new["orders"][order_before] -= 1
        new["orders"][order_after] += 1
    for section, amount in moves.revenue:
        new["sections"][section]["revenue"] += amount
    return new


def _latest(sales: list[Document]) -> list[Document]:
    """The latest sales, newest first. They are committed in another order than they were begun."""
    return sorted(sales, key=lambda sale: sale["at"], reverse=True)[:RECENT_SALES_MAX]


def _by_minute(old: list[Document], sales: Iterable[Document]) -> list[Document]:
    minutes = {entry["minute"]: dict(entry) for entry in old}
    for sale in sales:
        minute = sale["at"].replace(second=0, microsecond=0)
        entry = minutes.setdefault(minute, {"minute": minute, "orders": 0, "seats": 0, "amount": 0})
        entry["orders"] += 1
        entry["seats"] += sale["seats"]
        entry["amount"] += sale["amount"]
    return [minutes[minute] for minute in sorted(minutes)][-SALES_MINUTES_MAX:]


# --- Counting afresh -----------------------------------------------------------------------------


async def recount(
    database: Database, event: Document, moment: Timestamp, now: datetime
) -> Document:
    """The counters of an event as its seats, orders and refunds were at that moment.

    The tallies of holds have no source but the stream and are zero here.
    """
    fresh = _blank(event, now)
    mine = {"$match": {"eventId": event["_id"]}}
    by_section = {section["name"]: section for section in fresh["sections"]}
    for counts in (fresh["seats"], *fresh["sections"]):
        counts.update(dict.fromkeys(("total", *SEAT_STATUSES), 0))
    for group in await mongo.aggregate_at(
        database,
        "seats",
        [
            {"$match": {"_id": seats.plan_range(event["_id"])}},
            {"$group": {"_id": {"section": "$section", "status": "$status"}, "count": {"$sum": 1}}},
        ],
        moment,
    ):
        for counts in (fresh["seats"], by_section[group["_id"]["section"]]):
            counts[group["_id"]["status"]] += group["count"]
            counts["total"] += group["count"]
    for group in await mongo.aggregate_at(
        database,
        "orders",
        [mine, {"$group": {"_id": "$status", "count": {"$sum": 1}}}],
        moment,
    ):
        fresh["orders"][group["_id"]] = group["count"]
    for group in await mongo.aggregate_at(
        database,
        "orders",
        [
            {"$match": {"eventId": event["_id"], "status": "confirmed"}},
            {"$unwind": "$seats"},
            {"$group": {"_id": "$seats.section", "revenue": {"$sum": "$seats.price"}}},
        ],
        moment,
    ):
        by_section[group["_id"]]["revenue"] += group["revenue"]
        fresh["revenue"] += group["revenue"]
    for group in await mongo.aggregate_at(
        database,
        "orders",
        [
            {"$match": {"eventId": event["_id"], "status": "confirmed"}},
            {"$unwind": "$refundedLines"},
            {
                "$group": {
                    "_id": "$refundedLines.section",
                    "amount": {"$sum": "$refundedLines.amount"},
                }
            },
        ],
        moment,
    ):
        by_section[group["_id"]]["revenue"] -= group["amount"]
        fresh["revenue"] -= group["amount"]
    for group in await mongo.aggregate_at(
        database,
        "refunds",
        [
            {"$match": {"eventId": event["_id"], "status": "done", "currency": event["currency"]}},
            {"$group": {"_id": None, "amount": {"$sum": "$amount"}}},
        ],
        moment,
    ):
        fresh["refunds"] = group["amount"]
    await _recount_sales(database, event, moment, fresh)
    return fresh


async def _recount_sales(
    database: Database, event: Document, moment: Timestamp, fresh: Document
) -> None:
    """Fill in the last sales and the sales by minute."""
    sold = {"$match": {"eventId": event["_id"], "confirmedAt": {"$exists": True}}}
    minutes = await mongo.aggregate_at(
        database,
        "orders",
        [
            sold,
            {
                "$group": {
                    "_id": {"$dateTrunc": {"date": "$confirmedAt", "unit": "minute"}},
                    "orders": {"$sum": 1},
                    "seats": {"$sum": {"$size": "$seats"}},
                    "amount": {"$sum": "$total"},
                }
            },
            {"$sort": {"_id": -1}},
            {"$limit": SALES_MINUTES_MAX},
        ],
        moment,
    )
    fresh["salesByMinute"] = [
        {"minute": m["_id"], "orders": m["orders"], "seats": m["seats"], "amount": m["amount"]}
        for m in reversed(minutes)
    ]
    latest = await mongo.aggregate_at(
        database,
        "orders",
        [
            sold,
            {"$sort": {"confirmedAt": -1}},
            {"$limit": RECENT_SALES_MAX},
            {"$project": {"reference": 1, "seats": 1, "total": 1, "confirmedAt": 1}},
        ],
        moment,
    )
    fresh["recentSales"] = [_sale(order) for order in latest]


async def events_at(
    database: Database, moment: Timestamp, *, since: datetime | None = None
) -> list[Document]:
    """All events that were laid out at that moment, without their rows and texts.

    With `since` only those that begin later. What is archived can't be counted any more, and
    nothing of it changes: it is left out.
    """
    laid_out: Document = {"status": {"$ne": "creating"}, "archivedAt": {"$exists": False}}
    if since is not None:
        laid_out["startsAt"] = {"$gte": since}
    return await mongo.aggregate_at(
        database,
        "events",
        [
            {"$match": laid_out},
            {"$project": {"sections.rows": 0, "description": 0, "words": 0}},
        ],
        moment,
    )


def _from_nothing(old: Document, now: datetime) -> Document:
    """The counters of an event as they were begun."""
    return {
        **old,
        "seats": _seat_counts(old["seats"]["total"]),
        "orders": dict.fromkeys(orders.STATUSES, 0),
        "revenue": 0,
        "refunds": 0,
        "holds": {"created": 0, "released": 0, "expired": 0},
        "sections": [
            {"name": section["name"], **_seat_counts(section["total"]), "revenue": 0}
            for section in old["sections"]
        ],
        "recentSales": [],
        "salesByMinute": [],
        "updatedAt": now,
    }


async def rebuild(database: Database, now: datetime) -> int:
    """Count every event afresh and let the change stream go on from that very moment.

    Works while a changes worker runs: counters and place are replaced together, the worker finds
    itself overtaken, and counts on from the moment of the recount. Tallies of holds are kept.
    Returns how many events were counted.
    """
    moment = await mongo.present_time(database)
    found = await events_at(database, moment)
    counted_ids = {event["_id"] for event in found}
    fresh = [await recount(database, event, moment, now) for event in found]

    async def body(session: Session) -> None:
        await database.resume_tokens.update_one(
            {"_id": POSITION_ID},
            {
                "$inc": {"sequence": 1},
                "$set": {"token": None, "operationTime": moment, "savedAt": now},
            },
            upsert=True,
            session=session,
        )
        # Whatever could not be counted before this moment has been counted now.
        await database.changes_set_aside.update_many(
            {"open": True}, {"$unset": {"open": ""}, "$set": {"recountedAt": now}}, session=session
        )
        stored = {
            old["_id"]: old
            for old in await database.dashboards.find({}, session=session).to_list(
                EVENTS_PER_READ_MAX
            )
        }
        # Events made since the moment had no change before it: they begin from nothing again.
        new = [_from_nothing(old, now) for old in stored.values() if old["_id"] not in counted_ids]
        writes, records = [], []
        found_sold_out = [
            (stored[dashboard["_id"]], dashboard)
            for dashboard in fresh
            if dashboard["_id"] in stored
        ]
        await _tell_sold_out(database, found_sold_out, now, session)
        for dashboard in [*fresh, *new]:
            old = stored.get(dashboard["_id"])
            # One version is left out, so that the boards see a gap and read the seats themselves.
            kept = {"version": old["version"] + 2} if old else {}
            if old and dashboard["_id"] in counted_ids:
                kept["holds"] = old["holds"]
            records.append(boards.record(dashboard["_id"], (dashboard | kept)["version"], (), now))
            writes.append(ReplaceOne({"_id": dashboard["_id"]}, dashboard | kept, upsert=True))
        if writes:
            await database.dashboards.bulk_write(writes, session=session)
            await database.seat_changes.delete_many(
                {"_id": {"$in": [record["_id"] for record in records]}}, session=session
            )
            await database.seat_changes.insert_many(records, session=session)

    await mongo.transaction(database, body, seconds_max=None)
    return len(fresh)
