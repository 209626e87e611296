"""People who have left: their access tokens are good for some more time, and must open nothing.

A token is kept nowhere and can't be called back. Whoever left is written down for as long as any
token may live, by a keyed hash that tells nobody who it was, and every process looks at the list
every few seconds.
"""

import hashlib
import hmac
from datetime import datetime, timedelta
from functools import lru_cache
from time import monotonic

from ticketing.mongo import Database, Document, Session
from ticketing.settings import Settings

# Longer than any token that we give; one of another issuer or of `scripts/token` may live longer.
REMEMBERED_FOR = timedelta(hours=13)
LOOKED_AT_SECONDS = 2.0
CLOCKS_DIFFER = timedelta(seconds=30)
MOST = 100_000


async def leave(
    database: Database,
    settings: Settings,
    subject: str,
    now: datetime,
    *,
    session: Session | None = None,
) -> None:
    """Let nobody act as this subject from the next look at the list on."""
    await database.gone.update_one(
        {"_id": _hash(settings.jwt_secret, subject)},
        {"$set": {"forgetAt": now + REMEMBERED_FOR}, "$unset": {"back": ""}},
        upsert=True,
        session=session,
    )


async def come_back(database: Database, settings: Settings, subject: str, now: datetime) -> None:
    """Let somebody act again who could not leave after all.

    Written as news and not taken away: processes read only what is newer than what they know.
    """
    await database.gone.update_one(
        {"_id": _hash(settings.jwt_secret, subject)},
        {"$set": {"forgetAt": now + REMEMBERED_FOR, "back": True}},
    )


class Gone:
    """The list as this process knows it."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._secret = settings.jwt_secret
        # By hash, until when each is remembered.
        self._until: dict[str, datetime] = {}
        self._newest: datetime | None = None
        self._read_at = -LOOKED_AT_SECONDS

    async def has(self, subject: str) -> bool:
        """Whether the subject has left, as of some seconds ago. Raises the driver's error."""
        if monotonic() - self._read_at >= LOOKED_AT_SECONDS:
            # Set first: of those who ask now one reads, and the others go by what was known.
            self._read_at = monotonic()
            await self._read()
        return bool(self._until) and _hash(self._secret, subject) in self._until

    async def _read(self) -> None:
        """Add those who left since the last look, and some seconds before, as clocks differ."""
        filter_: Document = {}
        if self._newest is not None:
            filter_ = {"forgetAt": {"$gt": self._newest - CLOCKS_DIFFER}}
        found = self._database.gone.find(filter_).sort("forgetAt", -1).limit(MOST)
        for each in await found.to_list(MOST):
            if each.get("back"):
                self._until.pop(each["_id"], None)
            else:
                self._until[each["_id"]] = each["forgetAt"]
            if self._newest is None or each["forgetAt"] > self._newest:
                self._newest = each["forgetAt"]
        if len(self._until) > MOST:
            by_end = sorted(self._until.items(), key=lambda item: item[1])
            self._until = dict(by_end[-MOST // 2 :])

    def forget(self) -> None:
        """Look again at the next question."""
        self._read_at = -LOOKED_AT_SECONDS


@lru_cache(maxsize=20_000)
def _hash(secret: str, subject: str) -> str:
    return hmac.new(secret.encode(), f"gone:{subject}".encode(), hashlib.sha256).hexdigest()
