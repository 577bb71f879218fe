"""Replaced versions run for a while and are then stopped, readers first; a rollback before that finds them running."""

from dataclasses import astuple
from typing import Any

import pytest
import small_project
from agent_scenarios import read_before, stop_in_ledger

from core.model.names import TableName as T
from core.observed.versions import Binding
from core.plan.request import PlanRequest
from core.planner.planner import make_plan
from pipelines.agent import housekeeping
from pipelines.agent.context import AgentContext, Uptime
from pipelines.agent.housekeeping import stop_soaked
from pipelines.agent.runs import pointer_steps, run_driver, step_executor
from state.planner_input_from_registry import observe
from tests.pipelines.agent.runs import test_run_driver as lane
from tests.pipelines.agent.runs.test_executor_contract import UPPER, soaking

REBUILD = PlanRequest(tables=(T("a"),), rebuild=True, children="all")


@pytest.fixture
def soaked(agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch) -> AgentContext:
    """An environment in which a release has just replaced a, b and c."""
    monkeypatch.setattr(step_executor, "CatchUpGate", lane.OpenGate)
    monkeypatch.setattr(pointer_steps, "CatchUpGate", lane.OpenGate)
    monkeypatch.setattr(run_driver, "POLL_S", 0.001)
    lane.deploy(agent, pool, small_project.texts())
    assert lane.deploy(agent, pool, soaking(small_project.texts(a=UPPER)), REBUILD) == "done"
    return agent


def wanted(agent: AgentContext) -> list[str]:
    found = (d for d in agent.ledger.deployments() if d.wanted == "running" and not d.external)
    return sorted(f"{d.table}@v{d.version}" for d in found)


def later(agent: AgentContext) -> None:
    for version in agent.ledger.deployments():
        if version.stops_at is not None:
            agent.ledger.update_deployment(version.table, version.version, stops_at=agent.clock() - 1)


def test_replaced_versions_continue_and_then_stop_readers_first(soaked: AgentContext, pool: Any) -> None:
    assert {"a@v1", "b@v1", "c@v1"} <= pool.running.keys()
    for version in soaked.ledger.deployments():
        if version.stops_at is not None:
            soaked.ledger.update_deployment(version.table, version.version, stops_at=soaked.clock() + 60)
    stop_soaked(soaked)
    assert len(wanted(soaked)) == 6
    later(soaked)
    stop_soaked(soaked)
    assert wanted(soaked) == ["a@v1", "a@v2", "b@v2", "c@v2"], "a@v1 is read until its readers are stopped"
    stop_soaked(soaked)
    assert wanted(soaked) == ["a@v2", "b@v2", "c@v2"]
    assert all(d.stops_at is None for d in soaked.ledger.deployments())


@pytest.mark.parametrize(
    ("about", "later_on"),
    [((T("a"), 1), {"stops_at": 9e12}), ((T("b"), 2), {"bindings": (Binding(T("a"), 1, True),)})],
    ids=["its end is moved", "a reader comes"],
)
def test_a_rollback_between_the_check_and_the_stop_of_a_soak_keeps_a_version_running(
    about: tuple[T, int], later_on: dict[str, Any], soaked: AgentContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "checked_now", lambda agent: agent.clock())
    later(soaked)
    for table in ("b", "c"):
        soaked.ledger.update_deployment(T(table), 1, wanted="stopped")
    stop_soaked(read_before(soaked, "deployments", lambda: soaked.ledger.update_deployment(*about, **later_on)))
    assert wanted(soaked) == ["a@v1", "a@v2", "b@v2", "c@v2"]


def test_a_rollback_meanwhile_starts_nothing_and_ends_the_soak(soaked: AgentContext, pool: Any) -> None:
    starts = len(pool.starts)
    back = lane.plan(soaked, soaking(small_project.texts()), PlanRequest(verb="rollback", tables=(T("a"),)))
    assert [step.do for step in back.steps if step.do == "resume"] == []
    run = lane.submit(soaked, back)
    later(soaked)
    stop_soaked(soaked)
    assert len(wanted(soaked)) == 6, "a run that has not ended is about them"
    assert lane.drive(soaked, run) == "done" and len(pool.starts) == starts
    assert wanted(soaked) == ["a@v1", "b@v1", "c@v1"]
    later(soaked)
    stop_soaked(soaked)
    assert wanted(soaked) == ["a@v1", "b@v1", "c@v1"]


