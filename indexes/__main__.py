"""`python -m indexes plan|apply|migrate|verify`."""

import argparse
import sys

from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import ConfigurationError, ConnectionFailure, OperationFailure, PyMongoError

from indexes import actual, building, migrations, verification
from indexes.actual import Document
from indexes.difference import differences
from indexes.migrations import MigrationError
from ticketing.settings import Settings, SettingsError

SERVER_SELECTION_TIMEOUT_MS = 10_000

FINE, DIFFERENT, UNUSABLE = 0, 1, 2

DESCRIPTION = """\
Compare the declared indexes and validators with a database, and make it what is declared.
Indexes are compared by what they are, not by their names.

  plan     print every difference; changes nothing
  apply    make missing collections, build missing indexes, widen validators, and print what is
           left because no flag allows it
           --allow-drop     also drop undeclared indexes and replace changed ones
           --allow-tighten  also tighten validators where no document stands against it
  migrate  bring data of earlier releases to the shape of this one, batch by batch, while old and
           new processes run; killed it is run again and goes on
  verify   print every difference, and ask the database how it would answer each declared
           question: it fails on a collection scan, a sort in memory, or the wrong index
"""
EPILOG = """\
example:
  TICKETING_MONGODB_URI='mongodb://127.0.0.1:27017/?replicaSet=rs0' scripts/indexes plan

exit code:
  0  plan, verify: no difference and no fault.  apply: all that it may do is done
  1  plan, verify: some difference or fault.  apply: something could not be built or changed
  2  wrong arguments or settings, or the database can't be reached
"""


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = _parser().parse_args(arguments)
    try:
        settings = Settings.from_environment()
        client: MongoClient[Document] = MongoClient(
            settings.mongodb_uri,
            w="majority",
            # A build may take hours, so only finding the server has a limit.
            serverSelectionTimeoutMS=SERVER_SELECTION_TIMEOUT_MS,
            appname="ticketing-indexes",
        )
        with client:
            return _run(options, client[settings.database])
    except (SettingsError, MigrationError) as error:
        return _refuse(str(error))
    except (ConfigurationError, ValueError) as error:
        return _refuse(f"TICKETING_MONGODB_URI can't be used: {error}")
    except ConnectionFailure as error:
        return _refuse(f"The database can't be reached: {_first_sentence(error)}")
    except OperationFailure as error:
        return _refuse(f"The database refused: {_first_sentence(error)}")
    except PyMongoError as error:
        return _refuse(f"The database failed: {_first_sentence(error)}")
    except KeyboardInterrupt:
        print("Interrupted; the server finishes an index build by itself.", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/indexes",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="plan|apply|migrate|verify"
    )
    commands.add_parser("plan", help="print every difference", allow_abbrev=False)
    applying = commands.add_parser("apply", help="make it what is declared", allow_abbrev=False)
    applying.add_argument(
        "--allow-drop",
        action="store_true",
        help="drop indexes that are not declared, and replace those that are declared otherwise",
    )
    applying.add_argument(
        "--allow-tighten",
        action="store_true",
        help="tighten validators, where no document stands against it",
    )
    commands.add_parser("migrate", help="backfill data of earlier releases", allow_abbrev=False)
    commands.add_parser("verify", help="explain every declared question", allow_abbrev=False)
    return parser


def _run(options: argparse.Namespace, database: Database[Document]) -> int:
    # Asked first, so that a server that is down is told before anything else.
    database.client.admin.command("ping")
    if options.command == "plan":
        return _plan(database)
    if options.command == "verify":
        return _verify(database)
    if options.command == "migrate":
        migrations.run(database, _say)
        _say(f"{database.name}: all migrations are done")
        return FINE
    return _apply(database, options.allow_drop, options.allow_tighten)


def _plan(database: Database[Document]) -> int:
    found = differences(actual.read(database))
    for difference in found:
        _say(str(difference))
    waiting = migrations.pending(database)
    for migration in waiting:
        _say(f"migration {migration.number} is pending: {migration.name}; migrate runs it")
    differing = len(found) + len(waiting)
    _say(f"{database.name}: {_count(differing, 'difference')}")
    return DIFFERENT if differing else FINE


def _apply(database: Database[Document], allow_drop: bool, allow_tighten: bool) -> int:
    outcome = building.bring_about(
        database, allow_drop=allow_drop, allow_tighten=allow_tighten, say=_say
    )
    for sentence in outcome.waiting:
        _say(f"left: {sentence}")
    for sentence in outcome.failed:
        print(f"failed: {sentence}", file=sys.stderr)
    left = len(outcome.waiting) + len(outcome.failed)
    _say(f"{database.name}: {_count(left, 'difference')} left")
    return DIFFERENT if outcome.failed else FINE


def _verify(database: Database[Document]) -> int:
    present = actual.read(database)
    faults = [*map(str, differences(present)), *verification.idle_indexes()]
    faults += [f"migration {each.number} is pending" for each in migrations.pending(database)]
    for fault in faults:
        _say(f"FAULT  {fault}")
    questions = 0
    for judgement in verification.judge(database, present):
        questions += 1
        pattern = judgement.pattern
        if judgement.fault is not None:
            faults.append(judgement.fault)
        _say(
            f"ok     {pattern.collection}: {pattern.question}"
            if judgement.fault is None
            else f"FAULT  {pattern.collection}: “{pattern.question}” {judgement.fault}"
        )
    _say(f"{database.name}: {_count(questions, 'question')}, {_count(len(faults), 'fault')}")
    return DIFFERENT if faults else FINE


def _say(sentence: str) -> None:
    print(sentence, flush=True)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _first_sentence(error: PyMongoError) -> str:
    """What went wrong, without the topology or the whole reply the driver adds to it."""
    sentence = str(error)
    for addition in (", full error:", ", Timeout:", " (configured timeouts:"):
        sentence = sentence.partition(addition)[0]
    return sentence


def _refuse(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return UNUSABLE


if __name__ == "__main__":
    sys.exit(main())
