"""What compose.yaml says is known to run: each of our services is started as it is written there.

The containers are what is left out: the commands run on this machine, against a replica set here.
"""

import base64
import hashlib
import hmac
import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pymongo
import pytest
import yaml

from scripts import token
from scripts.replica_set import ReplicaSet
from tests.journeys.conftest import (
    REPOSITORY,
    Person,
    Sale,
    eventually,
    free_port,
    new_event,
    plain_environment,
    running,
)
from ticketing.settings import Settings

TEXT = (REPOSITORY / "compose.yaml").read_text()
OURS = {
    "indexes",
    "api",
    "release",
    "deliver",
    "changes",
    "payments",
    "audit",
    "archive",
    "migrations",
}
JOBS = {"indexes", "migrations"}
REACHES_OUT = {"api", "deliver", "payments"}
NODES = {"mongodb1", "mongodb2", "mongodb3"}
WEBHOOK_KEY = b"a key of this test and no other."
SECRETS = {
    "TICKETING_JWT_SECRET": "a secret of this test, long enough to be taken",
    "TICKETING_PAYMENT_WEBHOOK_SECRET": "whsec_" + base64.b64encode(WEBHOOK_KEY).decode(),
    "TICKETING_TICKET_SIGNING_SECRET": base64.b64encode(b"t" * 32).decode(),
}
_VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^${}]*))?\}")


def substituted(text: str, environment: Mapping[str, str]) -> str:
    """The file's text with its variables replaced as Compose does it, the innermost first."""

    def value(match: re.Match[str]) -> str:
        name, kind, rest = match.groups()
        if environment.get(name):
            return environment[name]
        assert kind != "?", f"{name}: {rest}"
        return rest or ""

    while (replaced := _VARIABLE.sub(value, text)) != text:
        text = replaced
    return text


def services_of(environment: Mapping[str, str]) -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load(substituted(TEXT, environment))["services"]
    return services


def in_order(services: Mapping[str, Any]) -> list[str]:
    """The services' names, each after those it waits for."""
    ordered: list[str] = []
    while len(ordered) < len(services):
        ready = [
            name
            for name, service in services.items()
            if name not in ordered and set(service.get("depends_on", ())) <= set(ordered)
        ]
        assert ready, "services that wait for each other"
        ordered += ready
    return ordered


def local(command: list[str]) -> list[str | Path]:
    """A command of the image as it is run here."""
    return [sys.executable if part == "python" else part for part in command]


def test_three_nodes_our_services_and_no_others() -> None:
    services = services_of(SECRETS)
    assert services.keys() == OURS | NODES
    assert in_order(services)[:4] == [*sorted(NODES), "indexes"]


def test_services_are_started_again_and_jobs_only_when_they_failed() -> None:
    for name, service in services_of(SECRETS).items():
        assert service["restart"] == ("on-failure" if name in JOBS else "unless-stopped"), name


@pytest.mark.parametrize("name", sorted(SECRETS))
def test_a_missing_secret_stops_the_start_with_a_sentence_that_names_it(name: str) -> None:
    with pytest.raises(AssertionError, match=f"{name}: set it to"):
        services_of({**SECRETS, name: ""})


def test_no_secret_and_no_path_of_the_host_is_in_the_file() -> None:
    for name, service in services_of(SECRETS).items():
        for volume in service.get("volumes", ()):
            assert re.fullmatch(r"\w+:/data/db", volume), name
        for variable, value in service.get("environment", {}).items():
            if not variable.startswith("TICKETING_STRIPE_"):
                assert ("SECRET" in variable) == (str(value) in SECRETS.values()), variable
            else:
                assert not value, variable


def test_the_nodes_are_reached_from_our_services_alone() -> None:
    document = yaml.safe_load(substituted(TEXT, SECRETS))
    assert document["networks"]["database"]["internal"] is True
    for name, service in document["services"].items():
        assert ("ports" in service) == (name == "api")
        outside = ["outside"] if name in REACHES_OUT else []
        assert service["networks"] == ["database", *outside]


def test_the_first_node_makes_those_nodes_a_set_that_our_services_name() -> None:
    services = services_of(SECRETS)
    uri = services["api"]["environment"]["TICKETING_MONGODB_URI"]
    (set_name,) = re.findall(r"replicaSet=(\w+)$", uri)
    hosts = uri.removeprefix("mongodb://").partition("/")[0].split(",")
    check = services["mongodb1"]["healthcheck"]["test"][-1]
    assert [host.partition(":")[0] for host in hosts] == sorted(NODES)
    assert re.findall(r'host: "([^"]+)"', check) == hosts
    assert f'_id: "{set_name}"' in check
    for node in NODES:
        assert f"--replSet={set_name}" in services[node]["command"]


def test_a_transaction_that_a_killed_process_left_open_ends_as_soon_as_in_the_embedded_set(
    replica_set: ReplicaSet,
) -> None:
    name = "transactionLifetimeLimitSeconds"
    with pymongo.MongoClient[dict[str, Any]](replica_set.uri) as client:
        seconds = client.admin.command({"getParameter": 1, name: 1})[name]
    assert seconds <= 10
    for node in NODES:
        assert f"--setParameter={name}={seconds}" in services_of(SECRETS)[node]["command"]


