"""Operators' direct control of statements: effects, events and audit."""

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agent_scenarios import put_made
from ledger_rows import create_run, deployment_row, run_row

from core.model.errors import ConfirmationNeeded, EngineRefused, LedgerUnavailable, NotTakenBack, Refused
from core.model.names import TableName
from core.project.model import Environment
from core.run.records import StepRow
from pipelines.agent.context import AgentContext
from pipelines.agent.measurements.table_statistics_collector import TableStatisticsCollector
from pipelines.agent.reconciler import BeforeRound, Reconciler
from pipelines.agent.requests.command_handler import CommandHandler
from pipelines.agent.statements import deployment_lifecycle
from pipelines.agent.statements.statement_control import StatementControl
from pipelines.spark_connect.query_progress import PoolUtilization
from state.emergency_journal import EmergencyJournal
from state.row_types import StagedRow

A, LANDED = TableName("a"), TableName("landed")
ALICE: Any = SimpleNamespace(person=70001, name="alice")


@pytest.fixture
def acts(agent: AgentContext, tmp_path: Path) -> StatementControl:
    """Control over a running a@v1 that reads an external table."""
    row = put_made(agent, deployment_row(query_id="q", run_id="r1"))
    landed = replace(row, table=LANDED, version=0, external=True, checkpoint="", bindings=())
    agent.ledger.put_deployment(landed)
    return StatementControl(agent, EmergencyJournal(tmp_path / "emergency.jsonl"))


