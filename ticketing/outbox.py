"""A message says that something happened, and is written in the transaction that made it happen.

Afterwards it is spread: each consumer that wants it gets a delivery of it, a document of its own.

    waiting → taken → done | skipped
                    → waiting           (failed; tried again later and later, for a day)
                    → dead              (given up, until a person requeues it)

A delivery is taken by a lease. A worker that dies leaves a lease that lapses, and another worker
takes the delivery with a higher `fence`; whoever comes back late finds that it is its no more. So
every message reaches every consumer at least once: a consumer names what it sends so that its
receiver can tell a repetition (a mail's `Message-ID`, a webhook's `webhook-id`).

What one consumer gets of one order is a lane. Only the oldest open delivery of a lane may be taken,
so that an order's messages come in order; one that is dead stands in nobody's way.
"""

import asyncio
import logging
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from pymongo import ReturnDocument, UpdateOne
from pymongo.errors import BulkWriteError

from ticketing import back_off, identifiers, message_kinds, mongo
from ticketing.clock import seconds
from ticketing.mongo import Database, Document
from ticketing.telemetry import traces

SPREAD_PER_RUN_MAX = 200
DUE_READ_MAX = 200
LEASE_SECONDS = 60.0
ATTEMPT_SECONDS_MAX = 20.0
# A lease outlasts an attempt, so that only what died or was cut off is taken twice.
assert ATTEMPT_SECONDS_MAX * 2 < LEASE_SECONDS

RETRY_SECONDS_MAX = 2 * 3_600.0
TRIED_SECONDS_MAX = 24 * 3_600.0
# A message is kept for as long as any delivery of it may still be looked at or requeued.
DELIVERED_KEPT_SECONDS = 30 * 86_400
DEAD_KEPT_SECONDS = 90 * 86_400
MESSAGE_KEPT_SECONDS = 100 * 86_400
ATTEMPTS_SHOWN_MAX = 20
DETAIL_LENGTH_MAX = 300
DEAD_SHOWN_MAX = 1_000

_DUPLICATE = 11000

log = logging.getLogger("ticketing.outbox")


def message(
    kind: str, event_id: str, order_id: str | None, body: dict[str, Any], now: datetime
) -> Document:
    """A message to insert into `outbox` in the same transaction as its cause.

    `order_id` is None for what is about the event as a whole. Raises MessageFault for a body that
    is not of its kind.
    """
    about = {"eventId": event_id}
    return _message(kind, about if order_id is None else about | {"orderId": order_id}, body, now)


def account_message(kind: str, body: dict[str, Any], now: datetime) -> Document:
    """The same for what is about somebody's account, and no event. Raises MessageFault."""
    return _message(kind, {}, body, now)


def _message(kind: str, about: Document, body: dict[str, Any], now: datetime) -> Document:
    return {
        "_id": identifiers.ordered("msg", now),
        "kind": kind,
        "version": message_kinds.checked(kind, body).version,
        **about,
        "body": body,
        "createdAt": now,
        "pending": True,
        **({"trace": trace} if (trace := traces.traceparent()) else {}),
    }


# --- Consumers ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Done:
    """The message arrived."""

    detail: str


@dataclass(frozen=True)
class Skipped:
    """There is nothing to deliver (any more)."""

    detail: str


@dataclass(frozen=True)
class Failed:
    """It did not arrive, or it is not known whether it did. A `lasting` failure is not retried."""

    detail: str
    lasting: bool = False
    retry_after_seconds: float = 0.0


@dataclass(frozen=True)
class Postponed:
    """It was not tried, and is not to be before an instant."""

    until: datetime


Outcome = Done | Skipped | Failed | Postponed


class Consumer(Protocol):
    """One way out of here."""

    @property
    def name(self) -> str:
        """What its deliveries are marked with."""

    async def targets(self, messages: Sequence[Document]) -> dict[str, list[str]]:
        """To whom each of these messages goes, by message id; left out are those for nobody."""

    async def deliver(self, message: Document, target: str, now: datetime) -> Outcome:
        """Try once. May be cut off after ATTEMPT_SECONDS_MAX; may be asked again after success."""


# --- Spreading ---------------------------------------------------------------------------------


