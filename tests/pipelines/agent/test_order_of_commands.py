"""Of two operator commands, the later one prevails, whichever path it takes, and evidence never changes an intent."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import small_project
from agent_scenarios import fast_lane, in_a_thread, one_pool, put_made, read_before, stop_by_operator, wait_until
from ledger_rows import run_row

from core.model.actions import StepKind
from core.model.errors import EngineRefused, LedgerUnavailable, PoolUnreachable, Refused
from core.model.names import TableName
from core.plan.request import PlanRequest
from core.run.records import StepRow
from pipelines.agent.context import AgentContext
from pipelines.agent.reconciler import BeforeRound, Reconciler
from pipelines.agent.requests.run_controls import journal_retry
from pipelines.agent.runs import cancelled_run_cleanup
from pipelines.agent.statements.statement_control import StatementControl
from tests.pipelines.agent.runs.test_run_driver import (
    deploy,
    drive,
    fast_gates,  # noqa: F401  # A fixture of every test here.
    plan,
    submit,
)
from tests.pipelines.agent.test_exclusion import REBUILD, UPPER, drive_while, notes, version

A, B, C = TableName("a"), TableName("b"), TableName("c")
FILTERED = "SELECT id, kind FROM STREAM a WHERE id > 1"


@pytest.fixture
def agent(agent: AgentContext) -> AgentContext:
    """An agent whose clock runs fast, so that the check of a restart times out."""
    return replace(agent, monotonic=partial(next, count(0.0, 50.0)))


@pytest.fixture
def deployed(agent: AgentContext, pool: Any) -> AgentContext:
    """a@v1, b@v1 and c@v1, all running."""
    assert deploy(agent, pool, small_project.texts()) == "done"
    return agent


def unavailable(*_: Any, **__: Any) -> None:
    raise LedgerUnavailable("the ledger is locked by another program")


def stop(lane: StatementControl, *names: str) -> tuple[str, ...]:
    return tuple(found.outcome for found in lane.stop(names, time.monotonic(), by="bob"))


def start(lane: StatementControl, *names: str) -> tuple[str, ...]:
    return tuple(found.outcome for found in lane.start(names, time.monotonic(), by="ana"))


def restart(lane: StatementControl, *names: str) -> tuple[str, ...]:
    return tuple(found.outcome for found in lane.restart(names, time.monotonic(), by="ana"))


def stop_while_the_ledger_is_locked(lane: StatementControl, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    with monkeypatch.context() as locked:
        locked.setattr(type(lane._agent.ledger), "stop_statements", unavailable)
        stop(lane, *names)


def retry(agent: AgentContext, run_id: str) -> None:
    row = agent.ledger.run(run_id)
    assert row is not None
    journal_retry(agent, row, by="ana")


# A stop of one version.


def test_a_restart_of_the_table_does_not_end_the_stop_of_one_version(deployed: AgentContext, pool: Any) -> None:
    made = plan(deployed, small_project.texts(a=UPPER), REBUILD)
    swap = next(step for step in made.steps if step.do is StepKind.SWAP)
    before = dict(pool.views)

    def act() -> None:
        stop(fast_lane(deployed), "a@v2")
        assert restart(fast_lane(deployed), "a") == ("restarted, first batch pending",)

    run_id, state = drive_while(deployed, made, f"effect {swap.n} swap", act)
    assert state == "failed" and "a was stopped by bob" in notes(deployed, run_id, "failed")[f"swap {swap.table}"]
    assert pool.views == before and "a@v2" not in pool.running


@pytest.mark.parametrize("then", ["restart", "retry"])
def test_a_run_starts_again_what_was_stopped_while_its_gate_waited(
    then: str, deployed: AgentContext, pool: Any
) -> None:
    made = plan(deployed, small_project.texts(a=UPPER), REBUILD)
    gate = next(step for step in made.steps if step.do is StepKind.CATCH_UP and step.table == A)
    pool.pending.add("a@v2")

    def act() -> None:
        stop(fast_lane(deployed), "a")
        if then == "restart":
            assert restart(fast_lane(deployed), "a") == ("restarted, first batch pending",)
        else:
            retry(deployed, deployed.ledger.open_runs()[0].id)
        pool.pending.clear()

    run_id, state = drive_while(deployed, made, f"after {gate.n} catch_up gate", act)
    assert (state, notes(deployed, run_id, "failed")) == ("done", {}) and "a@v2" in pool.running


def test_a_start_of_the_version_itself_ends_its_stop(deployed: AgentContext, pool: Any) -> None:
    made = plan(deployed, small_project.texts(a=UPPER), REBUILD)
    swap = next(step for step in made.steps if step.do is StepKind.SWAP)

    def act() -> None:
        stop(fast_lane(deployed), "a@v2")
        start(fast_lane(deployed), "a@v2")

    _, state = drive_while(deployed, made, f"effect {swap.n} swap", act)
    assert state == "done" and pool.views["a"] == "a__v2"


def test_a_start_of_one_version_does_not_end_the_stop_of_its_table(deployed: AgentContext, pool: Any) -> None:
    made = plan(deployed, small_project.texts(a=UPPER), REBUILD)
    create = next(step for step in made.steps if step.do is StepKind.CREATE and step.table == A)

    def act() -> None:
        stop(fast_lane(deployed), "a")
        start(fast_lane(deployed), "a@v1")

    run_id, state = drive_while(deployed, made, f"effect {create.n} create", act)
    assert state == "failed" and "a was stopped by bob" in notes(deployed, run_id, "failed")["create a"]
    assert "a@v1" in pool.running and "a@v2" not in pool.running


@pytest.mark.parametrize("before_step", ["create", "start", "swap"])
def test_a_stop_of_the_old_version_before_the_new_one_is_made_does_not_fail_the_release(
    before_step: str, deployed: AgentContext, pool: Any
) -> None:
    made = plan(deployed, small_project.texts(a=UPPER), REBUILD)
    step = next(step for step in made.steps if step.do.value == before_step)
    _, state = drive_while(deployed, made, f"effect {step.n} {before_step}", lambda: stop(fast_lane(deployed), "a@v1"))
    assert state == "done" and pool.views["a"] == "a__v2"


# A stop that is applied late.


def test_a_stop_that_waited_for_the_ledger_does_not_affect_later_starts(
    deployed: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = fast_lane(deployed)
    stop_while_the_ledger_is_locked(lane, monkeypatch, "a")
    assert start(lane, "a") == ("started, first batch pending",)
    Reconciler(deployed, lane._emergency).apply_emergencies()
    found = version(deployed, A, 1)
    assert (found.wanted, found.state, "a@v1" in pool.running) == ("running", "starting", True)
    assert not deployed.locks.has_unrecorded_stop((A, 1))


def test_a_stop_that_waited_still_holds_for_the_versions_that_nobody_has_started(
    deployed: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = {"version": 2, "checkpoint": "/c/a__v2", "checkpoint_id": "", "made_by": "", "active": False}
    put_made(deployed, replace(version(deployed, A, 1), **second, state="running"))
    lane = fast_lane(deployed)
    stop_while_the_ledger_is_locked(lane, monkeypatch, "a")
    start(lane, "a@v2")
    Reconciler(deployed, lane._emergency).apply_emergencies()
    assert [version(deployed, A, n).wanted for n in (1, 2)] == ["stopped", "running"]


def test_a_stop_that_an_agent_could_not_record_is_known_to_the_next_one_before_it_answers(
    deployed: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_while_the_ledger_is_locked(fast_lane(deployed), monkeypatch, "a")
    later = AgentContext(
        places=deployed.places, folder=deployed.folder, project_id=deployed.project_id, project=deployed.project,
        layout=deployed.layout, ledger=deployed.ledger, ledger_id=deployed.ledger_id, pools=one_pool(pool),
        files=deployed.files,
    )  # fmt: skip
    lane = fast_lane(later)
    assert start(lane, "a") == ("started, first batch pending",), "it is not running already"
    Reconciler(later, lane._emergency).apply_emergencies()
    assert version(later, A, 1).wanted == "running"


def test_a_stop_after_a_start_does_not_count_as_a_repetition_of_an_earlier_stop(
    deployed: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = fast_lane(deployed)
    stop_while_the_ledger_is_locked(lane, monkeypatch, "a")
    start(lane, "a")
    stop_while_the_ledger_is_locked(lane, monkeypatch, "a")
    Reconciler(deployed, lane._emergency).apply_emergencies()
    assert version(deployed, A, 1).wanted == "stopped"
    assert not deployed.locks.has_unrecorded_stop((A, 1))


def test_a_stop_whose_write_ends_late_does_not_affect_later_starts(
    deployed: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that waits for the ledger is abandoned, and writes once the ledger is free."""
    lane, released = fast_lane(deployed), threading.Event()
    real = type(deployed.ledger).stop_statements
    written: list[bool] = []

    def late(*args: Any) -> None:
        assert released.wait(30)
        real(*args)
        written.append(True)

    with monkeypatch.context() as locked:
        locked.setattr(type(deployed.ledger), "stop_statements", late)
        stop(lane, "a")
    start(lane, "a")
    released.set()
    wait_until(lambda: bool(written))
    assert version(deployed, A, 1).wanted == "running"