class ToldRuns:
    """A driver of runs that records the commands it receives."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def submit_command(self, run_id: str, control: Any) -> None:
        self.told.append(control.act)

    def wake(self, run_id: str) -> None:
        return


def commands_of(agent: AgentContext, acts: StatementControl, ended: list[bool]) -> CommandHandler:
    figures = TableStatisticsCollector(agent, PoolUtilization())
    return CommandHandler(agent, acts, ToldRuns(), figures, lambda *, pool, purge: ended.append(pool))  # type: ignore[arg-type]  # A double.


@pytest.fixture
def commands(agent: AgentContext, acts: StatementControl) -> CommandHandler:
    return commands_of(agent, acts, [])


def summaries(agent: AgentContext, kind: str = "state") -> list[str]:
    return [event.summary for event in agent.ledger.events(A) if event.kind == kind]


def test_stop_start_and_restart_are_events_with_their_caller(agent: AgentContext, acts: StatementControl) -> None:
    said = [
        act((A,), time.monotonic(), by=by)[0].outcome
        for act, by in (
            (acts.stop, "alice"), (acts.stop, "alice"), (acts.start, "bob"), (acts.start, "bob"),
            (acts.restart, "carol"),
        )
    ]  # fmt: skip
    assert said == [
        "stopped", "was already stopped", "started, first batch pending", "was already running",
        "restarted, first batch pending",
    ]  # fmt: skip
    assert summaries(agent) == [
        "starting again, restarted by carol",
        "was already running: start by bob",
        "stopped → starting, started by bob",
        "was already stopped: stop by alice",
        "running → stopped, stopped by alice",
    ]


def test_the_command_log_distinguishes_accepted_from_unchanged(agent: AgentContext, commands: CommandHandler) -> None:
    for op in ("start", "stop", "stop", "start", "start"):
        commands.handle(ALICE, {"op": op, "args": {"tables": ["a"]}, "confirm": "yes"})
    outcomes = [row.outcome for row in reversed(agent.ledger.commands())]
    assert outcomes == ["unchanged", "done", "unchanged", "accepted", "unchanged"]


def test_a_start_that_spark_refuses_is_an_exception_and_the_state_failed(
    agent: AgentContext, pool: Any, acts: StatementControl
) -> None:
    acts.stop((A,), time.monotonic(), by="alice")
    pool.refuse["a@v1"] = EngineRefused("no such column", error_class="UNRESOLVED_COLUMN")
    for _ in range(2):
        with pytest.raises(EngineRefused):
            acts.start((A,), time.monotonic(), by="alice")
    assert summaries(agent)[0] == "stopped → failed"
    assert summaries(agent).count("failed → failed") == 0
    (refused,) = [event for event in agent.ledger.events(A) if event.kind == "exception"]
    assert (refused.summary, refused.detail, refused.count) == ("UNRESOLVED_COLUMN", "no such column", 2)


def test_a_retry_is_a_retry_in_the_audit_and_the_command_log(agent: AgentContext, commands: CommandHandler) -> None:
    step = StepRow(n=1, do="start", table="a", version=1, state="failed")
    create_run(agent.ledger, run_row(steps=(step,)))
    for act in ("pause", "retry"):
        commands.handle(ALICE, {"op": "run", "args": {"id": "7f3a-1", "act": act}, "confirm": ""})
    assert [(row.action, row.subject, row.actor) for row in agent.ledger.audits()] == [
        ("retry", "7f3a-1", "alice"),
        ("pause", "7f3a-1", "alice"),
    ]
    assert [row.op for row in agent.ledger.commands()] == ["retry", "pause"]


def test_unstage_names_what_this_caller_staged_in_this_folder(agent: AgentContext, commands: CommandHandler) -> None:
    for actor, folder, table in (("alice", "/p", "a"), ("alice", "/q", "b"), ("bob", "/p", "c")):
        agent.ledger.stage([StagedRow(actor, folder, TableName(table), "deploy", 1.0)])
    answer = commands.handle(ALICE, {"op": "unstage", "args": {"folder": "/p", "tables": ["a", "b", "c", "d"]}})
    assert answer == {"unstaged": ["a"]}
    assert {(mark.actor, mark.table) for mark in agent.ledger.staged()} == {("alice", "b"), ("bob", "c")}


def test_a_stop_that_no_disk_can_record_is_carried_out_and_reported_as_unrecorded(
    agent: AgentContext, pool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, acts: StatementControl
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise LedgerUnavailable("the ledger cannot be extended: the disk is full")

    for name in ("stop_statements", "update_deployment", "add_event"):
        monkeypatch.setattr(type(agent.ledger), name, full)
    gone = StatementControl(agent, EmergencyJournal(tmp_path / "gone" / "emergency.jsonl"))
    (lost,) = gone.stop((A,), time.monotonic(), by="alice")
    assert lost.outcome == "stopped, not recorded" and pool.stops == ["a@v1"]
    (kept,) = acts.stop((A,), time.monotonic(), by="alice")
    assert kept.outcome == "stopped", "the emergency journal has it"
    pool.reachable = False
    (sent,) = gone.stop((A,), time.monotonic(), by="alice")
    assert sent.outcome == "not sent: the pool does not answer, not recorded"


def test_a_start_that_is_refused_stays_stopped(agent: AgentContext, pool: Any, acts: StatementControl) -> None:
    acts.stop((A,), time.monotonic(), by="alice")
    agent.files.owner = "another ledger"  # type: ignore[attr-defined]  # Scripted.
    with pytest.raises(Refused, match="belongs to another ledger"):
        acts.start((A,), time.monotonic(), by="alice")
    found = agent.ledger.deployment(A, 1)
    assert found is not None and (found.wanted, found.state) == ("stopped", "stopped")


def test_a_refused_restart_of_a_failed_statement_leaves_it_failed(
    agent: AgentContext, pool: Any, acts: StatementControl
) -> None:
    acts.stop((A,), time.monotonic(), by="alice")
    agent.ledger.update_deployment(A, 1, state="failed", error="the table was replaced", error_class="REPLACED")
    agent.files.owner = "another ledger"  # type: ignore[attr-defined]  # Scripted.
    with pytest.raises(Refused, match="belongs to another ledger"):
        acts.restart((A,), time.monotonic(), by="alice")
    found = agent.ledger.deployment(A, 1)
    assert found is not None and (found.state, found.error) == ("failed", "the table was replaced")


@pytest.mark.parametrize(
    ("op", "args", "text"),
    [("stop", {"tables": ["a"]}, "a"), ("restart", {"tables": ["a"]}, "a"), ("exit", {"pool": True}, "prod")],
)
def test_the_agent_of_a_protected_environment_asks_for_the_name_itself(
    op: str, args: dict[str, Any], text: str, agent: AgentContext, pool: Any, acts: StatementControl
) -> None:
    ended: list[bool] = []
    layout = replace(agent.layout, environment=Environment("prod", protected=True))
    guarded = commands_of(replace(agent, layout=layout), acts, ended)
    guarded.handle(ALICE, {"op": "unlock", "args": {"seconds": 60, "ticket": "OPS-1"}})
    for given in ("", "yes"):
        with pytest.raises(ConfirmationNeeded, match=f"'{text}'"):
            guarded.handle(ALICE, {"op": op, "args": args, "confirm": given})
    assert pool.stops == [] and ended == []
    guarded.handle(ALICE, {"op": op, "args": args, "confirm": text})
    assert pool.stops or ended


def test_a_stop_before_anything_serves_is_of_the_version_that_was_started(
    agent: AgentContext, acts: StatementControl
) -> None:
    row = agent.ledger.deployment(A, 1)
    assert row is not None
    agent.ledger.put_deployment(replace(row, active=False, started_at=1.0))
    agent.ledger.put_deployment(replace(row, version=2, active=False, started_at=None, state="pending"))
    outcomes = acts.stop((A,), time.monotonic(), by="alice")
    assert {(outcome.version, outcome.outcome) for outcome in outcomes} == {(1, "stopped"), (2, "stopped")}
    assert all(agent.ledger.deployment(A, version).wanted == "stopped" for version in (1, 2))  # type: ignore[union-attr]


def test_a_start_of_several_that_is_refused_in_part_is_recorded_statement_by_statement(
    agent: AgentContext, pool: Any, commands: CommandHandler
) -> None:
    row = agent.ledger.deployment(A, 1)
    assert row is not None
    for table in ("b", "c"):
        other = {"table": TableName(table), "checkpoint": f"/c/{table}__v1", "checkpoint_id": ""}
        put_made(agent, replace(row, **other))
    args = {"tables": ["a", "b", "c"]}
    commands.handle(ALICE, {"op": "stop", "args": args, "confirm": "3"})
    pool.refuse["b@v1"] = EngineRefused("no such column", error_class="UNRESOLVED_COLUMN")
    answer = commands.handle(ALICE, {"op": "start", "args": args, "confirm": "3"})
    assert {each["table"]: each["came"] for each in answer["statements"]} == {
        "a": "started", "b": "not started", "c": "started",
    }  # fmt: skip
    command = agent.ledger.commands()[0]
    assert command.outcome == "partly" and command.detail.startswith("b not started: no such column, ")
    assert "c started in " in command.detail
    audited = {row.outcome: {*row.subject.split()} for row in agent.ledger.audits() if row.action == "start"}
    assert audited == {"accepted": {"a@v1", "c@v1"}, "failed": {"b@v1"}}


def test_a_start_of_several_that_are_all_refused_is_refused(agent: AgentContext, commands: CommandHandler) -> None:
    row = agent.ledger.deployment(A, 1)
    assert row is not None
    agent.ledger.put_deployment(replace(row, table=TableName("b"), checkpoint="/c/b__v1"))
    args = {"tables": ["a", "b"]}
    commands.handle(ALICE, {"op": "stop", "args": args, "confirm": "2"})
    agent.files.owner = "another ledger"  # type: ignore[attr-defined]  # Scripted.
    commands.handle(ALICE, {"op": "start", "args": args, "confirm": "2"})
    assert agent.ledger.commands()[0].outcome == "refused"
    assert [(row.subject, row.outcome) for row in agent.ledger.audits() if row.action == "start"] == [
        ("a b", "refused")
    ]


# The ledger fails after recording a start request and before recording its result.

DISK = EngineRefused("No space left on device", error_class="IO")


def reconcile(agent: AgentContext, acts: StatementControl) -> None:
    """Run one round of the reconciler with the pool's running queries."""
    reconciler = Reconciler(agent, acts._emergency)
    reconciler.round(BeforeRound.of(agent), agent.pools.default.connection().queries.active(), ())


