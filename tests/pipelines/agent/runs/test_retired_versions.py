"""Tickets at a swap, and the retirement of replaced versions: refused while they are read, into the trash, purged."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import small_project
from overlay_ledgers import overlay_of

from core.model.errors import Refused
from core.model.names import TableName as T
from core.plan.model import Plan
from core.plan.request import PlanRequest
from core.planner.planner import make_plan
from core.project.overlay import OVERLAY_FILE
from core.run.model import OperatorControl
from pipelines.agent.context import AgentContext
from pipelines.agent.housekeeping import purge_trash
from pipelines.agent.runs import pointer_steps, run_driver, step_executor
from state.overlay_files import versions_read_by_overlays
from state.planner_input_from_registry import observe
from tests.pipelines.agent.runs import test_run_driver as lane
from tests.pipelines.agent.runs.test_executor_contract import A_REBUILD, REBUILD_A, UPPER, soaking

DAY_S = 86400.0
READ = {"pipelines/facts/p/b/b.yml": "readers: [dashboard (bi-team)]\n"}


@pytest.fixture(autouse=True)
def prompt(agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_executor, "CatchUpGate", lane.OpenGate)
    monkeypatch.setattr(pointer_steps, "CatchUpGate", lane.OpenGate)
    monkeypatch.setattr(run_driver, "POLL_S", 0.001)
    lane.deploy(agent, pool, small_project.texts() | READ)


def planned(agent: AgentContext, *tables: str, files: dict[str, str] | None = None) -> Plan:
    ledger = agent.ledger
    seen = observe(ledger.deployments(include_deleted=True), tickets=ledger.tickets())
    request = PlanRequest(verb="retire", tables=tuple(map(T, tables)))
    return make_plan(small_project.project(files or A_REBUILD[0] | READ), "dev", seen, request)


def executed(agent: AgentContext, pool: Any, made: Plan) -> str:
    assert not made.refusals, made.refusals
    return lane.drive(agent, lane.submit(agent, made))


def refusals(made: Plan) -> list[str]:
    return [refused.summary for refused in made.refusals]


def test_a_swap_leaves_a_ticket_to_each_reader_that_stays(agent: AgentContext, pool: Any) -> None:
    agent.clock = lambda: 1000.0
    made = lane.plan(agent, small_project.texts(a=UPPER) | READ, replace(REBUILD_A, children="product"))
    run = lane.submit(agent, made)
    assert lane.drive(agent, run) == "done"
    told = [(t.reader, t.product, t.is_statement, t.old, t.new, t.owner) for t in agent.ledger.tickets(run)]
    assert told == [
        ("c", "other", True, "a__v1", "a__v2", ""),
        ("dashboard", "", False, "b__v1", "b__v2", "bi-team"),
    ]
    (one, _) = agent.ledger.tickets(run)
    assert (one.cut_at, one.deadline, one.closed_at) == (1000.0, 1000.0 + 7 * DAY_S, None)
    assert refusals(planned(agent, "a", "b")) == ["a__v1 is read by c (other)", "dashboard has an open ticket on b__v1"]
    agent.ledger.close_ticket(run, "dashboard", by="ana", at=2000.0)
    assert refusals(planned(agent, "a", "b")) == ["a__v1 is read by c (other)"]
    with pytest.raises(Refused, match="no open ticket of dashboard"):
        agent.ledger.close_ticket(run, "dashboard", by="ana", at=2000.0)


def test_a_swap_that_is_done_again_leaves_a_closed_ticket_closed(agent: AgentContext, pool: Any) -> None:
    made = lane.plan(agent, A_REBUILD[0] | READ, A_REBUILD[1])
    run = lane.submit(agent, made)
    assert lane.drive(agent, run) == "done"
    agent.ledger.close_ticket(run, "dashboard", by="ana", at=2000.0)
    kept = agent.ledger.tickets()
    agent.ledger.open_tickets([replace(one, closed_at=None, closed_by="") for one in kept])
    assert agent.ledger.tickets() == kept


def test_replaced_versions_go_to_the_trash_and_are_purged_after_their_deadline(agent: AgentContext, pool: Any) -> None:
    files = soaking(A_REBUILD[0])
    assert lane.deploy(agent, pool, files, A_REBUILD[1]) == "done"
    assert len(pool.running) == 6
    made = planned(agent, "a", "b", "c", files=files)
    stops = [(step.do, step.table) for step in made.steps]
    assert stops == [("stop", "b"), ("stop", "c"), ("stop", "a"), *(("tombstone", name) for name in "bca")]
    assert executed(agent, pool, made) == "done"
    assert sorted(pool.running) == ["a@v2", "b@v2", "c@v2"] and set(pool.tables) == {
        "landed",
        "a__v2",
        "b__v2",
        "c__v2",
    }
    gone = [d for d in agent.ledger.deployments(include_deleted=True) if d.deleted]
    assert [(d.table, d.version, d.trash != "") for d in gone] == [("a", 1, True), ("b", 1, True), ("c", 1, True)]
    assert agent.ledger.deleted_tables() == (), "the tables themselves are there"
    again = planned(agent, "a", files=files)
    assert refusals(again) == ["a has no replaced version to retire"]
    back = make_plan(
        small_project.project(files), "dev", observe(agent.ledger.deployments(include_deleted=True)),
        PlanRequest(verb="rollback", tables=(T("a"),)),
    )  # fmt: skip
    assert refusals(back) == ["a has no earlier version that served"]
    wall = agent.clock() + 8 * DAY_S
    uptime = agent.uptime()
    agent.clock, agent.uptime = (lambda: wall), (lambda: replace(uptime, seconds=uptime.seconds + 8 * DAY_S))
    purge_trash(agent)
    assert [d.trash for d in agent.ledger.deployments(include_deleted=True) if d.deleted] == ["", "", ""]


def test_a_reader_added_after_the_plan_keeps_its_input(agent: AgentContext, pool: Any) -> None:
    assert lane.deploy(agent, pool, soaking(A_REBUILD[0]), A_REBUILD[1]) == "done"
    made = planned(agent, "a", "b", "c")
    run = lane.submit(agent, made)
    found = agent.ledger.deployment(T("b"), 2)
    assert found is not None
    agent.ledger.update_deployment(T("b"), 2, bindings=tuple(replace(each, version=1) for each in found.bindings))
    assert lane.drive(agent, run) == "failed"
    kept = agent.ledger.deployment(T("a"), 1)
    assert kept is not None and not kept.deleted and "a@v1" in pool.running


def test_a_version_that_an_overlay_reads_is_retired_only_by_a_plan_that_names_the_overlay(
    agent: AgentContext, pool: Any
) -> None:
    assert lane.deploy(agent, pool, *A_REBUILD) == "done"
    run = lane.submit(agent, planned(agent, "a", "b", "c"))
    overlay_of(agent, {"a": 1, "b": 2})
    assert lane.drive(agent, run) == "failed"
    row = agent.ledger.run(run)
    assert row is not None
    (note,) = [step.note for step in row.steps if step.state == "failed"]
    assert note == (
        "pr-1 now reads a__v1, of which this plan does not warn: plan again, or first headgate down --env pr-1 --purge"
    )
    kept = agent.ledger.deployment(T("a"), 1)
    assert kept is not None and not kept.deleted
    seen = observe(
        agent.ledger.deployments(include_deleted=True), overlays=versions_read_by_overlays(agent.places.home)
    )
    request = PlanRequest(verb="retire", tables=(T("a"),))
    assert executed(agent, pool, make_plan(small_project.project(A_REBUILD[0] | READ), "dev", seen, request)) == "done"


def test_a_table_that_an_overlay_has_begun_to_read_keeps_running_when_its_delete_fails(
    agent: AgentContext, pool: Any
) -> None:
    made = lane.plan(agent, small_project.texts() | READ, PlanRequest(verb="delete", tables=(T("b"),)))
    run = lane.submit(agent, made)
    overlay_of(agent, {"b": 1})
    assert lane.drive(agent, run) == "failed" and "b@v1" in pool.running
    row = agent.ledger.run(run)
    assert row is not None
    assert (row.steps[0].do, row.steps[0].state) == ("stop", "failed")
    overlay_file = Path(agent.places.home).parent / "pr-1" / OVERLAY_FILE
    overlay_file.unlink()
    assert lane.drive(agent, run, OperatorControl("retry")) == "done" and "b@v1" not in pool.running
