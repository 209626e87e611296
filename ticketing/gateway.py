"""The seam to payment providers: what they send us, and how it is known to be theirs.

The provider `sandbox` signs by the Standard Webhooks scheme.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

import msgspec

from ticketing.errors import Invalid, Refusal

SANDBOX = "sandbox"
TOLERANCE_SECONDS = 300
NOTICE_ID_LENGTH_MAX = 200
AMOUNT_MAX = 2**53


class BadSignature(Refusal):
    """A notice whose signature is missing, wrong or too old."""

    slug = "bad-signature"
    title = "Bad signature"


class _Data(msgspec.Struct, rename="camel"):
    payment_id: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    order_id: Annotated[str, msgspec.Meta(max_length=200)]
    amount: Annotated[int, msgspec.Meta(ge=0, le=AMOUNT_MAX)]
    currency: Annotated[str, msgspec.Meta(pattern="^[A-Z]{3}$")]


class _Body(msgspec.Struct):
    type: Literal["payment.succeeded", "payment.failed"]
    timestamp: str
    data: _Data


@dataclass(frozen=True)
class Notice:
    """What a provider says became of a payment. `notice_id` is the same on each delivery."""

    provider: str
    notice_id: str
    type: str
    payment_id: str
    order_id: str
    amount: int
    currency: str


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
    return Notice(
        SANDBOX, notice_id, notice.type, data.payment_id, data.order_id, data.amount, data.currency
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
