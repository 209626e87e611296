"""The shape every document must have, as the server checks it on each insert and update.

They guard what must never be stored, whoever writes it: a held seat without an end, a sold one
without an order, a price below zero. Fields that are not named are allowed, except in seats: so
that two releases can run side by side, the newer one's fields must not be refused. The counters of
a dashboard have no lower bound: a wrong one should be seen and recounted, not stop the worker.
"""

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"bsonType": "string", "minLength": 1}
TEXT_OR_NULL: Schema = {"bsonType": ["string", "null"]}
INSTANT: Schema = {"bsonType": "date"}
WHOLE: Schema = {"bsonType": ["int", "long"]}
COUNT: Schema = {"bsonType": ["int", "long"], "minimum": 0}
AT_LEAST_ONE: Schema = {"bsonType": ["int", "long"], "minimum": 1}
CURRENCY: Schema = {"bsonType": "string", "pattern": "^[A-Z]{3}$"}


def _one_of(*values: str | None) -> Schema:
    return {"enum": list(values)}


def _identifier(prefix: str) -> Schema:
    return {"bsonType": "string", "pattern": f"^{prefix}"}


def _object(required: Schema, optional: Schema | None = None, **more: Any) -> Schema:
    """An object with these fields, and with any others unless `more` closes it."""
    return {
        "bsonType": "object",
        "required": sorted(required),
        "properties": {**required, **(optional or {})},
        **more,
    }


def _list(items: Schema, **more: Any) -> Schema:
    return {"bsonType": "array", "items": items, **more}


# --- Seats ---------------------------------------------------------------------------------------

SEAT_STATUSES = ("available", "held", "sold", "blocked")
SEAT_CAUSES = ("placed", "released", "lapsed", "yielded", "confirmed", "cancelled")


def _seat_in(statuses: list[str], required: list[str], forbidden: list[str]) -> Schema:
    return {
        "properties": {"status": {"enum": statuses}},
        **({"required": required} if required else {}),
        "not": {"anyOf": [{"required": [name]} for name in forbidden]},
    }


SEAT = _object(
    {
        "_id": {"bsonType": "string", "pattern": "^evt_[^:]+:[0-9]{5}$"},
        "eventId": _identifier("evt_"),
        "section": TEXT,
        "row": TEXT_OR_NULL,
        "number": TEXT_OR_NULL,
        "priceCategory": TEXT,
        "price": COUNT,
        "status": _one_of(*SEAT_STATUSES),
        "from": _one_of(*SEAT_STATUSES, None),
        "cause": _one_of(*SEAT_CAUSES, None),
    },
    {
        "holdId": _identifier("hold_"),
        "heldUntil": INSTANT,
        "fanSlot": TEXT,
        "holdLead": {"enum": [True]},
        "orderId": _identifier("ord_"),
    },
    additionalProperties=False,
    anyOf=[
        _seat_in(
            ["available", "blocked"],
            [],
            ["holdId", "heldUntil", "holdLead", "fanSlot", "orderId"],
        ),
        _seat_in(["held"], ["holdId", "heldUntil", "fanSlot"], ["orderId"]),
        _seat_in(["sold"], ["holdId", "fanSlot", "orderId"], ["heldUntil", "holdLead"]),
    ],
)

# --- Events --------------------------------------------------------------------------------------

