"""A fan takes along all that is held of them, or is forgotten while the books stay right."""

import json
import os
import subprocess
import sys
from datetime import timedelta

import pytest

from tests.conftest import NOW, Sale, put_on_sale
from tests.nouns.test_checkout import current, notice, ordered, receive, sound
from ticketing import accounts, archive, checkout, gone, invariants, orders, privacy
from ticketing.errors import NotFound
from ticketing.gone import Gone
from ticketing.mongo import Database, Document
from ticketing.privacy import ErasureBlocked
from ticketing.settings import Settings

FAN, NAME, EMAIL = "fan_zoe", "Zoë Ångström", "Zoe@Example.org"
AFTERWARDS = NOW + timedelta(days=31)


async def known_fan(database: Database, fan_id: str = FAN) -> None:
    await accounts.save_profile(database, fan_id, NAME, EMAIL, NOW)
    await database.accounts.insert_one(
        {
            "_id": fan_id,
            "role": "fan",
            "email": EMAIL.casefold(),
            "address": EMAIL,
            "passwordHash": "$argon2id$x",
            "passwordChangedAt": NOW,
            "name": NAME,
            "language": "en",
            "createdAt": NOW,
        }
    )
    await database.sessions.insert_one(
        {
            "_id": f"ses_{fan_id}",
            "accountId": fan_id,
            "role": "fan",
            "generation": 0,
            "createdAt": NOW,
            "usedAt": NOW,
            "expiresAt": NOW + timedelta(days=1),
        }
    )
    await database.account_requests.insert_one(
        {
            "_id": f"req_{fan_id}",
            "purpose": "reset",
            "email": EMAIL.casefold(),
            "address": EMAIL,
            "createdAt": NOW,
            "expiresAt": NOW + timedelta(days=1),
        }
    )


async def bought(database: Database, sale: Sale, *ordinals: int, fan: str = FAN) -> Document:
    placed = await ordered(database, sale, fan, *ordinals)
    await receive(database, notice(placed))
    return await current(database, placed)


async def whole_database(database: Database) -> str:
    text = ""
    for name in await database.list_collection_names():
        if not name.startswith("system."):
            text += f"{name}: {await database[name].find().to_list()}\n"
    return text


async def test_an_export_has_all_of_the_fan_and_nothing_of_anybody_else(
    database: Database, settings: Settings
) -> None:
    await known_fan(database)
    sale = await put_on_sale(database)
    mine = await bought(database, sale, 1, 2)
    theirs = await bought(database, sale, 3, fan="fan_other")
    await checkout.cancel(database, mine["_id"], FAN, now=NOW)
    held = json.loads(json.dumps(await privacy.export(database, FAN)))
    assert held["profile"]["name"] == NAME
    assert held["account"]["email"] == EMAIL.casefold()
    assert [order["_id"] for order in held["orders"]] == [mine["_id"]]
    assert [payment["orderId"] for payment in held["payments"]] == [mine["_id"]]
    assert [refund["amount"] for refund in held["refunds"]] == [mine["total"]]
    assert len(held["sessions"]) == len(held["requests"]) == 1
    text = json.dumps(held)
    assert theirs["_id"] not in text
    for internal in ("argon2id", "holdId", "placementKey"):
        assert internal not in text


async def test_an_export_of_nobody_is_empty(database: Database) -> None:
    held = await privacy.export(database, "fan_nobody")
    assert (held["profile"], held["account"], held["orders"]) == (None, None, [])


async def test_a_fan_is_forgotten_everywhere_and_the_books_stay_right(
    database: Database, settings: Settings
) -> None:
    await known_fan(database)
    sale = await put_on_sale(database)
    await bought(database, sale, 1, 2)
    await bought(database, sale, 3, fan="fan_other")
    before = await database.orders.find({"fanId": FAN}).to_list()
    record = await privacy.erase(database, settings, FAN, AFTERWARDS)
    left = await whole_database(database)
    for personal in (FAN, NAME, EMAIL, EMAIL.casefold()):
        assert personal not in left
    after = await database.orders.find({"fanId": record["pseudonym"]}).to_list()
    changed = {"fanId", "history", "placementKey"}
    assert [_without(order, changed) for order in after] == [
        _without(order, changed) for order in before
    ]
    assert await database.orders.count_documents({"fanId": "fan_other"}) == 1
    assert record["counts"]["orders"] == 1
    assert record["finishedAt"] == AFTERWARDS
    await sound(database)
    with pytest.raises(NotFound):
        await orders.find(database, before[0]["_id"], FAN)


