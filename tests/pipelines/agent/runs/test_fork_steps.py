"""Forks and seeds in a run: requests to files and catalog, kills between them, and a pointer over two tables."""

from pathlib import Path
from typing import Any

import pytest
import small_project

from core.model.names import TableName as T
from core.model.states import State
from core.observed.versions import Deployment
from core.plan.model import Plan
from core.plan.request import PlanRequest, StrategyChoice
from core.ports.storage import FolderTaken, OriginRows
from pipelines.agent.context import AgentContext
from pipelines.agent.reconciler import Reconciler
from pipelines.agent.runs import pointer_steps, run_driver, step_executor
from state.emergency_journal import EmergencyJournal
from tests.pipelines.agent.runs import test_run_driver as lane

FILES = small_project.texts()
PLACE = next(path for path in FILES if path.endswith("ddl.c.sql"))
PARTITIONED = FILES | {PLACE: FILES[PLACE].rstrip().rstrip(";") + " PARTITIONED BY (kind);"}
FILTERED = small_project.texts(c="SELECT id, kind FROM STREAM a WHERE id > 1")


@pytest.fixture(autouse=True)
def open_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_executor, "CatchUpGate", lane.OpenGate)
    monkeypatch.setattr(pointer_steps, "CatchUpGate", lane.OpenGate)
    monkeypatch.setattr(run_driver, "POLL_S", 0.001)


def applied(agent: AgentContext, pool: Any, files: dict[str, str], request: PlanRequest) -> tuple[Plan, str]:
    """Plan, submit and drive a request; return the plan and the run's id."""
    plan = lane.plan(agent, files, request)
    run = lane.submit(agent, plan)
    assert lane.drive(agent, run) == "done", [step.note for step in agent.ledger.run(run).steps]  # type: ignore[union-attr]
    lane.settle(agent, pool)
    return plan, run


def chosen(strategy: str, at: str = "", nonce: str = "") -> PlanRequest:
    return PlanRequest(tables=(T("c"),), choices=(StrategyChoice(T("c"), strategy, at),), nonce=nonce)


def of(agent: AgentContext, version: int) -> Deployment:
    found = agent.ledger.deployment(T("c"), version)
    assert found is not None
    return found


@pytest.fixture
def deployed(agent: AgentContext, pool: Any) -> AgentContext:
    applied(agent, pool, FILES, PlanRequest(everything=True, children="all"))
    return agent


@pytest.mark.parametrize(
    ("strategy", "rows", "before"),
    [("carry_over", OriginRows.LEFT, False), ("chain", OriginRows.BEFORE, True)],
)
def test_a_version_continues_from_the_checkpoint_of_the_serving_one(
    deployed: AgentContext, pool: Any, strategy: str, rows: OriginRows, before: bool
) -> None:
    _, run = applied(deployed, pool, PARTITIONED, chosen(strategy))
    old, new = of(deployed, 1), of(deployed, 2)
    files: Any = deployed.files
    assert files.forked == {new.checkpoint: (old.checkpoint, rows)}
    assert new.checkpoint_id == f"id in {new.checkpoint}" and new.active and old.state == State.STOPPED
    notes = [step.note for step in deployed.ledger.run(run).steps if step.do == "fork"]  # type: ignore[union-attr]
    assert notes == ["continues after batch 1 of c@v1"]
    assert (new.begins_after, new.older_rows) == ("batch 1 of c@v1", "")
    assert (new.begins_after_version, new.begins_after_batch) == (1, 1)
    assert ("c__v2_before" in pool.tables) is before is bool(new.before_ddl)
    assert pool.views["c"] == ("c__v2_before + c__v2" if before else "c__v2")


def test_earlier_rows_are_registered_as_the_old_version_stores_them(deployed: AgentContext, pool: Any) -> None:
    applied(deployed, pool, PARTITIONED, chosen("chain"))
    new = of(deployed, 2)
    assert f"LOCATION '{new.folder}/_before'" in new.before_ddl and "PARTITIONED" not in new.before_ddl
    assert "PARTITIONED" in new.compiled_ddl


