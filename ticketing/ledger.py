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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ticketing import fees, mongo
from ticketing.gateway import Notice
from ticketing.money import CURRENCIES
from ticketing.mongo import Database, Document

ACCOUNTS = ("provider", "organiser", "fees", "fans")
CAUSES = ("sale", "stray", "refund", "paidOut", "bounced", "outside")

# One sum for each currency, cause and account there can be, before a period's start and after.
SUMS_PER_EVENT_MAX = 2 * len(CURRENCIES) * len(CAUSES) * len(ACCOUNTS)
UNBALANCED_SHOWN_MAX = 20


@dataclass(frozen=True)
class Period:
    """From when on and until before when; None leaves that end open."""

    starts_at: datetime | None = None
    ends_at: datetime | None = None

    def matching(self) -> Document:
        """The filter of entries within it."""
        bounds = (("$gte", self.starts_at), ("$lt", self.ends_at))
        at = {name: bound for name, bound in bounds if bound is not None}
        return {"at": at} if at else {}


ALWAYS = Period()


@dataclass(frozen=True)
class Sum:
    """What the lines on one account come to that entries of one cause have in one currency.

    `is_within` the period that was asked for, or before it.
    """

    event_id: str
    currency: str
    cause: str
    account: str
    is_within: bool
    amount: int
    count: int


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
    borne = min(amount, left_of_sale(order)) if _is_of_sale(order, made) else 0
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


def left_of_sale(order: Document) -> int:
    """What a sale brought, less all refunds of it whatever became of them since."""
    left: int = order["total"]
    left -= sum(refund["amount"] for refund in order["refunds"] if _is_of_sale(order, refund))
    return max(left, 0)


def _is_of_sale(order: Document, made: Document) -> bool:
    """Whether a refund is of the money that an order was sold for."""
    own = order["payment"] or {"paymentId": None}
    return (
        "confirmedAt" in order
        and made["paymentId"] == own["paymentId"]
        and made["currency"] == order["currency"]
        and made.get("kind") != "stray"
    )


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


def summed(event_ids: Sequence[str], period: Period = ALWAYS) -> list[dict[str, Any]]:
    """The aggregation of what the entries of these events come to, up to the end of a period."""
    since = period.starts_at
    key = {
        "eventId": "$eventId",
        "currency": "$currency",
        "cause": "$cause",
        "account": "$lines.account",
        "isWithin": {"$literal": True} if since is None else {"$gte": ["$at", since]},
    }
    so_far = replace(period, starts_at=None).matching()
    return [
        {"$match": {"eventId": {"$in": list(event_ids)}, **so_far}},
        {"$unwind": "$lines"},
        {"$group": {"_id": key, "amount": {"$sum": "$lines.amount"}, "count": {"$sum": 1}}},
    ]


def unbalanced(event_id: str) -> list[dict[str, Any]]:
    """The aggregation that finds entries whose lines do not sum to zero."""
    return [
        {"$match": {"eventId": event_id}},
        {"$match": {"$expr": {"$ne": [{"$sum": "$lines.amount"}, 0]}}},
        {"$limit": UNBALANCED_SHOWN_MAX},
        {"$project": {"_id": 1}},
    ]


def sums(rows: Sequence[Document]) -> list[Sum]:
    """The rows of `summed`."""
    return [
        Sum(
            event_id=row["_id"]["eventId"],
            currency=row["_id"]["currency"],
            cause=row["_id"]["cause"],
            account=row["_id"]["account"],
            is_within=row["_id"]["isWithin"],
            amount=row["amount"],
            count=row["count"],
        )
        for row in rows
    ]


async def sums_of(
    database: Database, event_ids: Sequence[str], period: Period = ALWAYS
) -> list[Sum]:
    """What the entries of these events come to, up to the end of a period."""
    if not event_ids:
        return []
    length = SUMS_PER_EVENT_MAX * len(event_ids)
    return sums(await mongo.aggregate(database.ledger, summed(event_ids, period), length=length))


async def entries(
    database: Database,
    event_id: str,
    *,
    period: Period = ALWAYS,
    after: tuple[datetime, str] | None,
    limit: int,
) -> list[Document]:
    """An event's entries of a period in the order of their time, from after that one on."""
    filter_: Document = {"eventId": event_id, **period.matching()}
    if after is not None:
        at, identifier = after
        filter_["at"] = {**filter_.get("at", {}), "$gte": at}
        filter_["$or"] = [{"at": {"$gt": at}}, {"_id": {"$gt": identifier}}]
    found = database.ledger.find(filter_).sort([("at", 1), ("_id", 1)]).limit(limit)
    return await found.to_list(limit)
