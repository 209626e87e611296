"""The live dashboard over WebSocket: who may watch, and how one connection is served."""

import asyncio
from contextlib import suppress
from time import time
from typing import Any

from litestar import WebSocket, websocket
from litestar.exceptions import WebSocketDisconnect
from pymongo.errors import PyMongoError

from ticketing import dashboards, events
from ticketing.api import auth
from ticketing.api.parameters import EventId
from ticketing.api.problems import Unauthenticated
from ticketing.api.services import Services, services_of
from ticketing.api.watching import Watcher, Watching, encoded
from ticketing.errors import NotFound

# A little over a fifth of a second, so that no second ever holds more than five documents.
SEND_INTERVAL_SECONDS = 0.21
# A silent connection is cut by proxies and hides a dead client: after this long without a change
# the newest document is sent once more.
HEARTBEAT_SECONDS = 25.0
# A client that took no byte of a document for this long is gone or as good as gone.
SEND_SECONDS_MAX = 20.0
CLOSE_SECONDS_MAX = 2.0
SUBPROTOCOL = "bearer"

CLOSE_GOING_AWAY = 1001
CLOSE_TRY_AGAIN_LATER = 1013
CLOSE_UNAUTHENTICATED = 4401
CLOSE_FORBIDDEN = 4403


@websocket("/v1/events/{eventId:str}/dashboard/live")
async def watch_dashboard(socket: WebSocket[Any, Any, Any], event_id: EventId) -> None:
    """The whole document at once, then a whole document at each change.

    A refused connection is accepted and closed with a code: a browser can't read the status of a
    refused handshake.
    """
    services = services_of(socket)
    offered = socket.scope["subprotocols"]
    await socket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
    with suppress(WebSocketDisconnect, TimeoutError):
        code, reason = await _serve(socket, services, event_id, offered)
        # A client that takes nothing does not take a close either: the server cuts it then.
        async with asyncio.timeout(CLOSE_SECONDS_MAX):
            await socket.close(code, reason)


async def _serve(
    socket: WebSocket[Any, Any, Any], services: Services, event_id: str, offered: list[str]
) -> tuple[int, str]:
    """Serve one connection to its end; returns the close code and the reason."""
    if services.watching.is_full:
        return CLOSE_TRY_AGAIN_LATER, "too many live dashboards"
    try:
        token = auth.verify(_token(offered), services.settings)
    except Unauthenticated:
        return CLOSE_UNAUTHENTICATED, "the token is missing or bad"
    try:
        await events.owned(services.database, event_id, token.caller)
        document = await dashboards.find(services.database, event_id)
    except NotFound:
        return CLOSE_FORBIDDEN, "no such event of yours"
    except PyMongoError:
        return CLOSE_TRY_AGAIN_LATER, "the database can't answer just now"
    watcher = Watcher()
    watcher.offer(document["version"], encoded(document))
    services.watching.add(event_id, watcher)
    try:
        return await _until_it_ends(socket, services.watching, watcher, token.expires_at - time())
    finally:
        services.watching.remove(event_id, watcher)


def _token(offered: list[str]) -> str:
    """The token out of the subprotocol pair `bearer, <JWT>`; empty where there is none."""
    return offered[1] if len(offered) == 2 and offered[0] == SUBPROTOCOL else ""


async def _until_it_ends(
    socket: WebSocket[Any, Any, Any], watching: Watching, watcher: Watcher, seconds_left: float
) -> tuple[int, str]:
    # The socket is read all the while though nothing is expected: that is how a disconnect shows.
    tasks = {
        asyncio.create_task(_read_until_gone(socket)): (CLOSE_GOING_AWAY, "gone"),
        asyncio.create_task(_send(socket, watcher)): (CLOSE_GOING_AWAY, "gone"),
        asyncio.create_task(watching.closing()): (CLOSE_GOING_AWAY, "the server stops"),
    }
    try:
        done, _ = await asyncio.wait(
            tasks, timeout=max(0.0, seconds_left), return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if not done:
        return CLOSE_UNAUTHENTICATED, "the token has expired"
    return next(tasks[task] for task in done)


async def _read_until_gone(socket: WebSocket[Any, Any, Any]) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass


async def _send(socket: WebSocket[Any, Any, Any], watcher: Watcher) -> None:
    text = await watcher.next()
    while True:
        await asyncio.wait_for(socket.send_text(text), SEND_SECONDS_MAX)
        await asyncio.sleep(SEND_INTERVAL_SECONDS)
        with suppress(TimeoutError):
            text = await asyncio.wait_for(watcher.next(), HEARTBEAT_SECONDS)
