"""A backup brings back every second that it says it does, and says so when it can't."""

import asyncio
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import bson
import pymongo
import pytest
from bson import json_util

from scripts.backups import oplog, restoring, snapshot
from scripts.backups.checking import check
from scripts.backups.files import Damaged
from scripts.backups.oplog import HistoryGone
from scripts.database import REPOSITORY, Failure
from tests.conftest import NOW, Sale, put_on_sale
from tests.faults.test_history_loss import let_history_go
from tests.nouns.test_money import bought
from tests.workers.test_payments import until
from ticketing import clock, dashboards, invariants, mongo
from ticketing.mongo import Database, Document
from ticketing.settings import Settings

SECONDS_MAX = 60


@pytest.fixture
def target(settings: Settings) -> Iterator[Settings]:
    """An empty database on another replica set."""
    chosen = replace(settings, database="restored")
    yield chosen
    with pymongo.MongoClient[Document](settings.mongodb_uri) as client:
        client.drop_database(chosen.database)


def run(command: str, settings: Settings, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [REPOSITORY / "scripts" / command, *map(str, arguments)],
        env=environment(settings),
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def environment(settings: Settings) -> dict[str, str]:
    return os.environ | {
        "TICKETING_MONGODB_URI": settings.mongodb_uri,
        "TICKETING_DATABASE": settings.database,
    }


def start(command: str, settings: Settings, *arguments: object) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [REPOSITORY / "scripts" / command, *map(str, arguments)],
        env=environment(settings),
        stdout=subprocess.DEVNULL,
    )


async def orders_of(settings: Settings) -> dict[str, str]:
    opened = await mongo.connect(settings)
    try:
        found = await opened.database.orders.find({}, {"status": 1}).to_list(1_000)
        return {order["_id"]: order["status"] for order in found}
    finally:
        await opened.close()


async def buy(database: Database, sale: Sale, first: int, count: int) -> list[str]:
    return [
        str((await bought(database, sale, f"fan_{n}", n))["_id"])
        for n in range(first, first + count)
    ]


async def counted(database: Database) -> None:
    await dashboards.rebuild(database, clock.now())


def no_news(_: str) -> None:
    """What a command would say."""


def archived(settings: Settings, folder: Path) -> None:
    with pymongo.MongoClient[Document](settings.mongodb_uri, tz_aware=True) as client:
        if not snapshot.is_whole(folder):
            snapshot.take(client, settings.database, folder, no_news)
        oplog.archive(client, folder, no_news, stopping=lambda: False, catch_up=True)


def restored(settings: Settings, folder: Path, to: datetime | None = None) -> restoring.Outcome:
    with pymongo.MongoClient[Document](settings.mongodb_uri, tz_aware=True) as client:
        return restoring.restore(client, settings.database, folder, to, no_news)


async def test_the_second_before_the_data_was_ruined_comes_back_whole(
    own_settings: Settings, own: Database, target: Settings, tmp_path: Path
) -> None:
    sale = await put_on_sale(own)
    first = await buy(own, sale, 0, 5)
    await counted(own)
    following = start("backup", own_settings, "--to", tmp_path, "--follow")
    try:

        async def snapshot_is_whole() -> bool:
            return snapshot.is_whole(tmp_path)

        await until(snapshot_is_whole)
        second = await buy(own, sale, 5, 5)
        await counted(own)
        await asyncio.sleep(0.05)
        just_before = datetime.now(UTC)
        await asyncio.sleep(0.05)
        # Somebody forgot the filter.
        await own.orders.update_many({}, {"$set": {"total": 1}})
        await own.seats.delete_many({})
        await own.payments.drop()
        await asyncio.sleep(1)
    finally:
        following.send_signal(signal.SIGTERM)
        assert following.wait(SECONDS_MAX) == 0
    ended = run("restore", target, "--from", tmp_path, "--to", just_before.isoformat())
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "All invariants hold." in ended.stdout
    assert await orders_of(target) == dict.fromkeys([*first, *second], "confirmed")
    opened = await mongo.connect(target)
    assert await opened.database.payments.count_documents({}) == 10
    assert await invariants.check_all(opened.database) == []
    await opened.close()
    verified = run("indexes", target, "verify")
    assert verified.returncode == 0, verified.stdout


