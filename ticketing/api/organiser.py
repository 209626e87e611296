"""What an organiser does: make events, put them on sale, watch the sale, be told of it."""

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from litestar import Request, Response, delete, get, post
from litestar.params import FromQuery, QueryParameter
from litestar.response import Stream

from ticketing import (
    cancellations,
    checkout,
    clock,
    dashboards,
    event_setup,
    events,
    moves,
    orders,
    refunds,
    statements,
    states,
    webhooks,
)
from ticketing.api import answers, auth, bodies, downloads, problems
from ticketing.api.acting import Organiser, acting_for, recorded
from ticketing.api.parameters import (
    PAGE_SIZE,
    Cursor,
    EventId,
    Limit,
    MessageId,
    OrderId,
    RefundId,
    WebhookId,
    instant,
)
from ticketing.api.replies import Reply
from ticketing.api.routing import Router
from ticketing.api.services import services_of
from ticketing.errors import IdempotencyInProgress, IdempotencyKeyReused, Invalid, NotFound
from ticketing.ledger import Period
from ticketing.mongo import Document

RefundStatus = Literal["created", "sent", "done", "failed"]
Since: TypeAlias = Annotated[
    str | None, QueryParameter(name="from", description="What was entered then or later.")
]
Until: TypeAlias = Annotated[
    str | None, QueryParameter(name="to", description="What was entered before then.")
]


@post(
    "/events",
    summary="Make an event",
    operation_class=bodies.described_by(events.NewEvent, keyed=True),
    request_max_body_size=bodies.EVENT_BYTES_MAX,
    responses=problems.documented(NotFound, IdempotencyKeyReused, IdempotencyInProgress),
)
async def create_event(
    request: Request[Any, Any, Any], organiser_id: Organiser = None
) -> Response[answers.Event]:
    """A draft with all its seats. Only the team sees it before it is published."""
    new = await bodies.read(request, events.NewEvent)
    organiser = await acting_for(request, organiser_id, "editor")
    async with recorded(request, organiser, "event.create", "") as change:
        created = await event_setup.create(
            services_of(request).database,
            new,
            organiser_id=organiser,
            key=bodies.idempotency_key(request),
            body=await request.body(),
            now=clock.now(),
        )
        change.after = {"eventId": created["_id"], "name": created["name"]}
    return Reply(answers.event(created), headers={"Location": f"/v1/events/{created['_id']}"})


@post(
    "/events/{eventId:str}/publish",
    summary="Put an event on sale",
    status_code=200,
    responses=problems.documented(NotFound, events.EventState),
)
async def publish_event(request: Request[Any, Any, Any], event_id: EventId) -> answers.Event:
    """Publishing it again changes nothing."""
    database = services_of(request).database
    event = await events.owned(database, event_id, request.user, "editor")
    before = {"status": event["status"]}
    async with recorded(request, event["organiserId"], "event.publish", event_id, before) as change:
        published = await events.publish(database, event_id, request.user, clock.now())
        change.after = {"status": published["status"]}
    return answers.event(published)


@post(
    "/events/{eventId:str}/move",
    summary="Move an event to another time or place",
    status_code=200,
    operation_class=bodies.described_by(events.Move),
    responses=problems.documented(NotFound, events.EventState),
)
async def move_event(request: Request[Any, Any, Any], event_id: EventId) -> answers.Event:
    """At once; its orders follow, and each fan who has tickets is told."""
    database = services_of(request).database
    wanted = await bodies.read(request, events.Move)
    event = await events.owned(database, event_id, request.user, "editor")
    async with recorded(
        request, event["organiserId"], "event.move", event_id, _place(event)
    ) as change:
        moved = await moves.move(database, event_id, request.user, wanted, clock.now())
        change.after = _place(moved)
    return answers.event(moved)


def _place(event: Document) -> Document:
    return {name: event[name] for name in ("startsAt", "timezone", "venueName")}


@post(
    "/events/{eventId:str}/cancel",
    summary="Call off an event",
    status_code=200,
    responses=problems.documented(NotFound, events.EventState),
)
async def cancel_event(request: Request[Any, Any, Any], event_id: EventId) -> answers.Cancellation:
    """Off sale at once; its orders are cancelled and refunded in the background.

    Calling it off again changes nothing and tells how far that is.
    """
    database = services_of(request).database
    event = await events.owned(database, event_id, request.user, "owner")
    before = {"status": event["status"]}
    async with recorded(request, event["organiserId"], "event.cancel", event_id, before) as change:
        job = await cancellations.begin(database, event_id, request.user, clock.now())
        change.after = {"status": "cancelled"}
    return answers.cancellation(job, await refunds.totals(database, event_id))


