"""Each process works with its own database user over TLS, and that user may do no more."""

import asyncio
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pymongo
import pytest
import trustme
from cryptography import x509
from pymongo.errors import OperationFailure, PyMongoError

from indexes import privileges
from scripts import replica_set
from tests.routes.conftest import Api, Application, running
from ticketing import mongo
from ticketing.api.application import create_application
from ticketing.mongo import Document
from ticketing.settings import Settings
from workers import archive, audit, changes, deliver, payments, release
from workers.metrics import Metrics

START_SECONDS_MAX = 30
DATABASE = "ticketing"
PASSWORD = secrets.token_urlsafe(24)


@dataclass
class Locked:
    """A mongod that lets in nobody without TLS and a user of its own."""

    port: int
    folder: Path

    def uri(self, user: str | None, **options: str) -> str:
        who = "" if user is None else f"{quote(user)}:{PASSWORD}@"
        given = {"replicaSet": "rs0", "tls": "true", "tlsCAFile": str(self.folder / "ca.pem")}
        listed = "&".join(f"{name}={quote(value)}" for name, value in (given | options).items())
        return f"mongodb://{who}127.0.0.1:{self.port}/?{listed}"

    @property
    def by_certificate(self) -> str:
        return self.uri(
            None,
            authMechanism="MONGODB-X509",
            tlsCertificateKeyFile=str(self.folder / "client.pem"),
        )

    def settings(self, uri: str) -> Settings:
        return Settings.from_environment(
            {"TICKETING_MONGODB_URI": uri, "TICKETING_DATABASE": DATABASE}
        )

    def run(self, module: str, *arguments: str, user: str = "root") -> str:
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            env=os.environ
            | {
                "TICKETING_MONGODB_URI": self.uri(user),
                "TICKETING_DATABASE": DATABASE,
                "THE_PASSWORD": PASSWORD,
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def _certificates(folder: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    server = authority.issue_cert("127.0.0.1", "localhost")
    server.private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    client = authority.issue_cert(common_name="api.tickets.example")
    client.private_key_and_cert_chain_pem.write_to_path(str(folder / "client.pem"))
    key = folder / "keyfile"
    key.write_text(secrets.token_hex(300))
    key.chmod(0o600)


@pytest.fixture(scope="module")
def locked() -> Iterator[Locked]:
    with tempfile.TemporaryDirectory(prefix="ticketing-roles-") as name:
        folder = Path(name)
        _certificates(folder)
        (folder / "data").mkdir()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        process = subprocess.Popen(
            [
                replica_set.find_mongod(),
                *("--replSet", "rs0", "--bind_ip", "127.0.0.1", "--port", str(port)),
                *("--dbpath", str(folder / "data"), "--nounixsocket", "--quiet"),
                *("--logpath", str(folder / "mongod.log"), "--wiredTigerCacheSizeGB", "0.25"),
                *("--auth", "--keyFile", str(folder / "keyfile")),
                *("--tlsMode", "requireTLS", "--tlsCAFile", str(folder / "ca.pem")),
                *("--tlsCertificateKeyFile", str(folder / "server.pem")),
                "--tlsAllowConnectionsWithoutCertificates",
            ],
        )
        server = Locked(port, folder)
        try:
            _begin(server)
            yield server
        finally:
            process.terminate()
            process.wait(30)


def _begin(server: Locked) -> None:
    """The first user, by the exception for who sits at the machine; then all as a person does."""
    alone = server.uri(None, directConnection="true").replace("replicaSet=rs0&", "")
    give_up_at = time.monotonic() + START_SECONDS_MAX
    with pymongo.MongoClient[Document](alone, serverSelectionTimeoutMS=2_000) as client:
        while True:
            with suppress(PyMongoError):
                client.admin.command("ping")
                break
            assert time.monotonic() < give_up_at, (server.folder / "mongod.log").read_text()[-2000:]
        member = {"_id": 0, "host": f"127.0.0.1:{server.port}"}
        client.admin.command("replSetInitiate", {"_id": "rs0", "members": [member]})
        while not client.admin.command("hello")["isWritablePrimary"]:
            assert time.monotonic() < give_up_at
            time.sleep(0.1)
        client.admin.command("createUser", "root", pwd=PASSWORD, roles=["root"])
    server.run("scripts.roles", "apply")
    for process in privileges.PROCESSES:
        how = ("--role", process, "--password-env", "THE_PASSWORD")
        server.run("scripts.roles", "user", process, *how)
    certificate = x509.load_pem_x509_certificate((server.folder / "client.pem").read_bytes())
    subject = certificate.subject.rfc4514_string()
    server.run("scripts.roles", "user", subject, "--role", "api", "--x509")
    server.run("scripts.indexes", "apply", user="indexes")


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[Api]:
    """The application with its own database user."""
    applications: list[Application] = []

    async def deliver_to_it(scope: Any, receive: Any, send: Any) -> None:
        await applications[0](scope, receive, send)

    delivering = httpx.AsyncClient(transport=httpx.ASGITransport(app=deliver_to_it))
    client = await mongo.connect(settings)
    application = create_application(settings, client, delivering)
    applications.append(application)
    transport = httpx.ASGITransport(app=application, raise_app_exceptions=False)
    async with (
        running(application),
        httpx.AsyncClient(transport=transport, base_url="http://testserver") as http,
    ):
        yield Api(application, http, settings)
    await client.close()


async def everything_people_do(api: Api) -> str:
    """Sales, accounts, teams, money: every kind of request that writes; the event's id."""
    event_id = await api.sale()
    order = await api.confirmed_order(event_id, 0, 1)
    other = await api.confirmed_order(event_id, 2)
    await api.order(event_id, 3)
    held = await api.hold(event_id, 4)
    asked: list[tuple[str, str, Any, dict[str, str], int]] = [
        ("DELETE", f"/v1/holds/{held['holdId']}", None, api.as_fan, 204),
        ("PUT", "/v1/me", {"name": "Zoë", "email": "z@example.org"}, api.as_fan, 200),
        ("GET", "/v1/me/tickets", None, api.as_fan, 200),
        ("GET", "/v1/me/orders", None, api.as_fan, 200),
        ("GET", "/v1/me/export", None, api.as_fan, 200),
        ("POST", f"/v1/orders/{other['orderId']}/cancel", None, api.as_fan, 200),
        (
            "POST",
            f"/v1/orders/{order['orderId']}/refunds",
            {"seatIds": [f"{event_id}:00000"]},
            api.as_organiser,
            201,
        ),
        ("POST", f"/v1/events/{event_id}/move", {"venueName": "There"}, api.as_organiser, 200),
        ("PUT", f"/v1/admin/events/{event_id}/fees", {"perSeat": 1}, api.as_admin, 200),
        ("GET", f"/v1/events/{event_id}/dashboard", None, api.as_organiser, 200),
        ("GET", f"/v1/events/{event_id}/statement", None, api.as_organiser, 200),
        ("GET", f"/v1/events/{event_id}/refunds", None, api.as_organiser, 200),
        ("GET", f"/v1/events/{event_id}/seats", None, {}, 200),
        ("PUT", "/v1/team/org_b", {"role": "viewer"}, api.as_organiser, 200),
        ("DELETE", "/v1/team/org_b", None, api.as_organiser, 204),
        ("POST", "/v1/api-keys", {"name": "x", "scope": "viewer"}, api.as_organiser, 201),
        ("POST", "/v1/webhooks", {"url": "https://example.org/"}, api.as_organiser, 201),
        ("GET", "/v1/audit-log", None, api.as_organiser, 200),
        ("POST", "/v1/guests", {"name": "G", "email": "g@example.org"}, {}, 201),
        (
            "POST",
            "/v1/accounts",
            {"email": "a@example.org", "password": "a long password", "name": "A"},
            {},
            202,
        ),
        ("POST", "/v1/sessions", {"email": "a@example.org", "password": "x"}, {}, 401),
        ("POST", "/v1/me/erasure", {}, api.as_other_fan, 204),
        ("GET", "/v1/sandbox/switches", None, api.as_admin, 200),
        ("GET", "/health/ready", None, {}, 200),
        ("GET", "/metrics", None, {}, 200),
    ]
    for method, path, body, headers, status in asked:
        answer = await api.http.request(method, path, json=body, headers=headers)
        assert answer.status_code == status, (path, answer.text)
    return event_id


async def until(holds: Callable[[], Any]) -> None:
    for _ in range(600):
        if await holds():
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"it never {holds.__name__}")


LOOPS = {
    "release": release.run,
    "payments": payments.run,
    "deliver": deliver.run,
    "changes": changes.run,
    "audit": audit.run,
    "archive": archive.run,
}


async def test_every_process_does_its_work_with_its_own_user_over_tls(
    locked: Locked, caplog: pytest.LogCaptureFixture
) -> None:
    stopping = asyncio.Event()
    running_workers = [
        asyncio.create_task(
            loop(
                replace(locked.settings(locked.uri(process)), hold_seconds=1),
                Metrics(process),
                stopping,
            )
        )
        for process, loop in LOOPS.items()
    ]
    root = await mongo.connect(locked.settings(locked.uri("root")))
    try:
        by_certificate = locked.settings(locked.by_certificate)
        async with serving(by_certificate) as api:
            await api.confirmed_order(await api.sale(), 0)
        async with serving(replace(locked.settings(locked.uri("api")), hold_seconds=4)) as api:
            event_id = await everything_people_do(api)

            async def is_counted() -> bool:
                answer = await api.http.get(
                    f"/v1/events/{event_id}/dashboard", headers=api.as_organiser
                )
                counted = answer.json()["orders"]
                return bool(counted["confirmed"] == 1 and counted["expired"] == 1)

            await until(is_counted)

            async def is_refunded() -> bool:
                done = {"eventId": event_id, "status": "done"}
                return await root.database.refunds.count_documents(done) == 2

            await until(is_refunded)
            cancelled = await api.http.post(
                f"/v1/events/{event_id}/cancel", headers=api.as_organiser
            )
            assert cancelled.status_code == 200

            async def is_called_off() -> bool:
                job = await root.database.jobs.find_one({"eventId": event_id})
                return bool(job and job["status"] == "done")

            await until(is_called_off)

        async def is_spread_and_audited() -> bool:
            waiting = await root.database.outbox.count_documents({"pending": True})
            return waiting == 0 and await root.database.audits.find_one() is not None

        await until(is_spread_and_audited)
    finally:
        stopping.set()
        await asyncio.wait(running_workers, timeout=20)
        await root.close()
    assert [task.exception() for task in running_workers] == [None] * len(LOOPS)
    refused = [record for record in caplog.records if "OperationFailure" in record.getMessage()]
    assert refused == []


@pytest.mark.parametrize(
    ("user", "collection", "action"),
    [
        ("api", "ledger", "remove"),
        ("api", "ledger", "update"),
        ("api", "outbox", "remove"),
        ("api", "audit_log", "remove"),
        ("api", "orders", "remove"),
        ("api", "heartbeats", "insert"),
        ("release", "events", "insert"),
        ("release", "accounts", "find"),
        ("release", "fans", "find"),
        ("payments", "accounts", "find"),
        ("deliver", "orders", "update"),
        ("deliver", "sessions", "find"),
        ("changes", "orders", "update"),
        ("audit", "orders", "update"),
        ("audit", "fans", "find"),
        ("archive", "fans", "find"),
        ("archive", "ledger", "remove"),
        ("backup", "orders", "insert"),
        ("indexes", "orders", "remove"),
    ],
)
def test_a_process_is_refused_what_it_need_not_do(
    locked: Locked, user: str, collection: str, action: str
) -> None:
    with pymongo.MongoClient[Document](locked.uri(user)) as client:
        found = client[DATABASE][collection]
        attempts: dict[str, Callable[[], Any]] = {
            "find": found.find_one,
            "insert": lambda: found.insert_one({"_id": "x"}),
            "update": lambda: found.update_many({}, {"$set": {"x": 1}}),
            "remove": lambda: found.delete_many({"_id": "nobody"}),
        }
        with pytest.raises(OperationFailure) as refused:
            attempts[action]()
        assert refused.value.code == 13


@pytest.mark.parametrize("user", sorted(privileges.PROCESSES))
def test_nobody_drops_a_collection_or_sees_users_or_other_databases(
    locked: Locked, user: str
) -> None:
    with pymongo.MongoClient[Document](locked.uri(user)) as client:
        for attempt in (
            client[DATABASE].orders.drop,
            lambda: client.drop_database(DATABASE),
            client.admin["system.users"].find_one,
            client["other"].things.find_one,
            lambda: client.admin.command("createUser", "x", pwd="x" * 20, roles=["root"]),
            lambda: client.admin.command("shutdown"),
        ):
            with pytest.raises(OperationFailure) as refused:
                attempt()
            assert refused.value.code == 13


def test_without_tls_or_a_user_nobody_gets_in(locked: Locked) -> None:
    quick = {"serverSelectionTimeoutMS": 1_500}
    plain = f"mongodb://api:{PASSWORD}@127.0.0.1:{locked.port}/?directConnection=true"
    with (
        pymongo.MongoClient[Document](plain, **quick) as client,
        pytest.raises(PyMongoError),
    ):
        client[DATABASE].orders.find_one()
    with (
        pymongo.MongoClient[Document](locked.uri(None), **quick) as client,
        pytest.raises(OperationFailure) as refused,
    ):
        client[DATABASE].orders.find_one()
    assert refused.value.code == 13


def test_the_roles_are_as_declared_and_a_difference_is_told(locked: Locked) -> None:
    assert locked.run("scripts.roles", "plan") == "[]\n"
    with pymongo.MongoClient[Document](locked.uri("root")) as client:
        role = privileges.role_name(DATABASE, "release")
        client.admin.command("updateRole", role, privileges=[], roles=[])
    changed = subprocess.run(
        [sys.executable, "-m", "scripts.roles", "plan"],
        env=os.environ
        | {"TICKETING_MONGODB_URI": locked.uri("root"), "TICKETING_DATABASE": DATABASE},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert changed.returncode == 1
    assert '"role": "ticketing_release"' in changed.stdout
    assert "Changed the role ticketing_release." in locked.run("scripts.roles", "apply")
    assert locked.run("scripts.roles", "plan") == "[]\n"


def test_a_short_password_makes_no_user(locked: Locked) -> None:
    answer = subprocess.run(
        [
            *(sys.executable, "-m", "scripts.roles", "user", "x"),
            *("--role", "api", "--password-env", "SHORT"),
        ],
        env=os.environ | {"TICKETING_MONGODB_URI": locked.uri("root"), "SHORT": "x"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 1
    assert answer.stderr.startswith("SHORT must hold a password")
