"""What a request leaves behind: spans, log records and figures, and nothing of a person in them."""

import asyncio
import io
import json
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from prometheus_client import CollectorRegistry
from pymongo.errors import BulkWriteError, DuplicateKeyError

from tests.conftest import put_on_sale
from tests.nouns.test_checkout import hold_seats
from tests.routes.conftest import Api, running
from ticketing import clock, mongo, outbox, signed_links
from ticketing.api.application import create_application
from ticketing.mongo import Client, Document
from ticketing.outbox import Done, Outcome
from ticketing.settings import Settings
from ticketing.telemetry import commands, logs, traces

TRACE = "0af7651916cd43dd8448eb211c80319c"  # pragma: allowlist secret
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


class Kept(SpanExporter):
    """A collector in this process."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def export(self, spans: object) -> SpanExportResult:
        self.spans += spans  # type: ignore[arg-type]
        return SpanExportResult.SUCCESS


@pytest.fixture
def collector() -> Iterator[Kept]:
    kept = Kept()
    traces.begin("ticketing-test", "", kept)
    yield kept
    traces.end()


@pytest.fixture
async def watched(settings: Settings) -> AsyncIterator[Client]:
    """A client whose commands are told of."""
    opened = await mongo.connect(settings, listeners=commands.listeners(CollectorRegistry()))
    yield opened
    await opened.close()


@pytest.fixture
async def api_of_watched(settings: Settings, watched: Client) -> AsyncIterator[Api]:
    """The application on a client whose commands are told of."""
    application = create_application(settings, watched)
    transport = httpx.ASGITransport(app=application, raise_app_exceptions=False)
    async with (
        running(application),
        httpx.AsyncClient(transport=transport, base_url="http://testserver") as http,
    ):
        yield Api(application, http, settings)


@pytest.fixture
def records() -> Iterator[io.StringIO]:
    """What is logged, as production has it."""
    before, level = list(logging.root.handlers), logging.root.level
    logs.begin(as_json=True)
    said = io.StringIO()
    handler = logging.root.handlers[0]
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(said)
    yield said
    logging.root.handlers[:] = before
    logging.root.setLevel(level)


class Recorder:
    """A consumer that takes everything."""

    name = "recorder"

    async def targets(self, messages: list[Document]) -> dict[str, list[str]]:
        return {message["_id"]: ["somebody"] for message in messages}

    async def deliver(self, _message: Document, _target: str, _now: object) -> Outcome:
        return Done("taken")


async def test_a_trace_goes_from_the_request_through_its_group_to_commands_and_the_message(
    api_of_watched: Api, watched: Client, collector: Kept
) -> None:
    now = clock.now()
    sale = await put_on_sale(
        watched.database,
        starts_at=now + timedelta(days=9),
        sale_starts_at=now - timedelta(days=1),
        sale_ends_at=now + timedelta(days=8),
    )
    fan = api_of_watched.as_role("fan_traced", "fan")
    answer = await api_of_watched.http.post(
        f"/v1/events/{sale.event_id}/holds",
        json={"seatIds": list(sale.seats(1, 2))},
        headers={**fan, "traceparent": PARENT},
    )
    assert answer.status_code == 201
    order = await api_of_watched.http.post(
        "/v1/orders",
        json={"holdId": answer.json()["holdId"]},
        headers={**fan, "traceparent": PARENT},
    )
    assert order.status_code == 201
    recorder = Recorder()
    later = clock.now()
    await outbox.spread(watched.database, [recorder], later)  # type: ignore[list-item]
    for delivery in await outbox.take(watched.database, recorder.name, later, 10):
        await outbox.deliver(watched.database, recorder, delivery, later)  # type: ignore[arg-type]
    traces.end()
    by_name: dict[str, list[ReadableSpan]] = {}
    for span in collector.spans:
        by_name.setdefault(span.name, []).append(span)
    (request,) = by_name["POST /v1/events/{eventId}/holds"]
    assert f"{request.context.trace_id:032x}" == TRACE
    assert request.attributes is not None
    assert request.attributes["http.response.status_code"] == 201
    assert answer.headers["traceparent"].split("-")[1] == TRACE
    (group,) = by_name["group holds"]
    assert [link.context.span_id for link in group.links] == [request.context.span_id]
    children = [
        span
        for span in collector.spans
        if span.parent is not None and span.parent.span_id == group.context.span_id
    ]
    assert "update seats" in {span.name for span in children}
    assert all((span.attributes or {})["db.namespace"] for span in children)
    # The order's message points back to the group that wrote it, and its delivery to that.
    (orders,) = by_name["group orders"]
    deliveries = by_name["deliver recorder"]
    linked = {link.context.span_id for span in deliveries for link in span.links}
    assert orders.context.span_id in linked
    values = json.dumps([[span.name, dict(span.attributes or {})] for span in collector.spans])
    assert "fan_traced" not in values
    assert sale.seat(1) not in values


async def test_a_caller_who_does_not_keep_its_trace_gets_none_kept(
    api: Api, collector: Kept
) -> None:
    answer = await api.http.get("/v1/events", headers={"traceparent": f"{PARENT[:-2]}00"})
    assert answer.headers["traceparent"].split("-")[1] == TRACE
    await api.http.get("/v1/events")
    traces.end()
    assert {f"{span.context.trace_id:032x}" for span in collector.spans}.isdisjoint({TRACE})
    assert len([span for span in collector.spans if span.name == "GET /v1/events"]) == 1


async def test_without_a_collector_nothing_is_traced(api: Api) -> None:
    assert not traces.is_on()
    answer = await api.http.get("/v1/events", headers={"traceparent": PARENT})
    assert answer.headers["traceparent"].split("-")[1] == TRACE
    assert traces.traceparent() is None


async def test_spans_reach_a_collector_over_http(api: Api) -> None:
    received: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            received.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Collector)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        traces.begin("ticketing-api", f"http://127.0.0.1:{server.server_port}")
        await api.http.get("/v1/events", headers={"traceparent": PARENT})
        await asyncio.to_thread(traces.end)
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
    spans = [
        span
        for body in received
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert TRACE in {span.trace_id.hex() for span in spans}


async def test_a_record_is_an_object_with_the_ids_of_its_request(
    api: Api, records: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ticketing.api.middleware.SLOW_SECONDS", 0.0)
    answer = await api.http.get(
        "/v1/events", headers={"X-Request-Id": "asked-by-a-test", "traceparent": PARENT}
    )
    assert answer.status_code == 200
    (record,) = [
        json.loads(line) for line in records.getvalue().splitlines() if "Slow: GET" in line
    ]
    assert record["request_id"] == "asked-by-a-test"
    assert record["trace_id"] == TRACE
    assert record["level"] == "warning"
    assert record["logger"] == "ticketing.api"
    assert record["event"].startswith("Slow: GET /v1/events took")
    assert record["timestamp"].endswith("Z")


async def test_a_slow_command_is_named_without_its_values(
    watched: Client, records: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ticketing.telemetry.commands.SLOW_SECONDS", 0.0)
    await watched.database.fans.find_one({"_id": "fan_secret"})
    said = records.getvalue()
    assert "Slow: find on fans took" in said
    assert "fan_secret" not in said


async def test_what_the_database_says_of_an_error_is_not_logged(
    watched: Client, records: io.StringIO
) -> None:
    log = logging.getLogger("ticketing.test")
    person = {"_id": "fan_a", "email": "ada@example.org"}
    await watched.database["people"].insert_one(dict(person))
    try:
        await watched.database["people"].insert_many([dict(person)])
    except BulkWriteError as error:
        log.warning("The database did not answer: %s", logs.named(error))
        log.exception("It failed")
    try:
        await watched.database["people"].insert_one(dict(person))
    except DuplicateKeyError:
        log.exception("It failed")
    await watched.database["people"].drop()
    said = records.getvalue()
    assert "BulkWriteError" in said
    assert "DuplicateKeyError" in said
    assert "ada@example.org" not in said
    assert "fan_a" not in said


async def test_a_whole_journey_leaves_nothing_of_a_person_in_the_records(
    api: Api, client: Client, records: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that every request and command is told of.
    monkeypatch.setattr("ticketing.api.middleware.SLOW_SECONDS", 0.0)
    sale = await put_on_sale(client.database)
    fan = api.as_role("fan_private", "fan")
    profile = {"name": "Ada Lovelace", "email": "ada@example.org"}
    saved = await api.http.put("/v1/me", json=profile, headers=fan)
    assert saved.status_code == 200, saved.text
    held = await hold_seats(client.database, sale, "fan_private", 1)
    order = await api.http.post("/v1/orders", json={"holdId": held.hold_id}, headers=fan)
    assert order.status_code in (201, 409, 410), order.text
    await api.http.get("/v1/me/tickets", headers=fan)
    await api.http.get("/v1/me?email=ada@example.org", headers=fan)
    await api.http.post("/v1/orders", content=b"{", headers=fan)
    said = records.getvalue()
    assert "Slow: POST /v1/orders" in said
    for secret in ("Ada", "ada@", "fan_private", fan["Authorization"].split()[1]):
        assert secret not in said


async def test_accounts_keys_and_codes_are_in_no_record_and_no_trace(
    api_of_watched: Api,
    watched: Client,
    records: io.StringIO,
    collector: Kept,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ticketing.api.middleware.SLOW_SECONDS", 0.0)
    api = api_of_watched
    api.http.headers["traceparent"] = PARENT
    person = {"email": "ada@example.org", "password": "lovelace and babbage", "name": "Ada"}
    asked = await api.http.post("/v1/accounts", json=person)
    assert asked.status_code == 202
    [request] = await watched.database.account_requests.find().to_list()
    link = signed_links.make(api.settings, "register", request["_id"], request["expiresAt"])
    body = {"link": link, "password": person["password"]}
    made = (await api.http.post("/v1/accounts/confirm", json=body)).json()
    bearer = {"Authorization": f"Bearer {made['accessToken']}"}
    await api.http.get("/v1/me/export", headers=bearer)
    wrong = {"email": person["email"], "password": "a wrong password"}
    await api.http.post("/v1/sessions", json=wrong)
    await api.http.post("/v1/sessions/refresh", json={"refreshToken": made["refreshToken"]})
    await api.http.post("/v1/sessions/refresh", json={"refreshToken": made["refreshToken"]})
    factor = await api.http.post(
        "/v1/accounts/me/second-factor", json={"password": person["password"]}, headers=bearer
    )
    key = await api.http.post(
        "/v1/api-keys", json={"name": "x", "scope": "viewer"}, headers=api.as_organiser
    )
    secret = key.json()["key"]
    await api.http.get("/v1/statements", headers={"Authorization": f"Bearer {secret}"})
    traces.end()
    said = records.getvalue() + "".join(
        f"{span.name} {dict(span.attributes or {})} {[event.attributes for event in span.events]}"
        for span in collector.spans
    )
    assert "/v1/accounts/confirm" in said
    assert collector.spans
    for private in (
        "ada@",
        "Ada",
        "lovelace",
        "wrong password",
        made["accountId"],
        made["accessToken"],
        made["refreshToken"],
        link,
        factor.json()["secret"],
        secret,
    ):
        assert private not in said, private
