"""Who is logged in: a session lives by refresh tokens, each of which is good once.

A refresh token names its session and its generation, signed by us; no signature is in the database.
Each use makes the next generation. An older one that is used again was copied, by whomever: nobody
can tell the thief from the owner, so the whole session ends.
"""

import hashlib
import hmac
from dataclasses import dataclass
from datetime import datetime, timedelta

from ticketing import identifiers
from ticketing.errors import Refusal
from ticketing.mongo import Database, Document
from ticketing.mongo import Session as ClientSession
from ticketing.settings import Settings

PREFIX = "rt"
# A session that nobody uses for this long is over, and every session after the longer time.
IDLE_DAYS = 30
DAYS_MAX = 180
SESSIONS_PER_ACCOUNT_MAX = 50


class SessionOver(Refusal):
    """The refresh token is wrong, used already, or its session is over: log in again."""

    slug = "unauthenticated"
    title = "Unauthenticated"

    def __init__(self) -> None:
        super().__init__("The refresh token is not valid.")


@dataclass(frozen=True)
class Session:
    """A session that goes on, and the refresh token to go on with next time."""

    account_id: str
    role: str
    refresh_token: str


async def begin(
    database: Database,
    settings: Settings,
    account_id: str,
    role: str,
    now: datetime,
    *,
    session: ClientSession | None = None,
) -> Session:
    """A new session. Of too many the one that was idle longest ends."""
    identifier = identifiers.fresh("ses")
    await database.sessions.insert_one(
        {
            "_id": identifier,
            "accountId": account_id,
            "role": role,
            "generation": 0,
            "createdAt": now,
            "usedAt": now,
            "expiresAt": now + timedelta(days=IDLE_DAYS),
        },
        session=session,
    )
    mine = database.sessions.find({"accountId": account_id}, {"usedAt": 1}, session=session)
    known = await mine.to_list(2 * SESSIONS_PER_ACCOUNT_MAX)
    idlest = sorted(known, key=lambda each: each["usedAt"])
    too_many = idlest[: max(0, len(idlest) - SESSIONS_PER_ACCOUNT_MAX)]
    if too_many:
        await database.sessions.delete_many(
            {"_id": {"$in": [each["_id"] for each in too_many]}}, session=session
        )
    return Session(account_id, role, _token(settings, identifier, 0))


async def go_on(database: Database, settings: Settings, token: str, now: datetime) -> Session:
    """The session with its next refresh token. Raises SessionOver."""
    identifier, generation = _read(settings, token)
    # Two requests with one token at the same moment: the condition lets one of them pass, and the
    # other one finds an older generation, which ends the session. That is what a stolen token
    # looks like.
    session: Document | None = await database.sessions.find_one_and_update(
        {"_id": identifier, "generation": generation, "expiresAt": {"$gt": now}},
        [
            {
                "$set": {
                    "generation": generation + 1,
                    "usedAt": now,
                    "expiresAt": {
                        "$min": [
                            now + timedelta(days=IDLE_DAYS),
                            {"$add": ["$createdAt", DAYS_MAX * 86_400_000]},
                        ]
                    },
                }
            }
        ],
    )
    if session is None:
        await database.sessions.delete_one({"_id": identifier})
        raise SessionOver
    return Session(
        session["accountId"], session["role"], _token(settings, identifier, generation + 1)
    )


async def end(database: Database, settings: Settings, token: str) -> None:
    """Log out: the session ends, whichever of its refresh tokens this is. Raises SessionOver."""
    identifier, _ = _read(settings, token)
    await database.sessions.delete_one({"_id": identifier})


async def end_all(database: Database, account_id: str) -> None:
    """Log an account out everywhere. Access tokens live on for their minutes."""
    await database.sessions.delete_many({"accountId": account_id})


def _token(settings: Settings, identifier: str, generation: int) -> str:
    named = f"{PREFIX}.{identifier}.{generation}"
    return f"{named}.{_signature(settings, named)}"


def _read(settings: Settings, token: str) -> tuple[str, int]:
    named, _, signature = token.rpartition(".")
    expected = _signature(settings, named)
    if not hmac.compare_digest(signature.encode(), expected.encode()):
        raise SessionOver
    # Whatever bears our signature has our form.
    _, identifier, generation = named.split(".")
    return identifier, int(generation)


def _signature(settings: Settings, named: str) -> str:
    key = hmac.new(settings.jwt_secret.encode(), b"refresh tokens", hashlib.sha256).digest()
    return hmac.new(key, named.encode(), hashlib.sha256).hexdigest()
