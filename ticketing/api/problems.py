"""Every refusal as a problem detail (RFC 9457): the one table from refusal to HTTP status.

What the framework refuses by itself (method, size, media type) takes the same shape with the type
`about:blank`; a path that leads nowhere is `not-found`, like a thing that is not there. A fault of
ours becomes a bare 500; its cause goes to the log alone.
"""

import logging
from http import HTTPStatus
from typing import Any, ClassVar
from urllib.parse import quote

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException
from litestar.openapi.datastructures import ResponseSpec
from litestar.types import ExceptionHandlersMap
from pymongo.errors import PyMongoError

from ticketing import (
    api_keys,
    challenges,
    credentials,
    errors,
    events,
    gateway,
    holds,
    mongo,
    passwords,
    printing,
    privacy,
    rate_limits,
    sessions,
    signed_links,
    states,
    teams,
    webhooks,
)
from ticketing.api import limits, middleware
from ticketing.api.replies import Reply
from ticketing.group_commit import Overloaded
from ticketing.telemetry.logs import named

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:ticketing:problem:"
# How soon a client should come back while the replica set elects a primary: an election takes
# about two seconds, and all clients coming back at once would be the next flood.
RETRY_AFTER_SECONDS = 2

# What RFC 3986 lets stand in a path as it is.
_PATH_CHARACTERS = "/:@!$&'()*+,;="

logger = logging.getLogger(__name__)


class Unauthenticated(errors.Refusal):
    """The token is missing or bad."""

    slug = "unauthenticated"
    title = "Unauthenticated"


class Forbidden(errors.Refusal):
    """The token is good, but its role may not do this."""

    slug = "forbidden"
    title = "Forbidden"


class Unavailable(errors.Refusal):
    """The database can't answer within the time limit; the same request may be sent again."""

    slug = "unavailable"
    title = "Service unavailable"

    def __init__(self, detail: str, reasons: list[str] | None = None) -> None:
        super().__init__(detail)
        self.reasons = reasons

    def members(self) -> dict[str, Any]:
        return {} if self.reasons is None else {"reasons": self.reasons}


STATUSES: dict[type[errors.Refusal], int] = {
    errors.Invalid: 422,
    errors.NotFound: 404,
    Unauthenticated: 401,
    Forbidden: 403,
    holds.SeatsUnavailable: 409,
    holds.NotEnoughSeats: 409,
    events.SaleNotOpen: 403,
    events.EventState: 409,
    holds.LimitExceeded: 409,
    holds.HoldExpired: 410,
    states.OrderState: 409,
    webhooks.WebhookLimit: 409,
    teams.MemberLimit: 409,
    teams.RoleTooLow: 403,
    api_keys.KeyLimit: 409,
    rate_limits.RateLimited: 429,
    credentials.WrongCredentials: 401,
    credentials.SecondFactorNeeded: 401,
    credentials.SecondFactorState: 409,
    sessions.SessionOver: 401,
    signed_links.LinkInvalid: 410,
    privacy.ErasureBlocked: 409,
    challenges.ChallengeRequired: 403,
    credentials.AccountInUse: 409,
    passwords.TooManySignIns: 503,
    errors.IdempotencyKeyReused: 422,
    errors.IdempotencyInProgress: 409,
    gateway.BadSignature: 400,
    printing.NotPrinted: 503,
    gateway.ProviderUnavailable: 503,
    gateway.PaymentRefused: 409,
    Unavailable: 503,
}


class Problem(msgspec.Struct):
    """The members every problem has; the extra members of each type are in its description."""

    content_type: ClassVar[str] = MEDIA_TYPE
    type: str
    title: str
    status: int
    detail: str
    instance: str


def documented(*refusals: type[errors.Refusal]) -> dict[int, ResponseSpec]:
    """What a route's description says about the refusals it can give."""
    slugs: dict[int, list[str]] = {}
    for refusal in refusals:
        slugs.setdefault(STATUSES[refusal], []).append(f"`{refusal.slug}`")
    return {
        status: ResponseSpec(
            data_container=Problem,
            generate_examples=False,
            media_type=MEDIA_TYPE,
            description=" or ".join(dict.fromkeys(names)),
        )
        for status, names in slugs.items()
    }