PRICE_CATEGORY = _object({"name": TEXT, "price": COUNT})
ROW = _object({"name": TEXT}, {"count": AT_LEAST_ONE, "seats": _list(TEXT, minItems=1)})
SECTION = _object(
    {
        "name": TEXT,
        "priceCategory": TEXT,
        "price": COUNT,
        "firstOrdinal": COUNT,
        "seatCount": AT_LEAST_ONE,
        "kind": _one_of("numbered", "general"),
    },
    {"rows": _list(ROW, minItems=1)},
)
EVENT = _object(
    {
        "_id": _identifier("evt_"),
        "organiserId": TEXT,
        "name": TEXT,
        "description": {"bsonType": "string"},
        "category": TEXT,
        "venueName": TEXT,
        "timezone": TEXT,
        "startsAt": INSTANT,
        "saleStartsAt": INSTANT,
        "saleEndsAt": INSTANT,
        "currency": CURRENCY,
        "maxSeatsPerFan": AT_LEAST_ONE,
        "priceCategories": _list(PRICE_CATEGORY, minItems=1),
        "sections": _list(SECTION, minItems=1),
        "seatCount": {**AT_LEAST_ONE, "maximum": 80_000},
        "status": _one_of("creating", "draft", "published", "cancelled", "ended"),
        "words": _list(TEXT),
        "createdAt": INSTANT,
    },
    {
        "publishedAt": INSTANT,
        "cancelledAt": INSTANT,
        "setupUntil": INSTANT,
        "requestHash": TEXT,
        "fees": _object({"perSeat": COUNT, "basisPoints": {**COUNT, "maximum": 10_000}}),
        "moves": AT_LEAST_ONE,
        "movedAt": INSTANT,
        "moveDueAt": INSTANT,
        "archivedAt": INSTANT,
        "proofOfWork": {"enum": [True]},
        "archiving": {"enum": [True]},
        "archiveRetryAt": INSTANT,
    },
    anyOf=[
        # Without an end of its set-up an event that nobody finishes could never be removed.
        {"properties": {"status": {"enum": ["creating"]}}, "required": ["setupUntil"]},
        {"properties": {"status": {"enum": ["draft", "published", "cancelled", "ended"]}}},
    ],
)

# --- Orders and money ----------------------------------------------------------------------------

PAYMENT_STATUSES = ("created", "succeeded", "failed", "uncertain")
REFUND_KINDS = ("order", "lines", "stray", "second", "outside")
REFUND_STATUSES = ("created", "sent", "done", "failed")
ORDER_STATUSES = ("pendingPayment", "confirmed", "expired", "cancelled")

