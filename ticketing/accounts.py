"""Who is calling, and the fan's own profile."""

from dataclasses import dataclass
from datetime import datetime

from pymongo import ReturnDocument

from ticketing.mongo import Database, Document


@dataclass(frozen=True)
class Caller:
    """The person behind a verified token: `role` is fan, organiser or admin."""

    subject: str
    role: str


async def profile(database: Database, fan_id: str) -> Document | None:
    """The fan's profile, or None while they have saved none."""
    return await database.fans.find_one({"_id": fan_id})


async def save_profile(
    database: Database, fan_id: str, name: str, email: str, now: datetime
) -> Document:
    """Make or replace the fan's profile and return it as stored."""
    saved: Document | None = await database.fans.find_one_and_update(
        {"_id": fan_id},
        {
            "$set": {"name": name, "email": email, "updatedAt": now},
            "$setOnInsert": {"createdAt": now},
        },
        upsert=True,
        return_document=ReturnDocument.AFTER,
    )
    assert saved is not None  # An upsert always leaves a document behind.
    return saved
