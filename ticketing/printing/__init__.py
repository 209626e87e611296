"""Tickets and statements become PDF in a process of their own, so that none keeps a sale waiting.

The typesetter can be neither interrupted nor told to stop in a thread; a process can be killed. It
starts with the first print and is kept, since what costs is to find the fonts. One page after the
other: a print takes some milliseconds, and the machine's time belongs to the sale.
"""

import asyncio
import logging
import sys
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import msgspec

from ticketing.errors import Refusal

PRINT_SECONDS_MAX = 15.0
WAITING_MAX = 32
PDF_BYTES_MAX = 16 * 1024 * 1024
# What the other process writes before each answer: its length, and whether it is a PDF.
HEAD_OCTETS = 5
PRINTED, FAILED = b"\x00", b"\x01"

_CODE = Path(__file__).parents[2]

logger = logging.getLogger(__name__)


class NotPrinted(Refusal):
    """A document could not be printed just now; a ticket is as valid as before."""

    slug = "unavailable"
    title = "Service unavailable"
    later: ClassVar[str] = "It could not be printed just now. Try again shortly."


class Ticket(msgspec.Struct, frozen=True):
    """What stands on one page. All but `code` is text that people wrote, in any script."""

    event: str
    venue: str
    day: str
    time: str
    zone: str
    place: list[tuple[str, str]]
    holder: str | None
    reference: str
    position: str
    code: str


class Sheets(msgspec.Struct, frozen=True, tag=True):
    """A document of one page a ticket. `words` are those the page itself says; `made_at` is Unix
    time."""

    title: str
    language: str
    words: dict[str, str]
    tickets: list[Ticket]
    made_at: int


class StatementPart(msgspec.Struct, frozen=True):
    """Amounts by name, of one event. Event and venue are text that people wrote."""

    event: str
    venue: str
    rows: list[tuple[str, str]]


class Statement(msgspec.Struct, frozen=True, tag=True):
    """A document of amounts. `period` and `made` are text, `made_at` the same as Unix time."""

    title: str
    made: str
    period: str
    parts: list[StatementPart]
    made_at: int


class Printer:
    """Prints by a process that is started when it is needed and killed when it is too slow."""

    def __init__(self, fonts: str, *, seconds_max: float = PRINT_SECONDS_MAX) -> None:
        self._fonts = fonts
        self._seconds_max = seconds_max
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def pdf(self, document: Sheets | Statement) -> bytes:
        """The document as PDF. Raises NotPrinted if that takes too long or too many wait."""
        if self._waiting >= WAITING_MAX:
            raise NotPrinted(NotPrinted.later)
        self._waiting += 1
        try:
            async with asyncio.timeout(self._seconds_max), self._turn:
                return await self._asked(msgspec.json.encode(document))
        except TimeoutError:
            logger.error("printing took too long")  # noqa: TRY400
            raise NotPrinted(NotPrinted.later) from None
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """End the process."""
        async with self._turn:
            await self._end()

    async def _asked(self, request: bytes) -> bytes:
        answered = False
        try:
            process = await self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(len(request).to_bytes(4, "big") + request)
            await process.stdin.drain()
            head = await process.stdout.readexactly(HEAD_OCTETS)
            size, kind = int.from_bytes(head[:4], "big"), head[4:]
            if size > PDF_BYTES_MAX:
                logger.error("a print of %d bytes is too large", size)
                raise NotPrinted(NotPrinted.later)
            body = await process.stdout.readexactly(size)
            answered = True
        except (asyncio.IncompleteReadError, ConnectionError):
            logger.error("the printing process ended by itself")  # noqa: TRY400
            raise NotPrinted(NotPrinted.later) from None
        finally:
            # An answer that nobody has read would be taken for the next one's: also when whoever
            # asked has gone away in between.
            if not answered:
                await self._end()
        if kind == FAILED:
            raise RuntimeError(f"The document could not be set: {body.decode()}")
        return body

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            # It is given nothing of our environment: it needs no secret.
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "ticketing.printing.press", self._fonts),
                cwd=_CODE,
                env={"PYTHONUTF8": "1"},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        return self._process

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            # What it still had to say is read, so that its pipes are closed with it.
            await process.communicate()
