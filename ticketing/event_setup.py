"""An event comes into being with all its seats and its counters, or not at all."""

from datetime import datetime

from pymongo import ReturnDocument
from pymongo.errors import DocumentTooLarge, DuplicateKeyError

from ticketing import dashboards, events, identifiers, seats
from ticketing.clock import seconds
from ticketing.errors import IdempotencyInProgress, IdempotencyKeyReused, Invalid
from ticketing.mongo import Database, Document

# How long one attempt may take before a repeated request may take over. Laying out 80,000 seats
# takes a few seconds.
SETUP_LEASE_SECONDS = 60
ABANDONED_AFTER_SECONDS = 3_600
ABANDONED_PER_RUN_MAX = 10


async def create(
    database: Database,
    new: events.NewEvent,
    *,
    organiser_id: str,
    key: str | None,
    body: bytes,
    now: datetime,
) -> Document:
    """Make an event as a draft, with one document a seat, and return it.

    With a key the event's identity follows from it: a request repeated after a crash goes on where
    the first one died, and one repeated after success gets the same event. Until the last step the
    event is `creating`, which nobody can see or buy from. Raises Invalid, IdempotencyKeyReused, or
    IdempotencyInProgress while the first request with that key still runs.
    """
    event = events.checked(new)
    request_hash = identifiers.digest(body)
    event_id = (
        identifiers.fresh("evt") if key is None else identifiers.derived("evt", organiser_id, key)
    )
    event |= {
        "_id": event_id,
        "organiserId": organiser_id,
        "status": "creating",
        "requestHash": request_hash,
        "createdAt": now,
        "setupUntil": now + seconds(SETUP_LEASE_SECONDS),
    }
    try:
        await database.events.insert_one(event)
    except DocumentTooLarge:
        raise Invalid([("sections", "have too many long labels for one event")]) from None
    except DuplicateKeyError:
        existing = await _take_over(database, event, now)
        if existing["status"] != "creating":
            return existing
    await seats.lay_out(database, event)
    await dashboards.begin(database, event, now)
    # Conditional: a second worker of the same request that finished first has done just this, and
    # an event published in the meantime must not fall back to draft.
    await database.events.update_one(
        {"_id": event_id, "status": "creating"},
        {"$set": {"status": "draft"}, "$unset": {"setupUntil": ""}},
    )
    return await events.find(database, event_id)


async def _take_over(database: Database, event: Document, now: datetime) -> Document:
    existing = await database.events.find_one({"_id": event["_id"]})
    if existing is None or existing["requestHash"] != event["requestHash"]:
        raise IdempotencyKeyReused("This key made another event already.")
    if existing["status"] != "creating":
        return existing
    # Only one of several repeated requests gets past this: each must find the lease run out.
    taken = await database.events.find_one_and_update(
        {"_id": event["_id"], "status": "creating", "setupUntil": {"$lte": now}},
        {"$set": {"setupUntil": event["setupUntil"]}},
        return_document=ReturnDocument.AFTER,
    )
    if taken is None:
        raise IdempotencyInProgress("The event is being set up by an earlier request.")
    return taken


async def remove_abandoned(database: Database, now: datetime) -> int:
    """Remove events whose creation died and was not repeated, with the seats they left behind."""
    stale = {"status": "creating", "setupUntil": {"$lte": now - seconds(ABANDONED_AFTER_SECONDS)}}
    found = await database.events.find(stale, {"_id": 1}).limit(ABANDONED_PER_RUN_MAX).to_list()
    removed = 0
    for event in found:
        # A repeated request may go on with this very event now. Taking its lease first makes the
        # two exclude each other; should this die in the middle, the lease runs out again.
        lease = {"$set": {"setupUntil": now + seconds(SETUP_LEASE_SECONDS)}}
        taken = await database.events.update_one({"_id": event["_id"], **stale}, lease)
        if taken.modified_count == 1:
            await database.seats.delete_many({"_id": seats.plan_range(event["_id"])})
            await database.dashboards.delete_one({"_id": event["_id"]})
            await database.events.delete_one({"_id": event["_id"], "status": "creating"})
            removed += 1
    return removed
