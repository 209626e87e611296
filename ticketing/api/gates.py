"""What a gate needs before the doors open. A gate's key may do this and nothing else."""

from typing import Any

from litestar import Request, get

from ticketing import events, tickets
from ticketing.api import answers, auth, problems
from ticketing.api.parameters import PAGE_SIZE, Cursor, EventId, Limit
from ticketing.api.routing import Router
from ticketing.api.services import services_of
from ticketing.errors import NotFound


@get(
    "/events/{eventId:str}/void-tickets",
    summary="The tickets that a gate must refuse",
    responses=problems.documented(NotFound),
)
async def list_void_tickets(
    request: Request[Any, Any, Any],
    event_id: EventId,
    limit: Limit = PAGE_SIZE,
    cursor: Cursor = None,
) -> answers.VoidTicketPage:
    """For the event's team and its gates. Their codes are signed: only this list tells them void.

    Read all its pages anew each time: it is in the order of the purchases.
    """
    database = services_of(request).database
    await events.owned(database, event_id, request.user, "gate")
    page = await tickets.voided(database, event_id, limit=limit, cursor=cursor)
    return answers.void_ticket_page(page)


router = Router(
    path="/v1",
    before_request=auth.required("gate", "organiser", "admin"),
    route_handlers=[list_void_tickets],
    security=[{"token": []}],
    tags=["gate"],
)
