"""What fans are told by mail, and when: one mail for each cause, in the fan's language.

A mail is made of the order as it is when the mail is sent, not as it was when the message was
written: a fan whose order was cancelled meanwhile gets no tickets any more.
"""

import re
import tomllib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP, SMTPUTF8
from email.utils import format_datetime, parseaddr
from pathlib import Path
from typing import Any, Protocol
from zoneinfo import ZoneInfo

import idna
from babel import Locale
from babel.dates import format_date, format_time
from babel.numbers import format_currency, get_currency_symbol
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from ticketing import accounts, money, signed_links
from ticketing.mongo import Database, Document
from ticketing.outbox import Done, Failed, Outcome, Skipped
from ticketing.settings import Settings

CONSUMER = "mail"
SUBJECT_NAME_LENGTH_MAX = 120
# How long after the event a guest's link still leads to their orders.
GUEST_LINK_DAYS = 90

# An address without any character that means something in a list of addresses. Letters of all
# scripts, for servers that know SMTPUTF8.
_MAILABLE = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]+@[\w-]+(\.[\w-]+)+")

_FOLDER = Path(__file__).parent / "mail_texts"
_TEXTS = {
    language: tomllib.loads((_FOLDER / f"{language}.toml").read_text())
    for language in accounts.LANGUAGES
}
_TEMPLATES = Environment(
    loader=FileSystemLoader(_FOLDER),
    autoescape=select_autoescape(["html"]),
    undefined=StrictUndefined,
    trim_blocks=True,
)


class Unsendable(Exception):
    """A mail that will never be taken, however often it is tried."""


class Undelivered(Exception):
    """A mail that may be taken another time."""


class Post(Protocol):
    """What carries mails away."""

    async def send(self, mail: EmailMessage, sender: str, recipient: str) -> str:
        """Send it and tell what was answered. Raises Unsendable or Undelivered."""


# --- When --------------------------------------------------------------------------------------


def occasion(message: Document) -> str | None:
    """Which mail a message is the cause of, or None."""
    body = message["body"]
    match message["kind"]:
        case "order.confirmed":
            return "confirmed"
        case "payment.completed" if body["outcome"] == "failed":
            return "payment_failed"
        # Who never came to pay knows it; who was about to pay should hear of it.
        case "order.expired" if body.get("paymentOpened"):
            return "expired"
        case "refund.done":
            return "refunded"
        case "order.cancelled" if body.get("reason") == "event":
            return "event_cancelled"
        case "order.cancelled" if body.get("reason") == "fan":
            return "cancelled"
        case "order.moved":
            return "moved"
    return None


# An order in another state by now makes the mail untrue.
_TRUE_WHILE = {
    "confirmed": "confirmed",
    "moved": "confirmed",
    "payment_failed": "pendingPayment",
    "expired": "expired",
}


class Mails:
    """Sends mails to fans."""

    name = CONSUMER

    def __init__(self, database: Database, settings: Settings, post: Post) -> None:
        self._database = database
        self._settings = settings
        self._post = post

    async def targets(self, messages: Sequence[Document]) -> dict[str, list[str]]:
        """One mail each for those that are the cause of one."""
        return {message["_id"]: [CONSUMER] for message in messages if occasion(message)}

    async def deliver(self, message: Document, target: str, now: datetime) -> Outcome:  # noqa: ARG002
        """Mail the fan of the message's order, if they left an address."""
        why = occasion(message)
        order = await self._database.orders.find_one({"_id": message.get("orderId")})
        if why is None or order is None:
            return Skipped("it is about no order")
        if order["status"] != _TRUE_WHILE.get(why, order["status"]):
            return Skipped(f"the order is {order['status']} by now")
        if why == "payment_failed" and order["expiresAt"] <= now:
            return Skipped("the time to pay is over")
        fan = await accounts.profile(self._database, order["fanId"])
        if fan is None:
            return Skipped("the fan left no address")
        try:
            mail = compose(why, message, order, fan, self._settings)
            sender = parseaddr(self._settings.mail_from)[1]
            answer = await self._post.send(mail, sender, mailable(fan["email"]))
            return Done(without_address(answer, fan["email"]))
        except Unsendable as reason:
            return Failed(without_address(str(reason), fan["email"]), lasting=True)
        except Undelivered as reason:
            return Failed(without_address(str(reason), fan["email"]))


