"""`scripts/run`: one command starts everything, keeps it running, and leaves nothing behind."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from scripts.replica_set import ReplicaSet
from ticketing.api.__main__ import STOP_SECONDS_MAX

REPOSITORY = Path(__file__).resolve().parents[2]
COMMAND = REPOSITORY / "scripts" / "run"
GONE_SECONDS_MAX = 20.0
# What an API that has lost its stop is left to live.
API_GRACE_SECONDS = float(STOP_SECONDS_MAX)
WORKERS_RUN = (
    "The release worker is running",
    "The payments worker is running",
    "The deliver worker is running",
    "The changes worker follows the stream",
)
WELL_AGAIN_SECONDS_MAX = 10.0


@dataclass
class Running:
    """A started command, its address, and the lines it printed until it was ready."""

    process: subprocess.Popen[str]
    url: str
    lines: list[str]
    errors: Path

    def answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health/ready", trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The machine's environment without settings of ours but those given."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TICKETING_")}
    return kept | dict(extra)


@contextmanager
def started(tmp_path: Path, *arguments: str | Path, **settings: str) -> Iterator[Running]:
    """The command, running and ready."""
    port = free_port()
    errors = tmp_path / "errors"
    with (
        errors.open("w") as error_file,
        subprocess.Popen(
            [COMMAND, "--port", str(port), *arguments],
            env=environment(settings),
            stdout=subprocess.PIPE,
            stderr=error_file,
            text=True,
        ) as process,
    ):
        try:
            lines = []
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line.strip())
                if line.startswith("Ctrl-C"):
                    break
            assert f"ready: http://127.0.0.1:{port}" in lines, errors.read_text()
            yield Running(process, f"http://127.0.0.1:{port}", lines, errors)
        finally:
            process.terminate()
            process.wait(GONE_SECONDS_MAX)


def refused(*arguments: str | Path, code: int = 1, **settings: str) -> str:
    """What the command says when it will not start."""
    ended = subprocess.run(
        [COMMAND, *arguments],
        env=environment(settings),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == code
    assert ended.stdout == ""
    return ended.stderr


def processes_with(text: str) -> dict[int, str]:
    """The processes, and their command lines, that name a text there or in their environment."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
            known = command + (entry / "environ").read_bytes()
        except OSError:
            continue
        if text.encode() in known and int(entry.name) != os.getpid():
            found[int(entry.name)] = command.replace(b"\0", b" ").decode()
    return found


def within(seconds: float, true: Callable[[], bool]) -> bool:
    give_up_at = time.monotonic() + seconds
    while time.monotonic() < give_up_at:
        if true():
            return True
        time.sleep(0.1)
    return False


