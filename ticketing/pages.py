"""Lists are read a page at a time by an opaque cursor that remembers where the last page ended."""

import base64
import binascii
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from ticketing.errors import Invalid

CURSOR_LENGTH_MAX = 500


@dataclass(frozen=True)
class Page:
    """Some items, and where to go on; `next_cursor` is None on the last page."""

    items: list[dict[str, Any]]
    next_cursor: str | None


class Position(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Where a page ended: the list it belongs to, the sort instant and id of the last item.

    `kind` binds a cursor to its list and filter, so that one made for another list is refused.
    `offset` counts inside an item that spreads over pages (the tickets of one order), and `border`
    is an instant that the first page drew and all others keep to.
    """

    kind: str
    instant: datetime
    identifier: str
    offset: int = 0
    border: datetime | None = None


def encode(position: Position) -> str:
    """The opaque text of a position."""
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode().rstrip("=")


def decode(cursor: str | None, *kinds: str) -> Position | None:
    """The position of a cursor made for one of these lists, None without one; else Invalid."""
    if cursor is None:
        return None
    try:
        text = cursor[:CURSOR_LENGTH_MAX]
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        position = msgspec.json.decode(raw, type=Position)
        # An offset at the ends of the calendar leads out of it.
        position.instant = position.instant.astimezone(UTC)
        if position.border is not None:
            position.border = position.border.astimezone(UTC)
    except (ValueError, OverflowError, binascii.Error, msgspec.MsgspecError):
        raise Invalid([("cursor", "is not a cursor of this list")]) from None
    if position.kind not in kinds or position.offset < 0:
        raise Invalid([("cursor", "is not a cursor of this list")])
    return position


def cut(items: list[dict[str, Any]], limit: int, kind: str, instant_field: str) -> Page:
    """The page out of up to `limit + 1` items read: the one too many tells there is more."""
    if len(items) <= limit:
        return Page(items, None)
    last = items[limit - 1]
    return Page(items[:limit], encode(Position(kind, last[instant_field], last["_id"])))
