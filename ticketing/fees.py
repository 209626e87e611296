"""What the platform keeps of a sale: so much a seat, and so many basis points of its price.

The fee is part of the price, never on top of it: a fan pays what is shown, and the organiser gets
what is left. One rule rounds it, here and nowhere else: half a minor unit and more is rounded up,
seat by seat, so that the fee of an order is the sum of its seats' in any currency. It is never more
than the price; a seat that costs nothing bears none.
"""

from collections.abc import Iterable

from ticketing.mongo import Document

BASIS_POINTS = 10_000


def of_seat(price: int, terms: Document | None) -> int:
    """The fee of a seat at that price, by the event's terms `{perSeat, basisPoints}`."""
    if terms is None or price == 0:
        return 0
    fee: int = terms["perSeat"] + share(price, terms["basisPoints"], BASIS_POINTS)
    return min(price, fee)


def share(amount: int, part: int, whole: int) -> int:
    """So many parts of the whole of an amount, half up. `whole` is more than 0."""
    return (2 * amount * part + whole) // (2 * whole)


def of_order(order: Document) -> int:
    """The fee of all seats of an order, by the terms that were in force when it was placed."""
    return _of(order["seats"])


def back_with(order: Document, refund: Document) -> int:
    """How much of the fee goes back with a refund of an order that was paid.

    The fee of exactly the seats it names, else of those that no refund has named before; in
    proportion where less than their price goes back, since somebody gave back money elsewhere.
    """
    if lines := refund.get("lines"):
        by_seat = {seat["seatId"]: seat for seat in order["seats"]}
        return sum(
            share(by_seat[line["seatId"]].get("fee", 0), line["amount"], price)
            for line in lines
            if (price := by_seat[line["seatId"]]["price"])
        )
    named = {line["seatId"] for line in order.get("refundedLines", [])}
    rest = [seat for seat in order["seats"] if seat["seatId"] not in named]
    price = sum(seat["price"] for seat in rest)
    return share(_of(rest), min(refund["amount"], price), price) if price else 0


def _of(seats: Iterable[Document]) -> int:
    return sum(seat.get("fee", 0) for seat in seats)
