"""Orders of events long past move to a collection of their own, where their fans still see them.

The collection that a sale writes to stays as small as the sales of two years. An event is moved as
a whole, once its books are right; from then on nothing of it changes, and audits leave it alone.
"""

import asyncio
import logging
from datetime import datetime, timedelta

from ticketing import invariants, mongo
from ticketing.mongo import Database, Document, Session

# Longer than any provider lets a payment be disputed.
KEPT = timedelta(days=730)
TRIED_AGAIN_AFTER = timedelta(days=1)
EVENTS_PER_RUN_MAX = 20
ORDERS_PER_BATCH = 200

log = logging.getLogger("ticketing.archive")


async def due(database: Database, now: datetime) -> list[str]:
    """Events that are to be moved, the oldest first, and before all those that were begun."""
    past: Document = {"status": {"$in": ["ended", "cancelled"]}, "startsAt": {"$lte": now - KEPT}}
    begun = database.events.find({"archiving": True}, {"_id": 1})
    ids = [event["_id"] for event in await begun.to_list(EVENTS_PER_RUN_MAX)]
    unmoved = {"archivedAt": {"$exists": False}, "archiveRetryAt": {"$not": {"$gt": now}}}
    waiting = database.events.find({**past, **unmoved}, {"_id": 1})
    left = EVENTS_PER_RUN_MAX - len(ids)
    if left:
        oldest = waiting.sort([("startsAt", 1), ("_id", 1)]).limit(left)
        ids += [event["_id"] for event in await oldest.to_list(left)]
    return ids


async def move(
    database: Database, event_id: str, now: datetime, over: asyncio.Event | None = None
) -> int | None:
    """Move an event's orders; returns how many, or None where its books are not right yet.

    Once `over` is set it ends after the batch that is under way, and the next call goes on. May die
    at any moment and be begun again: a batch is moved in one transaction, and what was moved is not
    found a second time.
    """
    event = await database.events.find_one({"_id": event_id})
    assert event is not None
    if "archivedAt" not in event:
        findings = await invariants.check_event(database, event, await mongo.present_time(database))
        if findings or await _is_open(database, event_id):
            log.warning(
                "%s is not archived: %s",
                event_id,
                findings[0].rule if findings else "money is still on its way",
            )
            # Else the oldest that can't be moved would stand in the way of all others.
            await database.events.update_one(
                {"_id": event_id}, {"$set": {"archiveRetryAt": now + TRIED_AGAIN_AFTER}}
            )
            return None
        await database.events.update_one(
            {"_id": event_id}, {"$set": {"archivedAt": now, "archiving": True}}
        )
    moved = 0
    while count := await mongo.transaction(
        database, lambda session: _move_some(database, event_id, session), seconds_max=None
    ):
        moved += count
        if over is not None and over.is_set():
            return moved
    await database.events.update_one({"_id": event_id}, {"$unset": {"archiving": ""}})
    return moved


async def _is_open(database: Database, event_id: str) -> bool:
    """Whether anything of the event's money may still move."""
    refund = await database.refunds.find_one(
        {"eventId": event_id, "status": {"$in": ["created", "sent", "failed"]}}, {"_id": 1}
    )
    order = await database.orders.find_one(
        {"eventId": event_id, "status": "pendingPayment"}, {"_id": 1}
    )
    return refund is not None or order is not None


async def _move_some(database: Database, event_id: str, session: Session) -> int:
    found = database.orders.find({"eventId": event_id}, session=session).limit(ORDERS_PER_BATCH)
    orders = await found.to_list(ORDERS_PER_BATCH)
    if orders:
        await database.orders_archive.insert_many(orders, session=session)
        await database.orders.delete_many(
            {"_id": {"$in": [order["_id"] for order in orders]}}, session=session
        )
    return len(orders)
