"""The ledger balances, says what orders, payments and refunds say, and makes the statement."""

import csv
import inspect
import io
import re
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from pymongo.errors import DuplicateKeyError

from tests.conftest import NOW, Sale, providers_of, put_on_sale
from tests.nouns.test_checkout import LATER, current, notice, ordered, receive
from tests.nouns.test_money import bought, refund_notice, second_payment
from ticketing import books, checkout, events, invariants, ledger, orders, refunds, statements
from ticketing.checkout import LineRefund
from ticketing.errors import Invalid
from ticketing.events import PriceCategory
from ticketing.ledger import ALWAYS, Period
from ticketing.mongo import Database, Document
from ticketing.sandbox import Switches
from ticketing.statements import Totals

REPOSITORY = Path(__file__).parents[2]
FEE = 50 + 238  # Of a seat at 95.00, by the terms below.


async def on_sale(database: Database, **changes: object) -> Sale:
    sale = await put_on_sale(database, **changes)
    await events.set_fees(database, sale.event_id, 50, 250)
    return sale


async def earned(database: Database, sale: Sale) -> Totals:
    """The statement, once it was found to be sound."""
    broken = await invariants.check_all(database, counters=False)
    assert broken == []
    totals = await statements.totals(database, sale.event)
    assert totals.gross - totals.refunds - totals.fees == totals.net
    assert totals.at_provider == totals.net + totals.fees + totals.owed_to_fans
    return totals


async def test_a_sale_is_the_organisers_less_the_fee(database: Database) -> None:
    sale = await on_sale(database)
    await bought(database, sale, "fan_a", 1, 2)
    expected = Totals(19_000, 0, 2 * FEE, 19_000 - 2 * FEE, 19_000, 0, 1, 0)
    assert await earned(database, sale) == expected


async def test_terms_that_change_leave_what_was_ordered_as_it_was(database: Database) -> None:
    sale = await on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1)
    await events.set_fees(database, sale.event_id, 0, 0)
    await receive(database, notice(placed))
    await bought(database, sale, "fan_b", 2)
    assert (await earned(database, sale)).fees == FEE


async def test_an_order_nobody_pays_is_in_no_ledger(database: Database) -> None:
    sale = await on_sale(database)
    await ordered(database, sale, "fan_a", 1)
    await orders.expire_overdue(database, LATER)
    assert await earned(database, sale) == Totals()
    assert await database.ledger.count_documents({}) == 0


async def test_a_cancelled_order_takes_its_fee_back_at_once_and_its_money_when_it_has_gone(
    database: Database,
) -> None:
    sale = await on_sale(database)
    paid = await bought(database, sale, "fan_a", 1)
    await checkout.cancel(database, paid["_id"], "fan_a", now=NOW)
    assert await earned(database, sale) == Totals(9_500, 9_500, 0, 0, 9_500, 9_500, 1, 1)
    await refunds.send_due(database, providers_of(database), NOW)
    assert await earned(database, sale) == Totals(9_500, 9_500, 0, 0, 0, 0, 1, 1)


async def test_a_refund_of_some_seats_gives_back_the_fee_of_just_these(
    database: Database,
) -> None:
    sale = await on_sale(database)
    paid = await bought(database, sale, "fan_a", 1, 2, 3)
    wanted = LineRefund(paid["_id"], (sale.seat(2),), "org_one")
    await checkout.refund_lines(database, wanted, now=NOW)
    expected = Totals(28_500, 9_500, 2 * FEE, 19_000 - 2 * FEE, 28_500, 9_500, 1, 1)
    assert await earned(database, sale) == expected
    # The rest later, and all of the fee is back.
    await checkout.cancel(database, paid["_id"], "fan_a", now=NOW)
    expected = Totals(28_500, 28_500, 0, 0, 28_500, 28_500, 1, 2)
    assert await earned(database, sale) == expected


@pytest.mark.parametrize("what", ["late", "second", "wrong amount", "wrong currency"])
async def test_money_that_buys_nothing_is_the_fans_and_nobody_elses(
    database: Database, what: str
) -> None:
    sale = await on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1)
    match what:
        case "late":
            await orders.expire(database, [placed["_id"]], "not paid in time", NOW)
            await database.seats.update_many(
                {"holdId": placed["holdId"]},
                {
                    "$set": {"status": "blocked"},
                    "$unset": {"holdId": "", "heldUntil": "", "holdLead": "", "fanSlot": ""},
                },
            )
            told = notice(placed)
        case "second":
            told = second_payment(placed)
        case "wrong amount":
            told = notice(placed, amount=placed["total"] - 1)
        case _:
            told = notice(placed, currency="USD")
    assert await receive(database, told) == ["refunded"]
    totals = await earned(database, sale)
    came = 0 if what == "wrong currency" else told.amount
    assert totals == Totals(0, 0, 0, 0, came, came)
    sums = await ledger.sums_of(database, [sale.event_id])
    assert [
        (each.currency, each.amount)
        for each in sums
        if (each.cause, each.account) == ("stray", "fans")
    ] == [(told.currency, -told.amount)]


