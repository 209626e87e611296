"""The change stream loses its history in every way it can: counters are exact all the same."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pymongo
import pytest

import indexes
from tests.conftest import put_on_sale
from tests.nouns.test_checkout import ordered
from tests.workers.test_changes import at_rest, started, worker
from tests.workers.test_payments import until
from ticketing import boards, clock, dashboards, mongo
from ticketing.mongo import Database, Document
from ticketing.settings import Settings
from workers import changes
from workers.metrics import Metrics

FILLER = "x" * 100_000
ROUNDS_MAX = 60


@asynccontextmanager
async def whole_worker(settings: Settings) -> AsyncIterator[None]:
    """A changes worker with all that it does when something breaks."""
    stopping = asyncio.Event()
    running = asyncio.create_task(changes.run(settings, Metrics("changes"), stopping))
    try:
        yield
    finally:
        stopping.set()
        await asyncio.wait_for(running, 20)


async def let_history_go(database: Database) -> None:
    """Write until the oldest record in the oplog is younger than now."""
    begun = await mongo.present_time(database)
    oplog = database.client["local"]["oplog.rs"]
    for _ in range(ROUNDS_MAX):
        await database["filler"].insert_many([{"filler": FILLER} for _ in range(40)])
        (oldest,) = await oplog.find({}, {"ts": 1}).sort("$natural", 1).limit(1).to_list(1)
        if oldest["ts"] > begun:
            return
        await asyncio.sleep(0.2)
    raise AssertionError("the oplog did not roll over")


async def test_a_worker_that_was_away_for_longer_than_the_oplog_reaches_recounts(
    own_settings: Settings, own: Database
) -> None:
    sale = await put_on_sale(own)
    async with worker(own_settings):
        await started(own)
        await ordered(own, sale, "fan_a", 1, 2)
        before = await at_rest(own, sale)
    await ordered(own, sale, "fan_b", 3, 4, 25)
    await let_history_go(own)
    await ordered(own, sale, "fan_c", 5)
    async with whole_worker(own_settings):
        after = await at_rest(own, sale)
        # A version without a record tells every board to read the seats themselves.
        assert after["version"] > before["version"] + 1
        skipped = boards.record_id(sale.event_id, before["version"] + 1)
        assert await own.seat_changes.find_one({"_id": skipped}) is None
        await ordered(own, sale, "fan_d", 6)
        assert (await at_rest(own, sale))["seats"]["held"] == 7


async def test_a_collection_that_was_dropped_is_counted_as_it_is_now(
    own_settings: Settings, own: Database
) -> None:
    sale = await put_on_sale(own)
    async with whole_worker(own_settings):
        await started(own)
        await ordered(own, sale, "fan_a", 1, 2)
        await at_rest(own, sale)
        await own.orders.drop()

        async def no_order_is_counted() -> bool:
            counters = await dashboards.find(own, sale.event_id)
            return bool(counters["orders"]["pendingPayment"] == 0)

        await until(no_order_is_counted)
        await at_rest(own, sale)
        await ordered(own, sale, "fan_b", 3)
        assert (await at_rest(own, sale))["orders"]["pendingPayment"] == 1


async def test_a_database_that_was_dropped_and_filled_anew_is_counted(
    own_settings: Settings, own: Database
) -> None:
    await put_on_sale(own)
    async with whole_worker(own_settings):
        await started(own)
        await own.client.drop_database(own.name)
        await asyncio.to_thread(_prepare, own_settings)
        again = await put_on_sale(own)
        await ordered(own, again, "fan_b", 3)
        assert (await at_rest(own, again))["seats"]["held"] == 1


def _prepare(settings: Settings) -> None:
    with pymongo.MongoClient[Document](settings.mongodb_uri) as client:
        indexes.apply(client[settings.database])


@pytest.mark.parametrize("token", [{"_data": "82" + "00" * 20}, {"_data": "zz"}, {"other": 1}])
async def test_a_place_that_cannot_be_read_is_replaced_by_a_recount(
    own_settings: Settings, own: Database, token: Document
) -> None:
    sale = await put_on_sale(own)
    await ordered(own, sale, "fan_a", 1)
    await changes.rebuild(own_settings)
    mine = {"_id": dashboards.POSITION_ID}
    await own.resume_tokens.update_one(mine, {"$set": {"token": token}})
    async with whole_worker(own_settings):
        await ordered(own, sale, "fan_b", 2)
        assert (await at_rest(own, sale))["seats"]["held"] == 2


async def test_what_cannot_be_counted_is_set_aside_and_the_stream_goes_on(
    settings: Settings, database: Database
) -> None:
    sale = await put_on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1)
    async with worker(settings):
        await started(database)
        await database.seats.update_one({"_id": sale.seat(5)}, {"$set": {"status": "blocked"}})
        await database.orders.update_one({"_id": placed["_id"]}, {"$set": {"status": "expired"}})
        await ordered(database, sale, "fan_b", 2)

        async def both_are_aside() -> bool:
            return await database.changes_set_aside.count_documents({"open": True}) == 2

        await until(both_are_aside)

        async def the_later_one_is_counted() -> bool:
            return bool((await dashboards.find(database, sale.event_id))["seats"]["held"] == 2)

        await until(the_later_one_is_counted)
        aside = await database.changes_set_aside.find().to_list(10)
        assert {(one["collection"], one["documentId"]) for one in aside} == {
            ("seats", sale.seat(5)),
            ("orders", placed["_id"]),
        }
        await dashboards.rebuild(database, clock.now())
        await at_rest(database, sale)
        assert await database.changes_set_aside.count_documents({"open": True}) == 0


async def test_a_quiet_stream_is_told_from_a_silent_one(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "HEARTBEAT_SECONDS", 0.1)
    monkeypatch.setattr(changes, "SILENT_SECONDS", 1.0)
    await put_on_sale(database)
    async with worker(settings) as quiet:
        await started(database)
        await asyncio.sleep(2.0)
        assert not quiet.done()
        place = await database.resume_tokens.find_one({"_id": dashboards.POSITION_ID})
        assert place is not None
        assert (clock.now() - place["heartbeatAt"]).total_seconds() < 1.5
    deaf: Document = {"$match": {"operationType": "nothing"}}
    monkeypatch.setattr(dashboards, "CHANGES", [deaf])
    with pytest.raises(changes.Silent):
        await asyncio.wait_for(changes.follow(database, asyncio.Event(), Metrics("changes")), 20)
