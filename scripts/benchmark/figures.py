"""What is measured of many requests: rates, percentiles, and who took the processors meanwhile."""

import math
import os
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

Figures = dict[str, float]

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of the values does not exceed; there must be some."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def latencies(seconds: Sequence[float], prefix: str = "") -> Figures:
    """The percentiles one looks at, in milliseconds; none of nothing."""
    if not seconds:
        return {}
    return {
        _named(prefix, name): percentile(seconds, share) * 1_000
        for name, share in (
            ("p50Milliseconds", 0.5),
            ("p95Milliseconds", 0.95),
            ("p99Milliseconds", 0.99),
        )
    }


def _named(prefix: str, name: str) -> str:
    return prefix + name[0].upper() + name[1:] if prefix else name


class Stopwatch:
    """How long something took and how many processors each process was busy with meanwhile."""

    def __init__(self, processes: Mapping[str, Sequence[int]]) -> None:
        self.processes = processes
        self.seconds = 0.0
        self.cores: Figures = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Measure what is done inside."""
        began, own = time.monotonic(), _own_cpu_seconds()
        before = {name: sum(map(cpu_seconds, pids)) for name, pids in self.processes.items()}
        try:
            yield
        finally:
            self.seconds = time.monotonic() - began
            self.cores["coresLoad"] = (_own_cpu_seconds() - own) / self.seconds
            for name, pids in self.processes.items():
                used = sum(map(cpu_seconds, pids)) - before[name]
                self.cores[f"cores{name}"] = used / self.seconds


def _own_cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def cpu_seconds(pid: int) -> float:
    """The processor time a process has taken so far; 0 for one that is gone."""
    try:
        # After the name in brackets, which may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def memory_megabytes(pid: int) -> float:
    """The memory a process has to itself and its share of what it shares; 0 for one gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1_024
