"""Retention: what the ledger deletes from each table, what it never deletes, and how much it deletes at once."""

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from ledger_rows import create_run, run_row

from core.model.names import TableName
from core.observed.table_statistics import TableStatistics
from core.observed.versions import Deployment, Measurement
from core.project.revision import RevisionTexts
from core.run.records import StepRow
from pipelines.agent.daemon import THIN_S
from pipelines.agent.requests.command_log import STORED, WINDOW_S
from state.ledger import Ledger
from state.retention import (
    COMMANDS_D,
    DAY_S,
    EVENTS_D,
    EVENTS_KEPT,
    PLAN_TEXTS_D,
    PLANS_D,
    RUNS_D,
    STAGED_D,
    VERSIONS_D,
)
from state.row_types import ApprovalRow, CommandRow, EventRow, PlanRow, StagedRow

Made = Callable[..., Deployment]
ORDERS = TableName("orders")
NOW = 1_800_000_000.0


def count(ledger: Ledger, table: str) -> int:
    return int(ledger._values(f"SELECT count(*) FROM {table}")[0][0])


def forget_all(ledger: Ledger, now: float = NOW) -> None:
    """Repeat housekeeping until nothing changes."""
    before = -1
    while (after := sum(count(ledger, table) for table in ("event", "command", "plan", "run", "revision"))) != before:
        before = after
        ledger.forget_old(now)


def plan_row(name: str, expires_at: float, **fields: object) -> PlanRow:
    texts = json.dumps({"a.sql": "SELECT 1"})
    return PlanRow(name, "{}", "ana", expires_at - 1, expires_at, "open", texts=texts, **fields)  # type: ignore[arg-type]


def test_events_and_commands_are_deleted_by_age(ledger: Ledger) -> None:
    for age_d in (0, EVENTS_D - 1, EVENTS_D + 1, COMMANDS_D + 1):
        ledger.add_event(EventRow(0, NOW - age_d * DAY_S, "orders", 1, "state", f"{age_d} d"))
    for age_d in (COMMANDS_D + 1, COMMANDS_D - 1, 0):
        ledger.add_command(CommandRow(0, NOW - age_d * DAY_S, "ana", "stop", "", f"{age_d} d", "done"))
    forget_all(ledger)
    assert [event.summary for event in ledger.events()] == ["0 d", f"{EVENTS_D - 1} d"]
    assert [command.line for command in ledger.commands()] == ["0 d", f"{COMMANDS_D - 1} d"]


def flood(ledger: Ledger, event: EventRow, number: int) -> None:
    """Write an event `number` times."""
    ledger.add_event(event)
    columns = ", ".join(f'"{column.name}"' for column in fields(EventRow) if column.name != "id")
    ledger._connection.execute(
        "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
        f"INSERT INTO event ({columns}) SELECT {columns} FROM event, n",
        (number,),
    )
    assert count(ledger, "event") == number


def test_a_flood_of_events_is_limited_whatever_their_age(ledger: Ledger) -> None:
    flood(ledger, EventRow(0, NOW, "orders", 1, "state", "flood"), EVENTS_KEPT + 500)
    forget_all(ledger)
    assert count(ledger, "event") == EVENTS_KEPT


def test_a_round_removes_a_bounded_part(ledger: Ledger) -> None:
    flood(ledger, EventRow(0, 1.0, "orders", 1, "state", "old"), 5000)
    ledger.forget_old(NOW)
    assert count(ledger, "event") == 3000
    forget_all(ledger)
    assert count(ledger, "event") == 0


def test_a_round_forgets_all_that_one_caller_can_have_stored_since_the_round_before(ledger: Ledger) -> None:
    minutes, ops, outcomes = THIN_S / WINDOW_S, 20, 3
    most = int(minutes * ops * outcomes * STORED)
    ledger.add_command(CommandRow(0, 1.0, "ana", "stop", "", "old", "done"))
    columns = ", ".join(each.name for each in fields(CommandRow) if each.name != "id")
    ledger._connection.execute(
        "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
        f"INSERT INTO command ({columns}) SELECT {columns} FROM command, n",
        (most,),
    )
    assert count(ledger, "command") == most > 2000
    ledger.forget_old(NOW)
    assert count(ledger, "command") == 0


