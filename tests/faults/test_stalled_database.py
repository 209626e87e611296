"""A database that stops answering: everybody is told within seconds, and nothing is half done."""

import asyncio
import os
import signal
import tempfile
import time
from dataclasses import replace

import pymongo
from pymongo.errors import PyMongoError

import indexes
from scripts.replica_set import ReplicaSet
from tests.conftest import NOW, put_on_sale
from tests.nouns.test_checkout import notice, ordered
from ticketing import checkout, holds, invariants, mongo
from ticketing.api.deliveries import Deliveries
from ticketing.api.metrics import Metrics
from ticketing.api.services import Services
from ticketing.holds import Hold, HoldRequest
from ticketing.mongo import Document
from ticketing.settings import Settings

ANSWER_SECONDS_MAX = 25.0


async def test_a_stalled_primary_is_told_to_everybody_within_seconds() -> None:
    with tempfile.TemporaryDirectory(prefix="ticketing-") as folder, ReplicaSet(folder) as running:
        settings = Settings.from_environment({"TICKETING_MONGODB_URI": running.uri})
        with pymongo.MongoClient[Document](running.uri) as client:
            indexes.apply(client[settings.database])
        await _sell_through_a_stall(replace(settings, hold_seconds=600), running)


async def _sell_through_a_stall(settings: Settings, running: ReplicaSet) -> None:
    opened = await mongo.connect(settings)
    database = opened.database
    services = Services(settings, opened, Deliveries(settings, None), Metrics())
    sale = await put_on_sale(database)
    paid = [await ordered(database, sale, f"fan_{n}", n) for n in range(4)]
    cancelled = await ordered(database, sale, "fan_9", 9)
    mongod = running.pid(0)
    assert mongod is not None
    os.kill(mongod, signal.SIGSTOP)
    try:
        began = time.monotonic()
        outcomes = await asyncio.gather(
            *(services.notices.submit(notice(order)) for order in paid),
            *(
                services.holds.submit(HoldRequest(sale.event_id, f"new_{n}", sale.seats(20 + n)))
                for n in range(12)
            ),
            checkout.cancel(database, cancelled["_id"], "fan_9", now=NOW),
            return_exceptions=True,
        )
        waited = time.monotonic() - began
    finally:
        os.kill(mongod, signal.SIGCONT)
    assert all(isinstance(outcome, PyMongoError) for outcome in outcomes), outcomes
    assert waited < ANSWER_SECONDS_MAX
    for _ in range(50):
        try:
            (hold,) = await holds.place(
                database,
                [HoldRequest(sale.event_id, "after", sale.seats(39))],
                hold_seconds=600,
                now=NOW,
            )
            break
        except PyMongoError:
            await asyncio.sleep(0.2)
    assert isinstance(hold, Hold)
    assert await invariants.check_all(database, counters=False) == []
    await services.close()
    await opened.close()
