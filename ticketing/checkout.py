"""From a hold to tickets: placing an order, what a payment notice does to it, and cancelling.

What must never come apart is changed in one majority transaction with snapshot reads. A seat, an
order or a payment that somebody else changes between our read and our write makes the transaction
fail and run again, on what is true then.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from pymongo import UpdateOne
from pymongo.errors import BulkWriteError, PyMongoError

from ticketing import (
    back_off,
    events,
    holds,
    identifiers,
    ledger,
    mongo,
    orders,
    outbox,
    payments,
    refunds,
    seats,
    states,
    tickets,
)
from ticketing.errors import IdempotencyKeyReused, Invalid, NotFound, Refusal
from ticketing.gateway import Notice
from ticketing.mongo import Database, Document, Session
from ticketing.orders import OrderRequest
from ticketing.states import OrderState

NOTICES_PER_TRANSACTION_MAX = 32
# A notice of an unknown payment is looked at again so often, for about a day in all.
LOOKS_MAX = 24
KEPT_PER_RUN_MAX = 100
LOOK_AGAIN_AFTER = timedelta(seconds=5)


async def place_orders(
    database: Database,
    requests: Sequence[OrderRequest],
    *,
    now: datetime,
    recent: events.Recent | None = None,
    remembered: holds.Remembered | None = None,
) -> list[Document | Refusal]:
    """Make an order of each hold; those that cost nothing come back confirmed.

    A free order whose confirmation was cut off is confirmed when the request is made again.
    """
    outcomes = await orders.place(database, requests, now, recent, remembered)
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
        work = Writes(now)
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
    database: Database,
    notices: Sequence[Notice],
    *,
    now: datetime,
    remembered: orders.Remembered | None = None,
    recent: events.Recent | None = None,
) -> list[Receipt | Exception]:
    """Let each notice have its effect, once; answer each with its receipt or what went wrong.

    Outcomes of a payment's notice: `confirmed`, `refunded`, `failed`, `uncertain`, `repeated`,
    `ignored` (it tells of something that is over). Of a refund's: `done`, `failed`, `recorded` (it
    was made at the provider's own site), `repeated`, `ignored`. Of either: `unknown` (no such
    payment; kept, and looked at again by `look_again`). Durable on a majority when this returns.
    An exception in a notice's place means that nothing was recorded and the provider should send
    it again. `remembered` may know the orders and `recent` the events.
    """
    known = await _remembered_facts(notices, remembered, recent)
    return await _receive_all(database, notices, now, known, again=False)


async def look_again(database: Database, now: datetime) -> int:
    """Look once more at kept notices of payments that were unknown; returns how many were due.

    A notice may be faster than the order it is about. One that stays unknown is looked at ever
    more rarely, and in the end waits for a person.
    """
    kept = (
        await database.notices.find({"lookAgainAt": {"$lte": now}})
        .sort("lookAgainAt", 1)
        .limit(KEPT_PER_RUN_MAX)
        .to_list(KEPT_PER_RUN_MAX)
    )
    for outcome in await _receive_all(
        database, [_kept_notice(document) for document in kept], now, None, again=True
    ):
        if isinstance(outcome, Exception):
            raise outcome
    return len(kept)


async def _receive_all(
    database: Database,
    notices: Sequence[Notice],
    now: datetime,
    known: "_Facts | None",
    *,
    again: bool,
) -> list[Receipt | Exception]:
    outcomes: dict[int, Receipt | Exception] = {}
    waiting = dict(enumerate(notices))
    while waiting:
        # Two notices of one payment, of one order or with one id must see each other's effect, so
        # the second waits for the next group.
        group: dict[int, Notice] = {}
        taken: set[Any] = set()
        for index, notice in waiting.items():
            touched = touches(notice)
            if len(group) < NOTICES_PER_TRANSACTION_MAX and taken.isdisjoint(touched):
                group[index] = notice
                taken |= touched
        for index in group:
            del waiting[index]
        outcomes.update(await _receive_group(database, group, now, known, again=again))
    return [outcomes[index] for index in range(len(notices))]


def touches(notice: Notice) -> set[tuple[str, str]]:
    """What two notices must not touch at once."""
    named = (
        ("payment", notice.payment_id),
        ("order", notice.order_id),
        ("charge", notice.charge),
        ("notice", _notice_id(notice)),
    )
    return {pair for pair in named if pair[1]}


async def _receive_group(
    database: Database,
    group: dict[int, Notice],
    now: datetime,
    known: "_Facts | None",
    *,
    again: bool,
) -> dict[int, Receipt | Exception]:
    try:
        return dict(await _receive_in_one(database, group, now, known, again=again))
    except Exception as error:  # noqa: BLE001
        if not again and (settled := await _read_back(database, group, error)):
            return dict(settled)
        if len(group) > 1 and not mongo.is_outage(error):
            # An error is given only to the notice that causes it, so each is tried alone.
            alone: dict[int, Receipt | Exception] = {}
            for index, notice in group.items():
                alone |= await _receive_group(database, {index: notice}, now, None, again=again)
            return alone
        return dict.fromkeys(group, error)


async def _read_back(
    database: Database, group: dict[int, Notice], error: Exception
) -> dict[int, Receipt] | None:
    """What became of a group whose commit was never answered; None if that can't be told.

    The primary may have died between the commit and its answer. Nothing is decided a second time:
    the notices are there, with what they did, or they are not.
    """
    if not isinstance(error, PyMongoError) or not error.has_error_label(
        "UnknownTransactionCommitResult"
    ):
        return None
    ids = [_notice_id(notice) for notice in group.values()]
    try:
        found = await database.notices.find({"_id": {"$in": ids}}).to_list(len(ids))
        mine = await orders.by_payment(database, [n.payment_id for n in group.values()])
    except PyMongoError:
        return None
    outcomes = {document["_id"]: document["outcome"] for document in found}
    if len(outcomes) < len(group):
        return None
    return {
        index: Receipt(outcomes[_notice_id(notice)], mine.get(notice.payment_id))
        for index, notice in group.items()
    }


async def _receive_in_one(
    database: Database,
    group: dict[int, Notice],
    now: datetime,
    known: "_Facts | None",
    *,
    again: bool,
) -> dict[int, Receipt]:
    # What became of the seats of orders that were paid late, by order. Filled between two runs.
    taken_again: dict[str, datetime | str] = {}

    async def body(session: Session, *, trusting: bool = False) -> dict[int, Receipt]:
        work = Writes(now)
        facts = known if trusting else None
        if facts is None:
            facts = await _read_facts(
                database, group, taken_again, session, trusting=trusting, again=again
            )
        receipts = _decide_all(work, facts, group, again=again)
        if facts is known and any(receipt.outcome != "confirmed" for receipt in receipts.values()):
            # Only a confirmation finds out by its own write that an order is not as remembered.
            raise Stale
        if work.paid_late:
            raise _PaidLate(work.paid_late)
        await work.write(database, session)
        return receipts

    # Nearly all notices are new and nearly all orders are as they were placed and still have their
    # seats, and the writes tell where it is not so: then nothing has happened, and it is done
    # again by what is read.
    if not again:
        with suppress(Stale, BulkWriteError, _PaidLate):
            return await mongo.transaction(database, lambda session: body(session, trusting=True))
    try:
        return await mongo.transaction(database, body)
    except _PaidLate as late:
        for order in late.orders:
            taken_again[order["_id"]] = await _take_again(database, order, now)
        return await mongo.transaction(database, body)


def confirmation(paid: Sequence[tuple[Document, Notice]], now: datetime) -> "Writes":
    """The writes that confirm these orders of events on sale, each with the notice that it is paid.

    They are what `receive` writes where nothing is out of the ordinary; here nothing is read. Made
    with `write` in a transaction.
    """
    work = Writes(now)
    shows = {order["eventId"]: {"status": "published"} for order, _ in paid}
    by_payment = {notice.payment_id: order for order, notice in paid}
    facts = _Facts(set(), by_payment, shows, None, {})
    _decide_all(work, facts, {index: notice for index, (_, notice) in enumerate(paid)}, again=False)
    return work


def _decide_all(
    work: "Writes", facts: "_Facts", group: dict[int, Notice], *, again: bool
) -> dict[int, Receipt]:
    receipts: dict[int, Receipt] = {}
    for index, sent in group.items():
        if _notice_id(sent) in facts.known:
            receipts[index] = Receipt("repeated", None)
            continue
        notice = facts.resolved.get(index, sent)
        order = facts.orders.get(notice.payment_id)
        outcome = "unknown" if order is None else _decide(work, facts, order, notice)
        receipts[index] = Receipt(outcome, order)
        if again:
            work.notice_changes.append(_looked_at(notice, facts, outcome, work.now))
        else:
            work.notices.append(_kept(notice, outcome, work.now))
    return receipts


def _kept(notice: Notice, outcome: str, now: datetime) -> Document:
    """The notice as it is kept, whose unique id lets it in once."""
    kept = {
        "_id": _notice_id(notice),
        "provider": notice.provider,
        "type": notice.type,
        "paymentId": notice.payment_id,
        "orderId": notice.order_id,
        "amount": notice.amount,
        "currency": notice.currency,
        "outcome": outcome,
        "receivedAt": now,
    }
    if outcome == "unknown":
        kept |= {"lookAgainAt": now + LOOK_AGAIN_AFTER, "looks": 0}
    for name, value in (
        ("refundId", notice.refund_id),
        ("charge", notice.charge),
        ("refundRound", notice.refund_round),
    ):
        if value not in ("", None):
            kept[name] = value
    return kept


def _kept_notice(document: Document) -> Notice:
    """The notice as it came."""
    return Notice(
        document["provider"],
        document["_id"].partition(":")[2],
        document["type"],
        document["paymentId"],
        document.get("orderId", ""),
        document["amount"],
        document["currency"],
        document.get("refundId", ""),
        document.get("charge", ""),
        document.get("refundRound"),
    )


def _looked_at(notice: Notice, facts: "_Facts", outcome: str, now: datetime) -> UpdateOne:
    """The write that keeps what became of a kept notice when it was looked at again."""
    waiting = {"_id": _notice_id(notice), "outcome": "unknown"}
    looks = facts.looks.get(_notice_id(notice), 0) + 1
    if outcome != "unknown" or looks >= LOOKS_MAX:
        changes = {"outcome": outcome, "looks": looks}
        return UpdateOne(waiting, {"$set": changes, "$unset": {"lookAgainAt": ""}})
    later = now + back_off.pause(looks)
    return UpdateOne(waiting, {"$set": {"lookAgainAt": later, "looks": looks}})


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

    `orders` are by payment; `seats` is None where each order is trusted to have its own. The last
    four have something in them only where a notice is about more than an order's own payment.
    """

    known: set[str]
    orders: dict[str, Document]
    shows: dict[str, Document]
    seats: dict[str, Document] | None
    taken_again: dict[str, datetime | str]
    payments: dict[str, Document] = field(default_factory=dict)
    refunds: dict[str, Document] = field(default_factory=dict)
    resolved: dict[int, Notice] = field(default_factory=dict)
    looks: dict[str, int] = field(default_factory=dict)

    def seats_of(self, order: Document) -> list[Document]:
        """The order's seats as they are."""
        if self.seats is None:
            held = {"status": "held", "holdId": order["holdId"], "heldUntil": order["expiresAt"]}
            return [{"_id": seat["seatId"], **held} for seat in order["seats"]]
        return [self.seats[seat["seatId"]] for seat in order["seats"]]


