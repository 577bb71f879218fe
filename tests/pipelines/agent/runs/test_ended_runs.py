"""A run that was ended from outside: its thread writes nothing more, and no effect is performed for it."""

from dataclasses import replace
from typing import Any

import pytest
import small_project
from agent_scenarios import held_elsewhere, in_a_thread, wait_until

from core.model.names import TableName
from core.run.model import OperatorControl
from pipelines.agent.context import AgentContext
from pipelines.agent.runs import run_driver
from pipelines.agent.runs.run_driver import OpenRuns, RunDriver
from pipelines.agent.runs.run_ends import end_unexecutable
from tests.pipelines.agent.runs.test_commands_during_runs import (
    REBUILD,
    SERVING,
    UPPER,
    at,
    ends_told,
    state_of,
    step_of,
)
from tests.pipelines.agent.runs.test_run_driver import (
    EVERYTHING,
    deploy,
    drive,
    fast_gates,  # noqa: F401  # A fixture of every test here.
    plan,
    submit,
)

WHY = "its tables have changed without it"


def end(agent: AgentContext, run_id: str) -> None:
    row = agent.ledger.run(run_id)
    assert row is not None
    end_unexecutable(agent, row, WHY, ())


@pytest.mark.parametrize(
    "where",
    ["before start running", "effect start", "evidence start", "before catch_up gate", "before swap running",
     "after swap running", "effect swap"],
)  # fmt: skip
def test_a_run_that_was_ended_performs_nothing_more_and_stays_as_it_was_ended(
    where: str, agent: AgentContext, pool: Any
) -> None:
    deploy(agent, pool, small_project.texts())
    run_id = submit(agent, plan(agent, UPPER, REBUILD))
    drive(at(agent, where, lambda: end(agent, run_id)), run_id)
    row = agent.ledger.run(run_id)
    assert row is not None and (row.state, row.ended_at is not None) == ("failed", True)
    assert [step.note for step in row.steps if step.state == "failed"] == [WHY]
    assert pool.views == SERVING
    assert ends_told(agent, run_id) == (1, 1)


def test_a_run_that_was_ended_while_it_waits_for_the_pool_does_not_swap_once_it_is_back(
    agent: AgentContext, pool: Any
) -> None:
    deploy(agent, pool, small_project.texts())
    run_id = submit(agent, plan(agent, UPPER, REBUILD))
    lane = OpenRuns(at(agent, "after swap running", lambda: setattr(pool, "reachable", False)))
    lane.drive(run_id)
    wait_until(lambda: not pool.reachable)
    end(agent, run_id)
    pool.reachable = True
    wait_until(lambda: not lane._woken)
    assert (state_of(agent, run_id), pool.views) == ("failed", SERVING)


def test_an_ended_run_can_be_cancelled_by_a_command_accepted_meanwhile(agent: AgentContext, pool: Any) -> None:
    deploy(agent, pool, small_project.texts())
    run_id = submit(agent, plan(agent, UPPER, REBUILD))

    def end_and_tell() -> None:
        end(agent, run_id)
        lane.submit_command(run_id, OperatorControl("cancel"))

    lane = OpenRuns(at(agent, "before swap running", end_and_tell))
    lane.drive(run_id)
    wait_until(lambda: state_of(agent, run_id) == "cancelled")
    wait_until(lambda: not lane._woken)
    assert (sorted(pool.running), pool.views) == (["a@v1", "b@v1", "c@v1"], SERVING)


def accept(agent: AgentContext, run_id: str, act: str) -> None:
    """Accept a command as the agent does, without notifying the run."""
    if act == "retry":
        agent.ledger.retry_run(run_id, serial=agent.locks.announce_start(), by="ana", at=1.0)
    else:
        n = step_of(agent, run_id, "catch_up").n if act == "skip" else 0
        agent.ledger.put_run_command(run_id, OperatorControl(act, n, "ana"), at=1.0)


@pytest.mark.parametrize("act", ["retry", "skip", "resume"])
def test_no_command_from_before_a_run_was_ended_resumes_it(act: str, agent: AgentContext, pool: Any) -> None:
    deploy(agent, pool, small_project.texts())
    run_id = submit(agent, plan(agent, UPPER, REBUILD))
    accept(agent, run_id, act)
    end(agent, run_id)
    assert not agent.ledger.run_commands(run_id)
    lane = OpenRuns(agent)
    lane.wake(run_id)
    wait_until(lambda: not lane._woken)
    assert (state_of(agent, run_id), pool.views) == ("failed", SERVING)
    accept(agent, run_id, "retry")
    lane.resume_open()
    wait_until(lambda: not lane._woken)
    assert state_of(agent, run_id) == "done"


