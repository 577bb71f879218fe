"""Runs, steps, check results and migration tickets as the ledger records them; times are epoch seconds or None."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from core.model.names import TableName, physical_name
from core.model.states import WantedState
from core.observed.versions import KnownVersion


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step of a run; `state` of `core.run.model.StepState`."""

    n: int
    do: str
    table: str
    version: int
    state: str
    tries: int = 0
    note: str = ""
    """One line: the gate's figures, the error, or why it is kept or blocked."""
    started_at: float | None = None
    ended_at: float | None = None
    intent_at: float | None = None
    evidence: dict[str, object] = field(default_factory=dict)
    predicted_low_s: float | None = None
    """What was predicted before the run began, and is never changed; None where nothing like it was measured."""
    predicted_high_s: float | None = None


@dataclass(frozen=True, slots=True)
class RunRow:
    """One execution of a plan; `state` of `core.run.model.RunState`."""

    id: str
    plan_hash: str
    actor: str
    state: str
    started_at: float
    ended_at: float | None
    steps: tuple[StepRow, ...] = ()
    continues: str = ""
    """Id of the failed run that this one goes on from."""
    continued_by: str = ""
    """Id of the run that went on from this one."""
    serial: int = 0
    """Of the word that applied it, or retried it last: a stop with a higher one came during the run."""
    acknowledged_by: str = ""
    """Who has seen that it failed; empty while nobody has."""
    predicted_low_s: float | None = None
    """As of its steps."""
    predicted_high_s: float | None = None


@dataclass(frozen=True, slots=True)
class MigrationTicket:
    """A reader of a version that a run has replaced, written at the swap."""

    run_id: str
    table: TableName
    reader: str
    """A statement that stays on the old version, or a reader that the project only declares."""
    product: str
    owner: str
    is_statement: bool
    """Whether it is a statement of ours, whose ticket is closed by what it reads."""
    old: str
    """Physical table: `orders__v1`."""
    new: str
    cut_batch: int | None
    """Last batch of the old version that was known at the swap; None where none was."""
    cut_at: float
    """When the pointer moved."""
    deadline: float
    """Until when it is expected to have moved."""
    closed_at: float | None = None
    closed_by: str = ""

    @property
    def version(self) -> int:
        """The old version."""
        return int(self.old.rpartition("__v")[2])


@dataclass(frozen=True, slots=True)
class CheckResultRow:
    """One check of one table in a release; `verdict` of `core.validation.verdicts.CheckVerdict`."""

    run_id: str
    table: TableName
    n: int
    """From 1, in the order in which they are shown."""
    at: float
    old_version: int
    new_version: int
    old_batch: int | None
    """The batches up to which rows were compared; None where rows were not compared."""
    new_batch: int | None
    check: str
    verdict: str
    summary: str
    counts: dict[str, object] = field(default_factory=dict)
    examples: tuple[dict[str, object], ...] = ()
    """Each with `why`, `old` and `new`; bounded, and without what looks like a secret."""


def open_tickets(tickets: Iterable[MigrationTicket], versions: Iterable[KnownVersion]) -> tuple[MigrationTicket, ...]:
    """Return the tickets of readers that still read what was replaced.

    A statement's is closed once no version of it reads the old one, another's by an operator's word, and all where the
    old version is gone or serves again.
    """
    every = [one for one in versions if not one.deleted]
    reads = {
        (str(one.table), physical_name(binding.parent, binding.version))
        for one in every
        if one.active or one.wanted == WantedState.RUNNING
        for binding in one.bindings
    }
    there = {physical_name(one.table, one.version) for one in every if not one.active}
    return tuple(
        ticket
        for ticket in tickets
        if ticket.closed_at is None
        and ticket.old in there
        and (not ticket.is_statement or (ticket.reader, ticket.old) in reads)
    )


def overdue_tickets(tickets: Sequence[MigrationTicket], now: float) -> tuple[MigrationTicket, ...]:
    """Return those of open tickets whose time is over, the longest overdue first."""
    return tuple(sorted((one for one in tickets if one.deadline < now), key=lambda one: (one.deadline, one.reader)))
