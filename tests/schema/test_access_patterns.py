"""Every question is answered by the index made for it, and `verify` finds out when it is not."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pymongo
import pytest

import indexes
from indexes import access_patterns, actual, verification
from indexes.access_patterns import ACCESS_PATTERNS, AccessPattern
from indexes.actual import definition_of
from indexes.declared import INDEXES, Index
from indexes.validators import VALIDATORS
from tests.schema import documents
from tests.schema.conftest import Database, Run
from tests.schema.documents import NOW
from ticketing import deployment

REPOSITORY = Path(__file__).parents[2]


def faults(database: Database, *patterns: AccessPattern) -> dict[str, str]:
    judgements = verification.judge(database, actual.read(database), patterns or ACCESS_PATTERNS)
    return {
        judgement.pattern.question: judgement.fault
        for judgement in judgements
        if judgement.fault is not None
    }


def name_of(database: Database, index: Index) -> str:
    definitions = actual.read_indexes(database[index.collection])
    return next(name for name, found in definitions.items() if found == definition_of(index))


def labelled(index: Index) -> str:
    return f"{index.collection} {', '.join(name for name, _ in index.keys)}"


def fill(database: Database) -> None:
    """A few hundred documents of the collections where several indexes compete."""
    database.events.insert_many(
        documents.event(
            _id=f"evt_{number}",
            organiserId=f"org_{number % 7}",
            category=("concert", "sport", "theatre")[number % 3],
            status=("published", "draft", "ended", "published")[number % 4],
            startsAt=NOW + timedelta(hours=number),
            words=["the", "show", f"word{number % 10}", f"word{number % 11}"],
        )
        for number in range(300)
    )
    database.orders.insert_many(
        documents.confirmed_order(
            number, fanId=f"fan_{number % 30}", createdAt=NOW + timedelta(seconds=number)
        )
        if number % 3
        else documents.order(number, fanId=f"fan_{number % 30}")
        for number in range(300)
    )
    database.seats.insert_many(
        (documents.seat, documents.held_seat, documents.sold_seat)[number % 3](number)
        for number in range(600)
    )


@pytest.fixture(scope="module")
def filled(server: pymongo.MongoClient[documents.Document]) -> Iterator[Database]:
    database = server["ticketing_schema_filled"]
    assert indexes.apply(database) == []
    fill(database)
    yield database
    server.drop_database(database.name)


def test_a_fresh_database_answers_every_question(applied: Database, run: Run) -> None:
    assert run(applied, "verify") == 0


def test_a_filled_database_answers_every_question(filled: Database, run: Run) -> None:
    assert run(filled, "verify") == 0


def test_several_words_are_answered_by_the_index_of_one(filled: Database) -> None:
    one_word = next(p for p in ACCESS_PATTERNS if p.question == "events on sale by text")
    words = {"status": "published", "words": {"$all": ["word3", "word4"]}}
    assert faults(filled, replace(one_word, filter=words)) == {}


@pytest.mark.parametrize("index", INDEXES, ids=labelled)
def test_verify_fails_when_an_index_is_dropped_by_hand(
    kept: Database, run: Run, index: Index, capsys: pytest.CaptureFixture[str]
) -> None:
    kept[index.collection].drop_index(name_of(kept, index))
    try:
        assert index.question in faults(kept)
        assert run(kept, "verify") == 1
        assert f"for “{index.question}” is missing" in capsys.readouterr().out
        assert run(kept, "plan") == 1
    finally:
        assert run(kept, "apply") == 0
    # The index has become the last one of its collection, and an empty collection gives the
    # server no reason to prefer it.
    assert run(kept, "verify") == 0


def test_indexes_that_were_built_in_another_order_answer_the_same_questions(
    filled: Database, run: Run
) -> None:
    for index in INDEXES:
        filled[index.collection].drop_index(name_of(filled, index))
        assert run(filled, "apply") == 0
    for index in reversed(INDEXES):
        filled[index.collection].drop_index(name_of(filled, index))
        assert run(filled, "apply") == 0
        assert run(filled, "verify") == 0


def test_an_index_that_nobody_declared_is_a_fault(
    applied: Database, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    applied.seats.create_index([("section", 1)], name="by_hand")
    assert run(applied, "verify") == 1
    assert "seats: index by_hand (section 1) is not declared" in capsys.readouterr().out


def test_a_hidden_index_is_a_fault_since_it_answers_nothing(applied: Database, run: Run) -> None:
    applied.command("collMod", "seats", index={"keyPattern": {"holdId": 1}, "hidden": True})
    assert "seats of a hold" in faults(applied)
    assert run(applied, "plan") == 1


def test_reading_the_whole_collection_is_a_fault(applied: Database) -> None:
    scan = AccessPattern("seats by price", "seats", {"price": 9500})
    assert faults(applied, scan) == {"seats by price": "reads the whole collection"}


def test_sorting_in_memory_is_a_fault(applied: Database) -> None:
    sort = AccessPattern("seats by price", "seats", {"holdId": "hold_x"}, sort=(("price", 1),))
    assert faults(applied, sort) == {"seats by price": "sorts in memory"}


def test_another_index_than_the_one_expected_is_a_fault(filled: Database) -> None:
    pattern = next(p for p in ACCESS_PATTERNS if p.question == "a fan's orders by status")
    others = replace(pattern, index=access_patterns.declared.ORDERS_BY_REFERENCE)
    (fault,) = faults(filled, others).values()
    assert fault.endswith("instead of (reference 1) unique")


def test_an_index_is_not_taken_for_another_once_there_is_data_to_compare_them_by(
    filled: Database,
) -> None:
    # Either index could answer. Only where the server has nothing to compare them by is either
    # accepted, so that an empty database passes whatever order its indexes were built in.
    pattern = next(p for p in ACCESS_PATTERNS if p.question == "events on sale by category")
    by_date = replace(pattern, index=access_patterns.declared.EVENTS_BY_DATE)
    assert "instead of" in faults(filled, by_date)[pattern.question]


def test_a_missing_collection_answers_nothing(bare: Database, run: Run) -> None:
    assert set(faults(bare).values()) == {"uses no index"}
    assert run(bare, "verify") == 1


def test_every_index_serves_a_question() -> None:
    assert verification.idle_indexes() == []


def test_an_index_whose_question_nobody_asks_is_a_fault() -> None:
    idle = Index("seats", (("section", 1),), "seats of a section by name")
    assert verification.idle_indexes([idle], ACCESS_PATTERNS) == [
        "seats: index (section 1) serves no declared question"
    ]


def test_every_question_has_a_name_of_its_own_and_a_declared_index() -> None:
    questions = [pattern.question for pattern in ACCESS_PATTERNS]
    assert len(questions) == len(set(questions))
    for pattern in ACCESS_PATTERNS:
        assert pattern.collection in VALIDATORS
        assert pattern.index is None or (
            pattern.index in INDEXES and pattern.index.collection == pattern.collection
        )


def test_every_collection_the_product_uses_is_declared() -> None:
    used = {
        name
        for folder in ("ticketing", "workers")
        for file in (REPOSITORY / folder).rglob("*.py")
        for name in re.findall(r"\bdatabase\.([a-z_]+)\b", file.read_text())
        if not hasattr(pymongo.database.Database, name) and name != "database"
    }
    assert used - set(VALIDATORS) == set()


def test_the_indexes_that_readiness_asks_for_are_declared() -> None:
    for collection, wanted in deployment.HOT_INDEXES.items():
        declared = {
            (tuple(name for name, _ in index.keys), index.unique)
            for index in INDEXES
            if index.collection == collection
        }
        assert set(wanted) <= declared


def test_what_is_missing_can_be_named(applied: Database) -> None:
    assert indexes.missing(applied) == []
    applied.seats.drop_index("holdId_1")
    assert indexes.missing(applied) == [
        "seats: index (holdId 1) sparse for “seats of a hold” is missing"
    ]
