"""Statements that stand still while a table is altered: Spark would end each one that streams it (Delta 4.4.0).

They stay wanted running. The next steps of the run start them, and the reconciler those that are in no step, also where
the change is refused or the agent dies here: nothing else has to remember them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from core.model.names import query_name
from core.model.states import WantedState
from core.plan.model import Step
from pipelines.agent.bounded_threads import in_threads
from pipelines.agent.deployment_lifecycle import pause, refuse_start
from pipelines.agent.runs.open_run import OpenRun

STOPS_AT_ONCE = 8


@contextmanager
def paused_readers(run: OpenRun, step: Step, *, static_too: bool) -> Iterator[tuple[str, ...]]:
    """Hold the step's version and all that stream it for a block, stopped; gives the names of those that ran.

    With `static_too` also those of which it is a static side: they end at a wider type, and not at a new column.
    Raises Busy where somebody acts on one of them, what would refuse their start, and what a stop raises: the table is
    as it was then.
    """
    world, here = run.world, (step.table, step.version)
    reads = {
        (d.table, d.version): d
        for d in world.ledger.deployments()
        if (d.table, d.version) == here
        or any((b.parent, b.version) == here and (b.streamed or static_too) for b in d.bindings)
    }
    with world.locks.holding(*reads, by=f"run {run.id}", wait_s=0):
        now = [found for key in sorted(reads) if (found := world.ledger.deployment(*key)) is not None]
        running = [found for found in now if found.wanted == WantedState.RUNNING and found.query_id]
        for found in running:
            # What could not go on afterwards is not stopped.
            refuse_start(world, found, stops=world.locks.stops((found.table, found.version)))
        in_threads(STOPS_AT_ONCE, partial(pause, world), running)
        for found in running:
            altered = "it" if found.table == step.table else step.table
            summary = f"stopped while {altered} is altered; it goes on from its checkpoint"
            world.event("state", summary, about=(found.table, found.version))
        yield tuple(query_name(found.table, found.version) for found in running)
