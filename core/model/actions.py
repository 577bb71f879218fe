"""What a plan can do: actions on statements, kinds of steps, and strategies."""

import textwrap
from collections.abc import Mapping
from enum import StrEnum


class Action(StrEnum):
    """What a plan does to one statement."""

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
    """What a step does; the executor branches on this alone."""

    REGISTER = "register"
    """Run CREATE TABLE IF NOT EXISTS for an external table."""
    CREATE = "create"
    """Create the physical table of a version, its empty checkpoint with an owner file, and `_headgate.json`."""
    FORK = "fork"
    """Copy offsets, state and rows of the old version, so that a new one continues after its newest batch."""
    SEED = "seed"
    """Mark what the sources hold now as read by a new version."""
    START = "start"
    """Start the query of a version on its new checkpoint."""
    RESUME = "resume"
    """Start the deployed revision on its existing checkpoint."""
    CATCH_UP = "catch_up"
    """Wait until a version has caught up with its inputs within a bound."""
    VALIDATE = "validate"
    """Compare a version with the serving one at batches that have read the same input; run the project's checks."""
    HOLD = "hold"
    """Wait, with every new version running, until an operator releases the swap."""
    SWAP = "swap"
    """Move the pointers of `tables` (sinks first) to their new versions: CREATE VIEW when absent, else ALTER VIEW."""
    RESTART = "restart"
    """Stop, then start the new revision on the same checkpoint."""
    REWRITE = "rewrite"
    """Stop, then upsert every row again into the same table with the new revision, on a new checkpoint."""
    SEAM = "seam"
    """Stop, then continue the same table on another version of the upstream table, from the matching position."""
    ALTER = "alter"
    """ALTER TABLE ADD COLUMNS on the physical table, and the registration DDL in the ledger."""
    STOP = "stop"
    """Stop the query of a version and verify that it stopped; table and checkpoint stay."""
    SOAK = "soak"
    """Keep a replaced version running for a while, after which the agent stops it; the pool does not change."""
    RECORD = "record"
    """Write the declared revision into the registry; the pool does not change."""
    UNPOINT = "unpoint"
    """Drop the pointer view of a deleted table."""
    TOMBSTONE = "tombstone"
    """Drop a version's table from the catalog and move its files and checkpoint to the trash until `drop_after`."""
    RESTORE = "restore"
    """Move a version's files and checkpoint out of the trash and register its table; the query is not started."""
    OPTIMIZE = "optimize"
    """Compact the small files of a version's table; no row changes."""
    VACUUM = "vacuum"
    """Delete files that the current table version no longer references, once their retention is over."""


UPKEEP = frozenset({StepKind.OPTIMIZE, StepKind.VACUUM})
"""Maintenance of table files: these steps may take long, and no other step depends on them."""

BEGINS = frozenset({StepKind.START, StepKind.RESUME, StepKind.RESTART, StepKind.REWRITE, StepKind.SEAM})
"""Steps that wait for the first batch of the query that they start."""

MOVES_POINTERS = frozenset({StepKind.SWAP, StepKind.UNPOINT})
"""Steps that change what readers of a pointer see; they are not executed in a freeze window."""

READABLE_ONCE_STARTED = frozenset({StepKind.START, StepKind.RESUME})
NEEDS_PROOF = frozenset({StepKind.STOP, StepKind.TOMBSTONE, StepKind.UNPOINT})
"""Steps that cannot be undone; they never follow a start before its first batch."""

POLLED_WITH_EFFECT = MOVES_POINTERS | UPKEEP | {StepKind.SEAM}
"""Steps whose gate performs the effect; it is not polled while a run is paused."""


class Strategy(StrEnum):
    """How a statement is brought to its new revision."""

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
    Strategy.PARTIAL: "a new version from a time, a partition, or (Delta) a version or committed:TIME on",
    Strategy.FORK: "a new version with the rows, positions and state of the old one",
    Strategy.SEEDED: "a new version that begins with what comes from now on (@now)",
    Strategy.CARRY_OVER: "a new version that begins where the old one has read to; no state, same upstream tables",
    Strategy.KEYED: "the same table, from the earliest row, upserted again by its primary key",
    Strategy.CHAIN: "a new version that holds only new rows; the pointer is the union of both",
    Strategy.SEAM: "the statement keeps its table across a rebuilt upstream table, from the batch that had read as far",
}
"""A short description of each strategy, for help pages."""

FORKS = frozenset({Strategy.FORK, Strategy.CARRY_OVER, Strategy.CHAIN})
"""Strategies whose new version continues from the checkpoint of the old one."""

EXECUTABLE = frozenset(
    {
        "", Strategy.FIRST, Strategy.EARLIEST, Strategy.IN_PLACE, Strategy.PARTIAL, Strategy.SEAM, Strategy.FORK,
        Strategy.SEEDED, Strategy.CARRY_OVER, Strategy.CHAIN, Strategy.KEYED,
    }
)  # fmt: skip
"""Strategies that an agent can execute; plans with other strategies are refused when applied."""


def typed_strategy(strategy: str) -> str:
    """Return a strategy as written after `--strategy`."""
    return strategy.replace("_", "-")


def strategy_lines(width: int) -> tuple[str, ...]:
    """Return lines of `width` columns that explain each strategy and mark those not executable yet."""
    lines: list[str] = []
    for strategy, summary in STRATEGIES.items():
        words = summary if strategy in EXECUTABLE else f"{summary} (not executable yet)"
        lead = f"{typed_strategy(strategy):<12}"
        lines += textwrap.wrap(words, width, initial_indent=lead, subsequent_indent=" " * len(lead))
    return tuple(lines)