def test_a_pool_that_was_lost_gets_both_tables_and_the_pointer_over_them(
    deployed: AgentContext, pool: Any, tmp_path: Path
) -> None:
    applied(deployed, pool, PARTITIONED, chosen("chain"))
    pool.tables.clear()
    pool.views.clear()
    Reconciler(deployed, EmergencyJournal(tmp_path / "e")).restore(deployed.pools.default.connection())
    assert pool.views["c"] == "c__v2_before + c__v2" and "c__v2_before" in pool.tables


def test_a_deleted_chained_table_is_restored_with_its_earlier_rows(deployed: AgentContext, pool: Any) -> None:
    applied(deployed, pool, PARTITIONED, chosen("chain"))
    applied(deployed, pool, PARTITIONED, PlanRequest(verb="delete", tables=(T("c"),)))
    assert not [name for name in pool.tables if name.startswith("c__")] and "c" not in pool.views
    applied(deployed, pool, PARTITIONED, PlanRequest(verb="undelete", tables=(T("c"),)))
    assert pool.views["c"] == "c__v2_before + c__v2"


def test_a_rollback_of_a_chain_serves_the_old_version_alone_and_the_next_one_both(
    deployed: AgentContext, pool: Any
) -> None:
    applied(deployed, pool, PARTITIONED, chosen("chain"))
    applied(deployed, pool, PARTITIONED, PlanRequest(verb="rollback", tables=(T("c"),)))
    assert pool.views["c"] == "c__v1" and of(deployed, 1).state == State.RUNNING
    applied(deployed, pool, PARTITIONED, PlanRequest(verb="rollback", tables=(T("c"),), nonce="forward"))
    assert pool.views["c"] == "c__v2_before + c__v2"


def test_a_version_of_two_tables_is_rebuilt_into_one(deployed: AgentContext, pool: Any) -> None:
    applied(deployed, pool, PARTITIONED, chosen("chain"))
    applied(deployed, pool, PARTITIONED, PlanRequest(tables=(T("c"),), rebuild=True))
    assert pool.views["c"] == "c__v3" and of(deployed, 3).before_ddl == ""


def test_a_version_that_begins_now_counts_the_files_of_its_sources_as_read(deployed: AgentContext, pool: Any) -> None:
    _, run = applied(deployed, pool, FILTERED, chosen("seeded", "now"))
    files: Any = deployed.files
    assert files.seeded == [(of(deployed, 2).checkpoint, None, "")]
    assert of(deployed, 2).begins_after == "1 file"
    notes = [step.note for step in deployed.ledger.run(run).steps if step.do == "seed"]  # type: ignore[union-attr]
    assert notes == ["begins after 1 file"]


@pytest.mark.parametrize(("strategy", "at"), [("carry_over", ""), ("seeded", "now")])
def test_a_version_that_started_empty_ends_the_run_and_the_old_one_keeps_serving(
    deployed: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch, strategy: str, at: str
) -> None:
    def taken(*given: Any, **more: Any) -> Any:
        raise FolderTaken("/c/c__v2 was started before its positions were prepared")

    for name in ("fork", "create_checkpoint_after"):
        monkeypatch.setattr(deployed.files, name, taken)
    run = lane.submit(deployed, lane.plan(deployed, FILTERED, chosen(strategy, at)))
    assert lane.drive(deployed, run) == "failed"
    steps = deployed.ledger.run(run).steps  # type: ignore[union-attr]
    assert [step.note for step in steps if step.state == "failed"] == [
        "/c/c__v2 was started before its positions were prepared; plan again, under the next number"
    ]
    assert pool.views["c"] == "c__v1" and "c@v1" in pool.running and "c@v2" not in pool.running
