"""A message says that something happened, and is written in the transaction that made it happen."""

from datetime import datetime
from typing import Any

from ticketing import identifiers
from ticketing.mongo import Document


def message(
    kind: str, event_id: str, order_id: str, body: dict[str, Any], now: datetime
) -> Document:
    """A message to insert into `outbox` in the same transaction as its cause."""
    return {
        "_id": identifiers.fresh("msg"),
        "kind": kind,
        "eventId": event_id,
        "orderId": order_id,
        "body": body,
        "createdAt": now,
    }
