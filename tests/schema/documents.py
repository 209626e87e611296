"""One valid document of each collection a sale writes to, to be spoilt by tests."""

from datetime import UTC, datetime
from typing import Any

Document = dict[str, Any]
NOW = datetime(2030, 6, 1, 12, tzinfo=UTC)
EVENT_ID = "evt_0123"
HOLD_ID = "hold_0123.fan.key.body"
ORDER_ID = "ord_0123"


def seat(ordinal: int = 0, **changes: Any) -> Document:
    """An available seat."""
    return {
        "_id": f"{EVENT_ID}:{ordinal:05d}",
        "eventId": EVENT_ID,
        "section": "A",
        "row": "1",
        "number": str(ordinal + 1),
        "priceCategory": "Front",
        "price": 9500,
        "status": "available",
        "from": None,
        "cause": None,
    } | changes


def held_seat(ordinal: int = 0, **changes: Any) -> Document:
    """A seat that is held."""
    held = {
        "status": "held",
        "from": "available",
        "cause": "placed",
        "holdId": HOLD_ID,
        "heldUntil": NOW,
        "fanSlot": f"{HOLD_ID.removeprefix('hold_')}.{ordinal}",
        "holdLead": True,
    }
    return seat(ordinal, **held) | changes


def sold_seat(ordinal: int = 0, **changes: Any) -> Document:
    """A seat that is sold."""
    sold = {
        "status": "sold",
        "from": "held",
        "cause": "confirmed",
        "holdId": HOLD_ID,
        "fanSlot": f"{HOLD_ID.removeprefix('hold_')}.{ordinal}",
        "orderId": ORDER_ID,
    }
    return seat(ordinal, **sold) | changes


def event(**changes: Any) -> Document:
    """A published event."""
    return {
        "_id": EVENT_ID,
        "organiserId": "org_one",
        "name": "The Last Waltz",
        "description": "",
        "category": "concert",
        "venueName": "Winterland",
        "timezone": "Europe/Berlin",
        "startsAt": NOW,
        "saleStartsAt": NOW,
        "saleEndsAt": NOW,
        "currency": "EUR",
        "maxSeatsPerFan": 8,
        "priceCategories": [{"name": "Front", "price": 9500}],
        "sections": [
            {
                "name": "A",
                "priceCategory": "Front",
                "price": 9500,
                "firstOrdinal": 0,
                "seatCount": 2,
                "kind": "numbered",
                "rows": [{"name": "1", "count": 1}, {"name": "2", "seats": ["1"]}],
            }
        ],
        "seatCount": 2,
        "status": "published",
        "words": ["the", "last", "waltz", "winterland"],
        "createdAt": NOW,
        "publishedAt": NOW,
    } | changes


def order(number: int = 0, **changes: Any) -> Document:
    """An order that waits for its payment."""
    return {
        "_id": f"{ORDER_ID}{number}",
        "reference": f"7KQ2M9X{number}",
        "eventId": EVENT_ID,
        "fanId": "fan_one",
        "holdId": f"{HOLD_ID}{number}",
        "event": {
            "name": "The Last Waltz",
            "startsAt": NOW,
            "venueName": "Winterland",
            "timezone": "Europe/Berlin",
        },
        "status": "pendingPayment",
        "from": None,
        "seats": [
            {
                "seatId": f"{EVENT_ID}:00000",
                "section": "A",
                "row": "1",
                "number": "1",
                "priceCategory": "Front",
                "price": 9500,
            }
        ],
        "total": 9500,
        "currency": "EUR",
        "payment": {"paymentId": f"pay_{number}", "status": "created"},
        "refunds": [],
        "tickets": [],
        "createdAt": NOW,
        "expiresAt": NOW,
        "history": [{"at": NOW, "what": "pendingPayment", "by": "fan_one", "why": "placed"}],
    } | changes


def confirmed_order(number: int = 0, **changes: Any) -> Document:
    """An order that is paid for."""
    ticket = {
        "ticketId": "tkt_1",
        "code": "secret",
        "seatId": f"{EVENT_ID}:00000",
        "section": "A",
        "row": "1",
        "number": "1",
        "status": "valid",
    }
    confirmed = {
        "status": "confirmed",
        "from": "pendingPayment",
        "payment": {"paymentId": f"pay_{number}", "status": "succeeded"},
        "tickets": [ticket],
        "confirmedAt": NOW,
    }
    return order(number, **confirmed) | changes


def ledger_entry(**changes: Any) -> Document:
    """The entry of a sale."""
    return {
        "_id": "pay_0:sale",
        "cause": "sale",
        "eventId": EVENT_ID,
        "orderId": ORDER_ID,
        "currency": "EUR",
        "at": NOW,
        "lines": [
            {"account": "provider", "amount": 9500},
            {"account": "organiser", "amount": -9212},
            {"account": "fees", "amount": -288},
        ],
    } | changes


def without(document: Document, *names: str) -> Document:
    """The document without some of its fields."""
    return {name: value for name, value in document.items() if name not in names}
