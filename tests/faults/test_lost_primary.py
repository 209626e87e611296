"""A primary of three is killed while fans buy: what they were told stays true, selling goes on."""

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta

import httpx
import msgspec
import pymongo
import pytest

import indexes
from scripts import token
from scripts.replica_set import ReplicaSet
from tests.conftest import ORGANISER, new_event
from ticketing import clock, event_setup, events, gateway, identifiers, invariants, mongo
from ticketing.mongo import Document
from ticketing.settings import Settings, webhook_key

FANS = 50
RECOVERY_SECONDS_MAX = 10.0
SELLING_SECONDS = 12.0


@pytest.fixture
def three_nodes() -> Iterator[ReplicaSet]:
    with (
        tempfile.TemporaryDirectory(prefix="ticketing-") as folder,
        ReplicaSet(folder, 3) as running,
    ):
        yield running


@dataclass
class History:
    """What the fans were told, and when."""

    confirmed: list[str] = field(default_factory=list)
    held_at: list[float] = field(default_factory=list)
    killed_at: float = 0.0
    unexpected: list[str] = field(default_factory=list)


def _start(command: list[str], environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-m", *command], env=environment)


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def test_no_confirmed_order_is_lost_and_selling_goes_on(three_nodes: ReplicaSet) -> None:
    settings = Settings.from_environment(
        {"TICKETING_MONGODB_URI": three_nodes.uri, "TICKETING_PORT": str(_free_port())}
    )
    with pymongo.MongoClient[Document](three_nodes.uri) as client:
        indexes.apply(client[settings.database])
    environment = os.environ | {
        "TICKETING_MONGODB_URI": three_nodes.uri,
        "TICKETING_PORT": str(settings.port),
    }
    commands = (["ticketing.api"], ["workers", "release"], ["workers", "changes"])
    processes = [_start(command, environment) for command in commands]
    opened = await mongo.connect(settings)
    try:
        event = await _event_on_sale(opened.database)
        history = await _sell_through_a_lost_primary(settings, event, three_nodes)
        assert history.unexpected == []
        assert len(history.confirmed) > FANS
        recovered = min(at for at in history.held_at if at > history.killed_at + 0.5)
        print(f"selling again {recovered - history.killed_at:.1f} s after the primary was killed")
        assert recovered - history.killed_at < RECOVERY_SECONDS_MAX
        stored = await opened.database.orders.find(
            {"_id": {"$in": history.confirmed}}, {"status": 1}
        ).to_list(None)
        assert {order["_id"] for order in stored} == set(history.confirmed)
        assert {order["status"] for order in stored} == {"confirmed"}
        assert await invariants.check_all(opened.database) == []
    finally:
        await opened.close()
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(20)


async def _event_on_sale(database: mongo.Database) -> Document:
    now = clock.now()
    event = await event_setup.create(
        database,
        new_event(
            starts_at=now + timedelta(days=9),
            sale_starts_at=now - timedelta(days=1),
            sale_ends_at=now + timedelta(days=8),
            sections=[events.Section("Floor", "Rear", capacity=20_000)],
            max_seats_per_fan=1_000,
        ),
        organiser_id=ORGANISER.subject,
        key=None,
        body=b"",
        now=now,
    )
    return await events.publish(database, event["_id"], ORGANISER, now)


async def _sell_through_a_lost_primary(
    settings: Settings, event: Document, replica_set: ReplicaSet
) -> History:
    history = History()
    async with httpx.AsyncClient(base_url=settings.public_url, timeout=15) as http:
        await _until_ready(http)
        stop_at = time.monotonic() + SELLING_SECONDS
        fans = [
            asyncio.create_task(_fan(http, settings, event["_id"], f"fan_{n}", stop_at, history))
            for n in range(FANS)
        ]
        await asyncio.sleep(2)
        primary = replica_set.primary()
        assert primary is not None
        history.killed_at = time.monotonic()
        await asyncio.to_thread(replica_set.kill, primary)
        await asyncio.gather(*fans)
        answer = await http.get("/health/ready")
        assert answer.status_code == 200, answer.text
    return history


async def _until_ready(http: httpx.AsyncClient) -> None:
    for _ in range(150):
        try:
            if (await http.get("/health/ready")).status_code == 200:
                return
        except httpx.TransportError:
            pass
        await asyncio.sleep(0.1)
    raise AssertionError("the API was not ready within 15 s")


async def _fan(
    http: httpx.AsyncClient,
    settings: Settings,
    event_id: str,
    fan_id: str,
    stop_at: float,
    history: History,
) -> None:
    """Buys one ticket after the other, repeating each step with its key until it is answered."""
    http_headers = {"Authorization": f"Bearer {token.make(settings, role='fan', subject=fan_id)}"}
    while time.monotonic() < stop_at:
        key = {"Idempotency-Key": identifiers.fresh("key")} | http_headers
        hold = await _insist(
            lambda key=key: http.post(
                f"/v1/events/{event_id}/holds",
                json={"section": "Floor", "quantity": 1},
                headers=key,
            ),
            history,
        )
        if hold is None:
            continue
        history.held_at.append(time.monotonic())
        order = await _insist(
            lambda key=key, hold=hold: http.post(
                "/v1/orders", json={"holdId": hold["holdId"]}, headers=key
            ),
            history,
        )
        if order is None:
            continue
        body = msgspec.json.encode(
            {
                "type": "payment.succeeded",
                "timestamp": clock.rfc3339(clock.now()),
                "data": {
                    "paymentId": order["paymentId"],
                    "orderId": order["orderId"],
                    "amount": order["total"]["amount"],
                    "currency": order["total"]["currency"],
                },
            }
        )
        notice_id = identifiers.fresh("msg")
        received = await _insist(
            lambda body=body, notice_id=notice_id: http.post(
                "/v1/payments/webhooks/sandbox",
                content=body,
                headers=gateway.signed(webhook_key(settings), notice_id, body, clock.now()),
            ),
            history,
        )
        if received is not None:
            history.confirmed.append(order["orderId"])


async def _insist(send, history: History) -> Document | None:
    """The answer, however often it takes while the service says to try again."""
    for _ in range(40):
        answer = await send()
        if answer.status_code < 300:
            document: Document = answer.json()
            return document
        if answer.status_code != 503:
            history.unexpected.append(f"{answer.status_code} {answer.text}")
            return None
        assert answer.headers["Retry-After"].isdigit()
        await asyncio.sleep(0.3)
    history.unexpected.append("no answer in 40 attempts")
    return None
