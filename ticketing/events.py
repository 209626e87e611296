"""An event is a show: what it is, when it is sold, its sections and what their seats cost.

States: creating → draft → published → cancelled | ended. `creating` is ours alone: the event's
seats are still being laid out and nobody sees it yet. Sections never change once laid out, so a
section's place in the plan (`firstOrdinal`, `seatCount`) can be remembered by anybody.
"""

import unicodedata
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import cache
from itertools import islice
from time import monotonic
from typing import Annotated, Any
from zoneinfo import available_timezones

import msgspec
from pymongo import ReturnDocument

from ticketing import pages, teams
from ticketing.accounts import Caller
from ticketing.clock import rfc3339, to_millisecond
from ticketing.errors import Invalid, NotFound, Refusal
from ticketing.fees import BASIS_POINTS
from ticketing.money import CURRENCIES, PRICE_MAX
from ticketing.mongo import Database, Document, Session
from ticketing.pages import Page

SEATS_PER_EVENT_MAX = 80_000
LABEL_LENGTH_MAX = 40
TITLE_LENGTH_MAX = 200
DESCRIPTION_LENGTH_MAX = 10_000
MARKS_IN_A_ROW_MAX = 30
FAULTS_MAX = 100
SEATS_PER_FAN_MAX = 1_000
SEARCH_WORDS_MAX = 100
# The counters have an entry a section and are written many times a second.
SECTIONS_MAX = 1_000
PRICE_CATEGORIES_MAX = 100
ENDED_PER_RUN_MAX = 1_000
RECENT_SECONDS = 0.5
RECENT_MAX = 1_000

Price = Annotated[int, msgspec.Meta(ge=0, le=PRICE_MAX)]
Instant = Annotated[datetime, msgspec.Meta(tz=True)]


