"""The kinds of messages, each with a JSON schema that has a version.

A schema is never changed in a way that a reader of its version could trip over: that makes the next
version, in a file of its own, and the newest is what is written.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastjsonschema

_FOLDER = Path(__file__).parent / "message_schemas"


class MessageFault(ValueError):
    """A message that is not of its kind: a fault of the program, never of a caller."""


@dataclass(frozen=True)
class Kind:
    """A kind of message in its newest version."""

    name: str
    version: int
    check: Callable[[Any], Any]


def _read() -> dict[str, Kind]:
    kinds: dict[str, Kind] = {}
    for path in sorted(_FOLDER.glob("*.json")):
        name, _, version = path.stem.rpartition(".")
        if name in kinds and kinds[name].version > int(version):
            continue
        schema = json.loads(path.read_text())
        kinds[name] = Kind(name, int(version), fastjsonschema.compile(schema))
    return kinds


# Compiled once: a check is a few plain comparisons, for it is made in every confirmation.
KINDS = _read()


def checked(name: str, body: dict[str, Any]) -> Kind:
    """The kind that a message's body is of. Raises MessageFault."""
    kind = KINDS.get(name)
    if kind is None:
        raise MessageFault(f"There is no message of the kind {name}.")
    try:
        kind.check(body)
    except fastjsonschema.JsonSchemaValueException as error:
        raise MessageFault(f"A message {name} is malformed: {error.message}.") from error
    return kind


def schema_id(name: str, version: int) -> str:
    """The name under which a schema is known to whoever reads a message."""
    return f"urn:ticketing:message:{name}:{version}"
