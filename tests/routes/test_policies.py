"""Every route has a declared policy, and answers each kind of caller by it."""

import pytest
from litestar.routes import HTTPRoute, WebSocketRoute

from tests.routes.conftest import Api
from tests.routes.policies import (
    ADMIN,
    ANYBODY,
    BEARER_OF_ID,
    FAN,
    GATE,
    ORGANISER,
    PERSON,
    POLICIES,
    SECRET_IN_BODY,
)

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
