"""A new version that fails at any moment: the serving version is unchanged, and nothing is recorded as deployed."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import pytest
import small_project

from core.model.errors import EngineRefused
from core.model.names import TableName as T
from core.plan.request import PlanRequest
from core.run.model import OperatorControl
from pipelines.agent.context import AgentContext
from pipelines.agent.runs.catch_up_gate import GateReading
from tests.pipelines.agent.runs import test_run_driver as lane
from tests.pipelines.agent.runs.test_run_driver import fast_gates  # noqa: F401  # A fixture of every test here.

UPPER = "SELECT id, upper(kind) AS kind FROM STREAM landed"
REBUILD = PlanRequest(tables=(T("a"),), rebuild=True, children="all")

Fails = Callable[[AgentContext, Any, pytest.MonkeyPatch], object]


def refused(agent: AgentContext, pool: Any, patch: pytest.MonkeyPatch) -> None:
    pool.refuse["b@v2"] = EngineRefused("no such column: knd", error_class="UNRESOLVED_COLUMN")


def failing(agent: AgentContext, pool: Any, patch: pytest.MonkeyPatch) -> None:
    """Make the first batch of b@v2 fail."""
    pool.pending.add("b@v2")
    waits = lane.RunDriver._wait

    def fail(driver: lane.RunDriver) -> None:
        agent.ledger.update_deployment(T("b"), 2, state="failed", error_class="DIVIDE_BY_ZERO", error="by zero")
        waits(driver)

    patch.setattr(lane.RunDriver, "_wait", fail)


def losing(agent: AgentContext, pool: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lane.OpenGate, "check", lambda *_: GateReading(False, "lost rows", failed=True))


def behind(agent: AgentContext, pool: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lane.OpenGate, "check", lambda *_: GateReading(False, "lag 7 rows"))


def behind_at_the_swap(agent: AgentContext, pool: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lane.OpenGate, "why_closed", staticmethod(lambda *_: "lag 7 rows"))


@pytest.mark.parametrize("fails", [refused, failing, losing, behind, behind_at_the_swap])
def test_the_serving_version_is_unchanged_and_the_change_still_to_be_deployed(
    fails: Fails, agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane.deploy(agent, pool, small_project.texts())
    changed = small_project.texts(a=UPPER)
    before, made = picture(agent, pool), lane.plan(agent, changed, REBUILD)
    hours = replace(agent, monotonic=partial(next, count(0.0, 3600.0)))
    run_id = lane.submit(hours, made)
    with monkeypatch.context() as patch:
        fails(hours, pool, patch)
        assert lane.drive(hours, run_id) == "failed"
        assert picture(agent, pool) == before
    assert lane.drive(hours, run_id, OperatorControl("cancel")) == "cancelled"
    assert picture(agent, pool) == before and len(pool.running) == 3
    again = lane.plan(agent, changed, PlanRequest(tables=(T("a"),), children="all"))
    (node,) = (node for node in again.nodes if node.table == "a")
    assert node.action != "keep", "the old text is what is deployed"


def picture(agent: AgentContext, pool: Any) -> dict[str, Any]:
    """Return everything that a release may not change before its swap."""
    serving = [d for d in agent.ledger.deployments() if d.active]
    return {
        "views": dict(pool.views),
        "stops": [name for name in pool.stops if name.endswith("@v1")],
        "starts": [name for name in pool.starts if name.endswith("@v1")],
        "served": agent.ledger.facts().served,
        "deployed": [(d.table, d.version, d.revision, d.compiled, d.wanted, d.state, d.served_by) for d in serving],
    }
