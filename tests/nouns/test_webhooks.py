"""Organisers are told by signed webhooks, and nobody can make us ask what only we can reach."""

import asyncio
import base64
import hashlib
import hmac
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import httpx
import pytest

from tests.conftest import NOW, ORGANISER, Sale, put_on_sale
from ticketing import outbox, webhooks
from ticketing.clock import rfc3339
from ticketing.errors import IdempotencyKeyReused, Invalid, NotFound
from ticketing.mongo import Database, Document
from ticketing.settings import Settings
from ticketing.webhooks import Sender, WebhookLimit


@dataclass
class Receiver:
    """A real HTTP server that keeps what it gets and answers as it is told."""

    port: int = 0
    got: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    answer: Callable[[], str] = field(default=lambda: "204 No Content")
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {
            name.lower(): text for name, _, text in (line.partition(": ") for line in head[1:-2])
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.got.append((head[0], headers, body))
        writer.write(f"HTTP/1.1 {self.answer()}\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?for=us"


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        for writer in receiver.writers:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as running:
        yield running


@pytest.fixture
def near(settings: Settings) -> Settings:
    """Settings that allow this machine's own addresses."""
    return replace(settings, webhooks_to_private_addresses="on")


@pytest.fixture
async def sender(database: Database, near: Settings) -> AsyncIterator[Sender]:
    made = Sender(database, near)
    yield made
    await made.close()


async def registered(database: Database, settings: Settings, url: str, **changes: Any) -> Document:
    values: dict[str, Any] = {
        "organiser_id": ORGANISER.subject,
        "url": url,
        "kinds": None,
        "key": None,
        "body": b"",
        "now": NOW,
    }
    return await webhooks.register(database, settings, **(values | changes))


async def tell(
    database: Database, sale: Sale, order_id: str = "ord_1", kind: str = "order.expired"
) -> str:
    about = None if kind.startswith("event.") else order_id
    body = {"seatCount": 40} if kind == "event.soldOut" else {}
    message = outbox.message(kind, sale.event_id, about, body, NOW)
    await database.outbox.insert_one(message)
    return str(message["_id"])


async def sent(database: Database, sender: Sender, now=NOW) -> int:
    """One round: what is new is spread, what is due is tried; returns how many were."""
    await outbox.spread(database, [sender], now)
    taken = await outbox.take(database, "webhook", now, 16)
    await asyncio.gather(*(outbox.deliver(database, sender, one, now) for one in taken))
    return len(taken)


async def log_of(database: Database, webhook: Document) -> list[Document]:
    page = await webhooks.deliveries(database, webhook["_id"], ORGANISER.subject, limit=20)
    return page.items


async def the(database: Database, webhook: Document) -> Document:
    return await webhooks.find(database, webhook["_id"], ORGANISER.subject)


async def test_a_message_arrives_as_a_cloud_event_with_a_good_signature(
    database: Database, near: Settings, sender: Sender, receiver: Receiver
) -> None:
    sale = await put_on_sale(database)
    webhook = await registered(database, near, receiver.url)
    message_id = await tell(database, sale)
    await sent(database, sender)
    ((request, headers, body),) = receiver.got
    assert request == "POST /hook?for=us HTTP/1.1"
    assert headers["host"] == f"127.0.0.1:{receiver.port}"
    assert headers["content-type"] == "application/cloudevents+json"
    assert headers["webhook-id"] == message_id
    key = base64.b64decode(webhook["secret"].removeprefix("whsec_"))
    text = f"{message_id}.{headers['webhook-timestamp']}.".encode() + body
    good = base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{good}"
    assert json.loads(body) == {
        "specversion": "1.0",
        "id": message_id,
        "source": f"{near.public_url}/v1/events/{sale.event_id}",
        "type": "ticketing.order.expired",
        "subject": "ord_1",
        "time": rfc3339(NOW),
        "timestamp": rfc3339(NOW),
        "datacontenttype": "application/json",
        "dataschema": "urn:ticketing:message:order.expired:1",
        "data": {"eventId": sale.event_id, "orderId": "ord_1"},
    }


async def test_what_is_about_the_event_has_the_event_as_its_subject(
    database: Database, near: Settings, sender: Sender, receiver: Receiver
) -> None:
    sale = await put_on_sale(database)
    await registered(database, near, receiver.url)
    await tell(database, sale, kind="event.soldOut")
    await sent(database, sender)
    event = json.loads(receiver.got[0][2])
    assert event["subject"] == sale.event_id
    assert event["data"] == {"eventId": sale.event_id, "seatCount": 40}


async def test_only_the_events_organiser_is_told_and_only_what_they_asked_for(
    database: Database, near: Settings, sender: Sender, receiver: Receiver
) -> None:
    sale = await put_on_sale(database)
    await registered(database, near, receiver.url, organiser_id="org_two")
    await registered(database, near, receiver.url, kinds=["order.confirmed"])
    wanted = await registered(database, near, receiver.url, kinds=["order.expired"])
    message_id = await tell(database, sale)
    await sent(database, sender)
    assert len(receiver.got) == 1
    (delivery,) = await database.deliveries.find({}).to_list(10)
    assert delivery["_id"] == f"{message_id}:{wanted['_id']}"


async def test_a_webhook_that_was_disabled_or_removed_gets_nothing(
    database: Database, near: Settings, sender: Sender, receiver: Receiver
) -> None:
    sale = await put_on_sale(database)
    webhook = await registered(database, near, receiver.url)
    await tell(database, sale)
    await outbox.spread(database, [sender], NOW)
    await webhooks.remove(database, webhook["_id"], ORGANISER.subject)
    await tell(database, sale)
    await sent(database, sender)
    assert receiver.got == []
    (delivery,) = await database.deliveries.find({}).to_list(10)
    assert (delivery["status"], delivery["tried"][0]["detail"]) == (
        "dead",
        "the webhook was removed",
    )


async def test_what_failed_is_tried_again_with_its_id_and_a_signature_of_its_own_time(
    database: Database, near: Settings, sender: Sender, receiver: Receiver
) -> None:
    sale = await put_on_sale(database)
    webhook = await registered(database, near, receiver.url)
    await tell(database, sale)
    receiver.answer = lambda: "500 Internal Server Error"
    await sent(database, sender)
    receiver.answer = lambda: "200 OK"
    assert await sent(database, sender, NOW + timedelta(seconds=1)) == 0
    assert await sent(database, sender, NOW + timedelta(minutes=1)) == 1
    (_, first, body), (_, again, same) = receiver.got
    assert first["webhook-id"] == again["webhook-id"]
    assert first["webhook-timestamp"] != again["webhook-timestamp"]
    assert body == same
    (delivery,) = await log_of(database, webhook)
    assert [tried["detail"] for tried in delivery["tried"]] == ["answered 500", "answered 200"]
    assert (await the(database, webhook))["failures"] == 0


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed(
    status: int, database: Database, near: Settings, sender: Sender, receiver: Receiver
) -> None:
    sale = await put_on_sale(database)
    webhook = await registered(database, near, receiver.url)
    await tell(database, sale)
    async with receiving() as inside:
        receiver.answer = lambda: f"{status} Elsewhere\r\nLocation: {inside.url}"
        await sent(database, sender)
        assert inside.got == []
    (delivery,) = await log_of(database, webhook)
    assert delivery["tried"][0]["detail"] == f"answered {status}: redirects are not followed"


async def test_a_pause_that_is_asked_for_is_kept(
    database: Database, near: Settings, sender: Sender, receiver: Receiver
) -> None:
    sale = await put_on_sale(database)
    webhook = await registered(database, near, receiver.url)
    await tell(database, sale)
    receiver.answer = lambda: "429 Too Many Requests\r\nRetry-After: 600"
    await sent(database, sender)
    (delivery,) = await log_of(database, webhook)
    assert delivery["dueAt"] >= NOW + timedelta(minutes=10)


async def test_a_receiver_that_is_not_there_is_a_failure_that_is_retried(
    database: Database, near: Settings, sender: Sender
) -> None:
    sale = await put_on_sale(database)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    webhook = await registered(database, near, f"http://127.0.0.1:{port}/")
    await tell(database, sale)
    await sent(database, sender)
    (delivery,) = await log_of(database, webhook)
    assert delivery["status"] == "waiting"
    assert delivery["tried"][0]["detail"] == "no answer: ConnectError"


async def test_a_failing_webhook_is_paused_as_a_whole(
    database: Database, near: Settings, sender: Sender, receiver: Receiver
) -> None:
    sale = await put_on_sale(database)
    await registered(database, near, receiver.url)
    await tell(database, sale)
    receiver.answer = lambda: "503 Service Unavailable"
    await sent(database, sender)
    for number in range(10):
        await tell(database, sale, f"ord_{number}")
    await sent(database, sender, NOW + timedelta(seconds=1))
    assert len(receiver.got) == 1
    assert await database.deliveries.count_documents({"attempts": {"$gt": 0}}) == 1
    receiver.answer = lambda: "200 OK"
    for step in range(20):
        await sent(database, sender, NOW + timedelta(minutes=1, seconds=step))
    assert await database.deliveries.count_documents({"status": "done"}) == 11


async def test_a_webhook_to_which_nothing_gets_through_for_a_day_is_disabled_until_enabled(
    database: Database, near: Settings, sender: Sender, receiver: Receiver
) -> None:
    sale = await put_on_sale(database)
    webhook = await registered(database, near, receiver.url)
    message_id = await tell(database, sale)
    receiver.answer = lambda: "500 Internal Server Error"
    now = NOW
    while (await the(database, webhook))["status"] == "enabled":
        assert now < NOW + timedelta(days=2)
        await sent(database, sender, now)
        now += timedelta(minutes=10)
    assert now - NOW > timedelta(hours=24)
    tries = len(receiver.got)
    assert tries >= webhooks.FAILURES_MAX
    assert (await the(database, webhook))["disabledBecause"] == "nothing got through for a day"
    await tell(database, sale)
    await sent(database, sender, now + timedelta(hours=3))
    assert len(receiver.got) == tries
    receiver.answer = lambda: "200 OK"
    await webhooks.enable(database, webhook["_id"], ORGANISER.subject)
    later = now + timedelta(hours=4)
    await webhooks.replay(database, webhook["_id"], message_id, ORGANISER.subject, later)
    await sent(database, sender, later)
    assert len(receiver.got) == tries + 1
    assert receiver.got[-1][1]["webhook-id"] == message_id


async def test_a_webhook_that_says_it_is_gone_is_disabled_at_once(
    database: Database, near: Settings, sender: Sender, receiver: Receiver
) -> None:
    sale = await put_on_sale(database)
    webhook = await registered(database, near, receiver.url)
    await tell(database, sale)
    receiver.answer = lambda: "410 Gone"
    await sent(database, sender)
    disabled = await the(database, webhook)
    assert (disabled["status"], disabled["disabledBecause"]) == (
        "disabled",
        "it answered that it is gone",
    )
    (delivery,) = await log_of(database, webhook)
    assert delivery["status"] == "dead"


async def test_failures_at_once_count_as_one(
    database: Database, near: Settings, sender: Sender, receiver: Receiver
) -> None:
    sale = await put_on_sale(database)
    webhook = await registered(database, near, receiver.url)
    for number in range(8):
        await tell(database, sale, f"ord_{number}")
    receiver.answer = lambda: "500 Internal Server Error"
    await sent(database, sender)
    assert (await the(database, webhook))["failures"] == 1


# --- Addresses inside --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "https://localhost/",
        "https://127.0.0.1/",
        "https://127.1/",
        "https://[::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://10.0.0.1/",
        "https://169.254.169.254/latest/meta-data/",
        "https://2130706433/",
        "http://93.184.216.34/",
        "ftp://93.184.216.34/",
        "https://user:password@93.184.216.34/",  # pragma: allowlist secret
        "https://93.184.216.34/#part",
        "https:///nothing",
        "https://exa mple.org/",
        "mailto:ada@example.org",
        "/here",
        "",
        "https://example.org:99999/",
        "https://93.184.216.34/" + "a" * 2_000,
    ],
)
async def test_an_address_that_is_inside_or_none_is_not_registered(
    url: str, database: Database, settings: Settings
) -> None:
    with pytest.raises(Invalid) as refused:
        await registered(database, settings, url)
    assert [path for path, _ in refused.value.errors] == ["url"]
    assert await database.webhooks.count_documents({}) == 0


