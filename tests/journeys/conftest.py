"""The whole service, started as a person starts it and shared by all journeys of a run."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from scripts import token
from ticketing.settings import Settings

REPOSITORY = Path(__file__).resolve().parents[2]
START_SECONDS_MAX = 150.0
STOP_SECONDS_MAX = 60.0
SETTLE_SECONDS_MAX = 15.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def plain_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The machine's environment with none of our settings but those given, and no proxy."""
    unwanted = ("TICKETING_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    kept = {
        name: value for name, value in os.environ.items() if not name.upper().startswith(unwanted)
    }
    return kept | dict(extra or {})


def eventually(true: Callable[[], object], *, seconds_max: float = SETTLE_SECONDS_MAX) -> bool:
    """Whether something becomes true within some seconds."""
    give_up_at = time.monotonic() + seconds_max
    while not true():
        if time.monotonic() > give_up_at:
            return False
        time.sleep(0.05)
    return True


@contextmanager
def running(
    command: list[str | Path], environment: Mapping[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours; at the end it is told to stop if it still runs."""
    with (
        log.open("ab") as output,
        subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


@dataclass
class Person:
    """Somebody with a token who uses the API at one address."""

    client: httpx.Client
    role: str
    subject: str
    bearer: str

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        """One request, whatever its answer."""
        return self.client.request(
            method, path, json=body, headers={"Authorization": f"Bearer {self.bearer}"} | headers
        )

    def get(self, path: str) -> Any:
        """The answer to a read that must succeed."""
        return self._success(self.ask("GET", path))

    def post(self, path: str, body: Any = None) -> Any:
        """The answer to a POST that must succeed."""
        return self._success(self.ask("POST", path, body))

    def _success(self, answer: httpx.Response) -> Any:
        assert answer.is_success, (answer.request.url, answer.status_code, answer.text)
        return answer.json()

    # --- What a fan does ---------------------------------------------------------------------

    def hold(self, sale: "Sale", *ordinals: int) -> Any:
        """Hold the seats of these places in the plan."""
        seat_ids = [sale.seat(ordinal) for ordinal in ordinals]
        return self.post(f"/v1/events/{sale.event_id}/holds", {"seatIds": seat_ids})

    def order(self, sale: "Sale", *ordinals: int) -> Any:
        """An order of these seats that waits for its payment."""
        return self.post("/v1/orders", {"holdId": self.hold(sale, *ordinals)["holdId"]})

    def pay(self, order: Any) -> Any:
        """Pay at the sandbox provider; the order afterwards."""
        answer = self.client.post(f"/v1/sandbox/payments/{order['paymentId']}/pay")
        assert answer.json()["delivered"] is True, answer.text
        return self.see(order)

    def decline(self, order: Any) -> Any:
        """Be declined at the sandbox provider; the order afterwards."""
        answer = self.client.post(f"/v1/sandbox/payments/{order['paymentId']}/decline")
        assert answer.json()["delivered"] is True, answer.text
        return self.see(order)

    def see(self, order: Any) -> Any:
        """The order as it is now."""
        return self.get(f"/v1/orders/{order['orderId']}")

    def buy(self, sale: "Sale", *ordinals: int) -> Any:
        """Hold, order and pay; the confirmed order."""
        bought = self.pay(self.order(sale, *ordinals))
        assert bought["status"] == "confirmed", bought
        return bought


@dataclass
class Sale:
    """An event on sale: section A has rows 1 and 2 of ten seats at 95.00, Floor 40 at 45.00."""

    event: Any
    organiser: Person

    @property
    def event_id(self) -> str:
        return str(self.event["eventId"])

    def seat(self, ordinal: int) -> str:
        """The seat at that place of the plan; the Floor begins at 20."""
        return f"{self.event_id}:{ordinal:05d}"

    def states(self) -> str:
        """One letter a seat, in plan order."""
        answer = self.organiser.get(f"/v1/events/{self.event_id}/availability")
        return "".join(section["states"] for section in answer["sections"])

    def dashboard(self) -> Any:
        """The counters now."""
        return self.organiser.get(f"/v1/events/{self.event_id}/dashboard")

    def wait_until_counted(self, *, seconds_max: float = SETTLE_SECONDS_MAX, **seats: int) -> Any:
        """The counters once so many seats are held, sold, available; they follow by a moment."""
        assert eventually(
            lambda: seats.items() <= self.dashboard()["seats"].items(), seconds_max=seconds_max
        ), (seats, self.dashboard())
        return self.dashboard()


@dataclass
class Service:
    """What `scripts/run` started, seen from outside."""

    url: str
    mongodb_uri: str
    data: Path
    log: Path
    clients: ExitStack
    settings: Settings = field(default_factory=lambda: Settings.from_environment({}))
    _client: httpx.Client | None = None

    @property
    def client(self) -> httpx.Client:
        """An HTTP client of this service."""
        if self._client is None:
            self._client = self.client_of(self.url)
        return self._client

    def client_of(self, url: str) -> httpx.Client:
        """An HTTP client of the API at this address, closed at the end of the run."""
        return self.clients.enter_context(httpx.Client(base_url=url, trust_env=False, timeout=15))

    def person(self, role: str, subject: str | None = None, *, at: str | None = None) -> Person:
        """Somebody new, or the one who is called so; `at` another API of the same database."""
        subject = subject or f"{role}_{uuid4().hex[:12]}"
        bearer = token.make(self.settings, role=role, subject=subject)
        return Person(self.client_of(at) if at else self.client, role, subject, bearer)

    def fan(self, *, at: str | None = None) -> Person:
        """A new fan."""
        return self.person("fan", at=at)

    def sale(self, **changes: Any) -> Sale:
        """A new organiser's event, on sale."""
        organiser = self.person("organiser")
        event = organiser.post("/v1/events", new_event(**changes))
        organiser.post(f"/v1/events/{event['eventId']}/publish")
        return Sale(event, organiser)

    def command(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """A command of the repository, on this service's database."""
        return subprocess.run(
            [REPOSITORY / arguments[0], *arguments[1:], "--data", self.data],
            env=plain_environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )


def new_event(**changes: Any) -> dict[str, Any]:
    """What an organiser sends to make an event whose sale is on."""
    now = datetime.now(UTC).replace(microsecond=0)
    return {
        "name": "The Last Waltz",
        "description": "",
        "category": "concert",
        "venueName": "Winterland",
        "timezone": "Europe/Berlin",
        "startsAt": wire(now + timedelta(days=30)),
        "saleStartsAt": wire(now - timedelta(hours=1)),
        "saleEndsAt": wire(now + timedelta(days=29)),
        "currency": "EUR",
        "maxSeatsPerFan": 8,
        "priceCategories": [{"name": "Front", "price": 9500}, {"name": "Rear", "price": 4500}],
        "sections": [
            {
                "name": "A",
                "priceCategory": "Front",
                "rows": [{"name": "1", "count": 10}, {"name": "2", "count": 10}],
            },
            {"name": "Floor", "priceCategory": "Rear", "capacity": 40},
        ],
    } | changes


def wire(instant: datetime) -> str:
    """An instant as the API takes it."""
    return instant.isoformat().replace("+00:00", "Z")


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """`scripts/run` on a free port, in an empty data folder, ready."""
    folder = tmp_path_factory.mktemp("journeys")
    port = free_port()
    log = folder / "log"
    command: list[str | Path] = [REPOSITORY / "scripts/run", "--port", str(port), "--no-demo"]
    with (
        running([*command, "--data", folder / "data"], plain_environment(), log) as process,
        ExitStack() as clients,
    ):
        assert eventually(
            lambda: "ready: " in log.read_text() or process.poll() is not None,
            seconds_max=START_SECONDS_MAX,
        )
        assert process.poll() is None, log.read_text()
        lines = log.read_text().splitlines()
        (uri,) = [line.removeprefix("MongoDB: ") for line in lines if line.startswith("MongoDB: ")]
        yield Service(f"http://127.0.0.1:{port}", uri, folder / "data", log, clients)


@pytest.fixture
def impatient(service: Service, tmp_path: Path) -> Iterator[str]:
    """The address of a second API of the same database, whose holds last two seconds."""
    port = free_port()
    environment = plain_environment(
        {
            "TICKETING_MONGODB_URI": service.mongodb_uri,
            "TICKETING_PORT": str(port),
            "TICKETING_HOLD_SECONDS": "2",
        }
    )
    url = f"http://127.0.0.1:{port}"
    log = tmp_path / "api.log"
    with running([sys.executable, "-m", "ticketing.api"], environment, log):
        assert eventually(lambda: is_ready(url), seconds_max=30), log.read_text()
        yield url


def is_ready(url: str) -> bool:
    """Whether the API there says that it can serve."""
    try:
        return httpx.get(f"{url}/health/ready", trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False
