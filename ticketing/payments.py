"""A payment is an attempt to collect an order's total. Its states are in `states.PAYMENT`.

`refunded` is how much of it has been given back or is on its way, so that a refund is one
compare-and-set away from being too much. `lookUpAt` is when the provider is to be asked about it
if no notice has come by then; without it nobody asks.
"""

from datetime import datetime, timedelta
from typing import Any

from pymongo import UpdateOne

from ticketing import gateway, states
from ticketing.errors import NotFound
from ticketing.mongo import Database, Document

LOOK_UP_AFTER = timedelta(seconds=60)


async def find(database: Database, payment_id: str) -> Document:
    """The payment. Raises NotFound."""
    payment = await database.payments.find_one({"_id": payment_id})
    if payment is None:
        raise NotFound("There is no such payment.")
    return payment


def new(order: Document) -> Document:
    """The payment to insert for an order that has one."""
    return {
        "_id": order["payment"]["paymentId"],
        "orderId": order["_id"],
        "eventId": order["eventId"],
        "fanId": order["fanId"],
        "provider": order["payment"].get("provider", gateway.SANDBOX),
        "amount": order["total"],
        "currency": order["currency"],
        "createdAt": order["createdAt"],
        "status": "created",
        "lookUpAt": order["createdAt"] + LOOK_UP_AFTER,
    }


def unasked(order: Document, notice: gateway.Notice, now: datetime) -> Document:
    """A payment that nobody asked for, though it names an order: all of it goes back."""
    return {
        "_id": notice.payment_id,
        "orderId": order["_id"],
        "eventId": order["eventId"],
        "fanId": order["fanId"],
        "provider": notice.provider,
        "amount": notice.amount,
        "currency": notice.currency,
        "status": "succeeded",
        "createdAt": now,
        "settledAt": now,
        "refunded": notice.amount,
        **({"charge": notice.charge} if notice.charge else {}),
    }


def settle(
    order: Document, status: str, now: datetime, *, refunded: int = 0, charge: str = ""
) -> UpdateOne:
    """The write that records what became of an order's payment, from a state that allows it.

    It matches nothing where the payment is in another state.
    """
    changes: Document = {"status": status, "settledAt": now}
    if charge:
        changes["charge"] = charge
    update: Document = {"$set": changes}
    if status == "succeeded":
        update["$unset"] = {"lookUpAt": ""}
    if refunded:
        update["$inc"] = {"refunded": refunded}
    return UpdateOne(
        {
            "_id": order["payment"]["paymentId"],
            "status": {"$in": states.befores(states.PAYMENT, status)},
        },
        update,
    )


def give_back(payment_id: str, paid: int, amount: int) -> UpdateOne:
    """The write that sets aside so much of a payment for a refund; never more than was paid.

    It matches nothing where that would be too much, whoever else gives back at the same time.
    """
    return UpdateOne(
        {
            "_id": payment_id,
            "status": "succeeded",
            "$or": [{"refunded": {"$lte": paid - amount}}, {"refunded": {"$exists": False}}],
        },
        {"$inc": {"refunded": amount}},
    )


def given_back_outside(payment_id: str, amount: int) -> UpdateOne:
    """The write that counts a refund somebody made at the provider's own site: it is a fact."""
    return UpdateOne({"_id": payment_id}, {"$inc": {"refunded": amount}})


async def started(
    database: Database, payment_id: str, begun: gateway.Started, provider: str
) -> None:
    """Remember where the provider lets the fan pay, and by what name it knows the payment."""
    kept: dict[str, Any] = {"provider": provider, "reference": begun.reference, "url": begun.url}
    await database.payments.update_one({"_id": payment_id}, {"$set": kept})
