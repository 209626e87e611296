"""All collections of a database as they were at one cluster time, as BSON files."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from bson import json_util
from bson.codec_options import CodecOptions
from bson.json_util import CANONICAL_JSON_OPTIONS
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from pymongo import MongoClient, ReadPreference
from pymongo.errors import OperationFailure

from scripts.backups.files import (
    PARTIAL,
    Body,
    DurableFile,
    read_sealed,
    sync_folder,
    timestamp_to,
    write_sealed,
)
from scripts.database import Failure

FOLDER = "snapshot"
MANIFEST = "snapshot.json"
FORMAT = 1
# What the server keeps for reads at one moment, where it will not say.
HISTORY_SECONDS_DEFAULT = 300
HISTORY_PARAMETER = "minSnapshotHistoryWindowInSeconds"

_AT_ONCE = 4
_DEFINITION_ATTEMPTS_MAX = 5
_DOCUMENTS_PER_BATCH = 5_000
_WRITE_BYTES = 1 << 20
_PROGRESS_SECONDS = 5.0
# SnapshotTooOld, and a collection whose definition changed after the moment.
_TOO_OLD_CODE = 239
_UNAVAILABLE_CODE = 246
_RAW = CodecOptions(document_class=RawBSONDocument)

Document = dict[str, Any]
Client = MongoClient[Document]
Say = Callable[[str], None]


@dataclass(frozen=True)
class _Collection:
    name: str
    kind: str
    options: Document
    uuid: str
    indexes: list[Document]

    def metadata(self) -> bytes:
        """What mongorestore reads beside the documents."""
        described: Document = {
            "options": self.options,
            "indexes": self.indexes,
            "uuid": self.uuid,
            "collectionName": self.name,
            "type": self.kind,
        }
        return json_util.dumps(described, json_options=CANONICAL_JSON_OPTIONS).encode()


def is_whole(folder: Path) -> bool:
    """Whether a backup's snapshot was finished."""
    return (folder / MANIFEST).exists()


def manifest(folder: Path) -> Body:
    """What a finished snapshot says of itself. Raises Damaged, or Failure for an unfinished one."""
    if not is_whole(folder):
        raise Failure(
            f"{folder} holds no whole snapshot: {MANIFEST}, which is written last, is missing."
            " Run scripts/backup again."
        )
    body = read_sealed(folder / MANIFEST)
    if body["format"] != FORMAT:
        raise Failure(f"{folder} is a backup of format {body['format']}, this reads {FORMAT}.")
    return body


def take(client: Client, database: str, folder: Path, say: Say) -> None:
    """Write a whole snapshot, or leave nothing that is taken for one. Raises Failure."""
    hello = client.admin.command("hello")
    if "setName" not in hello:
        raise Failure("Only a replica set can be backed up: this is a single server or a router.")
    partial = folder / (FOLDER + PARTIAL)
    # What a killed run left: without the manifest neither is whole.
    for leftover in (partial, folder / FOLDER):
        if leftover.exists():
            say(f"Removing {leftover.name} of a run that did not finish.")
            shutil.rmtree(leftover)
    collections, moment = _defined_at_one_moment(client, database)
    instant = _instant_of(client, moment)
    history_seconds = _history_seconds(client)
    say(
        f"Reading {len(collections)} collections as of {instant.isoformat()}; the server keeps"
        f" {history_seconds} seconds of history for it."
    )
    target = partial / database
    target.mkdir(parents=True)
    reading = _Reading(client, database, moment, target, history_seconds, say)
    try:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            pending = [pool.submit(reading.save, each) for each in collections]
            try:
                results = [each.result() for each in pending]
            except BaseException:
                reading.given_up.set()
                raise
    except OperationFailure as error:
        raise reading.why(error) from None
    files = {name: about for result in results for name, about in result.items()}
    for made in (target, partial):
        sync_folder(made)
    partial.rename(folder / FOLDER)
    sync_folder(folder)
    body: Body = {
        "format": FORMAT,
        "database": database,
        "clusterTime": timestamp_to(moment),
        "instant": instant.isoformat(timespec="milliseconds"),
        "collections": sorted(each.name for each in collections),
        "files": files,
    }
    write_sealed(folder / MANIFEST, body)
    documents = sum(about.get("documents", 0) for about in files.values())
    say(f"The snapshot is whole: {documents} documents in {reading.seconds():.1f} s.")


