"""Every way a payment or a refund can go wrong comes out right."""

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta

import pymongo
import pytest
from pymongo.errors import AutoReconnect, PyMongoError

from tests.conftest import (
    NOW,
    ORGANISER,
    Sale,
    asked_of_the_server,
    gather_bounded,
    providers_of,
    put_on_sale,
)
from tests.nouns.test_checkout import (
    LATER,
    current,
    hold_seats,
    notice,
    order,
    ordered,
    receive,
    sound,
)
from ticketing import (
    checkout,
    events,
    identifiers,
    invariants,
    orders,
    payments,
    refunds,
    seats,
    settling,
    states,
)
from ticketing.checkout import LineRefund
from ticketing.errors import IdempotencyKeyReused, Invalid, NotFound
from ticketing.gateway import Notice
from ticketing.mongo import Client, Database, Document
from ticketing.sandbox import Switches
from ticketing.settings import Settings
from ticketing.states import OrderState


async def bought(database: Database, sale: Sale, fan: str, *ordinals: int) -> Document:
    placed = await ordered(database, sale, fan, *ordinals)
    assert await receive(database, notice(placed)) == ["confirmed"]
    return await current(database, placed)


def second_payment(placed: Document, **changes: object) -> Notice:
    return notice(placed, **({"payment_id": identifiers.fresh("pay")} | changes))


def refund_notice(placed: Document, kind: str = "refund.done", **changes: object) -> Notice:
    return notice(placed, kind, **({"refund_id": "re_1"} | changes))


async def send(database: Database, now=NOW, **switches: object) -> None:
    providers = providers_of(database)
    await providers.sandbox.set_switches(Switches(**switches))
    await refunds.send_due(database, providers, now)


async def statuses(database: Database, placed: Document) -> list[str]:
    return [refund["status"] for refund in (await current(database, placed))["refunds"]]


# --- States ------------------------------------------


@pytest.mark.parametrize("table", [states.ORDER, states.PAYMENT, states.REFUND])
def test_a_table_of_states_names_only_its_own_and_no_change_keeps_the_state(
    table: states.Table,
) -> None:
    for before, afters in table.items():
        assert before not in afters
        assert set(afters) <= set(table)


@pytest.mark.parametrize("table", [states.ORDER, states.PAYMENT, states.REFUND])
def test_a_change_that_is_not_in_the_table_is_refused_with_the_state(table: states.Table) -> None:
    for before in table:
        for after in table:
            if after in table[before]:
                states.check(table, before, after)
                continue
            with pytest.raises(OrderState) as refused:
                states.check(table, before, after)
            assert refused.value.members() == {"state": before}


async def test_an_order_keeps_what_happened_when_by_whom_and_why(database: Database) -> None:
    sale = await put_on_sale(database)
    placed = await bought(database, sale, "fan_a", 1)
    await checkout.cancel(database, placed["_id"], "fan_a", now=LATER)
    history = (await current(database, placed))["history"]
    assert [(entry["what"], entry["by"]) for entry in history] == [
        ("pendingPayment", "fan_a"),
        ("confirmed", "provider"),
        ("cancelled", "fan_a"),
        ("refund", "fan_a"),
    ]
    assert all(entry["why"] and entry["at"] for entry in history)


# --- Paid late ------------------------------------------


async def test_a_notice_that_comes_before_its_order_is_looked_at_again(database: Database) -> None:
    sale = await put_on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1)
    hidden = await database.orders.find_one_and_delete({"_id": placed["_id"]})
    payment = await database.payments.find_one_and_delete({"orderId": placed["_id"]})
    assert await receive(database, notice(placed)) == ["unknown"]
    assert await checkout.look_again(database, NOW + timedelta(seconds=6)) == 1
    assert await database.notices.count_documents({"outcome": "unknown"}) == 1
    await database.orders.insert_one(hidden)
    await database.payments.insert_one(payment)
    assert await checkout.look_again(database, NOW + timedelta(seconds=20)) == 1
    assert (await current(database, placed))["status"] == "confirmed"
    assert await database.notices.count_documents({"outcome": "confirmed"}) == 1
    assert await checkout.look_again(database, NOW + timedelta(days=2)) == 0
    await sound(database)


