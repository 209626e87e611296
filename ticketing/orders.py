"""An order is a fan's purchase: a copy of the event and of its seats at the price of that moment.

Its states are in `states.ORDER`. Every change names the state it expects. `from` is the state
before, so that a change-stream record alone tells which counters move. Tickets are inside the
order: "my tickets" is one read. `seats` never changes; `refundedLines` tells which of them were
refunded one by one, and whether they were `freed`.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from pymongo import UpdateOne
from pymongo.errors import BulkWriteError

from ticketing import (
    events,
    fees,
    gateway,
    holds,
    identifiers,
    mongo,
    outbox,
    pages,
    payments,
    seats,
    states,
)
from ticketing.errors import IdempotencyKeyReused, NotFound, Refusal
from ticketing.holds import HoldExpired
from ticketing.mongo import Collection, Database, Document, Session
from ticketing.pages import Page

STATUSES = ("pendingPayment", "confirmed", "expired", "cancelled")
EXPIRED_PER_SWEEP_MAX = 1_000
EXPIRED_PER_TRANSACTION_MAX = 100
ORDERS_PER_HOLD_READ_MAX = 20
HISTORY_MAX = 50
ORDERS_REMEMBERED_MAX = 10_000
# Two lists that are read as one: a cursor tells in which of them it stands.
_LIST, _ARCHIVE_LIST = "orders", "archived orders"


@dataclass(frozen=True)
class OrderRequest:
    """A fan's wish to buy what a hold has. `key` is the Idempotency-Key."""

    fan_id: str
    hold_id: str
    key: str | None = None
    provider: str = gateway.SANDBOX

    @property
    def placement_key(self) -> str | None:
        """What a key is stored as: bound to its fan."""
        return None if self.key is None else identifiers.digest(self.fan_id, self.key)

    def touches(self) -> tuple[str, ...]:
        """What two requests must not touch at once: the hold, and the order made with the key."""
        key = self.placement_key
        return (self.hold_id,) if key is None else (self.hold_id, key)


class Remembered:
    """Orders that this process has just placed: mostly the notice of the payment comes next.

    An order may have changed since. Whoever makes use of it writes only if it has not.
    """

    def __init__(self) -> None:
        self._orders: OrderedDict[str, Document] = OrderedDict()

    def keep(self, order: Document) -> None:
        """Remember an order if it waits for its payment; the oldest give way to it."""
        if order["status"] != "pendingPayment" or not order["payment"] or order["refunds"]:
            return
        self._orders[order["payment"]["paymentId"]] = order
        if len(self._orders) > ORDERS_REMEMBERED_MAX:
            self._orders.popitem(last=False)

    def take(self, payment_ids: Iterable[str]) -> dict[str, Document]:
        """Those of the orders of these payments that are remembered; forgotten with that."""
        found = {payment_id: self._orders.pop(payment_id, None) for payment_id in payment_ids}
        return {payment_id: order for payment_id, order in found.items() if order}


def change(
    order: Document,
    to: str,
    *,
    why: str,
    by: str,
    now: datetime,
    also: Document | None = None,
    only_if: Document | None = None,
) -> UpdateOne:
    """The write that moves an order, as it was read, to another state and keeps its history.

    It matches only while the order is still in the state that was read, and as `only_if` says.
    Raises OrderState for a change that is not allowed.
    """
    states.check(states.ORDER, order["status"], to)
    entry = {"at": now, "what": to, "by": by, "why": why}
    return UpdateOne(
        {"_id": order["_id"], "status": order["status"], **(only_if or {})},
        {
            "$set": {"status": to, "from": order["status"], **(also or {})},
            "$push": {"history": {"$each": [entry], "$slice": -HISTORY_MAX}},
        },
    )


# --- Placing -----------------------------------------------------------------------------------


