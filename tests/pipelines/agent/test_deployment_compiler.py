"""Keyed tables from plan to start: how they are created, and that each version keeps its original writer code."""

from dataclasses import replace
from typing import Any

import pytest
import small_project
from agent_scenarios import fast_lane

from core.model.errors import Refused
from core.model.names import TableName as T
from core.plan.request import PlanRequest
from core.ports.spark import NEWEST_WRITER, FunctionFault, Upsert
from core.project.naming import Naming, Sources
from pipelines.agent import deployment_compiler
from pipelines.agent.context import AgentContext, Pools
from pipelines.agent.statements import deployment_lifecycle
from tests.pipelines.agent.runs.test_run_driver import deploy, drive, fast_gates, plan, submit

__all__ = ["fast_gates"]


@pytest.fixture(autouse=True)
def tables_have_ids(agent: AgentContext) -> None:
    ids: dict[str, str] = agent.files.ids  # type: ignore[attr-defined]  # A double's.
    ids |= {agent.layout.table_folder(T("a"), version): f"id-{version}" for version in (1, 2)}


def keyed(yml: str = "mode: upsert\nkey: [id]\nsequence: kind\ndeletes: id < 0\n", more: str = "") -> dict[str, str]:
    changes = "SELECT id, _change_type AS kind FROM STREAM a WITH ('readChangeFeed'='true')"
    files = small_project.texts(b=changes, c=changes)
    files["headgate.yml"] += "connectors: {delta: {}}\n"
    files["pipelines/facts/p/a/a.yml"] = yml
    ddl = "pipelines/facts/p/a/sql-scripts/ddl.a.sql"
    return files | {ddl: files[ddl].replace("USING parquet", f"USING delta {more}")}


def test_a_keyed_table_is_made_with_its_changes_recorded_and_written_by_its_key(agent: AgentContext, pool: Any) -> None:
    assert deploy(agent, pool, keyed()) == "done"
    assert pool.tables["a__v1"].endswith("TBLPROPERTIES ('delta.enableChangeDataFeed'='true')")
    data = agent.layout.data
    assert pool.running["a@v1"].upsert == Upsert(
        f"{data}/tables/a__v1/delta", f"{data}/tables/a__v1/deleted", f"{data}/checkpoints/a__v1",
        ("id", "kind"), ("id",), "kind", "id < 0", NEWEST_WRITER,
    )  # fmt: skip
    assert (pool.running["a@v1"].mode, pool.running["b@v1"].upsert) == ("append", None)


def test_a_change_feed_setting_in_the_ddl_is_left_alone(agent: AgentContext, pool: Any) -> None:
    said = "TBLPROPERTIES ('delta.enableChangeDataFeed'='true')"
    assert deploy(agent, pool, keyed(more=said)) == "done"
    assert pool.tables["a__v1"].endswith(said)