async def test_two_workers_that_look_again_at_a_notice_confirm_once(database: Database) -> None:
    sale = await put_on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1)
    await database.orders.update_one(
        {"_id": placed["_id"]}, {"$set": {"payment.paymentId": "pay_hidden"}}
    )
    late = notice(placed, order_id="ord_hidden")
    payment = await database.payments.find_one_and_delete({"orderId": placed["_id"]})
    assert await receive(database, late) == ["unknown"]
    await database.notices.update_many({}, {"$set": {"orderId": placed["_id"]}})
    await database.orders.update_one(
        {"_id": placed["_id"]}, {"$set": {"payment": placed["payment"]}}
    )
    await database.payments.insert_one(payment)
    later = NOW + timedelta(seconds=20)
    await asyncio.gather(*(checkout.look_again(database, later) for _ in range(4)))
    after = await current(database, placed)
    assert (after["status"], len(after["tickets"]), after["refunds"]) == ("confirmed", 1, [])
    assert await database.outbox.count_documents({"kind": "order.confirmed"}) == 1


async def test_a_notice_that_stays_unknown_is_given_up_and_waits_for_a_person(
    database: Database,
) -> None:
    lost = Notice("sandbox", "ntc_1", "payment.succeeded", "pay_x", "ord_x", 7, "EUR")
    assert await receive(database, lost) == ["unknown"]
    now, looks = NOW, 0
    while await database.notices.count_documents({"lookAgainAt": {"$exists": True}}):
        now += timedelta(hours=1)
        looks += await checkout.look_again(database, now)
    assert looks == checkout.LOOKS_MAX
    (waiting,) = await invariants.attention(database, now)
    assert waiting.what == "a notice of an unknown payment"
    assert "sandbox:ntc_1" in waiting.detail


def test_the_audit_lists_what_waits_for_a_person_and_breaks_no_rule(
    settings: Settings,
) -> None:
    with pymongo.MongoClient[Document](settings.mongodb_uri) as client:
        client[settings.database].notices.insert_one(
            {
                "_id": "sandbox:ntc_1",
                "provider": "sandbox",
                "type": "payment.succeeded",
                "paymentId": "pay_x",
                "amount": 7,
                "currency": "EUR",
                "outcome": "unknown",
                "receivedAt": NOW,
            }
        )
    audit = subprocess.run(
        [sys.executable, "-m", "scripts.audit"],
        env=os.environ
        | {
            "TICKETING_MONGODB_URI": settings.mongodb_uri,
            "TICKETING_DATABASE": settings.database,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert audit.returncode == 0, audit
    assert "For a person: a notice of an unknown payment: sandbox:ntc_1" in audit.stdout
    assert "All invariants hold." in audit.stdout


async def test_money_for_a_cancelled_event_goes_back_also_when_the_hold_was_over(
    database: Database,
) -> None:
    sale = await put_on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1)
    await seats.lapse_overdue(database, LATER)
    await orders.expire_overdue(database, LATER)
    await events.cancel(database, sale.event_id, LATER)
    assert await receive(database, notice(placed), now=LATER) == ["refunded"]
    after = await current(database, placed)
    assert (after["status"], after["refunds"][0]["amount"]) == ("expired", placed["total"])
    await sound(database)


# --- Paid twice, or something else ------------------------------------------


@pytest.mark.parametrize("first", ["own", "second"])
async def test_a_second_payment_goes_back_once_in_whatever_order_the_two_come(
    database: Database, first: str
) -> None:
    sale = await put_on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1)
    own, second = notice(placed), second_payment(placed)
    pair = (own, second) if first == "own" else (second, own)
    outcomes = await receive(database, *pair)
    assert sorted(outcomes) == ["confirmed", "refunded"]
    again = replace(second, notice_id="ntc_again")
    assert await receive(database, second, again) == ["repeated", "repeated"]
    after = await current(database, placed)
    assert (after["status"], after["payment"]["status"]) == ("confirmed", "succeeded")
    assert [(r["kind"], r["amount"]) for r in after["refunds"]] == [("second", placed["total"])]
    await send(database)
    assert await statuses(database, placed) == ["done"]
    await sound(database)


