"""Runs held before their swap: who may confirm them, when, and what happens then."""

import json
import os
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import small_project
from agent_scenarios import wait_until

from core.model.errors import ConfirmationNeeded, Refused
from core.model.names import TableName as T
from core.plan.model import Plan
from core.policy.roles_and_rules import Policy
from core.run.model import OperatorControl
from core.run.records import RunRow
from core.run.release import Release, ReleaseState
from pipelines.agent.context import AgentContext
from pipelines.agent.requests.caller_roles_and_policy import PolicyEnforcement
from pipelines.agent.requests.run_controls import check_swap, refuse_run_command
from pipelines.agent.requests.socket_server import Caller
from pipelines.agent.runs import pointer_steps, run_driver, step_executor
from pipelines.agent.runs.run_driver import OpenRuns
from state.ledger import LedgerReader
from state.releases import open_releases, release_of_run
from tests.pipelines.agent.runs import test_run_driver as lane
from tests.pipelines.agent.runs.test_executor_contract import A_REBUILD, soaking

HELD = replace(A_REBUILD[1], hold=True)
CALLER = Caller(1, os.getuid(), None)


@pytest.fixture(autouse=True)
def prompt(agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(step_executor, "CatchUpGate", lane.OpenGate)
    monkeypatch.setattr(pointer_steps, "CatchUpGate", lane.OpenGate)
    monkeypatch.setattr(run_driver, "POLL_S", 0.001)
    lane.deploy(agent, pool, small_project.texts())
    yield
    # Otherwise a run still held at the end of its test would continue during the next ones.
    agent.stopping.set()


def begun(agent: AgentContext, files: dict[str, str] | None = None) -> tuple[Plan, str, OpenRuns]:
    """Drive a rebuild of everything until it is held."""
    made = lane.plan(agent, files or soaking(A_REBUILD[0]), HELD)
    run_id = lane.submit(agent, made)
    driven = OpenRuns(agent)
    driven.drive(run_id)
    wait_until(lambda: hold_of(agent, run_id) == "gate")
    return made, run_id, driven


def check_word(agent: AgentContext, caller: Caller, row: RunRow, confirm: str) -> None:
    refuse_run_command(agent, PolicyEnforcement(agent), caller, row, OperatorControl("swap"))
    check_swap(agent, row, confirm)


def row_of(agent: AgentContext, run_id: str) -> RunRow:
    found = agent.ledger.run(run_id)
    assert found is not None
    return found


def hold_of(agent: AgentContext, run_id: str) -> str:
    return next(step.state for step in row_of(agent, run_id).steps if step.do == "hold")


def ended(agent: AgentContext, run_id: str) -> str:
    wait_until(lambda: row_of(agent, run_id).ended_at is not None)
    return row_of(agent, run_id).state


def released(agent: AgentContext, made: Plan, run_id: str) -> Release:
    with LedgerReader(agent.ledger.path) as reader:
        found = release_of_run(reader, row_of(agent, run_id), made, agent.clock())
    assert found is not None
    return found


def test_nothing_is_swapped_before_the_confirmation_and_everything_after_it(agent: AgentContext, pool: Any) -> None:
    agent.layout = replace(agent.layout, environment=replace(agent.layout.environment, soak_min=30))
    made, run_id, driven = begun(agent)
    assert set(pool.views.values()) == {"a__v1", "b__v1", "c__v1"} and len(pool.running) == 6
    held = released(agent, made, run_id)
    assert held.state is ReleaseState.HELD and held.note == f"waits for the command: headgate release swap {run_id}"
    assert [(pair.table, pair.serves, pair.new.runs) for pair in held.pairs] == [(name, 1, True) for name in "abc"]
    ends = f"nothing has been swapped yet; headgate runs cancel {run_id} ends it"
    assert (held.rollback, held.blocked) == ("", ends)
    driven.submit_command(run_id, OperatorControl("swap", by="bob"))
    assert ended(agent, run_id) == "done"
    assert set(pool.views.values()) == {"a__v2", "b__v2", "c__v2"}
    (step,) = [step for step in row_of(agent, run_id).steps if step.do == "hold"]
    assert (step.state, step.note) == ("done", "the swap was released by bob")
    lane.settle(agent, pool)
    after = released(agent, made, run_id)
    assert after.state is ReleaseState.OBSERVING and after.rollback == f"headgate rollback {run_id}"
    with LedgerReader(agent.ledger.path) as reader:
        assert [one.run for one in open_releases(reader, agent.clock())] == [run_id]


def test_a_stopped_new_version_is_not_shown_as_held_after_a_start_of_the_serving_one(
    agent: AgentContext, pool: Any
) -> None:
    _, run_id, driven = begun(agent)
    # The state after the table was stopped and its serving version was started.
    agent.ledger.update_deployment(T("a"), 2, wanted="stopped", state="stopped")
    assert ended(agent, run_id) == "failed"
    note = next(step.note for step in row_of(agent, run_id).steps if step.do == "hold")
    retry = f"headgate runs retry {run_id} starts it again"
    assert note == f"a@v2 is stopped, and would not be swapped in; {retry}"
    agent.ledger.retry_run(run_id, serial=agent.locks.announce_start())
    driven.submit_command(run_id, OperatorControl("retry"))
    wait_until(lambda: hold_of(agent, run_id) == "gate")
    found = agent.ledger.deployment(T("a"), 2)
    assert found is not None and found.wanted == "running"


def test_a_cancel_while_it_is_held_leaves_what_serves_alone(agent: AgentContext, pool: Any) -> None:
    made, run_id, driven = begun(agent)
    driven.submit_command(run_id, OperatorControl("cancel"))
    assert ended(agent, run_id) == "cancelled"
    wait_until(lambda: sorted(pool.running) == ["a@v1", "b@v1", "c@v1"])
    assert set(pool.views.values()) == {"a__v1", "b__v1", "c__v1"}
    assert released(agent, made, run_id).state is ReleaseState.ABORTED


def test_a_version_that_fails_while_it_is_held_ends_the_hold(agent: AgentContext, pool: Any) -> None:
    made, run_id, _ = begun(agent)
    agent.ledger.update_deployment(T("b"), 2, state="failed", error_class="OOM", error="no memory")
    assert ended(agent, run_id) == "failed"
    found = released(agent, made, run_id)
    assert found.state is ReleaseState.NEEDS_YOU and found.note == "b@v2 failed while it was held: OOM no memory"
    assert set(pool.views.values()) == {"a__v1", "b__v1", "c__v1"}


def test_a_swap_confirmation_during_a_failing_hold_is_reported_as_not_carried_out(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, look = lane.submit(agent, lane.plan(agent, A_REBUILD[0], HELD)), pointer_steps.check_held_versions

    def look_and_be_told(*given: Any) -> Any:
        agent.ledger.update_deployment(T("b"), 2, state="failed", error_class="OOM", error="no memory")
        found = look(*given)
        monkeypatch.setattr(pointer_steps, "check_held_versions", look)
        assert hold_of(agent, run_id) == "gate"
        agent.ledger.put_run_command(run_id, OperatorControl("swap", by="bob"), at=1.0)
        return found

    monkeypatch.setattr(pointer_steps, "check_held_versions", look_and_be_told)
    assert lane.drive(agent, run_id) == "failed"
    (told,) = (e for e in agent.ledger.events() if e.summary.startswith("the command to swap"))
    assert told.summary == f"the command to swap run {run_id} was not carried out: nothing was held any more"
    assert told.detail == "asked for by bob" and set(pool.views.values()) == {"a__v1", "b__v1", "c__v1"}


def test_a_hold_has_an_end_and_a_retry_waits_again(agent: AgentContext) -> None:
    passed = [0.0]
    agent.monotonic = lambda: passed[0]
    _, run_id, driven = begun(agent)

    def failed_much_later() -> bool:
        passed[0] += 24 * 3600 + 1.0
        return row_of(agent, run_id).state == "failed"

    # The time is counted from the first check of the hold, which may not have happened yet.
    wait_until(failed_much_later)
    (step,) = [step for step in row_of(agent, run_id).steps if step.state == "failed"]
    assert step.note.endswith("no command was given within 24 hours; headgate runs retry waits again")
    agent.ledger.put_run_state(run_id, "running")
    driven.submit_command(run_id, OperatorControl("retry"))
    wait_until(lambda: hold_of(agent, run_id) == "gate")
    driven.submit_command(run_id, OperatorControl("swap", by="bob"))
    assert ended(agent, run_id) == "done"


def test_a_hold_cannot_be_skipped_and_an_earlier_confirmation_does_not_count(agent: AgentContext, pool: Any) -> None:
    made = lane.plan(agent, A_REBUILD[0], HELD)
    run_id = lane.submit(agent, made)
    driven = OpenRuns(agent)
    driven.submit_command(run_id, OperatorControl("swap", by="bob"))
    wait_until(lambda: hold_of(agent, run_id) == "gate")
    number = next(step.n for step in made.steps if step.do == "hold")
    driven.submit_command(run_id, OperatorControl("skip", number))
    driven.submit_command(run_id, OperatorControl("pause"))
    wait_until(lambda: row_of(agent, run_id).state == "paused")
    assert hold_of(agent, run_id) == "gate" and set(pool.views.values()) == {"a__v1", "b__v1", "c__v1"}
    driven.submit_command(run_id, OperatorControl("cancel"))
    assert ended(agent, run_id) == "cancelled"


def test_confirming_a_swap_needs_a_held_run_its_text_and_no_freeze(agent: AgentContext) -> None:
    _, run_id, driven = begun(agent)
    row, text = row_of(agent, run_id), f"dev {run_id[:4]}"
    check_word(agent, CALLER, row, text)
    with pytest.raises(ConfirmationNeeded, match=text):
        check_word(agent, CALLER, row, "yes")
    thawed = agent.layout
    frozen = replace(agent.layout.environment, policy=Policy(freeze=("1970-01-01 - 2100-01-01",)))
    agent.layout = replace(agent.layout, environment=frozen)
    with pytest.raises(Refused, match="would move a pointer"):
        check_word(agent, CALLER, row, text)
    agent.layout = thawed
    waiting = replace(row, steps=tuple(replace(s, state="waits") if s.do == "hold" else s for s in row.steps))
    with pytest.raises(Refused, match="have not caught up, or are not compared yet"):
        check_word(agent, CALLER, waiting, text)
    driven.submit_command(run_id, OperatorControl("cancel"))
    ended(agent, run_id)
    with pytest.raises(Refused, match="is not waiting for a swap command"):
        check_word(agent, CALLER, row_of(agent, run_id), text)


@pytest.mark.parametrize(
    ("approvals", "author", "refused"),
    [(0, CALLER.person, False), (1, CALLER.person, True), (1, None, True), (1, CALLER.person + 1, False)],
)
def test_a_release_that_needed_an_approval_is_confirmed_by_another_login(
    approvals: int, author: int | None, refused: bool, agent: AgentContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, run_id, driven = begun(agent)
    plan = agent.ledger.plan(made.hash)
    assert plan is not None
    body = json.dumps(json.loads(plan.body) | {"approvals": approvals})
    asked = replace(plan, body=body, author=CALLER.name, author_uid=author)
    monkeypatch.setattr(agent.ledger, "plan", lambda found: asked)
    with pytest.raises(Refused, match="its plan needed an approval") if refused else nullcontext():
        check_word(agent, CALLER, row_of(agent, run_id), f"dev {run_id[:4]}")
    monkeypatch.undo()
    driven.submit_command(run_id, OperatorControl("cancel"))
    ended(agent, run_id)


def test_a_command_given_before_a_new_agent_resumes_the_run_is_carried_out(agent: AgentContext, pool: Any) -> None:
    _, run_id, driven = begun(agent)
    agent.stopping.set()
    wait_until(lambda: not driven._woken)
    agent.stopping.clear()
    check_word(agent, CALLER, row_of(agent, run_id), f"dev {run_id[:4]}")
    OpenRuns(agent).submit_command(run_id, OperatorControl("swap", by="bob"))
    assert ended(agent, run_id) == "done" and set(pool.views.values()) == {"a__v2", "b__v2", "c__v2"}


def test_a_new_agent_holds_again_but_needs_no_second_confirmation(agent: AgentContext, pool: Any) -> None:
    _, run_id, driven = begun(agent)
    starts = list(pool.starts)
    agent.stopping.set()
    wait_until(lambda: not driven._woken)
    agent.stopping.clear()
    again = OpenRuns(agent)
    again.resume_open()
    wait_until(lambda: run_id in again._woken)
    assert hold_of(agent, run_id) == "gate"
    assert set(pool.views.values()) == {"a__v1", "b__v1", "c__v1"} and pool.starts == starts
    again.submit_command(run_id, OperatorControl("swap", by="bob"))
    wait_until(lambda: hold_of(agent, run_id) == "done")
    agent.stopping.set()
    wait_until(lambda: not again._woken)
    agent.stopping.clear()
    OpenRuns(agent).resume_open()
    assert ended(agent, run_id) == "done" and set(pool.views.values()) == {"a__v2", "b__v2", "c__v2"}
