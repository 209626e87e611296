"""The oplog after a snapshot, in segments that follow on one another without a gap.

A segment is a file of oplog entries as they are, and a description that is written after it and
seals it: `after` is the last cluster time of the segment before, `through` the last of its own.
Entries of other databases are left out, so the two tell more than the entries themselves.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import bson
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from pymongo import MongoClient, ReadPreference
from pymongo.errors import AutoReconnect, ServerSelectionTimeoutError
from pymongo.read_concern import ReadConcern

from scripts.backups import snapshot
from scripts.backups.files import (
    PARTIAL,
    Body,
    Damaged,
    DurableFile,
    instant_from,
    read_sealed,
    timestamp_from,
    timestamp_to,
    write_sealed,
)
from scripts.database import Failure

FOLDER = "oplog"
HEAD = "head.json"
SEGMENT_SECONDS = 10.0
SEGMENT_BYTES_MAX = 16 << 20
# A long transaction has entries before the one that commits it; it lasts a minute at most.
BEFORE_SNAPSHOT_SECONDS = 60

# A segment in which nothing of ours happened only says so once in this many segments' time.
_EMPTY_FACTOR = 6
_POLL_SECONDS = 0.5
_OUTAGE_SECONDS_MAX = 600.0
_LAG_SECONDS_MAX = 120.0
_ENTRIES_PER_BATCH = 2_000
_RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument, tz_aware=True)

Document = dict[str, Any]
Client = MongoClient[Document]
Say = Callable[[str], None]


class HistoryGone(Failure):
    """The oplog does not reach back to the end of the archive any more."""

    def __init__(self, through: Timestamp) -> None:
        super().__init__(
            f"The oplog has rolled over: it does not hold {through.as_datetime().isoformat()}"
            f" ({through.time}:{through.inc}) any more, where the archive ends, so there is a gap."
            " Take a new snapshot in another folder, and make the oplog larger."
        )


@dataclass(frozen=True)
class Segment:
    """A whole segment's description."""

    number: int
    after: Timestamp
    through: Timestamp
    through_instant: datetime
    entries: int
    size_bytes: int
    sha256: str

    def body(self) -> Body:
        """As it is written."""
        return {
            "number": self.number,
            "after": timestamp_to(self.after),
            "through": timestamp_to(self.through),
            "throughInstant": self.through_instant.isoformat(timespec="milliseconds"),
            "entries": self.entries,
            "bytes": self.size_bytes,
            "sha256": self.sha256,
        }


def entries_file(folder: Path, number: int) -> Path:
    """The file of a segment's entries."""
    return folder / FOLDER / f"{number:010d}.bson"


def segments(folder: Path) -> list[Segment]:
    """All segments, in order, contiguous. Raises Damaged. Their entries are not looked at."""
    place = folder / FOLDER
    numbers = sorted(int(path.stem) for path in place.glob("[0-9]*.json"))
    head = read_sealed(place / HEAD)["number"] if (numbers or (place / HEAD).exists()) else 0
    found: list[Segment] = []
    for number in range(1, max(head, *numbers, 0) + 1 if numbers else head + 1):
        segment = _read(folder, number)
        if found and segment.after != found[-1].through:
            raise Damaged(f"Segment {number} of the oplog does not follow on the one before it.")
        found.append(segment)
    return found


def _read(folder: Path, number: int) -> Segment:
    path = entries_file(folder, number).with_suffix(".json")
    if not path.exists():
        raise Damaged(f"Segment {number} of the oplog is missing: there is no {path}.")
    body = read_sealed(path)
    if body["number"] != number:
        raise Damaged(f"{path} describes another segment.")
    return Segment(
        number,
        timestamp_from(body["after"]),
        timestamp_from(body["through"]),
        instant_from(body["throughInstant"]),
        body["entries"],
        body["bytes"],
        body["sha256"],
    )


def archive(
    client: Client,
    folder: Path,
    say: Say,
    *,
    stopping: Callable[[], bool],
    catch_up: bool,
    segment_seconds: float = SEGMENT_SECONDS,
) -> None:
    """Archive the oplog from the end of the archive on, until told to stop.

    `catch_up` ends at what is the present when this begins. Raises HistoryGone and Failure.
    """
    about = snapshot.manifest(folder)
    (folder / FOLDER).mkdir(exist_ok=True)
    taken = timestamp_from(about["clusterTime"])
    present: Timestamp | None = None
    if catch_up:
        present = client.admin.command("ping")["operationTime"]
    whole = segments(folder)
    _remove_unfinished(folder, len(whole))
    follower = _Follower(client, about["database"], folder, whole[-1] if whole else None, taken)
    say(f"Archiving the oplog from segment {len(whole) + 1} on.")
    failing_since: float | None = None
    while not stopping():
        try:
            more = follower.poll(segment_seconds)
            failing_since = None
        except (AutoReconnect, ServerSelectionTimeoutError) as error:
            failing_since = failing_since or time.monotonic()
            if catch_up or time.monotonic() - failing_since > _OUTAGE_SECONDS_MAX:
                raise
            say(f"The database does not answer, trying again: {str(error).splitlines()[0][:200]}")
            more = False
        for made in follower.made():
            say(f"Segment {made.number}: {made.entries} entries, {made.size_bytes} bytes.")
        if present is not None and follower.through is not None and follower.through >= present:
            break
        if not more:
            time.sleep(_POLL_SECONDS)
    follower.seal()
    for made in follower.made():
        say(f"Segment {made.number}: {made.entries} entries, {made.size_bytes} bytes.")
    say("The archive is whole up to here.")


