"""What fans are told by mail: the right thing, once, in their language, whatever their name is."""

import asyncio
from datetime import timedelta
from email.message import EmailMessage

import pytest

from tests.conftest import NOW, ORGANISER, Sale, put_on_sale
from tests.mail_server import MailServer, mail_server, parts
from tests.nouns.test_checkout import current, notice, ordered, receive
from ticketing import accounts, checkout, mails, moves, outbox
from ticketing.events import Move
from ticketing.mails import Mails
from ticketing.mongo import Database, Document
from ticketing.settings import Settings
from ticketing.smtp import MAILS_PER_CONNECTION_MAX, Smtp

NAME = "Zoë 李 O'Brien <script>alert(1)</script>"


@pytest.fixture
async def server():
    async with mail_server() as running:
        yield running


@pytest.fixture
async def post(server: MailServer, settings: Settings):
    smtp = Smtp(server.settings(settings))
    yield smtp
    await smtp.close()


@pytest.fixture
def consumer(database: Database, server: MailServer, settings: Settings, post: Smtp) -> Mails:
    return Mails(database, server.settings(settings), post)


async def fan(database: Database, fan_id: str = "fan_a", language: str | None = None) -> None:
    await accounts.save_profile(database, fan_id, NAME, f"{fan_id}@example.org", NOW, language)


async def sent(database: Database, consumer: Mails, now=NOW) -> None:
    """All that is due is spread and tried."""
    for step in range(50):
        moment = now + timedelta(milliseconds=step)
        while await outbox.spread(database, [consumer], moment):
            pass
        taken = await outbox.take(database, "mail", moment, 16)
        if not taken:
            return
        await asyncio.gather(
            *(outbox.deliver(database, consumer, delivery, moment) for delivery in taken)
        )


async def tell(database: Database, kind: str, placed: Document, body: Document) -> None:
    """A message that a cause elsewhere writes."""
    await database.outbox.insert_one(
        outbox.message(kind, placed["eventId"], placed["_id"], body, NOW)
    )


def only(server: MailServer) -> EmailMessage:
    ((recipient, mail),) = server.taken
    assert recipient == "fan_a@example.org"
    return mail


async def bought(database: Database, sale: Sale, *ordinals: int, fan_id="fan_a") -> Document:
    placed = await ordered(database, sale, fan_id, *ordinals)
    await receive(database, notice(placed))
    return await current(database, placed)


async def test_a_confirmed_order_is_one_mail_with_its_tickets(
    database: Database, consumer: Mails, server: MailServer
) -> None:
    sale = await put_on_sale(database)
    await fan(database)
    order = await bought(database, sale, 1, 25)
    await sent(database, consumer)
    await sent(database, consumer, NOW + timedelta(days=2))
    mail = only(server)
    assert mail["Subject"] == "Your tickets for The Last Waltz"
    assert mail["From"] == "Tickets <tickets@example.org>"
    assert mail["To"].addresses[0].display_name == NAME
    assert mail["Auto-Submitted"] == "auto-generated"
    plain, html = parts(mail)
    lines = plain.splitlines()
    for ticket in order["tickets"]:
        assert f"Ticket code: {ticket['code']}" in lines
        assert ticket["code"] in html
    for text in (order["reference"], "A, row 1, seat 2", "Floor", "€140.00", "Winterland"):
        assert text in plain
        assert text in html
    assert {"", "Hello " + NAME + ",", "A, row 1, seat 2", "Floor", "-- "} <= set(lines)
    # 12:00 UTC on the first of July is two in the afternoon in Berlin.
    assert "Monday, July 1, 2030, 2:00" in plain
    assert "(CEST, Europe/Berlin)" in plain


async def test_a_name_is_text_and_nothing_else(
    database: Database, consumer: Mails, server: MailServer
) -> None:
    sale = await put_on_sale(database, name="Rock & <b>Roll</b> \u202e李")
    await fan(database)
    await bought(database, sale, 1)
    await sent(database, consumer)
    mail = only(server)
    plain, html = parts(mail)
    assert f"Hello {NAME}," in plain
    assert "<script" not in html
    assert "Zoë 李 O&#39;Brien &lt;script&gt;" in html
    assert "<b>" not in html
    assert mail["Subject"] == "Your tickets for Rock & <b>Roll</b> 李"


