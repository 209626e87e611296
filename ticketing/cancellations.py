"""An event is called off: all its orders are cancelled and refunded, by a job in the background.

The job is a document. Each order is cancelled in a transaction of its own that counts it in the
job as well, so a worker may die at any point, and another goes on from there and counts nothing
twice. `leaseUntil` says who works at it: nobody, once that is past; `fence` keeps one out whose
lease was taken over.
"""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from pymongo import ReturnDocument

from ticketing import back_off, checkout, events, mongo, outbox, states
from ticketing.accounts import Caller
from ticketing.errors import NotFound
from ticketing.mongo import Database, Document, Session

ORDERS_PER_BATCH = 50
FRUITLESS_PASSES_MAX = 10
# For one batch. A little longer than one order may take at worst, so that nobody who lives is taken
# over at each hiccup, and short, so that the job of a dead worker goes on within seconds.
LEASE = timedelta(seconds=10)
# Orders may still be placed for a moment after the event was called off, since some processes know
# events as they were half a second ago: the job looks once more after this time.
SETTLES_AFTER = timedelta(seconds=5)
FAILURES_KEPT_MAX = 100
OPEN_STATUSES = states.befores(states.ORDER, "cancelled")

log = logging.getLogger("ticketing.cancellations")


async def begin(database: Database, event_id: str, caller: Caller, now: datetime) -> Document:
    """Call off an event for good; returns the job. Doing it again returns the same job.

    Raises NotFound, or EventState for an event that has ended.
    """
    event = await events.owned(database, event_id, caller, "owner")

    async def body(session: Session) -> Document:
        known = await database.jobs.find_one({"_id": _job_id(event_id)}, session=session)
        if known is not None:
            return known
        if not await events.cancel(database, event_id, now, session=session) and (
            event["status"] != "cancelled"
        ):
            raise events.EventState("The event has ended: it can't be cancelled.")
        total = await database.orders.count_documents(
            {"eventId": event_id, "status": {"$in": OPEN_STATUSES}}, session=session
        )
        job: Document = {
            "_id": _job_id(event_id),
            "kind": "cancelEvent",
            "eventId": event_id,
            "by": caller.subject,
            "status": "running",
            "total": total,
            "cancelled": 0,
            "refunded": 0,
            "amount": 0,
            "currency": event["currency"],
            "failures": [],
            "createdAt": now,
            "leaseUntil": now,
            "fence": 0,
        }
        await database.jobs.insert_one(job, session=session)
        told = outbox.message("event.cancelled", event_id, None, {"name": event["name"]}, now)
        await database.outbox.insert_one(told, session=session)
        return job

    return await mongo.transaction(database, body)


async def find(database: Database, event_id: str) -> Document:
    """The job of a cancelled event. Raises NotFound."""
    job = await database.jobs.find_one({"_id": _job_id(event_id)})
    if job is None:
        raise NotFound("The event is not cancelled.")
    return job


def _job_id(event_id: str) -> str:
    return f"cancel:{event_id}"


class _TakenOver(Exception):
    """Another worker has the job now."""


async def run_due(
    database: Database, now: datetime, *, stopping: Callable[[], bool] = lambda: False
) -> int:
    """Cancel the next batch of one job whose turn it is; returns how many orders were cancelled.

    Ends before the next order when it is told to stop; whoever comes next goes on.
    """
    job = await database.jobs.find_one_and_update(
        {"status": "running", "leaseUntil": {"$lte": now}},
        {"$set": {"leaseUntil": now + LEASE}, "$inc": {"fence": 1}},
        sort=[("leaseUntil", 1)],
        return_document=ReturnDocument.AFTER,
    )
    if job is None:
        return 0
    try:
        found, cancelled = await _batch(database, job, now, stopping)
        if found < ORDERS_PER_BATCH and not stopping():
            await _pass_is_over(database, job, now, found=found, cancelled=cancelled)
        else:
            await _update(database, job, {"$set": {"leaseUntil": now}})
    except _TakenOver:
        log.info("Job %s was taken over", job["_id"])
        return 0
    return cancelled


