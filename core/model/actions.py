"""The building blocks of a plan: actions on statements, kinds of steps, and strategies."""

import textwrap
from collections.abc import Mapping
from enum import StrEnum


class Action(StrEnum):
    """The kind of change that a plan makes to a statement."""

    KEEP = "keep"
    RECORD = "record"
    START = "start"
    RESUME = "resume"
    RESTART = "restart"
    REBUILD = "rebuild"
    STOP = "stop"
    DELETE = "delete"
    ROLLBACK = "rollback"
    UNDELETE = "undelete"
    RETIRE = "retire"
    OPTIMIZE = "optimize"
    VACUUM = "vacuum"


class StepKind(StrEnum):
    """The kind of work that a step of a run performs; the executor branches on nothing else."""

    REGISTER = "register"
    """Run CREATE TABLE IF NOT EXISTS for an external table."""
    CREATE = "create"
    """Create the physical table of a version, an empty checkpoint with a file naming its owner, and
    `_headgate.json`.
    """
    FORK = "fork"
    """Copy the offsets, state and rows of the old version, so that the new version continues after the newest batch of
    the old version."""
    SEED = "seed"
    """Mark everything that the sources now contain as already read by a new version."""
    START = "start"
    """Start the query of a version on its new checkpoint."""
    RESUME = "resume"
    """Start the deployed revision on its existing checkpoint."""
    CATCH_UP = "catch_up"
    """Wait until the lag of a version is within the limit of its gate."""
    VALIDATE = "validate"
    """Compare a new version with the serving version at batches where both have read the same input, and run the
    project's checks."""
    HOLD = "hold"
    """Wait, with every new version running, until an operator releases the swap."""
    SWAP = "swap"
    """Move the pointers of `tables`, sinks first, to the new versions: CREATE VIEW for a new pointer, ALTER VIEW
    for an existing one.
    """
    RESTART = "restart"
    """Stop the query, then start the new revision on the same checkpoint."""
    REWRITE = "rewrite"
    """Stop the query, then upsert every row again into the same table with the new revision, on a new checkpoint."""
    SEAM = "seam"
    """Stop the query, then continue the same table from another upstream version, starting at the aligned position."""
    ALTER = "alter"
    """Run ALTER TABLE on the physical table, and change the registration DDL in the ledger accordingly."""
    STOP = "stop"
    """Stop the query of a version and verify that it has stopped; keep its table and checkpoint."""
    SOAK = "soak"
    """Schedule the stop of a replaced version for the end of a grace period; changes nothing on the pool."""
    RECORD = "record"
    """Write the declared revision into the registry; changes nothing on the pool."""
    UNPOINT = "unpoint"
    """Drop the pointer view of a deleted table."""
    TOMBSTONE = "tombstone"
    """Drop a version's table from the catalog, and keep its files and checkpoint in the trash until `drop_after`."""
    RESTORE = "restore"
    """Move a version's files and checkpoint out of the trash and register its table, without starting the query."""
    OPTIMIZE = "optimize"
    """Compact the small files of a version's table; no row changes."""
    VACUUM = "vacuum"
    """Delete files that the current table version no longer references, once their retention has expired."""


UPKEEP = frozenset({StepKind.OPTIMIZE, StepKind.VACUUM})
"""Steps that maintain table files: they may take long, and no other step depends on them."""

BEGINS = frozenset({StepKind.START, StepKind.RESUME, StepKind.RESTART, StepKind.REWRITE, StepKind.SEAM})
"""Steps that start a query and wait for its first batch."""

MOVES_POINTERS = frozenset({StepKind.SWAP, StepKind.UNPOINT})
"""Steps that change what readers of a pointer see; they are not executed during a freeze window."""

READABLE_ONCE_STARTED = frozenset({StepKind.START, StepKind.RESUME})
NEEDS_PROOF = frozenset({StepKind.STOP, StepKind.TOMBSTONE, StepKind.UNPOINT})
"""Steps that cannot be undone; each waits for the first batch of every query started by a step on which it depends."""

POLLED_WITH_EFFECT = MOVES_POINTERS | UPKEEP | {StepKind.SEAM}
"""Steps that take effect when their gate is polled, so the gate is not polled while the run is paused."""


class Strategy(StrEnum):
    """How a statement moves to its new revision."""

    FIRST = "first"
    EARLIEST = "earliest"
    IN_PLACE = "in_place"
    PARTIAL = "partial"
    FORK = "fork"
    SEEDED = "seeded"
    CARRY_OVER = "carry_over"
    KEYED = "keyed"
    CHAIN = "chain"
    SEAM = "seam"


STRATEGIES: Mapping[Strategy, str] = {
    Strategy.FIRST: "a first start, from the earliest row",
    Strategy.EARLIEST: "a new version beside the old one, from the earliest row",
    Strategy.IN_PLACE: "a restart on the same checkpoint and table",
    Strategy.PARTIAL: "a new version that starts at a time, a partition, or (Delta) a version or committed:TIME",
    Strategy.FORK: "a new version with the rows, positions and state of the old one",
    Strategy.SEEDED: "a new version that reads only rows arriving from now on (@now)",
    Strategy.CARRY_OVER: "a new version from the old one's offsets; without state, on the same upstream tables",
    Strategy.KEYED: "the same table, every row upserted again by primary key, from the earliest",
    Strategy.CHAIN: "a new version that holds only new rows; the pointer is the union of both",
    Strategy.SEAM: "the same table, continued on a rebuilt upstream table from the aligned batch",
}
"""A short description of each strategy, for help pages."""

FORKS = frozenset({Strategy.FORK, Strategy.CARRY_OVER, Strategy.CHAIN})
"""Strategies in which the new version continues from the old version's checkpoint."""

EXECUTABLE = frozenset(
    {
        "", Strategy.FIRST, Strategy.EARLIEST, Strategy.IN_PLACE, Strategy.PARTIAL, Strategy.SEAM, Strategy.FORK,
        Strategy.SEEDED, Strategy.CARRY_OVER, Strategy.CHAIN, Strategy.KEYED,
    }
)  # fmt: skip
"""Strategies that an agent can execute; plans with other strategies cannot be applied."""

UNDO_D = 90.0
"""Days for which the ledger keeps a plan after its run, with the SQL and YAML that the plan replaced."""


def typed_strategy(strategy: str) -> str:
    """Return a strategy as users type it after `--strategy`: with hyphens."""
    return strategy.replace("_", "-")


def strategy_lines(width: int) -> tuple[str, ...]:
    """Return help lines, at most `width` columns wide, that explain each strategy and mark those not executable yet."""
    lines: list[str] = []
    for strategy, summary in STRATEGIES.items():
        words = summary if strategy in EXECUTABLE else f"{summary} (not executable yet)"
        lead = f"{typed_strategy(strategy):<12}"
        lines += textwrap.wrap(words, width, initial_indent=lead, subsequent_indent=" " * len(lead))
    return tuple(lines)
