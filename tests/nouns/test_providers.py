"""Between us and a payment provider: the time limit, the breaker, the switches of the sandbox."""

import asyncio

import pytest

from tests.conftest import gather_bounded, providers_of
from ticketing.errors import NotFound
from ticketing.gateway import ProviderUnavailable
from ticketing.mongo import Database, Document
from ticketing.providers import FAILURES_BEFORE_OPEN, OPEN_SECONDS, Breaker
from ticketing.sandbox import Switches

PAYMENT = {"_id": "pay_1", "amount": 900, "currency": "EUR", "status": "created"}


def refund(amount: int, refund_id: str = "rfd_1", round_: int = 0) -> Document:
    return {"_id": refund_id, "amount": amount, "round": round_}


def test_the_breaker_opens_after_failures_in_a_row_and_lets_one_try_after_a_while() -> None:
    now = 0.0
    breaker = Breaker(lambda: now)
    for _ in range(FAILURES_BEFORE_OPEN - 1):
        breaker.failed()
    breaker.enter()
    breaker.succeeded()
    for _ in range(FAILURES_BEFORE_OPEN):
        breaker.enter()
        breaker.failed()
    with pytest.raises(ProviderUnavailable):
        breaker.enter()
    now = OPEN_SECONDS
    breaker.enter()
    with pytest.raises(ProviderUnavailable):
        breaker.enter()
    breaker.succeeded()
    breaker.enter()


async def test_a_provider_that_is_down_is_soon_not_asked_any_more(database: Database) -> None:
    providers = providers_of(database, provider_seconds_max=0.05)
    asked = 0

    async def hangs(_: Document) -> None:
        nonlocal asked
        asked += 1
        await asyncio.sleep(60)

    providers.sandbox.look_up = hangs
    for _ in range(FAILURES_BEFORE_OPEN * 3):
        with pytest.raises(ProviderUnavailable):
            await providers.chosen.look_up(PAYMENT)
    assert asked == FAILURES_BEFORE_OPEN


async def test_switches_are_seen_by_every_process(database: Database) -> None:
    here, there = providers_of(database), providers_of(database)
    await here.sandbox.set_switches(Switches(down=True))
    with pytest.raises(ProviderUnavailable):
        await there.sandbox.look_up(PAYMENT)


async def test_an_unknown_provider_is_not_found(database: Database) -> None:
    with pytest.raises(NotFound):
        providers_of(database).named("stripe")


async def test_the_sandbox_charges_a_payment_once(database: Database) -> None:
    sandbox = providers_of(database).sandbox
    told = await gather_bounded(5, lambda _: sandbox.pay(PAYMENT))
    assert set(told) == {("payment.succeeded", 900)}
    assert await sandbox.decline(PAYMENT) == ("payment.succeeded", PAYMENT["amount"])
    assert (await sandbox.look_up(PAYMENT)).status == "succeeded"


async def test_the_sandbox_never_gives_back_more_than_was_charged(database: Database) -> None:
    sandbox = providers_of(database).sandbox
    await sandbox.pay(PAYMENT)
    answers = await gather_bounded(
        6, lambda index: sandbox.refund(PAYMENT, refund(400, f"rfd_{index}"))
    )
    assert sorted(answer.status for answer in answers) == ["done"] * 2 + ["failed"] * 4


async def test_the_sandbox_makes_a_refund_once_for_each_id(database: Database) -> None:
    sandbox = providers_of(database).sandbox
    await sandbox.pay(PAYMENT)
    assert await sandbox.find_refund(PAYMENT, refund(400)) is None
    answers = await gather_bounded(6, lambda _: sandbox.refund(PAYMENT, refund(400)))
    assert {answer.status for answer in answers} == {"done"}
    assert (await database.sandbox_payments.find_one({}))["refunded"] == 400


async def test_who_is_declined_after_the_wrong_amount_was_taken_is_told_what_was_taken(
    database: Database,
) -> None:
    sandbox = providers_of(database).sandbox
    await sandbox.set_switches(Switches(amount_off=-1))
    charged = ("payment.succeeded", PAYMENT["amount"] - 1)
    assert await sandbox.pay(PAYMENT) == charged
    await sandbox.set_switches(Switches(decline=True))
    assert await sandbox.pay(PAYMENT) == charged
    assert await sandbox.decline(PAYMENT) == charged
