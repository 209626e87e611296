"""Who does a job that only one process should do at a time.

A lease is a document: who holds the job, until when, and a fencing number that grows with each
change of hands. It keeps two processes from doing the same work twice over; it can't keep a holder
that was stopped for a while from waking up and writing. So whatever such a holder writes has a
condition: the fence, or one of its own that its successor's writes have broken.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from pymongo import ReturnDocument
from pymongo.errors import DuplicateKeyError

from ticketing.mongo import Database, Document

# The job of a dead process goes on within this time. Holders renew three times as often, so a lost
# primary or a slow answer costs nobody the job.
LEASE = timedelta(seconds=6)
RENEWED_EVERY = LEASE / 3

CHANGES = "changes"
AUDIT = "audit"
ARCHIVE = "archive"


class LeaseLost(Exception):
    """Another process holds the job now: nothing more may be written for it."""


@dataclass(frozen=True)
class Lease:
    """The right to do a job until an instant."""

    job: str
    holder: str
    fence: int
    until: datetime


async def take(database: Database, job: str, holder: str, now: datetime) -> Lease | None:
    """The lease of a job if nobody has it, or whoever had it has let it lapse; else None.

    `holder` names a process and is met by people alone: two of one name are still two.
    """
    try:
        document: Document | None = await database.leases.find_one_and_update(
            {"_id": job, "until": {"$lte": now}},
            {"$set": {"holder": holder, "until": now + LEASE}, "$inc": {"fence": 1}},
            upsert=True,
            return_document=ReturnDocument.AFTER,
        )
    except DuplicateKeyError:
        # Somebody holds it: the filter found nothing, and the insert met the document there is.
        return None
    assert document is not None
    return Lease(job, holder, document["fence"], document["until"])


async def renew(database: Database, lease: Lease, now: datetime) -> Lease:
    """The same lease for longer, also one that has lapsed and that nobody has taken.

    Raises LeaseLost.
    """
    until = now + LEASE
    kept = await database.leases.update_one(_mine(lease), {"$set": {"until": until}})
    if kept.matched_count == 0:
        raise LeaseLost
    return Lease(lease.job, lease.holder, lease.fence, until)


async def release(database: Database, lease: Lease, now: datetime) -> None:
    """Let the next one begin at once; nothing happens where the lease was lost before."""
    await database.leases.update_one(_mine(lease), {"$set": {"until": now}})


def _mine(lease: Lease) -> Document:
    return {"_id": lease.job, "fence": lease.fence}
