"""One process does a job; another takes over when the lease is over."""

from datetime import timedelta

import pytest

from tests.conftest import NOW, gather_bounded
from ticketing import leases
from ticketing.leases import AUDIT, CHANGES, LEASE, LeaseLost
from ticketing.mongo import Database

A_MOMENT = timedelta(milliseconds=1)


async def test_of_many_who_want_a_job_one_gets_it(either: Database) -> None:
    async def work(number: int) -> object:
        return await leases.take(either, CHANGES, f"host:{number}", NOW)

    taken = await gather_bounded(20, work, at_once=20)
    (lease,) = [one for one in taken if one is not None]
    assert isinstance(lease, leases.Lease)
    assert lease.fence == 1
    assert await leases.take(either, AUDIT, "host:other", NOW) is not None


async def test_a_lease_that_is_renewed_stays_and_one_that_lapses_is_taken(
    database: Database,
) -> None:
    first = await leases.take(database, CHANGES, "host:1", NOW)
    assert first is not None
    renewed = await leases.renew(database, first, NOW + LEASE - A_MOMENT)
    assert await leases.take(database, CHANGES, "host:2", NOW + LEASE) is None
    second = await leases.take(database, CHANGES, "host:2", renewed.until)
    assert second is not None
    assert (second.holder, second.fence) == ("host:2", 2)


async def test_who_was_taken_over_is_told_and_can_release_nothing(database: Database) -> None:
    first = await leases.take(database, CHANGES, "host:1", NOW)
    assert first is not None
    second = await leases.take(database, CHANGES, "host:2", NOW + LEASE)
    assert second is not None
    with pytest.raises(LeaseLost):
        await leases.renew(database, first, NOW + LEASE)
    await leases.release(database, first, NOW + LEASE)
    assert await leases.take(database, CHANGES, "host:3", NOW + LEASE) is None


async def test_a_lapsed_lease_that_nobody_took_goes_on_with_its_fence(database: Database) -> None:
    first = await leases.take(database, CHANGES, "host:1", NOW)
    assert first is not None
    late = await leases.renew(database, first, NOW + 3 * LEASE)
    assert late.fence == first.fence


async def test_a_released_job_is_free_at_once(database: Database) -> None:
    first = await leases.take(database, CHANGES, "host:1", NOW)
    assert first is not None
    await leases.release(database, first, NOW)
    second = await leases.take(database, CHANGES, "host:2", NOW)
    assert second is not None
    assert second.fence == 2
