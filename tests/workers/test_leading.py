"""One of several workers does the job, and another goes on with it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.workers.test_payments import until
from ticketing import clock, leases
from ticketing.leases import CHANGES, Lease
from ticketing.mongo import Database
from ticketing.tasks import end
from workers.leading import lead


class Worker:
    """Does nothing for as long as the job is its own, and counts how often it got it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.fences: list[int] = []
        self.at_work = False

    async def work(self, lease: Lease, over: asyncio.Event) -> None:
        self.fences.append(lease.fence)
        self.at_work = True
        await over.wait()
        self.at_work = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Event]:
        stopping = asyncio.Event()
        task = asyncio.create_task(lead(self._database, CHANGES, self.work, stopping))
        try:
            yield stopping
        finally:
            stopping.set()
            await asyncio.wait_for(task, 10)


async def test_another_goes_on_at_once_after_an_orderly_stop(database: Database) -> None:
    one, other = Worker(database), Worker(database)

    async def one_works() -> bool:
        return one.at_work

    async def other_works() -> bool:
        return other.at_work

    async with one.running() as stop_one:
        await until(one_works)
        async with other.running():
            await asyncio.sleep(0.2)
            assert not other.at_work
            stop_one.set()
            await until(other_works)
    assert (one.fences, other.fences) == ([1], [2])


async def test_whoever_lost_the_lease_stops_its_work(database: Database) -> None:
    one = Worker(database)

    async def one_works() -> bool:
        return one.at_work

    async def one_rests() -> bool:
        return not one.at_work

    async with one.running():
        await until(one_works)
        # As if this process had been stopped for longer than its lease.
        await database.leases.update_one({"_id": CHANGES}, {"$set": {"until": clock.now()}})
        assert await leases.take(database, CHANGES, "host:other", clock.now())
        await until(one_rests)
        assert not one.at_work
        assert len(one.fences) == 1


async def test_after_a_crash_the_job_is_taken_once_the_lease_has_lapsed(
    database: Database,
) -> None:
    assert await leases.take(database, CHANGES, "host:dead", clock.now())
    other = Worker(database)

    async def other_works() -> bool:
        return other.at_work

    async with other.running():
        await until(other_works)
    assert other.fences == [2]


async def test_work_that_fails_gives_the_job_away(database: Database) -> None:
    async def work(_: Lease, __: asyncio.Event) -> None:
        raise LookupError

    task = asyncio.create_task(lead(database, CHANGES, work, asyncio.Event()))
    await asyncio.wait({task}, timeout=10)
    assert isinstance(task.exception(), LookupError)
    await end(task)
    assert await leases.take(database, CHANGES, "host:other", clock.now())
