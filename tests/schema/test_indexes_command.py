"""`plan`, `apply` and `verify` on a real replica set."""

import subprocess
import threading
from pathlib import Path

import pymongo
import pytest

import indexes
from indexes import actual, building, progress
from indexes.__main__ import main
from indexes.actual import Definition
from indexes.declared import INDEXES
from indexes.difference import differences
from indexes.validators import VALIDATORS
from tests.schema import documents
from tests.schema.conftest import Database, Run
from tests.schema.documents import Document

REPOSITORY = Path(__file__).parents[2]

Output = pytest.CaptureFixture[str]


def definitions(database: Database, collection: str) -> dict[str, Definition]:
    return actual.read_indexes(database[collection])


def loosen(database: Database, collection: str) -> None:
    """Take the validator away, as if the collection were older than it."""
    database.command("collMod", collection, validator={})


def test_plan_names_all_that_is_missing_and_changes_nothing(
    bare: Database, run: Run, capsys: Output
) -> None:
    assert run(bare, "plan") == 1
    said = capsys.readouterr().out
    assert "seats: the collection is missing" in said
    assert "index (heldUntil 1) sparse for “overdue holds” is missing" in said
    assert f"{len(VALIDATORS) + len(INDEXES)} differences" in said
    assert bare.list_collection_names() == []


def test_apply_makes_everything_and_a_second_one_finds_nothing_to_do(
    bare: Database, run: Run, capsys: Output
) -> None:
    assert run(bare, "apply") == 0
    assert run(bare, "plan") == 0
    capsys.readouterr()
    assert run(bare, "apply") == 0
    assert capsys.readouterr().out == f"{bare.name}: 0 differences left\n"
    assert differences(actual.read(bare)) == []


def test_two_applies_at_once_are_harmless(bare: Database, run: Run) -> None:
    left: list[list[str]] = []
    gate = threading.Barrier(2)

    def one() -> None:
        gate.wait()
        left.append(indexes.apply(bare))

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert left == [[], []]
    assert run(bare, "verify") == 0


def test_an_index_is_known_by_what_it_is_and_not_by_its_name(applied: Database, run: Run) -> None:
    applied.seats.drop_index("holdId_1")
    applied.seats.create_index([("holdId", 1)], name="whatever", sparse=True)
    assert run(applied, "verify") == 0


def test_a_name_that_is_taken_by_another_index_is_no_hindrance(applied: Database, run: Run) -> None:
    applied.seats.drop_index("holdId_1")
    applied.seats.create_index([("section", 1)], name="holdId_1")
    assert run(applied, "apply") == 0
    assert definitions(applied, "seats")["holdId_1_2"] == Definition(
        (("holdId", 1),), (("sparse", "true"),)
    )


def test_an_unknown_index_is_dropped_only_with_the_flag(
    applied: Database, run: Run, capsys: Output
) -> None:
    applied.seats.create_index([("section", 1)], name="by_hand")
    assert run(applied, "apply") == 0
    assert "left: seats: index by_hand (section 1) is not declared" in capsys.readouterr().out
    assert "by_hand" in definitions(applied, "seats")
    assert run(applied, "apply", "--allow-drop") == 0
    assert "by_hand" not in definitions(applied, "seats")
    assert run(applied, "verify") == 0


@pytest.mark.parametrize(
    ("collection", "keys", "changed"),
    [
        ("seats", [("holdId", 1)], {}),
        ("orders", [("reference", 1)], {}),
        ("orders", [("expiresAt", 1)], {"partialFilterExpression": {"status": "confirmed"}}),
        ("orders", [("placementKey", 1)], {"unique": True}),
        ("seat_changes", [("at", 1)], {"expireAfterSeconds": 60}),
        ("payments", [("orderId", 1)], {"collation": {"locale": "de"}}),
        ("payments", [("orderId", 1)], {"hidden": True}),
    ],
)
def test_a_changed_index_is_replaced_only_with_the_flag(
    applied: Database,
    run: Run,
    capsys: Output,
    collection: str,
    keys: list[tuple[str, int]],
    changed: Document,
) -> None:
    declared = definitions(applied, collection)
    applied[collection].drop_index(keys)
    applied[collection].create_index(keys, **changed)
    by_hand = definitions(applied, collection)
    assert run(applied, "verify") == 1
    assert run(applied, "apply") == 1
    said = capsys.readouterr()
    assert "should be" in said.out
    assert "--allow-drop replaces it" in said.err
    assert definitions(applied, collection) == by_hand
    assert run(applied, "apply", "--allow-drop") == 0
    assert sorted(map(str, definitions(applied, collection).values())) == sorted(
        map(str, declared.values())
    )