def test_runs_are_deleted_with_their_steps_and_then_their_plans(ledger: Ledger) -> None:
    for name, ended_d in (("old", RUNS_D + 1), ("new", RUNS_D - 1), ("open", None)):
        plan = plan_row(name, NOW - 200 * DAY_S)
        ledger.put_plan(plan)
        ended = None if ended_d is None else NOW - ended_d * DAY_S
        step = StepRow(1, "start", "orders", 1, "done")
        table = TableName(f"of_{name}")
        create_run(ledger, run_row(name, id=name, ended_at=ended, steps=(step,) if name == "old" else ()), (table,))
    forget_all(ledger)
    assert {run.id for run in ledger.runs()} == {"new", "open"}
    assert (count(ledger, "step"), count(ledger, "run_table"), count(ledger, "plan")) == (0, 2, 2)
    new, still_open = ledger.plan("new"), ledger.plan("open")
    assert new is not None and new.texts == "", "the texts of a plan go before it"
    assert still_open is not None and still_open.texts


def test_unapplied_plans_lose_their_texts_and_are_deleted_with_their_approvals(ledger: Ledger) -> None:
    for name, expired_d in (
        ("open", -1),
        ("fresh", PLAN_TEXTS_D - 1),
        ("bare", PLAN_TEXTS_D + 1),
        ("gone", PLANS_D + 1),
    ):
        plan = plan_row(name, NOW - expired_d * DAY_S)
        ledger.put_plan(plan)
        ledger.approve(ApprovalRow(name, 7, "bob", plan.created_at))
    forget_all(ledger)
    found = {plan.hash: bool(plan.texts) for plan in ledger.plans()}
    assert found == {"open": True, "fresh": True, "bare": False}
    assert count(ledger, "approval") == 3


def test_revisions_in_use_are_kept(ledger: Ledger, deployment: Made) -> None:
    ledger.put_deployment(deployment("orders", 1, revision="first", texts=RevisionTexts("1")))
    ledger.update_deployment(ORDERS, 1, revision="second", texts=RevisionTexts("2"))
    ledger.put_deployment(deployment("orders", 2, revision="third", texts=RevisionTexts("3")))
    ledger.tombstone(ORDERS, 1, drop_after=NOW, trash="/trash")
    forget_all(ledger)
    assert {found for (found,) in ledger._values("SELECT revision FROM revision")} == {"second", "third"}
    assert ledger.versions(ORDERS)[1].texts == RevisionTexts("2")


def test_versions_whose_files_are_gone_are_forgotten_but_for_the_newest(ledger: Ledger, deployment: Made) -> None:
    for version in (1, 2, 3):
        ledger.put_deployment(deployment("orders", version, active=False))
        ledger.put_measurements([Measurement(ORDERS, version, NOW)])
        ledger.put_table_statistics({(ORDERS, version): TableStatistics(NOW)})
        ledger.tombstone(ORDERS, version, drop_after=1.0, trash="/trash")
    purged_d = {1: VERSIONS_D + 1, 2: VERSIONS_D - 1, 3: VERSIONS_D + 1}
    for version, age_d in purged_d.items():
        ledger.purged(ORDERS, version, NOW - age_d * DAY_S)
    assert len(ledger.deployments(include_deleted=True)) == 3
    forget_all(ledger)
    assert [d.version for d in ledger.deployments(include_deleted=True)] == [2, 3]
    assert count(ledger, "measurement") == count(ledger, "table_statistics") == 2


def test_old_staged_actions_are_removed(ledger: Ledger) -> None:
    for name, age_d in (("old", STAGED_D + 1), ("new", STAGED_D - 1)):
        ledger.stage([StagedRow("ana", "/p", TableName(name), "deploy", NOW - age_d * DAY_S)])
    forget_all(ledger)
    assert [row.table for row in ledger.staged()] == ["new"]


@pytest.mark.parametrize("rounds", [1, 4])
def test_free_pages_are_given_back_a_few_at_a_time(rounds: int, ledger: Ledger, path: Path) -> None:
    ledger.add_event(EventRow(0, NOW, "orders", 1, "state", "x", detail="x" * 12_000_000))
    ledger._connection.execute("DELETE FROM event")
    (before,) = ledger._connection.execute("PRAGMA page_count").fetchone()
    for _ in range(rounds):
        ledger.forget_old(NOW)
    (after,) = ledger._connection.execute("PRAGMA page_count").fetchone()
    assert before - after == pytest.approx(min(1000 * rounds, 12_000_000 // 4096), abs=10)
