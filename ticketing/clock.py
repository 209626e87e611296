"""The one place that reads the time. Everything else is given `now`."""

from datetime import UTC, datetime, timedelta


def now() -> datetime:
    """The present instant in UTC, cut to the millisecond: what MongoDB can store."""
    return to_millisecond(datetime.now(UTC))


def to_millisecond(instant: datetime) -> datetime:
    """The instant cut to a whole millisecond, so that it is equal before and after storage."""
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)


def seconds(count: float) -> timedelta:
    """A span of so many seconds."""
    return timedelta(seconds=count)


def rfc3339(instant: datetime) -> str:
    """An instant as the API writes it: RFC 3339 in UTC with `Z`, milliseconds always shown."""
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
