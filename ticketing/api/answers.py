"""Documents as the wire shows them. Each answer is a struct, so its description can't drift."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, TypeAlias

import msgspec

from ticketing.accounts import Caller
from ticketing.clock import rfc3339
from ticketing.holds import Hold as DomainHold
from ticketing.ledger import ALWAYS, Period
from ticketing.mongo import Document
from ticketing.pages import Page as DomainPage
from ticketing.statements import Totals
from ticketing.ticket_codes import Signer, json_web_key

# An instant as text: RFC 3339, UTC, `Z`.
Instant: TypeAlias = str


class Answer(msgspec.Struct, rename="camel", frozen=True):
    """The base of all answers: fields are camelCase on the wire."""


class Money(Answer, frozen=True):
    """An amount in the currency's minor unit."""

    amount: int
    currency: str


# --- Events and seats ---------------------------------------------------------------------------


class SeatCounts(Answer, frozen=True):
    """How many seats are in each state."""

    total: int
    available: int
    held: int
    sold: int
    blocked: int


class EventPriceCategory(Answer, frozen=True):
    """A price, as the organiser sent it."""

    name: str
    price: int


class EventRow(Answer, frozen=True):
    """A row and its number of seats."""

    name: str
    count: int


class EventSection(Answer, frozen=True):
    """A section with `rows`, or with `capacity` for general admission."""

    name: str
    price_category: str
    rows: list[EventRow] | msgspec.UnsetType = msgspec.UNSET
    capacity: int | msgspec.UnsetType = msgspec.UNSET


class Event(Answer, frozen=True):
    """An event without its single seats; `seats` counts them where one event is asked for."""

    event_id: str
    organiser_id: str
    status: Literal["draft", "published", "cancelled", "ended"]
    name: str
    description: str
    category: str
    venue_name: str
    timezone: str
    starts_at: Instant
    sale_starts_at: Instant
    sale_ends_at: Instant
    currency: str
    max_seats_per_fan: int
    price_categories: list[EventPriceCategory]
    sections: list[EventSection]
    seat_count: int
    seats: SeatCounts | msgspec.UnsetType = msgspec.UNSET
    proof_of_work: bool | msgspec.UnsetType = msgspec.UNSET


class EventPage(Answer, frozen=True):
    """A page of events."""

    items: list[Event]
    next_cursor: str | None


class Seat(Answer, frozen=True):
    """One place of the layout and its state. Never who has it."""

    seat_id: str
    row: str | None
    number: str | None
    status: Literal["available", "held", "sold", "blocked"]


class SeatSection(Answer, frozen=True):
    """A section's seats in plan order."""

    name: str
    price_category: str
    price: Money
    seats: list[Seat]


class SeatMap(Answer, frozen=True):
    """The layout and state of an event's seats, in plan order."""

    event_id: str
    version: int
    sections: list[SeatSection]


class SectionStates(Answer, frozen=True):
    """A section's seats in plan order, one character a seat: a, h, s or b."""

    name: str
    states: str


class Availability(Answer, frozen=True):
    """The compact form of the seat map."""

    event_id: str
    version: int
    sections: list[SectionStates]


def event(document: Document, counts: Document | None = None) -> Event:
    """An event, with its counters where they are given."""
    return Event(
        event_id=document["_id"],
        organiser_id=document["organiserId"],
        status=document["status"],
        name=document["name"],
        description=document["description"],
        category=document["category"],
        venue_name=document["venueName"],
        timezone=document["timezone"],
        starts_at=rfc3339(document["startsAt"]),
        sale_starts_at=rfc3339(document["saleStartsAt"]),
        sale_ends_at=rfc3339(document["saleEndsAt"]),
        currency=document["currency"],
        max_seats_per_fan=document["maxSeatsPerFan"],
        price_categories=[
            EventPriceCategory(category["name"], category["price"])
            for category in document["priceCategories"]
        ],
        sections=[_section(section) for section in document["sections"]],
        seat_count=document["seatCount"],
        seats=msgspec.UNSET if counts is None else _seat_counts(counts),
        proof_of_work=document.get("proofOfWork", msgspec.UNSET),
    )


