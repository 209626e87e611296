"""What must always be true. The same rules are checked in tests, drills, benchmark and production.

Everything is read as of one moment, so a sale may go on meanwhile.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from bson.timestamp import Timestamp
from pymongo.errors import DuplicateKeyError

from ticketing import books, clock, dashboards, holds, leases, mongo, seats
from ticketing.mongo import Database, Document

FINDINGS_PER_EVENT_MAX = 20
ATTENTION_MAX = 50
UNCERTAIN_FOR = timedelta(hours=1)
COUNTERS_WAIT_SECONDS_MAX = 10.0
COUNTERS_POLL_SECONDS = 0.2
# What a dashboard shares with a recount. Tallies of holds have no second source.
RECOUNTED = ("seats", "orders", "revenue", "refunds", "sections", "recentSales", "salesByMinute")


RULES = (
    "a held seat has a hold and an end",
    "a held seat has no order yet",
    "a sold seat has an order and no end",
    "a free seat has neither hold nor order",
    "a seat is in one confirmed order",
    "a confirmed order's seats are sold to it",
    "a sold seat is in the confirmed order it names",
    "a taken seat has one of its fan's places",
    "a fan has no more seats than the limit",
    "an order's total is the sum of its seats",
    "a confirmed order is paid",
    "a confirmed order has a ticket a seat",
    "a ticket is valid while its seat is sold",
    "a refund is of a payment of its event",
    "an order shows its refunds as they are",
    "no more goes back than was paid",
    "an order shows its payment as it is",
    "what was paid for an order that is over goes back",
    "counters equal a recount",
    *books.RULES,
)
# Events that were over before are looked at by `scripts/audit` alone.
RECENT = timedelta(days=30)
LATEST_ID = "latest"


@dataclass(frozen=True)
class Finding:
    """A rule that does not hold, and where."""

    rule: str
    detail: str

    def __post_init__(self) -> None:
        # One that no metric and no runbook knows would be looked for in vain.
        assert self.rule in RULES, self.rule


async def check_all(database: Database, *, counters: bool = True) -> list[Finding]:
    """Every break of a rule in the whole database; empty when all is well.

    `counters` also waits, up to some seconds an event, for the counters to equal a recount: they
    trail a running sale, so they can be judged only once it rests.
    """
    moment = await mongo.present_time(database)
    findings: list[Finding] = []
    for event in await dashboards.events_at(database, moment):
        findings += await check_event(database, event, moment)
        if counters:
            findings += await _check_counters(database, event)
    return findings


async def check_recent(database: Database, now: datetime) -> AsyncIterator[list[Finding]]:
    """What is broken in each event that is to come, or was a while ago; without the counters."""
    found = await dashboards.events_at(
        database, await mongo.present_time(database), since=now - RECENT
    )
    for event in found:
        yield await check_event(database, event, await mongo.present_time(database))


async def keep(database: Database, broken: Counter[str], *, fence: int, now: datetime) -> None:
    """Keep what the latest check found, by rule. Raises LeaseLost if a later lease has done so."""
    latest: Document = {
        "fence": fence,
        "checkedAt": now,
        "rules": [{"rule": rule, "broken": broken[rule]} for rule in RULES],
    }
    try:
        await database.audits.update_one(
            {"_id": LATEST_ID, "fence": {"$lte": fence}}, {"$set": latest}, upsert=True
        )
    except DuplicateKeyError:
        raise leases.LeaseLost from None


async def check_event(database: Database, event: Document, moment: Timestamp) -> list[Finding]:
    """Breaks of the rules about the event's seats and orders, as of the moment."""
    kept = await mongo.aggregate_at(
        database,
        "seats",
        [
            {
                "$match": {
                    "_id": seats.plan_range(event["_id"]),
                    "$or": [
                        {"status": {"$in": ["held", "sold"]}},
                        {"holdId": {"$exists": True}},
                        {"orderId": {"$exists": True}},
                    ],
                }
            },
            {
                "$project": {
                    "status": 1,
                    "holdId": 1,
                    "heldUntil": 1,
                    "fanSlot": 1,
                    "orderId": 1,
                    "price": 1,
                }
            },
        ],
        moment,
    )
    confirmed = await mongo.aggregate_at(
        database,
        "orders",
        [
            {"$match": {"eventId": event["_id"], "status": "confirmed"}},
            {
                "$project": {
                    "seats.seatId": 1,
                    "seats.price": 1,
                    "total": 1,
                    "payment.status": 1,
                    "tickets": 1,
                    "holdId": 1,
                    "refundedLines": 1,
                }
            },
        ],
        moment,
    )
    found = [
        *_seat_findings(kept),
        *await _purchase_findings(database, event["_id"], moment),
        *_sale_findings(kept, confirmed),
        *_order_findings(confirmed),
        *_limit_findings(kept, event["maxSeatsPerFan"]),
    ]
    return found[:FINDINGS_PER_EVENT_MAX]


