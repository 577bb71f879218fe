"""Wanted against actual: what is lost is started again, what failed is said, what is under way is left alone."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.names import TableName
from core.plan import Binding, Texts
from core.ports import Query
from pipelines.agent.reconciler import Before, Reconciler
from pipelines.agent.world import World
from state.emergency import EmergencyJournal
from state.rows import Deployment

A = TableName("a")


@pytest.fixture
def reconciler(world: World, tmp_path: Path) -> Reconciler:
    return Reconciler(world, EmergencyJournal(tmp_path / "emergency.jsonl"))


def deploy(world: World, **changed: Any) -> Deployment:
    """Write a running a@v1 whose checkpoint is ours."""
    found = Deployment(
        table=A, version=1, product="p", layer="fact", owner="", revision="r", texts=Texts("d", "m", ""),
        compiled="SELECT 1", compiled_ddl="CREATE TABLE a__v1", columns=("id",), format="parquet",
        folder="/t/a__v1", checkpoint="/c/a__v1", checkpoint_id="", trigger="1 second", mode="append",
        stateful=False, wanted="running", state="running", state_since=0.0, active=True,
        bindings=(Binding(TableName("landed"), 0, True),), query_id="q", run_id="r1",
    )  # fmt: skip
    found = replace(found, **changed)
    world.ledger.put_deployment(found)
    world.files.prepare("/c/a__v1", {})
    return found


def reconcile(
    reconciler: Reconciler, *, ended: tuple[Query, ...] = (), busy: frozenset[tuple[str, int]] = frozenset()
) -> str:
    world = reconciler.world
    before = Before(tuple(world.ledger.deployments()), busy)
    queries = world.pool.call(1.0, lambda engine: engine.queries.active())
    reconciler.round(before, queries, ended)
    found = world.deployment(A, 1)
    assert found is not None
    return found.state


def test_a_query_lost_with_its_session_is_started_again_and_counted(
    world: World, pool: Any, reconciler: Reconciler
) -> None:
    deploy(world)
    assert reconcile(reconciler) == "starting"
    assert pool.starts == ["a@v1"]
    found = world.deployment(A, 1)
    assert found is not None and found.restarts == 1


def test_a_version_that_is_being_started_is_left_to_the_next_round(
    world: World, pool: Any, reconciler: Reconciler
) -> None:
    deploy(world)
    assert reconcile(reconciler, busy=frozenset({("a", 1)})) == "running"
    with world.occupied(world.deployment(A, 1) or deploy(world)):
        assert reconcile(reconciler) == "running"
    assert pool.starts == []


def test_a_version_that_was_started_after_the_pool_was_asked_is_left_alone(
    world: World, pool: Any, reconciler: Reconciler
) -> None:
    deploy(world)
    before = Before(tuple(world.ledger.deployments()), frozenset())
    world.ledger.update_deployment(A, 1, run_id="r2")
    reconciler.round(before, (), ())
    assert pool.starts == []


def test_a_query_that_ended_with_an_error_has_failed_and_is_not_started_again(
    world: World, pool: Any, reconciler: Reconciler
) -> None:
    deploy(world)
    ended = Query("a@v1", "q", "r1", False, error_class="DIVIDE_BY_ZERO", error="Division by zero.")
    assert reconcile(reconciler, ended=(ended,)) == "failed"
    assert reconcile(reconciler) == "failed"
    assert pool.starts == []
    (event,) = [e for e in world.ledger.events() if e.kind == "exception"]
    assert (event.summary, event.detail) == ("DIVIDE_BY_ZERO", "Division by zero.")


def test_a_query_that_is_wanted_stopped_is_stopped_again(world: World, pool: Any, reconciler: Reconciler) -> None:
    deployment = deploy(world)
    pool.running["a@v1"] = pool.running.get("a@v1")
    world.ledger.update_deployment(A, 1, wanted="stopped", state="stopping")
    assert deployment.wanted == "running"
    assert reconcile(reconciler) == "stopped"
    assert pool.stops == ["a@v1"]


def test_a_stop_in_the_emergency_journal_is_taken_first(world: World, pool: Any, reconciler: Reconciler) -> None:
    deploy(world)
    reconciler.emergency.append({"at": 1.0, "act": "stop", "table": "a", "version": 1})
    reconciler.apply_emergencies()
    reconciler.apply_emergencies()
    assert reconcile(reconciler) == "stopped"
    assert pool.starts == []


def test_a_stop_of_what_the_ledger_does_not_know_keeps_no_other_from_being_taken(
    world: World, reconciler: Reconciler
) -> None:
    deploy(world)
    for entry in ({"act": "stop", "table": "gone", "version": 7}, {"act": "stop"}, {"table": "a", "version": "x"}):
        reconciler.emergency.append(entry)
    reconciler.emergency.append({"at": 1.0, "act": "stop", "table": "a", "version": 1})
    reconciler.apply_emergencies()
    assert reconcile(reconciler) == "stopped"
    assert not reconciler.emergency.waits()


def test_a_missing_checkpoint_of_a_stopped_statement_is_seen(world: World, reconciler: Reconciler) -> None:
    deploy(world, wanted="stopped", state="stopped")
    del world.files.folders["/c/a__v1"]  # type: ignore[attr-defined]  # Scripted.
    reconcile(reconciler)
    found = world.deployment(A, 1)
    assert found is not None and not found.checkpoint_ok


def test_a_checkpoint_of_somebody_else_is_never_started_on(world: World, pool: Any, reconciler: Reconciler) -> None:
    deploy(world)
    world.files.owner = "another ledger"  # type: ignore[attr-defined]  # Scripted.
    assert reconcile(reconciler) == "failed"
    assert pool.starts == []