async def place(
    database: Database,
    requests: Sequence[OrderRequest],
    now: datetime,
    recent: events.Recent | None = None,
    remembered: holds.Remembered | None = None,
) -> list[Document | Refusal]:
    """Make an order of each hold; answer each with the order or the reason against it.

    One hold gives one order: asking again, with or without a key, gives the same order. Raises
    nothing for one request that another has caused. Refusals: NotFound for another fan's hold,
    HoldExpired, SaleNotOpen once the event is cancelled, IdempotencyKeyReused. `recent` may know
    the events and `remembered` the holds.
    """
    outcomes: dict[int, Document | Refusal] = {}
    held, read = await _held_seats(database, requests, remembered)
    # A hold that this process does not remember may have been ordered here before. To find that out
    # by inserting would make the whole group's transaction run once more.
    made = await _made_of(database, [hold_id for hold_id in read if hold_id in held])
    event_ids = {mine[0]["eventId"] for mine in held.values()}
    shows = await (recent.slim(event_ids) if recent else events.slim(database, event_ids))
    fresh: dict[int, Document] = {}
    for index, request in enumerate(requests):
        try:
            event_id = holds.event_of(request.hold_id, request.fan_id)
            mine = held.get(request.hold_id, [])
            if not _stands(mine, now) or (request.hold_id, mine[0]["heldUntil"]) in made:
                outcomes[index] = await _existing(database, request)
                continue
            show = shows[event_id]
            if show["status"] == "cancelled":
                raise events.SaleNotOpen("The event is cancelled.", show)
            fresh[index] = _new_order(request, show, mine, now)
        except Refusal as refusal:
            outcomes[index] = refusal
    for index, fault in (await _insert(database, fresh, now)).items():
        outcomes[index] = await _after_duplicate(
            database, requests[index], fresh.pop(index), fault, now
        )
    # The hold may have been released or lapsed between our read and our insert. Whoever releases
    # a hold frees the seats first and looks for its order afterwards; we insert first and look at
    # the seats afterwards. So at least one of the two sees the other, and no order is left
    # waiting for payment of seats that are on sale again.
    standing = await _standing(database, fresh.values())
    for index, order in fresh.items():
        if order["_id"] in standing:
            outcomes[index] = order
        else:
            await expire(database, [order["_id"]], "the hold ended while it was ordered", now)
            outcomes[index] = HoldExpired(HoldExpired.gone)
    return [outcomes[index] for index in range(len(requests))]


async def _held_seats(
    database: Database,
    requests: Iterable[OrderRequest],
    remembered: holds.Remembered | None,
) -> tuple[dict[str, list[Document]], list[str]]:
    """The seats of each hold, as they are or as they were when it was made; which were read."""
    grouped: dict[str, list[Document]] = {}
    to_read: list[str] = []
    for hold_id in dict.fromkeys(request.hold_id for request in requests):
        if remembered and (known := remembered.take(hold_id)):
            grouped[hold_id] = known.seats
        else:
            to_read.append(hold_id)
    if to_read:
        for seat in await holds.seats_of(database, to_read):
            grouped.setdefault(seat["holdId"], []).append(seat)
    return grouped, to_read


def _stands(mine: list[Document], now: datetime) -> bool:
    return bool(mine) and all(s["status"] == "held" and s["heldUntil"] > now for s in mine)


async def _made_of(database: Database, hold_ids: list[str]) -> set[tuple[str, datetime]]:
    """The orders there are of these holds, each by its hold and the hold's end."""
    if not hold_ids:
        return set()
    found = database.orders.find({"holdId": {"$in": hold_ids}}, {"holdId": 1, "expiresAt": 1})
    made = await found.to_list(len(hold_ids) * ORDERS_PER_HOLD_READ_MAX)
    return {(order["holdId"], order["expiresAt"]) for order in made}


async def _standing(database: Database, orders: Iterable[Document]) -> set[str]:
    """Which of these have all their seats still held, by the very hold they were made of."""
    by_hold = {(order["holdId"], order["expiresAt"]): order for order in orders}
    if not by_hold:
        return set()
    found: Counter[str] = Counter()
    fields = ("holdId", "heldUntil")
    for seat in await holds.seats_of(database, [hold for hold, _ in by_hold], fields=fields):
        if order := by_hold.get((seat["holdId"], seat.get("heldUntil"))):
            found[order["_id"]] += 1
    return {
        order["_id"] for order in by_hold.values() if found[order["_id"]] == len(order["seats"])
    }


def _new_order(
    request: OrderRequest, show: Document, mine: list[Document], now: datetime
) -> Document:
    total = sum(seat["price"] for seat in mine)
    payment = (
        {
            "paymentId": identifiers.fresh("pay"),
            "status": "created",
            "provider": request.provider,
        }
        if total
        else None
    )
    order: Document = {
        "_id": identifiers.fresh("ord"),
        "reference": identifiers.reference(),
        "eventId": show["_id"],
        "fanId": request.fan_id,
        "holdId": request.hold_id,
        "event": {
            "name": show["name"],
            "startsAt": show["startsAt"],
            "venueName": show["venueName"],
            "timezone": show["timezone"],
            **({"moves": show["moves"]} if "moves" in show else {}),
        },
        "status": "pendingPayment",
        "from": None,
        "seats": [
            {
                "seatId": seat["_id"],
                "section": seat["section"],
                "row": seat["row"],
                "number": seat["number"],
                "priceCategory": seat["priceCategory"],
                "price": seat["price"],
                "fee": fees.of_seat(seat["price"], show.get("fees")),
            }
            for seat in mine
        ],
        "total": total,
        "currency": show["currency"],
        "payment": payment,
        "refunds": [],
        "tickets": [],
        "createdAt": now,
        "expiresAt": mine[0]["heldUntil"],
        "history": [{"at": now, "what": "pendingPayment", "by": request.fan_id, "why": "placed"}],
    }
    if request.placement_key is not None:
        order["placementKey"] = request.placement_key
    return order


