"""An event comes into being whole or not at all, and is found by those who may see it."""

import base64
from datetime import timedelta

import pytest
from pymongo.errors import PyMongoError

from tests.conftest import NOW, ORGANISER, new_event, put_on_sale
from ticketing import dashboards, event_setup, events, seats
from ticketing.accounts import Caller
from ticketing.errors import (
    IdempotencyInProgress,
    IdempotencyKeyReused,
    Invalid,
    NotFound,
)
from ticketing.events import EventState, Section
from ticketing.mongo import Database, Document
from workers import release

OTHER = Caller("org_two", "organiser")
ADMIN = Caller("adm", "admin")


async def create(database: Database, key: str | None = None, body=b"b", now=NOW, **changes):
    return await event_setup.create(
        database,
        new_event(**changes),
        organiser_id=ORGANISER.subject,
        key=key,
        body=body,
        now=now,
    )


async def test_each_seat_is_a_document_in_plan_order(either: Database) -> None:
    event = await create(either)
    found = await seats.read(either, event)
    assert [seat["_id"] for seat in found] == [seats.seat_id(event["_id"], n) for n in range(40)]
    assert [(s["section"], s["row"], s["number"]) for s in found[8:12]] == [
        ("A", "1", "9"),
        ("A", "1", "10"),
        ("A", "2", "1"),
        ("A", "2", "2"),
    ]
    assert (found[20]["row"], found[20]["number"], found[20]["price"]) == (None, None, 4500)
    counters = await dashboards.find(either, event["_id"])
    assert counters["seats"]["available"] == 40


async def test_the_same_key_makes_one_event(either: Database) -> None:
    first = await create(either, "k")
    again = await create(either, "k")
    assert again["_id"] == first["_id"]
    assert await either.seats.count_documents({}) == 40
    with pytest.raises(IdempotencyKeyReused):
        await create(either, "k", body=b"other")
    assert (await create(either, "k2"))["_id"] != first["_id"]
    # The key's answer stays the event, also when it has moved on.
    await events.publish(either, first["_id"], ORGANISER, NOW)
    assert (await create(either, "k"))["status"] == "published"


