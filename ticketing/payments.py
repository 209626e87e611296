"""A payment is an attempt to collect an order's total.

created → failed → succeeded        (a declined fan may try again)
created → succeeded                 (for good: a `failed` that arrives later changes nothing)
"""

from datetime import datetime
from typing import Any

from pymongo import UpdateOne

from ticketing.errors import NotFound
from ticketing.mongo import Database, Document


async def find(database: Database, payment_id: str) -> Document:
    """The payment. Raises NotFound."""
    payment = await database.payments.find_one({"_id": payment_id})
    if payment is None:
        raise NotFound("There is no such payment.")
    return payment


def settle(order: Document, status: str, now: datetime) -> UpdateOne:
    """The write that records what became of an order's payment; success is never taken back.

    It makes the payment where a crash after the order's insert left none.
    """
    made: dict[str, Any] = {
        "orderId": order["_id"],
        "eventId": order["eventId"],
        "fanId": order["fanId"],
        "provider": "sandbox",
        "amount": order["total"],
        "currency": order["currency"],
        "createdAt": order["createdAt"],
    }
    return UpdateOne(
        {"_id": order["payment"]["paymentId"]},
        {"$set": {"status": status, "settledAt": now}, "$setOnInsert": made},
        upsert=True,
    )
