"""A webhook is an address of an organiser's to which messages about their events are sent.

    enabled ⇄ disabled

What is sent is a CloudEvent signed by the Standard Webhooks scheme with the webhook's own secret.
A webhook to which nothing got through for a day, or that answers 410, is disabled until its
organiser enables it again. While it fails it is paused as a whole: the first requests after a
pause find out for all the others that wait.
"""

import base64
import re
import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import httpx
import msgspec
from pymongo import ReturnDocument
from pymongo.errors import DuplicateKeyError

from ticketing import addresses, back_off, gateway, identifiers, message_kinds, outbox, pages
from ticketing.clock import rfc3339, seconds
from ticketing.errors import IdempotencyKeyReused, Invalid, NotFound, Refusal
from ticketing.mongo import Database, Document
from ticketing.outbox import Done, Failed, Outcome, Postponed
from ticketing.pages import Page
from ticketing.settings import Settings

CONSUMER = "webhook"
MEDIA_TYPE = "application/cloudevents+json"
URL_LENGTH_MAX = 2_000
WEBHOOKS_PER_ORGANISER_MAX = 20
ATTEMPT_SECONDS = 15.0
# Both must be reached: a webhook that is asked seldom is not given up after a few bad moments.
FAILURES_MAX = 10
FAILING_SECONDS_MAX = 24 * 3_600.0
PAUSE_SECONDS_MAX = 3_600.0
# What is about somebody's account is no organiser's business.
KINDS = frozenset(kind for kind in message_kinds.KINDS if not kind.startswith("account."))
_SECRET_BYTES = 32
_HOST = re.compile(r"[A-Za-z0-9._:-]+")


class WebhookLimit(Refusal):
    """The organiser has as many webhooks as one may have."""

    slug = "webhook-limit"
    title = "Too many webhooks"

    def members(self) -> dict[str, Any]:
        return {"limit": WEBHOOKS_PER_ORGANISER_MAX}


# --- Registering -------------------------------------------------------------------------------


async def register(
    database: Database,
    settings: Settings,
    *,
    organiser_id: str,
    url: str,
    kinds: Sequence[str] | None,
    key: str | None,
    body: bytes,
    now: datetime,
) -> Document:
    """A new webhook for all kinds of messages or some; the same key gives the same one again.

    Raises Invalid, WebhookLimit, IdempotencyKeyReused.
    """
    wanted = _checked_kinds(kinds)
    identifier = identifiers.fresh("whk") if key is None else _keyed(organiser_id, key)
    request_hash = identifiers.digest(body)
    if key is not None and (made := await database.webhooks.find_one({"_id": identifier})):
        return _same(made, request_hash)
    await _check_url(url, settings)
    # Two requests at once may each find room for the last one. The limit keeps a list short, and
    # one more does no harm.
    mine = await database.webhooks.count_documents(
        {"organiserId": organiser_id}, limit=WEBHOOKS_PER_ORGANISER_MAX
    )
    if mine >= WEBHOOKS_PER_ORGANISER_MAX:
        raise WebhookLimit(f"There may be {WEBHOOKS_PER_ORGANISER_MAX} webhooks at most.")
    webhook: Document = {
        "_id": identifier,
        "organiserId": organiser_id,
        "url": url,
        "kinds": wanted,
        "secret": _new_secret(),
        "status": "enabled",
        "failures": 0,
        "requestHash": request_hash,
        "createdAt": now,
    }
    try:
        await database.webhooks.insert_one(webhook)
    except DuplicateKeyError:
        return _same(await find(database, identifier, organiser_id), request_hash)
    return webhook


def _new_secret() -> str:
    return "whsec_" + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def _keyed(organiser_id: str, key: str) -> str:
    return identifiers.derived("whk", organiser_id, key)


def _same(made: Document, request_hash: str) -> Document:
    if made["requestHash"] != request_hash:
        raise IdempotencyKeyReused("This key was used with another body.")
    return made


