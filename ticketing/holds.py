"""A hold is a timed claim of one fan on some seats of one event: all of them or none.

A hold has no document of its own. It is the seats that carry its `holdId`, and that id is made of
the event, the fan, the request's key and its body in fixed order:

    hold_EVENT.FAN.KEY.BODY

So a request repeated with its key is the same hold, and one range of one index answers "seats of
this hold" and "all this fan has of this event", which the limit per fan needs.

A hold is resolved once: released by the fan, lapsed by time, or turned into an order.
"""

import asyncio
import itertools
import random
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any, ClassVar

from ticketing import adjoining, events, identifiers, seats
from ticketing.boards import Board, Boards
from ticketing.clock import seconds
from ticketing.errors import IdempotencyKeyReused, Invalid, NotFound, Refusal
from ticketing.mongo import Database, Document
from ticketing.seats import Claim, Plan, Plans

SEATS_PER_HOLD_MAX = 50
# Each further attempt means that somebody else won a seat meanwhile, so the sale moves on; the
# limit bounds the time of one request.
ATTEMPTS_MAX = 12
BACK_OFF_SECONDS_MAX = 0.05
FAN_SEATS_READ_MAX = 2_000
FANS_REMEMBERED_MAX = 10_000
HOLDS_REMEMBERED_MAX = 10_000
# Long enough for the confirmation that follows at once, its retries included.
TAKEN_AGAIN_SECONDS = 60
# After so many collisions a board is too far behind to be of use.
BOARD_TRIES_MAX = 4

# An event's id and a fan's.
Fan = tuple[str, str]
# What fans had of their events when it was last looked at; a fan not looked at is not in it.
Known = Mapping[Fan, list[Document]]


class SeatsUnavailable(Refusal):
    """Some seat asked for is not available; nothing is held for this request."""

    slug = "seats-unavailable"
    title = "Seats unavailable"

    def __init__(self, unavailable: Iterable[str]) -> None:
        super().__init__("Some of these seats are not available. Nothing was held.")
        self.unavailable = sorted(unavailable)

    def members(self) -> dict[str, Any]:
        return {"unavailable": self.unavailable}


class NotEnoughSeats(Refusal):
    """Fewer seats are available than asked for."""

    slug = "not-enough-seats"
    title = "Not enough seats"

    def __init__(self, available: int) -> None:
        super().__init__("Not enough seats are available. Nothing was held.")
        self.available = available

    def members(self) -> dict[str, Any]:
        return {"available": self.available}


class LimitExceeded(Refusal):
    """The fan would have more seats than one fan may have for this event."""

    slug = "limit-exceeded"
    title = "Limit exceeded"

    def __init__(self, limit: int, have: int) -> None:
        super().__init__(f"One fan may have {limit} seats of this event and you have {have}.")
        self.limit = limit
        self.have = have

    def members(self) -> dict[str, Any]:
        return {"limit": self.limit, "have": self.have}


class HoldExpired(Refusal):
    """The hold lapsed, was released, or became an order."""

    slug = "hold-expired"
    title = "Hold expired"
    gone: ClassVar[str] = "The hold has lapsed or was released."


@dataclass(frozen=True)
class HoldRequest:
    """What a fan asks for: `seat_ids`, or `quantity` seats of a section or of the whole event.

    Those of a general-admission section are any, all others the best there are.

    `key` is the Idempotency-Key, and `body` what it is bound to. Without a key `own_key` stands for
    it, so that a request tried again after a lost answer is still the same hold. It opens nothing
    and need not be hard to guess.
    """

    event_id: str
    fan_id: str
    seat_ids: tuple[str, ...] = ()
    quantity: int = 0
    section: str | None = None
    key: str | None = None
    body: bytes = b""
    own_key: str = field(default_factory=lambda: f"{random.getrandbits(128):032x}")

    @property
    def size(self) -> int:
        """How many seats are asked for."""
        return len(self.seat_ids) or self.quantity

    def touches(self) -> tuple[Hashable, ...]:
        """What two requests must not touch at once: the fan's limit, a seat, a choice of seats."""
        fan = (self.event_id, self.fan_id)
        return (fan, *self.seat_ids) if self.seat_ids else (fan, self.event_id)


@dataclass(frozen=True)
class Hold:
    """A hold as it stands: its seats in plan order, and when it lapses."""

    hold_id: str
    event_id: str
    seats: list[Document]
    currency: str
    expires_at: datetime


