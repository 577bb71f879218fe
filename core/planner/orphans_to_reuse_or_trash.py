"""Orphans (unfinished versions of a failed run): which of them a plan reuses, and which it moves to the trash.

Only orphans of tables in the plan, and orphans that read them, are considered, because a plan cannot be applied while
an open run holds any of its tables.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from core.model.names import TableName
from core.observed.planner_input import ObservedDeployment, OtherVersion
from core.observed.versions import Binding
from core.planner.context import (
    DeclaredTables,
    ObservedTables,
    PlanningContext,
    TableBindings,
    TableRevisions,
    by_parent,
)
from core.planner.retired_versions import RetiredVersion, reads_any


def without_orphans(observed: Mapping[TableName, ObservedDeployment]) -> dict[TableName, ObservedDeployment]:
    """Return the observations with orphans removed from the retained versions, for planning how a run continues."""
    return {
        table: replace(seen, retained=tuple(set(seen.retained) - {orphan.version for orphan in seen.orphan_versions}))
        for table, seen in observed.items()
    }


def usable_orphan(
    observed: ObservedTables, revisions: TableRevisions, table: TableName, reads: Iterable[Binding]
) -> OtherVersion | None:
    """Return the latest intact orphan that equals the version that a rebuild would create; None if there is none.

    Such an orphan has the declared SQL and YAML, has exactly the bindings `reads`, and reads from the earliest row.
    """
    wanted = sorted(reads, key=by_parent)
    revision = revisions.declared(table).hash
    fitting = (
        orphan
        for orphan in observed.deployment(table).orphan_versions
        if orphan.revision == revision
        and orphan.checkpoint_ok
        and not orphan.begins_where
        and sorted(orphan.bindings, key=by_parent) == wanted
    )
    return next(fitting, None)


def upstream_first(declared: DeclaredTables, tables: Iterable[TableName]) -> list[TableName]:
    """Return declared tables sorted from upstream to downstream."""
    wanted = set(tables)
    return [
        table
        for generation in (declared.graph.generations() if wanted else ())
        for table in sorted(generation)
        if table in wanted
    ]


def unused_orphans(
    context: PlanningContext,
    tables: Iterable[TableName],
    used: Mapping[TableName, OtherVersion],
    fresh: Iterable[TableName],
    bindings_then: Mapping[TableName, tuple[Binding, ...]],
) -> tuple[RetiredVersion, ...]:
    """Return the orphans of `tables` that the plan does not reuse, sinks first, each with its readers.

    A table in `fresh` gets a new version because its only version never ran; that version also counts as an orphan.
    Orphans that read a returned orphan are included.
    """
    anew = set(fresh)
    found: set[tuple[TableName, int]] = set()
    for table in tables:
        seen, kept = context.observed.deployment(table), used.get(table)
        found |= {
            (table, orphan.version) for orphan in seen.orphan_versions if kept is None or orphan.version != kept.version
        }
        if table in anew and context.observed.is_deployed(table):
            found.add((table, seen.version))
    bound = {
        (table, orphan.version): orphan.bindings
        for table in context.observed.tables()
        for orphan in context.observed.deployment(table).orphan_versions
    }
    while more := {key for key, reads in bound.items() if key not in found and reads_any(reads, found)}:
        found |= more
    return tuple(
        RetiredVersion(table, version, _orphan_readers(context.bindings, (table, version), bindings_then))
        for table in reversed(_ordered(context.declared, {table for table, _ in found}))
        for version in sorted((v for t, v in found if t == table), reverse=True)
    )


def _ordered(declared: DeclaredTables, tables: set[TableName]) -> list[TableName]:
    upstream = upstream_first(declared, tables)
    return [*upstream, *sorted(tables - set(upstream))]


def _orphan_readers(
    bindings: TableBindings, version: tuple[TableName, int], bindings_then: Mapping[TableName, tuple[Binding, ...]]
) -> tuple[TableName, ...]:
    return tuple(
        reader
        for reader in bindings.readers(version[0])
        if reads_any(bindings_then.get(reader, bindings.of(reader)), {version})
    )
