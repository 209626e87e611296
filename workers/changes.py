"""The changes worker: follows one change stream and keeps the counters of all events."""

import asyncio
import logging
import time
from typing import Any

from pymongo.errors import OperationFailure, PyMongoError

from ticketing import clock, dashboards, mongo
from ticketing.dashboards import Overtaken, Place
from ticketing.mongo import Database, Document
from ticketing.settings import Settings

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

log = logging.getLogger("ticketing.changes")


async def rebuild(settings: Settings) -> int:
    """Count all events afresh; returns how many."""
    client = await mongo.connect(settings, operation_timeout_ms=None)
    try:
        return await dashboards.rebuild(client.database, clock.now())
    finally:
        await client.close()


async def run(settings: Settings, stopping: asyncio.Event) -> None:
    """Follow the stream until told to stop; the batch under way is saved first."""
    # Without a time limit: a change stream waits, and a transaction here makes nobody wait.
    client = await mongo.connect(settings, operation_timeout_ms=None)
    failures = 0
    while not stopping.is_set():
        began = time.monotonic()
        try:
            await follow(client.database, stopping)
        except Overtaken:
            log.info("Another changes worker is ahead: going on from where it is.")
        except PyMongoError as error:
            # A stream that ran well for a while has nothing to do with what went wrong before.
            failures = 1 if time.monotonic() - began > RAN_WELL_SECONDS else failures + 1
            log.warning("The change stream broke off: %s", error)
            if _is_useless(error, failures):
                log.warning("It can't go on from the saved place: counting afresh.")
                await _rebuild_if_possible(client.database)
                failures = 0
            await _pause(min(0.1 * 2**failures, BACK_OFF_SECONDS_MAX), stopping)
    await client.close()


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
        log.warning("The recount failed and will be tried again: %s", error)


async def _pause(seconds: float, stopping: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(stopping.wait(), seconds)
    except TimeoutError:
        return


async def follow(database: Database, stopping: asyncio.Event) -> None:
    """Count changes from the saved place on, until told to stop or something breaks."""
    place = await dashboards.place(database)
    if place is None:
        await dashboards.rebuild(database, clock.now())
        place = await dashboards.place(database)
        assert place is not None
    options = place.stream_options()
    async with mongo.watch(
        database,
        dashboards.CHANGES,
        max_await_time_ms=AWAIT_MILLISECONDS,
        batch_size=CHANGES_PER_BATCH_MAX,
        **options,
    ) as stream:
        log.info("The changes worker follows the stream.")
        saved_at = time.monotonic()
        while not stopping.is_set():
            batch = await _next_batch(stream)
            token: Document | None = stream.resume_token
            # A quiet stream still moves on; a place that is never saved would one day be older
            # than the history the server keeps.
            idle = not batch and time.monotonic() - saved_at < IDLE_SAVE_SECONDS
            if token is None or idle or token == place.token:
                continue
            place = await _save(database, place, batch, token)
            saved_at = time.monotonic()
            # At a sale's height the stream always has something. A batch costs about the same
            # whatever its size, so it is worth a moment to let one gather.
            await asyncio.sleep(GATHER_SECONDS)


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