def fill(agent: AgentContext, patch: pytest.MonkeyPatch, *names: str) -> None:
    """Make these methods of the ledger fail, as on a full disk."""

    def full(*_: Any, **__: Any) -> None:
        raise LedgerUnavailable("the ledger cannot be written: database or disk is full")

    for name in names:
        patch.setattr(type(agent.ledger), name, full)


@pytest.mark.parametrize("state", ["stopped", "failed"])
@pytest.mark.parametrize("act", ["start", "restart"])
def test_a_start_that_the_ledger_could_not_record_is_reported_as_started_and_continues(
    act: str, state: str, agent: AgentContext, pool: Any, acts: StatementControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    if state == "stopped":
        acts.stop((A,), time.monotonic(), by="alice")
    else:
        agent.ledger.update_deployment(A, 1, state="failed", error="no disk", query_id="", run_id="")
    with monkeypatch.context() as patch:
        # `restart` writes a record before its start.
        fill(agent, patch, "add_event", "end_stop", "take_back")
        patch.setattr(deployment_lifecycle, "_record_start", partial(agent.ledger.end_stop, A))
        (came,) = getattr(acts, act)((A,), time.monotonic(), by="bob")
    assert came.outcome == f"{act}ed, first batch pending, not recorded" and "a@v1" in pool.running
    run_id, stops = pool.run_of("a@v1"), list(pool.stops)
    reconcile(agent, acts)
    found = agent.ledger.deployment(A, 1)
    assert found is not None and (found.wanted, found.run_id, found.error) == ("running", run_id, "")
    assert pool.stops == stops, "it is the query that was asked for"
    assert "its start could not be recorded before" in {event.detail for event in agent.ledger.events()}


def test_a_start_of_one_version_that_runs_is_recorded_though_the_ledger_lacks_its_query(
    agent: AgentContext, acts: StatementControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    acts.stop((A,), time.monotonic(), by="alice")
    with monkeypatch.context() as patch:
        fill(agent, patch, "add_event")
        patch.setattr(deployment_lifecycle, "_record_start", partial(agent.ledger.add_event, None))
        (came,) = acts.start(("a@v1",), time.monotonic(), by="bob")
    assert came.outcome == "started, first batch pending"


def test_an_unrecorded_refusal_of_a_start_announces_that_the_start_will_be_retried(
    agent: AgentContext, pool: Any, acts: StatementControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    acts.stop((A,), time.monotonic(), by="alice")
    with monkeypatch.context() as patch:
        fill(agent, patch, "take_back")
        pool.reachable = False
        with pytest.raises(NotTakenBack, match="the ledger still has a@v1 as wanted running: the agent starts it when"):
            acts.start((A,), time.monotonic(), by="bob")
    pool.reachable = True
    reconcile(agent, acts)
    assert "a@v1" in pool.running
    said = "resumed from its checkpoint: bob had asked for it, and its start had not been carried out"
    assert said in {event.detail for event in agent.ledger.events()}


def test_a_refusal_by_spark_is_reported_even_if_the_ledger_cannot_record_it(
    agent: AgentContext, pool: Any, acts: StatementControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    acts.stop((A,), time.monotonic(), by="alice")
    pool.refuse["a@v1"] = DISK
    with monkeypatch.context() as patch:
        fill(agent, patch, "add_event")
        with pytest.raises(EngineRefused, match="No space left"):
            acts.start((A,), time.monotonic(), by="bob")
