"""One actor per statement at a time: an operator acts during a run, and a stop always wins."""

import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import pytest
import small_project
from agent_scenarios import fast_lane, held_elsewhere, in_a_thread, stop_by_operator, wait_until

from core.model.actions import StepKind
from core.model.errors import Busy, EngineRefused, LedgerUnavailable, PoolUnreachable, Refused, UsageError
from core.model.names import TableName
from core.observed.versions import Deployment
from core.plan.model import Plan
from core.plan.request import PlanRequest
from core.run.model import OperatorControl
from pipelines.agent.context import AgentContext
from pipelines.agent.reconciler import Reconciler
from pipelines.agent.runs import run_driver, starting_steps
from pipelines.agent.runs.catch_up_gate import GateReading
from pipelines.agent.statements import statement_control as fast_lane_module
from pipelines.agent.statements.statement_control import ActOutcome, StatementControl
from tests.pipelines.agent.runs.test_run_driver import (
    EVERYTHING,
    Killed,
    OpenGate,
    deploy,
    drive,
    fast_gates,  # noqa: F401  # A fixture of every test here.
    plan,
    settle,
    submit,
)

A, B = TableName("a"), TableName("b")
REBUILD = PlanRequest(tables=(A,), rebuild=True, children="all")
UPPER = "SELECT id, upper(kind) AS kind FROM STREAM landed"
FILTERED = "SELECT id, kind FROM STREAM a WHERE id > 1"


@pytest.fixture
def agent(agent: AgentContext) -> AgentContext:
    """An agent whose clock runs fast: nothing reports a first batch here, so the check of a restart times out."""
    return replace(agent, monotonic=partial(next, count(0.0, 50.0)))


class Meanwhile:
    """Calls a function once, just before the effect of one step; for `AgentContext.faults`."""

    def __init__(self, label: str, act: Callable[[], object]) -> None:
        self.label, self.act = label, act
        self.acted = False

    def pass_by(self, label: str) -> None:
        if not self.acted and label.startswith(self.label):
            self.acted = True
            self.act()


def drive_while(agent: AgentContext, made: Plan, label: str, act: Callable[[], object]) -> tuple[str, str]:
    """Drive a plan while another actor acts before one of its steps; return the run and its final state."""
    meanwhile = Meanwhile(label, act)
    run_id = submit(agent, made)
    state = drive(replace(agent, faults=meanwhile), run_id)  # type: ignore[arg-type]  # A double.
    assert meanwhile.acted
    return run_id, state


def notes(agent: AgentContext, run_id: str, state: str) -> dict[str, str]:
    row = agent.ledger.run(run_id)
    assert row is not None
    return {f"{step.do} {step.table}": step.note for step in row.steps if step.state == state}


def version(agent: AgentContext, table: TableName, number: int) -> Deployment:
    found = agent.ledger.deployment(table, number)
    assert found is not None
    return found


def stop(agent: AgentContext, *tables: TableName) -> None:
    fast_lane(agent).stop(tables, time.monotonic(), by="bob")


@pytest.mark.parametrize("before_step", ["create", "start", "swap"])
def test_a_stop_during_a_rebuild_stops_all_versions_and_nothing_is_swapped_in(
    before_step: str, agent: AgentContext, pool: Any
) -> None:
    deploy(agent, pool, small_project.texts())
    before = dict(pool.views)
    made = plan(agent, small_project.texts(a=UPPER), REBUILD)
    step = next(step for step in made.steps if step.do.value == before_step)
    run_id, state = drive_while(agent, made, f"effect {step.n} {before_step}", lambda: stop(agent, A))
    assert state == "failed"
    (said,) = notes(agent, run_id, "failed").values()
    assert re.fullmatch(
        r"(no pointer has moved: )?a was stopped by bob at \d\d-\d\d [\d:]{8} during this run; "
        f"headgate runs retry {run_id} starts it anyway, headgate runs cancel {run_id} leaves it",
        said,
    )
    assert not [name for name in pool.running if name.startswith("a@")]
    assert pool.views == before, "what serves is as it was"
    assert all(found.wanted == "stopped" for found in agent.ledger.versions(A))
    assert drive(agent, run_id, OperatorControl("cancel")) == "cancelled"
    (over,) = (event for event in agent.ledger.events() if event.summary == f"run {run_id} cancelled")
    assert over.detail == "a v1 serves and is stopped: headgate start a starts it"


