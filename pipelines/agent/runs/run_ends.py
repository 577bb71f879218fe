"""Ends runs: writes their last events and audit entries, rejects late commands, and ends runs that cannot continue.

A run cannot continue if this Headgate version cannot execute it or if its environment has changed. Events are written
in the transaction that records the reported change (`RunWrites.advance_run`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from core.model.actions import StepKind
from core.model.events import EventCause, EventKind
from core.model.names import TableName
from core.plan.descriptions import act_words
from core.plan.model import Step
from core.run.model import ACCEPTED_IN, FINISHED, Run, RunState, StepProgress, StepState
from core.run.records import RunRow, StepRow
from core.run.state_machine import AbortVersions, advance_run, recover_run
from core.text.sentence import Sentence
from pipelines.agent.context import AgentContext, event_row
from pipelines.agent.runs.cancelled_run_cleanup import abort, call_off_starts, give_up, undo_cancelled
from state.row_types import AuditRow, EventRow
from state.runs import RunCommandRow, control_of


def end_of(run: RunRow, at: float, detail: str) -> tuple[EventRow, AuditRow]:
    """Return the event and the audit entry for the end of a run. Both contain the run's final state."""
    audited = AuditRow(0, at, run.actor, "run", run.id, plan_hash=run.plan_hash, outcome=run.state)
    event = event_row(at, EventKind.RUN, f"run {run.id} {run.state}", detail=detail)
    return replace(event, state=run.state, cause=EventCause.RUN, by=run.id), audited


def dropped_command_event(run_id: str, state: str, command: RunCommandRow, at: float, why: str = "") -> EventRow:
    """Return the event for an operator command that was not carried out because the run is already in `state`."""
    summary = f"the command to {command.act} run {run_id} was not carried out: the run is {state}"
    return event_row(at, EventKind.RUN, summary, detail="; ".join(filter(None, (f"asked for by {command.actor}", why))))


def late_command_events(before: Run, after: Run, commands: Iterable[RunCommandRow], at: float) -> tuple[EventRow, ...]:
    """Return an event for each command that arrived too late to have an effect."""
    told = []
    for command in commands:
        if command.act == "skip":
            if (found := after.step(command.step)).state is not StepState.SKIPPED:
                what = f"{act_words(found.step.do)} {found.step.table}".strip()
                why = "it waits" if found.state is StepState.WAITS else f"it is {found.state}"
                summary = f"step {command.step} of run {after.id}, {what}, was not skipped: {why}"
                told.append(event_row(at, EventKind.RUN, summary, detail=f"asked for by {command.actor}"))
        elif before.state not in ACCEPTED_IN[command.act]:
            told.append(dropped_command_event(after.id, after.state, command, at))
        elif command.act == "swap" and not _has_ended_a_hold(before, after):
            summary = f"the command to swap run {after.id} was not carried out: nothing was held any more"
            told.append(event_row(at, EventKind.RUN, summary, detail=f"asked for by {command.actor}"))
    return tuple(told)


def _has_ended_a_hold(before: Run, after: Run) -> bool:
    ended = {p.step.n for p in after.steps if p.step.do is StepKind.HOLD and p.state is StepState.DONE}
    return any(before.step(n).state is not StepState.DONE for n in ended)


