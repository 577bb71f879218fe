"""Every row survives a round trip through the ledger, for the writer and for a reader."""

import os
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest
from ledger_rows import create_run, run_row, sample_row

from core.model.names import TableName
from core.model.states import PoolState
from core.observed.cluster_manager import ManagerWord
from core.observed.served_environment import ServedEnvironment
from core.observed.versions import Deployment, Measurement
from core.project.naming import Naming, Sources
from core.project.revision import RevisionTexts
from core.run.records import StepRow
from state.ledger import Ledger, LedgerReader
from state.row_mapping import sqlite_value
from state.row_types import AuditRow, CommandRow, EnvironmentRow, EventRow, PlanRow, PoolRow, SampleRow, StagedRow

ORDERS = TableName("orders")
FULL = Measurement(
    table=ORDERS, version=1, at=1.5, lag_rows=10, lag_files=2, lag_bytes=300, exact=False, behind_s=4.5,
    trend="draining", rate_rows_s=-2.5, eta_s=60.0, in_rows_s=1.25, out_rows_s=3.75, rows_total=900, batch=7,
    batch_ms=120, durations={"addBatch": 90}, watermark="2026-01-01T00:00:00Z", state_rows=5, state_bytes=6,
    dropped_by_watermark=1, committed_at=1.0, sources=({"table": "landing", "rows": 10, "missing": False},),
)  # fmt: skip
STEPS = (
    StepRow(
        n=1,
        do="create",
        table="orders",
        version=2,
        state="done",
        tries=1,
        note="made",
        started_at=1.0,
        ended_at=2.0,
        intent_at=0.5,
    ),
    StepRow(n=2, do="start", table="orders", version=2, state="pending"),
)
RUN = run_row(id="abcd-1", steps=STEPS)


VARIABLES = RevisionTexts("d", "x = 7", "", (("days", "7"),), RevisionTexts("d", "x = ${days}"))


@pytest.mark.parametrize(
    "changes",
    [{}, {"started_at": None, "bindings": (), "drop_after": 5.0, "active": False}, {"texts": VARIABLES}],
)
def test_deployment_survives_a_round_trip(
    ledger: Ledger, path: Path, deployment: Callable[..., Deployment], changes: dict[str, object]
) -> None:
    row = deployment("orders", **changes)
    ledger.put_deployment(row)
    assert ledger.deployment(ORDERS, 1) == row
    with LedgerReader(path) as reader:
        assert reader.deployments(include_deleted=True) == ledger.deployments(include_deleted=True) == (row,)


def test_every_field_of_a_deployment_can_be_updated(ledger: Ledger, deployment: Callable[..., Deployment]) -> None:
    ledger.put_deployment(deployment("orders"))
    other = deployment(
        "orders", product="crm", revision="new", texts=replace(deployment("x").texts, dml="other"), columns=("a",),
        bindings=(), stateful=False, checkpoint_ok=False, state="failed",
    )  # fmt: skip
    named = {field.name: getattr(other, field.name) for field in fields(Deployment)}
    ledger.update_deployment(ORDERS, 1, **{k: v for k, v in named.items() if k not in ("table", "version", "active")})
    assert ledger.deployment(ORDERS, 1) == other


@pytest.mark.parametrize("row", [FULL, Measurement(ORDERS, 1, 2.0)])
def test_measurement_survives_a_round_trip(
    ledger: Ledger, path: Path, deployment: Callable[..., Deployment], row: Measurement
) -> None:
    ledger.put_deployment(deployment("orders"))
    ledger.put_measurements([FULL, row])
    with LedgerReader(path) as reader:
        assert reader.measurements() == ledger.measurements() == (row,)
        assert reader.measurement(ORDERS, 1) == row


SAMPLE = SampleRow(
    at=1.8e9 + 0.1, lag_rows=1, lag_files=2, lag_bytes=3, in_rows_s=4.5, out_rows_s=5.5, batch_ms=6, produced_rows=7,
    consumed_rows=8,
)  # fmt: skip


@pytest.mark.parametrize("row", [SAMPLE, sample_row(1.8e9)])
def test_sample_survives_a_round_trip(ledger: Ledger, deployment: Callable[..., Deployment], row: SampleRow) -> None:
    ledger.put_deployment(deployment("orders"))
    ledger.add_samples([(ORDERS, 1, row)])
    assert ledger.samples(ORDERS, 1) == (row,)


