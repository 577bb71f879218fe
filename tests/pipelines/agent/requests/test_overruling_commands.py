"""Commands that let a run continue, during a freeze and despite a failed check of a plan that needed an approval."""

import json
from dataclasses import replace
from typing import Any

import pytest
from ledger_rows import plan_row, run_row
from submission_desk import BOB, LEE, NOW, REBUILD_A, Desk

from core.model.errors import Refused
from core.model.names import TableName as T
from core.plan.model import Plan
from core.plan.request import PlanRequest
from core.run.model import OperatorControl
from core.run.records import StepRow
from state.runs import control_of

FREEZE = ("1970-01-12 - 1970-01-13",)
"""A window around NOW."""
RUN = "7f3a-1"


@pytest.fixture
def told(desk: Desk) -> list[OperatorControl]:
    found: list[OperatorControl] = []
    runs: Any = desk.runs
    runs.submit_command = lambda run, word: found.append(word)
    runs.wake = lambda run: found.extend(map(control_of, desk.agent.ledger.run_commands(run)))
    return found


def begun(desk: Desk, state: str, approvals: int = 0, **states: str) -> Plan:
    """Put a held rebuild that LEE has planned into a state. All steps are done except those in `states`."""
    made = desk.plan(replace(REBUILD_A, hold=True))
    row = plan_row(made, author_uid=LEE.person, author_process_uid=LEE.uid)
    desk.agent.ledger.put_plan(replace(row, body=json.dumps(json.loads(row.body) | {"approvals": approvals})))
    states = {"swap": "waits"} | states
    steps = tuple(StepRow(s.n, s.do, s.table, s.version, states.get(s.do, "done")) for s in made.steps)
    ended = NOW if state == "failed" else None
    run = run_row(made.hash, id=RUN, state="running", steps=steps)
    desk.agent.ledger.apply_plan(made.hash, run, now=NOW)
    desk.agent.ledger.put_run_state(RUN, state, ended_at=ended)
    return made


def ask(desk: Desk, act: str, caller: Any = BOB, step: int = 0) -> dict[str, Any]:
    confirm = "dev 7f3a" if act == "swap" else "7f3a"
    request = {"op": "run", "args": {"id": RUN, "act": act, "step": step}, "confirm": confirm}
    return desk.commands.handle(caller, request)


def number(plan: Plan, do: str) -> int:
    return next(step.n for step in plan.steps if step.do == do)


ACTS = [
    ("resume", "paused", {}, True),
    ("retry", "failed", {"catch_up": "failed"}, True),
    ("skip", "failed", {"catch_up": "failed"}, True),
    ("swap", "running", {"hold": "gate"}, True),
    ("pause", "running", {}, False),
    ("cancel", "running", {}, False),
    ("cancel", "paused", {}, False),
    ("cancel", "failed", {"catch_up": "failed"}, False),
    ("retry", "failed", {"swap": "done", "stop": "failed"}, False),
    ("resume", "paused", {"swap": "done", "stop": "waits"}, False),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("act", "state", "states", "refused"), ACTS)
@pytest.mark.parametrize("frozen", [True, False])
def test_in_a_freeze_no_command_continues_a_run_that_has_to_move_a_pointer(
    act: str, state: str, states: dict[str, str], refused: bool, frozen: bool, desk: Desk, told: list[Any]
) -> None:
    made = begun(desk, state, **states)
    desk.rule(freeze=FREEZE if frozen else ())
    step = number(made, "catch_up") if act == "skip" else 0
    if frozen and refused:
        with pytest.raises(Refused, match=r"dev is frozen until Wed 1970-01-14 00:00 UTC .*: run 7f3a-1 would move"):
            ask(desk, act, step=step)
        assert told == [] and desk.agent.ledger.runs()[0].state == state
    else:
        ask(desk, act, step=step)
        assert [word.act for word in told] == [act]


