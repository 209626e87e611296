"""`scripts/outbox`: what could not be delivered, for a person to look at and to let go again."""

import argparse
import asyncio
import json
from typing import Any

from pymongo.errors import PyMongoError

from scripts import database
from scripts.database import Failure
from ticketing import clock, mongo, outbox
from ticketing.clock import rfc3339
from ticketing.mongo import Database

SHOWN = 50

EXAMPLES = """examples:
  scripts/outbox list                      the dead letters, the latest first
  scripts/outbox show msg_0197...:mail     one delivery, its attempts and its message
  scripts/outbox requeue msg_0197...:mail  try it for another day
  scripts/outbox requeue --all             the same with every dead letter

exit codes: 0 done, 1 there is no such delivery, it is no dead letter, or the database failed,
2 wrong use or settings"""


def main() -> int:
    """The command line."""
    arguments = _parser().parse_args()
    settings = database.settings(arguments.data)
    work = {"list": _list, "show": _show, "requeue": _requeue}[arguments.command]

    async def run() -> None:
        client = await mongo.connect(settings)
        try:
            await work(client.database, arguments)
        finally:
            await client.close()

    try:
        asyncio.run(run())
    except PyMongoError as error:
        raise database.failure(error) from None
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/outbox",
        description="Look at the messages that could not be delivered, and let them be tried again."
        " A message is given up after a day of attempts, or at once where it can never arrive.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("list", help="the dead letters, the latest first")
    listing.add_argument("--limit", type=_limit, default=SHOWN, help=f"how many at most ({SHOWN})")
    show = commands.add_parser("show", help="one delivery, its attempts and its message")
    show.add_argument("delivery", metavar="ID")
    requeue = commands.add_parser("requeue", help="let dead letters be tried for another day")
    which = requeue.add_mutually_exclusive_group(required=True)
    which.add_argument("deliveries", metavar="ID", nargs="*", default=[])
    which.add_argument("--all", action="store_true", help="every dead letter")
    for command in (listing, show, requeue):
        database.add_data_argument(command)
    return parser


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= outbox.DEAD_SHOWN_MAX):
        raise argparse.ArgumentTypeError(f"must be from 1 to {outbox.DEAD_SHOWN_MAX}")
    return int(text)


async def _list(opened: Database, arguments: argparse.Namespace) -> None:
    dead = await outbox.dead_letters(opened, arguments.limit + 1)
    for delivery in dead[: arguments.limit]:
        about = delivery.get("orderId", delivery.get("eventId", "an account"))
        why = delivery["tried"][-1]["detail"] if delivery["tried"] else "never tried"
        print(delivery["_id"], rfc3339(delivery["settledAt"]), delivery["kind"], about, why)
    if len(dead) > arguments.limit:
        print(f"and more: see them with --limit, up to {outbox.DEAD_SHOWN_MAX}")
    if not dead:
        print("There are no dead letters.")


async def _show(opened: Database, arguments: argparse.Namespace) -> None:
    delivery = await opened.deliveries.find_one({"_id": arguments.delivery})
    if delivery is None:
        raise Failure(f"There is no delivery {arguments.delivery}.")
    message = await opened.outbox.find_one({"_id": delivery["messageId"]})
    print(json.dumps({"delivery": _plain(delivery), "message": _plain(message)}, indent=2))


def _plain(value: Any) -> Any:
    """A document with its instants as text."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return rfc3339(value) if hasattr(value, "isoformat") else value


async def _requeue(opened: Database, arguments: argparse.Namespace) -> None:
    now = clock.now()
    if arguments.all:
        print(f"{await outbox.requeue_all(opened, now)} requeued")
        return
    wanted: list[str] = list(dict.fromkeys(arguments.deliveries))
    requeued = await outbox.requeue(opened, wanted, now)
    print(f"{requeued} requeued", flush=True)
    if requeued < len(wanted):
        raise Failure(f"{len(wanted) - requeued} of these are no dead letters.")


if __name__ == "__main__":
    database.exit_with(main)
