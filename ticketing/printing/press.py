"""The process that sets tickets: a request on standard input, a PDF on standard output, and again.

    python -m ticketing.printing.press FONTS

It ends when its standard input does. The pages are tagged for screen readers (PDF/UA-1), and that
standard refuses a character no font has: it is then replaced, and the page says so.
"""

import io
import json
import os
import re
import resource
import sys
import unicodedata
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import segno
import typst

from ticketing.printing import FAILED, PDF_BYTES_MAX, PRINTED, Sheets, Statement, Ticket

MEMORY_BYTES_MAX = 4 * 1024**3
# The sale goes first on a busy machine.
NICENESS = 10
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

_TEMPLATES = Path(__file__).parent
# A family that is not there is passed over; what none of these has is taken from any font found.
_FAMILIES = ("Noto Sans", "Noto Sans Arabic", "Noto Sans Hebrew", "DejaVu Sans", "Libertinus Serif")
# One code point is drawn differently in each of these scripts.
_HAN_FAMILIES = {
    "ja": ("Noto Sans CJK JP", re.compile(r"[\u3040-\u30ff]")),
    "ko": ("Noto Sans CJK KR", re.compile(r"[\u1100-\u11ff\uac00-\ud7af]")),
    "zh": ("Noto Sans CJK SC", re.compile("")),
}
_MISSING = re.compile(r'the text `"(.*)"` could not be displayed')
_ESCAPED = re.compile(r"\\(?:u\{([0-9a-f]+)\}|(.))")


Printed = Sheets | Statement


def run(requests: BinaryIO, answers: BinaryIO, fonts_folder: str) -> None:
    """Answer every request until there are no more."""
    press = Press(fonts_folder)
    while head := requests.read(4):
        request = requests.read(int.from_bytes(head, "big"))
        try:
            kind, body = PRINTED, press.pdf(msgspec.json.decode(request, type=Printed))
            if len(body) > PDF_BYTES_MAX:
                kind, body = FAILED, f"{len(body)} bytes are too many".encode()
        except (typst.TypstError, ValueError) as error:
            kind, body = FAILED, str(error).encode()[:2_000]
        answers.write(len(body).to_bytes(4, "big") + kind + body)
        answers.flush()


class Press:
    """The typesetter with the fonts of a folder, found once."""

    def __init__(self, fonts_folder: str) -> None:
        fonts = typst.Fonts(include_system_fonts=False, font_paths=[fonts_folder])
        self._families = set(fonts.families())
        self._compiler = typst.Compiler(root=_TEMPLATES, font_paths=fonts)

    def pdf(self, document: Printed) -> bytes:
        """The pages. Raises typst.TypstError for what is a fault of the template."""
        try:
            return self._set(document, frozenset())
        except typst.TypstError as error:
            missing = missing_characters(error.diagnostic)
            if not missing:
                raise
            return self._set(document, missing)

    def _set(self, document: Printed, missing: frozenset[str]) -> bytes:
        if isinstance(document, Statement):
            template, content = "statement.typ", _statement(document, missing)
        else:
            template = "tickets.typ"
            content = {
                "language": document.language,
                "words": document.words,
                "tickets": [_page(ticket, missing) for ticket in document.tickets],
            }
        data = {
            "title": _text(document.title, missing)["text"],
            "families": {
                language: [name for name in (*_FAMILIES, family) if name in self._families]
                for language, (family, _) in _HAN_FAMILIES.items()
            },
            **content,
        }
        made = self._compiler.compile(
            _TEMPLATES / template,
            format="pdf",
            sys_inputs={"data": json.dumps(data, ensure_ascii=False)},
            pdf_standards=["ua-1"],
            timestamp=document.made_at,
        )
        assert isinstance(made, bytes)
        return made


def _text(content: str, missing: frozenset[str]) -> dict[str, str]:
    shown = "".join(REPLACEMENT if each in missing else each for each in content)
    return {"text": shown, "dir": direction(content), "lang": han_language(content)}


def _page(ticket: Ticket, missing: frozenset[str]) -> dict[str, Any]:
    people = {
        "event": _text(ticket.event, missing),
        "venue": _text(ticket.venue, missing),
        "holder": None if ticket.holder is None else _text(ticket.holder, missing),
        "place": [[name, _text(value, missing)] for name, value in ticket.place],
    }
    replaced = REPLACEMENT in json.dumps(people, ensure_ascii=False)
    return {
        **msgspec.to_builtins(ticket),
        **people,
        "replaced": replaced and bool(missing),
        "picture": qr_picture(ticket.code),
    }


def _statement(statement: Statement, missing: frozenset[str]) -> dict[str, Any]:
    return {
        "made": statement.made,
        "period": statement.period,
        "parts": [
            {
                "event": _text(part.event, missing),
                "venue": _text(part.venue, missing),
                "rows": part.rows,
            }
            for part in statement.parts
        ],
        "replaced": bool(missing),
    }


def qr_picture(code: str) -> str:
    """The code as SVG, with the quiet zone that the standard asks for."""
    picture = io.BytesIO()
    segno.make(code, error="m", micro=False).save(picture, kind="svg", border=4, scale=4)
    return picture.getvalue().decode()


def direction(text: str) -> str:
    """Where a line begins: by its first letter that has a direction, as browsers do it."""
    for character in text:
        match unicodedata.bidirectional(character):
            case "R" | "AL":
                return "rtl"
            case "L":
                return "ltr"
    return "ltr"


def han_language(text: str) -> str:
    """Whose shapes Chinese characters take: Japanese with kana, Korean with hangul."""
    return next(name for name, (_, letters) in _HAN_FAMILIES.items() if letters.search(text))


def missing_characters(diagnostic: str) -> frozenset[str]:
    """The characters that no font has, out of what the typesetter says about them."""
    return frozenset(
        character
        for shown in _MISSING.findall(diagnostic)
        for character in _ESCAPED.sub(
            lambda found: chr(int(found[1], 16)) if found[1] else found[2], shown
        )
    )


if __name__ == "__main__":
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    run(sys.stdin.buffer, sys.stdout.buffer, sys.argv[1])
