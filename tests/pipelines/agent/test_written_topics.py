"""A version that writes a topic: no catalog table, no pointer, and an event if a batch is written again."""

from typing import Any

import pytest
import small_project

from core.model.errors import TryAgain
from core.model.names import TableName as T
from core.model.states import State, TableFaultKind
from core.observed.seen_inputs import SeenTopics, seen_topics
from core.plan.request import PlanRequest
from core.ports.storage import TableFault
from pipelines.agent.pool.pointers import PointerCheck
from pipelines.agent.runs import pointer_steps, run_driver, step_executor
from pipelines.agent.statements.deployment_lifecycle import REPEATED, start
from pipelines.agent.tables.external_inputs import look_for_inputs
from tests.pipelines.agent.runs import test_fork_steps as forks
from tests.pipelines.agent.runs import test_run_driver as lane

ALL = PlanRequest(everything=True, children="all")


def files(select: str = "SELECT id, kind FROM STREAM landed") -> dict[str, str]:
    found = {
        path: text for path, text in small_project.texts(a=select).items() if "/b/" not in path and "/c/" not in path
    }
    (path,) = [path for path in found if path.endswith("ddl.a.sql")]
    found[path] = (
        "CREATE TABLE a (id BIGINT, kind STRING) USING kafka OPTIONS ('kafka.bootstrap.servers'='h:9092', topic='t');"
    )
    return found | {"headgate.yml": found["headgate.yml"] + "connectors: {kafka: {}}\n"}


@pytest.fixture(autouse=True)
def open_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_executor, "CatchUpGate", lane.OpenGate)
    monkeypatch.setattr(pointer_steps, "CatchUpGate", lane.OpenGate)
    monkeypatch.setattr(run_driver, "POLL_S", 0.001)


@pytest.fixture
def deployed(agent: Any, pool: Any) -> Any:
    forks.applied(agent, pool, files(), ALL)
    return agent


def a(agent: Any, version: int = 1) -> Any:
    return agent.ledger.deployment(T("a"), version)


def test_it_serves_without_a_table_in_the_catalog_and_without_a_pointer(deployed: Any, pool: Any) -> None:
    assert a(deployed).active and a(deployed).state == State.RUNNING
    assert "a__v1" not in pool.tables and "a" not in pool.views
    started = pool.running["a@v1"]
    assert dict(started.options) == {"kafka.bootstrap.servers": "h:9092", "topic": "t"}
    assert started.messages[0].startswith("to_json(named_struct('id'")
    PointerCheck(deployed).round()
    assert "a" not in pool.views


def test_a_rebuild_serves_after_it_and_stops_the_former_version(deployed: Any, pool: Any) -> None:
    forks.applied(deployed, pool, files(), PlanRequest(tables=(T("a"),), rebuild=True))
    assert a(deployed, 2).active and not a(deployed).active and list(pool.running) == ["a@v2"]


def test_a_topic_that_does_not_exist_is_named_before_anything_is_created(agent: Any, pool: Any) -> None:
    agent.files.others[""] = (T("a"), TableFault(TableFaultKind.GONE, "has no topic t at h:9092"))
    run = lane.submit(agent, lane.plan(agent, files(), ALL))
    lane.drive(agent, run)
    notes = [step.note for step in agent.ledger.run(run).steps if step.do == "create"]
    assert notes and "a has no topic t at h:9092" in notes[0]
    assert a(agent) is None


def test_plans_see_the_topics_that_the_agent_has_looked_for(agent: Any) -> None:
    silent = TryAgain("no broker of h:9092 answers: timed out")
    places = ["kafka://h:9092/t", "kafka://h:9092/u", "kafka://i:9092/t"]
    agent.files.unmade |= {places[1]: ("u",), places[2]: silent}
    look_for_inputs(agent, places, (), 1.0)
    answers = agent.ledger.spark_analyses()
    assert [seen_topics(answers, each) for each in places] == [
        SeenTopics(), SeenTopics(("u",)), SeenTopics(unread=silent.summary)
    ]  # fmt: skip
    agent.files.unmade.clear()
    look_for_inputs(agent, places, (), 1.0)
    answers = agent.ledger.spark_analyses()
    assert [seen_topics(answers, each) for each in places] == [SeenTopics()] * 3


def test_a_batch_that_is_written_again_is_an_event(deployed: Any, pool: Any) -> None:
    pool.running.clear()
    deployed.files.planned = 2
    start(deployed, a(deployed), stops=deployed.locks.stops((T("a"), 1)))
    (event,) = [event for event in deployed.ledger.events(limit=50) if event.summary == REPEATED]
    assert event.detail == "a@v1 writes batch 2 again: messages of it may be in its topic twice"
