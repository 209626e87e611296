"""Selling by Stripe, through its own SDK, against a stand-in of the endpoints that are used."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest

from tests.conftest import NOW, providers_of, put_on_sale
from tests.nouns import stripe_stand_in
from tests.nouns.stripe_stand_in import StandIn, signed
from tests.nouns.test_checkout import current, hold_seats, receive, sound
from ticketing import checkout, clock, events, orders, outbox, payments, refunds, settling
from ticketing.checkout import LineRefund
from ticketing.errors import Invalid
from ticketing.gateway import BadSignature, Notice, PaymentRefused, ProviderUnavailable
from ticketing.mongo import Database, Document
from ticketing.orders import OrderRequest
from ticketing.payment_pages import PaymentPages
from ticketing.providers import Providers
from ticketing.stripe_payments import from_stripe, to_stripe


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    with stripe_stand_in.running() as running:
        yield running


@pytest.fixture
async def providers(database: Database, stand_in: StandIn) -> AsyncIterator[Providers]:
    made = providers_of(
        database,
        payment_provider="stripe",
        stripe_secret_key=stripe_stand_in.SECRET_KEY,
        stripe_webhook_secret=stripe_stand_in.WEBHOOK_SECRET,
        stripe_api_base=stand_in.url,
        provider_seconds_max=2.0,
    )
    yield made
    await made.close()


async def ordered(database: Database, providers: Providers, *ordinals: int) -> Document:
    """An order whose payment has begun at Stripe, with the stored payment as `stored`."""
    sale = await put_on_sale(database)
    hold = await hold_seats(database, sale, "fan_a", *ordinals)
    request = OrderRequest("fan_a", hold.hold_id, None, "stripe")
    (placed,) = await checkout.place_orders(database, [request], now=NOW)
    payment = await payments.find(database, placed["payment"]["paymentId"])
    started = await providers.chosen.start(payment, placed)
    await payments.started(database, payment["_id"], started, "stripe")
    return placed


async def stored(database: Database, placed: Document) -> Document:
    return await payments.find(database, placed["payment"]["paymentId"])


def read(providers: Providers, body: bytes) -> Notice | None:
    return providers.chosen.read_notice(signed(body), body, clock.now())


async def paid(
    database: Database, providers: Providers, stand_in: StandIn, *ordinals: int
) -> Document:
    placed = await ordered(database, providers, *ordinals)
    session = stand_in.pay((await stored(database, placed))["reference"])
    told = read(providers, stand_in.event("checkout.session.completed", session))
    assert await receive(database, told) == ["confirmed"]
    return await current(database, placed)


async def test_the_fan_pays_the_orders_total_at_the_checkout_page(
    database: Database, providers: Providers, stand_in: StandIn
) -> None:
    placed = await ordered(database, providers, 1, 25)
    ((_, path, form),) = stand_in.requests
    assert path == "/v1/checkout/sessions"
    assert form["line_items[0][price_data][unit_amount]"] == str(placed["total"])
    assert form["metadata[paymentId]"] == placed["payment"]["paymentId"]
    assert form["payment_intent_data[metadata][orderId]"] == placed["_id"]
    assert not any("card" in name for name in form)
    payment = await stored(database, placed)
    assert payment["url"] == f"{stand_in.url}/pay/{payment['reference']}"


async def test_a_payment_started_again_is_the_same_payment(
    database: Database, providers: Providers, stand_in: StandIn
) -> None:
    placed = await ordered(database, providers, 1)
    again = await providers.chosen.start(await stored(database, placed), placed)
    assert again.reference == (await stored(database, placed))["reference"]
    assert len(stand_in.sessions) == 1


async def test_a_paid_order_is_confirmed_by_the_notice(
    database: Database, providers: Providers, stand_in: StandIn
) -> None:
    placed = await paid(database, providers, stand_in, 1)
    assert placed["status"] == "confirmed"
    assert (await stored(database, placed))["charge"].startswith("pi_")
    await sound(database)


async def test_a_delayed_payment_is_uncertain_until_stripe_knows(
    database: Database, providers: Providers, stand_in: StandIn
) -> None:
    placed = await ordered(database, providers, 1)
    session = stand_in.pay((await stored(database, placed))["reference"], "processing")
    told = read(providers, stand_in.event("checkout.session.completed", session))
    assert await receive(database, told) == ["uncertain"]
    session["payment_status"] = "paid"
    later = stand_in.event("checkout.session.async_payment_succeeded", session)
    assert await receive(database, read(providers, later)) == ["confirmed"]


async def test_a_decline_leaves_the_order_waiting(
    database: Database, providers: Providers, stand_in: StandIn
) -> None:
    placed = await ordered(database, providers, 1)
    intent = {
        "id": "pi_1",
        "amount": placed["total"],
        "currency": "eur",
        "metadata": {"paymentId": placed["payment"]["paymentId"], "orderId": placed["_id"]},
    }
    told = read(providers, stand_in.event("payment_intent.payment_failed", intent))
    assert await receive(database, told) == ["failed"]
    assert (await current(database, placed))["status"] == "pendingPayment"


async def test_what_is_not_ours_or_of_no_interest_is_no_notice(
    providers: Providers, stand_in: StandIn
) -> None:
    assert read(providers, stand_in.event("customer.created", {"id": "cus_1"})) is None
    foreign = {"id": "pi_1", "amount": 1, "currency": "eur", "metadata": {}}
    assert read(providers, stand_in.event("payment_intent.payment_failed", foreign)) is None


async def test_an_event_that_is_unsigned_badly_signed_or_old_is_refused(
    providers: Providers, stand_in: StandIn
) -> None:
    body = stand_in.event("customer.created", {"id": "cus_1"})
    for headers, content in (
        ({}, body),
        ({"stripe-signature": "nonsense"}, body),
        (signed(body), body + b" "),
        (signed(body, secret="whsec_other"), body),
        (signed(body, at=int(time.time()) - 301), body),
        (signed(b"{}"), b"\xff"),
    ):
        with pytest.raises(BadSignature):
            providers.chosen.read_notice(headers, content, clock.now())
    for content in (b"{}", b"[]", b"nonsense", b'{"id":"e","type":"refund.failed","data":{}}'):
        with pytest.raises(Invalid):
            providers.chosen.read_notice(signed(content), content, clock.now())


async def test_a_payment_whose_notice_never_came_is_looked_up(
    database: Database, providers: Providers, stand_in: StandIn
) -> None:
    placed = await ordered(database, providers, 1)
    a_minute_later = NOW + timedelta(minutes=1)
    await settling.look_up_due(database, providers, a_minute_later)
    assert (await current(database, placed))["payment"]["status"] == "created"
    stand_in.pay((await stored(database, placed))["reference"])
    await settling.look_up_due(database, providers, a_minute_later + timedelta(minutes=1))
    assert (await current(database, placed))["status"] == "confirmed"


async def test_a_page_that_lapsed_unpaid_is_looked_up_once_and_no_more(
    database: Database, providers: Providers, stand_in: StandIn
) -> None:
    placed = await ordered(database, providers, 1)
    stand_in.sessions[(await stored(database, placed))["reference"]]["status"] = "expired"
    await settling.look_up_due(database, providers, NOW + timedelta(minutes=1))
    assert (await current(database, placed))["payment"]["status"] == "failed"
    assert await settling.look_up_due(database, providers, NOW + timedelta(days=1)) == 0


async def test_refunds_go_out_once_in_whole_and_in_part(
    database: Database, providers: Providers, stand_in: StandIn
) -> None:
    placed = await paid(database, providers, stand_in, 1, 2)
    seat = placed["seats"][0]["seatId"]
    await checkout.refund_lines(database, LineRefund(placed["_id"], (seat,), "org_one"), now=NOW)
    await refunds.send_due(database, providers, NOW)
    await checkout.cancel(database, placed["_id"], "fan_a", now=NOW)
    await refunds.send_due(database, providers, NOW)
    assert [refund["amount"] for refund in stand_in.refunds] == [9500, 9500]
    after = await current(database, placed)
    assert [refund["status"] for refund in after["refunds"]] == ["done", "done"]
    await sound(database)


async def test_a_refund_whose_answer_was_lost_is_found_and_not_made_again(
    database: Database, providers: Providers, stand_in: StandIn
) -> None:
    placed = await paid(database, providers, stand_in, 1, 2)
    seat = placed["seats"][0]["seatId"]
    await checkout.refund_lines(database, LineRefund(placed["_id"], (seat,), "org_one"), now=NOW)
    stand_in.hanging_seconds = 2.5
    await refunds.send_due(database, providers, NOW)
    stand_in.hanging_seconds = 0
    for _ in range(50):
        if stand_in.refunds:
            break
        await asyncio.sleep(0.1)
    # A day later Stripe has forgotten which keys it has seen.
    stand_in._answered.clear()
    await refunds.send_due(database, providers, NOW + timedelta(days=1))
    assert len(stand_in.refunds) == 1
    assert (await current(database, placed))["refunds"][0]["status"] == "done"


async def test_a_refund_stripe_refuses_or_later_reports_as_failed_is_tried_again(
    database: Database, providers: Providers, stand_in: StandIn
) -> None:
    placed = await paid(database, providers, stand_in, 1)
    await checkout.cancel(database, placed["_id"], "fan_a", now=NOW)
    stand_in.refusing_refunds = True
    await refunds.send_due(database, providers, NOW)
    assert (await current(database, placed))["refunds"][0]["status"] == "failed"
    stand_in.refusing_refunds, stand_in.refund_status = False, "pending"
    await refunds.send_due(database, providers, NOW + timedelta(hours=1))
    assert (await current(database, placed))["refunds"][0]["status"] == "sent"
    stand_in.refunds[0]["status"] = "failed"
    told = read(providers, stand_in.event("refund.failed", stand_in.refunds[0]))
    assert await receive(database, told) == ["failed"]
    stand_in.refund_status = "succeeded"
    await refunds.send_due(database, providers, NOW + timedelta(hours=4))
    assert (await current(database, placed))["refunds"][0]["status"] == "done"
    assert [refund["status"] for refund in stand_in.refunds] == ["failed", "succeeded"]


async def test_a_refund_made_in_stripes_dashboard_is_found_by_its_charge(
    database: Database, providers: Providers, stand_in: StandIn
) -> None:
    placed = await paid(database, providers, stand_in, 1)
    made = {
        "id": "re_by_hand",
        "amount": 500,
        "currency": "eur",
        "payment_intent": (await stored(database, placed))["charge"],
        "status": "succeeded",
        "metadata": {},
    }
    told = read(providers, stand_in.event("refund.created", made))
    assert await receive(database, told) == ["recorded"]
    after = await current(database, placed)
    assert (after["status"], after["refunds"][0]["amount"]) == ("confirmed", 500)
    await sound(database)


async def test_while_stripe_is_down_or_slow_the_start_is_unavailable(
    database: Database, providers: Providers, stand_in: StandIn
) -> None:
    placed = await ordered(database, providers, 1)
    payment = await stored(database, placed)
    stand_in.failing = True
    with pytest.raises(ProviderUnavailable):
        await providers.chosen.start(payment, placed)
    stand_in.failing, stand_in.hanging_seconds = False, 2.5
    with pytest.raises(ProviderUnavailable):
        await providers.chosen.start(payment, placed)


@pytest.mark.parametrize(
    ("currency", "amount", "counted"),
    [("EUR", 9500, 9500), ("JPY", 1200, 1200), ("KWD", 4550, 4550), ("ISK", 12, 1200)],
)
def test_stripes_own_way_of_counting_is_kept_to(currency: str, amount: int, counted: int) -> None:
    assert to_stripe(amount, currency) == counted
    assert from_stripe(counted, currency) == amount


@pytest.mark.parametrize(("currency", "amount"), [("KWD", 4555), ("MGA", 150)])
def test_an_amount_stripe_can_not_charge_exactly_is_refused(currency: str, amount: int) -> None:
    with pytest.raises(PaymentRefused):
        to_stripe(amount, currency)


async def test_every_price_category_of_a_show_is_in_the_currency_it_is_charged_in(
    database: Database, providers: Providers, stand_in: StandIn
) -> None:
    sale = await put_on_sale(
        database,
        currency="JPY",
        price_categories=[events.PriceCategory("Front", 9500), events.PriceCategory("Rear", 1)],
    )
    hold = await hold_seats(database, sale, "fan_a", 1)
    request = OrderRequest("fan_a", hold.hold_id, None, "stripe")
    (placed,) = await checkout.place_orders(database, [request], now=NOW)
    await providers.chosen.start(payments.new(placed), placed)
    form = stand_in.requests[0][2]
    assert form["line_items[0][price_data][currency]"] == "jpy"
    assert form["line_items[0][price_data][unit_amount]"] == "9500"


async def closed(database: Database, providers: Providers) -> list[str]:
    """How each delivery to the payment pages ended, once all messages were spread and tried."""
    pages = PaymentPages(database, providers)
    await outbox.spread(database, [pages], NOW)
    for delivery in await outbox.take(database, pages.name, NOW, 10):
        await outbox.deliver(database, pages, delivery, NOW)
    found = await database.deliveries.find({}).sort("_id", 1).to_list(10)
    return [delivery["status"] for delivery in found]


@pytest.mark.parametrize("way", ["expired", "released", "cancelled"])
async def test_the_page_of_an_order_that_ended_is_closed(
    database: Database, providers: Providers, stand_in: StandIn, way: str
) -> None:
    placed = await ordered(database, providers, 1)
    reference = (await stored(database, placed))["reference"]
    assert await closed(database, providers) == []
    match way:
        case "expired":
            await orders.expire(database, [placed["_id"]], "not paid in time", NOW)
        case "released":
            await checkout.release_hold(database, placed["holdId"], "fan_a", now=NOW)
        case _:
            await checkout.cancel(database, placed["_id"], "fan_a", now=NOW)
    assert await closed(database, providers) == ["done"]
    assert stand_in.sessions[reference]["status"] == "expired"


async def test_a_page_that_was_paid_at_the_last_moment_stays_as_it_is(
    database: Database, providers: Providers, stand_in: StandIn
) -> None:
    placed = await ordered(database, providers, 1)
    session = stand_in.pay((await stored(database, placed))["reference"])
    await orders.expire(database, [placed["_id"]], "not paid in time", NOW)
    assert await closed(database, providers) == ["done"]
    assert session["status"] == "complete"
    told = read(providers, stand_in.event("checkout.session.completed", session))
    # Its seats are still held, so the fan gets them after all.
    assert await receive(database, told) == ["confirmed"]


async def test_a_page_is_closed_later_when_stripe_is_down(
    database: Database, providers: Providers, stand_in: StandIn
) -> None:
    placed = await ordered(database, providers, 1)
    await orders.expire(database, [placed["_id"]], "not paid in time", NOW)
    stand_in.failing = True
    assert await closed(database, providers) == ["waiting"]
    stand_in.failing = False
    await database.deliveries.update_many({}, {"$set": {"dueAt": NOW}})
    assert await closed(database, providers) == ["done"]


async def test_no_page_is_closed_where_we_have_our_own(
    database: Database, providers: Providers
) -> None:
    sale = await put_on_sale(database)
    hold = await hold_seats(database, sale, "fan_b", 3)
    (placed,) = await checkout.place_orders(
        database, [OrderRequest("fan_b", hold.hold_id)], now=NOW
    )
    await checkout.cancel(database, placed["_id"], "fan_b", now=NOW)
    assert await closed(database, providers) == []
