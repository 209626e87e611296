"""The sandbox provider: takes no money, and goes wrong in every way that a real one does.

What it knows is in collections of its own, never read by the rest: a provider is asked, not looked
into. Its switches are in the database, so that one process can make it misbehave for all.
"""

import asyncio
from collections.abc import Mapping
from datetime import datetime
from time import monotonic
from typing import Annotated

import msgspec
from pymongo.errors import DuplicateKeyError

from ticketing import gateway
from ticketing.gateway import LookedUp, ProviderUnavailable, Refunded, Started
from ticketing.mongo import Database, Document

SWITCHES_ID = "switches"
# Started with each order: so the switches are not read each time.
SWITCHES_SECONDS = 0.25

Seconds = Annotated[float, msgspec.Meta(ge=0, le=60)]


class Switches(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True):
    """How the sandbox misbehaves."""

    down: bool = False
    """It does not answer at all."""
    answer_after_seconds: Seconds = 0.0
    """It does what it is asked at once, but says so only after this time."""
    decline: bool = False
    """Whoever pays is declined."""
    lose_notices: bool = False
    """No notice is delivered."""
    delay_seconds: Seconds = 0.0
    """Notices are delivered this much later."""
    copies: Annotated[int, msgspec.Meta(ge=1, le=20)] = 1
    """So many deliveries of each notice, all at once."""
    out_of_order: bool = False
    """A success is told first, and then a failure that came before it."""
    amount_off: Annotated[int, msgspec.Meta(ge=-1_000_000, le=1_000_000)] = 0
    """Another amount is charged and told."""
    undecided: bool = False
    """It does not know yet whether who paid has paid."""
    refuse_refunds: bool = False
    """Refunds are refused."""
    refunds_fail_later: bool = False
    """Refunds are accepted, and turn out to have failed."""


