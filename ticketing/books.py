"""Whether the ledger says what orders, payments, refunds and the provider's own books say.

An event's purchases are read some at a time, and its ledger is summed on the server, so it takes
no more memory for a large sale than for a small one. All is read as of one moment.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import datetime

from bson.timestamp import Timestamp

from ticketing import fees, ledger, mongo
from ticketing.mongo import Database, Document

ORDERS_PER_READ = 1_000
RULES = (
    "a ledger entry sums to zero",
    "the ledger says what orders, payments and refunds say",
    "the provider took what was paid",
    "the provider gave back no more than was asked for",
    "the provider gave back what has gone back",
)

# Amounts by currency and what became of the money.
Flows = Counter[tuple[str, str]]

# The name of a rule that does not hold, and where.
Broken = tuple[str, str]

_ORDER_FIELDS = (
    *("status", "total", "currency", "payment", "refunds", "confirmedAt", "createdAt"),
    *("seats.seatId", "seats.price", "seats.fee", "refundedLines"),
)


@dataclass(frozen=True)
class Purchases:
    """Some orders with their payments, the refunds of these, and what the sandbox knows of them."""

    orders: list[Document]
    payments: list[Document]
    refunds: list[Document]
    at_sandbox: list[Document]


async def purchases(
    database: Database, event_id: str, moment: Timestamp
) -> AsyncIterator[Purchases]:
    """All purchases of an event, some at a time."""
    place: tuple[datetime, str] | None = None
    while True:
        orders = await mongo.aggregate_at(
            database,
            "orders",
            [
                {"$match": _from(event_id, place)},
                {"$sort": {"createdAt": -1, "_id": -1}},
                {"$limit": ORDERS_PER_READ},
                {"$project": dict.fromkeys(_ORDER_FIELDS, 1)},
            ],
            moment,
        )
        if orders:
            yield await _with_their_money(database, orders, moment)
        if len(orders) < ORDERS_PER_READ:
            return
        place = orders[-1]["createdAt"], orders[-1]["_id"]


def _from(event_id: str, place: tuple[datetime, str] | None) -> Document:
    if place is None:
        return {"eventId": event_id}
    at, identifier = place
    before = [{"createdAt": {"$lt": at}}, {"_id": {"$lt": identifier}}]
    return {"eventId": event_id, "createdAt": {"$lte": at}, "$or": before}


async def _with_their_money(
    database: Database, orders: list[Document], moment: Timestamp
) -> Purchases:
    async def named(collection: str, field: str, values: set[str]) -> list[Document]:
        matching = {"$match": {field: {"$in": sorted(values)}}}
        return await mongo.aggregate_at(database, collection, [matching], moment)

    payments = await named("payments", "orderId", {order["_id"] for order in orders})
    payment_ids = {payment["_id"] for payment in payments}
    # Also of payments that are not there, so that their refunds are seen.
    payment_ids |= {order["payment"]["paymentId"] for order in orders if order["payment"]}
    payment_ids |= {refund["paymentId"] for order in orders for refund in order["refunds"]}
    refunds = await named("refunds", "paymentId", payment_ids)
    at_sandbox = await named("sandbox_payments", "_id", payment_ids)
    return Purchases(orders, payments, refunds, at_sandbox)


async def refund_count(database: Database, event_id: str, moment: Timestamp) -> int:
    """How many refunds name the event."""
    counting: list[Document] = [{"$match": {"eventId": event_id}}, {"$count": "count"}]
    counted = await mongo.aggregate_at(database, "refunds", counting, moment)
    return int(counted[0]["count"]) if counted else 0


# --- The ledger ----------------------------------------------------------------------------------


async def ledger_differences(
    database: Database, event_id: str, expected: Flows, moment: Timestamp
) -> list[Broken]:
    """Where the event's ledger does not balance or is not what is expected by the documents."""
    unbalanced = await mongo.aggregate_at(database, "ledger", ledger.unbalanced(event_id), moment)
    broken = [("a ledger entry sums to zero", str(entry["_id"])) for entry in unbalanced]
    rows = await mongo.aggregate_at(database, "ledger", ledger.summed([event_id]), moment)
    entered = _entered(ledger.sums(rows))
    return broken + [
        (
            "the ledger says what orders, payments and refunds say",
            f"{event_id}: {' '.join(key)} {entered[key]}, by the documents {expected[key]}",
        )
        for key in sorted(entered.keys() | expected.keys())
        if entered[key] != expected[key]
    ]


