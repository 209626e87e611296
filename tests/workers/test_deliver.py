"""The deliver worker: one mail for each cause, however many workers, and nothing is stranded."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.conftest import NOW, put_on_sale
from tests.mail_server import mail_server
from tests.nouns.test_checkout import notice, ordered, receive
from tests.nouns.test_webhooks import receiving, registered
from ticketing import accounts, clock, events, outbox
from ticketing.mongo import Database
from ticketing.settings import Settings
from workers import deliver
from workers.metrics import Metrics

FANS = 30


@asynccontextmanager
async def worker(settings: Settings) -> AsyncIterator[asyncio.Task[None]]:
    """A worker that is told to stop at the end."""
    stopping = asyncio.Event()
    task = asyncio.create_task(deliver.run(settings, Metrics("deliver"), stopping))
    try:
        yield task
    finally:
        stopping.set()
        await asyncio.gather(task, return_exceptions=True)


async def sold(database: Database) -> list[str]:
    """So many fans each buy a seat; the addresses of the fans."""
    floor = [events.Section("Floor", "Rear", capacity=FANS + 10)]
    sale = await put_on_sale(database, sections=floor)
    addresses = []
    for number in range(FANS):
        fan_id = f"fan_{number}"
        await accounts.save_profile(database, fan_id, "Ada", f"{fan_id}@example.org", NOW)
        await receive(database, notice(await ordered(database, sale, fan_id, number)))
        addresses.append(f"{fan_id}@example.org")
    return addresses


async def settled(database: Database) -> None:
    """Wait until every message is spread and no delivery is open."""
    for _ in range(600):
        pending = await database.outbox.count_documents({"pending": True})
        if not pending and not await database.deliveries.count_documents(
            {"dueAt": {"$exists": True}}
        ):
            return
        await asyncio.sleep(0.05)
    raise AssertionError("something was never delivered")


async def let_leases_lapse(database: Database) -> None:
    """As time would: what was taken by a worker that died may be taken again."""
    await database.deliveries.update_many(
        {"status": "taken"},
        {"$set": {"dueAt": clock.now() - timedelta(seconds=1)}},
    )


async def test_four_workers_send_one_mail_and_one_webhook_for_each_cause(
    settings: Settings, database: Database
) -> None:
    async with mail_server() as server, receiving() as receiver:
        near = replace(server.settings(settings), webhooks_to_private_addresses="on")
        await registered(database, near, receiver.url)
        addresses = await sold(database)
        async with worker(near), worker(near), worker(near), worker(near):
            await settled(database)
    assert sorted(recipient for recipient, _ in server.taken) == sorted(addresses)
    assert len({mail["Message-ID"] for _, mail in server.taken}) == FANS
    told = [headers["webhook-id"] for _, headers, _ in receiver.got]
    messages = [message["_id"] for message in await database.outbox.find({}).to_list(1_000)]
    assert sorted(told) == sorted(messages)
    # Each order was placed, then paid, then confirmed, and is told so.
    for order_id in await database.orders.distinct("_id"):
        mine = await database.outbox.find({"orderId": order_id}).sort("_id", 1).to_list(10)
        kinds = ["order.placed", "payment.completed", "order.confirmed"]
        assert [one["kind"] for one in mine] == kinds
        places = [told.index(one["_id"]) for one in mine]
        assert places == sorted(places)


async def test_a_worker_killed_in_the_middle_of_its_mails_leaves_them_to_others(
    settings: Settings, database: Database
) -> None:
    async with mail_server() as server:
        addresses = await sold(database)
        hanging = asyncio.Event()

        async def hang() -> None:
            hanging.set()
            await asyncio.Event().wait()

        server.before_taking = hang
        killed = await process(server.settings(settings))
        await asyncio.wait_for(hanging.wait(), 60)
        killed.kill()
        await killed.wait()
        assert await database.deliveries.count_documents({"status": "taken"}) > 0
        server.before_taking = None
        await let_leases_lapse(database)
        async with worker(server.settings(settings)), worker(server.settings(settings)):
            await settled(database)
    assert sorted(recipient for recipient, _ in server.taken) == sorted(addresses)


async def process(settings: Settings) -> asyncio.subprocess.Process:
    """A worker of its own, by the command a person uses."""
    given = {
        f"TICKETING_{name.upper()}": str(value)
        for name, value in vars(settings).items()
        if value != getattr(Settings(), name)
    }
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "workers", "deliver", env=os.environ | given
    )


async def test_a_worker_that_is_told_to_stop_finishes_what_it_sends(
    settings: Settings, database: Database
) -> None:
    async with mail_server() as server:
        await sold(database)
        sending, go_on = asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            sending.set()
            await go_on.wait()

        server.before_taking = wait
        stopping = asyncio.Event()
        task = asyncio.create_task(
            deliver.run(server.settings(settings), Metrics("deliver"), stopping)
        )
        await asyncio.wait_for(sending.wait(), 30)
        stopping.set()
        await asyncio.sleep(0.1)
        assert not task.done()
        go_on.set()
        await asyncio.wait_for(task, 30)
    assert await database.deliveries.count_documents({"status": "taken"}) == 0
    assert server.taken


async def test_without_a_mail_server_no_mail_waits_and_webhooks_go_out(
    settings: Settings, database: Database
) -> None:
    async with receiving() as receiver:
        near = replace(settings, webhooks_to_private_addresses="on")
        await registered(database, near, receiver.url, kinds=["order.confirmed"])
        await sold(database)
        async with worker(near):
            await settled(database)
    assert len(receiver.got) == FANS
    assert await database.deliveries.count_documents({"consumer": "mail"}) == 0


async def test_one_receiver_that_never_answers_holds_up_no_mail(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "ATTEMPT_SECONDS_MAX", 5.0)

    writers: list[asyncio.StreamWriter] = []

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.read()

    silent = await asyncio.start_server(never, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    async with mail_server() as server:
        near = replace(server.settings(settings), webhooks_to_private_addresses="on")
        await registered(database, near, f"http://127.0.0.1:{port}/")
        addresses = await sold(database)
        async with worker(near):
            for _ in range(400):
                if len(server.taken) == len(addresses):
                    break
                await asyncio.sleep(0.05)
    silent.close()
    for writer in writers:
        writer.close()
        await writer.wait_closed()
    assert len(server.taken) == len(addresses)


async def test_what_is_about_an_account_alone_stops_no_consumer(
    database: Database, settings: Settings
) -> None:
    """A message without an event, and nothing else to spread: every consumer takes it."""
    told = outbox.account_message("account.asked", {"requestId": "req_gone"}, clock.now())
    await database.outbox.insert_one(told)
    async with mail_server() as server, worker(server.settings(settings)) as task:
        await settled(database)
        assert not task.done()
    [delivery] = await database.deliveries.find().to_list()
    assert (delivery["consumer"], delivery["status"]) == ("account-mail", "skipped")