def test_a_unique_index_that_the_data_does_not_allow_is_told_by_its_value(
    applied: Database, run: Run, capsys: Output
) -> None:
    applied.orders.drop_index("reference_1")
    applied.orders.drop_index("fanId_1_createdAt_-1__id_-1")
    applied.orders.create_index([("total", 1)], name="by_hand")
    applied.orders.insert_many(documents.order(number, reference="TWICE") for number in (1, 2))
    assert run(applied, "apply", "--allow-drop") == 1
    said = capsys.readouterr().err
    assert "orders: index (reference 1) unique could not be built" in said
    assert "TWICE" in said
    # The others are built all the same, and nothing is dropped before all is in order.
    assert {"fanId_1_createdAt_-1__id_-1", "by_hand"} <= definitions(applied, "orders").keys()
    applied.orders.update_one({"_id": documents.order(2)["_id"]}, {"$set": {"reference": "ONCE"}})
    assert run(applied, "apply", "--allow-drop") == 0
    assert run(applied, "verify") == 0


def test_a_validator_is_widened_without_a_flag(applied: Database, run: Run) -> None:
    narrow = {**VALIDATORS["outbox"], "maxProperties": 7}
    applied.command("collMod", "outbox", validator={"$jsonSchema": narrow})
    applied.outbox.insert_one(
        {
            "_id": "msg_1",
            "kind": "order.confirmed",
            "eventId": "evt_1",
            "orderId": "ord_1",
            "body": {},
            "createdAt": documents.NOW,
        }
    )
    assert run(applied, "plan") == 1
    assert run(applied, "apply") == 0
    assert run(applied, "plan") == 0


def test_an_empty_collection_gets_its_validator_without_a_flag(bare: Database, run: Run) -> None:
    bare.create_collection("seats")
    assert run(bare, "apply") == 0
    assert run(bare, "verify") == 0


def test_a_validator_is_tightened_only_with_the_flag(
    applied: Database, run: Run, capsys: Output
) -> None:
    loosen(applied, "seats")
    applied.seats.insert_one(documents.seat())
    assert run(applied, "verify") == 1
    assert run(applied, "apply") == 0
    assert "--allow-tighten tightens it" in capsys.readouterr().out
    applied.seats.insert_one(documents.seat(1, price=-1))
    applied.seats.delete_one({"price": -1})
    assert run(applied, "apply", "--allow-tighten") == 0
    with pytest.raises(pymongo.errors.WriteError):
        applied.seats.insert_one(documents.seat(1, price=-1))
    assert run(applied, "verify") == 0


def test_documents_that_a_tighter_validator_would_refuse_are_counted_and_named(
    applied: Database, run: Run, capsys: Output
) -> None:
    loosen(applied, "seats")
    applied.seats.insert_many(documents.seat(number, price=-1) for number in range(7))
    applied.seats.insert_one(documents.seat(7))
    assert run(applied, "apply", "--allow-tighten") == 1
    said = capsys.readouterr().err
    assert "seats: 7 documents would be refused" in said
    assert documents.seat(0)["_id"] in said
    assert "put them right first; the validator is as it was" in said
    applied.seats.insert_one(documents.seat(8, price=-1))