async def _remembered_facts(
    notices: Sequence[Notice],
    remembered: orders.Remembered | None,
    recent: events.Recent | None,
) -> _Facts | None:
    """What is known of the orders of these payments without a look at the database, or None.

    An event that was cancelled a moment ago may still be taken for one that is on sale: what is
    confirmed then is refunded by its cancellation, as with a hold.
    """
    if remembered is None or recent is None:
        return None
    placed = remembered.take(notice.payment_id for notice in notices)
    if len(placed) < len(notices) or any(notice.refund_id for notice in notices):
        return None
    shows = await recent.slim({order["eventId"] for order in placed.values()})
    return _Facts(set(), placed, shows, None, {})


async def _read_facts(
    database: Database,
    group: dict[int, Notice],
    taken_again: dict[str, datetime | str],
    session: Session,
    *,
    trusting: bool,
    again: bool,
) -> _Facts:
    ids = [_notice_id(notice) for notice in group.values()]
    kept = {} if trusting else await _known(database, ids, session)
    # One that is looked at again is known of course, and open as long as it is unknown.
    known = {key for key, document in kept.items() if not again or document["outcome"] != "unknown"}
    looks = {key: document.get("looks", 0) for key, document in kept.items()}
    payment_ids = [notice.payment_id for notice in group.values()]
    by_payment = await orders.by_payment(database, payment_ids, session)
    rare = _Facts(known, by_payment, {}, None, taken_again, looks=looks)
    if len(by_payment) < len(payment_ids) or any(notice.refund_id for notice in group.values()):
        await _read_rare(database, group, rare, session)
    if not by_payment:
        return rare
    event_ids = list({order["eventId"] for order in by_payment.values()})
    shows = database.events.find({"_id": {"$in": event_ids}}, {"status": 1}, session=session)
    shows_found = await shows.to_list(len(event_ids))
    return replace(
        rare,
        shows={show["_id"]: show for show in shows_found},
        seats=None if trusting else await _seats_of(database, by_payment.values(), session),
    )


