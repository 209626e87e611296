"""The pages people open in a browser: live dashboard, a fan's tickets, the sandbox payment page.

A page is a fixed file: it holds nobody's data and asks no database. What it shows its scripts fetch
from the API, with the token of the person who looks. `route_handlers` is what the API mounts.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litestar import MediaType, Request, Response, get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath

_MEDIA_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}

# Everything a page needs comes from this service, and no text can become script or style: event
# and section names are whatever an organiser typed.
_SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self'; style-src 'self'; object-src 'none'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

# Kept by the browser, but asked about each time: a release never mixes old scripts with new ones,
# and an unchanged file costs a 304.
_CACHE_CONTROL = "no-cache"


@dataclass(frozen=True)
class _File:
    body: bytes
    media_type: str
    etag: str


def _read(path: Path) -> _File:
    body = path.read_bytes()
    return _File(body, _MEDIA_TYPES[path.suffix], f'"{hashlib.sha256(body).hexdigest()[:32]}"')


# Read once at the start, so that a request names a key of this table and never a path on the disk.
_FILES = {
    path.name: _read(path)
    for path in sorted((Path(__file__).parent / "static").iterdir())
    if path.suffix in _MEDIA_TYPES
}


def _answer(request: Request[Any, Any, Any], name: str) -> Response[bytes]:
    file = _FILES[name]
    headers = {**_SECURITY_HEADERS, "Cache-Control": _CACHE_CONTROL, "ETag": file.etag}
    if _is_known(request.headers.get("if-none-match", ""), file.etag):
        return Response(b"", status_code=304, media_type=file.media_type, headers=headers)
    return Response(file.body, media_type=file.media_type, headers=headers)


def _is_known(if_none_match: str, etag: str) -> bool:
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return etag in tags or "*" in tags


@get("/organiser/events/{event_id:str}", include_in_schema=False, media_type=MediaType.HTML)
async def dashboard_page(request: Request[Any, Any, Any]) -> Response[bytes]:
    """The live dashboard of an event. The same page for every event and every caller."""
    return _answer(request, "dashboard.html")


@get("/pay/{payment_id:str}", include_in_schema=False, media_type=MediaType.HTML)
async def payment_page(request: Request[Any, Any, Any]) -> Response[bytes]:
    """The sandbox provider's payment page, where a fan pays or declines."""
    return _answer(request, "pay.html")


@get("/tickets", include_in_schema=False, media_type=MediaType.HTML)
async def tickets_page(request: Request[Any, Any, Any]) -> Response[bytes]:
    """A fan's tickets, to be printed and put into a calendar. The same page for every fan."""
    return _answer(request, "tickets.html")


@get("/account", include_in_schema=False, media_type=MediaType.HTML)
async def account_page(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Logging in, and where the links of mails about an account lead."""
    return _answer(request, "account.html")


@get("/static/{name:str}", include_in_schema=False)
async def static_file(request: Request[Any, Any, Any], name: FromPath[str]) -> Response[bytes]:
    """A style sheet, script or picture of the pages."""
    if name not in _FILES or name.endswith(".html"):
        raise NotFoundException("No such file.")
    return _answer(request, name)


@get("/paid", include_in_schema=False, media_type=MediaType.HTML)
async def paid_page(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Where a provider's own payment page sends a fan afterwards."""
    return _answer(request, "paid.html")


route_handlers = [
    dashboard_page,
    payment_page,
    paid_page,
    tickets_page,
    account_page,
    static_file,
]
