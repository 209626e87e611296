"""What a running application holds: made at the start, closed at the end, one for a process."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from time import monotonic
from typing import Any, TypeVar

from litestar.connection import ASGIConnection
from pymongo.errors import PyMongoError

from ticketing import (
    api_keys,
    backlog,
    challenges,
    checkout,
    clock,
    dashboards,
    events,
    holds,
    mongo,
    orders,
    seats,
    tickets,
    vital_signs,
)
from ticketing import settings as configuration
from ticketing.accounts import Caller
from ticketing.api import answers
from ticketing.api.deliveries import Deliveries
from ticketing.api.issuer import Issuer
from ticketing.api.limits import Limits
from ticketing.api.metrics import Metrics
from ticketing.api.readiness import Readiness
from ticketing.api.seat_maps import SeatMaps
from ticketing.api.watching import Watching
from ticketing.backlog import Backlog
from ticketing.boards import Boards
from ticketing.checkout import Receipt
from ticketing.errors import Refusal
from ticketing.gateway import Notice
from ticketing.gone import Gone
from ticketing.group_commit import GroupCommit
from ticketing.holds import Hold, HoldRequest
from ticketing.mongo import Client, Database, Document
from ticketing.orders import OrderRequest
from ticketing.pages import Page
from ticketing.passwords import Passwords
from ticketing.printing import Printer
from ticketing.providers import Providers
from ticketing.recently import Recently
from ticketing.settings import Settings
from ticketing.suspicions import Suspicions
from ticketing.ticket_codes import Signer
from ticketing.tickets import PageRequest
from ticketing.vital_signs import VitalSigns

Told = TypeVar("Told")

# One group is one bulk write or one transaction: large enough to carry a flash sale, small enough
# that nobody waits long for the group before theirs.
GROUP_SIZE_MAX = 32
TRANSACTION_GROUP_SIZE_MAX = 32
PAGES_PER_READ_MAX = 16
QUEUE_SIZE_MAX = 4_000
# How old the answer to "one event" may be. Its counters follow the sale a little later anyway.
SHOWN_SECONDS = 0.2
SHOWN_EVENTS_MAX = 1_000
# How long a revoked key may still be taken by a process that has just looked at it.
API_KEY_SECONDS = 5.0
API_KEYS_REMEMBERED_MAX = 2_000
BACKLOG_SECONDS = 5.0
BACKLOG_ANSWER_SECONDS_MAX = 2.0


class Services:
    """The settings, the open client, and what runs beside the requests."""

    def __init__(
        self, settings: Settings, client: Client, deliveries: Deliveries, metrics: Metrics
    ) -> None:
        self.settings = settings
        self.client = client
        self.deliveries = deliveries
        self.providers = Providers(settings, client.database)
        self.metrics = metrics
        self.readiness = Readiness(client.database)
        self.watching = Watching(client.database, self.metrics)
        self.boards = Boards(client.database)
        self.recent_events = events.Recent(client.database)
        self.plans = seats.Plans(client.database)
        self.remembered_holds = holds.Remembered()
        self.remembered_orders = orders.Remembered()
        self.shown_events: Recently[str, answers.Event | None] = Recently(
            self._show_event, seconds=SHOWN_SECONDS, keys_max=SHOWN_EVENTS_MAX
        )
        # Scraped by several at once, and by each process of a deployment.
        self._backlog: Recently[str, Backlog] = Recently(
            lambda _: backlog.read(self.database, clock.now()), seconds=BACKLOG_SECONDS, keys_max=1
        )
        self._signs: Recently[str, VitalSigns] = Recently(
            lambda _: vital_signs.read(self.database, clock.now()),
            seconds=BACKLOG_SECONDS,
            keys_max=1,
        )
        self.trusted_proxies = configuration.trusted_proxies(settings)
        self.limits = Limits(is_on=settings.rate_limits == "on")
        self.gone = Gone(client.database, settings)
        self.suspicions = Suspicions()
        self.passwords = Passwords()
        self.issuer = Issuer(settings) if settings.oidc_issuer else None
        # A program sends its key with every request.
        self.callers_by_key: Recently[tuple[str, str], Caller | None] = Recently(
            lambda key: api_keys.caller_of(self.database, *key, clock.now),
            seconds=API_KEY_SECONDS,
            keys_max=API_KEYS_REMEMBERED_MAX,
        )
        self.seat_maps = SeatMaps(self.boards)
        self.seat_watchers = 0
        # Of WebSockets, by the address they come from.
        self.connections: Counter[str] = Counter()
        # Of live dashboards, by who watches.
        self.watched_by: Counter[str] = Counter()
        self.printer = Printer(settings.fonts)
        self.signer = Signer(
            configuration.ticket_key(settings), configuration.former_ticket_keys(settings)
        )
        self.holds: GroupCommit[HoldRequest, Hold | Refusal] = GroupCommit(
            self._place_holds,
            keys=HoldRequest.touches,
            group_size_max=GROUP_SIZE_MAX,
            queue_size_max=QUEUE_SIZE_MAX,
            in_flight_max=3,
            is_everybodys=mongo.is_outage,
        )
        self.orders: GroupCommit[OrderRequest, Document | Refusal] = GroupCommit(
            self._place_orders,
            keys=OrderRequest.touches,
            group_size_max=TRANSACTION_GROUP_SIZE_MAX,
            queue_size_max=QUEUE_SIZE_MAX,
            in_flight_max=2,
            is_everybodys=mongo.is_outage,
        )
        self.notices: GroupCommit[Notice, Receipt | Exception] = GroupCommit(
            self._receive,
            keys=checkout.touches,
            group_size_max=TRANSACTION_GROUP_SIZE_MAX,
            queue_size_max=QUEUE_SIZE_MAX,
            in_flight_max=3,
            is_everybodys=mongo.is_outage,
        )

        # Whoever has bought looks at the tickets: these reads come as thickly as the writes.
        self.ticket_pages: GroupCommit[PageRequest, Page] = GroupCommit(
            lambda requests: tickets.first_pages(self.database, requests, now=clock.now()),
            keys=lambda _: (),
            group_size_max=PAGES_PER_READ_MAX,
            queue_size_max=QUEUE_SIZE_MAX,
            in_flight_max=2,
            is_everybodys=mongo.is_outage,
        )

        for name, group in self._groups().items():
            metrics.watch_group(name, group)
        metrics.watch_boards(self.boards.staleness_seconds)

    def _groups(self) -> dict[str, GroupCommit[Any, Any]]:
        return {
            "holds": self.holds,
            "orders": self.orders,
            "notices": self.notices,
            "ticket_pages": self.ticket_pages,
        }

    @property
    def database(self) -> Database:
        """The database of this deployment."""
        return self.client.database

    async def close(self) -> None:
        """Stop what runs beside the requests; what was accepted is carried out first."""
        await self.watching.close()
        await self.deliveries.close()
        for group in self._groups().values():
            await group.drain()
        await self.providers.close()
        await self.boards.close()
        await self.printer.close()
        self.passwords.close()
        if self.issuer is not None:
            await self.issuer.close()

    # What this process has done shows on its boards at once, ahead of the change stream.

    async def _place_holds(self, requests: Sequence[HoldRequest]) -> list[Hold | Refusal]:
        outcomes = await holds.place(
            self.database,
            requests,
            hold_seconds=self.settings.hold_seconds,
            now=clock.now(),
            boards=self.boards,
            recent=self.recent_events,
            plans=self.plans,
        )
        for outcome in outcomes:
            if isinstance(outcome, Hold):
                self.remembered_holds.keep(outcome)
                self.metrics.count_hold(None)
            else:
                self.metrics.count_hold(outcome)
        return outcomes

    async def _place_orders(self, requests: Sequence[OrderRequest]) -> list[Document | Refusal]:
        outcomes = await checkout.place_orders(
            self.database,
            requests,
            now=clock.now(),
            recent=self.recent_events,
            remembered=self.remembered_holds,
        )
        for outcome in outcomes:
            if not isinstance(outcome, Refusal):
                self.remembered_orders.keep(outcome)
                if outcome["status"] == "confirmed":
                    self.metrics.orders_confirmed.inc()
                    self.mark_order(outcome, "sold")
        return outcomes

    async def _receive(self, notices: Sequence[Notice]) -> list[Receipt | Exception]:
        outcomes = await checkout.receive(
            self.database,
            notices,
            now=clock.now(),
            remembered=self.remembered_orders,
            recent=self.recent_events,
        )
        for outcome in outcomes:
            if isinstance(outcome, Receipt) and outcome.outcome == "confirmed" and outcome.order:
                self.metrics.orders_confirmed.inc()
                self.mark_order(outcome.order, "sold")
                self.suspicions.paid(outcome.order["fanId"])
        return outcomes

    async def place_hold(self, wanted: HoldRequest, address: str, payload: str | None) -> Hold:
        """The hold. Raises the refusals of holds, and ChallengeRequired."""
        if not await self._asks_for_work(wanted, address):
            return await self._counted_hold(wanted, address)
        solved = await challenges.require(
            self.database,
            self.settings,
            fan_id=wanted.fan_id,
            event_id=wanted.event_id,
            payload=payload,
            now=clock.now(),
        )
        try:
            return await self._counted_hold(wanted, address)
        except Refusal:
            # The work was done for a hold, and there is none.
            await challenges.give_back(self.database, solved)
            raise

    async def _asks_for_work(self, wanted: HoldRequest, address: str) -> bool:
        """Whether nobody would take the caller for a fan, and the event wants work of such.

        A request that was answered before gets its answer again, as its key promises.
        """
        if not self.suspicions.are_of(wanted.fan_id, address, monotonic()):
            return False
        event = (await self.recent_events.slim([wanted.event_id])).get(wanted.event_id, {})
        if not event.get("proofOfWork"):
            return False
        return wanted.key is None or not await holds.is_known(self.database, wanted)

    async def _counted_hold(self, wanted: HoldRequest, address: str) -> Hold:
        self.suspicions.asks(wanted.fan_id, address, monotonic())
        try:
            outcome = await self.holds.submit(wanted)
            if isinstance(outcome, Refusal):
                raise outcome
        except BaseException:
            self.suspicions.missed(wanted.fan_id)
            raise
        self.suspicions.got(wanted.fan_id, outcome.hold_id)
        return outcome

    async def waiting(self) -> Backlog | None:
        """What waits in the database; None if it does not answer in time."""
        return await _in_time(self._backlog)

    async def signs(self) -> VitalSigns | None:
        """How the database and the workers are; None if it does not answer in time."""
        return await _in_time(self._signs)

    async def _show_event(self, event_id: str) -> answers.Event | None:
        """What everybody sees of an event that is published; None for one that is not."""
        event = await events.find(self.database, event_id)
        if event["status"] != "published":
            return None
        counters = await dashboards.find(self.database, event_id)
        return answers.event(event, counters["seats"])

    def mark_order(self, order: Document, status: str) -> None:
        """Show on the board what became of an order's seats."""
        self.boards.mark(order["eventId"], [seat["seatId"] for seat in order["seats"]], status)


async def _in_time(recently: Recently[str, Told]) -> Told | None:
    try:
        async with asyncio.timeout(BACKLOG_ANSWER_SECONDS_MAX):
            return await recently.get("")
    except (TimeoutError, PyMongoError):
        return None


def services_of(connection: ASGIConnection[Any, Any, Any, Any]) -> Services:
    """The services of the application that answers this request."""
    services: Services = connection.app.state["services"]
    return services