async def _read_rare(
    database: Database, group: dict[int, Notice], facts: _Facts, session: Session
) -> None:
    """Add what notices need that are not about an order's own payment, or are about a refund."""
    by_charge: dict[str, Document] = {}
    charges = [notice.charge for notice in group.values() if notice.charge]
    if charges:
        found = database.payments.find({"charge": {"$in": charges}}, session=session)
        by_charge = {payment["charge"]: payment for payment in await found.to_list(len(charges))}
    for index, notice in group.items():
        if not notice.payment_id and notice.charge in by_charge:
            payment = by_charge[notice.charge]
            facts.resolved[index] = replace(
                notice, payment_id=payment["_id"], order_id=payment["orderId"]
            )
    notices = [facts.resolved.get(index, notice) for index, notice in group.items()]
    payment_ids = [notice.payment_id for notice in notices]
    found = database.payments.find({"_id": {"$in": payment_ids}}, session=session)
    for payment in await found.to_list(len(payment_ids)):
        facts.payments[payment["_id"]] = payment
    refund_ids = [
        refund_id
        for notice in notices
        if notice.refund_id
        for refund_id in (notice.refund_id, refunds.outside_id(notice))
    ]
    if refund_ids:
        found = database.refunds.find({"_id": {"$in": refund_ids}}, session=session)
        for refund in await found.to_list(len(refund_ids)):
            facts.refunds[refund["_id"]] = refund
    order_of = {
        notice.payment_id: facts.payments[notice.payment_id]["orderId"]
        if notice.payment_id in facts.payments
        else notice.order_id
        for notice in notices
        if notice.payment_id and notice.payment_id not in facts.orders
    }
    if order_of:
        named = await orders.by_ids(database, list(set(order_of.values())), session)
        for payment_id, order_id in order_of.items():
            if order_id in named:
                facts.orders[payment_id] = named[order_id]