def _entered(sums: list[ledger.Sum]) -> Flows:
    flows: Flows = Counter()
    for each in sums:
        currency, amount = each.currency, each.amount
        match each.cause, each.account:
            case "sale", "provider":
                flows[currency, "sold"] += amount
                flows[currency, "came in"] += amount
            case "stray", "provider":
                flows[currency, "came in"] += amount
            case _, "provider":
                flows[currency, "went out"] -= amount
            case "refund", "fans":
                flows[currency, "refunded"] -= amount
            case "sale", "fees":
                flows[currency, "fees taken"] -= amount
            case _, "fees":
                flows[currency, "fees given back"] += amount
        if each.account in ("organiser", "fees"):
            flows[currency, "earned"] -= amount
    return flows


def by_documents(some: Purchases) -> Flows:
    """What the ledger should say of these."""
    flows = _of_payments(some.payments, some.refunds)
    sold = {order["_id"]: order for order in some.orders if "confirmedAt" in order}
    for order in sold.values():
        flows[order["currency"], "sold"] += order["total"]
        flows[order["currency"], "fees taken"] += fees.of_order(order)
        flows[order["currency"], "earned"] += ledger.left_of_sale(order)
    for refund in some.refunds:
        # What came for an order that was never confirmed goes back, but was no sale.
        if refund["orderId"] in sold and refund.get("kind") in ("order", "lines"):
            back = fees.back_with(sold[refund["orderId"]], refund)
            flows[refund["currency"], "refunded"] += refund["amount"]
            flows[refund["currency"], "fees given back"] += back
    return flows


def _of_payments(payments: list[Document], refunds: list[Document]) -> Flows:
    flows: Flows = Counter()
    for payment in payments:
        if payment["status"] == "succeeded":
            flows[payment["currency"], "came in"] += payment["amount"]
    for refund in refunds:
        # A stray charge is no payment of ours; all there is of it is that it goes back.
        if refund.get("kind") == "stray":
            flows[refund["currency"], "came in"] += refund["amount"]
        if refund["status"] == "done":
            flows[refund["currency"], "went out"] += refund["amount"]
    return flows


# --- The provider --------------------------------------------------------------------------------


def provider_differences(some: Purchases) -> Iterator[Broken]:
    """Where the sandbox's own books say something else of the payments that both know.

    What is on its way between the two is no difference: a notice that was not delivered yet, a
    refund whose answer was lost.
    """
    ours = {payment["_id"]: payment for payment in some.payments}
    asked: Counter[str] = Counter()
    gone: Counter[str] = Counter()
    for refund in some.refunds:
        # A round more for each time that the money came back.
        asked[refund["paymentId"]] += refund["amount"] * (refund.get("round", 0) + 1)
        if refund["status"] == "done" and refund.get("kind") != "outside":
            gone[refund["paymentId"]] += refund["amount"]
    for theirs in some.at_sandbox:
        payment_id = theirs["_id"]
        known = ours.get(payment_id)
        # What it was only told of by a notice made by hand it has never taken.
        is_paid = known is not None and known["status"] == "succeeded"
        if known and is_paid and not theirs.get("isHearsay") and not _is_same(known, theirs):
            yield "the provider took what was paid", payment_id
        if theirs["refunded"] > asked[payment_id]:
            yield "the provider gave back no more than was asked for", payment_id
        if theirs["refunded"] < gone[payment_id]:
            yield "the provider gave back what has gone back", payment_id


def _is_same(payment: Document, theirs: Document) -> bool:
    """Whether a payment that succeeded did so at the provider, with the same amount."""
    return bool(theirs["status"] == "succeeded" and theirs["amount"] == payment["amount"])