def event_page(page: DomainPage) -> EventPage:
    """A page of events."""
    return EventPage([event(item) for item in page.items], page.next_cursor)


def _section(section: Document) -> EventSection:
    if section["kind"] == "general":
        return EventSection(
            section["name"], section["priceCategory"], capacity=section["seatCount"]
        )
    rows = [
        EventRow(row["name"], row["count"] if "count" in row else len(row["seats"]))
        for row in section["rows"]
    ]
    return EventSection(section["name"], section["priceCategory"], rows=rows)


def _seat_counts(counts: Document) -> SeatCounts:
    return SeatCounts(
        counts["total"], counts["available"], counts["held"], counts["sold"], counts["blocked"]
    )


# --- Holds and orders ---------------------------------------------------------------------------


class HeldSeat(Answer, frozen=True):
    """A seat of a hold and what it costs."""

    seat_id: str
    section: str
    row: str | None
    number: str | None
    price: Money


class Hold(Answer, frozen=True):
    """A timed claim on seats."""

    hold_id: str
    event_id: str
    seats: list[HeldSeat]
    total: Money
    expires_at: Instant


class EventCopy(Answer, frozen=True):
    """The event as it was at the purchase."""

    name: str
    starts_at: Instant
    venue_name: str
    timezone: str


class OrderSeat(Answer, frozen=True):
    """A seat of an order and what it cost at the purchase."""

    seat_id: str
    section: str
    row: str | None
    number: str | None
    price_category: str
    price: Money


class Payment(Answer, frozen=True):
    """What became of the money, whatever became of the order."""

    status: Literal["created", "succeeded", "failed", "uncertain"]


class Refund(Answer, frozen=True):
    """Money on its way back."""

    refund_id: str
    amount: int
    currency: str
    status: Literal["created", "sent", "done", "failed"]
    reason: str


class Order(Answer, frozen=True):
    """An order; without payment when it is free."""

    order_id: str
    reference: str
    event_id: str
    event: EventCopy
    status: Literal["pendingPayment", "confirmed", "expired", "cancelled"]
    seats: list[OrderSeat]
    total: Money
    payment_id: str | None
    payment_url: str | None
    payment: Payment | None
    refunds: list[Refund]
    created_at: Instant
    expires_at: Instant


class OrderPage(Answer, frozen=True):
    """A page of orders."""

    items: list[Order]
    next_cursor: str | None


class Ticket(Answer, frozen=True):
    """What opens the door."""

    ticket_id: str
    code: str
    order_id: str
    event: EventCopy
    section: str
    row: str | None
    number: str | None


class TicketPage(Answer, frozen=True):
    """A page of tickets."""

    items: list[Ticket]
    next_cursor: str | None


class VoidTicket(Answer, frozen=True):
    """A ticket that opens no door any more, though its code is still signed."""

    ticket_id: str
    seat_id: str


class VoidTicketPage(Answer, frozen=True):
    """A page of void tickets."""

    items: list[VoidTicket]
    next_cursor: str | None


class TicketKey(msgspec.Struct, frozen=True):
    """A public key that codes of tickets are verified with: a JSON Web Key (RFC 8037)."""

    kty: str
    crv: str
    alg: str
    use: str
    kid: str
    x: str


class TicketKeys(msgspec.Struct, frozen=True):
    """A JSON Web Key Set: the present key first, then those of tickets made before."""

    keys: list[TicketKey]


class Profile(Answer, frozen=True):
    """The fan's own data; name and email are null until they are saved.

    `language` is there when the fan has chosen the one to be written to in.
    """

    fan_id: str
    name: str | None
    email: str | None
    language: Literal["en", "de"] | msgspec.UnsetType = msgspec.UNSET


