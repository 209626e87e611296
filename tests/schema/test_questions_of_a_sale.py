"""A whole sale, watched by the server's own profiler: nothing in it reads a whole collection.

The access patterns say which questions are asked; this finds one that nobody declared.
"""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest

import indexes
from tests.conftest import NOW, ORGANISER, Sale, providers_of, put_on_sale
from tests.schema.conftest import Database as SyncDatabase
from ticketing import (
    accounts,
    cancellations,
    checkout,
    events,
    holds,
    invariants,
    mongo,
    orders,
    payments,
    refunds,
    seats,
    settling,
    tickets,
)
from ticketing.gateway import Notice
from ticketing.holds import Hold, HoldRequest
from ticketing.mongo import Database, Document
from ticketing.orders import OrderRequest
from ticketing.settings import Settings
from workers import release

AN_HOUR_LATER = NOW + timedelta(hours=1)


@pytest.fixture
async def profiled(bare: SyncDatabase, _prepared: Settings) -> AsyncIterator[Database]:
    indexes.apply(bare)
    bare.command("profile", 2)
    client = await mongo.connect(replace(_prepared, database=bare.name))
    yield client.database
    await client.close()
    bare.command("profile", 0)


async def order(database: Database, fan: str, *requests: HoldRequest) -> list[Document]:
    placed = await holds.place(database, requests, hold_seconds=600, now=NOW)
    wishes = [OrderRequest(fan, hold.hold_id, hold.hold_id) for hold in placed]
    return await checkout.place_orders(database, wishes, now=NOW)


async def pay(database: Database, *placed: Document) -> None:
    notices = [
        Notice(
            "sandbox",
            f"notice_{order['_id']}",
            "payment.succeeded",
            order["payment"]["paymentId"],
            order["_id"],
            order["total"],
            order["currency"],
        )
        for order in placed
    ]
    await checkout.receive(database, notices, now=NOW)


async def buy(database: Database, sale: Sale) -> None:
    """Hold in every form, order, pay, look, release, cancel."""
    event = sale.event_id
    bought = await order(
        database,
        "fan_a",
        HoldRequest(event, "fan_a", sale.seats(0, 1), key="a"),
        HoldRequest(event, "fan_a", quantity=2, section="Floor"),
        HoldRequest(event, "fan_a", quantity=2),
    )
    await pay(database, *bought)
    await checkout.cancel(database, bought[0]["_id"], "fan_a", now=NOW)
    others = [HoldRequest(event, fan, quantity=1) for fan in ("b", "c")]
    (held, _) = await holds.place(database, others, hold_seconds=600, now=NOW)
    assert isinstance(held, Hold)
    await holds.find(database, held.hold_id, "b", NOW)
    await checkout.release_hold(database, held.hold_id, "b", now=NOW)
    await order(database, "fan_d", HoldRequest(event, "fan_d", sale.seats(9)))
    # Somebody wants a seat whose hold is over before any sweep has freed it.
    late = HoldRequest(event, "fan_e", sale.seats(9))
    await holds.place(database, [late], hold_seconds=600, now=AN_HOUR_LATER)


async def look(database: Database, sale: Sale) -> None:
    """Ask all that fans and organisers ask, from page to page."""
    await accounts.save_profile(database, "fan_a", "A", "a@example.org", NOW)
    await accounts.profile(database, "fan_a")
    await seats.read(database, sale.event)
    await seats.read(database, sale.event, sale.event["sections"][1])
    for status in (None, "confirmed"):
        page = await orders.listing(database, "fan_a", limit=1, status=status)
        await orders.listing(database, "fan_a", limit=1, status=status, cursor=page.next_cursor)
    await payments.find(database, page.items[0]["payment"]["paymentId"])
    cursor = None
    for _ in range(4):
        shown = await tickets.listing(database, "fan_a", now=NOW, limit=1, cursor=cursor)
        cursor = shown.next_cursor
    for narrowed in ({}, {"category": "concert"}, {"q": "waltz"}, {"q": "the last waltz"}):
        for organiser in (None, ORGANISER.subject):
            listed = await events.listing(database, limit=1, organiser_id=organiser, **narrowed)
            await events.listing(
                database, limit=1, organiser_id=organiser, cursor=listed.next_cursor, **narrowed
            )


async def test_no_question_of_a_sale_reads_a_whole_collection_or_sorts_in_memory(
    profiled: Database, bare: SyncDatabase
) -> None:
    sale = await put_on_sale(profiled)
    await put_on_sale(profiled, starts_at=NOW + timedelta(days=31))
    await buy(profiled, sale)
    await look(profiled, sale)
    await release.sweep(profiled, AN_HOUR_LATER)
    await cancellations.begin(profiled, sale.event_id, ORGANISER, AN_HOUR_LATER)
    await cancellations.run_due(profiled, AN_HOUR_LATER)
    await cancellations.run_due(profiled, AN_HOUR_LATER + timedelta(minutes=1))
    await refunds.listing(profiled, sale.event_id, limit=1)
    await refunds.send_due(profiled, providers_of(profiled), AN_HOUR_LATER)
    await settling.look_up_due(profiled, providers_of(profiled), AN_HOUR_LATER)
    await checkout.look_again(profiled, AN_HOUR_LATER)
    await invariants.attention(profiled, AN_HOUR_LATER)
    await events.end_past(profiled, NOW + timedelta(days=40))
    bare.command("profile", 0)
    asked = list(bare["system.profile"].find({"planSummary": {"$exists": True}}))
    assert {entry["ns"].partition(".")[2] for entry in asked} >= {"seats", "orders", "events"}
    wrong = [
        (entry["ns"], entry["op"], entry["planSummary"], entry.get("command"))
        for entry in asked
        if "COLLSCAN" in entry["planSummary"] or entry.get("hasSortStage")
    ]
    assert wrong == []
