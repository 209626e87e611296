"""Every command of every operation may fail: what is told is true, and the same again completes it.

The server's own fail point `failCommand` is armed by a listener of the driver right before the N-th
command of an operation is sent, for every N the operation has.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pymongo
import pytest
from pymongo import monitoring
from pymongo.errors import PyMongoError

from scripts.replica_set import ReplicaSet
from tests.conftest import NOW, ORGANISER, Sale, providers_of, put_on_sale
from tests.faults.relay import Relay, relay_to
from tests.nouns.test_checkout import current, hold_seats, notice, ordered
from tests.nouns.test_money import bought
from ticketing import (
    cancellations,
    checkout,
    dashboards,
    holds,
    invariants,
    mongo,
    moves,
    orders,
    outbox,
    refunds,
    seats,
)
from ticketing.checkout import LineRefund, Receipt
from ticketing.dashboards import Overtaken
from ticketing.errors import Refusal
from ticketing.events import Move
from ticketing.holds import Hold, HoldRequest
from ticketing.mongo import Database, Document
from ticketing.orders import OrderRequest
from ticketing.outbox import Done, Outcome
from ticketing.settings import Settings
from ticketing.states import OrderState

LATER = NOW + timedelta(seconds=601)
COMMANDS_MAX = 60
TRIES_MAX = 3

Fault = dict[str, Any]
# Each command meets one fault of each group, the next command the group's next: what they have in
# common is what the driver and the server make of them.
FAULTS: tuple[dict[str, Fault], ...] = (
    {
        "the connection is closed before": {"closeConnection": True},
        "the connection is closed after": {"answerIsLost": True},
        "not the primary": {"errorCode": 10107},
        "shutting down": {"errorCode": 91},
    },
    {
        "a write conflict": {"errorCode": 112},
        "a transient transaction error": {
            "errorCode": 251,
            "errorLabels": ["TransientTransactionError"],
        },
        "a stall": {"blockConnection": True, "blockTimeMS": 200},
    },
    # After the effect: it happened, and the answer says that it may not last.
    {
        "no majority in time": {"writeConcernError": {"code": 64, "errmsg": "too late"}},
        "stepping down after it": {"writeConcernError": {"code": 91, "errmsg": "stepping down"}},
    },
    {
        "the commit's outcome is unknown": {
            "errorCode": 50,
            "errorLabels": ["UnknownTransactionCommitResult"],
        },
    },
)


STALL: Fault = {"blockConnection": True, "blockTimeMS": 5_000}


class Injector(monitoring.CommandListener):
    """Makes the N-th command that is sent while it is armed fail, once."""

    def __init__(self) -> None:
        self.client: pymongo.MongoClient[Document] | None = None
        self.relay: Relay | None = None
        self.fault: Fault = {}
        self.at = 0
        self.sent = 0
        self.hit: str | None = None

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        if not self.at or event.command_name in ("configureFailPoint", "endSessions"):
            return
        self.sent += 1
        is_commits = "UnknownTransactionCommitResult" in self.fault.get("errorLabels", [])
        if self.sent != self.at or (is_commits and event.command_name != "commitTransaction"):
            return
        at, self.at = self.at, 0  # What follows, the arming itself included, is let alone.
        self.hit = f"command {at}, {event.command_name}"
        if "answerIsLost" in self.fault:
            assert self.relay is not None
            self.relay.lose_answer_to = event.request_id
            return
        assert self.client is not None
        self.client.admin.command(
            {
                "configureFailPoint": "failCommand",
                "mode": {"times": 1},
                "data": {
                    "failCommands": [event.command_name],
                    "appName": "ticketing",
                    **self.fault,
                },
            }
        )

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        """Nothing to do."""

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        """Nothing to do."""


# The driver takes listeners before a client is opened, and this one is idle unless armed.
INJECTOR = Injector()
monitoring.register(INJECTOR)


@pytest.fixture
def injector(settings: Settings) -> Iterator[Injector]:
    with pymongo.MongoClient[Document](settings.mongodb_uri) as client:
        INJECTOR.client = client
        yield INJECTOR
        INJECTOR.at = 0
        client.admin.command({"configureFailPoint": "failCommand", "mode": "off"})


@pytest.fixture
async def relayed(
    settings: Settings, replica_set: ReplicaSet, injector: Injector
) -> AsyncIterator[Database]:
    """The database by a relay, which can lose an answer."""
    async with relay_to(replica_set.ports[0]) as relay:
        injector.relay = relay
        uri = f"mongodb://127.0.0.1:{relay.port}/?directConnection=true"
        opened = await mongo.connect(replace(settings, mongodb_uri=uri))
        yield opened.database
        await opened.close()


@dataclass
class Stage:
    """What an operation works on."""

    database: Database
    sale: Sale
    order: Document
    hold_id: str
    told: list[str]
    tries: int = 0

    def later(self) -> datetime:
        """Another time at each try, when what the one before had taken is free again."""
        self.tries += 1
        return NOW + timedelta(minutes=5 * self.tries)


Act = Callable[[Stage], Awaitable[None]]
Check = Callable[[Stage], Awaitable[None]]


# --- The operations: what is done, and what must be true once it was answered ---------------------


async def _ordered(database: Database, sale: Sale) -> tuple[Document, str]:
    order = await ordered(database, sale, "fan_a", 1, 2)
    return order, order["holdId"]


async def _paid(database: Database, sale: Sale) -> tuple[Document, str]:
    order = await bought(database, sale, "fan_a", 1, 2)
    return order, order["holdId"]


async def _cancelled(database: Database, sale: Sale) -> tuple[Document, str]:
    order, hold_id = await _paid(database, sale)
    await checkout.cancel(database, order["_id"], "fan_a", now=NOW)
    return order, hold_id


async def _held(database: Database, sale: Sale) -> tuple[Document, str]:
    return {}, (await hold_seats(database, sale, "fan_a", 1, 2)).hold_id


async def _nothing(_database: Database, _sale: Sale) -> tuple[Document, str]:
    return {}, ""


async def _called_off(database: Database, sale: Sale) -> tuple[Document, str]:
    order, hold_id = await _paid(database, sale)
    await cancellations.begin(database, sale.event_id, ORGANISER, NOW)
    return order, hold_id


async def _moved(database: Database, sale: Sale) -> tuple[Document, str]:
    order, hold_id = await _paid(database, sale)
    await moves.move(database, sale.event_id, ORGANISER, Move(venue_name="Fillmore"), NOW)
    return order, hold_id


async def place_hold(stage: Stage) -> None:
    wish = HoldRequest(stage.sale.event_id, "fan_a", stage.sale.seats(1, 2), key="k", body=b"b")
    (outcome,) = await holds.place(stage.database, [wish], hold_seconds=600, now=NOW)
    if isinstance(outcome, Refusal):
        raise outcome
    assert isinstance(outcome, Hold)
    stage.hold_id = outcome.hold_id


async def is_held(stage: Stage) -> None:
    mine = await holds.seats_of(stage.database, [stage.hold_id])
    assert [seat["_id"] for seat in mine] == list(stage.sale.seats(1, 2))
    assert {seat["status"] for seat in mine} == {"held"}
    assert await stage.database.seats.count_documents({"status": "held"}) == 2


async def place_order(stage: Stage) -> None:
    wish = OrderRequest("fan_a", stage.hold_id, "k")
    (outcome,) = await checkout.place_orders(stage.database, [wish], now=NOW)
    if isinstance(outcome, Refusal):
        raise outcome
    stage.order = outcome


async def is_ordered(stage: Stage) -> None:
    (order,) = await stage.database.orders.find({}).to_list(5)
    assert (order["_id"], order["status"]) == (stage.order["_id"], "pendingPayment")
    (payment,) = await stage.database.payments.find({}).to_list(5)
    assert payment["orderId"] == order["_id"]
    assert await stage.database.outbox.distinct("kind") == ["order.placed"]


async def confirm(stage: Stage) -> None:
    (outcome,) = await checkout.receive(stage.database, [notice(stage.order)], now=NOW)
    if isinstance(outcome, Exception):
        raise outcome
    assert isinstance(outcome, Receipt)
    assert outcome.outcome in ("confirmed", "repeated")


async def is_confirmed(stage: Stage) -> None:
    after = await current(stage.database, stage.order)
    assert (after["status"], len(after["tickets"]), after["refunds"]) == ("confirmed", 2, [])
    assert await stage.database.ledger.count_documents({}) == 1
    assert await stage.database.outbox.count_documents({"kind": "order.confirmed"}) == 1


async def cancel(stage: Stage) -> None:
    # Where an answer was lost, the same again says that it is done.
    with suppress(OrderState):
        await checkout.cancel(stage.database, stage.order["_id"], "fan_a", now=NOW)


async def is_cancelled(stage: Stage) -> None:
    after = await current(stage.database, stage.order)
    assert (after["status"], len(after["refunds"])) == ("cancelled", 1)
    assert await stage.database.seats.count_documents({"status": "available"}) == 40
    assert await stage.database.outbox.count_documents({"kind": "order.cancelled"}) == 1


async def refund_a_seat(stage: Stage) -> None:
    wanted = LineRefund(stage.order["_id"], (stage.sale.seat(1),), "org_one", key="k")
    await checkout.refund_lines(stage.database, wanted, now=NOW)


async def is_refunded_in_part(stage: Stage) -> None:
    after = await current(stage.database, stage.order)
    assert (after["status"], len(after["refunds"])) == ("confirmed", 1)
    assert await stage.database.refunds.count_documents({}) == 1


async def release(stage: Stage) -> None:
    await checkout.release_hold(stage.database, stage.hold_id, "fan_a", now=NOW)


async def is_released(stage: Stage) -> None:
    assert (await current(stage.database, stage.order))["status"] == "expired"
    assert await stage.database.seats.count_documents({"status": "available"}) == 40
    assert await stage.database.outbox.count_documents({"kind": "order.expired"}) == 1


async def sweep(stage: Stage) -> None:
    await seats.lapse_overdue(stage.database, LATER)
    await orders.expire_overdue(stage.database, LATER)


async def send_refunds(stage: Stage) -> None:
    await refunds.send_due(stage.database, providers_of(stage.database), stage.later())
    if await stage.database.refunds.count_documents({"status": "done"}) != 1:
        raise _NotYet


async def is_paid_back(stage: Stage) -> None:
    known = await stage.database.sandbox_payments.find_one({"_id": _payment_id(stage)})
    assert known is not None
    assert known["refunded"] == stage.order["total"]
    assert await stage.database.outbox.count_documents({"kind": "refund.done"}) == 1


def _payment_id(stage: Stage) -> str:
    return str(stage.order["payment"]["paymentId"])


async def call_off(stage: Stage) -> None:
    await cancellations.run_due(stage.database, stage.later())
    if (await current(stage.database, stage.order))["status"] != "cancelled":
        raise _NotYet


async def follow(stage: Stage) -> None:
    await moves.run_due(stage.database, stage.later())
    if (await current(stage.database, stage.order))["event"]["venueName"] != "Fillmore":
        raise _NotYet


async def has_followed(stage: Stage) -> None:
    assert await stage.database.outbox.count_documents({"kind": "order.moved"}) == 1


class Recorder:
    """A consumer that takes everything."""

    name = "recorder"

    def __init__(self, told: list[str]) -> None:
        self._told = told

    async def targets(self, messages: list[Document]) -> dict[str, list[str]]:
        return {message["_id"]: ["recorder"] for message in messages}

    async def deliver(self, message: Document, target: str, now: object) -> Outcome:  # noqa: ARG002
        self._told.append(message["_id"])
        return Done("taken")


async def deliver(stage: Stage) -> None:
    recorder = Recorder(stage.told)
    later = stage.later()
    await outbox.spread(stage.database, [recorder], later)  # type: ignore[list-item]
    # One after the other, as the messages of one order are.
    while taken := await outbox.take(stage.database, recorder.name, later, 10):
        for delivery in taken:
            await outbox.deliver(stage.database, recorder, delivery, later)  # type: ignore[arg-type]
    done = await stage.database.deliveries.count_documents({"status": "done"})
    if done < await stage.database.outbox.count_documents({}):
        raise _NotYet


async def is_delivered(stage: Stage) -> None:
    messages = await stage.database.outbox.distinct("_id")
    # At least once, and nothing was left out.
    assert set(stage.told) == set(messages)
    assert await stage.database.deliveries.count_documents({}) == len(messages)


async def count_changes(stage: Stage) -> None:
    """One round of the changes worker, from the saved place on."""
    place = await dashboards.place(stage.database)
    if place is None:
        await dashboards.rebuild(stage.database, NOW)
        place = await dashboards.place(stage.database)
        assert place is not None
    batch: list[Document] = []
    async with mongo.watch(
        stage.database, dashboards.CHANGES, max_await_time_ms=50, **place.stream_options()
    ) as stream:
        while (change := await stream.try_next()) is not None:
            batch.append(change)
        if batch:
            # Counted by a try whose answer was lost: the place says so, and the next goes on there.
            with suppress(Overtaken):
                await dashboards.apply(stage.database, place, batch, stream.resume_token, NOW)
    if await invariants.counter_differences(stage.database, stage.sale.event):
        raise _NotYet


async def _changes_to_count(database: Database, sale: Sale) -> tuple[Document, str]:
    await dashboards.rebuild(database, NOW)
    return await _paid(database, sale)


async def is_counted(stage: Stage) -> None:
    counters = await dashboards.find(stage.database, stage.sale.event_id)
    assert (counters["seats"]["sold"], counters["holds"]["created"]) == (2, 1)


class _NotYet(Refusal):
    """A worker's step that found out it could not do it all, as a worker would: later."""

    slug = "unavailable"

    def __init__(self) -> None:
        super().__init__("not yet")


