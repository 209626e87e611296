"""What every fan asked and was told, and whether the database agrees."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from ticketing import holds
from ticketing.mongo import Database, Document

NO_ANSWER = 0
DOCUMENTS_MAX = 200_000

What = Literal["hold", "release", "order", "pay", "look", "cancel"]


@dataclass(frozen=True)
class Answer:
    """One request and what came back, in seconds of the drill's own clock."""

    asked_at: float
    answered_at: float
    status: int
    """The HTTP status, or NO_ANSWER."""


@dataclass
class Step:
    """One thing a fan wanted, asked for with one key until it was told what became of it."""

    what: What
    answers: list[Answer] = field(default_factory=list)
    told: Document | None = None
    """The body of the answer that acknowledged it."""

    @property
    def is_acknowledged(self) -> bool:
        """Whether the fan was told that it is done."""
        return bool(self.answers) and 200 <= self.answers[-1].status < 300

    @property
    def is_refused(self) -> bool:
        """Whether the fan was told that it is not done, and never left in doubt before that.

        After a lost answer a refusal may mean that it was done already.
        """
        return bool(self.answers) and all(400 <= answer.status < 500 for answer in self.answers)


@dataclass
class Purchase:
    """What one fan did, in order. Each has a name of its own: nothing else explains its seats."""

    fan_id: str
    quantity: int
    steps: list[Step] = field(default_factory=list)

    def step(self, what: What) -> Step | None:
        """The step of this kind, if the fan came to it."""
        return next((step for step in self.steps if step.what == what), None)

    def was_told(self, what: What) -> bool:
        """Whether a step of this kind was acknowledged."""
        step = self.step(what)
        return step is not None and step.is_acknowledged


@dataclass(frozen=True)
class Found:
    """What the database says, by fan."""

    orders: dict[str, list[Document]]
    seats: dict[str, list[Document]]


async def read(database: Database, event_id: str, purchases: Iterable[Purchase]) -> Found:
    """What became of these purchases, and of seats and orders of anybody else."""
    names = {_part(event_id, purchase.fan_id): purchase.fan_id for purchase in purchases}
    orders, seats = defaultdict(list), defaultdict(list)
    for order in await database.orders.find({"eventId": event_id}).to_list(DOCUMENTS_MAX):
        orders[order["fanId"]].append(order)
    taken = {"eventId": event_id, "status": {"$in": ["held", "sold"]}}
    for seat in await database.seats.find(taken).to_list(DOCUMENTS_MAX):
        part = holds.fan_part(seat["holdId"])
        seats[names.get(part, part)].append(seat)
    return Found(dict(orders), dict(seats))


def _part(event_id: str, fan_id: str) -> str:
    return holds.fan_part(str(holds.fan_range(event_id, fan_id)["$gte"]))


def judge(purchases: Iterable[Purchase], found: Found) -> list[str]:
    """Where the database contradicts what fans were told; empty when nothing is lost or left."""
    known = {purchase.fan_id: purchase for purchase in purchases}
    problems = [
        f"{fan_id}: it has {what} and asked for nothing"
        for what, owners in (("an order", found.orders), ("a seat", found.seats))
        for fan_id in owners
        if fan_id not in known
    ]
    for fan_id, purchase in known.items():
        mine = _Mine(purchase, found.orders.get(fan_id, []), found.seats.get(fan_id, []))
        problems += [f"{fan_id}: {problem}" for problem in _problems(mine)]
    return problems


@dataclass(frozen=True)
class _Mine:
    purchase: Purchase
    orders: list[Document]
    seats: list[Document]

    @property
    def order(self) -> Document | None:
        return self.orders[0] if self.orders else None

    def seat_ids(self, status: str) -> list[str]:
        return sorted(seat["_id"] for seat in self.seats if seat["status"] == status)


def _problems(mine: _Mine) -> Iterator[str]:
    if len(mine.orders) > 1:
        yield "it has more than one order"
    yield from _of_hold(mine)
    yield from _of_order(mine)
    yield from _of_payment(mine)
    yield from _of_consistency(mine)