def hold(placed: DomainHold) -> Hold:
    """A hold with its total."""
    return Hold(
        hold_id=placed.hold_id,
        event_id=placed.event_id,
        seats=[
            HeldSeat(
                seat["_id"],
                seat["section"],
                seat["row"],
                seat["number"],
                Money(seat["price"], placed.currency),
            )
            for seat in placed.seats
        ],
        total=Money(sum(seat["price"] for seat in placed.seats), placed.currency),
        expires_at=rfc3339(placed.expires_at),
    )


def order(document: Document, public_url: str) -> Order:
    """An order as its fan sees it."""
    payment = document["payment"]
    return Order(
        order_id=document["_id"],
        reference=document["reference"],
        event_id=document["eventId"],
        event=_event_copy(document["event"]),
        status=document["status"],
        seats=[
            OrderSeat(
                seat["seatId"],
                seat["section"],
                seat["row"],
                seat["number"],
                seat["priceCategory"],
                Money(seat["price"], document["currency"]),
            )
            for seat in document["seats"]
        ],
        total=Money(document["total"], document["currency"]),
        payment_id=payment and payment["paymentId"],
        payment_url=payment and f"{public_url}/pay/{payment['paymentId']}",
        payment=payment and Payment(payment["status"]),
        refunds=[
            Refund(
                refund["refundId"],
                refund["amount"],
                refund["currency"],
                refund["status"],
                refund["reason"],
            )
            for refund in document["refunds"]
        ],
        created_at=rfc3339(document["createdAt"]),
        expires_at=rfc3339(document["expiresAt"]),
    )


def order_page(page: DomainPage, public_url: str) -> OrderPage:
    """A page of orders."""
    return OrderPage([order(item, public_url) for item in page.items], page.next_cursor)


def ticket_page(page: DomainPage) -> TicketPage:
    """A page of tickets."""
    return TicketPage(
        [
            Ticket(
                item["ticketId"],
                item["code"],
                item["orderId"],
                _event_copy(item["event"]),
                item["section"],
                item["row"],
                item["number"],
            )
            for item in page.items
        ],
        page.next_cursor,
    )


def void_ticket_page(page: DomainPage) -> VoidTicketPage:
    """A page of void tickets."""
    items = [VoidTicket(item["ticketId"], item["seatId"]) for item in page.items]
    return VoidTicketPage(items, page.next_cursor)


def ticket_keys(signer: Signer) -> TicketKeys:
    """What a gate verifies codes with."""
    return TicketKeys(
        [TicketKey(**json_web_key(key_id, key)) for key_id, key in signer.public_keys.items()]
    )


def profile(caller: Caller, document: Document | None) -> Profile:
    """The fan's own data."""
    if document is None:
        return Profile(caller.subject, None, None)
    return Profile(
        document["_id"],
        document["name"],
        document["email"],
        document.get("language", msgspec.UNSET),
    )


def _event_copy(copy: Document) -> EventCopy:
    return EventCopy(copy["name"], rfc3339(copy["startsAt"]), copy["venueName"], copy["timezone"])


# --- Webhooks -------------------------------------------------------------------------------------


class Webhook(Answer, frozen=True):
    """Where messages are sent. `secret` verifies them, and is shown when the webhook is made."""

    webhook_id: str
    url: str
    kinds: list[str]
    status: Literal["enabled", "disabled"]
    created_at: Instant
    disabled_because: str | msgspec.UnsetType = msgspec.UNSET
    secret: str | msgspec.UnsetType = msgspec.UNSET


class WebhookPage(Answer, frozen=True):
    """All of an organiser's webhooks: there are so few that one page holds them."""

    items: list[Webhook]
    next_cursor: None = None


class DeliveryAttempt(Answer, frozen=True):
    """What one attempt came to."""

    at: Instant
    outcome: Literal["done", "skipped", "failed"]
    detail: str


