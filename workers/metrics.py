"""What one worker counts about itself, for Prometheus to fetch."""

import logging

from prometheus_client import CollectorRegistry, Counter, disable_created_metrics, start_http_server
from prometheus_client.process_collector import ProcessCollector

from ticketing.settings import Settings
from ticketing.telemetry import commands

log = logging.getLogger("ticketing.workers")

# The moment at which each series began, beside every one, would double them.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """The figures of one worker process."""

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self.registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(namespace="ticketing", registry=self.registry)
        self.database_listeners = commands.listeners(self.registry)
        self._steps = Counter(
            "ticketing_worker_steps_total",
            "Rounds of a worker's work, by what became of them.",
            ["worker", "step", "outcome"],
            registry=self.registry,
        )
        self.seats_lapsed = self._counter("seats_lapsed", "Seats whose hold was over.")
        self.orders_expired = self._counter("orders_expired", "Orders nobody paid in time.")
        self.changes_counted = self._counter(
            "change_stream_changes", "Changes that came through the stream and were counted."
        )

    def _counter(self, name: str, documentation: str) -> Counter:
        return Counter(f"ticketing_{name}_total", documentation, registry=self.registry)

    def done(self, step: str) -> None:
        """Count a round that did what it should, if only to find nothing to do."""
        self._steps.labels(self.worker, step, "done").inc()

    def failed(self, step: str) -> None:
        """Count a round that failed and will be tried again."""
        self._steps.labels(self.worker, step, "failed").inc()

    def serve(self, settings: Settings) -> None:
        """Answer `GET /metrics` at the set port until the process ends, if one is set.

        Raises OSError where nothing can listen there.
        """
        if settings.metrics_port:
            start_http_server(settings.metrics_port, settings.host, self.registry)
            log.info("Metrics are at http://%s:%d/metrics.", settings.host, settings.metrics_port)
