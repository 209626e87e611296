"""The live seat map over a real WebSocket on the real server, with a changes worker."""

import asyncio
import json
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.routes.conftest import Api, Server
from tests.workers.test_changes import started, worker
from ticketing.mongo import Client

Map = dict[str, list[str]]


def watch(server: Server, event_id: str, since: str = "") -> connect:
    return connect(f"ws://127.0.0.1:{server.port}/v1/events/{event_id}/seats/live{since}")


async def message(connection: ClientConnection) -> dict[str, Any]:
    return dict(json.loads(await asyncio.wait_for(connection.recv(), 10)))


class Shown:
    """A seat map as a client keeps it."""

    def __init__(self) -> None:
        self.version = 0
        self.states: Map = {}

    def take(self, news: dict[str, Any]) -> None:
        assert news["version"] >= self.version
        self.version = news["version"]
        for name, states in news.get("states", {}).items():
            self.states[name] = list(states)
        for name, moved in news.get("changes", {}).items():
            for place, letter in moved:
                self.states[name][place] = letter

    async def until(self, connection: ClientConnection, expected: dict[str, str]) -> None:
        """Take messages until the map is as expected."""
        while {name: "".join(states) for name, states in self.states.items()} != expected:
            self.take(await message(connection))


async def test_everything_comes_first_then_only_what_changed(
    api: Api, client: Client, server: Server
) -> None:
    event_id = await api.sale()
    async with worker(api.settings):
        await started(client.database)
        async with watch(server, event_id) as connection:
            shown = Shown()
            first = await message(connection)
            assert first["states"] == {"A": "a" * 10, "Floor": "a" * 10}
            shown.take(first)
            await api.hold(event_id, 1, 2)
            news = await message(connection)
            assert news["changes"] == {"A": [[1, "h"], [2, "h"]]}
            assert "states" not in news
            shown.take(news)
            await api.confirmed_order(event_id, 10)
            await shown.until(connection, {"A": "ahhaaaaaaa", "Floor": "saaaaaaaaa"})


async def test_a_watcher_that_comes_back_is_told_what_it_missed(
    api: Api, client: Client, server: Server
) -> None:
    event_id = await api.sale()
    async with worker(api.settings):
        await started(client.database)
        async with watch(server, event_id) as connection:
            shown = Shown()
            shown.take(await message(connection))
            await api.hold(event_id, 0)
            await shown.until(connection, {"A": "h" + "a" * 9, "Floor": "a" * 10})
        await api.hold(event_id, 3)
        async with watch(server, event_id, f"?version={shown.version}") as connection:
            news = await message(connection)
            assert "states" not in news
            shown.take(news)
            await shown.until(connection, {"A": "haah" + "a" * 6, "Floor": "a" * 10})
        async with watch(server, event_id, "?version=999999") as connection:
            assert "states" in await message(connection)


async def test_events_that_are_not_public_have_no_feed(api: Api, server: Server) -> None:
    draft = (await api.event())["eventId"]
    for event_id in (draft, "evt_none"):
        async with watch(server, event_id) as connection:
            with pytest.raises(ConnectionClosed) as closed:
                await asyncio.wait_for(connection.recv(), 5)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 4404
