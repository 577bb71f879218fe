"""Runs, steps, check results and migration tickets as the ledger records them. Times are in epoch seconds or None."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from core.model.names import TableName, physical_name
from core.model.states import WantedState
from core.observed.versions import KnownVersion
from core.run.model import HALTED, RunState, StepState


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step of a run; `state` is a value of `core.run.model.StepState`."""

    n: int
    do: str
    table: str
    version: int
    state: str
    tries: int = 0
    note: str = ""
    """One line with figures of the gate, the error, or the reason why the step is kept or blocked."""
    started_at: float | None = None
    ended_at: float | None = None
    intent_at: float | None = None
    predicted_low_s: float | None = None
    """Shortest predicted duration, computed before the run starts; None if no comparable step was measured."""
    predicted_high_s: float | None = None


@dataclass(frozen=True, slots=True)
class RunRow:
    """One execution of a plan; `state` is a value of `core.run.model.RunState`."""

    id: str
    plan_hash: str
    actor: str
    state: str
    started_at: float
    ended_at: float | None
    steps: tuple[StepRow, ...] = ()
    continues: str = ""
    """Id of the failed run that this run continues."""
    continued_by: str = ""
    """Id of the run that continues this one."""
    serial: int = 0
    """Serial number of the command that applied or last retried the run; a stop with a higher number is more recent."""
    acknowledged_by: str = ""
    """User who acknowledged the failure of the run; empty if it is not acknowledged."""
    predicted_low_s: float | None = None
    """Shortest predicted duration of the whole run, computed before the run starts; None if unknown."""
    predicted_high_s: float | None = None


def halted(run: RunRow) -> RunRow:
    """Return a run as it is while no agent is alive; the next agent continues it.

    If the run is running, its state is `halted`, and so is that of every step that the agent had begun.
    """
    if run.state not in (RunState.RUNNING, RunState.PAUSED):
        return run
    begun = (StepState.RUNNING, StepState.GATE)
    steps = tuple(replace(step, state=HALTED) if step.state in begun else step for step in run.steps)
    return replace(run, state=HALTED if run.state == RunState.RUNNING else run.state, steps=steps)


@dataclass(frozen=True, slots=True)
class MigrationTicket:
    """A reader that still reads a replaced version, recorded when a run moves the pointer to another version."""

    run_id: str
    table: TableName
    reader: str
    """A statement that keeps reading the old version, or an exposure."""
    product: str
    owner: str
    is_statement: bool
    """True if the reader is a statement, whose ticket closes once it no longer reads the old version."""
    old: str
    """Physical table of the old version, such as `orders__v1`."""
    new: str
    cut_batch: int | None
    """Last batch of the old version that was known at the swap; None if no batch was known."""
    cut_at: float
    """When the pointer moved to the new version, in epoch seconds."""
    deadline: float
    """When the reader should have moved to the new version, in epoch seconds."""
    closed_at: float | None = None
    closed_by: str = ""

    @property
    def version(self) -> int:
        """The number of the old version."""
        return int(self.old.rpartition("__v")[2])


OVERLAY_COMPARISON = "overlay"
"""The `run_id` of the results of the newest comparison of an overlay with its base; no run has this id."""


@dataclass(frozen=True, slots=True)
class CheckResultRow:
    """The result of a check of a table's rows in a release, or in a comparison of an overlay with its base.

    `verdict` is a value of `core.validation.verdicts.CheckVerdict`. In a comparison with the base, the old version is
    one of the base; version 0 means that one side does not have the table.
    """

    run_id: str
    """Id of the release's run, or OVERLAY_COMPARISON."""
    table: TableName
    n: int
    """Display position of the result, counted from 1."""
    at: float
    old_version: int
    new_version: int
    old_batch: int | None
    """Batch of the old version up to which rows were compared; None if none were compared."""
    new_batch: int | None
    check: str
    verdict: str
    summary: str
    counts: dict[str, object] = field(default_factory=dict)
    examples: tuple[dict[str, object], ...] = ()
    """Mappings with the keys `why`, `old` and `new`; bounded in number, with likely secrets masked."""


def open_tickets(tickets: Iterable[MigrationTicket], versions: Iterable[KnownVersion]) -> tuple[MigrationTicket, ...]:
    """Return the tickets of readers that still read a replaced version.

    The ticket of a statement closes once no version of the statement reads the old version, and the ticket of an
    exposure when an operator closes it. All tickets close if the old version is gone or serves again.
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
    """Return the open tickets whose deadline has passed, longest overdue first."""
    return tuple(sorted((one for one in tickets if one.deadline < now), key=lambda one: (one.deadline, one.reader)))
