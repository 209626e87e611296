"""From a hold to tickets: orders, payment notices and cancelling."""

import asyncio
from datetime import timedelta

import pytest
from pymongo.errors import OperationFailure, PyMongoError

from tests.conftest import NOW, Sale, asked_of_the_server, providers_of, put_on_sale
from ticketing import (
    checkout,
    events,
    holds,
    identifiers,
    invariants,
    orders,
    payments,
    refunds,
    seats,
    tickets,
)
from ticketing.errors import IdempotencyKeyReused, NotFound, Refusal
from ticketing.gateway import Notice
from ticketing.holds import Hold, HoldExpired, HoldRequest
from ticketing.mongo import Client, Database, Document
from ticketing.orders import OrderRequest
from ticketing.states import OrderState

LATER = NOW + timedelta(seconds=601)


async def hold_seats(database: Database, sale: Sale, fan: str, *ordinals: int, now=NOW) -> Hold:
    (hold,) = await holds.place(
        database,
        [HoldRequest(sale.event_id, fan, sale.seats(*ordinals))],
        hold_seconds=600,
        now=now,
    )
    assert isinstance(hold, Hold), hold
    return hold


async def order(database: Database, fan: str, hold_id: str, key=None, now=NOW) -> Document:
    (placed,) = await checkout.place_orders(database, [OrderRequest(fan, hold_id, key)], now=now)
    if isinstance(placed, Refusal):
        raise placed
    return placed


async def ordered(database: Database, sale: Sale, fan: str, *ordinals: int) -> Document:
    hold = await hold_seats(database, sale, fan, *ordinals)
    return await order(database, fan, hold.hold_id)


def notice(placed: Document, kind: str = "payment.succeeded", **changes) -> Notice:
    values = {
        "provider": "sandbox",
        "notice_id": identifiers.fresh("msg"),
        "type": kind,
        "payment_id": placed["payment"]["paymentId"],
        "order_id": placed["_id"],
        "amount": placed["total"],
        "currency": placed["currency"],
    }
    return Notice(**(values | changes))


async def receive(database: Database, *notices: Notice, now=NOW) -> list[str]:
    receipts = await checkout.receive(database, notices, now=now)
    for receipt in receipts:
        if isinstance(receipt, Exception):
            raise receipt
    return [receipt.outcome for receipt in receipts]


async def current(database: Database, placed: Document) -> Document:
    return await orders.find(database, placed["_id"], placed["fanId"])


async def sound(database: Database) -> None:
    assert await invariants.check_all(database, counters=False) == []


async def test_an_order_copies_its_seats_and_waits_for_payment(either: Database) -> None:
    sale = await put_on_sale(either)
    placed = await ordered(either, sale, "fan_a", 1, 25)
    assert placed["status"] == "pendingPayment"
    assert placed["total"] == 9500 + 4500
    assert placed["expiresAt"] == NOW + timedelta(seconds=600)
    assert [seat["seatId"] for seat in placed["seats"]] == list(sale.seats(1, 25))
    assert await current(either, placed) == placed


async def test_one_hold_gives_one_order_with_or_without_a_key(either: Database) -> None:
    sale = await put_on_sale(either)
    hold = await hold_seats(either, sale, "fan_a", 1)
    first = await order(either, "fan_a", hold.hold_id, "k")
    assert await order(either, "fan_a", hold.hold_id, "k") == first
    assert await order(either, "fan_a", hold.hold_id) == first
    other = await hold_seats(either, sale, "fan_a", 2)
    with pytest.raises(IdempotencyKeyReused):
        await order(either, "fan_a", other.hold_id, "k")
    assert await either.orders.count_documents({}) == 1


async def test_a_repeated_request_gets_its_order_also_after_it_was_paid(either: Database) -> None:
    sale = await put_on_sale(either)
    hold = await hold_seats(either, sale, "fan_a", 1)
    placed = await order(either, "fan_a", hold.hold_id, "k")
    await receive(either, notice(placed))
    again = await order(either, "fan_a", hold.hold_id, "k")
    assert (again["_id"], again["status"]) == (placed["_id"], "confirmed")


