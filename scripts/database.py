"""Which database a command works on: `TICKETING_MONGODB_URI`, or the embedded set in a folder."""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from pymongo.errors import PyMongoError

from scripts import replica_set
from scripts.replica_set import ReplicaSetError
from ticketing.settings import Settings, SettingsError

REPOSITORY = Path(__file__).resolve().parent.parent
DEFAULT_DATA = REPOSITORY / ".data"


class Failure(Exception):
    """A command cannot go on; the text tells a person why."""


def add_data_argument(parser: argparse.ArgumentParser) -> None:
    """Declare `--data DIR`."""
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="the data folder of the embedded replica set that scripts/run has running; without it"
        " TICKETING_MONGODB_URI, else .data in the repository",
    )


def uri(data: Path | None) -> str:
    """The connection string of the database meant. Raises ReplicaSetError."""
    given = os.environ.get("TICKETING_MONGODB_URI", "").strip()
    if given and data is None:
        return given
    return replica_set.uri_of(data or DEFAULT_DATA)


def settings(data: Path | None) -> Settings:
    """The settings, with the database meant. Raises ReplicaSetError or SettingsError."""
    return Settings.from_environment({**os.environ, "TICKETING_MONGODB_URI": uri(data)})


def failure(error: PyMongoError) -> Failure:
    """A driver's error in the words for a person: the cause, without the driver's whole state."""
    cause = str(error).partition(" (configured timeouts")[0].partition(", full error")[0]
    return Failure(f"The database does not answer: {cause.splitlines()[0] if cause else error!r}")


def exit_with(main: Callable[[], int], *, failed: int = 1) -> None:
    """Run a command to its exit code; what a person can put right is one line, not a traceback.

    `failed` is the exit code for that one line.
    """
    try:
        code = main()
    except (Failure, ReplicaSetError, SettingsError) as reason:
        print(reason, file=sys.stderr)
        code = failed
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