async def test_without_a_moment_everything_that_was_archived_comes_back(
    own_settings: Settings, own: Database, target: Settings, tmp_path: Path
) -> None:
    sale = await put_on_sale(own)
    archived(own_settings, tmp_path)
    await buy(own, sale, 0, 3)
    await own["later"].insert_one({"_id": 1, "list": [1, 2, 3], "deep": {"one": 1}})
    await own["later"].create_index("list", name="by_list")
    await own["later"].update_one({"_id": 1}, {"$push": {"list": 4}, "$set": {"deep.two": 2}})
    await own["later"].rename("renamed")
    await own["dropped"].insert_one({"_id": 1})
    await own["dropped"].drop()
    archived(own_settings, tmp_path)
    outcome = restored(target, tmp_path)
    assert outcome.operations > 0
    assert await orders_of(target) == await orders_of(own_settings)
    with pymongo.MongoClient[Document](target.mongodb_uri) as client:
        found = client[target.database]
        assert found["renamed"].find_one() == {
            "_id": 1,
            "list": [1, 2, 3, 4],
            "deep": {"one": 1, "two": 2},
        }
        assert "by_list" in found["renamed"].index_information()
        assert {"dropped", "later"}.isdisjoint(found.list_collection_names())


async def test_a_transaction_is_there_as_a_whole_or_not_at_all(
    own_settings: Settings, own: Database, target: Settings, tmp_path: Path
) -> None:
    await own["pairs"].insert_one({"_id": 0})
    archived(own_settings, tmp_path)
    # Larger than one entry of the oplog may be: it takes several, and the last one commits.
    filler = "x" * 1_000_000
    # Pieces of some megabytes roll a small oplog over, so they are archived as they come.
    stopping = threading.Event()

    def follow() -> None:
        with pymongo.MongoClient[Document](own_settings.mongodb_uri, tz_aware=True) as client:
            oplog.archive(client, tmp_path, no_news, stopping=stopping.is_set, catch_up=False)

    following = threading.Thread(target=follow)
    following.start()
    await asyncio.sleep(1)

    async def body(session: mongo.Session) -> None:
        await own["pairs"].delete_many({"_id": {"$gt": 0}}, session=session)
        for number in range(1, 21):
            await own["pairs"].insert_one({"_id": number, "filler": filler}, session=session)

    began = datetime.now(UTC)
    await mongo.transaction(own, body, seconds_max=None)
    await asyncio.sleep(1)
    stopping.set()
    following.join(SECONDS_MAX)
    restored(target, tmp_path, began)
    with pymongo.MongoClient[Document](target.mongodb_uri) as client:
        pairs = client[target.database]["pairs"]
        assert pairs.count_documents({}) == 1
        client.drop_database(target.database)
        restored(target, tmp_path)
        assert pairs.count_documents({}) == 21


def test_the_folder_is_for_its_owner_alone(own_settings: Settings, tmp_path: Path) -> None:
    assert run("backup", own_settings, "--to", tmp_path / "backup").returncode == 0
    assert (tmp_path / "backup").stat().st_mode & 0o077 == 0


async def test_the_files_are_laid_out_as_mongodumps(
    own_settings: Settings, own: Database, tmp_path: Path
) -> None:
    sale = await put_on_sale(own)
    archived(own_settings, tmp_path)
    folder = tmp_path / "snapshot" / own_settings.database
    seats = bson.decode_all((folder / "seats.bson").read_bytes())
    assert {seat["_id"] for seat in seats} == {sale.seat(ordinal) for ordinal in range(40)}
    about = json_util.loads((folder / "seats.metadata.json").read_text())
    assert about["collectionName"] == "seats"
    assert about["type"] == "collection"
    assert "validator" in about["options"]
    assert {"_id_"} < {index["name"] for index in about["indexes"]}


