"""`python -m ticketing.api`: serve the API and the pages until stopped."""

import argparse
import errno
import socket
import sys
from typing import Any

from granian import Granian
from granian.constants import Interfaces, Loops

from ticketing.settings import Settings, SettingsError

EXIT_PORT = 1
EXIT_SETTINGS = 2
# Open requests end within the operation time limit; what lasts longer is a client that hangs.
STOP_SECONDS_MAX = 12
BACKLOG = 4_096
CONNECTIONS_MAX = 20_000

EPILOG = """example:
  TICKETING_PORT=8080 python -m ticketing.api

exit codes: 0 told to stop, 1 the port is in use, 2 wrong use or settings"""

LOGGING: dict[str, Any] = {
    "root": {"handlers": ["console"], "level": "WARNING"},
}


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
    Granian(
        "ticketing.api.application:create_application",
        address=settings.host,
        port=settings.port,
        interface=Interfaces.ASGI,
        loop=Loops.uvloop,
        factory=True,
        websockets=True,
        log_access=False,
        log_dictconfig=LOGGING,
        # Unset, connections beyond the backlog of 1,024 are opened by the kernel and not served.
        backlog=BACKLOG,
        backpressure=CONNECTIONS_MAX,
        workers_kill_timeout=STOP_SECONDS_MAX,
    ).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
