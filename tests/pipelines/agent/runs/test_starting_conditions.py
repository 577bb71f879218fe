"""A version that begins at a time: its filter belongs to the version, survives restarts and edits, and ends with a
rebuild.
"""

from dataclasses import replace
from typing import Any

import small_project

from core.model.errors import EngineRefused
from core.model.names import TableName as T
from core.observed.versions import Deployment
from core.plan.request import PlanRequest, StrategyChoice
from pipelines.agent.context import AgentContext
from tests.pipelines.agent.runs.test_run_driver import EVERYTHING, deploy, drive, fast_gates, plan, submit

__all__ = ["fast_gates"]

FROM_NOON = PlanRequest(tables=(T("a"),), choices=(StrategyChoice(T("a"), "partial", "2026-01-02T12:00:00Z"),))
FILTER = "ts >= TIMESTAMP '2026-01-02T12:00:00Z'"
LANDED = "pipelines/sources/p/landed/sql-scripts/ddl.landed.sql"


def texts(**changed: str) -> dict[str, str]:
    """Return the small project's texts, with a time in its landed rows."""
    files = small_project.texts(**changed)
    return files | {LANDED: files[LANDED].replace("kind STRING", "kind STRING, ts TIMESTAMP")}


def version(agent: AgentContext, table: str, number: int) -> Deployment:
    found = agent.ledger.deployment(T(table), number)
    assert found is not None
    return found


def test_the_filter_is_only_in_the_compiled_text_and_readers_are_rebuilt_from_the_version(
    agent: AgentContext, pool: Any
) -> None:
    deploy(agent, pool, texts())
    assert deploy(agent, pool, texts(), FROM_NOON) == "done"
    made = version(agent, "a", 2)
    assert made.compiled == f"SELECT id, kind FROM (SELECT * FROM STREAM landed WHERE {FILTER})"
    assert (made.begins_where, made.texts) == ((f"landed.{FILTER}",), version(agent, "a", 1).texts)
    assert made.active and version(agent, "b", 2).compiled == "SELECT id, kind FROM STREAM a__v2"
    assert pool.running["a@v2"].select == made.compiled
    assert plan(agent, texts(), PlanRequest(tables=(T("a"), T("b")))).empty


def test_an_edit_in_place_keeps_the_start_position_of_the_version(agent: AgentContext, pool: Any) -> None:
    deploy(agent, pool, texts())
    deploy(agent, pool, texts(), FROM_NOON)
    edited = texts(a="SELECT id, kind FROM STREAM landed WHERE id > 1")
    made = plan(agent, edited, replace(EVERYTHING, exclude=(T("c"),)))
    assert [(n.action, n.begins_where) for n in made.nodes if n.table == "a"] == [("restart", (f"landed.{FILTER}",))]
    words = (
        "still lacks the rows that were skipped when it was started: it streams only "
        "landed.ts >= TIMESTAMP '2026-01-02T12:00:00Z'"
    )
    assert words in {warning.summary for warning in made.warnings}
    assert drive(agent, submit(agent, made)) == "done"
    row = version(agent, "a", 2)
    assert row.compiled == f"SELECT id, kind FROM (SELECT * FROM STREAM landed WHERE {FILTER}) WHERE id > 1"
    assert row.texts.dml == f"INSERT INTO a {edited_select(edited)};"


def edited_select(files: dict[str, str]) -> str:
    return files["pipelines/facts/p/a/sql-scripts/dml.a.sql"].removeprefix("INSERT INTO a ").removesuffix(";")


def test_a_rebuild_from_the_beginning_has_no_filter_and_does_not_take_a_part_of_a_failed_run(
    agent: AgentContext, pool: Any
) -> None:
    deploy(agent, pool, texts())
    made = plan(agent, texts(), FROM_NOON)
    run = submit(agent, made)
    pool.refuse["b@v2"] = EngineRefused("no")
    assert drive(agent, run) == "failed" and version(agent, "a", 2).begins_where and not version(agent, "a", 2).active
    again = plan(agent, texts(), PlanRequest(tables=(T("a"),), rebuild=True, continues=run))
    (a,) = [node for node in again.nodes if node.table == "a"]
    assert (a.version, a.begins_where, a.strategy) == (3, (), "earliest")
