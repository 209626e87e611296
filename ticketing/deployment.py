"""Whether a database is one that this release can sell with.

Some things come by themselves and are waited for: a primary, indexes that are being built. Others
no waiting mends, and they are named in one sentence.
"""

from collections.abc import Mapping
from typing import Any

from pymongo.errors import ConfigurationError, OperationFailure

from ticketing.mongo import Database, Document

# The number of the last migration that this release knows.
DATA_VERSION = 2
NEWER = (
    "The database was migrated by a newer release than this one: start that release,"
    " or restore a backup from before."
)
# MongoDB 6.0, the oldest that all is tested on.
WIRE_VERSION_MIN = 17
_NOT_ALLOWED_CODES = {13: "may not read", 18: "is not accepted by", 8000: "is not accepted by"}

# Without these a sale is wrong (two orders of one hold, a fan past the limit) or reads the whole
# collection at each hold. All others are the business of `scripts/indexes verify`.
HOT_INDEXES: dict[str, list[tuple[tuple[str, ...], bool]]] = {
    "seats": [(("holdId",), False), (("heldUntil",), False), (("fanSlot",), True)],
    "orders": [(("holdId", "expiresAt"), True)],
}


class Unusable(Exception):
    """The database is the wrong one; the text says in a sentence why and what to do."""


async def refuse_unusable(database: Database) -> None:
    """Raises Unusable for what no waiting mends, and the driver's error where nothing answers."""
    try:
        hello: Document = await database.command("hello")
        if "setName" not in hello:
            raise Unusable(
                "The database is a single server: transactions need a replica set, if only of one"
                " node."
            )
        if hello["maxWireVersion"] < WIRE_VERSION_MIN:
            raise Unusable("The database is older than MongoDB 6.0: upgrade it first.")
        # Reads by a majority, as every read of ours does.
        newest = await database.migrations.find({}, {"_id": 1}).sort("_id", -1).limit(1).to_list(1)
    except ConfigurationError as error:
        raise Unusable(f"TICKETING_MONGODB_URI can't be used: {error}.") from None
    except OperationFailure as error:
        if error.code in _NOT_ALLOWED_CODES:
            verb = _NOT_ALLOWED_CODES[error.code]
            raise Unusable(f"The user in TICKETING_MONGODB_URI {verb} the database.") from None
        raise
    if newest and newest[0]["_id"] > DATA_VERSION:
        raise Unusable(NEWER)


async def missing_indexes(database: Database) -> list[str]:
    """The indexes that a sale can't do without and that are not there, each in a sentence."""
    missing = []
    for collection, wanted in HOT_INDEXES.items():
        indexes: Mapping[str, Any] = await database[collection].index_information()
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
    return missing
