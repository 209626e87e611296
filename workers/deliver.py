"""The deliver worker: messages out of the outbox, to fans by mail, to organisers by webhook, and to
providers whose payment pages are over.

Any number may run.
"""

import asyncio
import logging

from pymongo.errors import PyMongoError

from ticketing import clock, mongo, outbox
from ticketing.account_mails import AccountMails
from ticketing.mails import Mails
from ticketing.mongo import Database
from ticketing.outbox import Consumer
from ticketing.payment_pages import PaymentPages
from ticketing.providers import Providers
from ticketing.settings import Settings
from ticketing.smtp import Smtp
from ticketing.tasks import end, pause
from ticketing.telemetry.logs import named
from ticketing.webhooks import Sender
from workers.metrics import Metrics

# Each consumer has places of its own: a mail server that is slow holds up no webhook.
AT_ONCE_MAX = 16
IDLE_SECONDS = 0.5
# What is under way when the worker is told to stop has this long to end. What is cut off is tried
# again when its lease lapses.
FINISH_SECONDS_MAX = 8.0

log = logging.getLogger("ticketing.deliver")


async def run(settings: Settings, metrics: Metrics, stopping: asyncio.Event) -> None:
    """Spread and deliver messages until told to stop; what is under way is finished first."""
    client = await mongo.connect(settings, listeners=metrics.database_listeners)
    post = Smtp(settings)
    sender = Sender(client.database, settings)
    providers = Providers(settings, client.database)
    consumers: list[Consumer] = [sender, PaymentPages(client.database, providers)]
    if settings.smtp_host:
        consumers.append(Mails(client.database, settings, post))
        consumers.append(AccountMails(client.database, settings, post))
    else:
        log.warning("No mail is sent: TICKETING_SMTP_HOST is not set.")
    log.info("The deliver worker is running.")
    try:
        await asyncio.gather(
            _spread(client.database, consumers, metrics, stopping),
            *(_deliver(client.database, consumer, metrics, stopping) for consumer in consumers),
        )
    finally:
        await sender.close()
        await providers.close()
        await post.close()
        await client.close()


async def _spread(
    database: Database, consumers: list[Consumer], metrics: Metrics, stopping: asyncio.Event
) -> None:
    while not stopping.is_set():
        spread = 0
        try:
            spread = await outbox.spread(database, consumers, clock.now())
            metrics.done("spread")
        except PyMongoError as error:
            metrics.failed("spread")
            log.warning("The database did not answer: %s", named(error))
        if not spread:
            await pause(IDLE_SECONDS, stopping)


async def _deliver(
    database: Database, consumer: Consumer, metrics: Metrics, stopping: asyncio.Event
) -> None:
    """Keep up to AT_ONCE_MAX deliveries of one consumer under way."""
    under_way: set[asyncio.Task[None]] = set()
    try:
        while not stopping.is_set():
            free = AT_ONCE_MAX - len(under_way)
            taken = await _take(database, consumer, metrics, free) if free else []
            for delivery in taken:
                task = asyncio.create_task(_one(database, consumer, delivery))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
            if not taken:
                await pause(IDLE_SECONDS, stopping)
        if under_way:
            await asyncio.wait(under_way, timeout=FINISH_SECONDS_MAX)
    finally:
        await end(*under_way)


async def _take(
    database: Database, consumer: Consumer, metrics: Metrics, limit: int
) -> list[mongo.Document]:
    try:
        taken = await outbox.take(database, consumer.name, clock.now(), limit)
        metrics.done(consumer.name)
        return taken
    except PyMongoError as error:
        metrics.failed(consumer.name)
        log.warning("The database did not answer: %s", named(error))
        return []


async def _one(database: Database, consumer: Consumer, delivery: mongo.Document) -> None:
    try:
        await outbox.deliver(database, consumer, delivery, clock.now())
    except PyMongoError as error:
        # Its lease lapses, and it is delivered once more.
        log.warning("delivery %s could not be written down: %s", delivery["_id"], named(error))
