"""Run one worker until it is told to stop (SIGTERM or Ctrl-C); what is under way is finished."""

import argparse
import asyncio
import signal
import sys

import uvloop
from pymongo.errors import PyMongoError

from ticketing import mongo
from ticketing.deployment import Unusable
from ticketing.settings import Settings, SettingsError
from ticketing.telemetry import logs, traces
from workers import archive, audit, changes, deliver, payments, release
from workers.metrics import Metrics
from workers.starting import until_usable

UNUSABLE = 3
LOOPS = {
    "release": release.run,
    "changes": changes.run,
    "payments": payments.run,
    "deliver": deliver.run,
    "audit": audit.run,
    "archive": archive.run,
}

EXAMPLES = """examples:
  python -m workers release             free overdue holds and expire their orders
  python -m workers payments            look up payments, send refunds, cancel events' orders
  python -m workers deliver             send mails to fans and webhooks to organisers
  python -m workers audit               check the invariants again and again
  python -m workers archive             move the orders of events long past
  python -m workers changes             keep the dashboards' counters
  python -m workers changes --rebuild   count all events afresh, then exit

exit codes: 0 done or told to stop, 1 the database failed or the port of the metrics is in use,
2 wrong use or settings, 3 the database is the wrong one"""


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m workers",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("worker", choices=[*LOOPS])
    parser.add_argument("--rebuild", action="store_true", help="count afresh and exit (changes)")
    arguments = parser.parse_args()
    if arguments.rebuild and arguments.worker != "changes":
        parser.error("--rebuild goes with changes")
    try:
        settings = Settings.from_environment()
        logs.begin(as_json=settings.mode == "production")
        traces.begin(f"ticketing-{arguments.worker}", settings.otlp_endpoint)
        return uvloop.run(_run(settings, arguments.worker, rebuild=arguments.rebuild))
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    except Unusable as unusable:
        print(unusable, file=sys.stderr)
        return UNUSABLE
    except PyMongoError as error:
        print(f"The database failed: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"TICKETING_METRICS_PORT can't be used: {error.strerror}.", file=sys.stderr)
        return 1
    finally:
        traces.end()


async def _run(settings: Settings, worker: str, *, rebuild: bool) -> int:
    if rebuild:
        print(f"Counted {await changes.rebuild(settings)} events afresh.")
        return 0
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    client = await mongo.connect(settings)
    try:
        await until_usable(client.database, stopping)
    finally:
        await client.close()
    metrics = Metrics(worker)
    metrics.serve(settings)
    await LOOPS[worker](settings, metrics, stopping)
    return 0


if __name__ == "__main__":
    sys.exit(main())
