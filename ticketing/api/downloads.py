"""Answers that a browser keeps as a file."""

import unicodedata
from collections.abc import AsyncIterator
from urllib.parse import quote

from litestar import Response
from litestar.response import Stream

PDF = "application/pdf"
# The framework adds that it is UTF-8, as it does for all text.
CALENDAR = "text/calendar"
CSV = "text/csv"
NAME_LENGTH_MAX = 120
# What some system takes for more than a name.
_UNSAFE = frozenset('/\\:*?"<>|%')
# What RFC 8187 lets stand in an extended value as it is.
_EXTENDED = "!#$&+^`|"


def attached(content: bytes, media_type: str, name: str) -> Response[bytes]:
    """The content as a file with this name (RFC 6266). Nobody keeps it but who asked for it."""
    return Response(content, media_type=media_type, headers=_headers(name))


def streamed(parts: AsyncIterator[bytes], media_type: str, name: str) -> Stream:
    """Likewise what is sent part by part as it is read."""
    return Stream(parts, media_type=media_type, headers=_headers(name))


def _headers(name: str) -> dict[str, str]:
    return {"Content-Disposition": disposition(name), "Cache-Control": "private, no-store"}


def disposition(name: str) -> str:
    """The header for a name in any script, with one in ASCII for what does not read RFC 8187.

    A name ends with its suffix, whatever is cut or left out before it.
    """
    stem, dot, suffix = name.rpartition(".")
    # Formatting characters go: with one of them a name can look as if it ended differently.
    visible = "".join(
        "_" if character in _UNSAFE else character
        for character in unicodedata.normalize("NFC", stem)
        if unicodedata.category(character) not in ("Cc", "Cf", "Cs")
    )
    shown = " ".join(visible.split())[:NAME_LENGTH_MAX].strip(" .") or "file"
    decomposed = unicodedata.normalize("NFKD", shown).encode("ascii", "ignore").decode()
    plain = "".join(each for each in decomposed if each not in _UNSAFE)
    plain = " ".join(plain.split()).strip(" .") or "file"
    extended = quote(shown + dot + suffix, safe=_EXTENDED)
    return f"attachment; filename=\"{plain}{dot}{suffix}\"; filename*=UTF-8''{extended}"
