"""Whether this process can serve: the database has a primary and the indexes a sale can't miss."""

import asyncio
from time import monotonic

from pymongo.errors import PyMongoError

from ticketing import deployment
from ticketing.deployment import Unusable
from ticketing.mongo import Database

CHECK_SECONDS_MAX = 2.0
# Probes come from several sides at once; the database is asked at most so often.
CHECK_AGE_SECONDS_MAX = 1.0
INDEX_CHECK_AGE_SECONDS_MAX = 30.0


class Readiness:
    """Whether this process can serve, asked of the database at most once a second."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._reasons: list[str] = []
        self._checked_at = -CHECK_AGE_SECONDS_MAX
        self._indexes_found_at = -INDEX_CHECK_AGE_SECONDS_MAX
        self._lock = asyncio.Lock()

    async def reasons(self) -> list[str]:
        """Why it is not ready; empty when it is."""
        async with self._lock:
            if monotonic() - self._checked_at >= CHECK_AGE_SECONDS_MAX:
                self._reasons = await self._check()
                self._checked_at = monotonic()
        return self._reasons

    async def _check(self) -> list[str]:
        try:
            async with asyncio.timeout(CHECK_SECONDS_MAX):
                await deployment.refuse_unusable(self._database)
                return await self._missing_indexes()
        except Unusable as unusable:
            return [str(unusable)]
        except (TimeoutError, PyMongoError):
            return ["the database has no primary"]

    async def _missing_indexes(self) -> list[str]:
        if monotonic() - self._indexes_found_at < INDEX_CHECK_AGE_SECONDS_MAX:
            return []
        missing = await deployment.missing_indexes(self._database)
        if not missing:
            self._indexes_found_at = monotonic()
        return missing
