"""Checks an `--observed` document for contradictions within itself and with the project."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from core.model.names import TableName, physical_name, split_physical
from core.model.problems import Problem, Where, in_reading_order
from core.model.states import State
from core.observed.document_entries import FIELD_BY_KEY
from core.observed.planner_input import ObservedDeployment
from core.observed.versions import Binding
from core.planner.context import DeclaredTables, PlanningContext, TableBindings, planning_context
from core.project.model import Environment, Project
from core.project_reader.parse_cache import ParseCache

_RUNS = frozenset({State.RUNNING, State.DEGRADED})
"""States in which a query runs. The inputs of the query must exist, because a table with readers is never deleted."""

_OF_A_VERSION = ("version", "pointer", "bindings", "retained", "kept", "spare")
"""Document keys that are valid only for a table with a version."""


def impossible_observations(
    project: Project,
    environment: Environment,
    observed: Mapping[TableName, ObservedDeployment],
    parse_cache: ParseCache | None = None,
) -> tuple[Problem, ...]:
    """Return a Problem for each observation that no sequence of deploys, stops and deletes can produce.

    Problems are sorted by table. The `detail` of a Problem is the document key of the wrong value. A table that the
    document omits counts as absent. A document that an agent exported never has such Problems.
    """
    context = planning_context(project, environment, observed, parse_cache or ParseCache())
    return tuple(
        Problem(f"{table} {summary}", remedy, None, table, key)
        for table in sorted(observed)
        for key, summary, remedy in _wrong_with(context, observed, table)
    )


def with_places(problems: tuple[Problem, ...], places: Mapping[tuple[TableName, str], Where]) -> tuple[Problem, ...]:
    """Return the Problems with the document positions of the keys that they name, sorted by position."""
    found = []
    for problem in problems:
        table = TableName(problem.subject)
        found.append(replace(problem, where=places.get((table, problem.detail)) or places.get((table, ""))))
    return in_reading_order(found)


_Wrong = Iterator[tuple[str, str, str]]
"""Triples of the key of the wrong value, the predicate of a sentence about the table, and the remedy."""


def _wrong_with(context: PlanningContext, observed: Mapping[TableName, ObservedDeployment], table: TableName) -> _Wrong:
    seen = observed[table]
    if seen.state == State.ABSENT:
        said = [key for key in _OF_A_VERSION if getattr(seen, FIELD_BY_KEY[key])]
        if said:
            remedy = "say its state; of a deleted table only highest_version is left"
            yield said[0], f"is absent and has {', '.join(said)}", remedy
        return
    yield from _wrong_with_itself(table, seen)
    for binding in seen.bindings:
        yield from (("bindings", *words) for words in _wrong_binding(observed, table, binding, seen.state in _RUNS))
    for binding in dict.fromkeys(each for orphan in seen.orphan_versions for each in orphan.bindings):
        if binding not in seen.bindings:
            yield from (("spare", *words) for words in _wrong_binding(observed, table, binding, False))
    if not seen.bindings and seen.state in _RUNS and _has_known_text(context, table):
        yield from _wrong_with_parents(context.declared, context.bindings, observed, table)


def _wrong_with_itself(table: TableName, seen: ObservedDeployment) -> _Wrong:
    existing = _existing(seen)
    if 0 < seen.highest_version < max(existing):
        above = f"has v{max(existing)}, above its highest_version {seen.highest_version}"
        yield "highest_version", above, f"write highest_version: {max(existing)}, or leave it out"
    served = split_physical(seen.pointer)
    if served is not None and served[0] == table and served[1] not in existing:
        there = ", ".join(f"v{version}" for version in sorted(existing))
        yield "pointer", f"has the pointer {seen.pointer}, a version that is not there", f"there is {there}"
    if not seen.begun and seen.state == State.RUNNING:
        yield "begun", f"is {seen.state} and was never begun", "leave begun out, or correct its state"
    elif not seen.begun and served is not None:
        yield "begun", "serves and was never begun", "leave begun or pointer out"
    for orphan in seen.orphan_versions:
        if orphan.version == (seen.version or 1):
            words = f"has v{orphan.version} as its version and among those that never served"
            yield "spare", words, "take it out of spare, or correct its version"
        if orphan.running and not orphan.begun:
            words = f"has v{orphan.version} running that was never begun"
            yield "spare", words, "leave begun or running of it out"


def _wrong_binding(
    observed: Mapping[TableName, ObservedDeployment], table: TableName, binding: Binding, runs: bool
) -> Iterator[tuple[str, str]]:
    parent, version = binding.parent, binding.version
    if parent == table:
        yield "reads itself", "take the binding away"
    elif version:
        known = observed.get(parent, ObservedDeployment())
        highest, existing = _highest(known), _existing(known)
        reads = f"reads {physical_name(parent, version)}"
        if not highest:
            yield f"{reads}, and {parent} was never deployed", _list_parent(parent, version)
        elif version > highest:
            yield f"{reads}, and {parent} has come to v{highest} only", f"correct the binding, or list v{version}"
        elif runs and known.state != State.ABSENT and version not in existing:
            remedy = f"bind it to v{known.version or 1}, or write kept: [{version}] at {parent}"
            yield f"is {observed[table].state} and {reads}, a version that is not there", remedy


def _wrong_with_parents(
    declared: DeclaredTables,
    bindings: TableBindings,
    observed: Mapping[TableName, ObservedDeployment],
    table: TableName,
) -> _Wrong:
    """Yield a contradiction for each input that was never deployed, except external and undeclared inputs."""
    for parent in dict.fromkeys(binding.parent for binding in bindings.of(table)):
        source = declared.tables.get(parent)
        never = not _highest(observed.get(parent, ObservedDeployment()))
        if never and source is not None and not source.external:
            words = f"is {observed[table].state} and reads {parent}, which was never deployed"
            yield "", words, _list_parent(parent, 1)


def _has_known_text(context: PlanningContext, table: TableName) -> bool:
    seen, declared = context.observed.deployment(table), context.declared.tables.get(table)
    if seen.deployed is not None:
        return True
    return declared is not None and seen.revision in ("", "same", context.revisions.declared(table).hash)


def _list_parent(parent: TableName, version: int) -> str:
    return f"list {parent} with its state, or {{state: absent, highest_version: {version}}} where it was deleted"


def _existing(seen: ObservedDeployment) -> frozenset[int]:
    """Return all existing versions of a table; version 1 is assumed if only a state was observed."""
    if seen.state == State.ABSENT:
        return frozenset()
    orphans = (orphan.version for orphan in seen.orphan_versions)
    return frozenset((seen.version or 1, *seen.kept, *seen.retained, *orphans))


def _highest(seen: ObservedDeployment) -> int:
    return max((seen.highest_version, *_existing(seen)))
