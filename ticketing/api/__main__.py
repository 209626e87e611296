"""`python -m ticketing.api`: serve the API and the pages until stopped."""

import argparse
import asyncio
import errno
import logging
import signal
import socket
import sys
from types import FrameType

import pymongo
import uvicorn
from pymongo.errors import PyMongoError

from ticketing import deployment, mongo
from ticketing.api.serving import Connection
from ticketing.deployment import Unusable
from ticketing.settings import Settings, SettingsError
from ticketing.telemetry import logs, traces

EXIT_PORT = 1
EXIT_SETTINGS = 2
EXIT_UNUSABLE = 3
LOOK_SECONDS_MAX = 3.0
# Open requests end within the operation time limit; what lasts longer is a client that hangs.
STOP_SECONDS_MAX = 9
BACKLOG = 4_096
CONNECTIONS_MAX = 20_000
KEEP_ALIVE_SECONDS = 75
# What a watcher says is of no interest, but it must not fill the memory.
WEBSOCKET_MESSAGE_BYTES_MAX = 65_536

EPILOG = """example:
  TICKETING_PORT=8080 python -m ticketing.api

exit codes: 0 told to stop, 1 the port is in use, 2 wrong use or settings,
3 the database is the wrong one"""

log = logging.getLogger("ticketing.api")


def _refusal_to_bind(host: str, port: int) -> str | None:
    """Why nothing can be served at this address, or None.

    The server itself shares a port with whoever else is willing to: two of our own on one port
    would each get some of the requests, and nobody would notice.
    """
    try:
        with socket.create_server((host, port), family=_family(host)):
            return None
    except OSError as error:
        reason = "it is in use" if error.errno == errno.EADDRINUSE else error.strerror
        return f"The API can't listen at {host}, port {port}: {reason}. Set TICKETING_PORT."


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _stopped(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def main() -> int:
    """Serve; returns the exit code."""
    argparse.ArgumentParser(
        prog="python -m ticketing.api",
        description="Serve the API and the pages until told to stop (SIGTERM or Ctrl-C). What may"
        " differ between deployments is set by TICKETING_… variables (docs/operations.md).",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args()
    try:
        settings = Settings.from_environment()
    except SettingsError as error:
        print(error, file=sys.stderr)
        return EXIT_SETTINGS
    if reason := _refusal_to_bind(settings.host, settings.port):
        print(reason, file=sys.stderr)
        return EXIT_PORT
    logs.begin(as_json=settings.mode == "production", level=logging.WARNING)
    try:
        asyncio.run(_look_at_database(settings))
    except Unusable as unusable:
        print(unusable, file=sys.stderr)
        return EXIT_UNUSABLE
    traces.begin("ticketing-api", settings.otlp_endpoint)
    try:
        _serve(settings)
    finally:
        traces.end()
    return 0


async def _look_at_database(settings: Settings) -> None:
    """Refuse a database that is the wrong one, before anybody is served. Raises Unusable.

    One that does not answer yet is no reason to wait: readiness tells of it, and whoever watches
    this process must not take it for dead.
    """
    client = await mongo.connect(settings)
    try:
        with pymongo.timeout(LOOK_SECONDS_MAX):
            await deployment.refuse_unusable(client.database)
    except PyMongoError as error:
        log.warning("The database does not answer yet: %s", logs.named(error))
    finally:
        await client.close()


def _serve(settings: Settings) -> None:
    # The server takes the signal over, stops, and raises it again for whoever minded it before.
    signal.signal(signal.SIGTERM, _stopped)
    signal.signal(signal.SIGINT, _stopped)
    uvicorn.run(
        "ticketing.api.application:create_application",
        factory=True,
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http=Connection,
        ws="websockets-sansio",
        ws_max_size=WEBSOCKET_MESSAGE_BYTES_MAX,
        # Compression keeps a window in memory for each watcher, for messages of some bytes.
        ws_per_message_deflate=False,
        log_config=None,
        access_log=False,
        server_header=False,
        # Whom a request comes from is not for the request to say.
        proxy_headers=False,
        backlog=BACKLOG,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS_MAX,
    )


if __name__ == "__main__":
    sys.exit(main())