class Delivery(Answer, frozen=True):
    """One message on its way to one webhook, with its latest attempts, oldest first."""

    message_id: str
    kind: str
    event_id: str
    status: Literal["waiting", "done", "skipped", "dead"]
    attempts: list[DeliveryAttempt]
    created_at: Instant
    order_id: str | msgspec.UnsetType = msgspec.UNSET
    next_attempt_at: Instant | msgspec.UnsetType = msgspec.UNSET
    settled_at: Instant | msgspec.UnsetType = msgspec.UNSET


class DeliveryPage(Answer, frozen=True):
    """A page of deliveries."""

    items: list[Delivery]
    next_cursor: str | None


def webhook(document: Document, *, with_secret: bool = False) -> Webhook:
    """A webhook as its organiser sees it."""
    return Webhook(
        document["_id"],
        document["url"],
        document["kinds"],
        document["status"],
        rfc3339(document["createdAt"]),
        document.get("disabledBecause", msgspec.UNSET),
        document["secret"] if with_secret else msgspec.UNSET,
    )


def webhook_page(documents: list[Document]) -> WebhookPage:
    """All webhooks of an organiser."""
    return WebhookPage([webhook(document) for document in documents])


def delivery(document: Document) -> Delivery:
    """What became of a message so far. One that is under way waits, as far as its reader goes."""
    is_open = document["status"] in ("waiting", "taken")
    settled_at = document.get("settledAt")
    return Delivery(
        document["messageId"],
        document["kind"],
        document["eventId"],
        "waiting" if is_open else document["status"],
        [
            DeliveryAttempt(rfc3339(tried["at"]), tried["outcome"], tried["detail"])
            for tried in document["tried"]
        ],
        rfc3339(document["createdAt"]),
        document.get("orderId", msgspec.UNSET),
        rfc3339(document["dueAt"]) if is_open else msgspec.UNSET,
        rfc3339(settled_at) if settled_at else msgspec.UNSET,
    )


def delivery_page(page: DomainPage) -> DeliveryPage:
    """A page of deliveries."""
    return DeliveryPage([delivery(item) for item in page.items], page.next_cursor)


# --- Dashboard ------------------------------------------------------------------------------------


class OrderCounts(Answer, frozen=True):
    """How many orders are in each state."""

    pending_payment: int
    confirmed: int
    expired: int
    cancelled: int


class HoldCounts(Answer, frozen=True):
    """How many holds there were, and how many ended without an order."""

    created: int
    released: int
    expired: int


class SectionFigures(Answer, frozen=True):
    """One section's counters and revenue."""

    name: str
    total: int
    available: int
    held: int
    sold: int
    blocked: int
    revenue: Money


class Dashboard(Answer, frozen=True):
    """An event's sale in figures. `version` grows with every change of any of them."""

    event_id: str
    version: int
    seats: SeatCounts
    orders: OrderCounts
    revenue: Money
    refunds: Money
    holds: HoldCounts
    sections: list[SectionFigures]
    updated_at: Instant


class Sale(Answer, frozen=True):
    """One confirmed order among the latest."""

    reference: str
    seats: int
    amount: int
    at: Instant


class MinuteOfSales(Answer, frozen=True):
    """What was confirmed within one minute."""

    minute: Instant
    orders: int
    seats: int
    amount: int


class Sales(Answer, frozen=True):
    """The last sales, newest first, and the sales by minute, oldest first.

    The amounts of a long series are whole numbers in the minor unit of the one `currency`.
    """

    event_id: str
    version: int
    currency: str
    recent_sales: list[Sale]
    sales_by_minute: list[MinuteOfSales]