async def test_a_second_payment_goes_back_once_when_all_notices_come_at_the_same_instant(
    database: Database,
) -> None:
    sale = await put_on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1)
    second = second_payment(placed)
    sent = [notice(placed), second, *(replace(second, notice_id=f"n{n}") for n in range(5))]
    outcomes = await gather_bounded(len(sent), lambda index: receive(database, sent[index]))
    assert sorted(outcome for (outcome,) in outcomes) == [
        "confirmed",
        "refunded",
        *["repeated"] * 5,
    ]
    assert len((await current(database, placed))["refunds"]) == 1
    await sound(database)


async def test_a_payment_for_a_free_order_goes_back(database: Database) -> None:
    sale = await put_on_sale(
        database,
        price_categories=[events.PriceCategory("Free", 0)],
        sections=[events.Section("Floor", "Free", capacity=3)],
    )
    placed = await ordered(database, sale, "fan_a", 0)
    told = Notice("sandbox", "n1", "payment.succeeded", "pay_2", placed["_id"], 500, "EUR")
    assert await receive(database, told) == ["refunded"]
    assert (await current(database, placed))["status"] == "confirmed"


async def test_twenty_duplicates_in_parallel_confirm_once(database: Database) -> None:
    sale = await put_on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1)
    same = notice(placed)
    outcomes = await gather_bounded(20, lambda _: receive(database, same))
    assert sorted(outcome for (outcome,) in outcomes) == ["confirmed", *["repeated"] * 19]
    assert len((await current(database, placed))["tickets"]) == 1
    kinds = ["order.confirmed", "order.placed", "payment.completed"]
    assert await database.outbox.distinct("kind") == kinds
    assert await database.outbox.count_documents({}) == 3
    await sound(database)


@pytest.mark.parametrize("reverse", [True, False])
async def test_success_and_failure_in_either_order_end_in_success(
    database: Database, reverse: bool
) -> None:
    sale = await put_on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1)
    told = [notice(placed), notice(placed, "payment.failed")]
    for one in reversed(told) if reverse else told:
        await receive(database, one)
    after = await current(database, placed)
    assert (after["status"], after["payment"]["status"]) == ("confirmed", "succeeded")
    stored = await payments.find(database, placed["payment"]["paymentId"])
    assert stored["status"] == "succeeded"


async def test_an_uncertain_payment_is_neither_paid_nor_declined(database: Database) -> None:
    sale = await put_on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1)
    assert await receive(database, notice(placed, "payment.uncertain")) == ["uncertain"]
    after = await current(database, placed)
    assert (after["status"], after["payment"]["status"]) == ("pendingPayment", "uncertain")
    assert await receive(database, notice(placed)) == ["confirmed"]
    assert await receive(database, notice(placed, "payment.uncertain")) == ["ignored"]
    await sound(database)


# --- The commit's answer is lost ------------------------------------------


@pytest.mark.parametrize("still_answers", [True, False])
async def test_a_commit_whose_answer_was_lost_confirms_once_and_refunds_nothing(
    database: Database, client: Client, monkeypatch: pytest.MonkeyPatch, still_answers: bool
) -> None:
    sale = await put_on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1)
    genuine = checkout.mongo.transaction

    async def answer_is_lost(*arguments: object, **rest: object) -> None:
        await genuine(*arguments, **rest)
        lost = AutoReconnect("the primary died after the commit")
        lost._add_error_label("UnknownTransactionCommitResult")
        raise lost

    monkeypatch.setattr(checkout.mongo, "transaction", answer_is_lost)
    if not still_answers:

        async def away(*_: object) -> None:
            return None

        monkeypatch.setattr(checkout, "_read_back", away)
    sent = notice(placed)
    (receipt,) = await checkout.receive(database, [sent], now=NOW)
    if still_answers:
        assert receipt.outcome == "confirmed"
    else:
        assert isinstance(receipt, PyMongoError)
    monkeypatch.undo()
    assert await receive(database, sent, notice(placed)) == ["repeated", "repeated"]
    after = await current(database, placed)
    assert (after["status"], len(after["tickets"]), after["refunds"]) == ("confirmed", 1, [])
    await sound(database)


