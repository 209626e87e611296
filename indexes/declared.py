"""The indexes, each with the question it was made for.

An index costs every write of its collection, so each has to name what it is for, and
`verify` fails on one that no access pattern needs. `seats` is the collection a flash sale
writes to: its indexes are sparse, so that a seat that is available is in none of them but `_id`.

Where two indexes could serve one question the one made for it comes first: on a collection too
empty to compare them by, the server takes the first.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

HOUR_SECONDS = 3_600
DAY_SECONDS = 24 * HOUR_SECONDS


@dataclass(frozen=True)
class Index:
    """An index by its definition; what it is called in the database does not matter.

    `question` is that of the access pattern it was made for; it may serve others as well.
    `only_where` makes it partial.
    """

    collection: str
    keys: tuple[tuple[str, int], ...]
    question: str
    unique: bool = False
    sparse: bool = False
    only_where: Mapping[str, Any] = field(default_factory=dict, hash=False)
    expire_after_seconds: int | None = None


# --- The collection a sale writes to -------------------------------------------------------------

SEATS_BY_HOLD = Index("seats", (("holdId", 1),), "seats of a hold", sparse=True)
SEATS_BY_FAN_SLOT = Index(
    "seats", (("fanSlot", 1),), "the seat in one of a fan's places", unique=True, sparse=True
)
SEATS_BY_END_OF_HOLD = Index("seats", (("heldUntil", 1),), "overdue holds", sparse=True)
SEATS_BY_ORDER = Index("seats", (("orderId", 1),), "items of an order", sparse=True)

# --- Events --------------------------------------------------------------------------------------

EVENTS_BY_ORGANISER = Index(
    "events",
    # The status comes last so that the organiser's events are in the order of their start with
    # and without it; it is read from the index, not from the event.
    (("organiserId", 1), ("startsAt", 1), ("_id", 1), ("status", 1)),
    "an organiser's events",
)
EVENTS_BY_WORD = Index(
    "events",
    (("words", 1), ("status", 1), ("startsAt", 1), ("_id", 1)),
    "events on sale by text",
)
EVENTS_BY_CATEGORY = Index(
    "events",
    (("category", 1), ("status", 1), ("startsAt", 1), ("_id", 1)),
    "events on sale by category",
)
EVENTS_MOVED = Index("events", (("moveDueAt", 1),), "events that were moved", sparse=True)
EVENTS_BY_DATE = Index(
    "events",
    (("status", 1), ("startsAt", 1), ("_id", 1)),
    "events on sale by date",
)

# --- Orders --------------------------------------------------------------------------------------

# A hold makes one order. The same key may make the same hold again after it lapsed, and that one
# ends at another instant: so the end belongs to what is unique.
ORDERS_BY_HOLD = Index(
    "orders", (("holdId", 1), ("expiresAt", 1)), "the order of a hold", unique=True
)
ORDERS_BY_REFERENCE = Index("orders", (("reference", 1),), "an order by its reference", unique=True)
ORDERS_BY_PLACEMENT_KEY = Index(
    "orders", (("placementKey", 1),), "the order made with a key", unique=True, sparse=True
)
ORDERS_BY_PAYMENT = Index(
    "orders", (("payment.paymentId", 1),), "the order of a payment", unique=True, sparse=True
)
ORDERS_BY_FAN_AND_STATUS = Index(
    "orders",
    (("fanId", 1), ("status", 1), ("createdAt", -1), ("_id", -1)),
    "a fan's orders by status",
)
ORDERS_BY_FAN = Index(
    "orders",
    (("fanId", 1), ("createdAt", -1), ("_id", -1)),
    "a fan's orders, newest first",
)
ORDERS_BY_FAN_AND_SHOW = Index(
    "orders",
    (("fanId", 1), ("status", 1), ("event.startsAt", 1), ("_id", 1)),
    "a fan's tickets for coming events",
)
ORDERS_BY_EVENT = Index(
    "orders",
    (("eventId", 1), ("createdAt", -1), ("_id", -1)),
    "an event's orders, newest first",
)
ORDERS_BY_CONFIRMATION = Index(
    "orders", (("eventId", 1), ("confirmedAt", -1)), "the most recent confirmed orders"
)
ORDERS_WITH_VOID_TICKETS = Index(
    "orders",
    (("eventId", 1), ("createdAt", 1), ("_id", 1)),
    "void tickets of an event",
    only_where={"tickets.status": "void"},
)
ORDERS_BY_END_OF_PAYMENT = Index(
    "orders", (("expiresAt", 1),), "overdue orders", only_where={"status": "pendingPayment"}
)

# --- Money ---------------------------------------------------------------------------------------

PAYMENTS_BY_ORDER = Index("payments", (("orderId", 1),), "payments of an order")
# A payment is in these two only while it is to be looked up, or once its provider has named the
# money: the payment of a sandbox sale leaves the first with its notice.
PAYMENTS_TO_LOOK_UP = Index("payments", (("lookUpAt", 1),), "payments to look up", sparse=True)
PAYMENTS_BY_CHARGE = Index("payments", (("charge", 1),), "payments by charge", sparse=True)
PAYMENTS_UNCERTAIN = Index(
    "payments", (("status", 1),), "payments that are uncertain", only_where={"status": "uncertain"}
)
REFUNDS_BY_PAYMENT = Index("refunds", (("paymentId", 1),), "refunds of a payment")
REFUNDS_BY_EVENT = Index(
    "refunds", (("eventId", 1), ("createdAt", -1), ("_id", -1)), "refunds of an event"
)
LEDGER_BY_EVENT = Index("ledger", (("eventId", 1), ("at", 1), ("_id", 1)), "an event's ledger")
REFUNDS_DUE = Index("refunds", (("dueAt", 1),), "refunds that are due", sparse=True)
REFUNDS_GIVEN_UP = Index("refunds", (("givenUpAt", 1),), "refunds given up", sparse=True)
NOTICES_BY_PAYMENT = Index("notices", (("paymentId", 1),), "notices of a payment")
NOTICES_TO_LOOK_AT = Index(
    "notices", (("lookAgainAt", 1),), "notices to look at again", sparse=True
)
NOTICES_UNKNOWN = Index(
    "notices",
    (("outcome", 1),),
    "notices of unknown payments",
    only_where={"outcome": "unknown"},
)
CHANGES_SET_ASIDE = Index(
    "changes_set_aside",
    (("open", 1),),
    "changes that could not be counted",
    only_where={"open": True},
)
CHANGES_SET_ASIDE_BY_AGE = Index(
    "changes_set_aside",
    (("setAsideAt", 1),),
    "changes set aside past their keeping",
    expire_after_seconds=90 * DAY_SECONDS,
)
JOBS_DUE = Index("jobs", (("status", 1), ("leaseUntil", 1)), "jobs to work at")

# --- Records that pass ---------------------------------------------------------------------------

# Only what is still to be spread is in it, however many messages are kept.
OUTBOX_PENDING = Index(
    "outbox",
    (("createdAt", 1), ("_id", 1)),
    "messages to spread",
    only_where={"pending": True},
)
# Each names the instant at which it may be forgotten. Nothing decides by it.
OUTBOX_TO_FORGET = Index(
    "outbox",
    (("forgetAt", 1),),
    "messages past their keeping",
    sparse=True,
    expire_after_seconds=0,
)
# A delivery has `dueAt` while it is open: what was delivered long ago is in neither of the two.
DELIVERIES_DUE = Index(
    "deliveries",
    (("consumer", 1), ("dueAt", 1)),
    "deliveries that are due",
    only_where={"dueAt": {"$exists": True}},
)
DELIVERIES_BY_LANE = Index(
    "deliveries",
    (("lane", 1), ("_id", 1)),
    "open deliveries of a lane",
    only_where={"dueAt": {"$exists": True}},
)
DELIVERIES_BY_WEBHOOK = Index(
    "deliveries",
    (("target", 1), ("createdAt", -1), ("_id", -1)),
    "deliveries to a webhook, newest first",
    only_where={"consumer": "webhook"},
)
DELIVERIES_DEAD = Index(
    "deliveries",
    (("settledAt", -1),),
    "dead letters",
    only_where={"status": "dead"},
)
DELIVERIES_TO_FORGET = Index(
    "deliveries",
    (("forgetAt", 1),),
    "deliveries past their keeping",
    sparse=True,
    expire_after_seconds=0,
)
WEBHOOKS_BY_ORGANISER = Index(
    "webhooks",
    (("organiserId", 1), ("createdAt", 1), ("_id", 1)),
    "webhooks of an organiser",
)
# A provider repeats a notice for days; the record that makes the repetition harmless is kept for
# far longer than that. Nothing here decides whether anybody has a seat.
NOTICES_BY_AGE = Index(
    "notices",
    (("receivedAt", 1),),
    "notices past their keeping",
    expire_after_seconds=90 * DAY_SECONDS,
)
SEAT_CHANGES_BY_AGE = Index(
    "seat_changes",
    (("at", 1),),
    "seat changes past their keeping",
    expire_after_seconds=HOUR_SECONDS,
)

# --- People --------------------------------------------------------------------------------------

ARCHIVED_ORDERS_BY_FAN = Index(
    "orders_archive",
    (("fanId", 1), ("createdAt", -1), ("_id", -1)),
    "a fan's archived orders, newest first",
)
EVENTS_BEING_ARCHIVED = Index(
    "events", (("archiving", 1),), "events being archived", only_where={"archiving": True}
)
MEMBERS_BY_ORGANISER = Index("team_members", (("organiserId", 1), ("_id", 1)), "members of a team")
API_KEYS_BY_ORGANISER = Index(
    "api_keys", (("organiserId", 1), ("createdAt", 1), ("_id", 1)), "API keys of an organiser"
)
API_KEYS_TO_FORGET = Index(
    "api_keys",
    (("forgetAt", 1),),
    "revoked API keys past their keeping",
    sparse=True,
    expire_after_seconds=0,
)
AUDIT_LOG_BY_ORGANISER = Index(
    "audit_log", (("organiserId", 1), ("_id", -1)), "what was changed of an organiser's"
)
ACCOUNTS_BY_EMAIL = Index("accounts", (("email", 1),), "an account by its address", unique=True)
ACCOUNT_REQUESTS_BY_EMAIL = Index(
    "account_requests", (("email", 1),), "account requests of an address"
)
ACCOUNT_REQUESTS_BY_ACCOUNT = Index(
    "account_requests", (("accountId", 1),), "account requests of an account", sparse=True
)
GONE_TO_FORGET = Index(
    "gone", (("forgetAt", 1),), "people who left past their tokens", expire_after_seconds=0
)
MEMBERS_BY_PERSON = Index("team_members", (("memberId", 1),), "teams that somebody is in")
ACCOUNT_REQUESTS_TO_FORGET = Index(
    "account_requests",
    (("expiresAt", 1),),
    "account requests past their end",
    expire_after_seconds=0,
)
SESSIONS_BY_ACCOUNT = Index("sessions", (("accountId", 1),), "sessions of an account")
SOLVED_CHALLENGES_TO_FORGET = Index(
    "solved_challenges",
    (("forgetAt", 1),),
    "solved challenges past their end",
    expire_after_seconds=0,
)
SESSIONS_TO_FORGET = Index(
    "sessions", (("expiresAt", 1),), "sessions past their end", expire_after_seconds=0
)

INDEXES: tuple[Index, ...] = (
    SEATS_BY_HOLD,
    SEATS_BY_FAN_SLOT,
    SEATS_BY_END_OF_HOLD,
    SEATS_BY_ORDER,
    EVENTS_BY_ORGANISER,
    EVENTS_BY_WORD,
    EVENTS_BY_CATEGORY,
    EVENTS_BY_DATE,
    EVENTS_MOVED,
    ORDERS_BY_HOLD,
    ORDERS_BY_REFERENCE,
    ORDERS_BY_PLACEMENT_KEY,
    ORDERS_BY_PAYMENT,
    ORDERS_BY_FAN_AND_STATUS,
    ORDERS_BY_FAN,
    ORDERS_BY_FAN_AND_SHOW,
    ORDERS_BY_EVENT,
    ORDERS_BY_CONFIRMATION,
    ORDERS_WITH_VOID_TICKETS,
    ORDERS_BY_END_OF_PAYMENT,
    PAYMENTS_BY_ORDER,
    PAYMENTS_TO_LOOK_UP,
    PAYMENTS_BY_CHARGE,
    PAYMENTS_UNCERTAIN,
    REFUNDS_BY_PAYMENT,
    REFUNDS_BY_EVENT,
    LEDGER_BY_EVENT,
    REFUNDS_DUE,
    REFUNDS_GIVEN_UP,
    NOTICES_BY_PAYMENT,
    NOTICES_TO_LOOK_AT,
    NOTICES_UNKNOWN,
    CHANGES_SET_ASIDE,
    CHANGES_SET_ASIDE_BY_AGE,
    JOBS_DUE,
    OUTBOX_PENDING,
    OUTBOX_TO_FORGET,
    DELIVERIES_DUE,
    DELIVERIES_BY_LANE,
    DELIVERIES_BY_WEBHOOK,
    DELIVERIES_DEAD,
    DELIVERIES_TO_FORGET,
    WEBHOOKS_BY_ORGANISER,
    NOTICES_BY_AGE,
    SEAT_CHANGES_BY_AGE,
    ARCHIVED_ORDERS_BY_FAN,
    EVENTS_BEING_ARCHIVED,
    MEMBERS_BY_ORGANISER,
    API_KEYS_BY_ORGANISER,
    API_KEYS_TO_FORGET,
    AUDIT_LOG_BY_ORGANISER,
    ACCOUNTS_BY_EMAIL,
    ACCOUNT_REQUESTS_BY_EMAIL,
    ACCOUNT_REQUESTS_BY_ACCOUNT,
    ACCOUNT_REQUESTS_TO_FORGET,
    GONE_TO_FORGET,
    MEMBERS_BY_PERSON,
    SESSIONS_BY_ACCOUNT,
    SESSIONS_TO_FORGET,
    SOLVED_CHALLENGES_TO_FORGET,
)
