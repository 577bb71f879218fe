"""Starts and restarts that a kill has cut off: the reconciler of the next agent carries out what is wanted."""

import time
from typing import Any

import pytest
import small_project
from agent_world import fast_lane

from core.model.names import TableName
from core.ports.spark import ReportedQuery
from pipelines.agent import deployment_lifecycle
from pipelines.agent import fast_lane as fast_lane_module
from pipelines.agent.context import AgentContext
from pipelines.agent.reconciler import BeforeRound, Reconciler
from pipelines.agent.statement_locks import StatementLocks
from state.ledger import Ledger
from state.row_types import Deployment
from tests.pipelines.agent.runs import test_run_lane as lane
from tests.pipelines.agent.runs.test_run_lane import Killed

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
