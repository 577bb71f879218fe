"""A run that somebody else has ended: its thread writes nothing more, and no effect is performed for it."""

from dataclasses import replace
from typing import Any

import pytest
import small_project
from agent_world import held_elsewhere, in_a_thread, wait_until

from core.model.names import TableName
from core.run.state_machine import OperatorControl
from pipelines.agent.context import AgentContext
from pipelines.agent.runs import run_driver
from pipelines.agent.runs.run_driver import OpenRuns, RunDriver
from pipelines.agent.runs.run_ends import end_unreadable
from tests.pipelines.agent.runs.test_heard_words import REBUILD, SERVING, UPPER, at, ends_told, state_of, step_of
from tests.pipelines.agent.runs.test_run_driver import (
    EVERYTHING,
    deploy,
    drive,
    fast_gates,  # noqa: F401  # A fixture of every test here.
    plan,
    submit,
)

WHY = "its tables have gone on without it"


def end(world: AgentContext, run_id: str) -> None:
    row = world.ledger.run(run_id)
    assert row is not None
    end_unreadable(world, row, WHY, ())


@pytest.mark.parametrize(
    "where",
    ["before start running", "effect start", "evidence start", "before catch_up gate", "before swap running",
     "after swap running", "effect swap"],
)  # fmt: skip
def test_a_run_that_was_ended_performs_nothing_more_and_stays_as_it_was_ended(
    where: str, world: AgentContext, pool: Any
) -> None:
    deploy(world, pool, small_project.texts())
    run_id = submit(world, plan(world, UPPER, REBUILD))
    drive(at(world, where, lambda: end(world, run_id)), run_id)
    row = world.ledger.run(run_id)
    assert row is not None and (row.state, row.ended_at is not None) == ("failed", True)
    assert [step.note for step in row.steps if step.state == "failed"] == [WHY]
    assert pool.views == SERVING
    assert ends_told(world, run_id) == (1, 1)


def test_a_run_that_was_ended_while_it_waits_for_the_pool_does_not_swap_once_it_is_back(
    world: AgentContext, pool: Any
) -> None:
    deploy(world, pool, small_project.texts())
    run_id = submit(world, plan(world, UPPER, REBUILD))
    lane = OpenRuns(at(world, "after swap running", lambda: setattr(pool, "reachable", False)))
    lane.drive(run_id)
    wait_until(lambda: not pool.reachable)
    end(world, run_id)
    pool.reachable = True
    wait_until(lambda: not lane._woken)
    assert (state_of(world, run_id), pool.views) == ("failed", SERVING)


def test_a_run_that_was_ended_can_be_cancelled_by_the_word_that_came_meanwhile(world: AgentContext, pool: Any) -> None:
    deploy(world, pool, small_project.texts())
    run_id = submit(world, plan(world, UPPER, REBUILD))

    def end_and_tell() -> None:
        end(world, run_id)
        lane.tell(run_id, OperatorControl("cancel"))

    lane = OpenRuns(at(world, "before swap running", end_and_tell))
    lane.drive(run_id)
    wait_until(lambda: state_of(world, run_id) == "cancelled")
    wait_until(lambda: not lane._woken)
    assert (sorted(pool.running), pool.views) == (["a@v1", "b@v1", "c@v1"], SERVING)


def accept(world: AgentContext, run_id: str, act: str) -> None:
    """Have a word accepted as at the agent's desk, and nobody told of it."""
    if act == "retry":
        world.ledger.retry_run(run_id, serial=world.locks.start(), by="ana", at=1.0)
    else:
        n = step_of(world, run_id, "catch_up").n if act == "skip" else 0
        world.ledger.tell_run(run_id, OperatorControl(act, n, "ana"), at=1.0)


@pytest.mark.parametrize("act", ["retry", "skip", "resume"])
def test_no_word_from_before_a_run_was_ended_takes_it_up_again(act: str, world: AgentContext, pool: Any) -> None:
    deploy(world, pool, small_project.texts())
    run_id = submit(world, plan(world, UPPER, REBUILD))
    accept(world, run_id, act)
    end(world, run_id)
    assert not world.ledger.run_words(run_id)
    lane = OpenRuns(world)
    lane.wake(run_id)
    wait_until(lambda: not lane._woken)
    assert (state_of(world, run_id), pool.views) == ("failed", SERVING)
    accept(world, run_id, "retry")
    lane.resume_open()
    wait_until(lambda: not lane._woken)
    assert state_of(world, run_id) == "done"