class Remembered:
    """Holds that this process has just made: mostly the order of one comes next, and here too.

    What is remembered may be over by now. An order made of it is checked by the seats themselves.
    """

    def __init__(self) -> None:
        self._holds: OrderedDict[str, Hold] = OrderedDict()

    def keep(self, hold: Hold) -> None:
        """Remember a hold; the oldest give way to it."""
        self._holds[hold.hold_id] = hold
        if len(self._holds) > HOLDS_REMEMBERED_MAX:
            self._holds.popitem(last=False)

    def take(self, hold_id: str) -> Hold | None:
        """The hold if it is remembered. It is forgotten with that."""
        return self._holds.pop(hold_id, None)


# --- The hold's name ---------------------------------------------------------------------------


@lru_cache(maxsize=FANS_REMEMBERED_MAX)
def _fan_prefix(event_id: str, fan_id: str) -> str:
    return f"hold_{event_id.removeprefix('evt_')}.{identifiers.digest(fan_id)[:24]}."


def fan_range(event_id: str, fan_id: str) -> Document:
    """The filter on `holdId` for all that the fan has of the event, held and sold."""
    prefix = _fan_prefix(event_id, fan_id)
    return {"$gte": prefix, "$lt": prefix[:-1] + "/"}  # "/" follows ".".


def fan_slot(event_id: str, fan_id: str, number: int) -> str:
    """The name of one of the places, counted from 0, that the fan may have at the event."""
    return f"{_fan_prefix(event_id, fan_id).removeprefix('hold_')}{number}"


def fan_part(hold_id: str) -> str:
    """What all holds of one fan for one event have in common."""
    return ".".join(hold_id.split(".", 2)[:2])


def _key_prefix(request: HoldRequest) -> str:
    # Nobody can name another request's own key: a given one is seen through a digest.
    key = request.own_key if request.key is None else identifiers.digest(request.key)
    return f"{_fan_prefix(request.event_id, request.fan_id)}{key}."


def event_of(hold_id: str, fan_id: str) -> str:
    """The event of a hold if the hold is this fan's. Raises NotFound, whatever the text is."""
    prefix, _, rest = hold_id.partition(".")
    event_id = "evt_" + prefix.removeprefix("hold_")
    if not prefix.startswith("hold_") or not rest:
        raise NotFound("There is no such hold.")
    if not hold_id.startswith(_fan_prefix(event_id, fan_id)):
        raise NotFound("There is no such hold.")
    return event_id


# --- Reading -----------------------------------------------------------------------------------


async def find(database: Database, hold_id: str, fan_id: str, now: datetime) -> Hold:
    """The hold while it lasts. Raises NotFound for another fan's, HoldExpired once it is over."""
    event_id = event_of(hold_id, fan_id)
    event = await events.find(database, event_id)
    held = await seats_of(database, [hold_id])
    if not held or any(seat["status"] != "held" or seat["heldUntil"] <= now for seat in held):
        raise HoldExpired(HoldExpired.gone)
    return _hold(event, hold_id, held)


async def is_known(database: Database, request: HoldRequest) -> bool:
    """Whether the request's key has a hold already, which its repetition is answered with."""
    prefix = _key_prefix(request)
    found = await database.seats.find_one(
        {"holdId": {"$gte": prefix, "$lt": f"{prefix[:-1]}/"}}, {"_id": 1}
    )
    return found is not None


async def seats_of(
    database: Database, hold_ids: Sequence[str], *, fields: Sequence[str] | None = None
) -> list[Document]:
    """The seats of these holds in plan order, held or sold; whole, or `_id` and these fields."""
    found = database.seats.find({"holdId": {"$in": list(hold_ids)}}, fields)
    seats_found = await found.to_list(len(hold_ids) * SEATS_PER_HOLD_MAX)
    return sorted(seats_found, key=lambda seat: seat["_id"])


def _hold(event: Document, hold_id: str, held: list[Document]) -> Hold:
    return Hold(hold_id, event["_id"], held, event["currency"], min(s["heldUntil"] for s in held))


def counts(seat: Document, now: datetime) -> bool:
    """Whether a seat counts against its fan's limit: sold, or held and not yet over."""
    return bool(seat["status"] == "sold" or (seat["status"] == "held" and seat["heldUntil"] > now))


# --- Placing -----------------------------------------------------------------------------------


