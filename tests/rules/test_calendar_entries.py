"""A calendar entry is what RFC 5545 says, whatever people called their event."""

from datetime import UTC, datetime
from typing import Any

import pytest
import vobject
from hypothesis import given
from hypothesis import strategies as st

from ticketing import events, handouts

CONFIRMED_AT = datetime(2030, 6, 1, 12, 0, 0, 5000, tzinfo=UTC)


def order(**show: Any) -> dict[str, Any]:
    return {
        "_id": "ord_" + "ab" * 16,
        "reference": "7KQ2M9XR",
        "confirmedAt": CONFIRMED_AT,
        "event": {
            "name": "The Last Waltz",
            "venueName": "Winterland",
            "timezone": "Europe/Berlin",
            "startsAt": datetime(2030, 7, 1, 18, 30, tzinfo=UTC),
        }
        | show,
        "tickets": [
            {"section": "A", "row": "1", "number": "7"},
            {"section": "Floor", "row": None, "number": None},
        ],
    }


def lines(content: bytes) -> list[str]:
    """The content's lines, unfolded. Fails for octets that a calendar may not have."""
    assert content.endswith(b"\r\n")
    folded = content[:-2].split(b"\r\n")
    assert all(b"\r" not in line and b"\n" not in line for line in folded)
    assert all(len(line) <= 75 for line in folded)
    for line in folded:
        line.decode()  # A character cut in two would not decode.
    return content.decode().replace("\r\n ", "").splitlines()


def test_the_entry_speaks_german_to_whoever_does() -> None:
    (description,) = [
        line for line in lines(handouts.calendar(order(), "de")) if line.startswith("DESCRIPTION")
    ]
    places = "Bereich A · Reihe 1 · Platz 7\\nBereich Floor"
    expected = f"Bestellung 7KQ2M9XR\\n{places}\\nBeginn um 20:30 Uhr (Europe/Berlin)"
    assert description == f"DESCRIPTION:{expected}"


def test_the_entry_says_what_and_where_and_when() -> None:
    places = "Section A · Row 1 · Seat 7\\nSection Floor"
    description = f"Order 7KQ2M9XR\\n{places}\\nStarts at 20:30 (Europe/Berlin)"
    assert lines(handouts.calendar(order(), "en")) == [
        "BEGIN:VCALENDAR",
        "VERSION:2.0",
        "PRODID:-//Ticketing//Tickets//EN",
        "BEGIN:VEVENT",
        "SUMMARY:The Last Waltz",
        "DTSTART:20300701T183000Z",
        "DTSTAMP:20300601T120000Z",
        f"UID:ord_{'ab' * 16}@ticketing",
        f"DESCRIPTION:{description}",
        "LOCATION:Winterland",
        "STATUS:CONFIRMED",
        "END:VEVENT",
        "END:VCALENDAR",
    ]


def test_the_same_order_gives_the_same_entry_again() -> None:
    assert handouts.calendar(order(), "en") == handouts.calendar(order(), "en")


# What the product takes for a name: no control characters, trimmed. The library takes a backslash
# before a capital N for a line feed when it writes: a name with those two has a line break there.
names = (
    st.text(min_size=1, max_size=200)
    .map(events.label)
    .filter(lambda name: events.text_fault(name, 200) is None and "\\N" not in name)
)


@given(name=names, venue=names)
def test_any_name_comes_back_as_it_was_by_another_reader(name: str, venue: str) -> None:
    content = handouts.calendar(order(name=name, venueName=venue), "en")
    lines(content)
    [entry] = list(vobject.readComponents(content.decode()))
    assert entry.vevent.summary.value == name
    assert entry.vevent.location.value == venue
    assert entry.vevent.dtstart.value == datetime(2030, 7, 1, 18, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    "name",
    [
        "a;b,c\\d\\n",
        "Zoë 李 O'Brien <script>",
        "END:VEVENT",
        "漢" * 200,
        "👩\u200d🎤" * 60,
        "ليلة العمر",
        '"quoted": x',
    ],
)
def test_a_name_of_this_kind_comes_back(name: str) -> None:
    content = handouts.calendar(order(name=name), "en")
    assert lines(content).count("END:VEVENT") == 1
    assert vobject.readOne(content.decode()).vevent.summary.value == name
