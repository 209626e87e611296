"""A refund gives back money of one payment. It is a document of its own, shown inside its order.

    created → done

It is written in the transaction that causes it and sent to the provider afterwards: nothing in a
transaction waits for a provider, and a crash in between loses nothing.
"""

from datetime import datetime
from typing import Any

from ticketing import identifiers, mongo
from ticketing.mongo import Database, Document, Session

SENT_PER_RUN_MAX = 100


def new(
    order: Document, *, payment_id: str, amount: int, currency: str, reason: str, now: datetime
) -> Document:
    """A refund to insert into `refunds` in the transaction that causes it."""
    return {
        "_id": identifiers.fresh("rfd"),
        "paymentId": payment_id,
        "orderId": order["_id"],
        "eventId": order["eventId"],
        "amount": amount,
        "currency": currency,
        "status": "created",
        "from": None,
        "reason": reason,
        "createdAt": now,
    }


def shown(refund: Document) -> Document:
    """The refund as its order shows it."""
    return {
        "refundId": refund["_id"],
        "amount": refund["amount"],
        "currency": refund["currency"],
        "status": refund["status"],
        "reason": refund["reason"],
    }


async def send_due(database: Database, now: datetime) -> int:
    """Send refunds that wait to be sent; returns how many were done.

    The sandbox has no money, so it accepts a refund by our writing it down. Run by any number of
    workers at once: of two, one finds the refund in `created`.
    """
    due = (
        await database.refunds.find({"status": "created"})
        .sort("createdAt", 1)
        .limit(SENT_PER_RUN_MAX)
        .to_list(SENT_PER_RUN_MAX)
    )
    done = 0
    for refund in due:
        done += await _finish(database, refund, now)
    return done


async def _finish(database: Database, refund: Document, now: datetime) -> bool:
    async def body(session: Session) -> bool:
        finished = await database.refunds.update_one(
            {"_id": refund["_id"], "status": "created"},
            {"$set": {"status": "done", "from": "created", "doneAt": now}},
            session=session,
        )
        if finished.modified_count == 0:
            return False
        shown_in: dict[str, Any] = {"_id": refund["orderId"], "refunds.refundId": refund["_id"]}
        await database.orders.update_one(
            shown_in, {"$set": {"refunds.$.status": "done"}}, session=session
        )
        return True

    return await mongo.transaction(database, body)
