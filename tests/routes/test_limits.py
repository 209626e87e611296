"""Who asks too often waits, wherever they say they come from."""

from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest

from tests.routes.conftest import Api, assert_problem, running
from ticketing.api import client_address, limits
from ticketing.api.application import create_application
from ticketing.mongo import Client
from ticketing.rate_limits import Policy
from ticketing.settings import Settings

PROXIES = "10.0.0.0/8, 2001:db8::/32"


@pytest.fixture
async def limited(
    settings: Settings, client: Client, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Api]:
    """The application with limits so low that a test reaches them, behind proxies."""
    monkeypatch.setattr(limits, "ADDRESS", Policy("address", 8, 3_600))
    monkeypatch.setattr(limits, "READS", Policy("reads", 5, 3_600))
    monkeypatch.setattr(limits, "WRITES", Policy("writes", 3, 3_600))
    strict = replace(settings, rate_limits="on", trusted_proxies=PROXIES)
    application = create_application(strict, client)
    transport = httpx.ASGITransport(
        app=application, raise_app_exceptions=False, client=("10.0.0.1", 1)
    )
    async with (
        running(application),
        httpx.AsyncClient(transport=transport, base_url="http://testserver") as http,
    ):
        yield Api(application, http, strict)


def coming_from(*hops: str) -> dict[str, str]:
    return {"X-Forwarded-For": ", ".join(hops)}


async def test_an_answer_tells_what_is_left_and_the_refusal_when_to_come_again(
    limited: Api,
) -> None:
    for left in (4, 3, 2, 1, 0):
        answer = await limited.http.get(
            "/v1/me", headers=limited.as_fan | coming_from(f"192.0.2.{left}")
        )
        assert answer.status_code == 200
        assert answer.headers["ratelimit-policy"] == '"reads";q=5;w=3600'
        assert answer.headers["ratelimit"].startswith(f'"reads";r={left};t=')
    refused = await limited.http.get("/v1/me", headers=limited.as_fan | coming_from("192.0.2.9"))
    assert_problem(refused, 429, "rate-limited")
    assert 0 < int(refused.headers["retry-after"]) <= 720
    assert refused.headers.get_list("ratelimit")[0].startswith('"reads";r=0;t=')
    assert refused.headers["ratelimit-policy"] == '"reads";q=5;w=3600'


async def test_one_fans_limit_is_no_other_fans_and_writes_have_their_own(limited: Api) -> None:
    for number in range(6):
        await limited.http.get("/v1/me", headers=limited.as_fan | coming_from(f"192.0.2.{number}"))
    other = await limited.http.get(
        "/v1/me", headers=limited.as_other_fan | coming_from("192.0.2.8")
    )
    assert other.status_code == 200
    for status in (404, 404, 404, 429):
        write = await limited.http.post(
            "/v1/orders",
            json={"holdId": "hold_x"},
            headers=limited.as_fan | coming_from("192.0.2.9"),
        )
        assert write.status_code == status
    assert write.headers["ratelimit-policy"] == '"writes";q=3;w=3600'


async def test_an_address_is_counted_whatever_token_it_sends(limited: Api) -> None:
    headers = {"Authorization": "Bearer nonsense"} | coming_from("192.0.2.7")
    statuses = [(await limited.http.get("/v1/me", headers=headers)).status_code for _ in range(9)]
    assert statuses == [401] * 8 + [429]
    elsewhere = await limited.http.get("/v1/events", headers=coming_from("192.0.2.8"))
    assert elsewhere.status_code == 200


async def test_what_a_client_writes_into_the_list_itself_is_not_believed(limited: Api) -> None:
    for number in range(9):
        answer = await limited.http.get(
            "/v1/events", headers=coming_from(f"198.51.100.{number}", "192.0.2.7", "10.9.9.9")
        )
    assert_problem(answer, 429, "rate-limited")


async def test_one_ipv6_customer_is_one_whatever_address_of_theirs_they_use(limited: Api) -> None:
    for number in range(9):
        answer = await limited.http.get(
            "/v1/events", headers=coming_from(f"2001:1:2:3::{number:x}")
        )
    assert_problem(answer, 429, "rate-limited")
    other = await limited.http.get("/v1/events", headers=coming_from("2001:1:2:4::1"))
    assert other.status_code == 200


async def test_without_a_configured_proxy_the_header_means_nothing(
    settings: Settings, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ADDRESS", Policy("address", 2, 3_600))
    application = create_application(replace(settings, rate_limits="on"), client)
    transport = httpx.ASGITransport(app=application, client=("192.0.2.1", 1))
    async with (
        running(application),
        httpx.AsyncClient(transport=transport, base_url="http://testserver") as http,
    ):
        statuses = [
            (await http.get("/v1/events", headers=coming_from(f"192.0.2.{n}"))).status_code
            for n in range(3)
        ]
    assert statuses == [200, 200, 429]


async def test_a_developers_machine_and_health_checks_are_not_limited(
    api: Api, limited: Api
) -> None:
    for _ in range(20):
        assert (await api.http.get("/v1/events")).status_code == 200
        assert (await limited.http.get("/health/live")).status_code == 200
    assert "ratelimit" not in (await api.http.get("/v1/events")).headers


def test_what_shares_a_limit() -> None:
    assert client_address.limited_by("192.0.2.1") == "192.0.2.1"
    assert client_address.limited_by("::ffff:192.0.2.1") == "192.0.2.1"
    assert client_address.limited_by("::1") == "::/64"
    assert client_address.limited_by("2001:db8:1:2:3:4:5:6") == "2001:db8:1:2::/64"
    assert client_address.limited_by("unknown") == "unknown"


async def test_strict_transport_is_asked_for_behind_tls_alone(
    settings: Settings, client: Client, api: Api
) -> None:
    application = create_application(replace(settings, public_url="https://x.example"), client)
    transport = httpx.ASGITransport(app=application)
    async with (
        running(application),
        httpx.AsyncClient(transport=transport, base_url="http://testserver") as http,
    ):
        for path in ("/v1/events", "/nope", "/tickets"):
            header = (await http.get(path)).headers["strict-transport-security"]
            assert header.startswith("max-age=63072000")
            assert "strict-transport-security" not in (await api.http.get(path)).headers
