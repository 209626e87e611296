"""What a fan does: hold seats, order them, look at orders and tickets."""

from typing import Annotated, Any, Literal

import msgspec
from litestar import Request, Response, delete, get, post, put
from litestar.params import FromQuery, QueryParameter

from ticketing import (
    accounts,
    challenges,
    checkout,
    clock,
    credentials,
    events,
    gateway,
    handouts,
    holds,
    orders,
    privacy,
    states,
    tickets,
)
from ticketing.api import answers, auth, bodies, client_address, downloads, problems, starting
from ticketing.api.parameters import PAGE_SIZE, Cursor, EventId, HoldId, Limit, OrderId
from ticketing.api.replies import Reply
from ticketing.api.routing import Router
from ticketing.api.services import services_of
from ticketing.errors import IdempotencyKeyReused, NotFound, Refusal
from ticketing.passwords import TooManySignIns

OrderStatus = Literal["pendingPayment", "confirmed", "expired", "cancelled"]


@post(
    "/events/{eventId:str}/holds",
    summary="Hold seats",
    operation_class=bodies.described_by(bodies.HoldForm, keyed=True),
    responses=problems.documented(
        NotFound,
        events.SaleNotOpen,
        holds.SeatsUnavailable,
        holds.NotEnoughSeats,
        holds.LimitExceeded,
        challenges.ChallengeRequired,
        IdempotencyKeyReused,
    ),
)
async def place_hold(request: Request[Any, Any, Any], event_id: EventId) -> Response[answers.Hold]:
    """All the seats asked for, or none of them."""
    wanted = bodies.hold_request(
        await bodies.read(request, bodies.HoldForm),
        event_id=event_id,
        fan_id=request.user.subject,
        key=bodies.idempotency_key(request),
        body=await request.body(),
    )
    services = services_of(request)
    address = client_address.limited_by(client_address.of(request))
    placed = await services.place_hold(wanted, address, request.headers.get("altcha-payload"))
    return Reply(answers.hold(placed), headers={"Location": f"/v1/holds/{placed.hold_id}"})


@get(
    "/holds/{holdId:str}",
    summary="One hold",
    responses=problems.documented(NotFound, holds.HoldExpired),
)
async def get_hold(request: Request[Any, Any, Any], hold_id: HoldId) -> answers.Hold:
    """The caller's own hold while it lasts."""
    found = await holds.find(
        services_of(request).database, hold_id, request.user.subject, clock.now()
    )
    return answers.hold(found)


@delete(
    "/holds/{holdId:str}",
    summary="Release a hold",
    status_code=204,
    responses=problems.documented(NotFound),
)
async def release_hold(request: Request[Any, Any, Any], hold_id: HoldId) -> None:
    """Its seats are available at once. Releasing it again changes nothing."""
    services = services_of(request)
    services.remembered_holds.take(hold_id)
    released = await checkout.release_hold(
        services.database, hold_id, request.user.subject, now=clock.now()
    )
    if released:
        services.metrics.holds_released.inc()
        services.boards.mark(holds.event_of(hold_id, request.user.subject), released, "available")


@post(
    "/orders",
    summary="Order what is held",
    operation_class=bodies.described_by(bodies.OrderForm, keyed=True),
    responses=problems.documented(
        NotFound,
        events.SaleNotOpen,
        holds.HoldExpired,
        IdempotencyKeyReused,
        gateway.PaymentRefused,
        gateway.ProviderUnavailable,
    ),
)
async def place_order(request: Request[Any, Any, Any]) -> Response[answers.Order]:
    """The order waits for its payment until the hold lapses; a free order is confirmed at once.

    While the payment provider is away the answer is 503, and the hold stays: the same request may
    be sent again.
    """
    services = services_of(request)
    form = await bodies.read(request, bodies.OrderForm)
    outcome = await services.orders.submit(
        orders.OrderRequest(
            request.user.subject,
            form.hold_id,
            bodies.idempotency_key(request),
            services.providers.chosen.name,
        )
    )
    if isinstance(outcome, Refusal):
        raise outcome
    await starting.start(services, outcome)
    return Reply(
        answers.order(outcome, services.settings.public_url),
        headers={"Location": f"/v1/orders/{outcome['_id']}"},
    )


@get("/orders/{orderId:str}", summary="One order", responses=problems.documented(NotFound))
async def get_order(request: Request[Any, Any, Any], order_id: OrderId) -> answers.Order:
    """The caller's own order."""
    services = services_of(request)
    found = await orders.find(services.database, order_id, request.user.subject)
    return answers.order(found, services.settings.public_url)


@post(
    "/orders/{orderId:str}/cancel",
    summary="Cancel an order",
    status_code=200,
    responses=problems.documented(NotFound, states.OrderState),
)
async def cancel_order(request: Request[Any, Any, Any], order_id: OrderId) -> answers.Order:
    """Its seats go back on sale, its tickets are void, and what was paid is refunded."""
    services = services_of(request)
    cancelled = await checkout.cancel(
        services.database, order_id, request.user.subject, now=clock.now()
    )
    services.mark_order(cancelled, "available")
    return answers.order(cancelled, services.settings.public_url)


@get("/me", summary="The fan's own profile")
async def get_profile(request: Request[Any, Any, Any]) -> answers.Profile:
    """Name and address are null until they are saved."""
    stored = await accounts.profile(services_of(request).database, request.user.subject)
    return answers.profile(request.user, stored)


