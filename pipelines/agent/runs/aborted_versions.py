"""Stopping what a run has started beside what serves: by the steps of its plan, or by their rows without one."""

import logging

from core.model.errors import HeadgateError
from core.model.names import TableName, query_name
from core.model.states import WantedState
from pipelines.agent.context import AgentContext
from pipelines.agent.deployment_lifecycle import mark_stopped, stop
from state.row_types import Deployment

log = logging.getLogger(__name__)

Versions = tuple[tuple[str, int], ...]


def give_up(world: AgentContext, versions: Versions) -> tuple[Deployment, ...]:
    """Record that versions which do not serve are wanted stopped; returns them, those that read others first."""
    found = [world.ledger.deployment(TableName(table), version) for table, version in reversed(versions)]
    beside = tuple(deployment for deployment in found if deployment is not None and not deployment.active)
    for deployment in beside:
        world.ledger.update_deployment(deployment.table, deployment.version, wanted=WantedState.STOPPED)
    return beside


def abort(world: AgentContext, run_id: str, versions: Versions) -> None:
    """Stop what a run started beside what serves; tables and checkpoints stay.

    What cannot be stopped now is recorded as wanted stopped, and the reconciler stops it.
    """
    for deployment in give_up(world, versions):
        key = (deployment.table, deployment.version)
        try:
            with world.locks.holding(key, by=f"run {run_id}"):
                stop(world, deployment)
                mark_stopped(world, deployment)
        except HeadgateError as error:
            log.warning("%s of a cancelled run will be stopped later: %s", query_name(*key), error.summary)
