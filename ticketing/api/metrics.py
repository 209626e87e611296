"""What one API process counts about itself, and what it tells about the database, for Prometheus.

Names follow Prometheus' conventions, and labels are few: routes are templates, never paths.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_PLAIN_0_0_4,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector

from ticketing.backlog import Backlog
from ticketing.errors import Refusal
from ticketing.group_commit import GroupCommit
from ticketing.telemetry import commands, traces
from ticketing.vital_signs import VitalSigns

# The framework adds the character set.
CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4.partition("; charset")[0]
REQUEST_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5, 5.0, 10.0)
GROUP_BUCKETS = (1, 2, 4, 8, 16, 24, 32)
# A method is the client's own text: only these become a label, so that labels stay few.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

# Outcomes of a notice after which a fan who meant to pay has no paid order, or nobody knows.
_FAILURES = frozenset({"failed", "uncertain", "refunded", "unknown", "error"})

# The moment at which each series began, beside every one, would double them.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """The figures of one process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry(auto_describe=True)
        # As text-based monitoring expects them: memory, processor time, open files, start.
        ProcessCollector(namespace="ticketing", registry=self._registry)
        self.database_listeners = commands.listeners(self._registry)
        self._requests = self._counter(
            "http_requests", "Requests answered.", "method", "route", "status"
        )
        self._seconds = Histogram(
            "ticketing_http_request_duration_seconds",
            "Time from a request to the last byte of its answer.",
            ["method", "route"],
            buckets=REQUEST_BUCKETS,
            registry=self._registry,
        )
        self._series: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._notices = self._counter(
            "payment_notices", "Payment notices by what they did.", "provider", "outcome"
        )
        self._payment_failures = self._counter(
            "payment_failures", "What went wrong about payments, by kind.", "kind"
        )
        self._holds_refused = self._counter("holds_refused", "Holds refused, by reason.", "reason")
        self._group_size = Histogram(
            "ticketing_group_size",
            "Requests that went to the database together.",
            ["group"],
            buckets=GROUP_BUCKETS,
            registry=self._registry,
        )
        self._queue_depth = Gauge(
            "ticketing_group_queue_depth",
            "Requests that wait for their group to go out.",
            ["group"],
            registry=self._registry,
        )
        self.holds_placed = self._counter("holds_placed", "Holds placed, or told of once more.")
        self.holds_released = self._counter("holds_released", "Holds that their fans gave up.")
        self.orders_confirmed = self._counter("orders_confirmed", "Orders confirmed.")
        self.dashboard_clients = Gauge(
            "ticketing_dashboard_clients", "Open live dashboards.", registry=self._registry
        )
        self._board_staleness = Gauge(
            "ticketing_board_staleness_seconds",
            "How old what the boards show may be; 0 while none is asked for.",
            registry=self._registry,
        )

    def _counter(self, name: str, documentation: str, *labels: str) -> Counter:
        return Counter(f"ticketing_{name}_total", documentation, labels, registry=self._registry)

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        series = self._series.get((method, route, status))
        if series is None:
            named = method if method in _METHODS else "other"
            series = (
                self._requests.labels(named, route, status),
                self._seconds.labels(named, route),
            )
            if named == method:
                # Looked up by their labels each time they would cost more than the counting.
                self._series[method, route, status] = series
        requests, duration = series
        requests.inc()
        duration.observe(seconds)

    def count_notice(self, provider: str, outcome: str) -> None:
        """Count one payment notice by what it did."""
        self._notices.labels(provider, outcome).inc()
        if outcome in _FAILURES:
            self.count_payment_failure(outcome)

    def count_payment_failure(self, kind: str) -> None:
        """Count one thing that went wrong about a payment."""
        self._payment_failures.labels(kind).inc()

    def count_hold(self, refusal: Refusal | None) -> None:
        """Count one answer to a request for a hold."""
        if refusal is None:
            self.holds_placed.inc()
        else:
            self._holds_refused.labels(refusal.slug).inc()

    def watch_boards(self, staleness_seconds: Callable[[], float]) -> None:
        """Tell of the boards what they say when they are asked."""
        self._board_staleness.set_function(staleness_seconds)

    def watch_group(self, name: str, group: GroupCommit[Any, Any]) -> None:
        """Tell how many wait for a group, how large it is, and trace what it does."""
        self._queue_depth.labels(name).set_function(lambda: group.queue_size)
        sizes = self._group_size.labels(name)

        @contextmanager
        def observed(causes: Sequence[object]) -> Iterator[None]:
            sizes.observe(len(causes))
            with traces.work(f"group {name}", causes):
                yield

        group.observe(traces.present, observed)

    def exposition(self, waiting: Backlog | None, signs: VitalSigns | None) -> bytes:
        """All figures in the text format 0.0.4.

        What the database would have to tell is told as it is, or not at all where it did not
        answer.
        """

        class Everything:
            def collect(_) -> Iterable[Metric]:  # noqa: N805
                yield from self._registry.collect()
                yield from _of_backlog(waiting)
                yield from _of_signs(signs)

        return generate_latest(Everything())


