"""Versions that stop serving with a plan: which of them end, and which go on because something still reads them."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from core.model.names import TableName
from core.observed.versions import Binding
from core.planner.context import (
    ObservedTables,
    TableBindings,
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
        bound_now = reads_any(bindings.of(reader), {old})
        serving = observed.deployment(reader).version
        if reader in rebuilt:
            is_bound = bound_now and serving in stays
        else:
            is_bound = reads_any(bindings_then.get(reader, bindings.of(reader)), {old})
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
        if reader in moved and reads_any(bindings.of(reader), {old}):
            return True
        if set(observed.deployment(reader).retained) & ended.get(reader, set()):
            return True
    return False


def reads_any(bindings: Iterable[Binding], versions: set[tuple[TableName, int]]) -> bool:
    """Return whether a binding is to one of some versions."""
    return any((binding.parent, binding.version) in versions for binding in bindings)