async def spread(database: Database, consumers: Sequence[Consumer], now: datetime) -> int:
    """Make the deliveries of the oldest messages that have none yet; returns how many messages.

    Any number of workers may do so at once: a delivery's id is made of message and target, so the
    second finds it there. They are made in the order of the messages, and a message counts as
    spread only after its deliveries are there. So where a delivery is seen, those of all earlier
    messages of its order were made before.
    """
    pending = (
        await database.outbox.find({"pending": True})
        .sort([("createdAt", 1), ("_id", 1)])
        .limit(SPREAD_PER_RUN_MAX)
        .to_list(SPREAD_PER_RUN_MAX)
    )
    if not pending:
        return 0
    wanted = [(consumer.name, await consumer.targets(pending)) for consumer in consumers]
    writes = [
        _made_once(_delivery(message, name, target, now))
        for message in pending
        for name, targets in wanted
        for target in targets.get(message["_id"], ())
    ]
    try:
        if writes:
            await database.deliveries.bulk_write(writes, ordered=True)
    except BulkWriteError as error:
        # Another worker made the same delivery at the same moment. The next run finds it made.
        if any(fault["code"] != _DUPLICATE for fault in error.details["writeErrors"]):
            raise
        return 0
    await database.outbox.update_many(
        {"_id": {"$in": [message["_id"] for message in pending]}},
        {"$unset": {"pending": ""}, "$set": {"forgetAt": now + seconds(MESSAGE_KEPT_SECONDS)}},
    )
    return len(pending)


def _delivery(message: Document, consumer: str, target: str, now: datetime) -> Document:
    about: Document = {name: message[name] for name in ("eventId", "orderId") if name in message}
    # What is about no event is about a request of its own: it waits for nothing.
    lane = message.get("orderId", message.get("eventId", message["_id"]))
    return {
        "_id": f"{message['_id']}:{target}",
        "messageId": message["_id"],
        "kind": message["kind"],
        **about,
        "consumer": consumer,
        "target": target,
        "lane": f"{target}:{lane}",
        "status": "waiting",
        "fence": 0,
        "attempts": 0,
        "tried": [],
        "createdAt": message["createdAt"],
        "dueAt": now,
    }


def _made_once(delivery: Document) -> UpdateOne:
    fields = {name: value for name, value in delivery.items() if name != "_id"}
    return UpdateOne({"_id": delivery["_id"]}, {"$setOnInsert": fields}, upsert=True)


# --- Taking ------------------------------------------------------------------------------------


async def take(database: Database, consumer: str, now: datetime, limit: int) -> list[Document]:
    """Take up to `limit` deliveries of a consumer that are due, each by a lease of its own."""
    due = (
        await database.deliveries.find({"consumer": consumer, "dueAt": {"$lte": now}})
        .sort("dueAt", 1)
        .limit(DUE_READ_MAX)
        .to_list(DUE_READ_MAX)
    )
    heads = await _heads(database, {delivery["lane"] for delivery in due})
    # Workers that look at the same moment see the same; shuffled, they seldom want the same.
    random.shuffle(due)
    taken: list[Document] = []
    for delivery in due:
        head = heads.get(delivery["lane"])
        if head is None:
            continue  # It was settled between the two reads.
        if head["_id"] != delivery["_id"]:
            if head["dueAt"] > now:
                await _stand_behind(database, delivery, head["dueAt"])
        elif delivery["status"] == "taken" and _is_over(delivery, now):
            # Its attempts ended with the worker again and again, so nobody settled it.
            await settle(database, delivery, Failed("every attempt was cut off"), now)
        elif len(taken) < limit and (mine := await _lease(database, delivery, now)):
            taken.append(mine)
    return taken


async def _heads(database: Database, lanes: Iterable[str]) -> dict[str, Document]:
    """The oldest open delivery of each of these lanes."""
    wanted = list(lanes)
    if not wanted:
        return {}
    found = await mongo.aggregate(
        database.deliveries,
        [
            {"$match": {"lane": {"$in": wanted}, "dueAt": {"$exists": True}}},
            {"$sort": {"lane": 1, "_id": 1}},
            {
                "$group": {
                    "_id": "$lane",
                    "head": {"$first": {"_id": "$_id", "dueAt": "$dueAt"}},
                }
            },
        ],
        length=len(wanted),
    )
    return {lane["_id"]: lane["head"] for lane in found}


def _unchanged(delivery: Document) -> Document:
    """Matches the delivery while nobody has taken, settled or woken it since it was read."""
    return {"_id": delivery["_id"], "fence": delivery["fence"], "dueAt": delivery["dueAt"]}


async def _stand_behind(database: Database, delivery: Document, until: datetime) -> None:
    # Out of the way of what can be taken. If the one before it is settled meanwhile, it was woken
    # and this matches nothing.
    await database.deliveries.update_one(_unchanged(delivery), {"$set": {"dueAt": until}})


async def _lease(database: Database, delivery: Document, now: datetime) -> Document | None:
    """The delivery, taken; None where another worker was faster."""
    taken: Document | None = await database.deliveries.find_one_and_update(
        _unchanged(delivery),
        {
            "$set": {"status": "taken", "dueAt": now + seconds(LEASE_SECONDS)},
            "$inc": {"fence": 1, "attempts": 1},
            "$min": {"firstTriedAt": now},
        },
        return_document=ReturnDocument.AFTER,
    )
    return taken


def _is_over(delivery: Document, now: datetime) -> bool:
    """Whether it was tried for long enough."""
    since: datetime = delivery.get("firstTriedAt", now)
    return now - since >= seconds(TRIED_SECONDS_MAX)


