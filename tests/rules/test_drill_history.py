"""The judge of a drill finds what was lost and what was left: planted here, one by one."""

from collections.abc import Callable

import pytest

from scripts.drills.history import Answer, Found, Purchase, Step, figures, judge
from ticketing.mongo import Document

FAN = "fan_a"
SEATS = ("evt_x:00001", "evt_x:00002")


def step(what: str, *statuses: int, told: Document | None = None) -> Step:
    answers = [Answer(float(n), n + 0.5, status) for n, status in enumerate(statuses)]
    return Step(what, answers, told)  # type: ignore[arg-type]


HOLD = step("hold", 201, told={"seats": [{"seatId": seat} for seat in SEATS]})
ORDER = step("order", 201, told={"orderId": "ord_1"})
PAY = step("pay", 200, told={"received": True})
CANCEL = step("cancel", 200, told={"status": "cancelled"})


def bought(*steps: Step) -> list[Purchase]:
    return [Purchase(FAN, 2, list(steps))]


def stored(status: str | None, seats: str | None, count: int = 2) -> Found:
    order: Document = {
        "_id": "ord_1",
        "status": status,
        "seats": [{"seatId": seat} for seat in SEATS],
        "tickets": [{"seatId": seat} for seat in SEATS] if status == "confirmed" else [],
    }
    mine = [{"_id": seat, "status": seats} for seat in SEATS[:count]]
    return Found({FAN: [order]} if status else {}, {FAN: mine} if seats else {})


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ((step("hold", 409),), stored(None, None)),
        ((step("hold", 0, 503),), stored(None, None)),
        ((step("hold", 0, 503),), stored(None, "held")),
        ((HOLD,), stored(None, "held")),
        ((HOLD, step("release", 204)), stored(None, None)),
        ((HOLD, step("release", 503)), stored(None, "held")),
        ((HOLD, step("order", 0)), stored("pendingPayment", "held")),
        ((HOLD, step("order", 0)), stored(None, "held")),
        ((HOLD, ORDER), stored("pendingPayment", "held")),
        ((HOLD, ORDER, step("pay", 0)), stored("pendingPayment", "held")),
        ((HOLD, ORDER, step("pay", 0)), stored("confirmed", "sold")),
        ((HOLD, ORDER, PAY), stored("confirmed", "sold")),
        ((HOLD, ORDER, PAY, CANCEL), stored("cancelled", None)),
        ((HOLD, ORDER, PAY, step("cancel", 0)), stored("cancelled", None)),
        ((HOLD, ORDER, PAY, step("cancel", 0)), stored("confirmed", "sold")),
        # After a lost answer a refusal may mean that it was done.
        ((HOLD, ORDER, PAY, step("cancel", 0, 409)), stored("cancelled", None)),
    ],
)
def test_what_agrees_is_left_alone(steps: tuple[Step, ...], found: Found) -> None:
    assert judge(bought(*steps), found) == []


@pytest.mark.parametrize(
    ("steps", "found", "problem"),
    [
        ((step("hold", 409),), stored(None, "held"), "left something"),
        ((step("hold", 0),), stored(None, "held", 1), "half a hold"),
        ((HOLD,), stored(None, None), "LOST"),
        ((HOLD,), stored(None, "held", 1), "LOST"),
        ((HOLD, step("release", 204)), stored(None, "held"), "is there"),
        ((HOLD, ORDER), stored(None, "held"), "LOST"),
        ((HOLD, step("order", 409)), stored("pendingPayment", "held"), "did not get one"),
        ((HOLD, ORDER, PAY), stored("pendingPayment", "held"), "LOST"),
        ((HOLD, ORDER, PAY), stored("expired", None), "LOST"),
        ((HOLD, ORDER, PAY), stored("confirmed", "sold", 1), "LOST"),
        ((HOLD, ORDER), stored("confirmed", "sold"), "nobody paid"),
        ((HOLD, ORDER, PAY, CANCEL), stored("confirmed", "sold"), "LOST"),
        ((HOLD, ORDER, PAY, CANCEL), stored("cancelled", "sold"), "it has seats"),
    ],
)
def test_what_contradicts_is_named(steps: tuple[Step, ...], found: Found, problem: str) -> None:
    problems = judge(bought(*steps), found)
    assert any(problem in each for each in problems), problems


def test_what_nobody_asked_for_is_named() -> None:
    found = stored("confirmed", "sold")
    assert len(judge([], found)) == 2


def test_two_orders_of_one_purchase_are_named() -> None:
    found = stored("confirmed", "sold")
    found.orders[FAN].append(found.orders[FAN][0])
    assert "more than one order" in judge(bought(HOLD, ORDER, PAY), found)[0]


def _at(what: str, *answers: tuple[float, int]) -> Purchase:
    return Purchase(FAN, 1, [Step(what, [Answer(at, at, status) for at, status in answers])])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("purchases", "expected", "of"),
    [
        ([_at("hold", (1, 201)), _at("hold", (9, 201))], 0.0, lambda f: f.recovery_seconds),
        ([_at("hold", (6, 503), (8, 201))], 3.0, lambda f: f.recovery_seconds),
        ([_at("hold", (6, 0))], float("inf"), lambda f: f.recovery_seconds),
        ([_at("hold", (1, 201)), _at("hold", (9, 201))], 8.0, lambda f: f.gap_seconds),
        ([_at("pay", (1, 500))], 1, lambda f: f.faults),
    ],
)
def test_times_are_told_from_the_fault_on(
    purchases: list[Purchase], expected: float, of: Callable[[object], float]
) -> None:
    assert of(figures(purchases, 5.0)) == expected