async def test_a_commit_that_the_server_cuts_off_after_it_was_made_confirms_once(
    database: Database, client: Client
) -> None:
    sale = await put_on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1)
    await client.driver_client.admin.command(
        {
            "configureFailPoint": "failCommand",
            "mode": {"times": 1},
            "data": {
                "failCommands": ["commitTransaction"],
                "writeConcernError": {"code": 91, "errmsg": "the primary is going away"},
            },
        }
    )
    assert await receive(database, notice(placed)) == ["confirmed"]
    after = await current(database, placed)
    assert (after["status"], len(after["tickets"]), after["refunds"]) == ("confirmed", 1, [])
    await sound(database)


# --- The notice never comes ------------------------------------------


async def test_a_payment_older_than_a_minute_without_a_notice_is_looked_up_and_settled(
    database: Database,
) -> None:
    sale = await put_on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1)
    providers = providers_of(database)
    await providers.sandbox.pay(await payments.find(database, placed["payment"]["paymentId"]))
    assert await settling.look_up_due(database, providers, NOW + timedelta(seconds=59)) == 0
    a_minute_later = NOW + timedelta(seconds=60)
    found = await gather_bounded(
        3, lambda _: settling.look_up_due(database, providers, a_minute_later)
    )
    assert 1 in found
    after = await current(database, placed)
    assert (after["status"], len(after["tickets"])) == ("confirmed", 1)
    assert await receive(database, notice(placed)) == ["repeated"]
    assert await settling.look_up_due(database, providers, NOW + timedelta(days=1)) == 0
    await sound(database)


async def test_a_payment_nobody_made_is_looked_up_ever_more_rarely_and_at_last_no_more(
    database: Database,
) -> None:
    sale = await put_on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1)
    providers, now, looks = providers_of(database), NOW, 0
    for _ in range(24 * 60):
        now += timedelta(minutes=2)
        looks += await settling.look_up_due(database, providers, now)
    assert 20 < looks < 80
    assert (await current(database, placed))["payment"]["status"] == "created"
    assert await database.payments.count_documents({"lookUpAt": {"$exists": True}}) == 0


async def test_an_uncertain_payment_is_asked_about_until_the_provider_knows(
    database: Database,
) -> None:
    sale = await put_on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1)
    providers = providers_of(database)
    payment = await payments.find(database, placed["payment"]["paymentId"])
    await providers.sandbox.set_switches(Switches(undecided=True))
    await providers.sandbox.pay(payment)
    await settling.look_up_due(database, providers, NOW + timedelta(seconds=60))
    assert (await current(database, placed))["payment"]["status"] == "uncertain"
    await settling.look_up_due(database, providers, NOW + timedelta(seconds=120))
    await providers.sandbox.set_switches(Switches())
    await providers.sandbox.pay(payment)
    await settling.look_up_due(database, providers, NOW + timedelta(seconds=300))
    assert (await current(database, placed))["status"] == "confirmed"
    await sound(database)


async def test_a_payment_is_not_guessed_for_while_its_provider_is_down(database: Database) -> None:
    sale = await put_on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1)
    providers = providers_of(database)
    await providers.sandbox.pay(await payments.find(database, placed["payment"]["paymentId"]))
    await providers.sandbox.set_switches(Switches(down=True))
    assert await settling.look_up_due(database, providers, NOW + timedelta(seconds=60)) == 1
    assert (await current(database, placed))["payment"]["status"] == "created"
    await providers.sandbox.set_switches(Switches())
    assert await settling.look_up_due(database, providers, NOW + timedelta(seconds=120)) == 1
    assert (await current(database, placed))["status"] == "confirmed"


# --- Refunds made elsewhere ------------------------------------------


async def test_a_refund_made_at_the_providers_own_site_is_recorded_and_cascades_to_nothing(
    database: Database,
) -> None:
    sale = await put_on_sale(database)
    placed = await bought(database, sale, "fan_a", 1, 2)
    told = refund_notice(placed, amount=9500)
    assert await receive(database, told, replace(told, notice_id="n2")) == ["recorded", "repeated"]
    after = await current(database, placed)
    assert after["status"] == "confirmed"
    assert [ticket["status"] for ticket in after["tickets"]] == ["valid", "valid"]
    assert [(r["kind"], r["status"], r["amount"]) for r in after["refunds"]] == [
        ("outside", "done", 9500)
    ]
    assert await database.seats.count_documents({"status": "sold"}) == 2
    # What is left is what goes back when the order is cancelled.
    await checkout.cancel(database, placed["_id"], "fan_a", now=NOW)
    amounts = [refund["amount"] for refund in (await current(database, placed))["refunds"]]
    assert amounts == [9500, placed["total"] - 9500]
    await sound(database)


