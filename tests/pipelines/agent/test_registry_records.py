"""Registry records in the data folder: written before a start, at a swap and in rounds, never over newer ones."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import small_project
from agent_scenarios import held_elsewhere, put_made, read_before, stop_in_ledger
from ledger_rows import deployment_row

from core.model.errors import EngineRefused, Refused
from core.model.names import TableName
from core.plan.request import PlanRequest
from core.project.revision import RevisionTexts
from core.run.model import OperatorControl
from pipelines.agent.context import AgentContext
from pipelines.agent.identity import registry_records
from pipelines.agent.identity.registry_records import (
    RegistryRecords,
    durable,
    keep_serving,
    newer_serving,
    recorded_row,
    recorded_session,
)
from pipelines.agent.statements.deployment_lifecycle import start
from pipelines.storage.data_folder_records import RegistryRecord, read_record, record_names, write_record
from tests.pipelines.agent.runs.test_run_driver import (
    Killed,
    deploy,
    drive,
    fast_gates,  # noqa: F401  # A fixture of every test here.
    plan,
    submit,
)

A = TableName("a")
UPPER = "SELECT id, upper(kind) AS kind FROM STREAM landed"
REBUILD = PlanRequest(tables=(A,), rebuild=True)


def record(agent: AgentContext, name: str) -> RegistryRecord:
    found = read_record(agent.layout.data, name)
    assert found is not None, f"{name} has no record"
    return found


def row(agent: AgentContext, version: int = 1) -> Any:
    found = agent.ledger.deployment(A, version)
    assert found is not None
    return found


def test_a_record_holds_all_that_a_row_needs(agent: AgentContext, pool: Any) -> None:
    deploy(agent, pool, small_project.texts())
    RegistryRecords(agent).round()
    assert record_names(agent.layout.data) == ("a@v1", "b@v1", "c@v1", "landed@v0")
    for deployment in agent.ledger.deployments():
        found = record(agent, f"{deployment.table}@v{deployment.version}")
        assert durable(recorded_row(found, 0.0)) == durable(deployment)
        assert (found.ledger, found.count) == ("ledger", deployment.recorded)
    assert record(agent, "_serving").row == {"a": 1, "b": 1, "c": 1}


def test_a_new_text_is_recorded_before_spark_is_asked_to_run_it(agent: AgentContext, pool: Any) -> None:
    put_made(agent, deployment_row(state="stopped"))
    start(agent, row(agent), stops=0)
    agent.ledger.update_deployment(A, 1, revision="r2", texts=RevisionTexts("d", "m2", ""), compiled="SELECT 2")
    pool.refuse["a@v1"] = EngineRefused("it is wrong", error_class="WRONG")
    with pytest.raises(EngineRefused):
        start(agent, row(agent), stops=0)
    assert recorded_row(record(agent, "a@v1"), 0.0).texts.dml == "m2"


def test_a_round_records_what_an_operator_has_changed_once_nobody_holds_it(agent: AgentContext, pool: Any) -> None:
    deploy(agent, pool, small_project.texts())
    records = RegistryRecords(agent)
    records.round()
    stop_in_ledger(agent, A)
    with held_elsewhere(agent, (A, 1)):
        records.round()
        assert record(agent, "a@v1").row["wanted"] == "running"
    records.round()
    assert record(agent, "a@v1").row["wanted"] == "stopped"
    agent.ledger.tombstone(TableName("b"), 1, drop_after=9e9, trash="/trash/b__v1")
    records.round()
    assert record(agent, "b@v1").row["trash"] == "/trash/b__v1"
    assert record(agent, "_serving").row == {"a": 1, "c": 1}
    agent.ledger.purged(TableName("b"), 1, 9.0)
    records.round()
    assert record_names(agent.layout.data) == ("a@v1", "c@v1", "landed@v0"), "the ledger forgets it in time as well"


def test_the_serving_version_is_recorded_in_a_later_round_if_a_run_moved_pointers(
    agent: AgentContext, pool: Any
) -> None:
    deploy(agent, pool, small_project.texts())
    run_id = submit(agent, plan(agent, small_project.texts(a=UPPER), REBUILD))
    registry_records.record_serving(agent, {A: 2}, run_id)
    records = RegistryRecords(agent)
    records.round()
    assert record(agent, "_serving").row == {"a": 2, "b": 1, "c": 1}, "its run is under way"
    assert drive(agent, run_id, OperatorControl("cancel")) == "cancelled"
    records.round()
    assert record(agent, "_serving").row == {"a": 1, "b": 1, "c": 1}


def test_the_session_is_recorded_and_is_no_version(agent: AgentContext) -> None:
    assert recorded_session(agent.layout.data) == ""
    records = RegistryRecords(agent)
    for session in ("s", "s-2"):
        agent.ledger.put_pool(session_id=session)
        records.round()
        assert recorded_session(agent.layout.data) == session
    agent.ledger.put_pool(session_id="")
    records.round()
    assert (recorded_session(agent.layout.data), record_names(agent.layout.data)) == ("s-2", ())


def test_a_round_without_changes_writes_nothing(agent: AgentContext, pool: Any) -> None:
    deploy(agent, pool, small_project.texts())
    RegistryRecords(agent).round()
    before = [record(agent, name) for name in ("a@v1", "_serving")]
    agent.ledger.update_deployment(A, 1, state="degraded", error="late")
    RegistryRecords(agent).round()
    assert [record(agent, name) for name in ("a@v1", "_serving")] == before


def test_an_unreadable_record_delays_no_other_and_is_retried(agent: AgentContext, pool: Any) -> None:
    deploy(agent, pool, small_project.texts())
    records = RegistryRecords(agent)
    broken = Path(agent.layout.data, "_headgate_registry", "a@v1.json")
    broken.write_text("garbage")
    for table in (A, TableName("b")):
        agent.ledger.update_deployment(table, 1, owner="ana")
    records.round()
    assert record(agent, "b@v1").row["owner"] == "ana"
    broken.unlink()
    records.round()
    assert record(agent, "a@v1").row["owner"] == "ana"


def test_an_older_ledger_overwrites_no_record_and_starts_nothing_over_it(agent: AgentContext, pool: Any) -> None:
    deploy(agent, pool, small_project.texts())
    RegistryRecords(agent).round()
    found = Path(agent.layout.data, "_headgate_registry", "a@v1.json")
    newer = json.loads(found.read_text())
    newer |= {"count": newer["count"] + 1, "row": newer["row"] | {"revision": "later"}}
    found.write_text(json.dumps(newer))
    pool.running.clear()
    with pytest.raises(Refused, match="newer record in the data folder than in the ledger") as refused:
        start(agent, row(agent), stops=0)
    assert refused.value.remedy == "headgate adopt"
    RegistryRecords(agent).round()
    assert (record(agent, "a@v1").row["revision"], pool.running) == ("later", {})


def test_texts_with_a_secret_are_not_recorded(agent: AgentContext) -> None:
    texts = RevisionTexts("d OPTIONS (password = 'hunter2')", "m", "")
    agent.ledger.put_deployment(deployment_row(texts=texts, compiled_ddl=texts.ddl))
    RegistryRecords(agent).round()
    assert "hunter2" not in Path(agent.layout.data, "_headgate_registry", "a@v1.json").read_text()
    assert record(agent, "a@v1").withheld == "its texts seem to contain a secret"
    with pytest.raises(ValueError, match="incomplete"):
        recorded_row(record(agent, "a@v1"), 0.0)


def test_a_secret_of_the_base_of_a_chain_is_not_recorded(agent: AgentContext) -> None:
    agent.ledger.put_deployment(deployment_row(before_ddl="CREATE TABLE b OPTIONS (password = 'hunter2')"))
    RegistryRecords(agent).round()
    assert "hunter2" not in Path(agent.layout.data, "_headgate_registry", "a@v1.json").read_text()
    with pytest.raises(ValueError, match="incomplete"):
        recorded_row(record(agent, "a@v1"), 0.0)


def test_a_swap_is_recorded_after_the_pointers_and_before_the_ledger(agent: AgentContext, pool: Any) -> None:
    class KillAtCommit:
        def pass_by(self, label: str) -> None:
            if label == "swap commit":
                raise Killed(label)

    deploy(agent, pool, small_project.texts())
    RegistryRecords(agent).round()
    run_id = submit(agent, plan(agent, small_project.texts(a=UPPER), REBUILD))
    with pytest.raises(Killed):
        drive(replace(agent, faults=KillAtCommit()), run_id)  # type: ignore[arg-type]  # Kills.
    assert (pool.views["a"], record(agent, "_serving").row["a"], row(agent).active) == ("a__v2", 2, True)
    assert newer_serving(agent) is None, "its run is open and moves the pointers again"
    RegistryRecords(agent).round()
    assert record(agent, "_serving").row["a"] == 2, "a round does not undo it"
    assert drive(agent, run_id) == "done"
    assert record(agent, "_serving").count == agent.ledger.facts().served


def test_a_swap_beside_a_round_is_not_recorded_as_it_was_before(agent: AgentContext, pool: Any) -> None:
    deploy(agent, pool, small_project.texts())
    RegistryRecords(agent).round()
    agent.ledger.put_deployment(replace(row(agent), version=2, active=False))

    def swap() -> None:
        count = agent.ledger.facts().served + 1
        write_record(agent.layout.data, "_serving", RegistryRecord("ledger", count, {"a": 2, "b": 1, "c": 1}))
        agent.ledger.activate({A: 2}, served=count)

    keep_serving(read_before(agent, "deployments", swap))
    assert record(agent, "_serving").row["a"] == 2
