"""`scripts/restore`: a backup into a fresh replica set, as it was at a moment, then the audit."""

import argparse
import asyncio
from datetime import datetime
from pathlib import Path

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from scripts import database
from scripts.backups import restoring
from ticketing import clock, dashboards, invariants, mongo
from ticketing.invariants import Finding
from ticketing.mongo import Document
from ticketing.settings import Settings

SELECTION_MILLISECONDS = 10_000
SHOWN_MAX = 100
EPILOG = """example:
  scripts/restore --from /backup/monday --to 2026-12-01T19:59:59Z --data /tmp/restored

The backup is checked first, and nothing is written if it is damaged. The database must be empty.
Without --to it is restored to the end of what was archived.

exit codes: 0 restored and all invariants hold, 1 it failed or one is broken, 2 wrong use"""


def main() -> int:
    """Restore and audit."""
    parser = argparse.ArgumentParser(
        prog="scripts/restore",
        description="Bring a backup of scripts/backup back, as it was at a moment: every operation"
        " up to that moment, whole transactions or nothing of them. Then the counters are counted"
        " afresh and the invariants checked.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--from", dest="folder", type=Path, required=True, metavar="DIR", help="the backup's folder"
    )
    parser.add_argument(
        "--to", type=_instant, metavar="TIME", help="the moment, ISO 8601 with its zone"
    )
    database.add_data_argument(parser)
    arguments = parser.parse_args()
    settings = database.settings(arguments.data)
    try:
        with MongoClient[Document](
            settings.mongodb_uri, tz_aware=True, serverSelectionTimeoutMS=SELECTION_MILLISECONDS
        ) as client:
            outcome = restoring.restore(
                client, settings.database, arguments.folder, arguments.to, _say
            )
        _say(f"{outcome.documents} documents and {outcome.operations} operations are back.")
        findings = asyncio.run(_count_and_check(settings))
    except PyMongoError as error:
        raise database.failure(error) from None
    for finding in findings[:SHOWN_MAX]:
        _say(f"{finding.rule}: {finding.detail}")
    _say(f"{len(findings)} broken" if findings else "All invariants hold.")
    return 1 if findings else 0


async def _count_and_check(settings: Settings) -> list[Finding]:
    """Count afresh: the saved place in the change stream is one of another replica set."""
    client = await mongo.connect(settings, operation_timeout_ms=None)
    try:
        await dashboards.rebuild(client.database, clock.now())
        return await invariants.check_all(client.database)
    finally:
        await client.close()


def _instant(text: str) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is not an instant of ISO 8601") from None
    if instant.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text} has no zone: add Z for UTC")
    return instant


def _say(sentence: str) -> None:
    print(sentence, flush=True)


if __name__ == "__main__":
    database.exit_with(main)