async def test_an_order_paid_twice_and_refunded_once_elsewhere_is_still_paid(
    database: Database,
) -> None:
    sale = await put_on_sale(database)
    placed = await bought(database, sale, "fan_a", 1)
    second = second_payment(placed)
    await receive(database, second)
    await send(database, refuse_refunds=True)
    told = refund_notice(placed, payment_id=second.payment_id, refund_id="re_2")
    assert await receive(database, told) == ["recorded"]
    after = await current(database, placed)
    assert (after["status"], after["payment"]["status"]) == ("confirmed", "succeeded")
    assert after["tickets"][0]["status"] == "valid"


async def test_a_refund_that_is_told_of_before_its_payment_confirms_nothing(
    database: Database,
) -> None:
    sale = await put_on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1)
    assert await receive(database, refund_notice(placed)) == ["recorded"]
    assert await receive(database, notice(placed)) == ["refunded"]
    after = await current(database, placed)
    assert (after["status"], len(after["refunds"])) == ("expired", 1)
    await sound(database)


async def test_a_refund_of_an_unknown_payment_is_kept(database: Database) -> None:
    lost = Notice("sandbox", "n1", "refund.done", "pay_x", "ord_x", 7, "EUR", "re_1")
    assert await receive(database, lost) == ["unknown"]


# --- Refunds we make ------------------------------------------


async def test_some_seats_are_refunded_with_the_money_of_just_these(either: Database) -> None:
    sale = await put_on_sale(either)
    placed = await bought(either, sale, "fan_a", 1, 2, 25)
    wanted = LineRefund(placed["_id"], sale.seats(1, 25), "org_one")
    after = await checkout.refund_lines(either, wanted, now=NOW)
    assert after["status"] == "confirmed"
    assert [(r["kind"], r["amount"]) for r in after["refunds"]] == [("lines", 9500 + 4500)]
    assert [ticket["status"] for ticket in after["tickets"]] == ["void", "valid", "void"]
    assert await either.seats.count_documents({"status": "sold"}) == 1
    await hold_seats(either, sale, "fan_b", 1)
    await send(either)
    assert await statuses(either, placed) == ["done"]
    await sound(either)
    with pytest.raises(OrderState):
        await checkout.refund_lines(either, wanted, now=NOW)
    # The rest goes back with the rest of the order.
    await checkout.cancel(either, placed["_id"], "fan_a", now=NOW)
    assert [r["amount"] for r in (await current(either, placed))["refunds"]] == [14_000, 9500]
    await sound(either)


async def test_a_refunded_seat_is_kept_where_only_the_money_goes_back(database: Database) -> None:
    sale = await put_on_sale(database)
    placed = await bought(database, sale, "fan_a", 1, 2)
    wanted = LineRefund(placed["_id"], sale.seats(1), "org_one", frees=False)
    after = await checkout.refund_lines(database, wanted, now=NOW)
    assert [ticket["status"] for ticket in after["tickets"]] == ["valid", "valid"]
    assert await database.seats.count_documents({"status": "sold"}) == 2
    await sound(database)


async def test_an_order_whose_last_seat_is_refunded_is_cancelled(database: Database) -> None:
    sale = await put_on_sale(database)
    placed = await bought(database, sale, "fan_a", 1, 2)
    for ordinal in (1, 2):
        wanted = LineRefund(placed["_id"], sale.seats(ordinal), "org_one")
        after = await checkout.refund_lines(database, wanted, now=NOW)
    assert after["status"] == "cancelled"
    assert [r["amount"] for r in after["refunds"]] == [9500, 9500]
    await sound(database)


async def test_what_can_not_be_refunded_is_refused(database: Database) -> None:
    sale = await put_on_sale(database)
    waiting = await ordered(database, sale, "fan_a", 1)
    with pytest.raises(OrderState):
        await checkout.refund_lines(
            database, LineRefund(waiting["_id"], sale.seats(1), "org_one"), now=NOW
        )
    placed = await bought(database, sale, "fan_b", 2)
    with pytest.raises(Invalid):
        await checkout.refund_lines(
            database, LineRefund(placed["_id"], sale.seats(3), "org_one"), now=NOW
        )
    with pytest.raises(NotFound):
        await checkout.refund_lines(
            database, LineRefund("ord_none", sale.seats(3), "org_one"), now=NOW
        )


