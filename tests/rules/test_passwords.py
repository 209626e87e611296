"""Passwords are checked in as long a time whether or not there is an account."""

import pytest

from ticketing import passwords
from ticketing.passwords import Passwords


async def test_what_stands_for_nobodys_password_costs_as_much_as_a_real_one() -> None:
    checking = Passwords()
    assert not checking._hasher.check_needs_rehash(passwords._NOBODYS)
    assert not await checking.matches(None, "nobody has this password")
    stored = await checking.hash("a rather long password")
    assert not checking._hasher.check_needs_rehash(stored)
    assert await checking.matches(stored, "a rather long password")
    assert not await checking.matches(stored, "a rather long passwort")
    assert not await checking.matches("$argon2id$nonsense", "a rather long password")
    checking.close()


@pytest.mark.parametrize("password", ["", "short", "x" * 201, "abababababab", "aaaaaaaaaaaa"])
def test_a_password_that_nobody_should_have_is_refused(password: str) -> None:
    assert passwords.fault(password)


def test_the_same_password_typed_by_another_keyboard_is_the_same() -> None:
    assert passwords.normalized("a\u0308rger") == passwords.normalized("\u00e4rger")
