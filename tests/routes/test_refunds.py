"""What an organiser does about money: refund seats, call off an event, look at refunds."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from tests.nouns import stripe_stand_in
from tests.routes.conftest import Api, Json, assert_invalid, assert_problem, running, seat_id
from tests.routes.test_payments import deliver, notice_body
from ticketing.api.application import create_application
from ticketing.mongo import Client
from ticketing.settings import Settings
from workers import payments as worker


async def work(api: Api) -> None:
    """One round of the payments worker."""
    services = api.application.state["services"]
    for step in worker.steps(services.database, services.providers).values():
        await step()


async def order_of(api: Api, order: Json) -> Json:
    found = await api.http.get(f"/v1/orders/{order['orderId']}", headers=api.as_fan)
    return dict(found.json())


async def switch(api: Api, **switches: Any) -> None:
    answer = await api.http.put("/v1/sandbox/switches", json=switches, headers=api.as_admin)
    assert answer.status_code == 200, answer.text


async def refund(api: Api, order: Json, *seats: str, key: str | None = None, **more: Any) -> Any:
    headers = api.as_organiser | ({"Idempotency-Key": key} if key else {})
    return await api.http.post(
        f"/v1/orders/{order['orderId']}/refunds",
        json={"seatIds": list(seats)} | more,
        headers=headers,
    )


async def test_an_organiser_refunds_some_seats_of_an_order(api: Api) -> None:
    event_id = await api.sale()
    order = await api.confirmed_order(event_id, 0, 1, 2)
    made = await refund(api, order, seat_id(event_id, 1), reason="the seat is broken")
    assert made.status_code == 201, made.text
    assert [r["amount"] for r in made.json()["refunds"]] == [9500]
    assert made.json()["refunds"][0]["reason"] == "the seat is broken"
    await work(api)
    after = await order_of(api, order)
    assert (after["status"], after["refunds"][0]["status"]) == ("confirmed", "done")
    tickets = (await api.http.get("/v1/me/tickets", headers=api.as_fan)).json()["items"]
    assert [ticket["number"] for ticket in tickets] == ["1", "3"]
    again = await refund(api, order, seat_id(event_id, 1))
    assert assert_problem(again, 409, "order-state")["state"] == "confirmed"


async def test_a_refund_repeated_with_its_key_is_made_once(api: Api) -> None:
    event_id = await api.sale()
    order = await api.confirmed_order(event_id, 0, 1)
    answers = [await refund(api, order, seat_id(event_id, 0), key="k") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert len((await order_of(api, order))["refunds"]) == 1
    other = await refund(api, order, seat_id(event_id, 1), key="k")
    assert_problem(other, 422, "idempotency-key-reused")


async def test_only_the_events_own_organiser_refunds(api: Api) -> None:
    event_id = await api.sale()
    order = await api.confirmed_order(event_id, 0)
    path, body = f"/v1/orders/{order['orderId']}/refunds", {"seatIds": [seat_id(event_id, 0)]}
    foreign = await api.http.post(path, json=body, headers=api.as_other_organiser)
    assert_problem(foreign, 404, "not-found")
    assert_problem(await api.http.post(path, json=body, headers=api.as_fan), 403, "forbidden")
    assert_problem(
        await api.http.post("/v1/orders/ord_none/refunds", json=body, headers=api.as_organiser),
        404,
        "not-found",
    )


async def test_a_malformed_refund_is_refused_by_its_path(api: Api) -> None:
    event_id = await api.sale()
    order = await api.confirmed_order(event_id, 0)
    assert_invalid(await refund(api, order), "seatIds")
    seat = seat_id(event_id, 0)
    assert_invalid(await refund(api, order, seat, seat), "seatIds")
    assert_invalid(await refund(api, order, seat, reason="a\nb"), "reason")
    assert_invalid(await refund(api, order, seat_id(event_id, 5)), "seatIds[0]")


async def test_calling_off_an_event_refunds_its_orders_and_tells_how_far_it_is(api: Api) -> None:
    event_id = await api.sale()
    order = await api.confirmed_order(event_id, 0, 1)
    path = f"/v1/events/{event_id}"
    assert_problem(
        await api.http.get(f"{path}/cancellation", headers=api.as_organiser), 404, "not-found"
    )
    begun = await api.http.post(f"{path}/cancel", headers=api.as_organiser)
    assert begun.status_code == 200, begun.text
    assert (begun.json()["status"], begun.json()["orders"]) == ("running", 1)
    assert (await api.http.get(path)).json()["status"] == "cancelled"
    await work(api)
    await work(api)
    progress = (await api.http.get(f"{path}/cancellation", headers=api.as_organiser)).json()
    assert (progress["cancelled"], progress["refunds"]["done"]) == (1, 1)
    assert progress["refunded"] == {"amount": 19_000, "currency": "EUR"}
    after = await order_of(api, order)
    assert (after["status"], after["refunds"][0]["status"]) == ("cancelled", "done")
    for headers in (api.as_other_organiser,):
        refused = await api.http.post(f"{path}/cancel", headers=headers)
        assert_problem(refused, 404, "not-found")
    again = await api.http.post(f"{path}/cancel", headers=api.as_organiser)
    assert again.json()["cancelled"] == 1


async def test_an_organiser_sees_refunds_and_sends_again_what_was_given_up(
    api: Api, client: Client
) -> None:
    event_id = await api.sale()
    order = await api.confirmed_order(event_id, 0)
    await api.http.post(f"/v1/orders/{order['orderId']}/cancel", headers=api.as_fan)
    await switch(api, refuseRefunds=True)
    await client.database.refunds.update_many({}, {"$set": {"attempts": 9}})
    await work(api)
    path = f"/v1/events/{event_id}/refunds"
    listed = await api.http.get(path, params={"givenUp": "true"}, headers=api.as_organiser)
    (waiting,) = listed.json()["items"]
    assert (waiting["status"], waiting["givenUp"], waiting["attempts"]) == ("failed", True, 10)
    assert waiting["problem"] == "The balance is too low."
    await switch(api)
    retry = f"/v1/refunds/{waiting['refundId']}/retry"
    foreign = await api.http.post(retry, headers=api.as_other_organiser)
    assert_problem(foreign, 404, "not-found")
    again = await api.http.post(retry, headers=api.as_organiser)
    assert again.json()["givenUp"] is False
    await work(api)
    done = await api.http.get(path, params={"status": "done"}, headers=api.as_organiser)
    assert [one["refundId"] for one in done.json()["items"]] == [waiting["refundId"]]
    refused = await api.http.post(retry, headers=api.as_organiser)
    assert_problem(refused, 409, "order-state")


# --- The sandbox misbehaves ------------------------------------------------------


async def test_only_an_admin_makes_the_sandbox_misbehave(api: Api) -> None:
    for headers, status, slug in (
        ({}, 401, "unauthenticated"),
        (api.as_fan, 403, "forbidden"),
        (api.as_organiser, 403, "forbidden"),
    ):
        refused = await api.http.put("/v1/sandbox/switches", json={}, headers=headers)
        assert_problem(refused, status, slug)
    wrong = await api.http.put("/v1/sandbox/switches", json={"copies": 0}, headers=api.as_admin)
    assert_invalid(wrong, "copies")
    await switch(api, copies=3)
    shown = await api.http.get("/v1/sandbox/switches", headers=api.as_admin)
    assert (shown.json()["copies"], shown.json()["down"]) == (3, False)


async def test_while_the_provider_is_down_the_fan_keeps_the_hold_and_is_told_to_try_again(
    api: Api,
) -> None:
    event_id = await api.sale()
    hold = await api.hold(event_id, 0)
    await switch(api, down=True)
    body = {"holdId": hold["holdId"]}
    refused = await api.http.post("/v1/orders", json=body, headers=api.as_fan)
    assert_problem(refused, 503, "unavailable")
    assert int(refused.headers["retry-after"]) > 0
    kept = await api.http.get(f"/v1/holds/{hold['holdId']}", headers=api.as_fan)
    assert kept.status_code == 200
    await switch(api)
    ordered = await api.http.post("/v1/orders", json=body, headers=api.as_fan)
    assert (ordered.status_code, ordered.json()["status"]) == (201, "pendingPayment")
    assert len((await api.http.get("/v1/me/orders", headers=api.as_fan)).json()["items"]) == 1


@pytest.mark.parametrize(
    ("switches", "payment", "status", "refunds"),
    [
        ({"decline": True}, "failed", "pendingPayment", 0),
        ({"copies": 20}, "succeeded", "confirmed", 0),
        ({"outOfOrder": True}, "succeeded", "confirmed", 0),
        ({"amountOff": -100}, "failed", "pendingPayment", 1),
        ({"amountOff": 100}, "failed", "pendingPayment", 1),
        ({"loseNotices": True}, "created", "pendingPayment", 0),
        ({"undecided": True}, "created", "pendingPayment", 0),
    ],
)
async def test_what_the_sandbox_does_wrong_comes_out_right(
    api: Api, switches: Json, payment: str, status: str, refunds: int
) -> None:
    order = await api.order(await api.sale(), 0)
    await switch(api, **switches)
    paid = await api.http.post(f"/v1/sandbox/payments/{order['paymentId']}/pay")
    assert paid.status_code == 200, paid.text
    after = await order_of(api, order)
    assert (after["payment"]["status"], after["status"], len(after["refunds"])) == (
        payment,
        status,
        refunds,
    )
    await work(api)
    assert {one["status"] for one in (await order_of(api, order))["refunds"]} <= {"done"}


async def test_a_delayed_notice_confirms_when_it_comes(api: Api) -> None:
    order = await api.order(await api.sale(), 0)
    await switch(api, delaySeconds=0.05)
    paid = await api.http.post(f"/v1/sandbox/payments/{order['paymentId']}/pay")
    assert paid.json()["delivered"] is False
    services = api.application.state["services"]
    while services.deliveries._pending:
        await next(iter(services.deliveries._pending))
    assert (await order_of(api, order))["status"] == "confirmed"


async def test_a_notice_of_an_unknown_payment_is_answered_and_counted(api: Api) -> None:
    unknown = {
        "orderId": "ord_none",
        "paymentId": "pay_none",
        "total": {"amount": 7, "currency": "EUR"},
    }
    answer = await deliver(api, notice_body(unknown))
    assert (answer.status_code, answer.json()) == (200, {"received": True})
    metrics = (await api.http.get("/metrics")).text
    assert 'ticketing_payment_notices_total{outcome="unknown",provider="sandbox"} 1.0' in metrics


async def test_a_refund_made_at_the_sandboxs_own_site_is_recorded(api: Api) -> None:
    order = await api.confirmed_order(await api.sale(), 0)
    body = notice_body(order, "refund.done", refundId="re_1", amount=500)
    assert (await deliver(api, body)).status_code == 200
    after = await order_of(api, order)
    assert (after["status"], [r["amount"] for r in after["refunds"]]) == ("confirmed", [500])
    assert_invalid(await deliver(api, notice_body(order, "refund.done"), "n2"), "data.refundId")


# --- Stripe ------------------------------------------------------


@pytest.fixture
async def by_stripe(settings: Settings, client: Client) -> AsyncIterator[tuple[Api, Any]]:
    """The application with Stripe as its provider, and the stand-in."""
    with stripe_stand_in.running() as stand_in:
        chosen = replace(
            settings,
            payment_provider="stripe",
            stripe_secret_key=stripe_stand_in.SECRET_KEY,
            stripe_webhook_secret=stripe_stand_in.WEBHOOK_SECRET,
            stripe_api_base=stand_in.url,
        )
        application = create_application(chosen, client)
        transport = httpx.ASGITransport(app=application, raise_app_exceptions=False)
        async with (
            running(application),
            httpx.AsyncClient(transport=transport, base_url="http://testserver") as http,
        ):
            yield Api(application, http, chosen), stand_in


async def test_a_purchase_by_stripe_from_the_hold_to_the_refund(
    by_stripe: tuple[Api, stripe_stand_in.StandIn],
) -> None:
    api, stand_in = by_stripe
    order = await api.order(await api.sale(), 0)
    page = await api.http.get(httpx.URL(order["paymentUrl"]).path)
    (session_id,) = stand_in.sessions
    assert page.status_code == 303
    assert page.headers["location"] == f"{stand_in.url}/pay/{session_id}"
    body = stand_in.event("checkout.session.completed", stand_in.pay(session_id))
    path = "/v1/payments/webhooks/stripe"
    told = await api.http.post(path, content=body, headers=stripe_stand_in.signed(body))
    assert told.json() == {"received": True}
    assert_problem(await api.http.post(path, content=body), 400, "bad-signature")
    other = stand_in.event("customer.created", {"id": "cus_1"})
    ignored = await api.http.post(path, content=other, headers=stripe_stand_in.signed(other))
    assert ignored.status_code == 200
    assert (await order_of(api, order))["status"] == "confirmed"
    back = await api.http.get(httpx.URL(order["paymentUrl"]).path)
    assert back.headers["location"] == "/paid"
    assert (await api.http.get("/paid")).status_code == 200
    await api.http.post(f"/v1/orders/{order['orderId']}/cancel", headers=api.as_fan)
    await work(api)
    assert (await order_of(api, order))["refunds"][0]["status"] == "done"
    assert [made["amount"] for made in stand_in.refunds] == [9500]


async def test_while_stripe_is_down_the_fan_keeps_the_hold_and_may_try_again(
    by_stripe: tuple[Api, stripe_stand_in.StandIn],
) -> None:
    api, stand_in = by_stripe
    hold = await api.hold(await api.sale(), 0)
    stand_in.failing = True
    body = {"holdId": hold["holdId"]}
    refused = await api.http.post("/v1/orders", json=body, headers=api.as_fan)
    assert_problem(refused, 503, "unavailable")
    stand_in.failing = False
    ordered = await api.http.post("/v1/orders", json=body, headers=api.as_fan)
    assert ordered.status_code == 201
    assert len(stand_in.sessions) == 1


async def test_a_payment_page_whose_start_was_lost_is_started_by_its_address(
    by_stripe: tuple[Api, stripe_stand_in.StandIn], client: Client
) -> None:
    api, stand_in = by_stripe
    order = await api.order(await api.sale(), 0)
    await client.database.payments.update_one({}, {"$unset": {"url": "", "reference": ""}})
    page = await api.http.get(httpx.URL(order["paymentUrl"]).path)
    assert page.headers["location"].startswith(stand_in.url)
    assert len(stand_in.sessions) == 1
