"""What every answer carries whoever made it: request id, trace context, security headers, count."""

import asyncio
import logging
import random
import re
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from time import monotonic
from typing import Any

from litestar.types import ASGIApp, Message, Receive, Scope, Send

from ticketing.api import limits
from ticketing.api.metrics import Metrics
from ticketing.telemetry import logs, traces

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_REQUEST_ID_KEY = "ticketing.request_id"
_LEFT_KEY = "ticketing.client_left"
DRAINED_BYTES_MAX = 32 * 1024 * 1024
DRAINED_SECONDS_MAX = 5.0
SLOW_SECONDS = 1.0

log = logging.getLogger("ticketing.api")

# Added where the answer has not set them itself, as pages do.
_DEFAULT_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    # Payment and order pages carry unguessable ids in their address: other sites must not see it.
    (b"referrer-policy", b"no-referrer"),
    # An answer about one fan must not stay in a shared cache. What may be kept says so.
    (b"cache-control", b"no-store"),
]
# Two years. Only where our public address is https: a browser would never again come by plain HTTP.
_STRICT_TRANSPORT = (b"strict-transport-security", b"max-age=63072000; includeSubDomains")


def request_id(scope: Any) -> str:
    """The id of the request being answered, for the log."""
    return str(scope.get(_REQUEST_ID_KEY, "-"))


def has_left(scope: Any) -> bool:
    """Whether the client went away before its request was whole: then nobody is at fault here."""
    return bool(scope.get(_LEFT_KEY))


async def carry(
    application: ASGIApp,
    metrics: Metrics,
    scope: Scope,
    receive: Receive,
    send: Send,
    *,
    is_behind_tls: bool,
) -> None:
    """Run the application for one HTTP request and complete its answer."""
    began = monotonic()
    identifier = _request_id(scope["headers"])
    parent = _parent(scope["headers"])
    scope[_REQUEST_ID_KEY] = identifier.decode()  # type: ignore[literal-required]
    status = 500
    unread = _has_body(scope["headers"])
    method = scope["method"]  # type: ignore[typeddict-item]
    if method == "HEAD":
        # HEAD is GET without its body (RFC 9110); the framework leaves that to each route. The
        # server goes by its own scope and must go on to see a HEAD.
        scope = {**scope, "method": "GET"}  # type: ignore[assignment]

    async def tracked() -> Any:
        nonlocal unread
        received: Any = await receive()
        if received["type"] == "http.disconnect":
            scope[_LEFT_KEY] = True  # type: ignore[literal-required]
        unread = received["type"] == "http.request" and received.get("more_body", False)
        return received

    async def complete(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            if unread:
                await _drain(tracked)
            status = message["status"]
            message["headers"] = [
                *_with_defaults(message["headers"], is_behind_tls=is_behind_tls),
                (b"x-request-id", identifier),
                (b"traceparent", trace),
                *limits.raw_headers(scope),
            ]
        elif method == "HEAD" and message["type"] == "http.response.body":
            message["body"] = b""
        await send(message)

    span = traces.begin_request(method, parent) if traces.is_on() else None
    trace = _traceparent(parent) if span is None else traces.traceparent_of(span)
    logs.belongs_to.set((identifier, trace))
    try:
        await application(scope, tracked, complete)
    finally:
        route, seconds = str(scope.get("path_template", "unmatched")), monotonic() - began
        metrics.count(method, route, status, seconds)
        if span is not None:
            traces.end_request(span, method, route, status)
        if seconds > SLOW_SECONDS:
            log.warning("Slow: %s %s took %.1f s", method, route, seconds)


def _with_defaults(
    given: Iterable[tuple[bytes, bytes]], *, is_behind_tls: bool
) -> list[tuple[bytes, bytes]]:
    headers = list(given)
    present = {name.lower() for name, _ in headers}
    headers += [header for header in _DEFAULT_HEADERS if header[0] not in present]
    if is_behind_tls:
        headers.append(_STRICT_TRANSPORT)
    return headers


def _has_body(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
        for name, value in headers
    )


async def _drain(receive: Callable[[], Awaitable[Any]]) -> None:
    """Read what is left of a refused body, within limits.

    To answer and close while the client still sends would reset its connection, and the answer
    that says why would be lost with it.
    """
    left = DRAINED_BYTES_MAX
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAINED_SECONDS_MAX):
            while left > 0:
                received = await receive()
                left -= len(received.get("body", b""))
                if not received.get("more_body", False):
                    return


def _request_id(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    for name, value in headers:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return value
    return _random_hex(16)


def _parent(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """The caller's place in its trace, in our version of the format; None if not well formed."""
    given = [value for name, value in headers if name == b"traceparent"]
    return _parsed(given[0]) if len(given) == 1 else None


def _traceparent(parent: bytes | None) -> bytes:
    """The caller's trace, or a new one, with a span of our own that nobody records."""
    if parent is None:
        return b"00-%b-%b-00" % (_random_hex(16), _random_hex(8))
    return parent[:36] + _random_hex(8) + parent[52:]


def _random_hex(octets: int) -> bytes:
    """A name for a request or a trace. It opens nothing, so it costs no call to the system."""
    return b"%0*x" % (2 * octets, random.getrandbits(8 * octets))


def _parsed(value: bytes) -> bytes | None:
    match = _TRACEPARENT.fullmatch(value)
    if match is None:
        return None
    version, trace, parent, flags, rest = match.groups()
    # A later version may add fields after the flags; version 00 may not, and ff is never one.
    if version == b"ff" or (version == b"00" and rest) or trace == b"0" * 32 or parent == b"0" * 16:
        return None
    # Only the sampled and random bits mean something to us; the others must be sent as zero.
    return b"00-%b-%b-%02x" % (trace, parent, int(flags, 16) & 0b11)