def test_a_stop_of_the_new_version_alone_leaves_what_serves_running(agent: AgentContext, pool: Any) -> None:
    deploy(agent, pool, small_project.texts())
    made = plan(agent, small_project.texts(a=UPPER), REBUILD)
    swap = next(step for step in made.steps if step.do is StepKind.SWAP)
    said: list[ActOutcome] = []

    def stop_new() -> None:
        said.extend(fast_lane(agent).stop(("a@v2",), time.monotonic(), by="bob"))

    run_id, state = drive_while(agent, made, f"effect {swap.n} swap", stop_new)
    assert [(one.table, one.version, one.outcome) for one in said] == [("a", 2, "stopped")]
    assert state == "failed" and "a was stopped by bob at" in notes(agent, run_id, "failed")[f"swap {swap.table}"]
    assert {"a@v1", "b@v1"} <= pool.running.keys() and "a@v2" not in pool.running
    assert (version(agent, A, 1).wanted, version(agent, A, 2).wanted) == ("running", "stopped")
    (again,) = fast_lane(agent).start(("a@v2",), time.monotonic(), by="bob")
    assert (again.version, again.outcome) == (2, "started, first batch pending") and "a@v2" in pool.running


@pytest.mark.parametrize("before_step", ["start", "catch_up", "swap"])
def test_a_stop_of_the_old_version_alone_does_not_hold_up_its_release(
    before_step: str, agent: AgentContext, pool: Any
) -> None:
    deploy(agent, pool, small_project.texts())
    made = plan(agent, small_project.texts(a=UPPER), REBUILD)
    step = next(step for step in made.steps if step.do.value == before_step)

    def stop_old() -> None:
        fast_lane(agent).stop(("a@v1",), time.monotonic(), by="bob")

    _, state = drive_while(agent, made, f"effect {step.n} {before_step}", stop_old)
    assert state == "done" and pool.views["a"] == "a__v2" and version(agent, A, 1).wanted == "stopped"


def test_a_refused_start_of_the_serving_version_leaves_the_new_one_running(agent: AgentContext, pool: Any) -> None:
    deploy(agent, pool, small_project.texts())
    agent.ledger.put_deployment(replace(version(agent, A, 1), version=2, active=False))
    fast_lane(agent).stop(("a@v1",), time.monotonic(), by="bob")
    pool.restored = False
    with pytest.raises(PoolUnreachable):
        fast_lane(agent).start((A,), time.monotonic(), by="bob")
    assert (version(agent, A, 1).wanted, version(agent, A, 2).wanted) == ("stopped", "running")


def test_a_missing_version_is_not_stopped(agent: AgentContext, pool: Any) -> None:
    deploy(agent, pool, small_project.texts())
    with pytest.raises(UsageError, match="a@v7 is not deployed"):
        fast_lane(agent).stop(("a@v7",), time.monotonic(), by="bob")
    assert "a@v1" in pool.running


@pytest.mark.parametrize("before_step", ["create", "start", "catch_up", "swap"])
def test_a_retry_overrules_an_earlier_command(before_step: str, agent: AgentContext, pool: Any) -> None:
    deploy(agent, pool, small_project.texts())
    made = plan(agent, small_project.texts(a=UPPER), REBUILD)
    step = next(step for step in made.steps if step.do.value == before_step)
    run_id, state = drive_while(agent, made, f"effect {step.n} {before_step}", lambda: stop(agent, A))
    assert state == "failed"
    agent.ledger.retry_run(run_id, serial=agent.locks.announce_start())
    assert drive(agent, run_id, OperatorControl("retry")) == "done"
    assert "a@v2" in pool.running and pool.views["a"] == "a__v2"


def test_a_gate_ends_when_an_operator_stops_what_it_waits_for(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, pool, small_project.texts())
    looks: list[int] = []

    def never_open(*_: Any) -> GateReading:
        looks.append(1)
        if len(looks) == 3:
            stop(agent, B)
        return GateReading(False, "lag 7 rows")

    monkeypatch.setattr(OpenGate, "check", never_open)
    changed = small_project.texts(b="SELECT id, upper(kind) AS kind FROM STREAM a")
    run_id = submit(agent, plan(agent, changed, PlanRequest(tables=(B,), rebuild=True)))
    assert drive(agent, run_id) == "failed"
    assert "b was stopped by bob at" in notes(agent, run_id, "failed")["catch_up b"]


def test_a_restart_step_never_overwrites_a_stop(agent: AgentContext, pool: Any) -> None:
    deploy(agent, pool, small_project.texts())
    made = plan(agent, small_project.texts(c=FILTERED), EVERYTHING)
    (restart,) = [step for step in made.steps if step.do is StepKind.RESTART]
    c = TableName("c")
    run_id, state = drive_while(agent, made, f"effect {restart.n} restart", lambda: stop(agent, c))
    assert state == "failed" and "c was stopped by bob at" in notes(agent, run_id, "failed")["restart c"]
    found = version(agent, c, 1)
    assert (found.wanted, found.state, "c@v1" in pool.running) == ("stopped", "stopped", False)
    assert "WHERE" not in found.texts.dml, "the text that never ran is not recorded"