def dashboard(document: Document) -> Dashboard:
    """The figures of an event."""
    currency = document["currency"]
    orders, holds = document["orders"], document["holds"]
    return Dashboard(
        event_id=document["_id"],
        version=document["version"],
        seats=_seat_counts(document["seats"]),
        orders=OrderCounts(
            orders["pendingPayment"], orders["confirmed"], orders["expired"], orders["cancelled"]
        ),
        revenue=Money(document["revenue"], currency),
        refunds=Money(document["refunds"], currency),
        holds=HoldCounts(holds["created"], holds["released"], holds["expired"]),
        sections=[
            SectionFigures(
                section["name"],
                section["total"],
                section["available"],
                section["held"],
                section["sold"],
                section["blocked"],
                Money(section["revenue"], currency),
            )
            for section in document["sections"]
        ],
        updated_at=rfc3339(document["updatedAt"]),
    )


def sales(document: Document) -> Sales:
    """The last sales and the sales over time."""
    return Sales(
        document["_id"],
        document["version"],
        document["currency"],
        [
            Sale(sale["reference"], sale["seats"], sale["amount"], rfc3339(sale["at"]))
            for sale in document["recentSales"]
        ],
        [
            MinuteOfSales(
                rfc3339(minute["minute"]), minute["orders"], minute["seats"], minute["amount"]
            )
            for minute in document["salesByMinute"]
        ],
    )


# --- Refunds and cancelled events ---------------------------------------------------------------


class EventRefund(Answer, frozen=True):
    """A refund as the organiser sees it; `givenUp` waits for a person, `problem` says why."""

    refund_id: str
    order_id: str
    payment_id: str
    kind: Literal["order", "lines", "stray", "second", "outside"]
    amount: int
    currency: str
    status: Literal["created", "sent", "done", "failed"]
    reason: str
    attempts: int
    given_up: bool
    problem: str | None
    created_at: Instant


class RefundPage(Answer, frozen=True):
    """A page of refunds."""

    items: list[EventRefund]
    next_cursor: str | None


class RefundCounts(Answer, frozen=True):
    """How many refunds are in each state."""

    created: int
    sent: int
    done: int
    failed: int


class CancellationFailure(Answer, frozen=True):
    """An order that could not be cancelled."""

    order_id: str
    problem: str


class Cancellation(Answer, frozen=True):
    """How far the cancellation of an event is.

    `orders` is how many there were when it was called off, `cancelled` how many are by now.
    """

    event_id: str
    status: Literal["running", "done", "stuck"]
    orders: int
    cancelled: int
    refunded: Money
    refunds: RefundCounts
    failures: list[CancellationFailure]
    created_at: Instant
    finished_at: Instant | None


def event_refund(document: Document) -> EventRefund:
    """A refund as the organiser sees it."""
    return EventRefund(
        document["_id"],
        document["orderId"],
        document["paymentId"],
        document["kind"],
        document["amount"],
        document["currency"],
        document["status"],
        document["reason"],
        document["attempts"],
        "givenUpAt" in document,
        document.get("problem"),
        rfc3339(document["createdAt"]),
    )


def refund_page(page: DomainPage) -> RefundPage:
    """A page of refunds."""
    return RefundPage([event_refund(item) for item in page.items], page.next_cursor)


def cancellation(job: Document, counts: dict[str, int]) -> Cancellation:
    """How far the cancellation of an event is."""
    return Cancellation(
        job["eventId"],
        job["status"],
        job["total"],
        job["cancelled"],
        Money(job["amount"], job["currency"]),
        RefundCounts(**counts),
        [CancellationFailure(one["orderId"], one["problem"]) for one in job["failures"]],
        rfc3339(job["createdAt"]),
        rfc3339(job["finishedAt"]) if "finishedAt" in job else None,
    )


# --- Payments ---------------------------------------------------------------------------------


class SandboxPayment(Answer, frozen=True):
    """A payment and its order as the sandbox's page shows them, told apart.

    `now` is the server's clock, by which `expiresAt` counts. `delivered` tells whether the notice
    just sent was taken at once.
    """

    payment_id: str
    payment_status: Literal["created", "succeeded", "failed", "uncertain"]
    order_id: str
    order_status: Literal["pendingPayment", "confirmed", "expired", "cancelled"]
    reference: str
    event_name: str
    venue_name: str
    starts_at: Instant
    timezone: str
    seats: list[HeldSeat]
    total: Money
    expires_at: Instant
    now: Instant
    delivered: bool | msgspec.UnsetType = msgspec.UNSET


