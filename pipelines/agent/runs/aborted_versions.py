"""Stopping what a run has started beside what serves: where it is cancelled, or to be started anew by a retry."""

import logging
from collections.abc import Iterable

from core.model.actions import StepKind
from core.model.errors import HeadgateError
from core.model.names import TableName, query_name
from core.model.states import State, WantedState
from pipelines.agent.context import AgentContext
from pipelines.agent.deployment_lifecycle import mark_stopped, stop
from pipelines.agent.runs.open_run import running_readers
from state.row_types import Deployment, RunRow

log = logging.getLogger(__name__)

_BEGINS = (StepKind.START, StepKind.RESUME)

Versions = tuple[tuple[str, int], ...]


def give_up(world: AgentContext, versions: Versions, *, since: int) -> tuple[Deployment, ...]:
    """Record that versions which do not serve are wanted stopped; returns them, those that read others first.

    One that anything else reads by now runs on, as after a release, until nothing reads it. So does one that was
    started by a word later than the serial `since`, which is that of the cancel: it may be tried again, or late.
    """
    given_up = []
    for table, version in reversed(versions):
        key = (TableName(table), version)
        with world.locks.holding(key, by="a cancel"):
            found = world.ledger.deployment(*key)
            if found is None or found.active or found.deleted or world.ledger.is_started_since(*key, since):
                continue
            if found.wanted == WantedState.RUNNING:
                if readers := running_readers(world, *key):
                    if found.stops_at is None:
                        world.event("state", f"runs on after a cancel: {readers} reads it", about=key)
                        world.ledger.update_deployment(*key, stops_at=world.clock())
                    continue
                world.ledger.update_deployment(*key, wanted=WantedState.STOPPED)
            given_up.append(found)
    return tuple(given_up)


def call_off_starts(world: AgentContext, row: RunRow) -> None:
    """Record that what a run was to start, and has not, is wanted stopped as before; raises as `holding` does.

    A start that was sent and not answered is waited for: its query may come yet.
    """
    for key in dict.fromkeys((TableName(step.table), step.version) for step in row.steps if step.table):
        found = world.ledger.deployment(*key)
        if found is None or found.wanted != WantedState.RUNNING or found.state not in (State.STOPPING, State.STOPPED):
            continue
        with world.locks.holding(key, by="a cancel"):
            world.ledger.call_off_start(*key, cancelled=row.id)


def stop_failed(world: AgentContext, row: RunRow) -> None:
    """Record that new versions of a run that have failed are wanted stopped: after a retry its steps start them again.

    A step starts what is wanted stopped, and leaves alone what has failed since.
    """
    begun = ((TableName(step.table), step.version) for step in row.steps if step.do in _BEGINS)
    for deployment in (world.ledger.deployment(*key) for key in dict.fromkeys(begun)):
        if deployment is not None and not deployment.active and deployment.state == State.FAILED:
            # Unless an operator has begun it since.
            world.ledger.observe_deployment(deployment, wanted=WantedState.STOPPED)


def abort(world: AgentContext, run_id: str, given_up: Iterable[Deployment]) -> None:
    """Stop what a run started beside what serves and has given up; tables and checkpoints stay.

    What cannot be stopped now is recorded as wanted stopped by then, and the reconciler stops it.
    """
    for deployment in given_up:
        key = (deployment.table, deployment.version)
        try:
            with world.locks.holding(key, by=f"run {run_id}"):
                now = world.ledger.deployment(*key)
                if now is None or now.wanted == WantedState.RUNNING:
                    # An operator has started it since.
                    continue
                stop(world, now)
                mark_stopped(world, now)
        except HeadgateError as error:
            log.warning("%s of a cancelled run will be stopped later: %s", query_name(*key), error.summary)
