"""Doing a job only while this process holds its lease; standing by otherwise."""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

from pymongo.errors import PyMongoError

from ticketing import clock, leases
from ticketing.leases import Lease, LeaseLost
from ticketing.mongo import Database
from ticketing.tasks import end, pause
from ticketing.telemetry.logs import named

log = logging.getLogger("ticketing.leading")

Work = Callable[[Lease, asyncio.Event], Awaitable[None]]
"""Given the lease and the event that tells it to stop, since the job is over or another's."""


def holder() -> str:
    """This process, as people know it: the machine's name and the process's number."""
    return f"{socket.gethostname()}:{os.getpid()}"


async def lead(database: Database, job: str, work: Work, stopping: asyncio.Event) -> None:
    """Do `work` whenever the job's lease is ours, until told to stop.

    Another process takes over at once after an orderly stop, and after a crash once the lease has
    lapsed. Work that ends by itself, or raises, gives the job away as well.
    """
    stands_by = False
    while not stopping.is_set():
        lease = await _taken(database, job)
        if lease is None:
            if not stands_by:
                log.info("Standing by: another process does the job %s.", job)
            stands_by = True
            await pause(leases.RENEWED_EVERY.total_seconds(), stopping)
            continue
        stands_by = False
        log.info("Doing the job %s with fence %d.", job, lease.fence)
        over = asyncio.Event()
        keeping = asyncio.create_task(_keep(database, lease, over, stopping))
        try:
            await work(lease, over)
        finally:
            await end(keeping)
            with suppress(PyMongoError):
                await leases.release(database, lease, clock.now())


async def _taken(database: Database, job: str) -> Lease | None:
    try:
        return await leases.take(database, job, holder(), clock.now())
    except PyMongoError as error:
        log.warning("The database did not answer (lease of %s): %s", job, named(error))
        return None


async def _keep(
    database: Database, lease: Lease, over: asyncio.Event, stopping: asyncio.Event
) -> None:
    """Renew the lease until it is lost or the process stops; then say that the work is over.

    While the database is away nobody can take the lease either, so the work is not told to end.
    """
    while True:
        await pause(leases.RENEWED_EVERY.total_seconds(), stopping)
        if stopping.is_set():
            break
        try:
            lease = await leases.renew(database, lease, clock.now())
        except LeaseLost:
            log.warning("Another process has taken the job %s over.", lease.job)
            break
        except PyMongoError as error:
            log.warning("The lease of %s could not be renewed: %s", lease.job, named(error))
    over.set()