async def test_a_name_that_points_inside_after_it_was_registered_is_not_asked(
    database: Database,
    settings: Settings,
    near: Settings,
    receiver: Receiver,
) -> None:
    sale = await put_on_sale(database)
    webhook = await registered(database, near, receiver.url)
    await tell(database, sale)
    sender = Sender(database, settings)
    try:
        await sent(database, sender)
    finally:
        await sender.close()
    assert receiver.got == []
    (delivery,) = await log_of(database, webhook)
    assert delivery["tried"][0]["detail"] == "127.0.0.1 is not at a public address"


async def test_a_request_goes_to_the_address_that_was_looked_at_and_to_no_other(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["93.184.216.34", "127.0.0.1"])

    def look_up(*_: object, **__: object) -> list[tuple[Any, ...]]:
        return [(2, 1, 6, "", (next(answers), 443))]

    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(204)

    sale = await put_on_sale(database)
    await database.webhooks.insert_one(
        {
            "_id": "whk_1",
            "organiserId": ORGANISER.subject,
            "url": "https://hooks.example.org/here",
            "kinds": ["order.expired"],
            "secret": "whsec_" + base64.b64encode(b"k" * 32).decode(),
            "status": "enabled",
            "failures": 0,
            "createdAt": NOW,
        }
    )
    await tell(database, sale)
    http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    sender = Sender(database, settings, http)
    await outbox.spread(database, [sender], NOW)
    (taken,) = await outbox.take(database, "webhook", NOW, 1)
    with monkeypatch.context() as rebinding:
        rebinding.setattr("socket.getaddrinfo", look_up)
        message = await database.outbox.find_one({})
        assert message is not None
        webhook = await database.webhooks.find_one({"_id": taken["target"]})
        assert webhook is not None
        await sender._post(webhook, message, NOW)
    await sender.close()
    (request,) = asked
    assert request.url.host == "93.184.216.34"
    assert request.headers["host"] == "hooks.example.org"
    assert request.extensions["sni_hostname"] == "hooks.example.org"


