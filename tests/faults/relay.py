"""A relay between a client and a server that loses the answer to a chosen command.

The server has carried the command out and the connection breaks before the client is told: what
no fail point of the server can bring about.
"""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

HEADER = struct.Struct("<iiii")


class Relay:
    """Passes whole messages of MongoDB's wire protocol on, both ways."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.lose_answer_to: int | None = None
        """The client's number of the command whose answer is lost; None again once it was."""

    async def serve_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Carry one connection until either side closes it or an answer is lost."""
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._server_port)
        ways = [
            asyncio.create_task(self._carry(reader, to_server)),
            asyncio.create_task(self._carry(from_server, writer)),
        ]
        self._tasks |= set(ways)
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self._tasks -= set(ways)
            for end in (writer, to_server):
                end.close()
                with suppress(OSError):
                    await end.wait_closed()

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                header = await source.readexactly(HEADER.size)
                length, _, response_to, _ = HEADER.unpack(header)
                body = await source.readexactly(length - HEADER.size)
                if response_to and response_to == self.lose_answer_to:
                    self.lose_answer_to = None
                    return
                target.write(header + body)
                await target.drain()


@asynccontextmanager
async def relay_to(server_port: int) -> AsyncIterator[Relay]:
    """A relay to a server on this machine, at a port of its own."""
    relay = Relay(server_port)
    server = await asyncio.start_server(relay.serve_client, "127.0.0.1", 0)
    relay.port = server.sockets[0].getsockname()[1]
    try:
        yield relay
    finally:
        server.close()
        await asyncio.sleep(0)
