"""An event is moved: to another time, another place, or both.

The event is changed at once. Its orders each have a copy of what the fan bought, and follow in the
background, each with a message to its fan. `moves` counts how often the event was moved, and an
order's copy says up to which of them it has followed: so a worker may die at any point, any number
may work at it, and nobody is told twice. `moveDueAt` is when somebody is to look at it next.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from pymongo import ReturnDocument

from ticketing import events, mongo, outbox
from ticketing.accounts import Caller
from ticketing.clock import rfc3339
from ticketing.events import Move
from ticketing.mongo import Database, Document, Session

ORDERS_PER_BATCH = 50
# Short, so that the orders left by a dead worker follow within seconds. Two at once do no harm.
LEASE = timedelta(seconds=10)
# Orders may still be placed for a moment with the event as it was, since some processes know events
# as they were half a second ago: the orders are gone through once more after this time.
SETTLES_AFTER = timedelta(seconds=5)
# What a fan may still go to, or pay for.
_FOLLOWING = ["pendingPayment", "confirmed"]


async def move(
    database: Database, event_id: str, caller: Caller, wanted: Move, now: datetime
) -> Document:
    """Move an event and return it; to move it to where it is changes nothing.

    Raises NotFound, Invalid, or EventState for an event that is over or called off.
    """

    async def body(session: Session) -> Document:
        event = await events.owned(database, event_id, caller, "editor", session=session)
        changes = events.moved(event, wanted)
        if not changes:
            return event
        if event["status"] not in ("draft", "published"):
            raise events.EventState(f"The event is {event['status']}: it can't be moved.")
        changes |= {"movedAt": now, "moveDueAt": now}
        after: Document | None = await database.events.find_one_and_update(
            {"_id": event_id},
            {"$set": changes, "$inc": {"moves": 1}},
            return_document=ReturnDocument.AFTER,
            session=session,
        )
        assert after is not None  # Read in the same snapshot.
        if after["status"] == "published":
            where = {"name": after["name"], **_where_and_when(after)}
            told = outbox.message("event.moved", event_id, None, where, now)
            await database.outbox.insert_one(told, session=session)
        return after

    return await mongo.transaction(database, body)


def _where_and_when(event: Document) -> dict[str, Any]:
    return {
        "startsAt": rfc3339(event["startsAt"]),
        "timezone": event["timezone"],
        "venueName": event["venueName"],
    }


async def run_due(
    database: Database, now: datetime, *, stopping: Callable[[], bool] = lambda: False
) -> int:
    """Let the orders of one moved event follow; returns how many there were."""
    event: Document | None = await database.events.find_one_and_update(
        {"moveDueAt": {"$lte": now}},
        {"$set": {"moveDueAt": now + LEASE}},
        sort=[("moveDueAt", 1)],
        return_document=ReturnDocument.AFTER,
    )
    if event is None:
        return 0
    followed = 0
    behind: Document = {
        "eventId": event["_id"],
        "status": {"$in": _FOLLOWING},
        "event.moves": {"$ne": event["moves"]},
    }
    order_ids: list[str] = []
    # Newest first, by the index; what an earlier run has done is passed over.
    cursor = database.orders.find(behind, {"_id": 1}).sort([("createdAt", -1), ("_id", -1)])
    async for order in cursor.batch_size(ORDERS_PER_BATCH):
        order_ids.append(order["_id"])
        if len(order_ids) == ORDERS_PER_BATCH:
            followed += await _follow(database, event, order_ids, now)
            order_ids = []
            until = now if stopping() else now + LEASE
            if not await _keep(database, event, until) or until == now:
                return followed
    followed += await _follow(database, event, order_ids, now)
    await _pass_is_over(database, event, followed, now)
    return followed


async def _follow(database: Database, event: Document, order_ids: list[str], now: datetime) -> int:
    """Let these orders follow, those that have not meanwhile, each confirmed one with a message."""

    async def body(session: Session) -> int:
        behind: Document = {
            "_id": {"$in": order_ids},
            "status": {"$in": _FOLLOWING},
            "event.moves": {"$ne": event["moves"]},
        }
        found = await database.orders.find(behind, {"status": 1}, session=session).to_list(
            len(order_ids)
        )
        if not found:
            return 0
        copied = {f"event.{name}": event[name] for name in ("startsAt", "timezone", "venueName")}
        await database.orders.update_many(
            {"_id": {"$in": [order["_id"] for order in found]}},
            {"$set": copied | {"event.moves": event["moves"]}},
            session=session,
        )
        messages = [
            outbox.message("order.moved", event["_id"], order["_id"], _where_and_when(event), now)
            for order in found
            if order["status"] == "confirmed"
        ]
        if messages:
            await database.outbox.insert_many(messages, session=session)
        return len(found)

    return await mongo.transaction(database, body) if order_ids else 0


async def _keep(database: Database, event: Document, until: datetime) -> bool:
    """Keep the event until then; False if it was moved again, and somebody begins anew."""
    kept = await database.events.update_one(
        {"_id": event["_id"], "moves": event["moves"]}, {"$set": {"moveDueAt": until}}
    )
    return kept.matched_count == 1


async def _pass_is_over(database: Database, event: Document, followed: int, now: datetime) -> None:
    """Done if no order was behind once all processes know of the move, else once more."""
    same = {"_id": event["_id"], "moves": event["moves"]}
    settled_at = event["movedAt"] + SETTLES_AFTER
    if followed == 0 and now >= settled_at:
        await database.events.update_one(same, {"$unset": {"moveDueAt": ""}})
    else:
        again = max(now, settled_at)
        await database.events.update_one(same, {"$set": {"moveDueAt": again}})
