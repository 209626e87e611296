"""`scripts/run`: everything on one machine, from the database to the web page."""

import argparse
import asyncio
import contextlib
import errno
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import httpx
from pymongo.errors import PyMongoError

from scripts import child, database, demo, replica_set, token
from scripts.database import DEFAULT_DATA, REPOSITORY, Failure
from scripts.replica_set import ReplicaSet
from ticketing.settings import Settings

SERVICES = {
    "API": ("ticketing.api",),
    "release worker": ("workers", "release"),
    "deliver worker": ("workers", "deliver"),
    "changes worker": ("workers", "changes"),
    "payments worker": ("workers", "payments"),
    "audit worker": ("workers", "audit"),
    "archive worker": ("workers", "archive"),
}
READY_SECONDS_MAX = 120.0
_LOOK_SECONDS = 0.1
_PROBE_SECONDS = 0.25
_API_STARTS_SECONDS_MAX = 5.0
# A process that dies at once, again and again, is started less and less often; one that lived this
# long is taken for sound, and starts again at once when it dies.
_DELAY_SECONDS_MIN = 0.5
_DELAY_SECONDS_MAX = 10.0
_SOUND_AFTER_SECONDS = 10.0


class Stopped(Exception):
    """A person asked to stop."""


class Kept:
    """A process that is started again when it dies."""

    def __init__(
        self, name: str, start: Callable[[], None], exit_code: Callable[[], int | None]
    ) -> None:
        self._name = name
        self._start = start
        self._exit_code = exit_code
        self._started_at = time.monotonic()
        self._restart_at: float | None = None
        self._delay_seconds = _DELAY_SECONDS_MIN

    def look(self) -> None:
        """Start the process again if it died and its delay is over."""
        now = time.monotonic()
        if self._restart_at is not None:
            if now >= self._restart_at:
                self._restart_at = None
                self._started_at = now
                self._start()
            return
        code = self._exit_code()
        if code is None:
            return
        child.end_adopted()
        if now - self._started_at >= _SOUND_AFTER_SECONDS:
            self._delay_seconds = _DELAY_SECONDS_MIN
        _say(f"{self._name} ended (exit code {code}); it starts again in {self._delay_seconds:g} s")
        self._restart_at = now + self._delay_seconds
        self._delay_seconds = min(self._delay_seconds * 2, _DELAY_SECONDS_MAX)


class Service:
    """One of our own processes."""

    def __init__(self, name: str, module: tuple[str, ...], environment: dict[str, str]) -> None:
        self.name = name
        self._command = [sys.executable, "-m", *module]
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        self._process = child.start(self._command, environment=self._environment)

    def exit_code(self) -> int | None:
        """How it ended, or None while it runs."""
        return None if self._process is None else self._process.poll()

    def ask_to_stop(self) -> None:
        """Ask it to finish what it is doing and end."""
        if self._process is not None:
            self._process.terminate()

    def wait(self) -> None:
        """Wait for its end, which comes by force when it takes too long."""
        if self._process is not None:
            self._process.wait()


