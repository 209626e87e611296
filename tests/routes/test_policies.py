"""Every route has a declared policy, and answers each kind of caller by it."""

import pytest
from litestar.routes import HTTPRoute, WebSocketRoute

from tests.routes.conftest import Api

# Who may ask at all. What of it is theirs is the business of each noun: another's order is a 404.
ANYBODY, FAN, ORGANISER, ADMIN = "anybody", "fan", "organiser", "admin"
# Its credential is the signature over the body.
SIGNED = "signed"
# Whoever has the unguessable id may: the payment page of the sandbox, which takes no money.
BEARER_OF_ID = "bearer of the id"
# The token comes in the handshake.
LIVE = "live"

POLICIES = {
    "GET /health/live": ANYBODY,
    "GET /health/ready": ANYBODY,
    "GET /metrics": ANYBODY,
    "GET /openapi.json": ANYBODY,
    "GET /organiser/events/{event_id}": ANYBODY,
    "GET /paid": ANYBODY,
    "GET /pay/{payment_id}": ANYBODY,
    "GET /static/{name}": ANYBODY,
    "GET /tickets": ANYBODY,
    "GET /v1/events": ANYBODY,
    "GET /v1/events/{eventId}": ANYBODY,
    "GET /v1/events/{eventId}/availability": ANYBODY,
    "GET /v1/events/{eventId}/seats": ANYBODY,
    "GET /v1/ticket-keys": ANYBODY,
    "POST /v1/payments/webhooks/{provider}": SIGNED,
    "GET /v1/sandbox/payments/{paymentId}": BEARER_OF_ID,
    "POST /v1/sandbox/payments/{paymentId}/decline": BEARER_OF_ID,
    "POST /v1/sandbox/payments/{paymentId}/pay": BEARER_OF_ID,
    "POST /v1/events/{eventId}/holds": FAN,
    "GET /v1/holds/{holdId}": FAN,
    "DELETE /v1/holds/{holdId}": FAN,
    "GET /v1/me": FAN,
    "PUT /v1/me": FAN,
    "GET /v1/me/orders": FAN,
    "GET /v1/me/tickets": FAN,
    "POST /v1/orders": FAN,
    "GET /v1/orders/{orderId}": FAN,
    "GET /v1/orders/{orderId}/calendar.ics": FAN,
    "POST /v1/orders/{orderId}/cancel": FAN,
    "GET /v1/orders/{orderId}/tickets.pdf": FAN,
    "POST /v1/events": ORGANISER,
    "POST /v1/events/{eventId}/cancel": ORGANISER,
    "GET /v1/events/{eventId}/cancellation": ORGANISER,
    "GET /v1/events/{eventId}/dashboard": ORGANISER,
    "GET /v1/events/{eventId}/dashboard/sales": ORGANISER,
    "POST /v1/events/{eventId}/move": ORGANISER,
    "POST /v1/events/{eventId}/publish": ORGANISER,
    "GET /v1/events/{eventId}/refunds": ORGANISER,
    "GET /v1/events/{eventId}/statement": ORGANISER,
    "GET /v1/events/{eventId}/statement.csv": ORGANISER,
    "GET /v1/events/{eventId}/statement.pdf": ORGANISER,
    "GET /v1/events/{eventId}/void-tickets": ORGANISER,
    "POST /v1/orders/{orderId}/refunds": ORGANISER,
    "POST /v1/refunds/{refundId}/retry": ORGANISER,
    "GET /v1/statements": ORGANISER,
    "GET /v1/statements.csv": ORGANISER,
    "GET /v1/statements.pdf": ORGANISER,
    "GET /v1/webhooks": ORGANISER,
    "POST /v1/webhooks": ORGANISER,
    "GET /v1/webhooks/{webhookId}": ORGANISER,
    "DELETE /v1/webhooks/{webhookId}": ORGANISER,
    "GET /v1/webhooks/{webhookId}/deliveries": ORGANISER,
    "POST /v1/webhooks/{webhookId}/deliveries/{messageId}/replay": ORGANISER,
    "POST /v1/webhooks/{webhookId}/enable": ORGANISER,
    "PUT /v1/admin/events/{eventId}/fees": ADMIN,
    "GET /v1/sandbox/switches": ADMIN,
    "PUT /v1/sandbox/switches": ADMIN,
    "WS /v1/events/{eventId}/dashboard/live": LIVE,
    "WS /v1/events/{eventId}/seats/live": LIVE,
}
MAY = {FAN: {"fan"}, ORGANISER: {"organiser", "admin"}, ADMIN: {"admin"}}


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
    "route", [route for route in POLICIES if POLICIES[route] in (ANYBODY, BEARER_OF_ID)]
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
