"""Versions of Delta tables that begin with another version's rows: requests to the pool, kills, and the remains."""

from pathlib import Path
from typing import Any

import pytest
import small_project

from core.model.errors import EngineRefused
from core.model.names import TableName as T
from core.model.states import State
from core.plan.model import Plan
from core.plan.request import PlanRequest
from core.planner.planner import make_plan
from core.ports.storage import SeenLog
from core.run.model import OperatorControl
from pipelines.agent.context import AgentContext, FaultPoints
from pipelines.agent.housekeeping import purge_trash
from pipelines.agent.runs import pointer_steps, run_driver, step_executor
from state.planner_input_from_registry import observe
from tests.pipelines.agent.runs import test_fork_steps as forks
from tests.pipelines.agent.runs import test_run_driver as lane

applied, chosen, of = forks.applied, forks.chosen, forks.of


def on_delta(files: dict[str, str]) -> dict[str, str]:
    found = {path: text.replace("USING parquet", "USING delta") for path, text in files.items()}
    return found | {"headgate.yml": files["headgate.yml"] + "connectors: {delta: {}}\n"}


FILES = on_delta(small_project.texts())
FILTERED = on_delta(small_project.texts(c="SELECT id, kind FROM STREAM a WHERE id > 1"))
PLACE = next(path for path in FILES if path.endswith("ddl.c.sql"))
PARTITIONED = FILES | {PLACE: FILES[PLACE].rstrip().rstrip(";") + " PARTITIONED BY (kind);"}
REBUILT = on_delta(small_project.texts(c="SELECT id, kind FROM STREAM a WHERE id > 2"))


@pytest.fixture(autouse=True)
def open_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_executor, "CatchUpGate", lane.OpenGate)
    monkeypatch.setattr(pointer_steps, "CatchUpGate", lane.OpenGate)
    monkeypatch.setattr(run_driver, "POLL_S", 0.001)


@pytest.fixture
def deployed(agent: AgentContext, pool: Any) -> AgentContext:
    files: Any = agent.files
    files.logged = True
    for name in ("a", "b", "c"):
        for version in (1, 2, 3):
            files.ids[agent.layout.table_folder(T(name), version)] = f"id of {name}__v{version}"
            files.ids[f"{agent.layout.table_folder(T(name), version)}/_before"] = f"id before {name}__v{version}"
    applied(agent, pool, FILES, PlanRequest(everything=True, children="all"))
    return agent


def notes(agent: AgentContext, run: str, do: str) -> list[str]:
    return [step.note for step in agent.ledger.run(run).steps if step.do == do]  # type: ignore[union-attr]


def test_a_fork_is_a_clone_as_of_the_batch_after_which_it_continues(deployed: AgentContext, pool: Any) -> None:
    _, run = applied(deployed, pool, FILTERED, chosen("fork"))
    old, new = of(deployed, 1), of(deployed, 2)
    assert pool.cloned == [("c__v2", f"{old.folder}/delta", 7, f"{new.folder}/delta")]
    assert pool.recorded == {new.checkpoint_id: (f"{new.folder}/delta", 1)}
    assert notes(deployed, run, "fork") == ["continues after batch 1 of c@v1"]
    assert (new.clone_of, new.table_id, new.older_rows) == (1, "id of c__v2", "rows from c@v1")
    assert new.active and new.state == State.RUNNING


def test_a_carry_over_takes_no_row_and_needs_nothing_of_the_old_version(deployed: AgentContext, pool: Any) -> None:
    applied(deployed, pool, FILTERED, chosen("carry_over"))
    new = of(deployed, 2)
    assert pool.cloned == [] and new.clone_of == 0
    assert pool.recorded == {new.checkpoint_id: (f"{new.folder}/delta", 1)}


def test_a_chain_leaves_a_clone_beside_the_new_table(deployed: AgentContext, pool: Any) -> None:
    applied(deployed, pool, PARTITIONED, chosen("chain"))
    old, new = of(deployed, 1), of(deployed, 2)
    assert pool.cloned == [("c__v2_before", f"{old.folder}/delta", 7, f"{new.folder}/_before/delta")]
    assert f"LOCATION '{new.folder}/_before/delta'" in new.before_ddl and new.clone_of == 1
    assert pool.views["c"] == "c__v2_before + c__v2"


