"""From a hold to tickets: placing an order, what a payment notice does to it, and cancelling.

What must never come apart is changed in one majority transaction with snapshot reads. A seat, an
order or a payment that somebody else changes between our read and our write makes the transaction
fail and run again, on what is true then.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pymongo import UpdateOne
from pymongo.errors import DuplicateKeyError

from ticketing import holds, mongo, orders, outbox, payments, refunds, seats, tickets
from ticketing.errors import NotFound, Refusal
from ticketing.gateway import Notice
from ticketing.mongo import Database, Document, Session
from ticketing.orders import OrderRequest, OrderState

NOTICES_PER_TRANSACTION_MAX = 16


async def place_orders(
    database: Database, requests: Sequence[OrderRequest], *, now: datetime
) -> list[Document | Refusal]:
    """Make an order of each hold; those that cost nothing come back confirmed.

    A free order whose confirmation was cut off is confirmed when the request is made again.
    """
    outcomes = await orders.place(database, requests, now)
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
        found = database.seats.find({"_id": {"$in": seat_ids}}, session=session)
        sold = _seats_to_sell(current, await found.to_list(len(seat_ids)))
        if sold is None:
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
        if len(group) > 1:
            # An error is given only to the notice that causes it, so each is tried alone.
            alone: dict[int, Receipt | Exception] = {}
            for index, notice in group.items():
                alone |= await _receive_group(database, {index: notice}, now)
            return alone
        return dict.fromkeys(group, error)


async def _receive_in_one(
    database: Database, group: dict[int, Notice], now: datetime
) -> dict[int, Receipt]:
    async def body(session: Session) -> dict[int, Receipt]:
        work = _Work(now)
        facts = await _read_facts(database, group, session)
        receipts: dict[int, Receipt] = {}
        for index, notice in group.items():
            if _notice_id(notice) in facts.known:
                receipts[index] = Receipt("repeated", None)
                continue
            order = facts.orders.get(notice.payment_id)
            outcome = (
                "unknown"
                if order is None
                else await _decide(database, work, facts, order, notice, session)
            )
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
        await work.write(database, session)
        return receipts

    try:
        return await mongo.transaction(database, body)
    except DuplicateKeyError:
        # Another delivery of the same notice committed between our snapshot and our insert, so it
        # has had its effect. A second run sees it.
        return await mongo.transaction(database, body)
    except _OverdueInTheWay as blocked:
        # A late payment finds a seat held by a fan whose time is over as well: nobody has it.
        await seats.lapse(database, blocked.seat_ids, now)
        return await mongo.transaction(database, body)


class _OverdueInTheWay(Exception):
    """Seats of a paid order are held by somebody whose hold is over."""

    def __init__(self, seat_ids: list[str]) -> None:
        super().__init__(seat_ids)
        self.seat_ids = seat_ids


@dataclass(frozen=True)
class _Facts:
    """What a group of notices is decided by, read in one snapshot with one read a collection."""

    known: set[str]
    orders: dict[str, Document]
    shows: dict[str, Document]
    seats: dict[str, Document]


async def _read_facts(database: Database, group: dict[int, Notice], session: Session) -> _Facts:
    ids = [_notice_id(notice) for notice in group.values()]
    known = database.notices.find({"_id": {"$in": ids}}, {"_id": 1}, session=session)
    known_ids = {document["_id"] for document in await known.to_list(len(ids))}
    by_payment = await orders.by_payment(
        database, [notice.payment_id for notice in group.values()], session
    )
    event_ids = list({order["eventId"] for order in by_payment.values()})
    seat_ids = [seat["seatId"] for order in by_payment.values() for seat in order["seats"]]
    if not by_payment:
        return _Facts(known_ids, {}, {}, {})
    shows = database.events.find(
        {"_id": {"$in": event_ids}}, {"status": 1, "maxSeatsPerFan": 1}, session=session
    )
    shows_found = await shows.to_list(len(event_ids))
    found = await database.seats.find({"_id": {"$in": seat_ids}}, session=session).to_list(
        len(seat_ids)
    )
    return _Facts(
        known_ids,
        by_payment,
        {show["_id"]: show for show in shows_found},
        {seat["_id"]: seat for seat in found},
    )


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
    taken_again: dict[holds.Fan, int] = field(default_factory=dict)

    async def write(self, database: Database, session: Session) -> None:
        """Make all of it happen. Raises Stale if a document is not as it was read."""
        # The notices go first: the unique id is what stops a second delivery, and it should be
        # stopped before it does any work.
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
    """A document changed inside its own snapshot. The server prevents it; never seen."""


async def _read(collection: mongo.Collection, identifier: str, session: Session) -> Document:
    document = await collection.find_one({"_id": identifier}, session=session)
    assert document is not None  # Orders and events are never deleted.
    return document


async def _decide(
    database: Database,
    work: _Work,
    facts: _Facts,
    order: Document,
    notice: Notice,
    session: Session,
) -> str:
    """What a notice does to its order; adds the writes to `work` and returns the outcome."""
    paid = order["payment"]["status"] == "succeeded"
    if notice.type == "payment.failed":
        if paid:
            return "ignored"
        _settle_payment(work, order, "failed")
        return "failed"
    if paid:
        return "repeated"
    if (notice.amount, notice.currency) != (order["total"], order["currency"]):
        _settle_payment(work, order, "failed")
        _refund(work, order, notice, "the amount paid is not the order's")
        return "refunded"
    to_sell, reason = await _seats_or_reason(database, work, facts, order, session)
    if reason is None:
        _confirm(work, order, to_sell, by="provider", why="paid")
        work.payments.append(payments.settle(order, "succeeded", work.now))
        return "confirmed"
    _settle_payment(work, order, "succeeded")
    if order["status"] == "pendingPayment":
        why = f"paid, but {reason}"
        work.orders.append(orders.change(order, "expired", why=why, by="system", now=work.now))
        work.messages.append(
            outbox.message("order.expired", order["eventId"], order["_id"], {}, work.now)
        )
    _refund(work, order, notice, reason)
    return "refunded"


async def _seats_or_reason(
    database: Database, work: _Work, facts: _Facts, order: Document, session: Session
) -> tuple[list[Document], str | None]:
    """The seats a paid order gets, or why it gets none."""
    event = facts.shows[order["eventId"]]
    if order["status"] not in ("pendingPayment", "expired"):
        return [], f"the order is {order['status']}"
    if event["status"] == "cancelled":
        return [], "the event is cancelled"
    found = [facts.seats[seat["seatId"]] for seat in order["seats"]]
    to_sell = _seats_to_sell(order, found)
    if to_sell is None:
        overdue = [
            seat["_id"]
            for seat in found
            if seat["status"] == "held" and seat["heldUntil"] <= work.now
        ]
        if overdue:
            raise _OverdueInTheWay(overdue)
        return [], "the seats are gone"
    if await _over_limit(database, work, order, event, to_sell, session):
        return [], "more seats than one fan may have"
    return to_sell, None


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


def _seats_to_sell(order: Document, found: list[Document]) -> list[Document] | None:
    """The order's seats if it may have them all: still held for it, or free again; else None.

    Held for it means by the very hold it was made of, to the instant: the same key may have made
    another hold since.
    """
    theirs = all(
        seat["status"] == "available"
        or (
            seat["status"] == "held"
            and seat["holdId"] == order["holdId"]
            and seat["heldUntil"] == order["expiresAt"]
        )
        for seat in found
    )
    return found if theirs else None


async def _over_limit(
    database: Database,
    work: _Work,
    order: Document,
    event: Document,
    to_sell: Sequence[Document],
    session: Session,
) -> bool:
    """Whether an order paid late would give its fan more seats than one may have by now.

    A hold that is over counts no more, so its seats count anew, taken meanwhile or not; those of a
    hold that still lasts were counted when it was placed.
    """
    taken_again = sum(not holds.counts(seat, work.now) for seat in to_sell)
    if not taken_again:
        return False
    fan = (order["eventId"], order["fanId"])
    # Two late payments of one fan at once would each not see what the other takes. Both write to
    # the fan's first order of the event, so one of them runs again and sees the other's effect;
    # within one transaction the seats taken so far are remembered.
    await database.orders.find_one_and_update(
        {"fanId": order["fanId"], "eventId": order["eventId"]},
        {"$set": {"limitCheckedAt": work.now}},
        {"_id": 1},
        sort=[("createdAt", 1), ("_id", 1)],
        session=session,
    )
    have = await database.seats.count_documents(
        {
            "holdId": holds.fan_range(*fan),
            "$or": [{"status": "sold"}, {"heldUntil": {"$gt": work.now}}],
        },
        session=session,
    )
    have += work.taken_again.get(fan, 0)
    if have + taken_again > event["maxSeatsPerFan"]:
        return True
    work.taken_again[fan] = work.taken_again.get(fan, 0) + taken_again
    return False


def _confirm(
    work: _Work, order: Document, to_sell: Sequence[Document], *, by: str, why: str
) -> None:
    issued = tickets.issue(order)
    also: Document = {"tickets": issued, "confirmedAt": work.now}
    if order["payment"]:
        also["payment.status"] = "succeeded"
    work.seats += [seats.sale(order["_id"], order["holdId"], seat) for seat in to_sell]
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
            await seats.let_go(database, [order["holdId"]], "released", session)
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
        work.messages.append(outbox.message("order.cancelled", order["eventId"], order_id, {}, now))
        await work.write(database, session)

    await mongo.transaction(database, body)
    return await orders.find(database, order_id, fan_id)
