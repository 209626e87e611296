"""The provider `stripe`, by its own SDK: the fan pays at its Checkout page, no card comes near us.

Every request carries an idempotency key made of our own ids, so one that is repeated since its
answer was lost does nothing twice. Our ids travel in the metadata and come back with each notice.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
import stripe

from ticketing import gateway
from ticketing.errors import Invalid
from ticketing.gateway import (
    BadSignature,
    LookedUp,
    Notice,
    PaymentRefused,
    ProviderUnavailable,
    Refunded,
    Started,
)

# A Checkout page lives from half an hour to a day from when it is made. Where it outlives the hold
# the payment is one that came late.
PAGE_LASTS = timedelta(minutes=60)
PAGE_LASTS_MAX = timedelta(hours=23)
REFUNDS_LOOKED_AT_MAX = 100
# Stripe counts these in hundredths though ISO 4217 gives them none, and this one in whole units
# though it has hundredths.
_COUNTED_IN_HUNDREDTHS = frozenset({"ISK", "UGX"})
_COUNTED_IN_UNITS = frozenset({"MGA"})
# Three decimals, of which the last must be a zero.
_LAST_DIGIT_ZERO = frozenset({"BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"})

_SESSION_TYPES = {
    "checkout.session.async_payment_succeeded": "payment.succeeded",
    "checkout.session.async_payment_failed": "payment.failed",
    "checkout.session.expired": "payment.failed",
}
_REFUND_TYPES = frozenset(
    {"refund.created", "refund.updated", "refund.failed", "charge.refund.updated"}
)
_REFUND_STATUSES = {
    "succeeded": "done",
    "pending": "sent",
    "requires_action": "sent",
    "failed": "failed",
    "canceled": "failed",
}
# Asked again these may do well; every other answer of Stripe is a refusal.
_PASSING = (
    stripe.APIConnectionError,
    stripe.RateLimitError,
    stripe.AuthenticationError,
    stripe.PermissionError,
    stripe.IdempotencyError,
)


def to_stripe(amount: int, currency: str) -> int:
    """The amount as Stripe counts it. Raises PaymentRefused for one it can't charge exactly."""
    if currency in _COUNTED_IN_HUNDREDTHS:
        return amount * 100
    if currency in _COUNTED_IN_UNITS:
        if amount % 100:
            raise PaymentRefused(f"Stripe takes whole {currency} only.")
        return amount // 100
    if currency in _LAST_DIGIT_ZERO and amount % 10:
        raise PaymentRefused(f"Stripe takes {currency} to two decimals only.")
    return amount


def from_stripe(amount: int, currency: str) -> int:
    """What Stripe counts so, in the currency's minor unit."""
    if currency in _COUNTED_IN_HUNDREDTHS:
        return amount // 100
    return amount * 100 if currency in _COUNTED_IN_UNITS else amount


