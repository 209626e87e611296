"""What differs between the declared database and an actual one. Pure: it asks nobody anything."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from indexes.actual import Actual, ActualCollection, Definition, definition_of
from indexes.declared import INDEXES, Index
from indexes.validators import CONDITIONS, VALIDATORS
from indexes.widening import accepts_all_of


class Kind(StrEnum):
    """How two databases can differ."""

    VIEW = "view"
    MISSING_COLLECTION = "missing collection"
    WIDER_VALIDATOR = "wider validator"
    TIGHTER_VALIDATOR = "tighter validator"
    MISSING_INDEX = "missing index"
    CHANGED_INDEX = "changed index"
    UNKNOWN_INDEX = "unknown index"


@dataclass(frozen=True)
class Difference:
    """One difference. `index` is the declared index, `actual_name` the name of the actual one."""

    kind: Kind
    collection: str
    index: Index | None = None
    actual_name: str | None = None
    actual_definition: Definition | None = None

    def __str__(self) -> str:
        return f"{self.collection}: {self._sentence()}"

    def _sentence(self) -> str:
        match self.kind:
            case Kind.VIEW:
                return "this is a view or a time series, and must be a collection"
            case Kind.MISSING_COLLECTION:
                return "the collection is missing"
            case Kind.WIDER_VALIDATOR:
                return "the validator refuses what is allowed by now"
            case Kind.TIGHTER_VALIDATOR:
                return "the validator allows what must be refused"
            case Kind.MISSING_INDEX:
                return f"index {self._declared()} is missing"
            case Kind.CHANGED_INDEX:
                return f"index {self._actual()} should be {self._declared()}"
            case Kind.UNKNOWN_INDEX:
                return f"index {self._actual()} is not declared"

    def _declared(self) -> str:
        assert self.index is not None
        return f"{definition_of(self.index)} for “{self.index.question}”"

    def _actual(self) -> str:
        assert self.actual_definition is not None
        return f"{self.actual_name} {self.actual_definition}"


def validator_of(collection: str, validators: Mapping[str, Any] = VALIDATORS) -> dict[str, Any]:
    """The declared validator of a collection as the server takes and shows it."""
    validator: dict[str, Any] = {"$jsonSchema": validators[collection]}
    if collection in CONDITIONS:
        validator["$expr"] = CONDITIONS[collection]
    return validator


def differences(
    actual: Actual,
    indexes: Iterable[Index] = INDEXES,
    validators: Mapping[str, Any] = VALIDATORS,
) -> list[Difference]:
    """All differences, those of one collection together. Collections nobody declared are let be."""
    found: list[Difference] = []
    for collection in validators:
        mine = [index for index in indexes if index.collection == collection]
        present = actual.get(collection)
        if present is None:
            found.append(Difference(Kind.MISSING_COLLECTION, collection))
            found += [Difference(Kind.MISSING_INDEX, collection, index) for index in mine]
        elif present.is_view:
            found.append(Difference(Kind.VIEW, collection))
        else:
            found += _validator_difference(collection, present, validators)
            found += index_differences(collection, mine, present.indexes)
    return found


def _validator_difference(
    collection: str, present: ActualCollection, validators: Mapping[str, Any]
) -> Iterator[Difference]:
    wanted = validator_of(collection, validators)
    if present.is_strict and present.validator == wanted:
        return
    # A validator that only warns, or that passes over old documents, refuses nothing.
    refuses = present.validator.get("$jsonSchema", {}) if present.is_strict else {}
    # A condition that was not there before, or another one, may refuse what was accepted.
    conditioned = present.validator.get("$expr") if present.is_strict else None
    same_condition = wanted.get("$expr") in (None, conditioned)
    is_wider = same_condition and accepts_all_of(wanted["$jsonSchema"], refuses)
    kind = Kind.WIDER_VALIDATOR if is_wider else Kind.TIGHTER_VALIDATOR
    yield Difference(kind, collection)


def index_differences(
    collection: str, declared: Iterable[Index], actual: Mapping[str, Definition]
) -> list[Difference]:
    """The differences of one collection's indexes, told by their definitions alone."""
    wanted = {definition_of(index): index for index in declared}
    unknown = {name: found for name, found in actual.items() if found not in wanted}
    present = set(actual.values())
    found: list[Difference] = []
    for definition, index in wanted.items():
        if definition in present:
            continue
        # One with the same keys and other options was meant to be this one.
        name = next((name for name in unknown if unknown[name].keys == definition.keys), None)
        if name is None:
            found.append(Difference(Kind.MISSING_INDEX, collection, index))
        else:
            found.append(Difference(Kind.CHANGED_INDEX, collection, index, name, unknown.pop(name)))
    found += [
        Difference(Kind.UNKNOWN_INDEX, collection, None, name, definition)
        for name, definition in unknown.items()
    ]
    return found