class Run:
    """Everything that one call of the command starts."""

    def __init__(self, arguments: argparse.Namespace, stop: child.StopSignal) -> None:
        self._arguments = arguments
        self._stop = stop
        self._replica_set: ReplicaSet | None = None
        self._services: list[Service] = []
        self._kept: list[Kept] = []

    def go(self) -> None:
        """Start everything and keep it running until asked to stop."""
        settings = self._settings()
        _require_free(settings.host, settings.port)
        try:
            settings = self._start_database(settings)
            print(f"MongoDB: {_without_password(settings.mongodb_uri)}", flush=True)
            environment = _environment(settings)
            self._prepare_database(environment)
            demo_event = self._demo_event(settings)
            for name, module in SERVICES.items():
                service = Service(name, module, environment)
                self._services.append(service)
                service.start()
                self._kept.append(Kept(name, service.start, service.exit_code))
            self._wait_until_ready(settings)
            _say_where_to_look(settings, demo_event)
            while True:
                self._look()
        finally:
            self._end()

    def _settings(self) -> Settings:
        arguments = self._arguments
        given = dict(os.environ)
        if arguments.host is not None:
            given["TICKETING_HOST"] = arguments.host
        if arguments.port is not None:
            given["TICKETING_PORT"] = str(arguments.port)
        return Settings.from_environment(given)

    def _start_database(self, settings: Settings) -> Settings:
        """Start the embedded set, unless a database is given; the settings with its address."""
        data: Path | None = self._arguments.data
        if os.environ.get("TICKETING_MONGODB_URI", "").strip():
            if data is not None or self._arguments.nodes is not None:
                raise Failure(
                    "TICKETING_MONGODB_URI is set, so no embedded replica set is started: unset it,"
                    " or leave --data and --nodes out."
                )
            return settings
        data = data or DEFAULT_DATA
        if data.exists() and not data.is_dir():
            raise Failure(f"{data} is not a folder: choose another with --data.")
        nodes = self._arguments.nodes or replica_set.nodes_of(data) or 1
        embedded = ReplicaSet(data, nodes)
        try:
            embedded.start(stopping=lambda: self._stop.received)
        except replica_set.ReplicaSetError:
            self._check_stop()
            raise
        self._replica_set = embedded
        for node in range(nodes):
            self._kept.append(_kept_node(embedded, node))
        return Settings(**{**vars(settings), "mongodb_uri": embedded.uri})

    def _prepare_database(self, environment: dict[str, str]) -> None:
        for step in ("apply", "migrate"):
            command = [sys.executable, "-m", "indexes", step]
            applying = child.start(command, environment=environment, silent=True)
            try:
                while applying.poll() is None:
                    self._look()
            finally:
                applying.terminate()
                code = applying.wait()
            if code != 0:
                raise Failure(f"The database could not be prepared: see scripts/indexes {step}.")

    def _demo_event(self, settings: Settings) -> str | None:
        try:
            if self._arguments.no_demo:
                return asyncio.run(demo.find(settings))
            return asyncio.run(demo.ensure(settings))
        except PyMongoError as error:
            raise database.failure(error) from None

    def _wait_until_ready(self, settings: Settings) -> None:
        """Return when every process runs and the API says that it is ready."""
        url = f"{_reachable(settings)}/health/ready"
        give_up_at = time.monotonic() + READY_SECONDS_MAX
        probe_at = 0.0
        answer = "the API does not answer"
        # Without the environment's proxies: this asks ourselves.
        with httpx.Client(trust_env=False, timeout=2.0) as client:
            while True:
                self._look()
                now = time.monotonic()
                if now > give_up_at:
                    raise Failure(f"Not ready within {READY_SECONDS_MAX:.0f} seconds: {answer}")
                if now < probe_at:
                    continue
                probe_at = now + _PROBE_SECONDS
                with contextlib.suppress(httpx.HTTPError):
                    response = client.get(url)
                    answer = response.text
                    running = all(service.exit_code() is None for service in self._services)
                    if response.status_code == 200 and running:
                        return

    def _look(self) -> None:
        """Wait a moment, then see to every process. Raises Stopped when a person asked to stop."""
        time.sleep(_LOOK_SECONDS)
        self._check_stop()
        for kept in self._kept:
            kept.look()

    def _check_stop(self) -> None:
        if self._stop.received:
            raise Stopped

    def _end(self) -> None:
        """Stop everything: who takes requests first, the database last."""
        for service in self._services:
            if service.name == "API":
                self._wait_until_it_can_stop(service)
            service.ask_to_stop()
            if service.name == "API":
                service.wait()
        for service in self._services:
            service.wait()
        if self._replica_set is not None:
            self._replica_set.stop()
        child.end_adopted()

    def _wait_until_it_can_stop(self, api: Service) -> None:
        """Return when the API answers or has ended, or after a while.

        Its server loses a request to stop that comes before its worker runs, and would be ended by
        force only after all of its time of grace.
        """
        url = f"{_reachable(self._settings())}/health/live"
        give_up_at = time.monotonic() + _API_STARTS_SECONDS_MAX
        with httpx.Client(trust_env=False, timeout=1.0) as client:
            while api.exit_code() is None and time.monotonic() < give_up_at:
                with contextlib.suppress(httpx.HTTPError):
                    client.get(url)
                    return
                time.sleep(_LOOK_SECONDS)


