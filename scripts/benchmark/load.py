"""The process that makes a load: `python -m scripts.benchmark.load JOB OUTCOME`."""

import sys
from pathlib import Path

import msgspec
import uvloop

from scripts.benchmark.fans import Contend, Hold, Purchase, SellOut
from scripts.benchmark.figures import Stopwatch
from scripts.benchmark.loads import Outcome
from scripts.benchmark.raw import RawConfirm, RawGrouped, RawSingle
from scripts.benchmark.watchers import Availability, Connected, DashboardLag
from ticketing.settings import Settings

AnyLoad = (
    Availability
    | Connected
    | Contend
    | DashboardLag
    | Hold
    | Purchase
    | RawConfirm
    | RawGrouped
    | RawSingle
    | SellOut
)


class Job(msgspec.Struct):
    """A load and the processes whose share of the machine is measured meanwhile."""

    load: AnyLoad
    processes: dict[str, list[int]]


async def _run(job: Job) -> Outcome:
    stopwatch = Stopwatch(job.processes)
    outcome = await job.load.run(Settings.from_environment(), stopwatch)
    outcome.figures |= stopwatch.cores | {"seconds": stopwatch.seconds}
    return outcome


def main() -> None:
    """Do the job."""
    given, result = map(Path, sys.argv[1:])
    job = msgspec.json.decode(given.read_bytes(), type=Job)
    result.write_bytes(msgspec.json.encode(uvloop.run(_run(job))))


if __name__ == "__main__":
    main()
