"""What the framework, the database and faults of ours refuse has the shape of every problem."""

import asyncio
import logging
from dataclasses import replace
from typing import Any

import httpx
import pytest
from pymongo import errors as driver

import ticketing
from tests.routes.conftest import Api, assert_invalid, assert_problem, running, seat_id, token
from ticketing import mongo
from ticketing.api import problems
from ticketing.api.application import create_application
from ticketing.errors import IdempotencyInProgress, Refusal
from ticketing.group_commit import Overloaded
from ticketing.settings import Settings


def all_refusals(base: type[Refusal] = Refusal) -> set[type[Refusal]]:
    found = {base} - {Refusal}
    for refusal in base.__subclasses__():
        found |= all_refusals(refusal)
    return {refusal for refusal in found if refusal.__module__.startswith(ticketing.__name__)}


def test_every_refusal_has_its_status_and_every_slug_one_status() -> None:
    assert all_refusals() == set(problems.STATUSES)
    by_slug: dict[str, set[int]] = {}
    for refusal, status in problems.STATUSES.items():
        by_slug.setdefault(refusal.slug, set()).add(status)
    assert all(len(statuses) == 1 for statuses in by_slug.values())


async def test_a_path_that_leads_nowhere_is_not_found_like_a_thing_that_is_not_there(
    api: Api,
) -> None:
    for path in ("/nothing", "/v1", "/v1/events/a/b", "/v1/me/nothing", "/v1//nothing"):
        assert_problem(await api.http.get(path), 404, "not-found")


async def test_an_unknown_method_is_a_problem_that_names_the_allowed_ones(api: Api) -> None:
    answer = await api.http.delete("/v1/events")
    assert_problem(answer, 405, None)
    assert set(answer.headers["allow"].split(", ")) == {"GET", "POST", "OPTIONS"}
    assert_problem(await api.http.request("BREW", "/v1/events"), 405, None)


async def test_a_body_that_is_too_large_is_a_problem(api: Api) -> None:
    body = b'{"holdId": "' + b"x" * 64 * 1024 + b'"}'
    headers = {**api.as_fan, "Content-Type": "application/json"}
    assert_problem(await api.http.post("/v1/orders", content=body, headers=headers), 413, None)

    async def in_pieces() -> Any:
        for _ in range(66):
            yield b"x" * 1024

    answer = await api.http.post("/v1/orders", content=in_pieces(), headers=headers)
    assert_problem(answer, 413, None)


async def test_a_large_event_is_taken(api: Api) -> None:
    rows = [
        {"name": str(row), "seats": [f"{row}-{seat}" for seat in range(500)]} for row in range(20)
    ]
    sections = [{"name": "A", "priceCategory": "Front", "rows": rows}]
    event = await api.event(sections=sections)
    assert event["seatCount"] == 10_000


@pytest.mark.parametrize("content_type", ["text/plain", "application/xml", "", "application/jsonx"])
async def test_a_body_of_another_type_is_a_problem(api: Api, content_type: str) -> None:
    headers = {**api.as_fan, "Content-Type": content_type}
    answer = await api.http.post("/v1/orders", content=b'{"holdId": "x"}', headers=headers)
    assert_problem(answer, 415, None)


async def test_json_may_name_its_charset_or_come_without_a_type(api: Api) -> None:
    for headers in (
        {"Content-Type": "application/json; charset=utf-8"},
        {"Content-Type": "Application/JSON"},
        {},
    ):
        answer = await api.http.post(
            "/v1/orders", content=b'{"holdId": "x"}', headers={**api.as_fan, **headers}
        )
        assert_problem(answer, 404, "not-found")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        b"null",
        b"NaN",
        b"7",
        b'"text"',
        b"[]",
        b'{"holdId": NaN}',
        b'{"holdId": "\\ud800"}',
        b'{"holdId": "\xed\xa0\x80"}',
        b'{"holdId": "x"} {}',
        b'{"holdId": "x",}',
        b"{'holdId': 'x'}",
        b"[" * 60_000,
        b'{"holdId": ' + b"[" * 60_000,
        b'{"holdId": 1' + b"0" * 5000 + b"}",
        b'{"holdId": 1e400}',
        b'{"a' + b"\\u0000" * 100 + b'": 1}',
    ],
    ids=lambda body: repr(body[:20]),
)
async def test_a_body_that_is_no_form_of_ours_is_a_validation_problem(
    api: Api, body: bytes
) -> None:
    headers = {**api.as_fan, "Content-Type": "application/json"}
    answer = await api.http.post("/v1/orders", content=body, headers=headers)
    problem = assert_problem(answer, 422, "validation")
    assert len(problem["errors"]) == 1
    assert len(answer.content) < 2000


