"""`python -m ticketing.api`: serve the API and the pages until stopped."""

import sys
from typing import Any

from granian import Granian
from granian.constants import Interfaces, Loops

from ticketing.settings import Settings, SettingsError

EXIT_SETTINGS = 2
# Open requests end within the operation time limit; what lasts longer is a client that hangs.
STOP_SECONDS_MAX = 12

LOGGING: dict[str, Any] = {
    "root": {"handlers": ["console"], "level": "WARNING"},
}


def main() -> int:
    """Serve; returns the exit code."""
    try:
        settings = Settings.from_environment()
    except SettingsError as error:
        print(error, file=sys.stderr)
        return EXIT_SETTINGS
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
        workers_kill_timeout=STOP_SECONDS_MAX,
    ).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