@dataclass(frozen=True)
class Operation:
    """An operation, what it begins from, and what must be true once it has succeeded."""

    prepare: Callable[[Database, Sale], Awaitable[tuple[Document, str]]]
    act: Act
    check: Check
    commands_min: int


OPERATIONS = {
    "hold": Operation(_nothing, place_hold, is_held, 2),
    "order": Operation(_held, place_order, is_ordered, 5),
    "confirm": Operation(_ordered, confirm, is_confirmed, 8),
    "cancel": Operation(_paid, cancel, is_cancelled, 6),
    "refund of a seat": Operation(_paid, refund_a_seat, is_refunded_in_part, 6),
    "release": Operation(_ordered, release, is_released, 4),
    "sweep": Operation(_ordered, sweep, is_released, 4),
    "sending a refund": Operation(_cancelled, send_refunds, is_paid_back, 5),
    "calling off": Operation(_called_off, call_off, is_cancelled, 5),
    "following a move": Operation(_moved, follow, has_followed, 4),
    "delivery": Operation(_paid, deliver, is_delivered, 6),
    "counting changes": Operation(_changes_to_count, count_changes, is_counted, 8),
}


@pytest.mark.timeout(150)
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_whichever_command_fails_what_is_told_is_true_and_again_completes_it(
    relayed: Database, injector: Injector, capsys: pytest.CaptureFixture[str], operation: str
) -> None:
    chosen, turn = OPERATIONS[operation], list(OPERATIONS).index(operation)
    injected: set[int] = set()
    for at in range(1, COMMANDS_MAX):
        sent = 0
        for group in FAULTS:
            name = list(group)[(at + turn) % len(group)]
            injector.fault, injector.hit, injector.sent = group[name], None, 0
            sent = max(sent, await _tried(relayed, injector, chosen, at))
            if injector.hit:
                injected.add(at)
                with capsys.disabled():
                    print(f"\n  {operation}: {injector.hit}: {name}", end="")
        if sent < at:
            break  # It has no such command: all have been tried.
    assert len(injected) >= chosen.commands_min