def test_a_version_that_an_operator_has_stopped_is_left_alone(soaked: AgentContext) -> None:
    stop_in_ledger(soaked, T("c"))
    later(soaked)
    for _ in range(3):
        stop_soaked(soaked)
    assert wanted(soaked) == ["a@v2", "b@v2"]


def test_a_clock_that_is_set_forward_ends_no_soak(soaked: AgentContext) -> None:
    wall, (boot, up) = soaked.clock(), astuple(soaked.uptime())
    soaked.clock, soaked.uptime = lambda: wall, lambda: Uptime(boot, up)
    for version in soaked.ledger.deployments():
        if version.stops_at is not None:
            soaked.ledger.update_deployment(version.table, version.version, stops_at=wall + 1800.0)
    stop_soaked(soaked)
    wall, up = wall + 3 * 86400.0, up + 60.0
    stop_soaked(soaked)
    assert len(wanted(soaked)) == 6, "a minute of half an hour has passed"
    wall, up = wall + 1800.0, up + 1800.0
    for _ in range(2):
        stop_soaked(soaked)
    assert wanted(soaked) == ["a@v2", "b@v2", "c@v2"]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_clock_that_is_set_by_less_than_an_hour_moves_the_end_of_a_soak_along(
    restarted: bool, soaked: AgentContext
) -> None:
    wall, (boot, up) = soaked.clock(), astuple(soaked.uptime())
    soaked.clock, soaked.uptime = lambda: wall, lambda: Uptime(boot, up)
    for version in soaked.ledger.deployments():
        if version.stops_at is not None:
            soaked.ledger.update_deployment(version.table, version.version, stops_at=wall + 1800.0)
    stop_soaked(soaked)
    # The clock is set forward by 45 minutes, possibly with a restart of the machine, 5 s before the next check.
    wall, up, boot = wall + 2700.0 + 5.0, (5.0 if restarted else up + 5.0), "again" if restarted else boot
    stop_soaked(soaked)
    assert len(wanted(soaked)) == 6, "five seconds of half an hour have passed"
    ends = {round(d.stops_at - wall) for d in soaked.ledger.deployments() if d.stops_at is not None}
    assert ends == {1795}, "and the end that is shown is true"
    wall, up = wall - 2700.0 + 5.0, up + 5.0
    stop_soaked(soaked)
    ends = {round(d.stops_at - wall) for d in soaked.ledger.deployments() if d.stops_at is not None}
    assert ends == {1790}, "set back again, the soak is no longer than it was"
    wall, up = wall + 1791.0, up + 1791.0
    for _ in range(2):
        stop_soaked(soaked)
    assert wanted(soaked) == ["a@v2", "b@v2", "c@v2"]


def test_a_plan_warns_that_both_versions_run(agent: AgentContext, soaked: AgentContext) -> None:
    found = lane.plan(soaked, soaking(small_project.texts(a=UPPER)), REBUILD)
    assert any("keep running for 30 min beside the new ones" in warned.summary for warned in found.warnings)
    assert {step.do for step in found.steps} >= {"soak", "swap"}


def test_another_release_does_not_let_older_versions_run_on_for_longer(soaked: AgentContext, pool: Any) -> None:
    lane.settle(soaked, pool)
    ends = {(d.table, d.version): d.stops_at for d in soaked.ledger.deployments() if d.stops_at is not None}
    passed = 1e6 + max(ends.values()) - soaked.clock()
    wall, (boot, up) = soaked.clock() + passed, astuple(soaked.uptime())
    soaked.clock, soaked.uptime = lambda: wall, lambda: Uptime(boot, up + passed)
    assert lane.deploy(soaked, pool, soaking(small_project.texts()), REBUILD) == "done"
    assert {key: soaked.ledger.deployment(*key).stops_at for key in ends} == ends  # type: ignore[union-attr]


