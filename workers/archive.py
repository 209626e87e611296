"""The archive worker: orders of events long past move to where a sale does not meet them.

One process does it at a time, for the sake of order; two would do no harm, since a batch is moved
in one transaction.
"""

import asyncio
import logging

from pymongo.errors import PyMongoError

from ticketing import archive, clock, leases, mongo
from ticketing.leases import Lease
from ticketing.mongo import Database
from ticketing.settings import Settings
from ticketing.tasks import pause
from ticketing.telemetry.logs import named
from workers.leading import lead
from workers.metrics import Metrics

# What is due today may as well move tomorrow.
PAUSE_SECONDS = 3_600.0
RETRY_SECONDS = 60.0

log = logging.getLogger("ticketing.archive")


async def run(settings: Settings, metrics: Metrics, stopping: asyncio.Event) -> None:
    """Move what is due while the job is ours, until told to stop; a batch is finished first."""
    client = await mongo.connect(
        settings, operation_timeout_ms=None, listeners=metrics.database_listeners
    )
    leading = await mongo.connect(settings)

    async def work(_: Lease, over: asyncio.Event) -> None:
        while not over.is_set():
            try:
                await move_due(client.database, over)
                metrics.done("archive")
                await pause(PAUSE_SECONDS, over)
            except PyMongoError as error:
                metrics.failed("archive")
                log.warning("The database did not answer: %s", named(error))
                await pause(RETRY_SECONDS, over)

    try:
        await lead(leading.database, leases.ARCHIVE, work, stopping)
    finally:
        await client.close()
        await leading.close()


async def move_due(database: Database, over: asyncio.Event) -> int:
    """Move the events that are due, as many as one round takes; returns how many orders moved."""
    total = 0
    for event_id in await archive.due(database, clock.now()):
        if over.is_set():
            break
        moved = await archive.move(database, event_id, clock.now(), over)
        if moved is not None:
            log.info("Archived %s: %d orders.", event_id, moved)
            total += moved
    return total