async def _insert(
    database: Database, orders: dict[int, Document], now: datetime
) -> dict[int, Document]:
    """Insert these, each with its payment and the message of it; all or none of a group's.

    Returns the write error of each that was a duplicate, of which nothing is left.
    """
    waiting = dict(orders)
    duplicates: dict[int, Document] = {}
    while waiting:
        places = list(waiting)
        try:
            await mongo.transaction(
                database, lambda session: _insert_in(database, session, waiting.values(), now)
            )
            break
        except BulkWriteError as error:
            # The first duplicate ends a transaction: it is taken out, and the others go again.
            (fault,) = seats.duplicates_of(error)
            if "_id" in fault["keyPattern"]:
                raise  # No order's: all ids are new ones.
            place = places[fault["index"]]
            duplicates[place] = fault
            del waiting[place]
    return duplicates


async def _insert_in(
    database: Database, session: Session, orders: Iterable[Document], now: datetime
) -> None:
    placed = list(orders)
    await database.orders.insert_many(placed, session=session)
    if to_pay := [payments.new(order) for order in placed if order["payment"]]:
        await database.payments.insert_many(to_pay, session=session)
    await database.outbox.insert_many(
        [_placed_message(order, now) for order in placed], session=session
    )


def _placed_message(order: Document, now: datetime) -> Document:
    body = {
        "reference": order["reference"],
        "seatCount": len(order["seats"]),
        "total": order["total"],
        "currency": order["currency"],
    }
    return outbox.message("order.placed", order["eventId"], order["_id"], body, now)


async def _after_duplicate(
    database: Database, request: OrderRequest, order: Document, fault: Document, now: datetime
) -> Document | Refusal:
    """What to answer when an order that would be the same exists already."""
    if "reference" in fault["keyPattern"]:
        # One in 2^40: another order has this reference. A new one will do.
        order["reference"] = identifiers.reference()
        await _insert(database, {0: order}, now)
        return order
    try:
        return await _existing(database, request)
    except Refusal as refusal:
        return refusal


async def _existing(database: Database, request: OrderRequest) -> Document:
    """The order that this hold, or this key, has made already.

    Raises IdempotencyKeyReused for a key that made an order of another hold, and HoldExpired where
    the hold made none, or one that is over and was not asked for by the very same key.
    """
    if request.placement_key is not None:
        by_key = await database.orders.find_one({"placementKey": request.placement_key})
        if by_key is not None:
            if by_key["holdId"] != request.hold_id:
                raise IdempotencyKeyReused("This key made an order of another hold.")
            return by_key
    made = database.orders.find({"holdId": request.hold_id}).sort("expiresAt", -1)
    latest = await made.limit(1).to_list(1)
    if not latest or latest[0]["status"] == "expired":
        raise HoldExpired(HoldExpired.gone)
    return latest[0]


# --- Reading -----------------------------------------------------------------------------------


async def find(database: Database, order_id: str, fan_id: str) -> Document:
    """The fan's order, archived ones too. Raises NotFound, also for another fan's."""
    mine = {"_id": order_id, "fanId": fan_id}
    order = await database.orders.find_one(mine) or await database.orders_archive.find_one(mine)
    if order is None:
        raise NotFound("There is no such order.")
    return order


async def listing(
    database: Database,
    fan_id: str,
    *,
    limit: int,
    status: str | None = None,
    cursor: str | None = None,
) -> Page:
    """The fan's orders, newest first: those that are archived after all others."""
    filter_: Document = {"fanId": fan_id}
    if status is not None:
        filter_["status"] = status
    after = dict(filter_)
    if position := pages.decode(cursor, _LIST, _ARCHIVE_LIST):
        after["createdAt"] = {"$lte": position.instant}
        after["$or"] = [
            {"createdAt": {"$lt": position.instant}},
            {"_id": {"$lt": position.identifier}},
        ]
    if position is not None and position.kind == _ARCHIVE_LIST:
        archived = await _newest(database.orders_archive, after, limit + 1)
        return pages.cut(archived, limit, _ARCHIVE_LIST, "createdAt")
    found = await _newest(database.orders, after, limit + 1)
    if len(found) > limit:
        return pages.cut(found, limit, _LIST, "createdAt")
    archived = await _newest(database.orders_archive, filter_, limit + 1 - len(found))
    if archived and len(found) == limit:
        # The page is full, and what follows it is in the archive alone.
        return pages.cut([*found, archived[0]], limit, _LIST, "createdAt")
    return pages.cut([*found, *archived], limit, _ARCHIVE_LIST, "createdAt")