async def test_a_hold_that_is_over_or_another_fans_gives_no_order(database: Database) -> None:
    sale = await put_on_sale(database)
    hold = await hold_seats(database, sale, "fan_a", 1)
    with pytest.raises(NotFound):
        await order(database, "fan_b", hold.hold_id)
    with pytest.raises(HoldExpired):
        await order(database, "fan_a", hold.hold_id, now=LATER)
    await checkout.release_hold(database, hold.hold_id, "fan_a", now=NOW)
    with pytest.raises(HoldExpired):
        await order(database, "fan_a", hold.hold_id)


async def test_payment_confirms_the_order_and_issues_a_ticket_a_seat(either: Database) -> None:
    sale = await put_on_sale(either)
    placed = await ordered(either, sale, "fan_a", 1, 2)
    assert await receive(either, notice(placed)) == ["confirmed"]
    confirmed = await current(either, placed)
    assert confirmed["status"] == "confirmed"
    assert confirmed["payment"]["status"] == "succeeded"
    assert len({ticket["code"] for ticket in confirmed["tickets"]}) == 2
    page = await tickets.listing(either, "fan_a", now=NOW, limit=20)
    assert [item["number"] for item in page.items] == ["2", "3"]
    assert await either.outbox.count_documents({"kind": "order.confirmed"}) == 1
    await sound(either)


async def test_a_notice_has_its_effect_once_however_often_it_comes(either: Database) -> None:
    sale = await put_on_sale(either)
    placed = await ordered(either, sale, "fan_a", 1)
    sent = notice(placed)
    assert await receive(either, sent, sent) == ["confirmed", "repeated"]
    assert await receive(either, sent, notice(placed)) == ["repeated", "repeated"]
    codes = [ticket["code"] for ticket in (await current(either, placed))["tickets"]]
    assert len(codes) == 1
    assert await either.outbox.count_documents({"kind": "order.confirmed"}) == 1


async def test_a_decline_leaves_the_order_waiting_and_the_fan_may_try_again(
    either: Database,
) -> None:
    sale = await put_on_sale(either)
    placed = await ordered(either, sale, "fan_a", 1)
    assert await receive(either, notice(placed, "payment.failed")) == ["failed"]
    declined = await current(either, placed)
    assert (declined["status"], declined["payment"]["status"]) == ("pendingPayment", "failed")
    assert await receive(either, notice(placed)) == ["confirmed"]


async def test_a_failure_that_arrives_after_success_changes_nothing(either: Database) -> None:
    sale = await put_on_sale(either)
    placed = await ordered(either, sale, "fan_a", 1)
    assert await receive(either, notice(placed), notice(placed, "payment.failed")) == [
        "confirmed",
        "ignored",
    ]
    assert (await current(either, placed))["payment"]["status"] == "succeeded"


@pytest.mark.parametrize("changed", [{"amount": 1}, {"currency": "USD"}])
async def test_another_amount_or_currency_confirms_nothing_and_is_refunded(
    database: Database, changed: dict
) -> None:
    sale = await put_on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1)
    assert await receive(database, notice(placed, **changed)) == ["refunded"]
    assert await refunds.send_due(database, providers_of(database), NOW) == 1
    after = await current(database, placed)
    assert after["status"] == "pendingPayment"
    (refund,) = after["refunds"]
    assert refund["status"] == "done"
    assert refund["amount"] == changed.get("amount", placed["total"])
    assert refund["currency"] == changed.get("currency", "EUR")
    assert await receive(database, notice(placed)) == ["confirmed"]


async def test_an_unknown_payment_is_kept_and_answered(database: Database) -> None:
    lost = Notice("sandbox", "msg_1", "payment.succeeded", "pay_x", "ord_x", 1, "EUR")
    assert await receive(database, lost, lost) == ["unknown", "repeated"]
    assert await database.notices.count_documents({"outcome": "unknown"}) == 1


@pytest.mark.parametrize("swept", [True, False])
async def test_paid_late_with_the_seats_still_free_takes_them_again(
    either: Database, swept: bool
) -> None:
    sale = await put_on_sale(either)
    placed = await ordered(either, sale, "fan_a", 1, 2)
    if swept:
        await seats.lapse_overdue(either, LATER)
        await orders.expire_overdue(either, LATER)
        assert (await current(either, placed))["status"] == "expired"
    assert await receive(either, notice(placed), now=LATER) == ["confirmed"]
    await sound(either)