@pytest.mark.parametrize(
    "name",
    [
        "Eve\r\nBcc: all@example.org",
        "Eve\nSubject: free",
        "Eve\u2028Bcc: all@example.org",
        "Eve\x00\x1b[31m",
        '"Eve" <eve@evil.example>, other@evil.example',
        "=?utf-8?q?Eve=0D=0ABcc:_all=40example.org?=",
        "🎸" * 200,
        "(comment",
        "\u202egro.elpmaxe",
    ],
)
async def test_no_name_makes_a_header_or_another_recipient(
    name: str, database: Database, consumer: Mails, server: MailServer
) -> None:
    sale = await put_on_sale(database)
    await fan(database)
    placed = await bought(database, sale, 1)
    # Past the routes, which take no control characters: as if it had been stored before they did.
    await database.fans.update_one({"_id": "fan_a"}, {"$set": {"name": name}})
    await database.orders.update_one({"_id": placed["_id"]}, {"$set": {"event.name": name}})
    await sent(database, consumer)
    mail = only(server)
    assert "Bcc" not in mail
    assert len(mail.get_all("Subject", [])) == 1
    assert [address.addr_spec for address in mail["To"].addresses] == ["fan_a@example.org"]
    assert "\n" not in mail["Subject"]


async def test_a_fan_is_written_to_in_their_language(
    database: Database, consumer: Mails, server: MailServer
) -> None:
    sale = await put_on_sale(database)
    await fan(database, language="de")
    await bought(database, sale, 1, 2)
    await sent(database, consumer)
    mail = only(server)
    assert mail["Subject"] == "Ihre Tickets für The Last Waltz"
    assert mail["Content-Language"] == "de"
    plain, html = parts(mail)
    assert "190,00\xa0€" in plain
    assert "Montag, 1. Juli 2030, 14:00" in plain
    assert "Reihe 1, Platz 2" in html
    assert '<html lang="de">' in html


def test_every_language_says_everything() -> None:
    def shape(texts: Document) -> Document:
        return {
            name: shape(text) if isinstance(text, dict) else type(text)
            for name, text in texts.items()
        }

    shapes = [shape(mails._TEXTS[language]) for language in accounts.LANGUAGES]
    assert all(one == shapes[0] for one in shapes)


@pytest.mark.parametrize(
    ("amount", "currency", "language", "written"),
    [
        (4550, "EUR", "en", "€45.50"),
        (4550, "EUR", "de", "45,50\xa0€"),
        (4550, "JPY", "en", "¥4,550"),
        (4550, "KWD", "en", "KWD\xa04.550"),
        (1_234_567, "IQD", "en", "IQD\xa01,234.567"),
        (123_456_789, "USD", "de", "1.234.567,89\xa0$"),
        (5, "EUR", "en", "€0.05"),
    ],
)
def test_an_amount_has_the_digits_of_its_currency(
    amount: int, currency: str, language: str, written: str
) -> None:
    assert mails.amount_of(amount, currency, language) == written


async def test_a_declined_payment_is_a_mail_that_leads_back_to_the_payment(
    database: Database, consumer: Mails, server: MailServer
) -> None:
    sale = await put_on_sale(database)
    await fan(database)
    placed = await ordered(database, sale, "fan_a", 1)
    await receive(database, notice(placed, "payment.failed"))
    await sent(database, consumer)
    plain, html = parts(only(server))
    link = f"/pay/{placed['payment']['paymentId']}"
    assert link in plain
    assert f'{link}"' in html
    assert "was declined" in plain


async def test_a_mail_that_is_true_no_more_is_not_sent(
    database: Database, consumer: Mails, server: MailServer
) -> None:
    sale = await put_on_sale(database)
    await fan(database)
    placed = await ordered(database, sale, "fan_a", 1)
    await receive(database, notice(placed, "payment.failed"))
    await receive(database, notice(placed))
    await checkout.cancel(database, placed["_id"], "fan_a", now=NOW)
    await sent(database, consumer)
    assert only(server)["Subject"] == "Your order for The Last Waltz is cancelled"
    skipped = await database.deliveries.find({"status": "skipped"}).to_list(10)
    assert len(skipped) == 2


async def test_nobody_is_asked_to_pay_when_the_time_to_pay_is_over(
    database: Database, consumer: Mails, server: MailServer
) -> None:
    sale = await put_on_sale(database)
    await fan(database)
    placed = await ordered(database, sale, "fan_a", 1)
    await receive(database, notice(placed, "payment.failed"))
    await sent(database, consumer, placed["expiresAt"])
    assert server.taken == []


async def test_an_order_that_expired_is_a_mail_only_if_its_payment_page_was_opened(
    database: Database, consumer: Mails, server: MailServer
) -> None:
    sale = await put_on_sale(database)
    await fan(database)
    for ordinal, opened in ((1, True), (2, False)):
        placed = await ordered(database, sale, "fan_a", ordinal)
        await checkout.release_hold(database, placed["holdId"], "fan_a", now=NOW)
        body = {"reason": "not paid in time", "paymentOpened": opened}
        await tell(database, "order.expired", placed, body)
    await sent(database, consumer)
    assert only(server)["Subject"] == "Your order for The Last Waltz has expired"


