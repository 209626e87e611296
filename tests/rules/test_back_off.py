"""Pauses between attempts double up to a limit, and differ by chance."""

from datetime import timedelta

from ticketing import back_off


def test_what_failed_together_does_not_come_again_together() -> None:
    pauses = {back_off.pause(3) for _ in range(50)}
    assert len(pauses) > 40
    assert all(timedelta(seconds=10) <= pause <= timedelta(seconds=20) for pause in pauses)


def test_a_pause_has_a_limit_however_often_something_failed() -> None:
    limit = timedelta(seconds=60)
    assert limit / 2 <= back_off.pause(1_000_000, longest_seconds=60) <= limit


def test_a_later_pause_is_never_shorter_than_the_one_before() -> None:
    pauses = [back_off.pause(attempts) for attempts in range(1, 9)]
    assert pauses == sorted(pauses)