async def test_a_refund_asked_for_again_with_its_key_is_the_same_refund(
    database: Database,
) -> None:
    sale = await put_on_sale(database)
    placed = await bought(database, sale, "fan_a", 1, 2)
    wanted = LineRefund(placed["_id"], sale.seats(1), "org_one", key="k")
    first = await checkout.refund_lines(database, wanted, now=NOW)
    assert await checkout.refund_lines(database, wanted, now=NOW) == first
    with pytest.raises(IdempotencyKeyReused):
        await checkout.refund_lines(database, replace(wanted, seat_ids=sale.seats(2)), now=NOW)


async def test_never_more_goes_back_than_was_paid_under_parallel_requests(
    database: Database,
) -> None:
    sale = await put_on_sale(database)
    placed = await bought(database, sale, "fan_a", 1, 2, 3)

    async def one(index: int) -> Document:
        if index % 4 == 3:
            return await checkout.cancel(database, placed["_id"], "fan_a", now=NOW)
        chosen = sale.seats(1 + index % 3, 1 + (index + 1) % 3)
        return await checkout.refund_lines(
            database, LineRefund(placed["_id"], chosen, "org_one", key=f"k{index}"), now=NOW
        )

    outcomes = await gather_bounded(16, one)
    assert all(isinstance(outcome, dict | OrderState) for outcome in outcomes), outcomes
    after = await current(database, placed)
    given = sum(refund["amount"] for refund in after["refunds"])
    assert (after["status"], given) == ("cancelled", placed["total"])
    stored = await payments.find(database, placed["payment"]["paymentId"])
    assert stored["refunded"] == placed["total"]
    await sound(database)


async def test_a_refund_the_provider_refuses_is_tried_again_and_ends_with_a_person(
    database: Database,
) -> None:
    sale = await put_on_sale(database)
    placed = await bought(database, sale, "fan_a", 1)
    await checkout.cancel(database, placed["_id"], "fan_a", now=NOW)
    providers, now, tries = providers_of(database), NOW, 0
    await providers.sandbox.set_switches(Switches(refuse_refunds=True))
    while await database.refunds.count_documents({"dueAt": {"$exists": True}}):
        tries += await refunds.send_due(database, providers, now)
        assert await statuses(database, placed) == ["failed"]
        now += timedelta(minutes=70)
    assert tries == refunds.ATTEMPTS_MAX
    (waiting,) = await invariants.attention(database, now)
    assert waiting.what == "a refund that was given up"
    assert "balance" in waiting.detail
    listed = await refunds.listing(database, sale.event_id, limit=10, given_up=True)
    (given_up,) = listed.items
    await providers.sandbox.set_switches(Switches())
    await refunds.try_again(database, given_up["_id"], now)
    await refunds.send_due(database, providers, now)
    assert await statuses(database, placed) == ["done"]
    assert await invariants.attention(database, now) == []
    with pytest.raises(OrderState):
        await refunds.try_again(database, given_up["_id"], now)
    await sound(database)


async def test_the_pauses_between_attempts_grow(database: Database) -> None:
    sale = await put_on_sale(database)
    placed = await bought(database, sale, "fan_a", 1)
    await checkout.cancel(database, placed["_id"], "fan_a", now=NOW)
    providers, now, pauses = providers_of(database), NOW, []
    await providers.sandbox.set_switches(Switches(refuse_refunds=True))
    for _ in range(5):
        await refunds.send_due(database, providers, now)
        refund = await database.refunds.find_one({})
        pauses.append((refund["dueAt"] - now).total_seconds())
        now = refund["dueAt"]
    for attempt, pause in enumerate(pauses):
        assert 2.5 * 2**attempt <= pause <= 5 * 2**attempt


