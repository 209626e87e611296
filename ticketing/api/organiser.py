"""What an organiser does: make events, put them on sale, watch the sale."""

from typing import Any

from litestar import Request, Response, get, post

from ticketing import clock, dashboards, event_setup, events, tickets
from ticketing.api import answers, auth, bodies, problems
from ticketing.api.parameters import PAGE_SIZE, Cursor, EventId, Limit
from ticketing.api.replies import Reply
from ticketing.api.routing import Router
from ticketing.api.services import services_of
from ticketing.errors import IdempotencyInProgress, IdempotencyKeyReused, NotFound


@post(
    "/events",
    summary="Make an event",
    operation_class=bodies.described_by(events.NewEvent, keyed=True),
    request_max_body_size=bodies.EVENT_BYTES_MAX,
    responses=problems.documented(IdempotencyKeyReused, IdempotencyInProgress),
)
async def create_event(request: Request[Any, Any, Any]) -> Response[answers.Event]:
    """A draft with all its seats. Nobody else sees it before it is published."""
    new = await bodies.read(request, events.NewEvent)
    created = await event_setup.create(
        services_of(request).database,
        new,
        organiser_id=request.user.subject,
        key=bodies.idempotency_key(request),
        body=await request.body(),
        now=clock.now(),
    )
    return Reply(answers.event(created), headers={"Location": f"/v1/events/{created['_id']}"})


@post(
    "/events/{eventId:str}/publish",
    summary="Put an event on sale",
    status_code=200,
    responses=problems.documented(NotFound, events.EventState),
)
async def publish_event(request: Request[Any, Any, Any], event_id: EventId) -> answers.Event:
    """Publishing it again changes nothing."""
    published = await events.publish(
        services_of(request).database, event_id, request.user, clock.now()
    )
    return answers.event(published)


@get(
    "/events/{eventId:str}/dashboard",
    summary="The sale in figures",
    responses=problems.documented(NotFound),
)
async def get_dashboard(request: Request[Any, Any, Any], event_id: EventId) -> answers.Dashboard:
    """The counters of the caller's own event."""
    database = services_of(request).database
    await events.owned(database, event_id, request.user)
    return answers.dashboard(await dashboards.find(database, event_id))


@get(
    "/events/{eventId:str}/dashboard/sales",
    summary="The last sales and the sales over time",
    responses=problems.documented(NotFound),
)
async def get_sales(request: Request[Any, Any, Any], event_id: EventId) -> answers.Sales:
    """Of the caller's own event; `version` is the dashboard's."""
    database = services_of(request).database
    await events.owned(database, event_id, request.user)
    return answers.sales(await dashboards.find(database, event_id))


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
    """Of the caller's own event. Their codes are still signed: only this list tells they are void.

    Read all its pages anew each time: it is in the order of the purchases.
    """
    database = services_of(request).database
    await events.owned(database, event_id, request.user)
    page = await tickets.voided(database, event_id, limit=limit, cursor=cursor)
    return answers.void_ticket_page(page)


router = Router(
    path="/v1",
    before_request=auth.required("organiser", "admin"),
    route_handlers=[create_event, publish_event, get_dashboard, get_sales, list_void_tickets],
    security=[{"token": []}],
    tags=["organiser"],
)