def test_an_agent_with_a_newer_writer_restarts_a_statement_with_its_original_writer(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert deploy(agent, pool, keyed()) == "done"
    monkeypatch.setattr(deployment_compiler, "NEWEST_WRITER", NEWEST_WRITER + 1)
    found = agent.ledger.deployment(T("a"), 1)
    assert found is not None
    deployment_lifecycle.stop(agent, found)
    deployment_lifecycle.start(agent, found, stops=agent.locks.stops((T("a"), 1)))
    upsert = pool.running["a@v1"].upsert
    assert upsert is not None and upsert.writer == NEWEST_WRITER
    files = keyed("mode: upsert\nkey: [id]\nsequence: id\n")
    assert deploy(agent, pool, files) == "done"
    upsert = pool.running["a@v2"].upsert
    assert upsert is not None and (upsert.writer, upsert.sequence, upsert.deletes) == (NEWEST_WRITER + 1, "id", "")


def test_a_reader_of_changes_is_not_compared_in_a_release_and_says_so(agent: AgentContext, pool: Any) -> None:
    assert deploy(agent, pool, keyed()) == "done"
    edited = keyed()
    dml = "pipelines/facts/p/a/sql-scripts/dml.a.sql"
    edited[dml] = edited[dml].replace("SELECT id, kind", "SELECT id, upper(kind) AS kind")
    again = PlanRequest(tables=(T("a"),), rebuild=True)
    run = submit(agent, plan(agent, edited, again))
    assert drive(agent, run) == "done"
    row = agent.ledger.run(run)
    assert row is not None
    notes = {step.table: step.note for step in row.steps if step.do == "validate"}
    why = "rows were not compared: b@v2 reads the changes of a, which differ with its batches"
    assert notes == {"a": "equal in 7 checks", "b": why}


def test_no_writer_is_sent_to_an_incompatible_remote_pool_and_the_running_one_stays(
    agent: AgentContext, pool: Any
) -> None:
    pool.python_mismatch = "the pool runs Python 3.9, and Headgate 3.11"
    assert deploy(agent, pool, keyed()) == "done", "a pool of ours has our own"
    found = agent.ledger.deployment(T("a"), 1)
    assert found is not None
    environment = agent.layout.environment
    theirs = replace(agent.layout, environment=replace(environment, pool=replace(environment.pool, url="sc://host")))
    elsewhere = replace(agent, layout=theirs, pools=Pools(theirs.environment, {"local": pool}))
    stops = list(pool.stops)
    with pytest.raises(Refused, match=r"a@v1 cannot run"):
        fast_lane(elsewhere).restart(("a",), 0.0, by="ana")
    assert pool.stops == stops and "a@v1" in pool.running, "a restart is refused before its stop"
    with pytest.raises(Refused, match=r"a@v1 cannot run: the pool runs Python 3\.9, and Headgate 3\.11"):
        deployment_lifecycle.start(elsewhere, found, stops=agent.locks.stops((T("a"), 1)))
    pool.python_mismatch = ""
    deployment_lifecycle.start(elsewhere, found, stops=agent.locks.stops((T("a"), 1)))


def test_a_start_registers_the_deployed_code_of_python_functions_and_is_refused_before_a_stop_if_it_fails(
    agent: AgentContext, pool: Any
) -> None:
    code = "# CREATE FUNCTION tag(kind STRING) RETURNS STRING\ndef tag(kind): return kind\n"
    texts = {**keyed(), "functions/tag.py": code}
    dml = "pipelines/facts/p/a/sql-scripts/dml.a.sql"
    texts[dml] = texts[dml].replace("SELECT id, kind", "SELECT id, tag(kind) AS kind")
    assert deploy(agent, pool, texts) == "done"
    (function,) = pool.running["a@v1"].functions
    assert (function.function, function.code, function.returns) == ("tag", code, "string")
    assert function.name in pool.running["a@v1"].select and pool.loaded[0] == function
    pool.function_fault = FunctionFault.NOT_LOADED.of(error="tag.py, line 2: ModuleNotFoundError: No module named 'x'")
    stops = list(pool.stops)
    with pytest.raises(Refused, match=r"a@v1 cannot call its functions: tag\.py, line 2: ModuleNotFoundError") as error:
        fast_lane(agent).restart(("a",), 0.0, by="ana")
    assert error.value.remedy.startswith("install what is missing")
    assert pool.stops == stops and "a@v1" in pool.running


def test_an_altered_column_missing_from_the_deployed_text_is_left_to_the_next_text(
    agent: AgentContext, pool: Any
) -> None:
    """A run that is cancelled after its ALTER leaves the old SQL running."""
    assert deploy(agent, pool, keyed()) == "done"
    agent.ledger.update_deployment(T("a"), 1, columns=("id", "kind", "extra"))
    found = agent.ledger.deployment(T("a"), 1)
    assert found is not None
    deployment_lifecycle.stop(agent, found)
    deployment_lifecycle.start(agent, found, stops=agent.locks.stops((T("a"), 1)))
    upsert = pool.running["a@v1"].upsert
    assert upsert is not None and upsert.columns == ("id", "kind")


def test_a_database_qualifies_every_name_that_reaches_spark(agent: AgentContext, pool: Any) -> None:
    sources = Sources(Naming("dev_"), "/dev", "dev")
    named = replace(agent.layout.environment, naming=Naming(database="stage", suffix="_s"), sources=sources)
    agent = replace(agent, layout=replace(agent.layout, environment=named, sources_data="/srv/dev"))
    assert deploy(agent, pool, small_project.texts()) == "done"
    assert pool.views == {f"stage.{name}_s": f"stage.{name}_s__v1" for name in "abc"}
    landed, made = pool.tables["dev_landed"], pool.tables["stage.a_s__v1"]
    assert "CREATE TABLE IF NOT EXISTS dev_landed (" in landed and "LOCATION '/srv/dev/landing'" in landed
    assert "CREATE TABLE IF NOT EXISTS stage.a_s__v1 (" in made
    assert f"LOCATION '{agent.layout.data}/tables/a_s__v1'" in made
    start = pool.running["b@v1"]
    assert (start.target, start.checkpoint) == ("stage.b_s__v1", f"{agent.layout.data}/checkpoints/b_s__v1")
    assert start.select == "SELECT id, kind FROM STREAM stage.a_s__v1"
    assert pool.running["a@v1"].select == "SELECT id, kind FROM STREAM dev_landed"


def test_an_input_without_files_is_read_through_a_view_that_has_no_database(agent: AgentContext) -> None:
    layout = replace(agent.layout, environment=replace(agent.layout.environment, naming=Naming("s_", database="stage")))
    made = plan(agent, small_project.texts(), PlanRequest(everything=True))
    (node,) = (each for each in made.nodes if each.table == "a")
    compiled = deployment_compiler.compile_deployment(node, layout, now=1.0, plan_hash="p", views=(T("landed"),))
    assert compiled.compiled == "SELECT id, kind FROM STREAM s_landed"