@pytest.mark.parametrize("taken", [(2,), (1, 2)])
async def test_paid_late_with_a_seat_gone_is_refunded_in_full_and_expired(
    either: Database, taken: tuple[int, ...]
) -> None:
    sale = await put_on_sale(either)
    placed = await ordered(either, sale, "fan_a", 1, 2)
    winner = await hold_seats(either, sale, "fan_b", *taken, now=LATER)
    assert await receive(either, notice(placed), now=LATER) == ["refunded"]
    after = await current(either, placed)
    assert after["status"] == "expired"
    assert after["refunds"][0]["amount"] == placed["total"]
    assert after["payment"]["status"] == "succeeded"
    assert (await holds.find(either, winner.hold_id, "fan_b", LATER)).seats == winner.seats
    await sound(either)


async def test_paid_after_the_event_was_cancelled_is_refunded(database: Database) -> None:
    sale = await put_on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1)
    await events.cancel(database, sale.event_id, NOW)
    assert await receive(database, notice(placed)) == ["refunded"]
    assert (await current(database, placed))["status"] == "expired"


async def test_paid_late_never_gives_a_fan_more_than_the_limit(database: Database) -> None:
    sale = await put_on_sale(database, max_seats_per_fan=2)
    placed = await ordered(database, sale, "fan_a", 1, 2)
    await orders.expire_overdue(database, LATER)
    await hold_seats(database, sale, "fan_a", 3, 4, now=LATER)
    assert await receive(database, notice(placed), now=LATER) == ["refunded"]


async def test_releasing_a_hold_expires_its_waiting_order(either: Database) -> None:
    sale = await put_on_sale(either)
    placed = await ordered(either, sale, "fan_a", 1)
    await checkout.release_hold(either, placed["holdId"], "fan_a", now=NOW)
    assert (await current(either, placed))["status"] == "expired"


async def test_releasing_a_hold_that_was_bought_changes_nothing(either: Database) -> None:
    sale = await put_on_sale(either)
    placed = await ordered(either, sale, "fan_a", 1)
    await receive(either, notice(placed))
    await checkout.release_hold(either, placed["holdId"], "fan_a", now=NOW)
    assert (await current(either, placed))["status"] == "confirmed"
    await sound(either)


async def test_a_free_order_is_confirmed_at_once(either: Database) -> None:
    sale = await put_on_sale(
        either,
        price_categories=[events.PriceCategory("Free", 0)],
        sections=[events.Section("Floor", "Free", capacity=3)],
    )
    placed = await ordered(either, sale, "fan_a", 0)
    assert (placed["status"], placed["payment"], len(placed["tickets"])) == ("confirmed", None, 1)
    await sound(either)


async def test_cancelling_frees_the_seats_voids_the_tickets_and_refunds(either: Database) -> None:
    sale = await put_on_sale(either)
    placed = await ordered(either, sale, "fan_a", 1, 2)
    await receive(either, notice(placed))
    cancelled = await checkout.cancel(either, placed["_id"], "fan_a", now=NOW)
    assert cancelled["status"] == "cancelled"
    assert {ticket["status"] for ticket in cancelled["tickets"]} == {"void"}
    assert cancelled["refunds"][0]["status"] == "created"
    await refunds.send_due(either, providers_of(either), NOW)
    assert (await current(either, placed))["refunds"][0]["status"] == "done"
    assert (await tickets.listing(either, "fan_a", now=NOW, limit=20)).items == []
    await hold_seats(either, sale, "fan_b", 1, 2)
    with pytest.raises(OrderState) as refused:
        await checkout.cancel(either, placed["_id"], "fan_a", now=NOW)
    assert refused.value.state == "cancelled"
    with pytest.raises(NotFound):
        await checkout.cancel(either, placed["_id"], "fan_b", now=NOW)
    await sound(either)


async def test_an_order_paid_after_it_was_cancelled_is_refunded(database: Database) -> None:
    sale = await put_on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1)
    await checkout.cancel(database, placed["_id"], "fan_a", now=NOW)
    assert await receive(database, notice(placed)) == ["refunded"]
    after = await current(database, placed)
    assert (after["status"], len(after["refunds"])) == ("cancelled", 1)