PLACE = {"section": TEXT, "row": TEXT_OR_NULL, "number": TEXT_OR_NULL}
SHOW = _object(
    {"name": TEXT, "startsAt": INSTANT, "venueName": TEXT, "timezone": TEXT},
    {"moves": AT_LEAST_ONE},
)
ORDERED_SEAT = _object(
    {"seatId": TEXT, **PLACE, "priceCategory": TEXT, "price": COUNT}, {"fee": COUNT}
)
TICKET = _object({"ticketId": TEXT, "code": TEXT, "seatId": TEXT, **PLACE, "status": TEXT})
REFUND_SHOWN = _object(
    {
        "refundId": TEXT,
        "amount": COUNT,
        "currency": CURRENCY,
        "status": _one_of(*REFUND_STATUSES),
        "reason": {"bsonType": "string"},
    }
)
REFUNDED_LINE = _object(
    {"seatId": TEXT, "section": TEXT, "amount": COUNT, "freed": {"bsonType": "bool"}}
)
HISTORY_ENTRY = _object({"at": INSTANT, "what": TEXT, "by": TEXT, "why": {"bsonType": "string"}})
ORDER = _object(
    {
        "_id": _identifier("ord_"),
        "reference": TEXT,
        "eventId": _identifier("evt_"),
        "fanId": TEXT,
        "holdId": _identifier("hold_"),
        "event": SHOW,
        "status": _one_of(*ORDER_STATUSES),
        "from": _one_of(*ORDER_STATUSES, None),
        "seats": _list(ORDERED_SEAT, minItems=1),
        "total": COUNT,
        "currency": CURRENCY,
        "payment": {
            **_object({"paymentId": TEXT, "status": _one_of(*PAYMENT_STATUSES)}),
            "bsonType": ["object", "null"],
        },
        "refunds": _list(REFUND_SHOWN),
        "tickets": _list(TICKET),
        "createdAt": INSTANT,
        "expiresAt": INSTANT,
        "history": _list(HISTORY_ENTRY),
    },
    {
        "placementKey": TEXT,
        "confirmedAt": INSTANT,
        "cancelledAt": INSTANT,
        "refundedLines": _list(REFUNDED_LINE),
    },
    anyOf=[
        {
            "properties": {"status": {"enum": ["confirmed"]}, "tickets": {"minItems": 1}},
            "required": ["confirmedAt"],
        },
        {"properties": {"status": {"enum": ["pendingPayment", "expired", "cancelled"]}}},
    ],
)
PAYMENT = _object(
    {
        # Not always ours: a provider may tell of a payment that nobody here began.
        "_id": TEXT,
        "orderId": _identifier("ord_"),
        "eventId": _identifier("evt_"),
        "fanId": TEXT,
        "provider": TEXT,
        "amount": COUNT,
        "currency": CURRENCY,
        "status": _one_of(*PAYMENT_STATUSES),
        "createdAt": INSTANT,
    },
    {
        "settledAt": INSTANT,
        "refunded": COUNT,
        "lookUpAt": INSTANT,
        "lookUps": COUNT,
        "reference": TEXT,
        "charge": TEXT,
        "url": TEXT_OR_NULL,
    },
)
REFUND = _object(
    {
        "_id": _identifier("rfd_"),
        "paymentId": TEXT,
        "orderId": _identifier("ord_"),
        "eventId": _identifier("evt_"),
        "amount": COUNT,
        "currency": CURRENCY,
        "status": _one_of(*REFUND_STATUSES),
        "from": _one_of(*REFUND_STATUSES, None),
        "reason": {"bsonType": "string"},
        "createdAt": INSTANT,
    },
    {
        "kind": _one_of(*REFUND_KINDS),
        "doneAt": INSTANT,
        "dueAt": INSTANT,
        "givenUpAt": INSTANT,
        "attempts": COUNT,
        "round": COUNT,
        "problem": {"bsonType": "string"},
        "lines": _list(REFUNDED_LINE, minItems=1),
    },
    # Nothing is sent again that was given up; that is for a person.
    **{"not": {"required": ["dueAt", "givenUpAt"]}},
)
NOTICE = _object(
    {
        "_id": TEXT,
        "provider": TEXT,
        "type": TEXT,
        # Empty where a provider names the charge alone.
        "paymentId": {"bsonType": "string"},
        "amount": COUNT,
        "currency": CURRENCY,
        "outcome": TEXT,
        "receivedAt": INSTANT,
    },
    {
        "orderId": {"bsonType": "string"},
        "refundId": TEXT,
        "refundRound": COUNT,
        "charge": TEXT,
        "lookAgainAt": INSTANT,
        "looks": COUNT,
    },
)
JOB = _object(
    {
        "_id": TEXT,
        "kind": _one_of("cancelEvent"),
        "eventId": _identifier("evt_"),
        "by": TEXT,
        "status": _one_of("running", "done", "stuck"),
        "total": COUNT,
        "cancelled": COUNT,
        "refunded": COUNT,
        "amount": COUNT,
        "currency": CURRENCY,
        "failures": _list(_object({"orderId": TEXT, "problem": TEXT}), maxItems=100),
        "createdAt": INSTANT,
        "leaseUntil": INSTANT,
        "fence": COUNT,
    },
    {
        "finishedAt": INSTANT,
        "place": _object({"at": INSTANT, "id": TEXT}),
        "fruitless": COUNT,
        "cancelledBefore": COUNT,
    },
)
SANDBOX_SWITCHES = _object(
    {"_id": _one_of("switches"), "down": {"bsonType": "bool"}, "copies": AT_LEAST_ONE}
)
SANDBOX_PAYMENT = _object(
    {
        "_id": TEXT,
        "status": _one_of("succeeded", "failed", "uncertain"),
        "amount": COUNT,
        "currency": CURRENCY,
        "refunded": COUNT,
        "refunds": _list(
            _object(
                {
                    "refundId": TEXT,
                    "round": COUNT,
                    "amount": COUNT,
                    "status": _one_of("done", "failed"),
                }
            )
        ),
    },
    {"isHearsay": {"bsonType": "bool"}},
)