class Sandbox:
    """The provider `sandbox`."""

    name = gateway.SANDBOX

    def __init__(self, key: bytes, database: Database) -> None:
        self._key = key
        self._database = database
        self._switches = Switches()
        self._read_at = float("-inf")

    # --- Switches --------------------------------------------------------------------------------

    async def switches(self) -> Switches:
        """The switches as they were at most a moment ago."""
        if monotonic() - self._read_at > SWITCHES_SECONDS:
            stored = await self._database.sandbox.find_one({"_id": SWITCHES_ID}, {"_id": 0})
            self._switches = msgspec.convert(stored or {}, Switches)
            self._read_at = monotonic()
        return self._switches

    async def set_switches(self, switches: Switches) -> None:
        """Misbehave like this from now on."""
        stored = {"_id": SWITCHES_ID, **msgspec.to_builtins(switches)}
        await self._database.sandbox.replace_one({"_id": SWITCHES_ID}, stored, upsert=True)
        self._switches, self._read_at = switches, monotonic()

    async def _answering(self) -> Switches:
        switches = await self.switches()
        if switches.down:
            raise ProviderUnavailable("The payment provider does not answer. Try again shortly.")
        return switches

    # --- What the fan does at its page -----------------------------------------------------------

    async def pay(self, payment: Document) -> tuple[str, int]:
        """The fan pays. What notice tells of it, and how much was charged."""
        switches = await self._answering()
        if switches.decline:
            return await self.decline(payment), payment["amount"]
        amount = max(payment["amount"] + switches.amount_off, 0)
        status = "uncertain" if switches.undecided else "succeeded"
        charge = {"status": status, "amount": amount, "currency": payment["currency"]}
        # The money of one payment is taken once: a second press on the button charges nothing.
        try:
            await self._database.sandbox_payments.update_one(
                {"_id": payment["_id"], "status": {"$ne": "succeeded"}},
                {"$set": charge, "$setOnInsert": {"refunded": 0, "refunds": []}},
                upsert=True,
            )
        except DuplicateKeyError:
            known = await self._known(payment)
            return "payment.succeeded", known["amount"]
        return f"payment.{status}", amount

    async def decline(self, payment: Document) -> str:
        """The fan is declined, unless the payment has succeeded; what notice tells of it."""
        try:
            await self._database.sandbox_payments.update_one(
                {"_id": payment["_id"], "status": {"$ne": "succeeded"}},
                {
                    "$set": {
                        "status": "failed",
                        "amount": payment["amount"],
                        "currency": payment["currency"],
                    },
                    "$setOnInsert": {"refunded": 0, "refunds": []},
                },
                upsert=True,
            )
        except DuplicateKeyError:
            return "payment.succeeded"
        return "payment.failed"

    async def _known(self, payment: Document) -> Document:
        known = await self._database.sandbox_payments.find_one({"_id": payment["_id"]})
        return known or {"status": "created", "amount": payment["amount"], "refunds": []}

    # --- What is asked of it ---------------------------------------------------------------------

    async def start(self, payment: Document, order: Document) -> Started:  # noqa: ARG002
        """The fan pays at our own page."""
        await self._late(await self._answering())
        return Started(None, payment["_id"])

    async def look_up(self, payment: Document) -> LookedUp:
        """What the fan has done at the page."""
        switches = await self._answering()
        known = await self._known(payment)
        await self._late(switches)
        return LookedUp(
            known["status"],
            known["amount"],
            payment["currency"],
            is_final=known["status"] == "succeeded",
        )

    async def close_page(self, payment: Document) -> None:
        """Nothing is to be done: its page is ours and shows what became of the order."""

    async def refund(self, payment: Document, refund: Document) -> Refunded:
        """Give back, once for each id and round, and never more than was charged."""
        switches = await self._answering()
        if switches.refuse_refunds:
            return Refunded("failed", "The balance is too low.")
        entry = {
            "refundId": refund["_id"],
            "round": refund.get("round", 0),
            "amount": refund["amount"],
            "status": "failed" if switches.refunds_fail_later else "done",
        }
        payments = self._database.sandbox_payments
        # A payment it has not seen was told of by a notice made by hand, as tests do: what that
        # said is taken for true.
        await payments.update_one(
            {"_id": payment["_id"]},
            {
                "$setOnInsert": {
                    "status": "succeeded",
                    "isHearsay": True,
                    "amount": payment["amount"] + refund["amount"],
                    "currency": payment["currency"],
                    "refunded": 0,
                    "refunds": [],
                }
            },
            upsert=True,
        )
        same = {"refundId": entry["refundId"], "round": entry["round"]}
        charged = (await self._known(payment))["amount"]
        given = await payments.update_one(
            {
                "_id": payment["_id"],
                "refunds": {"$not": {"$elemMatch": same}},
                "refunded": {"$lte": charged - refund["amount"]},
            },
            {
                "$push": {"refunds": entry},
                "$inc": {"refunded": 0 if switches.refunds_fail_later else refund["amount"]},
            },
        )
        await self._late(switches)
        if given.modified_count == 0:
            known = await self.find_refund(payment, refund)
            return known or Refunded("failed", "That is more than was charged.")
        return Refunded("sent" if switches.refunds_fail_later else "done")

    async def find_refund(self, payment: Document, refund: Document) -> Refunded | None:
        """What became of the refund in this round."""
        await self._answering()
        for entry in (await self._known(payment))["refunds"]:
            if (entry["refundId"], entry["round"]) == (refund["_id"], refund.get("round", 0)):
                reason = "" if entry["status"] == "done" else "The account is closed."
                return Refunded(entry["status"], reason)
        return None

    def read_notice(
        self, headers: Mapping[str, str], body: bytes, now: datetime
    ) -> gateway.Notice | None:
        """By the Standard Webhooks scheme."""
        return gateway.read_notice(self._key, headers, body, now)

    async def _late(self, switches: Switches) -> None:
        if switches.answer_after_seconds:
            await asyncio.sleep(switches.answer_after_seconds)
