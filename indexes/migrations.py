"""Data of earlier releases, brought to the shape that this one writes.

A change of shape goes in three steps. *Expand*: the new field may be there (`scripts/indexes apply`
widens validators and builds indexes), and the new release writes it. *Backfill*: what was written
before gets it, here. *Tighten*: it must be there (`apply --allow-tighten`, which refuses while any
document stands against it).

A backfill works batch by batch, each bounded, beside running processes of the old and the new
release: every write has a condition, so whatever somebody changes meanwhile is left to them. Its
place is kept with each batch; killed at any point it goes on from there. One process does it at a
time, by a lease with a fence in the migration's own document.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo import ReturnDocument, UpdateOne
from pymongo.database import Database
from pymongo.errors import BulkWriteError, DuplicateKeyError

from ticketing import deployment, holds, ledger
from ticketing.gateway import Notice

Document = dict[str, Any]
Say = Callable[[str], None]

SEATS_PER_BATCH = 2_000
ORDERS_PER_BATCH = 200
LEASE = timedelta(seconds=30)
_DUPLICATE_KEY_CODE = 11000


class MigrationError(Exception):
    """The data can't be migrated; the text says why and what to do."""


@dataclass(frozen=True)
class Batch:
    """What one step did."""

    place: str
    """Where the next one begins."""
    changed: int
    is_last: bool


@dataclass(frozen=True)
class Migration:
    """One backfill. `step` does a batch from a place on; the first place is empty."""

    number: int
    name: str
    step: Callable[[Database[Document], str], Batch]


# --- 1: the places of a fan ----------------------------------------------------------------------


def give_places(database: Database[Document], place: str) -> Batch:
    """Give taken seats one of their fan's places at the event, which is what limits a fan.

    Seats are gone through by `_id`. The unique index settles who gets a place where a hold of the
    new release wants the same one; the seat is left then, and comes again in the next pass.
    """
    fields = {"status": 1, "holdId": 1, "fanSlot": 1}
    found = list(
        database.seats.find({"_id": {"$gt": place}}, fields).sort("_id", 1).limit(SEATS_PER_BATCH)
    )
    lacking = defaultdict(list)
    for seat in found:
        if seat["status"] in ("held", "sold") and "holdId" in seat and "fanSlot" not in seat:
            lacking[holds.fan_part(seat["holdId"]).removeprefix("hold_")].append(seat)
    changed = 0
    for fan, seats in lacking.items():
        changed += _places_of(database, fan, seats)
    last = found[-1]["_id"] if found else place
    return Batch(last, changed, len(found) < SEATS_PER_BATCH)


def _places_of(database: Database[Document], fan: str, seats: list[Document]) -> int:
    mine = {"fanSlot": {"$gte": f"{fan}.", "$lt": f"{fan}/"}}  # "/" follows ".".
    used = {seat["fanSlot"] for seat in database.seats.find(mine, {"fanSlot": 1})}
    changed, number = 0, 0
    for seat in seats:
        while f"{fan}.{number}" in used:
            number += 1
        used.add(f"{fan}.{number}")
        # Nobody may have let the seat go, or given it a place, since it was read.
        same = {
            "_id": seat["_id"],
            "status": seat["status"],
            "holdId": seat["holdId"],
            "fanSlot": {"$exists": False},
        }
        try:
            result = database.seats.update_one(same, {"$set": {"fanSlot": f"{fan}.{number}"}})
            changed += result.modified_count
        except DuplicateKeyError:
            continue
    return changed


# --- 2: the ledger -------------------------------------------------------------------------------


