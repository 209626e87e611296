"""The release worker: what time alone ends.

Any number may run, since every write is conditional.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from pymongo.errors import PyMongoError

from ticketing import clock, event_setup, events, mongo, orders, seats
from ticketing.mongo import Database
from ticketing.settings import Settings
from ticketing.telemetry.logs import named
from workers.metrics import Metrics

SWEEPS_PER_RUN_MAX = 100
HOUSEKEEPING_SECONDS = 30

log = logging.getLogger("ticketing.release")

Sweep = Callable[[Database, datetime], Awaitable[int]]


async def sweep(database: Database, now: datetime) -> tuple[int, int]:
    """Free the seats of overdue holds and expire their orders; returns how many of each."""
    return (
        await _until_empty(seats.lapse_overdue, database, now),
        await _until_empty(orders.expire_overdue, database, now),
    )


async def _until_empty(step: Sweep, database: Database, now: datetime) -> int:
    """Repeat a bounded step while it finds something; bounded itself, the next run goes on."""
    total = 0
    for _ in range(SWEEPS_PER_RUN_MAX):
        found = await step(database, now)
        total += found
        if not found:
            break
    return total


async def run(settings: Settings, metrics: Metrics, stopping: asyncio.Event) -> None:
    """Sweep at the set interval until told to stop; the sweep under way is finished first."""
    client = await mongo.connect(settings, listeners=metrics.database_listeners)
    running = asyncio.Lock()

    async def job(step: str, work: Callable[[], Awaitable[None]]) -> None:
        async with running:
            try:
                await work()
                metrics.done(step)
            except PyMongoError as error:
                # The next run tries again; a database that is away is no reason to die.
                metrics.failed(step)
                log.warning("The database did not answer: %s", named(error))

    async def release() -> None:
        released, expired = await sweep(client.database, clock.now())
        metrics.seats_lapsed.inc(released)
        metrics.orders_expired.inc(expired)
        if released or expired:
            log.info("Released %d seats and expired %d orders.", released, expired)

    async def housekeeping() -> None:
        await events.end_past(client.database, clock.now())
        await event_setup.remove_abandoned(client.database, clock.now())

    scheduler = AsyncIOScheduler(
        timezone="UTC", job_defaults={"coalesce": True, "max_instances": 1}
    )
    scheduler.add_job(
        job, "interval", ["release", release], seconds=settings.release_interval_seconds
    )
    scheduler.add_job(job, "interval", ["housekeeping", housekeeping], seconds=HOUSEKEEPING_SECONDS)
    scheduler.start()
    log.info("The release worker is running.")
    await stopping.wait()
    scheduler.pause()
    # The scheduler's own shutdown cuts off a running job, so the job is awaited here.
    async with running:
        scheduler.shutdown(wait=False)
    await client.close()
