"""What routes take from path and query, named as it is on the wire."""

from datetime import UTC, datetime
from typing import Annotated, TypeAlias

import msgspec
from litestar.params import PathParameter, QueryParameter

from ticketing.clock import to_millisecond
from ticketing.errors import Invalid

PAGE_SIZE = 20
PAGE_SIZE_MAX = 100

EventId: TypeAlias = Annotated[str, PathParameter(name="eventId")]
HoldId: TypeAlias = Annotated[str, PathParameter(name="holdId")]
OrderId: TypeAlias = Annotated[str, PathParameter(name="orderId")]
RefundId: TypeAlias = Annotated[str, PathParameter(name="refundId")]
PaymentId: TypeAlias = Annotated[str, PathParameter(name="paymentId")]
WebhookId: TypeAlias = Annotated[str, PathParameter(name="webhookId")]
MemberId: TypeAlias = Annotated[str, PathParameter(name="memberId")]
KeyId: TypeAlias = Annotated[str, PathParameter(name="keyId")]
MessageId: TypeAlias = Annotated[str, PathParameter(name="messageId")]

Limit: TypeAlias = Annotated[
    int, QueryParameter(ge=1, le=PAGE_SIZE_MAX, description="How many items at most.")
]
Cursor: TypeAlias = Annotated[
    str | None, QueryParameter(description="`nextCursor` of the page before.")
]

_INSTANT = msgspec.json.Decoder(Annotated[datetime, msgspec.Meta(tz=True)])


def instant(text: str | None, path: str) -> datetime | None:
    """An RFC 3339 instant out of a query; raises Invalid naming the parameter."""
    if text is None:
        return None
    try:
        # A plus sign in a query is a blank once decoded, and an instant has no other blanks.
        decoded = _INSTANT.decode(msgspec.json.encode(text.replace(" ", "+")))
        return to_millisecond(decoded.astimezone(UTC))
    except (msgspec.MsgspecError, ValueError, OverflowError):
        raise Invalid([(path, "is not an RFC 3339 instant")]) from None