def _seat_findings(kept: list[Document]) -> Iterator[Finding]:
    for seat in kept:
        match seat["status"]:
            case "held" if "holdId" not in seat or "heldUntil" not in seat:
                yield Finding("a held seat has a hold and an end", seat["_id"])
            case "held" if "orderId" in seat:
                yield Finding("a held seat has no order yet", seat["_id"])
            case "sold" if "orderId" not in seat or "heldUntil" in seat:
                yield Finding("a sold seat has an order and no end", seat["_id"])
            case "available" | "blocked":
                yield Finding("a free seat has neither hold nor order", seat["_id"])


def _sale_findings(kept: list[Document], confirmed: list[Document]) -> Iterator[Finding]:
    sold_to = {seat["_id"]: seat.get("orderId") for seat in kept if seat["status"] == "sold"}
    listed = Counter(seat_id for order in confirmed for seat_id in _kept_seats(order))
    for seat_id, count in listed.items():
        if count > 1:
            yield Finding("a seat is in one confirmed order", f"{seat_id} is in {count}")
    for order in confirmed:
        for seat_id in _kept_seats(order):
            if sold_to.get(seat_id) != order["_id"]:
                yield Finding(
                    "a confirmed order's seats are sold to it", f"{order['_id']}: {seat_id}"
                )
    owned = {(seat_id, order["_id"]) for order in confirmed for seat_id in _kept_seats(order)}
    for seat_id, order_id in sold_to.items():
        if (seat_id, order_id) not in owned:
            yield Finding(
                "a sold seat is in the confirmed order it names", f"{seat_id}: {order_id}"
            )


def _kept_seats(order: Document) -> list[str]:
    """The seats of a confirmed order that were not given back one by one."""
    freed = {line["seatId"] for line in order.get("refundedLines", []) if line["freed"]}
    return [seat["seatId"] for seat in order["seats"] if seat["seatId"] not in freed]


def _limit_findings(kept: list[Document], limit: int) -> Iterator[Finding]:
    for seat in kept:
        if seat["status"] in {"held", "sold"} and "holdId" in seat:
            fan, _, number = seat.get("fanSlot", "").rpartition(".")
            mine = f"hold_{fan}" == holds.fan_part(seat["holdId"])
            if not (mine and number.isdigit() and int(number) < limit):
                yield Finding("a taken seat has one of its fan's places", seat["_id"])
    # What is held may pass the limit for the moment in which a hold is refused for that.
    sold = Counter(
        holds.fan_part(seat["holdId"])
        for seat in kept
        if seat["status"] == "sold" and "holdId" in seat
    )
    for fan, count in sold.items():
        if count > limit:
            yield Finding("a fan has no more seats than the limit", f"{fan}: {count} of {limit}")


def _order_findings(confirmed: list[Document]) -> Iterator[Finding]:
    for order in confirmed:
        if order["total"] != sum(seat["price"] for seat in order["seats"]):
            yield Finding("an order's total is the sum of its seats", order["_id"])
        if order["total"] and (order.get("payment") or {}).get("status") != "succeeded":
            yield Finding("a confirmed order is paid", order["_id"])
        if [ticket["seatId"] for ticket in order["tickets"]] != [
            s["seatId"] for s in order["seats"]
        ]:
            yield Finding("a confirmed order has a ticket a seat", order["_id"])
        valid = [t["seatId"] for t in order["tickets"] if t["status"] == "valid"]
        if valid != _kept_seats(order):
            yield Finding("a ticket is valid while its seat is sold", order["_id"])


async def _purchase_findings(database: Database, event_id: str, moment: Timestamp) -> list[Finding]:
    """Breaks of the rules about money, found in some of the event's orders at a time."""
    found: list[Finding] = []
    expected: books.Flows = Counter()
    refund_count = 0
    async for some in books.purchases(database, event_id, moment):
        found += _money_findings(some.orders, some.payments, some.refunds)
        found += [Finding(*broken) for broken in books.provider_differences(some)]
        del found[FINDINGS_PER_EVENT_MAX:]
        expected.update(books.by_documents(some))
        refund_count += len(some.refunds)
    if refund_count != await books.refund_count(database, event_id, moment):
        found.insert(0, Finding("a refund is of a payment of its event", event_id))
    differences = await books.ledger_differences(database, event_id, expected, moment)
    return [Finding(*broken) for broken in differences] + found


