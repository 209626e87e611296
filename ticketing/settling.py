"""What became of payments whose notice never came: the provider is asked, never guessed for."""

import asyncio
import logging
from datetime import datetime, timedelta

from ticketing import back_off, checkout, identifiers
from ticketing.errors import Refusal
from ticketing.gateway import LookedUp, Notice
from ticketing.mongo import Database, Document
from ticketing.refunds import Named

LOOKED_UP_PER_RUN_MAX = 100
LOOKED_UP_AT_ONCE_MAX = 8
# A payment page lives for a day at most; what the provider does not know by then it never will.
LOOKED_UP_FOR = timedelta(hours=26)
LEASE = timedelta(seconds=60)

log = logging.getLogger("ticketing.settling")


async def look_up_due(database: Database, providers: Named, now: datetime) -> int:
    """Ask about payments that are due, and settle them; returns how many there were.

    What is learned takes the way of a notice, so it has its effect once, whatever else tells of it
    at the same time. One provider that hangs holds up nobody's payment at another.
    """
    due = (
        await database.payments.find({"lookUpAt": {"$lte": now}})
        .sort("lookUpAt", 1)
        .limit(LOOKED_UP_PER_RUN_MAX)
        .to_list(LOOKED_UP_PER_RUN_MAX)
    )
    gate = asyncio.Semaphore(LOOKED_UP_AT_ONCE_MAX)

    async def one(payment: Document) -> None:
        async with gate:
            try:
                await _look_up(database, providers, payment, now)
            except Exception:
                log.exception("Payment %s could not be settled", payment["_id"])

    await asyncio.gather(*(one(payment) for payment in due))
    return len(due)


async def _look_up(database: Database, providers: Named, payment: Document, now: datetime) -> None:
    mine = {"_id": payment["_id"], "lookUpAt": payment["lookUpAt"]}
    claimed = await database.payments.update_one(
        mine, {"$set": {"lookUpAt": now + LEASE}, "$inc": {"lookUps": 1}}
    )
    if claimed.modified_count == 0:
        return
    try:
        found = await providers.named(payment["provider"]).look_up(payment)
    except Refusal as error:
        # Down, or no provider that is set up here any more.
        log.warning("Payment %s: %s", payment["_id"], error.detail)
        await _later(database, payment, now)
        return
    if found.status not in ("created", payment["status"]):
        (outcome,) = await checkout.receive(database, [_told(payment, found)], now=now)
        if isinstance(outcome, Exception):
            raise outcome
        log.info("Payment %s was looked up: %s", payment["_id"], outcome.outcome)
    is_over = found.is_final or now - payment["createdAt"] > LOOKED_UP_FOR
    if is_over:
        await database.payments.update_one({"_id": payment["_id"]}, {"$unset": {"lookUpAt": ""}})
    else:
        await _later(database, payment, now)


async def _later(database: Database, payment: Document, now: datetime) -> None:
    # Only where it is still to be looked up: a notice may have settled it meanwhile.
    await database.payments.update_one(
        {"_id": payment["_id"], "lookUpAt": {"$exists": True}},
        {"$set": {"lookUpAt": now + back_off.pause(payment.get("lookUps", 0) + 1)}},
    )


def _told(payment: Document, found: LookedUp) -> Notice:
    """What was looked up, as if it had been told."""
    return Notice(
        payment["provider"],
        identifiers.fresh("lookup"),
        f"payment.{found.status}",
        payment["_id"],
        payment["orderId"],
        found.amount,
        found.currency,
        charge=found.charge,
    )
