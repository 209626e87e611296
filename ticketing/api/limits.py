"""Which requests count under which limit, and the headers that tell of it."""

from time import monotonic
from typing import Any

from litestar.connection import ASGIConnection

from ticketing import identifiers
from ticketing.accounts import Caller
from ticketing.rate_limits import Left, Meter, Policy

# Whoever sells a hall's seats sells to many behind one address: an office, a mobile network. So an
# address may do as much as a thousand of its people buying in one minute.
ADDRESS = Policy("address", 6_000, 60)
READS = Policy("reads", 1_200, 60)
WRITES = Policy("writes", 300, 60)
SIGN_IN_ADDRESS = Policy("sign-in-address", 60, 60)
# From one address, so that a stranger's wrong tries don't keep the owner out; and from all of them.
SIGN_IN_ACCOUNT = Policy("sign-in-account", 10, 60)
SIGN_IN_EVERYWHERE = Policy("sign-in-everywhere", 100, 60)
GUESTS = Policy("guests", 600, 60)
GUESTS_BY_EMAIL = Policy("guests-email", 5, 3_600)
KEYS_MAX = 100_000

_SCOPE_KEY = "ticketing.rate_limit"
_READING = ("GET", "HEAD", "OPTIONS")


class Limits:
    """The limits of this process. Those of signing in always hold, the others where `is_on`."""

    def __init__(self, *, is_on: bool) -> None:
        self.is_on = is_on
        self._address = Meter(ADDRESS, KEYS_MAX)
        self._reads = Meter(READS, KEYS_MAX)
        self._writes = Meter(WRITES, KEYS_MAX)
        self._sign_in_address = Meter(SIGN_IN_ADDRESS, KEYS_MAX)
        self._sign_in_account = Meter(SIGN_IN_ACCOUNT, KEYS_MAX)
        self._sign_in_everywhere = Meter(SIGN_IN_EVERYWHERE, KEYS_MAX)
        self._guests_by_email = Meter(GUESTS_BY_EMAIL, KEYS_MAX)
        self._guests = Meter(GUESTS, KEYS_MAX)

    def asked_from(self, connection: ASGIConnection[Any, Any, Any, Any], address: str) -> None:
        """Count a request from an address, before anything of it is looked at. Raises RateLimited.

        Whoever sends bad tokens is counted as well.
        """
        if self.is_on:
            tell(connection, self._address.take(address, monotonic()))

    def asked_by(self, connection: ASGIConnection[Any, Any, Any, Any], caller: Caller) -> None:
        """Count a request of somebody known. Raises RateLimited."""
        if self.is_on:
            is_reading = connection.scope.get("method", "GET") in _READING
            meter = self._reads if is_reading else self._writes
            whose = f"{caller.role}:{caller.subject}:{caller.key_id or ''}"
            tell(connection, meter.take(whose, monotonic()))

    def signs_in(
        self, connection: ASGIConnection[Any, Any, Any, Any], address: str, account: str
    ) -> None:
        """Count an attempt to sign in, or anything that sends a mail. Raises RateLimited.

        By the account as well as by the address: neither many addresses that try one password
        after the other, nor one address that tries many accounts, gets far.
        """
        tell(connection, self._sign_in_address.take(address, monotonic()))
        # A digest: what is typed may be long, and a hundred thousand of them are kept.
        everywhere, here = identifiers.digest(account), identifiers.digest(account, address)
        # What is refused here counts nowhere else: one stranger alone keeps nobody out.
        tell(connection, self._sign_in_account.take(here, monotonic()))
        self._sign_in_everywhere.take(everywhere, monotonic())

    def comes_as_guest(
        self, connection: ASGIConnection[Any, Any, Any, Any], address: str, email: str
    ) -> None:
        """Count a new guest, by what they typed as well: one person is a few guests at most.

        Raises RateLimited.
        """
        tell(connection, self._guests.take(address, monotonic()))
        self._guests_by_email.take(identifiers.digest(email), monotonic())


def tell(connection: ASGIConnection[Any, Any, Any, Any], left: Left) -> None:
    """Let the answer carry what is left; of several limits the last one."""
    connection.scope[_SCOPE_KEY] = left  # type: ignore[literal-required]


def raw_headers(scope: Any) -> list[tuple[bytes, bytes]]:
    """The two fields of the IETF's draft for the limit that a request counted under, if any."""
    left: Left | None = scope.get(_SCOPE_KEY)
    if left is None:
        return []
    policy = left.policy
    return [
        (
            b"ratelimit-policy",
            f'"{policy.name}";q={policy.quota};w={policy.window_seconds}'.encode(),
        ),
        (b"ratelimit", f'"{policy.name}";r={left.remaining};t={left.reset_seconds}'.encode()),
    ]
