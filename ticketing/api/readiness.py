"""Whether this process can serve: the database has a primary and the indexes a sale can't miss."""

import asyncio
from collections.abc import Mapping
from time import monotonic
from typing import Any

from pymongo.errors import PyMongoError

from ticketing.mongo import Database

CHECK_SECONDS_MAX = 2.0
# Probes come from several sides at once; the database is asked at most so often.
CHECK_AGE_SECONDS_MAX = 1.0
INDEX_CHECK_AGE_SECONDS_MAX = 30.0

# Without these a sale is wrong (two orders of one hold, a fan past the limit) or reads the whole
# collection at each hold. All others are the business of `scripts/indexes verify`.
HOT_INDEXES: dict[str, list[tuple[tuple[str, ...], bool]]] = {
    "seats": [(("holdId",), False), (("heldUntil",), False), (("fanSlot",), True)],
    "orders": [(("holdId", "expiresAt"), True)],
}


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
                await self._database.command("hello")
                return await self._missing_indexes()
        except (TimeoutError, PyMongoError):
            return ["the database has no primary"]

    async def _missing_indexes(self) -> list[str]:
        if monotonic() - self._indexes_found_at < INDEX_CHECK_AGE_SECONDS_MAX:
            return []
        missing = []
        for collection, wanted in HOT_INDEXES.items():
            indexes: Mapping[str, Any] = await self._database[collection].index_information()
            found = [
                (tuple(name for name, _ in index["key"]), bool(index.get("unique")))
                for index in indexes.values()
            ]
            missing += [
                f"{collection} has no {'unique ' if unique else ''}index on {', '.join(keys)}"
                for keys, unique in wanted
                if not any(
                    keys_found[: len(keys)] == keys and (unique_found or not unique)
                    for keys_found, unique_found in found
                )
            ]
        if not missing:
            self._indexes_found_at = monotonic()
        return missing
