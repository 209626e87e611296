"""The seam to payment providers: what is asked of one, what it says, how that is known to be its.

A provider starts a payment, looks one up, refunds, and reads its own notices. `sandbox` and
`stripe_payments` are the two there are, `providers` has the one that was chosen. The signatures of
`sandbox` follow the Standard Webhooks scheme and are made and read here.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, Protocol

import msgspec

from ticketing.errors import Invalid, Refusal

SANDBOX = "sandbox"
STRIPE = "stripe"
TOLERANCE_SECONDS = 300
NOTICE_ID_LENGTH_MAX = 200
AMOUNT_MAX = 2**53


class BadSignature(Refusal):
    """A notice whose signature is missing, wrong or too old."""

    slug = "bad-signature"
    title = "Bad signature"


class ProviderUnavailable(Refusal):
    """The provider does not answer in time. What was asked of it may have happened or not."""

    slug = "unavailable"
    title = "Service unavailable"


class PaymentRefused(Refusal):
    """The provider will not take such a payment, however often it is asked."""

    slug = "conflict"
    title = "Conflict"


# --- What is asked of a provider -----------------------------------------------------------------


@dataclass(frozen=True)
class Started:
    """Where the fan pays (None: at our own page), and the provider's name for the payment."""

    url: str | None
    reference: str


@dataclass(frozen=True)
class LookedUp:
    """What a provider knows of a payment. Nothing more will become of one that `is_final`."""

    status: Literal["created", "succeeded", "failed", "uncertain"]
    amount: int
    currency: str
    is_final: bool = False
    charge: str = ""


@dataclass(frozen=True)
class Refunded:
    """What a provider did with a refund, and its words where it would not."""

    status: Literal["sent", "done", "failed"]
    reason: str = ""


class Provider(Protocol):
    """A payment provider. Whatever is asked twice with the same ids happens once.

    Every method may raise ProviderUnavailable; then the outcome is not known.
    """

    name: str

    async def start(self, payment: dict[str, Any], order: dict[str, Any]) -> Started:
        """Let the fan pay. Raises PaymentRefused for what the provider will never take."""

    async def look_up(self, payment: dict[str, Any]) -> LookedUp:
        """What has become of a payment."""

    async def close_page(self, payment: dict[str, Any]) -> None:
        """Let nobody pay it any more; one that was paid, or is closed, stays as it is."""

    async def refund(self, payment: dict[str, Any], refund: dict[str, Any]) -> Refunded:
        """Give back what the refund says."""

    async def find_refund(self, payment: dict[str, Any], refund: dict[str, Any]) -> Refunded | None:
        """What became of a refund that may have been sent before; None if it never arrived."""

    def read_notice(
        self, headers: Mapping[str, str], body: bytes, now: datetime
    ) -> "Notice | None":
        """The notice of a delivery, verified over the raw body; None for one of no interest.

        `headers` have lower-case names. Raises BadSignature, or Invalid for a genuine delivery
        that can't be read.
        """


# --- What a provider says ------------------------------------------------------------------------


@dataclass(frozen=True)
class Notice:
    """What a provider says became of a payment or refund. `notice_id` is that of each delivery.

    Types: payment.succeeded, payment.failed, payment.uncertain, refund.done, refund.failed. A
    refund has a `refund_id`: ours where we asked for it, else the provider's own. `charge` is the
    provider's name for the money, by which it may be found where `payment_id` is empty.
    `refund_round` tells which of several requests for one refund the notice is about, if known.
    """

    provider: str
    notice_id: str
    type: str
    payment_id: str
    order_id: str
    amount: int
    currency: str
    refund_id: str = ""
    charge: str = ""
    refund_round: int | None = None


class _Data(msgspec.Struct, rename="camel"):
    payment_id: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    order_id: Annotated[str, msgspec.Meta(max_length=200)]
    amount: Annotated[int, msgspec.Meta(ge=0, le=AMOUNT_MAX)]
    currency: Annotated[str, msgspec.Meta(pattern="^[A-Z]{3}$")]
    refund_id: Annotated[str, msgspec.Meta(max_length=200)] = ""


class _Body(msgspec.Struct):
    type: Literal["payment.succeeded", "payment.failed", "refund.done", "refund.failed"]
    timestamp: str
    data: _Data


def read_notice(key: bytes, headers: Mapping[str, str], body: bytes, now: datetime) -> Notice:
    """The notice of a sandbox delivery, verified over the raw body before it is parsed.

    `headers` have lower-case names. Raises BadSignature, or Invalid for a genuine delivery whose
    body is not a notice.
    """
    notice_id = headers.get("webhook-id", "")
    sent_at = headers.get("webhook-timestamp", "")
    signatures = headers.get("webhook-signature", "")
    if not notice_id or len(notice_id) > NOTICE_ID_LENGTH_MAX:
        raise BadSignature("The webhook-id is missing or too long.")
    if not (sent_at.isascii() and sent_at.isdigit() and len(sent_at) <= 12):
        raise BadSignature("The webhook-timestamp is missing or not a number of seconds.")
    if abs(now.timestamp() - int(sent_at)) > TOLERANCE_SECONDS:
        raise BadSignature("The webhook-timestamp is too far from now.")
    expected = _signature(key, notice_id, sent_at, body).encode()
    # Several signatures may stand side by side while a secret is rolled; one that fits is enough.
    given = [part.encode("utf-8", "surrogateescape") for part in signatures.split(" ")[:10]]
    if not any([hmac.compare_digest(expected, signature) for signature in given]):  # noqa: C419
        raise BadSignature("The webhook-signature does not fit.")
    try:
        notice = msgspec.json.decode(body, type=_Body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Invalid([("body", "is not a payment notice")]) from None
    data = notice.data
    if notice.type.startswith("refund.") and not data.refund_id:
        raise Invalid([("data.refundId", "is required")])
    return Notice(
        SANDBOX,
        notice_id,
        notice.type,
        data.payment_id,
        data.order_id,
        data.amount,
        data.currency,
        data.refund_id,
    )


def signed(key: bytes, notice_id: str, body: bytes, now: datetime) -> dict[str, str]:
    """The headers the sandbox provider sends with a delivery made now."""
    sent_at = str(int(now.timestamp()))
    return {
        "webhook-id": notice_id,
        "webhook-timestamp": sent_at,
        "webhook-signature": _signature(key, notice_id, sent_at, body),
    }


def _signature(key: bytes, notice_id: str, sent_at: str, body: bytes) -> str:
    text = f"{notice_id}.{sent_at}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, text, hashlib.sha256)).decode()
