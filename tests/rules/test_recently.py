"""An answer is read once for all who ask at the same time, and kept for a moment."""

import asyncio

import pytest

from ticketing.recently import Recently


class Source:
    """Counts how often it is read."""

    def __init__(self) -> None:
        self.reads = 0
        self.fault: Exception | None = None

    async def read(self, key: str) -> str:
        self.reads += 1
        await asyncio.sleep(0.01)
        if self.fault is not None:
            raise self.fault
        return f"{key} {self.reads}"


async def test_all_who_ask_during_a_read_get_its_answer() -> None:
    source = Source()
    recently = Recently(source.read, seconds=60, keys_max=10)
    answers = await asyncio.gather(*(recently.get("a") for _ in range(100)))
    assert set(answers) == {"a 1"}
    assert await recently.get("a") == "a 1"
    assert await recently.get("b") == "b 2"


async def test_an_answer_that_is_too_old_is_read_anew() -> None:
    source = Source()
    recently = Recently(source.read, seconds=0, keys_max=10)
    assert [await recently.get("a"), await recently.get("a")] == ["a 1", "a 2"]


async def test_an_error_goes_to_all_who_waited_and_is_not_kept() -> None:
    source = Source()
    source.fault = LookupError("not there")
    recently = Recently(source.read, seconds=60, keys_max=10)
    outcomes = await asyncio.gather(*(recently.get("a") for _ in range(3)), return_exceptions=True)
    assert outcomes == [source.fault] * 3
    source.fault = None
    assert await recently.get("a") == "a 2"


async def test_one_who_goes_away_does_not_cut_off_the_others() -> None:
    source = Source()
    recently = Recently(source.read, seconds=60, keys_max=10)
    leaving, staying = (asyncio.create_task(recently.get("a")) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert await staying == "a 1"


async def test_the_answer_asked_for_longest_ago_goes_when_there_are_too_many() -> None:
    source = Source()
    recently = Recently(source.read, seconds=60, keys_max=2)
    for key in ("a", "b", "c"):
        await recently.get(key)
    assert await recently.get("c") == "c 3"
    assert await recently.get("a") == "a 4"