@get(
    "/events/{eventId:str}/cancellation",
    summary="How far the cancellation of an event is",
    responses=problems.documented(NotFound),
)
async def get_cancellation(
    request: Request[Any, Any, Any], event_id: EventId
) -> answers.Cancellation:
    """Of the caller's own event."""
    database = services_of(request).database
    await events.owned(database, event_id, request.user, "viewer")
    job = await cancellations.find(database, event_id)
    return answers.cancellation(job, await refunds.totals(database, event_id))


@get(
    "/events/{eventId:str}/refunds",
    summary="The refunds of an event, newest first",
    responses=problems.documented(NotFound),
)
async def list_refunds(
    request: Request[Any, Any, Any],
    event_id: EventId,
    status: FromQuery[RefundStatus | None] = None,
    given_up: Annotated[bool, QueryParameter(name="givenUp")] = False,
    limit: Limit = PAGE_SIZE,
    cursor: Cursor = None,
) -> answers.RefundPage:
    """All of them, those in one state, or with `givenUp` those that wait for a person."""
    database = services_of(request).database
    await events.owned(database, event_id, request.user, "boxOffice")
    page = await refunds.listing(
        database, event_id, status=status, given_up=given_up, limit=limit, cursor=cursor
    )
    return answers.refund_page(page)


@post(
    "/refunds/{refundId:str}/retry",
    summary="Send a refund again that was given up",
    status_code=200,
    responses=problems.documented(NotFound, states.OrderState),
)
async def retry_refund(request: Request[Any, Any, Any], refund_id: RefundId) -> answers.EventRefund:
    """It has all its attempts before it again."""
    database = services_of(request).database
    refund = await refunds.find(database, refund_id)
    event = await events.owned(database, refund["eventId"], request.user, "boxOffice")
    before = {"status": refund["status"]}
    async with recorded(request, event["organiserId"], "refund.retry", refund_id, before) as change:
        tried = await refunds.try_again(database, refund_id, clock.now())
        change.after = {"status": tried["status"]}
    return answers.event_refund(tried)


@post(
    "/orders/{orderId:str}/refunds",
    summary="Refund some seats of an order",
    operation_class=bodies.described_by(bodies.RefundForm, keyed=True),
    responses=problems.documented(NotFound, states.OrderState, IdempotencyKeyReused),
)
async def refund_seats(
    request: Request[Any, Any, Any], order_id: OrderId
) -> Response[answers.Order]:
    """The rest of the order stays valid. The seats go back on sale unless `keepSeats` is true."""
    services = services_of(request)
    form = await bodies.read(request, bodies.RefundForm)
    order = (await orders.by_ids(services.database, [order_id])).get(order_id)
    if order is None:
        raise NotFound("There is no such order.")
    try:
        event = await events.owned(services.database, order["eventId"], request.user, "boxOffice")
    except NotFound:
        raise NotFound("There is no such order.") from None
    wanted = bodies.line_refund(
        form, order_id=order_id, by=request.user.subject, key=bodies.idempotency_key(request)
    )
    before = {"status": order["status"], "refunds": len(order["refunds"])}
    async with recorded(request, event["organiserId"], "order.refund", order_id, before) as change:
        refunded = await checkout.refund_lines(services.database, wanted, now=clock.now())
        change.after = {"seatIds": list(wanted.seat_ids), "keepSeats": not wanted.frees}
    if wanted.frees:
        services.boards.mark(refunded["eventId"], wanted.seat_ids, "available")
    return Reply(answers.order(refunded, services.settings.public_url))


@get(
    "/events/{eventId:str}/dashboard",
    summary="The sale in figures",
    responses=problems.documented(NotFound),
)
async def get_dashboard(request: Request[Any, Any, Any], event_id: EventId) -> answers.Dashboard:
    """The counters of the caller's own event."""
    database = services_of(request).database
    await events.owned(database, event_id, request.user, "viewer")
    return answers.dashboard(await dashboards.find(database, event_id))


@get(
    "/events/{eventId:str}/dashboard/sales",
    summary="The last sales and the sales over time",
    responses=problems.documented(NotFound),
)
async def get_sales(request: Request[Any, Any, Any], event_id: EventId) -> answers.Sales:
    """Of the caller's own event; `version` is the dashboard's."""
    database = services_of(request).database
    await events.owned(database, event_id, request.user, "viewer")
    return answers.sales(await dashboards.find(database, event_id))


@get(
    "/events/{eventId:str}/statement",
    summary="What an event has earned",
    responses=problems.documented(NotFound),
)
async def get_statement(
    request: Request[Any, Any, Any], event_id: EventId, since: Since = None, until: Until = None
) -> answers.Statement:
    """By the ledger, now: gross sales, less refunds and fees, are the net."""
    period = _period(since, until)
    database = services_of(request).database
    event = await events.owned(database, event_id, request.user, "viewer")
    return answers.statement(event, await statements.totals(database, event, period), period)