async def test_a_refund_that_is_accepted_and_later_fails_is_seen_and_tried_again(
    database: Database,
) -> None:
    sale = await put_on_sale(database)
    placed = await bought(database, sale, "fan_a", 1)
    await checkout.cancel(database, placed["_id"], "fan_a", now=NOW)
    await send(database, refunds_fail_later=True)
    assert await statuses(database, placed) == ["sent"]
    await send(database, NOW + timedelta(hours=1))
    assert await statuses(database, placed) == ["failed"]
    await send(database, NOW + timedelta(hours=2))
    assert await statuses(database, placed) == ["done"]
    known = await database.sandbox_payments.find_one({})
    assert known["refunded"] == placed["total"]


async def test_a_refund_that_was_done_and_comes_back_from_the_bank_is_sent_once_more(
    database: Database,
) -> None:
    sale = await put_on_sale(database)
    placed = await bought(database, sale, "fan_a", 1)
    await checkout.cancel(database, placed["_id"], "fan_a", now=NOW)
    await send(database)
    (refund,) = (await current(database, placed))["refunds"]
    back = refund_notice(placed, "refund.failed", refund_id=refund["refundId"])
    assert await receive(database, back, replace(back, notice_id="n2")) == ["failed", "repeated"]
    assert await statuses(database, placed) == ["failed"]
    stale = replace(back, notice_id="n3", refund_round=0)
    await database.sandbox_payments.update_one({}, {"$set": {"refunded": 0}})
    await send(database, NOW + timedelta(hours=1))
    assert await statuses(database, placed) == ["done"]
    # A report about the first try says nothing of the second.
    assert await receive(database, stale) == ["ignored"]
    assert await statuses(database, placed) == ["done"]


async def test_one_refund_that_fails_or_hangs_holds_up_no_other(database: Database) -> None:
    sale = await put_on_sale(database)
    placed = [await bought(database, sale, f"fan_{n}", n) for n in range(4)]
    for one in placed:
        await checkout.cancel(database, one["_id"], one["fanId"], now=NOW)
    providers = providers_of(database, provider_seconds_max=0.2)
    bad, hanging = placed[0]["_id"], placed[1]["_id"]
    genuine = providers.sandbox.refund

    async def refund(payment: Document, wanted: Document) -> object:
        if wanted["orderId"] == bad:
            raise RuntimeError("a fault of ours")
        if wanted["orderId"] == hanging:
            await asyncio.sleep(60)
        return await genuine(payment, wanted)

    providers.sandbox.refund = refund
    assert await refunds.send_due(database, providers, NOW) == 4
    assert [(await statuses(database, one))[0] for one in placed] == [
        "created",
        "created",
        "done",
        "done",
    ]
    providers.sandbox.refund = genuine
    await refunds.send_due(database, providers, NOW + timedelta(minutes=2))
    assert [(await statuses(database, one))[0] for one in placed] == ["done"] * 4


async def test_a_refund_whose_answer_came_after_the_time_limit_is_not_made_twice(
    database: Database,
) -> None:
    sale = await put_on_sale(database)
    placed = await bought(database, sale, "fan_a", 1)
    await checkout.cancel(database, placed["_id"], "fan_a", now=NOW)
    providers = providers_of(database, provider_seconds_max=0.2)
    await providers.sandbox.set_switches(Switches(answer_after_seconds=1))
    await refunds.send_due(database, providers, NOW)
    assert await statuses(database, placed) == ["created"]
    await providers.sandbox.set_switches(Switches())
    await refunds.send_due(database, providers, NOW + timedelta(minutes=2))
    assert await statuses(database, placed) == ["done"]
    known = await database.sandbox_payments.find_one({})
    assert (known["refunded"], len(known["refunds"])) == (placed["total"], 1)


async def test_many_workers_send_each_refund_once(database: Database) -> None:
    sale = await put_on_sale(database)
    for n in range(6):
        placed = await bought(database, sale, f"fan_{n}", n)
        await checkout.cancel(database, placed["_id"], f"fan_{n}", now=NOW)
    providers = providers_of(database)
    await gather_bounded(4, lambda _: refunds.send_due(database, providers, NOW))
    attempts = [refund["attempts"] for refund in await database.refunds.find({}).to_list(None)]
    assert attempts == [1] * 6
    assert await database.outbox.count_documents({"kind": "refund.done"}) == 6


async def test_a_sold_seat_never_comes_back_by_a_sweep(database: Database) -> None:
    sale = await put_on_sale(database)
    await bought(database, sale, "fan_a", 1, 2)
    far = NOW + timedelta(days=400)
    assert await seats.lapse_overdue(database, far) == 0
    assert await orders.expire_overdue(database, far) == 0
    assert await database.seats.count_documents({"status": "sold"}) == 2


