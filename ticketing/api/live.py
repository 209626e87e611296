"""The live feeds over WebSocket, an organiser's dashboard and a fan's seat map."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from time import time
from typing import Annotated, Any
from urllib.parse import urlsplit

from litestar import WebSocket, websocket
from litestar.exceptions import WebSocketDisconnect
from litestar.params import QueryParameter
from pymongo.errors import PyMongoError

from ticketing import dashboards, events, teams
from ticketing.api import auth, client_address
from ticketing.api.parameters import EventId
from ticketing.api.problems import Unauthenticated
from ticketing.api.services import Services, services_of
from ticketing.api.watching import Watcher, encoded
from ticketing.errors import NotFound
from ticketing.rate_limits import RateLimited
from ticketing.tasks import end

# A little over a fifth of a second, so that no second ever holds more than five documents.
SEND_INTERVAL_SECONDS = 0.21
# A silent connection is cut by proxies and hides a dead client: after this long without a change
# the newest document is sent once more.
HEARTBEAT_SECONDS = 25.0
# A client that took no byte of a document for this long is gone or as good as gone.
SEND_SECONDS_MAX = 20.0
CLOSE_SECONDS_MAX = 2.0
WATCHED_SECONDS_MAX = 12 * 3_600.0
# Who was taken out of the team, or whose key was revoked, sees no more after this long.
ACCESS_ASKED_SECONDS = 30.0
# A control room has some screens. More would take the places of everybody else's.
WATCHED_BY_ONE_MAX = 100
SUBPROTOCOL = "bearer"

CLOSE_GOING_AWAY = 1001
CLOSE_TRY_AGAIN_LATER = 1013
CLOSE_UNAUTHENTICATED = 4401
CLOSE_FORBIDDEN = 4403
CLOSE_NOT_FOUND = 4404

SEAT_WATCHERS_MAX = 20_000
# An office or a mobile network has many fans behind one address; nobody has this many by accident.
CONNECTIONS_PER_ADDRESS_MAX = 2_000
BOARD_ASK_SECONDS = 10.0

SinceVersion = Annotated[
    int | None, QueryParameter(name="version", ge=0, description="Go on after this version.")
]


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
        with _counted(socket, services) as refusal:
            code, reason = refusal or await _serve(socket, services, event_id, offered)
        # A client that takes nothing does not take a close either: the server cuts it then.
        async with asyncio.timeout(CLOSE_SECONDS_MAX):
            await socket.close(code, reason)


@contextmanager
def _counted(
    socket: WebSocket[Any, Any, Any], services: Services
) -> Iterator[tuple[int, str] | None]:
    """Count the connection while it lasts; gives why it is refused, or None.

    A page of another site may open a WebSocket to us without being asked (browsers have no
    same-origin rule for them), so a browser's `Origin` must be ours. Programs send none.
    """
    if not _is_our_origin(socket, services):
        yield CLOSE_FORBIDDEN, "this origin may not connect"
        return
    address = client_address.limited_by(client_address.of(socket))
    if services.connections[address] >= CONNECTIONS_PER_ADDRESS_MAX and services.limits.is_on:
        yield CLOSE_TRY_AGAIN_LATER, "too many connections from your address"
        return
    try:
        services.limits.asked_from(socket, address)
    except RateLimited:
        yield CLOSE_TRY_AGAIN_LATER, "too many requests from your address"
        return
    services.connections[address] += 1
    try:
        yield None
    finally:
        services.connections[address] -= 1
        if not services.connections[address]:
            del services.connections[address]


def _is_our_origin(socket: WebSocket[Any, Any, Any], services: Services) -> bool:
    origin = socket.headers.get("origin")
    if origin is None:
        return True
    try:
        given, ours = urlsplit(origin), urlsplit(services.settings.public_url)
    except ValueError:
        return False
    if (given.scheme, given.netloc.lower()) == (ours.scheme, ours.netloc.lower()):
        return True
    # Under another of our names. That the page came by TLS as we do is for the browser to see.
    host = socket.headers.get("host", "").lower()
    return given.scheme in ("http", "https") and given.netloc.lower() == host != ""


async def _serve(
    socket: WebSocket[Any, Any, Any], services: Services, event_id: str, offered: list[str]
) -> tuple[int, str]:
    """Serve one connection to its end; returns the close code and the reason."""
    if services.watching.is_full:
        return CLOSE_TRY_AGAIN_LATER, "too many live dashboards"
    try:
        token = await auth.identify(_token(offered), services)
    except Unauthenticated:
        return CLOSE_UNAUTHENTICATED, "the token is missing or bad"
    except PyMongoError:
        return CLOSE_TRY_AGAIN_LATER, "the database can't answer just now"
    try:
        await events.owned(services.database, event_id, token.caller, "viewer")
        document = await dashboards.find(services.database, event_id)
    except (NotFound, teams.RoleTooLow):
        return CLOSE_FORBIDDEN, "no such event of yours"
    except PyMongoError:
        return CLOSE_TRY_AGAIN_LATER, "the database can't answer just now"
    whose = f"{token.caller.subject}:{token.caller.key_id or ''}"
    if services.watched_by[whose] >= WATCHED_BY_ONE_MAX:
        return CLOSE_TRY_AGAIN_LATER, "too many live dashboards of yours"
    watcher = Watcher()
    watcher.offer(document["version"], encoded(document))
    services.watching.add(event_id, watcher)
    services.watched_by[whose] += 1
    try:
        seconds_left = min(max(0.0, token.expires_at - time()), WATCHED_SECONDS_MAX)
        return await _until_it_ends(
            socket,
            services,
            _send(socket, watcher),
            seconds_left,
            _until_access_is_lost(services, event_id, offered),
        )
    finally:
        services.watching.remove(event_id, watcher)
        services.watched_by[whose] -= 1
        if not services.watched_by[whose]:
            del services.watched_by[whose]


async def _until_access_is_lost(services: Services, event_id: str, offered: list[str]) -> None:
    """Ask again and again whether the watcher may still watch; ends when they may not."""
    while True:
        await asyncio.sleep(ACCESS_ASKED_SECONDS)
        try:
            token = await auth.identify(_token(offered), services)
            await events.owned(services.database, event_id, token.caller, "viewer")
        except (Unauthenticated, NotFound, teams.RoleTooLow):
            return
        except PyMongoError:
            continue  # An outage takes nobody's access away.


def _token(offered: list[str]) -> str:
    """The token out of the subprotocol pair `bearer, <JWT>`; empty where there is none."""
    return offered[1] if len(offered) == 2 and offered[0] == SUBPROTOCOL else ""


async def _until_it_ends(
    socket: WebSocket[Any, Any, Any],
    services: Services,
    sending: Coroutine[Any, Any, None],
    seconds_left: float | None = None,
    losing_access: Coroutine[Any, Any, None] | None = None,
) -> tuple[int, str]:
    # The socket is read all the while though nothing is expected: that is how a disconnect shows.
    tasks = {
        asyncio.create_task(_read_until_gone(socket)): (CLOSE_GOING_AWAY, "gone"),
        asyncio.create_task(sending): (CLOSE_GOING_AWAY, "gone"),
        asyncio.create_task(services.watching.closing()): (CLOSE_GOING_AWAY, "the server stops"),
    }
    if losing_access is not None:
        lost = asyncio.create_task(losing_access)
        tasks[lost] = CLOSE_FORBIDDEN, "no such event of yours any more"
    try:
        done, _ = await asyncio.wait(
            tasks, timeout=seconds_left, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        await end(*tasks)
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


@websocket("/v1/events/{eventId:str}/seats/live")
async def watch_seats(
    socket: WebSocket[Any, Any, Any], event_id: EventId, version: SinceVersion = None
) -> None:
    """The state of all seats by section, then only what changed; from `version` on where it can.

    `{"version", "states": {SECTION: "aahs…"}}` and then `{"version", "changes": {SECTION:
    [[PLACE, "h"], …]}}`, a place counting from 0 within its section. Needs no token, as the seat
    map needs none. A client that was slow gets what changed since its last message, in one.
    """
    services = services_of(socket)
    await socket.accept()
    with suppress(WebSocketDisconnect, TimeoutError):
        with _counted(socket, services) as refusal:
            code, reason = refusal or await _serve_seats(socket, services, event_id, version)
        async with asyncio.timeout(CLOSE_SECONDS_MAX):
            await socket.close(code, reason)


async def _serve_seats(
    socket: WebSocket[Any, Any, Any], services: Services, event_id: str, version: int | None
) -> tuple[int, str]:
    if services.seat_watchers >= SEAT_WATCHERS_MAX:
        return CLOSE_TRY_AGAIN_LATER, "too many live seat maps"
    try:
        await events.visible(services.database, event_id, None)
        await services.boards.get(event_id)
    except NotFound:
        return CLOSE_NOT_FOUND, "no such event"
    except PyMongoError:
        return CLOSE_TRY_AGAIN_LATER, "the database can't answer just now"
    services.seat_watchers += 1
    try:
        return await _until_it_ends(
            socket, services, _send_seats(socket, services, event_id, version)
        )
    finally:
        services.seat_watchers -= 1


async def _send_seats(
    socket: WebSocket[Any, Any, Any], services: Services, event_id: str, version: int | None
) -> None:
    epoch: int | None = None
    changed = asyncio.Event()
    while True:
        # While the database is away the watcher keeps what it has, and is told more afterwards.
        with suppress(PyMongoError):
            board = await services.boards.get(event_id)
            changed = board.changed
            known = version if epoch in (None, board.epoch) else None
            epoch, text = board.epoch, services.seat_maps.news(board, known)
            if text is not None:
                await asyncio.wait_for(socket.send_text(text), SEND_SECONDS_MAX)
            version = board.version
        await asyncio.sleep(SEND_INTERVAL_SECONDS)
        # Asked again now and then, so that the board goes on being moved while somebody watches.
        with suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), BOARD_ASK_SECONDS)
