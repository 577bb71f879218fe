"""Retries and skips of failed runs are not lost if an agent dies right after its answer."""

import os
from typing import Any

import pytest
import small_project
from agent_scenarios import fast_lane

from core.model.errors import Refused
from core.model.names import TableName as T
from pipelines.agent.context import AgentContext
from pipelines.agent.measurements.table_statistics_collector import TableStatisticsCollector
from pipelines.agent.requests.command_handler import CommandHandler
from pipelines.agent.requests.socket_server import Caller
from pipelines.agent.runs import pointer_steps, run_driver, step_executor
from pipelines.agent.runs.catch_up_gate import GateReading
from pipelines.spark_connect.query_progress import PoolUtilization
from tests.pipelines.agent.runs import test_run_driver as lane
from tests.pipelines.agent.runs.test_pointer_moves import REBUILD, begun, serving

CALLER = Caller(1, os.getuid(), None)


class DiesAfterItsAnswer:
    """A driver of runs that never receives a command."""

    def wake(self, run_id: str) -> None:
        return


@pytest.fixture(autouse=True)
def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (step_executor, pointer_steps):
        monkeypatch.setattr(module, "CatchUpGate", lane.OpenGate)
    monkeypatch.setattr(run_driver, "POLL_S", 0.001)


def asked(agent: AgentContext, run_id: str, act: str, step: int = 0) -> None:
    """Send a command on a run to an agent that dies before its run reads it."""
    figures = TableStatisticsCollector(agent, PoolUtilization())
    runs: Any = DiesAfterItsAnswer()
    handler = CommandHandler(agent, fast_lane(agent), runs, figures, lambda **asked: None)
    handler.handle(CALLER, {"op": "run", "args": {"id": run_id, "act": act, "step": step}, "confirm": run_id[:4]})


@pytest.fixture
def failed(agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """A release in which a gate and a version have failed."""
    run_id = begun(agent, pool)
    with monkeypatch.context() as patch:
        patch.setattr(lane.OpenGate, "check", lambda *_: GateReading(False, "lost rows", failed=True))
        assert lane.drive(agent, run_id) == "failed"
    agent.ledger.update_deployment(T("b"), 2, state="failed", error_class="OOM", error="no memory")
    pool.running.pop("b@v2")
    return run_id


def test_a_retry_is_in_the_ledger_before_it_is_answered(failed: str, agent: AgentContext, pool: Any) -> None:
    asked(agent, failed, "retry")
    row = agent.ledger.run(failed)
    assert row is not None and row.state == "running" and row.ended_at is None
    assert {step.state for step in row.steps} == {"done", "waits"}
    assert lane.drive(agent, failed) == "done", "the next agent goes on without a word"
    assert pool.views == serving(agent) == {name: f"{name}__v2" for name in "abc"} and "b@v2" in pool.running


def test_a_skip_is_in_the_ledger_before_it_is_answered(failed: str, agent: AgentContext) -> None:
    row = agent.ledger.run(failed)
    assert row is not None
    gate = next(step for step in row.steps if step.state == "failed")
    asked(agent, failed, "skip", gate.n)
    row = agent.ledger.run(failed)
    assert row is not None and row.state == "running"
    found = {step.n: step for step in row.steps}
    assert (found[gate.n].state, found[gate.n].note) == ("skipped", "skipped by an operator")
    assert "failed" not in {step.state for step in row.steps} and "blocked" not in {step.state for step in row.steps}


@pytest.mark.parametrize("act", ["retry", "skip"])
def test_a_release_overtaken_by_a_newer_one_is_not_resumed(act: str, failed: str, agent: AgentContext) -> None:
    other = small_project.texts(a="SELECT id, lower(kind) AS kind FROM STREAM landed")
    assert lane.drive(agent, lane.submit(agent, lane.plan(agent, other, REBUILD))) == "done"
    row = agent.ledger.run(failed)
    assert row is not None
    gate = next(step.n for step in row.steps if step.state == "failed")
    with pytest.raises(
        Refused, match=f"since run {failed} failed, a@v3 has begun to serve, which the run was not planned to replace"
    ):
        asked(agent, failed, act, gate)
    assert agent.ledger.run(failed) == row