async def test_tickets_and_orders_are_paged_without_loss_or_repeat(database: Database) -> None:
    upcoming = await put_on_sale(database)
    past = await put_on_sale(database, starts_at=NOW - timedelta(hours=2))
    far = await put_on_sale(database, starts_at=NOW + timedelta(days=60))
    for sale in (far, past, upcoming):
        for ordinals in ((0, 1, 2), (3,)):
            placed = await ordered(database, sale, "fan_a", *ordinals)
            await receive(database, notice(placed))
    for limit in (1, 2, 3, 5, 12, 100):
        seen, cursor = [], None
        while True:
            page = await tickets.listing(database, "fan_a", now=NOW, limit=limit, cursor=cursor)
            seen += page.items
            assert len(page.items) <= limit
            cursor = page.next_cursor
            if cursor is None:
                break
        assert len({item["ticketId"] for item in seen}) == len(seen) == 12
        starts = [item["event"]["startsAt"] for item in seen]
        assert starts[:4] == [upcoming.event["startsAt"]] * 4
        assert starts[4:8] == [far.event["startsAt"]] * 4
    first = await orders.listing(database, "fan_a", limit=4)
    second = await orders.listing(database, "fan_a", limit=4, cursor=first.next_cursor)
    assert len({placed["_id"] for placed in first.items + second.items}) == 6
    assert second.next_cursor is None


@pytest.mark.parametrize("swept", [True, False])
async def test_a_hold_that_is_over_gives_no_seats_beyond_the_limit_when_paid_late(
    database: Database, swept: bool
) -> None:
    sale = await put_on_sale(database, max_seats_per_fan=2)
    late = await ordered(database, sale, "fan_a", 0, 1)
    hold = await hold_seats(database, sale, "fan_a", 2, 3, now=LATER)
    second = await order(database, "fan_a", hold.hold_id, now=LATER)
    if swept:
        await seats.lapse_overdue(database, LATER)
    outcomes = await receive(database, notice(second), now=LATER)
    outcomes += await receive(database, notice(late), now=LATER)
    assert outcomes == ["confirmed", "refunded"]
    assert await database.seats.count_documents({"status": "sold"}) == 2


@pytest.mark.parametrize("at_once", [True, False])
async def test_two_late_payments_of_one_fan_give_no_seats_beyond_the_limit(
    database: Database, at_once: bool
) -> None:
    sale = await put_on_sale(database, max_seats_per_fan=2)
    first = await ordered(database, sale, "fan_a", 0, 1)
    await seats.lapse_overdue(database, LATER)
    hold = await hold_seats(database, sale, "fan_a", 2, 3, now=LATER)
    second = await order(database, "fan_a", hold.hold_id, now=LATER)
    later = LATER + timedelta(seconds=601)
    await seats.lapse_overdue(database, later)
    await orders.expire_overdue(database, later)
    if at_once:
        both = await asyncio.gather(
            receive(database, notice(first), now=later),
            receive(database, notice(second), now=later),
        )
        outcomes = [outcome for (outcome,) in both]
    else:
        outcomes = await receive(database, notice(first), notice(second), now=later)
    assert sorted(outcomes) == ["confirmed", "refunded"]
    assert await database.seats.count_documents({"status": "sold"}) == 2
    await sound(database)


async def test_a_payment_with_the_wrong_amount_is_refunded_once_however_often_it_is_told(
    database: Database,
) -> None:
    sale = await put_on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1)
    wrong = [notice(placed, amount=1), notice(placed, amount=1), notice(placed, amount=0)]
    assert await receive(database, *wrong) == ["refunded", "repeated", "repeated"]
    assert len((await current(database, placed))["refunds"]) == 1


async def test_a_payment_that_names_another_order_confirms_nothing(database: Database) -> None:
    sale = await put_on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1)
    assert await receive(database, notice(placed, order_id="ord_other")) == ["refunded"]
    assert (await current(database, placed))["status"] == "pendingPayment"