async def _newest(collection: Collection, filter_: Document, limit: int) -> list[Document]:
    found = collection.find(filter_).sort([("createdAt", -1), ("_id", -1)])
    return await found.limit(limit).to_list(limit)


# --- Ending ------------------------------------------------------------------------------------


async def expire(database: Database, order_ids: Sequence[str], why: str, now: datetime) -> int:
    """pendingPayment → expired for those of these that still wait, each with its message.

    Returns how many they were.
    """

    async def body(session: Session) -> int:
        # Read in the snapshot: an order that is paid meanwhile is a write conflict, and the next
        # run sees that it waits no more.
        found = database.orders.find(
            {"_id": {"$in": list(order_ids)}, "status": "pendingPayment"},
            {"status": 1, "eventId": 1, "payment": 1},
            session=session,
        )
        waiting = await found.to_list(len(order_ids))
        if waiting:
            await database.orders.bulk_write(
                [change(order, "expired", why=why, by="system", now=now) for order in waiting],
                session=session,
            )
            await database.outbox.insert_many(
                [expired_message(order, why, now) for order in waiting], session=session
            )
        return len(waiting)

    return await mongo.transaction(database, body) if order_ids else 0


def expired_message(order: Document, why: str, now: datetime) -> Document:
    """The message that an order ended unpaid, or paid in vain."""
    opened = "openedAt" in (order["payment"] or {})
    body = {"reason": why, "paymentOpened": opened}
    return outbox.message("order.expired", order["eventId"], order["_id"], body, now)


async def expire_overdue(database: Database, now: datetime) -> int:
    """Expire up to EXPIRED_PER_SWEEP_MAX orders whose time to pay is over; how many were found."""
    overdue = (
        await database.orders.find(
            {"status": "pendingPayment", "expiresAt": {"$lte": now}}, {"_id": 1}
        )
        .sort("expiresAt", 1)
        .limit(EXPIRED_PER_SWEEP_MAX)
        .to_list(EXPIRED_PER_SWEEP_MAX)
    )
    order_ids = [order["_id"] for order in overdue]
    for begin in range(0, len(order_ids), EXPIRED_PER_TRANSACTION_MAX):
        some = order_ids[begin : begin + EXPIRED_PER_TRANSACTION_MAX]
        await expire(database, some, "not paid in time", now)
    return len(overdue)


async def expire_for_hold(database: Database, hold_id: str, now: datetime) -> int:
    """Expire the order of a hold that was released, if it waits for payment."""
    waiting = database.orders.find({"holdId": hold_id, "status": "pendingPayment"}, {"_id": 1})
    found = await waiting.to_list(ORDERS_PER_HOLD_READ_MAX)
    return await expire(database, [order["_id"] for order in found], "its hold was released", now)


async def opened(database: Database, order: Document, now: datetime) -> None:
    """Keep that the fan has opened the payment page of an order that waits: who was about to pay
    is told when it ends."""
    if order["payment"] and "openedAt" not in order["payment"]:
        await database.orders.update_one(
            {"_id": order["_id"], "status": "pendingPayment"},
            {"$set": {"payment.openedAt": now}},
        )


def history(order_id: str, what: str, *, why: str, by: str, now: datetime) -> UpdateOne:
    """The write that keeps in an order's history what changed it without moving it on."""
    entry = {"at": now, "what": what, "by": by, "why": why}
    return UpdateOne(
        {"_id": order_id}, {"$push": {"history": {"$each": [entry], "$slice": -HISTORY_MAX}}}
    )


async def by_ids(
    database: Database, order_ids: Sequence[str], session: Session | None = None
) -> dict[str, Document]:
    """These orders by their ids; unknown ones are left out."""
    found = database.orders.find({"_id": {"$in": list(order_ids)}}, session=session)
    return {order["_id"]: order for order in await found.to_list(len(order_ids))}


async def by_payment(
    database: Database, payment_ids: Sequence[str], session: Session | None = None
) -> dict[str, Document]:
    """The orders these payments belong to, by payment id; unknown ones are left out."""
    found = database.orders.find({"payment.paymentId": {"$in": list(payment_ids)}}, session=session)
    return {order["payment"]["paymentId"]: order for order in await found.to_list(len(payment_ids))}