async def _batch(
    database: Database, job: Document, now: datetime, stopping: Callable[[], bool]
) -> tuple[int, int]:
    """Cancel the next orders; how many were found, and how many of them were cancelled.

    Goes through the event's orders from the newest on, by a place that is kept in the job.
    """
    filter_: Document = {"eventId": job["eventId"], "status": {"$in": OPEN_STATUSES}}
    if place := job.get("place"):
        filter_["createdAt"] = {"$lte": place["at"]}
        filter_["$or"] = [{"createdAt": {"$lt": place["at"]}}, {"_id": {"$lt": place["id"]}}]
    orders = (
        await database.orders.find(filter_, {"createdAt": 1})
        .sort([("createdAt", -1), ("_id", -1)])
        .limit(ORDERS_PER_BATCH)
        .to_list(ORDERS_PER_BATCH)
    )
    cancelled = 0
    for order in orders:
        if stopping():
            return len(orders), cancelled
        try:
            cancelled += await _cancel(database, job, order["_id"], now)
        except _TakenOver:
            raise
        except Exception as error:
            if mongo.is_outage(error):
                raise
            # One that can't be cancelled must not keep the others from their money.
            log.exception("Order %s could not be cancelled", order["_id"])
            await _record_failure(database, job, order["_id"], type(error).__name__)
    if orders:
        job["place"] = {"at": orders[-1]["createdAt"], "id": orders[-1]["_id"]}
        await _update(database, job, {"$set": {"place": job["place"]}})
    return len(orders), cancelled


async def _cancel(database: Database, job: Document, order_id: str, now: datetime) -> int:
    async def body(session: Session) -> int:
        order = await database.orders.find_one({"_id": order_id}, session=session)
        if order is None or order["status"] not in OPEN_STATUSES:
            return 0
        amount = await checkout.cancel_in(
            database,
            session,
            order,
            by=job["by"],
            why="the event is cancelled",
            cause="event",
            now=now,
        )
        counted = {"cancelled": 1, "refunded": int(amount > 0), "amount": amount}
        await _update(database, job, {"$inc": counted}, session)
        return 1

    return await mongo.transaction(database, body)


async def _update(
    database: Database, job: Document, update: Document, session: Session | None = None
) -> None:
    result = await database.jobs.update_one(
        {"_id": job["_id"], "fence": job["fence"]}, update, session=session
    )
    if result.matched_count == 0:
        raise _TakenOver


async def _record_failure(database: Database, job: Document, order_id: str, problem: str) -> None:
    failure = {"orderId": order_id, "problem": problem}
    kept: Any = {"$push": {"failures": {"$each": [failure], "$slice": -FAILURES_KEPT_MAX}}}
    await _update(database, job, kept)


async def _pass_is_over(
    database: Database, job: Document, now: datetime, *, found: int, cancelled: int
) -> None:
    """All orders were gone through: done if none was left, else once more.

    `cancelled` is what the last batch did; the job tells of those before it.
    """
    is_clean = found == 0 and "place" not in job
    if is_clean and now - job["createdAt"] >= SETTLES_AFTER:
        await _end(database, job, "done", now)
        log.info("Event %s is cancelled with all its orders", job["eventId"])
        return
    total = job["cancelled"] + cancelled
    in_vain = not is_clean and total == job.get("cancelledBefore", 0)
    fruitless = job.get("fruitless", 0) + 1 if in_vain else 0
    if fruitless >= FRUITLESS_PASSES_MAX:
        await _end(database, job, "stuck", now)
        log.error("Event %s has orders that can't be cancelled", job["eventId"])
        return
    again = max(now, job["createdAt"] + SETTLES_AFTER)
    if fruitless:
        again = max(again, now + back_off.pause(fruitless))
    changes = {"leaseUntil": again, "fruitless": fruitless, "cancelledBefore": total}
    await _update(database, job, {"$set": changes, "$unset": {"place": ""}})


async def _end(database: Database, job: Document, status: str, now: datetime) -> None:
    ended: Document = {"status": status, "finishedAt": now}
    await _update(database, job, {"$set": ended, "$unset": {"place": ""}})
