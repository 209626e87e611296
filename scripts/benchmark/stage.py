"""What is measured: a replica set of our own and the whole service on it, and a process of load."""

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import httpx
import msgspec
from pymongo import MongoClient

import indexes
from scripts import child
from scripts.benchmark.figures import memory_megabytes
from scripts.benchmark.load import AnyLoad, Job
from scripts.benchmark.loads import Outcome
from scripts.database import REPOSITORY, Failure
from scripts.replica_set import ReplicaSet, ReplicaSetError
from ticketing import clock, event_setup, events, invariants, mongo
from ticketing.accounts import Caller
from ticketing.invariants import Finding
from ticketing.mongo import Database, Document
from ticketing.settings import Settings

ORGANISER = Caller("org_bench", "organiser")
PRICE = 4_500
SEATS_PER_FAN_MAX = 8
_START_ATTEMPTS_MAX = 3
_READY_SECONDS_MAX = 60.0
_SETTLE_SECONDS_MAX = 60.0
_LOAD_GRACE_SECONDS = 60.0
_MODULES = {
    "Api": ("ticketing.api",),
    "Changes": ("workers", "changes"),
    "Release": ("workers", "release"),
}
_LOGGING_TO = ("sh", "-c", 'exec "$@" >>"$0" 2>&1')
Result = TypeVar("Result")


@contextmanager
def own_replica_set(nodes: int = 1) -> Iterator[ReplicaSet]:
    """A replica set of our own in a folder of its own; nothing is left of it afterwards."""
    for attempts_left in reversed(range(_START_ATTEMPTS_MAX)):
        with tempfile.TemporaryDirectory(prefix="ticketing-bench-") as folder:
            started = ReplicaSet(folder, nodes)
            try:
                started.start()
            except ReplicaSetError:
                # Another program may take a port between our look at it and the node's start.
                if not attempts_left:
                    raise
                continue
            try:
                yield started
            finally:
                started.stop()
            return


