"""How long to wait before something is tried again."""

import random
from datetime import timedelta

FIRST_SECONDS = 5.0
LONGEST_SECONDS = 3_600.0


def pause(
    attempts: int, *, first_seconds: float = FIRST_SECONDS, longest_seconds: float = LONGEST_SECONDS
) -> timedelta:
    """The pause after so many attempts: it doubles each time, to a limit.

    By chance between half of that and the whole, so that what failed together, since a provider
    was down, does not come back together.
    """
    whole = min(first_seconds * 2.0 ** min(max(attempts - 1, 0), 30), longest_seconds)
    return timedelta(seconds=whole * random.uniform(0.5, 1.0))  # noqa: S311
