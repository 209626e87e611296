"""What every answer carries, health, metrics and the description of the API."""

import re
from datetime import timedelta
from typing import Any

import pytest
from pymongo.errors import AutoReconnect

from tests.routes.conftest import Api, Json, assert_problem
from tests.routes.policies import POLICIES
from ticketing import backlog, clock
from ticketing.api import answers, bodies
from ticketing.mongo import Client

TRACE = "0af7651916cd43dd8448eb211c80319c"  # pragma: allowlist secret
SPAN = "b7ad6b7169203331"  # pragma: allowlist secret


async def test_a_well_formed_request_id_is_kept_and_any_other_replaced(api: Api) -> None:
    for given in ("abc", "A-1_b.2", "x" * 128):
        answer = await api.http.get("/health/live", headers={"X-Request-Id": given})
        assert answer.headers.get_list("x-request-id") == [given]
    for given in ("", "a b", "x" * 129, "a/b", "a\tb", '"a"'):
        answer = await api.http.get("/health/live", headers={"X-Request-Id": given})
        [made] = answer.headers.get_list("x-request-id")
        assert re.fullmatch("[0-9a-f]{32}", made)
    assert len({(await api.http.get("/nope")).headers["x-request-id"] for _ in range(3)}) == 3


@pytest.mark.parametrize(
    ("given", "flags"),
    [
        (f"00-{TRACE}-{SPAN}-01", "01"),
        (f"00-{TRACE}-{SPAN}-00", "00"),
        (f"00-{TRACE}-{SPAN}-ff", "03"),
        (f"01-{TRACE}-{SPAN}-01", "01"),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-adds", "01"),
    ],
)
async def test_a_trace_goes_on_with_a_span_of_our_own(api: Api, given: str, flags: str) -> None:
    answer = await api.http.get("/health/live", headers={"traceparent": given})
    version, trace, span, answered_flags = answer.headers["traceparent"].split("-")
    assert (version, trace, answered_flags) == ("00", TRACE, flags)
    assert re.fullmatch("[0-9a-f]{16}", span)
    assert span != SPAN