async def _known(database: Database, ids: list[str], session: Session) -> dict[str, Document]:
    known = database.notices.find(
        {"_id": {"$in": ids}}, {"outcome": 1, "looks": 1}, session=session
    )
    return {document["_id"]: document for document in await known.to_list(len(ids))}


async def _seats_of(
    database: Database, of: Iterable[Document], session: Session
) -> dict[str, Document]:
    ids = [seat["seatId"] for order in of for seat in order["seats"]]
    found = database.seats.find({"_id": {"$in": ids}}, session=session)
    return {seat["_id"]: seat for seat in await found.to_list(len(ids))}


def _notice_id(notice: Notice) -> str:
    return f"{notice.provider}:{notice.notice_id}"


@dataclass
class Writes:
    """The writes of one transaction, gathered so that each collection is written to once."""

    now: datetime
    seats: list[Any] = field(default_factory=list)
    orders: list[Any] = field(default_factory=list)
    payments: list[Any] = field(default_factory=list)
    new_payments: list[Document] = field(default_factory=list)
    refunds: list[Document] = field(default_factory=list)
    refund_changes: list[Any] = field(default_factory=list)
    messages: list[Document] = field(default_factory=list)
    entries: list[Document] = field(default_factory=list)
    notices: list[Document] = field(default_factory=list)
    notice_changes: list[Any] = field(default_factory=list)
    paid_late: list[Document] = field(default_factory=list)

    async def write(self, database: Database, session: Session) -> None:
        """Make all of it happen. Raises Stale if a document is not as it was read."""
        # The notices go first: another delivery of the same that commits before us is a write
        # conflict on the unique id, found before any work is done; the next run sees its effect.
        for collection, documents in (
            (database.notices, self.notices),
            (database.payments, self.new_payments),
            (database.refunds, self.refunds),
            (database.outbox, self.messages),
            (database.ledger, self.entries),
        ):
            if documents:
                await collection.insert_many(documents, session=session)
        for collection, writes in (
            (database.notices, self.notice_changes),
            (database.refunds, self.refund_changes),
            (database.seats, self.seats),
            (database.orders, self.orders),
            (database.payments, self.payments),
        ):
            if writes:
                result = await collection.bulk_write(writes, session=session)
                if result.matched_count != len(writes):
                    raise Stale


