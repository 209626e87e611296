"""What organisers and admins changed: who, what, from where, before and after. Only added to.

An entry is written before the change is made and completed once with what became of it. So a
change without an entry can't be; an entry that was never completed is a change of which only the
database knows whether it was made: the process died in between.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime

from ticketing import clock, identifiers, pages
from ticketing.accounts import Caller
from ticketing.errors import Refusal
from ticketing.mongo import Database, Document
from ticketing.pages import Page


@dataclass
class Change:
    """What is changed, by whom and from where. `before` and `after` never hold a secret."""

    caller: Caller
    organiser_id: str
    action: str
    about: str
    address: str
    request_id: str
    before: Document = field(default_factory=dict)
    after: Document = field(default_factory=dict)


@asynccontextmanager
async def recorded(database: Database, change: Change, now: datetime) -> AsyncIterator[Change]:
    """Record the change that is made inside; `after` may be set there.

    A refusal is recorded by its slug. After a fault nobody knows: the answer of a change that was
    made may have been lost, so the outcome stays open. Both go on.
    """
    identifier = identifiers.ordered("aud", now)
    await database.audit_log.insert_one(
        {
            "_id": identifier,
            "at": now,
            "organiserId": change.organiser_id,
            "actorId": change.caller.subject,
            "actorRole": change.caller.role,
            "keyId": change.caller.key_id,
            "action": change.action,
            "about": change.about,
            "address": change.address,
            "requestId": change.request_id,
            "before": change.before,
            "outcome": None,
        }
    )
    try:
        yield change
    except Refusal as refusal:
        await _complete(database, identifier, {"outcome": refusal.slug})
        raise
    await _complete(database, identifier, {"outcome": "done", "after": change.after})


async def _complete(database: Database, identifier: str, became: Document) -> None:
    await database.audit_log.update_one(
        {"_id": identifier, "outcome": None}, {"$set": {**became, "completedAt": clock.now()}}
    )


async def listing(database: Database, organiser_id: str, *, limit: int, cursor: str | None) -> Page:
    """What was changed of the organiser's, newest first."""
    filter_: Document = {"organiserId": organiser_id}
    if position := pages.decode(cursor, "audit"):
        filter_["_id"] = {"$lt": position.identifier}
    found = (
        await database.audit_log.find(filter_)
        .sort([("_id", -1)])
        .limit(limit + 1)
        .to_list(limit + 1)
    )
    return pages.cut(found, limit, "audit", "at")