def _checked_kinds(kinds: Sequence[str] | None) -> list[str]:
    """The kinds wanted; all there are where none are named."""
    if kinds is None:
        return sorted(KINDS)
    faults = [
        (f"kinds[{index}]", "is not a kind of message")
        for index, kind in enumerate(kinds[: len(KINDS) + 1])
        if kind not in KINDS
    ]
    if not kinds or len(kinds) > len(KINDS):
        faults.append(("kinds", f"must have 1 to {len(KINDS)} kinds"))
    if faults:
        raise Invalid(faults)
    return sorted(set(kinds))


async def _check_url(text: str, settings: Settings) -> None:
    """Raises Invalid for an address that nothing will ever be sent to."""
    fault = _url_fault(text, settings)
    if fault is None:
        url = httpx.URL(text)
        try:
            await addresses.public_address(
                _host(url), _port(url), private_allowed=_private_allowed(settings)
            )
        except addresses.NotPublic:
            fault = "must be at a public address"
        except addresses.Unresolved:
            return  # It may be set up later; each delivery looks for itself.
    if fault is not None:
        raise Invalid([("url", fault)])


def _url_fault(text: str, settings: Settings) -> str | None:
    if len(text) > URL_LENGTH_MAX:
        return f"must be at most {URL_LENGTH_MAX} characters long"
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, ValueError):
        return "is not a URL"
    schemes = ("https", "http") if _private_allowed(settings) else ("https",)
    if url.scheme not in schemes or not url.host:
        return f"must begin with {' or '.join(f'{scheme}://' for scheme in schemes)}"
    if not _HOST.fullmatch(_host(url)) or not 0 < _port(url) < 65536:
        return "has no host and port that can be"
    if url.userinfo or url.fragment:
        return "must have no user, password or fragment"
    return None


def _private_allowed(settings: Settings) -> bool:
    return settings.webhooks_to_private_addresses == "on"


def _host(url: httpx.URL) -> str:
    """The host as it is looked up: international names in their ASCII form."""
    return url.raw_host.decode("ascii")


def _port(url: httpx.URL) -> int:
    return url.port if url.port is not None else {"https": 443, "http": 80}[url.scheme]


# --- Looking after -----------------------------------------------------------------------------


async def listing(database: Database, organiser_id: str) -> list[Document]:
    """The organiser's webhooks, oldest first."""
    # The limit of registering is a soft one; what is past it by a race is seen all the same.
    most = WEBHOOKS_PER_ORGANISER_MAX * 2
    found = database.webhooks.find({"organiserId": organiser_id})
    return await found.sort([("createdAt", 1), ("_id", 1)]).limit(most).to_list(most)


async def find(database: Database, webhook_id: str, organiser_id: str) -> Document:
    """The organiser's own webhook. Raises NotFound, also for another organiser's."""
    webhook = await database.webhooks.find_one({"_id": webhook_id, "organiserId": organiser_id})
    if webhook is None:
        raise NotFound("There is no such webhook.")
    return webhook


async def remove(database: Database, webhook_id: str, organiser_id: str) -> None:
    """Remove a webhook. What waits for it is given up when its turn comes. Raises NotFound."""
    removed = await database.webhooks.delete_one({"_id": webhook_id, "organiserId": organiser_id})
    if removed.deleted_count == 0:
        raise NotFound("There is no such webhook.")


async def enable(database: Database, webhook_id: str, organiser_id: str) -> Document:
    """Send to a webhook again, as if it had never failed. Raises NotFound."""
    enabled: Document | None = await database.webhooks.find_one_and_update(
        {"_id": webhook_id, "organiserId": organiser_id},
        {
            "$set": {"status": "enabled", "failures": 0},
            "$unset": {"failingSince": "", "pausedUntil": "", "disabledBecause": ""},
        },
        return_document=ReturnDocument.AFTER,
    )
    if enabled is None:
        raise NotFound("There is no such webhook.")
    return enabled


