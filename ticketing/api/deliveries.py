"""How the sandbox payment provider delivers its signed notices: by HTTP, until one is taken.

A notice goes to our own webhook address, so a purchase in the sandbox takes the very way a real one
does. Undelivered notices live in this process's memory: a restart forgets them, and the fan can
press the button again.
"""

import asyncio
import logging
import random
from contextlib import suppress
from dataclasses import dataclass

import httpx
import msgspec

from ticketing import clock, gateway, identifiers
from ticketing.api import problems
from ticketing.clock import rfc3339
from ticketing.mongo import Document
from ticketing.sandbox import Switches
from ticketing.settings import Settings, webhook_key
from ticketing.tasks import end

# The person at the page waits for the first attempt, so that it mostly shows the final state.
FIRST_ATTEMPT_SECONDS = 5.0
ATTEMPT_SECONDS = 10.0
RETRY_AFTER_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0)
PENDING_MAX = 1_000

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Notice:
    """What is delivered: the id and the body stay the same over all attempts."""

    notice_id: str
    body: bytes


class Deliveries:
    """Delivers notices, again and again with growing pauses until one attempt is acknowledged."""

    def __init__(self, settings: Settings, http: httpx.AsyncClient | None = None) -> None:
        self._key = webhook_key(settings)
        self._url = f"{settings.public_url}/v1/payments/webhooks/{gateway.SANDBOX}"
        self._http = http or httpx.AsyncClient(timeout=ATTEMPT_SECONDS)
        self._pending: set[asyncio.Task[None]] = set()

    async def deliver(self, notice: Notice) -> bool:
        """Begin delivering; true when the first attempt was acknowledged within a few seconds."""
        acknowledged = self._begin(notice, 0.0)
        with suppress(TimeoutError):
            await asyncio.wait_for(acknowledged.wait(), FIRST_ATTEMPT_SECONDS)
        return acknowledged.is_set()

    async def misdeliver(self, notice: Notice, switches: Switches) -> bool:
        """Deliver as the switches say: late, several times at once, or not at all."""
        if switches.lose_notices:
            return False
        if switches.delay_seconds:
            self._begin(notice, switches.delay_seconds)
            return False
        taken = await asyncio.gather(*(self.deliver(notice) for _ in range(switches.copies)))
        return all(taken)

    def _begin(self, notice: Notice, after_seconds: float) -> asyncio.Event:
        if len(self._pending) >= PENDING_MAX:
            raise problems.Unavailable("Too many notices are waiting to be delivered.")
        acknowledged = asyncio.Event()
        task = asyncio.create_task(self._attempts(notice, acknowledged, after_seconds))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)
        return acknowledged

    async def close(self) -> None:
        """Give up what is still undelivered."""
        await end(*self._pending)
        await self._http.aclose()

    async def _attempts(
        self, notice: Notice, acknowledged: asyncio.Event, after_seconds: float
    ) -> None:
        await asyncio.sleep(after_seconds)
        for pause in (*RETRY_AFTER_SECONDS, None):
            if await self._attempt(notice):
                acknowledged.set()
                return
            if pause is not None:
                await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311
        logger.error("notice %s could not be delivered: giving up", notice.notice_id)

    async def _attempt(self, notice: Notice) -> bool:
        # Each attempt is signed anew: the timestamp says when this one was sent.
        headers = gateway.signed(self._key, notice.notice_id, notice.body, clock.now())
        headers["content-type"] = "application/json"
        try:
            answer = await self._http.post(self._url, content=notice.body, headers=headers)
        except httpx.HTTPError as error:
            logger.warning("notice %s not delivered: %s", notice.notice_id, type(error).__name__)
            return False
        if not answer.is_success:
            logger.warning("notice %s answered %d", notice.notice_id, answer.status_code)
        return answer.is_success


def make_notice(payment: Document, type_: str, amount: int | None = None) -> Notice:
    """A new notice that the payment succeeded or failed, of its own amount unless one is given."""
    body = {
        "type": type_,
        "timestamp": rfc3339(clock.now()),
        "data": {
            "paymentId": payment["_id"],
            "orderId": payment["orderId"],
            "amount": payment["amount"] if amount is None else amount,
            "currency": payment["currency"],
        },
    }
    return Notice(identifiers.fresh("ntc"), msgspec.json.encode(body))
