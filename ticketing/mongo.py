"""The one place that knows which asyncio driver is in use.

PyMongo's own asyncio API is the default; Motor, which it replaced, runs the same code when
`TICKETING_MONGO_DRIVER=motor`. The two agree on everything but the few calls wrapped here:
opening a client, beginning a transaction, a change stream and an aggregation.
"""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import pymongo
from bson.timestamp import Timestamp
from pymongo import AsyncMongoClient, ReadPreference, WriteConcern
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import BulkWriteError, ConnectionFailure, PyMongoError, WriteConcernError
from pymongo.read_concern import ReadConcern

from ticketing.settings import Settings

Document = dict[str, Any]
# Both drivers answer to these names; PyMongo's are used for typing since its stubs are complete.
Database = AsyncDatabase[Document]
Collection = AsyncCollection[Document]
Session = AsyncClientSession
Result = TypeVar("Result")

# An operation of a request must end within this time, retries and server selection included. The
# drivers' own limits (30 s to find a server, 120 s for a transaction) would hold a fan for minutes.
OPERATION_TIMEOUT_MS = 8_000
SERVER_SELECTION_TIMEOUT_MS = 4_000
# A node that hangs keeps its connections open. The driver looks at each node this often, and gives
# one up that has not answered for both of these together: what waits there is broken off and sent
# to the new primary within the same operation. By default that takes longer than an operation may.
HEARTBEAT_MS = 1_000
CONNECT_TIMEOUT_MS = 2_500
AGGREGATE_BATCH_SIZE = 10_000


@dataclass(frozen=True)
class Client:
    """An open client and the database named by the settings."""

    driver_client: Any
    database: Database

    async def close(self) -> None:
        """Close every connection."""
        closing = self.driver_client.close()
        if inspect.isawaitable(closing):
            await closing


async def connect(
    settings: Settings,
    *,
    operation_timeout_ms: int | None = OPERATION_TIMEOUT_MS,
    listeners: Sequence[Any] = (),
) -> Client:
    """Open a client. Nothing is asked of the server yet, so a server that is down is no error here.

    Writes are acknowledged by a majority: what a fan was told survives the loss of a node. A worker
    passes `operation_timeout_ms=None` where it waits on a change stream without end. `listeners`
    are told of every command and connection.
    """
    options: dict[str, Any] = {
        "tz_aware": True,
        "retryWrites": True,
        "retryReads": True,
        "w": "majority",
        "readConcernLevel": "majority",
        "serverSelectionTimeoutMS": SERVER_SELECTION_TIMEOUT_MS,
        "connectTimeoutMS": CONNECT_TIMEOUT_MS,
        "heartbeatFrequencyMS": HEARTBEAT_MS,
        "maxPoolSize": 64,
        "appname": "ticketing",
        "event_listeners": list(listeners),
    }
    if operation_timeout_ms is not None:
        options["timeoutMS"] = operation_timeout_ms
    client: Any
    if settings.mongo_driver == "motor":
        from motor.motor_asyncio import AsyncIOMotorClient

        client = AsyncIOMotorClient(settings.mongodb_uri, **options)
    else:
        client = AsyncMongoClient(settings.mongodb_uri, **options)
    return Client(client, client[settings.database])


async def transaction(
    database: Database,
    body: Callable[[Session], Awaitable[Result]],
    *,
    seconds_max: float | None = OPERATION_TIMEOUT_MS / 1_000,
) -> Result:
    """Run `body` in one majority transaction with snapshot reads and return what it returns.

    The body may run more than once, so it does nothing but database work and lets the driver's
    errors pass: their labels say whether to run it again. A refusal raised inside aborts it. The
    whole, retries included, ends within `seconds_max`; None leaves the driver's own two minutes,
    for workers that nobody waits for.
    """
    with pymongo.timeout(seconds_max):
        return await _in_transaction(database, body)


def is_outage(error: Exception) -> bool:
    """Whether an error says that the database can't be reached or does not answer in time.

    Then nobody's request is the cause, and to try the same again at once would only wait again.
    """
    return isinstance(error, PyMongoError) and (
        isinstance(error, ConnectionFailure) or bool(error.timeout) or _lacks_majority(error)
    )


def _lacks_majority(error: PyMongoError) -> bool:
    """Whether a write was made and no majority has it, such as by a primary that stepped down."""
    if isinstance(error, BulkWriteError):
        return bool(error.details["writeConcernErrors"]) and not error.details["writeErrors"]
    return isinstance(error, WriteConcernError)


async def _in_transaction(
    database: Database, body: Callable[[Session], Awaitable[Result]]
) -> Result:
    async with await _session(database) as session:
        result: Result = await session.with_transaction(
            body,
            read_concern=ReadConcern("snapshot"),
            write_concern=WriteConcern(w="majority"),
            read_preference=ReadPreference.PRIMARY,
        )
        return result


async def aggregate(
    collection: Collection, pipeline: list[Document], *, length: int, session: Session | None = None
) -> list[Document]:
    """At most `length` results of an aggregation."""
    cursor: Any = collection.aggregate(pipeline, session=session)
    if inspect.isawaitable(cursor):
        cursor = await cursor
    results: list[Document] = await cursor.to_list(length)
    return results


async def present_time(database: Database) -> Timestamp:
    """The database's own time now, for reads at one moment and for a change stream to begin at."""
    reply = await database.command("ping")
    operation_time: Timestamp = reply["operationTime"]
    return operation_time


async def aggregate_at(
    database: Database, collection: str, pipeline: list[Document], moment: Timestamp
) -> list[Document]:
    """The results of an aggregation as of `moment`.

    Any number of these with the same moment see the database at that one moment, without a
    transaction. The server keeps five minutes of history for it.
    """
    first: Document = {
        "aggregate": collection,
        "pipeline": pipeline,
        "cursor": {"batchSize": AGGREGATE_BATCH_SIZE},
        "readConcern": {"level": "snapshot", "atClusterTime": moment},
    }
    # A bare command does not decode as the database does: instants would lose their zone.
    options = database.codec_options
    async with await _session(database) as session:
        reply = await database.command(first, session=session, codec_options=options)
        results: list[Document] = reply["cursor"]["firstBatch"]
        while reply["cursor"]["id"]:
            more = {
                "getMore": reply["cursor"]["id"],
                "collection": collection,
                "batchSize": AGGREGATE_BATCH_SIZE,
            }
            reply = await database.command(more, session=session, codec_options=options)
            results += reply["cursor"]["nextBatch"]
    return results


async def _session(database: Database) -> Session:
    client: Any = database.client
    starting = client.start_session()
    session: Session = await starting if inspect.isawaitable(starting) else starting
    return session


@asynccontextmanager
async def watch(database: Database, pipeline: list[Document], **options: Any) -> AsyncIterator[Any]:
    """A change stream over the whole database. `try_next()` gives a change or None."""
    opening: Any = database.watch(pipeline, **options)
    stream = await opening if inspect.isawaitable(opening) else opening
    async with stream:
        yield stream
