"""Ordering, looking at orders and tickets, cancelling."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.routes.conftest import Api, assert_invalid, assert_problem, seat_id


async def test_an_order_is_a_copy_of_what_was_held_and_waits_for_its_payment(api: Api) -> None:
    event_id = await api.sale()
    event = (await api.http.get(f"/v1/events/{event_id}")).json()
    hold = await api.hold(event_id, 0, 10)
    answer = await api.http.post("/v1/orders", json={"holdId": hold["holdId"]}, headers=api.as_fan)
    assert answer.status_code == 201
    order = answer.json()
    assert answer.headers["location"] == f"/v1/orders/{order['orderId']}"
    payment_id = order["paymentId"]
    assert payment_id.startswith("pay_")
    assert {name: order[name] for name in order if name not in ("orderId", "reference")} == {
        "eventId": event_id,
        "event": {
            "name": "The Last Waltz",
            "startsAt": event["startsAt"],
            "venueName": "Winterland",
            "timezone": "Europe/Berlin",
        },
        "status": "pendingPayment",
        "seats": [
            {
                "seatId": seat_id(event_id, 0),
                "section": "A",
                "row": "1",
                "number": "1",
                "priceCategory": "Front",
                "price": {"amount": 9500, "currency": "EUR"},
            },
            {
                "seatId": seat_id(event_id, 10),
                "section": "Floor",
                "row": None,
                "number": None,
                "priceCategory": "Rear",
                "price": {"amount": 4500, "currency": "EUR"},
            },
        ],
        "total": {"amount": 14000, "currency": "EUR"},
        "paymentId": payment_id,
        "paymentUrl": f"{api.settings.public_url}/pay/{payment_id}",
        "payment": {"status": "created"},
        "refunds": [],
        "createdAt": order["createdAt"],
        "expiresAt": hold["expiresAt"],
    }


async def test_a_free_order_is_confirmed_at_once_without_a_payment(api: Api) -> None:
    event_id = await api.sale(
        priceCategories=[{"name": "Front", "price": 0}, {"name": "Rear", "price": 4500}]
    )
    order = await api.order(event_id, 0)
    assert order["status"] == "confirmed"
    assert order["payment"] is order["paymentId"] is order["paymentUrl"] is None


async def test_only_the_fan_who_holds_the_seats_orders_them(api: Api) -> None:
    hold_id = (await api.hold(await api.sale(), 0))["holdId"]
    body = {"holdId": hold_id}
    assert_problem(await api.http.post("/v1/orders", json=body), 401, "unauthenticated")
    refused = await api.http.post("/v1/orders", json=body, headers=api.as_organiser)
    assert_problem(refused, 403, "forbidden")
    refused = await api.http.post("/v1/orders", json=body, headers=api.as_other_fan)
    assert_problem(refused, 404, "not-found")
    placed = await api.http.post("/v1/orders", json=body, headers=api.as_fan)
    assert placed.status_code == 201


@pytest.mark.parametrize(
    ("body", "path"),
    [({}, "holdId"), ({"holdId": 1}, "holdId"), ({"holdId": "x", "seats": []}, "seats")],
)
async def test_a_malformed_order_is_refused(api: Api, body: Any, path: str) -> None:
    refused = await api.http.post("/v1/orders", json=body, headers=api.as_fan)
    assert_invalid(refused, path)


@pytest.mark.parametrize("hold_id", ["", "x", "hold_\0", "hold_a.b.c.d", "x" * 5000])
async def test_an_order_of_an_unknown_hold_is_not_found(api: Api, hold_id: str) -> None:
    refused = await api.http.post("/v1/orders", json={"holdId": hold_id}, headers=api.as_fan)
    assert_problem(refused, 404, "not-found")


async def test_an_order_of_a_released_hold_is_refused(api: Api) -> None:
    hold_id = (await api.hold(await api.sale(), 0))["holdId"]
    await api.http.delete(f"/v1/holds/{hold_id}", headers=api.as_fan)
    refused = await api.http.post("/v1/orders", json={"holdId": hold_id}, headers=api.as_fan)
    assert_problem(refused, 410, "hold-expired")


async def test_one_hold_gives_one_order_however_often_it_is_asked_for(api: Api) -> None:
    event_id = await api.sale()
    hold_id = (await api.hold(event_id, 0))["holdId"]
    keyed = {**api.as_fan, "Idempotency-Key": "one"}
    placed = [
        await api.http.post("/v1/orders", json={"holdId": hold_id}, headers=headers)
        for headers in (keyed, keyed, api.as_fan)
    ]
    assert [answer.status_code for answer in placed] == [201] * 3
    assert len({answer.json()["orderId"] for answer in placed}) == 1
    other = (await api.hold(event_id, 1))["holdId"]
    refused = await api.http.post("/v1/orders", json={"holdId": other}, headers=keyed)
    assert_problem(refused, 422, "idempotency-key-reused")


async def test_an_order_is_seen_by_its_fan_alone(api: Api) -> None:
    order = await api.order(await api.sale(), 0)
    path = f"/v1/orders/{order['orderId']}"
    assert (await api.http.get(path, headers=api.as_fan)).json() == order
    assert_problem(await api.http.get(path, headers=api.as_other_fan), 404, "not-found")
    assert_problem(await api.http.get(path, headers=api.as_organiser), 403, "forbidden")
    assert_problem(await api.http.get(path), 401, "unauthenticated")
    assert_problem(await api.http.get("/v1/orders/%00", headers=api.as_fan), 404, "not-found")


async def test_my_orders_are_mine_newest_first_and_by_status(api: Api) -> None:
    event_id = await api.sale()
    first = await api.confirmed_order(event_id, 0)
    second = await api.order(event_id, 1)
    listed = (await api.http.get("/v1/me/orders", headers=api.as_fan)).json()
    assert [item["orderId"] for item in listed["items"]] == [second["orderId"], first["orderId"]]
    assert listed["items"][0] == second
    confirmed = await api.http.get("/v1/me/orders?status=confirmed", headers=api.as_fan)
    assert [item["orderId"] for item in confirmed.json()["items"]] == [first["orderId"]]
    others = await api.http.get("/v1/me/orders", headers=api.as_other_fan)
    assert others.json() == {"items": [], "nextCursor": None}
    assert_problem(await api.http.get("/v1/me/orders"), 401, "unauthenticated")


async def test_my_orders_are_paged_and_their_cursor_fits_no_other_list(api: Api) -> None:
    event_id = await api.sale()
    orders = [(await api.order(event_id, ordinal))["orderId"] for ordinal in range(3)]
    page = (await api.http.get("/v1/me/orders?limit=2", headers=api.as_fan)).json()
    assert [item["orderId"] for item in page["items"]] == [orders[2], orders[1]]
    query = {"limit": "2", "cursor": page["nextCursor"]}
    rest = (await api.http.get("/v1/me/orders", params=query, headers=api.as_fan)).json()
    assert [item["orderId"] for item in rest["items"]] == [orders[0]]
    assert rest["nextCursor"] is None
    assert_invalid(await api.http.get("/v1/events", params=query), "cursor")


@pytest.mark.parametrize(
    ("query", "path"),
    [("status=paid", "status"), ("limit=0", "limit"), ("cursor=x", "cursor")],
)
async def test_a_malformed_list_query_is_refused(api: Api, query: str, path: str) -> None:
    assert_invalid(await api.http.get(f"/v1/me/orders?{query}", headers=api.as_fan), path)


async def test_my_tickets_are_those_of_confirmed_orders(api: Api) -> None:
    event_id = await api.sale()
    order = await api.confirmed_order(event_id, 0, 10)
    await api.order(event_id, 1)
    listed = (await api.http.get("/v1/me/tickets", headers=api.as_fan)).json()
    assert listed["nextCursor"] is None
    numbered, floor = listed["items"]
    assert {name: numbered[name] for name in numbered if name not in ("ticketId", "code")} == {
        "orderId": order["orderId"],
        "event": order["event"],
        "section": "A",
        "row": "1",
        "number": "1",
    }
    assert (floor["section"], floor["row"], floor["number"]) == ("Floor", None, None)
    assert len({numbered["code"], floor["code"]}) == 2
    assert min(len(numbered["code"]), len(floor["code"])) >= 20
    assert_problem(await api.http.get("/v1/me/tickets"), 401, "unauthenticated")
    page = (await api.http.get("/v1/me/tickets?limit=1", headers=api.as_fan)).json()
    assert page["items"] == [numbered]
    rest = await api.http.get(
        "/v1/me/tickets", params={"limit": 1, "cursor": page["nextCursor"]}, headers=api.as_fan
    )
    assert rest.json()["items"] == [floor]


async def test_a_cancelled_order_frees_its_seats_voids_its_tickets_and_is_refunded(
    api: Api,
) -> None:
    event_id = await api.sale()
    order = await api.confirmed_order(event_id, 0)
    path = f"/v1/orders/{order['orderId']}/cancel"
    assert_problem(await api.http.post(path), 401, "unauthenticated")
    assert_problem(await api.http.post(path, headers=api.as_other_fan), 404, "not-found")
    cancelled = await api.http.post(path, headers=api.as_fan)
    assert cancelled.status_code == 200
    answer = cancelled.json()
    assert answer["status"] == "cancelled"
    assert answer["payment"] == {"status": "succeeded"}
    [refund] = answer["refunds"]
    assert (refund["amount"], refund["currency"]) == (9500, "EUR")
    assert refund["refundId"].startswith("rfd_")
    assert refund["status"] in ("created", "sent", "done")
    assert (await api.http.get("/v1/me/tickets", headers=api.as_fan)).json()["items"] == []
    states = (await api.http.get(f"/v1/events/{event_id}/availability?section=A")).json()
    assert states["sections"][0]["states"] == "a" * 10


async def test_an_order_that_has_ended_cannot_be_cancelled(api: Api) -> None:
    order = await api.order(await api.sale(), 0)
    database = api.application.state["services"].database
    await database.orders.update_one(
        {"_id": order["orderId"]},
        {"$set": {"status": "expired", "from": "pendingPayment", "expiresAt": datetime.now(UTC)}},
    )
    refused = await api.http.post(f"/v1/orders/{order['orderId']}/cancel", headers=api.as_fan)
    assert assert_problem(refused, 409, "order-state")["state"] == "expired"


async def test_releasing_a_hold_that_was_ordered_expires_the_order(api: Api) -> None:
    event_id = await api.sale()
    hold_id = (await api.hold(event_id, 0))["holdId"]
    order = (await api.http.post("/v1/orders", json={"holdId": hold_id}, headers=api.as_fan)).json()
    released = await api.http.delete(f"/v1/holds/{hold_id}", headers=api.as_fan)
    assert released.status_code == 204
    path = f"/v1/orders/{order['orderId']}"
    assert (await api.http.get(path, headers=api.as_fan)).json()["status"] == "expired"


async def test_a_profile_is_empty_until_saved_and_then_replaced(api: Api) -> None:
    empty = await api.http.get("/v1/me", headers=api.as_fan)
    assert empty.json() == {"fanId": "fan_one", "name": None, "email": None}
    for name, email in (("Zoë O'Brien-Ñandú", "zoe@example.org"), ("張偉", "w@例え.jp")):
        saved = await api.http.put(
            "/v1/me", json={"name": f" {name} ", "email": email}, headers=api.as_fan
        )
        assert saved.status_code == 200
        assert saved.json() == {"fanId": "fan_one", "name": name, "email": email}
        assert (await api.http.get("/v1/me", headers=api.as_fan)).json() == saved.json()
    assert_problem(await api.http.get("/v1/me"), 401, "unauthenticated")
    assert_problem(await api.http.get("/v1/me", headers=api.as_organiser), 403, "forbidden")


async def test_a_fan_may_choose_the_language_they_are_written_to_in(api: Api) -> None:
    body = {"name": "Zoë", "email": "zoe@example.org"}
    saved = await api.http.put("/v1/me", json=body | {"language": "de"}, headers=api.as_fan)
    assert saved.json()["language"] == "de"
    assert (await api.http.get("/v1/me", headers=api.as_fan)).json() == saved.json()
    replaced = await api.http.put("/v1/me", json=body, headers=api.as_fan)
    assert "language" not in replaced.json()


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"language": "tlh"}, "language"),
        ({"name": ""}, "name"),
        ({"name": "a\0b"}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"email": "nobody"}, "email"),
        ({"email": "a b@example.org"}, "email"),
        ({"email": "x" * 250 + "@example.org"}, "email"),
        ({"role": "admin"}, "role"),
    ],
)
async def test_a_malformed_profile_is_refused(api: Api, changes: dict[str, Any], path: str) -> None:
    body = {"name": "Zoë", "email": "zoe@example.org"} | changes
    assert_invalid(await api.http.put("/v1/me", json=body, headers=api.as_fan), path)
