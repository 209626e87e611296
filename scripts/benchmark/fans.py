"""Fans by the thousand: each with a token of their own, all with requests ready to send."""

import asyncio
import random
from collections.abc import Iterator, Mapping
from time import monotonic

import msgspec

from scripts import token
from scripts.benchmark.connection import Answer, Connection, connect, get, member, post
from scripts.benchmark.figures import Figures, Stopwatch, latencies
from scripts.benchmark.loads import Load, Outcome
from ticketing import clock, gateway, identifiers, seats
from ticketing.settings import Settings, webhook_key

CONNECTIONS = 64
# A purchase is four requests and mostly waiting, so more fans buy at once than would hold at once.
BUYERS = 176
_WEBHOOK = "/v1/payments/webhooks/sandbox"


def fan_tokens(settings: Settings, count: int) -> list[str]:
    """A token for each of so many new fans."""
    crowd = identifiers.fresh("fan")
    return [
        token.make(settings, role="fan", subject=f"{crowd}_{index}", hours=1)
        for index in range(count)
    ]


def seat_groups(event_id: str, seat_count: int, size: int) -> list[list[str]]:
    """All seats of an event in groups of neighbours, the groups in no order."""
    groups = [
        [seats.seat_id(event_id, ordinal) for ordinal in range(first, first + size)]
        for first in range(0, seat_count - size + 1, size)
    ]
    random.Random(1).shuffle(groups)  # noqa: S311
    return groups


async def connections(settings: Settings, count: int) -> list[Connection]:
    """So many open connections to the service."""
    return [await connect(settings.port) for _ in range(count)]


def other_answers(by_status: Mapping[int, int]) -> Figures:
    """How many answers were not what the scenario is about, and which they were."""
    named = {f"answers{status}": float(count) for status, count in by_status.items()}
    return {"otherAnswers": sum(by_status.values()), **named}


class Hold(Load, kw_only=True):
    """Each fan holds seats that nobody else wants, over 64 connections, as fast as they can."""

    event_id: str
    seat_count: int
    hold_count: int | None = None
    seats_per_hold: int = 1
    connections: int = CONNECTIONS

    async def run(self, settings: Settings, stopwatch: Stopwatch) -> Outcome:
        """Make so many holds, or as many as the event has seats or there is time for."""
        requests = hold_requests(
            settings, self.event_id, self.seat_count, self.seats_per_hold, self.hold_count
        )
        opened = await connections(settings, self.connections)
        seconds: list[float] = []
        statuses: dict[int, int] = {}
        with stopwatch.running():
            give_up_at = monotonic() + self.seconds_max
            waiting = iter(requests)
            await asyncio.gather(
                *(_hold_each(one, waiting, seconds, statuses, give_up_at) for one in opened)
            )
        held = statuses.pop(201, 0)
        for one in opened:
            one.close()
        return Outcome(
            {
                "holdsPerSecond": held / stopwatch.seconds,
                "seatsPerSecond": held * self.seats_per_hold / stopwatch.seconds,
                **latencies(seconds),
                **other_answers(statuses),
            }
        )


def hold_requests(
    settings: Settings,
    event_id: str,
    seat_count: int,
    seats_per_hold: int,
    hold_count: int | None = None,
) -> list[bytes]:
    """The requests to hold an event's seats, or some of them, each by a fan of its own."""
    groups = seat_groups(event_id, seat_count, seats_per_hold)[:hold_count]
    path = f"/v1/events/{event_id}/holds"
    return [
        post(path, msgspec.json.encode({"seatIds": group}), pass_)
        for group, pass_ in zip(groups, fan_tokens(settings, len(groups)), strict=True)
    ]


async def _hold_each(
    connection: Connection,
    waiting: Iterator[bytes],
    seconds: list[float],
    statuses: dict[int, int],
    give_up_at: float,
) -> None:
    for request in waiting:
        began = monotonic()
        if began > give_up_at:
            return
        status, _ = await connection.ask(request)
        seconds.append(monotonic() - began)
        statuses[status] = statuses.get(status, 0) + 1


STEPS = ("hold", "order", "webhook", "ticket")


class Purchase(Load, kw_only=True):
    """Each fan holds a seat, orders it, pays, and looks at the ticket."""

    event_id: str
    seat_count: int
    seats_per_hold: int = 1
    connections: int = BUYERS

    async def run(self, settings: Settings, stopwatch: Stopwatch) -> Outcome:
        """Sell every seat of the event, or as many as there is time for."""
        groups = seat_groups(self.event_id, self.seat_count, self.seats_per_hold)
        buyers = iter(zip(groups, fan_tokens(settings, len(groups)), strict=True))
        counter = Counter(settings, self.event_id)
        opened = await connections(settings, self.connections)

        async def serve(connection: Connection, give_up_at: float) -> None:
            for group, pass_ in buyers:
                if monotonic() > give_up_at:
                    return
                wish = msgspec.json.encode({"seatIds": group})
                await counter.buy(connection, pass_, wish)

        with stopwatch.running():
            give_up_at = monotonic() + self.seconds_max
            await asyncio.gather(*(serve(one, give_up_at) for one in opened))
        for one in opened:
            one.close()
        bought = len(counter.confirmed)
        figures = {"purchasesPerSecond": bought / stopwatch.seconds}
        for step in STEPS:
            figures |= latencies(counter.seconds[step], step)
        return Outcome(figures | other_answers(counter.refusals), {"orders": counter.confirmed})


