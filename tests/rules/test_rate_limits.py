"""The limit of how often: a burst at once, then as it fills up, in bounded memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticketing.rate_limits import Meter, Policy, RateLimited

TEN_A_MINUTE = Policy("x", 10, 60)


def taken(meter: Meter, key: str, now: float) -> bool:
    try:
        meter.take(key, now)
    except RateLimited:
        return False
    return True


def test_the_quota_may_be_taken_at_once_and_comes_back_bit_by_bit() -> None:
    meter = Meter(TEN_A_MINUTE, 100)
    assert [meter.take("a", 0).remaining for _ in range(10)] == list(range(9, -1, -1))
    with pytest.raises(RateLimited) as refused:
        meter.take("a", 0)
    assert refused.value.left.reset_seconds == 6
    assert not taken(meter, "a", 5.9)
    assert taken(meter, "a", 6.1)
    assert not taken(meter, "a", 6.2)
    assert taken(meter, "b", 6.2)
    assert [taken(meter, "a", 600) for _ in range(11)] == [True] * 10 + [False]


@given(st.lists(st.floats(0, 20), max_size=200))
def test_no_window_lets_through_more_than_twice_the_quota_and_waiting_helps(
    pauses: list[float],
) -> None:
    meter, now = Meter(TEN_A_MINUTE, 100), 0.0
    passed: list[float] = []
    for pause in pauses:
        now += pause
        try:
            meter.take("a", now)
            passed.append(now)
        except RateLimited as refused:
            later = now + refused.left.reset_seconds
            now = later
            assert taken(meter, "a", later)
            passed.append(later)
    for began in passed:
        assert sum(began <= instant < began + 60 for instant in passed) <= 20


def test_as_many_keys_are_kept_as_there_may_be_those_that_asked_last() -> None:
    meter = Meter(TEN_A_MINUTE, 100)
    for _ in range(10):
        meter.take("busy", 0)
    for number in range(1_000):
        meter.take(f"key {number}", 0)
        assert len(meter) <= 100
        if number < 90:
            assert not taken(meter, "busy", 0)
