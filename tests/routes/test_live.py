"""The live dashboard over a real WebSocket on the real server."""

import asyncio
import json
import time
from contextlib import AsyncExitStack

import pytest
from pymongo.errors import AutoReconnect
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from tests.routes.conftest import Api, Json, Server, set_counters, token
from ticketing.api import live
from ticketing.api.metrics import Metrics
from ticketing.api.watching import Watcher, Watching
from ticketing.mongo import Client


async def document(connection: ClientConnection, seconds: float = 5.0) -> Json:
    return dict(json.loads(await asyncio.wait_for(connection.recv(), seconds)))


async def close_code(connection: ClientConnection) -> int:
    with pytest.raises(ConnectionClosed) as closed:
        await asyncio.wait_for(connection.recv(), 5)
    assert closed.value.rcvd is not None
    return closed.value.rcvd.code


async def test_the_document_comes_at_once_and_again_at_each_change(
    api: Api, client: Client, server: Server
) -> None:
    event_id = await api.sale()
    async with server.watch_as_organiser(event_id) as connection:
        assert connection.subprotocol == "bearer"
        path = f"/v1/events/{event_id}/dashboard"
        by_rest = (await api.http.get(path, headers=api.as_organiser)).json()
        assert await document(connection) == by_rest
        changed = await set_counters(client, event_id, revenue=9500)
        began = time.monotonic()
        news = await document(connection)
        assert time.monotonic() - began < 1
        assert news["version"] == changed["version"]
        assert news["revenue"] == {"amount": 9500, "currency": "EUR"}
        with pytest.raises(TimeoutError):
            await document(connection, 0.6)


async def test_who_may_not_watch_gets_a_close_code_and_no_data(api: Api, server: Server) -> None:
    event_id = await api.sale()
    good = token(api.settings, "org_one", "organiser")
    for protocols, code in (
        ((), 4401),
        (("bearer",), 4401),
        (("bearer", "x.y.z"), 4401),
        ((good, "bearer"), 4401),
        (("bearer", token(api.settings, "org_one", "organiser", exp=1)), 4401),
        (("bearer", token(api.settings, "org_two", "organiser")), 4403),
        (("bearer", token(api.settings, "fan_one", "fan")), 4403),
    ):
        async with server.watch(event_id, *protocols) as connection:
            assert await close_code(connection) == code
    async with server.watch("evt_none", "bearer", good) as connection:
        assert await close_code(connection) == 4403
    async with server.watch_as(event_id, "adm_one", "admin") as connection:
        assert (await document(connection))["eventId"] == event_id


async def test_a_connection_ends_when_its_token_expires(api: Api, server: Server) -> None:
    event_id = await api.sale()
    soon = int(time.time()) + 2
    async with server.watch_as(event_id, "org_one", "organiser", exp=soon) as connection:
        await document(connection)
        assert await close_code(connection) == 4401


async def test_no_second_holds_more_than_five_documents_and_the_last_is_the_newest(
    api: Api, client: Client, server: Server
) -> None:
    event_id = await api.sale()
    async with server.watch_as_organiser(event_id) as connection:
        arrived: list[tuple[float, int]] = []

        async def read() -> None:
            while True:
                version = json.loads(await connection.recv())["version"]
                arrived.append((time.monotonic(), version))

        reading = asyncio.create_task(read())
        deadline = time.monotonic() + 2.5
        while time.monotonic() < deadline:
            newest = await set_counters(client, event_id, revenue=len(arrived))
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.7)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    assert arrived[-1][1] == newest["version"]
    versions = [version for _, version in arrived]
    assert versions == sorted(set(versions))
    assert len(arrived) >= 8
    for first, sixth in zip(arrived, arrived[5:], strict=False):
        assert sixth[0] - first[0] > 1.0