class Stale(Exception):
    """A document is not as it was taken to be, or must be looked at first. Where it was read in
    the same snapshot, never seen: the server prevents it."""


async def _read(collection: mongo.Collection, identifier: str, session: Session) -> Document:
    document = await collection.find_one({"_id": identifier}, session=session)
    assert document is not None  # Orders and events are never deleted.
    return document


def _decide(work: Writes, facts: _Facts, order: Document, notice: Notice) -> str:
    """What a notice does to its order; adds the writes to `work` and returns the outcome."""
    about, _, to = notice.type.partition(".")
    if about == "refund":
        return _decide_refund(work, facts, order, notice, to)
    own = order["payment"]
    if own is None or notice.payment_id != own["paymentId"]:
        return _decide_second(work, facts, order, notice)
    if to != "succeeded":
        if own["status"] == to:
            return to
        if not states.allows(states.PAYMENT, own["status"], to):
            return "ignored"
        _settle_payment(work, order, to, charge=notice.charge)
        if to == "failed":
            work.messages.append(_completed(order, to, work.now))
        return to
    if own["status"] == "succeeded":
        return "repeated"
    return _decide_success(work, facts, order, notice)


def _decide_success(work: Writes, facts: _Facts, order: Document, notice: Notice) -> str:
    """What the success of an order's own payment does, the first time it is told."""
    if reason := _mismatch(order, notice):
        if _was_refunded(order, notice) or notice.amount == 0:
            return "repeated"
        if states.allows(states.PAYMENT, order["payment"]["status"], "failed"):
            _settle_payment(work, order, "failed")
        _refund(work, order, notice, reason, kind="stray")
        return "refunded"
    given_outside = _given_back_outside(order)
    if given_outside >= order["total"]:
        # The provider gave the money back before it told us of it.
        _settle_payment(work, order, "succeeded", charge=notice.charge)
        work.entries.append(ledger.stray(order, notice, work.now))
        work.messages.append(_completed(order, "succeeded", work.now))
        _expire(work, order, "paid, but refunded at the provider")
        return "refunded"
    to_sell, reason = _seats_or_reason(work, facts, order)
    if reason is None:
        work.messages.append(_completed(order, "succeeded", work.now))
        _confirm(work, order, to_sell, by="provider", why="paid")
        work.payments.append(payments.settle(order, "succeeded", work.now, charge=notice.charge))
        work.entries.append(ledger.sale(order, work.now, given_outside=given_outside))
        return "confirmed"
    rest = notice.amount - given_outside
    _settle_payment(work, order, "succeeded", refunded=rest, charge=notice.charge)
    work.messages.append(_completed(order, "succeeded", work.now))
    _expire(work, order, f"paid, but {reason}")
    _refund(work, order, notice, reason, given_outside=given_outside)
    return "refunded"


def _decide_second(work: Writes, facts: _Facts, order: Document, notice: Notice) -> str:
    """What a payment does that names an order but is not the one it was to be paid by.

    It confirms nothing, whether the order is paid or waits, and goes back, once.
    """
    if notice.type != "payment.succeeded" or notice.amount == 0:
        return "ignored"
    if notice.payment_id in facts.payments:
        return "repeated"
    work.new_payments.append(payments.unasked(order, notice, work.now))
    _refund(work, order, notice, "another payment for this order", kind="second")
    return "refunded"


