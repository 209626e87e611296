"""Who behaves as no fan does is remembered for an hour, in bounded memory."""

import pytest

from ticketing import suspicions
from ticketing.suspicions import FANS_PER_ADDRESS_MAX, UNPAID_HOLDS_MAX, Suspicions


def test_many_holds_that_are_never_paid_are_suspicious_and_a_paid_one_clears_them() -> None:
    known = Suspicions()
    for count in range(UNPAID_HOLDS_MAX):
        assert not known.are_of("fan", "here", count)
        known.asks("fan", "here", count)
    assert known.are_of("fan", "there", 10)
    assert not known.are_of("other", "here", 10)
    known.paid("fan")
    assert not known.are_of("fan", "here", 10)


def test_who_gets_nothing_is_not_suspicious_for_having_asked() -> None:
    known = Suspicions()
    for count in range(3 * UNPAID_HOLDS_MAX):
        known.asks("fan", "here", count)
        known.missed("fan")
    known.missed("fan")
    assert not known.are_of("fan", "here", 10)


def test_one_hold_asked_for_again_and_again_counts_once() -> None:
    known = Suspicions()
    for count in range(3 * UNPAID_HOLDS_MAX):
        known.asks("fan", "here", count)
        known.got("fan", "hold one")
    assert not known.are_of("fan", "here", 10)


def test_many_fans_from_one_address_are_suspicious_and_one_who_comes_often_is_not() -> None:
    known = Suspicions()
    for number in range(FANS_PER_ADDRESS_MAX):
        for _ in range(3):
            known.asks(f"fan {number}", "here", 0)
    assert not known.are_of("newcomer", "here", 0)
    known.asks("one more", "here", 0)
    assert known.are_of("newcomer", "here", 0)
    assert not known.are_of("newcomer", "there", 0)


def test_after_an_hour_all_is_forgotten() -> None:
    known = Suspicions()
    for number in range(100):
        known.asks("fan", "here", 0)
        known.asks(f"fan {number}", "here", 0)
    assert known.are_of("fan", "here", 3_600)
    assert not known.are_of("fan", "here", 3_601)
    known.asks("fan", "here", 3_601)
    assert not known.are_of("fan", "here", 3_601)


def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspicions, "FANS_REMEMBERED_MAX", 100)
    monkeypatch.setattr(suspicions, "ADDRESSES_REMEMBERED_MAX", 50)
    known = Suspicions()
    for number in range(1_000):
        known.asks(f"fan {number}", f"address {number % 200}", 0)
    assert len(known._fans) == 100
    assert len(known._addresses) == 50
    for number in range(1_000):
        known.asks(f"fan {number}", "one address", 0)
    assert len(known._addresses["one address"].fans) == FANS_PER_ADDRESS_MAX + 1