def test_a_stop_between_stop_and_start_of_a_restart_step_wins(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, pool, small_project.texts())
    taken_over, waiting = starting_steps.take_over_texts, []

    def overtaken(run: Any, step: Any) -> None:
        taken_over(run, step)
        waiting.append(stop_by_operator(agent, pool, "c"))

    monkeypatch.setattr(starting_steps, "take_over_texts", overtaken)
    run_id = submit(agent, plan(agent, small_project.texts(c=FILTERED), EVERYTHING))
    assert drive(agent, run_id) == "failed"
    waiting[0].join(30)
    assert "was stopped by an operator while it was starting" in notes(agent, run_id, "failed")["restart c"]
    assert "c@v1" not in pool.running
    assert version(agent, TableName("c"), 1).wanted == "stopped"


def test_an_operators_restart_inside_a_restart_step_starts_the_new_text(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, pool, small_project.texts())
    c, taken_over = TableName("c"), starting_steps.take_over_texts
    restarts: list[threading.Thread] = []

    def overtaken(run: Any, step: Any) -> None:
        acts = fast_lane(agent)
        restarts.append(in_a_thread(lambda: acts.restart((c,), time.monotonic(), by="bob")))
        wait_until(lambda: len(threading.enumerate()) > 1)
        taken_over(run, step)

    monkeypatch.setattr(starting_steps, "take_over_texts", overtaken)
    assert drive(agent, submit(agent, plan(agent, small_project.texts(c=FILTERED), EVERYTHING))) == "done"
    restarts[0].join(30)
    recorded = version(agent, c, 1)
    assert "WHERE" in recorded.texts.dml
    assert pool.running["c@v1"].select == recorded.compiled, "what runs is what is recorded"


def test_a_version_that_failed_after_its_gate_is_not_swapped_in(agent: AgentContext, pool: Any) -> None:
    deploy(agent, pool, small_project.texts())
    before = dict(pool.views)
    made = plan(agent, small_project.texts(a=UPPER), REBUILD)
    swap = next(step for step in made.steps if step.do is StepKind.SWAP)

    def fail() -> None:
        agent.ledger.update_deployment(A, 2, state="failed", error_class="DIVIDE_BY_ZERO", error="Division by zero.")

    run_id, state = drive_while(agent, made, f"effect {swap.n} swap", fail)
    assert state == "failed" and pool.views == before
    assert "a@v2 failed after it had caught up: DIVIDE_BY_ZERO" in notes(agent, run_id, "failed")[f"swap {swap.table}"]


def test_a_version_that_falls_behind_after_its_gate_is_swapped_in_once_it_has_caught_up_again(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, pool, small_project.texts())
    said = iter(["lag 90,000 rows", "lag 4,000 rows", "lag 200 rows"])
    monkeypatch.setattr(OpenGate, "why_closed", staticmethod(lambda *_: next(said, "")))
    assert drive(agent, submit(agent, plan(agent, small_project.texts(a=UPPER), REBUILD))) == "done"
    assert next(said, None) is None, "it was looked at until it had caught up"
    assert pool.views["a"] == "a__v2"


def failed_swap(agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Plan]:
    """Rebuild a and its readers up to the swap, which Spark refuses."""
    deploy(agent, pool, small_project.texts())
    made = plan(agent, small_project.texts(a=UPPER), REBUILD)
    real = agent.ledger.activate

    def refused(versions: Any) -> None:
        raise EngineRefused("no permission on the view")

    monkeypatch.setattr(agent.ledger, "activate", refused)
    run_id = submit(agent, made)
    assert drive(agent, run_id) == "failed"
    monkeypatch.setattr(agent.ledger, "activate", real)
    return run_id, made