class Stripe:
    """The provider `stripe`."""

    name = gateway.STRIPE

    def __init__(
        self,
        secret_key: str,
        webhook_secret: str,
        *,
        api_base: str,
        public_url: str,
        seconds_max: float,
    ) -> None:
        self._webhook_secret = webhook_secret
        self._public_url = public_url
        self._http = stripe.HTTPXClient(timeout=seconds_max)
        # Tries once: who asks repeats by rules of their own, outside any transaction.
        self._client = stripe.StripeClient(
            secret_key,
            base_addresses={"api": api_base},
            max_network_retries=0,
            http_client=self._http,
        )

    async def close(self) -> None:
        """Close its connections."""
        closing: Any = self._http
        await closing.close_async()

    async def start(self, payment: dict[str, Any], order: dict[str, Any]) -> Started:
        """Make a Checkout page for the order's total."""
        currency = payment["currency"]
        ids = {"paymentId": payment["_id"], "orderId": order["_id"]}
        ends = max(order["expiresAt"], order["createdAt"] + PAGE_LASTS)
        ends = min(ends, order["createdAt"] + PAGE_LASTS_MAX)
        show = order["event"]
        params: Any = {
            "mode": "payment",
            "client_reference_id": order["_id"],
            "metadata": ids,
            "payment_intent_data": {"metadata": ids},
            "line_items": [
                {
                    "quantity": 1,
                    "price_data": {
                        "currency": currency.lower(),
                        "unit_amount": to_stripe(payment["amount"], currency),
                        "product_data": {"name": f"{show['name']} ({order['reference']})"},
                    },
                }
            ],
            "expires_at": int(ends.timestamp()),
            "success_url": f"{self._public_url}/paid",
            "cancel_url": f"{self._public_url}/paid",
        }
        options: Any = {"idempotency_key": payment["_id"]}
        try:
            session = await self._client.v1.checkout.sessions.create_async(params, options)
        except stripe.StripeError as error:
            raise _unavailable(error) or PaymentRefused(
                "The payment provider refuses this payment."
            ) from error
        return Started(session.url, session.id)

    async def look_up(self, payment: dict[str, Any]) -> LookedUp:
        """Ask for the Checkout page and what was paid at it."""
        created = LookedUp("created", payment["amount"], payment["currency"])
        if "reference" not in payment:
            # Its start was never answered, so nobody was shown where to pay.
            return created
        params: Any = {"expand": ["payment_intent"]}
        try:
            session = await self._client.v1.checkout.sessions.retrieve_async(
                payment["reference"], params
            )
        except stripe.StripeError as error:
            raise ProviderUnavailable("The payment provider does not tell.") from error
        intent: Any = session.payment_intent
        charge = "" if intent is None else str(intent.id)
        currency = (session.currency or payment["currency"]).upper()
        amount = from_stripe(session.amount_total or 0, currency)
        if session.payment_status == "paid":
            return LookedUp("succeeded", amount, currency, is_final=True, charge=charge)
        if session.status == "expired":
            return LookedUp("failed", amount, currency, is_final=True)
        if session.status == "complete" or (intent and intent.status == "processing"):
            return LookedUp("uncertain", amount, currency)
        if intent and intent.last_payment_error:
            return LookedUp("failed", amount, currency)
        return created

    async def close_page(self, payment: dict[str, Any]) -> None:
        """Expire the Checkout page. Stripe refuses for one that is paid or expired, and that is all
        that was wanted."""
        try:
            await self._client.v1.checkout.sessions.expire_async(payment["reference"])
        except stripe.InvalidRequestError:
            session = await self.look_up(payment)
            if session.status == "created":
                raise ProviderUnavailable("The payment provider does not close the page.") from None
        except stripe.StripeError as error:
            raise ProviderUnavailable("The payment provider does not answer.") from error

    async def refund(self, payment: dict[str, Any], refund: dict[str, Any]) -> Refunded:
        """Give back, once for each id and round: a round ends when Stripe itself has refused."""
        params: Any = {
            "payment_intent": await self._charge(payment),
            "amount": to_stripe(refund["amount"], refund["currency"]),
            "metadata": {
                "refundId": refund["_id"],
                "round": str(refund.get("round", 0)),
                "paymentId": payment["_id"],
                "orderId": refund["orderId"],
            },
        }
        options: Any = {"idempotency_key": f"{refund['_id']}-{refund.get('round', 0)}"}
        try:
            made = await self._client.v1.refunds.create_async(params, options)
        except stripe.StripeError as error:
            if unavailable := _unavailable(error):
                raise unavailable from error
            return Refunded("failed", error.user_message or "The payment provider refuses.")
        return _refunded(made)

    async def find_refund(self, payment: dict[str, Any], refund: dict[str, Any]) -> Refunded | None:
        """Look for it among the refunds of its payment, by our id in the metadata."""
        params: Any = {
            "payment_intent": await self._charge(payment),
            "limit": REFUNDS_LOOKED_AT_MAX,
        }
        try:
            made = await self._client.v1.refunds.list_async(params)
        except stripe.StripeError as error:
            raise ProviderUnavailable("The payment provider does not tell.") from error
        for found in made.data:
            ids = found.metadata.to_dict() if found.metadata else {}
            if (ids.get("refundId"), ids.get("round")) == (
                refund["_id"],
                str(refund.get("round", 0)),
            ):
                return _refunded(found)
        return None

    async def _charge(self, payment: dict[str, Any]) -> str:
        """The payment intent, as its notice told or as the Checkout page does."""
        charge = payment.get("charge") or (await self.look_up(payment)).charge
        if not charge:
            raise ProviderUnavailable("The payment provider does not know the payment yet.")
        return str(charge)

    def read_notice(
        self,
        headers: Mapping[str, str],
        body: bytes,
        now: datetime,  # noqa: ARG002
    ) -> Notice | None:
        """The event, verified by the SDK, which looks at the clock by itself."""
        try:
            stripe.WebhookSignature.verify_header(
                body.decode(),
                headers.get("stripe-signature", ""),
                self._webhook_secret,
                tolerance=gateway.TOLERANCE_SECONDS,
            )
        except (stripe.SignatureVerificationError, UnicodeDecodeError):
            raise BadSignature("The Stripe-Signature is missing, wrong or too old.") from None
        try:
            event = msgspec.json.decode(body)
            return _notice(event["id"], event["type"], event["data"]["object"])
        except (msgspec.MsgspecError, RecursionError, KeyError, TypeError, AttributeError):
            raise Invalid([("body", "is not an event of Stripe")]) from None