def without_address(answer: str, address: str) -> str:
    """What a mail server said, without the address that it may repeat: it is kept for months."""
    return re.sub(re.escape(address), "the address", answer, flags=re.IGNORECASE)


# --- What --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Letter:
    """What a mail says, the same in plain text and HTML."""

    language: str
    subject: str
    greeting: str
    paragraphs: list[str]
    facts: list[tuple[str, str]]
    seats: list[tuple[str, str | None]]
    ticket: str
    footer: str
    link: str | None = None
    link_url: str | None = None


def compose(
    why: str, message: Document, order: Document, fan: Document, settings: Settings
) -> EmailMessage:
    """The mail, byte for byte the same at each attempt but for the boundary of its parts.

    Raises Unsendable where the fan's address can't stand in a mail.
    """
    letter = write(why, message, order, fan, settings)
    return put_together(
        letter, message, why, name=fan["name"], address=fan["email"], settings=settings
    )


def put_together(
    letter: Letter,
    message: Document,
    why: str,
    *,
    name: str,
    address: str,
    settings: Settings,
) -> EmailMessage:
    """A letter as a mail in both forms. Raises Unsendable."""
    sender_name, sender = parseaddr(settings.mail_from)
    recipient = mailable(address)
    mail = EmailMessage(policy=SMTP if recipient.isascii() else SMTPUTF8)
    mail["From"] = Address(sender_name, addr_spec=sender)
    mail["To"] = Address(_for_header(_one_line(name)), *recipient.split("@"))
    mail["Subject"] = _for_header(letter.subject)
    mail["Date"] = format_datetime(message["createdAt"])
    # Whoever gets a mail twice, because a worker died before it wrote down that it was taken, can
    # tell by this.
    mail["Message-ID"] = f"<{message['_id']}.{why}@{sender.rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(_TEMPLATES.get_template("mail.txt").render(letter=letter), cte="base64")
    html = _TEMPLATES.get_template("mail.html").render(letter=letter)
    mail.add_alternative(html, subtype="html", cte="base64")
    # Last, since the first part takes along all headers of that beginning.
    mail["Content-Language"] = letter.language
    return mail


def plain_letter(why: str, *, language: str, name: str, link_url: str | None) -> Letter:
    """A letter that is about no order."""
    texts = _TEXTS[language]
    words, wanted = texts["words"], texts[why]
    shown = _one_line(name)
    return Letter(
        language=language,
        subject=wanted["subject"],
        greeting=words["greeting"].format(name=shown) if shown else words["greeting_unnamed"],
        paragraphs=wanted["paragraphs"],
        facts=[],
        seats=[],
        ticket=words["ticket"],
        footer=words["footer_account"],
        link=wanted.get("link"),
        link_url=link_url,
    )


def mailable(address: str) -> str:
    """The address as mail servers take it: its domain in ASCII. Raises Unsendable."""
    local_part, _, domain = address.partition("@")
    try:
        if _MAILABLE.fullmatch(address):
            # By the newer rules: by those of Python's own codec `ß` would be another's `ss`.
            return f"{local_part}@{idna.encode(domain, uts46=True).decode('ascii')}"
    except UnicodeError:
        pass  # No domain has such labels.
    raise Unsendable("the fan's address can't be mailed to")