def enter_sales(database: Database[Document], place: str) -> Batch:
    """Enter in the ledger what was sold and given back before there was one.

    Entries are named after their causes, so what the new release has entered itself is met again
    and left alone. Orders of that time bore no fee.
    """
    orders = list(
        database.orders.find({"_id": {"$gt": place}}).sort("_id", 1).limit(ORDERS_PER_BATCH)
    )
    ids = [order["_id"] for order in orders]
    payments = _by_order(database.payments.find({"orderId": {"$in": ids}}))
    payment_ids = [payment["_id"] for some in payments.values() for payment in some]
    refunds = _by_order(database.refunds.find({"paymentId": {"$in": payment_ids}}))
    writes = []
    for order in orders:
        wanted = entries_of(order, payments[order["_id"]], refunds[order["_id"]])
        if any(entry["cause"] == "stray" for entry in wanted) and _has_stray(database, order):
            # Named after a notice by the release that entered it, and not to be told from ours.
            wanted = [entry for entry in wanted if entry["cause"] != "stray"]
        writes += [
            UpdateOne({"_id": entry["_id"]}, {"$setOnInsert": entry}, upsert=True)
            for entry in wanted
        ]
    changed = _insert_new(database, writes)
    return Batch(ids[-1] if ids else place, changed, len(orders) < ORDERS_PER_BATCH)


def _by_order(documents: Iterable[Document]) -> defaultdict[str, list[Document]]:
    found: defaultdict[str, list[Document]] = defaultdict(list)
    for document in documents:
        found[document["orderId"]].append(document)
    return found


def _has_stray(database: Database[Document], order: Document) -> bool:
    entered = {"eventId": order["eventId"], "orderId": order["_id"], "cause": "stray"}
    return database.ledger.find_one(entered, {"_id": 1}) is not None


def entries_of(
    order: Document, payments: list[Document], refunds: list[Document]
) -> list[Document]:
    """All that the ledger should have of an order that was made before there was a ledger."""
    own = (order["payment"] or {}).get("paymentId")
    is_sold = "confirmedAt" in order and own is not None
    entries: list[Document] = []
    if is_sold:
        outside = sum(
            refund["amount"]
            for refund in refunds
            if refund["kind"] == "outside" and refund["createdAt"] < order["confirmedAt"]
        )
        entries.append(ledger.sale(order, order["confirmedAt"], given_outside=outside))
    entries += [
        _stray(order, payment["_id"], payment, payment["createdAt"])
        for payment in payments
        if payment["status"] == "succeeded" and not (is_sold and payment["_id"] == own)
    ]
    so_far: Document = {**order, "refunds": []}
    for refund in sorted(refunds, key=lambda refund: (refund["createdAt"], refund["_id"])):
        at: datetime = refund["createdAt"]
        if refund["kind"] == "outside":
            entries.append(ledger.outside(so_far, refund, at))
        else:
            if refund["kind"] == "stray":
                entries.append(_stray(order, refund["_id"], refund, at))
            elif is_sold and refund["kind"] in ("order", "lines"):
                entries.append(ledger.refund(order, refund, at))
            if refund["status"] == "done":
                entries += ledger.moved(refund, "done", refund.get("doneAt") or at)
        so_far["refunds"] = [*so_far["refunds"], refund]
    return entries


def _stray(order: Document, name: str, about: Mapping[str, Any], at: datetime) -> Document:
    """Money that bought nothing; which notice told of it nobody knows any more."""
    notice = Notice(
        provider="before",
        notice_id=name,
        type="payment.succeeded",
        payment_id=name,
        order_id=order["_id"],
        amount=about["amount"],
        currency=about["currency"],
    )
    return ledger.stray(order, notice, at)


def _insert_new(database: Database[Document], writes: list[UpdateOne]) -> int:
    if not writes:
        return 0
    try:
        return database.ledger.bulk_write(writes, ordered=False).upserted_count
    except BulkWriteError as error:
        # A running process was faster with the same entry.
        if any(each["code"] != _DUPLICATE_KEY_CODE for each in error.details["writeErrors"]):
            raise
        return int(error.details["nUpserted"])


