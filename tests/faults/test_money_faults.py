"""Whatever the provider does at whatever step of a purchase, the money comes out right.

After each step the invariants hold. Once the provider behaves again and the workers have had their
time, what it has kept of each payment is exactly what the order is still worth.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import NOW, ORGANISER, Sale, providers_of, put_on_sale
from tests.nouns.test_checkout import notice, ordered, sound
from ticketing import (
    cancellations,
    checkout,
    events,
    identifiers,
    ledger,
    orders,
    payments,
    refunds,
    seats,
    settling,
)
from ticketing.checkout import LineRefund
from ticketing.errors import Refusal
from ticketing.gateway import Notice
from ticketing.mongo import Database, Document
from ticketing.providers import Providers
from ticketing.sandbox import Switches

EMPTIED = (
    "events",
    "seats",
    "orders",
    "payments",
    "refunds",
    "notices",
    "jobs",
    "sandbox_payments",
    "outbox",
    "dashboards",
    "ledger",
)
FANS = ("fan_a", "fan_b")

switches = st.builds(
    Switches,
    down=st.booleans(),
    answer_after_seconds=st.sampled_from([0.0, 0.0, 0.1]),
    decline=st.booleans(),
    lose_notices=st.booleans(),
    copies=st.integers(1, 3),
    out_of_order=st.booleans(),
    amount_off=st.sampled_from([0, 0, -1, 1]),
    undecided=st.booleans(),
    refuse_refunds=st.booleans(),
    refunds_fail_later=st.booleans(),
)


class Purchases:
    """Two fans' purchases at one sale, and all that can happen to them."""

    def __init__(self, database: Database, providers: Providers, sale: Sale) -> None:
        self.database = database
        self.providers = providers
        self.sale = sale
        self.now = NOW
        self.placed: list[Document] = []

    async def pay(self, order: Document) -> None:
        sandbox = self.providers.sandbox
        payment = await payments.find(self.database, order["payment"]["paymentId"])
        type_, amount = await sandbox.pay(payment)
        behaving = await sandbox.switches()
        if behaving.lose_notices or type_ == "payment.uncertain":
            return
        told = notice(order, type_, amount=amount)
        sent = [told] * behaving.copies
        if behaving.out_of_order:
            sent.append(notice(order, "payment.failed"))
        await self.receive(*sent)

    async def receive(self, *notices: Notice) -> None:
        for outcome in await checkout.receive(self.database, notices, now=self.now):
            assert not isinstance(outcome, Exception), outcome

    async def pay_twice(self, order: Document) -> None:
        await self.receive(notice(order, payment_id=identifiers.fresh("pay")))

    async def cancel(self, order: Document) -> None:
        await checkout.cancel(self.database, order["_id"], order["fanId"], now=self.now)

    async def refund_a_seat(self, order: Document) -> None:
        wanted = LineRefund(order["_id"], (order["seats"][0]["seatId"],), "org_one")
        await checkout.refund_lines(self.database, wanted, now=self.now)

    async def lapse(self, _: Document) -> None:
        self.now += timedelta(seconds=601)
        await seats.lapse_overdue(self.database, self.now)
        await orders.expire_overdue(self.database, self.now)

    async def call_off(self, _: Document) -> None:
        await cancellations.begin(self.database, self.sale.event_id, ORGANISER, self.now)

    async def work(self, _: Document) -> None:
        self.now += timedelta(minutes=2)
        await work(self.database, self.providers, self.now)


STEPS = st.sampled_from(
    ["pay", "pay", "pay", "pay_twice", "cancel", "refund_a_seat", "lapse", "call_off", "work"]
)


async def work(database: Database, providers: Providers, now: datetime) -> None:
    """One round of the payments worker."""
    await settling.look_up_due(database, providers, now)
    await checkout.look_again(database, now)
    await cancellations.run_due(database, now)
    await refunds.send_due(database, providers, now)


@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    steps=st.lists(st.tuples(STEPS, st.integers(0, 1), switches), min_size=1, max_size=7),
)
async def test_the_money_comes_out_right_whatever_the_provider_does_at_whatever_step(
    database: Database, steps: list[tuple[str, int, Switches]]
) -> None:
    for name in EMPTIED:
        await database[name].delete_many({})
    providers = providers_of(database, provider_seconds_max=0.05)
    sale = await put_on_sale(database)
    await events.set_fees(database, sale.event_id, 50, 250)
    purchases = Purchases(database, providers, sale)
    for number, fan in enumerate(FANS):
        purchases.placed.append(await ordered(database, sale, fan, 2 * number, 2 * number + 1))
    for name, who, behaving in steps:
        await providers.sandbox.set_switches(behaving)
        step: Callable[[Document], Awaitable[None]] = getattr(purchases, name)
        with suppress(Refusal):
            await step(purchases.placed[who])
        await sound(database)
    await come_to_rest(database, purchases)
    await sound(database)
    for placed in purchases.placed:
        await is_settled(database, placed)


async def come_to_rest(database: Database, purchases: Purchases) -> None:
    """The provider behaves, and time passes."""
    now = purchases.now
    providers = providers_of(database)
    await providers.sandbox.set_switches(Switches())
    for _ in range(14):
        now += timedelta(hours=2)
        await work(database, providers, now)
        async for refund in database.refunds.find({"givenUpAt": {"$exists": True}}):
            await refunds.try_again(database, refund["_id"], now)


async def is_settled(database: Database, placed: Document) -> None:
    """What the provider has kept of an order's payments is what the order is worth, and the ledger
    has just that: the fees of the seats that are left, and the rest for the organiser."""
    order = await database.orders.find_one({"_id": placed["_id"]})
    assert order is not None
    worth = 0
    if order["status"] == "confirmed":
        worth = order["total"] - sum(line["amount"] for line in order.get("refundedLines", []))
    kept = 0
    async for payment in database.payments.find({"orderId": order["_id"]}):
        known = await database.sandbox_payments.find_one({"_id": payment["_id"]})
        is_own = payment["_id"] == order["payment"]["paymentId"]
        if is_own and known and known["status"] == "succeeded":
            kept += known["amount"] - known["refunded"]
    assert kept == worth, order
    assert {refund["status"] for refund in order["refunds"]} <= {"done"}, order
    entered = dict.fromkeys(ledger.ACCOUNTS, 0)
    async for entry in database.ledger.find({"orderId": order["_id"]}):
        for line in entry["lines"]:
            entered[line["account"]] += line["amount"]
    refunded = {line["seatId"] for line in order.get("refundedLines", [])}
    rest = [seat for seat in order["seats"] if worth and seat["seatId"] not in refunded]
    fee = sum(seat["fee"] for seat in rest)
    assert entered == {"provider": worth, "organiser": fee - worth, "fees": -fee, "fans": 0}, order
