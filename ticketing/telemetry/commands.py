"""Every command to the database and every connection, as figures and as spans of a trace.

The driver calls these from inside its work, so they do little, and never raise.
"""

import logging
from typing import Any

from opentelemetry.trace import Span
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from pymongo import monitoring

from ticketing.telemetry import traces

# From an index read on the same machine to what a request may take at most.
COMMAND_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
SLOW_SECONDS = 1.0
WRITE_CONFLICT = 112
# The client's own, not asked for by anybody here, and many.
_UNSEEN = frozenset({"hello", "ismaster", "endSessions", "killCursors", "saslStart"})

log = logging.getLogger("ticketing.database")


class Commands(monitoring.CommandListener):
    """Counts and times commands by name, and names those that were slow."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "ticketing_mongodb_command_duration_seconds",
            "Time from a command to its answer, by command.",
            ["command"],
            buckets=COMMAND_BUCKETS,
            registry=registry,
        )
        self._failures = Counter(
            "ticketing_mongodb_command_failures_total",
            "Commands that failed, by command.",
            ["command"],
            registry=registry,
        )
        self._conflicts = Counter(
            "ticketing_mongodb_write_conflicts_total",
            "Commands of a transaction that met another's write and were done again.",
            registry=registry,
        )
        # By the driver's number of a command. What is in it is under way, and a client has only so
        # many connections.
        self._spans: dict[int, Span] = {}
        self._collections: dict[int, str] = {}

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        """Remember what the command is about. Its values are personal data and stay out."""
        name = event.command_name
        if name in _UNSEEN:
            return
        collection = event.command.get("collection" if name == "getMore" else name)
        if isinstance(collection, str):
            self._collections[event.request_id] = collection
        span = traces.command_begins(name, event.database_name, collection)
        if span is not None:
            self._spans[event.request_id] = span

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        """Count it."""
        self._end(event, None)

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        """Count it, and what kind of failure it was."""
        code = event.failure.get("code")
        if event.command_name not in _UNSEEN:
            self._failures.labels(event.command_name).inc()
        if code == WRITE_CONFLICT:
            self._conflicts.inc()
        self._end(event, str(event.failure.get("codeName", "failed")))

    def _end(
        self,
        event: monitoring.CommandSucceededEvent | monitoring.CommandFailedEvent,
        problem: str | None,
    ) -> None:
        collection = self._collections.pop(event.request_id, "")
        if event.command_name in _UNSEEN:
            return
        seconds = event.duration_micros / 1_000_000
        self._seconds.labels(event.command_name).observe(seconds)
        if seconds > SLOW_SECONDS:
            log.warning("Slow: %s on %s took %.1f s", event.command_name, collection, seconds)
        span = self._spans.pop(event.request_id, None)
        if span is not None:
            traces.command_ends(span, problem)


class Connections(monitoring.ConnectionPoolListener):
    """How many connections to the database are open, and how many of them in use."""

    def __init__(self, registry: CollectorRegistry) -> None:
        connections = Gauge(
            "ticketing_mongodb_connections",
            "Connections to the database.",
            ["state"],
            registry=registry,
        )
        self._open = connections.labels("open")
        self._in_use = connections.labels("in_use")

    def connection_created(self, _event: Any) -> None:
        """One more is open."""
        self._open.inc()

    def connection_closed(self, _event: Any) -> None:
        """One less is open."""
        self._open.dec()

    def connection_checked_out(self, _event: Any) -> None:
        """One more is in use."""
        self._in_use.inc()

    def connection_checked_in(self, _event: Any) -> None:
        """One less is in use."""
        self._in_use.dec()

    def pool_created(self, _event: Any) -> None:
        """Of no interest."""

    def pool_ready(self, _event: Any) -> None:
        """Of no interest."""

    def pool_cleared(self, _event: Any) -> None:
        """Of no interest: the connections are told of one by one."""

    def pool_closed(self, _event: Any) -> None:
        """Of no interest: the connections are told of one by one."""

    def connection_ready(self, _event: Any) -> None:
        """Of no interest."""

    def connection_check_out_started(self, _event: Any) -> None:
        """Of no interest."""

    def connection_check_out_failed(self, _event: Any) -> None:
        """Of no interest: the operation that wanted it fails and is counted there."""


def listeners(registry: CollectorRegistry) -> list[Any]:
    """What a client is to be opened with, so that `registry` has its figures."""
    return [Commands(registry), Connections(registry)]
