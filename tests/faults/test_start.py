"""A process says what it waits for, and names a database that no waiting mends."""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pymongo
import pytest

import indexes
from scripts import replica_set as embedded
from scripts.replica_set import ReplicaSet
from tests.journeys.conftest import free_port
from ticketing import deployment, mongo
from ticketing.mongo import Database, Document
from ticketing.settings import Settings

SECONDS_MAX = 60
PROCESSES = [("ticketing.api",), ("workers", "release"), ("workers", "changes")]


@pytest.fixture(scope="module")
def single_server() -> Iterator[str]:
    """A mongod that is no replica set."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="ticketing-") as folder:
        running = subprocess.Popen(
            [
                *(embedded.find_mongod(), "--dbpath", folder, "--port", str(port)),
                *("--bind_ip", "127.0.0.1", "--nounixsocket", "--quiet"),
            ],
            stdout=subprocess.DEVNULL,
        )
        try:
            uri = f"mongodb://127.0.0.1:{port}/"
            with pymongo.MongoClient[Document](uri) as client:
                client.admin.command("ping")
            yield uri
        finally:
            running.terminate()
            running.wait(SECONDS_MAX)


@contextmanager
def process(
    module: tuple[str, ...], uri: str, log: Path, database: str = "ticketing"
) -> Iterator["subprocess.Popen[bytes]"]:
    environment = os.environ | {
        "TICKETING_MONGODB_URI": uri,
        "TICKETING_DATABASE": database,
        "TICKETING_PORT": str(free_port()),
    }
    with log.open("wb") as said:
        running = subprocess.Popen(
            [sys.executable, "-m", *module], env=environment, stderr=said, stdout=said
        )
        try:
            yield running
        finally:
            running.terminate()
            running.wait(SECONDS_MAX)


@pytest.mark.parametrize("module", PROCESSES)
def test_a_single_server_is_refused(
    single_server: str, module: tuple[str, ...], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with process(module, single_server, log) as refused:
        assert refused.wait(SECONDS_MAX) == 3
    assert "need a replica set" in log.read_text()
    assert "Traceback" not in log.read_text()


@pytest.mark.parametrize("module", PROCESSES)
def test_a_database_of_a_newer_release_is_refused(
    replica_set: ReplicaSet, module: tuple[str, ...], tmp_path: Path
) -> None:
    with pymongo.MongoClient[Document](replica_set.uri) as client:
        newer = client["newer_release"]
        newer.migrations.insert_one({"_id": deployment.DATA_VERSION + 1})
        log = tmp_path / "log"
        with process(module, replica_set.uri, log, newer.name) as refused:
            assert refused.wait(SECONDS_MAX) == 3
        assert "newer release" in log.read_text()
        client.drop_database(newer.name)


def _says(log: Path, text: str) -> None:
    give_up_at = time.monotonic() + SECONDS_MAX
    while text not in log.read_text():
        assert time.monotonic() < give_up_at, log.read_text()
        time.sleep(0.1)


def test_a_worker_waits_for_the_database_and_its_indexes_and_says_so(tmp_path: Path) -> None:
    log = tmp_path / "log"
    database = ReplicaSet(tmp_path / "data")
    # Its ports are chosen at its first start.
    database.start()
    database.stop()
    with process(("workers", "release"), database.uri, log) as waiting:
        _says(log, "Waiting: the database does not answer")
        with database:
            _says(log, "seats has no index on holdId")
            with pymongo.MongoClient[Document](database.uri) as client:
                indexes.apply(client["ticketing"])
            _says(log, "The release worker is running.")
            assert waiting.poll() is None
            waiting.terminate()
            assert waiting.wait(SECONDS_MAX) == 0


def test_a_worker_that_waits_stops_when_it_is_told_to(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with process(("workers", "changes"), f"mongodb://127.0.0.1:{free_port()}/", log) as waiting:
        _says(log, "Waiting")
        waiting.terminate()
        assert waiting.wait(SECONDS_MAX) == 0


class Answering:
    """A database that says of itself what a test wants."""

    def __init__(self, **hello: object) -> None:
        self._hello = hello

    async def command(self, _: str) -> Document:
        return dict(self._hello)


@pytest.mark.parametrize(
    ("hello", "sentence"),
    [
        ({"maxWireVersion": 21}, "single server"),
        ({"maxWireVersion": 21, "msg": "isdbgrid"}, "single server"),
        ({"setName": "rs0", "maxWireVersion": 13}, "older than MongoDB 6.0"),
    ],
)
async def test_a_wrong_server_is_named(hello: Document, sentence: str) -> None:
    with pytest.raises(deployment.Unusable, match=sentence):
        await deployment.refuse_unusable(Answering(**hello))  # type: ignore[arg-type]


async def test_a_user_that_may_not_read_is_named(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for code in (13, 18):

        async def refused(*_: object, code: int = code, **__: object) -> Document:
            raise pymongo.errors.OperationFailure("not authorized", code)

        with monkeypatch.context() as refusing:
            refusing.setattr(type(database), "command", refused)
            with pytest.raises(deployment.Unusable, match="The user in TICKETING_MONGODB_URI"):
                await deployment.refuse_unusable(database)


async def test_the_right_one_is_let_in(settings: Settings) -> None:
    opened = await mongo.connect(settings)
    await asyncio.wait_for(deployment.refuse_unusable(opened.database), SECONDS_MAX)
    assert await deployment.missing_indexes(opened.database) == []
    await opened.close()
