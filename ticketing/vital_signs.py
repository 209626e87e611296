"""How the database and the workers are: what one process can tell of the whole deployment."""

from dataclasses import dataclass
from datetime import datetime

from pymongo.errors import OperationFailure

from ticketing import dashboards, invariants
from ticketing.mongo import Database, Document

COUNTED_MAX = 1_000
LEASES_MAX = 20


@dataclass(frozen=True)
class LeaseSign:
    """Who does a job, and for how long that is certain."""

    job: str
    holder: str
    expires_in_seconds: float
    """Below zero once it has lapsed."""


@dataclass(frozen=True)
class VitalSigns:
    """All of it as of one moment; what nobody has written yet is None or not there."""

    replication_lag_seconds: dict[str, float]
    """By secondary; empty where the process may not ask."""
    stream_lag_seconds: float | None
    changes_set_aside: int
    leases: list[LeaseSign]
    invariants_broken: dict[str, int]
    """Findings by rule; 0 for a rule that holds."""
    invariants_checked_age_seconds: float | None


async def read(database: Database, now: datetime) -> VitalSigns:
    """How things are now. Raises the driver's error where there is no primary."""
    # First, so that a database that takes no writes is never told as being well.
    await database.command("ping")
    place = await database.resume_tokens.find_one({"_id": dashboards.POSITION_ID})
    seen_at = None if place is None else place.get("heartbeatAt")
    audit = await database.audits.find_one({"_id": invariants.LATEST_ID})
    leases = await database.leases.find({}).to_list(LEASES_MAX)
    return VitalSigns(
        replication_lag_seconds=await _replication_lag(database),
        stream_lag_seconds=None if seen_at is None else _age(seen_at, now),
        changes_set_aside=await database.changes_set_aside.count_documents(
            {"open": True}, limit=COUNTED_MAX
        ),
        leases=[
            LeaseSign(lease["_id"], lease["holder"], (lease["until"] - now).total_seconds())
            for lease in leases
        ],
        invariants_broken={each["rule"]: each["broken"] for each in audit["rules"]}
        if audit
        else {},
        invariants_checked_age_seconds=_age(audit["checkedAt"], now) if audit else None,
    )


async def _replication_lag(database: Database) -> dict[str, float]:
    try:
        status = await database.client.admin.command("replSetGetStatus")
    except OperationFailure:
        # Only who may see the whole cluster is told; a process of ours need not be.
        return {}
    members: list[Document] = status["members"]
    newest = max(member["optimeDate"] for member in members if "optimeDate" in member)
    return {
        member["name"]: _age(member["optimeDate"], newest)
        for member in members
        if member["stateStr"] == "SECONDARY"
    }


def _age(then: datetime, now: datetime) -> float:
    return max((now - then).total_seconds(), 0.0)
