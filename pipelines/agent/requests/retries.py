"""Retries and skips: what cannot be skipped, refused where a newer release serves, journalled before the run hears."""

import json

from core.model.actions import StepKind
from core.model.errors import HeadgateError, Refused
from core.plan.codec import plan_from_json
from core.plan.model import Plan
from core.run import state_machine
from core.run.model import SATISFIED
from pipelines.agent.context import AgentContext
from pipelines.agent.runs.open_run import overtaken
from pipelines.agent.runs.run_lane import run_of
from state.row_types import RunRow


def journal_retry(world: AgentContext, row: RunRow, *, skipping: int = 0, by: str) -> None:
    """Write down a retry, or the skip of a step that has failed.

    Raises Refused where a table is taken or overtaken, and where another run continues this one.
    """
    refuse_overtaken(world, row)
    world.ledger.retry_run(row.id, serial=world.locks.start(), skipping=skipping, by=by, at=world.clock())


def why_not_skipped(world: AgentContext, row: RunRow, n: int) -> str | None:
    """Return why a step of a run cannot be skipped, None where it can."""
    plan = _plan_of(world, row)
    if plan is None:
        return "the plan of the run cannot be read"
    if all(step.n != n for step in plan.steps):
        return "there is no such step"
    return state_machine.why_not_skipped(run_of(row, plan), n)


def refuse_overtaken(world: AgentContext, row: RunRow) -> None:
    """Refuse to take up a run that has not swapped, where something serves that it was not planned to replace."""
    plan = _plan_of(world, row)
    waiting = {step.n for step in row.steps if step.do == StepKind.SWAP and step.state not in SATISFIED}
    if plan is None or row.state != "failed":
        return
    swapped = {table for step in plan.steps if step.n in waiting for table in (step.tables or (step.table,))}
    for node in plan.nodes:
        if node.table in swapped and (newer := overtaken(world, node)):
            raise Refused(
                f"{newer} serves since run {row.id} failed, which was not planned to replace it",
                remedy=f"headgate runs cancel {row.id}, and plan again",
            )


def _plan_of(world: AgentContext, row: RunRow) -> Plan | None:
    """Return the plan of a run, None where it cannot be read: such a run says so itself."""
    found = world.ledger.plan(row.plan_hash)
    try:
        return plan_from_json(json.loads(found.body)) if found is not None else None
    except (HeadgateError, ValueError):
        return None