async def test_a_backup_that_was_killed_is_run_again(
    own_settings: Settings, own: Database, target: Settings, tmp_path: Path
) -> None:
    sale = await put_on_sale(own)
    await buy(own, sale, 0, 2)
    await own["large"].insert_many([{"_id": n, "filler": "x" * 900} for n in range(400)])
    for moment in (0.25, 0.4, 0.6, 1.2, 2.0):
        running = start("backup", own_settings, "--to", tmp_path, "--follow")
        await asyncio.sleep(moment)
        running.kill()
        running.wait()
    again = run("backup", own_settings, "--to", tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr
    more = await buy(own, sale, 2, 2)
    archived(own_settings, tmp_path)
    check(tmp_path, no_news)
    restored(target, tmp_path)
    assert set(more) < set(await orders_of(target))
    assert await orders_of(target) == await orders_of(own_settings)


@pytest.fixture
async def backup(own_settings: Settings, own: Database, tmp_path: Path) -> Path:
    """A whole backup with two segments."""
    sale = await put_on_sale(own)
    archived(own_settings, tmp_path)
    await buy(own, sale, 0, 1)
    archived(own_settings, tmp_path)
    await buy(own, sale, 1, 1)
    archived(own_settings, tmp_path)
    assert len(check(tmp_path, no_news)) >= 2
    return tmp_path


@pytest.mark.parametrize(
    "name",
    [
        "snapshot.json",
        "snapshot/ticketing/seats.bson",
        "snapshot/ticketing/orders.metadata.json",
        "oplog/0000000002.bson",
        "oplog/0000000001.json",
        "oplog/head.json",
    ],
)
def test_one_flipped_bit_is_found_and_the_file_named(
    backup: Path, target: Settings, name: str
) -> None:
    path = backup / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(Damaged, match=path.name):
        restored(target, backup)
    ended = run("backup", target, "--to", backup, "--check")
    assert ended.returncode == 1
    assert path.name in ended.stderr


@pytest.mark.parametrize("name", ["snapshot/ticketing/seats.bson", "oplog/0000000002.bson"])
def test_a_file_that_was_cut_short_or_is_missing_is_named(backup: Path, name: str) -> None:
    path = backup / name
    data = path.read_bytes()
    path.write_bytes(data[:-10])
    with pytest.raises(Damaged, match=path.name):
        check(backup, no_news)
    path.unlink()
    with pytest.raises(Damaged, match=path.name):
        check(backup, no_news)


def test_a_missing_segment_is_named_the_last_one_as_well(backup: Path) -> None:
    last = oplog.segments(backup)[-1].number
    for number in (1, last):
        for suffix in (".json", ".bson"):
            path = oplog.entries_file(backup, number).with_suffix(suffix)
            path.rename(path.with_suffix(f"{suffix}.away"))
        with pytest.raises(Damaged, match=f"Segment {number} "):
            check(backup, no_news)
        for suffix in (".json", ".bson"):
            path = oplog.entries_file(backup, number).with_suffix(suffix)
            path.with_suffix(f"{suffix}.away").rename(path)
    check(backup, no_news)


async def test_an_oplog_that_has_rolled_over_is_named_as_a_gap(
    own_settings: Settings, own: Database, tmp_path: Path
) -> None:
    await put_on_sale(own)
    archived(own_settings, tmp_path)
    await let_history_go(own)
    with pytest.raises(HistoryGone, match="gap"):
        archived(own_settings, tmp_path)
    ended = run("backup", own_settings, "--to", tmp_path)
    assert ended.returncode == 1
    assert "larger" in ended.stderr


def test_a_moment_outside_the_backup_is_refused(backup: Path, target: Settings) -> None:
    for moment in (NOW, datetime.now(UTC) - timedelta(days=1)):
        with pytest.raises(Failure, match="reaches from"):
            restored(target, backup, moment)
    ended = run("restore", target, "--from", backup, "--to", "2026-12-01T20:00:00")
    assert ended.returncode == 2
    assert "zone" in ended.stderr


def test_a_database_with_documents_is_never_restored_over(
    backup: Path, own_settings: Settings
) -> None:
    ended = run("restore", own_settings, "--from", backup)
    assert ended.returncode == 1
    assert "fresh replica set" in ended.stderr


async def test_a_sale_goes_on_while_it_is_backed_up(
    own_settings: Settings, own: Database, target: Settings, tmp_path: Path
) -> None:
    sale = await put_on_sale(own)
    buying = asyncio.create_task(buy(own, sale, 0, 20))
    await asyncio.sleep(0.1)
    await asyncio.to_thread(archived, own_settings, tmp_path)
    during = await asyncio.wait_for(buying, SECONDS_MAX)
    await asyncio.to_thread(archived, own_settings, tmp_path)
    began = time.monotonic()
    restored(target, tmp_path)
    assert time.monotonic() - began < SECONDS_MAX
    assert set(await orders_of(target)) == set(during)
