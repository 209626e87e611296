"""`scripts/outbox`: a person sees what could not be delivered and lets it go again."""

import json
import subprocess
import sys
from pathlib import Path

import pymongo
import pytest

from tests.conftest import NOW
from ticketing import outbox
from ticketing.mongo import Document
from ticketing.settings import Settings

REPOSITORY = Path(__file__).parents[2]


def run(settings: Settings, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "scripts.outbox", *arguments],
        env={
            "TICKETING_MONGODB_URI": settings.mongodb_uri,
            "TICKETING_DATABASE": settings.database,
        },
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def dead_letter(settings: Settings) -> str:
    """A mail that was given up; its id."""
    message = outbox.message("order.confirmed", "evt_1", "ord_1", {"ticketIds": ["tkt_1"]}, NOW)
    delivery = {
        **outbox._delivery(message, "mail", "mail", NOW),
        "status": "dead",
        "settledAt": NOW,
        "tried": [{"at": NOW, "outcome": "failed", "detail": "the mail server answered 550"}],
    }
    del delivery["dueAt"]
    with pymongo.MongoClient[Document](settings.mongodb_uri) as client:
        client[settings.database].outbox.insert_one(message)
        client[settings.database].deliveries.insert_one(delivery)
    return str(delivery["_id"])


def test_dead_letters_are_listed_shown_and_requeued(settings: Settings) -> None:
    assert run(settings, "list").stdout == "There are no dead letters.\n"
    identifier = dead_letter(settings)
    (line,) = run(settings, "list").stdout.splitlines()
    assert line == (
        f"{identifier} 2030-06-01T12:00:00.000Z order.confirmed ord_1 the mail server answered 550"
    )
    shown = json.loads(run(settings, "show", identifier).stdout)
    assert shown["delivery"]["tried"][0]["detail"] == "the mail server answered 550"
    assert shown["message"]["body"] == {"ticketIds": ["tkt_1"]}
    requeued = run(settings, "requeue", identifier)
    assert (requeued.returncode, requeued.stdout) == (0, "1 requeued\n")
    assert run(settings, "list").stdout == "There are no dead letters.\n"
    again = run(settings, "requeue", identifier)
    assert (again.returncode, again.stderr) == (1, "1 of these are no dead letters.\n")


def test_all_dead_letters_are_requeued_at_once(settings: Settings) -> None:
    for _ in range(3):
        dead_letter(settings)
    listed = run(settings, "list", "--limit", "2").stdout.splitlines()
    assert listed[2:] == ["and more: see them with --limit, up to 1000"]
    with pymongo.MongoClient[Document](settings.mongodb_uri) as client:
        client[settings.database].deliveries.update_many({}, {"$set": {"settledAt": PAST}})
    assert run(settings, "requeue", "--all").stdout == "3 requeued\n"


PAST = NOW.replace(year=2020)


def test_an_unknown_delivery_is_one_sentence(settings: Settings) -> None:
    unknown = run(settings, "show", "msg_none:mail")
    assert (unknown.returncode, unknown.stderr) == (1, "There is no delivery msg_none:mail.\n")


@pytest.mark.parametrize(
    "arguments",
    [(), ("list", "--limit", "0"), ("list", "--limit", "x"), ("requeue",), ("show",), ("eat",)],
)
def test_wrong_use_is_told_with_exit_code_2(arguments: tuple[str, ...], settings: Settings) -> None:
    ended = run(settings, *arguments)
    assert ended.returncode == 2
    assert ended.stdout == ""


def test_help_shows_an_example_and_the_exit_codes(settings: Settings) -> None:
    said = run(settings, "--help").stdout
    assert "scripts/outbox requeue --all" in said
    assert "exit codes: 0" in said