async def test_money_that_went_back_is_a_mail_with_the_amount(
    database: Database, consumer: Mails, server: MailServer
) -> None:
    sale = await put_on_sale(database)
    await fan(database)
    placed = await bought(database, sale, 1)
    await sent(database, consumer)
    server.taken.clear()
    await checkout.cancel(database, placed["_id"], "fan_a", now=NOW)
    await sent(database, consumer)
    server.taken.clear()
    body = {"refundId": "rfd_1", "paymentId": "pay_1", "amount": 9500, "currency": "EUR"}
    await tell(database, "refund.done", placed, body)
    await sent(database, consumer)
    plain, _ = parts(only(server))
    assert "sent back €95.00 of your order" in plain


@pytest.mark.parametrize("paid", [True, False])
@pytest.mark.parametrize("language", ["en", "de"])
async def test_an_order_cancelled_by_its_fan_is_one_mail_that_says_so(
    language: str, paid: bool, database: Database, consumer: Mails, server: MailServer
) -> None:
    sale = await put_on_sale(database)
    await fan(database, language=language)
    placed = await bought(database, sale, 1) if paid else await ordered(database, sale, "fan_a", 1)
    await sent(database, consumer)
    server.taken.clear()
    await checkout.cancel(database, placed["_id"], "fan_a", now=NOW)
    await sent(database, consumer)
    mail = only(server)
    about_money = {
        ("en", True): "What you paid will be paid back",
        ("en", False): "Nothing was charged",
        ("de", True): "wird Ihnen zurückgezahlt",
        ("de", False): "Es wurde nichts abgebucht",
    }
    assert about_money[language, paid] in parts(mail)[0]
    assert placed["reference"] in parts(mail)[0]


@pytest.mark.parametrize("paid", [True, False])
async def test_a_cancelled_event_is_a_mail_that_speaks_of_money_only_if_there_was_any(
    paid: bool, database: Database, consumer: Mails, server: MailServer
) -> None:
    sale = await put_on_sale(database)
    await fan(database)
    placed = await bought(database, sale, 1) if paid else await ordered(database, sale, "fan_a", 1)
    await sent(database, consumer)
    server.taken.clear()
    await tell(database, "order.cancelled", placed, {"reason": "event"})
    await sent(database, consumer)
    mail = only(server)
    assert mail["Subject"] == "The Last Waltz is cancelled"
    assert ("What you paid is sent back" in parts(mail)[0]) is paid


async def test_a_fan_without_an_address_gets_no_mail(
    database: Database, consumer: Mails, server: MailServer
) -> None:
    sale = await put_on_sale(database)
    await bought(database, sale, 1)
    await sent(database, consumer)
    assert server.taken == []
    (delivery,) = await database.deliveries.find({}).to_list(10)
    assert delivery["tried"][0]["detail"] == "the fan left no address"


async def test_a_refusal_for_now_is_tried_again_with_the_same_id(
    database: Database, consumer: Mails, server: MailServer
) -> None:
    sale = await put_on_sale(database)
    await fan(database)
    await bought(database, sale, 1)
    server.data_answers = ["451 busy", "451 busy"]
    seen: list[str] = []
    for minutes in (0, 1, 2):
        await sent(database, consumer, NOW + timedelta(minutes=minutes))
        seen.append((await database.deliveries.find_one({}) or {})["status"])
    assert seen == ["waiting", "waiting", "done"]
    assert len(server.taken) == 1


@pytest.mark.parametrize("answer", ["550 no such box", "553 not here"])
async def test_a_refusal_for_good_is_a_dead_letter_that_says_why(
    answer: str, database: Database, consumer: Mails, server: MailServer
) -> None:
    sale = await put_on_sale(database)
    await fan(database)
    await bought(database, sale, 1)
    server.recipient_answers["fan_a@example.org"] = answer
    await sent(database, consumer)
    (dead,) = await outbox.dead_letters(database, 10)
    assert answer in dead["tried"][0]["detail"]
    # The server is told to take it after all.
    del server.recipient_answers["fan_a@example.org"]
    await outbox.requeue(database, [dead["_id"]], NOW + timedelta(hours=1))
    await sent(database, consumer, NOW + timedelta(hours=1))
    only(server)


