"""A moved event: its orders follow, and each fan with tickets is told, once."""

import asyncio
from datetime import timedelta

import pytest

from tests.conftest import NOW, ORGANISER, Sale, instant, put_on_sale
from tests.nouns.test_checkout import current, notice, ordered, receive
from tests.nouns.test_money import bought
from ticketing import checkout, events, moves
from ticketing.errors import Invalid, NotFound
from ticketing.events import EventState, Move
from ticketing.mongo import Database, Document

THEN = instant("2030-08-01T19:00:00")
SETTLED = NOW + moves.SETTLES_AFTER


async def move(database: Database, sale: Sale, now=NOW, **changes: object) -> Document:
    return await moves.move(database, sale.event_id, ORGANISER, Move(**changes), now)


async def told(database: Database, kind: str) -> list[str | None]:
    found = await database.outbox.find({"kind": kind}).sort("_id", 1).to_list(1_000)
    return [message.get("orderId") for message in found]


async def test_the_event_moves_at_once_and_its_orders_follow(database: Database) -> None:
    sale = await put_on_sale(database)
    paid = await bought(database, sale, "fan_a", 1)
    waiting = await ordered(database, sale, "fan_b", 2)
    over = await bought(database, sale, "fan_c", 3)
    await checkout.cancel(database, over["_id"], "fan_c", now=NOW)
    after = await move(database, sale, starts_at=THEN, venue_name="Fillmore")
    assert (after["startsAt"], after["venueName"]) == (THEN, "Fillmore")
    assert await moves.run_due(database, NOW) == 2
    for order in (paid, waiting):
        copy = (await current(database, order))["event"]
        assert (copy["startsAt"], copy["venueName"]) == (THEN, "Fillmore")
    assert (await current(database, over))["event"]["venueName"] == "Winterland"
    assert await told(database, "event.moved") == [None]
    # Whoever has not paid yet reads where it is on the payment page, and in the confirmation.
    assert await told(database, "order.moved") == [paid["_id"]]
    assert await moves.run_due(database, SETTLED) == 0
    assert await database.events.count_documents({"moveDueAt": {"$exists": True}}) == 0


async def test_it_is_found_by_the_name_of_its_new_place(database: Database) -> None:
    sale = await put_on_sale(database)
    await move(database, sale, venue_name="Fillmore")
    assert len((await events.listing(database, limit=5, q="fillmore")).items) == 1
    assert (await events.listing(database, limit=5, q="winterland")).items == []


async def test_to_move_it_to_where_it_is_changes_nothing(database: Database) -> None:
    sale = await put_on_sale(database)
    for _ in range(2):
        await move(database, sale, starts_at=THEN)
    assert await told(database, "event.moved") == [None]
    assert (await events.find(database, sale.event_id))["moves"] == 1


async def test_an_order_placed_with_the_event_as_it_was_follows_later(database: Database) -> None:
    sale = await put_on_sale(database)
    await move(database, sale, venue_name="Fillmore")
    assert await moves.run_due(database, NOW) == 0
    late = await bought(database, sale, "fan_a", 1)
    await database.orders.update_one(
        {"_id": late["_id"]},
        {"$set": {"event.venueName": "Winterland"}, "$unset": {"event.moves": ""}},
    )
    assert await moves.run_due(database, SETTLED) == 1
    assert (await current(database, late))["event"]["venueName"] == "Fillmore"
    assert await told(database, "order.moved") == [late["_id"]]


async def test_an_order_placed_after_the_move_has_nothing_to_follow(database: Database) -> None:
    sale = await put_on_sale(database)
    await move(database, sale, venue_name="Fillmore")
    await bought(database, sale, "fan_a", 1)
    assert await moves.run_due(database, SETTLED) == 0
    assert await told(database, "order.moved") == []


async def test_many_workers_and_one_that_dies_tell_each_fan_once(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale = await put_on_sale(database)
    paid = [await bought(database, sale, f"fan_{n}", n) for n in range(9)]
    monkeypatch.setattr(moves, "ORDERS_PER_BATCH", 2)
    await move(database, sale, venue_name="Fillmore")
    # One stops after its first batch, as at a shutdown.
    assert await moves.run_due(database, NOW, stopping=lambda: True) == 2
    # One dies with the event in its hands; its lease ends, and several come at once.
    await database.events.update_one({}, {"$set": {"moveDueAt": NOW}})
    await asyncio.gather(*(moves.run_due(database, NOW) for _ in range(4)))
    assert await moves.run_due(database, NOW + moves.LEASE) == 0
    assert sorted(map(str, await told(database, "order.moved"))) == sorted(
        order["_id"] for order in paid
    )


async def test_an_event_moved_twice_ends_at_the_last_place(database: Database) -> None:
    sale = await put_on_sale(database)
    paid = await bought(database, sale, "fan_a", 1)
    await move(database, sale, venue_name="Fillmore")
    await moves.run_due(database, NOW)
    later = NOW + timedelta(minutes=1)
    await move(database, sale, later, venue_name="Apollo")
    assert await moves.run_due(database, later) == 1
    assert (await current(database, paid))["event"]["venueName"] == "Apollo"
    assert await told(database, "order.moved") == [paid["_id"]] * 2


async def test_an_order_is_paid_while_it_follows(database: Database) -> None:
    sale = await put_on_sale(database)
    placed = [await ordered(database, sale, f"fan_{n}", n) for n in range(6)]
    await move(database, sale, venue_name="Fillmore")
    await asyncio.gather(
        moves.run_due(database, NOW), *(receive(database, notice(order)) for order in placed)
    )
    for order in placed:
        after = await current(database, order)
        assert (after["status"], after["event"]["venueName"]) == ("confirmed", "Fillmore")


async def test_what_is_over_or_not_ones_own_is_not_moved(database: Database) -> None:
    sale = await put_on_sale(database)
    with pytest.raises(Invalid) as refused:
        await move(database, sale, timezone="Mars/Olympus", venue_name="")
    assert [path for path, _ in refused.value.errors] == ["timezone", "venueName"]
    stranger = events.Caller("org_other", "organiser")
    with pytest.raises(NotFound):
        await moves.move(database, sale.event_id, stranger, Move(venue_name="X"), NOW)
    await events.cancel(database, sale.event_id, NOW)
    with pytest.raises(EventState):
        await move(database, sale, venue_name="Fillmore")
