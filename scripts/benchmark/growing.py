"""Scenarios on another database than the small one: a grown one, and one of three nodes."""

import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import httpx
import msgspec
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient, WriteConcern
from pymongo.collection import Collection

from scripts import token
from scripts.benchmark import selling
from scripts.benchmark.fans import Hold
from scripts.benchmark.figures import Figures
from scripts.benchmark.run import Run
from scripts.benchmark.stage import (
    ORGANISER,
    Sale,
    Stage,
    in_database,
    new_event,
    own_replica_set,
    prepare,
    put_on_sale,
)
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


def large_events(run: Run, replica_set: ReplicaSet) -> None:
    """Large events: made over the API, their seat maps asked for the first time, all in memory."""
    sizes = run.sizes
    run.say(f"large events: making one of {sizes.large_event_seats} seats over the API")
    with (
        Stage(replica_set, "bench_large") as stage,
        httpx.Client(
            base_url=f"http://127.0.0.1:{stage.settings.port}", trust_env=False, timeout=60.0
        ) as client,
    ):
        organiser = token.make(
            stage.settings, role=ORGANISER.role, subject=ORGANISER.subject, hours=1
        )
        headers = {"Authorization": f"Bearer {organiser}", "Content-Type": "application/json"}
        body = msgspec.json.encode(new_event(sizes.large_event_seats, 20))
        began = time.monotonic()
        made = client.post("/v1/events", content=body, headers=headers).raise_for_status()
        creation_seconds = time.monotonic() - began
        event_id = str(made.json()["eventId"])
        client.post(f"/v1/events/{event_id}/publish", headers=headers).raise_for_status()
        run.say(f"large events: {sizes.large_events} of them in the memory of one process")
        before = stage.memory_megabytes("Api")
        template = Sale(event_id, sizes.large_event_seats, ())
        event_ids = [event_id, *_copies(stage.settings, template, sizes.large_events - 1)]
        first_answers: list[float] = []
        for each in event_ids:
            began = time.monotonic()
            client.get(f"/v1/events/{each}/availability").raise_for_status()
            first_answers.append(time.monotonic() - began)
            client.get(f"/v1/events/{each}/seats").raise_for_status()
        after = stage.memory_megabytes("Api")
    figures = {
        "seats": float(sizes.large_event_seats),
        "events": float(sizes.large_events),
        "creationSeconds": creation_seconds,
        "firstAnswerMilliseconds": max(first_answers) * 1_000,
        "apiMegabytes": after,
        "apiMegabytesBefore": before,
    }
    run.report.add("large-events", [figures])
    report = run.report
    report.time_must("large-events creation seconds", creation_seconds, "<", 10)
    report.time_must("large-events first answer milliseconds", max(first_answers) * 1e3, "<", 1000)
    report.truth_must("large-events API megabytes", after, "<", 300)


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
            # Nobody reads the seats before the events, which come last, are durable on a majority:
            # and with them all that was written before.
            target = source.with_options(
                write_concern=WriteConcern(w=1 if name == "seats" else "majority")
            )
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
    with own_replica_set(nodes=3) as replica_set, Stage(replica_set, "bench") as stage:
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
