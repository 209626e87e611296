"""Counters are exact: after a kill, after two workers at once, after history is gone."""

import asyncio
import random
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from tests.conftest import NOW, Sale, providers_of, put_on_sale
from tests.nouns.test_checkout import hold_seats, notice, ordered
from ticketing import checkout, clock, dashboards, events, holds, invariants, mongo, refunds
from ticketing.holds import Hold, HoldRequest
from ticketing.mongo import Client, Database
from ticketing.settings import Settings
from ticketing.tasks import end
from workers import changes, release
from workers.metrics import Metrics

LATER = NOW + timedelta(seconds=601)


@asynccontextmanager
async def worker(settings: Settings):
    """A changes worker in a task of its own; cancelling it is as rough as a kill."""
    client = await mongo.connect(settings, operation_timeout_ms=None)
    task = asyncio.create_task(_follow(client))
    try:
        yield task
    finally:
        await end(task)
        await client.close()


async def _follow(client: Client) -> None:
    while True:
        try:
            await changes.follow(client.database, asyncio.Event(), Metrics("changes"))
        except dashboards.Overtaken:
            continue


async def at_rest(database: Database, sale: Sale) -> dict:
    """The counters once they equal a recount."""
    for _ in range(100):
        differences = await invariants.counter_differences(database, sale.event)
        if not differences:
            return await dashboards.find(database, sale.event_id)
        await asyncio.sleep(0.1)
    raise AssertionError(differences)


async def started(database: Database) -> None:
    """Wait until a worker has saved a place, so that what follows reaches it by the stream."""
    for _ in range(100):
        if await dashboards.place(database):
            return
        await asyncio.sleep(0.05)
    raise AssertionError("no place was saved")


async def test_the_counters_follow_a_sale_of_every_kind(
    settings: Settings, either: Database
) -> None:
    sale = await put_on_sale(either)
    async with worker(settings):
        await started(either)
        bought = await ordered(either, sale, "fan_a", 0, 1, 25)
        await checkout.receive(either, [notice(bought)], now=NOW)
        cancelled = await ordered(either, sale, "fan_b", 3, 4)
        await checkout.receive(either, [notice(cancelled)], now=NOW)
        await checkout.cancel(either, cancelled["_id"], "fan_b", now=NOW)
        await refunds.send_due(either, providers_of(either), NOW)
        await ordered(either, sale, "fan_c", 5, 6)  # Will lapse with its order.
        released = await hold_seats(either, sale, "fan_d", 7)
        await checkout.release_hold(either, released.hold_id, "fan_d", now=NOW)
        await release.sweep(either, LATER)
        await hold_seats(either, sale, "fan_e", 8, 9, now=LATER)
        (refused,) = await holds.place(
            either,
            [HoldRequest(sale.event_id, "fan_f", sale.seats(9, 10))],
            hold_seconds=600,
            now=LATER,
        )
        assert isinstance(refused, holds.SeatsUnavailable)
        counters = await at_rest(either, sale)
    assert counters["seats"] == {
        "total": 40,
        "available": 35,
        "held": 2,
        "sold": 3,
        "blocked": 0,
    }
    assert counters["orders"] == {
        "pendingPayment": 0,
        "confirmed": 1,
        "expired": 1,
        "cancelled": 1,
    }
    assert counters["revenue"] == 2 * 9500 + 4500
    assert counters["refunds"] == 2 * 9500
    assert counters["holds"] == {"created": 5, "released": 1, "expired": 1}
    assert [section["revenue"] for section in counters["sections"]] == [2 * 9500, 4500]
    assert counters["recentSales"][0]["seats"] == 2
    assert sum(minute["orders"] for minute in counters["salesByMinute"]) == 2


async def _sell(database: Database, sale: Sale, rng: random.Random, count: int) -> None:
    for n in range(count):
        fan = f"fan_{rng.random()}"
        (hold,) = await holds.place(
            database,
            [HoldRequest(sale.event_id, fan, quantity=rng.randint(1, 3), section="Floor")],
            hold_seconds=600,
            now=NOW,
        )
        if not isinstance(hold, Hold):
            return
        if n % 4 == 0:
            await checkout.release_hold(database, hold.hold_id, fan, now=NOW)
            continue
        (placed,) = await checkout.place_orders(
            database, [checkout.OrderRequest(fan, hold.hold_id)], now=NOW
        )
        if n % 3:
            await checkout.receive(database, [notice(placed)], now=NOW)


async def test_a_worker_killed_again_and_again_counts_each_change_once(
    settings: Settings, database: Database
) -> None:
    sale = await put_on_sale(database, sections=_floor(300))
    selling = asyncio.create_task(_sell(database, sale, random.Random(1), 60))
    while not selling.done():
        async with worker(settings):
            await asyncio.sleep(random.uniform(0.02, 0.15))
    await selling
    async with worker(settings):
        counters = await at_rest(database, sale)
    assert counters["seats"]["sold"] > 0
    assert await invariants.check_all(database) == []


