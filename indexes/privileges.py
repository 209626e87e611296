"""What each process may do in the database, and nothing beside it.

A role is a table of collections and letters: `r` to read, `i` to insert, `u` to update, `d` to
delete. The ledger, the outbox and the audit log can be deleted from by nobody who serves people.
"""

from typing import Any

Document = dict[str, Any]

_ACTIONS = {"r": "find", "i": "insert", "u": "update", "d": "remove"}
# What every process looks at before it begins.
_AT_THE_START = {"migrations": "r", "seats": "r", "orders": "r"}
_EVERYTHING = ""

PROCESSES: dict[str, dict[str, str]] = {
    "api": {
        "events": "riud",
        "seats": "riud",
        "orders": "riu",
        "orders_archive": "ru",
        "payments": "riu",
        "refunds": "riu",
        "ledger": "ri",
        "notices": "riu",
        "jobs": "riu",
        "outbox": "ri",
        "deliveries": "ru",
        "webhooks": "riud",
        "dashboards": "riud",
        "seat_changes": "r",
        "resume_tokens": "r",
        "audits": "r",
        "leases": "r",
        "changes_set_aside": "r",
        "sandbox": "riu",
        "sandbox_payments": "riu",
        "fans": "riud",
        "accounts": "riud",
        "account_requests": "riud",
        "sessions": "riud",
        "team_members": "riud",
        "api_keys": "riu",  # pragma: allowlist secret
        "audit_log": "riu",
        "solved_challenges": "rid",
        "gone": "riu",
        "erasures": "riu",
    },
    "release": {"seats": "ru", "orders": "ru", "outbox": "i", "events": "ru", "payments": "r"},
    "payments": {
        "events": "ru",
        "seats": "ru",
        "orders": "ru",
        "payments": "riu",
        "refunds": "riu",
        "ledger": "ri",
        "notices": "riu",
        "jobs": "ru",
        "outbox": "i",
        "fans": "r",
        "sandbox": "riu",
        "sandbox_payments": "riu",
    },
    "deliver": {
        "outbox": "ru",
        "deliveries": "riu",
        "webhooks": "ru",
        "events": "r",
        "orders": "r",
        "payments": "ru",
        "fans": "r",
        "accounts": "r",
        "account_requests": "r",
    },
    "changes": {
        # One change stream over the whole database.
        _EVERYTHING: "r",
        "dashboards": "riu",
        "seat_changes": "rid",
        "resume_tokens": "riu",
        "heartbeats": "riu",
        "changes_set_aside": "riu",
        "leases": "riu",
        "outbox": "i",
    },
    "audit": {
        "events": "r",
        "seats": "r",
        "orders": "r",
        "payments": "r",
        "refunds": "r",
        "ledger": "r",
        "notices": "r",
        "jobs": "r",
        "dashboards": "r",
        "resume_tokens": "r",
        "sandbox_payments": "r",
        "audits": "riu",
        "leases": "riu",
    },
    "archive": {
        "events": "ru",
        "seats": "r",
        "orders": "rd",
        "orders_archive": "i",
        "payments": "r",
        "refunds": "r",
        "ledger": "r",
        "sandbox_payments": "r",
        "leases": "riu",
    },
    # Reads all of it at one moment, and with the clusterMonitor's eyes the oplog after it.
    "backup": {_EVERYTHING: "r"},
    # Builds indexes, widens validators and backfills, and asks how a question would be answered.
    "indexes": {
        _EVERYTHING: "r",
        "migrations": "riu",
        "events": "ru",
        "orders": "ru",
        "refunds": "ru",
        "ledger": "ri",
        "seats": "ru",
    },
}
_MORE_ACTIONS = {
    "changes": ["changeStream"],
    "backup": ["listCollections", "listIndexes"],
    "indexes": [
        "listCollections",
        "listIndexes",
        "createCollection",
        "createIndex",
        "dropIndex",
        "collMod",
    ],
}
_CLUSTER_ACTIONS = {"api": ["replSetGetStatus"], "backup": ["getParameter"]}


def role_name(database: str, process: str) -> str:
    """What a process's role is called; roles live in `admin`, for all databases of a server."""
    return f"{database}_{process}"


def privileges(database: str, process: str) -> list[Document]:
    """The privileges of a process's role, in the server's words and always in the same order."""
    wanted: dict[str, set[str]] = {}
    for collection, letters in PROCESSES[process].items():
        wanted.setdefault(collection, set()).update(_ACTIONS[letter] for letter in letters)
    if process not in ("backup", "indexes"):
        for collection, letters in _AT_THE_START.items():
            wanted.setdefault(collection, set()).update(_ACTIONS[letter] for letter in letters)
        for collection in ("seats", "orders"):
            wanted[collection].add("listIndexes")
    if more := _MORE_ACTIONS.get(process):
        wanted.setdefault(_EVERYTHING, set()).update(more)
    listed = [
        {"resource": {"db": database, "collection": collection}, "actions": sorted(actions)}
        for collection, actions in sorted(wanted.items())
    ]
    if cluster := _CLUSTER_ACTIONS.get(process):
        listed.append({"resource": {"cluster": True}, "actions": cluster})
    if process == "backup":
        listed.append({"resource": {"db": "local", "collection": "oplog.rs"}, "actions": ["find"]})
    return listed