@pytest.mark.parametrize("label", ["fork record", "fork clone"])
def test_a_fork_interrupted_by_a_kill_is_completed_by_the_next_agent(
    deployed: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch, label: str
) -> None:
    class Killed(BaseException):
        pass

    def die(self: FaultPoints, point: str) -> None:
        if point == label:
            raise Killed

    run = lane.submit(deployed, lane.plan(deployed, FILTERED, chosen("fork")))
    with monkeypatch.context() as patched:
        patched.setattr(FaultPoints, "pass_by", die)
        with pytest.raises(Killed):
            lane.drive(deployed, run)
    assert lane.drive(deployed, run) == "done"
    assert len(pool.cloned) == (2 if label == "fork clone" else 1), "in place of the one that was there"
    assert {made[:3] for made in pool.cloned} == {("c__v2", f"{of(deployed, 1).folder}/delta", 7)}
    assert of(deployed, 2).clone_of == 1


def test_a_table_with_missing_files_is_not_cloned_and_keeps_serving(deployed: AgentContext, pool: Any) -> None:
    files: Any = deployed.files
    files.lost[(of(deployed, 1).folder, 7)] = ("/lake/c/part-1", "/lake/c/part-2")
    run = lane.submit(deployed, lane.plan(deployed, FILTERED, chosen("fork")))
    assert lane.drive(deployed, run) == "failed"
    (note,) = notes(deployed, run, "fork")
    assert note.startswith("2 files of c@v1 are not there, such as /lake/c/part-1: neither it nor a clone of it can")
    assert note.endswith("restore them, or headgate plan c --rebuild")
    assert pool.cloned == [] and pool.views["c"] == "c__v1"
    files.lost.clear()
    assert lane.drive(deployed, run, OperatorControl("retry")) == "done"


def test_a_log_that_lost_the_batch_ends_the_run_while_the_old_version_keeps_serving(
    deployed: AgentContext, pool: Any
) -> None:
    files: Any = deployed.files
    files.versions.clear()
    run = lane.submit(deployed, lane.plan(deployed, FILTERED, chosen("fork")))
    assert lane.drive(deployed, run) == "failed"
    assert "the log of c@v1 no longer distinguishes batch 1 from later ones; choose another strategy" in notes(
        deployed, run, "fork"
    )
    assert pool.views["c"] == "c__v1"


def retired(agent: AgentContext) -> Plan:
    """Plan a retirement, which may be refused."""
    seen = observe(agent.ledger.deployments(include_deleted=True), taken=agent.ledger.taken_versions())
    return make_plan(small_project.project(FILTERED), "dev", seen, PlanRequest(verb="retire", tables=(T("c"),)))


def test_the_base_of_a_clone_is_not_retired_while_the_clone_serves(deployed: AgentContext, pool: Any) -> None:
    applied(deployed, pool, FILTERED, chosen("fork"))
    (refusal,) = retired(deployed).refusals
    assert refusal.summary == "c__v2 is a clone of c__v1, whose files hold its rows"
    assert refusal.remedy == "first rebuild it into files of its own: headgate plan c --rebuild"
    applied(deployed, pool, REBUILT, PlanRequest(tables=(T("c"),), rebuild=True))
    found = lane.plan(deployed, REBUILT, PlanRequest(verb="retire", tables=(T("c"),)))
    assert not found.refusals
    aside = {step.version: step for step in found.steps if step.do == "tombstone"}
    assert aside[2].n in aside[1].after, "the clone goes first"


def test_a_clone_of_a_cancelled_run_is_set_aside_although_it_never_served(deployed: AgentContext, pool: Any) -> None:
    """Nothing else would remove this clone, and its base can be neither retired nor vacuumed while the clone exists."""
    pool.refuse["c@v2"] = EngineRefused("no", error_class="NO")
    run = lane.submit(deployed, lane.plan(deployed, FILTERED, chosen("fork")))
    assert lane.drive(deployed, run) == "failed" and of(deployed, 2).clone_of == 1
    assert lane.drive(deployed, run, OperatorControl("cancel")) == "cancelled"
    plan, _ = applied(deployed, pool, FILTERED, PlanRequest(verb="retire", tables=(T("c"),)))
    assert [(step.do, step.version) for step in plan.steps] == [("tombstone", 2)]
    assert of(deployed, 2).deleted and of(deployed, 1).active