def test_a_statement_is_stopped_in_a_freeze(desk: Desk, pool: Any) -> None:
    desk.rule(freeze=FREEZE)
    answer = desk.commands.handle(BOB, {"op": "stop", "args": {"tables": ["c"]}, "confirm": "yes"})
    found = desk.agent.ledger.deployment(T("c"), 1)
    assert found is not None and (found.wanted, found.state) == ("stopped", "stopped")
    assert pool.stops == ["c@v1"], answer


def test_a_rollback_is_applied_in_a_freeze_and_nothing_else(desk: Desk) -> None:
    ledger = desk.agent.ledger
    for name in "abc":
        row = ledger.deployment(T(name), 1)
        assert row is not None
        bound = tuple(replace(one, version=2 if one.version else 0) for one in row.bindings)
        ledger.put_deployment(replace(row, version=2, active=False, bindings=bound))
    ledger.activate({T(name): 2 for name in "abc"}, by=RUN, at=NOW)
    desk.rule(freeze=FREEZE)
    made = desk.plan()
    desk.hand_over(made)
    with pytest.raises(Refused, match="dev is frozen until"):
        desk.apply(made)
    back = desk.plan(PlanRequest(verb="rollback", tables=(T("a"),), nonce="n"))
    desk.hand_over(back)
    assert desk.apply(back) in desk.runs.driven


@pytest.mark.parametrize(
    ("approvals", "caller", "roles", "do", "refused"),
    [
        (0, LEE, {}, "validate", ""),
        (1, LEE, {}, "validate", "was planned by ana, and its plan needed an approval"),
        (1, BOB, {}, "validate", ""),
        (1, LEE, {"approve": (LEE.name,)}, "validate", "was planned by ana, and its plan needed an approval"),
        (1, BOB, {"approve": ("eve",)}, "validate", "may not skip the comparison .* grants approve to eve"),
        (1, BOB, {"approve": (BOB.name,), "operate": (LEE.name,)}, "validate", ""),
        (0, BOB, {"approve": (BOB.name,), "operate": (LEE.name,)}, "validate", "grants operate to 70001"),
        (1, BOB, {"approve": (BOB.name,), "operate": (LEE.name,)}, "catch_up", "grants operate to 70001"),
        (1, BOB, {"operate": (LEE.name,)}, "validate", "grants operate to 70001"),
        (1, LEE, {}, "catch_up", ""),
    ],
)
def test_only_an_approver_other_than_the_author_skips_the_comparison_of_an_approved_plan(
    approvals: int,
    caller: Any,
    roles: dict[str, tuple[str, ...]],
    do: str,
    refused: str,
    desk: Desk,
    told: list[Any],
) -> None:
    made = begun(desk, "failed", approvals, **{do: "failed"})
    desk.rule(roles=tuple(sorted(roles.items())))
    desk.commands = type(desk.commands)(desk.agent, *desk.parts)
    if refused:
        with pytest.raises(Refused, match=refused):
            ask(desk, "skip", caller, number(made, do))
        assert told == []
    else:
        ask(desk, "skip", caller, number(made, do))
        assert [word.act for word in told] == ["skip"]


@pytest.mark.parametrize(
    ("caller", "roles", "refused"),
    [
        (LEE, {}, "was planned by ana"),
        (BOB, {"operate": (BOB.name,), "approve": ("eve",)}, ""),
        (BOB, {"operate": (LEE.name,), "approve": (BOB.name,)}, ""),
        (BOB, {"operate": (LEE.name,), "approve": ("eve",)}, "grants operate to 70001"),
    ],
)
def test_a_swap_that_needed_an_approval_is_confirmed_by_another_person(
    caller: Any, roles: dict[str, tuple[str, ...]], refused: str, desk: Desk, told: list[Any]
) -> None:
    begun(desk, "running", 1, hold="gate")
    desk.rule(roles=tuple(sorted(roles.items())))
    desk.commands = type(desk.commands)(desk.agent, *desk.parts)
    if refused:
        with pytest.raises(Refused, match=refused):
            ask(desk, "swap", caller)
    else:
        ask(desk, "swap", caller)
    assert len(told) == (not refused)
