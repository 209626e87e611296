"""`scripts/drill`: break things under a running sale, and prove that nothing was lost."""

import argparse
import asyncio
import contextlib
import json
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from scripts import database
from scripts.database import Failure
from scripts.drills import history
from scripts.drills.deployment import Deployment, until
from scripts.drills.fans import Crowd
from scripts.drills.faults import DRILLS, Drill, Observed
from scripts.drills.history import Figures
from scripts.replica_set import ReplicaSet
from ticketing import invariants
from ticketing.mongo import Document

FANS = 24
BEFORE_SECONDS = 2.0
AFTER_SECONDS = 3.0
LAST_ANSWERS_SECONDS_MAX = 60.0
SETTLE_SECONDS_MAX = 60.0
# The operation's own limit, twice where an answer has two operations, and what a busy machine adds.
ANSWER_SECONDS_MAX = 20.0
SHOWN_PROBLEMS_MAX = 20
DRILL_SECONDS_MAX = 240.0


@dataclass(frozen=True)
class Verdict:
    """One drill and what came of it."""

    drill: str
    figures: Figures
    takeover_seconds: dict[str, float]
    problems: list[str]


async def _drill(deployment: Deployment, name: str, drill: Drill, seed: int) -> Verdict:
    event = await deployment.put_on_sale()
    crowd = Crowd(deployment.settings, deployment.addresses, event, seed)
    buying = asyncio.create_task(crowd.buy(FANS))
    observed = Observed()
    try:
        await asyncio.sleep(BEFORE_SECONDS)
        await drill.act(deployment, observed)
        await asyncio.sleep(AFTER_SECONDS)
        crowd.is_over = True
        await asyncio.wait_for(buying, LAST_ANSWERS_SECONDS_MAX)
    except Failure as failure:
        observed.problems.append(str(failure))
        await deployment.mend()
    except TimeoutError:
        observed.problems.append("Some fans never got an answer.")
    finally:
        buying.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({buying})
    figures = history.figures(crowd.purchases, observed.fault_at)
    problems = [
        *observed.problems,
        *_judged_times(drill, figures),
        *await _judged_data(deployment, event, crowd),
    ]
    return Verdict(name, figures, observed.takeover_seconds, problems)


def _judged_times(drill: Drill, figures: Figures) -> list[str]:
    problems = []
    if figures.recovery_seconds > drill.recovery_seconds_max:
        problems.append(f"selling again only after {figures.recovery_seconds:.1f} s")
    if figures.gap_seconds > drill.recovery_seconds_max:
        problems.append(f"nobody got a hold for {figures.gap_seconds:.1f} s")
    if figures.answer_seconds_max > ANSWER_SECONDS_MAX:
        problems.append(f"a fan waited {figures.answer_seconds_max:.1f} s for an answer")
    if figures.faults:
        problems.append(f"{figures.faults} answers were faults of ours (5xx, but not 503)")
    if not drill.is_disturbing and figures.unavailable + figures.no_answer:
        problems.append("fans noticed what they should not have")
    if drill.must_be_unavailable and not figures.unavailable:
        problems.append("nobody was told to try again")
    return problems


async def _judged_data(deployment: Deployment, event: Document, crowd: Crowd) -> list[str]:
    """What the database contradicts, once the counters have followed."""

    async def settled() -> bool:
        return not await invariants.counter_differences(deployment.database, event)

    problems = []
    try:
        await until(settled, SETTLE_SECONDS_MAX, "The counters did not follow the sale.")
    except Failure as failure:
        problems.append(str(failure))
    found = await history.read(deployment.database, event["_id"], crowd.purchases)
    problems += history.judge(crowd.purchases, found)
    for finding in await invariants.check_all(deployment.database):
        problems.append(f"{finding.rule}: {finding.detail}")
    return problems


