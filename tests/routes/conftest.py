"""The whole application against the real replica set, asked over ASGI in the test's own loop."""

import asyncio
import copy
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import jwt
import pytest
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from ticketing import dashboards
from ticketing.api.application import Application, create_application
from ticketing.clock import rfc3339
from ticketing.mongo import Client
from ticketing.settings import Settings

Json = dict[str, Any]
START_SECONDS_MAX = 30


def token(settings: Settings, subject: str, role: str, /, **claims: Any) -> str:
    content = {
        "sub": subject,
        "role": role,
        "exp": int(time.time()) + 3600,
        "iss": settings.jwt_issuer,
        "aud": settings.jwt_audience,
    } | claims
    present = {name: value for name, value in content.items() if value is not None}
    return jwt.encode(present, settings.jwt_secret, "HS256")


@dataclass
class Api:
    """The application and an HTTP client for it; `as_…` are the headers of its callers."""

    application: Application
    http: httpx.AsyncClient
    settings: Settings

    def as_role(self, subject: str, role: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {token(self.settings, subject, role)}"}

    @property
    def as_fan(self) -> dict[str, str]:
        return self.as_role("fan_one", "fan")

    @property
    def as_other_fan(self) -> dict[str, str]:
        return self.as_role("fan_two", "fan")

    @property
    def as_organiser(self) -> dict[str, str]:
        return self.as_role("org_one", "organiser")

    @property
    def as_other_organiser(self) -> dict[str, str]:
        return self.as_role("org_two", "organiser")

    @property
    def as_admin(self) -> dict[str, str]:
        return self.as_role("adm_one", "admin")

    async def event(self, **changes: Any) -> Json:
        """A draft with numbered section A (2 rows of 5) and a floor for 10."""
        made = await self.http.post(
            "/v1/events", json=event_body(**changes), headers=self.as_organiser
        )
        assert made.status_code == 201, made.text
        return dict(made.json())

    async def sale(self, **changes: Any) -> str:
        """The id of such an event once it is published."""
        event_id = str((await self.event(**changes))["eventId"])
        published = await self.http.post(
            f"/v1/events/{event_id}/publish", headers=self.as_organiser
        )
        assert published.status_code == 200, published.text
        return event_id

    async def hold(self, event_id: str, *ordinals: int) -> Json:
        held = await self.http.post(
            f"/v1/events/{event_id}/holds",
            json={"seatIds": [seat_id(event_id, ordinal) for ordinal in ordinals]},
            headers=self.as_fan,
        )
        assert held.status_code == 201, held.text
        return dict(held.json())

    async def order(self, event_id: str, *ordinals: int) -> Json:
        hold_id = (await self.hold(event_id, *ordinals))["holdId"]
        ordered = await self.http.post("/v1/orders", json={"holdId": hold_id}, headers=self.as_fan)
        assert ordered.status_code == 201, ordered.text
        return dict(ordered.json())

    async def confirmed_order(self, event_id: str, *ordinals: int) -> Json:
        order = await self.order(event_id, *ordinals)
        paid = await self.http.post(f"/v1/sandbox/payments/{order['paymentId']}/pay")
        assert paid.status_code == 200, paid.text
        assert paid.json()["orderStatus"] == "confirmed"
        return order


@pytest.fixture
async def api(settings: Settings, client: Client) -> AsyncIterator[Api]:
    """The application; its sandbox provider delivers to this very application."""
    # The provider's client must exist before the application it delivers to.
    applications: list[Application] = []

    async def deliver(scope: Any, receive: Any, send: Any) -> None:
        await applications[0](scope, receive, send)

    delivering = httpx.AsyncClient(transport=httpx.ASGITransport(app=deliver))
    application = create_application(settings, client, delivering)
    applications.append(application)
    transport = httpx.ASGITransport(app=application, raise_app_exceptions=False)
    async with (
        running(application),
        httpx.AsyncClient(transport=transport, base_url="http://testserver") as http,
    ):
        yield Api(application, http, settings)


@asynccontextmanager
async def running(application: Application) -> AsyncIterator[None]:
    """The application between its start and its end.

    In a task of its own: a fixture begins and ends in two tasks, the lifespan must not.
    """
    started, ending = asyncio.Event(), asyncio.Event()

    async def live() -> None:
        async with application.lifespan():
            started.set()
            await ending.wait()

    task = asyncio.create_task(live())
    await asyncio.wait(
        [task, waiting := asyncio.create_task(started.wait())], return_when="FIRST_COMPLETED"
    )
    waiting.cancel()
    try:
        yield
    finally:
        ending.set()
        await task


@dataclass
class Server:
    """The API as a process of its own, by the command a person uses."""

    settings: Settings
    port: int
    process: asyncio.subprocess.Process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def watch(self, event_id: str, *protocols: str) -> connect:
        return connect(
            f"ws://127.0.0.1:{self.port}/v1/events/{event_id}/dashboard/live",
            subprotocols=[Subprotocol(protocol) for protocol in protocols] or None,
        )

    def watch_as(self, event_id: str, subject: str, role: str, **claims: Any) -> connect:
        return self.watch(event_id, "bearer", token(self.settings, subject, role, **claims))

    def watch_as_organiser(self, event_id: str) -> connect:
        return self.watch_as(event_id, "org_one", "organiser")

    async def watchers(self) -> int:
        async with httpx.AsyncClient() as http:
            text = (await http.get(f"http://127.0.0.1:{self.port}/metrics")).text
        [line] = [
            line for line in text.splitlines() if line.startswith("ticketing_dashboard_clients")
        ]
        return int(float(line.split()[1]))


@pytest.fixture
async def server(settings: Settings) -> AsyncIterator[Server]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "ticketing.api",
        env=os.environ
        | {
            "TICKETING_MONGODB_URI": settings.mongodb_uri,
            "TICKETING_DATABASE": settings.database,
            "TICKETING_PORT": str(port),
        },
        stdout=asyncio.subprocess.DEVNULL,
    )
    deadline = time.monotonic() + START_SECONDS_MAX
    async with httpx.AsyncClient() as http:
        while True:
            with suppress(httpx.TransportError):
                if (await http.get(f"http://127.0.0.1:{port}/health/live")).is_success:
                    break
            assert time.monotonic() < deadline
            assert process.returncode is None
            await asyncio.sleep(0.05)
    yield Server(settings, port, process)
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 15) == 0


