"""What a refusal is. Each noun declares its own refusals beside the operation that gives them."""

from typing import Any, ClassVar


class Refusal(Exception):
    """An expected answer other than success: the caller asked for something that cannot be had.

    A refusal changes nothing. `slug` is stable and part of the HTTP contract; `members()` are the
    extra members a client may act on. It is never a driver error, so that it passes through a
    transaction body and aborts it cleanly instead of being retried.
    """

    slug: ClassVar[str]
    title: ClassVar[str]

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail

    def members(self) -> dict[str, Any]:
        """The extra members of the problem, JSON-ready but for instants."""
        return {}


class NotFound(Refusal):
    """No such thing, or not the caller's: the two must not be told apart."""

    slug = "not-found"
    title = "Not found"


class IdempotencyKeyReused(Refusal):
    """The key was used before by the same caller with another body."""

    slug = "idempotency-key-reused"
    title = "Idempotency key reused"


class IdempotencyInProgress(Refusal):
    """The first request with that key is still running; try again after `retry_after_seconds`."""

    slug = "idempotency-in-progress"
    title = "Idempotent request in progress"
    retry_after_seconds = 1


class Invalid(Refusal):
    """The input is malformed. `errors` are pairs of a path such as `seatIds[2]` and a message."""

    slug = "validation"
    title = "Validation failed"

    def __init__(self, errors: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{path}: {message}" for path, message in errors[:3]))
        self.errors = errors

    def members(self) -> dict[str, Any]:
        return {"errors": [{"path": path, "message": message} for path, message in self.errors]}