def write(
    why: str, message: Document, order: Document, fan: Document, settings: Settings
) -> Letter:
    """What the mail for this occasion says."""
    language = accounts.language_of(fan)
    texts = _TEXTS[language]
    words, wanted = texts["words"], texts[why]
    event, currency = order["event"], order["currency"]
    name = _one_line(fan["name"])
    values = {
        "event": _one_line(event["name"]),
        "reference": order["reference"],
        "expires_at": moment(order["expiresAt"], event["timezone"], language),
    }
    facts = [
        (words["event"], _one_line(event["name"])),
        (words["when"], moment(event["startsAt"], event["timezone"], language)),
        (words["where"], _one_line(event["venueName"])),
        (words["order"], order["reference"]),
    ]
    if why == "refunded":
        amount = amount_of(message["body"]["amount"], message["body"]["currency"], language)
        values["amount"] = amount
        facts.append((words["amount"], amount))
    else:
        total = amount_of(order["total"], currency, language) if order["total"] else words["free"]
        facts.append((words["total"], total))
    # A mail speaks of money only where there was some.
    was_paid = (order["payment"] or {}).get("status") == "succeeded"
    part = "paragraphs" if was_paid else "paragraphs_unpaid"
    short = values | {"event": _cut(values["event"])}
    return Letter(
        language=language,
        subject=wanted["subject"].format(**short),
        greeting=words["greeting"].format(name=name) if name else words["greeting_unnamed"],
        paragraphs=[
            paragraph.format(**values) for paragraph in wanted.get(part, wanted["paragraphs"])
        ],
        facts=facts,
        seats=_seats(why, order, words),
        ticket=words["ticket"],
        footer=words["footer"],
        **_link(why, order, fan, words, settings),
    )


def _link(
    why: str, order: Document, fan: Document, words: dict[str, str], settings: Settings
) -> dict[str, str]:
    if why == "payment_failed":
        url = f"{settings.public_url}/pay/{order['payment']['paymentId']}"
        return {"link": _TEXTS[accounts.language_of(fan)][why]["link"], "link_url": url}
    if why in ("confirmed", "moved") and fan.get("guest"):
        # A guest has no account to log in to: whoever reads their mail has their tickets anyway.
        ends_at = order["event"]["startsAt"] + timedelta(days=GUEST_LINK_DAYS)
        link = signed_links.make(settings, "guest", fan["_id"], ends_at)
        return {
            "link": words["tickets_link"],
            "link_url": f"{settings.public_url}/tickets#link={link}",
        }
    return {}


def _seats(why: str, order: Document, words: dict[str, str]) -> list[tuple[str, str | None]]:
    if why == "confirmed":
        valid = [ticket for ticket in order["tickets"] if ticket["status"] == "valid"]
        return [(_place(ticket, words), ticket["code"]) for ticket in valid]
    if why == "refunded":
        return []
    return [(_place(seat, words), None) for seat in order["seats"]]


def _place(seat: Document, words: dict[str, str]) -> str:
    parts = [seat["section"]]
    if seat["row"] is not None:
        parts.append(f"{words['row']} {seat['row']}")
    if seat["number"] is not None:
        parts.append(f"{words['seat']} {seat['number']}")
    return _one_line(", ".join(parts))


def _one_line(text: str) -> str:
    """The text without what could begin a new line or a new header, or turn what follows around."""
    kept = "".join(
        " " if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") else character
        for character in text
        if character not in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    )
    return " ".join(kept.split())


def _for_header(text: str) -> str:
    """The text without what the library would take for an encoded word.

    It decodes such words even in what it is given to write, and an encoded line feed then begins a
    header of a stranger's choice.
    """
    return text.replace("=?", "= ?")


def _cut(name: str) -> str:
    if len(name) <= SUBJECT_NAME_LENGTH_MAX:
        return name
    return name[: SUBJECT_NAME_LENGTH_MAX - 1].rstrip() + "…"


def moment(instant: datetime, timezone: str, language: str) -> str:
    """An instant in the event's own time, as people of that language write it."""
    local = instant.astimezone(ZoneInfo(timezone))
    locale = Locale.parse(language)
    day = format_date(local, "full", locale=locale)
    return f"{day}, {format_time(local, 'short', locale=locale)} ({local:%Z}, {timezone})"


def amount_of(amount: int, currency: str, language: str) -> str:
    """An amount of minor units as people of that language write it."""
    # By ISO's digits and not the library's: those are what is usual in cash.
    digits = money.minor_digits(currency)
    locale = Locale.parse(language)
    pattern = locale.currency_formats["standard"].pattern
    if get_currency_symbol(currency, locale).isalpha():
        pattern = pattern.replace("¤#", "¤\xa0#")
    fitting = pattern.replace(".00", f".{'0' * digits}" if digits else "")
    scaled: Any = Decimal(amount).scaleb(-digits)
    return format_currency(scaled, currency, fitting, locale=locale, currency_digits=False)