def _unavailable(error: stripe.StripeError) -> ProviderUnavailable | None:
    """What to say to an error that may pass by itself; None for a refusal."""
    if isinstance(error, _PASSING) or (error.http_status or 500) >= 500:
        return ProviderUnavailable("The payment provider does not answer. Try again shortly.")
    return None


def _refunded(made: Any) -> Refunded:
    status: Any = _REFUND_STATUSES.get(made.status or "pending", "sent")
    return Refunded(status, getattr(made, "failure_reason", None) or "")


def _notice(event_id: str, type_: str, about: dict[str, Any]) -> Notice | None:
    if type_ == "checkout.session.completed":
        paid = about["payment_status"] in ("paid", "no_payment_required")
        kind = "payment.succeeded" if paid else "payment.uncertain"
        return _about_payment(event_id, kind, about, about["amount_total"])
    if type_ in _SESSION_TYPES:
        return _about_payment(event_id, _SESSION_TYPES[type_], about, about["amount_total"])
    if type_ == "payment_intent.payment_failed":
        return _about_payment(event_id, "payment.failed", about, about["amount"])
    if type_ in _REFUND_TYPES:
        return _about_refund(event_id, about)
    return None


def _about_payment(event_id: str, kind: str, about: dict[str, Any], amount: int) -> Notice | None:
    ids = about.get("metadata") or {}
    if "paymentId" not in ids:
        return None  # Sold by somebody else with the same account.
    currency = about["currency"].upper()
    return Notice(
        gateway.STRIPE,
        event_id,
        kind,
        ids["paymentId"],
        ids.get("orderId", ""),
        from_stripe(amount, currency),
        currency,
        charge=about.get("payment_intent") or "",
    )


def _about_refund(event_id: str, about: dict[str, Any]) -> Notice | None:
    status = _REFUND_STATUSES.get(about["status"])
    if status not in ("done", "failed"):
        return None
    ids = about.get("metadata") or {}
    currency = about["currency"].upper()
    return Notice(
        gateway.STRIPE,
        event_id,
        f"refund.{status}",
        ids.get("paymentId", ""),
        ids.get("orderId", ""),
        from_stripe(about["amount"], currency),
        currency,
        refund_id=ids.get("refundId") or about["id"],
        charge=about.get("payment_intent") or "",
        refund_round=int(ids["round"]) if ids.get("round", "").isdigit() else None,
    )