def _decide_refund(work: Writes, facts: _Facts, order: Document, notice: Notice, to: str) -> str:
    """What a notice of a refund does; it never touches the order's state, seats or tickets."""
    refund = facts.refunds.get(notice.refund_id) or facts.refunds.get(refunds.outside_id(notice))
    if refund is None:
        if to != "done" or notice.amount == 0:
            return "ignored"
        if notice.payment_id not in facts.payments:
            return "unknown"
        recorded = refunds.recorded(order, notice, work.now)
        if notice.currency == facts.payments[notice.payment_id]["currency"]:
            work.payments.append(payments.given_back_outside(notice.payment_id, notice.amount))
        work.entries.append(ledger.outside(order, recorded, work.now))
        _add_refund(work, order, recorded)
        work.messages.append(refunds.done_message(recorded, work.now))
        return "recorded"
    if refund["status"] == to:
        return "repeated"
    is_of_the_past = notice.refund_round not in (None, refund.get("round", 0))
    if not states.allows(states.REFUND, refund["status"], to) or (
        to == "failed" and is_of_the_past
    ):
        return "ignored"
    own, in_order = refunds.changes(
        refund, to, work.now, problem="the provider reports that it failed"
    )
    work.refund_changes.append(own)
    work.orders.append(in_order)
    work.entries += ledger.moved(refund, to, work.now)
    if to == "done":
        work.messages.append(refunds.done_message(refund, work.now))
    return to


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
    work: Writes, facts: _Facts, order: Document
) -> tuple[list[Document], str | None]:
    """The seats a paid order gets, or why it gets none."""
    if not states.allows(states.ORDER, order["status"], "confirmed"):
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
        refund.get("kind", "stray") == "stray"
        and (refund["amount"], refund["currency"]) == (notice.amount, notice.currency)
        for refund in order["refunds"]
    )


def _given_back_outside(order: Document) -> int:
    """How much of an order's own payment was refunded at the provider's own site.

    Whatever became of it since: one that came back is sent again, by us.
    """
    return sum(
        refund["amount"]
        for refund in order["refunds"]
        if refund.get("kind") == "outside"
        and refund["currency"] == order["currency"]
        and refund["paymentId"] == order["payment"]["paymentId"]
    )


def _settle_payment(
    work: Writes, order: Document, status: str, *, refunded: int = 0, charge: str = ""
) -> None:
    befores = states.befores(states.PAYMENT, status)
    work.orders.append(
        UpdateOne(
            {"_id": order["_id"], "payment.status": {"$in": befores}},
            {"$set": {"payment.status": status}},
        )
    )
    work.payments.append(payments.settle(order, status, work.now, refunded=refunded, charge=charge))


def _expire(work: Writes, order: Document, why: str) -> None:
    """End an order that waits, though it was paid."""
    if order["status"] != "pendingPayment":
        return
    work.orders.append(orders.change(order, "expired", why=why, by="system", now=work.now))
    work.messages.append(orders.expired_message(order, why, work.now))


def _refund(
    work: Writes,
    order: Document,
    notice: Notice,
    reason: str,
    *,
    kind: str = "order",
    given_outside: int = 0,
) -> None:
    """Give back what a notice told of, and which bought nothing.

    `given_outside` of it has gone back already at the provider's own site.
    """
    work.entries.append(ledger.stray(order, notice, work.now))
    refund = refunds.new(
        order,
        payment_id=notice.payment_id,
        amount=notice.amount - given_outside,
        currency=notice.currency,
        reason=reason,
        now=work.now,
        kind=kind,
    )
    _add_refund(work, order, refund)


