"""Topics in Avro in the agent: schemas are requested before each start, and a new one under a reader restarts it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agent_scenarios import put_made
from ledger_rows import deployment_row, external_row
from pytest_httpserver import HTTPServer
from schema_registry_server import PlayedRegistry

from core.model.errors import SparkFailure, TryAgain
from core.model.names import TableName as T
from core.observed.versions import Binding
from core.ports.spark import ReportedQuery
from core.project.revision import RevisionTexts
from core.sql.avro_schemas import NEW_SCHEMA
from pipelines.agent.context import AgentContext
from pipelines.agent.reconciler import BeforeRound, Reconciler
from pipelines.agent.statements.deployment_lifecycle import start
from pipelines.agent.tables.external_inputs import fault_of_input
from state.emergency_journal import EmergencyJournal

ID = {"type": "record", "name": "T", "fields": [{"name": "id", "type": "int"}]}
WITH_NOTE = ID | {"fields": [*ID["fields"], {"name": "note", "type": "string"}]}  # type: ignore[misc]  # Plain JSON.


@pytest.fixture
def registry(httpserver: HTTPServer) -> PlayedRegistry:
    found = PlayedRegistry(httpserver)
    found.add("t-value", ID, id=4)
    return found


@pytest.fixture
def reading(agent: Any, registry: PlayedRegistry) -> AgentContext:
    """An environment whose statement `a` streams a topic in Avro."""
    options = f"'kafka.bootstrap.servers'='b:9', subscribe='t', 'schema.registry'='{registry.url}'"
    ddl = f"CREATE TABLE topic (id INT) USING kafka OPTIONS ({options}, 'value.format'='avro');"
    topic = RevisionTexts(ddl, "", "")
    place = {"format": "kafka", "folder": "kafka://b:9/t", "compiled_ddl": ddl}
    agent.ledger.put_deployment(external_row("topic", texts=topic, **place))
    texts = RevisionTexts("CREATE TABLE a (id INT) USING parquet;", "INSERT INTO a SELECT id FROM STREAM topic;", "")
    bound = (Binding(T("topic"), 0, streamed=True),)
    put_made(agent, deployment_row(query_id="q", run_id="r1", bindings=bound, texts=texts))
    return agent


def a(agent: AgentContext) -> Any:
    return agent.ledger.deployment(T("a"), 1)


def registered(pool: Any) -> str:
    """Return the ids of the schemas with which the topic is registered."""
    return str(pool.tables["topic"].partition(" in ")[0])


def ended_at(schema: int, agent: AgentContext, reconciler: Reconciler) -> None:
    """Let the reconciler see that the statement ended at a message with the schema `schema`."""
    over = ReportedQuery("a@v1", "q", a(agent).run_id, False, error_class=NEW_SCHEMA, error="schema 7 of the value.")
    over = replace(over, failure=SparkFailure.NEW_SCHEMA, schema=schema)
    reconciler.round(BeforeRound.of(agent), (), (over,))


@pytest.fixture
def reconciler(reading: AgentContext, tmp_path: Path) -> Reconciler:
    return Reconciler(reading, EmergencyJournal(tmp_path / "emergency.jsonl"))


def test_a_schema_registered_under_a_reader_restarts_it_with_that_schema(
    reading: AgentContext, pool: Any, registry: PlayedRegistry, reconciler: Reconciler
) -> None:
    start(reading, a(reading), stops=0)
    assert registered(pool) == "[4]"
    pool.running.clear()
    registry.add("t-value", WITH_NOTE, id=7)
    ended_at(7, reading, reconciler)
    assert registered(pool) == "[4, 7]" and a(reading).state == "starting"
    assert [event.summary for event in reading.ledger.events() if event.summary == NEW_SCHEMA] == [NEW_SCHEMA]


def test_without_the_registry_a_reader_starts_with_copies_but_waits_for_a_new_schema(
    reading: AgentContext, pool: Any, registry: PlayedRegistry, reconciler: Reconciler
) -> None:
    start(reading, a(reading), stops=0)
    registry.fails_with(503)
    pool.running.clear()
    reconciler.round(BeforeRound.of(reading), (), ())
    assert a(reading).state == "starting" and len(pool.starts) == 2
    pool.running.clear()
    ended_at(7, reading, reconciler)
    row = a(reading)
    assert row.state == "degraded" and "answers with status 503" in row.error and len(pool.starts) == 2
    registry.add("t-value", WITH_NOTE, id=7)
    registry.fails_with(None)
    reconciler.round(BeforeRound.of(reading), (), ())
    assert registered(pool) == "[4, 7]" and a(reading).state == "starting"


def test_a_reader_that_was_never_registered_needs_the_registry(reading: AgentContext, registry: PlayedRegistry) -> None:
    registry.fails_with(503)
    with pytest.raises(TryAgain, match="status 503"):
        start(reading, a(reading), stops=0)


def test_the_table_shows_that_its_newest_schema_cannot_be_read(
    reading: AgentContext, registry: PlayedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.agent.tables.external_inputs.fault_of_topics", lambda *_: None)
    topic = reading.ledger.deployment(T("topic"), 0)
    assert topic is not None and fault_of_input(reading, topic) is None
    registry.add("t-value", ID | {"fields": [{"name": "id", "type": "string"}]}, id=8)
    fault = fault_of_input(reading, topic)
    assert fault is not None and "schema 8 (version 2 of t-value) has id as string, not INT" in fault.why
