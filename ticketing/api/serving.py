"""The HTTP server's connection, in two respects our own: answers leave in one write, heads end."""

import asyncio
from http import HTTPStatus
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES_MAX = 64 * 1024
JOINED_BYTES_MAX = 64 * 1024
# Beyond that a head that has begun is taken for one that will never end.
HEAD_SECONDS_MAX = 20.0
# Nor one of whose answer nothing was taken for as long.
STALLED_SECONDS_MAX = 20.0
# And a body likewise: a phone on a train is slow, and an event of 16 MB is large, but not so much.
BODY_SECONDS_MAX = 60.0
# What a refused client still sends is thrown away for so long.
LINGER_SECONDS = 2.0


class Connection(HttpToolsProtocol):
    """One HTTP connection.

    The server writes an answer's head and its body one after the other, and each write is a call
    to the system and a packet: together they took a seventh of a purchase's time. And it takes in
    the head of a request however long it is, and head and body however long they take.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin with a transport that keeps an answer's head until its body is there."""
        self._head_bytes = 0
        self._is_in_head = False
        self._is_in_body = False
        self._is_refused = False
        self._too_slow: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        super().connection_made(_HeadWithBody(transport))  # type: ignore[arg-type]
        # Whoever connects and says nothing takes a place as well.
        self._start_clock(HEAD_SECONDS_MAX)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the clocks of what did not come to its end."""
        self._stop_clock()
        self._forget_stall()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client takes the answer slower than it is made: watch that it takes any of it."""
        super().pause_writing()
        if self._stalled is None:
            self._watch(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """The client has taken nearly all of it."""
        self._forget_stall()
        super().resume_writing()

    def _forget_stall(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _watch(self, left: int) -> None:
        self._stalled = self.loop.call_later(STALLED_SECONDS_MAX, self._look_again, left)

    def _look_again(self, left_before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left < left_before:
            self._watch(left)
        else:
            # A client that takes nothing takes no farewell either.
            self.transport.abort()

    def on_message_begin(self) -> None:
        """A request's head begins."""
        self._is_in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """A request's head is whole."""
        self._is_in_head, self._is_in_body = False, True
        self._head_bytes = 0
        self._stop_clock()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """A request's body is whole."""
        self._is_in_body = False
        self._stop_clock()
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        """Take in what came; refuse a head that grows or lasts beyond its limit."""
        if self._is_refused:
            return
        super().data_received(data)
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
                return
            self._start_clock(HEAD_SECONDS_MAX)
        elif self._is_in_body:
            self._start_clock(BODY_SECONDS_MAX)

    def _start_clock(self, seconds: float) -> None:
        # Once for each: another byte now and then wins no time.
        if self._too_slow is None:
            self._too_slow = self.loop.call_later(seconds, self._refuse, HTTPStatus.REQUEST_TIMEOUT)

    def _stop_clock(self) -> None:
        if self._too_slow is not None:
            self._too_slow.cancel()
            self._too_slow = None

    def _refuse(self, status: HTTPStatus) -> None:
        self._is_in_head, self._is_in_body, self._is_refused = False, False, True
        if self.transport.is_closing():
            return
        problem = {"type": "about:blank", "title": status.phrase, "status": status.value}
        body = msgspec.json.encode(problem)
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nconnection: close\r\n"
            f"content-type: application/problem+json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        # To close while the client still sends would reset its connection, and the answer that says
        # why would be lost with it.
        self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.close)


class _HeadWithBody:
    """A transport that writes two pieces of one turn of the loop together."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._kept = b""

    def write(self, data: bytes) -> None:
        if self._kept:
            if len(data) > JOINED_BYTES_MAX:
                # Copied for each client, a large answer would be there as often as it is read.
                self._transport.write(self._kept)
                self._kept = b""
            else:
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

    def write_eof(self) -> None:
        self._flush()
        self._transport.write_eof()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
