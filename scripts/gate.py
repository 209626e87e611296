"""What a gate does without the network: `scripts/gate --event EVENT --keys FILE --void FILE`.

The files are answers of the API, downloaded before: `/v1/ticket-keys` and the pages of
`/v1/events/EVENT/void-tickets`, one after the other. Each line of standard input is a scanned code.
A code that comes a second time is told so; two gates that know nothing of each other can't tell.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from ticketing import ticket_codes
from ticketing.ticket_codes import BadCode


def judge(
    codes: Iterable[str],
    event_id: str,
    keys: Mapping[str, Ed25519PublicKey],
    void: frozenset[str],
) -> Iterator[str]:
    """What to say to each code; only what begins with `in` opens the gate."""
    entered: set[str] = set()
    for code in codes:
        try:
            admission = ticket_codes.read(code, keys)
        except BadCode:
            yield "out: not a ticket of ours"
            continue
        ticket_id = admission.ticket_id
        if admission.event_id != event_id:
            yield f"out: a ticket of another event, {admission.event_id}"
        # Before whether it was here: a ticket that was voided after its holder came in opens no
        # gate a second time.
        elif ticket_id in void:
            yield f"out: {ticket_id} is void"
        elif ticket_id in entered:
            yield f"out: {ticket_id} came in already"
        else:
            entered.add(ticket_id)
            yield f"in: {ticket_id} for {admission.seat_id}"


def pages(text: str) -> Iterator[dict[str, object]]:
    """JSON documents that stand one after the other."""
    decoder = json.JSONDecoder()
    rest = text.strip()
    while rest:
        document, end = decoder.raw_decode(rest)
        yield document
        rest = rest[end:].lstrip()


def main() -> int:
    """Say to each scanned code whether it opens the gate."""
    parser = argparse.ArgumentParser(
        prog="scripts/gate", description="Judge scanned codes without the network."
    )
    parser.add_argument("--event", required=True, help="the event that this gate is for")
    parser.add_argument("--keys", required=True, type=Path, help="what /v1/ticket-keys answered")
    parser.add_argument(
        "--void", required=True, type=Path, help="the pages of the event's void tickets"
    )
    arguments = parser.parse_args()
    try:
        keys = ticket_codes.public_keys(json.loads(arguments.keys.read_text())["keys"])
        void = frozenset(
            item["ticketId"]
            for page in pages(arguments.void.read_text())
            for item in page["items"]  # type: ignore[attr-defined]
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        parser.error(f"the keys or the void tickets can't be read: {error}")
    for answer in judge(sys.stdin, arguments.event, keys, void):
        print(answer, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
