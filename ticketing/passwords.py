"""Passwords are hashed by argon2id, off the event loop, and only so many at a time.

A hash takes the time and the 64 MiB that make guessing dear (RFC 9106): done for everybody who asks
at once it would take the machine from those who buy.
"""

import asyncio
import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from ticketing.errors import Refusal

Result = TypeVar("Result")

LENGTH_MIN = 10
LENGTH_MAX = 200
# What a password is held against where there is no account, so that it takes as long: the hash, by
# the parameters below, of a random text that nobody knows.
_NOBODYS = (
    "$argon2id$v=19$m=65536,t=3,p=1$UNqzvFHnaGy/DGxT2dZ8SQ$"
    "XIksOW0RjnLkH8wI/FXzvKLoDVhtZMD4rRhX6EKMIM0"  # pragma: allowlist secret
)
AT_ONCE_MAX = 2
WAITING_MAX = 32


class TooManySignIns(Refusal):
    """More people sign in than passwords can be checked; the same request may be sent again."""

    slug = "unavailable"
    title = "Service unavailable"


class Passwords:
    """Hashes and checks passwords in threads of its own."""

    def __init__(self) -> None:
        # RFC 9106's second recommendation, in one thread: so two at a time are two cores.
        self._hasher = PasswordHasher(time_cost=3, memory_cost=64 * 1024, parallelism=1)
        self._threads = ThreadPoolExecutor(AT_ONCE_MAX, thread_name_prefix="password")
        self._waiting = 0

    async def hash(self, password: str) -> str:
        """The hash to store. Raises TooManySignIns."""
        return await self._run(self._hasher.hash, normalized(password))

    async def matches(self, password_hash: str | None, password: str) -> bool:
        """Whether it is that password; for no account it is not, after as long a time.

        Raises TooManySignIns.
        """
        held_against = password_hash or _NOBODYS
        matches = await self._run(self._verify, held_against, normalized(password))
        return matches and password_hash is not None

    def _verify(self, password_hash: str, password: str) -> bool:
        try:
            return self._hasher.verify(password_hash, password)
        except (VerificationError, InvalidHashError):
            return False

    async def _run(self, function: Callable[..., Result], *arguments: str) -> Result:
        if self._waiting >= WAITING_MAX:
            raise TooManySignIns("Too many people sign in just now. Try again shortly.")
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, function, *arguments)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """End the threads once they have finished what they are at."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def normalized(password: str) -> str:
    """The same password whichever keyboard typed it (RFC 8265: NFC).

    One that is longer than any may be is cut, for it is wrong anyhow.
    """
    return unicodedata.normalize("NFC", password[: LENGTH_MAX + 1])


def fault(password: str) -> str | None:
    """What is wrong with a new password, or None. Lengths count code points."""
    if not LENGTH_MIN <= len(normalized(password)) <= LENGTH_MAX:
        return f"must have {LENGTH_MIN} to {LENGTH_MAX} characters"
    if len(set(password)) < 4:
        return "must not be so simple"
    return None
