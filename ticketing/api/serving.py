"""The HTTP server's connection, in one respect our own: an answer leaves in one write."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class Connection(HttpToolsProtocol):
    """One HTTP connection.

    The server writes an answer's head and its body one after the other, and each write is a call
    to the system and a packet: together they took a seventh of a purchase's time.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin with a transport that keeps an answer's head until its body is there."""
        super().connection_made(_HeadWithBody(transport))  # type: ignore[arg-type]


class _HeadWithBody:
    """A transport that writes two pieces of one turn of the loop together."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._kept = b""

    def write(self, data: bytes) -> None:
        if self._kept:
            data, self._kept = self._kept + data, b""
        elif data.startswith(b"HTTP/1.1 "):
            self._kept = data
            # Should no body follow in this turn, as with HEAD.
            self._loop.call_soon(self._flush)
            return
        self._transport.write(data)

    def _flush(self) -> None:
        if self._kept:
            kept, self._kept = self._kept, b""
            self._transport.write(kept)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