async def test_two_workers_at_once_count_each_change_once(
    settings: Settings, database: Database
) -> None:
    sale = await put_on_sale(database, sections=_floor(300))
    async with worker(settings), worker(settings), worker(settings):
        await started(database)
        await asyncio.gather(
            _sell(database, sale, random.Random(2), 30), _sell(database, sale, random.Random(3), 30)
        )
        counters = await at_rest(database, sale)
    assert counters["holds"]["created"] == 60
    assert counters["holds"]["released"] == 16


async def test_a_rebuild_in_the_middle_of_a_sale_leaves_the_counters_exact(
    settings: Settings, database: Database
) -> None:
    sale = await put_on_sale(database, sections=_floor(300))
    async with worker(settings):
        selling = asyncio.create_task(_sell(database, sale, random.Random(4), 50))
        while not selling.done():
            assert await dashboards.rebuild(database, clock.now()) == 1
            await asyncio.sleep(0.05)
        await selling
        await at_rest(database, sale)


async def test_the_last_seat_sold_is_told_once_however_many_workers_there_are(
    settings: Settings, database: Database
) -> None:
    sale = await put_on_sale(database, sections=_floor(3))
    told = {"kind": "event.soldOut", "eventId": sale.event_id}
    async with worker(settings), worker(settings):
        await started(database)
        bought = []
        for ordinal in range(3):
            bought.append(await ordered(database, sale, f"fan_{ordinal}", ordinal))
            assert await database.outbox.count_documents(told) == 0
            await checkout.receive(database, [notice(bought[-1])], now=NOW)
        await at_rest(database, sale)
        (message,) = await database.outbox.find(told).to_list(10)
        assert message["body"] == {"seatCount": 3}
        # A seat that came back and is sold anew is sold out anew.
        await checkout.cancel(database, bought[0]["_id"], "fan_0", now=NOW)
        await at_rest(database, sale)
        again = await ordered(database, sale, "fan_9", 0)
        await checkout.receive(database, [notice(again)], now=NOW)
        await at_rest(database, sale)
    assert await database.outbox.count_documents(told) == 2


async def test_a_recount_tells_of_the_last_seat_where_nobody_counted_it(
    settings: Settings, database: Database
) -> None:
    sale = await put_on_sale(database, sections=_floor(1))
    await checkout.receive(database, [notice(await ordered(database, sale, "fan_a", 0))], now=NOW)
    for _ in range(2):
        await changes.rebuild(settings)
        assert await database.outbox.count_documents({"kind": "event.soldOut"}) == 1


async def test_spoilt_counters_are_found_and_a_rebuild_mends_them(
    settings: Settings, database: Database
) -> None:
    sale = await put_on_sale(database)
    await ordered(database, sale, "fan_a", 1)
    await database.dashboards.update_one({"_id": sale.event_id}, {"$inc": {"seats.sold": 3}})
    assert await invariants.counter_differences(database, sale.event)
    await changes.rebuild(settings)
    assert await invariants.counter_differences(database, sale.event) == []


async def test_a_place_whose_history_is_gone_is_replaced_by_a_recount(
    settings: Settings, database: Database
) -> None:
    sale = await put_on_sale(database)
    await ordered(database, sale, "fan_a", 1)
    await changes.rebuild(settings)
    await database.resume_tokens.update_one(
        {"_id": dashboards.POSITION_ID}, {"$set": {"token": {"_data": "82" + "00" * 20}}}
    )
    stopping = asyncio.Event()
    running = asyncio.create_task(changes.run(settings, Metrics("changes"), stopping))
    await asyncio.sleep(0.5)
    await ordered(database, sale, "fan_b", 2)
    try:
        counters = await at_rest(database, sale)
    finally:
        stopping.set()
        await running
    assert counters["seats"]["held"] == 2


def _floor(capacity: int) -> list:
    return [events.Section("Floor", "Rear", capacity=capacity)]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    random.seed(5)


async def test_an_event_made_while_a_rebuild_counts_is_counted_once(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = await put_on_sale(database)
    recount = dashboards.recount
    made: list[Sale] = []

    async def slow(*given):
        counted = await recount(*given)
        if not made:
            made.append(await put_on_sale(database))
            await ordered(database, made[0], "fan_a", 1, 2)
            for _ in range(100):
                if (await dashboards.find(database, made[0].event_id))["seats"]["held"] == 2:
                    break
                await asyncio.sleep(0.05)
        return counted

    async with worker(settings):
        await started(database)
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(dashboards, "recount", slow)
            await dashboards.rebuild(database, clock.now())
        for sale in (old, *made):
            await at_rest(database, sale)


async def test_a_seat_changed_by_hand_does_not_stop_the_worker(
    settings: Settings, database: Database
) -> None:
    sale = await put_on_sale(database)
    async with worker(settings):
        await started(database)
        await database.seats.update_one({"_id": sale.seat(5)}, {"$set": {"status": "blocked"}})
        await ordered(database, sale, "fan_a", 1)
        for _ in range(100):
            if (await dashboards.find(database, sale.event_id))["seats"]["held"] == 1:
                break
            await asyncio.sleep(0.05)
        assert await invariants.counter_differences(database, sale.event)
        await dashboards.rebuild(database, clock.now())
        await at_rest(database, sale)
