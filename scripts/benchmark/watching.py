"""Scenarios that look on while something is sold."""

from scripts.benchmark.run import Run
from scripts.benchmark.stage import ORGANISER
from scripts.benchmark.watchers import Availability, Connected, DashboardLag


def availability(run: Run) -> None:
    """The seat map of a large event under a running sale."""
    sizes = run.sizes
    run.say(f"availability of {sizes.seat_map_seats} seats under a running sale")
    sale = run.sale(sizes.seat_map_seats, 20)
    figures = run.stage.load(
        Availability(
            event_id=sale.event_id,
            seat_count=sale.seat_count,
            phase_seconds=sizes.seat_map_phase_seconds,
        )
    ).figures
    run.stage.settle(sale.event_id)
    ratio = figures["answersPerSecond"] / figures["emptyAnswersPerSecond"]
    run.report.add("availability", [figures | {"ratioToEmpty": ratio}])
    stale = figures["stalenessP99Milliseconds"]
    run.report.time_must("availability ratio to an empty answer", ratio, ">=", 0.4)
    run.report.time_must("availability staleness p99 milliseconds", stale, "<", 500)


def dashboard(run: Run) -> None:
    """An organiser's live dashboard while holds run flat out."""
    run.say("dashboard lag while holds run flat out")
    sale = run.sale(run.sizes.dashboard_seats)
    figures = run.stage.load(
        DashboardLag(
            event_id=sale.event_id, seat_count=sale.seat_count, organiser=ORGANISER.subject
        )
    ).figures
    run.stage.settle(sale.event_id)
    run.report.add("dashboard", [figures])
    never_shown = figures["holdsNeverShown"]
    run.report.time_must("dashboard lag p99 milliseconds", figures["lagP99Milliseconds"], "<", 1000)
    run.report.truth_must("dashboard holds never shown", never_shown, "<=", 0)


def connections(run: Run) -> None:
    """Thousands of open connections, hundreds of them dashboards."""
    sizes = run.sizes
    run.say(f"{sizes.connections} open connections, {sizes.dashboards} of them dashboards")
    sale = run.sale(sizes.connected_holds)
    load = Connected(
        event_id=sale.event_id,
        seat_count=sale.seat_count,
        organiser=ORGANISER.subject,
        connection_count=sizes.connections,
        dashboard_count=sizes.dashboards,
        watch_seconds=sizes.connected_seconds,
    )
    figures = run.stage.load(load).figures
    run.stage.settle(sale.event_id)
    run.report.add("connections", [figures])
    missing = sizes.connections - figures["connections"]
    run.report.truth_must("connections not opened", missing, "<=", 0)
    run.report.truth_must("connections errors", figures["errors"], "<=", 0)
    run.report.truth_must("connections API megabytes", figures["apiMegabytes"], "<", 1_000)