async def test_a_server_that_is_away_loses_no_mail(
    database: Database, consumer: Mails, server: MailServer, settings: Settings
) -> None:
    sale = await put_on_sale(database)
    await fan(database)
    await bought(database, sale, 1)
    nobody = server.settings(settings)
    away = Smtp(Settings(**{**vars(nobody), "smtp_port": 1}))
    await sent(database, Mails(database, nobody, away))
    assert server.taken == []
    await sent(database, consumer, NOW + timedelta(minutes=1))
    only(server)


async def test_a_mail_cut_off_before_it_was_taken_is_sent_by_another_worker_once(
    database: Database, consumer: Mails, server: MailServer
) -> None:
    sale = await put_on_sale(database)
    await fan(database)
    await bought(database, sale, 1)
    reached = asyncio.Event()

    async def hang() -> None:
        reached.set()
        await asyncio.Event().wait()

    server.before_taking = hang
    working = asyncio.create_task(sent(database, consumer))
    await asyncio.wait_for(reached.wait(), 30)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    server.before_taking = None
    await sent(database, consumer, NOW + timedelta(seconds=outbox.LEASE_SECONDS))
    only(server)


async def test_a_mail_that_was_taken_but_not_written_down_comes_again_with_its_id(
    database: Database, consumer: Mails, server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale = await put_on_sale(database)
    await fan(database)
    await bought(database, sale, 1)

    async def die(*_: object) -> bool:
        raise asyncio.CancelledError

    with monkeypatch.context() as dying:
        dying.setattr(outbox, "settle", die)
        with pytest.raises(asyncio.CancelledError):
            await sent(database, consumer)
    await sent(database, consumer, NOW + timedelta(seconds=outbox.LEASE_SECONDS))
    first, again = server.taken
    assert first[1]["Message-ID"] == again[1]["Message-ID"]
    assert first[1]["Date"] == again[1]["Date"]
    assert parts(first[1]) == parts(again[1])


async def test_many_mails_share_connections_and_none_carries_too_many(
    server: MailServer, post: Smtp
) -> None:
    mail = EmailMessage()
    mail["Subject"] = "A mail"
    for _ in range(MAILS_PER_CONNECTION_MAX + 1):
        await post.send(mail, "tickets@example.org", "fan_a@example.org")
    assert server.connections == 2
    assert len(server.taken) == MAILS_PER_CONNECTION_MAX + 1


async def test_an_address_outside_ascii_is_mailed_to_where_the_server_can(
    database: Database, consumer: Mails, server: MailServer
) -> None:
    sale = await put_on_sale(database)
    await accounts.save_profile(database, "fan_a", NAME, "zoë@example.org", NOW)
    await bought(database, sale, 1)
    await sent(database, consumer)
    assert [recipient for recipient, _ in server.taken] == ["zoë@example.org"]


async def test_a_domain_outside_ascii_needs_nothing_of_the_server(
    database: Database, consumer: Mails, server: MailServer
) -> None:
    sale = await put_on_sale(database)
    await accounts.save_profile(database, "fan_a", "張偉", "w@例え.jp", NOW)
    await bought(database, sale, 1)
    await sent(database, consumer)
    assert [recipient for recipient, _ in server.taken] == ["w@xn--r8jz45g.jp"]


@pytest.mark.parametrize(
    "address",
    [
        "a,b@example.org",
        "a<b@example.org",
        "a@b.c>",
        "a;b@example.org",
        '"a@b.c',
        f"a@{'b' * 64}.org",
    ],
)
async def test_an_address_that_is_more_than_one_gets_nothing(
    address: str, database: Database, consumer: Mails, server: MailServer
) -> None:
    sale = await put_on_sale(database)
    await accounts.save_profile(database, "fan_a", "Eve", address, NOW)
    await bought(database, sale, 1)
    await sent(database, consumer)
    assert server.taken == []
    assert len(await outbox.dead_letters(database, 10)) == 1


@pytest.mark.parametrize(("language", "said"), [("en", "has been moved"), ("de", "verlegt worden")])
async def test_a_moved_event_is_a_mail_with_the_new_time_and_place(
    language: str, said: str, database: Database, consumer: Mails, server: MailServer
) -> None:
    sale = await put_on_sale(database)
    await fan(database, language=language)
    await bought(database, sale, 1)
    await sent(database, consumer)
    server.taken.clear()
    await moves.move(database, sale.event_id, ORGANISER, Move(venue_name="Fillmore"), NOW)
    await moves.run_due(database, NOW)
    await sent(database, consumer)
    plain, html = parts(only(server))
    assert said in plain
    assert "Fillmore" in plain
    assert "Winterland" not in plain + html
