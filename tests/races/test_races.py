"""N contenders, one winner; and afterwards everything that must be true is true."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from tests.conftest import NOW, gather_bounded, put_on_sale
from tests.nouns.test_checkout import current, notice, ordered, receive
from tests.workers.test_changes import started, worker
from ticketing import checkout, events, holds, invariants, mongo, seats
from ticketing.holds import Hold, HoldRequest, LimitExceeded, NotEnoughSeats, SeatsUnavailable
from ticketing.mongo import Database
from ticketing.orders import OrderRequest
from ticketing.settings import Settings
from ticketing.states import OrderState
from workers import release

LATER = NOW + timedelta(seconds=601)


async def place(database: Database, request: HoldRequest, now=NOW) -> object:
    # A list of one each, as if every fan came to an API process of their own.
    (outcome,) = await holds.place(database, [request], hold_seconds=600, now=now)
    return outcome


async def sound(database: Database) -> None:
    """All invariants hold, and the counters that followed the race equal a recount."""
    assert await invariants.check_all(database) == []


@pytest.fixture(autouse=True)
async def _counting(settings: Settings) -> AsyncIterator[None]:
    """A changes worker follows every race."""
    client = await mongo.connect(settings)
    async with worker(settings):
        await started(client.database)
        yield
    await client.close()


async def count(database: Database, **filter_: object) -> int:
    return await database.seats.count_documents(filter_)


async def test_five_hundred_fans_for_fifty_seats(database: Database) -> None:
    sale = await put_on_sale(database, sections=_floor(50))
    wanted = [HoldRequest(sale.event_id, f"fan_{n}", sale.seats(n % 50)) for n in range(500)]
    outcomes = await gather_bounded(500, lambda n: place(database, wanted[n]), at_once=500)
    assert Counter(type(outcome) for outcome in outcomes) == {Hold: 50, SeatsUnavailable: 450}
    assert await count(database, status="held") == 50
    await sound(database)


async def test_a_hundred_fans_for_one_seat(database: Database) -> None:
    sale = await put_on_sale(database)
    outcomes = await gather_bounded(
        100, lambda n: place(database, HoldRequest(sale.event_id, f"f{n}", sale.seats(0)))
    )
    assert Counter(type(outcome) for outcome in outcomes) == {Hold: 1, SeatsUnavailable: 99}


async def test_overlapping_requests_for_four_seats_until_sold_out(database: Database) -> None:
    sale = await put_on_sale(database, sections=_floor(60), max_seats_per_fan=50)
    rng = random.Random(7)

    async def buy(fan: int) -> None:
        for _ in range(12):
            chosen = rng.sample(range(60), 4)
            outcome = await place(
                database, HoldRequest(sale.event_id, f"fan_{fan}", sale.seats(*chosen))
            )
            if isinstance(outcome, Hold):
                assert len(outcome.seats) == 4
                await asyncio.sleep(0)
                (order,) = await checkout.place_orders(
                    database, [OrderRequest(f"fan_{fan}", outcome.hold_id)], now=NOW
                )
                assert await receive(database, notice(order), now=NOW) == ["confirmed"]
            else:
                assert isinstance(outcome, SeatsUnavailable | LimitExceeded), outcome

    for failure in await gather_bounded(24, buy, at_once=24):
        assert failure is None, failure
    # What random fours left over goes to those who take what there is.
    left = await count(database, status="available")
    for n in range(left):
        request = HoldRequest(sale.event_id, f"last_{n}", quantity=1, section="Floor")
        assert isinstance(await place(database, request), Hold)
    assert await count(database, status="available") == 0
    assert await count(database, status="sold") % 4 == 0
    await sound(database)


async def test_best_available_serves_everybody_while_there_are_seats(database: Database) -> None:
    sale = await put_on_sale(database)
    outcomes = await gather_bounded(
        10,
        lambda n: place(
            database,
            HoldRequest(sale.event_id, f"f{n}", quantity=2, section="A"),
        ),
    )
    assert [type(outcome) for outcome in outcomes] == [Hold] * 10
    assert await count(database, section="A", status="held") == 20
    outcome = await place(database, HoldRequest(sale.event_id, "late", quantity=2, section="A"))
    assert isinstance(outcome, NotEnoughSeats)


async def test_ten_requests_of_one_fan_at_once_never_pass_the_limit(database: Database) -> None:
    sale = await put_on_sale(database, max_seats_per_fan=2)
    for attempt in range(5):
        fan = f"fan_{attempt}"
        outcomes = await gather_bounded(
            10,
            lambda n, fan=fan: place(
                database, HoldRequest(sale.event_id, fan, sale.seats(2 * n, 2 * n + 1))
            ),
        )
        held = [outcome for outcome in outcomes if isinstance(outcome, Hold)]
        assert len(held) == 1
        assert await count(database, status="held") == 2
        await checkout.release_hold(database, held[0].hold_id, fan, now=NOW)


async def test_one_key_sent_ten_times_at_once_is_one_hold(database: Database) -> None:
    sale = await put_on_sale(database)
    asked = HoldRequest(sale.event_id, "fan_a", sale.seats(1, 2), key="k", body=b"b")
    outcomes = await gather_bounded(10, lambda _: place(database, asked))
    assert {outcome.hold_id for outcome in outcomes} == {outcomes[0].hold_id}
    assert len({outcome.expires_at for outcome in outcomes}) == 1
    assert await count(database, status="held") == 2


async def test_one_hold_ordered_ten_times_at_once_is_one_order(database: Database) -> None:
    sale = await put_on_sale(database)
    hold = await place(database, HoldRequest(sale.event_id, "fan_a", sale.seats(1, 2)))
    assert isinstance(hold, Hold)

    async def order(_: int) -> object:
        request = OrderRequest("fan_a", hold.hold_id, "key")
        return (await checkout.place_orders(database, [request], now=NOW))[0]["_id"]

    assert len(set(await gather_bounded(10, order))) == 1
    assert await database.orders.count_documents({}) == 1
    assert await database.payments.count_documents({}) == 1


async def test_expiry_against_confirmation_at_the_same_instant(database: Database) -> None:
    sale = await put_on_sale(database, max_seats_per_fan=50)
    for n in range(20):
        placed = await ordered(database, sale, f"fan_{n}", n)
        rival = HoldRequest(sale.event_id, f"rival_{n}", sale.seats(n))
        results = await asyncio.gather(
            receive(database, notice(placed), now=LATER),
            release.sweep(database, LATER),
            place(database, rival, now=LATER),
        )
        (outcome,), _, rivals = results
        after = await current(database, placed)
        if outcome == "confirmed":
            assert after["status"] == "confirmed"
            assert isinstance(rivals, SeatsUnavailable)
        else:
            assert (outcome, after["status"]) == ("refunded", "expired")
            assert isinstance(rivals, Hold)
            assert len(after["refunds"]) == 1
    await sound(database)


async def test_the_same_payment_delivered_twenty_times_in_parallel(database: Database) -> None:
    sale = await put_on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1, 2)
    same, others = notice(placed), [notice(placed) for _ in range(10)]

    async def deliver(n: int) -> object:
        sent = same if n < 10 else others[n - 10]
        return (await receive(database, sent, now=NOW))[0]

    outcomes = Counter(await gather_bounded(20, deliver))
    assert outcomes == {"confirmed": 1, "repeated": 19}
    after = await current(database, placed)
    assert len(after["tickets"]) == 2
    assert after["refunds"] == []
    assert await database.outbox.count_documents({"kind": "order.confirmed"}) == 1
    await sound(database)


async def test_success_and_failure_of_one_payment_at_once(database: Database) -> None:
    sale = await put_on_sale(database)
    for n in range(8):
        placed = await ordered(database, sale, f"fan_{n}", n)
        await asyncio.gather(
            receive(database, notice(placed), now=NOW),
            receive(database, notice(placed, "payment.failed"), now=NOW),
        )
        after = await current(database, placed)
        assert (after["status"], after["payment"]["status"]) == ("confirmed", "succeeded")
    await sound(database)


async def test_two_release_workers_at_once_free_each_seat_once(database: Database) -> None:
    sale = await put_on_sale(database, sections=_floor(200), max_seats_per_fan=50)
    for n in range(5):
        await ordered(database, sale, f"fan_{n}", *range(40 * n, 40 * n + 40))
    await asyncio.gather(*(release.sweep(database, LATER) for _ in range(4)))
    assert await count(database, status="available", cause="lapsed") == 200
    assert await database.orders.count_documents({"status": "expired"}) == 5
    await sound(database)


async def test_a_hold_released_while_it_is_ordered_leaves_no_waiting_order(
    database: Database,
) -> None:
    sale = await put_on_sale(database)
    for n in range(20):
        fan = f"fan_{n}"
        hold = await place(database, HoldRequest(sale.event_id, fan, sale.seats(n)))
        assert isinstance(hold, Hold)
        await asyncio.gather(
            checkout.place_orders(database, [OrderRequest(fan, hold.hold_id)], now=NOW),
            checkout.release_hold(database, hold.hold_id, fan, now=NOW),
        )
    assert await database.orders.count_documents({"status": "pendingPayment"}) == 0
    assert await count(database, status="available") == 40


async def test_cancelling_twice_at_once_refunds_once(database: Database) -> None:
    sale = await put_on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1, 2)
    await receive(database, notice(placed), now=NOW)
    outcomes = await gather_bounded(
        8, lambda _: checkout.cancel(database, placed["_id"], "fan_a", now=NOW)
    )
    assert sum(isinstance(outcome, OrderState) for outcome in outcomes) == 7
    assert len((await current(database, placed))["refunds"]) == 1
    assert await seats.lapse_overdue(database, LATER) == 0
    await sound(database)


def _floor(capacity: int) -> list:
    return [events.Section("Floor", "Rear", capacity=capacity)]


async def test_a_late_payment_and_a_new_hold_of_one_fan_never_pass_the_limit(
    database: Database,
) -> None:
    sale = await put_on_sale(database, max_seats_per_fan=2)
    for n in range(6):
        fan = f"fan_{n}"
        placed = await ordered(database, sale, fan, 3 * n, 3 * n + 1)
        await checkout.release_hold(database, placed["holdId"], fan, now=NOW)
        new = HoldRequest(sale.event_id, fan, sale.seats(20 + 2 * n, 21 + 2 * n))
        (outcome,), hold = await asyncio.gather(
            receive(database, notice(placed), now=NOW), place(database, new)
        )
        kept = 2 * (outcome == "confirmed") + 2 * isinstance(hold, Hold)
        assert kept <= 2
        assert outcome in {"confirmed", "refunded"}
    await sound(database)


async def test_one_key_for_any_seats_at_several_processes_never_holds_more_than_asked(
    database: Database,
) -> None:
    # Within one process the requests of one key wait for each other and all get the same hold.
    # Several processes may each choose seats for it; then they give way until one set is left.
    sale = await put_on_sale(database)
    for n in range(5):
        fan = f"fan_{n}"
        asked = HoldRequest(sale.event_id, fan, quantity=2, section="Floor", key="k", body=b"b")
        await gather_bounded(4, lambda _, asked=asked: place(database, asked))
        hold = await place(database, asked)
        assert isinstance(hold, Hold)
        held = await holds.seats_of(database, [hold.hold_id])
        assert [seat["_id"] for seat in held] == [seat["_id"] for seat in hold.seats]
        assert len(held) == 2
    await sound(database)
