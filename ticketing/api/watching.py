"""The watchers of live dashboards, and the one poller per process that serves them.

The poller reads the dashboards of all events that somebody watches, and nothing while nobody does.
A watcher holds at most one document it has not sent yet: a newer one takes its place, so a slow
client gets the newest and never a backlog.
"""

import asyncio
import logging
from collections import defaultdict
from contextvars import Context

import msgspec
from pymongo.errors import PyMongoError

from ticketing import dashboards
from ticketing.api import answers
from ticketing.api.metrics import Metrics
from ticketing.mongo import Database, Document
from ticketing.tasks import end

POLL_INTERVAL_SECONDS = 0.2
OUTAGE_PAUSE_SECONDS = 1.0
WATCHERS_MAX = 1_000

logger = logging.getLogger(__name__)
_encoder = msgspec.json.Encoder()


class Watcher:
    """One connection's place for the newest document not sent yet."""

    def __init__(self) -> None:
        self._newest: tuple[int, str] | None = None
        self._sent_version = -1
        self._changed = asyncio.Event()

    def offer(self, version: int, text: str) -> None:
        """Put a document in place of the one that waits, unless it is no news."""
        waiting = self._newest[0] if self._newest else self._sent_version
        # Counters may be rebuilt, and then begin again at a lower version: other is news, too.
        if version != waiting:
            self._newest = (version, text)
            self._changed.set()

    async def next(self) -> str:
        """Wait for a document that was not sent yet, and take it."""
        while self._newest is None or self._newest[0] == self._sent_version:
            self._newest = None
            self._changed.clear()
            await self._changed.wait()
        self._sent_version, text = self._newest
        self._newest = None
        self._changed.clear()
        return text


class Watching:
    """All watchers of this process, and the poller that serves them."""

    def __init__(self, database: Database, metrics: Metrics) -> None:
        self._database = database
        self._metrics = metrics
        self._watchers: defaultdict[str, set[Watcher]] = defaultdict(set)
        self._versions: dict[str, int] = {}
        self._poller: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._count = 0

    @property
    def is_full(self) -> bool:
        """Whether no further connection is taken."""
        return self._count >= WATCHERS_MAX or self._closing.is_set()

    def add(self, event_id: str, watcher: Watcher) -> None:
        """Serve this watcher from now on; the first one starts the poller."""
        self._watchers[event_id].add(watcher)
        # The document a newcomer has was read before it came here. Had the poller told the others
        # a newer one in between, the newcomer would miss it: so it tells the newest once more, and
        # those who know it by its version take no notice.
        self._versions.pop(event_id, None)
        self._count += 1
        self._metrics.dashboard_clients.set(self._count)
        if self._poller is None:
            self._poller = asyncio.create_task(self._poll(), context=Context())

    def remove(self, event_id: str, watcher: Watcher) -> None:
        """Serve it no more; when nobody is left the poller stops by itself."""
        self._watchers[event_id].discard(watcher)
        self._count -= 1
        self._metrics.dashboard_clients.set(self._count)
        if not self._watchers[event_id]:
            del self._watchers[event_id]
            self._versions.pop(event_id, None)

    async def closing(self) -> None:
        """Wait until the process stops."""
        await self._closing.wait()

    async def close(self) -> None:
        """Let every connection go and stop the poller."""
        self._closing.set()
        if self._poller is not None:
            await end(self._poller)

    async def _poll(self) -> None:
        while self._watchers:
            try:
                await self._tell_changes()
                pause = POLL_INTERVAL_SECONDS
            except PyMongoError as error:
                logger.warning("dashboards can't be read just now: %s", type(error).__name__)
                pause = OUTAGE_PAUSE_SECONDS
            await asyncio.sleep(pause)
        self._poller = None

    async def _tell_changes(self) -> None:
        watched = list(self._watchers)
        found = await self._database.dashboards.find(
            {"_id": {"$in": watched}}, {"version": 1}
        ).to_list(len(watched))
        for event_id in [
            dashboard["_id"]
            for dashboard in found
            if self._versions.get(dashboard["_id"]) != dashboard["version"]
        ]:
            document = await dashboards.find(self._database, event_id)
            version, text = document["version"], encoded(document)
            # The last watcher may have left while the document was read.
            if event_id in self._watchers:
                self._versions[event_id] = version
                for watcher in self._watchers[event_id]:
                    watcher.offer(version, text)


def encoded(document: Document) -> str:
    """The dashboard as its watchers get it: the same document as by REST."""
    return _encoder.encode(answers.dashboard(document)).decode()
