"""A group is settled as if its members had come one after the other, and nobody waits in vain."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticketing.group_commit import GroupCommit, Overloaded


class Register:
    """One number for each seat: who has it. A flush gives each seat to the first who asks.

    It reads, pauses and writes, so two flushes at once that touch one seat would sell it twice.
    """

    def __init__(self, *, poisoned: frozenset[int] = frozenset()) -> None:
        self.owners: dict[int, int] = {}
        self.groups: list[int] = []
        self.poisoned = poisoned

    async def flush(self, requests: Sequence[tuple[int, int]]) -> list[bool]:
        before = dict(self.owners)
        await asyncio.sleep(0)
        if any(fan in self.poisoned for fan, _ in requests):
            raise ValueError("poisoned")
        self.groups.append(len(requests))
        outcomes = []
        for fan, seat in requests:
            outcomes.append(before.setdefault(seat, fan) == fan)
            await asyncio.sleep(0)
            self.owners[seat] = before[seat]
        return outcomes


def group_commit(register: Register, **limits: int) -> GroupCommit[tuple[int, int], bool]:
    sizes = {"group_size_max": 8, "queue_size_max": 1_000} | limits
    return GroupCommit(register.flush, keys=lambda request: (request[1],), **sizes)


async def test_what_arrives_during_a_flush_goes_out_together() -> None:
    register = Register()
    group = group_commit(register)
    await asyncio.gather(*(group.submit((fan, fan)) for fan in range(20)))
    assert register.groups == [8, 8, 4]
    assert await group.submit((99, 99))
    assert register.groups[-1] == 1


async def test_a_group_goes_out_beside_another_only_when_it_is_half_as_large() -> None:
    opened, sizes = asyncio.Event(), []

    async def flush(requests: Sequence[int]) -> list[int]:
        sizes.append(len(requests))
        await opened.wait()
        return list(requests)

    group: GroupCommit[int, int] = GroupCommit(
        flush, keys=lambda _: (), group_size_max=8, queue_size_max=100, in_flight_max=2
    )
    waiting = [asyncio.create_task(group.submit(number)) for number in range(8)]
    for number in range(8, 11):
        await _a_few_turns()
        waiting.append(asyncio.create_task(group.submit(number)))
    await _a_few_turns()
    assert sizes == [8]
    waiting.append(asyncio.create_task(group.submit(11)))
    await _a_few_turns()
    assert sizes == [8, 4]
    waiting.append(asyncio.create_task(group.submit(12)))
    await _a_few_turns()
    assert sizes == [8, 4]
    opened.set()
    assert await asyncio.gather(*waiting) == list(range(13))
    assert sizes == [8, 4, 1]


async def _a_few_turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=60),
    st.sets(st.integers(0, 40), max_size=4),
    st.lists(st.integers(0, 3), min_size=60, max_size=60),
    st.integers(1, 4),
)
def test_any_interleaving_has_the_outcome_of_some_serial_order(
    requests: list[tuple[int, int]], poisoned: set[int], pauses: list[int], in_flight_max: int
) -> None:
    register = Register(poisoned=frozenset(poisoned))

    async def one(group: GroupCommit[tuple[int, int], bool], place: int) -> object:
        for _ in range(pauses[place]):
            await asyncio.sleep(0)
        try:
            return await group.submit(requests[place])
        except ValueError as error:
            return error

    async def run() -> list[object]:
        group = group_commit(register, in_flight_max=in_flight_max)
        return await asyncio.gather(*(one(group, place) for place in range(len(requests))))

    outcomes = asyncio.run(run())
    for (fan, seat), outcome in zip(requests, outcomes, strict=True):
        # An error reaches those who caused it and nobody else; a seat has one owner.
        assert isinstance(outcome, ValueError) == (fan in poisoned)
        if fan not in poisoned:
            assert outcome == (register.owners[seat] == fan)


async def test_what_depends_on_each_other_goes_out_in_the_order_it_came() -> None:
    register = Register()
    group = group_commit(register, group_size_max=1, in_flight_max=4)
    # All want seat 0 but the last, which need not wait for them.
    waiting = [asyncio.ensure_future(group.submit((fan, fan // 5))) for fan in range(6)]
    assert await waiting[5]
    assert not waiting[1].done()
    assert await asyncio.gather(*waiting[:5]) == [True, False, False, False, False]


async def test_a_full_queue_refuses_at_once() -> None:
    group = group_commit(Register(), queue_size_max=3)
    waiting = [asyncio.ensure_future(group.submit((fan, fan))) for fan in range(3)]
    await asyncio.sleep(0)
    more = [asyncio.ensure_future(group.submit((fan, fan))) for fan in range(10, 15)]
    outcomes = await asyncio.gather(*waiting, *more, return_exceptions=True)
    assert outcomes[:3] == [True] * 3
    assert any(isinstance(outcome, Overloaded) for outcome in outcomes[3:])


async def test_a_caller_that_goes_away_takes_its_waiting_request_along() -> None:
    register = Register()
    group = group_commit(register, group_size_max=1)
    first, second = (asyncio.ensure_future(group.submit((fan, fan))) for fan in (1, 2))
    await asyncio.sleep(0)
    second.cancel()
    assert await first
    await group.drain()
    assert register.owners == {1: 1}


async def test_draining_waits_for_all_that_was_accepted() -> None:
    register = Register()
    group = group_commit(register, group_size_max=2)
    waiting = [asyncio.ensure_future(group.submit((fan, fan))) for fan in range(9)]
    await asyncio.sleep(0)
    await group.drain()
    assert len(register.owners) == 9
    assert all(await asyncio.gather(*waiting))


async def test_an_error_is_given_to_the_one_who_caused_it() -> None:
    group = group_commit(Register(poisoned=frozenset({3})))
    outcomes = await asyncio.gather(
        *(group.submit((fan, fan)) for fan in range(6)), return_exceptions=True
    )
    assert [isinstance(outcome, ValueError) for outcome in outcomes] == [
        fan == 3 for fan in range(6)
    ]
    with pytest.raises(ValueError, match="poisoned"):
        await group.submit((3, 3))


async def test_an_error_that_nobody_has_caused_goes_to_all_at_once() -> None:
    tries = 0

    async def away(requests: Sequence[int]) -> list[int]:
        nonlocal tries
        tries += 1
        raise OSError("the database is away")

    group: GroupCommit[int, int] = GroupCommit(
        away,
        keys=lambda request: (request,),
        group_size_max=8,
        queue_size_max=100,
        is_everybodys=lambda error: isinstance(error, OSError),
    )
    outcomes = await asyncio.gather(*(group.submit(n) for n in range(8)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [OSError] * 8
    assert tries == 1
