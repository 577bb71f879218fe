"""Statements that track their sources' columns: the SELECT of each start, and how their end is interpreted."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import small_project
from agent_scenarios import put_made
from ledger_rows import deployment_row

from core.model.names import TableName as T
from core.observed.versions import Binding, Deployment
from core.ports.spark import ReportedQuery
from core.project.revision import RevisionTexts
from pipelines.agent.context import AgentContext
from pipelines.agent.reconciler import BeforeRound, Reconciler
from pipelines.agent.statements.deployment_lifecycle import COLUMNS_KEPT, select_of
from state.emergency_journal import EmergencyJournal
from tests.pipelines.agent.runs.test_run_driver import deploy, fast_gates

__all__ = ["fast_gates"]

SELECT = "SELECT p.id FROM STREAM p JOIN STREAM f ON p.id = f.id JOIN s ON p.id = s.id JOIN STREAM q ON q.id = p.id"
TRACKED = "schema_tracking: true\n"
KEPT = "columns of its input have changed: a start continues past that"


def put(agent: AgentContext, yml: str = TRACKED, **more: Any) -> Deployment:
    """Register a running c@v1 that streams two tables on Delta and one of files."""
    for name, form, version in (("p", "delta", 3), ("f", "parquet", 1), ("s", "delta", 1), ("q", "delta", 0)):
        put_made(agent, deployment_row(name, version=version, format=form, checkpoint=f"/c/{name}"))
    texts = RevisionTexts("CREATE TABLE c (id BIGINT) USING delta;", f"INSERT INTO c {SELECT};", yml)
    reads = [Binding(T(name), version, name != "s") for name, version in (("p", 3), ("f", 1), ("s", 1), ("q", 0))]
    compiled = SELECT.replace("STREAM p", "STREAM `p__v3`").replace("STREAM q", "STREAM `q`")
    about = {
        "format": "delta",
        "revision": "rc",
        "texts": texts,
        "bindings": tuple(reads),
        "query_id": "q",
        "run_id": "r1",
    }
    return put_made(agent, deployment_row("c", compiled=compiled, **about, **more))


def test_every_delta_stream_has_a_schema_location_below_its_checkpoint(agent: AgentContext) -> None:
    found = put(agent)
    for checkpoint in (found.checkpoint, "/other/checkpoint"):
        text = select_of(agent, replace(found, checkpoint=checkpoint))
        assert text.count("WITH (") == 2 and text.count("'allowSourceColumnDrop'='always'") == 2
        assert f"STREAM `p__v3` WITH ('schemaTrackingLocation'='{checkpoint}/schemas/0', " in text
        assert f"STREAM `q` WITH ('schemaTrackingLocation'='{checkpoint}/schemas/2', " in text


def test_without_it_a_statement_starts_as_it_was_compiled(agent: AgentContext) -> None:
    found = put(agent, yml="trigger: 5 seconds\n")
    assert select_of(agent, found) == found.compiled


def ended(agent: AgentContext, tmp_path: Path, found: Deployment) -> tuple[str, list[tuple[str, str]]]:
    """Reconcile after the statement has ended because of changed columns; return its state and events."""
    agent.files.ids[found.folder] = found.table_id  # type: ignore[attr-defined]  # Scripted.
    over = ReportedQuery("c@v1", "q", "r1", False, error_class=COLUMNS_KEPT, error=KEPT)
    Reconciler(agent, EmergencyJournal(tmp_path / "e.jsonl")).round(BeforeRound.of(agent), (), (over,))
    after = agent.ledger.deployment(T("c"), 1)
    assert after is not None
    return after.state, [(event.summary, event.detail) for event in agent.ledger.events_of(T("c"), "state")]


def test_a_tracking_statement_that_ended_at_a_change_of_columns_is_restarted_with_the_reason(
    agent: AgentContext, pool: Any, tmp_path: Path
) -> None:
    state, events = ended(agent, tmp_path, put(agent, table_id="id-c"))
    assert state == "starting" and pool.starts == ["c@v1"]
    assert ("running → starting", KEPT) in events
    assert "/schemas/0" in pool.running["c@v1"].select
    assert not agent.ledger.events_of(T("c"), "exception")


def test_a_statement_without_tracking_stays_failed(agent: AgentContext, pool: Any, tmp_path: Path) -> None:
    state, _ = ended(agent, tmp_path, put(agent, yml="", table_id="id-c"))
    assert state == "failed" and pool.starts == []


@pytest.mark.usefixtures("fast_gates")
def test_it_reaches_the_start_of_a_version_from_its_yml(agent: AgentContext, pool: Any) -> None:
    files = small_project.texts()
    files["headgate.yml"] += "connectors: {delta: {}}\n"
    for name in ("a", "b"):
        place = f"pipelines/facts/p/{name}/sql-scripts/ddl.{name}.sql"
        files[place] = files[place].replace("USING parquet", "USING delta")
        agent.files.ids[agent.layout.table_folder(T(name), 1)] = f"id-{name}"  # type: ignore[attr-defined]
    files["pipelines/facts/p/b/b.yml"] = TRACKED
    assert deploy(agent, pool, files) == "done"
    assert f"{agent.layout.data}/checkpoints/b__v1/schemas/0" in pool.running["b@v1"].select
    assert "schemas" not in pool.running["a@v1"].select