def test_inputs_of_a_stopped_serving_statement_keep_running(agent: AgentContext, soaked: AgentContext) -> None:
    soaked.ledger.update_deployment(T("b"), 2, bindings=(Binding(T("a"), 1, True),))
    stop_in_ledger(soaked, T("b"), T("c"))
    later(soaked)
    stop_soaked(soaked)
    assert "a@v1" in wanted(soaked), "b goes on over it once it is started"


def test_a_table_is_not_deleted_under_what_runs_on(soaked: AgentContext, pool: Any) -> None:
    lane.settle(soaked, pool)
    elsewhere = "SELECT id, kind FROM STREAM landed"
    files = soaking(small_project.texts(a=UPPER, b=elsewhere, c=elsewhere))
    assert lane.deploy(soaked, pool, files, PlanRequest(everything=True, children="all")) == "done"
    gone = PlanRequest(verb="delete", tables=(T("a"),))
    made = make_plan(small_project.project(files), "dev", observe(soaked.ledger.deployments()), gone)
    found = {refused.summary.split(",")[0] for refused in made.refusals}
    assert found == {f"a is read by {name}__v{version}" for name in "bc" for version in (1, 2)}
    for _ in range(3):
        later(soaked)
        stop_soaked(soaked)
    assert lane.deploy(soaked, pool, files, gone) == "done"
    assert not [name for name in pool.running if name.startswith("a@")], "each was stopped before its table went"


@pytest.fixture
def twice(soaked: AgentContext, pool: Any) -> tuple[AgentContext, dict[str, str]]:
    """The same environment after two more releases of b and c only, whose versions no longer read a."""
    files: dict[str, str] = {}
    for condition in ("", " WHERE id > 0"):
        lane.settle(soaked, pool)
        elsewhere = f"SELECT id, kind FROM STREAM landed{condition}"
        files = soaking(small_project.texts(a=UPPER, b=elsewhere, c=elsewhere))
        assert lane.deploy(soaked, pool, files, PlanRequest(tables=(T("b"), T("c")), rebuild=True)) == "done"
    lane.settle(soaked, pool)
    return soaked, files


def test_a_version_of_the_release_before_the_last_holds_what_it_reads_as_long_as_it_runs(
    twice: tuple[AgentContext, dict[str, str]], pool: Any
) -> None:
    agent, files = twice
    assert {"b@v2", "c@v2", "b@v3", "b@v4"} <= set(wanted(agent))
    gone = PlanRequest(verb="delete", tables=(T("a"),))
    made = make_plan(small_project.project(files), "dev", observe(agent.ledger.deployments()), gone)
    assert "a is read by c__v2, which was replaced and is kept running" in {
        refused.summary for refused in made.refusals
    }
    for _ in range(3):
        later(agent)
        stop_soaked(agent)
    assert lane.deploy(agent, pool, files, gone) == "done"


def test_a_rollback_names_versions_that_stop_only_after_a_soaking_one(
    twice: tuple[AgentContext, dict[str, str]], pool: Any
) -> None:
    agent, files = twice
    made = lane.plan(agent, files, PlanRequest(verb="rollback", tables=(T("a"),)))
    said = [warned.summary for warned in made.warnings if warned.table == "a"]
    assert "v2 stops only after c__v2, which was replaced and still reads it" in said, said


def test_inputs_kept_for_a_soaking_version_stop_after_it(soaked: AgentContext, pool: Any) -> None:
    lane.settle(soaked, pool)
    files = soaking(small_project.texts(a=UPPER, c="SELECT id, kind FROM STREAM landed"))
    assert lane.deploy(soaked, pool, files, PlanRequest(tables=(T("c"),))) == "done"
    assert lane.deploy(soaked, pool, files, PlanRequest(verb="rollback", tables=(T("a"),))) == "done"
    assert wanted(soaked) == ["a@v1", "a@v2", "b@v1", "c@v1", "c@v2", "c@v3"], "c@v2 runs on, and reads a@v2"
    for _ in range(2):
        later(soaked)
        stop_soaked(soaked)
    assert wanted(soaked) == ["a@v1", "b@v1", "c@v3"]
