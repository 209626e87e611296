"""A lean client for load: one connection, one request at a time, nothing parsed that is not needed.

A general HTTP client would take more of the machine than the server it measures.
"""

import asyncio
import base64
import os
from typing import Any

_STATUS = slice(9, 12)
_END_OF_HEAD = b"\r\n\r\n"
_LENGTH = b"content-length: "
_TEXT_FRAME = 0x81
_CLOSE_FRAME = 0x88

Answer = tuple[int, bytes]
"""The status and the body as it came."""


class Broken(Exception):
    """The connection ended, or said what this client does not understand."""


class Connection(asyncio.Protocol):
    """A keep-alive connection. `ask` one request, await its answer, ask the next."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Answer] | None = None
        self._received = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(Broken(f"the server closed the connection: {exc}"))

    def ask(self, request: bytes) -> asyncio.Future[Answer]:
        """Send a whole request; the answer to come."""
        if self._transport is None:
            raise Broken("the server closed the connection")
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._waiting

    def data_received(self, data: bytes) -> None:
        if self._received:
            data = self._received + data
        end_of_head = data.find(_END_OF_HEAD)
        if end_of_head < 0:
            self._received = data
            return
        body = end_of_head + len(_END_OF_HEAD)
        place = data.find(_LENGTH, 0, end_of_head)
        length = 0 if place < 0 else int(data[place + len(_LENGTH) : data.index(b"\r", place)])
        if len(data) < body + length:
            self._received = data
            return
        self._received = b""
        waiting = self._waiting
        if waiting is not None and not waiting.done():
            waiting.set_result((int(data[_STATUS]), data[body : body + length]))

    def close(self) -> None:
        """Close it."""
        if self._transport is not None:
            self._transport.close()


async def connect(port: int) -> Connection:
    """A connection to the service on this machine."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(Connection, "127.0.0.1", port)
    return connection


def get(path: str, token: str | None = None, *, headers: str = "") -> bytes:
    """A GET request as it goes over the wire."""
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n{_bearer(token)}{headers}\r\n".encode()


def post(path: str, body: bytes, token: str | None = None, *, headers: str = "") -> bytes:
    """A POST request of JSON as it goes over the wire."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\n{_bearer(token)}{headers}"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _bearer(token: str | None) -> str:
    return "" if token is None else f"Authorization: Bearer {token}\r\n"


def member(body: bytes, name: bytes) -> bytes:
    """The first text of that name in a JSON body, found without parsing the rest."""
    mark = b'"' + name + b'":"'
    begin = body.index(mark) + len(mark)
    return body[begin : body.index(b'"', begin)]


class Feed(asyncio.Protocol):
    """A WebSocket that is only listened to. Each text goes to `received`."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_open = False
        self.received_count = 0
        self.latest = b""
        self.arrived = asyncio.Event()

    async def open(self, request: bytes) -> None:
        """Make the handshake. Raises Broken where it is refused."""
        assert self._transport is not None
        self._transport.write(request)
        await self._opened

    def received(self, text: bytes) -> None:
        """Take a text; a feed of a certain kind does more with it."""
        self.received_count += 1
        self.latest = text
        self.arrived.set()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if not self._opened.done():
            self._opened.set_exception(Broken(f"the server closed the connection: {exc}"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self.is_open and not self._handshake():
            return
        while self._take_frame():
            pass

    def _handshake(self) -> bool:
        end = self._buffer.find(_END_OF_HEAD)
        if end < 0:
            return False
        status = int(self._buffer[_STATUS])
        del self._buffer[: end + len(_END_OF_HEAD)]
        if status != 101:
            self._opened.set_exception(Broken(f"the handshake was answered {status}"))
            return False
        self.is_open = True
        self._opened.set_result(None)
        return True

    def _take_frame(self) -> bool:
        """Take one whole frame out of the buffer, if there is one. Servers do not mask theirs."""
        buffer = self._buffer
        if len(buffer) < 2:
            return False
        length, begin = buffer[1], 2
        if length == 126:
            begin = 4
            length = int.from_bytes(buffer[2:4], "big")
        elif length == 127:
            begin = 10
            length = int.from_bytes(buffer[2:10], "big")
        if len(buffer) < begin + length:
            return False
        kind, text = buffer[0], bytes(buffer[begin : begin + length])
        del buffer[: begin + length]
        if kind == _TEXT_FRAME:
            self.received(text)
        elif kind == _CLOSE_FRAME:
            self.is_open = False
        return True

    def close(self) -> None:
        """Close it without ceremony."""
        if self._transport is not None:
            self._transport.close()


def handshake(path: str, token: str | None = None) -> bytes:
    """The request that opens a WebSocket, with the token as the subprotocol pair."""
    key = base64.b64encode(os.urandom(16)).decode()
    offered = "" if token is None else f"Sec-WebSocket-Protocol: bearer, {token}\r\n"
    return (
        f"GET {path} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n{offered}\r\n"
    ).encode()