class Received(Answer, frozen=True):
    """The notice is durable: the provider need not send it again."""

    received: bool


def sandbox_payment(
    payment: Document, order_document: Document, now: datetime, *, delivered: bool | None
) -> SandboxPayment:
    """A payment with what its page says about the order."""
    event_copy, currency = order_document["event"], payment["currency"]
    return SandboxPayment(
        payment_id=payment["_id"],
        payment_status=payment["status"],
        order_id=payment["orderId"],
        order_status=order_document["status"],
        reference=order_document["reference"],
        event_name=event_copy["name"],
        venue_name=event_copy["venueName"],
        starts_at=rfc3339(event_copy["startsAt"]),
        timezone=event_copy["timezone"],
        seats=[
            HeldSeat(
                seat["seatId"],
                seat["section"],
                seat["row"],
                seat["number"],
                Money(seat["price"], currency),
            )
            for seat in order_document["seats"]
        ],
        total=Money(payment["amount"], currency),
        expires_at=rfc3339(order_document["expiresAt"]),
        now=rfc3339(now),
        delivered=msgspec.UNSET if delivered is None else delivered,
    )


# --- Statements ----------------------------------------------------------------------------------


class FeeTerms(Answer, frozen=True):
    """What the platform keeps of each seat: an amount, and basis points of its price."""

    per_seat: Money
    basis_points: int


class StatementCounts(Answer, frozen=True):
    """How many orders were sold and how many refunds were made of them."""

    sales: int
    refunds: int


class Statement(Answer, frozen=True):
    """What an event has earned: gross - refunds - fees = net.

    From `periodStartsAt` on and before `periodEndsAt`, where they are not null; what lies at the
    provider and what is owed to fans as it was at the end.
    """

    event_id: str
    name: str
    status: Literal["draft", "published", "cancelled", "ended"]
    starts_at: Instant
    period_starts_at: Instant | None
    period_ends_at: Instant | None
    terms: FeeTerms
    counts: StatementCounts
    gross: Money
    refunds: Money
    fees: Money
    net: Money
    at_provider: Money
    owed_to_fans: Money


class StatementPage(Answer, frozen=True):
    """A page of statements."""

    items: list[Statement]
    next_cursor: str | None


def statement(document: Document, earned: Totals, period: Period = ALWAYS) -> Statement:
    """An event's statement."""
    currency = document["currency"]
    terms = document.get("fees", {"perSeat": 0, "basisPoints": 0})
    return Statement(
        event_id=document["_id"],
        name=document["name"],
        status=document["status"],
        starts_at=rfc3339(document["startsAt"]),
        period_starts_at=_instant_or_null(period.starts_at),
        period_ends_at=_instant_or_null(period.ends_at),
        terms=FeeTerms(Money(terms["perSeat"], currency), terms["basisPoints"]),
        counts=StatementCounts(earned.sale_count, earned.refund_count),
        gross=Money(earned.gross, currency),
        refunds=Money(earned.refunds, currency),
        fees=Money(earned.fees, currency),
        net=Money(earned.net, currency),
        at_provider=Money(earned.at_provider, currency),
        owed_to_fans=Money(earned.owed_to_fans, currency),
    )


def _instant_or_null(instant: datetime | None) -> Instant | None:
    return None if instant is None else rfc3339(instant)


def statement_page(
    page: DomainPage, earned: Sequence[Totals], period: Period = ALWAYS
) -> StatementPage:
    """A page of events with what each has earned."""
    pairs = zip(page.items, earned, strict=True)
    items = [statement(item, each, period) for item, each in pairs]
    return StatementPage(items, page.next_cursor)
