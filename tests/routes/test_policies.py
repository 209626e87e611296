"""Every route has a declared policy, and answers each kind of caller by it."""

import pytest
from litestar.routes import HTTPRoute, WebSocketRoute

from tests.routes.conftest import Api, event_body
from tests.routes.policies import (
    ADMIN,
    ANYBODY,
    BEARER_OF_ID,
    FAN,
    GATE,
    LEAST,
    ORGANISER,
    PERSON,
    POLICIES,
    SECRET_IN_BODY,
)
from ticketing.mongo import Client

MAY = {
    FAN: {"fan"},
    ORGANISER: {"organiser", "admin"},
    GATE: {"organiser", "admin"},
    PERSON: {"fan", "organiser", "admin"},
    ADMIN: {"admin"},
}


def routes(api: Api) -> set[str]:
    found = set()
    for route in api.application.routes:
        if isinstance(route, WebSocketRoute):
            found.add(f"WS {route.path_format}")
        elif isinstance(route, HTTPRoute):
            for handler in route.route_handlers:
                found |= {f"{method} {route.path_format}" for method in handler.http_methods}
    return {route for route in found if not route.startswith("OPTIONS ")}


def test_every_route_has_a_policy_and_every_policy_a_route(api: Api) -> None:
    assert routes(api) == POLICIES.keys()


def path_of(route: str) -> str:
    """The route's path with ids that nobody has."""
    parts = route.partition(" ")[2].split("/")
    return "/".join("nobody_has_this" if part.startswith("{") else part for part in parts)


@pytest.mark.parametrize("route", [route for route in POLICIES if POLICIES[route] in MAY])
async def test_only_those_it_is_for_get_past_the_door(api: Api, route: str) -> None:
    method, policy = route.partition(" ")[0], POLICIES[route]
    nobody = await api.http.request(method, path_of(route))
    assert nobody.status_code == 401, nobody.text
    assert nobody.json()["type"].endswith("unauthenticated")
    for role in ("fan", "organiser", "admin"):
        answer = await api.http.request(
            method, path_of(route), headers=api.as_role(f"{role}_who_has_nothing", role)
        )
        if role in MAY[policy]:
            assert answer.status_code not in (401, 403), (role, answer.text)
        else:
            assert answer.status_code == 403, (role, answer.text)
            assert answer.json()["type"].endswith("forbidden")
        assert answer.status_code < 500


@pytest.mark.parametrize(
    "route",
    [route for route in POLICIES if POLICIES[route] in (ANYBODY, BEARER_OF_ID, SECRET_IN_BODY)],
)
async def test_what_is_for_anybody_asks_for_no_token(api: Api, route: str) -> None:
    answer = await api.http.request(route.partition(" ")[0], path_of(route))
    assert answer.status_code not in (401, 403)
    assert answer.status_code < 500 or route == "GET /health/ready"


async def test_what_is_signed_is_refused_without_a_signature_whoever_asks(api: Api) -> None:
    for headers in ({}, api.as_role("adm_one", "admin")):
        answer = await api.http.post(
            "/v1/payments/webhooks/sandbox", content=b"{}", headers=headers
        )
        assert answer.status_code == 400, answer.text
        assert answer.json()["type"].endswith("bad-signature")


def test_every_route_of_organisers_says_with_whom_of_a_team_it_begins() -> None:
    assert {route for route in POLICIES if POLICIES[route] in (ORGANISER, GATE)} == LEAST.keys()


@pytest.fixture
async def belongings(api: Api, client: Client) -> dict[str, str]:
    """What the organiser has, by the names that paths have for it."""
    event_id = await api.sale()
    order = await api.confirmed_order(event_id, 0, 1)
    other = await api.confirmed_order(event_id, 2)
    cancelled = await api.http.post(f"/v1/orders/{other['orderId']}/cancel", headers=api.as_fan)
    asked = {
        "webhookId": ("POST", "/v1/webhooks", {"url": "https://example.org/"}),
        "keyId": ("POST", "/v1/api-keys", {"name": "x", "scope": "viewer"}),
        "memberId": ("PUT", "/v1/team/org_third", {"role": "viewer"}),
    }
    made = {}
    for name, (method, path, body) in asked.items():
        answer = await api.http.request(method, path, json=body, headers=api.as_organiser)
        made[name] = answer.json()[name]
    [message] = await client.database.outbox.find({"orderId": order["orderId"]}).limit(1).to_list()
    refund_id = cancelled.json()["refunds"][0]["refundId"]
    ids = {"orderId": order["orderId"], "refundId": refund_id, "messageId": message["_id"]}
    return {"eventId": event_id, **ids, **made}


BODIES = {
    "POST /v1/events": event_body(),
    "POST /v1/events/{eventId}/move": {"venueName": "Elsewhere"},
    "POST /v1/api-keys": {"name": "y", "scope": "viewer"},
    "POST /v1/webhooks": {"url": "https://example.org/other"},
    "PUT /v1/team/{memberId}": {"role": "editor"},
}
LADDER = ["stranger", "gate", "viewer", "boxOffice", "editor", "owner"]


@pytest.mark.parametrize(
    ("who", "role"),
    [
        ("stranger", "stranger"),
        ("member", "viewer"),
        ("member", "boxOffice"),
        ("member", "editor"),
        ("member", "owner"),
        ("key", "gate"),
        ("key", "viewer"),
        ("key", "boxOffice"),
        ("key", "editor"),
    ],
)
async def test_each_of_a_team_gets_as_far_as_their_role_with_everything_there_is(
    api: Api, belongings: dict[str, str], who: str, role: str
) -> None:
    headers = api.as_role("org_somebody", "organiser")
    if who == "member":
        put = await api.http.put(
            "/v1/team/org_somebody", json={"role": role}, headers=api.as_organiser
        )
        assert put.status_code == 200
    elif who == "key":
        of_event = {"eventId": belongings["eventId"]} if role == "gate" else {}
        made = await api.http.post(
            "/v1/api-keys",
            json={"name": "z", "scope": role} | of_event,
            headers=api.as_organiser,
        )
        headers = {"Authorization": f"Bearer {made.json()['key']}"}
    for route, least in LEAST.items():
        method, _, path = route.partition(" ")
        for name, identifier in belongings.items():
            path = path.replace(f"{{{name}}}", identifier)
        body = BODIES.get(route)
        if route == "POST /v1/orders/{orderId}/refunds":
            body = {"seatIds": [f"{belongings['eventId']}:00000"]}
        answer = await api.http.request(
            method, path, params={"organiserId": "org_one"}, json=body, headers=headers
        )
        if LADDER.index(role) >= LADDER.index(least):
            allowed = (200, 201, 202, 204, 409)
            if "cancellation" in route or "replay" in route:
                allowed += (404,)  # There is none yet.
            assert answer.status_code in allowed, (route, answer.text)
        elif who == "stranger":
            assert answer.status_code == 404, (route, answer.text)
        else:
            assert answer.status_code == 403, (route, answer.text)
