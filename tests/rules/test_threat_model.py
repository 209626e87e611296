"""Each line of the threat model names a test that there is."""

import re
from pathlib import Path

from indexes.validators import VALIDATORS

REPOSITORY = Path(__file__).parent.parent.parent
WHO = {
    "scalper",
    "curious fan",
    "dishonest organiser",
    "stolen gate device",
    "leaked database copy",
}


def rows_of(page: str, heading: str) -> list[list[str]]:
    """The cells of the table under a heading, without its head."""
    text = (REPOSITORY / "docs" / f"{page}.md").read_text().partition(f"## {heading}\n")[2]
    lines = text.partition("\n## ")[0].splitlines()
    rows = [line.strip("|").split("|") for line in lines if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_each_line_of_the_threat_model_names_a_test() -> None:
    rows = rows_of("security", "Threat model")
    assert {row[0] for row in rows} >= WHO
    for who, wish, stopped_by, shown_by in rows:
        assert who
        assert wish
        assert stopped_by
        named = re.fullmatch(r"`(tests/[\w/]+\.py)::(test_\w+)`", shown_by)
        assert named, shown_by
        assert f"def {named[2]}(" in (REPOSITORY / named[1]).read_text(), shown_by


def test_each_collection_with_personal_data_is_one_of_ours_and_says_how_long_it_is_kept() -> None:
    rows = rows_of("privacy", "What is held")
    for where, what, purpose, kept in rows:
        assert where.strip("`") in VALIDATORS
        assert what
        assert purpose
        assert kept
