"""A seat is one document, general admission too, and every change of its status is made here.

    available → held → sold → available        (blocked seats are never on sale)
                held → available

Each change is a compare-and-set: the filter names the status (and the owner) it expects, so of any
number of writers exactly one succeeds and nobody needs a lock. No change keeps the status. That is
what makes a change-stream record complete without looking at the document: `status` and `from`
always differ from what they were, so both are always in the record, and so is `cause`.

`_id` is `EVENTID:ORDINAL`, the ordinal zero-padded in plan order: one range scan reads an event.
`holdLead` marks one seat of each hold, so that holds can be counted from seat changes.
`fanSlot` is one of the places that a fan has at an event, as many as the limit per fan. No two
seats have the same: that unique index is the limit, whoever else writes for the same fan meanwhile.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pymongo import InsertOne, UpdateOne
from pymongo.errors import BulkWriteError

from ticketing import events
from ticketing.mongo import Database, Document, Session

SEATS_PER_INSERT_MAX = 2_000
SEATS_PER_SWEEP_MAX = 1_000
DUPLICATE_KEY_CODE = 11000
PLANS_MAX = 100

STATE_LETTERS = {"available": "a", "held": "h", "sold": "s", "blocked": "b"}


def seat_id(event_id: str, ordinal: int) -> str:
    """The identifier of the seat at that place of the plan."""
    return f"{event_id}:{ordinal:05d}"


def ordinal_of(identifier: str) -> int:
    """The place of a seat in its event's plan. The identifier must be one of ours."""
    return int(identifier.rpartition(":")[2])


def parse_ordinal(event: Document, identifier: str) -> int | None:
    """The seat's ordinal if it is a seat of this event, else None. Takes any text."""
    event_id, _, digits = identifier.rpartition(":")
    if event_id != event["_id"] or len(digits) != 5 or not (digits.isascii() and digits.isdigit()):
        return None
    ordinal = int(digits)
    return ordinal if ordinal < event["seatCount"] else None


def plan_range(event_id: str, first: int = 0, count: int | None = None) -> Document:
    """The filter on `_id` for an event's seats, or for `count` of them from `first` on."""
    # `;` follows `:`, so this bound ends the event whatever the ordinals.
    end = f"{event_id};" if count is None else seat_id(event_id, first + count)
    return {"$gte": seat_id(event_id, first), "$lt": end}


# --- Laying out --------------------------------------------------------------------------------


def _plan(event: Document) -> Iterator[Document]:
    """Every seat of the event in plan order, all available."""
    for section in event["sections"]:
        ordinal = section["firstOrdinal"]
        for row, number in places(section):
            yield {
                "_id": seat_id(event["_id"], ordinal),
                "eventId": event["_id"],
                "section": section["name"],
                "row": row,
                "number": number,
                "priceCategory": section["priceCategory"],
                "price": section["price"],
                "status": "available",
                "from": None,
                "cause": None,
            }
            ordinal += 1


def places(section: Document) -> Iterator[tuple[str | None, str | None]]:
    """The row and the number of each of a section's seats, in plan order; None where unnumbered."""
    if section["kind"] == "general":
        yield from ((None, None) for _ in range(section["seatCount"]))
        return
    for row in section["rows"]:
        numbers = row["seats"] if "seats" in row else map(str, range(1, row["count"] + 1))
        yield from ((row["name"], number) for number in numbers)


class Plan:
    """What never changes of an event's seats, from the event alone."""

    def __init__(self, event: Document) -> None:
        self._event_id: str = event["_id"]
        self._rows: list[tuple[Document, str | None, list[str] | None]] = []
        self._firsts: list[int] = []
        for section in event["sections"]:
            first = section["firstOrdinal"]
            for row in section.get("rows", [None]):
                name = None if row is None else row["name"]
                numbers = None if row is None else row.get("seats")
                self._firsts.append(first)
                self._rows.append((section, name, numbers))
                if row is not None:
                    first += row["count"] if numbers is None else len(numbers)

    def seat(self, ordinal: int) -> Document:
        """The seat of this ordinal, without its state."""
        place = bisect_right(self._firsts, ordinal) - 1
        section, row, numbers = self._rows[place]
        if row is None:
            number = None
        else:
            index = ordinal - self._firsts[place]
            number = str(index + 1) if numbers is None else numbers[index]
        return {
            "_id": seat_id(self._event_id, ordinal),
            "eventId": self._event_id,
            "section": section["name"],
            "row": row,
            "number": number,
            "priceCategory": section["priceCategory"],
            "price": section["price"],
        }