class Stage:
    """The service on one database of a replica set, from indexes to workers."""

    def __init__(self, replica_set: ReplicaSet, database: str) -> None:
        self._replica_set = replica_set
        self._log = replica_set.data_dir / f"{database}.log"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self._environment = _plain_environment() | {
            "TICKETING_MONGODB_URI": replica_set.uri,
            "TICKETING_DATABASE": database,
            "TICKETING_PORT": str(port),
        }
        self.settings = Settings.from_environment(self._environment)

    def __enter__(self) -> Self:
        prepare(self.settings)
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the API and the workers; return when the API is ready."""
        for name, module in _MODULES.items():
            # What the service logs under load would drown what the benchmark says.
            command = [*_LOGGING_TO, str(self._log), sys.executable, "-m", *module]
            self._processes[name] = child.start(command, environment=self._environment)
        self._wait_until_ready()

    def stop(self) -> None:
        """Stop them; what was accepted is finished first."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.wait()
        self._processes.clear()

    def _wait_until_ready(self) -> None:
        give_up_at = time.monotonic() + _READY_SECONDS_MAX
        url = f"http://127.0.0.1:{self.settings.port}/health/ready"
        with httpx.Client(trust_env=False, timeout=5.0) as client:
            while True:
                for name, process in self._processes.items():
                    if process.poll() is not None:
                        raise Failure(f"{name} ended: {self._end_of_log()}")
                try:
                    if client.get(url).status_code == 200:
                        return
                except httpx.HTTPError:
                    pass
                if time.monotonic() > give_up_at:
                    raise Failure(f"The service was not ready in time: {self._end_of_log()}")
                time.sleep(0.1)

    def _end_of_log(self) -> str:
        return self._log.read_text(errors="replace")[-2_000:]

    def process_numbers(self) -> dict[str, list[int]]:
        """The numbers of all processes of the service and its database, by name."""
        numbers = {name: _descendants(process.pid) for name, process in self._processes.items()}
        nodes = [self._replica_set.pid(node) for node in range(self._replica_set.nodes)]
        return numbers | {"Mongod": [number for number in nodes if number is not None]}

    def memory_megabytes(self, name: str) -> float:
        """The memory of one of the service's processes."""
        return sum(map(memory_megabytes, self.process_numbers()[name]))

    def load(self, load: AnyLoad, *, database: str | None = None) -> Outcome:
        """Make this load in a process of its own; returns what it measured."""
        environment = dict(self._environment)
        if database is not None:
            environment["TICKETING_DATABASE"] = database
        job = Job(load, self.process_numbers())
        with tempfile.TemporaryDirectory(prefix="ticketing-load-") as folder:
            given, result = Path(folder, "job.json"), Path(folder, "outcome.json")
            given.write_bytes(msgspec.json.encode(job))
            command = [sys.executable, "-m", "scripts.benchmark.load", given, result]
            asked = self._database_requests()
            process = child.start([str(part) for part in command], environment=environment)
            try:
                process.wait(load.seconds_max + _LOAD_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                raise Failure(f"The load {type(load).__name__} did not end in time.") from None
            finally:
                process.terminate()
                process.wait()
            if process.returncode != 0:
                raise Failure(
                    f"The load {type(load).__name__} failed. The service's log ends with:"
                    f" {self._end_of_log()}"
                )
            outcome = msgspec.json.decode(result.read_bytes(), type=Outcome)
            outcome.figures["databaseRequests"] = self._database_requests() - asked
            return outcome

    def _database_requests(self) -> int:
        """How many requests the primary has had so far, from everybody."""
        with MongoClient[Document](self.settings.mongodb_uri) as client:
            count: int = client.admin.command("serverStatus")["network"]["numRequests"]
            return count

    def ask(self, work: Callable[[Database], Awaitable[Result]]) -> Result:
        """Run something on the service's database and return what it returns."""
        return ask(self.settings, work)

    def settle(self, event_id: str) -> float:
        """Wait until the counters have followed; returns the seconds it took."""
        began = time.monotonic()

        async def wait(database: Database) -> None:
            event = await events.find(database, event_id)
            while await invariants.counter_differences(database, event):
                if time.monotonic() - began > _SETTLE_SECONDS_MAX:
                    raise Failure("The counters did not follow the sale.")
                await asyncio.sleep(0.2)

        self.ask(wait)
        return time.monotonic() - began

    def findings(self) -> list[Finding]:
        """Every break of an invariant."""
        return self.ask(invariants.check_all)


def prepare(settings: Settings) -> None:
    """Make the collections, indexes and validators of a database."""
    with MongoClient[Document](settings.mongodb_uri) as client:
        left = indexes.apply(client[settings.database])
    if left:
        raise Failure(f"The indexes could not be applied: {left[0]}")


def ask(settings: Settings, work: Callable[[Database], Awaitable[Result]]) -> Result:
    """Run something on a database, in a loop of its own, and return what it returns."""

    async def run() -> Result:
        client = await mongo.connect(settings, operation_timeout_ms=None)
        try:
            return await work(client.database)
        finally:
            await client.close()

    return asyncio.run(run())


@dataclass(frozen=True)
class Sale:
    """An event on sale: sections of general admission or of rows, all at one price."""

    event_id: str
    seat_count: int
    sections: tuple[str, ...]


def new_event(seat_count: int, section_count: int = 1) -> events.NewEvent:
    """An event whose seats are in equal sections of rows of 20, or of one row each if tiny."""
    now = clock.now()
    per_section = seat_count // section_count
    row = next(size for size in (20, 10, 5, 4, 2, 1) if per_section % size == 0)
    rows = [events.Row(str(index + 1), count=row) for index in range(per_section // row)]
    return events.NewEvent(
        name="The benchmark",
        venue_name="Riverside Arena",
        timezone="Europe/Berlin",
        starts_at=now + timedelta(days=60),
        sale_starts_at=now - timedelta(minutes=1),
        sale_ends_at=now + timedelta(days=59),
        currency="EUR",
        max_seats_per_fan=SEATS_PER_FAN_MAX,
        price_categories=[events.PriceCategory("All", PRICE)],
        sections=[
            events.Section(f"S{index + 1}", "All", rows=rows) for index in range(section_count)
        ],
    )


def put_on_sale(settings: Settings, seat_count: int, section_count: int = 1) -> Sale:
    """Make an event with its seats and publish it."""

    async def make(database: Database) -> Sale:
        event = await event_setup.create(
            database,
            new_event(seat_count, section_count),
            organiser_id=ORGANISER.subject,
            key=None,
            body=b"",
            now=clock.now(),
        )
        await events.publish(database, event["_id"], ORGANISER, clock.now())
        names = tuple(section["name"] for section in event["sections"])
        return Sale(event["_id"], event["seatCount"], names)

    return ask(settings, make)


def in_database(settings: Settings, name: str) -> Settings:
    """The same server, another database."""
    return replace(settings, database=name)


def _plain_environment() -> dict[str, str]:
    """The machine's environment without settings of ours, so that every run measures the same."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TICKETING_")}
    return kept | {
        "PYTHONPATH": str(REPOSITORY),
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
    }


def _descendants(of: int) -> list[int]:
    """The numbers of a process's children and theirs."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # It ended while we looked.
            parents.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    waiting = [of]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found