# --- Delivering --------------------------------------------------------------------------------


async def deliver(
    database: Database, consumer: Consumer, delivery: Document, now: datetime
) -> bool:
    """Try a delivery that was taken, and settle it; false where its lease was lost meanwhile."""
    began = time.monotonic()
    outcome = await _attempt(database, consumer, delivery, now)
    return await settle(database, delivery, outcome, now + seconds(time.monotonic() - began))


async def _attempt(
    database: Database, consumer: Consumer, delivery: Document, now: datetime
) -> Outcome:
    message = await database.outbox.find_one({"_id": delivery["messageId"]})
    if message is None:
        return Failed("its message is gone", lasting=True)
    try:
        with traces.work(f"deliver {consumer.name}", [traces.cause(message.get("trace"))]):
            async with asyncio.timeout(ATTEMPT_SECONDS_MAX):
                return await consumer.deliver(message, delivery["target"], now)
    except TimeoutError:
        return Failed(f"no answer within {ATTEMPT_SECONDS_MAX:g} seconds")
    except Exception as error:
        # A message that trips our own code must not stop the others; a person sees it in the log,
        # and after a day among the dead letters.
        log.exception("delivery %s failed", delivery["_id"])
        return Failed(f"a fault of ours: {type(error).__name__}")


async def settle(database: Database, delivery: Document, outcome: Outcome, now: datetime) -> bool:
    """Write down what became of a delivery as it was read; false where it is another's by now."""
    change = _change(delivery, outcome, now)
    settled = await database.deliveries.update_one(
        {"_id": delivery["_id"], "fence": delivery["fence"], "status": delivery["status"]}, change
    )
    if settled.modified_count == 0:
        log.warning("delivery %s was taken over by another worker", delivery["_id"])
        return False
    if "dueAt" in change.get("$unset", {}):
        # The next of the lane may have been told to wait for the end of this one's lease, or is
        # about to be, by a worker that saw the two before: the fence makes that one miss.
        await database.deliveries.find_one_and_update(
            {"lane": delivery["lane"], "dueAt": {"$exists": True}, "status": "waiting"},
            {"$min": {"dueAt": now}, "$inc": {"fence": 1}},
            sort=[("_id", 1)],
        )
    return True


def _change(delivery: Document, outcome: Outcome, now: datetime) -> Document:
    if isinstance(outcome, Postponed):
        return {
            "$set": {"status": "waiting", "dueAt": outcome.until},
            "$inc": {"attempts": -1},
        }
    detail = outcome.detail[:DETAIL_LENGTH_MAX]
    entry = {"at": now, "outcome": type(outcome).__name__.lower(), "detail": detail}
    tried = {"tried": {"$each": [entry], "$slice": -ATTEMPTS_SHOWN_MAX}}
    if isinstance(outcome, Failed) and not outcome.lasting and not _is_over(delivery, now):
        doubling = back_off.pause(delivery["attempts"], longest_seconds=RETRY_SECONDS_MAX)
        pause = max(doubling, seconds(outcome.retry_after_seconds))
        return {
            "$set": {"status": "waiting", "dueAt": now + pause},
            "$push": tried,
        }
    kept = DEAD_KEPT_SECONDS if isinstance(outcome, Failed) else DELIVERED_KEPT_SECONDS
    status = {Done: "done", Skipped: "skipped", Failed: "dead"}[type(outcome)]
    return {
        "$set": {"status": status, "settledAt": now, "forgetAt": now + seconds(kept)},
        "$unset": {"dueAt": ""},
        "$push": tried,
    }


# --- Dead letters ------------------------------------------------------------------------------


async def dead_letters(database: Database, limit: int) -> list[Document]:
    """The deliveries that were given up, the latest first."""
    found = database.deliveries.find({"status": "dead"}).sort("settledAt", -1).limit(limit)
    return await found.to_list(limit)


async def requeue(database: Database, delivery_ids: Sequence[str], now: datetime) -> int:
    """Let deliveries that were given up be tried for another day; returns how many of them were."""
    changed = await database.deliveries.update_many(
        {"_id": {"$in": list(delivery_ids)}, "status": "dead"}, again(now)
    )
    return changed.modified_count


async def requeue_all(database: Database, now: datetime) -> int:
    """The same with every delivery that was given up so far."""
    changed = await database.deliveries.update_many(
        {"status": "dead", "settledAt": {"$lte": now}}, again(now)
    )
    return changed.modified_count


def again(now: datetime) -> Document:
    """The change that makes a settled delivery wait anew. The fence stays: it only ever grows."""
    return {
        "$set": {"status": "waiting", "dueAt": now, "attempts": 0},
        "$unset": {"settledAt": "", "forgetAt": "", "firstTriedAt": ""},
    }
