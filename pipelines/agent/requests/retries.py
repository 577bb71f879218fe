"""Retries and skips of failed runs: refused where a newer release serves, journalled before the run hears of them."""

import json

from core.model.actions import StepKind
from core.model.errors import HeadgateError, Refused
from core.plan.codec import plan_from_json
from core.run.model import SATISFIED
from pipelines.agent.context import AgentContext
from pipelines.agent.runs.aborted_versions import stop_failed
from pipelines.agent.runs.open_run import overtaken
from state.row_types import RunRow


def journal_retry(world: AgentContext, row: RunRow, *, skipping: int = 0) -> None:
    """Write down a retry, or the skip of a step that has failed; raises Refused where a table is taken or overtaken."""
    refuse_overtaken(world, row)
    if not skipping:
        stop_failed(world, row)
    world.ledger.retry_run(row.id, skipping=skipping, at=world.clock())


def refuse_overtaken(world: AgentContext, row: RunRow) -> None:
    """Refuse to take up a run that has not swapped, where something serves that it was not planned to replace."""
    found = world.ledger.plan(row.plan_hash)
    try:
        plan = plan_from_json(json.loads(found.body)) if found is not None else None
    except (HeadgateError, ValueError):
        # Such a run says so itself, and is cancelled by its steps.
        return
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
