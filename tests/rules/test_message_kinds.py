"""A message is of its kind, or it is not written."""

import json
from pathlib import Path

import fastjsonschema
import pytest

from tests.conftest import NOW
from ticketing import message_kinds, outbox
from ticketing.message_kinds import KINDS, MessageFault

FOLDER = Path(message_kinds.__file__).parent / "message_schemas"
BODIES = {
    "order.placed": {"reference": "7KQ2M9XR", "seatCount": 2, "total": 9500, "currency": "EUR"},
    "order.confirmed": {"ticketIds": ["tkt_1"]},
    "order.expired": {"reason": "not paid in time", "paymentOpened": True},
    "order.cancelled": {"reason": "fan"},
    "payment.completed": {
        "paymentId": "pay_1",
        "outcome": "failed",
        "amount": 9500,
        "currency": "EUR",
    },
    "refund.done": {
        "refundId": "rfd_1",
        "paymentId": "pay_1",
        "amount": 9500,
        "currency": "EUR",
        "reason": "the order was cancelled",
    },
    "event.cancelled": {"name": "The Last Waltz"},
    "event.moved": {
        "name": "The Last Waltz",
        "startsAt": "2030-07-01T18:30:00.000Z",
        "timezone": "Europe/Berlin",
        "venueName": "Winterland",
    },
    "order.moved": {
        "startsAt": "2030-07-01T18:30:00.000Z",
        "timezone": "Europe/Berlin",
        "venueName": "Winterland",
    },
    "event.soldOut": {"seatCount": 40},
    "account.asked": {"requestId": "req_1"},
}


def test_every_kind_has_a_schema_and_an_example_here() -> None:
    assert KINDS.keys() == BODIES.keys()


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_a_schema_names_its_kind_and_version_and_takes_no_unknown_field(path: Path) -> None:
    schema = json.loads(path.read_text())
    name, _, version = path.stem.rpartition(".")
    assert schema["title"] == name
    assert schema["$id"] == message_kinds.schema_id(name, int(version))
    assert schema["additionalProperties"] is False
    with pytest.raises(fastjsonschema.JsonSchemaValueException):
        fastjsonschema.validate(schema, {**BODIES[name], "fanId": "fan_one"})


@pytest.mark.parametrize("kind", sorted(BODIES))
def test_a_message_carries_the_version_of_its_schema(kind: str) -> None:
    made = outbox.message(kind, "evt_1", "ord_1", BODIES[kind], NOW)
    assert (made["kind"], made["version"], made["body"]) == (kind, 1, BODIES[kind])


@pytest.mark.parametrize("kind", sorted(BODIES))
def test_a_body_of_another_kind_is_not_written(kind: str) -> None:
    with pytest.raises(MessageFault, match=kind):
        outbox.message(kind, "evt_1", "ord_1", {**BODIES[kind], "extra": 1}, NOW)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("order.confirmed", {"ticketIds": []}),
        ("order.confirmed", {"ticketIds": ["ord_1"]}),
        ("order.placed", {"total": -1}),
        ("order.placed", {"total": 95.5}),
        ("order.placed", {"currency": "eur"}),
        ("order.cancelled", {"reason": "whim"}),
        ("payment.completed", {"outcome": "uncertain"}),
        ("event.soldOut", {"seatCount": 0}),
    ],
)
def test_a_value_that_cannot_be_is_not_written(kind: str, change: dict[str, object]) -> None:
    with pytest.raises(MessageFault):
        outbox.message(kind, "evt_1", "ord_1", {**BODIES[kind], **change}, NOW)


def test_a_kind_that_nobody_knows_is_not_written() -> None:
    with pytest.raises(MessageFault, match="no message of the kind"):
        outbox.message("order.eaten", "evt_1", "ord_1", {}, NOW)


def test_messages_of_one_instant_sort_as_they_were_made() -> None:
    made = [outbox.message("order.expired", "evt_1", "ord_1", {}, NOW)["_id"] for _ in range(100)]
    assert made == sorted(set(made))
