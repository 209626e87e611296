"""One embedded replica set for the whole run; each test finds an empty database."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pymongo
import pytest

import indexes
from scripts.replica_set import ReplicaSet
from ticketing import event_setup, events, mongo
from ticketing.accounts import Caller
from ticketing.mongo import Client, Database, Document
from ticketing.providers import Providers
from ticketing.settings import Settings

ORGANISER = Caller("org_one", "organiser")


@pytest.fixture(scope="session")
def replica_set() -> Iterator[ReplicaSet]:
    with tempfile.TemporaryDirectory(prefix="ticketing-") as folder, ReplicaSet(folder) as running:
        yield running


@pytest.fixture(scope="session")
def _prepared(replica_set: ReplicaSet) -> Settings:
    settings = Settings.from_environment(
        {
            "TICKETING_MONGODB_URI": replica_set.uri,
            "TICKETING_DATABASE": f"ticketing_test_{os.getpid()}",
        }
    )
    with pymongo.MongoClient[Document](replica_set.uri) as client:
        indexes.apply(client[settings.database])
    return settings


@pytest.fixture
def settings(_prepared: Settings) -> Settings:
    """Settings that name an empty database with all indexes and validators."""
    with pymongo.MongoClient[Document](_prepared.mongodb_uri) as client:
        database = client[_prepared.database]
        for name in database.list_collection_names():
            if not name.startswith("system."):
                database[name].delete_many({})
    return _prepared


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[Client]:
    opened = await mongo.connect(settings)
    yield opened
    await opened.close()


@pytest.fixture
def database(client: Client) -> Database:
    """An empty database, through PyMongo's asyncio driver."""
    return client.database


@pytest.fixture(params=["pymongo", "motor"])
async def either(settings: Settings, request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    """An empty database, through one driver and then through the other."""
    opened = await mongo.connect(replace(settings, mongo_driver=request.param))
    yield opened.database
    await opened.close()


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# A moment in the middle of every test event's sale.
NOW = instant("2030-06-01T12:00:00")


@dataclass(frozen=True)
class Sale:
    """A published event and short names for its seats."""

    event: Document

    @property
    def event_id(self) -> str:
        return str(self.event["_id"])

    def seat(self, ordinal: int) -> str:
        return f"{self.event_id}:{ordinal:05d}"

    def seats(self, *ordinals: int) -> tuple[str, ...]:
        return tuple(self.seat(ordinal) for ordinal in ordinals)


def new_event(**changes: object) -> events.NewEvent:
    """Two rows of ten numbered seats at 95.00 and a floor for twenty at 45.00."""
    fields: dict[str, object] = {
        "name": "The Last Waltz",
        "venue_name": "Winterland",
        "timezone": "Europe/Berlin",
        "starts_at": NOW + timedelta(days=30),
        "sale_starts_at": NOW - timedelta(days=1),
        "sale_ends_at": NOW + timedelta(days=29),
        "currency": "EUR",
        "price_categories": [
            events.PriceCategory("Front", 9500),
            events.PriceCategory("Rear", 4500),
        ],
        "sections": [
            events.Section(
                "A", "Front", rows=[events.Row("1", count=10), events.Row("2", count=10)]
            ),
            events.Section("Floor", "Rear", capacity=20),
        ],
        "category": "concert",
        "max_seats_per_fan": 8,
    }
    return events.NewEvent(**(fields | changes))  # type: ignore[arg-type]


async def put_on_sale(database: Database, **changes: object) -> Sale:
    event = await event_setup.create(
        database,
        new_event(**changes),
        organiser_id=ORGANISER.subject,
        key=None,
        body=b"",
        now=NOW - timedelta(days=2),
    )
    return Sale(await events.publish(database, event["_id"], ORGANISER, NOW - timedelta(days=2)))


def providers_of(database: Database, **changes: object) -> Providers:
    """The payment providers as they are in development; only the sandbox unless changed."""
    return Providers(replace(Settings.from_environment({}), **changes), database)  # type: ignore[arg-type]


async def gather_bounded(count: int, work: object, *, at_once: int = 64) -> list[object]:
    """Run `work(index)` for each index with so many in flight; exceptions are returned."""
    gate = asyncio.Semaphore(at_once)

    async def one(index: int) -> object:
        async with gate:
            return await work(index)  # type: ignore[operator]

    return await asyncio.gather(*(one(index) for index in range(count)), return_exceptions=True)


@asynccontextmanager
async def asked_of_the_server(database: Database, collection: str) -> AsyncIterator[list[Document]]:
    """What the server did with a collection meanwhile, as its profiler tells it; empty before."""
    await database["system.profile"].drop()
    await database.command("profile", 2)
    entries: list[Document] = []
    try:
        yield entries
    finally:
        await database.command("profile", 0)
    found = database["system.profile"].find({"ns": f"{database.name}.{collection}"})
    entries += await found.to_list(1_000)