async def test_a_refund_that_comes_back_is_owed_again(database: Database) -> None:
    sale = await on_sale(database)
    paid = await bought(database, sale, "fan_a", 1)
    await checkout.cancel(database, paid["_id"], "fan_a", now=NOW)
    await refunds.send_due(database, providers_of(database), NOW)
    (refund,) = (await current(database, paid))["refunds"]
    bounced = refund_notice(paid, "refund.failed", refund_id=refund["refundId"])
    assert await receive(database, bounced) == ["failed"]
    assert (await earned(database, sale)).owed_to_fans == 9_500
    await refunds.send_due(database, providers_of(database), NOW + timedelta(hours=3))
    assert (await earned(database, sale)).owed_to_fans == 0


@pytest.mark.parametrize("before", [True, False])
async def test_what_somebody_refunds_at_the_providers_own_site_the_organiser_bears(
    database: Database, before: bool
) -> None:
    sale = await on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1)
    outside = refund_notice(placed, amount=1_000)
    told = [outside, notice(placed)] if before else [notice(placed), outside]
    assert sorted(await receive(database, *told)) == ["confirmed", "recorded"]
    totals = await earned(database, sale)
    assert (totals.gross, totals.refunds, totals.sale_count, totals.refund_count) == (
        *(9_500, 1_000),
        *(1, 1),
    )
    assert (totals.fees, totals.net) == (FEE, 8_500 - FEE)
    assert (totals.at_provider, totals.owed_to_fans) == (8_500, 0)


async def test_a_payment_told_twenty_times_is_entered_once(database: Database) -> None:
    sale = await on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1)
    for n in range(20):
        await receive(database, replace(notice(placed), notice_id=f"ntc_{n}"))
    assert await database.ledger.count_documents({}) == 1
    entry = await database.ledger.find_one({})
    assert entry is not None
    with pytest.raises(DuplicateKeyError):
        await database.ledger.insert_one(entry)
    await earned(database, sale)


def test_nothing_in_the_product_changes_or_removes_an_entry() -> None:
    calls = {
        call
        for folder in ("ticketing", "workers", "scripts")
        for file in (REPOSITORY / folder).rglob("*.py")
        for call in re.findall(
            r"\bledger\.((?:insert|update|replace|delete|find|drop)\w*)\(", file.read_text()
        )
    }
    assert calls == {"insert_one", "find"}
    # The other way of writing is that of all documents of a confirmation.
    assert "(database.ledger, self.entries)" in inspect.getsource(checkout.Writes)


def test_an_entry_that_does_not_balance_is_never_made() -> None:
    order: Document = {
        "_id": "ord_x",
        "eventId": "evt_x",
        "total": 10,
        "currency": "EUR",
        "payment": {"paymentId": "pay_x"},
        "seats": [{"seatId": "s", "price": 10, "fee": 1}],
    }
    entry = ledger.sale(order, NOW)
    assert sum(line["amount"] for line in entry["lines"]) == 0
    with pytest.raises(ledger.LedgerFault):
        ledger._entry("x", "sale", order, "EUR", NOW, provider=10, organiser=-9)


LEDGER_RULE = "the ledger says what orders, payments and refunds say"