@pytest.mark.parametrize("operation", ["hold", "order", "confirm"])
async def test_a_stall_of_five_seconds_is_waited_for_and_breaks_nothing(
    relayed: Database, injector: Injector, operation: str
) -> None:
    injector.fault, injector.hit, injector.sent = STALL, None, 0
    await _tried(relayed, injector, OPERATIONS[operation], 2)
    assert injector.hit


async def _tried(database: Database, injector: Injector, chosen: Operation, at: int) -> int:
    """One run from the beginning in which that command may fail; how many commands were sent."""
    for collection in await database.list_collection_names():
        if not collection.startswith("system."):
            await database[collection].delete_many({})
    sale = await put_on_sale(database)
    order, hold_id = await chosen.prepare(database, sale)
    stage = Stage(database, sale, order, hold_id, [])
    injector.at = at
    outcome = await _attempt(chosen.act, stage)
    injector.at = 0
    for _ in range(TRIES_MAX):
        if outcome is None:
            break
        # Told honestly that it may not have happened; whoever asks again gets it.
        outcome = await _attempt(chosen.act, stage)
    assert outcome is None, (injector.hit, injector.fault, outcome)
    await chosen.check(stage)
    broken = await invariants.check_all(database, counters=False)
    assert broken == [], (injector.hit, injector.fault)
    return injector.sent


async def _attempt(act: Act, stage: Stage) -> Exception | None:
    """None where it was told to be done; else what was told instead."""
    try:
        await act(stage)
    except (PyMongoError, Refusal) as error:
        return error
    return None
