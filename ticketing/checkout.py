"""From a hold to tickets: placing an order, what a payment notice does to it, and cancelling.

What must never come apart is changed in one majority transaction with snapshot reads. A seat, an
order or a payment that somebody else changes between our read and our write makes the transaction
fail and run again, on what is true then.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pymongo import UpdateOne
from pymongo.errors import BulkWriteError

from ticketing import events, holds, mongo, orders, outbox, payments, refunds, seats, tickets
from ticketing.errors import NotFound, Refusal
from ticketing.gateway import Notice
from ticketing.mongo import Database, Document, Session
from ticketing.orders import OrderRequest, OrderState

NOTICES_PER_TRANSACTION_MAX = 16


async def place_orders(
    database: Database,
    requests: Sequence[OrderRequest],
    *,
    now: datetime,
    recent: events.Recent | None = None,
) -> list[Document | Refusal]:
    """Make an order of each hold; those that cost nothing come back confirmed.

    A free order whose confirmation was cut off is confirmed when the request is made again.
    """
    outcomes = await orders.place(database, requests, now, recent)
    for index, outcome in enumerate(outcomes):
        if not isinstance(outcome, Refusal) and _is_free_and_waiting(outcome):
            try:
                outcomes[index] = await _confirm_free(database, outcome, now)
            except Refusal as refusal:
                outcomes[index] = refusal
    return outcomes


def _is_free_and_waiting(order: Document) -> bool:
    return order["payment"] is None and order["status"] == "pendingPayment"


async def _confirm_free(database: Database, order: Document, now: datetime) -> Document:
    async def body(session: Session) -> None:
        work = _Work(now)
        current = await _read(database.orders, order["_id"], session)
        if current["status"] != "pendingPayment":
            return
        seat_ids = [seat["seatId"] for seat in current["seats"]]
        reading = database.seats.find({"_id": {"$in": seat_ids}}, session=session)
        sold = await reading.to_list(len(seat_ids))
        if not _are_held_for(current, sold, current["expiresAt"]):
            raise holds.HoldExpired(holds.HoldExpired.gone)
        _confirm(work, current, sold, by=order["fanId"], why="free of charge")
        await work.write(database, session)

    await mongo.transaction(database, body)
    return await orders.find(database, order["_id"], order["fanId"])


async def release_hold(
    database: Database, hold_id: str, fan_id: str, *, now: datetime
) -> list[str]:
    """Release a hold and expire the order that waits for its payment. Doing it again is no error.

    Returns the seats it had.

    The seats go first: `orders.place` relies on that order.
    """
    released = await holds.release(database, hold_id, fan_id)
    await orders.expire_for_hold(database, hold_id, now)
    return released


# --- Payment notices ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Receipt:
    """What a notice did, and the order it was about as it was before, if there is one."""

    outcome: str
    order: Document | None


async def receive(
    database: Database, notices: Sequence[Notice], *, now: datetime
) -> list[Receipt | Exception]:
    """Let each notice have its effect, once; answer each with its receipt or what went wrong.

    Outcomes: `confirmed`, `refunded`, `failed`, `repeated`, `ignored` (a failure after success),
    `unknown` (kept, but no such payment). Durable on a majority when this returns. An exception in
    a notice's place means that nothing was recorded and the provider should send it again.
    """
    outcomes: dict[int, Receipt | Exception] = {}
    waiting = dict(enumerate(notices))
    while waiting:
        # Two notices of one payment or with one id must see each other's effect, so the second
        # waits for the next group.
        group: dict[int, Notice] = {}
        for index, notice in waiting.items():
            if len(group) < NOTICES_PER_TRANSACTION_MAX and not any(
                notice.payment_id == other.payment_id or notice.notice_id == other.notice_id
                for other in group.values()
            ):
                group[index] = notice
        for index in group:
            del waiting[index]
        outcomes.update(await _receive_group(database, group, now))
    return [outcomes[index] for index in range(len(notices))]


async def _receive_group(
    database: Database, group: dict[int, Notice], now: datetime
) -> dict[int, Receipt | Exception]:
    try:
        return dict(await _receive_in_one(database, group, now))
    except Exception as error:  # noqa: BLE001
        if len(group) > 1 and not mongo.is_outage(error):
            # An error is given only to the notice that causes it, so each is tried alone.
            alone: dict[int, Receipt | Exception] = {}
            for index, notice in group.items():
                alone |= await _receive_group(database, {index: notice}, now)
            return alone
        return dict.fromkeys(group, error)


async def _receive_in_one(
    database: Database, group: dict[int, Notice], now: datetime
) -> dict[int, Receipt]:
    # What became of the seats of orders that were paid late, by order. Filled between two runs.
    taken_again: dict[str, datetime | str] = {}

    async def body(session: Session, *, trusting: bool = False) -> dict[int, Receipt]:
        work = _Work(now)
        facts = await _read_facts(database, group, taken_again, session, trusting=trusting)
        receipts: dict[int, Receipt] = {}
        for index, notice in group.items():
            if _notice_id(notice) in facts.known:
                receipts[index] = Receipt("repeated", None)
                continue
            order = facts.orders.get(notice.payment_id)
            outcome = "unknown" if order is None else _decide(work, facts, order, notice)
            receipts[index] = Receipt(outcome, order)
            work.notices.append(
                {
                    "_id": _notice_id(notice),
                    "provider": notice.provider,
                    "type": notice.type,
                    "paymentId": notice.payment_id,
                    "amount": notice.amount,
                    "currency": notice.currency,
                    "outcome": outcome,
                    "receivedAt": now,
                }
            )
        if work.paid_late:
            raise _PaidLate(work.paid_late)
        await work.write(database, session)
        return receipts

    # Nearly all notices are new and nearly all orders still have their seats, and the writes tell
    # where it is not so: then nothing has happened, and it is done again by what is read.
    with suppress(Stale, BulkWriteError, _PaidLate):
        return await mongo.transaction(database, lambda session: body(session, trusting=True))
    try:
        return await mongo.transaction(database, body)
    except _PaidLate as late:
        for order in late.orders:
            taken_again[order["_id"]] = await _take_again(database, order, now)
        return await mongo.transaction(database, body)


class _PaidLate(Exception):
    """Orders that were paid, but whose hold is over: their seats must be taken again first."""

    def __init__(self, orders_paid: list[Document]) -> None:
        super().__init__([order["_id"] for order in orders_paid])
        self.orders = orders_paid


async def _take_again(database: Database, order: Document, now: datetime) -> datetime | str:
    """Until when the order's seats are held once more, or why it can't have them."""
    event = await database.events.find_one(
        {"_id": order["eventId"]}, {"status": 1, "maxSeatsPerFan": 1}
    )
    assert event is not None  # Events with orders are never deleted.
    seat_ids = [seat["seatId"] for seat in order["seats"]]
    try:
        return await holds.take_again(
            database, event, order["fanId"], order["holdId"], seat_ids, now
        )
    except holds.LimitExceeded:
        return "more seats than one fan may have"
    except holds.SeatsUnavailable:
        return "the seats are gone"


@dataclass(frozen=True)
class _Facts:
    """What a group of notices is decided by, read in one snapshot with one read a collection.

    `seats` is None where each order is trusted to have its own.
    """

    known: set[str]
    orders: dict[str, Document]
    shows: dict[str, Document]
    seats: dict[str, Document] | None
    taken_again: dict[str, datetime | str]

    def seats_of(self, order: Document) -> list[Document]:
        """The order's seats as they are."""
        if self.seats is None:
            held = {"status": "held", "holdId": order["holdId"], "heldUntil": order["expiresAt"]}
            return [{"_id": seat["seatId"], **held} for seat in order["seats"]]
        return [self.seats[seat["seatId"]] for seat in order["seats"]]


