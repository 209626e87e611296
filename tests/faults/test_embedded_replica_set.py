"""The embedded replica set: it comes back with its data, and leaves nothing behind."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from scripts import replica_set
from scripts.replica_set import ReplicaSet, ReplicaSetError

REPOSITORY = Path(__file__).resolve().parents[2]
GONE_SECONDS_MAX = 20.0
# A process that owns a set as scripts/run does: it stops it on SIGTERM.
OWNER = """
import signal, sys
from scripts.child import StopSignal
from scripts.replica_set import ReplicaSet, ReplicaSetError
stop = StopSignal()
stop.listen()
try:
    with ReplicaSet(sys.argv[1], int(sys.argv[2])) as owned:
        print(owned.uri, flush=True)
        while not stop.received:
            signal.pause()
except ReplicaSetError as error:
    sys.exit(str(error))
"""


@contextmanager
def client_of(uri: str) -> Iterator[MongoClient[dict[str, Any]]]:
    with MongoClient(uri, serverSelectionTimeoutMS=10_000, w="majority") as client:
        yield client


@contextmanager
def owner_of(data: Path, nodes: int = 1) -> Iterator[subprocess.Popen[str]]:
    """A running process that owns a set that is ready."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, data, str(nodes)],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        try:
            assert owner.stdout is not None
            assert owner.stdout.readline().startswith("mongodb://")
            yield owner
        finally:
            owner.kill()


def processes_of(data: Path) -> list[int]:
    """Every process whose command line names the folder, the owner's own included."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if str(data).encode() in command:
            found.append(int(entry.name))
    return found


def within(seconds: float, true: Callable[[], bool]) -> bool:
    give_up_at = time.monotonic() + seconds
    while time.monotonic() < give_up_at:
        if true():
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("nodes", [1, 3])
def test_what_was_written_is_there_after_a_restart_at_the_same_address(
    tmp_path: Path, nodes: int
) -> None:
    with ReplicaSet(tmp_path, nodes) as first, client_of(first.uri) as client:
        client.trial.things.insert_one({"_id": 1})
    with ReplicaSet(tmp_path, nodes) as second, client_of(second.uri) as client:
        assert second.uri == first.uri
        assert client.trial.things.find_one() == {"_id": 1}
    assert processes_of(tmp_path) == []


def test_other_commands_find_a_running_set_by_its_folder(tmp_path: Path) -> None:
    with pytest.raises(ReplicaSetError, match="No replica set is running in"):
        replica_set.uri_of(tmp_path)
    with ReplicaSet(tmp_path) as running:
        assert replica_set.uri_of(tmp_path) == running.uri
    with pytest.raises(ReplicaSetError, match="No replica set is running in"):
        replica_set.uri_of(tmp_path)


def test_a_port_in_use_is_a_clear_sentence_and_starts_nothing(tmp_path: Path) -> None:
    with ReplicaSet(tmp_path) as first:
        port = first.ports[0]
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(ReplicaSetError, match=f"Port {port} is in use by another program"):
            ReplicaSet(tmp_path).start()
        assert processes_of(tmp_path) == []
    # The refused start left the folder free.
    with ReplicaSet(tmp_path):
        pass


def test_a_folder_in_use_is_a_clear_sentence_and_the_running_set_goes_on(tmp_path: Path) -> None:
    with ReplicaSet(tmp_path) as running:
        with pytest.raises(ReplicaSetError, match="is in use by a replica set that is running"):
            ReplicaSet(tmp_path).start()
        with client_of(running.uri) as client:
            assert client.admin.command("ping")["ok"] == 1


def test_a_folder_of_three_nodes_does_not_start_as_one(tmp_path: Path) -> None:
    (tmp_path / "replica_set.json").write_text('{"ports": [20001, 20002, 20003]}')
    with pytest.raises(ReplicaSetError, match="holds a replica set of 3, not of 1"):
        ReplicaSet(tmp_path).start()
    assert replica_set.nodes_of(tmp_path) == 3


def test_a_lock_left_by_a_killed_node_is_recovered_with_every_acknowledged_write(
    tmp_path: Path,
) -> None:
    first = ReplicaSet(tmp_path)
    first.start()
    with client_of(first.uri) as client:
        client.trial.things.insert_one({"_id": 1})
    first.kill(0)
    first.stop()
    assert (tmp_path / "node0" / "mongod.lock").stat().st_size > 0
    with ReplicaSet(tmp_path) as second, client_of(second.uri) as client:
        assert client.trial.things.find_one() == {"_id": 1}


@pytest.mark.parametrize("asked_by", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_nothing_is_left_when_the_owner_is_asked_to_stop(
    tmp_path: Path, asked_by: signal.Signals
) -> None:
    with owner_of(tmp_path) as owner:
        assert len(processes_of(tmp_path)) > 1
        owner.send_signal(asked_by)
        assert owner.wait(GONE_SECONDS_MAX) == 0
        assert processes_of(tmp_path) == []


@pytest.mark.parametrize("nodes", [1, 3])
def test_nothing_is_left_when_the_owner_is_killed(tmp_path: Path, nodes: int) -> None:
    with owner_of(tmp_path, nodes) as owner:
        owner.kill()
        assert within(GONE_SECONDS_MAX, lambda: processes_of(tmp_path) == [])


def test_nothing_is_left_when_every_process_between_is_killed_with_the_owner(
    tmp_path: Path,
) -> None:
    with owner_of(tmp_path) as owner:
        mongod = int((tmp_path / "node0" / "mongod.lock").read_text())
        for process in processes_of(tmp_path):
            if process != mongod:
                os.kill(process, signal.SIGKILL)
        owner.wait()
        assert within(GONE_SECONDS_MAX, lambda: processes_of(tmp_path) == [])


def test_a_start_right_after_the_owner_was_killed_waits_for_its_nodes_to_end(
    tmp_path: Path,
) -> None:
    with owner_of(tmp_path) as owner:
        owner.kill()
        owner.wait()
        with ReplicaSet(tmp_path) as next_, client_of(next_.uri) as client:
            assert client.admin.command("ping")["ok"] == 1


def test_three_nodes_that_lose_their_primary_have_another_within_ten_seconds(
    tmp_path: Path,
) -> None:
    with ReplicaSet(tmp_path, 3) as trio, client_of(trio.uri) as client:
        client.trial.things.insert_one({"_id": 1})
        lost = trio.primary()
        assert lost is not None
        killed_at = time.monotonic()
        trio.kill(lost)
        client.trial.things.insert_one({"_id": 2})
        assert time.monotonic() - killed_at < 10
        assert trio.primary() not in (None, lost)
        trio.restart(lost)
        with MongoClient(
            "127.0.0.1", trio.ports[lost], directConnection=True, readPreference="secondary"
        ) as returned:
            assert within(20, lambda: returned.trial.things.count_documents({}) == 2)


def test_a_missing_library_of_mongod_is_named_with_its_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replica_set, "missing_libraries", lambda _: ["libcurl.so.4"])
    with pytest.raises(ReplicaSetError, match=r"libcurl\.so\.4.*apt-get install libcurl4"):
        replica_set.find_mongod()


def test_a_library_that_is_not_found_is_told_from_one_that_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ldd = tmp_path / "ldd"
    ldd.write_text(
        "#!/bin/sh\n"
        "echo '\tlibcurl.so.4 => not found'\n"
        "echo '\tlibc.so.6 => /lib/libc.so.6 (0x00007f3a)'\n"
    )
    ldd.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert replica_set.missing_libraries(Path("mongod")) == ["libcurl.so.4"]
