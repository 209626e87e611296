"""The payment providers of this deployment, each behind a time limit and a circuit breaker."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from time import monotonic
from typing import TypeVar

from ticketing import gateway
from ticketing.errors import NotFound
from ticketing.gateway import LookedUp, Notice, Provider, ProviderUnavailable, Refunded, Started
from ticketing.mongo import Database, Document
from ticketing.sandbox import Sandbox
from ticketing.settings import Settings, webhook_key
from ticketing.stripe_payments import Stripe

FAILURES_BEFORE_OPEN = 5
OPEN_SECONDS = 5.0

Answer = TypeVar("Answer")

log = logging.getLogger("ticketing.providers")


class Breaker:
    """Stops asking a provider that has failed several times in a row.

    After OPEN_SECONDS one caller tries for all; the others go on being refused at once until that
    one has its answer. So a provider that is down costs its callers no time.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._closed_until_try = float("-inf")

    def enter(self) -> None:
        """Ask leave to call the provider. Raises ProviderUnavailable while it is held for down."""
        if self._failures < FAILURES_BEFORE_OPEN:
            return
        if self._clock() < self._closed_until_try:
            raise ProviderUnavailable("The payment provider does not answer. Try again shortly.")
        self._closed_until_try = self._clock() + OPEN_SECONDS

    def failed(self) -> None:
        """The provider did not answer."""
        self._failures += 1
        if self._failures >= FAILURES_BEFORE_OPEN:
            self._closed_until_try = self._clock() + OPEN_SECONDS

    def succeeded(self) -> None:
        """The provider answered, whatever it said."""
        self._failures = 0


class Guarded:
    """A provider whose every answer comes within the time limit or is a ProviderUnavailable."""

    def __init__(self, provider: Provider, seconds_max: float) -> None:
        self.provider = provider
        self.name = provider.name
        self._seconds_max = seconds_max
        self._breaker = Breaker()

    async def _asked(self, question: Callable[[], Awaitable[Answer]]) -> Answer:
        self._breaker.enter()
        try:
            async with asyncio.timeout(self._seconds_max):
                answer = await question()
        except ProviderUnavailable as error:
            log.warning("%s: %s", self.name, error.__cause__ or error.detail)
            self._breaker.failed()
            raise
        except TimeoutError:
            log.warning("%s: no answer within %g s", self.name, self._seconds_max)
            self._breaker.failed()
            raise ProviderUnavailable(
                "The payment provider does not answer in time. Try again shortly."
            ) from None
        self._breaker.succeeded()
        return answer

    async def start(self, payment: Document, order: Document) -> Started:
        """As the provider's method of this name; likewise the others."""
        return await self._asked(lambda: self.provider.start(payment, order))

    async def look_up(self, payment: Document) -> LookedUp:
        """What has become of a payment."""
        return await self._asked(lambda: self.provider.look_up(payment))

    async def close_page(self, payment: Document) -> None:
        """Let nobody pay a payment any more."""
        await self._asked(lambda: self.provider.close_page(payment))

    async def refund(self, payment: Document, refund: Document) -> Refunded:
        """Give back what the refund says."""
        return await self._asked(lambda: self.provider.refund(payment, refund))

    async def find_refund(self, payment: Document, refund: Document) -> Refunded | None:
        """What became of a refund that may have been sent before."""
        return await self._asked(lambda: self.provider.find_refund(payment, refund))

    def read_notice(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Notice | None:
        """The notice of a delivery."""
        return self.provider.read_notice(headers, body, now)


class Providers:
    """All providers that are set up, and the one new payments go to (`chosen`).

    The sandbox is always among them: its webhook takes whatever is signed with the secret.
    """

    def __init__(self, settings: Settings, database: Database) -> None:
        self.sandbox = Sandbox(webhook_key(settings), database)
        limit = settings.provider_seconds_max
        self._stripe: Stripe | None = None
        self._guarded = {gateway.SANDBOX: Guarded(self.sandbox, limit)}
        if settings.stripe_secret_key:
            self._stripe = Stripe(
                settings.stripe_secret_key,
                settings.stripe_webhook_secret,
                api_base=settings.stripe_api_base,
                public_url=settings.public_url,
                seconds_max=limit,
            )
            self._guarded[gateway.STRIPE] = Guarded(self._stripe, limit)
        self.chosen = self._guarded[settings.payment_provider]

    def named(self, name: str) -> Guarded:
        """The provider of that name. Raises NotFound."""
        if name not in self._guarded:
            raise NotFound("There is no such payment provider.")
        return self._guarded[name]

    async def close(self) -> None:
        """Close their connections."""
        if self._stripe is not None:
            await self._stripe.close()
