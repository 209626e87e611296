"""What everybody may see: events, their seats, and what is still available."""

from typing import Annotated, Any, Literal

from litestar import Request, Response, get
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromQuery, HeaderParameter, QueryParameter

from ticketing import dashboards, events
from ticketing.api import answers, auth, problems
from ticketing.api.parameters import PAGE_SIZE, Cursor, EventId, Limit, instant
from ticketing.api.routing import Router
from ticketing.api.seat_maps import Ready, accepted_encoding
from ticketing.api.services import services_of
from ticketing.errors import NotFound

Status = Literal["draft", "published", "cancelled", "ended"]
SectionName = Annotated[str | None, QueryParameter(description="Only this section.")]
IfNoneMatch = Annotated[str | None, HeaderParameter(name="If-None-Match")]
AcceptEncoding = Annotated[str, HeaderParameter(name="Accept-Encoding")]
SEARCH_LENGTH_MAX = 200

_CONDITIONAL_RESPONSES = problems.documented(NotFound) | {
    304: ResponseSpec(data_container=None, description="The client has the present state")
}


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
        if request.user.role not in ("organiser", "admin"):
            raise problems.Forbidden(f"A {request.user.role} has no events of their own.")
        organiser_id = request.user.subject
    page = await events.listing(
        services_of(request).database,
        limit=limit,
        cursor=cursor,
        status=status if status or mine else "published",
        category=category,
        # A search field left empty is no search, where an empty list would look like no events.
        q=q if q and q.strip() else None,
        starts_from=instant(starts_from, "from"),
        starts_to=instant(starts_to, "to"),
        organiser_id=organiser_id,
    )
    return answers.event_page(page)


@get("/events/{eventId:str}", summary="One event", responses=problems.documented(NotFound))
async def get_event(request: Request[Any, Any, Any], event_id: EventId) -> answers.Event:
    """The event with its seats counted. A draft is seen by its organiser alone."""
    services = services_of(request)
    if (shown := await services.shown_events.get(event_id)) is not None:
        return shown
    database = services.database
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
    accept_encoding: AcceptEncoding = "",
) -> Response[answers.SeatMap]:
    """Every seat in plan order. Answers 304 to an `If-None-Match` of the present state."""
    await _see(request, event_id)
    maps = services_of(request).seat_maps
    return _conditional(
        await maps.seats(event_id, section, accepted_encoding(accept_encoding)), if_none_match
    )


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
    accept_encoding: AcceptEncoding = "",
) -> Response[answers.Availability]:
    """The compact form of the seats, in the same order. Answers 304 likewise."""
    await _see(request, event_id)
    maps = services_of(request).seat_maps
    return _conditional(
        await maps.availability(event_id, section, accepted_encoding(accept_encoding)),
        if_none_match,
    )


async def _see(request: Request[Any, Any, Any], event_id: str) -> None:
    """Raise NotFound where the caller may not see the event.

    An event that was published stays visible for good, so its board is enough to know; only for a
    draft the database is asked each time.
    """
    services = services_of(request)
    board = services.boards.known(event_id)
    if board is None or not events.is_public(board.event):
        event = await events.visible(services.database, event_id, request.user)
        if board is not None:
            board.event = event


def _conditional(ready: Ready, if_none_match: str | None) -> Response[Any]:
    """The answer with its strong ETag, or 304 without a body where the client has it already.

    The tag is made of the content and not of the version: the counters follow the seats by a
    moment, and an answer that changed must never be taken for the one before.
    """
    headers = {
        "ETag": ready.tag,
        "Cache-Control": "no-cache",
        "Vary": "Authorization, Accept-Encoding",
    }
    if if_none_match is not None and _matches(if_none_match, ready.tag):
        return Response(b"", status_code=304, headers=headers)
    if ready.encoding != "identity":
        headers["Content-Encoding"] = ready.encoding
    return Response(ready.body, headers=headers, media_type="application/json")


def _matches(if_none_match: str, tag: str) -> bool:
    # RFC 9110: a list of tags or `*`, compared weakly, so a `W/` before a tag means nothing here.
    candidates = (candidate.strip() for candidate in if_none_match.split(","))
    return any(candidate == "*" or candidate.removeprefix("W/") == tag for candidate in candidates)


@get("/ticket-keys", summary="The keys that codes of tickets are verified with")
async def get_ticket_keys(request: Request[Any, Any, Any]) -> answers.TicketKeys:
    """A JSON Web Key Set. With it a gate needs no network to tell a genuine code.

    The QR code of a ticket is `T1` and the base32, without padding, of: key id (4 octets: the start
    of the SHA-256 of the public key), ticket (16), event (16), ordinal of the seat (4, big-endian),
    and an Ed25519 signature (64) over `T1` and the octets before it. In hexadecimal, ticket and
    event are what follows `tkt_` and `evt_`.
    """
    return answers.ticket_keys(services_of(request).signer)


router = Router(
    path="/v1",
    before_request=auth.optional,
    route_handlers=[list_events, get_event, get_seats, get_availability, get_ticket_keys],
    tags=["public"],
)