def event_body(**changes: Any) -> Json:
    now = datetime.now(UTC)
    body = {
        "name": "The Last Waltz",
        "description": "One night only.",
        "category": "concert",
        "venueName": "Winterland",
        "timezone": "Europe/Berlin",
        "startsAt": rfc3339(now + timedelta(days=30)),
        "saleStartsAt": rfc3339(now - timedelta(days=1)),
        "saleEndsAt": rfc3339(now + timedelta(days=29)),
        "currency": "EUR",
        "maxSeatsPerFan": 8,
        "priceCategories": [{"name": "Front", "price": 9500}, {"name": "Rear", "price": 4500}],
        "sections": [
            {
                "name": "A",
                "priceCategory": "Front",
                "rows": [
                    {"name": "1", "count": 5},
                    {"name": "2", "seats": ["1", "2", "3", "4", "5"]},
                ],
            },
            {"name": "Floor", "priceCategory": "Rear", "capacity": 10},
        ],
    }
    return copy.deepcopy(body | changes)


def seat_id(event_id: str, ordinal: int) -> str:
    return f"{event_id}:{ordinal:05d}"


def assert_problem(answer: httpx.Response, status: int, slug: str | None) -> Json:
    """The answer is this problem, whole and with nothing but what belongs into one."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"] == ("about:blank" if slug is None else f"urn:ticketing:problem:{slug}")
    assert problem["status"] == status
    assert problem["title"]
    assert problem["detail"]
    assert problem["instance"] == answer.request.url.raw_path.decode().partition("?")[0]
    assert "Traceback" not in answer.text
    assert "mongo" not in answer.text.lower()
    return dict(problem)


def assert_invalid(answer: httpx.Response, *paths: str) -> None:
    problem = assert_problem(answer, 422, "validation")
    assert [error["path"] for error in problem["errors"]] == list(paths)
    assert all(error["message"] for error in problem["errors"])


async def set_counters(client: Client, event_id: str, **changes: Any) -> Json:
    """Move the counters by hand, as the changes worker would."""
    await client.database.dashboards.update_one(
        {"_id": event_id}, {"$set": changes, "$inc": {"version": 1}}
    )
    return await dashboards.find(client.database, event_id)
