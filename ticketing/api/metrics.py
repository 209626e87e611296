"""What this process counts about itself, as Prometheus text."""

from collections import Counter
from time import time

from ticketing.backlog import Backlog

CONTENT_TYPE = "text/plain; version=0.0.4"
# A method is the client's own text: only these become a label, so that labels stay few.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Metrics:
    """Counters of one process. Routes are templates, never paths, so that labels stay few."""

    def __init__(self) -> None:
        self._started_at = time()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: Counter[tuple[str, str, int]] = Counter()
        self._notices: Counter[tuple[str, str]] = Counter()
        self.watchers = 0

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        key = (method if method in _METHODS else "other", route, status)
        self._requests[key] += 1
        self._seconds[key] += seconds  # type: ignore[assignment]

    def count_notice(self, provider: str, outcome: str) -> None:
        """Count one payment notice by what it did."""
        self._notices[(provider, outcome)] += 1

    def exposition(self, waiting: Backlog | None) -> str:
        """All figures in the text format 0.0.4.

        What the database has waiting is told as it is, or not at all where it did not answer.
        """
        lines = [
            "# HELP ticketing_http_request_duration_seconds Time from request to last byte.",
            "# TYPE ticketing_http_request_duration_seconds summary",
        ]
        for key in sorted(self._requests):
            method, route, status = key
            labels = f'{{method="{method}",route="{_escaped(route)}",status="{status}"}}'
            lines.append(
                f"ticketing_http_request_duration_seconds_sum{labels} {self._seconds[key]:.6f}"
            )
            lines.append(
                f"ticketing_http_request_duration_seconds_count{labels} {self._requests[key]}"
            )
        lines += [
            "# HELP ticketing_http_requests_total Requests answered.",
            "# TYPE ticketing_http_requests_total counter",
            *(
                f'ticketing_http_requests_total{{method="{method}",route="{_escaped(route)}",'
                f'status="{status}"}} {count}'
                for (method, route, status), count in sorted(self._requests.items())
            ),
            "# HELP ticketing_payment_notices_total Payment notices by what they did.",
            "# TYPE ticketing_payment_notices_total counter",
            *(
                f'ticketing_payment_notices_total{{provider="{_escaped(provider)}",'
                f'outcome="{outcome}"}} {count}'
                for (provider, outcome), count in sorted(self._notices.items())
            ),
            "# HELP ticketing_dashboard_clients Open live dashboards.",
            "# TYPE ticketing_dashboard_clients gauge",
            f"ticketing_dashboard_clients {self.watchers}",
            "# HELP ticketing_process_start_time_seconds When this process began (Unix time).",
            "# TYPE ticketing_process_start_time_seconds gauge",
            f"ticketing_process_start_time_seconds {self._started_at:.3f}",
            "# HELP ticketing_process_uptime_seconds How long this process has been running.",
            "# TYPE ticketing_process_uptime_seconds gauge",
            f"ticketing_process_uptime_seconds {time() - self._started_at:.3f}",
        ]
        lines += _of_backlog(waiting)
        return "\n".join(lines) + "\n"


def _of_backlog(waiting: Backlog | None) -> list[str]:
    told = [
        "# HELP ticketing_backlog_known Whether the database told what is waiting.",
        "# TYPE ticketing_backlog_known gauge",
        f"ticketing_backlog_known {int(waiting is not None)}",
    ]
    if waiting is None:
        return told
    for name, help_, value in (
        (
            "outbox_oldest_message_age_seconds",
            "Age of the oldest message that has not been spread to its consumers.",
            waiting.unspread_message_seconds,
        ),
        (
            "holds_overdue_age_seconds",
            "How long the oldest overdue hold has been over.",
            waiting.overdue_hold_seconds,
        ),
        ("deliveries_dead", "Deliveries that were given up.", waiting.dead_deliveries),
        ("notices_unknown", "Notices of payments nobody knows.", waiting.unknown_notices),
        ("refunds_given_up", "Refunds that wait for a person.", waiting.given_up_refunds),
    ):
        told += [
            f"# HELP ticketing_{name} {help_}",
            f"# TYPE ticketing_{name} gauge",
            f"ticketing_{name} {value:g}",
        ]
    name = "ticketing_deliveries_due_age_seconds"
    told += [
        f"# HELP {name} How long the oldest delivery to a consumer has been due.",
        f"# TYPE {name} gauge",
        *(
            f'{name}{{consumer="{consumer}"}} {seconds:g}'
            for consumer, seconds in waiting.due_delivery_seconds.items()
        ),
    ]
    return told


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
