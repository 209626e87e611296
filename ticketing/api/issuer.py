"""People whom another issuer knows (OpenID Connect): their tokens, verified by the issuer's keys.

The algorithm is the one in our settings, whatever a token's header says: so neither `none` nor a
public key taken for a shared secret gets anybody in. Keys are read from the issuer's JWKS address,
anew every few minutes and when a token names one that is not known, which is how issuers change
them.
"""

import asyncio
import logging
from contextvars import Context
from time import monotonic, time
from typing import Annotated, Any

import httpx
import msgspec
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, Key, RSAKey, import_key
from pymongo.errors import AutoReconnect

from ticketing.accounts import Caller
from ticketing.settings import Settings, oidc_roles
from ticketing.tasks import end

KEYS_SECONDS = 300.0
# Tokens with made-up key names must not make us ask the issuer with each of them.
ASKED_AGAIN_SECONDS = 2.0
# While the issuer can't be reached its last keys count on, but one that it took away not for ever.
STALE_SECONDS_MAX = 3_600.0
ANSWER_SECONDS_MAX = 5.0
ANSWER_BYTES_MAX = 256 * 1024
KEYS_MAX = 50
TOKEN_BYTES_MAX = 8_192
TOKENS_REMEMBERED_MAX = 10_000
# Clocks differ: what was issued just now may lie in our future.
CLOCK_SECONDS = 30

_KEY_TYPES: dict[str, type[Key]] = {"RS": RSAKey, "PS": RSAKey, "ES": ECKey}
_STRENGTH = ("fan", "organiser", "admin")

log = logging.getLogger("ticketing.api")


class BadToken(Exception):
    """The token is not the issuer's, not for us, or not valid now."""


class IssuerAway(AutoReconnect):
    """The issuer's keys are not known and can't be had: an outage like the database's."""


class _Claims(msgspec.Struct):
    sub: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    exp: float
    iss: str
    aud: str | list[str]
    nbf: float = 0
    iat: float = 0


class _KeySet(msgspec.Struct):
    keys: list[Any]


