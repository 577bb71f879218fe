"""Time limits of gates: a run that waits in vain fails, explains what to do, and can be retried."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

import pytest
import small_project

from core.model.errors import LedgerUnavailable, PoolUnreachable
from core.model.names import TableName
from core.plan.model import Step
from core.plan.request import PlanRequest
from core.run.model import OperatorControl
from core.run.state_machine import RunEvidence
from pipelines.agent.context import AgentContext
from pipelines.agent.runs.catch_up_gate import GateReading
from pipelines.agent.runs.step_executor import StepExecutor
from tests.pipelines.agent import conftest
from tests.pipelines.agent.runs.test_run_driver import (
    OpenGate,
    deploy,
    drive,
    fast_gates,  # noqa: F401  # A fixture of every test here.
    plan,
    settle,
    submit,
)

A = TableName("a")
UPPER = "SELECT id, upper(kind) AS kind FROM STREAM landed"
LOOKS = 300
"""Number of checks after which the awaited event would occur; the clock advances half an hour at each check."""
ENDED = "its gate did not open within 24 hours; headgate runs retry waits again"


@dataclass
class Closed:
    """Keeps a gate closed for a long time."""

    why: Callable[[], str]
    looks: int = 0

    def check(self, *_: Any) -> GateReading:
        why = self.still()
        return GateReading(not why, why)

    def still(self, *_: Any) -> str:
        self.looks += 1
        return "" if self.looks > LOOKS else self.why()


@pytest.fixture
def agent(agent: AgentContext) -> AgentContext:
    """An agent for which half an hour passes between two looks at the clock."""
    return replace(agent, monotonic=partial(next, count(0.0, 1800.0)))


def rebuild(agent: AgentContext, pool: Any, closed: Closed, monkeypatch: pytest.MonkeyPatch, gate: str) -> str:
    """Begin a rebuild whose gate stays closed, and return its run once it has ended."""
    deploy(agent, pool, small_project.texts())
    made = plan(agent, small_project.texts(a=UPPER), PlanRequest(tables=(A,), rebuild=True, children="all"))
    what = staticmethod(closed.still) if gate == "why_closed" else closed.check
    monkeypatch.setattr(OpenGate, gate, what)
    perform = StepExecutor.perform

    def prompt(executor: StepExecutor, step: Step) -> RunEvidence:
        """Let started queries commit their first batch early, because nothing is swapped without one."""
        found = perform(executor, step)
        settle(agent, pool)
        return found

    monkeypatch.setattr(StepExecutor, "perform", prompt)
    run_id = submit(agent, made)
    drive(agent, run_id)
    return run_id


def failure(agent: AgentContext, run_id: str, do: str) -> str:
    row = agent.ledger.run(run_id)
    assert row is not None and row.state == "failed", row
    return next(step.note for step in row.steps if step.do == do and step.state == "failed")


@pytest.mark.parametrize(
    ("gate", "do", "waits"),
    [("check", "catch_up", "lag 7 rows"), ("why_closed", "swap", "c@v2 is behind again: lag 7 rows")],
)
def test_a_gate_that_never_opens_ends_with_a_remedy(
    gate: str, do: str, waits: str, agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = Closed(lambda: "lag 7 rows")
    run_id = rebuild(agent, pool, closed, monkeypatch, gate)
    assert failure(agent, run_id, do) == f"{waits}; {ENDED}"
    assert pool.views["a"] == "a__v1", "no pointer has moved"


@pytest.mark.parametrize("error", [PoolUnreachable("the pool is silent"), LedgerUnavailable("the ledger is locked")])
def test_a_gate_that_cannot_be_measured_ends_too(
    error: Exception, agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable() -> str:
        raise error

    run_id = rebuild(agent, pool, Closed(unreachable), monkeypatch, "check")
    assert failure(agent, run_id, "catch_up") == f"{error}; {ENDED}"


def test_a_swap_whose_wait_ends_while_the_pool_is_silent_leaves_no_pointer_moved(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    swap, cut_off = conftest._Tables.swap, []

    def moves_one_and_is_silent(tables: Any, pointers: Any, before: Any) -> float:
        if all(targets[-1].endswith("__v1") for _, targets, _ in pointers):
            return swap(tables, pointers, before)
        swap(tables, pointers[:1], before)
        cut_off.append(dict(pool.views))
        raise PoolUnreachable("no answer within 30 s")

    monkeypatch.setattr(conftest._Tables, "swap", moves_one_and_is_silent)
    before, closed = (
        {"a": "a__v1", "b": "b__v1", "c": "c__v1"},
        Closed(lambda: "" if closed.looks > 3 else "lag 7 rows"),
    )
    run_id = rebuild(agent, pool, closed, monkeypatch, "why_closed")
    assert failure(agent, run_id, "swap") == f"no answer within 30 s; {ENDED}"
    assert cut_off[-1] != before == pool.views


def test_a_retry_waits_the_full_time_again(agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = Closed(lambda: "lag 7 rows")
    run_id = rebuild(agent, pool, closed, monkeypatch, "check")
    before = closed.looks
    agent.ledger.put_run_state(run_id, "failed")
    assert drive(agent, run_id, OperatorControl("retry")) == "failed"
    assert closed.looks - before >= before, "as many hours as the first time"


def test_the_environment_says_how_long(agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    agent.layout = replace(agent.layout, environment=replace(agent.layout.environment, gate_ends_h=100.0))
    run_id = rebuild(agent, pool, Closed(lambda: "lag 7 rows"), monkeypatch, "check")
    assert "within 100 hours" in failure(agent, run_id, "catch_up")
