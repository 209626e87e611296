"""Who is calling, and the fan's own profile."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pymongo import ReturnDocument

from ticketing.mongo import Database, Document, Session

# The languages fans are written to in; the first is for those who named none.
LANGUAGES = ("en", "de")


@dataclass(frozen=True)
class Caller:
    """Who is behind a verified token or key: `role` is fan, organiser, admin or gate.

    `scope` is the highest role in a team that may be used, which for a person is the highest there
    is; `key_id` and `event_id` are an API key's.
    """

    subject: str
    role: str
    scope: Literal["gate", "viewer", "boxOffice", "editor", "owner"] = "owner"
    key_id: str | None = None
    event_id: str | None = None


async def profile(database: Database, fan_id: str) -> Document | None:
    """The fan's profile, or None while they have saved none."""
    return await database.fans.find_one({"_id": fan_id})


async def save_profile(
    database: Database,
    fan_id: str,
    name: str,
    email: str,
    now: datetime,
    language: str | None = None,
    *,
    guest: bool = False,
    session: Session | None = None,
) -> Document:
    """Make or replace the fan's profile and return it as stored. `language` is one of LANGUAGES.

    A `guest` has no account: their mails carry links to what they bought.
    """
    given: Document = {"name": name, "email": email, "updatedAt": now}
    if guest:
        given["guest"] = True
    change: Document = {"$set": given, "$setOnInsert": {"createdAt": now}}
    if language is None:
        change["$unset"] = {"language": ""}
    else:
        given["language"] = language
    saved: Document | None = await database.fans.find_one_and_update(
        {"_id": fan_id},
        change,
        upsert=True,
        return_document=ReturnDocument.AFTER,
        session=session,
    )
    assert saved is not None  # An upsert always leaves a document behind.
    return saved


def language_of(profile: Document | None) -> str:
    """The language a fan is written to in: theirs where we have it, else the first of ours."""
    language: str = (profile or {}).get("language", LANGUAGES[0])
    return language