def test_a_failed_swap_cannot_be_skipped_and_the_serving_version_continues(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, made = failed_swap(agent, pool, monkeypatch)
    swap = next(step for step in made.steps if step.do is StepKind.SWAP)
    assert drive(agent, run_id, OperatorControl("skip", swap.n)) == "failed"
    assert {"a@v1", "b@v1", "c@v1"} <= set(pool.running)
    assert all(version(agent, TableName(t), 1).active for t in "abc")


def test_cancel_stops_what_the_run_has_started_whatever_else_was_swapped(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, _ = failed_swap(agent, pool, monkeypatch)
    assert drive(agent, run_id, OperatorControl("cancel")) == "cancelled"
    assert sorted(pool.running) == ["a@v1", "b@v1", "c@v1"]


def test_an_agent_that_dies_after_a_cancel_leaves_nothing_wanted(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, _ = failed_swap(agent, pool, monkeypatch)

    def killed(*_: Any) -> None:
        raise Killed

    monkeypatch.setattr(run_driver, "abort", killed)
    with pytest.raises(Killed):
        drive(agent, run_id, OperatorControl("cancel"))
    assert {(d.table, d.wanted) for d in agent.ledger.deployments() if d.version == 2} == {
        ("a", "stopped"), ("b", "stopped"), ("c", "stopped"),
    }  # fmt: skip


def test_a_delete_checks_for_readers_again_before_it_moves_files(agent: AgentContext, pool: Any) -> None:
    deploy(agent, pool, small_project.texts())
    made = plan(agent, small_project.texts(), PlanRequest(verb="delete", everything=True))
    tombstone = next(step for step in made.steps if step.do is StepKind.TOMBSTONE and step.table == A)

    late = replace(version(agent, B, 1), table=TableName("late"), wanted="running")

    def new_reader() -> None:
        agent.ledger.put_deployment(late)

    run_id, state = drive_while(agent, made, f"effect {tombstone.n} tombstone", new_reader)
    assert state == "failed"
    assert notes(agent, run_id, "failed")["tombstone a"] == "late@v1 reads it again; stop the reader, or plan again"
    assert "a__v1" in pool.tables


def test_a_start_of_a_table_that_a_run_is_deleting_is_refused_with_the_reason(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, pool, small_project.texts())
    said: list[str] = []
    found, find = threading.Event(), StatementControl._find

    def finding(lane: StatementControl, tables: tuple[TableName, ...]) -> tuple[Deployment, ...]:
        deployments = find(lane, tables)
        found.set()
        return deployments

    monkeypatch.setattr(StatementControl, "_find", finding)

    def start() -> None:
        try:
            fast_lane(agent).start((B,), time.monotonic(), by="bob")
        except UsageError as error:
            said.append(error.summary)

    with held_elsewhere(agent, (B, 1), by="run 7f3a"):
        thread = in_a_thread(start)
        assert found.wait(30)
        agent.ledger.tombstone(B, 1, drop_after=9e9, trash="")
    thread.join(30)
    assert said == ["b@v1 was deleted in the meantime"]


def test_the_inputs_of_a_run_are_not_changed_until_it_ends(agent: AgentContext, pool: Any) -> None:
    deploy(agent, pool, small_project.texts())
    child = plan(agent, small_project.texts(b="SELECT id, upper(kind) AS kind FROM STREAM a"), EVERYTHING)
    sibling = plan(agent, small_project.texts(c=FILTERED), EVERYTHING)
    parent = plan(agent, small_project.texts(a=UPPER), PlanRequest(tables=(A,), rebuild=True))
    run_id = submit(agent, child, reads=(A,))
    with pytest.raises(Refused, match=f"a is being read by run {run_id} of ana"):
        submit(agent, parent, reads=())
    assert drive(agent, submit(agent, sibling, reads=(A,))) == "done", "two may read"
    assert drive(agent, run_id) == "done"


def test_the_holder_of_a_version_is_named_after_the_wait(agent: AgentContext) -> None:
    with (
        held_elsewhere(agent, (A, 1), by="run 7f3a"),
        pytest.raises(Busy, match="a@v1 is held by run 7f3a"),
        agent.locks.holding((A, 1), by="a start", wait_s=0.01),
    ):
        pytest.fail("it was held")


def test_forty_stops_while_the_ledger_is_locked_are_one_entry_and_as_many_threads_as_before(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, pool, small_project.texts())
    tables = tuple(TableName(f"t{n}") for n in range(40))
    for table in tables:
        agent.ledger.put_deployment(replace(version(agent, A, 1), table=table))
    released, waiting = threading.Event(), []

    def locked(*_: Any) -> None:
        waiting.append(1)
        released.wait(30)
        raise LedgerUnavailable("the ledger is locked by another program")

    monkeypatch.setattr(type(agent.ledger), "stop_statements", locked)
    lane = fast_lane(agent)
    before = threading.active_count()
    outcomes = lane.stop(tables, time.monotonic(), by="bob")
    assert [outcome.outcome for outcome in outcomes] == ["stopped"] * 40
    assert len(waiting) == 1 and threading.active_count() <= before + 1
    released.set()
    assert [stop.names for stop in lane._emergency.pending().stops] == [tables]


def test_a_stop_that_was_repeated_while_the_ledger_was_locked_ends_with_the_operators_start(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, pool, small_project.texts())
    lane = fast_lane(agent)
    with monkeypatch.context() as locked:
        locked.setattr(type(agent.ledger), "stop_statements", unavailable)
        for _ in range(3):
            lane.stop((A,), time.monotonic(), by="bob")
    assert agent.locks.has_unrecorded_stop((A, 1))
    Reconciler(agent, lane._emergency).apply_emergencies()
    assert not agent.locks.has_unrecorded_stop((A, 1))
    lane.start((A,), time.monotonic(), by="bob")
    assert deploy(agent, pool, small_project.texts(), REBUILD) == "done", "a run that begins afterwards starts it"


def test_a_stop_of_one_version_that_waited_for_the_ledger_is_of_that_version(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, pool, small_project.texts())
    agent.ledger.put_deployment(replace(version(agent, A, 1), version=2, active=False))
    lane = fast_lane(agent)
    with monkeypatch.context() as locked:
        locked.setattr(type(agent.ledger), "stop_statements", unavailable)
        lane.stop(("a@v2",), time.monotonic(), by="bob")
    assert agent.locks.has_unrecorded_stop((A, 2)) and not agent.locks.has_unrecorded_stop((A, 1))
    Reconciler(agent, lane._emergency).apply_emergencies()
    assert not agent.locks.has_unrecorded_stop((A, 2))
    assert (version(agent, A, 1).wanted, version(agent, A, 2).wanted) == ("running", "stopped")


def unavailable(*_: Any) -> None:
    raise LedgerUnavailable("the ledger is locked by another program")


def test_a_stop_proceeds_although_a_run_holds_the_version(agent: AgentContext, pool: Any) -> None:
    deploy(agent, pool, small_project.texts())
    settle(agent, pool)
    with held_elsewhere(agent, (A, 1)):
        thread = stop_by_operator(agent, pool, "a")
        assert "a@v1" not in pool.running, "Spark's stop waits for nobody"
    thread.join(30)
    assert pool.stops.count("a@v1") == 2, "and is called once more after who held it"


def test_a_stop_is_confirmed_although_the_holder_of_the_version_waits_for_the_ledger(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, pool, small_project.texts())
    monkeypatch.setattr(fast_lane_module, "STOP_S", 0.3)
    monkeypatch.setattr(fast_lane_module, "HOLDER_S", 0.01)
    lane = fast_lane(agent)
    with held_elsewhere(agent, (A, 1), by="the reconciler"):
        assert [found.outcome for found in lane.stop((A,), time.monotonic(), by="bob")] == ["stopped"]
        with agent.locks.starting((A, 1)):
            assert [found.outcome for found in lane.stop((A,), time.monotonic(), by="bob")] == ["sent, not confirmed"]


def test_a_run_whose_version_is_held_waits_and_then_continues(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_driver, "POLL_S", 0.001)
    made = plan(agent, small_project.texts(), EVERYTHING)
    run_id = submit(agent, made)
    done: list[str] = []
    with held_elsewhere(agent, (A, 1)):
        thread = in_a_thread(lambda: done.append(drive(agent, run_id)))
        wait_until(lambda: any(step.state == "running" for step in (agent.ledger.run(run_id) or pytest.fail()).steps))
    thread.join(30)
    assert done == ["done"]


def test_a_reader_is_not_started_while_what_it_reads_is_being_deleted(agent: AgentContext, pool: Any) -> None:
    deploy(agent, pool, small_project.texts())
    stop(agent, B)
    with agent.locks.deleting((A, 1)), pytest.raises(Refused, match="b reads a__v1"):
        fast_lane(agent).start((B,), time.monotonic(), by="bob")
    found = version(agent, B, 1)
    assert (found.wanted, "b@v1" in pool.running) == ("stopped", False)


def test_a_start_that_a_stop_overtakes_stays_stopped(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, pool, small_project.texts())
    pool.running.pop("b@v1")
    agent.ledger.update_deployment(B, 1, state="failed")
    real, waiting = agent.files.read, []

    def stopped_meanwhile(folder: str) -> Any:
        if not waiting:
            waiting.append(stop_by_operator(agent, pool, "b"))
        return real(folder)

    monkeypatch.setattr(agent.files, "read", stopped_meanwhile)
    with pytest.raises(Refused, match="was stopped by an operator while it was starting"):
        fast_lane(agent).start((B,), time.monotonic(), by="ana")
    waiting[0].join(30)
    assert (version(agent, B, 1).wanted, "b@v1" in pool.running) == ("stopped", False)
