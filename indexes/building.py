"""Making the database what is declared, as far as that is allowed.

What is missing is built and validators are widened at once: nothing that is there is harmed by
it. What may take something away waits for a word: an index is dropped or replaced with
`allow_drop`, a validator tightened with `allow_tighten` and only if no document would be refused.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from pymongo import IndexModel
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import OperationFailure

from indexes import actual, migrations, progress
from indexes.actual import Document, options_of
from indexes.declared import Index
from indexes.difference import Difference, Kind, differences, validator_of

OFFENDERS_NAMED_MAX = 5

_DUPLICATE_KEY_CODE = 11000
_INDEX_NOT_FOUND_CODE = 27
_NAMESPACE_EXISTS_CODE = 48
# The server will not have this index beside one of the same keys or name that is there.
_IN_THE_WAY_CODES = (85, 86)

Say = Callable[[str], None]


def _nothing(_: str) -> None:
    """Say nothing."""


@dataclass
class Outcome:
    """What is left: `waiting` for a flag that allows it, or `failed`; each in a sentence."""

    waiting: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def apply(database: Database[Document]) -> list[str]:
    """Build whatever is missing and widen validators; returns what is left to do, in sentences."""
    outcome = bring_about(database)
    return outcome.failed + outcome.waiting


def missing(database: Database[Document]) -> list[str]:
    """The declared collections and indexes that the database has not, in sentences."""
    lacking = (Kind.VIEW, Kind.MISSING_COLLECTION, Kind.MISSING_INDEX, Kind.CHANGED_INDEX)
    return [str(found) for found in differences(actual.read(database)) if found.kind in lacking]


def bring_about(
    database: Database[Document],
    *,
    allow_drop: bool = False,
    allow_tighten: bool = False,
    say: Say = _nothing,
) -> Outcome:
    """Make the database what is declared. `say` is told each step as it is taken.

    Dropping comes last, and not at all where a build failed: so no question loses its index before
    it has another one. Doing it again, or two at once, is harmless.
    """
    is_fresh = migrations.has_nothing_to_migrate(database)
    outcome = _bring_about(database, allow_drop, allow_tighten, say)
    if is_fresh:
        migrations.note_all_done(database)
    return outcome


def _bring_about(
    database: Database[Document], allow_drop: bool, allow_tighten: bool, say: Say
) -> Outcome:
    outcome = Outcome()
    by_kind: dict[Kind, list[Difference]] = defaultdict(list)
    for found in differences(actual.read(database)):
        by_kind[found.kind].append(found)
    outcome.failed += map(str, by_kind[Kind.VIEW])
    for found in by_kind[Kind.MISSING_COLLECTION]:
        say(f"{found.collection}: making the collection")
        _create(database, found.collection)
    _build_missing(database, by_kind[Kind.MISSING_INDEX], outcome, say)
    for found in by_kind[Kind.WIDER_VALIDATOR]:
        say(f"{found.collection}: widening the validator")
        _set_validator(database, found.collection)
    for found in by_kind[Kind.TIGHTER_VALIDATOR]:
        _tighten(database, found.collection, allow_tighten, outcome, say)
    for found in by_kind[Kind.CHANGED_INDEX]:
        if allow_drop:
            _replace(database, found, outcome, say)
        else:
            outcome.failed.append(f"{found}; --allow-drop replaces it")
    for found in by_kind[Kind.UNKNOWN_INDEX]:
        if not allow_drop:
            outcome.waiting.append(f"{found}; --allow-drop drops it")
        elif outcome.failed:
            outcome.waiting.append(f"{found}; it is dropped once the rest is in order")
        else:
            say(f"{found}: dropping it")
            _drop(database[found.collection], found)
    return outcome


# --- Collections and validators ------------------------------------------------------------------


def _create(database: Database[Document], collection: str) -> None:
    try:
        database.create_collection(
            collection, check_exists=False, validator=validator_of(collection)
        )
    except OperationFailure as failure:
        # Another process that applies the same declarations was faster.
        if failure.code != _NAMESPACE_EXISTS_CODE:
            raise


def _set_validator(database: Database[Document], collection: str) -> None:
    database.command(
        "collMod",
        collection,
        validator=validator_of(collection),
        validationLevel="strict",
        validationAction="error",
    )


def _tighten(
    database: Database[Document],
    collection: str,
    allow_tighten: bool,
    outcome: Outcome,
    say: Say,
) -> None:
    if database[collection].find_one({}, {"_id": 1}) is None:
        say(f"{collection}: setting the validator of the empty collection")
        _set_validator(database, collection)
        return
    if not allow_tighten:
        outcome.waiting.append(
            f"{collection}: the validator allows what must be refused; --allow-tighten tightens it"
            " if no document stands against it"
        )
        return
    say(f"{collection}: looking for documents that would be refused")
    if refusal := _offenders(database[collection]):
        outcome.failed.append(f"{refusal}: put them right first; the validator is as it was")
        return
    say(f"{collection}: tightening the validator")
    _set_validator(database, collection)
    # Somebody may have written one between our look and the change.
    if refusal := _offenders(database[collection]):
        outcome.failed.append(
            f"{refusal}: written meanwhile; they can't be updated until put right"
        )


def _offenders(collection: Collection[Document]) -> str | None:
    """The documents that the declared validator would refuse, in words; None without any."""
    refused = {"$nor": [validator_of(collection.name)]}
    named = [
        str(document["_id"])
        for document in collection.find(refused, {"_id": 1}).limit(OFFENDERS_NAMED_MAX)
    ]
    if not named:
        return None
    count = collection.count_documents(refused)
    more = ", …" if count > len(named) else ""
    return f"{collection.name}: {count:,} documents would be refused ({', '.join(named)}{more})"


# --- Indexes -------------------------------------------------------------------------------------


def _build_missing(
    database: Database[Document], found: Iterable[Difference], outcome: Outcome, say: Say
) -> None:
    by_collection: dict[str, list[Index]] = defaultdict(list)
    for difference in found:
        assert difference.index is not None
        by_collection[difference.collection].append(difference.index)
        say(f"{difference}: building it")
    for name, missing_indexes in by_collection.items():
        collection = database[name]
        try:
            # All at once: the collection is read once for all of them.
            _build(collection, missing_indexes, say)
        except OperationFailure:
            for index in missing_indexes:
                try:
                    _build(collection, [index], say)
                except OperationFailure as failure:
                    # Another `apply` at the same time may have built it under our eyes.
                    if not _is_there(collection, index):
                        outcome.failed.append(f"{name}: {_reason(index, failure)}")


def _build(collection: Collection[Document], wanted: Iterable[Index], say: Say) -> None:
    taken = {stored["name"] for stored in collection.list_indexes()}
    models = []
    for index in wanted:
        # Another `apply` may have built it since the difference was taken. It would stand in the
        # way of the same definition under the next free name.
        if _is_there(collection, index):
            continue
        name = _free_name(index, taken)
        taken.add(name)
        models.append(IndexModel(list(index.keys), name=name, **options_of(index)))
    if not models:
        return
    with progress.reported(collection, say):
        collection.create_indexes(models)


def _is_there(collection: Collection[Document], index: Index) -> bool:
    return actual.definition_of(index) in actual.read_indexes(collection).values()


def _free_name(index: Index, taken: set[str]) -> str:
    """The name the server would give by itself, or with a number if another index has that."""
    name = "_".join(f"{key}_{order}" for key, order in index.keys)
    numbered = (f"{name}_{number}" for number in range(2, len(taken) + 3))
    return name if name not in taken else next(free for free in numbered if free not in taken)


def _replace(
    database: Database[Document], difference: Difference, outcome: Outcome, say: Say
) -> None:
    """Build the declared index and drop the one that was to be it."""
    assert difference.index is not None
    collection = database[difference.collection]
    say(f"{difference}: replacing it")
    try:
        try:
            # Both side by side for a while, where the server can, so that its questions are
            # answered by an index all the time.
            _build(collection, [difference.index], say)
        except OperationFailure as failure:
            if failure.code not in _IN_THE_WAY_CODES:
                raise
            _drop(collection, difference)
            _build(collection, [difference.index], say)
        else:
            _drop(collection, difference)
    except OperationFailure as failure:
        outcome.failed.append(f"{collection.name}: {_reason(difference.index, failure)}")


def _drop(collection: Collection[Document], difference: Difference) -> None:
    assert difference.actual_name is not None
    try:
        collection.drop_index(difference.actual_name)
    except OperationFailure as failure:
        if failure.code != _INDEX_NOT_FOUND_CODE:  # Somebody else dropped it.
            raise


def _reason(index: Index, failure: OperationFailure) -> str:
    what = f"index {actual.definition_of(index)} could not be built"
    details: dict[str, Any] = dict(failure.details or {})
    if failure.code == _DUPLICATE_KEY_CODE:
        return f"{what}: more than one document has {details.get('keyValue', 'the same value')}"
    return f"{what}: {details.get('errmsg', failure)}"
