"""Scenarios that sell: holds, contention, whole purchases, a whole event."""

from collections import Counter
from statistics import median

from scripts.benchmark.fans import STEPS, Contend, Hold, Purchase, SellOut
from scripts.benchmark.figures import Figures
from scripts.benchmark.run import Run
from scripts.benchmark.stage import Stage, put_on_sale
from ticketing.mongo import Database, Document

_FANS_SECTIONS = 4


def hold_one_seat(run: Run) -> None:
    """64 connections, a fan a hold, a seat a hold."""
    rounds: list[Figures] = []
    to_single: list[float] = []
    to_grouped: list[float] = []
    for _ in range(run.sizes.rounds):
        single, grouped = run.raw_single(), run.raw_grouped()
        run.say("hold, 1 seat")
        figures = hold(run.stage, run.sizes.hold_seats, 1)
        rounds.append(figures)
        to_single.append(figures["holdsPerSecond"] / single["seatsPerSecond"])
        to_grouped.append(figures["holdsPerSecond"] / grouped["seatsPerSecond"])
    ratios = {"ratioToRawSingle": median(to_single), "ratioToRawGrouped": median(to_grouped)}
    run.report.add("hold-1", rounds)
    run.report.add("hold-1", [ratios])
    p95 = run.report.scenarios["hold-1"]["p95Milliseconds"]
    run.report.time_must("hold-1 ratio to raw-single", ratios["ratioToRawSingle"], ">=", 1.2)
    run.report.time_must("hold-1 ratio to raw-grouped", ratios["ratioToRawGrouped"], ">=", 0.35)
    run.report.time_must("hold-1 p95 milliseconds", p95, "<", 50)
    run.report.truth_must("hold-1 other answers", _others(run, "hold-1"), "<=", 0)


def hold_four_seats(run: Run) -> None:
    """Likewise, four neighbouring seats a hold."""
    rounds: list[Figures] = []
    to_grouped: list[float] = []
    for _ in range(run.sizes.rounds):
        grouped = run.raw_grouped()
        run.say("hold, 4 seats")
        figures = hold(run.stage, run.sizes.hold_seats, 4)
        rounds.append(figures)
        to_grouped.append(figures["seatsPerSecond"] / grouped["seatsPerSecond"])
    run.report.add("hold-4", rounds)
    run.report.add("hold-4", [{"ratioToRawGrouped": median(to_grouped)}])
    run.report.time_must("hold-4 ratio to raw-grouped", median(to_grouped), ">=", 0.5)
    run.report.truth_must("hold-4 other answers", _others(run, "hold-4"), "<=", 0)


def hold(stage: Stage, seat_count: int, seats_per_hold: int) -> Figures:
    """One round of holds of all seats of a new event."""
    sale = put_on_sale(stage.settings, seat_count)
    return hold_seats(
        stage,
        Hold(event_id=sale.event_id, seat_count=seat_count, seats_per_hold=seats_per_hold),
    )


def hold_seats(stage: Stage, load: Hold) -> Figures:
    """One round of holds; returns once the counters have followed."""
    figures = stage.load(load).figures
    stage.settle(load.event_id)
    return figures | _requests_each(figures, "holdsPerSecond")


def purchase(stage: Stage, count: int) -> Figures:
    """One round of whole purchases on a new event; returns once the counters have followed."""
    sale = put_on_sale(stage.settings, count)
    figures = stage.load(Purchase(event_id=sale.event_id, seat_count=count)).figures
    stage.settle(sale.event_id)
    return figures | _requests_each(figures, "purchasesPerSecond")


def _requests_each(figures: Figures, rate: str) -> Figures:
    """Database requests for each thing done, the workers' included: it says how well groups form.

    Unlike every rate it does not depend on who else is using the machine.
    """
    return {
        "databaseRequestsEach": figures["databaseRequests"] / (figures[rate] * figures["seconds"])
    }


def _others(run: Run, scenario: str) -> float:
    return run.report.scenarios[scenario]["otherAnswers"]


