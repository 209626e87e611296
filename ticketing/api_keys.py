"""Keys for an organiser's programs and gates: named, scoped, revocable, and kept as a hash alone.

A key is `tk_`, its id and its secret. It acts for its organiser with the rights of its scope, which
is a role of the team; one for a gate belongs to one event.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Literal

from pymongo.errors import DuplicateKeyError

from ticketing import identifiers
from ticketing.accounts import Caller
from ticketing.errors import IdempotencyKeyReused, NotFound, Refusal
from ticketing.mongo import Database, Document
from ticketing.settings import Settings

# An owner's rights are a person's alone: with them a stolen key could make itself successors.
Scope = Literal["gate", "viewer", "boxOffice", "editor"]

PREFIX = "tk_"
KEYS_PER_ORGANISER_MAX = 50
# A key that was revoked is kept for so long after it, for whoever asks which one it was.
REVOKED_KEPT_DAYS = 90
REVOKED_SHOWN_MAX = 100
# How exactly `lastUsedAt` is known: a key that is used without pause costs one write in a minute.
USED_SECONDS = 60


class KeyLimit(Refusal):
    """The organiser has as many keys as they may have."""

    slug = "conflict"
    title = "Conflict"


async def make(
    database: Database,
    settings: Settings,
    *,
    organiser_id: str,
    name: str,
    scope: Scope,
    event_id: str | None,
    idempotency_key: str | None,
    body: bytes,
    now: datetime,
) -> tuple[Document, str]:
    """A new key, as stored and as it is told this once. `event_id` is for the scope `gate`.

    The same Idempotency-Key gives the same key again, secret and all: it is made of ours and of
    the request then. Raises KeyLimit, IdempotencyKeyReused.
    """
    if idempotency_key is None:
        identifier, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
    else:
        identifier = identifiers.digest("api key", organiser_id, idempotency_key)[:16]
        named = identifiers.digest("api key secret", organiser_id, idempotency_key)
        secret = hmac.new(settings.jwt_secret.encode(), named.encode(), hashlib.sha256).hexdigest()
    request_hash = identifiers.digest(body)
    if made := await database.api_keys.find_one({"_id": identifier, "organiserId": organiser_id}):
        return _same(made, request_hash), f"{PREFIX}{identifier}_{secret}"
    count = await database.api_keys.count_documents(
        {"organiserId": organiser_id, "revokedAt": None}, limit=KEYS_PER_ORGANISER_MAX
    )
    if count >= KEYS_PER_ORGANISER_MAX:
        raise KeyLimit(f"There may be {KEYS_PER_ORGANISER_MAX} keys at most: revoke one first.")
    key: Document = {
        "_id": identifier,
        "organiserId": organiser_id,
        "name": name,
        "scope": scope,
        "eventId": event_id,
        "hash": _hash(secret),
        "requestHash": request_hash,
        "keyed": idempotency_key is not None,
        "createdAt": now,
        "lastUsedAt": None,
        "revokedAt": None,
    }
    try:
        await database.api_keys.insert_one(key)
    except DuplicateKeyError:
        # The same request at the same moment: one of the two made it.
        return _same(await _find(database, identifier, organiser_id), request_hash), (
            f"{PREFIX}{identifier}_{secret}"
        )
    return key, f"{PREFIX}{identifier}_{secret}"


def _same(made: Document, request_hash: str) -> Document:
    if made["requestHash"] != request_hash:
        raise IdempotencyKeyReused("This key was used with another body.")
    return made


def _hash(secret: str) -> str:
    # A secret of 256 random bits can't be guessed, so it needs no slow hash.
    return hashlib.sha256(secret.encode()).hexdigest()


def parts(key: str) -> tuple[str, str] | None:
    """The id and the secret's hash of what looks like a key; None for anything else."""
    if not key.startswith(PREFIX):
        return None
    identifier, _, secret = key.removeprefix(PREFIX).partition("_")
    return (identifier, _hash(secret)) if identifier and secret else None


async def caller_of(
    database: Database, identifier: str, secret_hash: str, clock: Callable[[], datetime]
) -> Caller | None:
    """Whom a key acts for, or None for one that is unknown, wrong or revoked."""
    key = await database.api_keys.find_one({"_id": identifier, "revokedAt": None})
    if key is None or not hmac.compare_digest(key["hash"], secret_hash):
        return None
    now = clock()
    await database.api_keys.update_one(
        {
            "_id": identifier,
            "$or": [
                {"lastUsedAt": None},
                {"lastUsedAt": {"$lt": now - timedelta(seconds=USED_SECONDS)}},
            ],
        },
        {"$set": {"lastUsedAt": now}},
    )
    role = "gate" if key["scope"] == "gate" else "organiser"
    return Caller(
        key["organiserId"], role, scope=key["scope"], key_id=identifier, event_id=key["eventId"]
    )


async def listing(database: Database, organiser_id: str) -> list[Document]:
    """The organiser's good keys, oldest first, and then the last ones that were revoked."""
    # The limit is a soft one: what is past it by a race is seen all the same.
    most = 10 * KEYS_PER_ORGANISER_MAX
    mine = {"organiserId": organiser_id}
    good = database.api_keys.find({**mine, "revokedAt": None})
    revoked = database.api_keys.find({**mine, "revokedAt": {"$ne": None}})
    return [
        *await good.sort([("createdAt", 1), ("_id", 1)]).limit(most).to_list(most),
        *await revoked.sort([("createdAt", -1), ("_id", -1)])
        .limit(REVOKED_SHOWN_MAX)
        .to_list(REVOKED_SHOWN_MAX),
    ]


async def _find(database: Database, identifier: str, organiser_id: str) -> Document:
    key = await database.api_keys.find_one({"_id": identifier, "organiserId": organiser_id})
    if key is None:
        raise NotFound("There is no such key.")
    return key


async def revoke(database: Database, identifier: str, organiser_id: str, now: datetime) -> Document:
    """Make a key worthless; one that is so already stays as it is. Returns it. Raises NotFound.

    A process that has just looked at the key goes on to take it for the seconds that it remembers
    what it read.
    """
    key = await _find(database, identifier, organiser_id)
    # One that was made with an Idempotency-Key stays for good: were it forgotten, the same request
    # would make the very same key once more, and whoever stole it would be back.
    forget = {} if key["keyed"] else {"forgetAt": now + timedelta(days=REVOKED_KEPT_DAYS)}
    await database.api_keys.update_one(
        {"_id": identifier, "organiserId": organiser_id, "revokedAt": None},
        {"$set": {"revokedAt": now, **forget}},
    )
    return await _find(database, identifier, organiser_id)
