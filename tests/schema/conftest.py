"""Databases of their own for tests that change indexes and validators, through synchronous PyMongo.

The other tests share one database whose indexes must stay as they are.
"""

import itertools
from collections.abc import Callable, Iterator

import pymongo
import pytest

import indexes
from indexes.__main__ import main
from scripts.replica_set import ReplicaSet
from tests.schema.documents import Document

Database = pymongo.database.Database[Document]
Run = Callable[..., int]
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server(replica_set: ReplicaSet) -> Iterator[pymongo.MongoClient[Document]]:
    with pymongo.MongoClient[Document](replica_set.uri, tz_aware=True) as client:
        yield client


@pytest.fixture
def bare(server: pymongo.MongoClient[Document]) -> Iterator[Database]:
    """A database with nothing in it, not even a collection."""
    database = server[f"ticketing_schema_{next(_numbers)}"]
    yield database
    server.drop_database(database.name)


@pytest.fixture
def applied(bare: Database) -> Database:
    """A database with every index and validator, and no document."""
    assert indexes.apply(bare) == []
    return bare


@pytest.fixture(scope="module")
def kept(server: pymongo.MongoClient[Document]) -> Iterator[Database]:
    """One database for a whole module, with every index and validator; tests leave it as it was."""
    database = server[f"ticketing_schema_{next(_numbers)}"]
    assert indexes.apply(database) == []
    yield database
    server.drop_database(database.name)


@pytest.fixture
def run(replica_set: ReplicaSet, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`python -m indexes` on a database: its exit code."""

    def command(database: Database, *arguments: str) -> int:
        monkeypatch.setenv("TICKETING_MONGODB_URI", replica_set.uri)
        monkeypatch.setenv("TICKETING_DATABASE", database.name)
        return main(list(arguments))

    return command