async def test_every_watcher_of_an_event_gets_each_change_and_no_other_events(
    api: Api, client: Client, server: Server
) -> None:
    mine, other = await api.sale(), await api.sale()
    async with (
        server.watch_as_organiser(mine) as first,
        server.watch_as_organiser(mine) as second,
        server.watch_as_organiser(other) as third,
    ):
        for connection in (first, second, third):
            await document(connection)
        assert await server.watchers() == 3
        await set_counters(client, mine, revenue=1)
        for connection in (first, second):
            assert (await document(connection))["revenue"]["amount"] == 1
        with pytest.raises(TimeoutError):
            await document(third, 0.6)


async def test_a_client_that_leaves_is_noticed_whatever_way_it_went(
    api: Api, server: Server
) -> None:
    event_id = await api.sale()
    polite = await server.watch_as_organiser(event_id)
    rude = await server.watch_as_organiser(event_id)
    for connection in (polite, rude):
        await document(connection)
        # What a client says is of no interest and does no harm.
        await connection.send("x" * 10_000)
    assert await server.watchers() == 2
    await polite.close()
    rude.transport.abort()
    deadline = time.monotonic() + 5
    while await server.watchers():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


# --- The watcher's one place, and the poller -----------------------------------------------------


async def test_a_slow_client_gets_the_newest_and_never_a_backlog() -> None:
    watcher = Watcher()
    for version in range(1, 100):
        watcher.offer(version, str(version))
    assert await watcher.next() == "99"
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(watcher.next(), 0.05)


async def test_nothing_is_told_twice_and_counters_begun_afresh_are_news() -> None:
    watcher = Watcher()
    watcher.offer(7, "seven")
    assert await watcher.next() == "seven"
    watcher.offer(7, "seven again")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(watcher.next(), 0.05)
    watcher.offer(1, "rebuilt")
    assert await watcher.next() == "rebuilt"


async def test_a_change_taken_back_before_it_was_sent_is_no_news() -> None:
    watcher = Watcher()
    watcher.offer(7, "seven")
    assert await watcher.next() == "seven"
    watcher.offer(8, "eight")
    watcher.offer(7, "seven")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(watcher.next(), 0.05)


async def test_the_database_is_asked_only_while_somebody_watches(api: Api, client: Client) -> None:
    event_id = await api.sale()
    watching = Watching(client.database, Metrics())
    first, second = Watcher(), Watcher()
    watching.add(event_id, first)
    watching.add(event_id, second)
    assert json.loads(await asyncio.wait_for(first.next(), 2))["eventId"] == event_id
    polling = [task for task in asyncio.all_tasks() if "Watching._poll" in repr(task.get_coro())]
    assert len(polling) == 1
    watching.remove(event_id, first)
    watching.remove(event_id, second)
    await asyncio.wait_for(polling[0], 2)
    # Whoever comes later is served by a new poller.
    third = Watcher()
    watching.add(event_id, third)
    assert await asyncio.wait_for(third.next(), 2)
    await watching.close()