def _of_backlog(waiting: Backlog | None) -> Iterator[Metric]:
    yield _gauge("backlog_known", "Whether the database told what is waiting.", waiting is not None)
    if waiting is None:
        return
    yield _gauge(
        "outbox_oldest_message_age_seconds",
        "Age of the oldest message that has not been spread to its consumers.",
        waiting.unspread_message_seconds,
    )
    yield _gauge(
        "holds_overdue_age_seconds",
        "How long the oldest overdue hold has been over.",
        waiting.overdue_hold_seconds,
    )
    yield _gauge("deliveries_dead", "Deliveries that were given up.", waiting.dead_deliveries)
    yield _gauge("notices_unknown", "Notices of payments nobody knows.", waiting.unknown_notices)
    yield _gauge("refunds_given_up", "Refunds that wait for a person.", waiting.given_up_refunds)
    yield _gauges(
        "deliveries_due_age_seconds",
        "How long the oldest delivery to a consumer has been due.",
        ["consumer"],
        {(consumer,): age for consumer, age in waiting.due_delivery_seconds.items()},
    )


def _of_signs(signs: VitalSigns | None) -> Iterator[Metric]:
    yield _gauge("database_has_primary", "Whether the database has a primary.", signs is not None)
    if signs is None:
        return
    yield _gauges(
        "replication_lag_seconds",
        "How far a secondary is behind the primary.",
        ["member"],
        {(member,): lag for member, lag in signs.replication_lag_seconds.items()},
    )
    if signs.stream_lag_seconds is not None:
        yield _gauge(
            "change_stream_lag_seconds",
            "Age of the last heartbeat that came through the change stream.",
            signs.stream_lag_seconds,
        )
    yield _gauge(
        "changes_set_aside",
        "Changes that could not be counted since the last recount.",
        signs.changes_set_aside,
    )
    yield _gauges(
        "lease_expires_in_seconds",
        "For how long a job's lease is still good; below zero: nobody does it.",
        ["job"],
        {(lease.job,): lease.expires_in_seconds for lease in signs.leases},
    )
    yield _gauges(
        "lease_holder",
        "Who does a job.",
        ["job", "holder"],
        {(lease.job, lease.holder): 1 for lease in signs.leases},
    )
    yield _gauges(
        "invariants_broken",
        "Findings of the last check, by invariant.",
        ["invariant"],
        {(invariant,): count for invariant, count in signs.invariants_broken.items()},
    )
    if signs.invariants_checked_age_seconds is not None:
        yield _gauge(
            "invariants_checked_age_seconds",
            "How long ago all invariants were checked.",
            signs.invariants_checked_age_seconds,
        )


def _gauge(name: str, documentation: str, value: float) -> Metric:
    return GaugeMetricFamily(f"ticketing_{name}", documentation, value=float(value))


def _gauges(
    name: str, documentation: str, labels: list[str], values: dict[tuple[str, ...], float]
) -> Metric:
    family = GaugeMetricFamily(f"ticketing_{name}", documentation, labels=labels)
    for named, value in values.items():
        family.add_metric(named, float(value))
    return family