class _Reading:
    """The reading of all collections at one moment."""

    def __init__(
        self,
        client: Client,
        database: str,
        moment: Timestamp,
        target: Path,
        history_seconds: int,
        say: Say,
    ) -> None:
        self.given_up = threading.Event()
        self._client = client
        self._database = client.get_database(
            database, codec_options=_RAW, read_preference=ReadPreference.SECONDARY_PREFERRED
        )
        self._moment = moment
        self._target = target
        self._history_seconds = history_seconds
        self._say = say
        self._began = time.monotonic()

    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.monotonic() - self._began

    def save(self, collection: _Collection) -> dict[str, Body]:
        """Write a collection's files; what the manifest says of each."""
        about: dict[str, Body] = {}
        # As mongodump escapes what cannot be in the name of a file.
        name = quote(collection.name, safe="$")
        if collection.kind == "collection":
            documents = 0
            with DurableFile(self._target / f"{name}.bson") as file:
                for count, data in self._read(collection.name):
                    file.write(data)
                    documents = count
            about[self._relative(file)] = {**_about(file), "documents": documents}
            self._say(f"{collection.name}: {documents} documents, {file.size_bytes} bytes, done.")
        with DurableFile(self._target / f"{name}.metadata.json") as file:
            file.write(collection.metadata())
        about[self._relative(file)] = _about(file)
        return about

    def why(self, error: OperationFailure) -> Failure:
        """What a person can do about a failed read."""
        wanted = max(self._history_seconds * 2, HISTORY_SECONDS_DEFAULT)
        if error.code == _TOO_OLD_CODE:
            return Failure(
                f"The snapshot took {self.seconds():.0f} seconds, longer than the server keeps"
                f" history ({HISTORY_PARAMETER}, {self._history_seconds} seconds). Raise it on"
                f" every node, such as by setParameter with {HISTORY_PARAMETER}: {wanted}, and run"
                " this again."
            )
        if error.code == _UNAVAILABLE_CODE:
            return Failure(
                "A collection's definition or indexes changed meanwhile, and the server cannot read"
                " it as it was before. Run this again."
            )
        return Failure(f"The database refused a read: {error.details or error}")

    def _relative(self, file: DurableFile) -> str:
        return f"{self._database.name}/{file.path.name}"

    def _read(self, collection: str) -> Iterator[tuple[int, bytes]]:
        """The documents so far and the next of their bytes."""
        # A cursor of the driver's own stays with the server it was opened at.
        count, gathered, size_bytes, said_at = 0, [], 0, time.monotonic()
        with (
            self._client.start_session(causal_consistency=False) as session,
            self._database.cursor_command(
                {
                    "find": collection,
                    "batchSize": _DOCUMENTS_PER_BATCH,
                    "noCursorTimeout": True,
                    "readConcern": {"level": "snapshot", "atClusterTime": self._moment},
                },
                read_preference=ReadPreference.SECONDARY_PREFERRED,
                codec_options=_RAW,
                session=session,
            ) as cursor,
        ):
            cursor.batch_size(_DOCUMENTS_PER_BATCH)
            for found in cursor:
                document = cast("RawBSONDocument", found)
                gathered.append(document.raw)
                count += 1
                size_bytes += len(document.raw)
                if size_bytes < _WRITE_BYTES:
                    continue
                yield count, b"".join(gathered)
                gathered, size_bytes = [], 0
                if self.given_up.is_set():
                    raise Failure("Given up, since another collection could not be read.")
                if time.monotonic() - said_at > _PROGRESS_SECONDS:
                    said_at = time.monotonic()
                    self._say(f"{collection}: {count} documents so far")
        yield count, b"".join(gathered)


def _about(file: DurableFile) -> Body:
    return {"bytes": file.size_bytes, "sha256": file.sha256}


def _defined_at_one_moment(client: Client, database: str) -> tuple[list[_Collection], Timestamp]:
    """The collections as they are defined, and a moment at which they were so.

    Definitions cannot be read as of a moment. So they are read before and after it: what is the
    same both times was so at the moment between.
    """
    for _ in range(_DEFINITION_ATTEMPTS_MAX):
        before = _definitions(client, database)
        moment: Timestamp = client.admin.command("ping")["operationTime"]
        if _definitions(client, database) == before:
            if not before:
                raise Failure(f"There is no database {database}, so there is nothing to back up.")
            return before, moment
    raise Failure("Collections or indexes are being changed all the time: run this again later.")


def _definitions(client: Client, database: str) -> list[_Collection]:
    opened = client[database]
    found = []
    for listed in opened.list_collections():
        name, kind = listed["name"], listed["type"]
        if name.startswith("system."):
            continue
        if kind not in ("collection", "view"):
            raise Failure(f"{name} is a {kind} collection, which this cannot back up.")
        uuid = listed["info"].get("uuid")
        found.append(
            _Collection(
                name,
                kind,
                listed["options"],
                "" if uuid is None else uuid.hex() if isinstance(uuid, bytes) else uuid.hex,
                _indexes(client, database, name) if kind == "collection" else [],
            )
        )
    return sorted(found, key=lambda each: each.name)


def _indexes(client: Client, database: str, collection: str) -> list[Document]:
    """The indexes that are ready: one still being built comes with the oplog once it is."""
    listing = client[database].cursor_command(
        {"listIndexes": collection, "includeIndexBuildInfo": True, "cursor": {}}
    )
    return [found["spec"] for found in listing if "indexBuildInfo" not in found]


def _instant_of(client: Client, moment: Timestamp) -> datetime:
    """The primary's clock at the last entry up to a cluster time."""
    last = client.local["oplog.rs"].find_one({"ts": {"$lte": moment}}, sort=[("$natural", -1)])
    if last is None:
        raise Failure("The oplog is empty: is this a member of a replica set?")
    instant: datetime = last["wall"]
    return instant


def _history_seconds(client: Client) -> int:
    try:
        answer = client.admin.command({"getParameter": 1, HISTORY_PARAMETER: 1})
    except OperationFailure:  # Not everybody may ask.
        return HISTORY_SECONDS_DEFAULT
    return int(answer[HISTORY_PARAMETER])
