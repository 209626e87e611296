"""A running service with everything in it, an organiser and fans who use it, and a real browser."""

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from scripts import token
from ticketing.settings import Settings

REPOSITORY = Path(__file__).parents[2]
START_SECONDS_MAX = 150
STOP_SECONDS_MAX = 60
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NO_CHROMIUM = "no Chromium on this machine: apt-get install chromium"
PHONE = {"width": 360, "height": 740}
LAPTOP = {"width": 1366, "height": 820}


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say loudly what was not tested."""
    skipped = terminalreporter.stats.get("skipped", [])
    count = sum(NO_CHROMIUM in str(report.longrepr) for report in skipped)
    if count:
        terminalreporter.write_line(
            f"{count} BROWSER TESTS WERE SKIPPED: {NO_CHROMIUM}", red=True, bold=True
        )


@dataclass
class Service:
    """What `scripts/run` started, seen from outside."""

    url: str
    process: subprocess.Popen[str]
    client: httpx.Client
    mongodb_uri: str

    def bearer(self, role: str, subject: str, *, hours: float = 1) -> str:
        """A token as the service's development secret signs it."""
        return token.make(Settings.from_environment({}), role=role, subject=subject, hours=hours)

    def call(
        self, method: str, path: str, *, role: str, subject: str, body: Any = None
    ) -> dict[str, Any]:
        """One request that must succeed."""
        headers = {"Authorization": f"Bearer {self.bearer(role, subject)}"}
        answer = self.client.request(method, path, headers=headers, json=body)
        assert answer.is_success, (method, path, answer.status_code, answer.text)
        return answer.json() if answer.content else {}

    def end_api(self) -> None:
        """End the API's process; `scripts/run` starts it again."""
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                command = (folder / "cmdline").read_bytes().split(b"\0")
                status = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if b"ticketing.api" in command and int(status[1]) == self.process.pid:
                os.kill(int(folder.name), 15)
                return
        raise AssertionError("the API's process was not found")


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory, chromium_path: Path) -> Iterator[Service]:
    """The whole service on a free port, with a database of its own."""
    folder = tmp_path_factory.mktemp("service")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("TICKETING_")
    }
    log = folder / "log"
    with ExitStack() as stack:
        process = subprocess.Popen(
            [
                REPOSITORY / "scripts/run",
                *("--port", str(port)),
                *("--data", folder / "data"),
                "--no-demo",
            ],
            env=environment,
            stdout=stack.enter_context(log.open("w")),
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        stack.callback(_stop, process)
        _wait_until_ready(process, log)
        url = f"http://127.0.0.1:{port}"
        client = stack.enter_context(httpx.Client(base_url=url, trust_env=False, timeout=15))
        [mongodb_uri] = re.findall(r"^MongoDB: (\S+)$", log.read_text(), re.MULTILINE)
        yield Service(url, process, client, mongodb_uri)


def _wait_until_ready(process: subprocess.Popen[str], log: Path) -> None:
    give_up_at = time.monotonic() + START_SECONDS_MAX
    while "ready:" not in log.read_text():
        assert process.poll() is None, f"scripts/run ended:\n{log.read_text()}"
        assert time.monotonic() < give_up_at, f"scripts/run was not ready:\n{log.read_text()}"
        time.sleep(0.1)


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise


@dataclass
class Sale:
    """An event on sale, and fans who buy from it by the API."""

    service: Service
    event_id: str
    organiser: str
    currency: str
    fans: int = 0

    @property
    def page_path(self) -> str:
        return f"/organiser/events/{self.event_id}"

    def signed_in_path(self, *, hours: float = 1) -> str:
        """The page's address as the organiser opens it."""
        bearer = self.service.bearer("organiser", self.organiser, hours=hours)
        return f"{self.page_path}#token={bearer}"

    def hold(self, quantity: int, section: str) -> dict[str, Any]:
        """A new fan holds so many seats; the hold, with the `fan` who has it."""
        self.fans += 1
        fan = f"fan_{self.event_id}_{self.fans}"
        body = {"quantity": quantity, "section": section, "bestAvailable": True}
        path = f"/v1/events/{self.event_id}/holds"
        hold = self.service.call("POST", path, role="fan", subject=fan, body=body)
        return {**hold, "fan": fan}

    def order(self, quantity: int = 2, section: str = "Floor") -> dict[str, Any]:
        """A new fan's order that waits for its payment."""
        hold = self.hold(quantity, section)
        order = self.service.call(
            "POST", "/v1/orders", role="fan", subject=hold["fan"], body={"holdId": hold["holdId"]}
        )
        return {**order, "holdId": hold["holdId"], "fan": hold["fan"]}

    def buy(self, quantity: int = 2, section: str = "Floor") -> dict[str, Any]:
        """A new fan's order, paid."""
        order = self.order(quantity, section)
        self.service.client.post(
            f"/v1/sandbox/payments/{order['paymentId']}/pay"
        ).raise_for_status()
        path = f"/v1/orders/{order['orderId']}"
        give_up_at = time.monotonic() + 10
        while True:
            paid = self.service.call("GET", path, role="fan", subject=order["fan"])
            if paid["status"] == "confirmed":
                return paid
            assert time.monotonic() < give_up_at, paid
            time.sleep(0.05)

    def wait_until_counted(self, sold: int) -> None:
        """Wait until the dashboard's document counts so many seats sold."""
        path = f"/v1/events/{self.event_id}/dashboard"
        give_up_at = time.monotonic() + 10
        while True:
            current = self.service.call("GET", path, role="organiser", subject=self.organiser)
            if current["seats"]["sold"] == sold:
                return
            assert time.monotonic() < give_up_at, current
            time.sleep(0.05)


@pytest.fixture
def make_sale(service: Service) -> Callable[..., Sale]:
    """Puts an event on sale: section A of 40 numbered seats, section Floor of 500 without."""

    def make(
        name: str = "An evening",
        *,
        currency: str = "EUR",
        price: int = 4550,
        timezone: str = "Europe/Berlin",
        sections: tuple[str, str] = ("A", "Floor"),
        venue: str = "The hall",
    ) -> Sale:
        organiser = f"organiser_{uuid4().hex[:8]}"
        now = datetime.now(UTC).replace(microsecond=0)
        numbered, general = sections

        def call(path: str, body: Any = None) -> dict[str, Any]:
            return service.call("POST", path, role="organiser", subject=organiser, body=body)

        event = call(
            "/v1/events",
            {
                "name": name,
                "description": "",
                "category": "concert",
                "venueName": venue,
                "timezone": timezone,
                "startsAt": _wire(now + timedelta(days=30)),
                "saleStartsAt": _wire(now - timedelta(hours=1)),
                "saleEndsAt": _wire(now + timedelta(days=29)),
                "currency": currency,
                "maxSeatsPerFan": 8,
                "priceCategories": [{"name": "All", "price": price}],
                "sections": [
                    {
                        "name": numbered,
                        "priceCategory": "All",
                        "rows": [{"name": "1", "count": 20}, {"name": "2", "count": 20}],
                    },
                    {"name": general, "priceCategory": "All", "capacity": 500},
                ],
            },
        )
        call(f"/v1/events/{event['eventId']}/publish")
        return Sale(service, event["eventId"], organiser, currency)

    return make


def _wire(instant: datetime) -> str:
    return instant.isoformat().replace("+00:00", "Z")


@pytest.fixture(scope="session")
def chromium_path() -> Path:
    """Where Chromium is. Without one the test is skipped, or fails where that is not allowed."""
    found = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if found is None:
        if os.environ.get("TICKETING_REQUIRE_BROWSER") == "1":
            pytest.fail(NO_CHROMIUM)
        pytest.skip(NO_CHROMIUM)
    return Path(found)


# For one module at a time: while Playwright runs, its event loop counts as the thread's running
# one, and no asynchronous test could have its own.
@pytest.fixture(scope="module")
def browser(chromium_path: Path) -> Iterator[Browser]:
    """Chromium without a window, with a fresh profile."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path, args=CHROMIUM_FLAGS)
        yield browser
        browser.close()


@dataclass
class Visit:
    """One page in a browser window of its own, and all that went wrong or outside in it."""

    page: Page
    context: BrowserContext
    errors: list[str] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)

    def forgive_lost_requests(self) -> None:
        """Drop the lines a browser itself logs for requests that this test let fail."""
        self.errors[:] = [
            error
            for error in self.errors
            if "Failed to load resource" not in error and "WebSocket connection to" not in error
        ]


@pytest.fixture
def visit(browser: Browser, service: Service) -> Iterator[Callable[..., Visit]]:
    """Opens a window, at a path of the service if one is given.

    At the end no page may have had an error or asked anybody else.
    """
    visits: list[Visit] = []

    def open_page(path: str | None = None, **options: Any) -> Visit:
        # An organiser far from the venue: the page must not show their own time.
        defaults = {"viewport": LAPTOP, "timezone_id": "Pacific/Auckland", "locale": "de-DE"}
        context = browser.new_context(base_url=service.url, **{**defaults, **options})
        context.set_default_timeout(10_000)
        page = context.new_page()
        opened = Visit(page, context)
        page.on("request", lambda request: opened.addresses.append(request.url))
        page.on("websocket", lambda websocket: opened.addresses.append(websocket.url))
        page.on("pageerror", lambda error: opened.errors.append(str(error)))
        page.on(
            "console",
            lambda line: (
                opened.errors.append(line.text) if line.type in ("error", "warning") else None
            ),
        )
        visits.append(opened)
        if path is not None:
            page.goto(path)
        return opened

    yield open_page
    for opened in visits:
        opened.context.close()
    for opened in visits:
        assert opened.errors == []
        ours = (service.url + "/", service.url.replace("http", "ws", 1) + "/")
        assert [each for each in opened.addresses if not each.startswith(ours)] == []