async def deliveries(
    database: Database,
    webhook_id: str,
    organiser_id: str,
    *,
    limit: int,
    cursor: str | None = None,
) -> Page:
    """What was sent to a webhook, or is to be, newest first. Raises NotFound, Invalid."""
    await find(database, webhook_id, organiser_id)
    kind = f"deliveries of {webhook_id}"
    filter_: Document = {"target": webhook_id, "consumer": CONSUMER}
    if position := pages.decode(cursor, kind):
        filter_["createdAt"] = {"$lte": position.instant}
        filter_["$or"] = [
            {"createdAt": {"$lt": position.instant}},
            {"_id": {"$lt": position.identifier}},
        ]
    found = database.deliveries.find(filter_).sort([("createdAt", -1), ("_id", -1)])
    return pages.cut(await found.limit(limit + 1).to_list(limit + 1), limit, kind, "createdAt")


async def replay(
    database: Database, webhook_id: str, message_id: str, organiser_id: str, now: datetime
) -> Document:
    """Send a message to a webhook once more, whatever became of it; the delivery, waiting.

    The receiver can tell the repetition by its `webhook-id`. A delivery that still waits or is
    under way stays as it is. Raises NotFound.
    """
    await find(database, webhook_id, organiser_id)
    mine = {"_id": f"{message_id}:{webhook_id}"}
    waiting: Document | None = await database.deliveries.find_one_and_update(
        {**mine, "status": {"$in": ["done", "skipped", "dead"]}},
        outbox.again(now),
        return_document=ReturnDocument.AFTER,
    )
    waiting = waiting or await database.deliveries.find_one(mine)
    if waiting is None:
        raise NotFound("This message was not sent to this webhook.")
    return waiting


# --- Sending -----------------------------------------------------------------------------------