def _add_refund(work: Writes, order: Document, refund: Document, by: str = "system") -> None:
    work.refunds.append(refund)
    entry = {"at": work.now, "what": "refund", "by": by, "why": refund["reason"]}
    work.orders.append(
        UpdateOne(
            {"_id": order["_id"]},
            {
                "$push": {
                    "refunds": refunds.shown(refund),
                    "history": {"$each": [entry], "$slice": -orders.HISTORY_MAX},
                }
            },
        )
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
    work: Writes, order: Document, to_sell: Sequence[Document], *, by: str, why: str
) -> None:
    issued = tickets.issue(order)
    also: Document = {"tickets": issued, "confirmedAt": work.now}
    if order["payment"]:
        also["payment.status"] = "succeeded"
    work.seats += [seats.sale(order["_id"], seat) for seat in to_sell]
    # An order that is remembered, and not read in this snapshot, may have been refunded outside.
    only_if: Document = {} if order["refunds"] else {"refunds": []}
    work.orders.append(
        orders.change(order, "confirmed", why=why, by=by, now=work.now, also=also, only_if=only_if)
    )
    work.messages.append(
        outbox.message(
            "order.confirmed",
            order["eventId"],
            order["_id"],
            {"ticketIds": [ticket["ticketId"] for ticket in issued]},
            work.now,
        )
    )


# --- Cancelling and refunding --------------------------------------------------------------------


async def cancel(database: Database, order_id: str, fan_id: str, *, now: datetime) -> Document:
    """Cancel an order: its seats are on sale again, its tickets void, what was paid goes back.

    Returns the order. Raises NotFound, or OrderState for one that is cancelled or expired.
    """

    async def body(session: Session) -> None:
        order = await database.orders.find_one({"_id": order_id, "fanId": fan_id}, session=session)
        if order is None:
            raise NotFound("There is no such order.")
        await cancel_in(
            database, session, order, by=fan_id, why="asked for by the fan", cause="fan", now=now
        )

    await mongo.transaction(database, body)
    return await orders.find(database, order_id, fan_id)


async def cancel_in(
    database: Database,
    session: Session,
    order: Document,
    *,
    by: str,
    why: str,
    cause: Literal["fan", "event"],
    now: datetime,
) -> int:
    """Cancel an order as it was read in this transaction; returns how much goes back.

    `why` is for its history; `cause` is what its message says.

    Raises OrderState for one that is cancelled or expired.
    """
    work = Writes(now)
    if not states.allows(states.ORDER, order["status"], "cancelled"):
        raise OrderState(order["status"], f"The order is {order['status']} already.")
    work.orders.append(
        orders.change(
            order,
            "cancelled",
            why=why,
            by=by,
            now=now,
            also={"tickets": tickets.void(order), "cancelledAt": now},
        )
    )
    if order["status"] == "confirmed":
        await seats.give_back(database, order["_id"], session)
    else:
        # By the very hold it was made of: the same key may have made another one since.
        await seats.let_go(
            database,
            [order["holdId"]],
            "released",
            held_until=order["expiresAt"],
            session=session,
        )
    amount = _left_of(order)
    if amount:
        _give_back(work, order, amount, "the order was cancelled", by)
    work.messages.append(
        outbox.message("order.cancelled", order["eventId"], order["_id"], {"reason": cause}, now)
    )
    await work.write(database, session)
    return amount


def _left_of(order: Document) -> int:
    """How much of what an order's own payment brought is still with us."""
    if not order["payment"] or order["payment"]["status"] != "succeeded":
        return 0
    lines = sum(line["amount"] for line in order.get("refundedLines", []))
    # What came in late went back whole, with its notice.
    whole = sum(
        refund["amount"]
        for refund in order["refunds"]
        if refund.get("kind") == "order" and refund["paymentId"] == order["payment"]["paymentId"]
    )
    left: int = order["total"] - lines - whole - _given_back_outside(order)
    return max(left, 0)


def _give_back(
    work: Writes,
    order: Document,
    amount: int,
    reason: str,
    by: str,
    *,
    kind: str = "order",
    refund_id: str | None = None,
    lines: Sequence[Document] = (),
) -> None:
    """Refund so much of an order's own payment, within what was paid."""
    payment_id = order["payment"]["paymentId"]
    work.payments.append(payments.give_back(payment_id, order["total"], amount))
    refund = refunds.new(
        order,
        payment_id=payment_id,
        amount=amount,
        currency=order["currency"],
        reason=reason,
        now=work.now,
        kind=kind,
        refund_id=refund_id,
        lines=lines,
    )
    work.entries.append(ledger.refund(order, refund, work.now))
    _add_refund(work, order, refund, by)