@get(
    "/events/{eventId:str}/statement.csv",
    summary="What an event has earned, line by line",
    media_type=downloads.CSV,
    responses=problems.documented(NotFound),
)
async def get_statement_lines(
    request: Request[Any, Any, Any], event_id: EventId, since: Since = None, until: Until = None
) -> Stream:
    """Every ledger entry that earned or cost something, for a spreadsheet."""
    period = _period(since, until)
    database = services_of(request).database
    event = await events.owned(database, event_id, request.user, "viewer")
    lines = statements.as_csv(database, statements.one_page(event), period)
    return downloads.streamed(lines, downloads.CSV, f"{event['name']} statement.csv")


@get(
    "/events/{eventId:str}/statement.pdf",
    summary="What an event has earned, to print",
    media_type=downloads.PDF,
    responses=problems.documented(NotFound),
)
async def get_statement_to_print(
    request: Request[Any, Any, Any], event_id: EventId, since: Since = None, until: Until = None
) -> Response[bytes]:
    """The same amounts as a page."""
    period = _period(since, until)
    services = services_of(request)
    event = await events.owned(services.database, event_id, request.user, "viewer")
    earned = await statements.totals(services.database, event, period)
    page = await services.printer.pdf(statements.sheet(event, earned, period, clock.now()))
    return downloads.attached(page, downloads.PDF, f"{event['name']} statement.pdf")


@get(
    "/statements",
    summary="What the caller's events have earned",
    responses=problems.documented(NotFound),
)
async def list_statements(
    request: Request[Any, Any, Any],
    since: Since = None,
    until: Until = None,
    organiser_id: Organiser = None,
    limit: Limit = PAGE_SIZE,
    cursor: Cursor = None,
) -> answers.StatementPage:
    """One for each of the caller's own events, by their start."""
    period = _period(since, until)
    database = services_of(request).database
    page = await events.listing(
        database,
        organiser_id=await acting_for(request, organiser_id, "viewer"),
        status=None,
        limit=limit,
        cursor=cursor,
    )
    earned = await statements.totals_of(database, page.items, period)
    return answers.statement_page(page, earned, period)


@get(
    "/statements.csv",
    summary="What the caller's events have earned, line by line",
    media_type=downloads.CSV,
    responses=problems.documented(NotFound),
)
async def get_all_statement_lines(
    request: Request[Any, Any, Any],
    since: Since = None,
    until: Until = None,
    organiser_id: Organiser = None,
) -> Stream:
    """Every ledger entry of the caller's own events that earned or cost something."""
    period = _period(since, until)
    database = services_of(request).database
    shows = statements.pages_of(database, await acting_for(request, organiser_id, "viewer"))
    lines = statements.as_csv(database, shows, period)
    return downloads.streamed(lines, downloads.CSV, "statement.csv")


@get(
    "/statements.pdf",
    summary="What the caller's events have earned, to print",
    media_type=downloads.PDF,
    responses=problems.documented(NotFound),
)
async def get_all_statements_to_print(
    request: Request[Any, Any, Any],
    since: Since = None,
    until: Until = None,
    organiser_id: Organiser = None,
) -> Response[bytes]:
    """The caller's own events that have entries, and the totals of each currency."""
    period = _period(since, until)
    services = services_of(request)
    organiser = await acting_for(request, organiser_id, "viewer")
    sheet = await statements.sheet_of(services.database, organiser, period, clock.now())
    page = await services.printer.pdf(sheet)
    return downloads.attached(page, downloads.PDF, "statement.pdf")


def _period(since: str | None, until: str | None) -> Period:
    """The period that is asked for. Raises Invalid."""
    period = Period(instant(since, "from"), instant(until, "to"))
    if period.starts_at and period.ends_at and period.ends_at <= period.starts_at:
        raise Invalid([("to", "must be after from")])
    return period


@post(
    "/webhooks",
    summary="Register a webhook",
    operation_class=bodies.described_by(bodies.WebhookForm, keyed=True),
    responses=problems.documented(NotFound, webhooks.WebhookLimit, IdempotencyKeyReused),
)
async def register_webhook(
    request: Request[Any, Any, Any], organiser_id: Organiser = None
) -> Response[answers.Webhook]:
    """Messages about the caller's events are sent there from now on. Keep the `secret`."""
    services = services_of(request)
    form = await bodies.read(request, bodies.WebhookForm)
    organiser = await acting_for(request, organiser_id, "owner")
    async with recorded(request, organiser, "webhook.register", "") as change:
        made = await webhooks.register(
            services.database,
            services.settings,
            organiser_id=organiser,
            url=form.url,
            kinds=None if form.kinds is msgspec.UNSET else form.kinds,
            key=bodies.idempotency_key(request),
            body=await request.body(),
            now=clock.now(),
        )
        # Some receivers are told from strangers by a secret in the address's query.
        where = made["url"].partition("?")[0]
        change.after = {"webhookId": made["_id"], "url": where, "kinds": made["kinds"]}
    return Reply(
        answers.webhook(made, with_secret=True),
        headers={"Location": f"/v1/webhooks/{made['_id']}"},
    )


