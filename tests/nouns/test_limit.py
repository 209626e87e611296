"""Whatever fans hold, release and let lapse: what they get is what a plain model says."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.conftest import NOW, Sale, put_on_sale
from ticketing import events, holds, seats
from ticketing.errors import IdempotencyKeyReused, Refusal
from ticketing.holds import Hold, HoldRequest, LimitExceeded, NotEnoughSeats, SeatsUnavailable
from ticketing.mongo import Database

LIMIT = 3
SEATS = 6
HOLD_SECONDS = 600

FANS = st.sampled_from(["fan_a", "fan_b"])
WISHES = st.tuples(
    st.just("hold"),
    FANS,
    st.sets(st.integers(0, SEATS - 1), min_size=1, max_size=LIMIT + 1).map(sorted),
    st.sampled_from([None, None, "k1", "k2"]),
)
STEPS = st.one_of(
    WISHES,
    st.tuples(st.just("any"), FANS, st.integers(1, LIMIT + 1)),
    st.tuples(st.just("release"), st.integers(0, 5)),
    st.tuples(st.just("wait"), st.sampled_from([60, 400])),
)


@dataclass
class Held:
    """A hold as the model has it."""

    fan: str
    key: str | None
    ordinals: list[int]
    until: datetime
    hold_id: str = ""


@dataclass
class Model:
    """What should be true, worked out without any database."""

    now: datetime = NOW
    holds: list[Held] = field(default_factory=list)

    def lasting(self) -> list[Held]:
        return [held for held in self.holds if held.until > self.now]

    def left_of_limit(self, fan: str) -> int:
        return LIMIT - sum(len(held.ordinals) for held in self.lasting() if held.fan == fan)

    def free(self) -> int:
        return SEATS - sum(len(held.ordinals) for held in self.lasting())

    def expected(self, fan: str, ordinals: list[int], key: str | None) -> Held | type[Refusal]:
        mine = [held for held in self.lasting() if held.fan == fan]
        same_key = [held for held in mine if key is not None and held.key == key]
        if same_key:
            same = same_key[0].ordinals == ordinals
            return same_key[0] if same else IdempotencyKeyReused
        if len(ordinals) > self.left_of_limit(fan):
            return LimitExceeded
        taken = {ordinal for held in self.lasting() for ordinal in held.ordinals}
        if taken.intersection(ordinals):
            return SeatsUnavailable
        until = self.now + timedelta(seconds=HOLD_SECONDS)
        return Held(fan, key, ordinals, until)


@given(st.lists(STEPS, max_size=12))
@example(
    # A key whose hold is over is free, though nobody has swept its seats yet.
    [
        ("hold", "fan_b", [1], "k1"),
        ("wait", 400),
        ("wait", 400),
        ("hold", "fan_a", [0], None),
        ("hold", "fan_b", [0], "k1"),
    ]
)
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
async def test_every_outcome_is_the_models(database: Database, steps: list[tuple]) -> None:
    await database.seats.delete_many({})
    sale = await put_on_sale(
        database,
        sections=[events.Section("A", "Front", rows=[events.Row("1", count=SEATS)])],
        max_seats_per_fan=LIMIT,
    )
    model = Model()
    for step in steps:
        match step:
            case ("hold", fan, ordinals, key):
                await _hold(database, sale, model, fan, ordinals, key)
            case ("any", fan, quantity):
                await _hold_any(database, sale, model, fan, quantity)
            case ("release", number) if number < len(model.holds):
                held = model.holds.pop(number)
                await holds.release(database, held.hold_id, held.fan)
            case ("wait", seconds):
                model.now += timedelta(seconds=seconds)
    found = await seats.read(database, sale.event)
    holding = {seat["_id"]: seat["holdId"] for seat in found if not seats.is_free(seat, model.now)}
    assert holding == {
        sale.seat(ordinal): held.hold_id for held in model.lasting() for ordinal in held.ordinals
    }


async def _hold(
    database: Database,
    sale: Sale,
    model: Model,
    fan: str,
    ordinals: list[int],
    key: str | None,
) -> None:
    wish = HoldRequest(
        sale.event_id, fan, sale.seats(*ordinals), key=key, body=repr(ordinals).encode()
    )
    (outcome,) = await holds.place(database, [wish], hold_seconds=HOLD_SECONDS, now=model.now)
    expected = model.expected(fan, ordinals, key)
    if isinstance(expected, type):
        assert type(outcome) is expected
        return
    assert isinstance(outcome, Hold), outcome
    assert [seat["_id"] for seat in outcome.seats] == list(sale.seats(*ordinals))
    assert outcome.expires_at == expected.until
    if expected in model.holds:
        assert outcome.hold_id == expected.hold_id
    else:
        # What lapsed and is gone by now can be released no more, but does no harm either.
        expected.hold_id = outcome.hold_id
        model.holds.append(expected)


async def _hold_any(database: Database, sale: Sale, model: Model, fan: str, quantity: int) -> None:
    wish = HoldRequest(sale.event_id, fan, quantity=quantity)
    (outcome,) = await holds.place(database, [wish], hold_seconds=HOLD_SECONDS, now=model.now)
    if quantity > model.left_of_limit(fan):
        assert isinstance(outcome, LimitExceeded)
    elif quantity > model.free():
        assert isinstance(outcome, NotEnoughSeats)
        assert outcome.available == model.free()
    else:
        assert isinstance(outcome, Hold), outcome
        ordinals = [seats.ordinal_of(seat["_id"]) for seat in outcome.seats]
        assert len(ordinals) == quantity
        until = model.now + timedelta(seconds=HOLD_SECONDS)
        model.holds.append(Held(fan, None, ordinals, until, outcome.hold_id))