def _money_findings(
    all_orders: list[Document], payments: list[Document], refunds: list[Document]
) -> Iterator[Finding]:
    given: Counter[str] = Counter()
    shown = {
        (order["_id"], refund["refundId"]): refund["status"]
        for order in all_orders
        for refund in order["refunds"]
    }
    known = {payment["_id"]: payment for payment in payments}
    for refund in refunds:
        # A stray charge goes back as it came and is no part of what was asked for; nor is anything
        # in another currency.
        payment = known.get(refund["paymentId"], refund)
        if refund.get("kind") != "stray" and refund["currency"] == payment["currency"]:
            given[refund["paymentId"]] += refund["amount"]
        if shown.get((refund["orderId"], refund["_id"])) != refund["status"]:
            yield Finding("an order shows its refunds as they are", refund["_id"])
    for payment_id, amount in given.items():
        if payment_id not in known or amount > known[payment_id]["amount"]:
            yield Finding("no more goes back than was paid", f"{payment_id}: {amount}")
    for order in all_orders:
        payment = order.get("payment") or {}
        stored = known.get(payment.get("paymentId", ""))
        if stored is not None and stored["status"] != payment["status"]:
            yield Finding("an order shows its payment as it is", order["_id"])
        # Whatever was paid for an order that is over has gone back or is on its way.
        if (
            order["status"] in ("cancelled", "expired")
            and payment.get("status") == "succeeded"
            and given[payment["paymentId"]] < order["total"]
        ):
            yield Finding("what was paid for an order that is over goes back", order["_id"])


# --- For a person --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Attention:
    """Something that breaks no rule but waits for a person, and where."""

    what: str
    detail: str


async def attention(database: Database, now: datetime) -> list[Attention]:
    """What a person should look at: up to ATTENTION_MAX of each kind."""
    unknown = database.notices.find({"outcome": "unknown"}).limit(ATTENTION_MAX)
    seen = [
        Attention(
            "a notice of an unknown payment",
            f"{notice['_id']}: {notice['type']}, {notice['amount']} {notice['currency']}",
        )
        for notice in await unknown.to_list(ATTENTION_MAX)
    ]
    given_up = database.refunds.find({"givenUpAt": {"$exists": True}}).limit(ATTENTION_MAX)
    seen += [
        Attention("a refund that was given up", f"{refund['_id']}: {refund.get('problem', '')}")
        for refund in await given_up.to_list(ATTENTION_MAX)
    ]
    undecided = database.payments.find({"status": "uncertain"}).limit(ATTENTION_MAX)
    seen += [
        Attention("a payment that stays uncertain", payment["_id"])
        for payment in await undecided.to_list(ATTENTION_MAX)
        if now - payment["settledAt"] > UNCERTAIN_FOR
    ]
    stuck = database.jobs.find({"status": "stuck"}).limit(ATTENTION_MAX)
    seen += [
        Attention("an event with orders that can't be cancelled", job["eventId"])
        for job in await stuck.to_list(ATTENTION_MAX)
    ]
    return seen


async def _check_counters(database: Database, event: Document) -> list[Finding]:
    """Whether the counters equal a recount, given time to catch up with the last changes."""
    deadline = asyncio.get_running_loop().time() + COUNTERS_WAIT_SECONDS_MAX
    while True:
        differences = await counter_differences(database, event)
        if not differences:
            return []
        if asyncio.get_running_loop().time() > deadline:
            return [
                Finding("counters equal a recount", f"{event['_id']}: {difference}")
                for difference in differences
            ]
        await asyncio.sleep(COUNTERS_POLL_SECONDS)


async def counter_differences(database: Database, event: Document) -> list[str]:
    """Where the stored counters differ from a recount at this moment."""
    moment = await mongo.present_time(database)
    fresh = await dashboards.recount(database, event, moment, clock.now())
    stored: dict[str, Any] | None = await database.dashboards.find_one({"_id": event["_id"]})
    if stored is None:
        return ["there are no counters"]
    return [
        f"{name} is {stored[name]}, recounted {fresh[name]}"
        for name in RECOUNTED
        if _comparable(stored[name]) != _comparable(fresh[name])
    ]


def _comparable(value: Any) -> Any:
    """Sales of the same millisecond have no order, and of the oldest ones any may be left out."""
    if isinstance(value, list) and value and "reference" in value[0]:
        oldest = min(sale["at"] for sale in value)
        certain = len(value) < dashboards.RECENT_SALES_MAX
        return sorted(
            (sale["at"], sale["reference"], sale["seats"], sale["amount"])
            for sale in value
            if certain or sale["at"] > oldest
        )
    return value
