"""The archive worker moves what is due, and stops when told to."""

import asyncio
from datetime import timedelta

from tests.conftest import put_on_sale
from tests.nouns.test_privacy import bought
from tests.workers.test_payments import until
from ticketing import archive, clock, dashboards
from ticketing.mongo import Database
from ticketing.settings import Settings
from workers import archive as worker
from workers.metrics import Metrics


async def test_what_is_due_is_moved_and_its_counters_stay(
    database: Database, settings: Settings
) -> None:
    sale, recent = await put_on_sale(database), await put_on_sale(database)
    await bought(database, sale, 1, 2)
    await bought(database, recent, 1)
    moment = clock.now() - archive.KEPT
    for event_id, starts_at in (
        (sale.event_id, moment - timedelta(days=1)),
        (recent.event_id, moment + timedelta(days=1)),
    ):
        await database.events.update_one(
            {"_id": event_id}, {"$set": {"status": "ended", "startsAt": starts_at}}
        )
    counters = await dashboards.find(database, sale.event_id)
    stopping = asyncio.Event()
    running = asyncio.create_task(worker.run(settings, Metrics("archive"), stopping))

    async def is_moved() -> bool:
        return await database.orders_archive.count_documents({}) == 1

    await until(is_moved)
    stopping.set()
    await asyncio.wait_for(running, 10)
    assert await database.orders.count_documents({}) == 1
    assert await dashboards.find(database, sale.event_id) == counters