@dataclass
class _Attempt:
    """One request on its way through `place`."""

    request: HoldRequest
    event: Document
    plan: Plan
    key_prefix: str
    wanted: list[str] = field(default_factory=list)
    slots: list[str] = field(default_factory=list)
    not_on_sale: Refusal | None = None
    tries: int = 0
    outcome: Hold | Refusal | None = None
    has_leftover: bool = False

    @cached_property
    def hold_id(self) -> str:
        body = identifiers.digest(self.request.body, "\n".join(self.request.seat_ids))
        return self.key_prefix + body[:16]

    @property
    def chance(self) -> random.Random:
        """What this try draws its seats by: by the request, so that the same one, sent to two
        processes at once, wants the same seats in both, and one of the two finds them its own."""
        return random.Random(f"{self.hold_id}{self.tries}")  # noqa: S311

    @property
    def fan(self) -> Fan:
        return self.request.event_id, self.request.fan_id


async def place(
    database: Database,
    requests: Sequence[HoldRequest],
    *,
    hold_seconds: int,
    now: datetime,
    boards: Boards | None = None,
    recent: events.Recent | None = None,
    plans: Plans | None = None,
) -> list[Hold | Refusal]:
    """Place each hold wholly or not at all; answer each with the hold or the reason against it.

    The requests are settled as if one came after the other, in some order; a refused one leaves
    nothing behind. The checks come in this order: the event, the seats' names, the key (a repeated
    request gets its hold also after the sale's end), the sale window, the limit per fan, the seats.

    Where a request names no seats, `boards` say which are likely to be free, without a look at the
    database; without them, and where they do not know of enough, the seats are read. Likewise
    `recent` may know the events and `plans` their seats. What becomes of the seats shows on the
    boards at once.
    """
    plans = plans or Plans(database)
    event_ids = {request.event_id for request in requests}
    # What a fan has already is looked at before the first try only where a repeated request would
    # choose other seats than before, or where there is likely nothing left to try for. Whatever
    # else there is to know shows when the seats are taken: then it is tried again, knowing it.
    choosing = {
        (request.event_id, request.fan_id)
        for request in requests
        if not request.seat_ids and (request.key is not None or _seems_sold_out(boards, request))
    }
    # One after the other: mostly neither has to be read, and then nothing is waited for.
    found = await (recent.slim(event_ids) if recent else events.slim(database, event_ids))
    known = await _fans_seats(database, choosing)
    open_ids = {event_id for event_id, event in found.items() if not _not_on_sale(event, now)}
    outcomes: list[Hold | Refusal | None] = []
    waiting: list[_Attempt] = []
    for request in requests:
        try:
            event = found.get(request.event_id)
            if event is None or event["status"] == "draft":
                raise NotFound("There is no such event.")
            _check_names(event, request)
            plan = await plans.get(request.event_id)
            attempt = _Attempt(request, event, plan, _key_prefix(request))
            if request.event_id not in open_ids:
                attempt.not_on_sale = _not_on_sale(event, now)
        except Refusal as refusal:
            outcomes.append(refusal)
        else:
            outcomes.append(None)
            waiting.append(attempt)
    everybody = list(waiting)
    until = now + seconds(hold_seconds)
    while waiting:
        waiting = await _round(database, boards, waiting, known, now, until)
        for attempt in waiting:
            if attempt.tries == ATTEMPTS_MAX:
                attempt.outcome = _gave_up(attempt)
        waiting = [attempt for attempt in waiting if attempt.outcome is None]
        known = await _fans_seats(database, {attempt.fan for attempt in waiting})
        if any(attempt.tries > 1 for attempt in waiting):
            # Only requests in other processes can be in the way twice; to meet them again at the
            # same moment is what a random pause prevents.
            await asyncio.sleep(random.uniform(0, BACK_OFF_SECONDS_MAX))  # noqa: S311
    placed = iter(everybody)
    return [_outcome(next(placed)) if outcome is None else outcome for outcome in outcomes]


def _seems_sold_out(boards: Boards | None, request: HoldRequest) -> bool:
    board = None if boards is None else boards.known(request.event_id)
    if board is None:
        return False
    section = None if request.section is None else section_of(board.event, request.section)
    part = None if section is None else board.section_at(section["firstOrdinal"])
    return board.free_count(part) < request.quantity


def _not_on_sale(event: Document, now: datetime) -> Refusal | None:
    try:
        events.on_sale(event, now)
    except Refusal as refusal:
        return refusal
    return None


def _outcome(attempt: _Attempt) -> Hold | Refusal:
    assert attempt.outcome is not None
    return attempt.outcome