async def test_text_that_mongodb_could_trip_over_is_just_text(api: Api) -> None:
    event_id = await api.sale()
    for text in ("\0", "$where", "a.b", "\N{RIGHT-TO-LEFT OVERRIDE}", "\N{TICKET}" * 10):
        answer = await api.http.post(
            f"/v1/events/{event_id}/holds",
            json={"quantity": 1, "section": text},
            headers=api.as_fan,
        )
        assert_invalid(answer, "section")
        answer = await api.http.post(
            f"/v1/events/{event_id}/holds", json={"seatIds": [text]}, headers=api.as_fan
        )
        assert_invalid(answer, "seatIds[0]")
        answer = await api.http.get("/v1/events", params={"category": text, "q": text})
        assert answer.status_code == 200


@pytest.mark.parametrize(
    "error",
    [
        driver.ServerSelectionTimeoutError("node-1:27017 refused"),
        driver.AutoReconnect("node-1:27017 closed"),
        driver.NetworkTimeout("node-1:27017 silent"),
        driver.NotPrimaryError("not primary", {"code": 10107}),
        driver.ExecutionTimeout("too long", 50),
        driver.WTimeoutError("no majority", 64),
        driver.WriteConcernError("no majority", 64),
        driver.OperationFailure("secret detail", 1),
        driver.PyMongoError("anything"),
        Overloaded(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_database_that_cannot_answer_is_unavailable_and_tells_no_more(
    api: Api, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("ticketing.orders.find", fail)
    answer = await api.http.get("/v1/orders/ord_x", headers=api.as_fan)
    assert_problem(answer, 503, "unavailable")
    assert int(answer.headers["retry-after"]) >= 1
    assert "node-1" not in answer.text
    assert "secret" not in answer.text


async def test_a_fault_of_ours_tells_nothing_and_is_logged_with_the_requests_id(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("the secret of the house")

    monkeypatch.setattr("ticketing.orders.find", fail)
    with caplog.at_level(logging.ERROR):
        answer = await api.http.get(
            "/v1/orders/ord_x", headers={**api.as_fan, "X-Request-Id": "find-me"}
        )
    assert_problem(answer, 500, None)
    assert "secret" not in answer.text
    assert answer.headers["x-request-id"] == "find-me"
    [record] = caplog.records
    assert "find-me" in record.getMessage()
    assert record.exc_info


async def test_a_request_that_still_runs_is_answered_with_retry_after(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def still_running(*_: Any, **__: Any) -> None:
        raise IdempotencyInProgress("The first request with this key is still running.")

    monkeypatch.setattr("ticketing.orders.find", still_running)
    answer = await api.http.get("/v1/orders/ord_x", headers=api.as_fan)
    assert_problem(answer, 409, "idempotency-in-progress")
    assert answer.headers["retry-after"] == "1"


async def test_without_a_database_every_route_is_unavailable_in_time(settings: Settings) -> None:
    lost = replace(settings, mongodb_uri="mongodb://127.0.0.1:9/?replicaSet=rs0")
    application = create_application(lost, await mongo.connect(lost, operation_timeout_ms=300))
    transport = httpx.ASGITransport(app=application, raise_app_exceptions=False)
    fan = {"Authorization": f"Bearer {token(lost, 'fan_one', 'fan')}"}
    async with (
        running(application),
        httpx.AsyncClient(transport=transport, base_url="http://testserver") as http,
    ):
        answers = await asyncio.gather(
            http.get("/v1/events"),
            http.get("/v1/me/orders", headers=fan),
            http.post(
                "/v1/events/evt_x/holds",
                json={"seatIds": [seat_id("evt_x", 0)]},
                headers=fan,
            ),
        )
        for answer in answers:
            assert_problem(answer, 503, "unavailable")
            assert int(answer.headers["retry-after"]) >= 1
        ready = await http.get("/health/ready")
        problem = assert_problem(ready, 503, "unavailable")
        assert problem["reasons"] == ["the database has no primary"]
        assert (await http.get("/health/live")).status_code == 200
        await application.state["services"].client.close()


async def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_fault_of_ours(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    messages = [
        {"type": "http.request", "body": b'{"hol', "more_body": True},
        {"type": "http.disconnect"},
    ]
    headers = [(name.lower().encode(), value.encode()) for name, value in api.as_fan.items()]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/orders",
        "query_string": b"",
        "headers": [*headers, (b"content-length", b"90")],
    }

    async def receive() -> Any:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(_: Any) -> None:
        pass

    with caplog.at_level(logging.INFO):
        await api.application(scope, receive, send)
    assert caplog.records == []


async def test_an_outage_is_logged_in_one_line_and_a_broken_statement_in_full(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for error, level, whole in (
        (driver.AutoReconnect("node-1:27017 closed"), "WARNING", False),
        (driver.OperationFailure("unknown operator", 2), "ERROR", True),
    ):

        async def fail(*_: Any, error: Exception = error, **__: Any) -> None:
            raise error

        monkeypatch.setattr("ticketing.orders.find", fail)
        caplog.clear()
        await api.http.get("/v1/orders/ord_x", headers=api.as_fan)
        [record] = caplog.records
        assert record.levelname == level
        assert bool(record.exc_info) is whole