@pytest.mark.parametrize("currency", ["JPY", "KWD"])
async def test_currencies_of_no_and_of_three_decimals_are_paid_and_refunded_to_the_unit(
    database: Database, currency: str
) -> None:
    sale = await put_on_sale(
        database,
        currency=currency,
        price_categories=[events.PriceCategory("Front", 12_345), events.PriceCategory("Rear", 7)],
    )
    placed = await bought(database, sale, "fan_a", 0, 25)
    assert (placed["total"], placed["currency"]) == (12_352, currency)
    wanted = LineRefund(placed["_id"], sale.seats(25), ORGANISER.subject)
    after = await checkout.refund_lines(database, wanted, now=NOW)
    assert (after["refunds"][0]["amount"], after["refunds"][0]["currency"]) == (7, currency)
    await checkout.cancel(database, placed["_id"], "fan_a", now=NOW)
    amounts = [refund["amount"] for refund in (await current(database, placed))["refunds"]]
    assert amounts == [7, 12_345]
    await sound(database)


async def test_a_free_order_is_cancelled_without_a_refund(database: Database) -> None:
    sale = await put_on_sale(
        database,
        price_categories=[events.PriceCategory("Free", 0)],
        sections=[events.Section("Floor", "Free", capacity=3)],
    )
    hold = await hold_seats(database, sale, "fan_a", 0, 1)
    placed = await order(database, "fan_a", hold.hold_id)
    after = await checkout.refund_lines(
        database, LineRefund(placed["_id"], sale.seats(0), "org_one"), now=NOW
    )
    assert (after["status"], after["refunds"]) == ("confirmed", [])
    await checkout.cancel(database, placed["_id"], "fan_a", now=NOW)
    assert await database.refunds.count_documents({}) == 0
    await sound(database)


async def told_to_one_that_remembers(
    database: Database, placed: Document, *notices: Notice
) -> list[object]:
    """The outcomes of notices at a process that placed the order and knows no more of it."""
    remembered = orders.Remembered()
    remembered.keep(placed)
    receipts = await checkout.receive(
        database, notices, now=NOW, remembered=remembered, recent=events.Recent(database)
    )
    return [r.outcome if isinstance(r, checkout.Receipt) else r for r in receipts]


async def test_a_remembered_order_is_confirmed_without_reading_any_order(
    database: Database,
) -> None:
    sale = await put_on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1)
    async with asked_of_the_server(database, "orders") as asked:
        assert await told_to_one_that_remembers(database, placed, notice(placed)) == ["confirmed"]
    assert [entry["op"] for entry in asked] == ["update"]
    await sound(database)


@pytest.mark.parametrize("meanwhile", ["confirmed", "cancelled", "expired", "refunded outside"])
async def test_what_became_of_a_remembered_order_elsewhere_decides(
    database: Database, meanwhile: str
) -> None:
    sale = await put_on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1)
    later = replace(notice(placed), notice_id="ntc_later")
    match meanwhile:
        case "confirmed":
            await receive(database, notice(placed))
            expected = ["repeated"]
        case "cancelled":
            await checkout.cancel(database, placed["_id"], "fan_a", now=NOW)
            expected = ["refunded"]
        case "expired":
            await orders.expire(database, [placed["_id"]], "not paid in time", NOW)
            expected = ["confirmed"]
        case _:
            outside = replace(
                notice(placed, "refund.done"), notice_id="ntc_back", refund_id="rfd_outside"
            )
            assert await receive(database, outside) == ["recorded"]
            expected = ["refunded"]
    assert await told_to_one_that_remembers(database, placed, later) == expected
    await sound(database)


async def test_a_wrong_amount_is_refunded_once_though_one_process_remembers_no_refund(
    database: Database,
) -> None:
    sale = await put_on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1)
    wrong = replace(notice(placed), amount=placed["total"] + 1)
    assert await receive(database, wrong) == ["refunded"]
    again = replace(wrong, notice_id="ntc_again")
    assert await told_to_one_that_remembers(database, placed, again) == ["repeated"]
    assert await database.refunds.count_documents({}) == 1
