"""The pools of an environment in words, and the pool of each statement."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from core.model.errors import UsageError
from core.model.names import TableName, trigger_s
from core.model.states import PoolState, State, WantedState
from core.observed.versions import StatementLine
from core.project.model import Environment, Pool
from core.project.resources import UNLIMITED, Amounts, memory_words
from core.text.wording import did_you_mean
from state.row_types import EnvironmentRow, PoolRow

if TYPE_CHECKING:
    from core.planner.pool_load import Load
    from state.ledger import LedgerReader


def pools_in_words(facts: EnvironmentRow, *, state_when_up: bool = True) -> str:
    """Return the name and state of the pool; of several, how many are up, and the name and state of the worst.

    Without `state_when_up`, the state of a single pool is left out if it is up.
    """
    worst = facts.worst_pool
    if len(facts.pools) == 1:
        calm = worst.state == PoolState.UP and not state_when_up
        return f"pool {worst.name}" + ("" if calm else f" {worst.state}")
    up = sum(pool.state == PoolState.UP for pool in facts.pools)
    return f"pools {up}/{len(facts.pools)}" + ("" if worst.state == PoolState.UP else f" {worst.name} {worst.state}")


def pool_named(facts: EnvironmentRow, name: str) -> PoolRow:
    """Return the pool of a name. Raises UsageError if there is none."""
    if (found := facts.pool_named(name)) is not None:
        return found
    names = [pool.name for pool in facts.pools]
    raise UsageError(f"there is no pool {name}", remedy=did_you_mean(name, names) or f"pools: {', '.join(names)}")


def pool_of_line(facts: EnvironmentRow, recorded: Mapping[tuple[TableName, int], str], line: StatementLine) -> PoolRow:
    """Return the pool in which a statement runs or was last started; `recorded` is `LedgerReader.recorded_pools`."""
    return facts.pool_of(recorded.get((line.table, line.version), ""))


@dataclass(frozen=True, slots=True)
class PoolUse:
    """A pool, with the versions of statements that run in it or were last started in it."""

    row: PoolRow
    statements: tuple[StatementLine, ...]
    load: "Load | None" = None
    """What its statements need together; None if the pool has no capacity with which it could be compared."""
    now: Amounts | None = None
    """The capacity in headgate.yml, if that was read."""

    @property
    def capacity(self) -> Amounts:
        """The capacity by which plans are judged: that in headgate.yml or, if unknown, as the agent has read it."""
        if self.now is not None:
            return self.now
        return self.row.declared.capacity if self.row.declared is not None else Amounts(self.row.most)

    def used(self, dimension: str, *, of: str = "/") -> str:
        """Return the load of the pool and its capacity in one dimension, such as `2.5/4`; empty without a capacity."""
        most = getattr(self.capacity, dimension)
        if most is None or self.load is None:
            return ""
        now = getattr(self.load, dimension)
        both = map(memory_words, (now, most)) if dimension == "mib" else (f"{round(now, 2):g}", f"{most:g}")
        return of.join(both)

    @property
    def wanted(self) -> int:
        """Number of statements that should be running."""
        return sum(line.wanted == WantedState.RUNNING for line in self.statements)

    @property
    def running(self) -> int:
        return sum(line.state == State.RUNNING for line in self.statements)

    @property
    def failed(self) -> int:
        return sum(line.state == State.FAILED for line in self.statements)

    @property
    def state(self) -> str:
        """The state of the pool, and whether it takes no new statements."""
        return f"{self.row.state}, cordoned" if self.row.cordoned_at is not None else self.row.state

    @property
    def kind(self) -> str:
        """`local`, `cluster` or `remote`; `?` if no agent has recorded how the pool is declared."""
        declared = self.row.declared
        if declared is None:
            return "?"
        return "remote" if declared.url else "cluster" if declared.master else "local"

    @property
    def address(self) -> str:
        """The address of the pool without parameters, which can be secrets."""
        return (self.row.declared or Pool()).address

    def busiest(self, now: float) -> tuple[tuple[StatementLine, float], ...]:
        """Return the running statements whose batches take most of the time, each with that share, largest first.

        The share is the duration of the newest batch in the interval of the trigger. A statement without a recent batch
        is left out.
        """
        found = []
        for line in self.statements:
            if line.state == State.RUNNING and line.batch_ms and line.committed_at is not None:
                batch_s, every_s = line.batch_ms / 1000, trigger_s(line.trigger)
                if now - line.committed_at <= 3 * max(batch_s, every_s) + _LATE_S:
                    found.append((line, min(1.0, batch_s / max(every_s, batch_s))))
        return tuple(sorted(found, key=lambda each: (-each[1], -(each[0].batch_ms or 0), each[0].table)))


_LATE_S = 10.0
"""Seconds by which a measurement may be late."""


def pools_with_loads(
    reader: "LedgerReader", facts: EnvironmentRow, lines: Iterable[StatementLine], *, declared: Environment | None
) -> tuple[PoolUse, ...]:
    """Return the pools in the agent's order, with their statements and what these need of the capacity.

    `declared` is the environment as headgate.yml declares it now; None if that is unknown.
    """
    now = {pool.name: pool.capacity for pool in declared.pools} if declared is not None else {}
    uses = uses_of_pools(facts, reader.recorded_pools(), lines)
    uses = tuple(replace(use, now=now.get(use.row.name)) for use in uses)
    if all(use.capacity == UNLIMITED for use in uses):
        return uses
    from core.planner.pool_load import NOTHING, may_run, need

    measured = any((use.capacity.cores, use.capacity.mib) != (None, None) for use in uses)
    statistics, ymls = (reader.table_statistics(), reader.declared_resources()) if measured else ({}, {})

    def load_of(use: PoolUse) -> "Load":
        keys = [((line.table, line.version), line.trigger) for line in use.statements if may_run(line)]
        return sum((need(ymls.get(key, ""), every, statistics.get(key)) for key, every in keys), NOTHING)

    return tuple(replace(use, load=load_of(use)) for use in uses)


def uses_of_pools(
    facts: EnvironmentRow, recorded: Mapping[tuple[TableName, int], str], lines: Iterable[StatementLine]
) -> tuple[PoolUse, ...]:
    """Return the pools in declared order with their statements; `recorded` is `LedgerReader.recorded_pools`."""
    by_pool: dict[str, list[StatementLine]] = {}
    for line in lines:
        if not line.external:
            by_pool.setdefault(pool_of_line(facts, recorded, line).name, []).append(line)
    return tuple(PoolUse(row, tuple(by_pool.get(row.name, ()))) for row in facts.pools)
