"""Decides whether an operator's retry, skip or swap of a run is accepted, and records accepted retries.

A step that the run needs cannot be skipped. A run cannot be retried once a newer version has begun to serve. A retry is
recorded before the run receives it.
"""

import json

from core.model.actions import StepKind
from core.model.errors import HeadgateError, Refused
from core.plan.codec import plan_from_json
from core.plan.confirmation import confirmation_for_swap
from core.plan.model import Plan
from core.policy.roles_and_rules import APPROVE
from core.run import state_machine
from core.run.model import SATISFIED, OperatorControl, StepState
from core.run.records import RunRow
from core.run.state_machine import moves_pointers, overrides_approved_plan
from core.text.sentence import Sentence
from pipelines.agent.context import AgentContext
from pipelines.agent.requests.caller_roles_and_policy import REQUIRED_ROLES, PolicyEnforcement, require_confirmation
from pipelines.agent.requests.socket_server import Caller
from pipelines.agent.runs.run_context import overtaken
from pipelines.agent.runs.run_driver import run_of
from state.row_types import PlanRow


def journal_retry(agent: AgentContext, row: RunRow, *, skipping: int = 0, by: str) -> None:
    """Record a retry of a failed run or, if `skipping` is the number of its failed step, a skip of that step.

    Raises Refused if another run reserves one of the run's tables or continues this run, or if a newer version has
    begun to serve one of the tables.
    """
    refuse_overtaken(agent, row)
    agent.ledger.retry_run(row.id, serial=agent.locks.announce_start(), skipping=skipping, by=by, at=agent.clock())


def why_not_skipped(agent: AgentContext, row: RunRow, n: int) -> Sentence | None:
    """Return why a step of a run cannot be skipped, or None if it can."""
    plan = _readable_plan(agent.ledger.plan(row.plan_hash))
    if plan is None:
        return Sentence("the plan of the run cannot be read")
    if all(step.n != n for step in plan.steps):
        return Sentence("there is no such step")
    return state_machine.why_not_skipped(run_of(row, plan), n)


def refuse_overtaken(agent: AgentContext, row: RunRow) -> None:
    """Raise Refused if a failed run still has to swap a table whose serving version its plan does not replace."""
    plan = _readable_plan(agent.ledger.plan(row.plan_hash))
    waiting = {step.n for step in row.steps if step.do == StepKind.SWAP and step.state not in SATISFIED}
    if plan is None or row.state != "failed":
        return
    swapped = {table for step in plan.steps if step.n in waiting for table in (step.tables or (step.table,))}
    for node in plan.nodes:
        if node.table in swapped and (newer := overtaken(agent, node)):
            raise Refused(
                f"since run {row.id} failed, {newer} has begun to serve, which the run was not planned to replace",
                remedy=f"headgate runs cancel {row.id}, and plan again",
            )


def _readable_plan(kept: PlanRow | None) -> Plan | None:
    # The run itself reports a plan that is missing or unreadable.
    try:
        return plan_from_json(json.loads(kept.body)) if kept is not None else None
    except (HeadgateError, ValueError):
        return None


def refuse_run_command(
    agent: AgentContext, policies: PolicyEnforcement, caller: Caller, row: RunRow, control: OperatorControl
) -> None:
    """Raise Refused if a command would move a pointer during a freeze, or if the caller must not give this command.

    If the plan needed an approval, the plan's author must not override a check, and only an approver may skip a
    comparison. If the plan cannot be read, only the caller's role is checked, because such a run can only be ended.
    """
    kept = agent.ledger.plan(row.plan_hash)
    plan = _readable_plan(kept)
    if plan is None or kept is None:
        policies.require(caller, *REQUIRED_ROLES["run"])
        return
    states = {step.n: StepState(step.state) for step in row.steps}
    if moves_pointers(plan, states) and (until := agent.frozen()) is not None:
        raise Refused(
            f"{plan.environment} is {until}: run {row.id} would move a pointer",
            remedy=f"wait for the end of the freeze, or headgate runs cancel {row.id}",
        )
    do = next((step.do for step in plan.steps if step.n == control.n), None)
    if not overrides_approved_plan(plan, control.act, do):
        policies.require(caller, *REQUIRED_ROLES["run"])
        return
    what = f"headgate release swap {row.id}"
    if control.act == "skip":
        what = f"headgate runs skip {row.id} --step {control.n}"
        policies.require(caller, APPROVE, "skip the comparison of a plan that needed an approval")
    elif not policies.is_named(APPROVE, caller):
        policies.require(caller, *REQUIRED_ROLES["run"])
    if caller.may_be(kept.author, kept.author_uid, kept.author_process_uid):
        raise Refused(
            f"run {row.id} was planned by {kept.author}, and its plan needed an approval",
            remedy=f"ask another login, without sudo: {what}",
        )


def check_swap(agent: AgentContext, row: RunRow, confirm: str) -> None:
    """Raise Refused unless a run is waiting for a swap command.

    Also raise ConfirmationNeeded unless `confirm` is the required text.
    """
    held = [step for step in row.steps if step.do == StepKind.HOLD]
    if not any(step.state == StepState.GATE for step in held):
        waits = "it is not waiting for a swap command"
        if _is_to_come(row):
            waits = "its new versions have not caught up, or are not compared yet"
        raise Refused(f"run {row.id}: {waits}", remedy=f"headgate release show {row.id}")
    require_confirmation(confirmation_for_swap(row.id, environment=agent.layout.environment.name), confirm)


def _is_to_come(row: RunRow) -> bool:
    held = any(step.do == StepKind.HOLD and step.state == StepState.WAITS for step in row.steps)
    return held and row.state in ("running", "paused")
