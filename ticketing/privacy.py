"""What we hold of a fan, all of it, to take along; and how it is forgotten.

Orders and the ledger are kept for the books, under a pseudonym: what was sold, paid and refunded
stays true, and nobody can tell any more to whom. docs/privacy.md lists the fields.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from ticketing import gone
from ticketing.clock import rfc3339
from ticketing.errors import Refusal
from ticketing.mongo import Collection, Database, Document
from ticketing.settings import Settings

ORDERS_EXPORTED_MAX = 10_000
ORDERS_PER_BATCH = 200
BLOCKERS_SHOWN_MAX = 100
PSEUDONYM = "erased_"

# Ours to work with, and nothing that tells a person more than the rest does.
_NOT_EXPORTED = {"passwordHash", "secondFactor", "holdId", "placementKey", "from", "generation"}


class ErasureBlocked(Refusal):
    """Something is still owed: seats of a coming event, a payment under way, or a refund."""

    slug = "erasure-blocked"
    title = "Erasure blocked"

    def __init__(self, order_ids: list[str]) -> None:
        super().__init__(
            "There are orders for events to come, or whose money is still on its way. Cancel them"
            " or wait until they are over."
        )
        self.order_ids = order_ids

    def members(self) -> dict[str, Any]:
        return {"orderIds": self.order_ids}


# --- Taking along --------------------------------------------------------------------------------


async def export(database: Database, fan_id: str) -> Document:
    """Everything that is held of the fan, JSON-ready, with instants as RFC 3339.

    Of more than ORDERS_EXPORTED_MAX orders the newest.
    """
    account = await database.accounts.find_one({"_id": fan_id})
    orders = await _orders_of(database, fan_id)
    order_ids = [order["_id"] for order in orders]
    about_orders = {"orderId": {"$in": order_ids}}
    return {
        "fanId": fan_id,
        "profile": _shown(await database.fans.find_one({"_id": fan_id})),
        "account": _shown(account),
        "secondFactor": bool(account and account.get("secondFactor")),
        "sessions": await _all(database.sessions, {"accountId": fan_id}),
        "requests": await _all(database.account_requests, _requests_about(fan_id, account)),
        "orders": [_shown(order) for order in orders],
        "payments": await _all(database.payments, about_orders),
        "refunds": await _all(database.refunds, {"paymentId": {"$in": _payment_ids(orders)}}),
    }


async def _orders_of(database: Database, fan_id: str) -> list[Document]:
    found: list[Document] = []
    for collection in (database.orders, database.orders_archive):
        left = ORDERS_EXPORTED_MAX - len(found)
        if left:
            newest = collection.find({"fanId": fan_id}).sort([("createdAt", -1), ("_id", -1)])
            found += await newest.limit(left).to_list(left)
    return found


def _payment_ids(orders: Iterable[Document]) -> list[str]:
    return [order["payment"]["paymentId"] for order in orders if order["payment"]]


async def _all(collection: Collection, filter_: Document) -> list[Any]:
    most = ORDERS_EXPORTED_MAX
    return [_shown(document) for document in await collection.find(filter_).to_list(most)]


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _shown(item) for name, item in value.items() if name not in _NOT_EXPORTED}
    if isinstance(value, list):
        return [_shown(item) for item in value]
    return rfc3339(value) if isinstance(value, datetime) else value


# --- Forgetting ----------------------------------------------------------------------------------


async def erase(database: Database, settings: Settings, fan_id: str, now: datetime) -> Document:
    """Forget the fan; returns the record of it. Raises ErasureBlocked.

    Each step may be repeated, and the record keeps the pseudonym: an erasure that died in the
    middle goes on where it was when it is asked for again, and one that is done changes nothing.
    An order that the fan places in the seconds until every process knows that they left is not
    seen: ask again. After a death the fan's own tokens open nothing for as long as they are
    remembered to have left; until then `scripts/privacy` goes on.
    """
    if blockers := await _blockers(database, fan_id, now):
        raise ErasureBlocked(blockers)
    # From here on nobody buys as this fan any more. What was on its way is looked for once more.
    # Of who has nothing here nothing could be left behind: guests come and go by the thousand.
    if await _has_anything(database, fan_id):
        await gone.leave(database, settings, fan_id, now)
    if blockers := await _blockers(database, fan_id, now):
        await gone.come_back(database, settings, fan_id, now)
        raise ErasureBlocked(blockers)
    record = await _begun(database, settings, fan_id, now)
    pseudonym = record["pseudonym"]
    # The account goes last: as long as anything is left it is still known whose it is.
    counts = {
        collection.name: await _rename_orders(database, collection, fan_id, pseudonym)
        for collection in (database.orders, database.orders_archive)
    }
    account = await database.accounts.find_one({"_id": fan_id})
    await database.account_requests.delete_many(_requests_about(fan_id, account))
    await database.fans.delete_one({"_id": fan_id})
    await database.sessions.delete_many({"accountId": fan_id})
    await database.accounts.delete_one({"_id": fan_id})
    await database.erasures.update_one(
        {"_id": record["_id"]},
        {"$set": {"finishedAt": now}, "$inc": {f"counts.{name}": n for name, n in counts.items()}},
    )
    done: Document | None = await database.erasures.find_one({"_id": record["_id"]})
    assert done is not None
    return done


async def _has_anything(database: Database, fan_id: str) -> bool:
    account = await database.accounts.find_one({"_id": fan_id}, {"_id": 1})
    order = await database.orders.find_one({"fanId": fan_id}, {"_id": 1})
    archived = await database.orders_archive.find_one({"fanId": fan_id}, {"_id": 1})
    return any(each is not None for each in (account, order, archived))


async def _blockers(database: Database, fan_id: str, now: datetime) -> list[str]:
    """The orders that stand in the way of forgetting the fan."""
    waiting = database.orders.find({"fanId": fan_id, "status": "pendingPayment"}, {"_id": 1})
    coming = database.orders.find(
        {"fanId": fan_id, "status": "confirmed", "event.startsAt": {"$gt": now}}, {"_id": 1}
    )
    blocking = [
        order["_id"]
        for found in (waiting, coming)
        for order in await found.to_list(BLOCKERS_SHOWN_MAX)
    ]
    owed = database.orders.find(
        {"fanId": fan_id, "refunds.status": {"$in": ["created", "sent", "failed"]}}, {"_id": 1}
    )
    blocking += [order["_id"] for order in await owed.to_list(BLOCKERS_SHOWN_MAX)]
    return sorted(set(blocking))[:BLOCKERS_SHOWN_MAX]


async def _begun(database: Database, settings: Settings, fan_id: str, now: datetime) -> Document:
    """The record of this erasure: by a name that only who knows the fan's id can find again."""
    name = hmac.new(settings.jwt_secret.encode(), f"erased:{fan_id}".encode(), hashlib.sha256)
    begun = {"pseudonym": f"{PSEUDONYM}{secrets.token_hex(16)}", "startedAt": now}
    await database.erasures.update_one(
        {"_id": name.hexdigest()}, {"$setOnInsert": begun}, upsert=True
    )
    record: Document | None = await database.erasures.find_one({"_id": name.hexdigest()})
    assert record is not None
    return record


