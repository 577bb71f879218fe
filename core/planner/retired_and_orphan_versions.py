"""Versions that do not serve after a plan: retired ones, and orphans of a failed run, with who still reads them.

Of orphan versions, only those of tables that the plan touches are judged, with what reads them: a table that another
open run holds cannot be in a plan that is applied.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace

from core.model.names import TableName
from core.observed.deployment import Binding, ObservedDeployment, OtherVersion
from core.planner.context import (
    DeclaredTables,
    ObservedTables,
    PlanningContext,
    TableBindings,
    TableRevisions,
    by_parent,
)


@dataclass(frozen=True, slots=True)
class RetiredVersion:
    """A version that is not the serving one after the plan."""

    table: TableName
    version: int
    readers: tuple[TableName, ...] = ()
    """Who is still bound to it; empty means that it stops."""


def retired_versions(
    observed: ObservedTables,
    bindings: TableBindings,
    rebuilt: Set[TableName],
    deleted: Set[TableName],
    bindings_then: Mapping[TableName, tuple[Binding, ...]],
) -> tuple[RetiredVersion, ...]:
    """Judge every old version that this plan may end, sinks first.

    `bindings_then` holds what the tables of the plan read after it, by which readers move that keep their own version;
    others read what they read now. What an older version reads is not observed: it is taken to read every old version
    of each of its parents.
    """
    candidates = _candidates(observed, bindings, rebuilt, deleted)
    moved = rebuilt | deleted | {t for t, found in bindings_then.items() if found != bindings.of(t)}
    kept: dict[TableName, set[int]] = {}
    ended: dict[TableName, set[int]] = {}
    found = []
    for table in _sinks_first(candidates, bindings, inside={*rebuilt, *deleted, *bindings_then}):
        for version in candidates.get(table, ()):
            readers = _readers_then(
                observed,
                bindings,
                (table, version),
                kept,
                rebuilt=rebuilt,
                deleted=deleted,
                bindings_then=bindings_then,
            )
            if readers:
                kept.setdefault(table, set()).add(version)
            if readers or table in rebuilt or _is_released(observed, bindings, (table, version), moved, ended):
                found.append(RetiredVersion(table, version, readers))
                if not readers:
                    ended.setdefault(table, set()).add(version)
    return tuple(found)


def _candidates(
    observed: ObservedTables, bindings: TableBindings, rebuilt: Set[TableName], deleted: Set[TableName]
) -> dict[TableName, tuple[int, ...]]:
    """Return the old versions by table; those of deleted tables go anyway and are not judged here."""
    candidates: dict[TableName, tuple[int, ...]] = {}
    for table in observed.tables():
        seen = observed.deployment(table)
        if table in deleted or not observed.is_deployed(table):
            continue
        bound = {b.version for r in bindings.readers(table) for b in bindings.of(r) if b.parent == table}
        kept = bound.intersection(seen.kept)
        versions = {*seen.retained, *kept, *((seen.version,) if table in rebuilt else ())} - {0}
        versions -= {seen.version} if table not in rebuilt else set()
        if versions:
            candidates[table] = tuple(sorted(versions, reverse=True))
    return candidates


def _sinks_first(
    candidates: Mapping[TableName, tuple[int, ...]], bindings: TableBindings, *, inside: Set[TableName]
) -> list[TableName]:
    """Put every reader before what it reads; readers without old versions are walked through.

    Among equals the plan's own tables come by name, whatever there is outside of it.
    """
    done: list[TableName] = []
    seen: set[TableName] = set()
    for root in sorted(candidates, key=lambda table: (table not in inside, table)):
        stack = [(root, False)]
        while stack:
            table, left = stack.pop()
            if left:
                done.append(table)
            elif table not in seen:
                seen.add(table)
                stack.append((table, True))
                stack.extend((reader, False) for reader in reversed(bindings.readers(table)))
    return done


def _readers_then(
    observed: ObservedTables,
    bindings: TableBindings,
    old: tuple[TableName, int],
    kept: Mapping[TableName, set[int]],
    *,
    rebuilt: Set[TableName],
    deleted: Set[TableName],
    bindings_then: Mapping[TableName, tuple[Binding, ...]],
) -> tuple[TableName, ...]:
    found = []
    for reader in bindings.readers(old[0]):
        if reader in deleted:
            continue
        stays = kept.get(reader, set())
        bound_now = _reads_any(bindings.of(reader), {old})
        serving = observed.deployment(reader).version
        if reader in rebuilt:
            is_bound = bound_now and serving in stays
        else:
            is_bound = _reads_any(bindings_then.get(reader, bindings.of(reader)), {old})
        if is_bound or stays - {serving}:
            found.append(reader)
    return tuple(found)


def _is_released(
    observed: ObservedTables,
    bindings: TableBindings,
    old: tuple[TableName, int],
    moved: Set[TableName],
    ended: Mapping[TableName, set[int]],
) -> bool:
    """Return whether a version that ran for others loses its last reader by this plan, not before it.

    `ended` holds the versions that this plan stops: a reader's old version that nobody reads any more is not its doing.
    """
    for reader in bindings.readers(old[0]):
        if reader in moved and _reads_any(bindings.of(reader), {old}):
            return True
        if set(observed.deployment(reader).retained) & ended.get(reader, set()):
            return True
    return False


def without_orphans(observed: Mapping[TableName, ObservedDeployment]) -> dict[TableName, ObservedDeployment]:
    """Take orphan versions from those that run for others: a plan that continues a run judges them here."""
    return {
        table: replace(seen, retained=tuple(set(seen.retained) - {orphan.version for orphan in seen.orphan_versions}))
        for table, seen in observed.items()
    }


def usable_orphan(
    observed: ObservedTables, revisions: TableRevisions, table: TableName, reads: Iterable[Binding]
) -> OtherVersion | None:
    """Find the newest orphan version that has the declared texts and reads exactly `reads`, all of them; else None."""
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
    used: Mapping[TableName, OtherVersion],
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
        if _reads_any(bindings_then.get(reader, bindings.of(reader)), {version})
    )


def _reads_any(bindings: Iterable[Binding], versions: set[tuple[TableName, int]]) -> bool:
    return any((binding.parent, binding.version) in versions for binding in bindings)
