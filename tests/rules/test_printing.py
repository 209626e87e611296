"""A ticket is a page that shows any name, says where it can't, and never holds up a sale."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests import pdf
from ticketing import handouts, printing
from ticketing.printing import NotPrinted, Printer, Sheets, Ticket
from ticketing.printing.press import direction, han_language, missing_characters
from ticketing.settings import Settings
from ticketing.ticket_codes import Admission, Signer

EVENT = f"evt_{'cd' * 16}"
CODE = Signer(b"k" * 32).sign(Admission(f"tkt_{'ab' * 16}", EVENT, f"{EVENT}:00042"))
FONTS = Settings().fonts


def ticket(**changes: Any) -> Ticket:
    fields: dict[str, Any] = {
        "event": "The Last Waltz",
        "venue": "Winterland",
        "day": "Monday, 1 July 2030",
        "time": "20:30",
        "zone": "Europe/Berlin time, UTC+02:00",
        "place": [("Section", "A"), ("Row", "1"), ("Seat", "7")],
        "holder": "Zoë Müller",
        "reference": "7KQ2M9XR",
        "position": "Ticket 1 of 1",
        "code": CODE,
    }
    return Ticket(**(fields | changes))


def sheets(*tickets: Ticket, title: str = "Tickets") -> Sheets:
    return Sheets(title, "en", handouts.TEXTS["en"], list(tickets), 1_900_000_000)


@pytest.fixture
async def printer() -> AsyncIterator[Printer]:
    opened = Printer(FONTS)
    yield opened
    await opened.close()


async def printed(printer: Printer, **changes: Any) -> pdf.Page:
    [page] = pdf.pages(await printer.pdf(sheets(ticket(**changes))))
    return page


def test_a_ticket_says_the_same_things_in_every_language() -> None:
    first, *others = handouts.TEXTS.values()
    for texts in others:
        assert texts.keys() == first.keys()
        for name, text in texts.items():
            assert re.findall(r"\{\w+\}", text) == re.findall(r"\{\w+\}", first[name])


async def test_a_ticket_shows_all_that_gets_its_holder_in(printer: Printer) -> None:
    page = await printed(printer)
    for shown in (
        "The Last Waltz",
        "Winterland",
        "Monday, 1 July 2030",
        "20:30",
        "Europe/Berlin time, UTC+02:00",
        "Section\nA\nRow\n1\nSeat\n7",
        "Holder\nZoë Müller",
        "7KQ2M9XR",
        "Ticket 1 of 1",
    ):
        assert shown in page.text
    assert page.codes == [CODE]


async def test_a_ticket_without_a_holder_leaves_the_line_out(printer: Printer) -> None:
    assert "Holder" not in (await printed(printer, holder=None)).text


@pytest.mark.parametrize(
    "name",
    [
        "Zoë 李 O'Brien <script>",
        "张伟",
        "東京 さくら",
        "김민수",
        "e\u0301 Ẓ\u030c o\u0302\u0301",
        "ไทย हिन्दी தமிழ் ქართული Հայ አማርኛ",
        '#set page(width: 1pt) *b* _i_ $x$ @a \\ ` // /* #{panic("x")}',
        "👩\u200d🎤",
        "İstanbul ﬁ ½ ①",
    ],
)
async def test_a_name_in_this_script_is_shown(printer: Printer, name: str) -> None:
    page = await printed(printer, holder=name)
    assert "Some characters" not in page.text
    assert page.codes == [CODE]


async def test_letters_keep_their_order_from_right_to_left(printer: Printer) -> None:
    # What a reader of the file finds is the logical text; what is drawn runs the other way.
    page = await printed(printer, holder="שרה כהן (VIP) 3", event="محمد")
    assert "שרה כהן" in page.text
    assert "Some characters" not in page.text


async def test_what_no_font_has_is_replaced_and_the_page_says_so(printer: Printer) -> None:
    page = await printed(printer, holder="x\U000f0000y")
    assert "x\ufffdy" in page.text
    assert "Some characters are shown as \ufffd" in page.text
    assert page.codes == [CODE]
    assert "Some characters" not in (await printed(printer)).text


async def test_without_any_fonts_installed_a_latin_name_is_shown_and_others_say_so(
    tmp_path: Path,
) -> None:
    printer = Printer(str(tmp_path))
    try:
        assert "Zoë Müller" in (await printed(printer)).text
        page = await printed(printer, holder="Zoë 李", event="محمد")
        assert "Zoë \ufffd" in page.text
        assert "Some characters" in page.text
        assert page.codes == [CODE]
    finally:
        await printer.close()


@pytest.mark.parametrize("letter", ["W", "漢", "م", "༄", "\u0e01\u0e39\u0e49"])
async def test_a_ticket_is_one_page_however_long_the_names_are(
    printer: Printer, letter: str
) -> None:
    long = (letter * 200)[:200]
    place = [(name, long[:40]) for name in ("Section", "Row", "Seat")]
    page = await printed(printer, event=long, venue=long, holder=long, place=place)
    assert page.codes == [CODE]


async def test_fifty_tickets_are_fifty_pages(printer: Printer) -> None:
    made = await printer.pdf(sheets(*(ticket(position=f"Ticket {n} of 50") for n in range(1, 51))))
    pages = pdf.pages(made)
    assert len(pages) == 50
    assert all(f"Ticket {n} of 50" in page.text for n, page in enumerate(pages, start=1))


async def test_the_pages_are_tagged_for_screen_readers(printer: Printer) -> None:
    made = await printer.pdf(sheets(ticket()))
    assert b"pdfuaid" in made


async def test_prints_at_once_come_out_one_by_one_and_never_mixed_up(printer: Printer) -> None:
    made = await asyncio.gather(
        *(printer.pdf(sheets(ticket(holder=f"Fan number {n}"))) for n in range(8))
    )
    for number, content in enumerate(made):
        assert f"Fan number {number}" in pdf.pages(content)[0].text


async def test_too_many_at_once_are_refused_at_once(
    printer: Printer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(printing, "WAITING_MAX", 2)
    outcomes = await asyncio.gather(
        *(printer.pdf(sheets(ticket())) for _ in range(4)), return_exceptions=True
    )
    assert sum(isinstance(outcome, bytes) for outcome in outcomes) == 2
    assert sum(isinstance(outcome, NotPrinted) for outcome in outcomes) == 2


async def test_a_print_that_takes_too_long_is_given_up_and_the_next_one_succeeds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    printer = Printer(FONTS, seconds_max=0.001)
    try:
        with pytest.raises(NotPrinted):
            await printer.pdf(sheets(ticket()))
        assert "took too long" in caplog.text
        printer._seconds_max = 60
        assert pdf.pages(await printer.pdf(sheets(ticket())))
    finally:
        await printer.close()


async def test_a_process_that_was_killed_is_replaced(printer: Printer) -> None:
    await printed(printer)
    process = printer._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()
    assert (await printed(printer)).codes == [CODE]


async def test_a_process_that_is_killed_while_it_prints_costs_that_print_alone(
    printer: Printer,
) -> None:
    await printed(printer)
    assert printer._process is not None
    os.kill(printer._process.pid, signal.SIGSTOP)
    lost = asyncio.create_task(printer.pdf(sheets(ticket())))
    await asyncio.sleep(0)
    os.kill(printer._process.pid, signal.SIGKILL)
    with pytest.raises(NotPrinted):
        await lost
    assert (await printed(printer)).codes == [CODE]


async def test_whoever_goes_away_leaves_no_answer_for_the_next(printer: Printer) -> None:
    await printed(printer)
    assert printer._process is not None
    os.kill(printer._process.pid, signal.SIGSTOP)
    left = asyncio.create_task(printer.pdf(sheets(ticket(holder="Gone"))))
    await asyncio.sleep(0.01)
    left.cancel()
    with pytest.raises(asyncio.CancelledError):
        await left
    assert "Gone" not in (await printed(printer)).text


async def test_a_document_that_is_too_large_is_refused(
    printer: Printer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(printing, "PDF_BYTES_MAX", 100)
    with pytest.raises(NotPrinted):
        await printer.pdf(sheets(ticket()))
    assert "too large" in caplog.text


async def test_the_process_gets_no_secret(
    printer: Printer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TICKETING_JWT_SECRET", "never to be told")
    await printed(printer)
    assert printer._process is not None
    assert b"TICKETING" not in environment_of(printer._process.pid)


def environment_of(process_id: int) -> bytes:
    return Path(f"/proc/{process_id}/environ").read_bytes()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Zoë", "ltr"), ("שרה (VIP)", "rtl"), ("123 محمد", "rtl"), ("«A» שרה", "ltr"), ("", "ltr")],
)
def test_the_first_letter_says_where_a_line_begins(text: str, expected: str) -> None:
    assert direction(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("东京", "zh"), ("東京ドーム", "ja"), ("서울 大", "ko"), ("Zoë", "zh")]
)
def test_kana_and_hangul_say_whose_characters_are_meant(text: str, expected: str) -> None:
    assert han_language(text) == expected


def test_characters_without_a_font_are_read_from_what_the_typesetter_says() -> None:
    said = (
        'error: PDF/UA-1 error: the text `"李"` could not be displayed with font `"A"`\n'
        'error: PDF/UA-1 error: the text `"\\u{f0000}\\""` could not be displayed with font `"A"`'
    )
    assert missing_characters(said) == {"李", "\U000f0000", '"'}
    assert missing_characters("error: something else") == set()