def _of_hold(mine: _Mine) -> Iterator[str]:
    hold, wish = mine.purchase.step("hold"), mine.purchase
    if hold is None or hold.is_refused:
        if mine.seats or mine.orders:
            yield "its hold was refused and left something"
        return
    if not hold.is_acknowledged:
        if len(mine.seats) not in (0, wish.quantity):
            yield "half a hold is left of a request nobody answered"
        return
    release, cancel = wish.step("release"), wish.step("cancel")
    if release is not None and release.is_acknowledged:
        if mine.seats:
            yield "its hold was released and is there"
    elif release is not None:
        if len(mine.seats) not in (0, wish.quantity):
            yield "half a hold is left of a release nobody answered"
    elif cancel is None and sorted(seat["_id"] for seat in mine.seats) != _held(hold):
        yield "LOST: its hold was acknowledged and its seats are not there"


def _of_order(mine: _Mine) -> Iterator[str]:
    order = mine.purchase.step("order")
    if order is None or order.is_refused:
        if mine.orders:
            yield "it has an order and did not get one"
        return
    stored = None if mine.order is None else mine.order["_id"]
    if order.told is not None and stored != order.told["orderId"]:
        yield "LOST: its order was acknowledged and is not there"


def _of_payment(mine: _Mine) -> Iterator[str]:
    pay, look, cancel = (mine.purchase.step(what) for what in ("pay", "look", "cancel"))
    status = None if mine.order is None else mine.order["status"]
    is_confirmed = (pay is not None and pay.is_acknowledged) or (
        look is not None and look.told is not None and look.told["status"] == "confirmed"
    )
    if cancel is not None and cancel.is_acknowledged:
        if status != "cancelled":
            yield f"LOST: its order was cancelled and is {status}"
    elif is_confirmed:
        allowed = {"confirmed"} if cancel is None else {"confirmed", "cancelled"}
        if status not in allowed:
            yield f"LOST: its payment was acknowledged and its order is {status}"
    elif pay is None and status == "confirmed":
        yield "its order is confirmed and nobody paid"


def _of_consistency(mine: _Mine) -> Iterator[str]:
    if mine.order is None:
        if mine.seat_ids("sold"):
            yield "seats are sold to it without an order"
        return
    listed = sorted(seat["seatId"] for seat in mine.order["seats"])
    match mine.order["status"]:
        case "confirmed":
            tickets = sorted(ticket["seatId"] for ticket in mine.order["tickets"])
            if not mine.seat_ids("sold") == listed == tickets:
                yield "its confirmed order, tickets and sold seats differ"
        case "pendingPayment":
            if mine.seat_ids("held") != listed:
                yield "its order waits for a payment and its seats are not held"
        case _:
            if mine.seats:
                yield f"its order is {mine.order['status']} and it has seats"


def _held(hold: Step) -> list[str]:
    told: dict[str, Any] = hold.told or {}
    return sorted(seat["seatId"] for seat in told.get("seats", ()))


# --- Times ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Figures:
    """How the sale went on."""

    requests: int
    acknowledged: int
    refused: int
    unavailable: int
    """Answered 503: try again."""
    faults: int
    """Any other 5xx, which nobody should ever see."""
    no_answer: int
    recovery_seconds: float
    """From the fault to the first hold that was acknowledged after the last disturbed one."""
    gap_seconds: float
    """The longest time without an acknowledged hold."""
    answer_seconds_max: float


def figures(purchases: Iterable[Purchase], fault_at: float) -> Figures:
    """How the sale went on, with a fault at that time."""
    steps = [step for purchase in purchases for step in purchase.steps]
    answers = [answer for step in steps for answer in step.answers]
    held = sorted(
        step.answers[-1].answered_at
        for step in steps
        if step.what == "hold" and step.is_acknowledged
    )
    disturbed = [
        answer.answered_at
        for step in steps
        if step.what == "hold"
        for answer in step.answers
        if answer.answered_at > fault_at and (answer.status >= 500 or answer.status == NO_ANSWER)
    ]
    well_again = [at for at in held if not disturbed or at > max(disturbed)]
    return Figures(
        requests=len(answers),
        acknowledged=sum(200 <= answer.status < 300 for answer in answers),
        refused=sum(400 <= answer.status < 500 for answer in answers),
        unavailable=sum(answer.status == 503 for answer in answers),
        faults=sum(answer.status >= 500 and answer.status != 503 for answer in answers),
        no_answer=sum(answer.status == NO_ANSWER for answer in answers),
        recovery_seconds=(
            0.0 if not disturbed else (well_again[0] - fault_at if well_again else float("inf"))
        ),
        gap_seconds=max((b - a for a, b in pairwise(held)), default=0.0),
        answer_seconds_max=max(
            (answer.answered_at - answer.asked_at for answer in answers), default=0.0
        ),
    )