@pytest.mark.parametrize(
    ("collection", "change", "rule"),
    [
        ("ledger", {"$inc": {"lines.0.amount": 1}}, "a ledger entry sums to zero"),
        ("ledger", {"$inc": {"lines.0.amount": 1, "lines.1.amount": -1}}, LEDGER_RULE),
        # What was the organiser's has become the platform's.
        ("ledger", {"$inc": {"lines.1.amount": 1, "lines.2.amount": -1}}, LEDGER_RULE),
        ("ledger", None, LEDGER_RULE),
        ("payments", {"$inc": {"amount": 1}}, LEDGER_RULE),
        ("refunds", {"$inc": {"amount": -1}}, LEDGER_RULE),
        ("refunds", {"$set": {"status": "sent"}}, LEDGER_RULE),
        ("refunds", {"$set": {"paymentId": "pay_x"}}, "a refund is of a payment of its event"),
        ("orders", {"$inc": {"seats.0.fee": 1}}, LEDGER_RULE),
        ("orders", {"$set": {"refunds": []}}, LEDGER_RULE),
        ("orders", {"$unset": {"confirmedAt": ""}, "$set": {"status": "cancelled"}}, LEDGER_RULE),
        ("sandbox_payments", {"$inc": {"amount": -1}}, "the provider took what was paid"),
        ("sandbox_payments", {"$inc": {"amount": 1}}, "the provider took what was paid"),
        ("sandbox_payments", {"$set": {"status": "failed"}}, "the provider took what was paid"),
        (
            "sandbox_payments",
            {"$inc": {"refunded": 1}},
            "the provider gave back no more than was asked for",
        ),
        (
            "sandbox_payments",
            {"$inc": {"refunded": -1}},
            "the provider gave back what has gone back",
        ),
    ],
)
async def test_books_that_differ_are_found_whichever_was_changed(
    database: Database, collection: str, change: Document | None, rule: str
) -> None:
    sale = await on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1, 2)
    providers = providers_of(database)
    await providers.sandbox.set_switches(Switches())
    payment = await database.payments.find_one({"orderId": placed["_id"]})
    assert payment is not None
    await providers.sandbox.pay(payment)
    await receive(database, notice(placed))
    wanted = LineRefund(placed["_id"], (sale.seat(2),), "org_one")
    await checkout.refund_lines(database, wanted, now=NOW)
    await refunds.send_due(database, providers, NOW)
    assert await invariants.check_all(database, counters=False) == []
    if change is None:
        await database[collection].delete_many({})
    else:
        # The ledger's own validator would not have it.
        which = {"cause": "sale"} if collection == "ledger" else {}
        await database[collection].update_many(which, change, bypass_document_validation=True)
    found = {finding.rule for finding in await invariants.check_all(database, counters=False)}
    assert rule in found


async def test_books_are_compared_some_orders_at_a_time(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(books, "ORDERS_PER_READ", 2)
    sale = await on_sale(database)
    paid = [await bought(database, sale, f"fan_{n}", n) for n in range(5)]
    for order in paid[:2]:
        await checkout.cancel(database, order["_id"], order["fanId"], now=NOW)
    assert await invariants.check_all(database, counters=False) == []
    for order in paid:
        changed = {"_id": order["payment"]["paymentId"]}
        await database.payments.update_one(changed, {"$inc": {"amount": 1}})
        assert await invariants.check_all(database, counters=False) != []
        await database.payments.update_one(changed, {"$inc": {"amount": -1}})


async def test_an_order_is_cancelled_though_a_refund_made_outside_of_it_came_back(
    database: Database,
) -> None:
    sale = await on_sale(database)
    paid = await bought(database, sale, "fan_a", 1)
    for kind in ("refund.done", "refund.failed"):
        await receive(database, refund_notice(paid, kind, amount=1_000))
    await checkout.cancel(database, paid["_id"], "fan_a", now=NOW)
    made = [refund["amount"] for refund in (await current(database, paid))["refunds"]]
    assert made == [1_000, 8_500]
    await refunds.send_due(database, providers_of(database), NOW + timedelta(hours=1))
    totals = await earned(database, sale)
    assert (totals.gross, totals.refunds, totals.at_provider) == (9_500, 9_500, 0)


@pytest.mark.parametrize(("currency", "price", "shown"), [("JPY", 5, "5"), ("KWD", 1_005, "1.005")])
async def test_the_lines_of_a_statement_add_up_in_every_currency(
    database: Database, currency: str, price: int, shown: str
) -> None:
    sale = await on_sale(
        database,
        currency=currency,
        price_categories=[PriceCategory("Front", price), PriceCategory("Rear", price)],
        name='=HYPERLINK("http://x")',
    )
    paid = await bought(database, sale, "fan_a", 1, 2)
    await bought(database, sale, "fan_b", 3)
    await checkout.refund_lines(
        database, LineRefund(paid["_id"], (sale.seat(2),), "org_one"), now=NOW
    )
    text = await table(database, sale)
    assert text.startswith("\ufeffat,eventId,event,")
    assert text.endswith("\r\n")
    rows = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))
    assert [row["cause"] for row in rows] == ["sale", "sale", "refund"]
    assert all(row["event"] == '\'=HYPERLINK("http://x")' for row in rows)
    totals = await earned(database, sale)
    digits = len(shown.partition(".")[2])
    for column in ("gross", "refunds", "fees", "net"):
        summed = sum(Fraction(row[column]) for row in rows) * 10**digits
        assert summed == getattr(totals, column)
    assert shown in {row["gross"] for row in rows}


async def table(database: Database, sale: Sale, period: Period = ALWAYS) -> str:
    """The statement as CSV."""
    parts = statements.as_csv(database, statements.one_page(sale.event), period)
    return b"".join([part async for part in parts]).decode()