def _refused(request: Request[Any, Any, Any], refusal: errors.Refusal) -> Response[Any]:
    headers = {}
    if STATUSES[type(refusal)] == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    elif STATUSES[type(refusal)] == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    elif isinstance(refusal, rate_limits.RateLimited):
        limits.tell(request, refusal.left)
        headers["Retry-After"] = str(refusal.left.reset_seconds)
    elif isinstance(refusal, errors.IdempotencyInProgress):
        headers["Retry-After"] = str(refusal.retry_after_seconds)
    return _answer(
        request,
        TYPE_PREFIX + refusal.slug,
        refusal.title,
        STATUSES[type(refusal)],
        refusal.detail,
        headers,
        refusal.members(),
    )


def _database_failed(request: Request[Any, Any, Any], error: PyMongoError) -> Response[Any]:
    # What the driver says names hosts and commands, so it goes to the log and not to the caller.
    identifier = middleware.request_id(request.scope)
    if mongo.is_outage(error):
        # One line each: during an outage every request comes here. Any other is answered the same
        # way, since the caller can do nothing but try again, but somebody should look at it.
        logger.warning("request %s: %s", identifier, named(error))
    else:
        logger.error("request %s: %s", identifier, named(error), exc_info=error)
    return _refused(
        request, Unavailable("The database can't answer just now. Send the same request again.")
    )


def _overloaded(request: Request[Any, Any, Any], _: Overloaded) -> Response[Any]:
    return _refused(request, Unavailable("Too many requests are waiting. Try again shortly."))


def _framework_refused(request: Request[Any, Any, Any], error: HTTPException) -> Response[Any]:
    if isinstance(error, ValidationException):
        return _refused(request, errors.Invalid(_parameter_faults(request, error)))
    if error.status_code >= 500 and not middleware.has_left(request.scope):
        return _failed(request, error)
    if error.status_code == HTTPStatus.NOT_FOUND:
        return _refused(request, errors.NotFound("There is nothing at this address."))
    phrase = HTTPStatus(error.status_code).phrase
    return _answer(
        request, "about:blank", phrase, error.status_code, f"{phrase}.", error.headers or {}, {}
    )


def _parameter_faults(
    request: Request[Any, Any, Any], error: ValidationException
) -> list[tuple[str, str]]:
    """Pairs of parameter and message, with the parameter named as it is on the wire."""
    fields = request.route_handler.parsed_fn_signature.parameters
    faults = []
    for extra in error.extra if isinstance(error.extra, list) else []:
        key = str(extra.get("key", ""))
        definition = fields[key].kwarg_definition if key in fields else None
        name = getattr(definition, "name", None) or key
        faults.append((name, str(extra.get("message", "is malformed"))))
    return faults or [("query", "is malformed")]


def _failed(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    logger.error(
        "request %s: %s %s failed",
        middleware.request_id(request.scope),
        request.scope["method"],
        request.scope["path"],
        exc_info=error,
    )
    return _answer(
        request,
        "about:blank",
        HTTPStatus.INTERNAL_SERVER_ERROR.phrase,
        500,
        "Something went wrong on our side. The request id helps us to find out what.",
        {},
        {},
    )


def _answer(
    request: Request[Any, Any, Any],
    type_: str,
    title: str,
    status: int,
    detail: str,
    headers: dict[str, str],
    members: dict[str, Any],
) -> Response[Any]:
    problem = {
        "type": type_,
        "title": title,
        "status": status,
        "detail": detail,
        "instance": quote(request.scope["path"], _PATH_CHARACTERS, errors="replace"),
        **members,
    }
    return Reply(problem, status_code=status, headers=headers, media_type=MEDIA_TYPE)


HANDLERS: ExceptionHandlersMap = {
    errors.Refusal: _refused,
    PyMongoError: _database_failed,
    Overloaded: _overloaded,
    HTTPException: _framework_refused,
    Exception: _failed,
}
