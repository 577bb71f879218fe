"""The id of a version: generated once before its first start, and kept by restarts, kills and adoptions."""

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import small_project

from core.model.names import TableName
from core.plan.request import PlanRequest
from pipelines.agent.context import AgentContext
from tests.pipelines.agent.runs.test_run_driver import (
    EVERYTHING,
    KillAt,
    Killed,
    deploy,
    drive,
    fast_gates,  # noqa: F401  # A fixture of every test here.
    plan,
    settle,
    submit,
)

A = TableName("a")


def ids(agent: AgentContext) -> dict[str, str]:
    rows = agent.ledger.deployments(include_deleted=True)
    return {f"{row.table}@v{row.version}": row.version_id for row in rows}


def test_each_version_has_an_id_of_its_own_and_an_external_table_has_none(agent: AgentContext, pool: Any) -> None:
    assert deploy(agent, pool, small_project.texts()) == "done"
    found = ids(agent)
    assert found.pop("landed@v0") == ""
    assert len(set(found.values())) == len(found) == 3
    assert all(str(uuid.UUID(each)) == each for each in found.values())


def test_an_edit_in_place_keeps_id_and_creation_time_and_a_rebuild_gets_others(agent: AgentContext, pool: Any) -> None:
    deploy(agent, pool, small_project.texts())
    first = agent.ledger.deployment(A, 1)
    assert first is not None
    filtered = small_project.texts(a="SELECT id, kind FROM STREAM landed WHERE id > 1")
    assert deploy(agent, pool, filtered, PlanRequest(tables=(A,))) == "done"
    edited = agent.ledger.deployment(A, 1)
    assert edited is not None and edited.revision != first.revision
    assert (edited.version_id, edited.created_at) == (first.version_id, first.created_at)
    later = replace(agent, clock=lambda: first.created_at + 60.0)
    assert deploy(later, pool, filtered, PlanRequest(tables=(A,), rebuild=True)) == "done"
    second = agent.ledger.deployment(A, 2)
    assert second is not None and second.version_id not in ("", first.version_id)
    assert second.created_at == first.created_at + 60.0
    replaced = agent.ledger.deployment(A, 1)
    assert replaced is not None and replaced.version_id == first.version_id


def test_a_kill_at_any_point_never_changes_an_id_that_was_recorded(
    tmp_path: Path, agent: AgentContext, pool: Any
) -> None:
    made = plan(agent, small_project.texts(), EVERYTHING)
    run_id, point, seen = submit(agent, made), 0, dict[str, str]()
    while True:
        # Each agent gets one point further than the one before, until the run is done.
        point += 1
        try:
            state = drive(replace(agent, faults=KillAt(point)), run_id)  # type: ignore[arg-type]  # It kills.
        except Killed:
            state = ""
        now = ids(agent)
        assert {name: now[name] for name in seen} == seen
        assert all(now[name] for name in pool.running), "a query began before its id was recorded"
        seen = now
        settle(agent, pool)
        if state == "done":
            break
    assert point > 3
