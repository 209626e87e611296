"""The drills: what is done to the service, how it is undone, and what must come of it."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from scripts.drills.deployment import ORGANISER, Deployment, until
from ticketing import cancellations, checkout, clock, holds, identifiers, leases
from ticketing.gateway import Notice
from ticketing.holds import Hold, HoldRequest
from ticketing.mongo import Document
from ticketing.orders import OrderRequest

RECOVERY_SECONDS_MAX = 10.0
TAKEOVER_SECONDS_MAX = 15.0
# Longer than any wait here should ever take: then the drill has failed.
WAIT_SECONDS_MAX = 40.0
CALLED_OFF_ORDERS = 200
ORDERS_AT_ONCE = 20


@dataclass
class Observed:
    """What a drill saw besides what the fans were told."""

    fault_at: float = 0.0
    takeover_seconds: dict[str, float] = field(default_factory=dict)
    """How long a piece of work waited for another worker, by its name."""
    problems: list[str] = field(default_factory=list)

    def took(self, what: str, seconds: float) -> None:
        """Keep how long a piece of work waited, and judge it."""
        self.takeover_seconds[what] = seconds
        if seconds > TAKEOVER_SECONDS_MAX:
            self.problems.append(f"{what} was taken over after {seconds:.1f} s")


Act = Callable[[Deployment, Observed], Awaitable[None]]


@dataclass(frozen=True)
class Drill:
    """A fault under a running sale."""

    proves: str
    act: Act
    recovery_seconds_max: float = RECOVERY_SECONDS_MAX
    """From the fault until fans are served as before, the fault's own length included."""
    is_disturbing: bool = True
    """Whether fans may notice at all."""
    must_be_unavailable: bool = False
    """Whether fans must have been told to try again."""
    is_quick: bool = False


async def kill_primary(deployment: Deployment, observed: Observed) -> None:
    """Kill the node that takes the writes, and bring it back."""
    primary = await deployment.primary()
    observed.fault_at = time.monotonic()
    await asyncio.to_thread(deployment.replica_set.kill, primary)
    await asyncio.sleep(6)
    await deployment.mend()


async def stop_primary(deployment: Deployment, observed: Observed) -> None:
    """Stop the primary for fifteen seconds; it comes back and believes that it still is one."""
    primary = await deployment.primary()
    observed.fault_at = time.monotonic()
    deployment.pause_node(primary)
    await asyncio.sleep(15)
    deployment.resume_node(primary)
    await asyncio.sleep(3)
    await deployment.mend()


async def kill_secondary(deployment: Deployment, observed: Observed) -> None:
    """Kill one node that only follows."""
    (one, _) = await _secondaries(deployment)
    observed.fault_at = time.monotonic()
    await asyncio.to_thread(deployment.replica_set.kill, one)
    await asyncio.sleep(5)
    await deployment.mend()


async def lose_majority(deployment: Deployment, observed: Observed) -> None:
    """Kill both nodes that follow: the third alone may acknowledge nothing."""
    both = await _secondaries(deployment)
    observed.fault_at = time.monotonic()
    for node in both:
        await asyncio.to_thread(deployment.replica_set.kill, node)
    await asyncio.sleep(8)
    await deployment.mend()


async def restart_all(deployment: Deployment, observed: Observed) -> None:
    """Restart one node after the other, as for an upgrade, the primary last."""
    primary = await deployment.primary()
    observed.fault_at = time.monotonic()
    for node in [*await _secondaries(deployment), primary]:
        await asyncio.to_thread(deployment.replica_set.shut_down, node)
        await deployment.mend()


async def kill_api(deployment: Deployment, observed: Observed) -> None:
    """Kill one of two API processes; its fans go to the other."""
    observed.fault_at = time.monotonic()
    await deployment.kill("api 1")
    await asyncio.sleep(4)
    await deployment.mend()


async def kill_workers(deployment: Deployment, observed: Observed) -> None:
    """Kill whichever worker of each kind does the work; the other one must take it over."""
    active = {job: await deployment.holder(job) for job in (leases.CHANGES, leases.AUDIT)}
    is_audited = await _has_new_holder(deployment, leases.AUDIT)
    observed.fault_at = time.monotonic()
    killed_at = clock.now()
    names = [*active.values(), "release 1", "payments 1", "deliver 1"]
    await asyncio.gather(*(deployment.kill(name) for name in names))
    await _all_taken_over(deployment, observed, killed_at, is_audited)
    await deployment.mend()


