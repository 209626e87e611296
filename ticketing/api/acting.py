"""For which organiser a caller acts, and how what they change is recorded."""

from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any, TypeAlias

from litestar import Request
from litestar.params import QueryParameter

from ticketing import audit_log, clock, teams
from ticketing.api import client_address, middleware
from ticketing.api.services import services_of
from ticketing.audit_log import Change
from ticketing.errors import NotFound
from ticketing.mongo import Document

# Ids come out of the address, where anybody may write what they like.
ABOUT_LENGTH_MAX = 200

Organiser: TypeAlias = Annotated[
    str | None,
    QueryParameter(
        name="organiserId",
        min_length=1,
        max_length=128,
        description="For whom the caller acts: an organiser whose team they are in; by default"
        " themself.",
    ),
]


async def acting_for(
    request: Request[Any, Any, Any], organiser_id: str | None, needs: teams.Role
) -> str:
    """The organiser for whom the caller acts. Raises NotFound or RoleTooLow."""
    chosen: str = request.user.subject if organiser_id is None else organiser_id
    if not chosen.isprintable():  # No token has such a subject.
        raise NotFound("There is no such organiser.")
    await teams.allow(services_of(request).database, request.user, chosen, needs)
    return chosen


def recorded(
    request: Request[Any, Any, Any],
    organiser_id: str,
    action: str,
    about: str,
    before: Document | None = None,
) -> AbstractAsyncContextManager[Change]:
    """Record in the audit log what is changed inside."""
    change = Change(
        request.user,
        organiser_id,
        action,
        about[:ABOUT_LENGTH_MAX],
        client_address.of(request),
        middleware.request_id(request.scope),
        before or {},
    )
    return audit_log.recorded(services_of(request).database, change, clock.now())
