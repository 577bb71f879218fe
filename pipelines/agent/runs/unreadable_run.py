"""Ending a run that this version cannot execute: its plan is missing, or of another version, or met a bug of ours."""

from collections.abc import Iterable
from dataclasses import replace

from core.model.actions import StepKind
from core.model.names import TableName
from core.plan.model import Step
from core.run.model import FINISHED, Run, RunState, StepProgress, StepState
from core.run.state_machine import AbortVersions, OperatorControl, advance_run
from pipelines.agent.context import AgentContext
from pipelines.agent.runs.aborted_versions import abort
from state.row_types import RunRow


def end_unreadable(world: AgentContext, row: RunRow, why: str, words: Iterable[OperatorControl]) -> None:
    """End a run failed, or cancelled where an operator has said so; its tables are free either way.

    A run that ended failed can be retried by a version that reads it, and cancelled by any.
    """
    row = _with_recorded_swap(world, row)
    cancelled = next((word for word in words if word.act == "cancel"), None)
    if cancelled is not None:
        _cancel(world, row, cancelled)
    else:
        _fail(world, row, why)


def _with_recorded_swap(world: AgentContext, row: RunRow) -> RunRow:
    """Return the row with a swap done that the registry has: what it moved serves, whatever becomes of the run."""
    steps = []
    for step in row.steps:
        found = world.ledger.deployment(TableName(step.table), step.version) if step.do == StepKind.SWAP else None
        if step.state not in FINISHED and found is not None and found.active and found.served_by == row.id:
            step = replace(step, state=StepState.DONE.value, note="recorded before", ended_at=found.served_at)
            world.ledger.put_step(row.id, step)
        steps.append(step)
    return replace(row, steps=tuple(steps))


def _cancel(world: AgentContext, row: RunRow, word: OperatorControl) -> None:
    """Stop what it has started beside what serves, as far as the rows of its steps tell."""
    steps = tuple(
        StepProgress(
            Step(step.n, StepKind(step.do), TableName(step.table), step.version, after=(), why=""),
            StepState(step.state),
        )
        for step in row.steps
    )
    run, intents = advance_run(Run(row.id, RunState(row.state), steps), (word,))
    for intent in intents:
        if isinstance(intent, AbortVersions):
            abort(world, row.id, intent.versions)
    for step, progress in zip(row.steps, run.steps, strict=True):
        if progress.state != step.state:
            world.ledger.put_step(row.id, replace(step, state=progress.state.value, note=progress.note))
    _close(world, row, RunState.CANCELLED, "")


def _fail(world: AgentContext, row: RunRow, why: str) -> None:
    """Show the error at the first step that is not finished."""
    open_step = next((step for step in row.steps if step.state not in FINISHED), None)
    if open_step is not None:
        ended = replace(open_step, state=StepState.FAILED.value, note=why, ended_at=world.clock())
        world.ledger.put_step(row.id, ended)
    _close(world, row, RunState.FAILED, why)


def _close(world: AgentContext, row: RunRow, state: RunState, why: str) -> None:
    world.ledger.put_run_state(row.id, state.value, ended_at=world.clock())
    world.event("run", f"run {row.id} {state}", detail=why)
    world.audit(row.actor, "run", row.id, plan_hash=row.plan_hash, outcome=state.value)
