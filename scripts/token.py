"""A token for trying the API: `scripts/token --role fan --subject fan_x`."""

import argparse
import contextlib

from scripts import database
from ticketing import access_tokens, clock
from ticketing.settings import Settings

ROLES = ("fan", "organiser", "admin")
HOURS_MAX = 87_600  # ten years


def make(settings: Settings, *, role: str, subject: str, hours: float = 12) -> str:
    """A signed token as the API accepts it."""
    return access_tokens.issue(
        settings, subject=subject, role=role, now=clock.now(), valid_seconds=hours * 3_600
    )


def _hours(text: str) -> float:
    with contextlib.suppress(ValueError):
        hours = float(text)
        if 0 < hours <= HOURS_MAX:  # NaN is neither.
            return hours
    raise argparse.ArgumentTypeError(f"must be a number above 0 and at most {HOURS_MAX}")


def _subject(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("must not be empty")
    return text


def main() -> int:
    """Print a token alone."""
    parser = argparse.ArgumentParser(
        prog="scripts/token", description="Print a token (JWT) for trying the API."
    )
    parser.add_argument("--role", required=True, choices=ROLES)
    parser.add_argument(
        "--subject", required=True, type=_subject, help="whose it is, for example fan_ada"
    )
    parser.add_argument(
        "--hours", type=_hours, default=12, help="how long it is valid (default 12)"
    )
    arguments = parser.parse_args()
    settings = Settings.from_environment()
    print(
        make(settings, role=arguments.role, subject=arguments.subject, hours=arguments.hours),
        flush=True,
    )
    return 0


if __name__ == "__main__":
    database.exit_with(main)
