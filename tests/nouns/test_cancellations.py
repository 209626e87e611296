"""An event is called off and all its orders with it."""

import asyncio
from datetime import timedelta

import pytest

from tests.conftest import NOW, ORGANISER, providers_of, put_on_sale
from tests.nouns.test_checkout import current, hold_seats, notice, order, ordered, receive, sound
from tests.nouns.test_money import bought, second_payment
from ticketing import cancellations, checkout, events, refunds
from ticketing.accounts import Caller
from ticketing.checkout import LineRefund
from ticketing.errors import NotFound
from ticketing.mongo import Database, Document

AFTERWARDS = NOW + timedelta(seconds=10)


async def finished(database: Database, event_id: str, now=NOW) -> Document:
    for _ in range(50):
        job = await cancellations.find(database, event_id)
        if job["status"] != "running":
            return job
        await cancellations.run_due(database, now)
        now += timedelta(minutes=10)
    raise AssertionError("the job did not end")


async def test_every_order_of_a_cancelled_event_is_cancelled_and_refunded(
    either: Database,
) -> None:
    sale = await put_on_sale(either)
    paid = [await bought(either, sale, f"fan_{n}", n, 10 + n) for n in range(5)]
    await receive(either, second_payment(paid[0]))
    await checkout.refund_lines(
        either, LineRefund(paid[1]["_id"], sale.seats(1), "org_one"), now=NOW
    )
    waiting = await ordered(either, sale, "fan_w", 9)
    gone = await bought(either, sale, "fan_g", 8)
    await checkout.cancel(either, gone["_id"], "fan_g", now=NOW)
    begun = await cancellations.begin(either, sale.event_id, ORGANISER, NOW)
    assert (begun["status"], begun["total"]) == ("running", 6)
    again = await cancellations.begin(either, sale.event_id, ORGANISER, NOW)
    assert again == begun
    job = await finished(either, sale.event_id)
    assert (job["cancelled"], job["refunded"], job["failures"]) == (6, 5, [])
    assert job["amount"] == sum(one["total"] for one in paid) - 9500
    for one in [*paid, waiting]:
        after = await current(either, one)
        assert after["status"] == "cancelled"
        assert {ticket["status"] for ticket in after["tickets"]} <= {"void"}
    await refunds.send_due(either, providers_of(either), NOW)
    assert await refunds.totals(either, sale.event_id) == {
        "created": 0,
        "sent": 0,
        "done": 8,
        "failed": 0,
    }
    assert await either.seats.count_documents({"status": "sold"}) == 0
    assert await receive(either, notice(waiting)) == ["refunded"]
    await sound(either)


async def test_a_job_whose_worker_was_killed_goes_on_and_counts_nothing_twice(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancellations, "ORDERS_PER_BATCH", 2)
    sale = await put_on_sale(database)
    placed = [await bought(database, sale, f"fan_{n}", n) for n in range(7)]
    await cancellations.begin(database, sale.event_id, ORGANISER, NOW)
    genuine, calls = checkout.cancel_in, 0

    async def killed(*arguments: object, **rest: object) -> int:
        nonlocal calls
        calls += 1
        amount = await genuine(*arguments, **rest)
        if calls == 4:
            raise asyncio.CancelledError
        return amount

    monkeypatch.setattr(checkout, "cancel_in", killed)
    assert await cancellations.run_due(database, NOW) == 2
    with pytest.raises(asyncio.CancelledError):
        await cancellations.run_due(database, NOW)
    half = await cancellations.find(database, sale.event_id)
    assert (half["status"], half["cancelled"]) == ("running", 3)
    # Nobody takes it over before its lease is over.
    assert await cancellations.run_due(database, NOW + cancellations.LEASE / 2) == 0
    job = await finished(database, sale.event_id, NOW + timedelta(seconds=11))
    assert (job["status"], job["cancelled"], job["refunded"]) == ("done", 7, 7)
    for one in placed:
        assert len((await current(database, one))["refunds"]) == 1
    await sound(database)


async def test_a_worker_whose_job_was_taken_over_does_nothing_more(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale = await put_on_sale(database)
    for n in range(3):
        await bought(database, sale, f"fan_{n}", n)
    await cancellations.begin(database, sale.event_id, ORGANISER, NOW)
    genuine = checkout.cancel_in

    async def overtaken(*arguments: object, **rest: object) -> int:
        monkeypatch.setattr(checkout, "cancel_in", genuine)
        await cancellations.run_due(database, NOW + timedelta(seconds=11))
        return await genuine(*arguments, **rest)

    monkeypatch.setattr(checkout, "cancel_in", overtaken)
    assert await cancellations.run_due(database, NOW) == 0
    job = await finished(database, sale.event_id, NOW + timedelta(minutes=2))
    assert job["cancelled"] == 3
    await sound(database)


async def test_one_order_that_can_not_be_cancelled_keeps_no_other_from_its_money(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale = await put_on_sale(database)
    placed = [await bought(database, sale, f"fan_{n}", n) for n in range(3)]
    await cancellations.begin(database, sale.event_id, ORGANISER, NOW)
    genuine = checkout.cancel_in

    async def broken(*arguments: object, **rest: object) -> int:
        if arguments[2]["_id"] == placed[1]["_id"]:
            raise checkout.Stale
        return await genuine(*arguments, **rest)

    monkeypatch.setattr(checkout, "cancel_in", broken)
    job = await finished(database, sale.event_id)
    assert (job["status"], job["cancelled"]) == ("stuck", 2)
    assert {failure["orderId"] for failure in job["failures"]} == {placed[1]["_id"]}


async def test_an_order_that_slipped_in_after_the_cancellation_is_found(
    database: Database,
) -> None:
    sale = await put_on_sale(database)
    hold = await hold_seats(database, sale, "fan_a", 1)
    known = events.Recent(database)
    await known.slim([sale.event_id])
    await cancellations.begin(database, sale.event_id, ORGANISER, NOW)
    await cancellations.run_due(database, NOW)
    await database.events.update_one({"_id": sale.event_id}, {"$set": {"status": "published"}})
    late = await order(database, "fan_a", hold.hold_id)
    await database.events.update_one({"_id": sale.event_id}, {"$set": {"status": "cancelled"}})
    job = await finished(database, sale.event_id, AFTERWARDS)
    assert job["cancelled"] == 1
    assert (await current(database, late))["status"] == "cancelled"


async def test_only_its_organiser_calls_off_an_event_and_none_that_has_ended(
    database: Database,
) -> None:
    sale = await put_on_sale(database)
    with pytest.raises(NotFound):
        await cancellations.begin(database, sale.event_id, Caller("org_two", "organiser"), NOW)
    with pytest.raises(NotFound):
        await cancellations.find(database, sale.event_id)
    await events.end_past(database, NOW + timedelta(days=400))
    with pytest.raises(events.EventState):
        await cancellations.begin(database, sale.event_id, ORGANISER, NOW)