def end_unexecutable(agent: AgentContext, row: RunRow, why: str, commands: Sequence[RunCommandRow]) -> None:
    """End a run that cannot be executed, as cancelled if one of `commands` is a cancel and as failed otherwise.

    In both cases, the run releases its tables. A run that is already done or cancelled is not changed. A failed run can
    be retried by any Headgate version that can read it, and cancelled by any version. The run's versions are locked, so
    that no step is in progress and none begins afterwards; raises Busy if a step takes too long. Pending commands are
    deleted, with an event for each author, so that only a later command resumes the run. A cancel that is not among
    `commands` is kept, and is carried out next if the run has failed.
    """
    keys = {(TableName(step.table), step.version) for step in row.steps if step.table}
    with agent.locks.holding(*keys, by=f"the end of run {row.id}"):
        row = agent.ledger.run(row.id) or row
        heard = [command for command in commands if command.act == "cancel" and row.state in ACCEPTED_IN["cancel"]]
        if heard:
            steps, state, why = _cancelled(agent, row, heard[0]), RunState.CANCELLED, ""
        elif row.ended_at is None:
            steps, state = _failed(agent, row, why), RunState.FAILED
        else:
            steps, state = row.steps, RunState(row.state)
        now, ends = agent.clock(), state != row.state
        written = agent.ledger.advance_run(
            row.id,
            was=row.state,
            state=state.value,
            ended_at=now if ends else row.ended_at,
            steps=[step for step in steps if step not in row.steps],
            heard=[command.serial for command in heard],
            told=end_of(replace(row, state=state.value), now, why) if ends else (),
            dropped=lambda command: dropped_command_event(row.id, state, command, now, why),
        )
    if not written and row.ended_at is None:
        # The run's thread has recorded a change in the meantime, such as a pause.
        end_unexecutable(agent, row, why, commands)


def _with_recorded_swap(agent: AgentContext, row: RunRow) -> tuple[StepRow, ...]:
    steps = []
    for step in row.steps:
        found = agent.ledger.deployment(TableName(step.table), step.version) if step.do == StepKind.SWAP else None
        if step.state not in FINISHED and found is not None and found.active and found.served_by == row.id:
            step = replace(step, state=StepState.DONE.value, note="recorded before", ended_at=found.served_at)
        steps.append(step)
    return tuple(steps)


def _cancelled(agent: AgentContext, row: RunRow, command: RunCommandRow) -> tuple[StepRow, ...]:
    """Stop the versions that a run has started, undo its unfinished steps, and return the new rows of its steps.

    A step whose kind or state only newer Headgate versions know is cancelled but not undone.
    """
    rows = _with_recorded_swap(agent, row)
    known = [step for step in rows if step.do in set(StepKind) and step.state in set(StepState)]
    steps = tuple(StepProgress(_step(row, step), StepState(step.state), step.tries) for step in known)
    run, intents = advance_run(recover_run(Run(row.id, RunState(row.state), steps)), (control_of(command),))
    for intent in intents:
        if isinstance(intent, AbortVersions):
            abort(agent, row.id, give_up(agent, intent.versions, since=command.statement_serial))
    call_off_starts(agent, row)
    undo_cancelled(agent, run)
    after = {p.step.n: p for p in run.steps}
    return tuple(_after_cancel(step, after.get(step.n)) for step in rows)


def _after_cancel(step: StepRow, progress: StepProgress | None) -> StepRow:
    if progress is not None:
        return replace(step, state=progress.state.value, note=progress.note or step.note)
    if step.state in FINISHED:
        return step
    return replace(step, state=StepState.CANCELLED.value, note="cancelled, not undone: this version does not know it")


def _step(row: RunRow, step: StepRow) -> Step:
    # The row of a swap contains only one table; its other tables are those with a catch-up gate.
    gates = {TableName(found.table) for found in row.steps if found.do == StepKind.CATCH_UP}
    tables = tuple(sorted({TableName(step.table), *gates})) if step.do == StepKind.SWAP else ()
    return Step(
        step.n, StepKind(step.do), TableName(step.table), step.version, after=(), why=Sentence(""), tables=tables
    )


def _failed(agent: AgentContext, row: RunRow, why: str) -> tuple[StepRow, ...]:
    steps = _with_recorded_swap(agent, row)
    open_step = next((step for step in steps if step.state not in FINISHED), None)
    return tuple(
        replace(step, state=StepState.FAILED.value, note=why, ended_at=agent.clock()) if step is open_step else step
        for step in steps
    )