def test_a_retry_pending_while_a_run_is_ended_does_not_revive_its_thread(agent: AgentContext, pool: Any) -> None:
    deploy(agent, pool, small_project.texts())
    run_id = submit(agent, plan(agent, UPPER, REBUILD))

    def tell_and_end() -> None:
        accept(agent, run_id, "retry")
        end(agent, run_id)

    lane = OpenRuns(at(agent, "before swap running", tell_and_end))
    lane.drive(run_id)
    wait_until(lambda: not lane._woken)
    assert (state_of(agent, run_id), pool.views) == ("failed", SERVING)


def test_a_cancel_given_before_a_run_was_ended_is_carried_out(agent: AgentContext, pool: Any) -> None:
    deploy(agent, pool, small_project.texts())
    run_id = submit(agent, plan(agent, UPPER, REBUILD))
    accept(agent, run_id, "skip")
    accept(agent, run_id, "cancel")
    end(agent, run_id)
    lane = OpenRuns(agent)
    lane.resume_open()
    wait_until(lambda: not lane._woken)
    assert (state_of(agent, run_id), pool.views) == ("cancelled", SERVING)
    assert not agent.ledger.run_commands(run_id)


def let_words_be_read(agent: AgentContext, patch: pytest.MonkeyPatch, *, times: int) -> None:
    """Fail a run that polls for commands more than `times` times, which it might do forever."""
    read, looks = agent.ledger.run_commands, iter(range(times))
    patch.setattr(type(agent.ledger), "run_commands", lambda _, of: (next(looks), read(of))[1])


def test_an_ended_run_refuses_the_skip_of_a_begun_start(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = submit(agent, plan(agent, small_project.texts(), EVERYTHING))
    row = agent.ledger.run(run_id)
    assert row is not None
    states = {("start", "b"): "failed", ("start", "c"): "gate", ("create", "a"): "done", ("start", "a"): "done"}
    steps = [replace(s, state=states.get((s.do, s.table), "waits"), tries=1) for s in row.steps]
    start = next(step for step in steps if step.state == "gate")
    assert agent.ledger.advance_run(run_id, was="running", state="failed", ended_at=2.0, steps=steps)
    agent.ledger.put_run_command(run_id, OperatorControl("skip", start.n, "ana"), at=3.0)
    with monkeypatch.context() as patch:
        let_words_be_read(agent, patch, times=5)
        assert drive(agent, run_id) == "failed"
    assert not agent.ledger.run_commands(run_id)
    told = [event.summary for event in agent.ledger.events() if "was not skipped" in event.summary]
    assert told == [f"step {start.n} of run {run_id}, start c, was not skipped: it waits"]


def test_a_run_that_ends_with_an_unread_command_waits_between_its_polls(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = submit(agent, plan(agent, small_project.texts(), EVERYTHING))
    assert agent.ledger.advance_run(run_id, was="running", state="failed", ended_at=2.0, steps=())
    accept(agent, run_id, "cancel")
    waits: list[bool] = []
    monkeypatch.setattr(run_driver, "skip_must_wait", lambda *_: not waits)
    monkeypatch.setattr(RunDriver, "_wait", lambda _: waits.append(True))
    let_words_be_read(agent, monkeypatch, times=5)
    assert drive(agent, run_id) == "cancelled" and len(waits) == 1


def test_ending_a_run_waits_for_the_current_step(agent: AgentContext, pool: Any) -> None:
    deploy(agent, pool, small_project.texts())
    run_id = submit(agent, plan(agent, UPPER, REBUILD))
    with held_elsewhere(agent, (TableName("a"), 2)):
        ending = in_a_thread(lambda: end(agent, run_id))
        # The call acquires versions in order, and waits at the next version.
        wait_until(lambda: (TableName("a"), 1) in agent.locks.held())
        assert state_of(agent, run_id) == "running"
    ending.join(30)
    assert state_of(agent, run_id) == "failed"