async def _rename_orders(
    database: Database, collection: Collection, fan_id: str, pseudonym: str
) -> int:
    """Give the fan's orders and their payments to the pseudonym, some at a time."""
    renamed = 0
    while True:
        found = collection.find({"fanId": fan_id}, {"_id": 1}).limit(ORDERS_PER_BATCH)
        order_ids = [order["_id"] for order in await found.to_list(ORDERS_PER_BATCH)]
        if not order_ids:
            return renamed
        # Payments first: what died in between is found again by the orders.
        await database.payments.update_many(
            {"orderId": {"$in": order_ids}}, {"$set": {"fanId": pseudonym}}
        )
        await collection.update_many(
            {"_id": {"$in": order_ids}},
            {
                "$set": {"fanId": pseudonym, "history.$[theirs].by": pseudonym},
                "$unset": {"placementKey": ""},
            },
            array_filters=[{"theirs.by": fan_id}],
        )
        renamed += len(order_ids)


def _requests_about(fan_id: str, account: Document | None) -> Document:
    """The fan's own requests: by their account, and by an address only if they confirmed it.

    What somebody typed into a profile may be another's address.
    """
    mine: list[Document] = [{"accountId": fan_id}]
    if account is not None:
        mine.append({"email": account["email"]})
    return {"$or": mine}