@pytest.mark.parametrize(
    "given",
    [
        [],
        [""],
        [f"00-{TRACE.upper()}-{SPAN}-01"],
        [f"00-{'0' * 32}-{SPAN}-01"],
        [f"00-{TRACE}-{'0' * 16}-01"],
        [f"ff-{TRACE}-{SPAN}-01"],
        [f"00-{TRACE}-{SPAN}-01-more"],
        [f"00-{TRACE}-{SPAN}-1"],
        [f"00-{TRACE}-{SPAN}"],
        [f"01-{TRACE}-{SPAN}-01more"],
        [f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-01"],
    ],
)
async def test_a_malformed_trace_is_replaced_by_a_new_one(api: Api, given: list[str]) -> None:
    headers = [("traceparent", value) for value in given]
    answered = (await api.http.get("/health/live", headers=headers)).headers["traceparent"]
    match = re.fullmatch("00-([0-9a-f]{32})-[0-9a-f]{16}-00", answered)
    assert match
    assert match[1] != TRACE


async def test_every_answer_carries_security_headers(api: Api) -> None:
    for path in ("/health/live", "/v1/events", "/v1/me", "/nope"):
        headers = (await api.http.get(path)).headers
        assert headers.get_list("x-content-type-options") == ["nosniff"]
        assert headers.get_list("x-frame-options") == ["DENY"]
        assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"


async def test_a_page_keeps_the_security_headers_it_sets_itself(api: Api) -> None:
    headers = (await api.http.get("/pay/pay_x")).headers
    assert headers["content-type"].startswith("text/html")
    [policy] = headers.get_list("content-security-policy")
    assert "script-src 'self'" in policy
    assert len(headers.get_list("cache-control")) == 1


async def test_head_is_get_without_the_body(api: Api) -> None:
    get = await api.http.get("/v1/events")
    head = await api.http.head("/v1/events")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == get.headers["content-length"]
    assert (await api.http.head("/v1/events/evt_none")).status_code == 404


async def test_options_tells_the_methods_of_a_path_to_anybody(api: Api) -> None:
    for path, methods in (
        ("/v1/events", {"GET", "POST", "OPTIONS"}),
        ("/v1/orders", {"POST", "OPTIONS"}),
        ("/v1/holds/x", {"GET", "DELETE", "OPTIONS"}),
    ):
        answer = await api.http.options(path)
        assert answer.status_code == 204
        assert set(answer.headers["allow"].split(", ")) == methods


async def test_it_is_ready_with_its_indexes_and_names_those_that_are_missing(
    api: Api, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ticketing.api.readiness.CHECK_AGE_SECONDS_MAX", 0.0)
    monkeypatch.setattr("ticketing.api.readiness.INDEX_CHECK_AGE_SECONDS_MAX", 0.0)
    ready = await api.http.get("/health/ready")
    assert (ready.status_code, ready.json()) == (200, {"status": "ready"})
    seats = client.database.seats
    found = await seats.index_information()
    [(name, index)] = [
        (name, index) for name, index in found.items() if index["key"] == [("holdId", 1)]
    ]
    await seats.drop_index(name)
    try:
        answer = await api.http.get("/health/ready")
    finally:
        options = {key: value for key, value in index.items() if key not in ("key", "v", "ns")}
        await seats.create_index(index["key"], name=name, **options)
    problem = assert_problem(answer, 503, "unavailable")
    assert problem["reasons"] == ["seats has no index on holdId"]
    assert (await api.http.get("/health/live")).json() == {"status": "live"}
    assert (await api.http.get("/health/ready")).status_code == 200


async def test_metrics_count_requests_by_route_and_status(api: Api) -> None:
    await api.http.get("/v1/events/evt_one")
    await api.http.get("/v1/events/evt_two")
    await api.http.get("/nope-1")
    await api.http.request("BREW", "/nope-2")
    answer = await api.http.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    text = answer.text
    assert text.endswith("\n")
    label = 'method="GET",route="/v1/events/{eventId}",status="404"'
    assert f"ticketing_http_requests_total{{{label}}} 2.0" in text
    assert 'method="GET",route="unmatched",status="404"' in text
    assert 'method="other",route="unmatched",status="404"' in text
    assert "evt_one" not in text
    assert "nope" not in text
    names = re.findall(r"^# TYPE (\S+) \S+$", text, re.MULTILINE)
    assert len(names) == len(set(names))
    for line in text.splitlines():
        assert (
            line.startswith("# ")
            or re.fullmatch(r"[a-z_]+(\{[^}]*\}\}?[^}]*\})? \S+", line)
            or (re.fullmatch(r"[a-z_]+\{.*\} [0-9.e+-]+", line))
        )


async def test_metrics_tell_what_waits_and_for_how_long(api: Api, client: Client) -> None:
    database, now = client.database, clock.now()
    await database.deliveries.insert_many(
        [
            {"_id": f"{status}{n}", "consumer": "mail", "status": status, **due}
            for n, (status, due) in enumerate(
                [
                    ("dead", {}),
                    ("dead", {}),
                    ("waiting", {"dueAt": now - timedelta(seconds=90)}),
                    ("waiting", {"dueAt": now + timedelta(hours=1)}),
                ]
            )
        ],
        bypass_document_validation=True,
    )
    text = (await api.http.get("/metrics")).text
    assert "ticketing_backlog_known 1" in text
    assert "ticketing_deliveries_dead 2" in text
    assert "ticketing_outbox_oldest_message_age_seconds 0.0\n" in text
    (mail,) = re.findall(r'ticketing_deliveries_due_age_seconds\{consumer="mail"\} (\S+)', text)
    assert 90 <= float(mail) < 150
    assert 'ticketing_deliveries_due_age_seconds{consumer="paymentPage"} 0' in text


async def test_metrics_tell_nothing_of_a_database_that_does_not_answer(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise AutoReconnect("away")

    monkeypatch.setattr(backlog, "read", away)
    text = (await api.http.get("/metrics")).text
    assert "ticketing_backlog_known 0" in text
    assert "ticketing_deliveries_dead" not in text
    assert "ticketing_http_requests_total" in text


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        found = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return found.union(*(references(item) for item in value.values()))
    if isinstance(value, list):
        return set().union(*(references(item) for item in value))
    return set()


@pytest.fixture
async def description(api: Api) -> Json:
    answer = await api.http.get("/openapi.json")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    return dict(answer.json())


async def test_the_description_has_every_route_but_the_pages(description: Json) -> None:
    operations = {
        f"{method.upper()} {path}" for path, item in description["paths"].items() for method in item
    }
    of_machines = {
        route
        for route in POLICIES
        if " /v1/" in route or " /health/" in route or route == "GET /metrics"
    }
    watched = {"WS /v1/events/{eventId}/dashboard/live", "WS /v1/events/{eventId}/seats/live"}
    assert operations == of_machines - watched | {"GET /v1/events/{eventId}/dashboard/live"}


async def test_the_description_refers_to_nothing_that_it_lacks(description: Json) -> None:
    schemas = {f"#/components/schemas/{name}" for name in description["components"]["schemas"]}
    assert references(description) <= schemas


def test_what_is_sent_and_what_is_answered_never_share_a_name() -> None:
    answered = {name for name, kind in vars(answers).items() if isinstance(kind, type)}
    assert answered.isdisjoint(bodies.schemas())


async def test_the_description_tells_what_the_framework_cannot_know(description: Json) -> None:
    keyed = {
        path
        for path, item in description["paths"].items()
        for parameter in item.get("post", {}).get("parameters", [])
        if parameter["name"] == "Idempotency-Key"
    }
    assert keyed == {
        "/v1/events",
        "/v1/events/{eventId}/holds",
        "/v1/orders",
        "/v1/orders/{orderId}/refunds",
        "/v1/webhooks",
        "/v1/api-keys",
    }
    for form in ("seats", "availability"):
        responses = description["paths"][f"/v1/events/{{eventId}}/{form}"]["get"]["responses"]
        assert "304" in responses
    notice = description["paths"]["/v1/payments/webhooks/{provider}"]["post"]
    assert notice["requestBody"]["content"]["application/json"]["schema"]["required"]


async def test_the_description_has_bodies_parameters_and_problems(description: Json) -> None:
    hold = description["paths"]["/v1/events/{eventId}/holds"]["post"]
    body = hold["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/HoldForm"}
    forms = description["components"]["schemas"]["HoldForm"]["oneOf"]
    properties = {name for form in forms for name in form["properties"]}
    assert properties == {"seatIds", "section", "quantity", "bestAvailable"}
    assert set(hold["responses"]) == {
        *("201", "401", "403", "404", "409", "413", "415", "422", "429", "503")
    }
    for status, response in hold["responses"].items():
        if status != "201":
            assert set(response["content"]) == {"application/problem+json"}
    assert "`seats-unavailable`" in hold["responses"]["409"]["description"]
    created = hold["responses"]["201"]["content"]["application/json"]["schema"]
    assert created["$ref"].startswith("#/components/schemas/")
    listing = description["paths"]["/v1/events"]["get"]
    assert {parameter["name"] for parameter in listing["parameters"]} == {
        "status",
        "category",
        "q",
        "from",
        "to",
        "mine",
        "limit",
        "cursor",
    }
    assert "400" not in listing["responses"]