@get("/webhooks", summary="The organiser's webhooks", responses=problems.documented(NotFound))
async def list_webhooks(
    request: Request[Any, Any, Any], organiser_id: Organiser = None
) -> answers.WebhookPage:
    """The caller's own, oldest first."""
    organiser = await acting_for(request, organiser_id, "owner")
    found = await webhooks.listing(services_of(request).database, organiser)
    return answers.webhook_page(found)


@get("/webhooks/{webhookId:str}", summary="One webhook", responses=problems.documented(NotFound))
async def get_webhook(
    request: Request[Any, Any, Any], webhook_id: WebhookId, organiser_id: Organiser = None
) -> answers.Webhook:
    """The caller's own webhook, without its secret."""
    organiser = await acting_for(request, organiser_id, "owner")
    found = await webhooks.find(services_of(request).database, webhook_id, organiser)
    return answers.webhook(found)


@delete(
    "/webhooks/{webhookId:str}",
    summary="Remove a webhook",
    status_code=204,
    responses=problems.documented(NotFound),
)
async def remove_webhook(
    request: Request[Any, Any, Any], webhook_id: WebhookId, organiser_id: Organiser = None
) -> None:
    """Nothing is sent there any more, nor what waits to be."""
    organiser = await acting_for(request, organiser_id, "owner")
    webhook = await webhooks.find(services_of(request).database, webhook_id, organiser)
    before = {"url": webhook["url"].partition("?")[0], "kinds": webhook["kinds"]}
    async with recorded(request, organiser, "webhook.remove", webhook_id, before):
        await webhooks.remove(services_of(request).database, webhook_id, organiser)


@post(
    "/webhooks/{webhookId:str}/enable",
    summary="Enable a webhook again",
    status_code=200,
    responses=problems.documented(NotFound),
)
async def enable_webhook(
    request: Request[Any, Any, Any], webhook_id: WebhookId, organiser_id: Organiser = None
) -> answers.Webhook:
    """After nothing got through for long it was disabled; what was given up can be replayed."""
    organiser = await acting_for(request, organiser_id, "owner")
    async with recorded(request, organiser, "webhook.enable", webhook_id) as change:
        enabled = await webhooks.enable(services_of(request).database, webhook_id, organiser)
        change.after = {"status": enabled["status"]}
    return answers.webhook(enabled)


@get(
    "/webhooks/{webhookId:str}/deliveries",
    summary="What was sent to a webhook",
    responses=problems.documented(NotFound),
)
async def list_deliveries(
    request: Request[Any, Any, Any],
    webhook_id: WebhookId,
    organiser_id: Organiser = None,
    limit: Limit = PAGE_SIZE,
    cursor: Cursor = None,
) -> answers.DeliveryPage:
    """The deliveries of the last weeks, newest first."""
    page = await webhooks.deliveries(
        services_of(request).database,
        webhook_id,
        await acting_for(request, organiser_id, "owner"),
        limit=limit,
        cursor=cursor,
    )
    return answers.delivery_page(page)


@post(
    "/webhooks/{webhookId:str}/deliveries/{messageId:str}/replay",
    summary="Send a message once more",
    status_code=202,
    responses=problems.documented(NotFound),
)
async def replay_delivery(
    request: Request[Any, Any, Any],
    webhook_id: WebhookId,
    message_id: MessageId,
    organiser_id: Organiser = None,
) -> answers.Delivery:
    """Whatever became of it. Its `webhook-id` is that of the first time."""
    organiser = await acting_for(request, organiser_id, "owner")
    async with recorded(request, organiser, "webhook.replay", webhook_id) as change:
        waiting = await webhooks.replay(
            services_of(request).database, webhook_id, message_id, organiser, clock.now()
        )
        change.after = {"messageId": message_id}
    return answers.delivery(waiting)


router = Router(
    path="/v1",
    before_request=auth.required("organiser", "admin"),
    route_handlers=[
        create_event,
        publish_event,
        move_event,
        cancel_event,
        get_cancellation,
        list_refunds,
        retry_refund,
        refund_seats,
        get_dashboard,
        get_sales,
        get_statement,
        get_statement_lines,
        get_statement_to_print,
        list_statements,
        get_all_statement_lines,
        get_all_statements_to_print,
        register_webhook,
        list_webhooks,
        get_webhook,
        remove_webhook,
        enable_webhook,
        list_deliveries,
        replay_delivery,
    ],
    security=[{"token": []}],
    tags=["organiser"],
)