async def run_two_of_each(deployment: Deployment, observed: Observed) -> None:
    """Do nothing: two of each worker run all the time, and must not count or send twice."""
    observed.fault_at = time.monotonic()
    await asyncio.sleep(6)
    await deployment.until_well()


async def stop_changes_worker(deployment: Deployment, observed: Observed) -> None:
    """Stop the changes worker past its lease and let it go on: its fence must keep it out."""
    stopped = await deployment.holder(leases.CHANGES)
    is_taken_over = await _has_new_holder(deployment, leases.CHANGES)
    observed.fault_at = time.monotonic()
    deployment.pause(stopped)
    observed.took("the lease of the changes", await _wait(is_taken_over))
    observed.took("the counting of changes", await _wait(_counts_since(deployment, clock.now())))
    await asyncio.sleep(2)
    deployment.resume(stopped)
    await asyncio.sleep(5)
    if await deployment.holder(leases.CHANGES) == stopped:
        observed.problems.append("the worker that was stopped has pushed its successor aside")
    if "has taken the job changes over" not in deployment.log(stopped).read_text():
        observed.problems.append("the worker that was stopped has not noticed its successor")
    await deployment.mend()


async def stop_payments_worker(deployment: Deployment, observed: Observed) -> None:
    """Stop a payments worker that is cancelling an event past its lease, and let it go on.

    The other one must end the job, and no order may be counted or refunded twice.
    """
    database = deployment.database
    event_id = await _sold_event(deployment)
    await deployment.kill("payments 2")
    await cancellations.begin(database, event_id, ORGANISER, clock.now())

    async def is_begun() -> bool:
        job = await cancellations.find(database, event_id)
        return int(job["cancelled"]) > 0

    await _wait(is_begun)
    observed.fault_at = time.monotonic()
    deployment.pause("payments 1")
    at_pause = int((await cancellations.find(database, event_id))["cancelled"])
    deployment.start("payments 2")

    async def goes_on() -> bool:
        job = await cancellations.find(database, event_id)
        return int(job["cancelled"]) > at_pause + 1

    async def is_done() -> bool:
        return bool((await cancellations.find(database, event_id))["status"] == "done")

    observed.took("the job", await _wait(goes_on))
    deployment.resume("payments 1")
    await _wait(is_done)
    job = await cancellations.find(database, event_id)
    refunds = await database.refunds.count_documents({"eventId": event_id})
    expected = (CALLED_OFF_ORDERS,) * 3
    if (job["cancelled"], job["refunded"], refunds) != expected:
        observed.problems.append(
            f"{CALLED_OFF_ORDERS} orders were cancelled as {job['cancelled']} with"
            f" {job['refunded']} and {refunds} refunds"
        )
    await deployment.mend()


async def _secondaries(deployment: Deployment) -> list[int]:
    primary = await deployment.primary()
    return [node for node in range(deployment.replica_set.nodes) if node != primary]


async def _wait(holds_: Callable[[], Awaitable[bool]]) -> float:
    return await until(holds_, WAIT_SECONDS_MAX, "Nobody took the work over.")


def _counts_since(deployment: Deployment, since: datetime) -> Callable[[], Awaitable[bool]]:
    async def counted() -> bool:
        place = await deployment.database.resume_tokens.find_one({"_id": "changes"})
        return place is not None and place["savedAt"] > since

    return counted


async def _has_new_holder(deployment: Deployment, job: str) -> Callable[[], Awaitable[bool]]:
    """Asks whether the lease has gone to another holder since now."""
    before = await deployment.database.leases.find_one({"_id": job})
    assert before is not None

    async def changed() -> bool:
        after = await deployment.database.leases.find_one({"_id": job})
        return after is not None and after["fence"] > before["fence"]

    return changed