@dataclass(frozen=True)
class LineRefund:
    """A wish to give back the money of some seats of an order, and with `frees` the seats too.

    `key` is the Idempotency-Key.
    """

    order_id: str
    seat_ids: tuple[str, ...]
    by: str
    reason: str = "some seats were cancelled"
    frees: bool = True
    key: str | None = None

    @property
    def refund_id(self) -> str:
        """The refund it makes: the same one for the same key, else for the same seats."""
        asked = ("key", self.key) if self.key else ("seats", *sorted(self.seat_ids))
        return identifiers.derived("rfd", self.order_id, *asked)


async def refund_lines(database: Database, wanted: LineRefund, *, now: datetime) -> Document:
    """Refund some seats of a confirmed order; the rest of it stays valid. Returns the order.

    A seat is refunded once. Where no seat is left the whole order is cancelled. Raises Invalid for
    seats that are not the order's, OrderState for an order that is not confirmed or a seat that
    was refunded before, IdempotencyKeyReused, NotFound.
    """

    async def body(session: Session) -> None:
        order = await database.orders.find_one({"_id": wanted.order_id}, session=session)
        if order is None:
            raise NotFound("There is no such order.")
        made = await database.refunds.find_one({"_id": wanted.refund_id}, session=session)
        if made is not None and wanted.key:
            if [line["seatId"] for line in made.get("lines", [])] != list(wanted.seat_ids):
                raise IdempotencyKeyReused("This key has refunded other seats.")
            return
        await _refund_lines_in(database, session, order, wanted, now)

    await mongo.transaction(database, body)
    return await _order(database, wanted.order_id)


async def _order(database: Database, order_id: str) -> Document:
    order: Document | None = await database.orders.find_one({"_id": order_id})
    assert order is not None  # Orders are never deleted.
    return order


async def _refund_lines_in(
    database: Database, session: Session, order: Document, wanted: LineRefund, now: datetime
) -> None:
    lines = _lines(order, wanted)
    amount = sum(line["amount"] for line in lines)
    work = Writes(now)
    freed = {line["seatId"] for line in order.get("refundedLines", []) if line["freed"]}
    if wanted.frees:
        freed |= set(wanted.seat_ids)
        await seats.give_back(database, order["_id"], session, among=wanted.seat_ids)
    if amount:
        _give_back(
            work,
            order,
            amount,
            wanted.reason,
            wanted.by,
            kind="lines",
            refund_id=wanted.refund_id,
            lines=lines,
        )
    changes: Document = {"$push": {"refundedLines": {"$each": lines}}}
    if wanted.frees:
        changes["$set"] = {
            "tickets": [
                {**ticket, "status": "void"} if ticket["seatId"] in freed else ticket
                for ticket in order["tickets"]
            ]
        }
    work.orders.append(UpdateOne({"_id": order["_id"], "status": "confirmed"}, changes))
    if len(freed) == len(order["seats"]):
        work.orders.append(
            orders.change(
                order,
                "cancelled",
                why="all of its seats were refunded",
                by=wanted.by,
                now=now,
                also={"cancelledAt": now},
            )
        )
        work.messages.append(
            outbox.message("order.cancelled", order["eventId"], order["_id"], {}, now)
        )
    await work.write(database, session)


def _lines(order: Document, wanted: LineRefund) -> list[Document]:
    """The lines to refund; raises what is against it."""
    mine = {seat["seatId"]: seat for seat in order["seats"]}
    foreign = [
        (f"seatIds[{index}]", "is not a seat of this order")
        for index, seat_id in enumerate(wanted.seat_ids)
        if seat_id not in mine
    ]
    if foreign:
        raise Invalid(foreign)
    if order["status"] != "confirmed":
        raise OrderState(order["status"], f"The order is {order['status']}.")
    before = {line["seatId"] for line in order.get("refundedLines", [])}
    if before & set(wanted.seat_ids):
        raise OrderState(order["status"], "A seat of these was refunded before.")
    lines = []
    left = _left_of(order)
    for seat_id in wanted.seat_ids:
        # Less than the price only where somebody gave money back at the provider's own site.
        amount = min(mine[seat_id]["price"], left)
        left -= amount
        lines.append(
            {
                "seatId": seat_id,
                "section": mine[seat_id]["section"],
                "amount": amount,
                "freed": wanted.frees,
            }
        )
    return lines
