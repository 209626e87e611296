"""A board shows what the seats are: loaded at any moment, moved by records, ahead of them for own
changes, and read anew when the worker that writes the records is down."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import NOW, Sale, asked_of_the_server, put_on_sale
from tests.nouns.test_checkout import hold_seats, notice, ordered, receive
from tests.workers.test_changes import started, worker
from ticketing import boards, checkout, dashboards, holds, seats
from ticketing.boards import Board, Boards
from ticketing.errors import NotFound, Refusal
from ticketing.holds import Hold, HoldRequest, NotEnoughSeats
from ticketing.mongo import Database, Document
from ticketing.settings import Settings

EVENT: Document = {
    "_id": "evt_x",
    "seatCount": 12,
    "sections": [
        {
            "name": "A",
            "firstOrdinal": 0,
            "seatCount": 8,
            "rows": [{"count": 5}, {"seats": list("abc")}],
        },
        {"name": "Floor", "firstOrdinal": 8, "seatCount": 4},
    ],
}


def board(states: str = "a" * 12, version: int = 1) -> Board:
    return Board(EVENT, version, bytearray(states.encode()))


def record(version: int, *moved: tuple[int, str]) -> Document:
    return boards.record("evt_x", version, moved, NOW)


@asynccontextmanager
async def opened(database: Database) -> AsyncIterator[Boards]:
    running = Boards(database)
    try:
        yield running
    finally:
        await running.close()


async def shows(running: Boards, database: Database, sale: Sale) -> None:
    """Wait until the board shows exactly what the seats are."""
    for _ in range(100):
        found = await seats.read(database, sale.event)
        truth = "".join(seats.STATE_LETTERS[seat["status"]] for seat in found)
        shown = (await running.get(sale.event_id)).states.decode()
        if shown == truth:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{shown} is not {truth}")


def test_records_move_a_board_in_order_and_a_missing_one_is_noticed() -> None:
    shown = board()
    assert shown.apply(record(2, (0, "held"), (9, "held")))
    assert shown.apply(record(2, (0, "available")))  # Known already: no effect.
    assert shown.states == b"haaaaaaaahaa"
    assert not shown.apply(record(4, (1, "sold")))
    assert (shown.version, shown.states[1]) == (2, ord("a"))


def test_an_own_change_stands_until_its_record_comes() -> None:
    shown = board()
    shown.mark([3], "held")
    assert shown.apply(record(2, (3, "available"), (4, "held")))  # Older, still on its way.
    assert shown.states == b"aaahhaaaaaaa"
    assert shown.apply(record(3, (3, "held")))
    assert shown.apply(record(4, (3, "sold")))
    assert shown.states[3] == ord("s")


async def test_an_own_change_that_no_record_confirms_is_looked_at(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boards, "OWN_CHANGE_SECONDS", 0.2)
    sale = await put_on_sale(database)
    async with worker(settings), opened(database) as running:
        await started(database)
        await running.get(sale.event_id)
        hold = await hold_seats(database, sale, "fan_a", 3)
        await shows(running, database, sale)
        # Released here, and taken by another process before this one says so on its board.
        await checkout.release_hold(database, hold.hold_id, "fan_a", now=NOW)
        await hold_seats(database, sale, "fan_b", 3)
        await shows(running, database, sale)
        running.mark(sale.event_id, sale.seats(3, 4), "available")
        running.mark(sale.event_id, sale.seats(5), "sold")
        await shows(running, database, sale)


@given(st.lists(st.dictionaries(st.integers(0, 11), st.sampled_from(list(seats.STATE_LETTERS)))))
def test_what_changed_since_a_version_leads_to_the_present_state(moves: list[dict]) -> None:
    shown = board()
    past = [(shown.version, bytes(shown.states))]
    for version, moved in enumerate(moves, 2):
        assert shown.apply(record(version, *moved.items()))
        past.append((shown.version, bytes(shown.states)))
    for version, states in past:
        changes = shown.changes_since(version)
        assert changes is not None
        resumed = bytearray(states)
        for ordinal, letter in changes.items():
            resumed[ordinal] = letter
        assert resumed == shown.states
    assert shown.changes_since(shown.version + 1) is None


def test_free_seats_of_a_row_adjoin_and_rows_do_not() -> None:
    shown = board("haaahaaaaasa")
    section = shown.sections[0]
    runs: list[list[int]] = [[]]
    previous_row = None
    for seat, row, is_free in shown.places(None):
        if not is_free or row != previous_row:
            runs.append([])
        if is_free:
            runs[-1].append(seats.ordinal_of(seat))
        previous_row = row
    assert [run for run in runs if run] == [[1, 2, 3], [5, 6, 7], [8, 9], [11]]
    assert shown.free_count(section) == 6
    assert shown.free_count(None) == 9


@given(st.text("ahs", min_size=12, max_size=12), st.integers(1, 6), st.integers(0, 99))
def test_any_free_seats_are_free_distinct_and_of_the_section(
    states: str, quantity: int, seed: int
) -> None:
    shown = board(states)
    section = shown.sections[1]
    found = shown.any_free(section, quantity, random.Random(seed))
    free = [n for n in range(8, 12) if states[n] == "a"]
    assert len(found) == len(set(found)) == min(quantity, len(free))
    assert set(found) <= set(free)


async def test_a_board_loaded_in_the_middle_of_a_sale_is_right_at_once(
    settings: Settings, database: Database
) -> None:
    sale = await put_on_sale(database)
    placed = await ordered(database, sale, "fan_a", 0, 1)
    await receive(database, notice(placed))
    await hold_seats(database, sale, "fan_b", 5)
    async with worker(settings), opened(database) as running:
        await started(database)
        shown = await running.get(sale.event_id)
        assert shown.states.decode().startswith("ssaaaha")
        with pytest.raises(NotFound):
            await running.get("evt_none")


async def test_boards_follow_every_kind_of_change(settings: Settings, database: Database) -> None:
    sale = await put_on_sale(database)
    async with worker(settings), opened(database) as first, opened(database) as second:
        await started(database)
        await first.get(sale.event_id)
        await second.get(sale.event_id)
        placed = await ordered(database, sale, "fan_a", 0, 1)
        await receive(database, notice(placed))
        cancelled = await ordered(database, sale, "fan_b", 2, 3)
        await receive(database, notice(cancelled))
        await shows(first, database, sale)
        await checkout.cancel(database, cancelled["_id"], "fan_b", now=NOW)
        await hold_seats(database, sale, "fan_c", 4)
        await shows(first, database, sale)
        await seats.lapse_overdue(database, NOW + timedelta(seconds=601))
        await shows(first, database, sale)
        await shows(second, database, sale)
        before = (await first.get(sale.event_id)).version
        await dashboards.rebuild(database, _later())
        await hold_seats(database, sale, "fan_d", 5)
        await shows(first, database, sale)
        assert (await first.get(sale.event_id)).version > before


async def test_while_the_changes_worker_is_down_the_seats_themselves_are_read(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale = await put_on_sale(database)
    monkeypatch.setattr(boards, "RELOAD_SECONDS", 0.05)
    async with opened(database) as running:
        await running.get(sale.event_id)
        assert running.behind
        await hold_seats(database, sale, "fan_a", 1)
        await shows(running, database, sale)


async def test_a_board_that_is_wrong_never_sells_a_seat_twice_nor_stops_the_sale(
    database: Database,
) -> None:
    sale = await put_on_sale(database)
    async with opened(database) as running:
        for n in range(19):
            await hold_seats(database, sale, f"fan_{n}", n)
        shown = await running.get(sale.event_id)
        shown.states[:20] = b"a" * 19 + b"h"  # All wrong: what is taken looks free.
        shown.loaded_at += 3_600
        (hold,) = await holds.place(
            database,
            [HoldRequest(sale.event_id, "fan", quantity=1, section="A")],
            hold_seconds=600,
            now=NOW,
            boards=running,
        )
        assert isinstance(hold, Hold)
        assert [seat["_id"] for seat in hold.seats] == [sale.seat(19)]


def _later() -> datetime:
    return NOW + timedelta(hours=1)


async def sold_out(database: Database) -> Sale:
    """An event whose seats are all held for ten minutes."""
    sale = await put_on_sale(database)
    for ordinal in range(0, sale.event["seatCount"], 4):
        await hold_seats(database, sale, f"fan_{ordinal}", *range(ordinal, ordinal + 4))
    return sale


async def ask_for_any(
    database: Database, running: Boards, sale: Sale, *, later: timedelta = timedelta()
) -> Hold | Refusal:
    """What a new fan gets who asks for two seats, wherever they are."""
    wish = HoldRequest(sale.event_id, "fan_new", quantity=2)
    (outcome,) = await holds.place(
        database, [wish], hold_seconds=600, now=NOW + later, boards=running
    )
    return outcome


async def test_who_comes_after_the_last_seat_is_refused_without_a_look_at_the_seats(
    settings: Settings, database: Database
) -> None:
    sale = await sold_out(database)
    async with worker(settings), opened(database) as running:
        await started(database)
        await shows(running, database, sale)
        async with asked_of_the_server(database, "seats") as asked:
            outcome = await ask_for_any(database, running, sale)
    assert isinstance(outcome, NotEnoughSeats)
    assert outcome.available == 0
    assert asked
    assert sum(entry["docsExamined"] for entry in asked) == 0


async def test_overdue_holds_are_offered_though_the_board_does_not_know_of_them(
    settings: Settings, database: Database
) -> None:
    sale = await sold_out(database)
    async with worker(settings), opened(database) as running:
        await started(database)
        await shows(running, database, sale)
        assert not running.behind
        outcome = await ask_for_any(database, running, sale, later=timedelta(seconds=601))
    assert isinstance(outcome, Hold)
    assert [seats.ordinal_of(seat["_id"]) for seat in outcome.seats] == [0, 1]


async def test_who_chooses_after_others_of_the_same_group_sees_what_those_have_just_taken(
    settings: Settings, database: Database
) -> None:
    sale = await put_on_sale(database)
    async with worker(settings), opened(database) as running:
        await started(database)
        await shows(running, database, sale)
        # The last asks for more than the others leave, so it must wait for what becomes of them.
        wishes = [
            HoldRequest(sale.event_id, f"fan_{n}", quantity=size, section="A")
            for n, size in enumerate((4, 4, 4, 4, 5))
        ]
        async with asked_of_the_server(database, "seats") as asked:
            outcomes = await holds.place(
                database, wishes, hold_seconds=600, now=NOW, boards=running
            )
    assert all(isinstance(outcome, Hold) for outcome in outcomes[:4])
    assert isinstance(outcomes[4], NotEnoughSeats)
    assert outcomes[4].available == 4
    # Nobody tried for a seat that was a neighbour's: each seat was written once.
    assert sum(entry["op"] == "update" for entry in asked) == 16
