"""The changes worker: follows one change stream and keeps the counters of all events."""

import asyncio
import logging
import time
from typing import Any

import pymongo
from pymongo.errors import OperationFailure, PyMongoError

from ticketing import clock, dashboards, leases, mongo
from ticketing.dashboards import Overtaken, Place
from ticketing.leases import Lease
from ticketing.mongo import Database, Document
from ticketing.settings import Settings
from ticketing.tasks import end, pause
from ticketing.telemetry.logs import named
from workers.leading import lead
from workers.metrics import Metrics

CHANGES_PER_BATCH_MAX = 1_000
BATCH_SECONDS_MAX = 0.05
GATHER_SECONDS = 0.05
AWAIT_MILLISECONDS = 100
# Readers tell by the age of the saved place whether the worker lives.
IDLE_SAVE_SECONDS = 1.0
BACK_OFF_SECONDS_MAX = 5.0
# The place in the stream is of no use any more: its history is gone, or it can't be read. The
# same token would fail for ever, so it is thrown away with a recount.
HISTORY_GONE_CODES = frozenset({286, 280, 260, 222})
REFUSALS_MAX = 3
RAN_WELL_SECONDS = 10.0
RECOUNT_PAUSE_SECONDS = 1.0
HEARTBEAT_SECONDS = 2.0
HEARTBEAT_SECONDS_MAX = 5.0
SILENT_SECONDS = 10.0

log = logging.getLogger("ticketing.changes")


async def rebuild(settings: Settings) -> int:
    """Count all events afresh; returns how many."""
    client = await mongo.connect(settings, operation_timeout_ms=None)
    try:
        return await dashboards.rebuild(client.database, clock.now())
    finally:
        await client.close()


async def run(settings: Settings, metrics: Metrics, stopping: asyncio.Event) -> None:
    """Follow the stream while the job is ours, until told to stop; the batch under way is saved.

    Others stand by. Two at once would count right as well, since the saved place is the fence,
    but each would undo the other's work.
    """
    # Without a time limit: a change stream waits, and a transaction here makes nobody wait.
    streaming = await mongo.connect(
        settings, operation_timeout_ms=None, listeners=metrics.database_listeners
    )
    # A lease that could not be renewed in time is not renewed later.
    leading = await mongo.connect(settings)

    async def work(_: Lease, over: asyncio.Event) -> None:
        await _count(streaming.database, metrics, over)

    try:
        await lead(leading.database, leases.CHANGES, work, stopping)
    finally:
        await streaming.close()
        await leading.close()


async def _count(database: Database, metrics: Metrics, stopping: asyncio.Event) -> None:
    failures = 0
    while not stopping.is_set():
        began = time.monotonic()
        try:
            await follow(database, stopping, metrics)
        except Overtaken:
            log.info("Another changes worker is ahead: going on from where it is.")
        except Upheaval as upheaval:
            log.warning("%s Counting afresh.", upheaval)
            await _rebuild_if_possible(database)
            await pause(RECOUNT_PAUSE_SECONDS, stopping)
        except Silent:
            log.warning("The change stream has gone silent: opening it again.")
        except PyMongoError as error:
            metrics.failed("batch")
            # A stream that ran well for a while has nothing to do with what went wrong before.
            failures = 1 if time.monotonic() - began > RAN_WELL_SECONDS else failures + 1
            log.warning("The change stream broke off: %s", named(error))
            if _is_useless(error, failures):
                log.warning("It can't go on from the saved place: counting afresh.")
                await _rebuild_if_possible(database)
                failures = 0
            await pause(min(0.1 * 2**failures, BACK_OFF_SECONDS_MAX), stopping)
        except Exception:
            # A fault of ours must not end the counting for good, nor be met again and again.
            metrics.failed("batch")
            failures += 1
            log.exception("The changes could not be counted.")
            if failures >= REFUSALS_MAX:
                await _rebuild_if_possible(database)
                failures = 0
            await pause(min(0.1 * 2**failures, BACK_OFF_SECONDS_MAX), stopping)


