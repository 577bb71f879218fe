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
    """One line: figures of the gate, the error, or why the step is kept or blocked."""
    started_at: float | None = None
    ended_at: float | None = None
    intent_at: float | None = None
    evidence: dict[str, object] = field(default_factory=dict)
    predicted_low_s: float | None = None
    """The prediction made before the run started, never changed; None without comparable measurements."""
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
    """Id of the failed run that this one continues."""
    continued_by: str = ""
    """Id of the run that continues this one."""
    serial: int = 0
    """Serial of the act that applied or last retried it; stops with a higher serial came later."""
    acknowledged_by: str = ""
    """Who acknowledged its failure; empty if nobody did."""
    predicted_low_s: float | None = None
    """As for its steps."""
    predicted_high_s: float | None = None


@dataclass(frozen=True, slots=True)
class MigrationTicket:
    """A reader of a version that a run replaced; written at the swap."""

    run_id: str
    table: TableName
    reader: str
    """A statement that stays on the old version, or an exposure."""
    product: str
    owner: str
    is_statement: bool
    """Whether the reader is a statement, whose ticket closes once it no longer reads the old version."""
    old: str
    """Physical table: `orders__v1`."""
    new: str
    cut_batch: int | None
    """Last batch of the old version known at the swap; None without one."""
    cut_at: float
    """When the pointer moved."""
    deadline: float
    """When the reader should have moved."""
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
    """The batches up to which rows were compared; None if they were not compared."""
    new_batch: int | None
    check: str
    verdict: str
    summary: str
    counts: dict[str, object] = field(default_factory=dict)
    examples: tuple[dict[str, object], ...] = ()
    """Each has `why`, `old` and `new`; their number is bounded and likely secrets are masked."""


def open_tickets(tickets: Iterable[MigrationTicket], versions: Iterable[KnownVersion]) -> tuple[MigrationTicket, ...]:
    """Return the tickets of readers that still read a replaced version.

    The ticket of a statement closes once none of its versions reads the old one, that of an exposure when an operator
    closes it. All tickets close if the old version is gone or serves again.
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
    """Return the open tickets past their deadline, the longest overdue first."""
    return tuple(sorted((one for one in tickets if one.deadline < now), key=lambda one: (one.deadline, one.reader)))
