"""What the database itself refuses, whoever writes it."""

from typing import Any

import pytest
from bson.int64 import Int64
from pymongo.errors import WriteError

from indexes.validators import VALIDATORS
from tests.schema import documents
from tests.schema.conftest import Database
from tests.schema.documents import EVENT_ID, HOLD_ID, NOW, ORDER_ID, Document, without

DOCUMENT_VALIDATION_FAILURE = 121

ACCEPTED: list[tuple[str, Document]] = [
    ("seats", documents.seat()),
    ("seats", documents.seat(row=None, number=None, price=0)),
    ("seats", documents.seat(price=Int64(9500))),
    ("seats", documents.seat(status="blocked")),
    ("seats", documents.seat(**{"from": "held", "cause": "lapsed"})),
    ("seats", documents.held_seat()),
    ("seats", without(documents.held_seat(), "holdLead")),
    ("seats", documents.sold_seat()),
    ("events", documents.event()),
    ("events", documents.event(status="creating", setupUntil=NOW)),
    ("events", documents.event(aFieldOfTheNextRelease=1)),
    ("orders", documents.order()),
    ("orders", documents.order(total=0, payment=None)),
    ("orders", documents.order(status="expired", placementKey="key")),
    ("orders", documents.confirmed_order()),
    ("ledger", documents.ledger_entry()),
]

REFUSED: list[tuple[str, str, Document]] = [
    ("a held seat without its hold", "seats", without(documents.held_seat(), "holdId")),
    ("a held seat without an end", "seats", without(documents.held_seat(), "heldUntil")),
    ("a held seat that ends at null", "seats", documents.held_seat(heldUntil=None)),
    ("a held seat that ends at a text", "seats", documents.held_seat(heldUntil="2030-06-01")),
    ("a held seat with an order", "seats", documents.held_seat(orderId=ORDER_ID)),
    ("a sold seat without its order", "seats", without(documents.sold_seat(), "orderId")),
    ("a sold seat without its hold", "seats", without(documents.sold_seat(), "holdId")),
    ("a sold seat that still lapses", "seats", documents.sold_seat(heldUntil=NOW)),
    ("a sold seat that still leads a hold", "seats", documents.sold_seat(holdLead=True)),
    ("an available seat with a hold", "seats", documents.seat(holdId=HOLD_ID)),
    ("an available seat that lapses", "seats", documents.seat(heldUntil=NOW)),
    ("an available seat that leads a hold", "seats", documents.seat(holdLead=True)),
    ("an available seat with an order", "seats", documents.seat(orderId=ORDER_ID)),
    ("a blocked seat with a hold", "seats", documents.seat(status="blocked", holdId=HOLD_ID)),
    ("a seat of an unknown status", "seats", documents.seat(status="reserved")),
    ("a seat from an unknown status", "seats", documents.seat(**{"from": "reserved"})),
    ("a seat changed by an unknown cause", "seats", documents.seat(cause="whim")),
    ("a seat below zero", "seats", documents.seat(price=-1)),
    ("a seat with a broken price", "seats", documents.seat(price=95.5)),
    ("a seat with a price as a float", "seats", documents.seat(price=95.0)),
    ("a seat with a price as a text", "seats", documents.seat(price="9500")),
    ("a seat with a misspelt field", "seats", documents.seat(heldTill=NOW)),
    ("a seat named otherwise than by its place", "seats", documents.seat(_id=f"{EVENT_ID}:1")),
    ("a seat without a section", "seats", without(documents.seat(), "section")),
    ("an event of an unknown status", "events", documents.event(status="paused")),
    ("an event in making without an end", "events", documents.event(status="creating")),
    ("an event without sections", "events", documents.event(sections=[])),
    ("an event of too many seats", "events", documents.event(seatCount=80_001)),
    ("an event of no currency", "events", documents.event(currency="euro")),
    (
        "an event below zero",
        "events",
        documents.event(priceCategories=[{"name": "A", "price": -1}]),
    ),
    ("an event that starts at a text", "events", documents.event(startsAt="2030-06-01T12:00:00Z")),
    ("an order of an unknown status", "orders", documents.order(status="paid")),
    ("an order below zero", "orders", documents.order(total=-1)),
    ("an order with a broken total", "orders", documents.order(total=95.5)),
    ("an order without seats", "orders", documents.order(seats=[])),
    ("an order without its fan", "orders", without(documents.order(), "fanId")),
    ("an order without its hold", "orders", without(documents.order(), "holdId")),
    (
        "a payment of an unknown status",
        "orders",
        documents.order(payment={"paymentId": "pay_1", "status": "paid"}),
    ),
    ("a confirmed order without tickets", "orders", documents.confirmed_order(tickets=[])),
    (
        "a confirmed order without its moment",
        "orders",
        without(documents.confirmed_order(), "confirmedAt"),
    ),
    (
        "a ledger entry that does not sum to zero",
        "ledger",
        documents.ledger_entry(
            lines=[
                {"account": "provider", "amount": 9500},
                {"account": "organiser", "amount": -9499},
            ]
        ),
    ),
    (
        "a ledger entry on an unknown account",
        "ledger",
        documents.ledger_entry(
            lines=[{"account": "provider", "amount": 1}, {"account": "others", "amount": -1}]
        ),
    ),
    (
        "a ledger entry with a broken amount",
        "ledger",
        documents.ledger_entry(
            lines=[{"account": "provider", "amount": 0.5}, {"account": "fans", "amount": -0.5}]
        ),
    ),
]