async def test_a_ticket_is_neither_lost_nor_repeated_when_its_show_begins_between_two_pages(
    database: Database,
) -> None:
    for minutes in (1, 2, 600):
        sale = await put_on_sale(database, starts_at=NOW + timedelta(minutes=minutes))
        placed = await ordered(database, sale, "fan_a", 0)
        await receive(database, notice(placed))
    seen, cursor, now = [], None, NOW
    while True:
        page = await tickets.listing(database, "fan_a", now=now, limit=1, cursor=cursor)
        seen += [item["ticketId"] for item in page.items]
        cursor, now = page.next_cursor, now + timedelta(minutes=3)
        if cursor is None:
            break
    assert len(seen) == len(set(seen)) == 3


async def test_cancelling_an_old_order_leaves_a_later_hold_of_the_same_key_alone(
    database: Database,
) -> None:
    sale = await put_on_sale(database)
    asked = HoldRequest(sale.event_id, "fan_a", sale.seats(1), key="k")
    (first,) = await holds.place(database, [asked], hold_seconds=600, now=NOW)
    old = await order(database, "fan_a", first.hold_id)
    (second,) = await holds.place(database, [asked], hold_seconds=600, now=LATER)
    assert second.hold_id == first.hold_id
    await checkout.cancel(database, old["_id"], "fan_a", now=LATER)
    assert (await holds.find(database, second.hold_id, "fan_a", LATER)).seats == second.seats


async def test_cancelling_a_waiting_order_frees_its_seats(database: Database) -> None:
    sale = await put_on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1)
    await checkout.cancel(database, placed["_id"], "fan_a", now=NOW)
    await hold_seats(database, sale, "fan_b", 1)
    kinds = await database.outbox.distinct("kind")
    assert kinds == ["order.cancelled", "order.placed"]


async def test_an_order_its_payment_and_its_message_are_there_together_or_not_at_all(
    database: Database, client: Client
) -> None:
    sale = await put_on_sale(database)
    hold = await hold_seats(database, sale, "fan_a", 1)
    fault = {
        "configureFailPoint": "failCommand",
        "mode": {"times": 1},
        "data": {"failCommands": ["commitTransaction"], "errorCode": 8000, "errorLabels": []},
    }
    await client.driver_client.admin.command(fault)
    with pytest.raises(OperationFailure):
        await order(database, "fan_a", hold.hold_id, "k")
    for collection in (database.orders, database.payments, database.outbox):
        assert await collection.count_documents({}) == 0
    placed = await order(database, "fan_a", hold.hold_id, "k")
    payment = await payments.find(database, placed["payment"]["paymentId"])
    assert payment["amount"] == placed["total"]
    (told,) = await database.outbox.find({}).to_list(2)
    assert (told["kind"], told["orderId"]) == ("order.placed", placed["_id"])
    assert told["body"] == {
        "reference": placed["reference"],
        "seatCount": 1,
        "total": placed["total"],
        "currency": "EUR",
    }


async def test_one_hold_in_a_group_that_was_ordered_before_fails_no_neighbour(
    database: Database,
) -> None:
    sale = await put_on_sale(database)
    made = [await hold_seats(database, sale, f"fan_{n}", n) for n in range(4)]
    wishes = [OrderRequest(f"fan_{n}", hold.hold_id) for n, hold in enumerate(made)]
    remembered = holds.Remembered()
    before = await checkout.place_orders(database, wishes[1:3], now=NOW)
    for hold in made:
        remembered.keep(hold)
    placed = await checkout.place_orders(database, wishes, now=NOW, remembered=remembered)
    assert placed[1:3] == before
    assert [one["fanId"] for one in placed] == [f"fan_{n}" for n in range(4)]
    assert await database.orders.count_documents({}) == 4
    assert await database.payments.count_documents({}) == 4
    assert await database.outbox.count_documents({"kind": "order.placed"}) == 4


async def test_an_order_asked_for_again_costs_its_neighbours_nothing(database: Database) -> None:
    sale = await put_on_sale(database)
    made = [await hold_seats(database, sale, f"fan_{n}", n) for n in range(3)]
    wishes = [OrderRequest(f"fan_{n}", hold.hold_id) for n, hold in enumerate(made)]
    await checkout.place_orders(database, wishes[:1], now=NOW)
    async with asked_of_the_server(database, "orders") as asked:
        placed = await checkout.place_orders(database, wishes, now=NOW)
    assert [one["fanId"] for one in placed] == ["fan_0", "fan_1", "fan_2"]
    # The one of before was found, and not run into.
    assert sum(entry["op"] == "insert" for entry in asked) == 1