# --- The rest ------------------------------------------------------------------------------------

FAN = _object(
    {
        "_id": TEXT,
        "name": {"bsonType": "string"},
        "email": {"bsonType": "string"},
        "createdAt": INSTANT,
        "updatedAt": INSTANT,
    },
    {"language": TEXT, "guest": {"enum": [True]}},
)
MESSAGE = _object(
    {
        "_id": _identifier("msg_"),
        "kind": TEXT,
        "body": {"bsonType": "object"},
        "createdAt": INSTANT,
    },
    {
        "eventId": _identifier("evt_"),
        "orderId": _identifier("ord_"),
        "version": AT_LEAST_ONE,
        "pending": {"enum": [True]},
        "forgetAt": INSTANT,
        "trace": TEXT,
    },
)


def _delivery_in(statuses: list[str], required: str, forbidden: str) -> Schema:
    return {
        "properties": {"status": {"enum": statuses}},
        "required": [required],
        "not": {"required": [forbidden]},
    }


DELIVERY = _object(
    {
        "_id": _identifier("msg_"),
        "messageId": _identifier("msg_"),
        "kind": TEXT,
        "consumer": TEXT,
        "target": TEXT,
        "lane": TEXT,
        "status": _one_of("waiting", "taken", "done", "skipped", "dead"),
        "fence": COUNT,
        "attempts": COUNT,
        "tried": _list(_object({"at": INSTANT, "outcome": TEXT, "detail": {"bsonType": "string"}})),
        "createdAt": INSTANT,
    },
    {
        "eventId": _identifier("evt_"),
        "orderId": _identifier("ord_"),
        "dueAt": INSTANT,
        "firstTriedAt": INSTANT,
        "settledAt": INSTANT,
        "forgetAt": INSTANT,
    },
    anyOf=[
        # An open one without its instant would wait for ever, and nobody would see it.
        _delivery_in(["waiting", "taken"], "dueAt", "settledAt"),
        _delivery_in(["done", "skipped", "dead"], "settledAt", "dueAt"),
    ],
)
WEBHOOK = _object(
    {
        "_id": _identifier("whk_"),
        "organiserId": TEXT,
        "url": TEXT,
        "kinds": _list(TEXT, minItems=1),
        "secret": _identifier("whsec_"),
        "status": _one_of("enabled", "disabled"),
        "failures": COUNT,
        "createdAt": INSTANT,
    },
    {"failingSince": INSTANT, "pausedUntil": INSTANT, "disabledBecause": TEXT},
)
SEAT_COUNTS = dict.fromkeys(("total", *SEAT_STATUSES), WHOLE)
DASHBOARD = _object(
    {
        "_id": _identifier("evt_"),
        "version": AT_LEAST_ONE,
        "seats": _object(SEAT_COUNTS),
        "orders": _object(dict.fromkeys(ORDER_STATUSES, WHOLE)),
        "revenue": WHOLE,
        "refunds": WHOLE,
        "currency": CURRENCY,
        "holds": _object(dict.fromkeys(("created", "released", "expired"), WHOLE)),
        "sections": _list(_object({"name": TEXT, **SEAT_COUNTS, "revenue": WHOLE})),
        "recentSales": _list(
            _object({"reference": TEXT, "seats": WHOLE, "amount": WHOLE, "at": INSTANT}),
            maxItems=10,
        ),
        "salesByMinute": _list(
            _object({"minute": INSTANT, "orders": WHOLE, "seats": WHOLE, "amount": WHOLE}),
            maxItems=120,
        ),
        "updatedAt": INSTANT,
    }
)
SEAT_CHANGE = _object(
    {
        "_id": TEXT,
        "eventId": _identifier("evt_"),
        "version": AT_LEAST_ONE,
        "seats": _list({"bsonType": "array", "minItems": 2, "maxItems": 2}),
        "at": INSTANT,
    }
)
RESUME_TOKEN = _object(
    {
        "_id": TEXT,
        "sequence": COUNT,
        "token": {"bsonType": ["object", "null"]},
        "operationTime": {"bsonType": ["timestamp", "null"]},
        "savedAt": INSTANT,
    },
    {"heartbeatAt": INSTANT},
)
MIGRATION = _object(
    {
        "_id": AT_LEAST_ONE,
        "name": TEXT,
        "status": _one_of("running", "done"),
        "place": {"bsonType": "string"},
        "changed": COUNT,
        "changedInPass": COUNT,
        "startedAt": INSTANT,
        "leaseUntil": INSTANT,
        "fence": COUNT,
    },
    {"finishedAt": INSTANT},
)
AUDIT = _object(
    {
        "_id": TEXT,
        "fence": COUNT,
        "checkedAt": INSTANT,
        "rules": _list(_object({"rule": TEXT, "broken": COUNT})),
    }
)
HEARTBEAT = _object({"_id": TEXT, "at": INSTANT})
SET_ASIDE = _object(
    {
        "_id": TEXT,
        "collection": TEXT,
        "documentId": TEXT,
        "operation": TEXT,
        "fields": {"bsonType": "object"},
        "problem": TEXT,
        "setAsideAt": INSTANT,
    },
    {"open": {"enum": [True]}, "recountedAt": INSTANT},
)
LEASE = _object({"_id": TEXT, "holder": TEXT, "fence": COUNT, "until": INSTANT})

