"""A refund gives back money of one payment. It is a document of its own, shown inside its order.

Its states are in `states.REFUND`. It is written in the transaction that causes it and sent to the
provider afterwards: nothing in a transaction waits for a provider, and a crash in between loses
nothing. `dueAt` is when something is to be done about it next: sent, tried again, or asked about.
It is pushed into the future before the provider is called, so one worker at a time has a refund,
and one that dies with it strands it for LEASE only. After ATTEMPTS_MAX the refund has `givenUpAt`
and no `dueAt`: it waits for a person.

Kinds: `order` (all that is left of an order), `lines` (some seats of one), `stray` (another amount
or currency than was asked for), `second` (a payment that nobody asked for), `outside` (made at the
provider's own site, only recorded here).
"""

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from pymongo import ReturnDocument, UpdateOne
from pymongo.errors import PyMongoError

from ticketing import back_off, identifiers, ledger, mongo, outbox, pages, states
from ticketing.errors import NotFound, Refusal
from ticketing.gateway import Notice, Provider, Refunded
from ticketing.mongo import Database, Document, Session
from ticketing.pages import Page
from ticketing.states import OrderState
from ticketing.telemetry.logs import named

SENT_PER_RUN_MAX = 100
SENT_AT_ONCE_MAX = 8
ATTEMPTS_MAX = 10
LEASE = timedelta(seconds=60)
# How long the provider may take over a refund it has accepted before it is asked about it.
ASK_AGAIN = timedelta(hours=1)

log = logging.getLogger("ticketing.refunds")


class Named(Protocol):
    """Knows the providers by their names."""

    def named(self, name: str) -> Provider:
        """The provider of that name. Raises NotFound."""


def new(
    order: Document,
    *,
    payment_id: str,
    amount: int,
    currency: str,
    reason: str,
    now: datetime,
    kind: str = "order",
    refund_id: str | None = None,
    lines: Sequence[Document] = (),
) -> Document:
    """A refund to insert into `refunds` in the transaction that causes it."""
    refund = {
        "_id": refund_id or identifiers.fresh("rfd"),
        "kind": kind,
        "paymentId": payment_id,
        "orderId": order["_id"],
        "eventId": order["eventId"],
        "amount": amount,
        "currency": currency,
        "status": "created",
        "from": None,
        "reason": reason,
        "createdAt": now,
        "dueAt": now,
        "attempts": 0,
        "round": 0,
    }
    if lines:
        refund["lines"] = list(lines)
    return refund


def recorded(order: Document, notice: Notice, now: datetime) -> Document:
    """A refund that somebody made at the provider's own site."""
    refund = new(
        order,
        payment_id=notice.payment_id,
        amount=notice.amount,
        currency=notice.currency,
        reason="refunded at the provider",
        now=now,
        kind="outside",
        refund_id=outside_id(notice),
    )
    del refund["dueAt"]
    return refund | {"status": "done", "from": "created", "doneAt": now}


def outside_id(notice: Notice) -> str:
    """What a refund that was made at the provider's own site is called here."""
    return identifiers.derived("rfd", notice.provider, notice.refund_id)


def shown(refund: Document) -> Document:
    """The refund as its order shows it."""
    return {
        "refundId": refund["_id"],
        "kind": refund["kind"],
        "paymentId": refund["paymentId"],
        "amount": refund["amount"],
        "currency": refund["currency"],
        "status": refund["status"],
        "reason": refund["reason"],
    }


