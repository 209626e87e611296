"""What the platform keeps: whole minor units, one rounding rule, never more than the price."""

from fractions import Fraction
from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticketing import fees
from ticketing.money import PRICE_MAX
from ticketing.mongo import Document
from ticketing.statements import decimal

prices = st.integers(0, PRICE_MAX)
terms = st.fixed_dictionaries(
    {"perSeat": st.integers(0, PRICE_MAX), "basisPoints": st.integers(0, fees.BASIS_POINTS)}
)


@pytest.mark.parametrize(
    ("price", "per_seat", "basis_points", "fee"),
    [
        (9_500, 50, 250, 288),  # 2.5 % of 95.00 is 2.375: up, and 0.50 with it.
        (1_050, 0, 1_000, 105),
        (1_005, 0, 1_000, 101),  # Exactly half a cent goes up.
        (1_004, 0, 1_000, 100),
        (3, 0, 5_000, 2),  # JPY: half of three yen.
        (12_345, 100, 100, 223),  # KWD: one percent of 12.345, in fils.
        (40, 100, 0, 40),
        (0, 100, 100, 0),
    ],
)
def test_the_fee_of_a_seat(price: int, per_seat: int, basis_points: int, fee: int) -> None:
    assert fees.of_seat(price, {"perSeat": per_seat, "basisPoints": basis_points}) == fee


def test_an_event_without_terms_costs_nothing() -> None:
    assert fees.of_seat(9_500, None) == 0


@given(prices, terms)
def test_a_fee_is_half_up_and_never_more_than_the_price(price: int, agreed: Document) -> None:
    exact = Fraction(price * agreed["basisPoints"], fees.BASIS_POINTS) + agreed["perSeat"]
    expected = min(price, floor(exact + Fraction(1, 2))) if price else 0
    assert fees.of_seat(price, agreed) == expected


@given(st.lists(prices, min_size=1, max_size=8), terms, st.data())
def test_refunds_of_all_seats_one_by_one_give_back_the_whole_fee(
    paid: list[int], agreed: Document, data: st.DataObject
) -> None:
    seats = [
        {"seatId": f"s{n}", "price": price, "fee": fees.of_seat(price, agreed)}
        for n, price in enumerate(paid)
    ]
    order: Document = {"seats": seats, "refundedLines": []}
    back = 0
    named = data.draw(st.lists(st.sampled_from(seats), unique_by=lambda seat: seat["seatId"]))
    for seat in named:
        line = {"seatId": seat["seatId"], "amount": seat["price"]}
        back += fees.back_with(order, {"amount": seat["price"], "lines": [line]})
        order["refundedLines"].append(line)
    rest = sum(seat["price"] for seat in seats) - sum(seat["price"] for seat in named)
    back += fees.back_with(order, {"amount": rest})
    assert back == fees.of_order(order)


@given(st.integers(-(10**12), 10**12), st.sampled_from(["JPY", "EUR", "KWD"]))
def test_an_amount_is_written_with_all_the_digits_of_its_currency(
    amount: int, currency: str
) -> None:
    digits = {"JPY": 0, "EUR": 2, "KWD": 3}[currency]
    written = decimal(amount, currency)
    assert Fraction(written) == Fraction(amount, 10**digits)
    assert len(written.partition(".")[2]) == digits