class Issuer:
    """The issuer in the settings, and what is known of its keys."""

    def __init__(self, settings: Settings, http: httpx.AsyncClient | None = None) -> None:
        self._settings = settings
        self._roles = oidc_roles(settings)
        self._http = http or httpx.AsyncClient(
            timeout=ANSWER_SECONDS_MAX, follow_redirects=False, trust_env=False
        )
        self._keys: dict[str, Key] = {}
        self._read_at = self._asked_at = -STALE_SECONDS_MAX
        self._reading, self._reads = asyncio.Lock(), 0
        self._refresh: asyncio.Task[None] | None = None
        self._verified: dict[str, tuple[Caller, float]] = {}

    async def close(self) -> None:
        """Close every connection."""
        if self._refresh is not None:
            await end(self._refresh)
        await self._http.aclose()

    async def verify(self, token: str) -> tuple[Caller, float]:
        """Whose the token is and until when (Unix time). Raises BadToken, IssuerAway."""
        age = monotonic() - self._read_at
        if age > STALE_SECONDS_MAX:
            await self._read()
            if monotonic() - self._read_at > STALE_SECONDS_MAX:
                raise IssuerAway("the issuer's keys can't be read")
        elif age > KEYS_SECONDS and monotonic() - self._asked_at > ASKED_AGAIN_SECONDS:
            # Beside the requests: an issuer that hangs holds up nobody while its keys still count.
            self._asked_at = monotonic()
            self._refresh = asyncio.create_task(self._read(), context=Context())
        known = self._verified.get(token)
        if known is None:
            known = await self._verify(token)
            if len(self._verified) >= TOKENS_REMEMBERED_MAX:
                self._verified.clear()
            self._verified[token] = known
        if known[1] <= time():
            raise BadToken
        return known

    async def _verify(self, token: str) -> tuple[Caller, float]:
        if len(token) > TOKEN_BYTES_MAX:
            raise BadToken
        try:
            key = await self._key(jws.extract_compact(token.encode()).headers().get("kid"))
            signed = jws.deserialize_compact(token, key, algorithms=[self._settings.oidc_algorithm])
            claims = msgspec.json.decode(signed.payload, type=_Claims)
            members = msgspec.json.decode(signed.payload)
        # Beside its own errors the library lets pass what odd JSON in a token's header provokes.
        except (JoseError, msgspec.MsgspecError, ValueError, TypeError, RecursionError):
            raise BadToken from None
        audiences = claims.aud if isinstance(claims.aud, list) else [claims.aud]
        role = self._role(members.get(self._settings.oidc_role_claim))
        if (
            claims.iss != self._settings.oidc_issuer
            or self._settings.oidc_audience not in audiences
            or max(claims.nbf, claims.iat) > time() + CLOCK_SECONDS
            or not claims.sub.isprintable()
            or role is None
        ):
            raise BadToken
        return Caller(claims.sub, role), claims.exp

    def _role(self, claim: Any) -> str | None:
        """The strongest of our roles that the claim's values are; `*` stands for any value."""
        values = claim if isinstance(claim, list) else [claim]
        roles = [
            self._roles[value]
            for value in (*values, "*")
            if isinstance(value, str) and value in self._roles
        ]
        return max(roles, key=_STRENGTH.index, default=None)

    async def _key(self, name: Any) -> Key:
        if not isinstance(name, str):
            raise BadToken
        # A read that is under way may bring it: whoever comes in its time waits for it.
        if name not in self._keys and (
            self._reading.locked() or monotonic() - self._asked_at > ASKED_AGAIN_SECONDS
        ):
            await self._read()
        if name not in self._keys:
            raise BadToken
        return self._keys[name]

    async def _read(self) -> None:
        """Read the keys once for all who wait for them; those there were stay if that fails."""
        reads = self._reads
        async with self._reading:
            if self._reads != reads:
                return  # Somebody else did while we waited.
            self._asked_at = monotonic()
            try:
                # The client's own limit is one for each byte that comes.
                async with asyncio.timeout(ANSWER_SECONDS_MAX):
                    keys = await self._fetch()
            except (
                httpx.HTTPError,
                httpx.InvalidURL,
                msgspec.MsgspecError,
                ValueError,
                TimeoutError,
            ) as error:
                log.warning("The issuer's keys can't be read: %s", type(error).__name__)
                return
            finally:
                self._reads += 1
            if {name: key.thumbprint() for name, key in keys.items()} != {
                name: key.thumbprint() for name, key in self._keys.items()
            }:
                self._verified.clear()
            self._keys, self._read_at = keys, monotonic()

    async def _fetch(self) -> dict[str, Key]:
        async with self._http.stream("GET", self._settings.oidc_jwks_url) as answer:
            answer.raise_for_status()
            body = b""
            async for piece in answer.aiter_bytes():
                body += piece
                if len(body) > ANSWER_BYTES_MAX:
                    raise ValueError("the key set is too large")
        keys = {}
        for given in msgspec.json.decode(body, type=_KeySet).keys[:KEYS_MAX]:
            key = self._usable(given)
            if key is not None:
                keys[given["kid"]] = key
        if not keys:
            raise ValueError("the key set has no key for our algorithm")
        return keys

    def _usable(self, given: Any) -> Key | None:
        """The key if it is one for signatures by our algorithm; an issuer may have others."""
        algorithm = self._settings.oidc_algorithm
        if (
            not isinstance(given, dict)
            or not isinstance(given.get("kid"), str)
            or given.get("use", "sig") != "sig"
            or given.get("alg", algorithm) != algorithm
        ):
            return None
        try:
            key = import_key(given)
        except (JoseError, ValueError, TypeError, KeyError):
            return None
        return key if isinstance(key, _KEY_TYPES[algorithm[:2]]) else None