async def _read_facts(
    database: Database,
    group: dict[int, Notice],
    taken_again: dict[str, datetime | str],
    session: Session,
    *,
    trusting: bool,
) -> _Facts:
    ids = [_notice_id(notice) for notice in group.values()]
    known_ids = set() if trusting else await _known(database, ids, session)
    payment_ids = [notice.payment_id for notice in group.values()]
    by_payment = await orders.by_payment(database, payment_ids, session)
    if not by_payment:
        return _Facts(known_ids, {}, {}, None, taken_again)
    event_ids = list({order["eventId"] for order in by_payment.values()})
    shows = database.events.find({"_id": {"$in": event_ids}}, {"status": 1}, session=session)
    shows_found = await shows.to_list(len(event_ids))
    return _Facts(
        known_ids,
        by_payment,
        {show["_id"]: show for show in shows_found},
        None if trusting else await _seats_of(database, by_payment.values(), session),
        taken_again,
    )


async def _known(database: Database, ids: list[str], session: Session) -> set[str]:
    known = database.notices.find({"_id": {"$in": ids}}, {"_id": 1}, session=session)
    return {document["_id"] for document in await known.to_list(len(ids))}


async def _seats_of(
    database: Database, of: Iterable[Document], session: Session
) -> dict[str, Document]:
    ids = [seat["seatId"] for order in of for seat in order["seats"]]
    found = database.seats.find({"_id": {"$in": ids}}, session=session)
    return {seat["_id"]: seat for seat in await found.to_list(len(ids))}


