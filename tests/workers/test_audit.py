"""The invariants are checked on live data, by one process, and what is broken is told."""

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from dataclasses import replace

import httpx
import pytest

from tests.conftest import NOW, put_on_sale
from tests.journeys.conftest import free_port
from tests.nouns.test_checkout import ordered
from tests.nouns.test_money import bought
from tests.workers.test_changes import _floor, _sell
from tests.workers.test_payments import until
from ticketing import clock, invariants, leases, vital_signs
from ticketing.leases import AUDIT, Lease, LeaseLost
from ticketing.mongo import Database
from ticketing.settings import Settings
from workers import audit, changes
from workers.metrics import Metrics

LEASE = Lease(AUDIT, "host:1", 5, NOW)


async def test_on_a_running_sale_nothing_is_found(database: Database) -> None:
    sale = await put_on_sale(database, sections=_floor(300))
    selling = asyncio.gather(
        *(_sell(database, sale, random.Random(number), 15) for number in range(4))
    )
    rounds = 0
    while not selling.done():
        found = [each async for some in invariants.check_recent(database, NOW) for each in some]
        assert found == []
        rounds += 1
    await selling
    assert rounds > 1


async def test_what_is_broken_is_counted_by_rule_and_told_to_every_process(
    database: Database,
) -> None:
    sale = await put_on_sale(database)
    first = await bought(database, sale, "fan_a", 1, 2)
    await bought(database, sale, "fan_b", 3)
    await audit.check(database, LEASE, asyncio.Event())
    assert not any((await vital_signs.read(database, NOW)).invariants_broken.values())
    await database.orders.update_one({"_id": first["_id"]}, {"$set": {"total": 1}})
    await audit.check(database, LEASE, asyncio.Event())
    told = await vital_signs.read(database, clock.now())
    assert told.invariants_broken["an order's total is the sum of its seats"] == 1
    assert told.invariants_broken["a seat is in one confirmed order"] == 0
    assert set(told.invariants_broken) == set(invariants.RULES)
    assert told.invariants_checked_age_seconds is not None
    assert told.invariants_checked_age_seconds < 60


async def test_whoever_lost_the_job_tells_nothing(database: Database) -> None:
    later = replace(LEASE, fence=6)
    await audit.check(database, later, asyncio.Event())
    with pytest.raises(LeaseLost):
        await audit.check(database, LEASE, asyncio.Event())
    kept = await database.audits.find_one({"_id": invariants.LATEST_ID})
    assert kept is not None
    assert kept["fence"] == 6


async def test_events_long_over_are_left_to_the_command(database: Database) -> None:
    sale = await put_on_sale(database)
    await bought(database, sale, "fan_a", 1)
    await database.orders.update_one({}, {"$set": {"total": 1}})
    long_after = sale.event["startsAt"] + 2 * invariants.RECENT
    found = [each async for each in invariants.check_recent(database, long_after)]
    assert found == []
    assert await invariants.check_all(database, counters=False) != []


def test_a_rule_that_no_list_knows_is_refused() -> None:
    with pytest.raises(AssertionError):
        invariants.Finding("a rule somebody made up", "")


async def test_the_worker_checks_tells_its_figures_and_stops(
    settings: Settings, database: Database
) -> None:
    sale = await put_on_sale(database)
    await bought(database, sale, "fan_a", 1)
    port = free_port()
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "workers", "audit"),
        env=os.environ
        | {
            "TICKETING_MONGODB_URI": settings.mongodb_uri,
            "TICKETING_DATABASE": settings.database,
            "TICKETING_METRICS_PORT": str(port),
        },
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:

        async def has_checked() -> bool:
            return await database.audits.find_one({"_id": invariants.LATEST_ID}) is not None

        await until(has_checked)

        async def tells_it() -> bool:
            async with httpx.AsyncClient(trust_env=False) as http:
                text = (await http.get(f"http://127.0.0.1:{port}/metrics")).text
            done = 'ticketing_worker_steps_total{outcome="done",step="check",worker="audit"} 1.0'
            return done in text and "ticketing_mongodb_command_duration_seconds_bucket" in text

        await until(tells_it)
        lease = await database.leases.find_one({"_id": leases.AUDIT})
        assert lease is not None
        assert lease["holder"].endswith(f":{running.pid}")
    finally:
        running.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(running.wait(), 15) == 0
    given_away = await database.leases.find_one({"_id": leases.AUDIT})
    assert given_away is not None
    assert given_away["until"] <= clock.now()


async def test_a_fault_of_our_own_does_not_end_the_counting(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale = await put_on_sale(database)
    genuine = changes._save
    met: Counter[str] = Counter()

    async def faulty(*given: object) -> object:
        met["saves"] += 1
        if met["saves"] in (2, 3, 4):
            raise ArithmeticError("a fault of ours")
        return await genuine(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(changes, "_save", faulty)
    stopping = asyncio.Event()
    running = asyncio.create_task(changes.run(settings, Metrics("changes"), stopping))
    await ordered(database, sale, "fan_a", 1)

    async def is_counted() -> bool:
        counters = await database.dashboards.find_one({"_id": sale.event_id})
        return counters is not None and counters["seats"]["held"] == 1 and met["saves"] > 4

    try:
        await until(is_counted)
    finally:
        stopping.set()
        await asyncio.wait_for(running, 20)