class PriceCategory(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """What a seat of this category costs, in the currency's minor unit."""

    name: str
    price: Price


class Row(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Seats by their labels, or `count` seats numbered from 1. One of the two."""

    name: str
    seats: list[str] | msgspec.UnsetType = msgspec.UNSET
    count: int | msgspec.UnsetType = msgspec.UNSET


class Section(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Numbered `rows`, or a general-admission `capacity`. One of the two."""

    name: str
    price_category: str
    rows: list[Row] | msgspec.UnsetType = msgspec.UNSET
    capacity: int | msgspec.UnsetType = msgspec.UNSET


class NewEvent(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """What an organiser sends to make an event."""

    name: str
    venue_name: str
    timezone: str
    starts_at: Instant
    sale_starts_at: Instant
    sale_ends_at: Instant
    currency: str
    price_categories: list[PriceCategory]
    sections: list[Section]
    description: str = ""
    category: str = "other"
    max_seats_per_fan: int = 8
    proof_of_work: bool = False


class Move(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """To where and when an event is moved; what is left out stays."""

    starts_at: Instant | msgspec.UnsetType = msgspec.UNSET
    timezone: str | msgspec.UnsetType = msgspec.UNSET
    venue_name: str | msgspec.UnsetType = msgspec.UNSET


class SaleNotOpen(Refusal):
    """Outside the sale window, or the event is not on sale at all."""

    slug = "sale-not-open"
    title = "Sale not open"

    def __init__(self, detail: str, event: Document) -> None:
        super().__init__(detail)
        self.event = event

    def members(self) -> dict[str, Any]:
        return {
            "saleStartsAt": rfc3339(self.event["saleStartsAt"]),
            "saleEndsAt": rfc3339(self.event["saleEndsAt"]),
        }


class EventState(Refusal):
    """The event's state does not allow that change."""

    slug = "conflict"
    title = "Conflict"


def on_sale(event: Document, now: datetime) -> None:
    """The one rule of whether seats may be taken now; raises SaleNotOpen.

    It is asked when a hold is placed. A hold placed inside the window may be paid for after its
    end, as long as the hold itself lasts.
    """
    if event["status"] == "cancelled":
        raise SaleNotOpen("The event is cancelled.", event)
    if event["status"] != "published":
        raise SaleNotOpen("The event is not on sale.", event)
    if now < event["saleStartsAt"]:
        raise SaleNotOpen("The sale has not begun.", event)
    if now >= event["saleEndsAt"]:
        raise SaleNotOpen("The sale has ended.", event)


# --- Checking what an organiser sends ------------------------------------------------------------


def label(text: str) -> str:
    """A label as it is stored: NFC and trimmed. Labels are opaque, so `01` and `1` are two.

    What is no text of ours whatever its form, by its length or its marks, is left as it is.
    """
    if len(text) > DESCRIPTION_LENGTH_MAX or _is_piled_up(text):
        return text
    return unicodedata.normalize("NFC", text).strip()


def _is_piled_up(text: str) -> bool:
    """Whether more marks stand on one letter than any language has (Unicode's UAX 15 says 30).

    To put them into order takes a time that grows with the square of their number: some ten
    thousand of them would hold up everybody for seconds.
    """
    if text.isascii():
        return False
    run = 0
    for character in text:
        run = run + 1 if unicodedata.combining(character) else 0
        if run > MARKS_IN_A_ROW_MAX:
            return True
    return False


def _lookalike(label: str) -> str:
    """What two labels share when a person at the door cannot tell them apart."""
    visible = "".join(
        character
        for character in unicodedata.normalize("NFKC", label)
        if unicodedata.category(character) != "Cf"
    )
    return visible.casefold().strip()


def text_fault(
    text: str, length_max: int, *, length_min: int = 1, lines: bool = False
) -> str | None:
    """What is wrong with a piece of text a person sent, or None. Lengths count code points.

    Only text of several `lines` may have a line feed in it.
    """
    if len(text) > length_max:
        return f"must be at most {length_max} characters long"
    if _is_piled_up(text):
        return f"must not have more than {MARKS_IN_A_ROW_MAX} marks on one letter"
    if any(
        unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
        for character in text
        if not (lines and character == "\n")
    ):
        return "must not contain control characters"
    if length_min and not _lookalike(text):
        return "must not be empty"
    return None


def _unique_labels(labels: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The faults of labels that share a parent, given as pairs of path and label."""
    seen: dict[str, str] = {}
    for path, label in labels:
        if fault := text_fault(label, LABEL_LENGTH_MAX):
            yield path, fault
        elif (first := seen.setdefault(_lookalike(label), path)) != path:
            yield path, f"is the same as {first}"


def checked(new: NewEvent) -> Document:
    """The event's document out of what was sent, without identity and state.

    Raises Invalid with up to 100 faults, each naming its path.
    """
    faults = list(islice(_faults(new), FAULTS_MAX))
    if faults:
        raise Invalid(faults)
    prices = {label(category.name): category.price for category in new.price_categories}
    sections: list[Document] = []
    ordinal = 0
    for section in new.sections:
        seat_count = _seat_count(section)
        name, price_category = label(section.name), label(section.price_category)
        document: Document = {
            "name": name,
            "priceCategory": price_category,
            "price": prices[price_category],
            "kind": "general" if section.rows is msgspec.UNSET else "numbered",
            "firstOrdinal": ordinal,
            "seatCount": seat_count,
        }
        if section.rows is not msgspec.UNSET:
            document["rows"] = [
                {"name": label(row.name), "count": row.count}
                if row.seats is msgspec.UNSET
                else {"name": label(row.name), "seats": [label(seat) for seat in row.seats]}
                for row in section.rows
            ]
        sections.append(document)
        ordinal += seat_count
    name, venue_name, description = map(label, (new.name, new.venue_name, new.description))
    return {
        "name": name,
        "description": description,
        "category": label(new.category),
        "venueName": venue_name,
        "timezone": new.timezone,
        "startsAt": to_millisecond(new.starts_at.astimezone(UTC)),
        "saleStartsAt": to_millisecond(new.sale_starts_at.astimezone(UTC)),
        "saleEndsAt": to_millisecond(new.sale_ends_at.astimezone(UTC)),
        "currency": new.currency,
        "maxSeatsPerFan": new.max_seats_per_fan,
        **({"proofOfWork": True} if new.proof_of_work else {}),
        "priceCategories": [
            {"name": label(category.name), "price": category.price}
            for category in new.price_categories
        ],
        "sections": sections,
        "seatCount": ordinal,
        "words": search_words(f"{name} {venue_name} {description}"),
    }


def _faults(new: NewEvent) -> Iterator[tuple[str, str]]:
    for path, text, length_max, length_min in (
        ("name", new.name, TITLE_LENGTH_MAX, 1),
        ("venueName", new.venue_name, TITLE_LENGTH_MAX, 1),
        ("description", new.description, DESCRIPTION_LENGTH_MAX, 0),
        ("category", new.category, LABEL_LENGTH_MAX, 1),
    ):
        lines = path == "description"
        if fault := text_fault(label(text), length_max, length_min=length_min, lines=lines):
            yield path, fault
    if new.timezone not in _timezones():
        yield "timezone", "is not an IANA time zone"
    if new.currency not in CURRENCIES:
        yield "currency", "is not an ISO 4217 currency code"
    if not 1 <= new.max_seats_per_fan <= SEATS_PER_FAN_MAX:
        yield "maxSeatsPerFan", f"must be from 1 to {SEATS_PER_FAN_MAX}"
    yield from _instant_faults(new)
    if not 1 <= len(new.price_categories) <= PRICE_CATEGORIES_MAX:
        yield "priceCategories", f"must be from 1 to {PRICE_CATEGORIES_MAX}"
        return
    yield from _unique_labels(
        (f"priceCategories[{index}].name", label(category.name))
        for index, category in enumerate(new.price_categories)
    )
    yield from _section_faults(new)


def _instant_faults(new: NewEvent) -> Iterator[tuple[str, str]]:
    for path, instant in (
        ("startsAt", new.starts_at),
        ("saleStartsAt", new.sale_starts_at),
        ("saleEndsAt", new.sale_ends_at),
    ):
        # An offset at the ends of the calendar would leave it when turned into UTC.
        if not 1970 < instant.year < 9999:
            yield path, "must be between the years 1971 and 9998"
            return
    if new.sale_ends_at <= new.sale_starts_at:
        yield "saleEndsAt", "must be after saleStartsAt"


def _section_faults(new: NewEvent) -> Iterator[tuple[str, str]]:
    if not 1 <= len(new.sections) <= SECTIONS_MAX:
        yield "sections", f"must be from 1 to {SECTIONS_MAX}"
        return
    yield from _unique_labels(
        (f"sections[{index}].name", label(section.name))
        for index, section in enumerate(new.sections)
    )
    known = {label(category.name) for category in new.price_categories}
    total = 0
    for index, section in enumerate(new.sections):
        path = f"sections[{index}]"
        if label(section.price_category) not in known:
            yield f"{path}.priceCategory", "is not the name of a price category"
        if (section.rows is msgspec.UNSET) == (section.capacity is msgspec.UNSET):
            yield path, "must have either rows or capacity"
            continue
        if section.capacity is not msgspec.UNSET and section.capacity < 1:
            yield f"{path}.capacity", "must be at least 1"
        # Before each single label is looked at: so none is looked at that there can't be.
        total += _seat_count(section)
        if total > SEATS_PER_EVENT_MAX:
            yield path, f"the event has more than {SEATS_PER_EVENT_MAX} seats with this section"
            return
        if section.rows is not msgspec.UNSET:
            yield from _row_faults(section.rows, path)


def _row_faults(rows: list[Row], section_path: str) -> Iterator[tuple[str, str]]:
    if not rows:
        yield f"{section_path}.rows", "must not be empty"
    yield from _unique_labels(
        (f"{section_path}.rows[{index}].name", label(row.name)) for index, row in enumerate(rows)
    )
    for index, row in enumerate(rows):
        path = f"{section_path}.rows[{index}]"
        if (row.seats is msgspec.UNSET) == (row.count is msgspec.UNSET):
            yield path, "must have either seats or count"
        elif row.seats is msgspec.UNSET:
            if row.count is not msgspec.UNSET and row.count < 1:
                yield f"{path}.count", "must be at least 1"
        elif not row.seats:
            yield f"{path}.seats", "must not be empty"
        else:
            yield from _unique_labels(
                (f"{path}.seats[{place}]", label(seat)) for place, seat in enumerate(row.seats)
            )


def _seat_count(section: Section) -> int:
    if section.rows is msgspec.UNSET:
        return 0 if section.capacity is msgspec.UNSET else section.capacity
    return sum(
        (0 if row.count is msgspec.UNSET else row.count)
        if row.seats is msgspec.UNSET
        else len(row.seats)
        for row in section.rows
    )


@cache
def _timezones() -> frozenset[str]:
    return frozenset(available_timezones())


def search_words(text: str) -> list[str]:
    """The words of a text as a search compares them: without case, accents and punctuation."""
    plain = "".join(
        character if character.isalnum() else " "
        for character in unicodedata.normalize("NFKD", text).casefold()
        if not unicodedata.combining(character)
    )
    return list(dict.fromkeys(word[:LABEL_LENGTH_MAX] for word in plain.split()))[:SEARCH_WORDS_MAX]


# --- Reading ----------------------------------------------------------------------------------


async def find(database: Database, event_id: str, *, session: Session | None = None) -> Document:
    """The event, whatever its state but `creating`. Raises NotFound."""
    event = await database.events.find_one(
        {"_id": event_id, "status": {"$ne": "creating"}}, session=session
    )
    if event is None:
        raise NotFound("There is no such event.")
    return event


async def slim(database: Database, event_ids: Iterable[str]) -> dict[str, Document]:
    """These events without their rows and texts: the rows may be a megabyte. Unknown ones are left
    out."""
    ids = list(event_ids)
    if not ids:
        return {}
    found = database.events.find(
        {"_id": {"$in": ids}, "status": {"$ne": "creating"}},
        {"sections.rows": 0, "description": 0, "words": 0},
    )
    return {event["_id"]: event for event in await found.to_list(len(ids))}


async def briefly(
    database: Database, organiser_id: str, *, after: Document | None, limit: int
) -> list[Document]:
    """An organiser's events by their start, from after that one on: what is said of each in books.

    Without rows, texts and sections, which may be megabytes.
    """
    filter_: Document = {"organiserId": organiser_id, "status": {"$ne": "creating"}}
    if after is not None:
        filter_["startsAt"] = {"$gte": after["startsAt"]}
        filter_["$or"] = [
            {"startsAt": {"$gt": after["startsAt"]}},
            {"_id": {"$gt": after["_id"]}},
        ]
    fields = ("name", "venueName", "status", "startsAt", "currency", "fees")
    found = database.events.find(filter_, dict.fromkeys(fields, 1))
    return await found.sort([("startsAt", 1), ("_id", 1)]).limit(limit).to_list(limit)


class Recent:
    """Slim events as they were at most RECENT_SECONDS ago.

    At a sale's start they are asked for with every group of requests. Only published events are
    kept: so one is on sale as soon as it is published, and goes off sale, when it is cancelled, a
    moment later than the write says. Whatever a cancelled event sold in that moment is refunded
    with the rest. A sale's beginning and end are not delayed: the caller's clock decides them.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._kept: dict[str, tuple[float, Document]] = {}

    async def slim(self, event_ids: Iterable[str]) -> dict[str, Document]:
        """As the function of this name."""
        now = monotonic()
        found: dict[str, Document] = {}
        missing: list[str] = []
        for event_id in event_ids:
            read_at, event = self._kept.get(event_id, (-RECENT_SECONDS, {}))
            if now - read_at < RECENT_SECONDS:
                found[event_id] = event
            else:
                missing.append(event_id)
        if missing:
            read = await slim(self._database, missing)
            if len(self._kept) > RECENT_MAX:
                self._kept.clear()
            for event_id, event in read.items():
                if event["status"] == "published":
                    self._kept[event_id] = (now, event)
            found |= read
        return found


async def visible(database: Database, event_id: str, caller: Caller | None) -> Document:
    """The event as this caller may see it: a draft only by its team. Raises NotFound."""
    event = await find(database, event_id)
    if not is_public(event):
        if caller is None:
            raise NotFound("There is no such event.")
        await _allow(database, event, caller, "viewer")
    return event


def is_public(event: Document) -> bool:
    """Whether everybody may see the event: once it was published, for good.

    A draft that was called off was never announced, and stays its team's.
    """
    return event["status"] != "draft" and "publishedAt" in event


async def owned(
    database: Database,
    event_id: str,
    caller: Caller,
    needs: teams.Role,
    *,
    session: Session | None = None,
) -> Document:
    """The event if this caller has that role with its organiser.

    Raises NotFound as if there were none, or RoleTooLow for one of the organiser's team.
    """
    event = await find(database, event_id, session=session)
    await _allow(database, event, caller, needs, session)
    return event


async def _allow(
    database: Database,
    event: Document,
    caller: Caller,
    needs: teams.Role,
    session: Session | None = None,
) -> None:
    if caller.role == "gate" and needs == "gate" and caller.event_id == event["_id"]:
        return
    try:
        await teams.allow(database, caller, event["organiserId"], needs, session=session)
    except NotFound:
        raise NotFound("There is no such event.") from None


def moved(event: Document, wanted: Move) -> Document:
    """What changes of the event by that move; empty if it is there already. Raises Invalid."""
    faults: list[tuple[str, str]] = []
    changes: Document = {}
    if wanted.starts_at is not msgspec.UNSET:
        if not 1970 < wanted.starts_at.year < 9999:
            faults.append(("startsAt", "must be between the years 1971 and 9998"))
        else:
            changes["startsAt"] = to_millisecond(wanted.starts_at.astimezone(UTC))
    if wanted.timezone is not msgspec.UNSET:
        if wanted.timezone not in _timezones():
            faults.append(("timezone", "is not an IANA time zone"))
        changes["timezone"] = wanted.timezone
    if wanted.venue_name is not msgspec.UNSET:
        name = label(wanted.venue_name)
        if fault := text_fault(name, TITLE_LENGTH_MAX, length_min=1):
            faults.append(("venueName", fault))
        changes["venueName"] = name
        changes["words"] = search_words(f"{event['name']} {name} {event['description']}")
    if faults:
        raise Invalid(faults)
    if all(event[name] == value for name, value in changes.items()):
        return {}
    return changes


async def set_fees(database: Database, event_id: str, per_seat: int, basis_points: int) -> Document:
    """The fees of the seats that are ordered from now on; what was ordered keeps its own.

    Returns the event. Raises NotFound, or Invalid for fees that can't be.
    """
    faults = []
    if not 0 <= per_seat <= PRICE_MAX:
        faults.append(("perSeat", f"must be from 0 to {PRICE_MAX}"))
    if not 0 <= basis_points <= BASIS_POINTS:
        faults.append(("basisPoints", f"must be from 0 to {BASIS_POINTS}"))
    if faults:
        raise Invalid(faults)
    await find(database, event_id)
    terms = {"perSeat": per_seat, "basisPoints": basis_points}
    await database.events.update_one({"_id": event_id}, {"$set": {"fees": terms}})
    return await find(database, event_id)


async def listing(
    database: Database,
    *,
    limit: int,
    cursor: str | None = None,
    status: str | None = "published",
    category: str | None = None,
    q: str | None = None,
    starts_from: datetime | None = None,
    starts_to: datetime | None = None,
    organiser_id: str | None = None,
) -> Page:
    """Events by their start, soonest first.

    Without `organiser_id` only published, cancelled or ended ones; with it that organiser's own,
    drafts too, and of every status where `status` is None. `q` finds events that have all its
    words. `starts_to` is exclusive.
    """
    filter_: Document = {"status": {"$ne": "creating"} if status is None else status}
    if organiser_id is not None:
        filter_["organiserId"] = organiser_id
    elif status not in ("published", "cancelled", "ended"):
        raise Invalid([("status", "must be published, cancelled or ended")])
    elif status == "cancelled":
        filter_["publishedAt"] = {"$exists": True}
    if category is not None:
        filter_["category"] = label(category)
    if q is not None:
        words = search_words(q)
        if not words:
            return Page([], None)
        filter_["words"] = words[0] if len(words) == 1 else {"$all": words}
    if starts := _between(starts_from, starts_to):
        filter_["startsAt"] = starts
    # The cursor holds only where the list was left; a changed filter simply goes on from there.
    if position := pages.decode(cursor, "events"):
        after = {
            "$or": [
                {"startsAt": {"$gt": position.instant}},
                {"startsAt": position.instant, "_id": {"$gt": position.identifier}},
            ]
        }
        filter_ = {"$and": [{"startsAt": {"$gte": position.instant}}, filter_, after]}
    found = (
        await database.events.find(filter_, {"words": 0})
        .sort([("startsAt", 1), ("_id", 1)])
        .limit(limit + 1)
        .to_list(limit + 1)
    )
    return pages.cut(found, limit, "events", "startsAt")


def _between(starts_from: datetime | None, starts_to: datetime | None) -> Document:
    bounds = {"$gte": starts_from, "$lt": starts_to}
    return {name: instant for name, instant in bounds.items() if instant is not None}


# --- Changing -----------------------------------------------------------------------------------


async def publish(database: Database, event_id: str, caller: Caller, now: datetime) -> Document:
    """Put a draft on sale and return it; publishing what is published already changes nothing.

    Raises NotFound, or EventState for an event that is cancelled or ended.
    """
    event = await owned(database, event_id, caller, "editor")
    published: Document | None = await database.events.find_one_and_update(
        {"_id": event_id, "status": "draft"},
        {"$set": {"status": "published", "publishedAt": now}},
        return_document=ReturnDocument.AFTER,
    )
    if published is not None:
        return published
    event = await find(database, event_id)
    if event["status"] != "published":
        raise EventState(f"The event is {event['status']}: it can't be published.")
    return event


async def cancel(
    database: Database, event_id: str, now: datetime, *, session: Session | None = None
) -> bool:
    """Take an event off sale for good. True when this call did it.

    Holds and orders that wait for payment are refused from now on; a payment that still comes in
    is given back.
    """
    result = await database.events.update_one(
        {"_id": event_id, "status": {"$in": ["draft", "published"]}},
        {"$set": {"status": "cancelled", "cancelledAt": now}},
        session=session,
    )
    return result.modified_count == 1


async def end_past(database: Database, now: datetime) -> int:
    """Mark published events as ended once both their sale and their start are over."""
    over = {"status": "published", "saleEndsAt": {"$lte": now}, "startsAt": {"$lte": now}}
    past = await database.events.find(over, {"_id": 1}).limit(ENDED_PER_RUN_MAX).to_list()
    result = await database.events.update_many(
        {"_id": {"$in": [event["_id"] for event in past]}, "status": "published"},
        {"$set": {"status": "ended"}},
    )
    return result.modified_count
