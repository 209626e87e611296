"""Fans who buy, give up and cancel, and ask again with the same key until they are answered."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import httpx
import msgspec

from scripts import token
from scripts.drills.history import NO_ANSWER, Answer, Purchase, Step, What
from ticketing import clock, gateway, identifiers
from ticketing.mongo import Document
from ticketing.settings import Settings, webhook_key

ANSWER_SECONDS_MAX = 15.0
ATTEMPTS_MAX = 150
PAUSE_SECONDS = 0.3
SEATS_MAX = 3

Send = Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]


@dataclass
class Crowd:
    """Fans of one event, who go to one API process or another."""

    settings: Settings
    addresses: Sequence[str]
    event: Document
    seed: int
    purchases: list[Purchase] = field(default_factory=list)
    is_over: bool = False
    """Set from outside: each fan ends what was begun, and begins nothing more."""

    async def buy(self, fans: int) -> None:
        """Let so many fans buy until it is over, and everybody was answered."""
        async with asyncio.TaskGroup() as group:
            for number in range(fans):
                group.create_task(self._fan(number))

    async def _fan(self, number: int) -> None:
        chance = random.Random(self.seed * 1_000 + number)  # noqa: S311
        clients = [
            httpx.AsyncClient(base_url=address, timeout=ANSWER_SECONDS_MAX, trust_env=False)
            for address in self.addresses
        ]
        try:
            count = 0
            while not self.is_over:
                purchase = Purchase(f"fan_{number}_{count}", chance.randint(1, SEATS_MAX))
                self.purchases.append(purchase)
                counter = _Counter(clients, number + count, purchase)
                await self._purchase(counter, chance)
                count += 1
                await asyncio.sleep(chance.uniform(0.02, 0.1))
        finally:
            for client in clients:
                await client.aclose()

    async def _purchase(self, counter: "_Counter", chance: random.Random) -> None:
        """One fan's way to its tickets, or a part of it."""
        purchase = counter.purchase
        bearer = token.make(self.settings, role="fan", subject=purchase.fan_id, hours=1)
        headers = {"Authorization": f"Bearer {bearer}"}
        keyed = headers | {"Idempotency-Key": identifiers.fresh("key")}
        wish = self._wish(purchase, chance)
        path = f"/v1/events/{self.event['_id']}/holds"
        held = await counter.ask("hold", lambda at: at.post(path, json=wish, headers=keyed))
        if held is None or chance.random() < 0.05:
            return
        hold = f"/v1/holds/{held['holdId']}"
        if chance.random() < 0.1:
            await counter.ask("release", lambda at: at.delete(hold, headers=headers))
            return
        body = {"holdId": held["holdId"]}
        order = await counter.ask(
            "order", lambda at: at.post("/v1/orders", json=body, headers=keyed)
        )
        if order is None or chance.random() < 0.05:
            return
        notice_id, notice = identifiers.fresh("msg"), _paid(order)
        webhook = "/v1/payments/webhooks/sandbox"
        key = webhook_key(self.settings)
        paid = await counter.ask(
            "pay",
            lambda at: at.post(
                webhook, content=notice, headers=gateway.signed(key, notice_id, notice, clock.now())
            ),
        )
        if paid is None:
            return
        mine = f"/v1/orders/{order['orderId']}"
        await counter.ask("look", lambda at: at.get(mine, headers=headers))
        if chance.random() < 0.1:
            await counter.ask("cancel", lambda at: at.post(f"{mine}/cancel", headers=headers))

    def _wish(self, purchase: Purchase, chance: random.Random) -> Document:
        """Some seats wherever they are, or just these, which others want as well."""
        if chance.random() < 0.7:
            return {"section": "Floor", "quantity": purchase.quantity}
        stalls = self.event["sections"][0]
        first = chance.randrange(stalls["seatCount"] - purchase.quantity)
        return {
            "seatIds": [
                f"{self.event['_id']}:{ordinal:05d}"
                for ordinal in range(first, first + purchase.quantity)
            ]
        }


@dataclass
class _Counter:
    """Where one purchase is made: an API process, or another one while that is away."""

    clients: Sequence[httpx.AsyncClient]
    turn: int
    purchase: Purchase

    async def ask(self, what: What, send: Send) -> Document | None:
        """Ask until answered with yes or no; the answer's body, or None for a no."""
        step = Step(what)
        self.purchase.steps.append(step)
        for _ in range(ATTEMPTS_MAX):
            asked_at = time.monotonic()
            try:
                answer = await send(self.clients[self.turn % len(self.clients)])
            except httpx.HTTPError:
                step.answers.append(Answer(asked_at, time.monotonic(), NO_ANSWER))
                self.turn += 1
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            step.answers.append(Answer(asked_at, time.monotonic(), answer.status_code))
            if answer.status_code < 300:
                step.told = answer.json() if answer.content else {}
                return step.told
            if answer.status_code < 500:
                return None
            await asyncio.sleep(PAUSE_SECONDS)
        return None


def _paid(order: Document) -> bytes:
    return msgspec.json.encode(
        {
            "type": "payment.succeeded",
            "timestamp": clock.rfc3339(clock.now()),
            "data": {
                "paymentId": order["paymentId"],
                "orderId": order["orderId"],
                "amount": order["total"]["amount"],
                "currency": order["total"]["currency"],
            },
        }
    )
