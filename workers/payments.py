"""The payments worker: whatever has to do with a provider after a request was answered.

It looks up payments whose notice never came, looks again at notices that came too early, sends
refunds, cancels the orders of events that were called off, and lets those of moved events follow.
Any number may run: each payment, refund or job is taken by a conditional write and belongs to one
worker for a while.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from pymongo.errors import PyMongoError

from ticketing import cancellations, checkout, clock, mongo, moves, refunds, settling
from ticketing.mongo import Database
from ticketing.providers import Providers
from ticketing.settings import Settings
from ticketing.tasks import end, pause
from ticketing.telemetry.logs import named
from workers.metrics import Metrics

IDLE_SECONDS = 1.0

log = logging.getLogger("ticketing.payments")

Step = Callable[[], Awaitable[int]]


def steps(
    database: Database, providers: Providers, stopping: Callable[[], bool] = lambda: False
) -> dict[str, Step]:
    """What the worker does, by name. Each answers how much it found to do."""
    return {
        "refunds": lambda: refunds.send_due(database, providers, clock.now()),
        "look-ups": lambda: settling.look_up_due(database, providers, clock.now()),
        "kept notices": lambda: checkout.look_again(database, clock.now()),
        "moves": lambda: moves.run_due(database, clock.now(), stopping=stopping),
        "cancellations": lambda: cancellations.run_due(database, clock.now(), stopping=stopping),
    }


async def run(settings: Settings, metrics: Metrics, stopping: asyncio.Event) -> None:
    """Do all of it until told to stop; what is under way is finished first.

    Each step has a loop of its own, so that one that waits for a provider holds up no other.
    """
    client = await mongo.connect(settings, listeners=metrics.database_listeners)
    providers = Providers(settings, client.database)
    loops = [
        asyncio.create_task(_repeat(name, step, metrics, stopping))
        for name, step in steps(client.database, providers, stopping.is_set).items()
    ]
    log.info("The payments worker is running.")
    try:
        await asyncio.gather(*loops)
    finally:
        await end(*loops)
        await providers.close()
        await client.close()


async def _repeat(name: str, step: Step, metrics: Metrics, stopping: asyncio.Event) -> None:
    while not stopping.is_set():
        found = 0
        try:
            found = await step()
            metrics.done(name)
        except PyMongoError as error:
            # The next run tries again; a database that is away is no reason to die.
            metrics.failed(name)
            log.warning("The database did not answer (%s): %s", name, named(error))
        except Exception:
            metrics.failed(name)
            log.exception("A step failed and will be tried again: %s", name)
        if not found:
            await pause(IDLE_SECONDS, stopping)