async def test_a_creation_that_died_half_way_is_invisible_and_can_be_repeated(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(database: Database, event: Document) -> None:
        await database.seats.insert_one(next(iter(seats._plan(event))))
        raise PyMongoError("the power went")

    with monkeypatch.context() as broken:
        broken.setattr(seats, "lay_out", die)
        with pytest.raises(PyMongoError):
            await create(database, "k")
    (left,) = await database.events.find({}).to_list()
    with pytest.raises(NotFound):
        await events.find(database, left["_id"])
    with pytest.raises(NotFound):
        await events.publish(database, left["_id"], ORGANISER, NOW)
    with pytest.raises(IdempotencyInProgress):
        await create(database, "k", now=NOW + timedelta(seconds=5))
    event = await create(database, "k", now=NOW + timedelta(seconds=61))
    assert (event["_id"], event["status"]) == (left["_id"], "draft")
    assert len(await seats.read(database, event)) == 40


async def test_a_creation_that_nobody_repeats_is_removed(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(*_: object) -> None:
        raise PyMongoError("the power went")

    whole = await put_on_sale(database)
    with monkeypatch.context() as broken:
        broken.setattr(dashboards, "begin", die)
        with pytest.raises(PyMongoError):
            await create(database)
    soon, late = NOW + timedelta(minutes=30), NOW + timedelta(minutes=62)
    assert await event_setup.remove_abandoned(database, soon) == 0
    assert await event_setup.remove_abandoned(database, late) == 1
    assert await database.seats.distinct("eventId") == [whole.event_id]
    assert await database.events.count_documents({}) == 1


async def test_a_draft_is_seen_by_its_organiser_and_admins_only(either: Database) -> None:
    event = await create(either)
    for caller in (ORGANISER, ADMIN):
        assert (await events.visible(either, event["_id"], caller))["status"] == "draft"
    for caller in (OTHER, Caller("fan", "fan"), Caller(ORGANISER.subject, "fan"), None):
        with pytest.raises(NotFound):
            await events.visible(either, event["_id"], caller)
    with pytest.raises(NotFound):
        await events.publish(either, event["_id"], OTHER, NOW)


async def test_publishing_twice_is_one_publication_and_a_cancelled_event_stays_so(
    either: Database,
) -> None:
    event = await create(either)
    first = await events.publish(either, event["_id"], ORGANISER, NOW)
    again = await events.publish(either, event["_id"], ORGANISER, NOW + timedelta(hours=1))
    assert again == first
    assert await events.cancel(either, event["_id"], NOW)
    assert not await events.cancel(either, event["_id"], NOW)
    with pytest.raises(EventState):
        await events.publish(either, event["_id"], ORGANISER, NOW)


async def test_an_event_ends_when_both_its_sale_and_its_start_are_over(either: Database) -> None:
    sale = await put_on_sale(either)
    assert await events.end_past(either, NOW + timedelta(days=29, hours=1)) == 0
    assert await events.end_past(either, NOW + timedelta(days=31)) == 1
    assert (await events.find(either, sale.event_id))["status"] == "ended"


async def test_events_are_listed_by_start_category_and_words(either: Database) -> None:
    floor = [Section("Floor", "Rear", capacity=1)]
    for day, name, category in (
        (3, "Jazz am Fluß", "concert"),
        (1, "Jazz Brunch", "food"),
        (2, "Ballet", "dance"),
    ):
        await put_on_sale(
            either,
            name=name,
            category=category,
            sections=floor,
            starts_at=NOW + timedelta(days=day),
        )
    await create(either, name="Jazz draft", sections=floor)

    async def names(**filters: object) -> list[str]:
        page = await events.listing(either, limit=20, **filters)
        return [event["name"] for event in page.items]

    assert await names() == ["Jazz Brunch", "Ballet", "Jazz am Fluß"]
    assert await names(category="dance") == ["Ballet"]
    assert await names(q="JAZZ") == ["Jazz Brunch", "Jazz am Fluß"]
    assert await names(q="fluss jazz") == ["Jazz am Fluß"]
    assert await names(q="jazz opera") == []
    assert await names(q="!?") == []
    assert await names(starts_from=NOW + timedelta(days=2)) == ["Ballet", "Jazz am Fluß"]
    assert await names(starts_to=NOW + timedelta(days=2)) == ["Jazz Brunch"]
    assert await names(status="draft", organiser_id=ORGANISER.subject) == ["Jazz draft"]
    assert len(await names(status=None, organiser_id=ORGANISER.subject)) == 4
    with pytest.raises(Invalid):
        await names(status="draft")
    with pytest.raises(Invalid):
        await names(status=None)


async def test_pages_of_events_neither_lose_nor_repeat_any(either: Database) -> None:
    for _ in range(7):
        await put_on_sale(either, sections=[Section("Floor", "Rear", capacity=1)])
    seen, cursor = [], None
    while True:
        page = await events.listing(either, limit=3, cursor=cursor)
        seen += [event["_id"] for event in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert len(seen) == len(set(seen)) == 7
    for bad in ("x", "", "!!", "W10", "a" * 600):
        with pytest.raises(Invalid):
            await events.listing(either, limit=3, cursor=bad)


async def test_the_release_worker_sweeps_until_nothing_is_overdue(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale = await put_on_sale(database, sections=[Section("Floor", "Rear", capacity=30)])
    await database.seats.update_many(
        {"eventId": sale.event_id},
        [
            {
                "$set": {
                    "status": "held",
                    "from": "available",
                    "cause": "placed",
                    "holdId": "hold_x.y.z.b",
                    "fanSlot": {"$concat": ["x.y.", "$_id"]},
                    "heldUntil": NOW,
                }
            }
        ],
    )
    monkeypatch.setattr(seats, "SEATS_PER_SWEEP_MAX", 7)
    assert await release.sweep(database, NOW - timedelta(seconds=1)) == (0, 0)
    assert await release.sweep(database, NOW) == (30, 0)


@pytest.mark.parametrize("instant", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"])
async def test_a_forged_cursor_is_refused(database: Database, instant: str) -> None:
    forged = base64.urlsafe_b64encode(f'["events","{instant}","x"]'.encode()).decode().rstrip("=")
    with pytest.raises(Invalid):
        await events.listing(database, limit=3, cursor=forged)
