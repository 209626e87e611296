"""A board is an event's seats in memory: a byte a seat, in plan order.

Seat maps are read far more often than seats are sold, so each API process answers them from its
boards. A board is loaded by one range scan and moved by the small records that the changes worker
writes to `seat_changes`, one for each version of the event's counters. A board is advice: it says
what to offer, and only the compare-and-set on the seat decides who gets it.
"""

import asyncio
import logging
import time
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from contextvars import Context
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from random import Random

from pymongo.errors import PyMongoError

from ticketing import clock, events, seats
from ticketing.adjoining import Place
from ticketing.mongo import Database, Document
from ticketing.seats import STATE_LETTERS
from ticketing.tasks import end

BOARDS_MAX = 50
POLL_SECONDS = 0.1
OUTAGE_PAUSE_SECONDS = 1.0
RECORDS_PER_POLL_MAX = 500
HISTORY_MAX = 512
# A board nobody asked for this long is no longer moved; asked for again, it is loaded anew.
FOLLOWED_SECONDS = 60.0
# The changes worker saves its place about once a second even when nothing happens. Older than
# this, it is down or far behind, and boards are read from the seats themselves.
BEHIND_SECONDS = 3.0
RELOAD_SECONDS = 1.0
# How long a change this process made itself stands against older records still on their way.
OWN_CHANGE_SECONDS = 2.0

FREE = ord("a")

log = logging.getLogger("ticketing.boards")


def record_id(event_id: str, version: int) -> str:
    """The identifier of the seat changes that made this version: in order within the event."""
    return f"{event_id}:{version:010d}"


def record(
    event_id: str, version: int, moved: Iterable[tuple[int, str]], now: datetime
) -> Document:
    """What the changes worker writes for each version of an event's counters, moved seats or not:
    a version without its record tells a board that it missed something."""
    latest = dict(moved)
    return {
        "_id": record_id(event_id, version),
        "eventId": event_id,
        "version": version,
        "seats": [[ordinal, STATE_LETTERS[status]] for ordinal, status in latest.items()],
        "at": now,
    }


@dataclass(frozen=True)
class Section:
    """A section's place in the plan, and where its rows begin."""

    name: str
    first: int
    count: int
    row_starts: tuple[int, ...]


@dataclass
class _OwnChange:
    """What this process did to a seat, and by when a record should have told of it."""

    letter: int
    until: float