MIGRATIONS = (
    Migration(1, "taken seats have one of their fan's places", give_places),
    Migration(2, "sales from before the ledger are in it", enter_sales),
)
# What a release needs to know to say that a database is newer than itself.
assert MIGRATIONS[-1].number == deployment.DATA_VERSION


# --- Running them --------------------------------------------------------------------------------


def pending(database: Database[Document]) -> list[Migration]:
    """The migrations that are not done yet. Raises MigrationError for a newer database."""
    if has_nothing_to_migrate(database):
        return []
    known = {document["_id"]: document for document in database.migrations.find({})}
    if known and max(known) > deployment.DATA_VERSION:
        raise MigrationError(deployment.NEWER)
    return [
        migration
        for migration in MIGRATIONS
        if known.get(migration.number, {}).get("status") != "done"
    ]


def has_nothing_to_migrate(database: Database[Document]) -> bool:
    """Whether a database has neither migrations nor anything that one could be about."""
    return (
        database.migrations.find_one({}, {"_id": 1}) is None
        and database.events.find_one({}, {"_id": 1}) is None
    )


def note_all_done(database: Database[Document]) -> None:
    """Note that a fresh database needs none of them."""
    now = _now()
    for migration in MIGRATIONS:
        fresh = _begun(migration, now) | {"status": "done", "finishedAt": now}
        database.migrations.update_one(
            {"_id": migration.number}, {"$setOnInsert": fresh}, upsert=True
        )


def run(database: Database[Document], say: Say) -> None:
    """Run what is pending, one after the other. Raises MigrationError."""
    for migration in pending(database):
        _run_one(database, migration, say)


def _run_one(database: Database[Document], migration: Migration, say: Say) -> None:
    mine = _take(database, migration)
    place, changed = mine["place"], mine["changed"]
    say(f"{migration.number}, {migration.name}: {'going on' if place else 'beginning'}.")
    # A seat that was left to somebody's faster hand is looked at once more: the last pass is one
    # that found nothing to do.
    in_this_pass = mine["changedInPass"]
    while True:
        batch = migration.step(database, place)
        place, changed = batch.place, changed + batch.changed
        in_this_pass += batch.changed
        is_done = batch.is_last and in_this_pass == 0
        if batch.is_last:
            place, in_this_pass = "", 0
        now = _now()
        update: Document = {
            "place": place,
            "changed": changed,
            "changedInPass": in_this_pass,
            "leaseUntil": now + LEASE,
        }
        if is_done:
            update |= {"status": "done", "finishedAt": now}
        kept = database.migrations.update_one(
            {"_id": migration.number, "fence": mine["fence"]}, {"$set": update}
        )
        if kept.matched_count == 0:
            raise MigrationError("Another process has taken the migration over.")
        if batch.changed:
            say(f"{migration.number}: {changed} documents so far.")
        if is_done:
            say(f"{migration.number}, {migration.name}: done, {changed} documents changed.")
            return


def _take(database: Database[Document], migration: Migration) -> Document:
    now = _now()
    database.migrations.update_one(
        {"_id": migration.number}, {"$setOnInsert": _begun(migration, now)}, upsert=True
    )
    mine = database.migrations.find_one_and_update(
        {"_id": migration.number, "status": "running", "leaseUntil": {"$lte": now}},
        {"$set": {"leaseUntil": now + LEASE}, "$inc": {"fence": 1}},
        return_document=ReturnDocument.AFTER,
    )
    if mine is None:
        raise MigrationError(
            f"Another process is at migration {migration.number}: wait for it, or where it was"
            f" killed for {LEASE.seconds} seconds, and run this again."
        )
    return mine


def _begun(migration: Migration, now: datetime) -> Document:
    return {
        "name": migration.name,
        "status": "running",
        "place": "",
        "changed": 0,
        "changedInPass": 0,
        "startedAt": now,
        "leaseUntil": now,
        "fence": 0,
    }


def _now() -> datetime:
    return datetime.now(UTC)
