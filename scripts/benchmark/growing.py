"""Scenarios on another database than the small one: a grown one, and one of three nodes."""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient, WriteConcern
from pymongo.collection import Collection

from scripts.benchmark import selling
from scripts.benchmark.fans import Hold
from scripts.benchmark.figures import Figures
from scripts.benchmark.run import Run
from scripts.benchmark.stage import Sale, Stage, in_database, prepare, put_on_sale
from scripts.replica_set import ReplicaSet
from ticketing import identifiers, seats
from ticketing.settings import Settings

_SEATS_PER_INSERT = 5_000
_COLLECTIONS = ("seats", "dashboards", "events")


def growth(run: Run, replica_set: ReplicaSet) -> None:
    """The same holds beside few seats and beside millions, in turns."""
    sizes = run.sizes
    grown_settings = in_database(run.stage.settings, "bench_grown")
    prepare(grown_settings)
    total = sizes.grown_events * sizes.grown_event_seats
    run.say(f"growth: laying out {total} seats of {sizes.grown_events} events")
    template = put_on_sale(grown_settings, sizes.grown_event_seats)
    event_ids = [template.event_id, *_copies(grown_settings, template, sizes.grown_events - 1)]
    ratios: list[float] = []
    rounds: list[Figures] = []
    with Stage(replica_set, "bench_small") as small, Stage(replica_set, "bench_grown") as grown:
        for event_id in event_ids[-sizes.rounds :]:
            run.say("growth: hold, 1 seat, beside few seats and beside many")
            fresh = put_on_sale(small.settings, sizes.grown_event_seats)
            few, many = (
                selling.hold_seats(
                    stage,
                    Hold(
                        event_id=holding,
                        seat_count=sizes.grown_event_seats,
                        hold_count=sizes.grown_holds,
                    ),
                )
                for stage, holding in ((small, fresh.event_id), (grown, event_id))
            )
            rounds.append(many | {"holdsPerSecondBesideFew": few["holdsPerSecond"]})
            ratios.append(many["holdsPerSecond"] / few["holdsPerSecond"])
        run.say("growth: checking the invariants of both")
        findings = [*small.findings(), *grown.findings()]
    run.report.add("growth", rounds)
    run.report.add("growth", [{"seats": total, "ratioToFewSeats": median(ratios)}])
    run.report.time_must("growth ratio to few seats", median(ratios), ">=", 0.8)
    run.report.truth_must("growth invariants broken", len(findings), "<=", 0)


def _copies(settings: Settings, template: Sale, count: int) -> list[str]:
    """Copies of an event, its seats and its counters under other names; returns the names.

    The bytes of the stored documents are copied, with the event's identifier replaced by another
    of the same length: laid out as a real one it would take minutes.
    """
    made = [identifiers.fresh("evt") for _ in range(count)]
    with MongoClient[RawBSONDocument](
        settings.mongodb_uri, document_class=RawBSONDocument
    ) as client:
        database = client[settings.database]
        old = template.event_id.encode()
        for name in _COLLECTIONS:
            source: Collection[RawBSONDocument] = database[name]
            # Nobody reads these before all are there, so one node's word is enough.
            target = source.with_options(write_concern=WriteConcern(w=1))
            whole = (
                {"_id": seats.plan_range(template.event_id)}
                if name == "seats"
                else {"_id": template.event_id}
            )
            originals = [bytes(document.raw) for document in source.find(whole)]

            def copy(
                new: bytes,
                originals: list[bytes] = originals,
                target: Collection[RawBSONDocument] = target,
            ) -> None:
                for first in range(0, len(originals), _SEATS_PER_INSERT):
                    part = originals[first : first + _SEATS_PER_INSERT]
                    target.insert_many(
                        [RawBSONDocument(raw.replace(old, new)) for raw in part],
                        ordered=False,
                        bypass_document_validation=True,
                    )

            with ThreadPoolExecutor(2) as threads:
                list(threads.map(copy, (new.encode() for new in made)))
    return made


def three_nodes(run: Run) -> None:
    """Holds and purchases, half as many, on a replica set of three nodes."""
    run.say("three nodes: starting them")
    with (
        tempfile.TemporaryDirectory(prefix="ticketing-bench-") as folder,
        ReplicaSet(folder, nodes=3) as replica_set,
        Stage(replica_set, "bench") as stage,
    ):
        run.say("three nodes: hold, 1 seat")
        held = selling.hold(stage, run.sizes.hold_seats // 2, 1)
        run.say("three nodes: whole purchase")
        bought = selling.purchase(stage, run.sizes.purchases // 2)
        findings = stage.findings()
    run.report.add(
        "three-nodes",
        [
            {
                "holdsPerSecond": held["holdsPerSecond"],
                "holdOnlyP95Milliseconds": held["p95Milliseconds"],
                **bought,
            }
        ],
    )
    run.report.truth_must("three-nodes invariants broken", len(findings), "<=", 0)
