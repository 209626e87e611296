"""The driver's own limits: the statements that a sale is made of, with nothing else around them.

The documents, indexes and validators are the real ones. Sixty-four statements are in flight at
once, alone or in groups, as many as the service has connections to serve.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import islice
from time import monotonic
from typing import Any, TypeVar

from pymongo import UpdateOne

from scripts.benchmark.figures import Stopwatch, latencies
from scripts.benchmark.loads import Load, Outcome
from ticketing import checkout, clock, gateway, holds, identifiers, mongo, seats
from ticketing.checkout import Writes
from ticketing.gateway import Notice
from ticketing.holds import Hold, HoldRequest
from ticketing.mongo import Database, Document
from ticketing.orders import OrderRequest
from ticketing.settings import Settings

STATEMENTS_IN_FLIGHT = 64
STATEMENTS_PER_GROUP = 32
ORDERS_PER_TRANSACTION = 16
_HOLD_SECONDS = 600

Item = TypeVar("Item")


async def _all(
    work: Callable[[Item], Awaitable[object]], items: Iterator[Item], at_once: int
) -> list[float]:
    """Do the work for each item with so many at once; how long each took."""
    seconds: list[float] = []

    async def worker() -> None:
        for item in items:
            began = monotonic()
            await work(item)
            seconds.append(monotonic() - began)

    await asyncio.gather(*(worker() for _ in range(at_once)))
    return seconds


def _groups(items: Sequence[Item], size: int) -> Iterator[list[Item]]:
    iterator = iter(items)
    while group := list(islice(iterator, size)):
        yield group


class RawSingle(Load, kw_only=True):
    """One compare-and-set a round trip."""

    event_id: str
    seat_count: int

    async def run(self, settings: Settings, stopwatch: Stopwatch) -> Outcome:
        """Take every seat of the event."""
        client = await mongo.connect(settings)
        collection = client.database.seats
        claims = _claims(self.event_id, self.seat_count)
        taken = 0

        async def take(claim: tuple[Document, Document]) -> None:
            nonlocal taken
            result = await collection.update_one(*claim)
            taken += result.modified_count

        # Connections are opened before the clock starts.
        await _all(lambda _: client.database.command("ping"), iter(range(64)), 64)
        with stopwatch.running():
            seconds = await _all(take, iter(claims), STATEMENTS_IN_FLIGHT)
        assert taken == self.seat_count
        await client.close()
        return Outcome({"seatsPerSecond": taken / stopwatch.seconds, **latencies(seconds)})


class RawGrouped(Load, kw_only=True):
    """The same statements, 32 to a bulk write."""

    event_id: str
    seat_count: int

    async def run(self, settings: Settings, stopwatch: Stopwatch) -> Outcome:
        """Take every seat of the event."""
        client = await mongo.connect(settings)
        collection = client.database.seats
        claims = _claims(self.event_id, self.seat_count)
        taken = 0

        async def take(group: list[tuple[Document, Document]]) -> None:
            nonlocal taken
            writes = [UpdateOne(filter_, update) for filter_, update in group]
            result = await collection.bulk_write(writes, ordered=False)
            taken += result.modified_count

        await _all(lambda _: client.database.command("ping"), iter(range(64)), 64)
        at_once = STATEMENTS_IN_FLIGHT // STATEMENTS_PER_GROUP
        with stopwatch.running():
            seconds = await _all(take, _groups(claims, STATEMENTS_PER_GROUP), at_once)
        assert taken == self.seat_count
        await client.close()
        return Outcome({"seatsPerSecond": taken / stopwatch.seconds, **latencies(seconds)})


def _claims(event_id: str, seat_count: int) -> list[tuple[Document, Document]]:
    """The compare-and-set of a hold for each seat, in no order, each by a fan of its own."""
    until = clock.now() + clock.seconds(_HOLD_SECONDS)
    ordinals = list(range(seat_count))
    random.Random(1).shuffle(ordinals)  # noqa: S311
    claims: list[tuple[Document, Document]] = []
    for ordinal in ordinals:
        fan = identifiers.fresh("fan")
        hold_id = (
            f"hold_{event_id.removeprefix('evt_')}.{identifiers.digest(fan)[:24]}."
            f"{identifiers.digest(fan, 'key')}.{identifiers.digest(fan, 'body')}"
        )
        changes: dict[str, Any] = {
            "status": "held",
            "from": "available",
            "cause": "placed",
            "holdId": hold_id,
            "heldUntil": until,
            "fanSlot": holds.fan_slot(event_id, fan, 0),
            "holdLead": True,
        }
        identifier = seats.seat_id(event_id, ordinal)
        claims.append(({"_id": identifier, "status": "available"}, {"$set": changes}))
    return claims


class RawConfirm(Load, kw_only=True):
    """The writes of a confirmation, sixteen orders in one majority transaction."""

    event_id: str
    seat_count: int

    async def run(self, settings: Settings, stopwatch: Stopwatch) -> Outcome:
        """Confirm an order of each seat of the event; holds and orders are made first."""
        client = await mongo.connect(settings)
        database = client.database
        now = clock.now()
        waiting = await _orders(database, self.event_id, self.seat_count)
        # Decided and put into words before the clock starts: what is left is the driver's part.
        confirmations = [
            checkout.confirmation([(order, _paid(order)) for order in group], now)
            for group in _groups(waiting, ORDERS_PER_TRANSACTION)
        ]

        async def confirm(writes: Writes) -> None:
            await mongo.transaction(database, lambda session: writes.write(database, session))

        at_once = STATEMENTS_IN_FLIGHT // ORDERS_PER_TRANSACTION
        await _all(lambda _: database.command("ping"), iter(range(64)), 64)
        with stopwatch.running():
            seconds = await _all(confirm, iter(confirmations), at_once)
        confirmed = await database.orders.count_documents(
            {"eventId": self.event_id, "status": "confirmed"}
        )
        assert confirmed == self.seat_count
        await client.close()
        return Outcome({"ordersPerSecond": confirmed / stopwatch.seconds, **latencies(seconds)})


async def _orders(database: Database, event_id: str, count: int) -> list[Document]:
    now = clock.now()
    made: list[Document] = []
    for ordinals in _groups(range(count), STATEMENTS_IN_FLIGHT):
        wishes = [
            HoldRequest(event_id, f"fan_raw_{ordinal}", (seats.seat_id(event_id, ordinal),))
            for ordinal in ordinals
        ]
        placed = await holds.place(database, wishes, hold_seconds=_HOLD_SECONDS, now=now)
        requests = [
            OrderRequest(wish.fan_id, hold.hold_id)
            for wish, hold in zip(wishes, placed, strict=True)
            if isinstance(hold, Hold)
        ]
        outcomes = await checkout.place_orders(database, requests, now=now)
        made += [order for order in outcomes if isinstance(order, dict)]
    assert len(made) == count
    return made


def _paid(order: Document) -> Notice:
    return Notice(
        gateway.SANDBOX,
        order["payment"]["paymentId"],
        "payment.succeeded",
        order["payment"]["paymentId"],
        order["_id"],
        order["total"],
        order["currency"],
    )
