"""The word to swap: who may give it, to which run, and when."""

import json

from core.model.actions import StepKind
from core.model.errors import Refused
from core.plan.confirmation import confirmation_for_swap
from core.policy.freeze_windows import frozen_until
from core.run.model import StepState
from pipelines.agent.context import AgentContext
from pipelines.agent.requests.policy_enforcement import require_confirmation
from pipelines.agent.requests.socket_server import Caller
from state.row_types import RunRow


def check_word(world: AgentContext, caller: Caller, row: RunRow, confirm: str) -> None:
    """Raise Refused unless a run is held, plans may be applied now, and this caller may give it the word.

    What another login had to approve, another login than its author lets swap.
    """
    held = [step for step in row.steps if step.do == StepKind.HOLD]
    if not any(step.state == StepState.GATE for step in held):
        waits = "it does not wait for a word"
        if _is_to_come(row):
            waits = "its new versions have not caught up, or are not compared yet"
        raise Refused(f"run {row.id}: {waits}", remedy=f"headgate release show {row.id}")
    here = world.layout.environment
    policy = world.ledger.recorded_policy() or here.policy
    if until := frozen_until(policy.freeze, world.clock()):
        raise Refused(f"{here.name} is {until}: nothing is swapped", remedy="give the word after that")
    plan = world.ledger.plan(row.plan_hash)
    needed = plan is not None and json.loads(plan.body).get("approvals")
    if plan and needed and caller.may_be(plan.author, plan.author_uid, plan.author_process_uid):
        raise Refused(
            f"run {row.id} was planned by {plan.author}, and its plan needed an approval",
            remedy=f"ask another login, without sudo: headgate release swap {row.id}",
        )
    require_confirmation(confirmation_for_swap(row.id, environment=here.name), confirm)


def _is_to_come(row: RunRow) -> bool:
    held = any(step.do == StepKind.HOLD and step.state == StepState.WAITS for step in row.steps)
    return held and row.state in ("running", "paused")