def changes(
    refund: Document, to: str, now: datetime, *, problem: str = ""
) -> tuple[UpdateOne, UpdateOne]:
    """The writes that move a refund, as it was read, and what its order shows of it.

    Raises OrderState for a change that is not allowed.
    """
    states.check(states.REFUND, refund["status"], to)
    moved: Document = {"status": to, "from": refund["status"]}
    gone: Document = {}
    match to:
        case "done":
            moved["doneAt"] = now
            gone = {"dueAt": "", "givenUpAt": "", "problem": ""}
        case "sent":
            moved["dueAt"] = now + ASK_AGAIN
        case "failed":
            moved |= _tried_again(refund, problem, now)
    update: Document = {"$set": moved}
    if to == "failed":
        # The provider has said no: what is sent next is another request to it.
        update["$inc"] = {"round": 1}
        if refund.get("attempts", 0) >= ATTEMPTS_MAX:
            gone = {"dueAt": ""}
    if gone:
        update["$unset"] = gone
    return (
        UpdateOne({"_id": refund["_id"], "status": refund["status"]}, update),
        UpdateOne(
            {"_id": refund["orderId"], "refunds.refundId": refund["_id"]},
            {"$set": {"refunds.$.status": to}},
        ),
    )


def _tried_again(refund: Document, problem: str, now: datetime) -> Document:
    """When a refund that did not go through is tried again, or that it waits for a person."""
    attempts = refund.get("attempts", 0)
    if attempts >= ATTEMPTS_MAX:
        return {"problem": problem, "givenUpAt": now}
    return {"problem": problem, "dueAt": now + back_off.pause(max(attempts, 1))}


def done_message(refund: Document, now: datetime) -> Document:
    """What is told of money that has gone back."""
    body = {
        "refundId": refund["_id"],
        "paymentId": refund["paymentId"],
        "amount": refund["amount"],
        "currency": refund["currency"],
    }
    return outbox.message("refund.done", refund["eventId"], refund["orderId"], body, now)


# --- Sending -------------------------------------------------------------------------------------


async def send_due(database: Database, providers: Named, now: datetime) -> int:
    """Send, or ask about, refunds whose time has come; returns how many there were.

    Run by any number of workers at once. Several are on their way side by side, each with the
    provider's time limit, so one that hangs or fails holds up none of the others.
    """
    due = (
        await database.refunds.find({"dueAt": {"$lte": now}}, {"_id": 1})
        .sort("dueAt", 1)
        .limit(SENT_PER_RUN_MAX)
        .to_list(SENT_PER_RUN_MAX)
    )
    gate = asyncio.Semaphore(SENT_AT_ONCE_MAX)

    async def one(refund_id: str) -> None:
        async with gate:
            try:
                await _send(database, providers, refund_id, now)
            # Its lease ends by itself and it is tried again; the others are not its fault.
            except PyMongoError as error:
                log.warning("What became of refund %s is not kept yet: %s", refund_id, named(error))
            except Exception:
                log.exception("What became of refund %s could not be kept", refund_id)

    await asyncio.gather(*(one(refund["_id"]) for refund in due))
    return len(due)


async def _send(database: Database, providers: Named, refund_id: str, now: datetime) -> None:
    refund = await database.refunds.find_one_and_update(
        {"_id": refund_id, "dueAt": {"$lte": now}},
        {"$set": {"dueAt": now + LEASE}, "$inc": {"attempts": 1}},
        return_document=ReturnDocument.AFTER,
    )
    if refund is None:
        return
    payment = await database.payments.find_one({"_id": refund["paymentId"]})
    assert payment is not None  # A refund is written with or after its payment.
    try:
        answer = await _ask(providers.named(payment["provider"]), payment, refund)
    except Refusal as error:
        # Down, or no provider that is set up here any more.
        await _not_answered(database, refund, error.detail, now)
        return
    except Exception as error:
        log.exception("Refund %s could not be asked for", refund_id)
        await _not_answered(database, refund, f"a fault of ours: {type(error).__name__}", now)
        return
    await _answered(database, refund, answer, now)


async def _ask(provider: Provider, payment: Document, refund: Document) -> Refunded:
    # What was sent before may have arrived though its answer did not: then it is looked up, since
    # a provider forgets after a day which requests it has seen.
    if refund["status"] == "sent" or refund["attempts"] > 1:
        known = await provider.find_refund(payment, refund)
        if known is not None:
            return known
        if refund["status"] == "sent":
            return Refunded("failed", "The provider does not know the refund any more.")
    return await provider.refund(payment, refund)