def test_plan_run_and_steps_survive_a_round_trip(ledger: Ledger) -> None:
    plan = PlanRow(
        hash="abcd1234", body='{"hash":"abcd1234"}', author="ana", created_at=1.0, expires_at=9.0, status="open",
        texts='{"a.sql":"SELECT 1"}',
    )  # fmt: skip
    ledger.put_plan(plan)
    create_run(ledger, RUN)
    assert (ledger.plan("abcd1234"), ledger.plans()) == (plan, (plan,))
    assert (ledger.run(RUN.id), ledger.runs(), ledger.open_runs()) == (RUN, (RUN,), (RUN,))
    ended = replace(STEPS[1], state="failed", tries=3, note="[NO_SUCH] it")
    ledger.put_step(RUN.id, ended)
    assert ledger.run(RUN.id) == replace(RUN, steps=(STEPS[0], ended))


def test_event_command_audit_and_staged_survive_a_round_trip(ledger: Ledger) -> None:
    event = EventRow(
        id=0, at=1.0, table="orders", version=2, kind="state", summary="running", detail="d", fingerprint="f"
    )
    number = ledger.add_event(event)
    assert ledger.events() == (replace(event, id=number, first_at=1.0),)
    command = CommandRow(
        id=0, at=1.0, actor="ana", op="stop", subject="orders", line="headgate stop orders", outcome="accepted"
    )
    number = ledger.add_command(command)
    assert ledger.commands() == (replace(command, id=number),)
    audit = AuditRow(
        id=0, at=1.0, actor="ana", action="stop", subject="orders", plan_hash="hash", confirmation="yes", outcome="done"
    )
    number = ledger.add_audit(audit)
    (kept,) = ledger.audits()
    assert kept == replace(audit, id=number, hash=kept.hash) and kept.hash
    staged = StagedRow("ana", "/p", ORDERS, "deploy", 1.0)
    ledger.stage([staged])
    assert ledger.staged() == (staged,)


def test_facts_survive_a_round_trip(ledger: Ledger, path: Path, facts: EnvironmentRow) -> None:
    assert ledger.facts() == facts
    serves = ServedEnvironment(
        "/lake/dev", Naming("dev_", database="lake"), Sources(Naming(), "other", "stage"), "sc://a"
    )
    ledger.put_agent(17, 3.5, serves=serves)
    ledger.put_agent(17, 3.5)
    ledger.heartbeat(4.5)
    word = ManagerWord.RUNS.of(application="app-1", kill="k", manager="m", state="RUNNING")
    says = sqlite_value(word)
    ledger.put_pool(name="eu", state="up", detail="d", generation=2, session_id="s")
    ledger.put_pool(application="app-1", silent_since=2.5, manager_says=says)
    after = replace(
        facts, agent_pid=17, agent_started_at=3.5, agent_seen_at=4.5, serves=serves,
        pools=(PoolRow("", 0, "eu", PoolState.UP, "d", generation=2, session_id="s", application="app-1",
                       silent_since=2.5, manager_says=word),),
    )  # fmt: skip
    with LedgerReader(path) as reader:
        assert reader.facts() == after


def test_a_name_that_is_not_utf_8_is_stored_written_out(ledger: Ledger) -> None:
    name = os.fsdecode(b"caf\xe9")
    event = EventRow(0, 1.0, "a", 1, "state", f"{name} is gone", f"open {name}", f"gone {name}")
    for _ in range(2):
        ledger.add_event(event)
    (stored,) = ledger.events()
    assert (stored.summary, stored.detail, stored.count) == (r"caf\xe9 is gone", r"open caf\xe9", 2)
    ledger.add_audit(AuditRow(0, 1.0, name, "stop", f"{name} 😀", outcome="done"))
    assert (ledger.audits()[0].actor, ledger.audits()[0].subject) == (r"caf\xe9", r"caf\xe9 😀")
    assert ledger.check_audit().breaks == ()
    assert sqlite_value({"a": [name]}) == '{"a":["caf\\\\xe9"]}'
