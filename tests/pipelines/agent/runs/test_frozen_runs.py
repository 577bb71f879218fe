"""A run that began before a freeze: no pointer moves until the freeze ends, but a rollback continues."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import small_project

from core.model.names import TableName as T
from core.plan.request import PlanRequest
from core.policy.roles_and_rules import Policy
from core.run.model import OperatorControl
from pipelines.agent.context import AgentContext
from pipelines.agent.runs import run_driver
from tests.pipelines.agent.runs import test_run_driver as lane
from tests.pipelines.agent.runs.test_run_driver import fast_gates  # noqa: F401  # A fixture.

REBUILD = PlanRequest(tables=(T("a"),), rebuild=True, children="all")
UPPER = small_project.texts(a="SELECT id, upper(kind) AS kind FROM STREAM landed")


def freeze(agent: AgentContext, on: bool) -> None:
    rules = Policy(freeze=("1970-01-01 - 2100-01-01",) if on else ())
    agent.layout = replace(agent.layout, environment=replace(agent.layout.environment, policy=rules))


@pytest.fixture
def deployed(agent: AgentContext, pool: Any, fast_gates: None) -> AgentContext:  # noqa: F811  # The fixture.
    """An environment in which everything serves."""
    assert lane.deploy(agent, pool, small_project.texts()) == "done"
    return agent


def frozen_for(
    agent: AgentContext,
    run_id: str,
    do: str,
    hours: int,
    monkeypatch: pytest.MonkeyPatch,
    then: Callable[[Any], object],
) -> None:
    """Begin a freeze, let an hour pass at each check of a waiting step, and call `then` after some hours."""
    freeze(agent, on=True)
    waits, passed, clock = run_driver.RunDriver._wait, [0], agent.monotonic
    agent.monotonic = lambda: clock() + 3600.0 * passed[0]

    def wait(driver: Any) -> None:
        if steps_of(agent, run_id)[do][0] == "gate":
            passed[0] += 1
            if passed[0] == hours:
                then(driver)
        waits(driver)

    monkeypatch.setattr(run_driver.RunDriver, "_wait", wait)


def steps_of(agent: AgentContext, run_id: str) -> dict[str, tuple[str, str]]:
    row = agent.ledger.run(run_id)
    assert row is not None
    return {step.do: (step.state, step.note) for step in row.steps}


MOVES = pytest.mark.parametrize(
    ("request_", "files", "do"),
    [(REBUILD, UPPER, "swap"), (PlanRequest(verb="delete", everything=True), small_project.texts(), "unpoint")],
)


@MOVES
def test_a_pointer_waits_for_the_end_of_a_freeze_however_long_and_then_moves(
    request_: PlanRequest, files: dict[str, str], do: str, deployed: AgentContext, pool: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    before, said = dict(pool.views), list[tuple[str, str]]()
    run_id = lane.submit(deployed, lane.plan(deployed, files, request_))

    def thaw(driver: Any) -> None:
        said.append(steps_of(deployed, run_id)[do])
        assert pool.views == before
        freeze(deployed, on=False)

    frozen_for(deployed, run_id, do, 60, monkeypatch, thaw)
    assert lane.drive(deployed, run_id) == "done", "a weekend is longer than a gate stays closed"
    until = "Sat 2100-01-02 00:00 UTC (1970-01-01 - 2100-01-01)"
    assert said == [("gate", f"waits: dev is frozen until {until}: no pointer moves")]
    assert pool.views == ({} if do == "unpoint" else {"a": "a__v2", "b": "b__v2", "c": "c__v2"})


@MOVES
def test_the_end_of_a_freeze_moves_no_pointer_of_a_run_that_was_paused_meanwhile(
    request_: PlanRequest, files: dict[str, str], do: str, deployed: AgentContext, pool: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    before, seen = dict(pool.views), list[dict[str, str]]()
    run_id = lane.submit(deployed, lane.plan(deployed, files, request_))

    def thaw(driver: Any) -> None:
        freeze(deployed, on=False)
        deployed.ledger.put_run_command(run_id, OperatorControl("pause"), at=1.0)
        monkeypatch.setattr(run_driver.RunDriver, "_wait", look)

    def look(driver: Any) -> None:
        seen.append(dict(pool.views))
        if len(seen) == 3:
            deployed.ledger.put_run_command(run_id, OperatorControl("resume"), at=1.0)

    frozen_for(deployed, run_id, do, 1, monkeypatch, thaw)
    assert lane.drive(deployed, run_id) == "done"
    assert seen[:3] == [before] * 3 and pool.views != before


def test_a_run_that_waits_for_the_end_of_a_freeze_is_cancelled(
    deployed: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dict(pool.views)
    run_id = lane.submit(deployed, lane.plan(deployed, UPPER, REBUILD))

    def cancel(_: object) -> None:
        deployed.ledger.put_run_command(run_id, OperatorControl("cancel"), at=1.0)

    frozen_for(deployed, run_id, "swap", 2, monkeypatch, cancel)
    assert lane.drive(deployed, run_id) == "cancelled"
    assert pool.views == before and sorted(pool.running) == ["a@v1", "b@v1", "c@v1"]


def test_a_rollback_moves_its_pointers_in_a_freeze(
    deployed: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lane.deploy(deployed, pool, UPPER, REBUILD) == "done"
    back = lane.plan(deployed, UPPER, PlanRequest(verb="rollback", tables=(T("a"),)))
    run_id = lane.submit(deployed, back)
    waited: list[str] = []

    def thaw(_: object) -> None:
        waited.append("swap")
        freeze(deployed, on=False)

    frozen_for(deployed, run_id, "swap", 1, monkeypatch, thaw)
    assert lane.drive(deployed, run_id) == "done" and not waited
    assert pool.views == {"a": "a__v1", "b": "b__v1", "c": "c__v1"}