class Board:
    """One event's seats as this process knows them."""

    def __init__(self, event: Document, version: int, states: bytearray) -> None:
        self.event = event
        self.event_id: str = event["_id"]
        self.version = version
        self.states = states
        self.stamp = 0
        """Grows with every change of what the board shows."""
        self.epoch = 0
        """Grows when the board was read anew: what led to it from before is not known then."""
        self.loaded_at = time.monotonic()
        self.asked_at = self.loaded_at
        self.sections = tuple(_section(section) for section in event["sections"])
        self._firsts = [section.first for section in self.sections]
        self.history: deque[tuple[int, list[tuple[int, int]]]] = deque(maxlen=HISTORY_MAX)
        """The last records: version and the seats it moved."""
        self.changed = asyncio.Event()
        self._own: dict[int, _OwnChange] = {}

    def apply(self, change: Document) -> bool:
        """Move the board by the next record; False if one is missing in between."""
        if change["version"] <= self.version:
            return True
        if change["version"] != self.version + 1:
            return False
        moved = [(ordinal, ord(letter)) for ordinal, letter in change["seats"]]
        for ordinal, letter in moved:
            own = self._own.get(ordinal)
            if own is not None and own.letter != letter:
                # Most likely an older change of the seat that was on its way when this process
                # changed it. Should it be a newer one, the seat is looked at once the time is over.
                continue
            self._own.pop(ordinal, None)
            self.states[ordinal] = letter
        self.version = change["version"]
        self.history.append((self.version, moved))
        self._tell()
        return True

    def replace(self, version: int, states: bytearray) -> None:
        """Show what was read from the seats themselves; what led to it is not known."""
        self.version = version
        self.states = states
        self.epoch += 1
        self.loaded_at = time.monotonic()
        self.history.clear()
        self._own.clear()
        self._tell()

    def mark(self, ordinals: Iterable[int], status: str) -> None:
        """Show at once what this process has just done, ahead of the record of it."""
        letter = ord(STATE_LETTERS[status])
        until = time.monotonic() + OWN_CHANGE_SECONDS
        for ordinal in ordinals:
            self.states[ordinal] = letter
            self._own[ordinal] = _OwnChange(letter, until)
        self._tell()

    def unconfirmed(self) -> list[int]:
        """The seats of own changes that no record has told of in time."""
        now = time.monotonic()
        return [ordinal for ordinal, own in self._own.items() if own.until <= now]

    def correct(self, ordinals: Iterable[int], taken: dict[int, str]) -> None:
        """Show what these seats were found to be: available but for those `taken`."""
        for ordinal in ordinals:
            self._own.pop(ordinal, None)
            self.states[ordinal] = ord(STATE_LETTERS[taken.get(ordinal, "available")])
        self.epoch += 1  # Watchers are told everything, since this belongs to no version.
        self._tell()

    def _tell(self) -> None:
        self.stamp += 1
        self.changed.set()
        self.changed = asyncio.Event()

    def changes_since(self, version: int) -> dict[int, int] | None:
        """The seats that moved after that version and how they are now; None if too long ago."""
        if version == self.version:
            return {}
        if version > self.version or not self.history or self.history[0][0] > version + 1:
            return None
        latest: dict[int, int] = {}
        for made, moved in self.history:
            if made > version:
                latest.update(moved)
        return latest

    def with_free(self, ordinals: Iterable[int]) -> "Board":
        """The board as it is now, for one look, with these seats free as well."""
        other = copy(self)
        other.states = bytearray(self.states)
        for ordinal in ordinals:
            other.states[ordinal] = FREE
        return other

    def section_at(self, ordinal: int) -> Section:
        """The section that the seat of this ordinal is in."""
        return self.sections[bisect_right(self._firsts, ordinal) - 1]

    def free_count(self, section: Section | None) -> int:
        """How many seats of the section, or of all, are available."""
        first, count = (0, len(self.states)) if section is None else (section.first, section.count)
        return self.states.count(FREE, first, first + count)

    def any_free(self, section: Section, quantity: int, rng: Random) -> list[int]:
        """Free seats of the section from a random place on, so that nobody queues for one."""
        end = section.first + section.count
        turn = section.first + rng.randrange(section.count)
        found: list[int] = []
        for begin, stop in ((turn, end), (section.first, turn)):
            ordinal = begin
            while len(found) < quantity:
                ordinal = self.states.find(FREE, ordinal, stop)
                if ordinal < 0:
                    break
                found.append(ordinal)
                ordinal += 1
        return found

    def places(self, section: Section | None) -> Iterator[Place]:
        """The free seats in plan order with a gap between those that do not adjoin."""
        for part in self.sections if section is None else (section,):
            bounds = (*part.row_starts, part.first + part.count)
            for row, (begin, stop) in enumerate(pairwise(bounds)):
                previous = begin - 1
                ordinal = self.states.find(FREE, begin, stop)
                while ordinal >= 0:
                    if ordinal != previous + 1:
                        yield "", None, False
                    yield seats.seat_id(self.event_id, ordinal), (part.name, row), True
                    previous = ordinal
                    ordinal = self.states.find(FREE, ordinal + 1, stop)


def _section(section: Document) -> Section:
    starts = [section["firstOrdinal"]]
    for row in section.get("rows", [])[:-1]:
        starts.append(starts[-1] + (len(row["seats"]) if "seats" in row else row["count"]))
    return Section(section["name"], section["firstOrdinal"], section["seatCount"], tuple(starts))


