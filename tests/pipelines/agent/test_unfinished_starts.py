"""Starts and restarts that a kill has cut off: the reconciler of the next agent carries out what is wanted."""

import time
from dataclasses import replace
from typing import Any

import pytest
import small_project
from agent_world import fast_lane, wait_until

from core.model.errors import EngineRefused, PoolUnreachable, UsageError
from core.model.names import TableName
from core.plan.request import PlanRequest
from core.ports.spark import ReportedQuery
from core.run.state_machine import OperatorControl
from pipelines.agent import deployment_lifecycle
from pipelines.agent import fast_lane as fast_lane_module
from pipelines.agent.context import AgentContext
from pipelines.agent.reconciler import BeforeRound, Reconciler
from pipelines.agent.runs import open_run
from pipelines.agent.runs.run_lane import RunLane
from pipelines.agent.statement_locks import StatementLocks
from state.ledger import Ledger
from state.row_types import Deployment
from tests.pipelines.agent.runs import test_run_lane as lane
from tests.pipelines.agent.runs.test_held_runs import HELD
from tests.pipelines.agent.runs.test_run_lane import (
    Killed,
    fast_gates,  # noqa: F401  # A fixture of every test here.
)

C = TableName("c")


@pytest.fixture
def deployed(world: AgentContext, pool: Any) -> AgentContext:
    assert lane.deploy(world, pool, small_project.texts()) == "done"
    return world


def die(*_: Any, **more: Any) -> None:
    raise Killed


def version(world: AgentContext) -> Deployment:
    found = world.ledger.deployment(C, 1)
    assert found is not None
    return found


def round_of_the_next_agent(world: AgentContext, pool: Any) -> None:
    world.locks = StatementLocks()
    world.locks.count_above(world.ledger.newest_serial())
    found: tuple[ReportedQuery, ...] = pool.connection().queries.active()
    Reconciler(world, fast_lane(world)._emergency).round(BeforeRound.of(world), found, ())


CUTS = {
    "before anything is asked": (fast_lane_module.FastLane, "_begin"),
    "before the effect": (deployment_lifecycle, "_started"),
    "before the evidence": (Ledger, "update_deployment"),
}


@pytest.mark.parametrize("cut", CUTS)
def test_a_start_that_a_kill_has_cut_off_is_carried_out_by_the_next_agent(
    cut: str, deployed: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast_lane(deployed).stop((C,), time.monotonic(), by="ana")
    assert "c@v1" not in pool.running
    with monkeypatch.context() as killed:
        killed.setattr(*CUTS[cut], die)
        with pytest.raises(Killed):
            fast_lane(deployed).start((C,), time.monotonic(), by="ana")
    assert version(deployed).wanted == "running"
    round_of_the_next_agent(deployed, pool)
    found = version(deployed)
    assert (found.state, "c@v1" in pool.running) == ("starting", True)
    assert found.run_id == pool.run_of("c@v1")


@pytest.mark.parametrize("cut", ["before the effect", "after the stop"])
def test_a_restart_that_a_kill_has_cut_off_is_carried_out_by_the_next_agent(
    cut: str, deployed: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as killed:
        where = (fast_lane_module, "start") if cut == "after the stop" else CUTS[cut]
        killed.setattr(*where, die)
        with pytest.raises(Killed):
            fast_lane(deployed).restart((C,), time.monotonic(), by="ana")
    assert "c@v1" not in pool.running
    round_of_the_next_agent(deployed, pool)
    assert (version(deployed).state, "c@v1" in pool.running) == ("starting", True)


def test_a_stop_after_a_start_that_was_cut_off_holds(
    deployed: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast_lane(deployed).stop((C,), time.monotonic(), by="ana")
    with monkeypatch.context() as killed:
        killed.setattr(*CUTS["before the effect"], die)
        with pytest.raises(Killed):
            fast_lane(deployed).start((C,), time.monotonic(), by="ana")
    fast_lane(deployed).stop((C,), time.monotonic(), by="bob")
    round_of_the_next_agent(deployed, pool)
    assert (version(deployed).wanted, "c@v1" in pool.running) == ("stopped", False)


def test_what_a_cancelled_run_was_to_resume_does_not_begin_afterwards(
    deployed: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> None:
        pool.reachable = False
        raise PoolUnreachable("the pool is silent")

    of_c = {"tables": (C,)}
    deleting = lane.submit(deployed, lane.plan(deployed, small_project.texts(), PlanRequest(verb="delete", **of_c)))
    assert lane.drive(deployed, deleting) == "done"
    undeleting = lane.submit(deployed, lane.plan(deployed, small_project.texts(), PlanRequest(verb="undelete", **of_c)))
    runs = RunLane(deployed)
    with monkeypatch.context() as silent:
        silent.setattr(deployment_lifecycle, "_started", away)
        runs.drive(undeleting)
        wait_until(lambda: not pool.reachable)
        runs.tell(undeleting, OperatorControl("cancel", by="ana"))
        wait_until(lambda: not runs._woken, 10)
    pool.reachable = True
    round_of_the_next_agent(deployed, pool)
    assert "c@v1" not in pool.running
    with deployed.ledger._transaction() as later:
        later.execute("UPDATE run SET serial = serial + 1000 WHERE id = ?", (undeleting,))
    round_of_the_next_agent(deployed, pool)
    assert "c@v1" not in pool.running, "nor once the run has another serial, or is forgotten"


def test_a_version_that_is_held_is_started_before_the_word_where_a_kill_has_cut_its_start_off(
    deployed: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rebuilt = small_project.texts(a="SELECT id, upper(kind) AS kind FROM STREAM landed")
    held = lane.submit(deployed, lane.plan(deployed, rebuilt, HELD))

    def waits_for_the_word() -> bool:
        row = deployed.ledger.run(held)
        return row is not None and any((step.do, step.state) == ("hold", "gate") for step in row.steps)

    runs = RunLane(deployed)
    runs.drive(held)
    wait_until(waits_for_the_word, 10)
    deployed.stopping.set()
    wait_until(lambda: not runs._woken, 10)
    deployed.stopping.clear()
    fast_lane(deployed).stop(("c@v2",), time.monotonic(), by="bob")
    assert lane.drive(deployed, held) == "failed"
    deployed.ledger.retry_run(held, serial=deployed.locks.start(), by="bob", at=1.0)
    with monkeypatch.context() as killed:
        killed.setattr(open_run, "start", die)
        with pytest.raises(Killed):
            lane.drive(deployed, held)
    assert "c@v2" not in pool.running
    runs = RunLane(deployed)
    runs.resume_open()
    wait_until(lambda: waits_for_the_word() and "c@v2" in pool.running, 10)
    deployed.stopping.set()
    wait_until(lambda: not runs._woken, 10)


def test_no_run_goes_on_from_one_whose_cancel_was_accepted(deployed: AgentContext, pool: Any) -> None:
    pool.refuse["b@v2"] = EngineRefused("no such column", error_class="UNRESOLVED_COLUMN")
    rebuilt = small_project.texts(a="SELECT id, upper(kind) AS kind FROM STREAM landed")
    request = PlanRequest(tables=(TableName("a"),), rebuild=True, children="all")
    failed = lane.submit(deployed, lane.plan(deployed, rebuilt, request))
    assert lane.drive(deployed, failed) == "failed"
    deployed.ledger.tell_run(failed, OperatorControl("cancel", by="ana"), at=1.0)
    with pytest.raises(UsageError, match=f"run {failed} is being cancelled by ana"):
        lane.submit(deployed, lane.plan(deployed, rebuilt, replace(request, continues=failed)))
