"""Cleans up the new versions and pointers of a cancelled run, and the files that it moved to or from the trash.

New versions that do not serve are stopped. Effects that the ledger does not record, because the agent was killed after
them, are undone. Before a failed run is retried, its failed versions are stopped.
"""

import logging
from collections.abc import Callable, Iterable

from core.model.actions import StepKind
from core.model.errors import HeadgateError, LedgerUnavailable, PoolUnreachable, TryAgain
from core.model.events import EventKind
from core.model.names import TableName, physical_name, query_name
from core.model.states import State, WantedState
from core.observed.versions import Deployment
from core.plan.model import Step
from core.run.model import Run, StepState
from core.run.records import RunRow
from pipelines.agent.context import AgentContext
from pipelines.agent.identity.registry_records import record_serving
from pipelines.agent.pool.pointers import put_back
from pipelines.agent.runs.run_context import running_readers
from pipelines.agent.runs.stop_and_trash_steps import back_from_trash, back_into_trash
from pipelines.agent.statements.deployment_lifecycle import mark_stopped, stop

log = logging.getLogger(__name__)

_BEGINS = (StepKind.START, StepKind.RESUME)

Versions = tuple[tuple[str, int], ...]


def give_up(agent: AgentContext, versions: Versions, *, since: int) -> tuple[Deployment, ...]:
    """Set the desired state of a run's non-serving versions to stopped, and return these versions, readers first.

    A version that still has readers keeps running. So does a version that was started by a command later than `since`,
    the serial number of the cancel command, because a cancel may be handled late or twice.
    """
    given_up = []
    for table, version in reversed(versions):
        key = (TableName(table), version)
        with agent.locks.holding(key, by="a cancel"):
            found = agent.ledger.deployment(*key)
            if found is None or found.active or found.deleted or agent.ledger.is_started_since(*key, since):
                continue
            if found.wanted == WantedState.RUNNING:
                if readers := running_readers(agent, *key):
                    if found.stops_at is None:
                        agent.event(EventKind.STATE, f"keeps running after a cancel: {readers} reads it", about=key)
                        agent.ledger.update_deployment(*key, stops_at=agent.clock())
                    continue
                agent.ledger.update_deployment(*key, wanted=WantedState.STOPPED)
            given_up.append(found)
    return tuple(given_up)


def call_off_starts(agent: AgentContext, row: RunRow) -> None:
    """Cancel the starts that a run has recorded but not performed.

    Waits for start calls that have not returned, because their queries may still appear. Raises Busy if these calls
    take too long.
    """
    for key in dict.fromkeys((TableName(step.table), step.version) for step in row.steps if step.table):
        found = agent.ledger.deployment(*key)
        if found is None or found.wanted != WantedState.RUNNING or found.state not in (State.STOPPING, State.STOPPED):
            continue
        with agent.locks.holding(key, by="a cancel"):
            agent.ledger.call_off_start(*key, cancelled=row.id)


def stop_failed(agent: AgentContext, row: RunRow) -> None:
    """Set the desired state of a run's failed new versions to stopped, so that a retry starts them again.

    Steps such as a catch-up gate or a hold restart versions that are stopped, but not versions that have failed.
    """
    begun = ((TableName(step.table), step.version) for step in row.steps if step.do in _BEGINS)
    for deployment in (agent.ledger.deployment(*key) for key in dict.fromkeys(begun)):
        if deployment is not None and not deployment.active and deployment.state == State.FAILED:
            # Unless an operator has started it since.
            agent.ledger.observe_deployment(deployment, wanted=WantedState.STOPPED)


def abort(agent: AgentContext, run_id: str, given_up: Iterable[Deployment]) -> None:
    """Stop the versions in `given_up`, which the run no longer needs. Their tables and checkpoints are kept.

    The reconciler stops versions that cannot be stopped now, because the ledger already records that they should not
    run.
    """
    for deployment in given_up:
        key = (deployment.table, deployment.version)
        try:
            with agent.locks.holding(key, by=f"run {run_id}"):
                now = agent.ledger.deployment(*key)
                if now is None or now.wanted == WantedState.RUNNING:
                    # An operator has started it since.
                    continue
                stop(agent, now)
                mark_stopped(agent, now)
        except HeadgateError as error:
            log.warning("%s of a cancelled run will be stopped later: %s", query_name(*key), error.summary)


def undo_cancelled(agent: AgentContext, run: Run) -> None:
    """Undo the unfinished steps of a cancelled run. Raises TryAgain if this call must be repeated.

    Does not wait for the pool. An effect that cannot be undone is reported as an event.
    """
    cut_off = [p.step for p in run.steps if p.tries and p.state is StepState.CANCELLED]
    for step in reversed(cut_off):
        if step.do is StepKind.TOMBSTONE:
            _undo(agent, run, step, lambda found: not found.deleted, back_from_trash)
        elif step.do is StepKind.RESTORE:
            _undo(agent, run, step, lambda found: found.deleted, back_into_trash)
    swapped = {table for step in cut_off if step.do is StepKind.SWAP for table in (step.tables or (step.table,))}
    unpointed = {p.step.table for p in run.steps if p.step.do is StepKind.UNPOINT and p.tries}
    serving = {found.table for found in agent.ledger.deployments() if found.active}
    point_to_serving_versions(agent, run.id, swapped | (unpointed & serving))


def point_to_serving_versions(agent: AgentContext, run_id: str, tables: Iterable[TableName]) -> None:
    """Point tables to the versions that serve according to the ledger, and record these versions in the data folder.

    If the pool is unreachable, the reconciler corrects the pointers later.
    """
    if not (names := sorted(tables)):
        return
    try:
        put_back(agent, names)
    except LedgerUnavailable:
        raise
    except HeadgateError as error:
        for pool in agent.pools.every():
            pool.tables_with_uncertain_pointer.update(names)
        _report(agent, f"pointers that run {run_id} has moved could not be moved back yet", error)
    serving = {d.table: d.version for d in agent.ledger.deployments() if d.active and d.table in names}
    try:
        agent.ledger.put_served(record_serving(agent, serving, run_id))
    except LedgerUnavailable:
        raise
    except HeadgateError as error:
        agent.serving_record_is_stale.set()
        log.warning("the serving versions are recorded later: %s", error.summary)


def _undo(
    agent: AgentContext,
    run: Run,
    step: Step,
    is_unrecorded: Callable[[Deployment], bool],
    undo: Callable[[AgentContext, Deployment], None],
) -> None:
    key = (step.table, step.version)
    try:
        with agent.locks.holding(key, by=f"run {run.id}"):
            found = agent.ledger.deployment(*key)
            if found is not None and is_unrecorded(found):
                undo(agent, found)
    except HeadgateError as error:
        if isinstance(error, TryAgain) and not isinstance(error, PoolUnreachable):
            raise
        # If the pool is unreachable, its next catalog is filled from the ledger, and the trash is purged anyway.
        _report(agent, f"{physical_name(*key)} is not back where it was before run {run.id} was cancelled", error)


def _report(agent: AgentContext, summary: str, error: HeadgateError) -> None:
    log.warning("%s: %s", summary, error.summary)
    agent.event(EventKind.RUN, summary, detail=error.sentence)