class Boards:
    """The boards of this process, and the one loop that moves them all."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._boards: OrderedDict[str, Board] = OrderedDict()
        self._loading: dict[str, asyncio.Task[Board]] = {}
        self._follower: asyncio.Task[None] | None = None
        self._worker_saved_at: datetime | None = None
        self._worker_seen_at = 0.0
        self._moved_at = time.monotonic()
        self.behind = False
        """Whether the changes worker is so far behind that boards are read from the seats."""

    def known(self, event_id: str) -> Board | None:
        """The board if it was loaded already, however old: for what never changes of an event."""
        return self._boards.get(event_id)

    async def get(self, event_id: str) -> Board:
        """The event's board, right as of now or a moment ago; loaded first where it must be.

        While the changes worker is behind, the seats are read anew at most once a second however
        many ask. Raises NotFound.
        """
        board = self._boards.get(event_id)
        now = time.monotonic()
        stale = board is not None and (
            not self._is_followed(board) or (self.behind and now - board.loaded_at > RELOAD_SECONDS)
        )
        if board is None or stale:
            board = await self._load_once(event_id)
        board.asked_at = now
        self._boards.move_to_end(event_id)
        return board

    def mark(self, event_id: str, seat_ids: Iterable[str], status: str) -> None:
        """Show a change this process made on its board, if there is one."""
        board = self._boards.get(event_id)
        if board is not None:
            board.mark(map(seats.ordinal_of, seat_ids), status)

    def staleness_seconds(self) -> float:
        """How old what is shown may be, own changes aside; 0 while no board is asked for."""
        if not any(map(self._is_followed, self._boards.values())):
            return 0.0
        return time.monotonic() - min(self._moved_at, self._worker_seen_at)

    async def close(self) -> None:
        """Stop following."""
        if self._follower is not None:
            await end(self._follower)

    def _is_followed(self, board: Board) -> bool:
        return time.monotonic() - board.asked_at < FOLLOWED_SECONDS

    async def _load_once(self, event_id: str) -> Board:
        """Load a board; everybody who asks meanwhile waits for the same scan."""
        loading = self._loading.get(event_id)
        if loading is None:
            loading = asyncio.create_task(self._load(event_id))
            self._loading[event_id] = loading
            loading.add_done_callback(lambda _: self._loading.pop(event_id, None))
        # Shielded: one caller who goes away must not cut off the others' scan.
        return await asyncio.shield(loading)

    async def _load(self, event_id: str) -> Board:
        event = await events.find(self._database, event_id)
        # The version is read before the seats. What the scan sees beyond it is told once more by
        # the records that follow, and a record says what a seat is, not how it moved.
        version = await self._version(event_id)
        states = bytearray(b"a" * event["seatCount"])
        filter_ = {"_id": seats.plan_range(event_id), "status": {"$ne": "available"}}
        taken = self._database.seats.find(filter_, {"status": 1}).batch_size(10_000)
        for seat in await taken.to_list(event["seatCount"]):
            states[seats.ordinal_of(seat["_id"])] = ord(STATE_LETTERS[seat["status"]])
        board = self._boards.get(event_id)
        if board is None:
            board = Board(event, version, states)
            self._boards[event_id] = board
            while len(self._boards) > BOARDS_MAX:
                self._boards.popitem(last=False)
        else:
            # In place, so that those who watch this board see it go on.
            board.replace(version, states)
        if self._follower is None or self._follower.done():
            await self._look_at_worker()
            self._follower = asyncio.create_task(self._follow(), context=Context())
        return board

    async def _version(self, event_id: str) -> int:
        counters = await self._database.dashboards.find_one({"_id": event_id}, {"version": 1})
        return int(counters["version"]) if counters else 0

    async def _follow(self) -> None:
        while True:
            pause = POLL_SECONDS
            try:
                await self._look_at_worker()
                await self._move()
                self._moved_at = time.monotonic()
            except PyMongoError as error:
                log.warning("Seat changes can't be read just now: %s", type(error).__name__)
                self.behind = True
                pause = OUTAGE_PAUSE_SECONDS
            await asyncio.sleep(pause)

    async def _look_at_worker(self) -> None:
        place = await self._database.resume_tokens.find_one({"_id": "changes"}, {"savedAt": 1})
        saved_at = None if place is None else place["savedAt"]
        now = time.monotonic()
        if saved_at is not None and saved_at != self._worker_saved_at:
            # By our own clock from the second look on: the worker's machine may have another time.
            age = 0.0
            if self._worker_saved_at is None:
                age = abs((clock.now() - saved_at).total_seconds())
            self._worker_saved_at, self._worker_seen_at = saved_at, now - age
        self.behind = saved_at is None or now - self._worker_seen_at > BEHIND_SECONDS

    async def _look_at_unconfirmed(self, board: Board) -> None:
        """Read the seats of which no record came, or only one that contradicts this process."""
        ordinals = board.unconfirmed()[:RECORDS_PER_POLL_MAX]
        if not ordinals:
            return
        seat_ids = [seats.seat_id(board.event_id, ordinal) for ordinal in ordinals]
        found = self._database.seats.find({"_id": {"$in": seat_ids}}, {"status": 1})
        taken = {
            seats.ordinal_of(seat["_id"]): seat["status"]
            for seat in await found.to_list(len(seat_ids))
        }
        board.correct(ordinals, taken)

    async def _move(self) -> None:
        followed = {
            event_id: board for event_id, board in self._boards.items() if self._is_followed(board)
        }
        if not followed:
            return
        for board in followed.values():
            await self._look_at_unconfirmed(board)
        ranges = [
            {"_id": {"$gt": record_id(event_id, board.version), "$lt": f"{event_id};"}}
            for event_id, board in followed.items()
        ]
        found = self._database.seat_changes.find({"$or": ranges} if len(ranges) > 1 else ranges[0])
        records = (
            await found.sort("_id", 1).limit(RECORDS_PER_POLL_MAX).to_list(RECORDS_PER_POLL_MAX)
        )
        for change in records:
            board = followed[change["eventId"]]
            if not board.apply(change):
                # A recount gives a version without a record: read the seats themselves.
                await self._load_once(board.event_id)