class Sender:
    """Sends messages to webhooks."""

    name = CONSUMER

    def __init__(
        self, database: Database, settings: Settings, http: httpx.AsyncClient | None = None
    ) -> None:
        self._database = database
        self._settings = settings
        self._http = http or httpx.AsyncClient(
            timeout=ATTEMPT_SECONDS,
            follow_redirects=False,
            # A proxy would look up the name once more, and might reach what we must not.
            trust_env=False,
            # Connections are known by their address alone. One that stays open was verified for
            # one name and would be used for another name at the same address.
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._http.aclose()

    async def targets(self, messages: Sequence[Document]) -> dict[str, list[str]]:
        """The enabled webhooks of each event's organiser that want messages of this kind."""
        event_ids = list({message["eventId"] for message in messages if "eventId" in message})
        if not event_ids:
            return {}
        shows = self._database.events.find({"_id": {"$in": event_ids}}, {"organiserId": 1})
        organisers = {
            show["_id"]: show["organiserId"] for show in await shows.to_list(len(event_ids))
        }
        organiser_ids = list(set(organisers.values()))
        if not organiser_ids:
            return {}
        most = len(organiser_ids) * WEBHOOKS_PER_ORGANISER_MAX * 2
        found = self._database.webhooks.find({"organiserId": {"$in": organiser_ids}})
        enabled = [hook for hook in await found.to_list(most) if hook["status"] == "enabled"]
        return {
            message["_id"]: [
                hook["_id"]
                for hook in enabled
                if hook["organiserId"] == organisers.get(message.get("eventId"))
                and message["kind"] in hook["kinds"]
            ]
            for message in messages
        }

    async def deliver(self, message: Document, target: str, now: datetime) -> Outcome:
        """Post the message once, unless its webhook is gone, disabled or paused."""
        webhook = await self._database.webhooks.find_one({"_id": target})
        if webhook is None:
            return Failed("the webhook was removed", lasting=True)
        if webhook["status"] == "disabled":
            return Failed("the webhook is disabled", lasting=True)
        if webhook.get("pausedUntil", now) > now:
            return Postponed(webhook["pausedUntil"])
        outcome = await self._post(webhook, message, now)
        if isinstance(outcome, Done):
            await self._recovered(webhook)
        elif isinstance(outcome, Failed):
            await self._failed(webhook, outcome, now)
        return outcome

    async def _post(self, webhook: Document, message: Document, now: datetime) -> Outcome:
        url = httpx.URL(webhook["url"])
        try:
            address = await addresses.public_address(
                _host(url), _port(url), private_allowed=_private_allowed(self._settings)
            )
        except (addresses.NotPublic, addresses.Unresolved) as reason:
            return Failed(str(reason))
        body = cloud_event(message, self._settings.public_url)
        headers = gateway.signed(secret_key(webhook), message["_id"], body, now)
        headers |= {"content-type": MEDIA_TYPE, "host": url.netloc.decode("ascii")}
        try:
            async with self._http.stream(
                "POST",
                url.copy_with(host=address),
                content=body,
                headers=headers,
                extensions={"sni_hostname": _host(url)},
            ) as answer:
                # What it says beside the status is of no use to us, and might have no end.
                return _judged(answer)
        except httpx.HTTPError as error:
            return Failed(f"no answer: {type(error).__name__}")

    async def _recovered(self, webhook: Document) -> None:
        if webhook["failures"]:
            await self._database.webhooks.update_one(
                {"_id": webhook["_id"]},
                {"$set": {"failures": 0}, "$unset": {"failingSince": "", "pausedUntil": ""}},
            )

    async def _failed(self, webhook: Document, outcome: Failed, now: datetime) -> None:
        """Pause the webhook, or disable it.

        Of several requests that fail at once only the first one counts: the others do not find
        the webhook as it was read.
        """
        failures = webhook["failures"] + 1
        since = webhook.get("failingSince", now)
        too_long = failures >= FAILURES_MAX and now - since >= seconds(FAILING_SECONDS_MAX)
        change: Document
        if outcome.lasting:
            change = {"status": "disabled", "disabledBecause": "it answered that it is gone"}
        elif too_long:
            change = {"status": "disabled", "disabledBecause": "nothing got through for a day"}
        else:
            pause = back_off.pause(failures, longest_seconds=PAUSE_SECONDS_MAX)
            change = {"pausedUntil": now + pause}
        await self._database.webhooks.update_one(
            {"_id": webhook["_id"], "failures": webhook["failures"], "status": "enabled"},
            {"$set": {**change, "failures": failures, "failingSince": since}},
        )


def _judged(answer: httpx.Response) -> Outcome:
    status = answer.status_code
    if answer.is_success:
        return Done(f"answered {status}")
    if status == 410:
        return Failed("answered 410: it is gone", lasting=True)
    if answer.is_redirect or 300 <= status < 400:
        return Failed(f"answered {status}: redirects are not followed")
    asked = answer.headers.get("retry-after", "")
    # An instant instead of seconds is rare; then our own pause will do.
    pause = float(asked) if asked.isascii() and asked.isdigit() and len(asked) < 7 else 0.0
    return Failed(f"answered {status}", retry_after_seconds=min(pause, outbox.RETRY_SECONDS_MAX))


def secret_key(webhook: Document) -> bytes:
    """The bytes that sign what is sent to a webhook."""
    return base64.b64decode(webhook["secret"].removeprefix("whsec_"))


def cloud_event(message: Document, public_url: str) -> bytes:
    """The message as a CloudEvent; byte for byte the same at each attempt.

    `timestamp` is what Standard Webhooks wants beside `type` and `data`; for CloudEvents it is an
    extension.
    """
    happened_at = rfc3339(message["createdAt"])
    about = {"orderId": message["orderId"]} if "orderId" in message else {}
    return msgspec.json.encode(
        {
            "specversion": "1.0",
            "id": message["_id"],
            "source": f"{public_url}/v1/events/{message['eventId']}",
            "type": f"ticketing.{message['kind']}",
            "subject": message.get("orderId", message["eventId"]),
            "time": happened_at,
            "timestamp": happened_at,
            "datacontenttype": "application/json",
            "dataschema": message_kinds.schema_id(message["kind"], message["version"]),
            "data": {"eventId": message["eventId"], **about, **message["body"]},
        }
    )