def test_a_document_written_while_the_validator_was_tightened_is_told(
    applied: Database, run: Run, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    loosen(applied, "seats")
    applied.seats.insert_one(documents.seat(0))
    tighten = building._set_validator

    def written_just_before(database: Database, collection: str) -> None:
        applied.seats.insert_one(documents.seat(1, price=-1))
        tighten(database, collection)

    monkeypatch.setattr(building, "_set_validator", written_just_before)
    assert run(applied, "apply", "--allow-tighten") == 1
    assert "written meanwhile" in capsys.readouterr().err


@pytest.mark.parametrize("option", [{"validationLevel": "off"}, {"validationAction": "warn"}])
def test_a_validator_that_refuses_nothing_is_a_difference(
    applied: Database, run: Run, option: Document
) -> None:
    applied.command("collMod", "seats", **option)
    assert run(applied, "verify") == 1
    applied.seats.insert_one(documents.seat())
    assert run(applied, "apply", "--allow-tighten") == 0
    assert run(applied, "verify") == 0


def test_a_view_in_the_place_of_a_collection_is_told(
    bare: Database, run: Run, capsys: Output
) -> None:
    bare.create_collection("seats", viewOn="elsewhere", pipeline=[])
    assert run(bare, "apply") == 1
    assert "seats: this is a view" in capsys.readouterr().err


def test_a_build_that_takes_long_says_how_far_it_is(
    applied: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "REPORT_SECONDS", 0.05)
    applied.seats.drop_index("holdId_1")
    applied.seats.insert_many(documents.held_seat(number) for number in range(500))
    admin = applied.client.admin
    # The server itself pauses in the middle of the build until we have heard how far it is.
    pause = "hangIndexBuildDuringCollectionScanPhaseAfterInsertion"
    at_this_seat = {"fieldsToMatch": {"number": "300"}}
    admin.command("configureFailPoint", pause, mode="alwaysOn", data=at_this_seat)
    said: list[str] = []

    def listen(sentence: str) -> None:
        said.append(sentence)
        if " of 500 " in sentence:
            admin.command("configureFailPoint", pause, mode="off")

    give_up = threading.Timer(10, admin.command, ("configureFailPoint", pause), {"mode": "off"})
    give_up.start()
    assert building.bring_about(applied, say=listen).failed == []
    give_up.cancel()
    give_up.join()
    assert any(" of 500 in this step" in sentence for sentence in said)
    assert indexes.missing(applied) == []


def test_a_database_that_cannot_be_reached_is_one_sentence(
    capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "TICKETING_MONGODB_URI", "mongodb://127.0.0.1:9/?serverSelectionTimeoutMS=100"
    )
    monkeypatch.setattr("indexes.__main__.SERVER_SELECTION_TIMEOUT_MS", 100)
    for command in ("plan", "apply", "verify"):
        assert main([command]) == 2
        said = capsys.readouterr().err
        assert said.startswith("The database can't be reached: 127.0.0.1:9")
        assert said.count("\n") == 1


def test_settings_that_cannot_be_used_are_one_sentence(
    capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TICKETING_PORT", "none")
    assert main(["plan"]) == 2
    assert capsys.readouterr().err == "TICKETING_PORT is 'none': it must be a number.\n"


@pytest.mark.parametrize("arguments", [[], ["sweep"], ["plan", "--allow-drop"]])
def test_wrong_usage_is_told_apart_from_a_difference(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(arguments)
    assert leaving.value.code == 2


def test_the_help_has_an_example() -> None:
    command = [REPOSITORY / "scripts" / "indexes", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "example:" in shown.stdout
    assert "--allow-drop" in shown.stdout


@pytest.mark.parametrize("command", ["plan", "verify"])
def test_a_folder_without_a_running_set_can_not_be_asked(tmp_path: Path, command: str) -> None:
    asked = subprocess.run(
        [REPOSITORY / "scripts" / "indexes", command, "--data", tmp_path],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert asked.returncode == 2
    assert asked.stdout == ""
    assert asked.stderr.startswith(f"No replica set is running in {tmp_path}")