def _notice_id(notice: Notice) -> str:
    return f"{notice.provider}:{notice.notice_id}"


@dataclass
class _Work:
    """The writes of one transaction, gathered so that each collection is written to once."""

    now: datetime
    seats: list[Any] = field(default_factory=list)
    orders: list[Any] = field(default_factory=list)
    payments: list[Any] = field(default_factory=list)
    refunds: list[Document] = field(default_factory=list)
    messages: list[Document] = field(default_factory=list)
    notices: list[Document] = field(default_factory=list)
    paid_late: list[Document] = field(default_factory=list)

    async def write(self, database: Database, session: Session) -> None:
        """Make all of it happen. Raises Stale if a document is not as it was read."""
        # The notices go first: another delivery of the same that commits before us is a write
        # conflict on the unique id, found before any work is done; the next run sees its effect.
        for collection, documents in (
            (database.notices, self.notices),
            (database.refunds, self.refunds),
            (database.outbox, self.messages),
        ):
            if documents:
                await collection.insert_many(documents, session=session)
        for collection, writes in (
            (database.seats, self.seats),
            (database.orders, self.orders),
        ):
            if writes:
                result = await collection.bulk_write(writes, session=session)
                if result.matched_count != len(writes):
                    raise Stale
        if self.payments:
            await database.payments.bulk_write(self.payments, session=session)


class Stale(Exception):
    """A document is not as it was taken to be. Where it was read in the same snapshot, never seen:
    the server prevents it."""


async def _read(collection: mongo.Collection, identifier: str, session: Session) -> Document:
    document = await collection.find_one({"_id": identifier}, session=session)
    assert document is not None  # Orders and events are never deleted.
    return document


def _decide(work: _Work, facts: _Facts, order: Document, notice: Notice) -> str:
    """What a notice does to its order; adds the writes to `work` and returns the outcome."""
    paid = order["payment"]["status"] == "succeeded"
    if notice.type == "payment.failed":
        if paid:
            return "ignored"
        _settle_payment(work, order, "failed")
        work.messages.append(_completed(order, "failed", work.now))
        return "failed"
    if paid:
        return "repeated"
    if reason := _mismatch(order, notice):
        if _was_refunded(order, notice) or notice.amount == 0:
            return "repeated"
        _settle_payment(work, order, "failed")
        _refund(work, order, notice, reason)
        return "refunded"
    to_sell, reason = _seats_or_reason(work, facts, order)
    if reason is None:
        work.messages.append(_completed(order, "succeeded", work.now))
        _confirm(work, order, to_sell, by="provider", why="paid")
        work.payments.append(payments.settle(order, "succeeded", work.now))
        return "confirmed"
    _settle_payment(work, order, "succeeded")
    work.messages.append(_completed(order, "succeeded", work.now))
    if order["status"] == "pendingPayment":
        why = f"paid, but {reason}"
        work.orders.append(orders.change(order, "expired", why=why, by="system", now=work.now))
        work.messages.append(
            outbox.message(
                "order.expired", order["eventId"], order["_id"], {"reason": why}, work.now
            )
        )
    _refund(work, order, notice, reason)
    return "refunded"


def _completed(order: Document, outcome: str, now: datetime) -> Document:
    """The message that a provider has told what became of the order's payment."""
    paid = {
        "paymentId": order["payment"]["paymentId"],
        "outcome": outcome,
        "amount": order["total"],
        "currency": order["currency"],
    }
    return outbox.message("payment.completed", order["eventId"], order["_id"], paid, now)


def _seats_or_reason(
    work: _Work, facts: _Facts, order: Document
) -> tuple[list[Document], str | None]:
    """The seats a paid order gets, or why it gets none."""
    if order["status"] not in ("pendingPayment", "expired"):
        return [], f"the order is {order['status']}"
    if facts.shows[order["eventId"]]["status"] == "cancelled":
        return [], "the event is cancelled"
    found = facts.seats_of(order)
    taken_again = facts.taken_again.get(order["_id"])
    if isinstance(taken_again, str):
        return [], taken_again
    # A hold that is over counts no more against its fan's limit, though nobody may have swept it
    # yet: so its seats are taken again by the rules before they are sold.
    lasts = order["expiresAt"] > work.now
    if lasts and _are_held_for(order, found, order["expiresAt"]):
        return found, None
    if taken_again is None:
        work.paid_late.append(order)
        return [], "its seats must be taken again"
    if _are_held_for(order, found, taken_again):
        return found, None
    return [], "the seats are gone"


