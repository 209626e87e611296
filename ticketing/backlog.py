"""How much waits that should not wait long: what an operator looks at first.

Each question is answered by an index and counts no further than COUNTED_MAX.
"""

from dataclasses import dataclass
from datetime import datetime

from ticketing import mails, payment_pages, webhooks
from ticketing.mongo import Collection, Database, Document

COUNTED_MAX = 1_000
CONSUMERS = (mails.CONSUMER, webhooks.CONSUMER, payment_pages.CONSUMER)


@dataclass(frozen=True)
class Backlog:
    """Ages are of the oldest and 0 where nothing waits; a count of COUNTED_MAX may be more."""

    unspread_message_seconds: float
    due_delivery_seconds: dict[str, float]
    """By consumer."""
    overdue_hold_seconds: float
    dead_deliveries: int
    unknown_notices: int
    given_up_refunds: int


async def read(database: Database, now: datetime) -> Backlog:
    """What waits now."""
    return Backlog(
        unspread_message_seconds=await _age(
            database.outbox, {"pending": True}, "createdAt", now, also=("_id",)
        ),
        due_delivery_seconds={
            consumer: await _age(
                database.deliveries, {"consumer": consumer, "dueAt": {"$lte": now}}, "dueAt", now
            )
            for consumer in CONSUMERS
        },
        overdue_hold_seconds=await _age(
            database.seats, {"heldUntil": {"$lte": now}, "status": "held"}, "heldUntil", now
        ),
        dead_deliveries=await _count(database.deliveries, {"status": "dead"}),
        unknown_notices=await _count(database.notices, {"outcome": "unknown"}),
        given_up_refunds=await _count(database.refunds, {"givenUpAt": {"$exists": True}}),
    )


async def _age(
    collection: Collection,
    filter_: Document,
    name: str,
    now: datetime,
    also: tuple[str, ...] = (),
) -> float:
    order = [(field, 1) for field in (name, *also)]
    found = await collection.find(filter_, {name: 1}).sort(order).limit(1).to_list(1)
    return max((now - found[0][name]).total_seconds(), 0.0) if found else 0.0


async def _count(collection: Collection, filter_: Document) -> int:
    counted: int = await collection.count_documents(filter_, limit=COUNTED_MAX)
    return counted
