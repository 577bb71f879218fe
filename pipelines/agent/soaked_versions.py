"""Stopping what was replaced, once its time to run on is over and nothing reads it; the reconciler ends its query."""

import logging
from contextlib import suppress

from core.model.errors import Busy
from core.model.names import query_name
from core.model.states import WantedState
from pipelines.agent.context import AgentContext
from pipelines.agent.trash_purge import checked_now
from state.row_types import Deployment

log = logging.getLogger(__name__)


def stop_soaked(world: AgentContext) -> None:
    """Want every version stopped whose time is over, by the checked clock, and that nothing reads.

    One whose table an open run is about waits for the end of that run.
    """
    now = checked_now(world)
    every = world.ledger.deployments()
    due = [d for d in every if _is_soaking(d) and d.stops_at is not None and d.stops_at <= now]
    if not due:
        return
    # What serves may be stopped for a while, and goes on over what it reads.
    readers = (d for d in every if not d.deleted and (d.active or d.wanted == WantedState.RUNNING))
    read = {(b.parent, b.version) for d in readers for b in d.bindings}
    for version in due:
        key = (version.table, version.version)
        if key in read:
            continue
        with suppress(Busy), world.locks.holding(key, by="the end of a soak", wait_s=0):
            found = world.ledger.deployment(*key)
            if found is not None and _is_soaking(found) and not _in_a_run(world, version):
                world.ledger.update_deployment(*key, wanted=WantedState.STOPPED, stops_at=None)
                world.event("state", "stops: it was replaced, and its time to run on is over", about=key)
                log.info("%s was replaced and has run on for long enough", query_name(*key))


def _in_a_run(world: AgentContext, version: Deployment) -> bool:
    return any(step.table == version.table for run in world.ledger.open_runs() for step in run.steps)


def _is_soaking(deployment: Deployment) -> bool:
    return (
        deployment.stops_at is not None
        and not deployment.active
        and not deployment.deleted
        and deployment.wanted == WantedState.RUNNING
    )
