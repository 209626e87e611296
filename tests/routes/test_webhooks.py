"""What an organiser asks about webhooks over HTTP."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from tests.nouns.test_webhooks import Receiver, receiving
from tests.routes.conftest import Api, assert_invalid, assert_problem, running
from ticketing import clock, outbox, webhooks
from ticketing.api.application import create_application
from ticketing.mongo import Client
from ticketing.settings import Settings
from ticketing.webhooks import WEBHOOKS_PER_ORGANISER_MAX, Sender


@pytest.fixture
async def near(settings: Settings, client: Client) -> AsyncIterator[Api]:
    """The application where this machine's own addresses are allowed."""
    allowing = replace(settings, webhooks_to_private_addresses="on")
    application = create_application(allowing, client)
    transport = httpx.ASGITransport(app=application, raise_app_exceptions=False)
    async with (
        running(application),
        httpx.AsyncClient(transport=transport, base_url="http://testserver") as http,
    ):
        yield Api(application, http, allowing)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as opened:
        yield opened


async def register(api: Api, url: str, **more: Any) -> httpx.Response:
    headers = api.as_organiser | more.pop("headers", {})
    return await api.http.post("/v1/webhooks", json={"url": url, **more}, headers=headers)


async def test_a_webhook_shows_its_secret_once_and_is_listed_without_it(near: Api) -> None:
    made = await register(near, "http://127.0.0.1:9/hook", kinds=["order.confirmed"])
    assert made.status_code == 201
    webhook = made.json()
    assert made.headers["location"] == f"/v1/webhooks/{webhook['webhookId']}"
    assert webhook.pop("secret").startswith("whsec_")
    assert webhook == {
        "webhookId": webhook["webhookId"],
        "url": "http://127.0.0.1:9/hook",
        "kinds": ["order.confirmed"],
        "status": "enabled",
        "createdAt": webhook["createdAt"],
    }
    listed = await near.http.get("/v1/webhooks", headers=near.as_organiser)
    assert listed.json() == {"items": [webhook], "nextCursor": None}
    one = await near.http.get(f"/v1/webhooks/{webhook['webhookId']}", headers=near.as_organiser)
    assert one.json() == webhook


async def test_without_kinds_it_is_for_all(near: Api) -> None:
    made = await register(near, "http://127.0.0.1:9/")
    assert made.json()["kinds"] == sorted(webhooks.KINDS)


async def test_the_same_key_gives_the_same_answer_and_another_body_none(near: Api) -> None:
    key = {"Idempotency-Key": "k-1"}
    first = await register(near, "http://127.0.0.1:9/", headers=key)
    again = await register(near, "http://127.0.0.1:9/", headers=key)
    assert again.json() == first.json()
    other = await register(near, "http://127.0.0.1:9/other", headers=key)
    assert_problem(other, 422, "idempotency-key-reused")


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"url": "https://localhost/"}, "url"),
        ({"url": "http://93.184.216.34/"}, "url"),
        ({"url": 1}, "url"),
        ({}, "url"),
        ({"url": "https://93.184.216.34/", "kinds": []}, "kinds"),
        ({"url": "https://93.184.216.34/", "kinds": ["order.eaten"]}, "kinds[0]"),
        ({"url": "https://93.184.216.34/", "secret": "mine"}, "secret"),
    ],
)
async def test_what_can_never_be_sent_to_is_refused_by_its_path(
    body: dict[str, Any], path: str, api: Api
) -> None:
    refused = await api.http.post("/v1/webhooks", json=body, headers=api.as_organiser)
    assert_invalid(refused, path)


async def test_one_too_many_is_a_conflict_with_the_limit(near: Api) -> None:
    for _ in range(WEBHOOKS_PER_ORGANISER_MAX):
        assert (await register(near, "http://127.0.0.1:9/")).status_code == 201
    problem = assert_problem(await register(near, "http://127.0.0.1:9/"), 409, "webhook-limit")
    assert problem["limit"] == WEBHOOKS_PER_ORGANISER_MAX


async def test_a_removed_webhook_is_gone(near: Api) -> None:
    path = f"/v1/webhooks/{(await register(near, 'http://127.0.0.1:9/')).json()['webhookId']}"
    assert (await near.http.delete(path, headers=near.as_organiser)).status_code == 204
    for method in ("GET", "DELETE"):
        answer = await near.http.request(method, path, headers=near.as_organiser)
        assert_problem(answer, 404, "not-found")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("DELETE", ""),
        ("POST", "/enable"),
        ("GET", "/deliveries"),
        ("POST", "/deliveries/msg_1/replay"),
    ],
)
async def test_another_organisers_webhook_is_not_found_and_a_fan_may_ask_nothing(
    method: str, path: str, near: Api
) -> None:
    webhook_id = (await register(near, "http://127.0.0.1:9/")).json()["webhookId"]
    url = f"/v1/webhooks/{webhook_id}{path}"
    other = await near.http.request(method, url, headers=near.as_other_organiser)
    assert_problem(other, 404, "not-found")
    assert_problem(await near.http.request(method, url, headers=near.as_fan), 403, "forbidden")
    assert_problem(await near.http.request(method, url), 401, "unauthenticated")


async def test_the_log_tells_what_became_of_each_message_and_a_replay_sends_it_again(
    near: Api, client: Client, receiver: Receiver
) -> None:
    event_id = await near.sale()
    webhook_id = (await register(near, receiver.url)).json()["webhookId"]
    message = outbox.message("order.expired", event_id, "ord_1", {}, clock.now())
    await client.database.outbox.insert_one(message)
    sender = Sender(client.database, near.settings)

    async def deliver() -> None:
        now = clock.now()
        await outbox.spread(client.database, [sender], now)
        for delivery in await outbox.take(client.database, "webhook", now, 16):
            await outbox.deliver(client.database, sender, delivery, now)

    await deliver()
    path = f"/v1/webhooks/{webhook_id}/deliveries"
    (logged,) = (await near.http.get(path, headers=near.as_organiser)).json()["items"]
    assert logged == {
        "messageId": message["_id"],
        "kind": "order.expired",
        "eventId": event_id,
        "orderId": "ord_1",
        "status": "done",
        "attempts": [
            {
                "at": logged["attempts"][0]["at"],
                "outcome": "done",
                "detail": "answered 204",
            }
        ],
        "createdAt": logged["createdAt"],
        "settledAt": logged["settledAt"],
    }
    replayed = await near.http.post(f"{path}/{message['_id']}/replay", headers=near.as_organiser)
    assert replayed.status_code == 202
    assert replayed.json()["status"] == "waiting"
    assert "nextAttemptAt" in replayed.json()
    await deliver()
    await sender.close()
    assert [headers["webhook-id"] for _, headers, _ in receiver.got] == [message["_id"]] * 2


async def test_a_disabled_webhook_is_enabled_by_its_organiser(near: Api, client: Client) -> None:
    webhook_id = (await register(near, "http://127.0.0.1:9/")).json()["webhookId"]
    await client.database.webhooks.update_one(
        {"_id": webhook_id}, {"$set": {"status": "disabled", "disabledBecause": "it is gone"}}
    )
    path = f"/v1/webhooks/{webhook_id}"
    shown = (await near.http.get(path, headers=near.as_organiser)).json()
    assert (shown["status"], shown["disabledBecause"]) == ("disabled", "it is gone")
    enabled = await near.http.post(f"{path}/enable", headers=near.as_organiser)
    assert enabled.json()["status"] == "enabled"
    assert "disabledBecause" not in enabled.json()
