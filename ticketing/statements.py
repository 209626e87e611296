"""A statement says what an event has earned, by the ledger.

    gross - refunds - fees = net

`gross` is what was sold, `refunds` what was given back of it or is about to be, `fees` what the
platform keeps of the rest, `net` what the organiser gets: within a period, if one is asked for.
Beside them stands what lies at the provider and what is still on its way to fans: at its end.
"""

import csv
import io
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from ticketing import events, ledger
from ticketing.clock import rfc3339
from ticketing.errors import Invalid
from ticketing.ledger import ALWAYS, Period, Sum
from ticketing.money import minor_digits
from ticketing.mongo import Database, Document
from ticketing.printing import Statement, StatementPart

EVENTS_PER_READ = 100
ENTRIES_PER_READ = 1_000
PRINTED_EVENTS_MAX = 500
# A spreadsheet takes a cell that begins with one of these for a formula.
# The last four are their full-width forms, which some spreadsheets take for the same.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
# Whose credits are what was earned.
_EARNED = ("organiser", "fees")
_COLUMNS = ("at", "eventId", "event", "cause", "orderId", "entryId", "gross", "refunds", "fees")


@dataclass(frozen=True)
class Totals:
    """What an event has earned in its currency, in minor units, by how many sales and refunds."""

    gross: int = 0
    refunds: int = 0
    fees: int = 0
    net: int = 0
    at_provider: int = 0
    owed_to_fans: int = 0
    sale_count: int = 0
    refund_count: int = 0

    def __add__(self, other: "Totals") -> "Totals":
        mine, others = vars(self), vars(other)
        return replace(self, **{name: mine[name] + others[name] for name in mine})


async def totals(database: Database, event: Document, period: Period = ALWAYS) -> Totals:
    """The event's earnings as the ledger has them now."""
    (earned,) = await totals_of(database, [event], period)
    return earned


async def totals_of(
    database: Database, shows: Sequence[Document], period: Period = ALWAYS
) -> list[Totals]:
    """The earnings of each of these events."""
    by_event: dict[str, list[Sum]] = {show["_id"]: [] for show in shows}
    for each in await ledger.sums_of(database, list(by_event), period):
        by_event[each.event_id].append(each)
    return [_totals(by_event[show["_id"]], show["currency"]) for show in shows]


def _totals(sums: Sequence[Sum], currency: str) -> Totals:
    balances: Counter[str] = Counter()
    moved: Counter[tuple[str, str]] = Counter()
    counts: Counter[tuple[str, str]] = Counter()
    for each in sums:
        if each.currency != currency:
            continue  # A stray charge in another currency: it earns nothing and goes back.
        balances[each.account] += each.amount
        if each.is_within:
            moved[each.cause, each.account] += each.amount
            counts[each.cause, each.account] += each.count
    gross = moved["sale", "provider"]
    fees, net = (
        -sum(amount for (_, account), amount in moved.items() if account == name)
        for name in ("fees", "organiser")
    )
    # A sale has a line of the fans where money of it had gone back before we heard of it.
    returned = (("refund", "fans"), ("outside", "organiser"), ("sale", "fans"))
    return Totals(
        gross=gross,
        refunds=gross + sum(_earned_lines(moved)),
        fees=fees,
        net=net,
        at_provider=balances["provider"],
        owed_to_fans=-balances["fans"],
        sale_count=counts["sale", "provider"],
        refund_count=sum(counts[key] for key in returned),
    )


def _earned_lines(moved: Counter[tuple[str, str]]) -> list[int]:
    return [amount for (_, account), amount in moved.items() if account in _EARNED]


async def pages_of(database: Database, organiser_id: str) -> AsyncIterator[list[Document]]:
    """All events of an organiser, some at a time."""
    after: Document | None = None
    while True:
        found = await events.briefly(database, organiser_id, after=after, limit=EVENTS_PER_READ)
        if found:
            yield found
        if len(found) < EVENTS_PER_READ:
            return
        after = found[-1]


async def one_page(event: Document) -> AsyncIterator[list[Document]]:
    """One event, likewise."""
    yield [event]


# --- As a table ----------------------------------------------------------------------------------