def test_a_retry_that_waits_while_a_run_is_ended_does_not_let_its_thread_go_on(world: AgentContext, pool: Any) -> None:
    deploy(world, pool, small_project.texts())
    run_id = submit(world, plan(world, UPPER, REBUILD))

    def tell_and_end() -> None:
        accept(world, run_id, "retry")
        end(world, run_id)

    lane = OpenRuns(at(world, "before swap running", tell_and_end))
    lane.drive(run_id)
    wait_until(lambda: not lane._woken)
    assert (state_of(world, run_id), pool.views) == ("failed", SERVING)


def test_a_cancel_from_before_a_run_was_ended_is_carried_out(world: AgentContext, pool: Any) -> None:
    deploy(world, pool, small_project.texts())
    run_id = submit(world, plan(world, UPPER, REBUILD))
    accept(world, run_id, "skip")
    accept(world, run_id, "cancel")
    end(world, run_id)
    lane = OpenRuns(world)
    lane.resume_open()
    wait_until(lambda: not lane._woken)
    assert (state_of(world, run_id), pool.views) == ("cancelled", SERVING)
    assert not world.ledger.run_words(run_id)


def let_words_be_read(world: AgentContext, patch: pytest.MonkeyPatch, *, times: int) -> None:
    """Fail a run that looks for words more often, which it would do for ever."""
    read, looks = world.ledger.run_words, iter(range(times))
    patch.setattr(type(world.ledger), "run_words", lambda _, of: (next(looks), read(of))[1])


def test_a_run_that_has_ended_hears_the_skip_of_a_start_that_was_begun_and_refuses_it(
    world: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = submit(world, plan(world, small_project.texts(), EVERYTHING))
    row = world.ledger.run(run_id)
    assert row is not None
    states = {("start", "b"): "failed", ("start", "c"): "gate", ("create", "a"): "done", ("start", "a"): "done"}
    steps = [replace(s, state=states.get((s.do, s.table), "waits"), tries=1) for s in row.steps]
    start = next(step for step in steps if step.state == "gate")
    assert world.ledger.advance_run(run_id, was="running", state="failed", ended_at=2.0, steps=steps)
    world.ledger.tell_run(run_id, OperatorControl("skip", start.n, "ana"), at=3.0)
    with monkeypatch.context() as patch:
        let_words_be_read(world, patch, times=5)
        assert drive(world, run_id) == "failed"
    assert not world.ledger.run_words(run_id)
    told = [event.summary for event in world.ledger.events() if "was not skipped" in event.summary]
    assert told == [f"step {start.n} of run {run_id}, start c, was not skipped: it waits"]


def test_a_run_that_ends_with_a_word_unheard_waits_between_its_looks(
    world: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = submit(world, plan(world, small_project.texts(), EVERYTHING))
    assert world.ledger.advance_run(run_id, was="running", state="failed", ended_at=2.0, steps=())
    accept(world, run_id, "cancel")
    waits: list[bool] = []
    monkeypatch.setattr(run_driver, "is_early", lambda *_: not waits)
    monkeypatch.setattr(RunDriver, "_wait", lambda _: waits.append(True))
    let_words_be_read(world, monkeypatch, times=5)
    assert drive(world, run_id) == "cancelled" and len(waits) == 1


def test_who_ends_a_run_waits_for_the_step_that_is_under_way(world: AgentContext, pool: Any) -> None:
    deploy(world, pool, small_project.texts())
    run_id = submit(world, plan(world, UPPER, REBUILD))
    with held_elsewhere(world, (TableName("a"), 2)):
        ending = in_a_thread(lambda: end(world, run_id))
        # It takes versions in order, and waits at the next one.
        wait_until(lambda: (TableName("a"), 1) in world.locks.held())
        assert state_of(world, run_id) == "running"
    ending.join(30)
    assert state_of(world, run_id) == "failed"