def _is_useless(error: PyMongoError, failures: int) -> bool:
    """Whether the saved place will never be of use again, so that only a recount helps.

    The same token would fail for ever. An unreadable one has no code of its own, so a server that
    refuses the place several times in a row, though it answers, counts as well.
    """
    if not isinstance(error, OperationFailure) or error.timeout:
        return False
    return error.code in HISTORY_GONE_CODES or failures >= REFUSALS_MAX


async def _rebuild_if_possible(database: Database) -> None:
    try:
        await dashboards.rebuild(database, clock.now())
    except PyMongoError as error:
        log.warning("The recount failed and will be tried again: %s", named(error))


class Upheaval(Exception):
    """A collection was dropped or renamed: no change tells what was in it."""


class Silent(Exception):
    """The stream does not bring back what was written a while ago."""


class _Heart:
    """Writes heartbeats, and knows since when the stream owes one."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._owed_since: float | None = None

    async def beat(self) -> None:
        """Write a heartbeat every few seconds until cancelled."""
        while True:
            try:
                with pymongo.timeout(HEARTBEAT_SECONDS_MAX):
                    await dashboards.beat(self._database, clock.now())
                if self._owed_since is None:
                    self._owed_since = time.monotonic()
            except PyMongoError as error:
                log.warning("The heartbeat could not be written: %s", named(error))
            await asyncio.sleep(HEARTBEAT_SECONDS)

    def look(self, batch: list[Document]) -> None:
        """Look for heartbeats in a batch. Raises Silent where one is owed for too long."""
        if any(map(dashboards.is_heartbeat, batch)):
            self._owed_since = None
        elif self._owed_since and time.monotonic() - self._owed_since > SILENT_SECONDS:
            raise Silent


async def follow(database: Database, stopping: asyncio.Event, metrics: Metrics) -> None:
    """Count changes from the saved place on, until told to stop or something breaks."""
    place = await dashboards.place(database)
    if place is None:
        await dashboards.rebuild(database, clock.now())
        place = await dashboards.place(database)
        assert place is not None
    heart = _Heart(database)
    beating = asyncio.create_task(heart.beat())
    try:
        await _follow_from(database, place, heart, stopping, metrics)
    finally:
        await end(beating)


async def _follow_from(
    database: Database, place: Place, heart: _Heart, stopping: asyncio.Event, metrics: Metrics
) -> None:
    async with mongo.watch(
        database,
        dashboards.CHANGES,
        max_await_time_ms=AWAIT_MILLISECONDS,
        batch_size=CHANGES_PER_BATCH_MAX,
        **place.stream_options(),
    ) as stream:
        log.info("The changes worker follows the stream.")
        saved_at = time.monotonic()
        while not stopping.is_set():
            batch = await _next_batch(stream)
            heart.look(batch)
            _refuse_upheaval(batch)
            token: Document | None = stream.resume_token
            # A quiet stream still moves on; a place that is never saved would one day be older
            # than the history the server keeps.
            idle = not batch and time.monotonic() - saved_at < IDLE_SAVE_SECONDS
            if token is None or idle or token == place.token:
                continue
            place = await _save(database, place, batch, token)
            metrics.done("batch")
            metrics.changes_counted.inc(len(batch))
            saved_at = time.monotonic()
            # At a sale's height the stream always has something. A batch costs about the same
            # whatever its size, so it is worth a moment to let one gather.
            await asyncio.sleep(GATHER_SECONDS)


def _refuse_upheaval(batch: list[Document]) -> None:
    for change in batch:
        if change["operationType"] in dashboards.UPHEAVALS:
            what = change.get("ns", {}).get("coll", "The database")
            raise Upheaval(f"{what} was struck by {change['operationType']}.")


async def _next_batch(stream: Any) -> list[Document]:
    """What the stream has, until it pauses, the batch is full or its time is up."""
    batch: list[Document] = []
    deadline: float | None = None
    while len(batch) < CHANGES_PER_BATCH_MAX:
        change = await stream.try_next()
        if change is None:
            break
        batch.append(change)
        if deadline is None:
            deadline = time.monotonic() + BATCH_SECONDS_MAX
        elif time.monotonic() > deadline:
            break
    return batch


async def _save(database: Database, place: Place, batch: list[Document], token: Document) -> Place:
    return await dashboards.apply(database, place, batch, token, clock.now())
