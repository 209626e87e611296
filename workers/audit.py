"""The audit worker: the invariants, checked on live data again and again.

One process does it at a time. How often each rule is broken is kept in `audits`, where every API
process reads it for its metrics. The counters are left to `scripts/audit`: they trail a
running sale, and can be judged only once it rests.
"""

import asyncio
import logging
from collections import Counter

from pymongo.errors import PyMongoError

from ticketing import clock, invariants, leases, mongo
from ticketing.leases import Lease, LeaseLost
from ticketing.mongo import Database
from ticketing.settings import Settings
from ticketing.tasks import pause
from ticketing.telemetry.logs import named
from workers.leading import lead
from workers.metrics import Metrics

PAUSE_SECONDS = 300.0
RETRY_SECONDS = 10.0

log = logging.getLogger("ticketing.audit")


async def run(settings: Settings, metrics: Metrics, stopping: asyncio.Event) -> None:
    """Check while the job is ours, until told to stop; a check under way is broken off."""
    # Reading everything takes as long as it takes, so a check has no time limit; a lease that
    # could not be renewed in time is not renewed later.
    reading = await mongo.connect(
        settings, operation_timeout_ms=None, listeners=metrics.database_listeners
    )
    leading = await mongo.connect(settings)

    async def work(lease: Lease, over: asyncio.Event) -> None:
        while not over.is_set():
            try:
                await check(reading.database, lease, over)
                metrics.done("check")
                await pause(PAUSE_SECONDS, over)
            except LeaseLost:
                return
            except PyMongoError as error:
                metrics.failed("check")
                log.warning("The database did not answer: %s", named(error))
                await pause(RETRY_SECONDS, over)

    try:
        await lead(leading.database, leases.AUDIT, work, stopping)
    finally:
        await reading.close()
        await leading.close()


async def check(database: Database, lease: Lease, over: asyncio.Event) -> None:
    """Check every event and keep what was found, unless the job is another's by then."""
    found: Counter[str] = Counter()
    async for findings in invariants.check_recent(database, clock.now()):
        if over.is_set():
            return
        for finding in findings:
            found[finding.rule] += 1
            log.error("Broken: %s: %s", finding.rule, finding.detail)
    await invariants.keep(database, found, fence=lease.fence, now=clock.now())
