"""`scripts/bench`: start everything, run the scenarios, check the invariants, tell the outcome."""

import argparse
import json
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from pymongo import MongoClient

from scripts import database
from scripts.benchmark import growing, selling, watching
from scripts.benchmark.report import Report, machine
from scripts.benchmark.run import Run
from scripts.benchmark.sizes import FULL, QUICK, SMOKE, Sizes
from scripts.benchmark.stage import Stage, own_replica_set
from scripts.database import Failure
from ticketing.mongo import Document

# On the one stage that all of them share, in this order.
_ON_STAGE: dict[str, Callable[[Run], object]] = {
    "raw-single": Run.raw_single,
    "raw-grouped": Run.raw_grouped,
    "raw-confirm": Run.raw_confirm,
    "hold-1": selling.hold_one_seat,
    "hold-4": selling.hold_four_seats,
    "contention": selling.contention,
    "purchase": selling.whole_purchase,
    "availability": watching.availability,
    "dashboard": watching.dashboard,
    "connections": watching.connections,
    "sell-out": selling.sell_out,
}
# These measure themselves what they compare with.
_REFERENCES = ("raw-single", "raw-grouped", "raw-confirm")
SCENARIOS = (*_ON_STAGE, "growth", "large-events", "three-nodes")
_SPARE_DESCRIPTORS = 500


def _measure(names: list[str], sizes: Sizes, *, judges_times: bool) -> Report:
    with own_replica_set() as replica_set:
        with MongoClient[Document](replica_set.uri) as client:
            report = Report(machine(client.server_info()["version"]), judges_times)
        with Stage(replica_set, "bench") as stage:
            run = Run(stage, sizes, report)
            for name, scenario in _ON_STAGE.items():
                if name in names:
                    scenario(run)
            run.say("checking the invariants")
            findings = stage.findings()
            for finding in findings:
                run.say(f"broken: {finding.rule}: {finding.detail}")
            report.truth_must("invariants broken", len(findings), "<=", 0)
        if "growth" in names:
            growing.growth(run, replica_set)
        if "large-events" in names:
            growing.large_events(run, replica_set)
    if "three-nodes" in names:
        growing.three_nodes(run)
    return report


def _chosen(given: list[str]) -> list[str]:
    names = list(dict.fromkeys(given or SCENARIOS))
    measured_anyway = {"hold-1", "hold-4", "purchase"} <= set(names)
    return [name for name in names if not (measured_anyway and name in _REFERENCES)]


def _raise_descriptor_limit(needed: int) -> None:
    """Let this process and its children open enough sockets; they inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise Failure(
                f"{needed} open files are needed and {hard} are allowed: raise the limit"
                f" (ulimit -Hn {needed}), or choose other scenarios with --scenario."
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """0 when everything that must be reached was reached, else 1."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measure a flash sale: starts a replica set and the service of its own, loads"
        " them over loopback, checks the invariants, and compares with what the driver alone can"
        " do on the same machine in the same minutes.",
        epilog="example: scripts/bench --scenario hold-1 --scenario purchase --json figures.json\n"
        "\nExit code 0: all that must be reached was reached. 1: something was not.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="the same shape in under two minutes")
    size.add_argument(
        "--smoke",
        action="store_true",
        help="tiny: checks that everything works and the invariants hold, judges no times",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there, too")
    parser.add_argument(
        "--scenario",
        action="append",
        default=[],
        choices=SCENARIOS,
        metavar="NAME",
        help="only this one; may be given again. One of: " + ", ".join(SCENARIOS),
    )
    arguments = parser.parse_args()
    sizes = SMOKE if arguments.smoke else QUICK if arguments.quick else FULL
    # A plain exception ends every `with`, so that whatever was started is stopped.
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGHUP, _stop)
    names = _chosen(arguments.scenario)
    if "connections" in names:
        _raise_descriptor_limit(sizes.connections + _SPARE_DESCRIPTORS)
    report = _measure(names, sizes, judges_times=not arguments.smoke)
    print(report.for_people(), flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(report.for_machines(), indent=2) + "\n")
    for name in report.unmet:
        print(f"not met: {name}", file=sys.stderr)
    return 1 if report.unmet else 0


if __name__ == "__main__":
    database.exit_with(main)
