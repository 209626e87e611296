"""Whether one JSON schema accepts everything that another one accepts.

To widen a validator is safe at any time; to tighten one can refuse documents that are there
already, or that a release still running writes. The two are told apart here, for the few keywords
that our validators use. What is not understood counts as tightening.
"""

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

_LOWER_BOUNDS = ("minimum", "minLength", "minItems", "minProperties")
_UPPER_BOUNDS = ("maximum", "maxLength", "maxItems", "maxProperties")
_KNOWN = frozenset(
    [
        *("bsonType", "enum", "required", "properties", "additionalProperties", "items", "anyOf"),
        *(*_LOWER_BOUNDS, *_UPPER_BOUNDS),
    ]
)
# These two mean nothing to the server: they are for the reader.
_REMARKS = frozenset(["title", "description"])


def accepts_all_of(wide: Schema, narrow: Schema) -> bool:
    """Whether `wide` surely accepts every document that `narrow` accepts."""
    return all(
        name in _REMARKS
        or (name in _KNOWN and _is_looser(name, wanted, wide, narrow))
        or (name != "additionalProperties" and name in narrow and narrow[name] == wanted)
        for name, wanted in wide.items()
    )


def _is_looser(name: str, wanted: Any, wide: Schema, narrow: Schema) -> bool:
    given = narrow.get(name)
    if name == "properties":
        return all(_property_is_looser(field, schema, narrow) for field, schema in wanted.items())
    if name == "additionalProperties":
        # Closed stays closed only if every field that was allowed still is.
        return wanted is True or (
            given is False
            and wanted is False
            and set(narrow.get("properties", {})) <= set(wide.get("properties", {}))
        )
    if name == "required":
        return set(wanted) <= set(given or [])
    if given is None:
        return False
    return _keyword_is_looser(name, wanted, given)


def _keyword_is_looser(name: str, wanted: Any, given: Any) -> bool:
    if name == "bsonType":
        return set(_as_list(given)) <= set(_as_list(wanted))
    if name == "enum":
        return all(value in wanted for value in given)
    if name == "items":
        return accepts_all_of(wanted, given)
    if name == "anyOf":
        return all(any(accepts_all_of(option, old) for option in wanted) for old in given)
    if name in _LOWER_BOUNDS:
        return bool(wanted <= given)
    return bool(wanted >= given)


def _property_is_looser(field: str, wanted: Schema, narrow: Schema) -> bool:
    if field in narrow.get("properties", {}):
        return accepts_all_of(wanted, narrow["properties"][field])
    # A field that was not named before was either refused or could be anything.
    return narrow.get("additionalProperties") is False


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
