"""The best seats adjoin, leave nobody alone, and are chosen apart when fans collide."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from ticketing import adjoining


def plan(*rows: str) -> list[adjoining.Place]:
    """Rows drawn as `.` for a free seat and `x` for a taken one; seats are named `row:place`."""
    return [
        (f"{row}:{place}", row, mark == ".")
        for row, marks in enumerate(rows)
        for place, mark in enumerate(marks)
    ]


def choose(places: list[adjoining.Place], quantity: int, spread: int = 0) -> list[str]:
    return adjoining.choose(places, quantity, spread=spread, rng=Random(1))


def test_the_first_block_that_fits_is_the_best() -> None:
    assert choose(plan("xx..", "....", "...."), 4) == ["1:0", "1:1", "1:2", "1:3"]


def test_a_choice_that_leaves_a_single_seat_alone_is_avoided() -> None:
    # Of five, the middle three would leave two singles and the first four one.
    assert choose(plan("....."), 3) == ["0:0", "0:1", "0:2"]
    assert choose(plan(".....", "...."), 4) == ["1:0", "1:1", "1:2", "1:3"]


def test_a_single_seat_is_left_where_there_is_no_other_way() -> None:
    assert len(choose(plan("....."), 4)) == 4


def test_an_existing_single_seat_may_be_bought() -> None:
    assert choose(plan("x.x", "..."), 1) == ["0:1"]


def test_seats_of_two_rows_do_not_adjoin() -> None:
    assert choose(plan("x..", "..x", "xxx", "..."), 3) == ["3:0", "3:1", "3:2"]


def test_without_a_block_the_party_is_split_as_little_as_may_be() -> None:
    assert sorted(choose(plan(".x..x...x."), 5)) == ["0:2", "0:3", "0:5", "0:6", "0:7"]


def test_contenders_part_ways_with_each_attempt() -> None:
    places = plan(*["." * 10] * 4)
    first = {tuple(adjoining.choose(places, 2, spread=0, rng=Random(n))) for n in range(20)}
    later = {tuple(adjoining.choose(places, 2, spread=4, rng=Random(n))) for n in range(20)}
    assert len(first) == 1
    assert len(later) > 5


@given(
    st.lists(st.text(".x", min_size=1, max_size=12), min_size=1, max_size=6),
    st.integers(1, 12),
    st.integers(0, 8),
    st.integers(0, 1000),
)
def test_a_choice_is_always_of_that_many_free_seats(
    rows: list[str], quantity: int, spread: int, seed: int
) -> None:
    places = plan(*rows)
    free = {seat for seat, _, is_free in places if is_free}
    if len(free) < quantity:
        return
    chosen = adjoining.choose(places, quantity, spread=spread, rng=Random(seed))
    assert len(chosen) == len(set(chosen)) == quantity
    assert set(chosen) <= free
    if any("." * quantity in row for row in rows):
        assert len({seat.split(":")[0] for seat in chosen}) == 1
        places_taken = sorted(int(seat.split(":")[1]) for seat in chosen)
        assert places_taken[-1] - places_taken[0] == quantity - 1
