"""A keyed table rewritten in place: on a checkpoint of its own, killed at every point, retried, stopped."""

import time
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import pytest
import small_project
from agent_scenarios import fast_lane

from core.model.errors import EngineRefused, TryAgain
from core.model.names import TableName as T
from core.observed.versions import Deployment
from core.plan.request import PlanRequest, StrategyChoice
from core.run.model import OperatorControl
from pipelines.agent.context import AgentContext
from tests.pipelines.agent.runs.test_run_driver import KillAt, Killed, deploy, drive, fast_gates, plan, settle, submit

__all__ = ["fast_gates"]

REWRITE_A = PlanRequest(tables=(T("a"),), choices=(StrategyChoice(T("a"), "keyed"),))


def keyed(select: str = "SELECT id, kind FROM STREAM landed") -> dict[str, str]:
    """Return the small project with `a` keyed and on Delta, and readers that accept its changes in any order."""
    changes = "SELECT id, kind FROM STREAM a WHERE _change_type <> 'update_preimage'"
    files = small_project.texts(a=select, b=changes, c=changes)
    for table, product in (("b", "p"), ("c", "other")):
        files[f"pipelines/facts/{product}/{table}/{table}.yml"] = "tags: [tolerant]\n"
    files["pipelines/facts/p/a/a.yml"] = "mode: upsert\nkey: [id]\nsequence: id\ntags: [compatible]\n"
    files["headgate.yml"] += "connectors: {delta: {}}\n"
    path = "pipelines/facts/p/a/sql-scripts/ddl.a.sql"
    return files | {path: files[path].replace("USING parquet", "USING delta")}


UPPER = keyed("SELECT id, upper(kind) AS kind FROM STREAM landed")


def row(agent: AgentContext) -> Deployment:
    found = agent.ledger.deployment(T("a"), 1)
    assert found is not None
    return found


@pytest.fixture
def old(agent: AgentContext, pool: Any) -> AgentContext:
    ids: dict[str, str] = agent.files.ids  # type: ignore[attr-defined]  # A double's.
    ids[agent.layout.table_folder(T("a"), 1)] = "id-a"
    assert deploy(agent, pool, keyed()) == "done"
    return agent


def test_the_same_table_is_written_by_the_new_text_on_a_checkpoint_that_has_read_nothing(
    old: AgentContext, pool: Any
) -> None:
    before = row(old)
    run = submit(old, plan(old, UPPER, REWRITE_A))
    assert drive(old, run) == "done"
    after = row(old)
    assert after.checkpoint == f"{before.checkpoint}.rewrite.{run}" and after.checkpoint_id != before.checkpoint_id
    assert (after.folder, after.table_id, after.active, after.mode) == (
        before.folder, before.table_id, True, before.mode,
    )  # fmt: skip
    assert "upper(kind)" in after.compiled and after.older_rows == "rows that earlier texts wrote"
    assert pool.running["a@v1"].checkpoint == after.checkpoint == pool.running["a@v1"].upsert.checkpoint
    assert sorted(pool.running) == ["a@v1", "b@v1", "c@v1"] and "b@v1" not in pool.stops
    aside: dict[str, str] = old.files.aside  # type: ignore[attr-defined]  # A double's.
    assert before.checkpoint in aside.values(), "the checkpoint of before is in the trash"
    settle(old, pool)
    assert plan(old, UPPER, PlanRequest(tables=(T("a"),))).empty
    again = submit(old, plan(old, UPPER, replace(REWRITE_A, rebuild=True)))
    assert drive(old, again) == "done" and row(old).checkpoint == f"{before.checkpoint}.rewrite.{again}"


def test_killed_at_any_point_it_is_written_again_once(old: AgentContext, pool: Any) -> None:
    run, before, at = submit(old, plan(old, UPPER, REWRITE_A)), row(old), 0
    while True:
        at += 1
        try:
            state = drive(replace(old, faults=KillAt(at=at)), run)  # type: ignore[arg-type]  # A double's.
            break
        except Killed:
            checkpoint = row(old).checkpoint
            assert ("upper" in row(old).compiled) is (checkpoint != before.checkpoint), (
                "text and checkpoint move as one"
            )
    assert state == "done" and at > 4
    assert pool.running["a@v1"].checkpoint == f"{before.checkpoint}.rewrite.{run}"
    assert [said.summary for said in old.ledger.events() if "written again" in said.summary] == [
        f"a@v1 is written again from the earliest row, by run {run}"
    ]


def test_if_no_checkpoint_can_be_made_it_continues_as_before(
    old: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = row(old)

    def full(*args: Any, **more: Any) -> None:
        raise EngineRefused("no space left on the device")

    monkeypatch.setattr(type(old.files), "create_checkpoint_after", full)
    assert drive(old, submit(old, plan(old, UPPER, REWRITE_A))) == "failed"
    assert row(old).checkpoint == before.checkpoint and row(old).compiled == before.compiled
    assert pool.running["a@v1"].checkpoint == before.checkpoint


def test_if_no_checkpoint_can_be_made_a_stopped_statement_stays_stopped(
    old: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast_lane(old).stop((T("a"),), time.monotonic(), by="bob")

    def full(*args: Any, **more: Any) -> None:
        raise EngineRefused("no space left on the device")

    monkeypatch.setattr(type(old.files), "create_checkpoint_after", full)
    assert drive(old, submit(old, plan(old, UPPER, REWRITE_A))) == "failed"
    assert "upper" not in row(old).compiled
    assert (row(old).wanted, "a@v1" in pool.running) == ("stopped", False)


def test_it_is_done_even_if_the_old_checkpoint_cannot_be_moved_to_the_trash(
    old: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = row(old).checkpoint

    def away(*_: Any) -> None:
        raise TryAgain("the trash cannot be reached")

    monkeypatch.setattr(type(old.files), "set_aside", away)
    assert drive(old, submit(old, plan(old, UPPER, REWRITE_A))) == "done"
    assert pool.running["a@v1"].checkpoint == row(old).checkpoint != before
    told = [(said.summary, said.detail) for said in old.ledger.events() if "former" in said.summary]
    assert told == [("the former checkpoints of a@v1 are not in the trash", "the trash cannot be reached")]


def test_a_cancelled_run_leaves_it_running_on_its_new_start(old: AgentContext, pool: Any) -> None:
    run = submit(old, plan(old, UPPER, REWRITE_A))
    assert drive(old, run, OperatorControl("cancel")) == "cancelled"
    assert "a@v1" in pool.running


def test_it_is_not_stopped_while_nothing_can_be_started(old: AgentContext, pool: Any) -> None:
    run, stops = submit(old, plan(old, UPPER, REWRITE_A)), list(pool.stops)
    pool.restored = False
    assert drive(replace(old, monotonic=partial(next, count(0.0, 500.0))), run) == "failed"
    assert pool.stops == stops and "a@v1" in pool.running and ".rewrite." not in row(old).checkpoint
