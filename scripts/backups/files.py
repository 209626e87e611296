"""Files that are whole or not there: written under another name, made durable, then renamed."""

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bson.timestamp import Timestamp

from scripts.database import Failure

PARTIAL = ".partial"
_READ_BYTES = 1 << 20

Body = dict[str, Any]


class Damaged(Failure):
    """A backup is not as it was written; the text names the file."""


class DurableFile:
    """A file that is written from front to back and has its name only once it is on the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size_bytes = 0
        self._sum = hashlib.sha256()
        self._partial = path.with_name(path.name + PARTIAL)
        self._file = self._partial.open("wb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self._file.close()

    @property
    def sha256(self) -> str:
        """The checksum of what was written so far."""
        return self._sum.hexdigest()

    def write(self, data: bytes) -> None:
        """Append."""
        self._sum.update(data)
        self.size_bytes += len(data)
        self._file.write(data)

    def finish(self) -> None:
        """Bring it to the disk and give it its name."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._partial.replace(self.path)
        sync_folder(self.path.parent)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checksum(path: Path) -> tuple[int, str]:
    """How long a file is, and its checksum."""
    found, size_bytes = hashlib.sha256(), 0
    with path.open("rb") as file:
        while data := file.read(_READ_BYTES):
            found.update(data)
            size_bytes += len(data)
    return size_bytes, found.hexdigest()


# --- Descriptions that carry their own checksum --------------------------------------------------


def write_sealed(path: Path, body: Body) -> None:
    """Write a JSON file that tells by itself whether it is as it was written."""
    with DurableFile(path) as file:
        file.write(_sealed(body))


def read_sealed(path: Path) -> Body:
    """What `write_sealed` wrote. Raises Damaged."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise Damaged(f"{path} is missing.") from None
    try:
        body = json.loads(data)["body"]
    except (ValueError, KeyError, TypeError):
        body = None
    # Compared byte for byte: a changed blank would be valid JSON, and is damage all the same.
    if not isinstance(body, dict) or _sealed(body) != data:
        raise Damaged(f"{path} is damaged: its checksum does not fit.")
    return body


def _sealed(body: Body) -> bytes:
    plain = json.dumps(body, sort_keys=True, separators=(",", ":"))
    sealed = {"sha256": hashlib.sha256(plain.encode()).hexdigest(), "body": body}
    return json.dumps(sealed, sort_keys=True, indent=1).encode() + b"\n"


def timestamp_to(moment: Timestamp) -> list[int]:
    """A cluster time as JSON has it."""
    return [moment.time, moment.inc]


def timestamp_from(pair: list[int]) -> Timestamp:
    """The cluster time of `timestamp_to`."""
    return Timestamp(pair[0], pair[1])


def instant_from(text: str) -> datetime:
    """An instant as the descriptions have it, to the millisecond."""
    return datetime.fromisoformat(text).astimezone(UTC)


@contextlib.contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Keep a second command out of the folder. The lock goes with its process, however it ends."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Failure(f"Another command is at work in {folder}.") from None
        yield
    finally:
        os.close(descriptor)
