"""A database of an earlier release that was migrated is like one that this release has made."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pymongo
import pytest

import indexes
from indexes import actual, migrations
from indexes.migrations import MIGRATIONS, MigrationError
from scripts.database import REPOSITORY
from tests.conftest import NOW, Sale, providers_of, put_on_sale
from tests.nouns.test_checkout import hold_seats, notice, ordered
from tests.nouns.test_money import bought
from tests.schema.conftest import Run
from ticketing import checkout, clock, dashboards, deployment, invariants, mongo, refunds
from ticketing.checkout import LineRefund
from ticketing.mongo import Client, Database, Document
from ticketing.settings import Settings

Plain = pymongo.database.Database[Document]


@pytest.fixture
def plain(settings: Settings) -> Iterator[Plain]:
    """The same database by the driver that commands use."""
    with pymongo.MongoClient[Document](settings.mongodb_uri, tz_aware=True) as client:
        yield client[settings.database]


def no_news(_: str) -> None:
    """What a command would say."""


async def sales(database: Database) -> Sale:
    """A purchase of every kind: held, waiting, paid, cancelled, refunded in part, paid twice."""
    sale = await put_on_sale(database)
    await hold_seats(database, sale, "fan_a", 1, 2)
    await ordered(database, sale, "fan_b", 3)
    await bought(database, sale, "fan_c", 4, 25)
    await bought(database, sale, "fan_c", 5)
    cancelled = await bought(database, sale, "fan_d", 6)
    await checkout.cancel(database, cancelled["_id"], "fan_d", now=NOW)
    parted = await bought(database, sale, "fan_e", 7, 8)
    wanted = LineRefund(parted["_id"], sale.seats(7), "org_one")
    await checkout.refund_lines(database, wanted, now=NOW)
    wrong = await ordered(database, sale, "fan_f", 9)
    await checkout.receive(database, [replace(notice(wrong), amount=1)], now=NOW)
    twice = await bought(database, sale, "fan_g", 10)
    second = replace(notice(twice), payment_id="pay_second", notice_id="msg_second")
    await checkout.receive(database, [second], now=NOW)
    await refunds.send_due(database, providers_of(database), NOW)
    return sale


async def aged(database: Database) -> None:
    """As an earlier release would have left it."""
    # Its validator did not ask for the field yet.
    await database.seats.update_many(
        {}, {"$unset": {"fanSlot": ""}}, bypass_document_validation=True
    )
    await database.ledger.delete_many({})
    await database.migrations.delete_many({})


async def shapes(database: Database) -> dict[str, set[tuple[str, ...]]]:
    """Which fields the documents of each collection have, in all combinations."""
    found: dict[str, set[tuple[str, ...]]] = {}
    for name in ("seats", "orders", "payments", "refunds", "ledger"):
        documents = await database[name].find({}).to_list(1_000)
        found[name] = {tuple(sorted(document)) for document in documents}
    return found


async def sound(database: Database) -> list[invariants.Finding]:
    await dashboards.rebuild(database, clock.now())
    return await invariants.check_all(database)


async def test_what_an_earlier_release_left_is_like_what_this_one_makes(
    database: Database, plain: Plain
) -> None:
    await sales(database)
    assert await sound(database) == []
    fresh, fresh_sums = await shapes(database), await ledger_sums(database)
    fresh_structure = actual.read(plain)
    await aged(database)
    assert await sound(database) != []
    migrations.run(plain, no_news)
    assert await sound(database) == []
    assert await shapes(database) == fresh
    assert await ledger_sums(database) == fresh_sums
    assert actual.read(plain) == fresh_structure
    assert migrations.pending(plain) == []


async def ledger_sums(database: Database) -> dict[tuple[str, str], int]:
    sums: dict[tuple[str, str], int] = {}
    for entry in await database.ledger.find({}).to_list(1_000):
        for line in entry["lines"]:
            key = (entry["cause"], line["account"])
            sums[key] = sums.get(key, 0) + line["amount"]
    return sums


async def test_run_again_it_changes_nothing(database: Database, plain: Plain) -> None:
    await sales(database)
    await aged(database)
    migrations.run(plain, no_news)
    before = await database.ledger.find({}).sort("_id", 1).to_list(1_000)
    await database.migrations.delete_many({})
    migrations.run(plain, no_news)
    assert await database.ledger.find({}).sort("_id", 1).to_list(1_000) == before
    assert await sound(database) == []


async def test_it_works_batch_by_batch_beside_a_release_that_sells(
    database: Database, plain: Plain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "SEATS_PER_BATCH", 3)
    monkeypatch.setattr(migrations, "ORDERS_PER_BATCH", 2)
    sale = await sales(database)
    await aged(database)
    # The new release has sold to the same fan before the backfill came to the old seats.
    await bought(database, sale, "fan_c", 12)
    said: list[str] = []
    migrations.run(plain, said.append)
    assert await sound(database) == []
    assert len(said) > 6


async def test_a_new_hold_in_the_way_of_a_place_is_left_alone(
    database: Database, plain: Plain
) -> None:
    sale = await put_on_sale(database)
    await bought(database, sale, "fan_a", 1)
    await aged(database)
    batch = migrations.give_places(plain, "")
    await bought(database, sale, "fan_a", 2)
    assert batch.changed == 1
    assert migrations.give_places(plain, "").changed == 0
    slots = await database.seats.distinct("fanSlot")
    assert len(slots) == 2


async def test_killed_in_the_middle_it_goes_on_from_there(
    database: Database, plain: Plain, settings: Settings
) -> None:
    sale = await put_on_sale(database)
    for number in range(12):
        await bought(database, sale, f"fan_{number}", number)
    await aged(database)
    program = (
        "import os, signal, sys; from indexes import __main__, migrations\n"
        "migrations.SEATS_PER_BATCH = 5\n"
        "step = migrations.give_places\n"
        "def die(database, place):\n"
        "    batch = step(database, place)\n"
        "    if place: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return batch\n"
        "first = migrations.Migration(1, 'x', die)\n"
        "migrations.MIGRATIONS = (first, *migrations.MIGRATIONS[1:])\n"
        "sys.exit(__main__.main(['migrate']))"
    )
    killed = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", program],
        env=os.environ
        | {"TICKETING_MONGODB_URI": settings.mongodb_uri, "TICKETING_DATABASE": settings.database},
        cwd=REPOSITORY,
        check=False,
        timeout=60,
    )
    assert killed.returncode == -signal.SIGKILL
    half = plain.migrations.find_one({"_id": 1})
    assert half is not None
    assert (half["status"], bool(half["place"])) == ("running", True)
    with pytest.raises(MigrationError, match="run this again"):
        migrations.run(plain, no_news)
    plain.migrations.update_one({"_id": 1}, {"$set": {"leaseUntil": datetime.now(UTC)}})
    migrations.run(plain, no_news)
    assert await sound(database) == []


async def test_whoever_was_taken_over_writes_no_place(
    database: Database, plain: Plain, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sales(database)
    await aged(database)
    first = MIGRATIONS[0]

    def overtaken(given: Plain, place: str) -> migrations.Batch:
        given.migrations.update_one({"_id": 1}, {"$inc": {"fence": 1}})
        return first.step(given, place)

    taken_over = migrations.Migration(1, first.name, overtaken)
    monkeypatch.setattr(migrations, "MIGRATIONS", (taken_over, *MIGRATIONS[1:]))
    with pytest.raises(MigrationError, match="taken the migration over"):
        migrations.run(plain, no_news)


def test_a_fresh_database_needs_none(
    bare: Plain, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert indexes.apply(bare) == []
    assert migrations.pending(bare) == []
    assert run(bare, "migrate") == 0
    assert "all migrations are done" in capsys.readouterr().out
    assert run(bare, "verify") == 0


def test_what_is_pending_is_a_difference(
    applied: Plain, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    applied.migrations.delete_one({"_id": 2})
    assert run(applied, "plan") == 1
    assert "migration 2 is pending" in capsys.readouterr().out
    assert run(applied, "verify") == 1
    assert run(applied, "migrate") == 0
    assert run(applied, "plan") == 0


async def test_a_newer_database_is_refused_by_everybody(
    applied: Plain, run: Run, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    newer = {**(applied.migrations.find_one({"_id": 2}) or {}), "_id": deployment.DATA_VERSION + 1}
    applied.migrations.insert_one(newer)
    for command in ("plan", "migrate", "verify"):
        assert run(applied, command) == 2
        assert "newer release" in capsys.readouterr().err
    driver: mongo.Database = client.driver_client[applied.name]
    with pytest.raises(deployment.Unusable, match="newer release"):
        await deployment.refuse_unusable(driver)