def test_a_step_does_not_set_aside_what_a_clone_needs(deployed: AgentContext, pool: Any) -> None:
    """The plan was made before the clone, so that the step has to check again."""
    applied(deployed, pool, FILTERED, chosen("carry_over"))
    plan = lane.plan(deployed, FILTERED, PlanRequest(verb="retire", tables=(T("c"),)))
    run = lane.submit(deployed, plan)
    deployed.ledger.update_deployment(T("c"), 2, clone_of=1)
    assert lane.drive(deployed, run) == "failed"
    assert notes(deployed, run, "tombstone") == ["its files hold rows of c__v2, a clone of it; rebuild c first"]
    assert not of(deployed, 1).deleted


def test_a_deleted_clone_is_restored_together_with_its_base(deployed: AgentContext, pool: Any) -> None:
    applied(deployed, pool, FILTERED, chosen("fork"))
    plan, _ = applied(deployed, pool, FILTERED, PlanRequest(verb="delete", tables=(T("c"),)))
    aside = {step.version: step for step in plan.steps if step.do == "tombstone"}
    assert aside[2].n in aside[1].after
    assert not [warning for warning in plan.warnings if warning.kind == "deleted_as_well"], "v1 comes back with v2"
    assert of(deployed, 1).deleted and of(deployed, 2).deleted
    applied(deployed, pool, FILTERED, PlanRequest(verb="undelete", tables=(T("c"),)))
    assert not of(deployed, 1).deleted and of(deployed, 2).active
    files: Any = deployed.files
    assert {of(deployed, 1).folder, of(deployed, 2).folder} <= files.folders.keys()


def test_the_purge_leaves_what_a_clone_in_the_trash_needs(deployed: AgentContext, pool: Any, tmp_path: Path) -> None:
    applied(deployed, pool, FILTERED, chosen("fork"))
    applied(deployed, pool, FILTERED, PlanRequest(verb="delete", tables=(T("c"),)))
    deployed.ledger.update_deployment(T("c"), 1, drop_after=deployed.clock() - 1)
    purge_trash(deployed)
    assert of(deployed, 1).trash, "its time is over, and that of its clone is not"
    deployed.ledger.update_deployment(T("c"), 2, drop_after=deployed.clock() - 1)
    purge_trash(deployed)
    purge_trash(deployed)
    assert not of(deployed, 1).trash and not of(deployed, 2).trash


def test_a_version_that_begins_now_is_positioned_after_the_newest_version(
    deployed: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployed.files, "source_position", lambda folder, format="", since=None: SeenLog("{}", 13))
    _, run = applied(deployed, pool, FILTERED, chosen("seeded", "now"))
    files: Any = deployed.files
    assert files.seeded == [(of(deployed, 2).checkpoint, 0, "")]
    assert notes(deployed, run, "seed") == ["begins after version 12 of a"]
    assert pool.recorded == {of(deployed, 2).checkpoint_id: (f"{of(deployed, 2).folder}/delta", 0)}


def test_a_version_begins_at_a_version_and_not_where_its_log_no_longer_has_it(
    deployed: AgentContext, pool: Any
) -> None:
    applied(deployed, pool, FILTERED, chosen("partial", "12"))
    new = of(deployed, 2)
    assert new.begins_where == ("a WITH ('startingVersion'='12')",)
    assert "STREAM a__v1 WITH ('startingVersion'='12')" in new.compiled
    files: Any = deployed.files
    files.not_from["13"] = "version 13 of a is no longer in its log, which begins with 20"
    run = lane.submit(deployed, lane.plan(deployed, REBUILT, chosen("partial", "13")))
    assert lane.drive(deployed, run) == "failed"
    assert notes(deployed, run, "create") == [f"{files.not_from['13']}; nothing was created: plan again"]
    assert deployed.ledger.deployment(T("c"), 3) is None


def test_an_edit_keeps_the_start_condition_of_the_version(deployed: AgentContext, pool: Any) -> None:
    applied(deployed, pool, FILTERED, chosen("partial", "12"))
    applied(deployed, pool, REBUILT, PlanRequest(tables=(T("c"),)))
    assert "'startingVersion'='12'" in of(deployed, 2).compiled, "Spark does not heed it on a checkpoint with a batch"
    applied(deployed, pool, REBUILT, PlanRequest(tables=(T("c"),), rebuild=True))
    assert "startingVersion" not in of(deployed, 3).compiled
