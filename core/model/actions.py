"""What a plan can do: actions on statements, kinds of steps, and strategies, with those that an agent carries out."""

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
    """What a step does: the executor branches on this and on nothing else of the plan."""

    REGISTER = "register"
    """CREATE TABLE IF NOT EXISTS for an external table."""
    CREATE = "create"
    """Physical table of a version, its empty checkpoint with owner file, `_headgate.json` beside both."""
    FORK = "fork"
    """Have a new version go on after the newest batch of the old one, which is only read: positions, state, rows."""
    SEED = "seed"
    """Have a new version count what its sources hold now as read."""
    START = "start"
    """Start the query of a version on its new checkpoint."""
    RESUME = "resume"
    """Start the deployed revision on its existing checkpoint."""
    CATCH_UP = "catch_up"
    """Wait until a version has caught up with its inputs, within a bound."""
    VALIDATE = "validate"
    """Compare a version with the one that serves, at batches that have read the same, and run the project's checks."""
    HOLD = "hold"
    """Wait, with every new version running, until somebody gives the word to swap."""
    SWAP = "swap"
    """Move the pointers of `tables` (sinks first) to their new versions: CREATE VIEW when absent, else ALTER VIEW."""
    RESTART = "restart"
    """Stop, then start the new revision on the same checkpoint."""
    REWRITE = "rewrite"
    """Stop, then write every row again into the same table by its key, on a new checkpoint, with the new revision."""
    SEAM = "seam"
    """Stop, then go on in the same table over another version of the upstream table, where that had read the same."""
    ALTER = "alter"
    """ALTER TABLE ADD COLUMNS on the physical table, and the registration DDL in the ledger."""
    STOP = "stop"
    """Stop the query of a version and prove it stopped; table and checkpoint stay."""
    SOAK = "soak"
    """Have a version that was replaced run on for a while; then the agent stops it. Nothing on the pool changes."""
    RECORD = "record"
    """Write the declared revision into the registry; nothing on the pool changes."""
    UNPOINT = "unpoint"
    """Drop the pointer view of a deleted table."""
    TOMBSTONE = "tombstone"
    """Take a version's table from the catalog and set its files and checkpoint aside until `drop_after`."""
    RESTORE = "restore"
    """Put a version's files and checkpoint back from the trash, and its table into the catalog; it does not run yet."""
    OPTIMIZE = "optimize"
    """Write the small files of a version's table into large ones; no row changes."""
    VACUUM = "vacuum"
    """Delete the files that the newest version of a version's table does not hold, once their time is over."""


UPKEEP = frozenset({StepKind.OPTIMIZE, StepKind.VACUUM})
"""Steps that look after the files of a table: they may take long, and nothing relies on them."""

BEGINS = frozenset({StepKind.START, StepKind.RESUME, StepKind.RESTART, StepKind.REWRITE, StepKind.SEAM})
"""Steps that wait, once their query has started, until it has proved that it works."""

MOVES_POINTERS = frozenset({StepKind.SWAP, StepKind.UNPOINT})
"""Steps that change what readers of a pointer see; none is done in a freeze window."""

READABLE_ONCE_STARTED = frozenset({StepKind.START, StepKind.RESUME})
NEEDS_PROOF = frozenset({StepKind.STOP, StepKind.TOMBSTONE, StepKind.UNPOINT})
"""What cannot be undone never follows a start that is not proved."""

POLLED_WITH_EFFECT = MOVES_POINTERS | UPKEEP | {StepKind.SEAM}
"""Steps whose gate does their effect once it can: nobody looks at it while a run is paused."""


class Strategy(StrEnum):
    """How a statement comes to its new revision."""

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
"""What each strategy is, for help and readers of the code."""

FORKS = frozenset({Strategy.FORK, Strategy.CARRY_OVER, Strategy.CHAIN})
"""Strategies whose new version goes on from the checkpoint of the old one."""

EXECUTABLE = frozenset(
    {
        "", Strategy.FIRST, Strategy.EARLIEST, Strategy.IN_PLACE, Strategy.PARTIAL, Strategy.SEAM, Strategy.FORK,
        Strategy.SEEDED, Strategy.CARRY_OVER, Strategy.CHAIN, Strategy.KEYED,
    }
)  # fmt: skip
"""Strategies that an agent carries out; the others are planned, and refused by name when they are applied."""


def typed_strategy(strategy: str) -> str:
    """Write a strategy as `--strategy` takes it."""
    return strategy.replace("_", "-")


def strategy_lines(width: int) -> tuple[str, ...]:
    """Explain each strategy in `width` columns, its name in front; those that no agent carries out yet say so."""
    lines: list[str] = []
    for strategy, summary in STRATEGIES.items():
        words = summary if strategy in EXECUTABLE else f"{summary} (not executable yet)"
        lead = f"{typed_strategy(strategy):<12}"
        lines += textwrap.wrap(words, width, initial_indent=lead, subsequent_indent=" " * len(lead))
    return tuple(lines)
