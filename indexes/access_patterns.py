"""The questions the product asks of its collections, in the very shape in which it asks them.

The samples name nobody, so that a question costs nothing on any database; the server chooses an
index by the shape of a filter, not by what it finds. A question that is new in the code is
declared here first: `verify` then tells whether an index answers it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from indexes import declared
from indexes.declared import Index

EVENT = "evt_nobody"
FAN = "fan_nobody"
HOLD = "hold_nobody.nobody.nobody.nobody"
ORDER = "ord_nobody"
PAYMENT = "pay_nobody"
MESSAGE = "msg_nobody"
WEBHOOK = "whk_nobody"
NOW = datetime(2030, 1, 1, tzinfo=UTC)
LATER = datetime(2030, 2, 1, tzinfo=UTC)
PAGE = 21

Sort = tuple[tuple[str, int], ...]
BY_ID: Sort = (("_id", 1),)
SOONEST_FIRST: Sort = (("startsAt", 1), ("_id", 1))
NEWEST_FIRST: Sort = (("createdAt", -1), ("_id", -1))


@dataclass(frozen=True)
class AccessPattern:
    """A question, its filter, order and limit, and the index that must answer it.

    `index` None means the `_id` index that every collection has.
    """

    question: str
    collection: str
    filter: Mapping[str, Any] = field(hash=False)
    index: Index | None = None
    sort: Sort = ()
    limit: int = 0


def _seats_of(event_id: str, first: int | None = None) -> dict[str, Any]:
    if first is None:
        return {"_id": {"$gte": f"{event_id}:00000", "$lt": f"{event_id};"}}
    return {"_id": {"$gte": f"{event_id}:{first:05d}", "$lt": f"{event_id}:{first + 500:05d}"}}


def _fans_seats(event_token: str, fan_token: str) -> dict[str, Any]:
    prefix = f"hold_{event_token}.{fan_token}"
    return {"holdId": {"$gte": f"{prefix}.", "$lt": f"{prefix}/"}}


SEATS = (
    AccessPattern("the seat map of an event", "seats", _seats_of(EVENT), sort=BY_ID),
    AccessPattern("the seats of a section", "seats", _seats_of(EVENT, 0), sort=BY_ID),
    AccessPattern(
        "free seats of a section",
        "seats",
        {
            **_seats_of(EVENT, 0),
            "$or": [{"status": "available"}, {"status": "held", "heldUntil": {"$lte": NOW}}],
        },
        sort=BY_ID,
        limit=8,
    ),
    AccessPattern("seats by their ids", "seats", {"_id": {"$in": [f"{EVENT}:1", f"{EVENT}:2"]}}),
    AccessPattern("seats of a hold", "seats", {"holdId": HOLD}, declared.SEATS_BY_HOLD),
    AccessPattern(
        "seats of several holds",
        "seats",
        {"holdId": {"$in": [HOLD, f"{HOLD}2"]}, "status": "held"},
        declared.SEATS_BY_HOLD,
    ),
    AccessPattern(
        "a fan's seats for an event",
        "seats",
        _fans_seats("nobody", "nobody"),
        declared.SEATS_BY_HOLD,
    ),
    AccessPattern(
        "several fans' seats for their events",
        "seats",
        {"$or": [_fans_seats("nobody", "nobody"), _fans_seats("nobody", "somebody")]},
        declared.SEATS_BY_HOLD,
    ),
    AccessPattern(
        "the seat in one of a fan's places",
        "seats",
        {"fanSlot": "nobody.nobody.0"},
        declared.SEATS_BY_FAN_SLOT,
    ),
    AccessPattern(
        "overdue holds",
        "seats",
        {"heldUntil": {"$lte": NOW}, "status": "held"},
        declared.SEATS_BY_END_OF_HOLD,
        sort=(("heldUntil", 1),),
        limit=1_000,
    ),
    AccessPattern(
        "items of an order",
        "seats",
        {"orderId": ORDER, "status": "sold"},
        declared.SEATS_BY_ORDER,
    ),
)

EVENTS = (
    AccessPattern("an event by its id", "events", {"_id": EVENT, "status": {"$ne": "creating"}}),
    AccessPattern(
        "events that were moved",
        "events",
        {"moveDueAt": {"$lte": NOW}},
        declared.EVENTS_MOVED,
        (("moveDueAt", 1),),
        1,
    ),
    AccessPattern(
        "events on sale by date",
        "events",
        {"status": "published", "startsAt": {"$gte": NOW, "$lt": LATER}},
        declared.EVENTS_BY_DATE,
        SOONEST_FIRST,
        PAGE,
    ),
    AccessPattern(
        "the next page of events on sale",
        "events",
        {
            "$and": [
                {"startsAt": {"$gte": NOW}},
                {"status": "published"},
                {"$or": [{"startsAt": {"$gt": NOW}}, {"startsAt": NOW, "_id": {"$gt": EVENT}}]},
            ]
        },
        declared.EVENTS_BY_DATE,
        SOONEST_FIRST,
        PAGE,
    ),
    AccessPattern(
        "events on sale by category",
        "events",
        {"status": "published", "category": "no such category"},
        declared.EVENTS_BY_CATEGORY,
        SOONEST_FIRST,
        PAGE,
    ),
    AccessPattern(
        "events on sale by text",
        "events",
        {"status": "published", "words": "nosuchword"},
        declared.EVENTS_BY_WORD,
        SOONEST_FIRST,
        PAGE,
    ),
    AccessPattern(
        "an organiser's events",
        "events",
        {"organiserId": "nobody"},
        declared.EVENTS_BY_ORGANISER,
        SOONEST_FIRST,
        PAGE,
    ),
    AccessPattern(
        "the next page of an organiser's events for the books",
        "events",
        {
            "organiserId": "nobody",
            "status": {"$ne": "creating"},
            "startsAt": {"$gte": NOW},
            "$or": [{"startsAt": {"$gt": NOW}}, {"_id": {"$gt": EVENT}}],
        },
        declared.EVENTS_BY_ORGANISER,
        SOONEST_FIRST,
        100,
    ),
    AccessPattern(
        "an organiser's events by status",
        "events",
        {"status": "draft", "organiserId": "nobody"},
        declared.EVENTS_BY_ORGANISER,
        SOONEST_FIRST,
        PAGE,
    ),
    AccessPattern(
        "set-ups that were left behind",
        "events",
        {"status": "creating", "setupUntil": {"$lte": NOW}},
        declared.EVENTS_BY_DATE,
        limit=10,
    ),
    AccessPattern(
        "events that are over",
        "events",
        {"status": "published", "saleEndsAt": {"$lte": NOW}, "startsAt": {"$lte": NOW}},
        declared.EVENTS_BY_DATE,
        limit=1_000,
    ),
)

ORDERS = (
    AccessPattern("an order by its id", "orders", {"_id": ORDER, "fanId": FAN}),
    AccessPattern(
        "an order by its reference",
        "orders",
        {"reference": "NOBODY"},
        declared.ORDERS_BY_REFERENCE,
    ),
    AccessPattern(
        "a fan's orders, newest first",
        "orders",
        {"fanId": FAN},
        declared.ORDERS_BY_FAN,
        NEWEST_FIRST,
        PAGE,
    ),
    AccessPattern(
        "a fan's orders by status",
        "orders",
        {"fanId": FAN, "status": "confirmed"},
        declared.ORDERS_BY_FAN_AND_STATUS,
        NEWEST_FIRST,
        PAGE,
    ),
    AccessPattern(
        "the next page of a fan's orders",
        "orders",
        {
            "fanId": FAN,
            "createdAt": {"$lte": NOW},
            "$or": [{"createdAt": {"$lt": NOW}}, {"_id": {"$lt": ORDER}}],
        },
        declared.ORDERS_BY_FAN,
        NEWEST_FIRST,
        PAGE,
    ),
    AccessPattern(
        "a fan's tickets for coming events",
        "orders",
        {"fanId": FAN, "status": "confirmed", "event.startsAt": {"$gte": NOW}},
        declared.ORDERS_BY_FAN_AND_SHOW,
        (("event.startsAt", 1), ("_id", 1)),
        PAGE,
    ),
    AccessPattern(
        "a fan's tickets for past events",
        "orders",
        {"fanId": FAN, "status": "confirmed", "event.startsAt": {"$lt": NOW}},
        declared.ORDERS_BY_FAN_AND_SHOW,
        (("event.startsAt", -1), ("_id", -1)),
        PAGE,
    ),
    AccessPattern(
        "an event's orders, newest first",
        "orders",
        {"eventId": EVENT},
        declared.ORDERS_BY_EVENT,
        NEWEST_FIRST,
        PAGE,
    ),
    AccessPattern(
        "the most recent confirmed orders",
        "orders",
        {"eventId": EVENT, "status": "confirmed"},
        declared.ORDERS_BY_CONFIRMATION,
        (("confirmedAt", -1),),
        10,
    ),
    AccessPattern(
        "the last sales of an event, cancelled ones too",
        "orders",
        {"eventId": EVENT, "confirmedAt": {"$exists": True}},
        declared.ORDERS_BY_CONFIRMATION,
        (("confirmedAt", -1),),
        10,
    ),
    AccessPattern(
        "the order of a hold",
        "orders",
        {"holdId": HOLD},
        declared.ORDERS_BY_HOLD,
        (("expiresAt", -1),),
        1,
    ),
    AccessPattern(
        "the orders of several holds",
        "orders",
        {"holdId": {"$in": [HOLD, f"{HOLD}2"]}},
        declared.ORDERS_BY_HOLD,
    ),
    AccessPattern(
        "the order of a hold that waits for payment",
        "orders",
        {"holdId": HOLD, "status": "pendingPayment"},
        declared.ORDERS_BY_HOLD,
    ),
    AccessPattern(
        "the order made with a key",
        "orders",
        {"placementKey": "nobody"},
        declared.ORDERS_BY_PLACEMENT_KEY,
    ),
    AccessPattern(
        "the order of a payment",
        "orders",
        {"payment.paymentId": PAYMENT},
        declared.ORDERS_BY_PAYMENT,
    ),
    AccessPattern(
        "the orders of several payments",
        "orders",
        {"payment.paymentId": {"$in": [PAYMENT, f"{PAYMENT}2"]}},
        declared.ORDERS_BY_PAYMENT,
    ),
    AccessPattern(
        "void tickets of an event",
        "orders",
        {"eventId": EVENT, "tickets.status": "void"},
        declared.ORDERS_WITH_VOID_TICKETS,
        (("createdAt", 1), ("_id", 1)),
        PAGE,
    ),
    AccessPattern(
        "the next page of void tickets of an event",
        "orders",
        {
            "eventId": EVENT,
            "tickets.status": "void",
            "createdAt": {"$gte": NOW},
            "$or": [{"createdAt": {"$gt": NOW}}, {"_id": {"$gte": ORDER}}],
        },
        declared.ORDERS_WITH_VOID_TICKETS,
        (("createdAt", 1), ("_id", 1)),
        PAGE,
    ),
    AccessPattern(
        "overdue orders",
        "orders",
        {"status": "pendingPayment", "expiresAt": {"$lte": NOW}},
        declared.ORDERS_BY_END_OF_PAYMENT,
        (("expiresAt", 1),),
        1_000,
    ),
)

MONEY = (
    AccessPattern("a payment by its id", "payments", {"_id": PAYMENT}),
    AccessPattern(
        "payments of an order", "payments", {"orderId": ORDER}, declared.PAYMENTS_BY_ORDER
    ),
    AccessPattern(
        "refunds of a payment", "refunds", {"paymentId": PAYMENT}, declared.REFUNDS_BY_PAYMENT
    ),
    AccessPattern(
        "refunds of an event",
        "refunds",
        {"eventId": EVENT, "status": "done", "currency": "EUR"},
        declared.REFUNDS_BY_EVENT,
    ),
    AccessPattern(
        "orders of a moved event that are behind",
        "orders",
        {
            "eventId": EVENT,
            "status": {"$in": ["pendingPayment", "confirmed"]},
            "event.moves": {"$ne": 1},
        },
        declared.ORDERS_BY_EVENT,
        NEWEST_FIRST,
    ),
    AccessPattern(
        "refunds of an event, newest first",
        "refunds",
        {"eventId": EVENT},
        declared.REFUNDS_BY_EVENT,
        NEWEST_FIRST,
        PAGE,
    ),
    AccessPattern(
        "an event's ledger",
        "ledger",
        {"eventId": EVENT},
        declared.LEDGER_BY_EVENT,
        (("at", 1), ("_id", 1)),
        PAGE,
    ),
    AccessPattern(
        "the next part of an event's ledger of a period",
        "ledger",
        {
            "eventId": EVENT,
            "at": {"$gte": NOW, "$lt": LATER},
            "$or": [{"at": {"$gt": NOW}}, {"_id": {"$gt": "pay_nobody:sale"}}],
        },
        declared.LEDGER_BY_EVENT,
        (("at", 1), ("_id", 1)),
        1_000,
    ),
    AccessPattern(
        "the ledger of several events up to a time",
        "ledger",
        {"eventId": {"$in": [EVENT, f"{EVENT}2"]}, "at": {"$lt": NOW}},
        declared.LEDGER_BY_EVENT,
    ),
    AccessPattern(
        "refunds that are due",
        "refunds",
        {"dueAt": {"$lte": NOW}},
        declared.REFUNDS_DUE,
        (("dueAt", 1),),
        100,
    ),
    AccessPattern(
        "refunds given up",
        "refunds",
        {"givenUpAt": {"$exists": True}},
        declared.REFUNDS_GIVEN_UP,
        limit=50,
    ),
    AccessPattern(
        "payments to look up",
        "payments",
        {"lookUpAt": {"$lte": NOW}},
        declared.PAYMENTS_TO_LOOK_UP,
        (("lookUpAt", 1),),
        100,
    ),
    AccessPattern(
        "payments by charge",
        "payments",
        {"charge": {"$in": ["nothing"]}},
        declared.PAYMENTS_BY_CHARGE,
    ),
    AccessPattern(
        "payments that are uncertain",
        "payments",
        {"status": "uncertain"},
        declared.PAYMENTS_UNCERTAIN,
        limit=50,
    ),
    AccessPattern("refunds by their ids", "refunds", {"_id": {"$in": ["rfd_1", "rfd_2"]}}),
    AccessPattern("orders by their ids", "orders", {"_id": {"$in": [ORDER, f"{ORDER}2"]}}),
    AccessPattern(
        "notices to look at again",
        "notices",
        {"lookAgainAt": {"$lte": NOW}},
        declared.NOTICES_TO_LOOK_AT,
        (("lookAgainAt", 1),),
        100,
    ),
    AccessPattern(
        "notices of unknown payments",
        "notices",
        {"outcome": "unknown"},
        declared.NOTICES_UNKNOWN,
        limit=50,
    ),
    AccessPattern(
        "jobs to work at",
        "jobs",
        {"status": "running", "leaseUntil": {"$lte": NOW}},
        declared.JOBS_DUE,
        (("leaseUntil", 1),),
        1,
    ),
    AccessPattern("what the sandbox knows of a payment", "sandbox_payments", {"_id": PAYMENT}),
    AccessPattern("how the sandbox behaves", "sandbox", {"_id": "switches"}),
    AccessPattern(
        "the open orders of a cancelled event",
        "orders",
        {
            "eventId": EVENT,
            "status": {"$in": ["pendingPayment", "confirmed"]},
            "createdAt": {"$lte": NOW},
            "$or": [{"createdAt": {"$lt": NOW}}, {"_id": {"$lt": ORDER}}],
        },
        declared.ORDERS_BY_EVENT,
        NEWEST_FIRST,
        50,
    ),
    AccessPattern("notices by their ids", "notices", {"_id": {"$in": ["sandbox:1", "sandbox:2"]}}),
    AccessPattern(
        "notices of a payment", "notices", {"paymentId": PAYMENT}, declared.NOTICES_BY_PAYMENT
    ),
    # The shape in which the server itself looks for what to remove.
    AccessPattern(
        "notices past their keeping",
        "notices",
        {"receivedAt": {"$lte": NOW}},
        declared.NOTICES_BY_AGE,
    ),
)

OTHERS = (
    AccessPattern("a fan's profile", "fans", {"_id": FAN}),
    AccessPattern("the counters of an event", "dashboards", {"_id": EVENT}),
    AccessPattern("the place in the change stream", "resume_tokens", {"_id": "changes"}),
    AccessPattern("the migrations, the newest first", "migrations", {}, None, (("_id", -1),), 1),
    AccessPattern("what the latest check found", "audits", {"_id": "latest", "fence": {"$lte": 1}}),
    AccessPattern("the heartbeat of the change stream", "heartbeats", {"_id": "changes"}),
    AccessPattern(
        "changes that could not be counted",
        "changes_set_aside",
        {"open": True},
        declared.CHANGES_SET_ASIDE,
    ),
    # The shape in which the server itself looks for what to remove.
    AccessPattern(
        "changes set aside past their keeping",
        "changes_set_aside",
        {"setAsideAt": {"$lte": NOW}},
        declared.CHANGES_SET_ASIDE_BY_AGE,
    ),
    AccessPattern(
        "a job whose lease is over", "leases", {"_id": "changes", "until": {"$lte": NOW}}
    ),
    AccessPattern("a lease of one's own", "leases", {"_id": "changes", "fence": 1}),
    AccessPattern("a message by its id", "outbox", {"_id": MESSAGE}),
    AccessPattern(
        "messages to spread",
        "outbox",
        {"pending": True},
        declared.OUTBOX_PENDING,
        (("createdAt", 1), ("_id", 1)),
        200,
    ),
    AccessPattern(
        "messages past their keeping",
        "outbox",
        {"forgetAt": {"$lte": NOW}},
        declared.OUTBOX_TO_FORGET,
    ),
    AccessPattern("a delivery by its id", "deliveries", {"_id": f"{MESSAGE}:mail"}),
    AccessPattern(
        "deliveries that are due",
        "deliveries",
        {"consumer": "mail", "dueAt": {"$lte": NOW}},
        declared.DELIVERIES_DUE,
        (("dueAt", 1),),
        200,
    ),
    AccessPattern(
        "open deliveries of a lane",
        "deliveries",
        {"lane": f"mail:{ORDER}", "dueAt": {"$exists": True}, "status": "waiting"},
        declared.DELIVERIES_BY_LANE,
        BY_ID,
        1,
    ),
    AccessPattern(
        "open deliveries of several lanes",
        "deliveries",
        {"lane": {"$in": [f"mail:{ORDER}", f"mail:{ORDER}2"]}, "dueAt": {"$exists": True}},
        declared.DELIVERIES_BY_LANE,
        (("lane", 1), ("_id", 1)),
    ),
    AccessPattern(
        "deliveries to a webhook, newest first",
        "deliveries",
        {"target": WEBHOOK, "consumer": "webhook"},
        declared.DELIVERIES_BY_WEBHOOK,
        NEWEST_FIRST,
        PAGE,
    ),
    AccessPattern(
        "deliveries to a webhook, next page",
        "deliveries",
        {
            "target": WEBHOOK,
            "consumer": "webhook",
            "createdAt": {"$lte": NOW},
            "$or": [{"createdAt": {"$lt": NOW}}, {"_id": {"$lt": f"{MESSAGE}:{WEBHOOK}"}}],
        },
        declared.DELIVERIES_BY_WEBHOOK,
        NEWEST_FIRST,
        PAGE,
    ),
    AccessPattern(
        "dead letters",
        "deliveries",
        {"status": "dead"},
        declared.DELIVERIES_DEAD,
        (("settledAt", -1),),
        100,
    ),
    AccessPattern(
        "dead letters so far",
        "deliveries",
        {"status": "dead", "settledAt": {"$lte": NOW}},
        declared.DELIVERIES_DEAD,
    ),
    AccessPattern(
        "deliveries past their keeping",
        "deliveries",
        {"forgetAt": {"$lte": NOW}},
        declared.DELIVERIES_TO_FORGET,
    ),
    AccessPattern("a webhook by its id", "webhooks", {"_id": WEBHOOK, "organiserId": "org_nobody"}),
    AccessPattern(
        "webhooks of an organiser",
        "webhooks",
        {"organiserId": "org_nobody"},
        declared.WEBHOOKS_BY_ORGANISER,
        (("createdAt", 1), ("_id", 1)),
        40,
    ),
    AccessPattern(
        "webhooks of several organisers",
        "webhooks",
        {"organiserId": {"$in": ["org_nobody", "org_none"]}},
        declared.WEBHOOKS_BY_ORGANISER,
    ),
    AccessPattern(
        "seat changes of an event since a version",
        "seat_changes",
        {"_id": {"$gt": f"{EVENT}:1", "$lt": f"{EVENT};"}},
        sort=BY_ID,
        limit=1_000,
    ),
    AccessPattern(
        "seat changes past their keeping",
        "seat_changes",
        {"at": {"$lte": NOW}},
        declared.SEAT_CHANGES_BY_AGE,
    ),
)

PEOPLE = (
    AccessPattern(
        "a fan's archived orders, newest first",
        "orders_archive",
        {"fanId": FAN},
        declared.ARCHIVED_ORDERS_BY_FAN,
        NEWEST_FIRST,
        PAGE,
    ),
    AccessPattern(
        "a fan's archived orders by status",
        "orders_archive",
        {"fanId": FAN, "status": "confirmed"},
        declared.ARCHIVED_ORDERS_BY_FAN,
        NEWEST_FIRST,
        PAGE,
    ),
    AccessPattern("an archived order", "orders_archive", {"_id": ORDER, "fanId": FAN}),
    AccessPattern(
        "events being archived",
        "events",
        {"archiving": True},
        declared.EVENTS_BEING_ARCHIVED,
    ),
    AccessPattern(
        "events to archive",
        "events",
        {
            "status": {"$in": ["ended", "cancelled"]},
            "startsAt": {"$lte": NOW},
            "archivedAt": {"$exists": False},
            "archiveRetryAt": {"$not": {"$gt": NOW}},
        },
        declared.EVENTS_BY_DATE,
        SOONEST_FIRST,
        20,
    ),
    AccessPattern(
        "a fan's orders whose money is on its way",
        "orders",
        {"fanId": FAN, "refunds.status": {"$in": ["created", "sent", "failed"]}},
        declared.ORDERS_BY_FAN,
    ),
    AccessPattern(
        "solved challenges past their end",
        "solved_challenges",
        {"forgetAt": {"$lte": NOW}},
        declared.SOLVED_CHALLENGES_TO_FORGET,
    ),
    AccessPattern("a record of an erasure", "erasures", {"_id": "nobody"}),
    AccessPattern("a member of a team", "team_members", {"_id": "mem_nobody"}),
    AccessPattern(
        "members of a team",
        "team_members",
        {"organiserId": "org_nobody"},
        declared.MEMBERS_BY_ORGANISER,
        BY_ID,
        200,
    ),
    AccessPattern("an API key", "api_keys", {"_id": "nobody", "revokedAt": None}),
    AccessPattern(
        "API keys of an organiser",
        "api_keys",
        {"organiserId": "org_nobody"},
        declared.API_KEYS_BY_ORGANISER,
        (("createdAt", 1), ("_id", 1)),
        500,
    ),
    AccessPattern(
        "valid API keys of an organiser",
        "api_keys",
        {"organiserId": "org_nobody", "revokedAt": None},
        declared.API_KEYS_BY_ORGANISER,
    ),
    AccessPattern(
        "revoked API keys past their keeping",
        "api_keys",
        {"forgetAt": {"$lte": NOW}},
        declared.API_KEYS_TO_FORGET,
    ),
    AccessPattern(
        "what was changed of an organiser's",
        "audit_log",
        {"organiserId": "org_nobody", "_id": {"$lt": "aud_nobody"}},
        declared.AUDIT_LOG_BY_ORGANISER,
        (("_id", -1),),
        PAGE,
    ),
    AccessPattern(
        "an account by its address",
        "accounts",
        {"email": "nobody@example.org"},
        declared.ACCOUNTS_BY_EMAIL,
    ),
    AccessPattern("an account request", "account_requests", {"_id": "req_nobody"}),
    AccessPattern(
        "account requests of an address",
        "account_requests",
        {"email": "nobody@example.org"},
        declared.ACCOUNT_REQUESTS_BY_EMAIL,
    ),
    AccessPattern(
        "account requests of an account",
        "account_requests",
        {"accountId": FAN},
        declared.ACCOUNT_REQUESTS_BY_ACCOUNT,
    ),
    AccessPattern(
        "people who left past their tokens",
        "gone",
        {"forgetAt": {"$lte": NOW}},
        declared.GONE_TO_FORGET,
    ),
    AccessPattern(
        "teams that somebody is in",
        "team_members",
        {"memberId": "org_nobody"},
        declared.MEMBERS_BY_PERSON,
    ),
    AccessPattern(
        "account requests past their end",
        "account_requests",
        {"expiresAt": {"$lte": NOW}},
        declared.ACCOUNT_REQUESTS_TO_FORGET,
    ),
    AccessPattern(
        "sessions of an account",
        "sessions",
        {"accountId": "fan_nobody"},
        declared.SESSIONS_BY_ACCOUNT,
    ),
    AccessPattern(
        "sessions past their end",
        "sessions",
        {"expiresAt": {"$lte": NOW}},
        declared.SESSIONS_TO_FORGET,
    ),
)

ACCESS_PATTERNS: tuple[AccessPattern, ...] = (*SEATS, *EVENTS, *ORDERS, *MONEY, *OTHERS, *PEOPLE)
