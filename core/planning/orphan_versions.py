"""What a failed run left beside what serves, and what the plan that continues it does with that: use or set aside.

Only versions that never served are judged here (`ObservedDeployment.orphan_versions`), and only of tables that the plan
touches, with what reads them: a table that another open run holds cannot be in a plan that is applied.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from core.model.names import TableName
from core.observed.deployment import Binding, ObservedDeployment, OrphanVersion
from core.planning.context import PlanningContext
from core.planning.declared_tables import DeclaredTables
from core.planning.observed_tables import ObservedTables
from core.planning.retired_versions import RetiredVersion
from core.planning.table_bindings import TableBindings
from core.planning.table_revisions import TableRevisions


def without_orphans(observed: Mapping[TableName, ObservedDeployment]) -> dict[TableName, ObservedDeployment]:
    """Take orphan versions from those that run for others: a plan that continues a run judges them here."""
    return {
        table: replace(seen, retained=tuple(set(seen.retained) - {orphan.version for orphan in seen.orphan_versions}))
        for table, seen in observed.items()
    }


def usable_orphan(
    observed: ObservedTables, revisions: TableRevisions, table: TableName, reads: Iterable[Binding]
) -> OrphanVersion | None:
    """Find the newest orphan version that has the declared texts and reads exactly `reads`; None when there is none."""
    wanted = sorted(reads, key=_key)
    revision = revisions.declared(table).hash
    fitting = (
        orphan
        for orphan in observed.deployment(table).orphan_versions
        if orphan.revision == revision and orphan.checkpoint_ok and sorted(orphan.bindings, key=_key) == wanted
    )
    return next(fitting, None)


def upstream_first(declared: DeclaredTables, tables: Iterable[TableName]) -> list[TableName]:
    """Sort declared tables so that each comes after what it reads."""
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
    used: Mapping[TableName, OrphanVersion],
    fresh: Iterable[TableName],
    bindings_then: Mapping[TableName, tuple[Binding, ...]],
) -> tuple[RetiredVersion, ...]:
    """List the orphan versions of `tables` that the plan has no use for, sinks first, with who still reads each.

    For a table that starts anew (`fresh`), the version that never ran is one of them. An orphan version that reads one
    of them is one as well, whatever its table.
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
    while more := {key for key, reads in bound.items() if key not in found and _reads_any(reads, found)}:
        found |= more
    return tuple(
        RetiredVersion(table, version, _readers(context.bindings, (table, version), bindings_then))
        for table in reversed(_ordered(context.declared, {table for table, _ in found}))
        for version in sorted((v for t, v in found if t == table), reverse=True)
    )


def _ordered(declared: DeclaredTables, tables: set[TableName]) -> list[TableName]:
    upstream = upstream_first(declared, tables)
    return [*upstream, *sorted(tables - set(upstream))]


def _readers(
    bindings: TableBindings, version: tuple[TableName, int], bindings_then: Mapping[TableName, tuple[Binding, ...]]
) -> tuple[TableName, ...]:
    return tuple(
        reader
        for reader in bindings.readers(version[0])
        if _reads_any(bindings_then.get(reader, bindings.of(reader)), {version})
    )


def _reads_any(bindings: Iterable[Binding], versions: set[tuple[TableName, int]]) -> bool:
    return any((binding.parent, binding.version) in versions for binding in bindings)


def _key(binding: Binding) -> tuple[str, int, bool]:
    return (binding.parent, binding.version, binding.streamed)