def _mismatch(order: Document, notice: Notice) -> str | None:
    """Why a payment is not this order's, or None."""
    if (notice.amount, notice.currency) != (order["total"], order["currency"]):
        return "the amount paid is not the order's"
    if notice.order_id != order["_id"]:
        return "the payment names another order"
    return None


def _was_refunded(order: Document, notice: Notice) -> bool:
    """Whether this money was given back already: a payment is charged once, whatever is sent."""
    return any(
        (refund["amount"], refund["currency"]) == (notice.amount, notice.currency)
        for refund in order["refunds"]
    )


def _settle_payment(work: _Work, order: Document, status: str) -> None:
    work.orders.append(UpdateOne({"_id": order["_id"]}, {"$set": {"payment.status": status}}))
    work.payments.append(payments.settle(order, status, work.now))


def _refund(work: _Work, order: Document, notice: Notice, reason: str) -> None:
    refund = refunds.new(
        order,
        payment_id=notice.payment_id,
        amount=notice.amount,
        currency=notice.currency,
        reason=reason,
        now=work.now,
    )
    work.refunds.append(refund)
    work.orders.append(
        UpdateOne({"_id": order["_id"]}, {"$push": {"refunds": refunds.shown(refund)}})
    )


def _are_held_for(order: Document, found: list[Document], until: datetime) -> bool:
    """Whether the seats are all held by the order's hold, and by the very one that ends then.

    To the instant, since the same key may have made another hold since.
    """
    return all(
        seat["status"] == "held"
        and seat["holdId"] == order["holdId"]
        and seat["heldUntil"] == until
        for seat in found
    )


def _confirm(
    work: _Work, order: Document, to_sell: Sequence[Document], *, by: str, why: str
) -> None:
    issued = tickets.issue(order)
    also: Document = {"tickets": issued, "confirmedAt": work.now}
    if order["payment"]:
        also["payment.status"] = "succeeded"
    work.seats += [seats.sale(order["_id"], seat) for seat in to_sell]
    work.orders.append(orders.change(order, "confirmed", why=why, by=by, now=work.now, also=also))
    work.messages.append(
        outbox.message(
            "order.confirmed",
            order["eventId"],
            order["_id"],
            {"ticketIds": [ticket["ticketId"] for ticket in issued]},
            work.now,
        )
    )


# --- Cancelling --------------------------------------------------------------------------------


async def cancel(database: Database, order_id: str, fan_id: str, *, now: datetime) -> Document:
    """Cancel an order: its seats are on sale again, its tickets void, what was paid goes back.

    Returns the order. Raises NotFound, or OrderState for one that is cancelled or expired.
    """

    async def body(session: Session) -> None:
        work = _Work(now)
        order = await database.orders.find_one({"_id": order_id, "fanId": fan_id}, session=session)
        if order is None:
            raise NotFound("There is no such order.")
        if order["status"] not in ("pendingPayment", "confirmed"):
            raise OrderState(order["status"], f"The order is {order['status']} already.")
        work.orders.append(
            orders.change(
                order,
                "cancelled",
                why="asked for by the fan",
                by=fan_id,
                now=now,
                also={"tickets": tickets.void(order), "cancelledAt": now},
            )
        )
        if order["status"] == "confirmed":
            await seats.give_back(database, order_id, session)
        else:
            # By the very hold it was made of: the same key may have made another one since.
            await seats.let_go(
                database,
                [order["holdId"]],
                "released",
                held_until=order["expiresAt"],
                session=session,
            )
        if order["payment"] and order["payment"]["status"] == "succeeded":
            refund = refunds.new(
                order,
                payment_id=order["payment"]["paymentId"],
                amount=order["total"],
                currency=order["currency"],
                reason="the order was cancelled",
                now=now,
            )
            work.refunds.append(refund)
            work.orders.append(
                UpdateOne({"_id": order_id}, {"$push": {"refunds": refunds.shown(refund)}})
            )
        work.messages.append(
            outbox.message("order.cancelled", order["eventId"], order_id, {"reason": "fan"}, now)
        )
        await work.write(database, session)

    await mongo.transaction(database, body)
    return await orders.find(database, order_id, fan_id)
