"""Versions that a plan replaces: which of them the plan stops, and which keep running for their readers."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from core.model.names import TableName
from core.observed.versions import Binding
from core.planner.context import PlanningContext

Version = tuple[TableName, int]


@dataclass(frozen=True, slots=True)
class RetiredVersion:
    """An old version that will not serve after the plan."""

    table: TableName
    version: int
    readers: tuple[TableName, ...] = ()
    """Tables that stay bound to this version; the plan stops the version if there are none."""


def retired_versions(
    context: PlanningContext,
    *,
    rebuilt: Set[TableName] = frozenset(),
    deleted: Set[TableName] = frozenset(),
    bindings_then: Mapping[TableName, tuple[Binding, ...]],
) -> tuple[RetiredVersion, ...]:
    """Return the old versions that the plan stops or keeps for their readers, sinks first.

    `bindings_then` contains the bindings of the plan's tables after the plan; tables outside the plan keep their
    bindings. The bindings of older versions are unknown, so an older version counts as a reader of every old version of
    its parents.
    """
    return _Retirement(context, rebuilt, deleted, bindings_then).judged()


@dataclass(frozen=True, slots=True)
class _Retirement:
    context: PlanningContext
    rebuilt: Set[TableName]
    deleted: Set[TableName]
    bindings_then: Mapping[TableName, tuple[Binding, ...]]
    kept: dict[TableName, set[int]] = field(default_factory=dict)
    """Old versions that keep running, as found so far."""
    ended: dict[TableName, set[int]] = field(default_factory=dict)
    """Old versions that this plan stops, as found so far."""

    def judged(self) -> tuple[RetiredVersion, ...]:
        bindings = self.context.bindings
        candidates = self._candidates()
        changed = {t for t, found in self.bindings_then.items() if found != bindings.of(t)}
        moved = self.rebuilt | self.deleted | changed
        found = []
        for table in self._sinks_first(candidates):
            for version in candidates.get(table, ()):
                readers = tuple(r for r in bindings.readers(table) if self._stays_bound(r, (table, version)))
                if readers:
                    self.kept.setdefault(table, set()).add(version)
                elif table in self.rebuilt or self._loses_its_last_reader((table, version), moved):
                    self.ended.setdefault(table, set()).add(version)
                else:
                    continue
                found.append(RetiredVersion(table, version, readers))
        return tuple(found)

    def _candidates(self) -> dict[TableName, tuple[int, ...]]:
        observed, bindings = self.context.observed, self.context.bindings
        candidates: dict[TableName, tuple[int, ...]] = {}
        for table in observed.tables():
            seen = observed.deployment(table)
            if table in self.deleted or not observed.is_deployed(table):
                continue
            bound = {b.version for r in bindings.readers(table) for b in bindings.of(r) if b.parent == table}
            versions = {*seen.retained, *bound.intersection(seen.kept)} - {0, seen.version}
            versions |= {seen.version} - {0} if table in self.rebuilt else set()
            if versions:
                candidates[table] = tuple(sorted(versions, reverse=True))
        return candidates

    def _sinks_first(self, candidates: Iterable[TableName]) -> list[TableName]:
        """Return tables and everything downstream of them; a reader comes before the tables that it reads.

        The walk starts with the plan's own tables, so that other tables do not affect their order.
        """
        inside = {*self.rebuilt, *self.deleted, *self.bindings_then}
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
                    stack.extend((reader, False) for reader in reversed(self.context.bindings.readers(table)))
        return done

    def _stays_bound(self, reader: TableName, old: Version) -> bool:
        if reader in self.deleted:
            return False
        now = self.context.bindings.of(reader)
        stays, serving = self.kept.get(reader, set()), self.context.observed.deployment(reader).version
        if reader in self.rebuilt:
            is_bound = reads_any(now, {old}) and serving in stays
        else:
            is_bound = reads_any(self.bindings_then.get(reader, now), {old})
        return is_bound or bool(stays - {serving})

    def _loses_its_last_reader(self, old: Version, moved: Set[TableName]) -> bool:
        """True if this plan, rather than an earlier one, removes the last reader of an old version."""
        observed, bindings = self.context.observed, self.context.bindings
        return any(
            (reader in moved and reads_any(bindings.of(reader), {old}))
            or not self.ended.get(reader, set()).isdisjoint(observed.deployment(reader).retained)
            for reader in bindings.readers(old[0])
        )


def reads_any(bindings: Iterable[Binding], versions: Set[Version]) -> bool:
    """True if any of the bindings refers to any of the versions."""
    return any((binding.parent, binding.version) in versions for binding in bindings)