def _gave_up(attempt: _Attempt) -> Refusal:
    if attempt.request.seat_ids:
        return SeatsUnavailable(attempt.request.seat_ids)
    return NotEnoughSeats(0)


def section_of(event: Document, name: str) -> Document | None:
    """The event's section of that name, however its letters are composed."""
    label = events.label(name)
    return next((section for section in event["sections"] if section["name"] == label), None)


def _check_names(event: Document, request: HoldRequest) -> None:
    faults = [
        (f"seatIds[{index}]", "is not a seat of this event")
        for index, seat_id in enumerate(request.seat_ids)
        if seats.parse_ordinal(event, seat_id) is None
    ]
    if request.section is not None and section_of(event, request.section) is None:
        faults.append(("section", "is not a section of this event"))
    if faults:
        raise Invalid(faults)


@dataclass(frozen=True)
class _Reading:
    """An event's or a section's seats as they were read once for a whole round."""

    places: list[adjoining.Place]
    free: frozenset[str]


@dataclass
class _Round:
    """What the requests of one round want, as far as they have been looked at."""

    claimed: set[str] = field(default_factory=set)
    """Seats that those tried in this round want."""
    keys: set[str] = field(default_factory=set)
    added: Counter[Fan] = field(default_factory=Counter)
    """How many more seats each fan would have."""
    slots: set[str] = field(default_factory=set)
    """Their places at the event that those tried in this round want."""
    overdue: list[str] = field(default_factory=list)
    """Seats whose hold is over and which have such a place still."""
    readings: dict[tuple[str, str | None], _Reading] = field(default_factory=dict)
    freed: dict[str, Board] = field(default_factory=dict)
    """By event: the board as it is with the seats free whose holds are overdue."""
    trying: list[_Attempt] = field(default_factory=list)
    deferred: list[_Attempt] = field(default_factory=list)
    """Those that depend on what becomes of one that is tried."""
    incomplete: list[_Attempt] = field(default_factory=list)
    """Those of which an earlier try was cut off half way."""


async def _round(
    database: Database,
    boards: Boards | None,
    attempts: list[_Attempt],
    known: Known,
    now: datetime,
    until: datetime,
) -> list[_Attempt]:
    """Try what can be tried together, at least one; returns those that should be tried again.

    `known` is what fans had just before. Nobody is refused for what is not known of them.
    """
    this = _Round()
    for attempt in attempts:
        try:
            await _consider(database, boards, this, attempt, known.get(attempt.fan, []), now)
        except Refusal as refusal:
            if attempt.fan in known:
                attempt.outcome = refusal
            else:
                this.deferred.append(attempt)
    if this.incomplete:
        # What was left must go, or the hold would end up with more seats than it asked for.
        left = [attempt.hold_id for attempt in this.incomplete]
        await seats.let_go(database, left, "yielded")
    if this.overdue:
        await seats.lapse(database, this.overdue, now)
    again = list(this.incomplete)
    if this.trying:
        again += await _settle(database, boards, this.trying, known, now, until)
    return again + _after(this, known)


async def _consider(
    database: Database,
    boards: Boards | None,
    this: _Round,
    attempt: _Attempt,
    mine: list[Document],
    now: datetime,
) -> None:
    """Answer one request, or put it among those that are tried now, or later. Raises Refusal."""
    if attempt.key_prefix in this.keys:
        # The same key twice in a group: the second is a retry, or has another body. Which it is
        # shows once the first has been settled.
        this.deferred.append(attempt)
        return
    if replayed := _replayed(attempt, mine, now):
        attempt.outcome = replayed
        return
    if bought := [seat for seat in mine if _is_sold_to(seat, attempt.hold_id)]:
        attempt.outcome = await _as_it_was(database, attempt, bought)
        return
    if any(seat["holdId"] == attempt.hold_id and counts(seat, now) for seat in mine):
        attempt.tries += 1
        this.incomplete.append(attempt)
        return
    if attempt.not_on_sale is not None:
        raise attempt.not_on_sale
    have = sum(counts(seat, now) for seat in mine)
    _check_limit(attempt, have)
    if have + this.added[attempt.fan] + attempt.request.size > attempt.event["maxSeatsPerFan"]:
        # Over the limit only if the fan's earlier request of this group succeeds.
        this.deferred.append(attempt)
        return
    try:
        wanted = attempt.request.seat_ids or await _choose(database, boards, attempt, this, now)
    except NotEnoughSeats:
        if not this.claimed:
            raise
        # Seats claimed by others of this group may come back when those are refused.
        this.deferred.append(attempt)
        return
    attempt.wanted = sorted(wanted)
    if not this.claimed.isdisjoint(attempt.wanted):
        # Two of this group want one seat. The second waits for what becomes of the first, since
        # that one may be refused for another of its seats.
        this.deferred.append(attempt)
        return
    attempt.slots = _free_slots(this, attempt, mine, now)
    this.slots.update(attempt.slots)
    this.claimed.update(attempt.wanted)
    this.keys.add(attempt.key_prefix)
    this.added[attempt.fan] += len(attempt.wanted)
    attempt.tries += 1
    this.trying.append(attempt)