def test_everything_starts_and_nothing_is_left_when_asked_to_stop(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with started(tmp_path, "--data", data) as running:
        assert running.lines[0].startswith("MongoDB: mongodb://127.0.0.1:")
        (page,) = [line for line in running.lines if "/organiser/events/evt_" in line]
        assert "#token=" in page
        (event,) = httpx.get(f"{running.url}/v1/events", trust_env=False).json()["items"]
        assert event["eventId"] in page
        ours = " ".join(processes_with(str(data)).values()) + " ".join(
            processes_with(f"TICKETING_PORT={running.url.rpartition(':')[2]}").values()
        )
        for part in (
            "mongod",
            "ticketing.api",
            "workers release",
            "workers changes",
            "workers payments",
            "workers deliver",
            "workers audit",
            "workers archive",
        ):
            assert part in ours
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(GONE_SECONDS_MAX) == 0
        assert processes_with(str(data)) == {}
        assert processes_with(f"TICKETING_PORT={running.url.rpartition(':')[2]}") == {}
    # A second start finds what is there and adds no second demo event.
    with started(tmp_path, "--data", data) as again:
        (same,) = httpx.get(f"{again.url}/v1/events", trust_env=False).json()["items"]
        assert same["eventId"] == event["eventId"]


def test_nothing_is_left_when_the_command_itself_is_killed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with started(tmp_path, "--no-demo", "--data", data) as running:
        running.process.kill()
        port = f"TICKETING_PORT={running.url.rpartition(':')[2]}"
        assert within(
            GONE_SECONDS_MAX,
            lambda: not processes_with(str(data)) and not processes_with(port),
        )


@pytest.mark.parametrize(
    "killed",
    [
        "ticketing.api",
        "workers release",
        "workers payments",
        "workers deliver",
        "workers changes",
        "workers audit",
        "workers archive",
        "mongod ",
    ],
)
def test_a_process_that_is_killed_comes_again_and_all_is_well_within_ten_seconds(
    tmp_path: Path, killed: str
) -> None:
    data = tmp_path / "data"
    with started(tmp_path, "--no-demo", "--data", data) as running:
        port = f"TICKETING_PORT={running.url.rpartition(':')[2]}"

        def processes() -> set[int]:
            every = processes_with(port) | processes_with(str(data))
            # Those between are killed too, as a `pkill` by name does; the command itself is not.
            return {
                number
                for number, command in every.items()
                if killed in command and "scripts.run" not in command
            }

        # The command is ready when the API is. A worker that is still being started then is not yet
        # what it will be, and to kill that would prove nothing.
        assert within(
            WELL_AGAIN_SECONDS_MAX,
            lambda: all(line in running.errors.read_text() for line in WORKERS_RUN),
        )
        before = processes()
        assert before
        for number in before:
            try:
                os.kill(number, signal.SIGKILL)
            except ProcessLookupError:
                continue  # It ended with the one that was killed before it.

        def others_in_their_place() -> bool:
            # Looked at once: of two looks, one may see the killed still there and one nothing.
            there = processes()
            return len(there) == len(before) and not there & before and running.answers()

        assert within(WELL_AGAIN_SECONDS_MAX, others_in_their_place), running.errors.read_text()
        assert "it starts again in" in running.errors.read_text()


def test_a_port_in_use_is_one_sentence_before_anything_is_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        said = refused("--port", str(port), "--data", tmp_path / "data")
    assert said == (
        f"Port {port} on 127.0.0.1 is in use by another program; choose another with --port.\n"
    )
    assert not (tmp_path / "data").exists()


def test_a_port_that_is_none_names_the_argument(tmp_path: Path) -> None:
    said = refused("--port", "99999", "--data", tmp_path / "data", code=2)
    assert said.endswith("argument --port: must be a port number from 1 to 65535\n")


@pytest.mark.parametrize("host", ["192.0.2.1", "a..b", "a" * 64])
def test_a_host_of_another_machine_asks_for_another_host(tmp_path: Path, host: str) -> None:
    said = refused("--host", host, "--port", str(free_port()), "--data", tmp_path / "data")
    assert said == f"{host} is not an address of this machine: choose another with --host.\n"


def test_data_in_a_file_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    said = refused("--port", str(free_port()), "--data", file)
    assert said == f"{file} is not a folder: choose another with --data.\n"


def test_stopping_while_the_api_starts_takes_no_time_of_grace(tmp_path: Path) -> None:
    port = free_port()
    with subprocess.Popen(
        [COMMAND, "--no-demo", "--port", str(port), "--data", tmp_path / "data"],
        env=environment({}),
        stdout=subprocess.DEVNULL,
    ) as process:
        try:
            assert within(
                60.0,
                lambda: any(
                    "-m ticketing.api" in command and "child.py" not in command
                    for command in processes_with(f"TICKETING_PORT={port}").values()
                ),
            )
            time.sleep(0.5)  # By then the server listens to signals, and its worker not yet.
            asked_at = time.monotonic()
            process.send_signal(signal.SIGINT)
            assert process.wait(GONE_SECONDS_MAX) == 0
            assert time.monotonic() - asked_at < API_GRACE_SECONDS
        finally:
            process.terminate()


def test_a_data_folder_in_use_is_one_sentence(tmp_path: Path) -> None:
    with ReplicaSet(tmp_path):
        said = refused("--port", str(free_port()), "--data", tmp_path)
    assert said.startswith(f"The data folder {tmp_path} is in use")
    assert said.count("\n") == 1


def test_a_missing_secret_in_production_is_one_sentence_that_names_it(tmp_path: Path) -> None:
    said = refused("--data", tmp_path / "data", TICKETING_MODE="production")
    assert said == "TICKETING_JWT_SECRET is not set: production needs a secret of its own.\n"


def test_a_given_database_is_used_and_no_other_is_started(tmp_path: Path) -> None:
    with (
        ReplicaSet(tmp_path / "given") as given,
        started(
            tmp_path, TICKETING_MONGODB_URI=given.uri, TICKETING_DATABASE="elsewhere"
        ) as running,
    ):
        assert running.lines[0] == f"MongoDB: {given.uri}"
        mongods = [
            command
            for command in processes_with(
                f"TICKETING_PORT={running.url.rpartition(':')[2]}"
            ).values()
            if "--dbpath" in command
        ]
        assert mongods == []
