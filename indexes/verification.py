"""Whether every declared question is answered by the index that was made for it.

The server is asked how it would answer, on the live database, without being made to do it. Only
where it prefers another index is it let try, for a moment, to tell a wrong choice from a tie.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pymongo.database import Database
from pymongo.errors import ExecutionTimeout

from indexes.access_patterns import ACCESS_PATTERNS, AccessPattern
from indexes.actual import ID_DEFINITION, ID_INDEX, Actual, Definition, Document, definition_of
from indexes.declared import INDEXES, Index

EXPLAIN_TIME_MS_MAX = 10_000


@dataclass(frozen=True)
class Judgement:
    """A pattern and what is wrong with how it would be answered; None if nothing is."""

    pattern: AccessPattern
    fault: str | None


def judge(
    database: Database[Document],
    actual: Actual,
    patterns: Iterable[AccessPattern] = ACCESS_PATTERNS,
) -> Iterator[Judgement]:
    """Ask the database about each pattern in turn."""
    for pattern in patterns:
        present = actual.get(pattern.collection)
        definitions = dict(present.indexes) if present else {}
        definitions[ID_INDEX] = ID_DEFINITION
        yield Judgement(pattern, _fault(database, pattern, definitions))


def idle_indexes(
    indexes: Iterable[Index] = INDEXES, patterns: Iterable[AccessPattern] = ACCESS_PATTERNS
) -> list[str]:
    """The declared indexes whose question no access pattern asks of them, in sentences."""
    served = {(pattern.index, pattern.question) for pattern in patterns}
    return [
        f"{index.collection}: index {definition_of(index)} serves no declared question"
        for index in indexes
        if (index, index.question) not in served
    ]


def _fault(
    database: Database[Document], pattern: AccessPattern, definitions: Mapping[str, Definition]
) -> str | None:
    planner = _explain(database, pattern, "queryPlanner")["queryPlanner"]
    wanted = ID_DEFINITION if pattern.index is None else definition_of(pattern.index)
    fault = plan_fault(planner["winningPlan"], wanted, definitions)
    if fault is None:
        return None
    is_candidate = any(
        plan_fault(rejected, wanted, definitions) is None
        for rejected in planner.get("rejectedPlans", [])
    )
    if is_candidate and _was_a_tie(database, pattern, wanted, definitions):
        return None
    return fault


def _was_a_tie(
    database: Database[Document],
    pattern: AccessPattern,
    wanted: Definition,
    definitions: Mapping[str, Definition],
) -> bool:
    """Whether the plan wanted was as good as the one the server took, since it ended at once.

    The server compares its candidates by trying them for a moment. The one that ends first wins;
    of several that end at once, having found nothing to look at, it takes any.
    """
    try:
        tried = _explain(database, pattern, "allPlansExecution")["executionStats"]
    except ExecutionTimeout:
        return False
    return any(
        plan_fault(trial["executionStages"], wanted, definitions) is None
        and trial["totalKeysExamined"] <= 1
        and trial["totalDocsExamined"] == 0
        for trial in tried["allPlansExecution"]
    )


def _explain(database: Database[Document], pattern: AccessPattern, verbosity: str) -> Document:
    question: Document = {"find": pattern.collection, "filter": dict(pattern.filter)}
    if pattern.sort:
        question["sort"] = dict(pattern.sort)
    if pattern.limit:
        question["limit"] = pattern.limit
    question["maxTimeMS"] = EXPLAIN_TIME_MS_MAX
    return database.command("explain", question, verbosity=verbosity)


def plan_fault(
    plan: Mapping[str, Any], wanted: Definition, definitions: Mapping[str, Definition]
) -> str | None:
    """What is wrong with a plan of the server's, in words; None if it uses the index wanted.

    `definitions` are those of the collection's indexes by name.
    """
    stages = list(_stages(plan))
    names = {stage["stage"] for stage in stages}
    if "COLLSCAN" in names:
        return "reads the whole collection"
    if "SORT" in names:
        return "sorts in memory"
    used = {stage["indexName"] for stage in stages if "indexName" in stage}
    if "IDHACK" in names:
        used.add(ID_INDEX)
    if not used:
        return "uses no index"
    others = sorted(name for name in used if definitions.get(name) != wanted)
    return f"uses {', '.join(others)} instead of {wanted}" if others else None


def _stages(plan: Any) -> Iterator[Mapping[str, Any]]:
    """All stages of a plan, whichever engine or shard they are for."""
    if isinstance(plan, Mapping):
        if "stage" in plan:
            yield plan
        for name, inner in plan.items():
            if name not in ("slotBasedPlan", "rejectedPlans"):
                yield from _stages(inner)
    elif isinstance(plan, list):
        for inner in plan:
            yield from _stages(inner)
