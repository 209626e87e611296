"""A demo event for a database that has none, made as an organiser would make it."""

from datetime import timedelta

from ticketing import clock, event_setup, events, mongo
from ticketing.accounts import Caller
from ticketing.events import NewEvent, PriceCategory, Row, Section
from ticketing.mongo import Database
from ticketing.settings import Settings

ORGANISER = Caller("org_demo", "organiser")


async def ensure(settings: Settings) -> str | None:
    """The demo event's id, made first if there is no event at all; None if there are others."""
    client = await mongo.connect(settings, operation_timeout_ms=None)
    try:
        return await _ensure(client.database)
    finally:
        await client.close()


async def find(settings: Settings) -> str | None:
    """The demo event's id, or None when there is none."""
    client = await mongo.connect(settings)
    try:
        return await _find(client.database)
    finally:
        await client.close()


async def _ensure(database: Database) -> str | None:
    # An event that is still `creating` was left by a start that was killed: it does not count.
    if await database.events.find_one({"status": {"$ne": "creating"}}, {"_id": 1}) is None:
        await event_setup.create(
            database,
            _new_event(),
            organiser_id=ORGANISER.subject,
            key=None,
            body=b"",
            now=clock.now(),
        )
    event_id = await _find(database)
    if event_id is not None:
        # Here and not after `create` alone: that start may have been killed in between.
        await events.publish(database, event_id, ORGANISER, clock.now())
    return event_id


async def _find(database: Database) -> str | None:
    event = await database.events.find_one(
        {"organiserId": ORGANISER.subject, "status": {"$in": ["draft", "published"]}}, {"_id": 1}
    )
    return None if event is None else str(event["_id"])


def _new_event() -> NewEvent:
    now = clock.now()
    return NewEvent(
        name="Midsummer Night Concert",
        description="The city orchestra plays under the open sky. Doors open an hour before.",
        category="concert",
        venue_name="Riverside Arena",
        timezone="Europe/Berlin",
        starts_at=now + timedelta(days=60),
        sale_starts_at=now - timedelta(minutes=1),
        sale_ends_at=now + timedelta(days=59),
        currency="EUR",
        max_seats_per_fan=8,
        price_categories=[
            PriceCategory("Front", 9_500),
            PriceCategory("Middle", 6_800),
            PriceCategory("Rear", 4_500),
        ],
        sections=[
            Section("A", "Front", rows=[Row(str(row), count=24) for row in range(1, 11)]),
            Section("B", "Middle", rows=[Row(str(row), count=30) for row in range(1, 11)]),
            Section("Floor", "Rear", capacity=500),
        ],
    )
