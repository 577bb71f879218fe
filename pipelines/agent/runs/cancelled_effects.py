"""What a cancelled run has begun and not ended goes back: pointers, and what is on its way into the trash or out of it.

The ledger counts: whatever a step had not recorded there yet is undone, also where an agent was killed in between.
"""

import logging
from collections.abc import Callable, Iterable

from core.model.actions import StepKind
from core.model.errors import HeadgateError, LedgerUnavailable, PoolUnreachable, TryAgain
from core.model.names import TableName, physical_name
from core.plan.model import Step
from core.run.model import Run, StepState
from pipelines.agent.context import AgentContext
from pipelines.agent.registry_records import serve
from pipelines.agent.runs.pointer_moves import put_back
from pipelines.agent.runs.trash_moves import back_from_trash, back_into_trash
from state.row_types import Deployment

log = logging.getLogger(__name__)


def undo_cancelled(world: AgentContext, run: Run) -> None:
    """Undo what the steps of a run have begun that a cancel has ended; raises TryAgain where it has to be tried again.

    The pool is not waited for, and what cannot be undone is an event.
    """
    cut_off = [p.step for p in run.steps if p.tries and p.state is StepState.CANCELLED]
    for step in reversed(cut_off):
        if step.do is StepKind.TOMBSTONE:
            _undo(world, run, step, lambda found: not found.deleted, back_from_trash)
        elif step.do is StepKind.RESTORE:
            _undo(world, run, step, lambda found: found.deleted, back_into_trash)
    swapped = {table for step in cut_off if step.do is StepKind.SWAP for table in (step.tables or (step.table,))}
    unpointed = {p.step.table for p in run.steps if p.step.do is StepKind.UNPOINT and p.tries}
    serving = {found.table for found in world.ledger.deployments() if found.active}
    lead_to_serving(world, run.id, swapped | (unpointed & serving))


def lead_to_serving(world: AgentContext, run_id: str, tables: Iterable[TableName]) -> None:
    """Have pointers lead to what serves by the ledger, and record that; the reconciler goes on where a pool is away."""
    if not (names := sorted(tables)):
        return
    try:
        put_back(world, names)
    except LedgerUnavailable:
        raise
    except HeadgateError as error:
        world.adrift.update(names)
        _tell(world, f"pointers that run {run_id} has moved could not be moved back yet", error)
    serving = {d.table: d.version for d in world.ledger.deployments() if d.active and d.table in names}
    try:
        world.ledger.put_served(serve(world, serving, run_id))
    except LedgerUnavailable:
        raise
    except HeadgateError as error:
        world.unserved.set()
        log.warning("what serves is recorded later: %s", error.summary)


def _undo(
    world: AgentContext,
    run: Run,
    step: Step,
    is_unrecorded: Callable[[Deployment], bool],
    undo: Callable[[AgentContext, Deployment], None],
) -> None:
    key = (step.table, step.version)
    try:
        with world.locks.holding(key, by=f"run {run.id}"):
            found = world.ledger.deployment(*key)
            if found is not None and is_unrecorded(found):
                undo(world, found)
    except HeadgateError as error:
        if isinstance(error, TryAgain) and not isinstance(error, PoolUnreachable):
            raise
        # Of what the pool does not hear, a new catalog is filled, and what is in the trash is purged all the same.
        _tell(world, f"{physical_name(*key)} is not back where it was before run {run.id} was cancelled", error)


def _tell(world: AgentContext, summary: str, error: HeadgateError) -> None:
    log.warning("%s: %s", summary, error.summary)
    world.event("run", summary, detail=error.sentence)
