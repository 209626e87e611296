"""Who of an organiser's people may do what: the one access rule for all that an organiser owns.

    gate < viewer < boxOffice < editor < owner

A role includes those below it. The organiser is the owner of their own; everybody else is as much
as their membership says, and an API key as much as its scope. A stranger is told that there is no
such thing, one of the team that their role does not reach.
"""

from datetime import datetime
from typing import Literal

from pymongo import ReturnDocument

from ticketing import identifiers
from ticketing.accounts import Caller
from ticketing.errors import NotFound, Refusal
from ticketing.mongo import Database, Document, Session

Role = Literal["gate", "viewer", "boxOffice", "editor", "owner"]
MemberRole = Literal["viewer", "boxOffice", "editor", "owner"]

# What each role adds to the one before it: the void tickets; figures and statements; refunds; to
# make, publish and move events; to call them off, the team, API keys, webhooks and the audit log.
LADDER: tuple[Role, ...] = ("gate", "viewer", "boxOffice", "editor", "owner")
MEMBERS_MAX = 100


class RoleTooLow(Refusal):
    """One of the team, but their role does not reach this."""

    slug = "forbidden"
    title = "Forbidden"


class MemberLimit(Refusal):
    """The team has as many members as it may have."""

    slug = "conflict"
    title = "Conflict"


async def allow(
    database: Database,
    caller: Caller,
    organiser_id: str,
    needs: Role,
    *,
    session: Session | None = None,
) -> None:
    """Let the caller do what `needs` that role with the organiser. Raises NotFound, RoleTooLow."""
    if caller.role == "admin":
        return
    if caller.role != "organiser":
        raise NotFound("There is no such organiser.")
    held = await _role(database, caller, organiser_id, session)
    if held is None:
        raise NotFound("There is no such organiser.")
    if min(LADDER.index(held), LADDER.index(caller.scope)) < LADDER.index(needs):
        raise RoleTooLow(f"That needs the role {needs}.")


async def _role(
    database: Database, caller: Caller, organiser_id: str, session: Session | None
) -> Role | None:
    if caller.subject == organiser_id:
        return "owner"
    # A key is one organiser's: whatever teams that organiser is in are no business of the key's.
    if caller.key_id is not None:
        return None
    member = await database.team_members.find_one(
        {"_id": _member_id(organiser_id, caller.subject)}, session=session
    )
    return None if member is None else member["role"]


async def role_of(database: Database, organiser_id: str, member_id: str) -> MemberRole | None:
    """What somebody is in the team by their membership; None for a stranger."""
    member = await database.team_members.find_one({"_id": _member_id(organiser_id, member_id)})
    return None if member is None else member["role"]


def _member_id(organiser_id: str, member_id: str) -> str:
    return identifiers.derived("mem", organiser_id, member_id)


async def members(database: Database, organiser_id: str) -> list[Document]:
    """The organiser's team without themself, in the order of their ids."""
    # The limit is a soft one: what is past it by a race is seen all the same.
    found = database.team_members.find({"organiserId": organiser_id}).sort("_id", 1)
    return await found.limit(2 * MEMBERS_MAX).to_list(2 * MEMBERS_MAX)


async def put_member(
    database: Database,
    organiser_id: str,
    member_id: str,
    role: MemberRole,
    *,
    by: str,
    now: datetime,
) -> Document:
    """Take somebody into the team, or give them another role. Raises MemberLimit."""
    if await database.team_members.find_one({"_id": _member_id(organiser_id, member_id)}) is None:
        count = await database.team_members.count_documents(
            {"organiserId": organiser_id}, limit=MEMBERS_MAX
        )
        if count >= MEMBERS_MAX:
            raise MemberLimit(f"A team has at most {MEMBERS_MAX} members.")
    saved: Document | None = await database.team_members.find_one_and_update(
        {"_id": _member_id(organiser_id, member_id)},
        {
            "$set": {"role": role},
            "$setOnInsert": {
                "organiserId": organiser_id,
                "memberId": member_id,
                "addedBy": by,
                "addedAt": now,
            },
        },
        upsert=True,
        return_document=ReturnDocument.AFTER,
    )
    assert saved is not None  # An upsert always leaves a document behind.
    return saved


async def remove_member(database: Database, organiser_id: str, member_id: str) -> Document:
    """Take somebody out of the team; returns what they were. Raises NotFound."""
    removed: Document | None = await database.team_members.find_one_and_delete(
        {"_id": _member_id(organiser_id, member_id)}
    )
    if removed is None:
        raise NotFound("There is no such member.")
    return removed