@pytest.fixture
def empty(kept: Database) -> Database:
    for name in VALIDATORS:
        kept[name].delete_many({})
    return kept


@pytest.mark.parametrize(("collection", "document"), ACCEPTED)
def test_what_the_product_writes_is_accepted(
    empty: Database, collection: str, document: Document
) -> None:
    empty[collection].insert_one(document)


@pytest.mark.parametrize(
    ("collection", "document"),
    [refused[1:] for refused in REFUSED],
    ids=[refused[0] for refused in REFUSED],
)
def test_what_must_never_be_stored_is_refused(
    empty: Database, collection: str, document: Document
) -> None:
    with pytest.raises(WriteError) as refusal:
        empty[collection].insert_one(document)
    assert refusal.value.code == DOCUMENT_VALIDATION_FAILURE


@pytest.mark.parametrize(
    "change",
    [
        {"$set": {"status": "held"}},
        {"$set": {"status": "sold", "holdId": HOLD_ID}},
        {"$set": {"heldUntil": NOW}},
        {"$inc": {"price": -10_000}},
    ],
)
def test_an_update_is_checked_like_an_insert(empty: Database, change: dict[str, Any]) -> None:
    empty.seats.insert_one(documents.seat())
    with pytest.raises(WriteError) as refusal:
        empty.seats.update_one({}, change)
    assert refusal.value.code == DOCUMENT_VALIDATION_FAILURE
    assert empty.seats.find_one() == documents.seat()


def test_a_line_of_the_ledger_can_not_be_changed_alone(empty: Database) -> None:
    empty.ledger.insert_one(documents.ledger_entry())
    with pytest.raises(WriteError) as refusal:
        empty.ledger.update_one({}, {"$inc": {"lines.0.amount": 1}})
    assert refusal.value.code == DOCUMENT_VALIDATION_FAILURE


@pytest.mark.parametrize("collection", VALIDATORS)
def test_every_collection_refuses_a_document_of_another_shape(
    empty: Database, collection: str
) -> None:
    with pytest.raises(WriteError) as refusal:
        empty[collection].insert_one({"_id": "evt_0123:00000", "status": "available"})
    assert refusal.value.code == DOCUMENT_VALIDATION_FAILURE
