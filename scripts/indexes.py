"""`scripts/indexes plan|apply|verify`: `python -m indexes` on the database meant."""

import argparse
import os
import sys

from scripts import database


def main() -> int:
    """Become `python -m indexes`, with `--data DIR` turned into its connection string."""
    parser = argparse.ArgumentParser(
        prog="scripts/indexes", add_help=False, allow_abbrev=False, usage=argparse.SUPPRESS
    )
    database.add_data_argument(parser)
    arguments, rest = parser.parse_known_args()
    environment = dict(os.environ)
    if {"-h", "--help"} & set(rest):
        print(
            "scripts/indexes [--data DIR] works on the set that scripts/run has running in DIR.\n"
        )
        sys.stdout.flush()
    else:
        environment["TICKETING_MONGODB_URI"] = database.uri(arguments.data)
    command = [sys.executable, "-m", "indexes", *rest]
    os.execve(command[0], command, environment)  # noqa: S606 - no shell is the point


if __name__ == "__main__":
    # As `python -m indexes` has it: 1 is for a difference, 2 for a database that can't be asked.
    database.exit_with(main, failed=2)