def _free_slots(this: _Round, attempt: _Attempt, mine: list[Document], now: datetime) -> list[str]:
    """The first places at the event that the fan has not used, as far as is known.

    There are enough: the limit was looked at by the same knowledge.
    """
    used = {seat["fanSlot"] for seat in mine if counts(seat, now)} | this.slots
    chosen = _slots(attempt.fan, used, attempt.request.size)
    this.overdue += [
        seat["_id"] for seat in mine if not counts(seat, now) and seat["fanSlot"] in chosen
    ]
    return chosen


def _slots(fan: Fan, used: AbstractSet[str], count: int) -> list[str]:
    """The first of the fan's places at the event that are not used."""
    every = (fan_slot(*fan, number) for number in range(len(used) + count))
    return list(itertools.islice((slot for slot in every if slot not in used), count))


def _after(this: _Round, known: Known) -> list[_Attempt]:
    """Of those that were deferred: refuse whose seats are gone by now, and return the others."""
    won = {
        seat_id
        for attempt in this.trying
        if isinstance(attempt.outcome, Hold)
        for seat_id in attempt.wanted
    }
    again: list[_Attempt] = []
    for attempt in this.deferred:
        lost = won.intersection(attempt.request.seat_ids)
        if lost and attempt.key_prefix not in this.keys and attempt.fan in known:
            attempt.outcome = SeatsUnavailable(lost)
        else:
            again.append(attempt)
    return again


def _replayed(attempt: _Attempt, mine: list[Document], now: datetime) -> Hold | None:
    """The hold this very request made before, if it lasts; refuses a key that made another one."""
    # A key is free again once its hold is over, whether or not its seats were freed yet.
    same_key = [seat for seat in mine if _is_keyed(attempt, seat) and counts(seat, now)]
    if any(seat["holdId"] != attempt.hold_id for seat in same_key):
        raise IdempotencyKeyReused("This key was used for a hold with another body.")
    lasting = [seat for seat in same_key if seat["status"] == "held"]
    if len(lasting) != attempt.request.size:
        return None
    return _hold(attempt.event, attempt.hold_id, lasting)


def _is_sold_to(seat: Document, hold_id: str) -> bool:
    return bool(seat["holdId"] == hold_id and seat["status"] == "sold")


async def _as_it_was(database: Database, attempt: _Attempt, bought: list[Document]) -> Hold:
    """The hold that a repeated request made, though it has become an order since.

    A sold seat no longer knows when its hold would have ended, but its order does.
    """
    order = await database.orders.find_one({"_id": bought[0]["orderId"]}, {"expiresAt": 1})
    assert order is not None  # Orders are never deleted.
    currency = attempt.event["currency"]
    return Hold(attempt.hold_id, attempt.event["_id"], bought, currency, order["expiresAt"])


def _check_limit(attempt: _Attempt, have: int) -> None:
    limit = attempt.event["maxSeatsPerFan"]
    if have + attempt.request.size > limit:
        raise LimitExceeded(limit, have)


async def _fans_seats(database: Database, fans: set[Fan]) -> dict[Fan, list[Document]]:
    """All that each of these fans has of their event, in one read."""
    grouped: dict[Fan, list[Document]] = {fan: [] for fan in fans}
    if not fans:
        return grouped
    ranges = [{"holdId": fan_range(*fan)} for fan in fans]
    # The index is named because the server would else plan each of the ranges by itself, which
    # costs it as much as the reading.
    reading = database.seats.find({"$or": ranges}).hint([("holdId", 1)])
    found = await reading.to_list(FAN_SEATS_READ_MAX * len(fans))
    by_prefix = {_fan_prefix(*fan): fan for fan in fans}
    for seat in sorted(found, key=lambda seat: seat["_id"]):
        event_part, fan_part, _ = seat["holdId"].split(".", 2)
        grouped[by_prefix[f"{event_part}.{fan_part}."]].append(seat)
    return grouped


