"""A replica set of its own for what ruins a database, with an oplog that soon rolls over."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pymongo
import pytest

import indexes
from scripts.replica_set import ReplicaSet
from ticketing import mongo
from ticketing.mongo import Database, Document
from ticketing.settings import Settings

OPLOG_MEGABYTES = 2


@pytest.fixture(scope="module")
def small_history() -> Iterator[ReplicaSet]:
    with (
        tempfile.TemporaryDirectory(prefix="ticketing-") as folder,
        # History goes piece by piece, and none that is younger than the last checkpoint.
        ReplicaSet(folder, oplog_megabytes=OPLOG_MEGABYTES, checkpoint_seconds=1) as running,
    ):
        yield running


@pytest.fixture
def own_settings(small_history: ReplicaSet) -> Iterator[Settings]:
    """Settings of a database that a test may ruin."""
    settings = replace(Settings.from_environment({}), mongodb_uri=small_history.uri)
    with pymongo.MongoClient[Document](small_history.uri) as client:
        indexes.apply(client[settings.database])
        yield settings
        client.drop_database(settings.database)


@pytest.fixture
async def own(own_settings: Settings) -> AsyncIterator[Database]:
    """A database that a test may ruin."""
    opened = await mongo.connect(own_settings)
    yield opened.database
    await opened.close()