LEDGER_ENTRY = _object(
    {
        "_id": TEXT,
        "cause": _one_of("sale", "stray", "refund", "paidOut", "bounced", "outside"),
        "eventId": _identifier("evt_"),
        "orderId": _identifier("ord_"),
        "currency": CURRENCY,
        "at": INSTANT,
        "lines": _list(
            _object(
                {
                    "account": _one_of("provider", "organiser", "fees", "fans"),
                    "amount": {"bsonType": ["int", "long"]},
                },
                additionalProperties=False,
            ),
            minItems=2,
        ),
    },
    additionalProperties=False,
)

# --- People --------------------------------------------------------------------------------------

INSTANT_OR_NULL: Schema = {"bsonType": ["date", "null"]}
SHA256: Schema = {"bsonType": "string", "pattern": "^[0-9a-f]{64}$"}
TEAM_MEMBER = _object(
    {
        "_id": _identifier("mem_"),
        "organiserId": TEXT,
        "memberId": TEXT,
        "role": _one_of("viewer", "boxOffice", "editor", "owner"),
        "addedBy": TEXT,
        "addedAt": INSTANT,
    }
)
API_KEY = _object(
    {
        "_id": {"bsonType": "string", "pattern": "^[0-9a-f]{16}$"},
        "organiserId": TEXT,
        "name": TEXT,
        "scope": _one_of("gate", "viewer", "boxOffice", "editor"),
        "eventId": TEXT_OR_NULL,
        "hash": SHA256,
        "requestHash": TEXT,
        "keyed": {"bsonType": "bool"},
        "createdAt": INSTANT,
        "lastUsedAt": INSTANT_OR_NULL,
        "revokedAt": INSTANT_OR_NULL,
    },
    {"forgetAt": INSTANT},
)
AUDIT_ENTRY = _object(
    {
        "_id": _identifier("aud_"),
        "at": INSTANT,
        "organiserId": TEXT,
        "actorId": TEXT,
        "actorRole": TEXT,
        "keyId": TEXT_OR_NULL,
        "action": TEXT,
        "about": {"bsonType": "string"},
        "address": TEXT,
        "requestId": TEXT,
        "before": {"bsonType": "object"},
        "outcome": TEXT_OR_NULL,
    },
    {"after": {"bsonType": "object"}, "completedAt": INSTANT},
)
# A hash by argon2id: a password itself would be refused.
PASSWORD_HASH: Schema = {"bsonType": "string", "pattern": "^\\$argon2id\\$"}
ACCOUNT = _object(
    {
        "_id": TEXT,
        "role": _one_of("fan", "organiser", "admin"),
        "email": TEXT,
        "address": TEXT,
        "passwordHash": PASSWORD_HASH,
        "passwordChangedAt": INSTANT,
        "name": {"bsonType": "string"},
        "language": _one_of("en", "de"),
        "createdAt": INSTANT,
    },
    {
        "loggedInAt": INSTANT,
        "secondFactor": _object(
            {
                "secret": TEXT,
                "confirmedAt": INSTANT_OR_NULL,
                "lastStep": COUNT,
                "wrongCodes": COUNT,
            },
            {"closedUntil": INSTANT},
        ),
    },
)
ACCOUNT_REQUEST = _object(
    {
        "_id": _identifier("req_"),
        "purpose": _one_of("register", "reset", "changeEmail", "emailChanged"),
        "email": TEXT,
        "address": TEXT,
        "createdAt": INSTANT,
        "expiresAt": INSTANT,
    },
    {
        "passwordHash": PASSWORD_HASH,
        "role": _one_of("fan", "organiser"),
        "name": {"bsonType": "string"},
        "language": _one_of("en", "de"),
        "accountId": TEXT,
    },
)
SESSION = _object(
    {
        "_id": _identifier("ses_"),
        "accountId": TEXT,
        "role": _one_of("fan", "organiser", "admin"),
        "generation": COUNT,
        "createdAt": INSTANT,
        "usedAt": INSTANT,
        "expiresAt": INSTANT,
    }
)