class Plans:
    """The plans of the events that were asked for last."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._plans: OrderedDict[str, Plan] = OrderedDict()

    async def get(self, event_id: str) -> Plan:
        """The event's plan. Raises NotFound."""
        plan = self._plans.get(event_id)
        if plan is None:
            plan = Plan(await events.find(self._database, event_id))
            self._plans[event_id] = plan
        self._plans.move_to_end(event_id)
        if len(self._plans) > PLANS_MAX:
            self._plans.popitem(last=False)
        return plan


async def lay_out(database: Database, event: Document) -> None:
    """Insert the event's seats in batches. May be repeated after dying half way.

    A seat that is there already is left alone: the event is not on sale before all are.
    """
    batch: list[InsertOne[Document]] = []
    for seat in _plan(event):
        batch.append(InsertOne(seat))
        if len(batch) == SEATS_PER_INSERT_MAX:
            await _insert(database, batch)
            batch = []
    if batch:
        await _insert(database, batch)


async def _insert(database: Database, batch: list[InsertOne[Document]]) -> None:
    try:
        await database.seats.bulk_write(batch, ordered=False)
    except BulkWriteError as error:
        duplicates_of(error)


def duplicates_of(error: BulkWriteError) -> list[Document]:
    """The faults of a write of several that found a unique key there already; raises any other.

    Also one that was written but not by a majority in time: nothing may be answered on that.
    """
    faults: list[Document] = error.details["writeErrors"]
    if error.details["writeConcernErrors"] or any(
        fault["code"] != DUPLICATE_KEY_CODE for fault in faults
    ):
        raise error
    return faults


# --- Reading -----------------------------------------------------------------------------------


async def read(
    database: Database,
    event: Document,
    section: Document | None = None,
    *,
    fields: Sequence[str] | None = None,
) -> list[Document]:
    """The event's seats in plan order, or one section's; whole, or `_id` and these fields."""
    filter_ = (
        plan_range(event["_id"])
        if section is None
        else plan_range(event["_id"], section["firstOrdinal"], section["seatCount"])
    )
    found = database.seats.find({"_id": filter_}, fields).sort("_id", 1).batch_size(10_000)
    return await found.to_list(event["seatCount"])


def is_free(seat: Document, now: datetime) -> bool:
    """Whether a buyer may have the seat: available, or held by somebody whose time is over."""
    status: str = seat["status"]
    return status == "available" or (status == "held" and seat["heldUntil"] <= now)


# --- Changing ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """A wish to hold one seat, in one of the fan's places at the event."""

    seat_id: str
    hold_id: str
    held_until: datetime
    fan_slot: str
    lead: bool

    @property
    def changes(self) -> Document:
        """What an available seat becomes."""
        changes = {
            "status": "held",
            "from": "available",
            "cause": "placed",
            "holdId": self.hold_id,
            "heldUntil": self.held_until,
            "fanSlot": self.fan_slot,
        }
        if self.lead:
            changes["holdLead"] = True
        return changes


@dataclass(frozen=True)
class Taken:
    """How many seats were won, and the holds that wanted a place their fan has used already."""

    count: int
    crowded: frozenset[str]


async def take(database: Database, claims: Sequence[Claim]) -> Taken:
    """available → held for each seat that still is available, if the fan's place is free."""
    if not claims:
        return Taken(0, frozenset())
    writes: list[Any] = [
        UpdateOne({"_id": claim.seat_id, "status": "available"}, {"$set": claim.changes})
        for claim in claims
    ]
    try:
        result = await database.seats.bulk_write(writes, ordered=False)
    except BulkWriteError as error:
        crowded = frozenset(claims[fault["index"]].hold_id for fault in duplicates_of(error))
        return Taken(error.details["nModified"], crowded)
    return Taken(result.modified_count, frozenset())


