"""What is drilled: three nodes, two API processes and two of each worker, all of them real."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
from pymongo import MongoClient
from pymongo.errors import PyMongoError

import indexes
from scripts import child
from scripts.database import REPOSITORY, Failure
from scripts.replica_set import ReplicaSet
from ticketing import clock, event_setup, events, mongo
from ticketing.accounts import Caller
from ticketing.mongo import Client, Database, Document
from ticketing.settings import Settings

ORGANISER = Caller("org_drill", "organiser")
APIS = ("api 1", "api 2")
WORKERS = ("release", "changes", "payments", "deliver", "audit")
WELL_SECONDS_MAX = 60.0
ONE_SHOT_SECONDS_MAX = 30.0
_LOGGING_TO = ("sh", "-c", 'exec "$@" >>"$0" 2>&1')


class Deployment:
    """The service on a set of three nodes; every part can be killed, stopped and mended."""

    def __init__(self, replica_set: ReplicaSet) -> None:
        self.replica_set = replica_set
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._paused: set[int] = set()
        self._environments = {name: _environment(replica_set.uri) for name in (*APIS, *_workers())}
        self.settings = Settings.from_environment(self._environments[APIS[0]])
        self._client: Client | None = None

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(self._prepare)
            self._client = await mongo.connect(self.settings)
            for name in self._environments:
                self.start(name)
            await self.until_well()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._resume_all()
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            await asyncio.to_thread(process.wait)
        if self._client is not None:
            await self._client.close()

    def _prepare(self) -> None:
        with MongoClient[Document](self.replica_set.uri) as client:
            if left := indexes.apply(client[self.settings.database]):
                raise Failure(f"The indexes could not be applied: {left[0]}")

    @property
    def database(self) -> Database:
        """The database, for a look at what is in it."""
        assert self._client is not None
        return self._client.database

    @property
    def addresses(self) -> list[str]:
        """Where the API processes listen."""
        return [f"http://127.0.0.1:{self._environments[name]['TICKETING_PORT']}" for name in APIS]

    def log(self, name: str) -> Path:
        """What a process has said."""
        return self.replica_set.data_dir / f"{name.replace(' ', '-')}.log"

    # --- Processes -------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Start a process that does not run."""
        module = ("ticketing.api",) if name in APIS else ("workers", name.partition(" ")[0])
        command = [*_LOGGING_TO, str(self.log(name)), sys.executable, "-m", *module]
        self._processes[name] = child.start(command, environment=self._environments[name])

    async def kill(self, name: str) -> None:
        """Kill a process as a crash would."""
        process = self._processes[name]
        number = child.number_of(process)
        if number is not None:
            os.kill(number, signal.SIGKILL)
        await asyncio.to_thread(process.wait)

    def pause(self, name: str) -> None:
        """Stop a process where it stands, as a machine that hangs does."""
        self._pause(child.number_of(self._processes[name]), name)

    def resume(self, name: str) -> None:
        """Let it go on as if nothing had happened."""
        self._resume(child.number_of(self._processes[name]))

    def pause_node(self, node: int) -> None:
        """Stop a node of the database where it stands."""
        self._pause(self.replica_set.pid(node), f"node {node}")

    def resume_node(self, node: int) -> None:
        """Let it go on as if nothing had happened."""
        self._resume(self.replica_set.pid(node))

    def _pause(self, number: int | None, name: str) -> None:
        if number is None:
            raise Failure(f"{name} does not run and can't be stopped.")
        os.kill(number, signal.SIGSTOP)
        self._paused.add(number)

    def _resume(self, number: int | None) -> None:
        if number in self._paused:
            self._paused.discard(number)
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGCONT)

    def _resume_all(self) -> None:
        for number in tuple(self._paused):
            self._resume(number)

    async def holder(self, job: str) -> str:
        """Which of our workers does a job now."""
        lease = await self.database.leases.find_one({"_id": job})
        number = None if lease is None else int(lease["holder"].rpartition(":")[2])
        for name, process in self._processes.items():
            if process.poll() is None and child.number_of(process) == number:
                return name
        raise Failure(f"None of the workers has the lease of {job}.")

    # --- The database ----------------------------------------------------------------------------

    async def primary(self) -> int:
        """The node that takes writes, waited for."""
        found: list[int] = []

        async def is_there() -> bool:
            node = await asyncio.to_thread(self.replica_set.primary)
            if node is not None:
                found.append(node)
            return node is not None

        await until(is_there, WELL_SECONDS_MAX, "The database has no primary.")
        return found[0]

    # --- Making well again -----------------------------------------------------------------------

    async def mend(self) -> None:
        """Undo every fault and return when all is as it should be."""
        self._resume_all()
        for node in range(self.replica_set.nodes):
            await asyncio.to_thread(self.replica_set.restart, node)
        for name, process in self._processes.items():
            if process.poll() is not None:
                self.start(name)
        await self.until_well()

    async def until_well(self) -> None:
        """Return when every node and process is there and ready."""

        async def is_well() -> bool:
            if not await asyncio.to_thread(self.replica_set.is_healthy):
                return False
            async with httpx.AsyncClient(trust_env=False, timeout=5.0) as client:
                for address in self.addresses:
                    try:
                        if (await client.get(f"{address}/health/ready")).status_code != 200:
                            return False
                    except httpx.HTTPError:
                        return False
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise Failure(f"{name} ended by itself: see {self.log(name)}.")
            return True

        await until(is_well, WELL_SECONDS_MAX, "The service was not well again in time.")

    async def put_on_sale(self) -> Document:
        """A new event: stalls that many want the same seats of, and a floor for everybody."""
        now = clock.now()
        event = await event_setup.create(
            self.database,
            events.NewEvent(
                name="The drill",
                venue_name="Riverside Arena",
                timezone="Europe/Berlin",
                starts_at=now + timedelta(days=60),
                sale_starts_at=now - timedelta(minutes=1),
                sale_ends_at=now + timedelta(days=59),
                currency="EUR",
                max_seats_per_fan=8,
                price_categories=[events.PriceCategory("All", 4_500)],
                sections=[
                    events.Section(
                        "Stalls", "All", rows=[events.Row(str(row), count=40) for row in range(20)]
                    ),
                    events.Section("Floor", "All", capacity=20_000),
                ],
            ),
            organiser_id=ORGANISER.subject,
            key=None,
            body=b"",
            now=now,
        )
        return await events.publish(self.database, event["_id"], ORGANISER, clock.now())


async def until(holds: Callable[[], Awaitable[bool]], seconds_max: float, otherwise: str) -> float:
    """Wait until something holds; returns the seconds it took. Raises Failure.

    A database that is away while it is asked is waited for.
    """
    began = time.monotonic()
    while True:
        with contextlib.suppress(PyMongoError):
            if await holds():
                return time.monotonic() - began
        if time.monotonic() - began > seconds_max:
            raise Failure(otherwise)
        await asyncio.sleep(0.1)


def _workers() -> list[str]:
    return [f"{worker} {number}" for worker in WORKERS for number in (1, 2)]


def _environment(uri: str) -> dict[str, str]:
    """The machine's environment without settings of ours, so that every drill is the same."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TICKETING_")}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return kept | {
        "TICKETING_MONGODB_URI": uri,
        "TICKETING_DATABASE": "drill",
        "TICKETING_PORT": str(port),
        "PYTHONPATH": str(REPOSITORY),
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
    }
