"""What a person sees while an index is built that takes long."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

from pymongo.collection import Collection
from pymongo.errors import PyMongoError

REPORT_SECONDS = 5.0


@contextlib.contextmanager
def reported(collection: Collection[dict[str, Any]], say: Callable[[str], None]) -> Iterator[None]:
    """While the body builds indexes of the collection, say every few seconds how far it is."""
    finished = threading.Event()
    begun_at = monotonic()

    def report() -> None:
        while not finished.wait(REPORT_SECONDS):
            # The report is a courtesy: a user who may not see running operations, or a node that
            # is just being replaced, must not disturb the build.
            with contextlib.suppress(PyMongoError):
                say(f"{collection.name}: {_state(collection)}, {monotonic() - begun_at:.0f} s")

    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    try:
        yield
    finally:
        finished.set()
        reporter.join()


def _state(collection: Collection[dict[str, Any]]) -> str:
    running = collection.database.client.admin.aggregate(
        [
            # The thread that builds counts as idle: it belongs to no connection.
            {"$currentOp": {"allUsers": True, "idleConnections": True}},
            {
                "$match": {
                    "command.createIndexes": collection.name,
                    "command.$db": collection.database.name,
                    "progress.total": {"$gt": 0},
                }
            },
            {"$project": {"progress": 1}},
        ]
    )
    for operation in running:
        done, total = operation["progress"]["done"], operation["progress"]["total"]
        return f"building, {done:,} of {total:,} in this step"
    return "building"