GONE = _object({"_id": TEXT, "forgetAt": INSTANT}, {"back": {"enum": [True]}})
SOLVED_CHALLENGE = _object({"_id": TEXT, "forgetAt": INSTANT})
ERASURE = _object(
    {
        "_id": SHA256,
        "pseudonym": {"bsonType": "string", "pattern": "^erased_"},
        "startedAt": INSTANT,
    },
    {"finishedAt": INSTANT, "counts": {"bsonType": "object"}},
)

VALIDATORS: dict[str, Schema] = {
    "events": EVENT,
    "seats": SEAT,
    "orders": ORDER,
    "payments": PAYMENT,
    "refunds": REFUND,
    "ledger": LEDGER_ENTRY,
    "notices": NOTICE,
    "jobs": JOB,
    "sandbox_payments": SANDBOX_PAYMENT,
    "sandbox": SANDBOX_SWITCHES,
    "outbox": MESSAGE,
    "deliveries": DELIVERY,
    "webhooks": WEBHOOK,
    "dashboards": DASHBOARD,
    "seat_changes": SEAT_CHANGE,
    "resume_tokens": RESUME_TOKEN,
    "heartbeats": HEARTBEAT,
    "audits": AUDIT,
    "migrations": MIGRATION,
    "changes_set_aside": SET_ASIDE,
    "fans": FAN,
    "leases": LEASE,
    "team_members": TEAM_MEMBER,
    "api_keys": API_KEY,
    "audit_log": AUDIT_ENTRY,
    "accounts": ACCOUNT,
    "account_requests": ACCOUNT_REQUEST,
    "sessions": SESSION,
    "solved_challenges": SOLVED_CHALLENGE,
    "gone": GONE,
    "erasures": ERASURE,
    "orders_archive": ORDER,
}

# What no schema can say: that an entry's lines sum to zero. An update is checked like an insert, so
# a line can't be changed alone either.
CONDITIONS: dict[str, Any] = {
    "ledger": {"$eq": [{"$sum": "$lines.amount"}, 0]},
}
