"""The benchmark in its smallest form: it runs to its end, is right, and leaves nothing behind."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.journeys.conftest import REPOSITORY, plain_environment

SCENARIOS = {
    "raw-single",
    "raw-grouped",
    "raw-confirm",
    "hold-1",
    "hold-4",
    "contention",
    "purchase",
    "availability",
    "dashboard",
    "connections",
    "sell-out",
    "growth",
    "large-events",
    "three-nodes",
}


def bench(*arguments: str | Path, folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [REPOSITORY / "scripts/bench", *arguments],
        env=plain_environment({"TMPDIR": str(folder)}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )


@pytest.mark.timeout(170)
def test_a_smoke_of_the_benchmark_keeps_every_invariant_in_every_scenario(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    done = bench("--smoke", "--json", file, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(file.read_text())
    assert set(report) == {"machine", "scenarios", "mustReach"}
    assert set(report["scenarios"]) == SCENARIOS
    for figures in report["scenarios"].values():
        assert figures
        assert all(isinstance(value, int | float) for value in figures.values())
    for name, bound in report["mustReach"].items():
        assert set(bound) == {"value", "bound", "met"}, name
        assert bound["met"] is True, (name, bound)
    assert report["mustReach"]["invariants broken"]["value"] == 0
    assert report["mustReach"]["sell-out oversold"]["value"] == 0
    assert report["scenarios"]["sell-out"]["seatsSold"] == 160
    assert report["machine"]["cores"] >= 1
    for scenario in SCENARIOS:
        assert f"\n{scenario}\n" in done.stdout
    assert list(tmp_path.iterdir()) == [file]


def test_the_benchmark_tells_how_it_is_used(tmp_path: Path) -> None:
    told = bench("--help", folder=tmp_path)
    assert told.returncode == 0
    assert "example: scripts/bench" in told.stdout
    unknown = bench("--scenario", "nonsense", folder=tmp_path)
    assert unknown.returncode == 2
    assert "nonsense" in unknown.stderr