@pytest.mark.parametrize("opened", [True, False])
@pytest.mark.parametrize("way", ["not paid in time", "its hold was released"])
async def test_an_order_that_ends_unpaid_is_told_once(
    database: Database, way: str, opened: bool
) -> None:
    sale = await put_on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1)
    if opened:
        await orders.opened(database, placed, NOW)
    for _ in range(2):
        if way == "not paid in time":
            await orders.expire_overdue(database, LATER)
        else:
            await checkout.release_hold(database, placed["holdId"], "fan_a", now=NOW)
    told = await database.outbox.find({"kind": "order.expired"}).to_list(2)
    assert [(one["orderId"], one["body"]) for one in told] == [
        (placed["_id"], {"reason": way, "paymentOpened": opened})
    ]


async def test_of_orders_paid_while_they_are_swept_only_those_that_expired_are_told_so(
    database: Database,
) -> None:
    sale = await put_on_sale(database)
    placed = [await ordered(database, sale, f"fan_{n}", n) for n in range(8)]
    await asyncio.gather(
        *(receive(database, notice(one)) for one in placed),
        orders.expire(database, [one["_id"] for one in placed], "not paid in time", NOW),
    )
    told = await database.outbox.distinct("orderId", {"kind": "order.expired"})
    assert told == await database.orders.distinct("_id", {"history.what": "expired"})
    assert await invariants.check_all(database, counters=False) == []


async def test_a_hold_that_is_remembered_but_was_let_go_makes_no_order_that_waits(
    database: Database,
) -> None:
    sale = await put_on_sale(database)
    hold = await hold_seats(database, sale, "fan_a", 1)
    remembered = holds.Remembered()
    remembered.keep(hold)
    await checkout.release_hold(database, hold.hold_id, "fan_a", now=NOW)
    (outcome,) = await checkout.place_orders(
        database, [OrderRequest("fan_a", hold.hold_id)], now=NOW, remembered=remembered
    )
    assert isinstance(outcome, holds.HoldExpired)
    assert await database.orders.count_documents({"status": "pendingPayment"}) == 0


async def test_a_cancelled_event_takes_no_more_orders(database: Database) -> None:
    sale = await put_on_sale(database)
    hold = await hold_seats(database, sale, "fan_a", 1)
    await events.cancel(database, sale.event_id, NOW)
    with pytest.raises(events.SaleNotOpen):
        await order(database, "fan_a", hold.hold_id)


async def test_an_order_that_no_majority_has_is_not_answered(
    database: Database, client: Client
) -> None:
    sale = await put_on_sale(database)
    hold = await hold_seats(database, sale, "fan_a", 1)
    await client.driver_client.admin.command(
        {
            "configureFailPoint": "failCommand",
            "mode": {"times": 1},
            "data": {
                "failCommands": ["insert"],
                "writeConcernError": {"code": 64, "errmsg": "waiting for replication timed out"},
            },
        }
    )
    with pytest.raises(PyMongoError):
        await order(database, "fan_a", hold.hold_id)
    assert (await order(database, "fan_a", hold.hold_id))["status"] == "pendingPayment"


async def test_a_hold_asked_for_again_after_it_was_bought_gets_the_same_answer(
    database: Database,
) -> None:
    sale = await put_on_sale(database)
    asked = HoldRequest(sale.event_id, "fan_a", sale.seats(1, 2), key="k")
    (hold,) = await holds.place(database, [asked], hold_seconds=600, now=NOW)
    placed = await order(database, "fan_a", hold.hold_id)
    await receive(database, notice(placed))
    (again,) = await holds.place(database, [asked], hold_seconds=600, now=NOW)
    assert (again.hold_id, again.expires_at) == (hold.hold_id, hold.expires_at)
    assert [seat["_id"] for seat in again.seats] == list(sale.seats(1, 2))
    assert await database.seats.count_documents({"status": "held"}) == 0