_FREED = {"holdId": "", "heldUntil": "", "holdLead": "", "fanSlot": ""}


async def let_go(
    database: Database,
    hold_ids: Iterable[str],
    cause: str,
    *,
    held_until: datetime | None = None,
    among: Iterable[str] | None = None,
    session: Session | None = None,
) -> int:
    """held → available for the seats of these holds; `cause` is released or yielded.

    A seat of theirs that was sold in the meantime, or has gone to somebody else, is not touched.
    With `held_until` only what is held until then, and only seats `among` those given: what one
    attempt took, and not what another attempt at the same hold did.
    """
    mine: Document = {"holdId": {"$in": list(hold_ids)}, "status": "held"}
    if held_until is not None:
        mine["heldUntil"] = held_until
    if among is not None:
        mine["_id"] = {"$in": list(among)}
    result = await database.seats.update_many(
        mine,
        {"$set": {"status": "available", "from": "held", "cause": cause}, "$unset": _FREED},
        session=session,
    )
    return result.modified_count


async def lapse(database: Database, seat_ids: Iterable[str], now: datetime) -> int:
    """held → available for those of these seats whose hold is over.

    Whether it is over is judged in the write itself: a seat that was paid for, released or taken
    by the next fan after it was read as overdue does not match.
    """
    result = await database.seats.update_many(
        {"_id": {"$in": list(seat_ids)}, "status": "held", "heldUntil": {"$lte": now}},
        {"$set": {"status": "available", "from": "held", "cause": "lapsed"}, "$unset": _FREED},
    )
    return result.modified_count


async def lapse_overdue(database: Database, now: datetime) -> int:
    """Free up to SEATS_PER_SWEEP_MAX seats whose hold is over; returns how many were found."""
    overdue = (
        await database.seats.find({"heldUntil": {"$lte": now}, "status": "held"}, {"_id": 1})
        .sort("heldUntil", 1)
        .limit(SEATS_PER_SWEEP_MAX)
        .to_list(SEATS_PER_SWEEP_MAX)
    )
    if overdue:
        await lapse(database, [seat["_id"] for seat in overdue], now)
    return len(overdue)


async def overdue_of(database: Database, event_id: str, now: datetime) -> list[int]:
    """The places in the plan of an event's seats whose hold is over, up to SEATS_PER_SWEEP_MAX.

    Few, since the release worker sweeps them; all there are while it is down.
    """
    found = database.seats.find(
        {"heldUntil": {"$lte": now}, "status": "held", "_id": plan_range(event_id)}, {"_id": 1}
    ).hint([("heldUntil", 1)])
    overdue = await found.limit(SEATS_PER_SWEEP_MAX).to_list(SEATS_PER_SWEEP_MAX)
    return [ordinal_of(seat["_id"]) for seat in overdue]


def sale(order_id: str, seat: Document) -> UpdateOne:
    """The write that sells a seat to the order of the hold that has it, as it was read.

    Made for the confirmation transaction, which reads the seat in the same snapshot.
    """
    owner = {"holdId": seat["holdId"], "heldUntil": seat["heldUntil"]}
    return UpdateOne(
        {"_id": seat["_id"], "status": "held", **owner},
        {
            "$set": {"status": "sold", "from": "held", "cause": "confirmed", "orderId": order_id},
            "$unset": {"heldUntil": "", "holdLead": ""},
        },
    )


async def give_back(
    database: Database, order_id: str, session: Session, *, among: Iterable[str] | None = None
) -> int:
    """sold → available for an order's seats, in the transaction that cancels it.

    All of them, or only those `among` the given.
    """
    mine: Document = {"orderId": order_id, "status": "sold"}
    if among is not None:
        mine["_id"] = {"$in": list(among)}
    result = await database.seats.update_many(
        mine,
        {
            "$set": {"status": "available", "from": "sold", "cause": "cancelled"},
            "$unset": {"holdId": "", "orderId": "", "fanSlot": ""},
        },
        session=session,
    )
    return result.modified_count