async def test_an_outage_of_the_database_interrupts_the_news_and_nothing_else(
    api: Api, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ticketing.api.watching.OUTAGE_PAUSE_SECONDS", 0.05)
    event_id = await api.sale()
    watching = Watching(client.database, Metrics())
    asked = 0
    tell = watching._tell_changes

    async def fail_at_first() -> None:
        nonlocal asked
        asked += 1
        if asked <= 3:
            raise AutoReconnect("the primary is gone")
        await tell()

    monkeypatch.setattr(watching, "_tell_changes", fail_at_first)
    watcher = Watcher()
    watching.add(event_id, watcher)
    assert await asyncio.wait_for(watcher.next(), 3)
    assert asked == 4
    await watching.close()


async def test_a_newcomer_misses_nothing_that_was_told_while_it_came(
    api: Api, client: Client
) -> None:
    event_id = await api.sale()
    watching = Watching(client.database, Metrics())
    first, newcomer = Watcher(), Watcher()
    watching.add(event_id, first)
    newcomer.offer(1, "what the newcomer read before")
    assert await newcomer.next()
    await asyncio.wait_for(first.next(), 2)
    await set_counters(client, event_id, revenue=1)
    await asyncio.wait_for(first.next(), 2)
    watching.add(event_id, newcomer)
    assert json.loads(await asyncio.wait_for(newcomer.next(), 2))["version"] == 2
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(first.next(), 0.5)
    await watching.close()


async def test_no_more_connections_are_taken_than_a_process_can_bear(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ticketing.api.watching.WATCHERS_MAX", 2)
    watching = Watching(client.database, Metrics())
    watchers = [Watcher(), Watcher()]
    for watcher in watchers:
        assert not watching.is_full
        watching.add("evt_x", watcher)
    assert watching.is_full
    watching.remove("evt_x", watchers[0])
    assert not watching.is_full
    await watching.close()


async def test_a_page_of_another_site_may_not_connect_and_ours_and_programs_may(
    api: Api, server: Server
) -> None:
    event_id = await api.sale()
    good = token(api.settings, "org_one", "organiser")
    feeds = [
        (f"/v1/events/{event_id}/dashboard/live", [Subprotocol("bearer"), Subprotocol(good)]),
        (f"/v1/events/{event_id}/seats/live", None),
    ]
    for path, protocols in feeds:
        for origin, may in (
            (None, True),
            (server.url, True),
            ("https://evil.example", False),
            (f"http://127.0.0.1.evil.example:{server.port}", False),
            (f"http://127.0.0.1:{server.port}.evil.example", False),
            (f"http://127.0.0.1:{server.port + 1}", False),
            ("null", False),
            ("", False),
        ):
            async with connect(
                f"ws://127.0.0.1:{server.port}{path}",
                subprotocols=protocols,
                additional_headers={} if origin is None else {"Origin": origin},
            ) as connection:
                if may:
                    assert await document(connection)
                else:
                    assert await close_code(connection) == 4403, origin


async def test_a_key_may_watch_its_organisers_sale_and_a_gates_key_may_not(
    api: Api, server: Server
) -> None:
    event_id = await api.sale()
    for body, may in (({"scope": "viewer"}, True), ({"scope": "gate", "eventId": event_id}, False)):
        made = await api.http.post(
            "/v1/api-keys", json={"name": "Screen"} | body, headers=api.as_organiser
        )
        async with server.watch(event_id, "bearer", made.json()["key"]) as connection:
            if may:
                assert (await document(connection))["eventId"] == event_id
            else:
                assert await close_code(connection) == 4403


async def test_a_message_that_is_too_large_ends_the_connection(api: Api, server: Server) -> None:
    event_id = await api.sale()
    async with server.watch_as_organiser(event_id) as connection:
        await document(connection)
        await connection.send("x" * 100_000)
        assert await close_code(connection) == 1009


async def test_who_loses_their_access_sees_no_more(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "ACCESS_ASKED_SECONDS", 0.05)
    event_id = await api.sale()
    await api.http.put("/v1/team/org_b", json={"role": "viewer"}, headers=api.as_organiser)
    offered = ["bearer", token(api.settings, "org_b", "organiser")]
    services = api.application.state["services"]
    asking = asyncio.create_task(live._until_access_is_lost(services, event_id, offered))
    await asyncio.sleep(0.3)
    assert not asking.done()
    await api.http.delete("/v1/team/org_b", headers=api.as_organiser)
    await asyncio.wait_for(asking, 10)


async def test_one_organiser_does_not_take_the_places_of_all(api: Api, server: Server) -> None:
    event_id = await api.sale()
    async with AsyncExitStack() as stack:
        for _ in range(live.WATCHED_BY_ONE_MAX):
            opened = await stack.enter_async_context(server.watch_as_organiser(event_id))
            await document(opened)
        async with server.watch_as_organiser(event_id) as one_more:
            assert await close_code(one_more) == 1013
        async with server.watch_as(event_id, "adm_one", "admin") as other:
            assert await document(other)