@put(
    "/me",
    summary="Save the fan's own profile",
    operation_class=bodies.described_by(bodies.ProfileForm),
)
async def save_profile(request: Request[Any, Any, Any]) -> answers.Profile:
    """Replaces what was saved before."""
    form = await bodies.read(request, bodies.ProfileForm)
    name, email = bodies.profile(form)
    await credentials.refuse_other_address(
        services_of(request).database, request.user.subject, email
    )
    stored = await accounts.save_profile(
        services_of(request).database,
        request.user.subject,
        name,
        email,
        clock.now(),
        None if form.language is msgspec.UNSET else form.language,
    )
    return answers.profile(request.user, stored)


@get(
    "/me/export",
    summary="All that we hold of the fan",
)
async def export(request: Request[Any, Any, Any]) -> Response[dict[str, Any]]:
    """Profile, account, orders, payments and refunds, to take along."""
    held = await privacy.export(services_of(request).database, request.user.subject)
    return Reply(
        held,
        status_code=200,
        headers={"Content-Disposition": 'attachment; filename="my-data.json"'},
    )


@post(
    "/me/erasure",
    summary="Be forgotten",
    status_code=204,
    operation_class=bodies.described_by(bodies.ErasureForm),
    responses=problems.documented(
        credentials.WrongCredentials, privacy.ErasureBlocked, TooManySignIns
    ),
)
async def be_forgotten(request: Request[Any, Any, Any]) -> None:
    """Name, address and account are deleted; orders stay for the books, under a pseudonym.

    Whoever has an account sends its `password`.
    """
    services, fan_id = services_of(request), request.user.subject
    form = await bodies.read(request, bodies.ErasureForm)
    if await credentials.is_known(services.database, fan_id):
        address = client_address.limited_by(client_address.of(request))
        services.limits.signs_in(request, address, fan_id)
        password = "" if form.password is msgspec.UNSET else form.password
        await credentials.prove(services.database, services.passwords, fan_id, password)
    await privacy.erase(services.database, services.settings, fan_id, clock.now())
    services.gone.forget()


@get("/me/orders", summary="The fan's orders, newest first")
async def list_orders(
    request: Request[Any, Any, Any],
    status: FromQuery[OrderStatus | None] = None,
    limit: Limit = PAGE_SIZE,
    cursor: Cursor = None,
) -> answers.OrderPage:
    """All of the caller's orders, or those in one state."""
    services = services_of(request)
    page = await orders.listing(
        services.database, request.user.subject, status=status, limit=limit, cursor=cursor
    )
    return answers.order_page(page, services.settings.public_url)


@get("/me/tickets", summary="The fan's tickets, upcoming first")
async def list_tickets(
    request: Request[Any, Any, Any], limit: Limit = PAGE_SIZE, cursor: Cursor = None
) -> answers.TicketPage:
    """The tickets of confirmed orders: what is still to come first, then the past."""
    services, fan_id = services_of(request), request.user.subject
    if cursor is None:
        page = await services.ticket_pages.submit(tickets.PageRequest(fan_id, limit))
    else:
        page = await tickets.listing(
            services.database, fan_id, now=clock.now(), limit=limit, cursor=cursor
        )
    return answers.ticket_page(page)


@get(
    "/orders/{orderId:str}/tickets.pdf",
    summary="Tickets to print",
    media_type=downloads.PDF,
    responses=problems.documented(NotFound, states.OrderState),
)
async def get_tickets_to_print(
    request: Request[Any, Any, Any],
    order_id: OrderId,
    ticket_id: Annotated[
        str | None, QueryParameter(name="ticketId", description="Only this ticket.")
    ] = None,
) -> Response[bytes]:
    """The valid tickets of the caller's own confirmed order, each on a page with its QR code."""
    services = services_of(request)
    sheets = await handouts.sheets(
        services.database,
        services.signer,
        order_id,
        request.user.subject,
        now=clock.now(),
        ticket_id=ticket_id,
    )
    return downloads.attached(
        await services.printer.pdf(sheets), downloads.PDF, f"{sheets.title}.pdf"
    )


@get(
    "/orders/{orderId:str}/calendar.ics",
    summary="The event for a calendar",
    media_type=downloads.CALENDAR,
    responses=problems.documented(NotFound, states.OrderState),
)
async def get_calendar(request: Request[Any, Any, Any], order_id: OrderId) -> Response[bytes]:
    """The event of the caller's own confirmed order as iCalendar."""
    database, fan_id = services_of(request).database, request.user.subject
    order = await handouts.order_of(database, order_id, fan_id)
    language = accounts.language_of(await accounts.profile(database, fan_id))
    return downloads.attached(
        handouts.calendar(order, language), downloads.CALENDAR, f"{handouts.title(order)}.ics"
    )


router = Router(
    path="/v1",
    before_request=auth.required("fan"),
    route_handlers=[
        place_hold,
        get_hold,
        release_hold,
        place_order,
        get_order,
        cancel_order,
        get_profile,
        save_profile,
        export,
        be_forgotten,
        list_orders,
        list_tickets,
        get_tickets_to_print,
        get_calendar,
    ],
    security=[{"token": []}],
    tags=["fan"],
)