async def test_a_table_that_is_read_in_several_parts_misses_and_repeats_nothing(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "ENTRIES_PER_READ", 2)
    sale = await on_sale(database)
    paid = [await bought(database, sale, f"fan_{n}", n) for n in range(5)]
    rows = list(csv.DictReader(io.StringIO(await table(database, sale))))
    assert {row["orderId"] for row in rows} == {order["_id"] for order in paid}
    assert len(rows) == len(paid)


async def test_a_statement_of_a_period_has_what_was_entered_in_it_and_the_balance_at_its_end(
    database: Database,
) -> None:
    sale = await on_sale(database)
    paid = await bought(database, sale, "fan_a", 1)
    tomorrow, later = NOW + timedelta(days=1), NOW + timedelta(days=2)
    await checkout.cancel(database, paid["_id"], "fan_a", now=tomorrow)
    await refunds.send_due(database, providers_of(database), later)
    today, second, third, whole = [
        await statements.totals(database, sale.event, period)
        for period in (
            Period(None, tomorrow),
            Period(tomorrow, later),
            Period(later, None),
            ALWAYS,
        )
    ]
    assert today == Totals(9_500, 0, FEE, 9_500 - FEE, 9_500, 0, 1, 0)
    assert second == Totals(0, 9_500, -FEE, FEE - 9_500, 9_500, 9_500, 0, 1)
    assert third == Totals()
    balances = {"at_provider": 0, "owed_to_fans": 0}
    assert whole == replace(today + second + third, **balances)
    for period, causes in ((Period(None, tomorrow), ["sale"]), (Period(tomorrow), ["refund"])):
        rows = csv.DictReader(io.StringIO(await table(database, sale, period)))
        assert [row["cause"] for row in rows] == causes


async def test_the_printed_statement_of_an_organiser_has_a_total_of_each_currency(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "EVENTS_PER_READ", 2)
    for currency in ("EUR", "JPY", "EUR"):
        await bought(database, await on_sale(database, currency=currency), "fan_a", 1)
    await on_sale(database, name="Nobody came")
    sheet = await statements.sheet_of(database, "org_one", ALWAYS, NOW)
    assert [part.event for part in sheet.parts] == [
        *("All events in EUR", "All events in JPY"),
        *["The Last Waltz"] * 3,
    ]
    assert [dict(part.rows)["Gross sales (2)"] for part in sheet.parts[:1]] == ["190.00 EUR"]
    assert dict(sheet.parts[1].rows)["Gross sales (1)"] == "9500 JPY"
    monkeypatch.setattr(statements, "PRINTED_EVENTS_MAX", 2)
    with pytest.raises(Invalid):
        await statements.sheet_of(database, "org_one", ALWAYS, NOW)


async def test_a_refund_made_twice_here_and_at_the_providers_own_site_costs_the_organiser_once(
    database: Database,
) -> None:
    sale = await on_sale(database)
    paid = await bought(database, sale, "fan_a", 1, 2)
    await checkout.cancel(database, paid["_id"], "fan_a", now=NOW)
    # A person gives the money back by hand while ours is still on its way.
    by_hand = refund_notice(paid, amount=paid["total"])
    assert await receive(database, by_hand) == ["recorded"]
    totals = await statements.totals(database, sale.event)
    assert (totals.net, totals.fees, totals.at_provider, totals.owed_to_fans) == (0, 0, 0, 0)


async def test_the_organiser_bears_of_an_outside_refund_only_what_is_left_of_the_sale(
    database: Database,
) -> None:
    sale = await on_sale(database)
    paid = await bought(database, sale, "fan_a", 1, 2)
    wanted = LineRefund(paid["_id"], (sale.seat(2),), "org_one")
    await checkout.refund_lines(database, wanted, now=NOW)
    assert await receive(database, refund_notice(paid, amount=paid["total"])) == ["recorded"]
    totals = await statements.totals(database, sale.event)
    assert (totals.refunds, totals.net + totals.fees) == (paid["total"], 0)


@pytest.mark.parametrize("currency", ["EUR", "USD"])
async def test_of_a_late_payment_only_that_goes_back_which_has_not_gone_back_before(
    database: Database, currency: str
) -> None:
    sale = await on_sale(database)
    placed = await ordered(database, sale, "fan_a", 1)
    outside = refund_notice(placed, amount=1_000, currency=currency)
    assert await receive(database, outside) == ["recorded"]
    await events.cancel(database, sale.event_id, NOW)
    assert await receive(database, notice(placed)) == ["refunded"]
    made = [refund["amount"] for refund in (await current(database, placed))["refunds"]]
    rest = placed["total"] - (1_000 if currency == "EUR" else 0)
    assert made == [1_000, rest]
    await refunds.send_due(database, providers_of(database), NOW)
    totals = await earned(database, sale)
    assert (totals.at_provider, totals.owed_to_fans) == (0, 0)
