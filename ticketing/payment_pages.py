"""A payment page at a provider is closed when its order ends, so that nobody pays in vain.

What is paid all the same, since the fan was faster, is refunded as every late payment.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from ticketing import gateway
from ticketing.errors import Refusal
from ticketing.gateway import Provider
from ticketing.mongo import Database, Document
from ticketing.outbox import Done, Failed, Outcome, Skipped

CONSUMER = "paymentPage"
_ENDINGS = frozenset({"order.expired", "order.cancelled"})


class Named(Protocol):
    """Knows the providers by their names."""

    def named(self, name: str) -> Provider:
        """The provider of that name. Raises NotFound."""


class PaymentPages:
    """Closes pages by the messages that orders have ended."""

    name = CONSUMER

    def __init__(self, database: Database, providers: Named) -> None:
        self._database = database
        self._providers = providers

    async def targets(self, messages: Sequence[Document]) -> dict[str, list[str]]:
        """Those about orders that were to be paid at a provider's own page."""
        ended = {one["orderId"]: one["_id"] for one in messages if one["kind"] in _ENDINGS}
        if not ended:
            return {}
        found = self._database.payments.find(
            {"orderId": {"$in": list(ended)}, "provider": {"$ne": gateway.SANDBOX}},
            {"orderId": 1},
        )
        # An order has one payment of its own, and hardly ever another.
        payments = await found.to_list(2 * len(ended))
        return {ended[payment["orderId"]]: [CONSUMER] for payment in payments}

    async def deliver(self, message: Document, target: str, now: datetime) -> Outcome:  # noqa: ARG002
        """Close the page of the message's order. Closing it again changes nothing."""
        order = await self._database.orders.find_one({"_id": message["orderId"]}, {"payment": 1})
        own = None if order is None else order["payment"]
        payment = own and await self._database.payments.find_one({"_id": own["paymentId"]})
        if not payment or "reference" not in payment:
            return Skipped("no page was opened")
        if payment["status"] == "succeeded":
            return Skipped("it was paid")
        try:
            await self._providers.named(payment["provider"]).close_page(payment)
        except Refusal as error:
            return Failed(error.detail)
        return Done("the page is closed")
