"""What came of a run: figures by scenario, and whether what must be reached was."""

import importlib.metadata
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from scripts.benchmark.figures import Figures

_CORES = "cores"


@dataclass(frozen=True)
class Bound:
    """A figure and what it must reach."""

    value: float
    bound: float
    comparison: str
    """`>=`, `<` or `<=`: how the value must stand to the bound."""

    @property
    def met(self) -> bool:
        """Whether it is reached."""
        match self.comparison:
            case ">=":
                return self.value >= self.bound
            case "<":
                return self.value < self.bound
            case _:
                return self.value <= self.bound


@dataclass
class Report:
    """Gathers what the scenarios measure."""

    machine: dict[str, Any]
    judges_times: bool = True
    """A smoke run is far too short for its times to mean anything."""
    scenarios: dict[str, Figures] = field(default_factory=dict)
    must_reach: dict[str, Bound] = field(default_factory=dict)

    def add(self, scenario: str, rounds: Sequence[Figures]) -> None:
        """The figures of a scenario: of several rounds each figure's median."""
        names = rounds[0].keys()
        known = self.scenarios.setdefault(scenario, {})
        known |= {
            name: median(figures[name] for figures in rounds if name in figures) for name in names
        }

    def time_must(self, name: str, value: float, comparison: str, bound: float) -> None:
        """A figure of time or rate that must be reached."""
        if self.judges_times:
            self.truth_must(name, value, comparison, bound)

    def truth_must(self, name: str, value: float, comparison: str, bound: float) -> None:
        """A figure that must be reached however short the run."""
        self.must_reach[name] = Bound(value, bound, comparison)

    @property
    def unmet(self) -> list[str]:
        """What must be reached and was not."""
        return [name for name, bound in self.must_reach.items() if not bound.met]

    def for_machines(self) -> dict[str, Any]:
        """The whole report as JSON has it."""
        return {
            "machine": self.machine,
            "scenarios": {
                scenario: {name: round(value, 4) for name, value in figures.items()}
                for scenario, figures in self.scenarios.items()
            },
            "mustReach": {
                name: {"value": round(bound.value, 4), "bound": bound.bound, "met": bound.met}
                for name, bound in self.must_reach.items()
            },
        }

    def _cores(self, figures: Figures) -> str:
        """Which processes took the processors, the load's own share of the machine last."""
        took = {n.removeprefix(_CORES): v for n, v in figures.items() if n.startswith(_CORES)}
        if not took:
            return ""
        share = took.pop("Load") / self.machine["cores"]
        others = ", ".join(f"{name} {value:.2f}" for name, value in took.items())
        return f"  cores busy: {others}; the load itself took {share:.0%} of the machine"

    def for_people(self) -> str:
        """The whole report as a table."""
        lines = ["", "Measured on: " + ", ".join(f"{k} {v}" for k, v in self.machine.items()), ""]
        for scenario, figures in self.scenarios.items():
            lines.append(scenario)
            shown = [
                f"{name:<28}{value:>12,.{_decimals(value)}f}"
                for name, value in figures.items()
                if not name.startswith(_CORES)
            ]
            lines += [
                "  " + "   ".join(shown[first : first + 3]) for first in range(0, len(shown), 3)
            ]
            if busy := self._cores(figures):
                lines.append(busy)
        lines += ["", f"{'must reach':<46}{'value':>12}    {'bound':>9}"]
        for name, bound in self.must_reach.items():
            value = f"{bound.value:,.{_decimals(bound.value)}f}"
            end = "" if bound.met else "   NOT MET"
            lines.append(f"{name:<46}{value:>12} {bound.comparison:>2} {bound.bound:>9,g}{end}")
        return "\n".join(lines)


def _decimals(value: float) -> int:
    if value == int(value):
        return 0
    return 2 if abs(value) < 100 else 0


def machine(mongodb: str) -> dict[str, Any]:
    """What the figures were measured on."""
    cpu = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    packages = ("pymongo", "uvicorn", "httptools", "litestar", "uvloop", "msgspec")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": cpu,
        "memoryMegabytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20,
        "loadAverageAtStart": round(os.getloadavg()[0], 2),
        "system": platform.platform(),
        "python": platform.python_version(),
        "mongodb": mongodb,
        "nodes": 1,
        **{name: importlib.metadata.version(name) for name in packages},
    }
