"""Records of the registry in the data folder: before a start, at a swap, in rounds, and never over a newer one."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import small_project
from agent_world import held_elsewhere, put_made, read_before, stop_in_ledger
from ledger_rows import deployment_row

from core.model.errors import EngineRefused, Refused
from core.model.names import TableName
from core.plan.request import PlanRequest
from core.project.revision import RevisionTexts
from core.run.state_machine import OperatorControl
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


def record(world: AgentContext, name: str) -> RegistryRecord:
    found = read_record(world.layout.data, name)
    assert found is not None, f"{name} has no record"
    return found


def row(world: AgentContext, version: int = 1) -> Any:
    found = world.ledger.deployment(A, version)
    assert found is not None
    return found


def test_a_record_holds_all_that_a_row_needs(world: AgentContext, pool: Any) -> None:
    deploy(world, pool, small_project.texts())
    RegistryRecords(world).round()
    assert record_names(world.layout.data) == ("a@v1", "b@v1", "c@v1", "landed@v0")
    for deployment in world.ledger.deployments():
        found = record(world, f"{deployment.table}@v{deployment.version}")
        assert durable(recorded_row(found, 0.0)) == durable(deployment)
        assert (found.ledger, found.count) == ("ledger", deployment.recorded)
    assert record(world, "_serving").row == {"a": 1, "b": 1, "c": 1}


def test_a_new_text_is_recorded_before_spark_is_asked_to_run_it(world: AgentContext, pool: Any) -> None:
    put_made(world, deployment_row(state="stopped"))
    start(world, row(world), stops=0)
    world.ledger.update_deployment(A, 1, revision="r2", texts=RevisionTexts("d", "m2", ""), compiled="SELECT 2")
    pool.refuse["a@v1"] = EngineRefused("it is wrong", error_class="WRONG")
    with pytest.raises(EngineRefused):
        start(world, row(world), stops=0)
    assert recorded_row(record(world, "a@v1"), 0.0).texts.dml == "m2"


def test_a_round_records_what_an_operator_has_changed_once_nobody_holds_it(world: AgentContext, pool: Any) -> None:
    deploy(world, pool, small_project.texts())
    records = RegistryRecords(world)
    records.round()
    stop_in_ledger(world, A)
    with held_elsewhere(world, (A, 1)):
        records.round()
        assert record(world, "a@v1").row["wanted"] == "running"
    records.round()
    assert record(world, "a@v1").row["wanted"] == "stopped"
    world.ledger.tombstone(TableName("b"), 1, drop_after=9e9, trash="/trash/b__v1")
    records.round()
    assert record(world, "b@v1").row["trash"] == "/trash/b__v1"
    assert record(world, "_serving").row == {"a": 1, "c": 1}
    world.ledger.purged(TableName("b"), 1, 9.0)
    records.round()
    assert record_names(world.layout.data) == ("a@v1", "c@v1", "landed@v0"), "the ledger forgets it in time as well"


def test_what_serves_is_recorded_in_a_later_round_where_a_run_had_moved_pointers_in_the_first(
    world: AgentContext, pool: Any
) -> None:
    deploy(world, pool, small_project.texts())
    run_id = submit(world, plan(world, small_project.texts(a=UPPER), REBUILD))
    registry_records.serve(world, {A: 2}, run_id)
    records = RegistryRecords(world)
    records.round()
    assert record(world, "_serving").row == {"a": 2, "b": 1, "c": 1}, "its run is under way"
    assert drive(world, run_id, OperatorControl("cancel")) == "cancelled"
    records.round()
    assert record(world, "_serving").row == {"a": 1, "b": 1, "c": 1}


def test_the_session_is_recorded_and_is_no_version(world: AgentContext) -> None:
    assert recorded_session(world.layout.data) == ""
    records = RegistryRecords(world)
    for session in ("s", "s-2"):
        world.ledger.put_pool(session_id=session)
        records.round()
        assert recorded_session(world.layout.data) == session
    world.ledger.put_pool(session_id="")
    records.round()
    assert (recorded_session(world.layout.data), record_names(world.layout.data)) == ("s-2", ())


def test_a_round_writes_nothing_where_nothing_has_changed(world: AgentContext, pool: Any) -> None:
    deploy(world, pool, small_project.texts())
    RegistryRecords(world).round()
    before = [record(world, name) for name in ("a@v1", "_serving")]
    world.ledger.update_deployment(A, 1, state="degraded", error="late")
    RegistryRecords(world).round()
    assert [record(world, name) for name in ("a@v1", "_serving")] == before


def test_one_record_that_cannot_be_read_holds_up_no_other_and_is_tried_again(world: AgentContext, pool: Any) -> None:
    deploy(world, pool, small_project.texts())
    records = RegistryRecords(world)
    broken = Path(world.layout.data, "_headgate_registry", "a@v1.json")
    broken.write_text("garbage")
    for table in (A, TableName("b")):
        world.ledger.update_deployment(table, 1, owner="ana")
    records.round()
    assert record(world, "b@v1").row["owner"] == "ana"
    broken.unlink()
    records.round()
    assert record(world, "a@v1").row["owner"] == "ana"


def test_an_older_ledger_overwrites_no_record_and_starts_nothing_over_it(world: AgentContext, pool: Any) -> None:
    deploy(world, pool, small_project.texts())
    RegistryRecords(world).round()
    found = Path(world.layout.data, "_headgate_registry", "a@v1.json")
    newer = json.loads(found.read_text())
    newer |= {"count": newer["count"] + 1, "row": newer["row"] | {"revision": "later"}}
    found.write_text(json.dumps(newer))
    pool.running.clear()
    with pytest.raises(Refused, match="as it was later than in the ledger") as refused:
        start(world, row(world), stops=0)
    assert refused.value.remedy == "headgate adopt"
    RegistryRecords(world).round()
    assert (record(world, "a@v1").row["revision"], pool.running) == ("later", {})


def test_texts_with_a_secret_are_not_recorded(world: AgentContext) -> None:
    texts = RevisionTexts("d OPTIONS (password = 'hunter2')", "m", "")
    world.ledger.put_deployment(deployment_row(texts=texts, compiled_ddl=texts.ddl))
    RegistryRecords(world).round()
    assert "hunter2" not in Path(world.layout.data, "_headgate_registry", "a@v1.json").read_text()
    assert record(world, "a@v1").withheld == "its texts hold what looks like a secret"
    with pytest.raises(ValueError, match="not whole"):
        recorded_row(record(world, "a@v1"), 0.0)


def test_a_secret_of_the_table_that_a_chain_goes_on_from_is_not_recorded(world: AgentContext) -> None:
    world.ledger.put_deployment(deployment_row(before_ddl="CREATE TABLE b OPTIONS (password = 'hunter2')"))
    RegistryRecords(world).round()
    assert "hunter2" not in Path(world.layout.data, "_headgate_registry", "a@v1.json").read_text()
    with pytest.raises(ValueError, match="not whole"):
        recorded_row(record(world, "a@v1"), 0.0)


def test_a_swap_is_recorded_after_the_pointers_and_before_the_ledger(world: AgentContext, pool: Any) -> None:
    class KillAtCommit:
        def pass_by(self, label: str) -> None:
            if label == "swap commit":
                raise Killed(label)

    deploy(world, pool, small_project.texts())
    RegistryRecords(world).round()
    run_id = submit(world, plan(world, small_project.texts(a=UPPER), REBUILD))
    with pytest.raises(Killed):
        drive(replace(world, faults=KillAtCommit()), run_id)  # type: ignore[arg-type]  # Kills.
    assert (pool.views["a"], record(world, "_serving").row["a"], row(world).active) == ("a__v2", 2, True)
    assert newer_serving(world) is None, "its run is open and moves the pointers again"
    RegistryRecords(world).round()
    assert record(world, "_serving").row["a"] == 2, "a round does not undo it"
    assert drive(world, run_id) == "done"
    assert record(world, "_serving").count == world.ledger.facts().served


def test_a_swap_beside_a_round_is_not_recorded_as_it_was_before(world: AgentContext, pool: Any) -> None:
    deploy(world, pool, small_project.texts())
    RegistryRecords(world).round()
    world.ledger.put_deployment(replace(row(world), version=2, active=False))

    def swap() -> None:
        count = world.ledger.facts().served + 1
        write_record(world.layout.data, "_serving", RegistryRecord("ledger", count, {"a": 2, "b": 1, "c": 1}))
        world.ledger.activate({A: 2}, served=count)

    keep_serving(read_before(world, "deployments", swap))
    assert record(world, "_serving").row["a"] == 2