async def _all_taken_over(
    deployment: Deployment,
    observed: Observed,
    since: datetime,
    is_audited: Callable[[], Awaitable[bool]],
) -> None:
    """Wait until each kind of work goes on, side by side; the fans give all of them something."""
    database = deployment.database

    async def lapsed() -> bool:
        free = {"_id": {"$in": seat_ids}, "status": "available"}
        return await database.seats.count_documents(free) == len(seat_ids)

    async def sent() -> bool:
        newer = {"createdAt": {"$gt": since}, "status": "done"}
        return await database.refunds.find_one(newer) is not None

    async def spread() -> bool:
        newer = {"createdAt": {"$gt": since}, "pending": {"$exists": False}}
        return await database.outbox.find_one(newer) is not None

    seat_ids = await _overdue_hold(deployment)
    works = {
        "releasing": lapsed,
        "counting": _counts_since(deployment, since),
        "refunding": sent,
        "spreading messages": spread,
        "auditing": is_audited,
    }
    took = await asyncio.gather(*map(_wait, works.values()))
    for what, seconds in zip(works, took, strict=True):
        observed.took(what, seconds)


async def _overdue_hold(deployment: Deployment) -> list[str]:
    """Seats of an event of its own whose hold is over at once."""
    event = await deployment.put_on_sale()
    wish = HoldRequest(event["_id"], "fan_overdue", section="Floor", quantity=2)
    (held,) = await holds.place(
        deployment.database, [wish], hold_seconds=1, now=clock.now() - timedelta(seconds=2)
    )
    assert isinstance(held, Hold)
    return [seat["_id"] for seat in held.seats]


async def _sold_event(deployment: Deployment) -> str:
    """An event of its own with many confirmed orders."""
    database, event = deployment.database, await deployment.put_on_sale()
    event_id = str(event["_id"])
    for first in range(0, CALLED_OFF_ORDERS, ORDERS_AT_ONCE):
        fans = [f"fan_{number}" for number in range(first, first + ORDERS_AT_ONCE)]
        wishes = [HoldRequest(event_id, fan, section="Floor", quantity=1) for fan in fans]
        held = await holds.place(database, wishes, hold_seconds=600, now=clock.now())
        orders = await checkout.place_orders(
            database,
            [
                OrderRequest(fan, hold.hold_id)
                for fan, hold in zip(fans, held, strict=True)
                if isinstance(hold, Hold)
            ],
            now=clock.now(),
        )
        notices = [_paid(order) for order in orders if isinstance(order, dict)]
        await checkout.receive(database, notices, now=clock.now())
    return event_id


def _paid(order: Document) -> Notice:
    return Notice(
        provider="sandbox",
        notice_id=identifiers.fresh("msg"),
        type="payment.succeeded",
        payment_id=order["payment"]["paymentId"],
        order_id=order["_id"],
        amount=order["total"],
        currency=order["currency"],
    )


DRILLS = {
    "kill-primary": Drill(
        "selling goes on within ten seconds of a lost primary", kill_primary, is_quick=True
    ),
    "stop-primary": Drill("a primary that hung acknowledges nothing that is lost", stop_primary),
    "kill-secondary": Drill("nobody notices a lost secondary", kill_secondary, is_disturbing=False),
    "lose-majority": Drill(
        "without a majority nothing is acknowledged and then lost",
        lose_majority,
        recovery_seconds_max=8 + RECOVERY_SECONDS_MAX,
        must_be_unavailable=True,
        is_quick=True,
    ),
    "restart-all": Drill(
        "nodes can be upgraded one by one under a sale",
        restart_all,
        recovery_seconds_max=90.0,
    ),
    "kill-api": Drill("the fans of a lost API process go on at another", kill_api, is_quick=True),
    "kill-workers": Drill(
        "other workers take over within fifteen seconds",
        kill_workers,
        is_disturbing=False,
        is_quick=True,
    ),
    "two-of-each": Drill(
        "two of each worker count and send once", run_two_of_each, is_disturbing=False
    ),
    "stop-changes": Drill(
        "a changes worker that hung past its lease is kept out by its fence",
        stop_changes_worker,
        is_disturbing=False,
        is_quick=True,
    ),
    "stop-payments": Drill(
        "a payments worker that hung past its lease cancels and refunds nothing twice",
        stop_payments_worker,
        is_disturbing=False,
    ),
}