def test_a_retry_of_the_run_is_later_than_a_stop_that_still_waits(
    deployed: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = plan(deployed, small_project.texts(a=UPPER), REBUILD)
    step = next(step for step in made.steps if step.do.value == "start")
    lane = fast_lane(deployed)
    run_id, state = drive_while(
        deployed, made, f"effect {step.n} start", lambda: stop_while_the_ledger_is_locked(lane, monkeypatch, "a")
    )
    assert state == "failed"
    retry(deployed, run_id)
    assert drive(deployed, run_id) == "done"
    Reconciler(deployed, lane._emergency).apply_emergencies()
    assert version(deployed, A, 2).wanted == "running" and "a@v2" in pool.running


def test_the_reconciler_starts_nothing_whose_stop_waits_for_the_ledger(
    deployed: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = fast_lane(deployed)
    stop_while_the_ledger_is_locked(lane, monkeypatch, "a")
    started = list(pool.starts)
    Reconciler(deployed, lane._emergency).round(BeforeRound.of(deployed), (), ())
    assert "a@v1" not in pool.starts[len(started) :]
    assert version(deployed, A, 1).state != "failed"


# Evidence.


def test_the_record_of_a_stop_leaves_alone_what_somebody_starts_before_it(
    deployed: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane, record = fast_lane(deployed), StatementControl._record

    def started_before(self: StatementControl, *args: Any, **kwargs: Any) -> None:
        assert start(fast_lane(deployed), "a") == ("started, first batch pending",)
        record(self, *args, **kwargs)

    monkeypatch.setattr(StatementControl, "_record", started_before)
    assert stop(lane, "a") == ("stopped",)
    found = version(deployed, A, 1)
    assert (found.wanted, found.state, "a@v1" in pool.running) == ("running", "starting", True)


def test_a_cancel_leaves_running_what_an_operator_starts_before_it_stops(
    deployed: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {"version": 2, "checkpoint": "/c/a__v2", "checkpoint_id": "", "made_by": ""}
    rests = {"active": False, "wanted": "stopped", "state": "stopped", "query_id": "", "run_id": ""}
    put_made(deployed, replace(version(deployed, A, 1), **made, **rests))
    given_up = cancelled_run_cleanup.give_up

    def started_between(agent: AgentContext, versions: Any, since: int) -> Any:
        found = given_up(agent, versions, since=since)
        start(fast_lane(agent), "a@v2")
        return found

    monkeypatch.setattr(cancelled_run_cleanup, "give_up", started_between)
    since = deployed.ledger.newest_serial()
    cancelled_run_cleanup.abort(deployed, "7f3a", cancelled_run_cleanup.give_up(deployed, (("a", 2),), since=since))
    assert (version(deployed, A, 2).wanted, "a@v2" in pool.running) == ("running", True)


def test_a_retry_leaves_running_what_an_operator_has_started_meanwhile(deployed: AgentContext, pool: Any) -> None:
    step = StepRow(n=1, do="start", table="a", version=2, state="failed")
    made = {"version": 2, "checkpoint": "/c/a__v2", "checkpoint_id": "", "made_by": "", "active": False}
    failed = replace(version(deployed, A, 1), **made, state="failed", query_id="", run_id="")
    put_made(deployed, failed)
    while_retried = read_before(deployed, "deployment", lambda: start(fast_lane(deployed), "a@v2"))
    cancelled_run_cleanup.stop_failed(while_retried, run_row(steps=(step,)))
    assert (version(deployed, A, 2).wanted, "a@v2" in pool.running) == ("running", True)


# Everything that may refuse is checked before the running query is stopped.


def refuse_checkpoint(agent: AgentContext) -> None:
    agent.files.owner = "another ledger"  # type: ignore[attr-defined]  # Scripted.


def refuse_doubt(agent: AgentContext) -> None:
    class Doubtful:
        doubt = "another home has written here"

        def refuse_doubt(self) -> None:
            raise Refused("another home has written here", remedy="headgate adopt")

    agent.identity = Doubtful()  # type: ignore[assignment]  # A double.


def refuse_catalog(agent: AgentContext) -> None:
    agent.pools.default.client.restored = False  # type: ignore[attr-defined]  # Scripted: stops are possible, nothing else.


REFUSALS: tuple[Callable[[AgentContext], None], ...] = (refuse_checkpoint, refuse_doubt, refuse_catalog)


@pytest.mark.parametrize("refuse", REFUSALS)
def test_a_restart_that_is_refused_leaves_running_what_runs(
    refuse: Callable[[AgentContext], None], deployed: AgentContext, pool: Any
) -> None:
    refuse(deployed)
    stops = list(pool.stops)
    with pytest.raises((Refused, PoolUnreachable)):
        restart(fast_lane(deployed), "a")
    found = version(deployed, A, 1)
    assert (pool.stops, found.state, found.wanted) == (stops, "running", "running") and "a@v1" in pool.running


def test_a_restart_that_spark_refuses_says_that_the_statement_was_stopped(deployed: AgentContext, pool: Any) -> None:
    pool.refuse["a@v1"] = EngineRefused("no such column", error_class="UNRESOLVED_COLUMN")
    with pytest.raises(EngineRefused, match="no such column; a@v1 was stopped for this start, and does not run"):
        restart(fast_lane(deployed), "a")
    assert "a@v1" not in pool.running and version(deployed, A, 1).state == "failed"


def test_a_restart_of_a_statement_at_rest_is_not_reported_as_a_stop(deployed: AgentContext, pool: Any) -> None:
    stop(fast_lane(deployed), "a")
    pool.refuse["a@v1"] = EngineRefused("no such column", error_class="UNRESOLVED_COLUMN")
    with pytest.raises(EngineRefused) as refused:
        restart(fast_lane(deployed), "a")
    assert refused.value.summary == "no such column"


def test_a_restart_step_that_is_refused_leaves_running_what_runs(deployed: AgentContext, pool: Any) -> None:
    run_id = submit(deployed, plan(deployed, small_project.texts(c=FILTERED), PlanRequest(everything=True)))
    refuse_checkpoint(deployed)
    stops = list(pool.stops)
    assert drive(deployed, run_id) == "failed"
    assert pool.stops == stops and "c@v1" in pool.running
    assert "WHERE" not in version(deployed, C, 1).texts.dml


def test_a_restart_step_that_spark_refuses_says_that_the_statement_was_stopped(
    deployed: AgentContext, pool: Any
) -> None:
    run_id = submit(deployed, plan(deployed, small_project.texts(c=FILTERED), PlanRequest(everything=True)))
    pool.refuse["c@v1"] = EngineRefused("no such column", error_class="UNRESOLVED_COLUMN")
    assert drive(deployed, run_id) == "failed"
    assert "c@v1 was stopped for this start, and does not run" in notes(deployed, run_id, "failed")["restart c"]


# Several at once.


def test_of_several_starts_each_has_its_own_outcome(deployed: AgentContext, pool: Any) -> None:
    stop(fast_lane(deployed), "a", "b", "c")
    pool.refuse["b@v1"] = EngineRefused("no such column", error_class="UNRESOLVED_COLUMN")
    found = fast_lane(deployed).start(("a", "b", "c"), time.monotonic(), by="ana")
    said = {str(each.table): each.outcome for each in found}
    assert said["a"] == said["c"] == "started, first batch pending"
    assert said["b"].startswith("not started: ") and "no such column" in said["b"]
    assert {"a@v1", "c@v1"} <= pool.running.keys()


# The journal.


def test_a_stop_reaches_spark_while_the_reconciler_applies_the_journal(
    deployed: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = fast_lane(deployed)
    stop_while_the_ledger_is_locked(lane, monkeypatch, "a")
    applying, released = threading.Event(), threading.Event()

    def locked(*_: Any) -> None:
        applying.set()
        released.wait(30)
        raise LedgerUnavailable("the ledger is locked by another program")

    with monkeypatch.context() as while_locked:
        while_locked.setattr(type(deployed.ledger), "stop_statements", locked)

        def apply() -> None:
            with pytest.raises(LedgerUnavailable):
                Reconciler(deployed, lane._emergency).apply_emergencies()

        round_ = in_a_thread(apply)
        assert applying.wait(30)
        other = stop_by_operator(deployed, pool, "c")
        try:
            own = in_a_thread(lambda: stop(lane, "b"))
            wait_until(lambda: "b@v1" in pool.stops, 10)
        finally:
            released.set()
        for thread in (round_, other, own):
            thread.join(30)
    Reconciler(deployed, lane._emergency).apply_emergencies()
    assert [version(deployed, table, 1).wanted for table in (A, B)] == ["stopped", "stopped"]


WHOLE = {"at": 1.0, "act": "stop", "by": "bob", "tables": ["a"], "serial": 1}
GARBAGE: tuple[Any, ...] = (
    *({key: value for key, value in WHOLE.items() if key != gone} for gone in WHOLE),
    {**WHOLE, "tables": "a"}, {**WHOLE, "tables": [7, None]}, {**WHOLE, "tables": [["a"]]},
    {**WHOLE, "tables": {"a": 1}},
    {**WHOLE, "tables": ["a; drop"]}, {**WHOLE, "tables": ["a@v0"]}, {**WHOLE, "tables": ["a@v\u00b2"]},
    {**WHOLE, "tables": ["\ud800"]}, {**WHOLE, "tables": 7}, {**WHOLE, "tables": None}, {**WHOLE, "tables": []},
    {**WHOLE, "serial": -1}, {**WHOLE, "serial": 0}, {**WHOLE, "serial": 10**30}, {**WHOLE, "serial": 2**62},
    {**WHOLE, "serial": "1"}, {**WHOLE, "serial": 1.5}, {**WHOLE, "serial": True}, {**WHOLE, "serial": None},
    {**WHOLE, "by": 7}, {**WHOLE, "by": ["bob"]}, {**WHOLE, "by": "\ud800"},
    {**WHOLE, "at": "soon"}, {**WHOLE, "at": None}, {**WHOLE, "at": [1]}, {**WHOLE, "at": 10**400},
    {**WHOLE, "act": "start"}, {**WHOLE, "act": 7},
    7, "stop", None, ["stop"], [[]],
)  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("garbage", GARBAGE, ids=repr)
def test_a_line_edited_by_hand_is_reported_once_and_set_aside(garbage: Any, deployed: AgentContext, pool: Any) -> None:
    path = Path(deployed.folder, "emergency.jsonl")
    path.write_text(f"{json.dumps(garbage)}\n")
    lane = fast_lane(deployed)
    reconciler = Reconciler(deployed, lane._emergency)
    for _ in range(2):
        reconciler.apply_emergencies()
    assert not lane._emergency.has_pending() and version(deployed, A, 1).wanted == "running"
    (said,) = [event for event in deployed.ledger.events() if "emergency journal" in event.summary]
    assert said.count == 1
    assert json.loads(Path(deployed.folder, "emergency.jsonl.unreadable").read_text()) == garbage
    assert stop(lane, "a") == ("stopped",)
    assert start(lane, "a") == ("started, first batch pending",)


@pytest.mark.parametrize("line", [b'{"act":"st', b"\xff\xfe", b'{"a":' * 50_000])
def test_a_torn_or_binary_line_costs_only_itself(line: bytes, deployed: AgentContext) -> None:
    path = Path(deployed.folder, "emergency.jsonl")
    path.write_bytes(line + b"\n" + json.dumps({**WHOLE, "tables": ["b"], "serial": 9}).encode() + b"\n")
    lane = fast_lane(deployed)
    Reconciler(deployed, lane._emergency).apply_emergencies()
    assert (version(deployed, B, 1).wanted, version(deployed, A, 1).wanted) == ("stopped", "running")


@pytest.mark.parametrize("name", ["gone", "a@v9", "gone@v1"])
def test_a_stop_of_a_missing_statement_changes_nothing_else(name: str, deployed: AgentContext) -> None:
    path = Path(deployed.folder, "emergency.jsonl")
    path.write_text(json.dumps({**WHOLE, "tables": [name, "b"], "serial": 9}) + "\n")
    lane = fast_lane(deployed)
    Reconciler(deployed, lane._emergency).apply_emergencies()
    assert not lane._emergency.has_pending()
    assert {str(d.table): d.wanted for d in deployed.ledger.deployments() if not d.external} == {
        "a": "running", "b": "stopped", "c": "running",
    }  # fmt: skip


def test_a_repeated_line_is_one_stop(deployed: AgentContext, monkeypatch: pytest.MonkeyPatch, pool: Any) -> None:
    lane, path = fast_lane(deployed), Path(deployed.folder, "emergency.jsonl")
    stop_while_the_ledger_is_locked(lane, monkeypatch, "a")
    written = path.read_bytes()
    Reconciler(deployed, lane._emergency).apply_emergencies()
    start(lane, "a")
    path.write_bytes(written * 2)
    Reconciler(deployed, lane._emergency).apply_emergencies()
    assert version(deployed, A, 1).wanted == "running" and not lane._emergency.has_pending()