async def _settle(
    database: Database,
    boards: Boards | None,
    trying: list[_Attempt],
    known: Known,
    now: datetime,
    until: datetime,
) -> list[_Attempt]:
    """Take the seats, see who won, and let go of what the losers got; returns who tries again.

    All of it shows on the boards at once, ahead of the change stream: those of the same group who
    choose in the next round would else choose what has just been taken.
    """
    claims = {a.hold_id: _claims(a.hold_id, a.wanted, a.slots, until) for a in trying}
    every = [claim for wanted in claims.values() for claim in wanted]
    taken = await seats.take(database, every)
    doubtful = trying
    if taken.count == len(every):
        # All won, and the places at the event say that nobody has more than the limit. What is
        # left to see is whether a key was used for other seats before.
        for attempt in trying:
            if attempt.request.key is None or attempt.fan in known:
                held = [
                    attempt.plan.seat(seats.ordinal_of(claim.seat_id)) | claim.changes
                    for claim in claims[attempt.hold_id]
                ]
                attempt.outcome = _hold(attempt.event, attempt.hold_id, held)
        doubtful = [attempt for attempt in trying if attempt.outcome is None]
    yielding: dict[str, set[str]] = {}
    if doubtful:
        yielding = await _read_back(database, doubtful, claims, taken.crowded, known, now)
    await _let_go_of_losers(database, trying, yielding, until)
    if boards is not None:
        for attempt in trying:
            if isinstance(attempt.outcome, Hold):
                boards.mark(attempt.request.event_id, attempt.wanted, "held")
            elif attempt.hold_id in yielding:
                boards.mark(attempt.request.event_id, yielding[attempt.hold_id], "available")
    return [attempt for attempt in trying if attempt.outcome is None]


async def _let_go_of_losers(
    database: Database, trying: list[_Attempt], yielding: dict[str, set[str]], until: datetime
) -> None:
    if yielded := set().union(*yielding.values()):
        await seats.let_go(database, yielding, "yielded", held_until=until, among=yielded)
    # What an earlier try of the same request has left, of which nobody was told since the database
    # went away: it has another end than what was taken just now.
    if leftover := [attempt.hold_id for attempt in trying if attempt.has_leftover]:
        await seats.let_go(database, leftover, "yielded")


def _claims(hold_id: str, seat_ids: list[str], slots: list[str], until: datetime) -> list[Claim]:
    return [
        Claim(seat_id, hold_id, until, slot, lead=index == 0)
        for index, (seat_id, slot) in enumerate(zip(seat_ids, slots, strict=True))
    ]


async def _read_back(
    database: Database,
    trying: list[_Attempt],
    claims: dict[str, list[Claim]],
    crowded: frozenset[str],
    known: Known,
    now: datetime,
) -> dict[str, set[str]]:
    """Give each attempt its outcome by what the fans have now, or none if it must try again.

    Returns what those got that must let go of it. This is also how a write whose answer was lost
    is settled. `crowded` are those whose fan had used a place already.
    """
    mine = await _fans_seats(database, {attempt.fan for attempt in trying})
    won_by = {attempt.hold_id: _won(attempt, mine, now) for attempt in trying}
    missing = {
        seat_id
        for attempt in trying
        if attempt.hold_id not in crowded
        for seat_id in attempt.wanted
        if seat_id not in won_by[attempt.hold_id]
    }
    if missing and await _lapse_in_the_way(database, list(missing), now):
        missed = [claim for a in trying for claim in claims[a.hold_id] if claim.seat_id in missing]
        crowded |= (await seats.take(database, missed)).crowded
        mine = await _fans_seats(database, {attempt.fan for attempt in trying})
        won_by = {attempt.hold_id: _won(attempt, mine, now) for attempt in trying}
    yielding: dict[str, set[str]] = {}
    for attempt in trying:
        won = won_by[attempt.hold_id]
        lost = set(attempt.wanted) - won
        all_mine = mine[attempt.fan]
        if (
            # What the fan has decides, and that was not known, or not all of it.
            (lost and attempt.hold_id in crowded)
            or (attempt.fan not in known and _has_a_past(attempt, all_mine, won, lost))
            # The same request reached another process at the same time, and that one chose other
            # seats for it. Both give way, and who tries again first is the one.
            or won - set(attempt.wanted)
        ):
            yielding[attempt.hold_id] = won.intersection(attempt.wanted)
        elif lost:
            yielding[attempt.hold_id] = won.intersection(attempt.wanted)
            if attempt.request.seat_ids:
                attempt.outcome = SeatsUnavailable(lost)
                until = claims[attempt.hold_id][0].held_until
                attempt.has_leftover = any(
                    seat["_id"] in won and seat.get("heldUntil") != until for seat in all_mine
                )
        else:
            held = [seat for seat in all_mine if seat["_id"] in won]
            attempt.outcome = _hold(attempt.event, attempt.hold_id, held)
    return yielding