async def _not_answered(database: Database, refund: Document, problem: str, now: datetime) -> None:
    """The outcome is not known, so the state stays; tried again by the same ids, then given up."""
    again = _tried_again(refund, problem, now)
    update: Document = {"$set": again}
    if "dueAt" not in again:
        update["$unset"] = {"dueAt": ""}
    await database.refunds.update_one({"_id": refund["_id"], "status": refund["status"]}, update)


async def _answered(database: Database, refund: Document, answer: Refunded, now: datetime) -> None:
    if answer.status == refund["status"] and answer.status == "sent":
        await database.refunds.update_one(
            {"_id": refund["_id"], "status": "sent"}, {"$set": {"dueAt": now + ASK_AGAIN}}
        )
        return
    if answer.status == refund["status"] == "failed":
        await _refused_again(database, refund, answer, now)
        return
    own, in_order = changes(refund, answer.status, now, problem=answer.reason)

    async def body(session: Session) -> None:
        # A notice may have told us meanwhile; then it has done all this.
        moved = await database.refunds.bulk_write([own], session=session)
        if moved.matched_count == 0:
            return
        await database.orders.bulk_write([in_order], session=session)
        for entry in ledger.moved(refund, answer.status, now):
            await database.ledger.insert_one(entry, session=session)
        if answer.status == "done":
            await database.outbox.insert_one(done_message(refund, now), session=session)

    await mongo.transaction(database, body)


async def _refused_again(
    database: Database, refund: Document, answer: Refunded, now: datetime
) -> None:
    again = _tried_again(refund, answer.reason, now)
    update: Document = {"$set": again, "$inc": {"round": 1}}
    if "dueAt" not in again:
        update["$unset"] = {"dueAt": ""}
        log.error("Refund %s needs a person: %s", refund["_id"], answer.reason)
    await database.refunds.update_one({"_id": refund["_id"], "status": "failed"}, update)


# --- For a person --------------------------------------------------------------------------------


async def listing(
    database: Database,
    event_id: str,
    *,
    limit: int,
    status: str | None = None,
    given_up: bool = False,
    cursor: str | None = None,
) -> Page:
    """An event's refunds, newest first; only those that wait for a person with `given_up`."""
    filter_: Document = {"eventId": event_id}
    if status is not None:
        filter_["status"] = status
    if given_up:
        filter_["givenUpAt"] = {"$exists": True}
    if position := pages.decode(cursor, "refunds"):
        filter_["createdAt"] = {"$lte": position.instant}
        filter_["$or"] = [
            {"createdAt": {"$lt": position.instant}},
            {"_id": {"$lt": position.identifier}},
        ]
    found = database.refunds.find(filter_).sort([("createdAt", -1), ("_id", -1)])
    return pages.cut(await found.limit(limit + 1).to_list(limit + 1), limit, "refunds", "createdAt")


async def totals(database: Database, event_id: str) -> dict[str, int]:
    """How many of an event's refunds are in each state."""
    counts = dict.fromkeys(states.REFUND, 0)
    for group in await mongo.aggregate(
        database.refunds,
        [{"$match": {"eventId": event_id}}, {"$group": {"_id": "$status", "count": {"$sum": 1}}}],
        length=len(counts),
    ):
        counts[group["_id"]] = group["count"]
    return counts


async def find(database: Database, refund_id: str) -> Document:
    """The refund. Raises NotFound."""
    refund = await database.refunds.find_one({"_id": refund_id})
    if refund is None:
        raise NotFound("There is no such refund.")
    return refund


async def try_again(database: Database, refund_id: str, now: datetime) -> Document:
    """Have a refund that was given up sent again, with all its attempts before it.

    Raises NotFound, or OrderState for one that has not been given up.
    """
    updates: Any = {"$set": {"dueAt": now, "attempts": 1}, "$unset": {"givenUpAt": ""}}
    again: Document | None = await database.refunds.find_one_and_update(
        {"_id": refund_id, "givenUpAt": {"$exists": True}},
        updates,
        return_document=ReturnDocument.AFTER,
    )
    if again is None:
        refund = await find(database, refund_id)
        raise OrderState(refund["status"], "The refund does not wait for a person.")
    return again
