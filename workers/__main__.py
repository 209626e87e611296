"""Run one worker until it is told to stop (SIGTERM or Ctrl-C); what is under way is finished."""

import argparse
import asyncio
import logging
import signal
import sys

import uvloop
from pymongo.errors import PyMongoError

from ticketing.settings import Settings, SettingsError
from workers import changes, deliver, payments, release

EXAMPLES = """examples:
  python -m workers release             free overdue holds and expire their orders
  python -m workers payments            look up payments, send refunds, cancel events' orders
  python -m workers deliver             send mails to fans and webhooks to organisers
  python -m workers changes             keep the dashboards' counters
  python -m workers changes --rebuild   count all events afresh, then exit

exit codes: 0 done or told to stop, 1 the database failed, 2 wrong use or settings"""


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m workers",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("worker", choices=["release", "changes", "payments", "deliver"])
    parser.add_argument("--rebuild", action="store_true", help="count afresh and exit (changes)")
    arguments = parser.parse_args()
    if arguments.rebuild and arguments.worker != "changes":
        parser.error("--rebuild goes with changes")
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
    )
    # While the database is away a sweep outlasts its interval, and the scheduler warns each time
    # that it left one out. That is as it should be, and the worker tells of the outage itself.
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    # It would log every address it asks, and a webhook's may have a secret in it.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        settings = Settings.from_environment()
        return uvloop.run(_run(settings, arguments.worker, rebuild=arguments.rebuild))
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    except PyMongoError as error:
        print(f"The database failed: {error}", file=sys.stderr)
        return 1


async def _run(settings: Settings, worker: str, *, rebuild: bool) -> int:
    if rebuild:
        print(f"Counted {await changes.rebuild(settings)} events afresh.")
        return 0
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    loops = {
        "release": release.run,
        "changes": changes.run,
        "payments": payments.run,
        "deliver": deliver.run,
    }
    await loops[worker](settings, stopping)
    return 0


if __name__ == "__main__":
    sys.exit(main())
