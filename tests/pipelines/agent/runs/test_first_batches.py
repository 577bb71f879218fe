"""A start is done once its first batch is committed within a time limit; an earlier failure fails the run."""

from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import pytest
import small_project
from agent_scenarios import stop_by_operator, wait_until

from core.model.names import TableName
from core.model.states import State
from core.run.records import StepRow
from pipelines.agent.context import AgentContext
from pipelines.agent.runs.run_driver import OpenRuns, RunDriver
from tests.pipelines.agent.runs.test_run_driver import (
    EVERYTHING,
    drive,
    fast_gates,  # noqa: F401  # A fixture of every test here.
    plan,
    submit,
)

A = TableName("a")


def begun(agent: AgentContext) -> str:
    return submit(agent, plan(agent, small_project.texts(), EVERYTHING))


def start_of(agent: AgentContext, run_id: str, table: str = "a") -> StepRow:
    row = agent.ledger.run(run_id)
    assert row is not None
    return next(step for step in row.steps if (step.do, step.table) == ("start", table))


def test_a_start_is_pending_until_its_first_batch_while_its_readers_start_as_well(
    agent: AgentContext, pool: Any
) -> None:
    pool.pending.add("a@v1")
    run_id = begun(agent)
    OpenRuns(agent).drive(run_id)
    wait_until(lambda: start_of(agent, run_id, "b").state == "done")
    found = start_of(agent, run_id)
    assert (found.state, found.note) == ("gate", "started, first batch pending")
    assert pool.views["a"] == "a__v1" and [run.id for run in agent.ledger.open_runs()] == [run_id]
    pool.pending.clear()
    wait_until(lambda: not agent.ledger.open_runs())
    assert start_of(agent, run_id).state == "done"


def test_a_first_batch_that_fails_fails_the_run(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.pending.add("a@v1")
    waits = RunDriver._wait

    def fails(driver: RunDriver) -> None:
        agent.ledger.update_deployment(A, 1, state=State.FAILED, error_class="CAST_INVALID_INPUT", error="'x' is none")
        waits(driver)

    monkeypatch.setattr(RunDriver, "_wait", fails)
    run_id = begun(agent)
    assert drive(agent, run_id) == "failed"
    assert start_of(agent, run_id).note == "CAST_INVALID_INPUT: 'x' is none"


def test_a_first_batch_that_never_ends_ends_the_run_after_the_hours_of_the_environment(
    agent: AgentContext, pool: Any
) -> None:
    pool.pending.add("a@v1")
    agent = replace(agent, monotonic=partial(next, count(0.0, 3600.0)))
    run_id = begun(agent)
    assert drive(agent, run_id) == "failed"
    assert start_of(agent, run_id).note == (
        "started, first batch pending; its gate did not open within 24 hours; headgate runs retry waits again"
    )


def test_a_stop_by_an_operator_ends_the_wait(agent: AgentContext, pool: Any) -> None:
    pool.pending.add("a@v1")
    run_id = begun(agent)
    OpenRuns(agent).drive(run_id)
    wait_until(lambda: start_of(agent, run_id).state == "gate")
    stop_by_operator(agent, pool, "a").join()
    wait_until(lambda: not agent.ledger.open_runs())
    assert start_of(agent, run_id).state == "failed"
    assert "was stopped by" in start_of(agent, run_id).note
