"""What every load has: a bound in time, and an outcome."""

from typing import Any

import msgspec

from scripts.benchmark.figures import Figures


class Outcome(msgspec.Struct, rename="camel"):
    """What a load measured, and what there is to check against the database afterwards."""

    figures: Figures
    evidence: dict[str, Any] = {}


class Load(msgspec.Struct, tag=True, kw_only=True):
    """Something done to the service or the database, told so that another process can do it.

    Each has `run(settings, stopwatch)`, which prepares and then does it inside
    `stopwatch.running()`; `load.AnyLoad` names them all.
    """

    seconds_max: float = 60.0
