"""What a plan can do: actions on statements, kinds of steps, and strategies, with those that an agent carries out."""

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


class StepKind(StrEnum):
    """What a step does: the executor branches on this and on nothing else of the plan."""

    REGISTER = "register"
    """CREATE TABLE IF NOT EXISTS for an external table."""
    CREATE = "create"
    """Physical table of a version, its empty checkpoint with owner file, `_headgate.json` beside both."""
    START = "start"
    """Start the query of a version on its new checkpoint."""
    RESUME = "resume"
    """Start the deployed revision on its existing checkpoint."""
    CATCH_UP = "catch_up"
    """Wait until a version has caught up with its inputs, within a bound."""
    SWAP = "swap"
    """Move the pointers of `tables` (sinks first) to their new versions: CREATE VIEW when absent, else ALTER VIEW."""
    RESTART = "restart"
    """Stop, then start the new revision on the same checkpoint."""
    ALTER = "alter"
    """ALTER TABLE ADD COLUMNS on the physical table, and the registration DDL in the ledger."""
    STOP = "stop"
    """Stop the query of a version and prove it stopped; table and checkpoint stay."""
    RECORD = "record"
    """Write the declared revision into the registry; nothing on the pool changes."""
    UNPOINT = "unpoint"
    """Drop the pointer view of a deleted table."""
    TOMBSTONE = "tombstone"
    """Take a version's table from the catalog and set its files and checkpoint aside until `drop_after`."""


class Strategy(StrEnum):
    """How a statement comes to its new revision."""

    FIRST = "first"
    """A first start, from the earliest row."""
    EARLIEST = "earliest"
    """A new version beside the old, from the earliest row."""
    IN_PLACE = "in_place"
    """A restart on the same checkpoint and table."""
    PARTIAL = "partial"
    """A new version from a time, a version or a partition on."""
    FORK = "fork"
    """A new version with a copy of checkpoint and state."""
    SEEDED = "seeded"
    """A new version that begins at a position."""
    CARRY_OVER = "carry_over"
    """A new version that begins where the old one has read to: stateless, same parents."""
    KEYED = "keyed"
    """IN-PLACE: the same table is upserted again by its primary key."""
    CHAIN = "chain"
    """A new version that holds only new rows; the pointer is the union of both."""
    SEAM = "seam"
    """The statement keeps its table across a rebuilt parent, from the batch that had read the same inputs."""


EXECUTABLE = frozenset({"", Strategy.FIRST, Strategy.EARLIEST, Strategy.IN_PLACE})
"""Strategies that an agent carries out; the others are planned, and refused by name when they are applied."""
