"""Those who look on: dashboards, seat maps, and thousands of connections that are simply open."""

import asyncio
import contextlib
import random
from collections.abc import Coroutine
from itertools import repeat
from time import monotonic

import msgspec

from scripts import token
from scripts.benchmark.connection import Broken, Connection, Feed, connect, get, handshake
from scripts.benchmark.fans import CONNECTIONS, connections, hold_requests
from scripts.benchmark.figures import (
    Figures,
    Stopwatch,
    latencies,
    memory_megabytes,
    percentile,
)
from scripts.benchmark.loads import Load, Outcome
from ticketing import clock, holds, mongo, seats
from ticketing.holds import Hold, HoldRequest
from ticketing.settings import Settings

_CATCH_UP_SECONDS_MAX = 15.0
_OPENED_AT_ONCE = 100
_OPEN_SECONDS_MAX = 60.0
_LATE_SECONDS_MAX = 15.0
# Longer than any benchmark: nothing lapses meanwhile.
_HOLD_SECONDS = 3_600


class _Counts(msgspec.Struct):
    created: int


class _Dashboard(msgspec.Struct):
    holds: _Counts


class _TimedFeed(Feed):
    """Keeps when each count of holds was first shown."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[tuple[float, int]] = []

    def received(self, text: bytes) -> None:
        super().received(text)
        self.shown.append((monotonic(), msgspec.json.decode(text, type=_Dashboard).holds.created))


class DashboardLag(Load, kw_only=True):
    """An organiser watches while fans hold every seat of the event as fast as they can."""

    event_id: str
    seat_count: int
    organiser: str

    async def run(self, settings: Settings, stopwatch: Stopwatch) -> Outcome:
        """The time from the answer to the n-th hold to the first document that counts n holds."""
        waiting = iter(hold_requests(settings, self.event_id, self.seat_count, 1))
        opened = await connections(settings, CONNECTIONS)
        feed = await _open_feed(settings, self.event_id, self.organiser)
        answered: list[float] = []

        async def hold_each(connection: Connection, give_up_at: float) -> None:
            for request in waiting:
                if monotonic() > give_up_at:
                    return
                status, _ = await connection.ask(request)
                if status == 201:
                    answered.append(monotonic())

        with stopwatch.running():
            give_up_at = monotonic() + self.seconds_max
            await asyncio.gather(*(hold_each(one, give_up_at) for one in opened))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CATCH_UP_SECONDS_MAX):
                while feed.shown[-1][1] < len(answered):
                    feed.arrived.clear()
                    await feed.arrived.wait()
        feed.close()
        for one in opened:
            one.close()
        lags: list[float] = []
        for at, count in feed.shown:
            for answered_at in answered[len(lags) : count]:
                # A document may count a hold before the fan has read the answer.
                lags.append(max(0.0, at - answered_at))  # noqa: PERF401 - grows what is sliced
        return Outcome(
            {
                "holdsPerSecond": len(answered) / stopwatch.seconds,
                "documents": feed.received_count,
                "holdsNeverShown": len(answered) - len(lags),
                **latencies(lags, "lag"),
            }
        )


async def _open_feed(settings: Settings, event_id: str, organiser: str) -> _TimedFeed:
    loop = asyncio.get_running_loop()
    pass_ = token.make(settings, role="organiser", subject=organiser, hours=1)
    _, feed = await loop.create_connection(_TimedFeed, "127.0.0.1", settings.port)
    await feed.open(handshake(f"/v1/events/{event_id}/dashboard/live", pass_))
    await feed.arrived.wait()
    return feed


class Availability(Load, kw_only=True):
    """Fans poll the seat map of a large event while another process sells its seats.

    The seller here uses the same functions as an API process but is not the one that answers: what
    it sells reaches the answers as it does between the processes of a fleet.
    """

    event_id: str
    seat_count: int
    phase_seconds: float
    holds_per_second: int = 300

    async def run(self, settings: Settings, stopwatch: Stopwatch) -> Outcome:
        """Empty answers and seat maps in turns, so that both meet the same machine."""
        opened = await connections(settings, CONNECTIONS // 2)
        client = await mongo.connect(settings)
        path = f"/v1/events/{self.event_id}/availability"
        maps = {
            coding: get(path, headers=f"Accept-Encoding: {coding}\r\n")
            for coding in ("zstd", "gzip", "identity")
        }
        empty = get("/health/live")
        began = monotonic()
        await opened[0].ask(maps["zstd"])
        figures: Figures = {"firstAnswerMilliseconds": (monotonic() - began) * 1_000}
        sale = _ForeignSale(client.database, self.event_id, self.seat_count, self.holds_per_second)
        probe = await connect(settings.port)
        stale: list[float] = []
        selling = asyncio.create_task(sale.go_on())
        probing = asyncio.create_task(sale.probe(probe, maps["identity"], stale))
        rates: dict[str, list[float]] = {"empty": [], **{coding: [] for coding in maps}}
        map_seconds: list[float] = []
        sizes: Figures = {}
        with stopwatch.running():
            for _ in range(2):
                for name, request in (("empty", empty), *maps.items()):
                    seconds, size = await _poll(opened, request, self.phase_seconds)
                    rates[name].append(len(seconds) / self.phase_seconds)
                    sizes[name] = size
                    map_seconds += seconds if name == "zstd" else []
        for task in (selling, probing):
            task.cancel()
        await asyncio.gather(selling, probing, return_exceptions=True)
        await client.close()
        for one in (*opened, probe):
            one.close()
        mean = {name: sum(measured) / len(measured) for name, measured in rates.items()}
        return Outcome(
            {
                **figures,
                "answersPerSecond": mean["zstd"],
                "emptyAnswersPerSecond": mean["empty"],
                "gzipAnswersPerSecond": mean["gzip"],
                "identityAnswersPerSecond": mean["identity"],
                **{f"{coding}Bytes": sizes[coding] for coding in maps},
                **latencies(map_seconds),
                "stalenessP50Milliseconds": percentile(stale, 0.5) * 1_000,
                "stalenessP99Milliseconds": percentile(stale, 0.99) * 1_000,
                "probes": len(stale),
                "seatsSoldMeanwhile": len(sale.held_at),
            }
        )


async def _poll(
    opened: list[Connection], request: bytes, seconds: float
) -> tuple[list[float], int]:
    """Ask on every connection for so long; how long each answer took, and the last one's size."""
    taken: list[float] = []
    size = 0

    async def ask(connection: Connection) -> None:
        nonlocal size
        end = monotonic() + seconds
        while (began := monotonic()) < end:
            status, body = await connection.ask(request)
            if status != 200:
                raise Broken(f"answered {status}")
            taken.append(monotonic() - began)
            size = len(body)

    await asyncio.gather(*(ask(one) for one in opened))
    return taken, size