def _has_a_past(attempt: _Attempt, mine: list[Document], won: set[str], lost: set[str]) -> bool:
    """Whether what the fan had before may decide: the key was used, or there is a limit to name."""
    return any(
        seat["status"] == "sold" if seat["_id"] in won else lost or _is_keyed(attempt, seat)
        for seat in mine
    )


def _is_keyed(attempt: _Attempt, seat: Document) -> bool:
    return bool(seat["holdId"].startswith(attempt.key_prefix))


def _won(attempt: _Attempt, mine: dict[Fan, list[Document]], now: datetime) -> set[str]:
    """The seats the hold has. Those it had before, and whose time is over, it has no more."""
    return {
        seat["_id"]
        for seat in mine[attempt.fan]
        if seat["holdId"] == attempt.hold_id and counts(seat, now)
    }


async def _lapse_in_the_way(database: Database, seat_ids: list[str], now: datetime) -> int:
    """Free those of these seats that are held by somebody whose time is over.

    So selling never waits for the release worker: an overdue hold yields to the next buyer.
    """
    blocking = await database.seats.find(
        {"_id": {"$in": seat_ids}}, {"status": 1, "heldUntil": 1}
    ).to_list(len(seat_ids))
    overdue = [s["_id"] for s in blocking if s["status"] == "held" and s["heldUntil"] <= now]
    return await seats.lapse(database, overdue, now) if overdue else 0


async def take_again(
    database: Database,
    event: Document,
    fan_id: str,
    hold_id: str,
    seat_ids: Sequence[str],
    now: datetime,
) -> datetime:
    """Hold the seats of a hold that is over once more, for a payment that came late.

    All or none, for a short time, and by the rules of every other hold, the limit per fan among
    them: so a late payment and a new hold of the same fan at the same moment can't both pass.
    Returns until when. Raises SeatsUnavailable or LimitExceeded, and holds nothing then.
    """
    until = now + seconds(TAKEN_AGAIN_SECONDS)
    fan = (event["_id"], fan_id)
    wanted, limit, have = sorted(seat_ids), event["maxSeatsPerFan"], 0
    for attempt in range(ATTEMPTS_MAX):
        if attempt:
            await asyncio.sleep(random.uniform(0, BACK_OFF_SECONDS_MAX))  # noqa: S311
        await _lapse_in_the_way(database, wanted, now)
        mine = (await _fans_seats(database, {fan}))[fan]
        lasting = [seat for seat in mine if counts(seat, now)]
        ours = [seat for seat in lasting if seat["holdId"] == hold_id and seat["status"] == "held"]
        if [seat["_id"] for seat in ours] == wanted and len({s["heldUntil"] for s in ours}) == 1:
            # Taken already, by a run for the same payment that came no further.
            kept_until: datetime = ours[0]["heldUntil"]
            return kept_until
        have = len(lasting)
        if have + len(wanted) > limit:
            continue
        if len(lasting) < len(mine):
            await seats.lapse(database, [s["_id"] for s in mine if not counts(s, now)], now)
        used = {seat["fanSlot"] for seat in lasting}
        slots = _slots(fan, used, len(wanted))
        claims = _claims(hold_id, wanted, slots, until)
        taken = await seats.take(database, claims)
        if taken.count == len(wanted):
            return until
        await seats.let_go(database, [hold_id], "yielded", held_until=until)
        if not taken.crowded:
            raise SeatsUnavailable(wanted)
    raise LimitExceeded(limit, have)


# --- Choosing ----------------------------------------------------------------------------------