async def _all(folder: Path, names: list[str], seed: int) -> list[Verdict]:
    verdicts = []
    _say("starting three nodes, two API processes and two of each worker")
    replica_set = ReplicaSet(folder, 3)
    try:
        await asyncio.to_thread(replica_set.start)
        async with Deployment(replica_set) as deployment:
            for name in names:
                drill = DRILLS[name]
                _say(f"{name}: {drill.proves}")
                async with asyncio.timeout(DRILL_SECONDS_MAX):
                    verdict = await _drill(deployment, name, drill, seed)
                verdicts.append(verdict)
                for problem in verdict.problems[:SHOWN_PROBLEMS_MAX]:
                    _say(f"  {problem}")
    finally:
        await asyncio.to_thread(replica_set.stop)
    return verdicts


def _table(verdicts: list[Verdict]) -> str:
    heads = ("drill", "asked", "done", "no", "503", "unanswered", "back", "gap", "slowest", "lost")
    rows: list[tuple[str, ...]] = [heads]
    for verdict in verdicts:
        its = verdict.figures
        lost = sum("LOST" in problem for problem in verdict.problems)
        rows.append(
            (
                verdict.drill,
                *map(str, (its.requests, its.acknowledged, its.refused, its.unavailable)),
                str(its.no_answer),
                f"{its.recovery_seconds:.1f} s",
                f"{its.gap_seconds:.1f} s",
                f"{its.answer_seconds_max:.1f} s",
                str(lost),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    lines = []
    outcomes = ["", *("FAILED" if verdict.problems else "passed" for verdict in verdicts)]
    for row, outcome in zip(rows, outcomes, strict=True):
        cells = [
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(f"{'  '.join(cells)}  {outcome}".rstrip())
    for verdict in verdicts:
        for what, seconds in verdict.takeover_seconds.items():
            lines.append(f"{verdict.drill}: {what} taken over after {seconds:.1f} s")
        lines += [f"{verdict.drill}: {each}" for each in verdict.problems[:SHOWN_PROBLEMS_MAX]]
    return "\n".join(lines)


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def _chosen(arguments: argparse.Namespace) -> list[str]:
    if arguments.drill:
        return list(dict.fromkeys(arguments.drill))
    return [name for name, drill in DRILLS.items() if drill.is_quick or not arguments.quick]


def _stop(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """0 when every drill passed, else 1."""
    parser = argparse.ArgumentParser(
        prog="scripts/drill",
        description="Kill and stop nodes, API processes and workers under a running sale, on a"
        " replica set of three nodes of its own. Every request and answer is kept and held against"
        " the database afterwards: what was acknowledged is there, what was refused left nothing,"
        " and all invariants hold.",
        epilog="example: scripts/drill --drill kill-primary --drill kill-api --json drill.json\n"
        "\nexit codes: 0 every drill passed, 1 one failed, 2 wrong use",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="only those that take little time")
    parser.add_argument(
        "--drill", action="append", choices=sorted(DRILLS), metavar="NAME", help="only this one"
    )
    parser.add_argument("--list", action="store_true", help="tell what each drill proves")
    parser.add_argument("--seed", type=int, default=1, help="what fans do by chance (default 1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    arguments = parser.parse_args()
    if arguments.list:
        for name, drill in DRILLS.items():
            print(f"{name:16} {drill.proves}{' (quick)' if drill.is_quick else ''}")
        return 0
    signal.signal(signal.SIGTERM, _stop)
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="ticketing-drill-"))
    failed = True
    try:
        verdicts = asyncio.run(_all(folder, _chosen(arguments), arguments.seed))
        failed = any(verdict.problems for verdict in verdicts)
    finally:
        if failed:
            _say(f"The nodes' data and all logs are kept in {folder}.")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print(_table(verdicts))
    print(f"{len(verdicts)} drills in {time.monotonic() - began:.0f} s")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(verdict) for verdict in verdicts], indent=2))
    return 1 if failed else 0


if __name__ == "__main__":
    database.exit_with(main)