class _States(msgspec.Struct):
    states: str


class _SeatMap(msgspec.Struct):
    sections: list[_States]


class _ForeignSale:
    """Holds seats here and there, each known by its turn, so that a map tells how old it is."""

    def __init__(
        self, database: mongo.Database, event_id: str, seat_count: int, holds_per_second: int
    ) -> None:
        self._database = database
        self._event_id = event_id
        self._group_size = max(1, holds_per_second // 10)
        self._order = list(range(seat_count))
        random.Random(1).shuffle(self._order)  # noqa: S311
        self.held_at: list[float] = []
        """When the hold of each seat was known to be durable, in the order of the holds."""

    async def go_on(self) -> None:
        """Hold seats until cancelled or sold out."""
        next_at = monotonic()
        while len(self.held_at) + self._group_size <= len(self._order):
            first = len(self.held_at)
            wishes = [
                HoldRequest(
                    self._event_id,
                    f"fan_foreign_{ordinal}",
                    (seats.seat_id(self._event_id, ordinal),),
                )
                for ordinal in self._order[first : first + self._group_size]
            ]
            placed = await holds.place(
                self._database, wishes, hold_seconds=_HOLD_SECONDS, now=clock.now()
            )
            assert all(isinstance(hold, Hold) for hold in placed)
            self.held_at += [monotonic()] * len(placed)
            next_at += 0.1
            await asyncio.sleep(max(0.0, next_at - monotonic()))

    async def probe(self, connection: Connection, request: bytes, stale: list[float]) -> None:
        """Look at the map now and then: the age of the oldest hold that it does not show yet."""
        shown = 0
        while True:
            _, body = await connection.ask(request)
            seen_at = monotonic()
            parts = msgspec.json.decode(body, type=_SeatMap).sections
            states = "".join(part.states for part in parts)
            while shown < len(self.held_at) and states[self._order[shown]] == "h":
                shown += 1
            missing = shown < len(self.held_at)
            stale.append(max(0.0, seen_at - self.held_at[shown]) if missing else 0.0)
            await asyncio.sleep(0.02)


async def _within(seconds_max: float, *work: Coroutine[None, None, None]) -> None:
    """Do all of it at once, or as much as there is time for."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds_max):
            await asyncio.gather(*work)


class Connected(Load, kw_only=True):
    """Thousands of open connections: dashboards, and fans who hold a seat or look at the map."""

    event_id: str
    seat_count: int
    organiser: str
    connection_count: int
    dashboard_count: int
    watch_seconds: float

    async def run(self, settings: Settings, stopwatch: Stopwatch) -> Outcome:
        """Open all, keep all busy for a while, and see that none was lost."""
        errors = 0
        feeds: list[Feed] = []
        asking: list[Connection] = []
        gate = asyncio.Semaphore(_OPENED_AT_ONCE)

        async def open_feed() -> None:
            nonlocal errors
            async with gate:
                try:
                    feeds.append(await _open_feed(settings, self.event_id, self.organiser))
                except (OSError, Broken):
                    errors += 1

        async def open_connection() -> None:
            nonlocal errors
            async with gate:
                try:
                    connection = await connect(settings.port)
                    # The kernel opens connections that the server never gets to see when they come
                    # faster than it takes them; an answer shows that this one is taken.
                    await connection.ask(look)
                    asking.append(connection)
                except (OSError, Broken):
                    errors += 1

        seconds: list[float] = []

        async def ask(connection: Connection, request: bytes, delay: float) -> None:
            nonlocal errors
            await asyncio.sleep(delay)
            began = monotonic()
            try:
                status, _ = await connection.ask(request)
            except Broken:
                status = 0
            seconds.append(monotonic() - began)
            errors += status not in (200, 201)

        path = f"/v1/events/{self.event_id}/availability"
        look = get(path, headers="Accept-Encoding: zstd\r\n")
        requests = [
            *hold_requests(settings, self.event_id, self.seat_count, 1),
            *repeat(look, self.connection_count),
        ]
        chance = random.Random(1)  # noqa: S311
        with stopwatch.running():
            await _within(
                _OPEN_SECONDS_MAX,
                *(open_feed() for _ in range(self.dashboard_count)),
                *(open_connection() for _ in range(self.connection_count - self.dashboard_count)),
            )
            await _within(
                self.watch_seconds + _LATE_SECONDS_MAX,
                *(
                    ask(one, request, chance.uniform(0, self.watch_seconds))
                    for one, request in zip(asking, requests, strict=False)
                ),
            )
            # Long enough for the last change to come to every dashboard.
            await asyncio.sleep(2.0)
        unanswered = len(asking) - len(seconds)
        errors += unanswered
        errors += sum(not feed.is_open for feed in feeds)
        latest = {feed.latest for feed in feeds}
        memory = sum(map(memory_megabytes, stopwatch.processes["Api"]))
        for connection in asking:
            connection.close()
        for feed in feeds:
            feed.close()
        return Outcome(
            {
                "connections": len(asking) + len(feeds),
                "dashboards": len(feeds),
                "errors": errors,
                "apiMegabytes": memory,
                "documents": sum(feed.received_count for feed in feeds),
                "dashboardsBehind": len(latest) - 1,
                **latencies(seconds),
            }
        )
