"""Plans superseded by an execution, another plan or a stop, even if the environment is again as it was before."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import small_project
from submission_desk import BOB, LEE, NOW, REBUILD_A, Desk, T, move

from core.model.errors import Stale
from core.plan.model import Plan
from core.plan.request import PlanRequest
from state.operator_commands import CommandStamp
from state.registry import TableAct

DEPLOY_A = PlanRequest(tables=(T("a"),), nonce="n")
BAD = small_project.texts(a="SELECT id, kind FROM STREAM landed WHERE id > 1")
WORSE = small_project.texts(a="SELECT id, kind FROM STREAM landed WHERE id > 2")


def act(desk: Desk, verb: str, table: str = "a") -> None:
    ledger, locks = desk.agent.ledger, desk.agent.locks
    if verb == "stop":
        ledger.stop_statements([table], CommandStamp(locks.announce_stop([table]), "eve", desk.now))
    else:
        act = TableAct(f"a {verb} by eve", desk.now)
        assert ledger.want_running(T(table), 1, CommandStamp(locks.announce_start(), "eve", desk.now), act)


def hand_over(desk: Desk, request: PlanRequest, files: dict[str, str], **more: object) -> Plan:
    plan = desk.plan(request, files)
    desk.hand_over(plan, texts=files, **more)
    return plan


def test_the_second_review_of_a_bad_edit_is_stale_after_the_first_was_executed_and_the_file_corrected(
    desk: Desk,
) -> None:
    first = hand_over(desk, DEPLOY_A, BAD)
    second = hand_over(desk, replace(DEPLOY_A, nonce="again"), BAD)
    old = desk.agent.ledger.versions(T("a"))[0]
    run = desk.apply(first, confirm="yes")
    desk.agent.ledger.put_run_state(run, "done", ended_at=NOW)
    move(desk, "b", checkpoint_id="b")
    assert desk.agent.ledger.versions(T("a"))[0] == replace(old), "the world is as it was"
    with pytest.raises(Stale, match=rf"plan {second.hash[:12]} is stale: it was superseded by run {run} of 70001 on a"):
        desk.apply(second)
    row = desk.agent.ledger.plan(second.hash)
    assert row is not None and (row.status, row.superseded_at) == ("superseded", NOW)
    assert desk.runs.driven == [run]


@pytest.mark.parametrize("by_file", [False, True])
def test_a_stop_and_a_start_in_between_make_a_plan_stale_and_are_named(by_file: bool, desk: Desk) -> None:
    plan = desk.plan()
    if not by_file:
        desk.hand_over(plan)
    act(desk, "stop", "b")
    act(desk, "start", "b")
    move(desk, "b", wanted="running", state="running")
    with pytest.raises(Stale, match="a start by eve"):
        desk.hand_over_file(plan) if by_file else desk.apply(plan)


def test_an_action_without_effect_and_a_measurement_leave_a_plan_unchanged(desk: Desk) -> None:
    plan = desk.plan()
    desk.hand_over(plan)
    act(desk, "start")
    act(desk, "stop", "c")
    move(desk, "b", state="degraded", error="late")
    assert desk.apply(plan) in desk.runs.driven


def test_planning_another_text_supersedes_the_older_plan_and_names_the_cause(desk: Desk) -> None:
    older = hand_over(desk, DEPLOY_A, BAD)
    desk.now += 60.0
    newer = hand_over(desk, replace(DEPLOY_A, nonce="m"), WORSE, caller=BOB)
    for refused in (desk.apply, desk.approve):
        with pytest.raises(Stale, match=f"superseded by plan {newer.hash[:12]} of 70002"):
            refused(older)
    assert desk.apply(newer, confirm="yes") in desk.runs.driven


@pytest.mark.parametrize("ahead_s", [3600.0, 86_400.0 * 30])
@pytest.mark.parametrize("executed", [False, True])
def test_a_plan_dated_by_a_clock_that_was_ahead_is_older_than_a_new_one(
    executed: bool, ahead_s: float, desk: Desk
) -> None:
    desk.now += ahead_s
    ahead = hand_over(desk, DEPLOY_A, BAD, caller=BOB)
    if executed:
        desk.agent.ledger.put_run_state(desk.apply(ahead, confirm="yes"), "done", ended_at=desk.now)
    desk.now = NOW
    now = hand_over(desk, replace(DEPLOY_A, nonce="m"), WORSE)
    if not executed:
        with pytest.raises(Stale, match=f"superseded by plan {now.hash[:12]} of 70001 on a"):
            desk.apply(ahead)
    assert desk.apply(now, confirm="yes") in desk.runs.driven


def test_a_plan_that_a_clock_that_was_ahead_has_closed_is_open_again_once_it_is_planned_again(desk: Desk) -> None:
    plan = hand_over(desk, DEPLOY_A, BAD)
    desk.now += 3600.0
    ahead = hand_over(desk, replace(DEPLOY_A, nonce="m"), WORSE, caller=BOB)
    desk.now = NOW
    with pytest.raises(Stale, match=f"superseded by plan {ahead.hash[:12]}"):
        desk.apply(plan)
    hand_over(desk, DEPLOY_A, BAD)
    assert desk.apply(plan, confirm="yes") in desk.runs.driven


def test_planning_the_old_text_which_changes_nothing_supersedes_the_older_plan(desk: Desk) -> None:
    older = hand_over(desk, DEPLOY_A, BAD)
    corrected = hand_over(desk, replace(DEPLOY_A, nonce="m"), small_project.texts())
    assert corrected.empty and desk.agent.ledger.plan(corrected.hash) is None
    with pytest.raises(Stale, match="superseded by plan"):
        desk.apply(older)


def test_planning_the_same_or_something_else_leaves_the_older_plan_open(desk: Desk) -> None:
    plan = hand_over(desk, DEPLOY_A, BAD)
    desk.now += 60.0
    hand_over(desk, replace(DEPLOY_A, nonce="m"), BAD, caller=BOB)
    hand_over(desk, PlanRequest(tables=(T("c"),), rebuild=True, nonce="m"), small_project.texts())
    assert desk.apply(plan, confirm="yes") in desk.runs.driven


def test_a_plan_that_was_superseded_is_open_again_once_it_is_planned_again_without_its_approvals(desk: Desk) -> None:
    desk.rule(approve=("rebuild",))
    first = hand_over(desk, REBUILD_A, BAD)
    desk.approve(first)
    desk.now += 60.0
    hand_over(desk, replace(REBUILD_A, nonce="m"), WORSE)
    desk.now += 60.0
    assert hand_over(desk, REBUILD_A, BAD).hash == first.hash
    row = desk.agent.ledger.plan(first.hash)
    assert row is not None and row.status == "open" and desk.agent.ledger.approvals(first.hash) == ()


SINCE: dict[str, tuple[Callable[[Desk], object], str]] = {
    "planned otherwise": (lambda desk: hand_over(desk, DEPLOY_A, WORSE), "superseded by plan"),
    "stopped and started": (lambda desk: (act(desk, "stop"), act(desk, "start")), "a start by eve"),
}


@pytest.mark.parametrize("change, said", SINCE.values(), ids=SINCE)
def test_a_file_of_yesterday_is_stale_by_the_same_rules(
    change: Callable[[Desk], object], said: str, desk: Desk
) -> None:
    saved = desk.plan(replace(DEPLOY_A, nonce="file"), BAD)
    desk.now += 3600.0
    change(desk)
    move(desk, "a", wanted="running", state="running")
    desk.now += 3600.0
    for _ in range(2):
        with pytest.raises(Stale, match=said):
            desk.hand_over_file(saved, LEE, texts=BAD)
    assert desk.agent.ledger.plan(saved.hash) is None and desk.runs.driven == []


def released(desk: Desk, *tables: str, run: str) -> None:
    """Make a release serve a second version of each table."""
    ledger = desk.agent.ledger
    for table in tables:
        before = ledger.versions(T(table))[0]
        ledger.put_deployment(replace(before, version=2, active=False, checkpoint=f"/c/{table}2"))
    ledger.activate({T(table): 2 for table in tables}, by=run, at=desk.now)
    for table in tables:
        move(desk, table, wanted="stopped", state="stopped")


def test_a_rollback_supersedes_plans_of_its_own_tables_alone_and_names_them(desk: Desk) -> None:
    released(desk, "b", run="run-b")
    released(desk, "c", run="run-c")
    rebuilt = PlanRequest(tables=(T("b"),), rebuild=True, nonce="n")
    older = hand_over(desk, rebuilt, small_project.texts())
    desk.now += 60.0
    other = hand_over(desk, PlanRequest(verb="rollback", tables=(T("c"),)), small_project.texts(), caller=BOB)
    row = desk.agent.ledger.plan(older.hash)
    assert not other.refusals and row is not None and row.status == "open"
    back = hand_over(desk, PlanRequest(verb="rollback", tables=(T("b"),)), small_project.texts(), caller=BOB)
    with pytest.raises(Stale, match=f"superseded by plan {back.hash[:12]} of 70002 on b, "):
        desk.apply(older)


def test_a_rollback_of_a_release_supersedes_plans_of_all_that_it_takes_back(desk: Desk) -> None:
    released(desk, "b", "c", run="run-1")
    older = hand_over(desk, PlanRequest(tables=(T("b"),), rebuild=True, nonce="n"), small_project.texts())
    desk.now += 60.0
    back = hand_over(desk, PlanRequest(verb="rollback", tables=(T("c"),)), small_project.texts(), caller=BOB)
    assert {node.table for node in back.nodes if node.action == "rollback"} == {"b", "c"}
    with pytest.raises(Stale, match=f"superseded by plan {back.hash[:12]} of 70002 on b, "):
        desk.apply(older)
