"""The states of orders, payments and refunds, and every change that is allowed between them.

The three never blur: an order may be cancelled while its payment succeeded and its refund failed.
Whoever writes a change names the state before in the write's own filter, so that of two writers
one finds it gone.
"""

from collections.abc import Mapping
from typing import Any

from ticketing.errors import Refusal

Table = Mapping[str, tuple[str, ...]]

ORDER: Table = {
    "pendingPayment": ("confirmed", "expired", "cancelled"),
    "confirmed": ("cancelled",),
    # Paid late, with all its seats still free.
    "expired": ("confirmed",),
    "cancelled": (),
}

PAYMENT: Table = {
    "created": ("succeeded", "failed", "uncertain"),
    # A declined fan may try again.
    "failed": ("succeeded", "uncertain"),
    # The provider itself does not know yet. It is asked again, never guessed.
    "uncertain": ("succeeded", "failed"),
    # For good: money that goes back is a refund.
    "succeeded": (),
}

REFUND: Table = {
    "created": ("sent", "done", "failed"),
    # Accepted by the provider, on its way.
    "sent": ("done", "failed"),
    # A bank may send back what the provider had reported as done.
    "done": ("failed",),
    # Tried again, by itself for a while and then when a person says so.
    "failed": ("sent", "done"),
}


class OrderState(Refusal):
    """That change is not allowed from the state there is."""

    slug = "order-state"
    title = "Order state"

    def __init__(self, state: str, detail: str) -> None:
        super().__init__(detail)
        self.state = state

    def members(self) -> dict[str, Any]:
        return {"state": self.state}


def allows(table: Table, before: str, after: str) -> bool:
    """Whether that change is in the table."""
    return after in table[before]


def check(table: Table, before: str, after: str) -> None:
    """Raises OrderState for a change that is not in the table."""
    if not allows(table, before, after):
        raise OrderState(before, f"What is {before} can't become {after}.")


def befores(table: Table, after: str) -> list[str]:
    """The states from which that one can be reached, for the filter of a write."""
    return [before for before, afters in table.items() if after in afters]
