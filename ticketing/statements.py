"""A statement says what an event has earned, by the ledger.

    gross - refunds - fees = net

`gross` is what was sold, `refunds` what was given back of it or is about to be, `fees` what the
platform keeps of the rest, `net` what the organiser gets. Beside them stands what lies at the
provider and what is still on its way to fans.
"""

import csv
import io
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from ticketing import ledger
from ticketing.clock import rfc3339
from ticketing.money import minor_digits
from ticketing.mongo import Database, Document
from ticketing.printing import Statement

ENTRIES_PER_READ = 1_000
# A spreadsheet takes a cell that begins with one of these for a formula.
# The last four are their full-width forms, which some spreadsheets take for the same.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
# Whose credits are what was earned.
_EARNED = ("organiser", "fees")
_COLUMNS = ("at", "event", "cause", "orderId", "entryId", "gross", "refunds", "fees", "net")


@dataclass(frozen=True)
class Totals:
    """What an event has earned in its currency, in minor units."""

    gross: int
    refunds: int
    fees: int
    net: int
    at_provider: int
    owed_to_fans: int


async def totals(database: Database, event: Document) -> Totals:
    """The event's earnings as the ledger has them now."""
    sums = await ledger.sums_of(database, event["_id"])
    gross = refunds = 0
    by_account = dict.fromkeys(ledger.ACCOUNTS, 0)
    for (currency, cause, account), amount in sums.items():
        if currency != event["currency"]:
            continue  # A stray charge in another currency: it earns nothing and goes back.
        by_account[account] += amount
        if account in _EARNED:
            if cause == "sale":
                gross -= amount
            else:
                refunds += amount
    return Totals(
        gross=gross,
        refunds=refunds,
        fees=-by_account["fees"],
        net=-by_account["organiser"],
        at_provider=by_account["provider"],
        owed_to_fans=-by_account["fans"],
    )


async def totals_of(database: Database, events: Sequence[Document]) -> list[Totals]:
    """The earnings of each of these events."""
    return [await totals(database, event) for event in events]


async def as_csv(database: Database, event: Document) -> AsyncIterator[bytes]:
    """Every entry that earned or cost something, a line each (RFC 4180), in parts.

    Amounts are decimal numbers in the event's currency. The sums of the columns are the totals.
    """
    # Without the mark spreadsheets take UTF-8 for something else.
    yield "\ufeff".encode() + _line(*_COLUMNS, "currency")
    name = _defused(event["name"])
    after: tuple[datetime, str] | None = None
    while True:
        found = await ledger.entries(database, event["_id"], after=after, limit=ENTRIES_PER_READ)
        part = b""
        for entry in found:
            lines = {line["account"]: line["amount"] for line in entry["lines"]}
            if entry["currency"] == event["currency"] and lines.keys() & set(_EARNED):
                part += _line(*_cells(entry, lines, name, event["currency"]), event["currency"])
        if part:
            yield part
        if len(found) < ENTRIES_PER_READ:
            return
        after = found[-1]["at"], found[-1]["_id"]


def _cells(entry: Document, lines: dict[str, int], name: str, currency: str) -> list[str]:
    earned = -sum(lines.get(account, 0) for account in _EARNED)
    gross, refunds = (earned, 0) if entry["cause"] == "sale" else (0, -earned)
    amounts = (gross, refunds, -lines.get("fees", 0), -lines.get("organiser", 0))
    about = (rfc3339(entry["at"]), name, entry["cause"], entry["orderId"], entry["_id"])
    return [*about, *(decimal(amount, currency) for amount in amounts)]


def _line(*cells: str) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().encode()


def _defused(text: str) -> str:
    """The text as a cell that no spreadsheet runs: a quote before what could be a formula."""
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA_STARTS) else text


def decimal(amount: int, currency: str) -> str:
    """An amount in the currency's own unit: a decimal point, no grouping, all its digits."""
    digits = minor_digits(currency)
    sign, units = ("-" if amount < 0 else ""), abs(amount)
    if digits == 0:
        return f"{sign}{units}"
    return f"{sign}{units // 10**digits}.{units % 10**digits:0{digits}d}"


def sheet(event: Document, earned: Totals, now: datetime) -> Statement:
    """The statement as a page to print."""
    currency = event["currency"]
    rows = (
        ("Gross sales", earned.gross),
        ("Refunds", -earned.refunds),
        ("Fees", -earned.fees),
        ("Net", earned.net),
        ("At the payment provider", earned.at_provider),
        ("On its way to fans", earned.owed_to_fans),
    )
    return Statement(
        title=f"Statement: {event['name']}",
        event=event["name"],
        venue=event["venueName"],
        made=rfc3339(now),
        rows=[(name, f"{decimal(amount, currency)} {currency}") for name, amount in rows],
        made_at=int(now.timestamp()),
    )