def test_the_image_holds_what_the_services_run_and_nothing_else() -> None:
    dockerfile = (REPOSITORY / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (\S+) ", dockerfile, re.MULTILINE)
    ignored = (REPOSITORY / ".dockerignore").read_text().splitlines()
    assert [line[1:] for line in ignored if line.startswith("!")] == copied
    for path in copied:
        assert (REPOSITORY / path).exists(), path
    assert "--require-hashes -r requirements.lock" in dockerfile
    assert re.search(r"^USER (?!root)", dockerfile, re.MULTILINE)


def test_what_the_file_starts_sells_a_ticket_and_stops_when_told(
    replica_set: ReplicaSet, tmp_path: Path
) -> None:
    port = str(free_port())
    services = services_of({**SECRETS, "TICKETING_PORT": port})
    here = {
        "TICKETING_MONGODB_URI": replica_set.uri,
        "TICKETING_DATABASE": f"compose_{uuid4().hex[:8]}",
    }
    processes: dict[str, subprocess.Popen[bytes]] = {}
    with ExitStack() as stack:
        for name in in_order({name: services[name] for name in OURS | NODES}):
            if name in NODES:
                continue
            service = services[name]
            environment = plain_environment(
                {
                    # Compose puts nothing where a variable has no value; YAML reads that as null.
                    variable: "" if value is None else str(value)
                    for variable, value in service["environment"].items()
                }
                | here
            )
            log = tmp_path / f"{name}.log"
            process = stack.enter_context(running(local(service["command"]), environment, log))
            if name in JOBS:
                assert process.wait(60) == 0, log.read_text()
            else:
                processes[name] = process
            if "healthcheck" in service:
                check = local(service["healthcheck"]["test"][1:])
                assert eventually(
                    lambda check=check, environment=environment: succeeds(check, environment),
                    seconds_max=60,
                ), log.read_text()
            elif name in processes:
                assert eventually(log.read_text, seconds_max=60), f"{name} never said that it runs"
        url = f"http://127.0.0.1:{port}"
        assert services["api"]["ports"] == [f"{port}:{port}"]
        with httpx.Client(base_url=url, trust_env=False, timeout=15) as client:
            sell_a_ticket(client)
        for name, process in processes.items():
            assert process.poll() is None, (tmp_path / f"{name}.log").read_text()
            process.terminate()
        for name, process in processes.items():
            assert process.wait(20) == 0, (tmp_path / f"{name}.log").read_text()


def succeeds(command: list[str | Path], environment: Mapping[str, str]) -> bool:
    ended = subprocess.run(command, env=dict(environment), capture_output=True, check=False)
    return ended.returncode == 0


def sell_a_ticket(client: httpx.Client) -> None:
    """A purchase whose payment is told by a provider that knows the secret."""
    settings = Settings.from_environment({**SECRETS, "TICKETING_MODE": "production"})

    def person(role: str) -> Person:
        return Person(
            client,
            role,
            f"{role}_compose",
            token.make(settings, role=role, subject=f"{role}_compose"),
        )

    organiser, fan = person("organiser"), person("fan")
    event = organiser.post("/v1/events", new_event())
    organiser.post(f"/v1/events/{event['eventId']}/publish")
    sale = Sale(event, organiser)
    order = fan.order(sale, 0, 1)
    body = json.dumps(
        {
            "type": "payment.succeeded",
            "timestamp": order["createdAt"],
            "data": {
                "paymentId": order["paymentId"],
                "orderId": order["orderId"],
                "amount": order["total"]["amount"],
                "currency": order["total"]["currency"],
            },
        }
    ).encode()
    # No sandbox in production unasked: it would give tickets for nothing.
    assert client.post(f"/v1/sandbox/payments/{order['paymentId']}/pay").status_code == 404
    path = "/v1/payments/webhooks/sandbox"
    forged = client.post(
        path, content=body, headers=signed(b"another key, not the provider's.", body)
    )
    assert (forged.status_code, fan.see(order)["status"]) == (400, "pendingPayment")
    told = client.post(path, content=body, headers=signed(WEBHOOK_KEY, body))
    assert (told.status_code, told.json()) == (200, {"received": True})
    assert fan.see(order)["status"] == "confirmed"
    assert len(fan.get("/v1/me/tickets")["items"]) == 2
    counted = sale.wait_until_counted(sold=2, held=0)
    assert counted["revenue"] == {"amount": 19_000, "currency": "EUR"}
    assert counted["orders"]["confirmed"] == 1


def signed(key: bytes, body: bytes) -> dict[str, str]:
    """The headers of a delivery, by the Standard Webhooks scheme as its specification words it."""
    sent_at = str(int(time.time()))
    text = b".".join([b"msg_compose", sent_at.encode(), body])
    signature = base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
    return {
        "webhook-id": "msg_compose",
        "webhook-timestamp": sent_at,
        "webhook-signature": f"v1,{signature}",
        "content-type": "application/json",
    }
