"""The pools of an environment in words, and the pool of each statement."""

from collections.abc import Mapping

from core.model.errors import UsageError
from core.model.names import TableName
from core.observed.versions import StatementLine
from core.text.wording import did_you_mean
from state.row_types import EnvironmentRow, PoolRow


def pools_in_words(facts: EnvironmentRow, *, state_when_up: bool = True) -> str:
    """Return the name and state of the pool; of several, how many are up, and the name and state of the worst.

    Without `state_when_up`, the state of a single pool is left out if it is up.
    """
    worst = facts.worst_pool
    if len(facts.pools) == 1:
        calm = worst.state in ("up", "") and not state_when_up
        return f"pool {worst.name}" + ("" if calm else f" {worst.state}")
    up = sum(pool.state == "up" for pool in facts.pools)
    return f"pools {up}/{len(facts.pools)}" + ("" if worst.state == "up" else f" {worst.name} {worst.state}")


def pool_named(facts: EnvironmentRow, name: str) -> PoolRow:
    """Return the pool of a name. Raises UsageError if there is none."""
    if (found := facts.pool_named(name)) is not None:
        return found
    names = [pool.name for pool in facts.pools]
    raise UsageError(f"there is no pool {name}", remedy=did_you_mean(name, names) or f"pools: {', '.join(names)}")


def pool_of_line(facts: EnvironmentRow, recorded: Mapping[tuple[TableName, int], str], line: StatementLine) -> PoolRow:
    """Return the pool in which a statement runs or was last started; `recorded` is `LedgerReader.recorded_pools`."""
    return facts.pool_of(recorded.get((line.table, line.version), ""))
