"""The payments worker as a process: it finishes what requests have left to do."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

from tests.conftest import NOW, ORGANISER, providers_of, put_on_sale
from tests.nouns.test_checkout import current, ordered, sound
from tests.nouns.test_money import bought
from tests.workers.test_changes import at_rest, started, worker
from ticketing import cancellations, checkout, clock, payments, refunds
from ticketing.checkout import LineRefund
from ticketing.mongo import Database
from ticketing.settings import Settings

# What a killed worker left open in the database blocks its documents until the server ends it.
SECONDS_MAX = 60


@asynccontextmanager
async def process(settings: Settings) -> AsyncIterator[asyncio.subprocess.Process]:
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "workers",
        "payments",
        env=os.environ
        | {
            "TICKETING_MONGODB_URI": settings.mongodb_uri,
            "TICKETING_DATABASE": settings.database,
        },
        stderr=asyncio.subprocess.DEVNULL,
    )
    yield running
    if running.returncode is None:
        running.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(running.wait(), SECONDS_MAX) == 0


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    for _ in range(SECONDS_MAX * 20):
        if await holds():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it did not come to that")


async def test_the_worker_looks_up_payments_and_sends_refunds(
    settings: Settings, database: Database
) -> None:
    sale = await put_on_sale(database)
    forgotten = await ordered(database, sale, "fan_a", 1)
    payment_id = forgotten["payment"]["paymentId"]
    await providers_of(database).sandbox.pay(await payments.find(database, payment_id))
    # The worker has a clock of its own, and this sale is to come.
    await database.payments.update_one({"_id": payment_id}, {"$set": {"lookUpAt": clock.now()}})
    given_up = await bought(database, sale, "fan_b", 2)
    await checkout.cancel(database, given_up["_id"], "fan_b", now=clock.now())

    async def all_is_done() -> bool:
        (refund,) = (await current(database, given_up))["refunds"]
        confirmed = (await current(database, forgotten))["status"] == "confirmed"
        return confirmed and refund["status"] == "done"

    async with process(settings):
        await until(all_is_done)
    await sound(database)


async def test_a_job_goes_on_after_its_worker_was_killed(
    settings: Settings, database: Database
) -> None:
    sale = await put_on_sale(database)
    for number in range(30):
        await bought(database, sale, f"fan_{number}", number)
    await cancellations.begin(database, sale.event_id, ORGANISER, clock.now())

    async def begun() -> bool:
        return (await cancellations.find(database, sale.event_id))["cancelled"] > 0

    async with process(settings) as killed:
        await until(begun)
        killed.kill()
        await killed.wait()

    async def ended() -> bool:
        return (await cancellations.find(database, sale.event_id))["status"] == "done"

    async with process(settings):
        await until(ended)
    job = await cancellations.find(database, sale.event_id)
    assert (job["cancelled"], job["refunded"]) == (30, 30)
    assert await database.refunds.count_documents({}) == 30
    await sound(database)


async def test_the_counters_follow_money_that_goes_back_seat_by_seat(
    settings: Settings, database: Database
) -> None:
    sale = await put_on_sale(database)
    async with worker(settings):
        await started(database)
        placed = await bought(database, sale, "fan_a", 1, 2, 25)
        other = await bought(database, sale, "fan_b", 3, 4)
        for order, ordinals in ((placed, (1, 25)), (other, (3,))):
            wanted = LineRefund(order["_id"], sale.seats(*ordinals), "org_one")
            await checkout.refund_lines(database, wanted, now=NOW)
        await refunds.send_due(database, providers_of(database), NOW)
        counters = await at_rest(database, sale)
        assert (counters["revenue"], counters["refunds"]) == (2 * 9500, 2 * 9500 + 4500)
        assert [section["revenue"] for section in counters["sections"]] == [2 * 9500, 0]
        await checkout.cancel(database, placed["_id"], "fan_a", now=NOW)
        (refund,) = await database.refunds.find({"kind": "order"}).to_list(None)
        await refunds.send_due(database, providers_of(database), NOW)
        counters = await at_rest(database, sale)
        assert (counters["revenue"], counters["refunds"]) == (9500, 3 * 9500 + 4500)
        # The bank sends one back.
        own, in_order = refunds.changes(
            await refunds.find(database, refund["_id"]), "failed", NOW + timedelta(hours=1)
        )
        await database.refunds.bulk_write([own])
        await database.orders.bulk_write([in_order])
        counters = await at_rest(database, sale)
        assert counters["refunds"] == 2 * 9500 + 4500
