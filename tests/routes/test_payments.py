"""Payment notices, and the sandbox provider that sends them."""

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest

from tests.routes.conftest import Api, Json, assert_invalid, assert_problem
from ticketing import clock, gateway
from ticketing.api.application import create_application
from ticketing.api.deliveries import Deliveries, Notice
from ticketing.settings import webhook_key

WEBHOOK = "/v1/payments/webhooks/sandbox"


def notice_body(order: Json, type_: str = "payment.succeeded", **changes: Any) -> bytes:
    data = {
        "paymentId": order["paymentId"],
        "orderId": order["orderId"],
        "amount": order["total"]["amount"],
        "currency": order["total"]["currency"],
    }
    body = {"type": type_, "timestamp": clock.rfc3339(clock.now()), "data": data | changes}
    return json.dumps(body).encode()


async def deliver(api: Api, body: bytes, notice_id: str = "ntc_1") -> httpx.Response:
    headers = gateway.signed(webhook_key(api.settings), notice_id, body, clock.now())
    return await api.http.post(WEBHOOK, content=body, headers=headers)


async def test_a_signed_notice_confirms_the_order_and_its_repetition_changes_nothing(
    api: Api,
) -> None:
    order = await api.order(await api.sale(), 0)
    body = notice_body(order)
    answers = [await deliver(api, body) for _ in range(2)]
    answers += await asyncio.gather(*(deliver(api, body, f"ntc_{n}") for n in range(5)))
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.text for answer in answers} == {'{"received":true}'}
    path = f"/v1/orders/{order['orderId']}"
    confirmed = (await api.http.get(path, headers=api.as_fan)).json()
    assert (confirmed["status"], confirmed["refunds"]) == ("confirmed", [])
    tickets = (await api.http.get("/v1/me/tickets", headers=api.as_fan)).json()
    assert len(tickets["items"]) == 1


async def test_an_unsigned_badly_signed_or_old_notice_is_refused(api: Api) -> None:
    order = await api.order(await api.sale(), 0)
    body = notice_body(order)
    key, now = webhook_key(api.settings), clock.now()
    good = gateway.signed(key, "ntc_1", body, now)
    for headers, content in (
        ({}, body),
        (good, body + b" "),
        (good | {"webhook-id": "ntc_2"}, body),
        (good | {"webhook-signature": "v1,AAAA"}, body),
        (good | {"webhook-signature": ""}, body),
        (good | {"webhook-timestamp": "now"}, body),
        (gateway.signed(b"x" * 32, "ntc_1", body, now), body),
        (gateway.signed(key, "ntc_1", body, now - timedelta(seconds=301)), body),
        (gateway.signed(key, "ntc_1", body, now + timedelta(seconds=301)), body),
    ):
        refused = await api.http.post(WEBHOOK, content=content, headers=headers)
        assert_problem(refused, 400, "bad-signature")
    path = f"/v1/orders/{order['orderId']}"
    untouched = (await api.http.get(path, headers=api.as_fan)).json()
    assert untouched["status"] == "pendingPayment"


async def test_a_genuine_delivery_that_is_no_notice_is_refused(api: Api) -> None:
    order = await api.order(await api.sale(), 0)
    for body in (
        b"",
        b"{}",
        b"\xff",
        b"[" * 5000,
        notice_body(order, "payment.imagined"),
        notice_body(order, amount=-1),
        notice_body(order, amount=2**70),
        notice_body(order, currency="euros"),
    ):
        refused = await deliver(api, body)
        assert_problem(refused, 422, "validation")


async def test_an_unknown_provider_is_not_found(api: Api) -> None:
    refused = await api.http.post("/v1/payments/webhooks/stripe", content=b"{}")
    assert_problem(refused, 404, "not-found")


async def test_a_payment_of_another_amount_confirms_nothing_and_is_refunded(api: Api) -> None:
    order = await api.order(await api.sale(), 0)
    assert (await deliver(api, notice_body(order, amount=1))).status_code == 200
    path = f"/v1/orders/{order['orderId']}"
    found = (await api.http.get(path, headers=api.as_fan)).json()
    assert found["status"] == "pendingPayment"
    assert [refund["amount"] for refund in found["refunds"]] == [1]


