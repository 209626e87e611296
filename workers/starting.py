"""A worker's start: it waits for its database, says so, and refuses one that is the wrong one."""

import asyncio
import logging

from pymongo.errors import PyMongoError

from ticketing import deployment
from ticketing.mongo import Database
from ticketing.tasks import pause
from ticketing.telemetry.logs import named

PAUSE_SECONDS = 1.0
SAID_AGAIN_SECONDS = 10.0

log = logging.getLogger("ticketing.starting")


async def until_usable(database: Database, stopping: asyncio.Event) -> None:
    """Return when the database can be worked with, or when told to stop.

    Waits for what comes by itself: a primary, indexes that are being built. Raises Unusable for
    what does not.
    """
    loop = asyncio.get_running_loop()
    said: str | None = None
    said_at = 0.0
    while not stopping.is_set():
        try:
            await deployment.refuse_unusable(database)
            missing = await deployment.missing_indexes(database)
            reason = "; ".join(missing) and f"{'; '.join(missing)}: run scripts/indexes apply"
        except PyMongoError as error:
            reason = f"the database does not answer: {named(error)}"
        if not reason:
            if said is not None:
                log.info("The database is there.")
            return
        if reason != said or loop.time() - said_at > SAID_AGAIN_SECONDS:
            log.warning("Waiting: %s", reason)
            said, said_at = reason, loop.time()
        await pause(PAUSE_SECONDS, stopping)