def contention(run: Run) -> None:
    """Ten times as many fans as seats."""
    sizes = run.sizes
    run.say(f"contention: {sizes.contending_fans} fans, {sizes.contended_seats} seats")
    sale = run.sale(sizes.contended_seats * _FANS_SECTIONS, _FANS_SECTIONS)
    figures = run.stage.load(
        Contend(event_id=sale.event_id, section=sale.sections[0], fan_count=sizes.contending_fans)
    ).figures
    run.stage.settle(sale.event_id)
    run.report.add("contention", [figures])
    ratio = figures["refusalP95Milliseconds"] / figures["successP95Milliseconds"]
    report = run.report
    report.time_must("contention p95 of refusals to successes", ratio, "<=", 1.0)
    report.truth_must("contention seats given twice", figures["seatsGivenTwice"], "<=", 0)
    unsold = sizes.contended_seats - figures["seatsGiven"]
    report.truth_must("contention seats not given", unsold, "<=", 0)
    report.truth_must("contention other answers", figures["otherAnswers"], "<=", 0)


def whole_purchase(run: Run) -> None:
    """Hold, order, webhook, ticket: four requests, three of them durable steps."""
    rounds: list[Figures] = []
    ratios: list[float] = []
    for _ in range(run.sizes.rounds):
        reference = run.raw_confirm()
        run.say("whole purchase")
        figures = purchase(run.stage, run.sizes.purchases)
        rounds.append(figures)
        ratios.append(figures["purchasesPerSecond"] / reference["ordersPerSecond"])
    run.report.add("purchase", rounds)
    run.report.add("purchase", [{"ratioToRawConfirm": median(ratios)}])
    measured = run.report.scenarios["purchase"]
    slowest = max(measured[f"{step}P95Milliseconds"] for step in STEPS)
    run.report.time_must("purchase ratio to raw-confirm", median(ratios), ">=", 0.35)
    run.report.time_must("purchase p95 milliseconds of a step", slowest, "<", 200)
    run.report.truth_must("purchase other answers", _others(run, "purchase"), "<=", 0)


def sell_out(run: Run) -> None:
    """A whole event, all steps, and then every ticket looked up in the database."""
    sizes = run.sizes
    fan_count = sizes.sell_out_seats // sizes.sell_out_seats_per_fan
    run.say(f"sell-out: {sizes.sell_out_seats} seats, {fan_count} fans")
    sale = run.sale(sizes.sell_out_seats, sizes.sell_out_sections)
    outcome = run.stage.load(
        SellOut(
            event_id=sale.event_id,
            sections=list(sale.sections),
            fan_count=fan_count,
            seats_per_fan=sizes.sell_out_seats_per_fan,
            seconds_max=300.0,
        )
    )
    figures = outcome.figures
    figures["settleSeconds"] = run.stage.settle(sale.event_id)
    told: list[str] = outcome.evidence["orders"]
    figures |= run.stage.ask(lambda database: _sold(database, sale.event_id, told))
    run.report.add("sell-out", [figures])
    report = run.report
    report.truth_must("sell-out oversold", figures["seatsOversold"], "<=", 0)
    report.truth_must("sell-out lost", figures["ordersLost"], "<=", 0)
    unsold = sizes.sell_out_seats - figures["seatsSold"]
    report.truth_must("sell-out seats not sold", unsold, "<=", 0)
    report.truth_must("sell-out other answers", figures["otherAnswers"], "<=", 0)


async def _sold(database: Database, event_id: str, told: list[str]) -> Figures:
    """Seats in more than one confirmed order, and orders a fan was told of that are not there."""
    owners: Counter[str] = Counter()
    orders: dict[str, Document] = {}
    found = database.orders.find(
        {"eventId": event_id, "status": "confirmed"}, {"seats.seatId": 1, "tickets.seatId": 1}
    )
    async for order in found:
        orders[order["_id"]] = order
        owners.update(ticket["seatId"] for ticket in order["tickets"])
    sold_to = {
        seat["_id"]: seat["orderId"]
        async for seat in database.seats.find(
            {"eventId": event_id, "status": "sold"}, {"orderId": 1}
        )
    }
    whole = {
        identifier
        for identifier, order in orders.items()
        if all(sold_to.get(seat["seatId"]) == identifier for seat in order["seats"])
        and len(order["tickets"]) == len(order["seats"])
    }
    return {
        "seatsSold": len(sold_to),
        "seatsOversold": sum(count - 1 for count in owners.values()),
        "ordersLost": sum(identifier not in whole for identifier in told),
    }
