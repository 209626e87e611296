"""Who is calling: tokens are verified here, and routers are guarded by role."""

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from time import time
from typing import Annotated, Any, Literal

import msgspec
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import OctKey
from litestar import Request

from ticketing import api_keys
from ticketing.accounts import Caller
from ticketing.api import client_address
from ticketing.api.issuer import BadToken
from ticketing.api.problems import Forbidden, Unauthenticated
from ticketing.api.services import Services, services_of
from ticketing.settings import Settings

# One algorithm, ours. Were the token's own header to choose, a caller could choose "none".
ALGORITHM = "HS256"
# Verifying costs more than all else the edge does for a request, and a fan sends the same token
# again and again. Only good tokens are remembered, so nobody can push them out with bad ones.
TOKENS_REMEMBERED_MAX = 10_000

# What a router runs before each request (`before_request`). The framework's guards do the same but
# copy the route's handler for each request. A coroutine though it waits for nothing: a plain
# function would run in a thread.
Check = Callable[[Request[Any, Any, Any]], Awaitable[None]]


class _Claims(msgspec.Struct):
    """The claims a token must have (RFC 7519), and those that are minded where it has them."""

    sub: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    role: Literal["fan", "organiser", "admin"]
    exp: float
    iss: str
    aud: str | list[str]
    nbf: float = 0
    iat: float = 0


_CLAIMS = msgspec.json.Decoder(_Claims)


@dataclass(frozen=True)
class Token:
    """A verified token: whose it is, and until when (Unix time)."""

    caller: Caller
    expires_at: float


def verify(token: str, settings: Settings) -> Token:
    """The token's content; raises Unauthenticated, with one answer for every kind of fault."""
    verified = _verified(token, settings.jwt_secret, settings.jwt_issuer, settings.jwt_audience)
    if verified.expires_at <= time():
        raise Unauthenticated("The token is not valid.")
    return verified


@lru_cache(maxsize=TOKENS_REMEMBERED_MAX)
def _verified(token: str, secret: str, issuer: str, audience: str) -> Token:
    """What does not change about a token: its signature and its claims but for its end."""
    try:
        signed = jws.deserialize_compact(token, _key(secret), algorithms=[ALGORITHM])
        claims = _CLAIMS.decode(signed.payload)
    # Beside its own errors the library lets pass what odd JSON in a token's header provokes.
    except (JoseError, msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        raise Unauthenticated("The token is not valid.") from None
    audiences = claims.aud if isinstance(claims.aud, list) else [claims.aud]
    if (
        claims.iss != issuer
        or audience not in audiences
        or max(claims.nbf, claims.iat) > time()
        or not claims.sub.isprintable()
    ):
        raise Unauthenticated("The token is not valid.")
    return Token(Caller(claims.sub, claims.role), claims.exp)


@cache
def _key(secret: str) -> OctKey:
    return OctKey.import_key(secret)


def required(*roles: str, by_key: bool = True) -> Check:
    """A check that lets only these roles in; the caller is `request.user` from then on.

    Without `by_key` it lets in people alone, and no API keys.
    """

    async def check(request: Request[Any, Any, Any]) -> None:
        if request.scope["method"] == "OPTIONS":
            return  # It tells the methods of a route, which are no secret.
        caller = await _counted_caller(request)
        if caller is None:
            raise Unauthenticated("A token is needed: send it as a bearer token.")
        if caller.role not in roles:
            raise Forbidden(f"The role {caller.role} may not do this.")
        if caller.key_id is not None and not by_key:
            raise Forbidden("An API key may not do this.")
        request.scope["user"] = caller

    return check


async def optional(request: Request[Any, Any, Any]) -> None:
    """A check for what everybody may see: `request.user` is a caller or None.

    A bad token is refused even here: whoever sends one believes to be somebody.
    """
    request.scope["user"] = await _counted_caller(request)


async def nobody(request: Request[Any, Any, Any]) -> None:
    """A check for what is opened by something in the body: a token beside it is not looked at.

    Programs send the token they have with every request, one that is over as well.
    """
    limits = services_of(request).limits
    if limits.is_on:
        limits.asked_from(request, client_address.limited_by(client_address.of(request)))


async def _counted_caller(request: Request[Any, Any, Any]) -> Caller | None:
    """Who asks, once their address and then they themselves are within their limits."""
    limits = services_of(request).limits
    if limits.is_on:
        limits.asked_from(request, client_address.limited_by(client_address.of(request)))
    header = request.headers.get("authorization")
    if header is None:
        return None
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthenticated("The token must be sent as a bearer token.")
    caller = (await identify(token.strip(), services_of(request))).caller
    if limits.is_on:
        limits.asked_by(request, caller)
    return caller


async def identify(token: str, services: Services) -> Token:
    """Whose a token or an API key is. Raises Unauthenticated, also for one who has left."""
    known = await _known(token, services)
    if await services.gone.has(known.caller.subject):
        raise Unauthenticated("The token is not valid any more.")
    return known


async def _known(token: str, services: Services) -> Token:
    key = api_keys.parts(token)
    if key is None and services.issuer is not None:
        try:
            return Token(*await services.issuer.verify(token))
        except BadToken:
            raise Unauthenticated("The token is not valid.") from None
    if key is None:
        return verify(token, services.settings)
    caller = await services.callers_by_key.get(key)
    if caller is None:
        # Made-up keys must not push good ones out.
        services.callers_by_key.forget(key)
        raise Unauthenticated("The token is not valid.")
    return Token(caller, math.inf)