def _without(document: Document, names: set[str]) -> Document:
    return {name: value for name, value in document.items() if name not in names}


async def test_what_is_owed_to_a_fan_keeps_them_from_being_forgotten(
    database: Database, settings: Settings
) -> None:
    sale = await put_on_sale(database)
    coming = await bought(database, sale, 1)
    waiting = await ordered(database, sale, FAN, 2)
    with pytest.raises(ErasureBlocked) as blocked:
        await privacy.erase(database, settings, FAN, NOW)
    assert blocked.value.order_ids == sorted([coming["_id"], waiting["_id"]])
    await receive(database, notice(waiting))
    await checkout.cancel(database, coming["_id"], FAN, now=NOW)
    with pytest.raises(ErasureBlocked) as blocked:
        await privacy.erase(database, settings, FAN, AFTERWARDS)
    assert blocked.value.order_ids == [coming["_id"]]
    assert await database.erasures.count_documents({}) == 0


async def test_an_order_that_slips_in_keeps_the_fan_and_leaves_them_in(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    await known_fan(database)
    sale = await put_on_sale(database)
    known = Gone(database, settings)
    blockers, leave = privacy._blockers, gone.leave

    async def order_slips_in(*arguments: object) -> None:
        await leave(*arguments)  # type: ignore[arg-type]
        known.forget()
        assert await known.has(FAN)
        await ordered(database, sale, FAN, 1)

    monkeypatch.setattr(gone, "leave", order_slips_in)
    with pytest.raises(ErasureBlocked):
        await privacy.erase(database, settings, FAN, NOW)
    assert await blockers(database, FAN, NOW) != []
    for looking in (known, Gone(database, settings)):
        looking.forget()
        assert not await looking.has(FAN)
    assert await accounts.profile(database, FAN) is not None
    await leave(database, settings, FAN, NOW)
    known.forget()
    assert await known.has(FAN)


async def test_an_erasure_that_died_anywhere_goes_on_with_the_same_pseudonym(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    await known_fan(database)
    sale = await put_on_sale(database)
    for ordinal in range(5):
        await bought(database, sale, ordinal)
    monkeypatch.setattr(privacy, "ORDERS_PER_BATCH", 2)
    renaming, calls = privacy._rename_orders, 0

    async def dies_in_the_middle(*arguments: object) -> int:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise ConnectionError
        return await renaming(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(privacy, "_rename_orders", dies_in_the_middle)
    with pytest.raises(ConnectionError):
        await privacy.erase(database, settings, FAN, AFTERWARDS)
    assert await accounts.profile(database, FAN) is not None
    record = await privacy.erase(database, settings, FAN, AFTERWARDS)
    assert await database.orders.count_documents({"fanId": record["pseudonym"]}) == 5
    assert FAN not in await whole_database(database)
    assert await database.erasures.count_documents({}) == 1
    again = await privacy.erase(database, settings, FAN, AFTERWARDS + timedelta(days=1))
    assert again["pseudonym"] == record["pseudonym"]


async def test_the_record_of_an_erasure_does_not_tell_whose_it_was(
    database: Database, settings: Settings
) -> None:
    await known_fan(database)
    await privacy.erase(database, settings, FAN, NOW)
    [record] = await database.erasures.find().to_list()
    assert FAN not in str(record)
    assert record["pseudonym"].startswith("erased_")


async def over(database: Database, sale: Sale) -> None:
    """The event is over, long ago."""
    long_ago = NOW - archive.KEPT - timedelta(days=1)
    await database.events.update_one(
        {"_id": sale.event_id}, {"$set": {"status": "ended", "startsAt": long_ago}}
    )


async def test_orders_of_an_event_long_past_are_archived_and_still_read_by_their_fan(
    either: Database,
) -> None:
    sale, recent = await put_on_sale(either), await put_on_sale(either)
    old = [await bought(either, sale, ordinal) for ordinal in range(5)]
    new = [await bought(either, recent, ordinal) for ordinal in range(2)]
    await over(either, sale)
    assert await archive.due(either, NOW) == [sale.event_id]
    assert await archive.move(either, sale.event_id, NOW) == 5
    assert await archive.due(either, NOW) == []
    assert await either.orders.count_documents({"eventId": sale.event_id}) == 0
    assert await orders.find(either, old[0]["_id"], FAN) == old[0]
    with pytest.raises(NotFound):
        await orders.find(either, old[0]["_id"], "fan_other")
    await sound(either)
    for limit in (1, 2, 3, 4, 6, 7, 20):
        seen: list[str] = []
        cursor = None
        for _ in range(20):
            page = await orders.listing(either, FAN, limit=limit, cursor=cursor)
            assert len(page.items) <= limit
            seen += [order["_id"] for order in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert len(seen) == len(set(seen)) == 7
        assert set(seen[:2]) == {order["_id"] for order in new}


async def test_an_event_whose_books_are_open_or_wrong_is_not_archived(database: Database) -> None:
    sale = await put_on_sale(database)
    placed = await bought(database, sale, 1)
    waiting = await ordered(database, sale, FAN, 2)
    await over(database, sale)
    assert await archive.move(database, sale.event_id, NOW) is None
    await receive(database, notice(waiting))
    await database.orders.update_one({"_id": placed["_id"]}, {"$set": {"total": 1}})
    assert await archive.move(database, sale.event_id, NOW) is None
    assert await archive.due(database, NOW) == []
    assert await archive.due(database, NOW + archive.TRIED_AGAIN_AFTER) == [sale.event_id]
    await database.orders.update_one({"_id": placed["_id"]}, {"$set": {"total": placed["total"]}})
    refund = await checkout.cancel(database, placed["_id"], FAN, now=NOW)
    assert refund["refunds"][0]["status"] == "created"
    assert await archive.move(database, sale.event_id, NOW) is None
    assert await database.orders_archive.count_documents({}) == 0


async def test_a_move_that_died_in_the_middle_goes_on(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale = await put_on_sale(database)
    for ordinal in range(5):
        await bought(database, sale, ordinal)
    await over(database, sale)
    monkeypatch.setattr(archive, "ORDERS_PER_BATCH", 2)
    moving, calls = archive._move_some, 0

    async def dies(*arguments: object) -> int:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise ConnectionError
        return await moving(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(archive, "_move_some", dies)
    with pytest.raises(ConnectionError):
        await archive.move(database, sale.event_id, NOW)
    assert await database.orders.count_documents({}) == 3
    assert await invariants.check_all(database, counters=False) == []
    assert await archive.due(database, NOW) == [sale.event_id]
    assert await archive.move(database, sale.event_id, NOW) == 3
    assert await database.orders_archive.count_documents({}) == 5
    assert await archive.due(database, NOW) == []


async def test_archived_orders_are_exported_and_forgotten_as_well(
    database: Database, settings: Settings
) -> None:
    await known_fan(database)
    sale = await put_on_sale(database)
    await bought(database, sale, 1)
    await over(database, sale)
    await archive.move(database, sale.event_id, NOW)
    assert len((await privacy.export(database, FAN))["orders"]) == 1
    record = await privacy.erase(database, settings, FAN, NOW)
    assert record["counts"]["orders_archive"] == 1
    assert FAN not in await whole_database(database)


async def test_the_command_exports_refuses_and_forgets(
    database: Database, settings: Settings
) -> None:
    await known_fan(database)
    waiting = await ordered(database, await put_on_sale(database), FAN, 1)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "scripts.privacy", *arguments],
            env={
                **os.environ,
                "TICKETING_MONGODB_URI": settings.mongodb_uri,
                "TICKETING_DATABASE": settings.database,
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    exported = run("export", "--fan", FAN)
    assert exported.returncode == 0
    assert json.loads(exported.stdout)["profile"]["name"] == NAME
    blocked = run("erase", "--fan", FAN)
    assert blocked.returncode == 1
    assert waiting["_id"] in blocked.stderr
    await checkout.release_hold(database, waiting["holdId"], FAN, now=NOW)
    erased = run("erase", "--fan", FAN)
    assert (erased.returncode, erased.stderr) == (0, "")
    assert "is forgotten" in erased.stdout
    assert run("erase").returncode == 2
