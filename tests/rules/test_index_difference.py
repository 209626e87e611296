"""Indexes are compared by what they are, and validators by what they accept; no server needed."""

from typing import Any

import mongomock
import pytest
from bson.int64 import Int64
from pymongo import IndexModel

from indexes import actual
from indexes.actual import ActualCollection, definition_of, options_of, stored_definition
from indexes.declared import Index
from indexes.difference import Difference, Kind, differences, index_differences
from indexes.validators import CONDITIONS, VALIDATORS
from indexes.verification import plan_fault
from indexes.widening import accepts_all_of

BY_HOLD = Index("seats", (("holdId", 1),), "seats of a hold", sparse=True)
BY_REFERENCE = Index("orders", (("reference", 1),), "an order by its reference", unique=True)
BY_FAN = Index("orders", (("fanId", 1), ("createdAt", -1)), "a fan's orders")
OVERDUE = Index("orders", (("expiresAt", 1),), "overdue orders", only_where={"status": "pending"})


def mock_collection(*indexes: IndexModel) -> Any:
    collection = mongomock.MongoClient().ticketing.orders
    for index in indexes:
        collection.create_indexes([index])
    return collection


def kinds(found: list[Difference]) -> list[Kind]:
    return [difference.kind for difference in found]


def compared(*declared: Index, stored: Any) -> list[Difference]:
    return index_differences("orders", declared, actual.read_indexes(stored))


def test_an_index_that_is_there_is_no_difference_whatever_its_name() -> None:
    stored = mock_collection(IndexModel([("reference", 1)], unique=True, name="whatever"))
    assert compared(BY_REFERENCE, stored=stored) == []


def test_an_index_that_is_not_there_is_missing() -> None:
    assert kinds(compared(BY_REFERENCE, stored=mock_collection())) == [Kind.MISSING_INDEX]


def test_an_index_that_nobody_declared_is_unknown() -> None:
    (found,) = compared(stored=mock_collection(IndexModel([("total", 1)], name="by_hand")))
    assert (found.kind, found.actual_name) == (Kind.UNKNOWN_INDEX, "by_hand")
    assert str(found) == "orders: index by_hand (total 1) is not declared"


@pytest.mark.parametrize(
    "options", [{}, {"unique": True, "sparse": True}, {"unique": True, "expireAfterSeconds": 5}]
)
def test_the_same_keys_with_other_options_are_a_changed_index(options: dict[str, Any]) -> None:
    stored = mock_collection(IndexModel([("reference", 1)], **options))
    (found,) = compared(BY_REFERENCE, stored=stored)
    assert (found.kind, found.index) == (Kind.CHANGED_INDEX, BY_REFERENCE)


@pytest.mark.parametrize(
    "keys", [[("createdAt", -1), ("fanId", 1)], [("fanId", 1), ("createdAt", 1)], [("fanId", 1)]]
)
def test_the_order_and_direction_of_keys_count(keys: list[tuple[str, int]]) -> None:
    found = compared(BY_FAN, stored=mock_collection(IndexModel(keys)))
    assert kinds(found) == [Kind.MISSING_INDEX, Kind.UNKNOWN_INDEX]


def test_one_index_can_stand_for_one_declared_index_only() -> None:
    other = Index("orders", BY_REFERENCE.keys, "something else", sparse=True)
    stored = mock_collection(IndexModel([("reference", 1)]))
    found = compared(BY_REFERENCE, other, stored=stored)
    assert kinds(found) == [Kind.CHANGED_INDEX, Kind.MISSING_INDEX]


def test_a_partial_index_is_known_by_its_filter() -> None:
    stored = {"v": 2, "key": {"expiresAt": 1}, "name": "x"}
    declared = definition_of(OVERDUE)
    assert (
        stored_definition(stored | {"partialFilterExpression": {"status": "pending"}}) == declared
    )
    assert stored_definition(stored | {"partialFilterExpression": {"status": "done"}}) != declared
    assert stored_definition(stored) != declared


def test_how_a_server_or_a_shell_writes_a_definition_does_not_matter() -> None:
    stored = {
        "v": 2,
        "key": {"at": 1.0},
        "name": "x",
        "ns": "ticketing.seat_changes",
        "background": True,
        "unique": False,
        "expireAfterSeconds": Int64(3600),
    }
    index = Index("seat_changes", (("at", 1),), "old changes", expire_after_seconds=3600)
    assert stored_definition(stored) == definition_of(index)


def test_what_is_declared_is_found_again_once_it_is_built() -> None:
    stored = mock_collection(
        *(IndexModel(list(index.keys), **options_of(index)) for index in (BY_REFERENCE, BY_FAN))
    )
    assert compared(BY_REFERENCE, BY_FAN, stored=stored) == []


def test_a_collection_that_is_missing_misses_its_indexes_too() -> None:
    found = differences({}, [BY_HOLD], {"seats": VALIDATORS["seats"]})
    assert kinds(found) == [Kind.MISSING_COLLECTION, Kind.MISSING_INDEX]


def test_a_collection_that_nobody_declared_is_let_be() -> None:
    assert differences({"notes": ActualCollection()}, [], {}) == []


