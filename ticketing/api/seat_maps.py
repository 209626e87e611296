"""Seat maps as ready-made bytes: made once for each change of a board, then served as they are."""

import asyncio
import gzip
import hashlib
from dataclasses import dataclass

import msgspec
import zstandard

from ticketing import seats
from ticketing.boards import Board, Boards, Section
from ticketing.errors import Invalid
from ticketing.money import money

GZIP_LEVEL = 1
ZSTD_LEVEL = 1
# Up to this size an answer is made in place; a larger one would keep everybody else waiting.
MADE_IN_PLACE_BYTES_MAX = 300_000
READY_MAX = 300
ENCODINGS = ("zstd", "gzip", "identity")

_STATUS_ENDS = {
    ord(letter): f'{status}"}}'.encode() for status, letter in seats.STATE_LETTERS.items()
}
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Ready:
    """An answer as it goes out: the bytes, their coding and their strong tag."""

    body: bytes
    encoding: str
    tag: str
    stamp: int


class SeatMaps:
    """The answers that this process has made of its boards."""

    def __init__(self, boards: Boards) -> None:
        self._boards = boards
        self._ready: dict[tuple[str, str, str | None, str], Ready] = {}
        self._layouts: dict[
            tuple[str, str | None], tuple[Board, list[tuple[bytes, list[bytes]]]]
        ] = {}
        self._news: dict[tuple[str, int | None], tuple[int, str]] = {}
        self._making = asyncio.Lock()

    async def availability(self, event_id: str, section_name: str | None, encoding: str) -> Ready:
        """One character a seat. Raises NotFound, or Invalid for an unknown section."""
        return await self._answer("availability", event_id, section_name, encoding)

    async def seats(self, event_id: str, section_name: str | None, encoding: str) -> Ready:
        """Each seat with its labels and status. Raises as `availability` does."""
        return await self._answer("seats", event_id, section_name, encoding)

    def news(self, board: Board, version: int | None) -> str | None:
        """What a watcher who knows that version is told: changes, everything, or nothing (None).

        Made once for all watchers who know the same.
        """
        changes = None if version is None else board.changes_since(version)
        if changes is not None and not changes:
            return None
        key = (board.event_id, version if changes is not None else None)
        known = self._news.get(key)
        if known is None or known[0] != board.stamp:
            if len(self._news) >= READY_MAX:
                self._news.clear()
            text = _everything(board) if changes is None else _changes(board, changes)
            known = (board.stamp, text)
            self._news[key] = known
        return known[1]

    async def _answer(
        self, kind: str, event_id: str, section_name: str | None, encoding: str
    ) -> Ready:
        board = await self._boards.get(event_id)
        key = (kind, event_id, section_name, encoding)
        ready = self._ready.get(key)
        if ready is not None and ready.stamp == board.stamp:
            return ready
        sections = _sections(board, section_name)
        if kind == "availability" and len(board.states) <= MADE_IN_PLACE_BYTES_MAX:
            ready = _finish(_availability(board, sections), encoding, board.stamp)
        else:
            # One at a time: everybody who waits here is served by what the first has made.
            async with self._making:
                ready = self._ready.get(key)
                if ready is None or ready.stamp != board.stamp:
                    ready = await self._make_seats(board, section_name, sections, encoding)
        if len(self._ready) >= READY_MAX:
            self._ready.clear()
        self._ready[key] = ready
        return ready

    async def _make_seats(
        self, board: Board, section_name: str | None, sections: list[Section], encoding: str
    ) -> Ready:
        key = (board.event_id, section_name)
        stamp, version, states = board.stamp, board.version, bytes(board.states)
        known = self._layouts.get(key)
        if known is None or known[0] is not board:
            if len(self._layouts) >= READY_MAX:
                self._layouts.clear()
            layout = await asyncio.to_thread(_layout, board, sections)
            self._layouts[key] = (board, layout)
        else:
            layout = known[1]

        def make() -> Ready:
            parts = []
            for section, (head, beginnings) in zip(sections, layout, strict=True):
                mine = states[section.first : section.first + section.count]
                seats_made = [
                    beginning + _STATUS_ENDS[state]
                    for beginning, state in zip(beginnings, mine, strict=True)
                ]
                parts.append(head + b",".join(seats_made) + b"]}")
            return _finish(_whole(board.event_id, version, parts), encoding, stamp)

        return await asyncio.to_thread(make)


def _sections(board: Board, name: str | None) -> list[Section]:
    found = [section for section in board.sections if name in (None, section.name)]
    if not found:
        raise Invalid([("section", "is not a section of this event")])
    return found


def _availability(board: Board, sections: list[Section]) -> bytes:
    parts = [
        b'{"name":%b,"states":"%b"}'
        % (
            _encode(section.name),
            bytes(board.states[section.first : section.first + section.count]),
        )
        for section in sections
    ]
    return _whole(board.event_id, board.version, parts)


def _layout(board: Board, sections: list[Section]) -> list[tuple[bytes, list[bytes]]]:
    """For each section what never changes: its head, and each seat up to its status."""
    documents = {section["name"]: section for section in board.event["sections"]}
    layout = []
    for section in sections:
        document = documents[section.name]
        head = b'{"name":%b,"priceCategory":%b,"price":%b,"seats":[' % (
            _encode(section.name),
            _encode(document["priceCategory"]),
            _encode(money(document["price"], board.event["currency"])),
        )
        beginnings = [
            b'{"seatId":"%b","row":%b,"number":%b,"status":"'
            % (seats.seat_id(board.event_id, ordinal).encode(), _encode(row), _encode(number))
            for ordinal, (row, number) in enumerate(seats.places(document), section.first)
        ]
        layout.append((head, beginnings))
    return layout


def _whole(event_id: str, version: int, parts: list[bytes]) -> bytes:
    return b'{"eventId":%b,"version":%d,"sections":[%b]}' % (
        _encode(event_id),
        version,
        b",".join(parts),
    )


def _everything(board: Board) -> str:
    states = {
        section.name: board.states[section.first : section.first + section.count].decode()
        for section in board.sections
    }
    return _encode({"version": board.version, "states": states}).decode()


def _changes(board: Board, changes: dict[int, int]) -> str:
    by_section: dict[str, list[tuple[int, str]]] = {}
    for ordinal, letter in sorted(changes.items()):
        section = board.section_at(ordinal)
        by_section.setdefault(section.name, []).append((ordinal - section.first, chr(letter)))
    return _encode({"version": board.version, "changes": by_section}).decode()


def _finish(body: bytes, encoding: str, stamp: int) -> Ready:
    # A strong tag belongs to the bytes that go out, so each coding has its own.
    tag = hashlib.blake2b(body, digest_size=16).hexdigest()
    match encoding:
        case "zstd":
            body = zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(body)
        case "gzip":
            body = gzip.compress(body, GZIP_LEVEL, mtime=0)
    return Ready(body, encoding, f'"{tag}-{encoding}"', stamp)


def accepted_encoding(accept_encoding: str) -> str:
    """The coding to answer in, of those we make, by RFC 9110; identity where none is named."""
    accepted = set()
    for item in accept_encoding.lower().split(",")[:20]:
        name, _, parameters = item.strip().partition(";")
        if parameters.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000"):
            accepted.add(name.strip())
    return next((encoding for encoding in ENCODINGS if encoding in accepted), "identity")