class Counter:
    """Where fans buy: it makes the four requests of a purchase and takes the time of each."""

    def __init__(self, settings: Settings, event_id: str) -> None:
        self._key = webhook_key(settings)
        self._hold_path = f"/v1/events/{event_id}/holds"
        self.seconds: dict[str, list[float]] = {step: [] for step in STEPS}
        self.refusals: dict[int, int] = {}
        self.confirmed: list[str] = []

    async def buy(self, connection: Connection, pass_: str, wish: bytes) -> bool:
        """One whole purchase; False where it was refused."""
        status, hold = await self._ask(connection, "hold", post(self._hold_path, wish, pass_))
        if status != 201:
            return False
        body = b'{"holdId":"' + member(hold, b"holdId") + b'"}'
        status, order = await self._ask(connection, "order", post("/v1/orders", body, pass_))
        if status != 201:
            return False
        status, _ = await self._ask(connection, "webhook", self._notice(order))
        if status != 200:
            return False
        status, shown = await self._ask(connection, "ticket", get("/v1/me/tickets", pass_))
        if status != 200 or b'"ticketId"' not in shown:
            return False
        self.confirmed.append(member(order, b"orderId").decode())
        return True

    async def _ask(self, connection: Connection, step: str, request: bytes) -> Answer:
        began = monotonic()
        answer = await connection.ask(request)
        self.seconds[step].append(monotonic() - began)
        if answer[0] >= 300:
            self.refusals[answer[0]] = self.refusals.get(answer[0], 0) + 1
        return answer

    def _notice(self, order: bytes) -> bytes:
        """The provider's notice that the order is paid, signed."""
        payment = member(order, b"paymentId").decode()
        after = order.index(b'"total":{"amount":') + len(b'"total":{"amount":')
        body = msgspec.json.encode(
            {
                "type": "payment.succeeded",
                "timestamp": clock.rfc3339(clock.now()),
                "data": {
                    "paymentId": payment,
                    "orderId": member(order, b"orderId").decode(),
                    "amount": int(order[after : order.index(b",", after)]),
                    "currency": "EUR",
                },
            }
        )
        signed = gateway.signed(self._key, f"msg_{payment}", body, clock.now())
        headers = "".join(f"{name}: {value}\r\n" for name, value in signed.items())
        return post(_WEBHOOK, body, headers=headers)


class Contend(Load, kw_only=True):
    """Far more fans than seats: each asks once for a seat of one section."""

    event_id: str
    section: str
    fan_count: int
    connections: int = CONNECTIONS

    async def run(self, settings: Settings, stopwatch: Stopwatch) -> Outcome:
        """Let every fan ask; the seats that were given out are the evidence."""
        path = f"/v1/events/{self.event_id}/holds"
        wish = msgspec.json.encode({"section": self.section, "quantity": 1})
        waiting = iter([post(path, wish, pass_) for pass_ in fan_tokens(settings, self.fan_count)])
        opened = await connections(settings, self.connections)
        seconds: dict[int, list[float]] = {}
        given: list[str] = []
        sold_out_at = 0.0

        async def ask_each(connection: Connection) -> None:
            nonlocal sold_out_at
            for request in waiting:
                began = monotonic()
                status, answer = await connection.ask(request)
                ended = monotonic()
                seconds.setdefault(status, []).append(ended - began)
                if status == 201:
                    given.append(member(answer, b"seatId").decode())
                    sold_out_at = max(sold_out_at, ended)

        began = monotonic()
        with stopwatch.running():
            await asyncio.gather(*(ask_each(one) for one in opened))
        for one in opened:
            one.close()
        won, refused = seconds.pop(201, []), seconds.pop(409, [])
        return Outcome(
            {
                "answersPerSecond": (len(won) + len(refused)) / stopwatch.seconds,
                "secondsToSoldOut": sold_out_at - began,
                "seatsGiven": len(given),
                "seatsGivenTwice": len(given) - len(set(given)),
                **latencies(won, "success"),
                **latencies(refused, "refusal"),
                **other_answers({status: len(taken) for status, taken in seconds.items()}),
            }
        )


class SellOut(Load, kw_only=True):
    """A whole event is sold, all steps, to fans who take the best seats that are left."""

    event_id: str
    sections: list[str]
    fan_count: int
    seats_per_fan: int
    connections: int = BUYERS

    async def run(self, settings: Settings, stopwatch: Stopwatch) -> Outcome:
        """Let every fan buy; the orders they were told of are the evidence."""
        buyers = iter(fan_tokens(settings, self.fan_count))
        counter = Counter(settings, self.event_id)
        opened = await connections(settings, self.connections)
        chance = random.Random(1)  # noqa: S311
        anywhere = {"quantity": self.seats_per_fan, "bestAvailable": True}
        unsatisfied = 0

        async def serve(connection: Connection, give_up_at: float) -> None:
            nonlocal unsatisfied
            for pass_ in buyers:
                if monotonic() > give_up_at:
                    return
                # A favourite section first; whoever finds it full takes what there is.
                favourite = anywhere | {"section": chance.choice(self.sections)}
                for wish in (favourite, anywhere):
                    if await counter.buy(connection, pass_, msgspec.json.encode(wish)):
                        break
                else:
                    unsatisfied += 1

        with stopwatch.running():
            give_up_at = monotonic() + self.seconds_max
            await asyncio.gather(*(serve(one, give_up_at) for one in opened))
        for one in opened:
            one.close()
        bought = len(counter.confirmed)
        full = counter.refusals.pop(409, 0)
        figures = {
            "purchasesPerSecond": bought / stopwatch.seconds,
            "seatsPerSecond": bought * self.seats_per_fan / stopwatch.seconds,
            "fansWithTickets": bought,
            "fansWithoutTickets": unsatisfied,
            "sectionsFoundFull": full,
            **other_answers(counter.refusals),
        }
        for step in STEPS:
            figures |= latencies(counter.seconds[step], step)
        return Outcome(figures, {"orders": counter.confirmed})