@pytest.mark.parametrize(
    ("actual_collection", "expected"),
    [
        (ActualCollection(validator={"$jsonSchema": {"required": ["a"]}}), []),
        (ActualCollection(), [Kind.TIGHTER_VALIDATOR]),
        (
            ActualCollection(validator={"$jsonSchema": {"required": ["a", "b"]}}),
            [Kind.WIDER_VALIDATOR],
        ),
        (
            ActualCollection(validator={"$jsonSchema": {"required": ["a"]}}, is_strict=False),
            [Kind.TIGHTER_VALIDATOR],
        ),
        (ActualCollection(validator={"a": {"$exists": True}}), [Kind.TIGHTER_VALIDATOR]),
        (ActualCollection(is_view=True), [Kind.VIEW]),
    ],
)
def test_a_validator_is_compared_by_what_it_accepts(
    actual_collection: ActualCollection, expected: list[Kind]
) -> None:
    found = differences({"notes": actual_collection}, [], {"notes": {"required": ["a"]}})
    assert kinds(found) == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (CONDITIONS["ledger"], []),
        (None, [Kind.TIGHTER_VALIDATOR]),
        ({"$eq": [1, 1]}, [Kind.TIGHTER_VALIDATOR]),
    ],
)
def test_a_condition_that_is_missing_or_another_one_counts_as_tightening(
    condition: Any, expected: list[Kind]
) -> None:
    validator = {"$jsonSchema": VALIDATORS["ledger"], "$expr": condition}
    if condition is None:
        del validator["$expr"]
    actual = {"ledger": ActualCollection(validator=validator)}
    assert kinds(differences(actual, [], {"ledger": VALIDATORS["ledger"]})) == expected


WIDER: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"required": ["a"]}),
    ({"required": ["a"]}, {"required": ["a", "b"]}),
    ({"bsonType": ["int", "long"]}, {"bsonType": "int"}),
    ({"enum": ["a", "b", None]}, {"enum": ["a", None]}),
    ({"minimum": 0}, {"minimum": 1}),
    ({"maximum": 9}, {"maximum": 8}),
    ({"minItems": 1, "maxItems": 9}, {"minItems": 2, "maxItems": 3}),
    ({"items": {"minimum": 0}}, {"items": {"minimum": 5}}),
    ({"properties": {"a": {"minimum": 0}}}, {"properties": {"a": {"minimum": 1}}}),
    ({"properties": {}}, {"properties": {"a": {"minimum": 1}}}),
    (
        {"properties": {"a": {}, "b": {}}, "additionalProperties": False},
        {"properties": {"a": {}}, "additionalProperties": False},
    ),
    ({"properties": {"a": {}}}, {"properties": {"a": {}}, "additionalProperties": False}),
    ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"anyOf": [{"required": ["a"]}]}),
    ({"description": "for the reader"}, {}),
]


@pytest.mark.parametrize(("wide", "narrow"), WIDER)
def test_a_wider_schema_accepts_all_of_a_narrower_one_and_not_the_reverse(
    wide: dict[str, Any], narrow: dict[str, Any]
) -> None:
    assert accepts_all_of(wide, narrow)
    assert accepts_all_of(narrow, narrow)
    if "description" not in wide:
        assert not accepts_all_of(narrow, wide)


@pytest.mark.parametrize(
    ("wanted", "given"),
    [
        ({"not": {"required": ["a"]}}, {"not": {"required": ["b"]}}),
        ({"pattern": "^a"}, {"pattern": "^ab"}),
        ({"properties": {"a": {"minimum": 0}}}, {"properties": {"b": {}}}),
        (
            {"properties": {"a": {}}, "additionalProperties": False},
            {"properties": {"a": {}, "b": {}}, "additionalProperties": False},
        ),
        ({"additionalProperties": {"minimum": 0}}, {"additionalProperties": {"minimum": 0}}),
    ],
)
def test_what_is_not_surely_wider_counts_as_tightening(
    wanted: dict[str, Any], given: dict[str, Any]
) -> None:
    assert not accepts_all_of(wanted, given)


@pytest.mark.parametrize("collection", VALIDATORS)
def test_every_validator_accepts_all_of_itself(collection: str) -> None:
    assert accepts_all_of(VALIDATORS[collection], VALIDATORS[collection])


def scan(index_name: str) -> dict[str, Any]:
    return {"stage": "FETCH", "inputStage": {"stage": "IXSCAN", "indexName": index_name}}


PLANS: list[tuple[dict[str, Any], str | None]] = [
    (scan("by_hand"), None),
    ({"queryPlan": scan("by_hand"), "slotBasedPlan": {"stages": "…"}}, None),
    ({"stage": "SHARD_MERGE", "shards": [{"winningPlan": scan("by_hand")}]}, None),
    ({"stage": "SORT_MERGE", "inputStages": [scan("by_hand"), scan("by_hand")]}, None),
    ({"stage": "EXPRESS_IXSCAN", "indexName": "by_hand"}, None),
    ({"stage": "OR", "inputStages": [scan("by_hand"), scan("_id_")]}, "uses _id_ instead of"),
    ({"stage": "IDHACK"}, "uses _id_ instead of"),
    ({"stage": "COLLSCAN"}, "reads the whole collection"),
    ({"stage": "SORT", "inputStage": scan("by_hand")}, "sorts in memory"),
    ({"stage": "EOF"}, "uses no index"),
    (scan("dropped_meanwhile"), "uses dropped_meanwhile instead of"),
]


@pytest.mark.parametrize(("plan", "fault"), PLANS)
def test_a_plan_is_judged_by_its_stages(plan: dict[str, Any], fault: str | None) -> None:
    wanted = definition_of(BY_HOLD)
    definitions = {"by_hand": wanted, "_id_": actual.ID_DEFINITION}
    found = plan_fault(plan, wanted, definitions)
    assert found is None if fault is None else (found or "").startswith(fault)