async def test_the_sandbox_shows_a_payment_to_whoever_has_its_id(api: Api) -> None:
    order = await api.order(await api.sale(), 0)
    shown = await api.http.get(f"/v1/sandbox/payments/{order['paymentId']}")
    assert shown.status_code == 200
    payment = shown.json()
    assert payment["paymentId"] == order["paymentId"]
    assert payment["orderId"] == order["orderId"]
    assert payment["total"] == order["total"]
    assert (payment["paymentStatus"], payment["orderStatus"]) == ("created", "pendingPayment")
    assert payment["expiresAt"] == order["expiresAt"]
    assert "delivered" not in payment
    assert_problem(await api.http.get("/v1/sandbox/payments/pay_none"), 404, "not-found")
    for action in ("pay", "decline"):
        refused = await api.http.post(f"/v1/sandbox/payments/pay_none/{action}")
        assert_problem(refused, 404, "not-found")


async def test_paying_at_the_sandbox_confirms_the_order_by_the_webhook(api: Api) -> None:
    order = await api.order(await api.sale(), 0)
    path = f"/v1/sandbox/payments/{order['paymentId']}"
    paid = (await api.http.post(f"{path}/pay")).json()
    assert (paid["paymentStatus"], paid["orderStatus"]) == ("succeeded", "confirmed")
    assert paid["delivered"] is True
    # Success is never taken back, whatever button is pressed afterwards.
    late = (await api.http.post(f"{path}/decline")).json()
    assert (late["paymentStatus"], late["orderStatus"]) == ("succeeded", "confirmed")


async def test_a_declined_payment_can_be_tried_again(api: Api) -> None:
    order = await api.order(await api.sale(), 0)
    path = f"/v1/sandbox/payments/{order['paymentId']}"
    declined = (await api.http.post(f"{path}/decline")).json()
    assert (declined["paymentStatus"], declined["orderStatus"]) == ("failed", "pendingPayment")
    again = (await api.http.post(f"{path}/pay")).json()
    assert (again["paymentStatus"], again["orderStatus"]) == ("succeeded", "confirmed")


async def test_an_undelivered_notice_is_sent_again_with_its_id_until_it_is_taken(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ticketing.api.deliveries.RETRY_AFTER_SECONDS", (0.01, 0.01, 0.01))
    seen: list[tuple[str, bytes]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append((request.headers["webhook-id"], request.content))
        if len(seen) == 1:
            raise httpx.ConnectError("refused")
        return httpx.Response(503 if len(seen) == 2 else 200)

    deliveries = Deliveries(api.settings, httpx.AsyncClient(transport=httpx.MockTransport(answer)))
    assert await deliveries.deliver(Notice("ntc_1", b"{}")) is True
    assert seen == [("ntc_1", b"{}")] * 3
    await deliveries.close()


async def test_a_notice_nobody_takes_is_given_up_after_the_last_attempt(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ticketing.api.deliveries.RETRY_AFTER_SECONDS", (0.01,))
    monkeypatch.setattr("ticketing.api.deliveries.FIRST_ATTEMPT_SECONDS", 0.5)
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(500)

    deliveries = Deliveries(api.settings, httpx.AsyncClient(transport=httpx.MockTransport(answer)))
    assert await deliveries.deliver(Notice("ntc_1", b"{}")) is False
    assert len(seen) == 2
    await deliveries.close()


async def test_a_notice_body_that_is_too_large_is_refused_before_it_is_read(api: Api) -> None:
    refused = await deliver(api, b"x" * (64 * 1024 + 1))
    assert_problem(refused, 413, None)


async def test_a_body_that_is_no_notice_is_named(api: Api) -> None:
    assert_invalid(await deliver(api, b"{}"), "body")


async def test_the_sandbox_does_not_exist_where_it_is_switched_off(api: Api) -> None:
    event_id = await api.sale()
    order = await api.order(event_id, 0)
    off = create_application(replace(api.settings, sandbox_payments="off"))
    transport = httpx.ASGITransport(off)
    async with (
        off.lifespan(),
        httpx.AsyncClient(transport=transport, base_url="http://off") as http,
    ):
        paid = await http.post(f"/v1/sandbox/payments/{order['paymentId']}/pay")
    assert paid.status_code == 404