def _remove_unfinished(folder: Path, whole: int) -> None:
    """What a killed run left: a part of a segment, or entries without their description."""
    place = folder / FOLDER
    for path in place.glob(f"*{PARTIAL}"):
        path.unlink()
    for path in place.glob("[0-9]*.bson"):
        if int(path.stem) > whole:
            path.unlink()


class _Follower:
    """Reads the oplog from where the archive ends, and writes segments."""

    def __init__(
        self,
        client: Client,
        database: str,
        folder: Path,
        last: Segment | None,
        taken: Timestamp,
    ) -> None:
        # Read by a majority: what an election takes back is never archived.
        self._oplog = client.local["oplog.rs"].with_options(
            codec_options=_RAW,
            read_concern=ReadConcern("majority"),
            read_preference=ReadPreference.SECONDARY_PREFERRED,
        )
        self._prefix = f"{database}."
        self._folder = folder
        self._number = last.number if last else 0
        self._taken = taken
        self.through = last.through if last else None
        self._after = self.through
        self._instant = last.through_instant if last else None
        self._file: DurableFile | None = None
        self._entries = 0
        self._began = time.monotonic()
        self._found_at = time.monotonic()
        self._made: list[Segment] = []

    def made(self) -> Iterator[Segment]:
        """The segments finished since this was asked last."""
        made, self._made = self._made, []
        yield from made

    def poll(self, segment_seconds: float) -> bool:
        """Take what the oplog has now; whether there was a lot of it."""
        if self.through is None:
            self._begin()
        through = self.through
        assert through is not None
        taken = 0
        for entry in self._since(through):
            self._take(entry)
            taken += 1
            if self._file is not None and self._file.size_bytes >= SEGMENT_BYTES_MAX:
                self.seal()
        due = segment_seconds if self._file is not None else segment_seconds * _EMPTY_FACTOR
        if time.monotonic() - self._began >= due:
            self.seal()
        return taken >= _ENTRIES_PER_BATCH

    def seal(self) -> None:
        """Finish the segment, if it has anything to say."""
        if self.through is None or self.through == self._after:
            self._began = time.monotonic()
            return
        assert self._after is not None
        assert self._instant is not None
        file = self._file or self._open()
        file.finish()
        self._number += 1
        segment = Segment(
            self._number,
            self._after,
            self.through,
            self._instant,
            self._entries,
            file.size_bytes,
            file.sha256,
        )
        write_sealed(file.path.with_suffix(".json"), segment.body())
        # A missing last segment would leave no gap behind it: the head says that there was one.
        write_sealed(self._folder / FOLDER / HEAD, {"number": self._number})
        self._made.append(segment)
        self._file, self._entries, self._after = None, 0, self.through
        self._began = time.monotonic()

    def _begin(self) -> None:
        """Find the place a little before the snapshot, where the first segment begins."""
        first = self._oplog.find_one(
            {"ts": {"$gte": Timestamp(self._taken.time - BEFORE_SNAPSHOT_SECONDS, 0)}},
            sort=[("$natural", 1)],
        )
        if first is None or first["ts"] > self._taken:
            raise HistoryGone(self._taken)
        self.through = self._after = first["ts"]
        self._instant = first["wall"]

    def _since(self, through: Timestamp) -> Iterator[RawBSONDocument]:
        """The entries after a time. The entry of that time must be there: else there is a gap."""
        anchored = False
        batches = self._oplog.find_raw_batches(
            {"ts": {"$gte": through}}, sort=[("$natural", 1)], batch_size=_ENTRIES_PER_BATCH
        )
        with batches:
            for batch in batches:
                for entry in bson.decode_all(cast("bytes", batch), _RAW):
                    if anchored:
                        yield entry
                    elif entry["ts"] == through:
                        anchored = True
                        self._found_at = time.monotonic()
                    else:
                        raise HistoryGone(through)
        if anchored:
            return
        oldest = self._oplog.find_one(sort=[("$natural", 1)])
        if oldest is not None and oldest["ts"] > through:
            raise HistoryGone(through)
        # The node that answered is behind what another one had; it will catch up.
        if time.monotonic() - self._found_at > _LAG_SECONDS_MAX:
            raise Failure(
                f"No node has the time {through.time}:{through.inc}, where the archive ends: is"
                " this the replica set that the snapshot was taken of?"
            )

    def _take(self, entry: RawBSONDocument) -> None:
        if self._is_ours(entry):
            if self._file is None:
                self._file = self._open()
            self._file.write(bytes(entry.raw))
            self._entries += 1
        self.through = entry["ts"]
        self._instant = entry["wall"]

    def _is_ours(self, entry: RawBSONDocument) -> bool:
        namespace: str = entry["ns"]
        # A transaction is an entry of `admin`, whatever it writes.
        return entry["op"] != "n" and (
            namespace.startswith(self._prefix) or namespace == "admin.$cmd"
        )

    def _open(self) -> DurableFile:
        return DurableFile(entries_file(self._folder, self._number + 1))
