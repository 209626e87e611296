"""What an organiser sends is checked whole, and each fault names its path."""

from datetime import timedelta

import pytest

from tests.conftest import NOW, new_event
from ticketing import events
from ticketing.errors import Invalid
from ticketing.events import PriceCategory, Row, Section


def faults(**changes: object) -> list[str]:
    with pytest.raises(Invalid) as refused:
        events.checked(new_event(**changes))
    return [path for path, _ in refused.value.errors]


def numbered(*seats: str) -> list[Section]:
    return [Section("A", "Front", rows=[Row("1", seats=list(seats))])]


def test_sections_follow_each_other_in_the_plan() -> None:
    event = events.checked(new_event())
    assert [(s["firstOrdinal"], s["seatCount"]) for s in event["sections"]] == [(0, 20), (20, 20)]
    assert event["seatCount"] == 40


def test_labels_are_opaque_trimmed_and_normalised() -> None:
    event = events.checked(
        new_event(sections=numbered(" 1", "01", "0", "00", "AA", "Zoe\u0308", "👩\u200d🎤"))
    )
    assert event["sections"][0]["rows"][0]["seats"] == [
        "1",
        "01",
        "0",
        "00",
        "AA",
        "Zoë",
        "👩\u200d🎤",
    ]


@pytest.mark.parametrize("twin", ["1", " 1 ", "\N{FULLWIDTH DIGIT ONE}", "1\u200b"])
def test_labels_that_look_the_same_are_refused(twin: str) -> None:
    assert faults(sections=numbered("2", "1", twin)) == ["sections[0].rows[0].seats[2]"]


@pytest.mark.parametrize(
    "label", ["", "  ", "\u200b", "a\x00b", "a\tb", "a\nb", "a\u2028b", "x" * 41]
)
def test_labels_that_cannot_be_read_are_refused(label: str) -> None:
    assert faults(sections=numbered("1", label)) == ["sections[0].rows[0].seats[1]"]


def test_names_are_unique_within_their_parent_only() -> None:
    assert faults(
        sections=[Section("A", "Rear", capacity=1), Section("a", "Rear", capacity=1)]
    ) == ["sections[1].name"]
    rows = [Row("1", count=2), Row("1", count=2)]
    assert faults(sections=[Section("A", "Rear", rows=rows)]) == ["sections[0].rows[1].name"]
    twice = [PriceCategory("Front", 1), PriceCategory("Rear", 1), PriceCategory("rear", 1)]
    assert faults(price_categories=twice) == ["priceCategories[2].name"]


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"currency": "EUX"}, "currency"),
        ({"currency": "eur"}, "currency"),
        ({"timezone": "Europe/Atlantis"}, "timezone"),
        ({"timezone": "../etc/passwd"}, "timezone"),
        ({"sale_ends_at": NOW - timedelta(days=1)}, "saleEndsAt"),
        ({"name": "  "}, "name"),
        ({"category": ""}, "category"),
        ({"max_seats_per_fan": 0}, "maxSeatsPerFan"),
        ({"sections": []}, "sections"),
        ({"sections": [Section("A", "Front")]}, "sections[0]"),
        ({"sections": [Section("A", "Front", rows=[], capacity=1)]}, "sections[0]"),
        ({"sections": [Section("A", "Front", rows=[])]}, "sections[0].rows"),
        (
            {"sections": [Section("A", "Front", rows=[Row("1", count=0)])]},
            "sections[0].rows[0].count",
        ),
        (
            {"sections": [Section("A", "Front", rows=[Row("1", seats=[])])]},
            "sections[0].rows[0].seats",
        ),
        ({"sections": [Section("A", "Front", rows=[Row("1")])]}, "sections[0].rows[0]"),
        ({"sections": [Section("A", "Front", capacity=0)]}, "sections[0].capacity"),
        ({"sections": [Section("A", "Front", capacity=-5)]}, "sections[0].capacity"),
        ({"sections": [Section("A", "Gold", capacity=1)]}, "sections[0].priceCategory"),
        ({"sections": [Section("A", "Front", capacity=80_001)]}, "sections[0]"),
        ({"sections": [Section("A", "Front", capacity=10**30)]}, "sections[0]"),
    ],
)
def test_each_fault_names_its_path(changes: dict[str, object], path: str) -> None:
    assert faults(**changes) == [path]


def test_eighty_thousand_seats_are_allowed() -> None:
    assert events.checked(new_event(sections=[Section("A", "Front", capacity=80_000)]))


def test_search_words_have_no_case_accents_or_punctuation() -> None:
    assert events.search_words("Beyoncé & Jay-Z: STRASSE Straße") == [
        "beyonce",
        "jay",
        "z",
        "strasse",
    ]


def test_an_event_has_so_many_sections_and_no_more() -> None:
    sections = [Section(f"S{n}", "Front", capacity=1) for n in range(1_001)]
    assert events.checked(new_event(sections=sections[:1_000]))
    assert faults(sections=sections) == ["sections"]
