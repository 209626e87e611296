"""Messages reach every consumer: at least once, in order for one order, whatever dies or fails."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from pymongo.errors import OperationFailure

from tests.conftest import NOW
from ticketing import mongo, outbox
from ticketing.mongo import Database, Document
from ticketing.outbox import Done, Failed, Outcome, Postponed, Skipped

Answer = Callable[[Document], Outcome]


@dataclass
class Recorder:
    """A consumer that writes down what it gets and answers as it is told."""

    name: str = "mail"
    targets_of: tuple[str, ...] = ("mail",)
    answer: Answer = field(default=lambda _: Done("taken"))
    got: list[str] = field(default_factory=list)

    async def targets(self, messages: Sequence[Document]) -> dict[str, list[str]]:
        return {message["_id"]: list(self.targets_of) for message in messages}

    async def deliver(self, message: Document, target: str, now: datetime) -> Outcome:  # noqa: ARG002
        self.got.append(f"{message['_id']}:{target}")
        await asyncio.sleep(0)
        return self.answer(message)


async def write(
    database: Database, order_id: str = "ord_1", now: datetime = NOW, count: int = 1
) -> list[str]:
    messages = [outbox.message("order.expired", "evt_1", order_id, {}, now) for _ in range(count)]
    await database.outbox.insert_many(messages)
    return [message["_id"] for message in messages]


async def once(database: Database, consumer: Recorder, now: datetime = NOW) -> int:
    """One round of a worker."""
    await outbox.spread(database, [consumer], now)
    taken = await outbox.take(database, consumer.name, now, 16)
    await asyncio.gather(*(outbox.deliver(database, consumer, delivery, now) for delivery in taken))
    return len(taken)


async def until_quiet(database: Database, consumer: Recorder, now: datetime = NOW) -> None:
    while await once(database, consumer, now):
        now += timedelta(milliseconds=1)


async def the(database: Database, message_id: str, target: str = "mail") -> Document:
    found = await database.deliveries.find_one({"_id": f"{message_id}:{target}"})
    assert found is not None
    return found


async def test_a_message_whose_cause_is_undone_is_never_delivered(either: Database) -> None:
    async def body(session: mongo.Session) -> None:
        message = outbox.message("order.expired", "evt_1", "ord_1", {}, NOW)
        await either.outbox.insert_one(message, session=session)
        raise KeyError

    with pytest.raises(KeyError):
        await mongo.transaction(either, body)
    consumer = Recorder()
    await until_quiet(either, consumer)
    assert consumer.got == []


async def test_each_target_gets_a_message_once(either: Database) -> None:
    (message_id,) = await write(either)
    consumer = Recorder(targets_of=("mail", "whk_1"))
    await until_quiet(either, consumer)
    await until_quiet(either, consumer, NOW + timedelta(days=2))
    assert sorted(consumer.got) == [f"{message_id}:mail", f"{message_id}:whk_1"]
    delivery = await the(either, message_id)
    assert delivery["status"] == "done"
    assert [tried["outcome"] for tried in delivery["tried"]] == ["done"]
    assert "dueAt" not in delivery
    assert delivery["forgetAt"] > NOW + timedelta(days=29)


async def test_a_message_that_nobody_wants_is_spread_and_forgotten(database: Database) -> None:
    await write(database)
    assert await outbox.spread(database, [], NOW) == 1
    assert await outbox.spread(database, [], NOW) == 0
    message = await database.outbox.find_one({})
    assert message is not None
    assert "pending" not in message
    assert await database.deliveries.count_documents({}) == 0


async def test_an_orders_messages_come_in_order_and_one_at_a_time(database: Database) -> None:
    wanted = [f"{message_id}:mail" for message_id in await write(database, count=5)]
    consumer = Recorder()
    rounds = 0
    while await once(database, consumer, NOW + timedelta(milliseconds=rounds)):
        rounds += 1
    assert consumer.got == wanted
    assert rounds == 5


async def test_orders_do_not_wait_for_each_other(database: Database) -> None:
    for number in range(10):
        await write(database, f"ord_{number}", count=2)
    consumer = Recorder()
    assert await once(database, consumer) == 10


async def test_what_failed_comes_later_and_later_and_holds_up_its_own_order_alone(
    database: Database,
) -> None:
    first, second = await write(database, "ord_1", count=2)
    (other,) = await write(database, "ord_2")
    failing = True
    consumer = Recorder(
        answer=lambda message: (
            Failed("not now") if failing and message["orderId"] == "ord_1" else Done("taken")
        )
    )
    now, pauses = NOW, []
    for _ in range(8):
        await until_quiet(database, consumer, now)
        due = (await the(database, first))["dueAt"]
        pauses.append((due - now).total_seconds())
        now = due
    assert pauses == sorted(pauses)
    assert 2 < pauses[0] < 6
    assert pauses[-1] > 300
    assert f"{second}:mail" not in consumer.got
    assert consumer.got.count(f"{other}:mail") == 1
    failing = False
    await until_quiet(database, consumer, now)
    assert consumer.got[-2:] == [f"{first}:mail", f"{second}:mail"]


async def test_after_a_day_it_is_a_dead_letter_and_the_next_goes_on(database: Database) -> None:
    first, second = await write(database, count=2)
    consumer = Recorder(
        answer=lambda message: Failed("no") if message["_id"] == first else Done("taken")
    )
    now, attempts = NOW, 0
    while (await once(database, consumer, now)) or attempts == 0:
        attempts += 1
        assert attempts < 100
        delivery = await the(database, first)
        if delivery["status"] == "dead":
            break
        now = delivery["dueAt"]
    assert timedelta(hours=24) <= now - NOW < timedelta(hours=27)
    assert attempts > 10
    await until_quiet(database, consumer, now + timedelta(seconds=1))
    assert (await the(database, second))["status"] == "done"
    (dead,) = await outbox.dead_letters(database, 10)
    assert dead["messageId"] == first
    assert len(dead["tried"]) <= outbox.ATTEMPTS_SHOWN_MAX


async def test_what_can_never_arrive_is_a_dead_letter_at_once(database: Database) -> None:
    (message_id,) = await write(database)
    await until_quiet(database, Recorder(answer=lambda _: Failed("no such box", lasting=True)))
    assert (await the(database, message_id))["status"] == "dead"


async def test_a_dead_letter_that_is_requeued_has_another_day(either: Database) -> None:
    (message_id,) = await write(either)
    await until_quiet(either, Recorder(answer=lambda _: Failed("no such box", lasting=True)))
    later = NOW + timedelta(days=3)
    assert await outbox.requeue(either, [f"{message_id}:mail", "msg_none:mail"], later) == 1
    assert await outbox.requeue(either, [f"{message_id}:mail"], later) == 0
    await until_quiet(either, Recorder(answer=lambda _: Failed("not now")), later)
    assert (await the(either, message_id))["status"] == "waiting"
    await until_quiet(either, Recorder(), later + timedelta(minutes=1))
    delivery = await the(either, message_id)
    assert delivery["status"] == "done"
    assert [tried["outcome"] for tried in delivery["tried"]] == ["failed", "failed", "done"]


async def test_what_is_skipped_is_settled(database: Database) -> None:
    (message_id,) = await write(database)
    await until_quiet(database, Recorder(answer=lambda _: Skipped("no address")))
    assert (await the(database, message_id))["status"] == "skipped"


async def test_what_is_postponed_was_not_tried(database: Database) -> None:
    (message_id,) = await write(database)
    until = NOW + timedelta(minutes=3)
    await once(database, Recorder(answer=lambda _: Postponed(until)))
    delivery = await the(database, message_id)
    assert (delivery["status"], delivery["attempts"], delivery["dueAt"]) == ("waiting", 0, until)
    assert delivery["tried"] == []


async def test_a_fault_of_a_consumer_fails_one_delivery_and_no_other(database: Database) -> None:
    (broken,) = await write(database, "ord_1")
    (sound,) = await write(database, "ord_2")

    def answer(message: Document) -> Outcome:
        if message["_id"] == broken:
            raise KeyError("secret")
        return Done("taken")

    await until_quiet(database, Recorder(answer=answer))
    assert (await the(database, sound))["status"] == "done"
    delivery = await the(database, broken)
    assert delivery["status"] == "waiting"
    assert delivery["tried"][0]["detail"] == "a fault of ours: KeyError"


async def test_a_dead_workers_delivery_is_taken_by_another_when_its_lease_is_over(
    either: Database,
) -> None:
    (message_id,) = await write(either)
    consumer = Recorder()
    await outbox.spread(either, [consumer], NOW)
    assert len(await outbox.take(either, "mail", NOW, 16)) == 1  # And then it dies.
    soon = NOW + timedelta(seconds=outbox.LEASE_SECONDS - 1)
    assert await once(either, consumer, soon) == 0
    assert await once(either, consumer, NOW + timedelta(seconds=outbox.LEASE_SECONDS)) == 1
    assert (await the(either, message_id))["status"] == "done"


async def test_a_worker_that_comes_back_late_finds_its_delivery_taken_over(
    either: Database,
) -> None:
    (message_id,) = await write(either)
    slow, quick = Recorder(answer=lambda _: Failed("too late")), Recorder()
    await outbox.spread(either, [slow], NOW)
    (asleep,) = await outbox.take(either, "mail", NOW, 1)
    later = NOW + timedelta(seconds=outbox.LEASE_SECONDS)
    (mine,) = await outbox.take(either, "mail", later, 1)
    assert mine["fence"] == asleep["fence"] + 1
    assert await outbox.deliver(either, slow, asleep, later) is False
    assert (await the(either, message_id))["status"] == "taken"
    assert await outbox.deliver(either, quick, mine, later) is True
    assert await outbox.deliver(either, slow, asleep, later) is False
    assert (await the(either, message_id))["status"] == "done"


async def test_a_message_that_kills_every_worker_is_a_dead_letter_after_a_day(
    database: Database,
) -> None:
    (message_id,) = await write(database)
    await outbox.spread(database, [Recorder()], NOW)
    now = NOW
    for _ in range(24 * 60 + 2):
        if not await outbox.take(database, "mail", now, 1):
            break
        now += timedelta(seconds=outbox.LEASE_SECONDS)
    assert (await the(database, message_id))["status"] == "dead"
    assert now >= NOW + timedelta(days=1)


async def test_four_workers_deliver_each_message_once_and_each_order_in_order(
    database: Database,
) -> None:
    random.seed(7)
    wanted = {
        f"ord_{number}": await write(database, f"ord_{number}", count=4) for number in range(25)
    }
    consumers = [Recorder() for _ in range(4)]
    got: list[str] = []
    for consumer in consumers:
        consumer.got = got
    await asyncio.gather(*(_until_all(database, consumer, 100) for consumer in consumers))
    assert sorted(got) == sorted(f"{one}:mail" for many in wanted.values() for one in many)
    for order_id, messages in wanted.items():
        assert [entry for entry in got if entry.split(":")[0] in messages] == [
            f"{one}:mail" for one in messages
        ], order_id


async def _until_all(database: Database, consumer: Recorder, count: int) -> None:
    """A worker that goes on until so many messages are delivered, by whomever."""
    for step in range(2_000):
        await once(database, consumer, NOW + timedelta(milliseconds=step))
        if await database.deliveries.count_documents({"status": "done"}) == count:
            return
    raise AssertionError("not all was delivered")


async def test_workers_killed_again_and_again_strand_nothing(database: Database) -> None:
    rng = random.Random(3)
    wanted = [
        one for number in range(20) for one in await write(database, f"ord_{number}", count=2)
    ]
    consumer = Recorder()
    now = NOW
    for _ in range(400):
        working = asyncio.create_task(once(database, consumer, now))
        await asyncio.wait([working], timeout=rng.uniform(0.001, 0.03))
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        now += timedelta(seconds=outbox.LEASE_SECONDS / 2)
        if await database.deliveries.count_documents({"status": "done"}) == len(wanted):
            break
    await until_quiet(database, consumer, now + timedelta(hours=3))
    assert {entry.split(":")[0] for entry in consumer.got} == set(wanted)
    assert await database.deliveries.count_documents({"status": "done"}) == len(wanted)


async def test_a_spread_that_was_cut_off_makes_no_delivery_twice(either: Database) -> None:
    (message_id,) = await write(either)
    consumer = Recorder()
    await outbox.spread(either, [consumer], NOW)
    await either.outbox.update_one({"_id": message_id}, {"$set": {"pending": True}})
    await until_quiet(either, consumer)
    assert consumer.got == [f"{message_id}:mail"]


async def test_a_delivery_without_its_instant_is_refused_by_the_database(
    database: Database,
) -> None:
    (message_id,) = await write(database)
    await outbox.spread(database, [Recorder()], NOW)
    with pytest.raises(OperationFailure):
        await database.deliveries.update_one(
            {"_id": f"{message_id}:mail"}, {"$unset": {"dueAt": ""}}
        )