# --- Looking after -----------------------------------------------------------------------------


async def test_the_same_key_registers_one_webhook(database: Database, near: Settings) -> None:
    url = "http://127.0.0.1:1/"
    made = await asyncio.gather(
        *(registered(database, near, url, key="k", body=b"1") for _ in range(8))
    )
    assert len({webhook["secret"] for webhook in made}) == 1
    with pytest.raises(IdempotencyKeyReused):
        await registered(database, near, url, key="k", body=b"2")
    await registered(database, near, url, key="k", body=b"2", organiser_id="org_two")
    assert await database.webhooks.count_documents({}) == 2


async def test_an_organiser_has_so_many_webhooks_and_no_more(
    database: Database, near: Settings
) -> None:
    for _ in range(webhooks.WEBHOOKS_PER_ORGANISER_MAX):
        await registered(database, near, "http://127.0.0.1:1/")
    with pytest.raises(WebhookLimit):
        await registered(database, near, "http://127.0.0.1:1/")
    await registered(database, near, "http://127.0.0.1:1/", organiser_id="org_two")


async def test_another_organisers_webhook_is_not_there(database: Database, near: Settings) -> None:
    webhook = await registered(database, near, "http://127.0.0.1:1/")
    for asking in (
        webhooks.find(database, webhook["_id"], "org_two"),
        webhooks.remove(database, webhook["_id"], "org_two"),
        webhooks.enable(database, webhook["_id"], "org_two"),
        webhooks.deliveries(database, webhook["_id"], "org_two", limit=1),
        webhooks.replay(database, webhook["_id"], "msg_1", "org_two", NOW),
        webhooks.replay(database, webhook["_id"], "msg_none", ORGANISER.subject, NOW),
    ):
        with pytest.raises(NotFound):
            await asking
    assert await webhooks.listing(database, "org_two") == []


async def test_a_replay_of_what_is_under_way_changes_nothing(
    database: Database, near: Settings, sender: Sender, receiver: Receiver
) -> None:
    sale = await put_on_sale(database)
    webhook = await registered(database, near, receiver.url)
    message_id = await tell(database, sale)
    await outbox.spread(database, [sender], NOW)
    (taken,) = await outbox.take(database, "webhook", NOW, 1)
    replayed = await webhooks.replay(database, webhook["_id"], message_id, ORGANISER.subject, NOW)
    assert replayed["fence"] == taken["fence"]
    assert await outbox.deliver(database, sender, taken, NOW)
    assert len(receiver.got) == 1


async def test_the_log_is_read_in_pages_newest_first(
    database: Database, near: Settings, sender: Sender, receiver: Receiver
) -> None:
    sale = await put_on_sale(database)
    webhook = await registered(database, near, receiver.url)
    wanted = [await tell(database, sale, f"ord_{number}") for number in range(5)]
    await sent(database, sender)
    seen, cursor = [], None
    while True:
        page = await webhooks.deliveries(
            database, webhook["_id"], ORGANISER.subject, limit=2, cursor=cursor
        )
        seen += [item["messageId"] for item in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == wanted[::-1]
