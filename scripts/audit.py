"""`scripts/audit`: what must always be true, checked on the live database."""

import argparse
import asyncio

from pymongo.errors import PyMongoError

from scripts import database
from ticketing import clock, invariants, mongo
from ticketing.invariants import Attention, Finding
from ticketing.settings import Settings

_SHOWN_MAX = 100


def main() -> int:
    """Print every break; 0 when there is none, else 1."""
    parser = argparse.ArgumentParser(
        prog="scripts/audit",
        description="Check on the live database what must always be true: every sold seat is in"
        " exactly one confirmed order, the counters equal a recount, and so on. What breaks no rule"
        " but waits for a person, such as a notice of an unknown payment, is listed as well.",
        epilog="Exit code 0: nothing is broken. 1: something is, or the check could not be made.",
    )
    database.add_data_argument(parser)
    settings = database.settings(parser.parse_args().data)
    try:
        findings, waiting = asyncio.run(_check(settings))
    except PyMongoError as error:
        raise database.failure(error) from None
    for finding in findings[:_SHOWN_MAX]:
        print(f"{finding.rule}: {finding.detail}")
    if len(findings) > _SHOWN_MAX:
        print(f"and {len(findings) - _SHOWN_MAX} more")
    for matter in waiting[:_SHOWN_MAX]:
        print(f"For a person: {matter.what}: {matter.detail}")
    print(f"{len(findings)} broken" if findings else "All invariants hold.", flush=True)
    return 1 if findings else 0


async def _check(settings: Settings) -> tuple[list[Finding], list[Attention]]:
    # Reading everything takes as long as it takes, so no operation has a time limit.
    client = await mongo.connect(settings, operation_timeout_ms=None)
    try:
        findings = await invariants.check_all(client.database)
        return findings, await invariants.attention(client.database, clock.now())
    finally:
        await client.close()


if __name__ == "__main__":
    database.exit_with(main)
