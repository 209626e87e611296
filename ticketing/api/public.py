"""What everybody may see: events, their seats, and what is still available."""

import hashlib
from typing import Annotated, Any, Literal

import msgspec
from litestar import Request, Response, get
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromQuery, HeaderParameter, QueryParameter

from ticketing import dashboards, events, seats
from ticketing.api import answers, auth, problems
from ticketing.api.parameters import PAGE_SIZE, Cursor, EventId, Limit, instant
from ticketing.api.routing import Router
from ticketing.api.services import services_of
from ticketing.errors import Invalid, NotFound
from ticketing.mongo import Document

Status = Literal["draft", "published", "cancelled", "ended"]
SectionName = Annotated[str | None, QueryParameter(description="Only this section.")]
IfNoneMatch = Annotated[str | None, HeaderParameter(name="If-None-Match")]
SEARCH_LENGTH_MAX = 200

_CONDITIONAL_RESPONSES = problems.documented(NotFound) | {
    304: ResponseSpec(data_container=None, description="The client has the present state")
}

_encoder = msgspec.json.Encoder()


@get(
    "/events",
    summary="Events, soonest first",
    responses=problems.documented(problems.Unauthenticated, problems.Forbidden),
)
async def list_events(
    request: Request[Any, Any, Any],
    status: FromQuery[Status | None] = None,
    category: FromQuery[str | None] = None,
    q: Annotated[
        str | None,
        QueryParameter(description="Words to be found.", max_length=SEARCH_LENGTH_MAX),
    ] = None,
    starts_from: Annotated[
        str | None, QueryParameter(name="from", description="Starts then or later.")
    ] = None,
    starts_to: Annotated[
        str | None, QueryParameter(name="to", description="Starts before then.")
    ] = None,
    mine: Annotated[
        bool, QueryParameter(description="The calling organiser's own events, drafts too.")
    ] = False,
    limit: Limit = PAGE_SIZE,
    cursor: Cursor = None,
) -> answers.EventPage:
    """Published events unless `status` says otherwise; with `mine` the caller's own."""
    organiser_id = None
    if mine:
        if request.user is None:
            raise problems.Unauthenticated("A token is needed to list your own events.")
        if request.user.role == "fan":
            raise problems.Forbidden("A fan has no events of their own.")
        organiser_id = request.user.subject
    page = await events.listing(
        services_of(request).database,
        limit=limit,
        cursor=cursor,
        status=status if status or mine else "published",
        category=category,
        q=q,
        starts_from=instant(starts_from, "from"),
        starts_to=instant(starts_to, "to"),
        organiser_id=organiser_id,
    )
    return answers.event_page(page)


@get("/events/{eventId:str}", summary="One event", responses=problems.documented(NotFound))
async def get_event(request: Request[Any, Any, Any], event_id: EventId) -> answers.Event:
    """The event with its seats counted. A draft is seen by its organiser alone."""
    database = services_of(request).database
    event = await events.visible(database, event_id, request.user)
    counters = await dashboards.find(database, event_id)
    return answers.event(event, counters["seats"])


@get(
    "/events/{eventId:str}/seats",
    summary="Layout and state of the seats",
    responses=_CONDITIONAL_RESPONSES,
)
async def get_seats(
    request: Request[Any, Any, Any],
    event_id: EventId,
    section: SectionName = None,
    if_none_match: IfNoneMatch = None,
) -> Response[answers.SeatMap]:
    """Every seat in plan order. Answers 304 to an `If-None-Match` of the present state."""
    event, sections, found, version = await _read(request, event_id, section)
    return _conditional(answers.seat_map(event, sections, found, version), if_none_match)


@get(
    "/events/{eventId:str}/availability",
    summary="State of the seats, one character a seat",
    responses=_CONDITIONAL_RESPONSES,
)
async def get_availability(
    request: Request[Any, Any, Any],
    event_id: EventId,
    section: SectionName = None,
    if_none_match: IfNoneMatch = None,
) -> Response[answers.Availability]:
    """The compact form of the seats, in the same order. Answers 304 likewise."""
    event, sections, found, version = await _read(request, event_id, section)
    return _conditional(answers.availability(event, sections, found, version), if_none_match)


async def _read(
    request: Request[Any, Any, Any], event_id: str, section_name: str | None
) -> tuple[Document, list[Document], list[Document], int]:
    database = services_of(request).database
    event = await events.visible(database, event_id, request.user)
    sections = [section for section in event["sections"] if section_name in (None, section["name"])]
    if not sections:
        raise Invalid([("section", "is not a section of this event")])
    # The version is read before the seats: the seats may be newer than it says, never older.
    version = (await dashboards.find(database, event_id))["version"]
    found = await seats.read(database, event, None if section_name is None else sections[0])
    return event, sections, found, version


def _conditional(answer: msgspec.Struct, if_none_match: str | None) -> Response[Any]:
    """The answer with its strong ETag, or 304 without a body where the client has it already.

    The tag is made of the content and not of the version: the counters follow the seats by a
    moment, and an answer that changed must never be taken for the one before.
    """
    body = _encoder.encode(answer)
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache", "Vary": "Authorization"}
    if if_none_match is not None and _matches(if_none_match, tag):
        return Response(b"", status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


def _matches(if_none_match: str, tag: str) -> bool:
    # RFC 9110: a list of tags or `*`, compared weakly, so a `W/` before a tag means nothing here.
    candidates = (candidate.strip() for candidate in if_none_match.split(","))
    return any(candidate == "*" or candidate.removeprefix("W/") == tag for candidate in candidates)


router = Router(
    path="/v1",
    guards=[auth.optional],
    route_handlers=[list_events, get_event, get_seats, get_availability],
    tags=["public"],
)
