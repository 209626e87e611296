"""What a live database has: its collections, their validators, and their indexes by definition."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bson import json_util
from bson.int64 import Int64
from pymongo.collection import Collection
from pymongo.database import Database

from indexes.declared import Index

Document = dict[str, Any]

# Every collection has it, and it can't be dropped.
ID_INDEX = "_id_"

# These say how an index is called or stored, not what it does.
_NAMING = frozenset(["v", "key", "name", "ns", "background", "textIndexVersion"])


@dataclass(frozen=True)
class Definition:
    """What makes an index the one it is, whatever it is called.

    `keys` in their order; `options` are the ones that change what it does, by name, their values
    as JSON with sorted names.
    """

    keys: tuple[tuple[str, Any], ...]
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        words = [f"({', '.join(f'{name} {order}' for name, order in self.keys)})"]
        words += [name if value == "true" else f"{name} {value}" for name, value in self.options]
        return " ".join(words)


ID_DEFINITION = Definition((("_id", 1),))


@dataclass(frozen=True)
class ActualCollection:
    """A collection as it is. `indexes` are its definitions by name, without the one on `_id`."""

    is_view: bool = False
    validator: Document = field(default_factory=dict)
    is_strict: bool = True
    indexes: Mapping[str, Definition] = field(default_factory=dict)


Actual = Mapping[str, ActualCollection]


def definition_of(index: Index) -> Definition:
    """The definition of a declared index."""
    return _definition(index.keys, options_of(index))


def options_of(index: Index) -> Document:
    """The options of a declared index as the server takes and shows them."""
    options: Document = {}
    if index.unique:
        options["unique"] = True
    if index.sparse:
        options["sparse"] = True
    if index.only_where:
        options["partialFilterExpression"] = dict(index.only_where)
    if index.expire_after_seconds is not None:
        options["expireAfterSeconds"] = index.expire_after_seconds
    return options


def stored_definition(stored: Mapping[str, Any]) -> Definition:
    """The definition of an index as the server lists it."""
    # Only an option set to true does something; older servers list false ones too.
    options = {
        name: value for name, value in stored.items() if name not in _NAMING and value is not False
    }
    return _definition(stored["key"].items(), options)


def _definition(keys: Iterable[tuple[str, Any]], options: Mapping[str, Any]) -> Definition:
    return Definition(
        tuple((name, _plain(order)) for name, order in keys),
        tuple(
            (name, json_util.dumps(_plain(value), sort_keys=True))
            for name, value in sorted(options.items())
        ),
    )


def _plain(value: Any) -> Any:
    """The value with whole numbers as such: a shell may have stored them as floats."""
    if isinstance(value, Int64) or (isinstance(value, float) and value.is_integer()):
        return int(value)
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    return value


def read_indexes(collection: Collection[Document]) -> dict[str, Definition]:
    """The definitions of a collection's indexes by name, without the one on `_id`."""
    return {
        stored["name"]: stored_definition(stored)
        for stored in collection.list_indexes()
        if stored["name"] != ID_INDEX
    }


def read(database: Database[Document]) -> dict[str, ActualCollection]:
    """Every collection of the database as it is now."""
    collections: dict[str, ActualCollection] = {}
    for listed in database.list_collections():
        name, options = listed["name"], listed.get("options", {})
        if name.startswith("system."):
            continue
        if listed["type"] != "collection":
            collections[name] = ActualCollection(is_view=True)
            continue
        collections[name] = ActualCollection(
            validator=dict(options.get("validator", {})),
            is_strict=options.get("validationLevel", "strict") == "strict"
            and options.get("validationAction", "error") == "error",
            indexes=read_indexes(database[name]),
        )
    return collections