async def _choose(
    database: Database, boards: Boards | None, attempt: _Attempt, this: _Round, now: datetime
) -> list[str]:
    """Seats for a request that names none. Raises NotEnoughSeats.

    The first attempt takes the best; after a collision the choice is drawn among more and more of
    what there is, so that fans who want the same do not fight for it for ever.
    """
    request, event, claimed = attempt.request, attempt.event, this.claimed
    section = section_of(event, request.section) if request.section is not None else None
    if boards is not None and attempt.tries < BOARD_TRIES_MAX:
        board = await boards.get(request.event_id)
        if chosen := _choose_from_board(board, attempt, section, claimed):
            return chosen
        if not boards.behind:
            # Sold out, as far as the board knows: everybody who still comes is answered by what
            # it says and by the overdue holds, of which there are few, and no event is read.
            if request.event_id not in this.freed:
                overdue = await seats.overdue_of(database, request.event_id, now)
                this.freed[request.event_id] = board.with_free(overdue)
            board = this.freed[request.event_id]
            if chosen := _choose_from_board(board, attempt, section, claimed):
                return chosen
            part = None if section is None else board.section_at(section["firstOrdinal"])
            raise NotEnoughSeats(max(0, board.free_count(part) - len(claimed)))
    if section is not None and section["kind"] == "general":
        return await _choose_any(database, attempt, section, claimed, now)
    key = (request.event_id, request.section)
    if key not in this.readings:
        this.readings[key] = await _read_seats(database, event, section, now)
    reading = this.readings[key]
    available = len(reading.free - claimed)
    if available < request.quantity:
        raise NotEnoughSeats(available)
    left = ((seat, row, free and seat not in claimed) for seat, row, free in reading.places)
    return adjoining.choose(left, request.quantity, spread=attempt.tries, rng=attempt.chance)


def _choose_from_board(
    board: Board, attempt: _Attempt, section: Document | None, claimed: set[str]
) -> list[str] | None:
    """Seats that the board takes for free; None if it does not know of enough."""
    request = attempt.request
    part = None if section is None else board.section_at(section["firstOrdinal"])
    if part is not None and section is not None and section["kind"] == "general":
        ordinals = board.any_free(part, request.quantity + len(claimed), attempt.chance)
        found = [seats.seat_id(board.event_id, ordinal) for ordinal in ordinals]
        free = [seat for seat in found if seat not in claimed][: request.quantity]
        return free if len(free) == request.quantity else None
    if board.free_count(part) < request.quantity + len(claimed):
        return None
    left = ((seat, row, free and seat not in claimed) for seat, row, free in board.places(part))
    return adjoining.choose(left, request.quantity, spread=attempt.tries, rng=attempt.chance)


async def _read_seats(
    database: Database, event: Document, section: Document | None, now: datetime
) -> _Reading:
    found = await seats.read(
        database, event, section, fields=("section", "row", "status", "heldUntil")
    )
    places: list[adjoining.Place] = [
        (seat["_id"], (seat["section"], seat["row"]), seats.is_free(seat, now)) for seat in found
    ]
    return _Reading(places, frozenset(seat for seat, _, is_free in places if is_free))


async def _choose_any(
    database: Database, attempt: _Attempt, section: Document, claimed: set[str], now: datetime
) -> list[str]:
    """Any free seats of the section, beginning at a random place so that nobody queues for one."""
    first, count = section["firstOrdinal"], section["seatCount"]
    turn = attempt.chance.randrange(count)
    chosen: list[str] = []
    available = 0
    for begin, length in ((first + turn, count - turn), (first, turn)):
        if not length or len(chosen) == attempt.request.quantity:
            continue
        free = (
            await database.seats.find(
                {
                    "_id": seats.plan_range(attempt.event["_id"], begin, length),
                    "$or": [
                        {"status": "available"},
                        {"status": "held", "heldUntil": {"$lte": now}},
                    ],
                },
                {"_id": 1},
            )
            .sort("_id", 1)
            .limit(attempt.request.quantity + len(claimed))
            .to_list(attempt.request.quantity + len(claimed))
        )
        found = [seat["_id"] for seat in free if seat["_id"] not in claimed]
        available += len(found)
        chosen += found[: attempt.request.quantity - len(chosen)]
    if len(chosen) < attempt.request.quantity:
        raise NotEnoughSeats(available)
    return chosen


# --- Letting go --------------------------------------------------------------------------------


async def release(database: Database, hold_id: str, fan_id: str) -> list[str]:
    """Put the hold's seats back on sale at once and return them; a hold that is over stays over.

    Raises NotFound for another fan's hold. Seats that were sold meanwhile stay sold.
    """
    event_of(hold_id, fan_id)
    held = [seat for seat in await seats_of(database, [hold_id]) if seat["status"] == "held"]
    if held:
        await seats.let_go(database, [hold_id], "released")
    return [seat["_id"] for seat in held]
