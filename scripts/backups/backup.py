"""`scripts/backup`: a snapshot at one moment, and the oplog after it for as long as it is told."""

import argparse
from pathlib import Path

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from scripts import child, database
from scripts.backups import oplog, snapshot
from scripts.backups.checking import check
from scripts.backups.files import only_one
from scripts.database import Failure
from ticketing.mongo import Document
from ticketing.settings import Settings

SELECTION_MILLISECONDS = 10_000
EPILOG = """examples:
  scripts/backup --to /backup/monday            a snapshot, and the oplog up to now
  scripts/backup --to /backup/monday --follow   the same, then the oplog until it is told to stop
  scripts/backup --to /backup/monday --check    read every file and compare the checksums

Run again on the same folder it goes on where the last one ended, however that ended.

exit codes: 0 done or told to stop, 1 it failed or a backup is damaged, 2 wrong use"""


def main() -> int:
    """Back up, or check a backup."""
    parser = argparse.ArgumentParser(
        prog="scripts/backup",
        description="Back up the database into a folder, while sales go on: first all collections"
        " as of one moment, then the operations after it. scripts/restore brings it back.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="the backup's folder")
    parser.add_argument("--follow", action="store_true", help="go on until told to stop")
    parser.add_argument("--check", action="store_true", help="only check what is there")
    database.add_data_argument(parser)
    arguments = parser.parse_args()
    folder: Path = arguments.to
    if arguments.check:
        check(folder, _say)
        return 0
    stop = child.StopSignal()
    stop.listen()
    settings = database.settings(arguments.data)
    # It holds what fans have told us of themselves: for nobody else on this machine.
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with only_one(folder), _client(settings) as client:
            if not snapshot.is_whole(folder):
                snapshot.take(client, settings.database, folder, _say)
            elif snapshot.manifest(folder)["database"] != settings.database:
                raise Failure(f"{folder} is a backup of another database.")
            oplog.archive(
                client,
                folder,
                _say,
                stopping=lambda: stop.received,
                catch_up=not arguments.follow,
            )
    except PyMongoError as error:
        raise database.failure(error) from None
    return 0


def _client(settings: Settings) -> "MongoClient[Document]":
    return MongoClient(
        settings.mongodb_uri, tz_aware=True, serverSelectionTimeoutMS=SELECTION_MILLISECONDS
    )


def _say(sentence: str) -> None:
    print(sentence, flush=True)


if __name__ == "__main__":
    database.exit_with(main)