async def as_csv(
    database: Database, pages: AsyncIterator[list[Document]], period: Period = ALWAYS
) -> AsyncIterator[bytes]:
    """Every entry that earned or cost something, a line each (RFC 4180), in parts.

    Event by event, and in each by time. Amounts are decimal numbers in the event's currency; the
    sums of an event's columns are its totals.
    """
    # Without the mark spreadsheets take UTF-8 for something else.
    yield "\ufeff".encode() + _line(*_COLUMNS, "net", "currency")
    async for shows in pages:
        for show in shows:
            async for part in _lines_of(database, show, period):
                yield part


async def _lines_of(database: Database, event: Document, period: Period) -> AsyncIterator[bytes]:
    name, currency = _defused(event["name"]), event["currency"]
    after: tuple[datetime, str] | None = None
    while True:
        found = await ledger.entries(
            database, event["_id"], period=period, after=after, limit=ENTRIES_PER_READ
        )
        part = b""
        for entry in found:
            lines = {line["account"]: line["amount"] for line in entry["lines"]}
            if entry["currency"] == currency and lines.keys() & set(_EARNED):
                part += _line(*_cells(entry, lines, name))
        if part:
            yield part
        if len(found) < ENTRIES_PER_READ:
            return
        after = found[-1]["at"], found[-1]["_id"]


def _cells(entry: Document, lines: dict[str, int], name: str) -> list[str]:
    currency = entry["currency"]
    gross = lines["provider"] if entry["cause"] == "sale" else 0
    refunds = gross + sum(lines.get(account, 0) for account in _EARNED)
    amounts = (gross, refunds, -lines.get("fees", 0), -lines.get("organiser", 0))
    about = (entry["eventId"], name, entry["cause"], entry["orderId"], entry["_id"])
    written = (decimal(amount, currency) for amount in amounts)
    return [rfc3339(entry["at"]), *about, *written, currency]


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


# --- As pages to print ---------------------------------------------------------------------------


async def sheet_of(
    database: Database, organiser_id: str, period: Period, now: datetime
) -> Statement:
    """The statement of all events of an organiser that have entries, and their totals by currency.

    Raises Invalid where those are more than PRINTED_EVENTS_MAX.
    """
    earned: list[tuple[Document, Totals]] = []
    async for shows in pages_of(database, organiser_id):
        pairs = zip(shows, await totals_of(database, shows, period), strict=True)
        earned += [pair for pair in pairs if pair[1] != Totals()]
        if len(earned) > PRINTED_EVENTS_MAX:
            fault = f"has entries of more than {PRINTED_EVENTS_MAX} events: print a shorter time"
            raise Invalid([("from", fault)])
    by_currency: dict[str, Totals] = {}
    for show, each in earned:
        currency = show["currency"]
        by_currency[currency] = by_currency.get(currency, Totals()) + each
    together = [
        StatementPart(f"All events in {currency}", "", _rows(each, currency))
        for currency, each in sorted(by_currency.items())
    ]
    return _statement("Statement", [*together, *map(_part, earned)], period, now)


def sheet(event: Document, earned: Totals, period: Period, now: datetime) -> Statement:
    """The statement of one event."""
    return _statement(f"Statement: {event['name']}", [_part((event, earned))], period, now)


def _statement(title: str, parts: list[StatementPart], period: Period, now: datetime) -> Statement:
    ends = (("from", period.starts_at), ("before", period.ends_at))
    told = [f"{word} {rfc3339(instant)}" for word, instant in ends if instant is not None]
    return Statement(
        title=title,
        made=rfc3339(now),
        period=" and ".join(told),
        parts=parts,
        made_at=int(now.timestamp()),
    )


def _part(pair: tuple[Document, Totals]) -> StatementPart:
    event, earned = pair
    return StatementPart(event["name"], event["venueName"], _rows(earned, event["currency"]))


def _rows(earned: Totals, currency: str) -> list[tuple[str, str]]:
    amounts = (
        (f"Gross sales ({earned.sale_count})", earned.gross),
        (f"Refunds ({earned.refund_count})", -earned.refunds),
        ("Fees", -earned.fees),
        ("Net", earned.net),
        ("At the payment provider", earned.at_provider),
        ("On its way to fans", earned.owed_to_fans),
    )
    return [(name, f"{decimal(amount, currency)} {currency}") for name, amount in amounts]
