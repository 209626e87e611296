"""The way back: a snapshot, and the oplog after it up to a moment, into a fresh replica set.

The documents come first, then every operation in its order, then the indexes: an index that lets
documents expire would remove some that the next operation is about.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import bson
from bson import json_util
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from scripts.backups import oplog, snapshot
from scripts.backups.checking import check, reaches
from scripts.backups.files import Damaged, instant_from, timestamp_from
from scripts.backups.oplog import Say, Segment
from scripts.database import Failure

OPERATIONS_PER_BATCH_MAX = 500
BATCH_BYTES_MAX = 4 << 20
DOCUMENTS_PER_INSERT_MAX = 2_000
# Entries of one transaction wait in memory for the one that commits it.
TRANSACTION_OPERATIONS_MAX = 1_000_000

Document = dict[str, Any]
_RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)
_TYPED: CodecOptions[Document] = CodecOptions(tz_aware=True)
# They say that something is being done; another entry says that it is.
_ANNOUNCEMENTS = frozenset({"startIndexBuild", "abortIndexBuild", "abortTransaction"})


@dataclass
class Outcome:
    """What was restored."""

    documents: int = 0
    operations: int = 0
    last: datetime | None = None
    """The instant of the last operation that was replayed."""


def restore(
    client: "MongoClient[Document]",
    database: str,
    folder: Path,
    to: datetime | None,
    say: Say,
) -> Outcome:
    """Restore a backup into an empty database, up to and with the last operation before `to`.

    The backup is checked first, and nothing is written if it is damaged. Raises Failure.
    """
    segments = check(folder, say)
    _check_reach(folder, segments, to)
    _require_empty(client, database)
    about = snapshot.manifest(folder)
    restoring = _Restoring(client, database, about["database"], say)
    restoring.load(folder / snapshot.FOLDER / about["database"])
    taken = timestamp_from(about["clusterTime"])
    for entry in _entries(folder, segments, taken):
        if to is not None and entry["wall"] > to:
            break
        restoring.replay(entry)
    restoring.finish()
    return restoring.outcome


def _check_reach(folder: Path, segments: list[Segment], to: datetime | None) -> None:
    if to is None:
        return
    first, last = reaches(folder, segments)
    if not instant_from(first) <= to <= instant_from(last):
        raise Failure(
            f"{to.isoformat()} is not in this backup, which reaches from {first} to {last}."
            " Choose a moment between them, or another backup."
        )


def _require_empty(client: "MongoClient[Document]", database: str) -> None:
    if "setName" not in client.admin.command("hello"):
        raise Failure("Restore into a replica set: this is a single server or a router.")
    opened = client[database]
    names = [name for name in opened.list_collection_names() if not name.startswith("system.")]
    for name in names:
        if opened[name].find_one({}, {"_id": 1}) is not None:
            raise Failure(
                f"The database {database} has documents ({name}): restore into a fresh replica set,"
                " or into another database by TICKETING_DATABASE."
            )
    for name in names:
        opened.drop_collection(name)


def _entries(folder: Path, segments: list[Segment], after: Timestamp) -> Iterator[Document]:
    """The archived operations after a cluster time; of a transaction that began before, all."""
    for segment in segments:
        with oplog.entries_file(folder, segment.number).open("rb") as file:
            for entry in bson.decode_file_iter(file, _TYPED):
                if entry["ts"] > after or entry["o"].get("partialTxn"):
                    yield entry


@dataclass
class _Restoring:
    """A database on its way back."""

    client: "MongoClient[Document]"
    database: str
    original: str
    say: Say
    outcome: Outcome = field(default_factory=Outcome)
    indexes: dict[str, dict[str, Document]] = field(default_factory=dict)
    """By collection and name; built at the end."""
    transactions: dict[bytes, list[Document]] = field(default_factory=dict)
    """Operations of transactions that are not committed yet, by session and number."""
    batch: list[Document] = field(default_factory=list)
    batch_bytes: int = 0

    # --- The snapshot ----------------------------------------------------------------------------

    def load(self, folder: Path) -> None:
        """Insert the documents of every collection."""
        views = []
        for path in sorted(folder.glob("*.metadata.json")):
            about = json_util.loads(path.read_text())
            if about["type"] == "view":
                views.append(about)
                continue
            name = about["collectionName"]
            self._create(name, about["options"])
            self.indexes[name] = {each["name"]: each for each in about["indexes"]}
            count = self._insert(name, path.with_name(path.name.replace(".metadata.json", ".bson")))
            self.outcome.documents += count
            self.say(f"{name}: {count} documents.")
        for about in views:
            self._create(about["collectionName"], about["options"])

    def _create(self, name: str, options: Mapping[str, Any]) -> None:
        self.client[self.database].command({"create": name, **options})

    def _insert(self, name: str, path: Path) -> int:
        collection = self.client[self.database].get_collection(name, codec_options=_RAW)
        count = 0
        gathered: list[RawBSONDocument] = []
        size = 0
        with path.open("rb") as file:
            for document in bson.decode_file_iter(file, _RAW):
                gathered.append(document)
                size += len(document.raw)
                if len(gathered) >= DOCUMENTS_PER_INSERT_MAX or size >= BATCH_BYTES_MAX:
                    collection.insert_many(gathered, bypass_document_validation=True)
                    count += len(gathered)
                    gathered, size = [], 0
        if gathered:
            collection.insert_many(gathered, bypass_document_validation=True)
        return count + len(gathered)

    # --- The oplog -------------------------------------------------------------------------------

    def replay(self, entry: Document) -> None:
        """Do what an entry of the oplog says, now or once its transaction commits."""
        self.outcome.last = entry["wall"]
        if entry["op"] == "c" and "applyOps" in entry["o"]:
            self._replay_transaction(entry)
        elif entry["op"] == "c" and "commitTransaction" in entry["o"]:
            raise Failure(
                "The oplog has transactions of a sharded cluster, which this cannot restore."
            )
        else:
            self._replay_one(entry)

    def _replay_transaction(self, entry: Document) -> None:
        if entry["o"].get("prepare"):
            raise Failure(
                "The oplog has transactions of a sharded cluster, which this cannot restore."
            )
        key = bson.encode({"lsid": entry.get("lsid"), "number": entry.get("txnNumber")})
        operations = self.transactions.setdefault(key, [])
        operations += entry["o"]["applyOps"]
        if len(operations) > TRANSACTION_OPERATIONS_MAX:
            raise Failure("A transaction is too large to be restored.")
        if entry["o"].get("partialTxn"):
            return
        for operation in self.transactions.pop(key):
            self._replay_one(operation)

    def _replay_one(self, operation: Document) -> None:
        if operation["op"] == "n" or not operation["ns"].startswith(f"{self.original}."):
            return
        self.outcome.operations += 1
        if operation["op"] == "c":
            self._flush()
            self._command(operation["o"])
            return
        kept: Document = {
            name: value for name, value in operation.items() if name in ("op", "o", "o2")
        }
        kept["ns"] = self._namespace(operation["ns"])
        self.batch.append(kept)
        self.batch_bytes += len(bson.encode(kept))
        if len(self.batch) >= OPERATIONS_PER_BATCH_MAX or self.batch_bytes >= BATCH_BYTES_MAX:
            self._flush()

    def _namespace(self, namespace: str) -> str:
        return f"{self.database}.{namespace.partition('.')[2]}"

    def _flush(self) -> None:
        """Apply what has gathered, all of it or an error."""
        if not self.batch:
            return
        try:
            answer = self.client.admin.command(
                {
                    "applyOps": self.batch,
                    # An update of what is not there is a fault of the backup, never an insert.
                    "alwaysUpsert": False,
                    "bypassDocumentValidation": True,
                }
            )
        except OperationFailure as error:
            raise Damaged(
                f"The oplog does not fit the snapshot: {error.details or error}"
            ) from None
        if answer["applied"] != len(self.batch) or not all(answer["results"]):
            raise Damaged("The oplog does not fit the snapshot: an operation had no effect.")
        self.batch, self.batch_bytes = [], 0

    def _command(self, command: Document) -> None:
        kind = next(iter(command))
        opened = self.client[self.database]
        match kind:
            case "create":
                options = {
                    name: value
                    for name, value in command.items()
                    if name not in ("create", "idIndex")
                }
                self._create(command["create"], options)
                self.indexes.setdefault(command["create"], {})
            case "drop":
                opened.drop_collection(command["drop"])
                self.indexes.pop(command["drop"], None)
            case "dropDatabase":
                for name in opened.list_collection_names():
                    opened.drop_collection(name)
                self.indexes.clear()
            case "renameCollection":
                old, new = (command[name].partition(".")[2] for name in ("renameCollection", "to"))
                self.client.admin.command(
                    {
                        "renameCollection": f"{self.database}.{old}",
                        "to": f"{self.database}.{new}",
                        "dropTarget": True,
                    }
                )
                self.indexes[new] = self.indexes.pop(old, {})
            case "collMod":
                self._modify(command)
            case _:
                self._index_command(kind, command)

    def _index_command(self, kind: str, command: Document) -> None:
        """Indexes are only noted here."""
        match kind:
            case "createIndexes":
                spec = {name: value for name, value in command.items() if name != "createIndexes"}
                self.indexes.setdefault(command["createIndexes"], {})[spec["name"]] = spec
            case "commitIndexBuild":
                known = self.indexes.setdefault(command["commitIndexBuild"], {})
                known |= {spec["name"]: spec for spec in command["indexes"]}
            case "dropIndexes" | "deleteIndexes":
                self.indexes[command[kind]].pop(command["index"], None)
            case _ if kind not in _ANNOUNCEMENTS:
                raise Failure(f"The oplog has an operation that this cannot restore: {kind}.")

    def _modify(self, command: Document) -> None:
        index = command.get("index")
        if index is None:
            self.client[self.database].command(command)
            return
        # The index is not built yet: its definition is what changes.
        spec = self.indexes[command["collMod"]][index["name"]]
        spec |= {name: value for name, value in index.items() if name not in ("name", "keyPattern")}

    # --- The end ---------------------------------------------------------------------------------

    def finish(self) -> None:
        """Apply the rest and build the indexes. A transaction without its commit left nothing."""
        self._flush()
        for name, specs in self.indexes.items():
            wanted = [spec for spec in specs.values() if spec["name"] != "_id_"]
            if wanted:
                self.client[self.database].command({"createIndexes": name, "indexes": wanted})
        self.say(f"{sum(map(len, self.indexes.values()))} indexes are built.")
