"""The drills that take little time, on three real nodes, as a person runs them."""

import json
import subprocess
from pathlib import Path

import pytest

from scripts.database import REPOSITORY
from scripts.drills.faults import DRILLS

SECONDS_MAX = 400


@pytest.mark.timeout(SECONDS_MAX + 30)
def test_the_quick_drills_pass_from_one_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = tmp_path / "drills.json"
    ended = subprocess.run(
        [REPOSITORY / "scripts" / "drill", "--quick", "--json", figures],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    with capsys.disabled():
        print(f"\n{ended.stdout}")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    verdicts = json.loads(figures.read_text())
    assert [verdict["drill"] for verdict in verdicts] == [
        name for name, drill in DRILLS.items() if drill.is_quick
    ]
    for verdict in verdicts:
        assert verdict["problems"] == []
        assert verdict["figures"]["acknowledged"] > 0