def _kept_node(embedded: ReplicaSet, node: int) -> Kept:
    return Kept(f"mongod {node}", lambda: embedded.restart(node), lambda: embedded.exit_code(node))


def _environment(settings: Settings) -> dict[str, str]:
    """What our own processes are given."""
    return os.environ | {
        "TICKETING_MONGODB_URI": settings.mongodb_uri,
        "TICKETING_HOST": settings.host,
        "TICKETING_PORT": str(settings.port),
        "PYTHONPATH": str(REPOSITORY),
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
    }


def _require_free(host: str, port: int) -> None:
    try:
        with socket.create_server((host, port)):
            pass
    except UnicodeError:
        raise _no_such_address(host) from None
    except OSError as error:
        # Below zero are the reasons why a name leads to no address.
        if error.errno == errno.EADDRNOTAVAIL or (error.errno or 0) < 0:
            raise _no_such_address(host) from None
        reason = (
            "is in use by another program"
            if error.errno == errno.EADDRINUSE
            else f"cannot be used: {error.strerror}"
        )
        raise Failure(f"Port {port} on {host} {reason}; choose another with --port.") from None


def _no_such_address(host: str) -> Failure:
    return Failure(f"{host} is not an address of this machine: choose another with --host.")


def _reachable(settings: Settings) -> str:
    """The API's address for a client on this machine."""
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::", "") else settings.host  # noqa: S104
    return f"http://{host}:{settings.port}"


def _without_password(uri: str) -> str:
    parts = urlsplit(uri)
    if parts.password is None:
        return uri
    _, _, hosts = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{parts.username}:***@{hosts}"))


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def _say_where_to_look(settings: Settings, demo_event: str | None) -> None:
    print(f"ready: {_reachable(settings)}")
    print(f"  API description   {settings.public_url}/openapi.json")
    if demo_event is not None:
        pass_ = token.make(
            settings, role=demo.ORGANISER.role, subject=demo.ORGANISER.subject, hours=12
        )
        print(f"  demo event        {settings.public_url}/v1/events/{demo_event}")
        print(
            f"  watch its sale    {settings.public_url}/organiser/events/{demo_event}#token={pass_}"
        )
    print("  buy a ticket      README.md, line by line")
    print("Ctrl-C stops everything.", flush=True)


def _port(text: str) -> int:
    with contextlib.suppress(ValueError):
        port = int(text)
        if 0 < port < 65_536:
            return port
    raise argparse.ArgumentTypeError("must be a port number from 1 to 65535")


def main() -> int:
    """Run until asked to stop."""
    parser = argparse.ArgumentParser(
        prog="scripts/run",
        description="Run everything on this machine: an embedded MongoDB replica set (or the one"
        " TICKETING_MONGODB_URI names), the API and the workers.",
        epilog="example: scripts/run --nodes 3 --port 8080 --data /tmp/trial",
    )
    parser.add_argument(
        "--nodes",
        type=int,
        choices=(1, 3),
        help="nodes of the embedded set (default: those in the data folder, else 1)",
    )
    parser.add_argument("--port", type=_port, help="the API's port (default 8000)")
    parser.add_argument("--host", help="the API's address (default 127.0.0.1)")
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="where the embedded set keeps its data (default .data in the repository)",
    )
    parser.add_argument(
        "--no-demo", action="store_true", help="seed no demo event into an empty database"
    )
    arguments = parser.parse_args()
    stop = child.StopSignal()
    stop.listen()
    child.adopt_orphans()
    try:
        Run(arguments, stop).go()
    except Stopped:
        _say("Everything is stopped.")
    return 0


if __name__ == "__main__":
    database.exit_with(main)
