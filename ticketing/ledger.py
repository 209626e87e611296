"""The ledger says where all money is: double-entry lines, written with what causes them.

An entry is one document with the lines of one cause, which sum to zero; the cause names it, so
nothing is entered twice. Entries are never changed: what is undone is entered the other way round.
A line's amount is a debit where it is positive and a credit where it is negative.

Accounts of an event, in one currency:

- `provider`: money that lies at the payment provider for us.
- `organiser`: what we owe the organiser (a credit).
- `fees`: what the platform has earned (a credit).
- `fans`: what is to go back to fans and has not gone yet (a credit).
"""

from collections import Counter
from datetime import datetime
from typing import Any

from ticketing import fees, mongo
from ticketing.gateway import Notice
from ticketing.money import CURRENCIES
from ticketing.mongo import Database, Document

ACCOUNTS = ("provider", "organiser", "fees", "fans")
CAUSES = ("sale", "stray", "refund", "paidOut", "bounced", "outside")


# One sum for each currency, cause and account there can be.
SUMS_MAX = len(CURRENCIES) * len(CAUSES) * len(ACCOUNTS)
UNBALANCED_SHOWN_MAX = 20

# Amounts by currency, cause and account.
Sums = Counter[tuple[str, str, str]]


class LedgerFault(ValueError):
    """An entry that does not balance: a fault of the program, never of a caller."""


def _entry(
    identifier: str, cause: str, about: Document, currency: str, now: datetime, **amounts: int
) -> Document:
    if sum(amounts.values()):
        raise LedgerFault(f"The entry {identifier} does not balance: {amounts}.")
    return {
        "_id": identifier,
        "cause": cause,
        "eventId": about["eventId"],
        "orderId": about.get("orderId", about["_id"]),
        "currency": currency,
        "at": now,
        "lines": [{"account": name, "amount": value} for name, value in amounts.items() if value],
    }


# --- What causes an entry ------------------------------------------------------------------------


def sale(order: Document, now: datetime, *, given_outside: int = 0) -> Document:
    """The order was paid and confirmed.

    `given_outside` of it had gone back at the provider's own site before we heard of the payment;
    the organiser bears that.
    """
    total, fee = order["total"], fees.of_order(order)
    return _entry(
        f"{order['payment']['paymentId']}:sale",
        "sale",
        order,
        order["currency"],
        now,
        provider=total,
        organiser=fee + given_outside - total,
        fees=-fee,
        fans=-given_outside,
    )


def stray(order: Document, notice: Notice, now: datetime) -> Document:
    """Money came that buys nothing, and is to go back as it came."""
    return _entry(
        f"{notice.provider}:{notice.notice_id}:stray",
        "stray",
        order,
        notice.currency,
        now,
        provider=notice.amount,
        fans=-notice.amount,
    )


def refund(order: Document, made: Document, now: datetime) -> Document:
    """A refund of a sale was decided: its money is no more the organiser's."""
    amount, fee = made["amount"], fees.back_with(order, made)
    return _entry(
        f"{made['_id']}:refund",
        "refund",
        order,
        made["currency"],
        now,
        organiser=amount - fee,
        fees=fee,
        fans=-amount,
    )


def outside(order: Document, made: Document, now: datetime) -> Document:
    """Somebody refunded a payment at the provider's own site.

    Of a sale the organiser bears it, as far as the money has not gone back or been promised to the
    fan before; the fee stays. What is beyond that, or was no sale, was to go back anyway.
    """
    amount, currency = made["amount"], made["currency"]
    borne = min(amount, _left_of_sale(order)) if _is_of_sale(order, made) else 0
    return _entry(
        f"{made['_id']}:outside",
        "outside",
        order,
        currency,
        now,
        provider=-amount,
        organiser=borne,
        fans=amount - borne,
    )


def _is_of_sale(order: Document, made: Document) -> bool:
    """Whether a refund is of the money that an order was sold for."""
    own = order["payment"] or {"paymentId": None}
    return (
        "confirmedAt" in order
        and made["paymentId"] == own["paymentId"]
        and made["currency"] == order["currency"]
        and made.get("kind") != "stray"
    )


def _left_of_sale(order: Document) -> int:
    """What a sale brought, less all refunds of it whatever became of them since."""
    left: int = order["total"]
    left -= sum(refund["amount"] for refund in order["refunds"] if _is_of_sale(order, refund))
    return max(left, 0)


def moved(made: Document, to: str, now: datetime) -> list[Document]:
    """The entry for a refund, as it was read, that changes its state, if that moves money."""
    amount, name = made["amount"], f"{made['_id']}:{made.get('round', 0)}"
    currency = made["currency"]
    if to == "done":
        return [
            _entry(f"{name}:paidOut", "paidOut", made, currency, now, fans=amount, provider=-amount)
        ]
    if to == "failed" and made["status"] == "done":
        return [
            _entry(f"{name}:bounced", "bounced", made, currency, now, provider=amount, fans=-amount)
        ]
    return []


# --- Reading -------------------------------------------------------------------------------------


def summed(event_id: str) -> list[dict[str, Any]]:
    """The aggregation of what an event's entries come to, by currency, cause and account."""
    key = {"currency": "$currency", "cause": "$cause", "account": "$lines.account"}
    return [
        {"$match": {"eventId": event_id}},
        {"$unwind": "$lines"},
        {"$group": {"_id": key, "amount": {"$sum": "$lines.amount"}}},
    ]


def unbalanced(event_id: str) -> list[dict[str, Any]]:
    """The aggregation that finds entries whose lines do not sum to zero."""
    return [
        {"$match": {"eventId": event_id}},
        {"$match": {"$expr": {"$ne": [{"$sum": "$lines.amount"}, 0]}}},
        {"$limit": UNBALANCED_SHOWN_MAX},
        {"$project": {"_id": 1}},
    ]


def by_cause(rows: list[Document]) -> Sums:
    """The rows of `summed`."""
    sums: Sums = Counter()
    for row in rows:
        key = row["_id"]
        sums[key["currency"], key["cause"], key["account"]] += row["amount"]
    return sums


async def sums_of(database: Database, event_id: str) -> Sums:
    """What the event's entries come to, by currency, cause and account."""
    rows = await mongo.aggregate(database.ledger, summed(event_id), length=SUMS_MAX)
    return by_cause(rows)


async def entries(
    database: Database, event_id: str, *, after: tuple[datetime, str] | None, limit: int
) -> list[Document]:
    """An event's entries in the order of their time, from after that one on."""
    filter_: Document = {"eventId": event_id}
    if after is not None:
        at, identifier = after
        filter_["at"] = {"$gte": at}
        filter_["$or"] = [{"at": {"$gt": at}}, {"_id": {"$gt": identifier}}]
    found = database.ledger.find(filter_).sort([("at", 1), ("_id", 1)]).limit(limit)
    return await found.to_list(limit)
