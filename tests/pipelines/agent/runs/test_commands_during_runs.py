"""Operators' commands to a run are read before each effect, in order, and the run's end is reported once."""

import errno
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import small_project
from agent_scenarios import stop_by_operator, wait_until

from core.model.errors import Busy, EngineRefused, TryAgain
from core.model.names import TableName
from core.plan.request import PlanRequest
from core.run.model import OperatorControl
from core.run.records import StepRow
from pipelines.agent.context import AgentContext, AlwaysMatchingIdentity
from pipelines.agent.runs import run_driver
from pipelines.agent.runs.catch_up_gate import GateReading
from pipelines.agent.runs.run_driver import OpenRuns, RunDriver
from pipelines.storage.file_system import reachable
from tests.pipelines.agent.runs.test_run_driver import (
    EVERYTHING,
    OpenGate,
    deploy,
    drive,
    fast_gates,  # noqa: F401  # A fixture of every test here.
    plan,
    submit,
    unreadable,
)

UPPER = small_project.texts(a="SELECT id, upper(kind) AS kind FROM STREAM landed")
REBUILD = PlanRequest(tables=(TableName("a"),), rebuild=True, children="all")
SERVING = {"a": "a__v1", "b": "b__v1", "c": "c__v1"}


@dataclass
class ActAt:
    """Fault points that call a function once, at the first label with a certain beginning or end."""

    at: str
    act: Callable[[], object]
    passed: list[str] = field(default_factory=list)

    def pass_by(self, label: str) -> None:
        self.passed.append(label)
        where = " ".join(word for word in label.split() if not word.isdigit())
        if where == self.at:
            self.at = ""
            self.act()


def at(agent: AgentContext, where: str, act: Callable[[], object]) -> AgentContext:
    return replace(agent, faults=ActAt(where, act))  # type: ignore[arg-type]  # Acts instead of dying.


def tell(agent: AgentContext, run_id: str, act: str) -> None:
    """Accept a command without notifying anybody."""
    agent.ledger.put_run_command(run_id, OperatorControl(act, by="bob"), at=1.0)


def step_of(agent: AgentContext, run_id: str, do: str) -> StepRow:
    row = agent.ledger.run(run_id)
    assert row is not None
    return next(step for step in row.steps if step.do == do)


def state_of(agent: AgentContext, run_id: str) -> str:
    row = agent.ledger.run(run_id)
    assert row is not None
    return row.state


def ends_told(agent: AgentContext, run_id: str) -> tuple[int, int]:
    """Return how often events and audit report a run's end."""
    events = [e for e in agent.ledger.events() if e.kind == "run" and e.summary.startswith(f"run {run_id} ")]
    audited = [e for e in agent.ledger.audits() if (e.action, e.subject) == ("run", run_id)]
    return len(events), len(audited)


def test_a_step_that_is_retried_says_why_in_its_note(agent: AgentContext, pool: Any) -> None:
    deploy(agent, pool, small_project.texts())
    run_id = submit(agent, plan(agent, UPPER, REBUILD))
    OpenRuns(at(agent, "after create running", lambda: setattr(pool, "reachable", False))).drive(run_id)
    wait_until(lambda: step_of(agent, run_id, "create").note != "")
    step = step_of(agent, run_id, "create")
    assert (step.state, step.tries) == ("running", 1) and step.note.startswith("waits: ") and "pool" in step.note
    pool.reachable = True
    wait_until(lambda: state_of(agent, run_id) == "done")
    assert step_of(agent, run_id, "create").started_at == step.started_at


@pytest.mark.parametrize(
    ("number", "state"), [(errno.EACCES, "failed"), (errno.EROFS, "failed"), (errno.ENOSPC, "running")]
)
def test_a_run_that_may_not_write_the_data_folder_fails_with_the_reason(
    number: int, state: str, agent: AgentContext, pool: Any
) -> None:
    deploy(agent, pool, small_project.texts())

    class Denied(AlwaysMatchingIdentity):
        def __init__(self) -> None:
            try:
                with reachable("/data"):
                    raise OSError(number, os.strerror(number))
            except TryAgain as error:
                self.fault = error  # type: ignore[assignment]  # None in the class

        def refuse_doubt(self) -> None:
            raise Busy(self.fault.summary, remedy=self.fault.remedy)  # type: ignore[attr-defined]

    run_id = submit(agent, plan(agent, UPPER, REBUILD))
    OpenRuns(replace(agent, identity=Denied())).drive(run_id)
    wait_until(lambda: step_of(agent, run_id, "create").note != "")
    step = step_of(agent, run_id, "create")
    assert step.state == state and "/data" in step.note and ("read and write" in step.note or "free space" in step.note)
    agent.stopping.set()


def test_a_pause_holds_while_a_swap_waits_for_the_pool(agent: AgentContext, pool: Any) -> None:
    deploy(agent, pool, small_project.texts())
    run_id = submit(agent, plan(agent, UPPER, REBUILD))
    lane = OpenRuns(at(agent, "after swap running", lambda: setattr(pool, "reachable", False)))
    lane.drive(run_id)
    wait_until(lambda: not pool.reachable)
    lane.submit_command(run_id, OperatorControl("pause"))
    wait_until(lambda: state_of(agent, run_id) == "paused", 10)
    assert step_of(agent, run_id, "swap").state == "waits"
    pool.reachable = True
    lane.submit_command(run_id, OperatorControl("pause"))
    wait_until(lambda: not agent.ledger.run_commands(run_id))
    assert pool.views == SERVING
    lane.submit_command(run_id, OperatorControl("resume"))
    wait_until(lambda: state_of(agent, run_id) == "done")
    assert pool.views == {"a": "a__v2", "b": "b__v2", "c": "c__v2"}


@pytest.mark.parametrize("where", ["before swap running", "after swap running"])
def test_a_command_given_during_a_ledger_write_is_read_before_the_effect(
    where: str, agent: AgentContext, pool: Any
) -> None:
    deploy(agent, pool, small_project.texts())
    run_id = submit(agent, plan(agent, UPPER, REBUILD))
    row = agent.ledger.run(run_id)
    assert row is not None
    RunDriver(at(agent, where, lambda: tell(agent, run_id, "cancel")), row, threading.Event()).drive()
    assert (state_of(agent, run_id), pool.views) == ("cancelled", SERVING)
    assert sorted(pool.running) == ["a@v1", "b@v1", "c@v1"]


def test_commands_given_while_a_run_polls_its_gates_keep_their_order(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, pool, small_project.texts())
    run_id = submit(agent, plan(agent, small_project.texts(), PlanRequest(tables=(TableName("c"),), rebuild=True)))
    lane = OpenRuns(agent)

    def told(gate: OpenGate, *given: Any) -> GateReading:
        gate.looks += 1
        for act in ("pause", "resume") if gate.looks == 3 else ():
            lane.submit_command(run_id, OperatorControl(act))
        return GateReading(gate.looks > 5, "lag 0")

    monkeypatch.setattr(OpenGate, "check", told)
    lane.drive(run_id)
    wait_until(lambda: state_of(agent, run_id) == "done", 10)


def test_a_paused_run_starts_no_version_whose_stop_was_ended(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, pool, small_project.texts())
    run_id = submit(agent, plan(agent, small_project.texts(), PlanRequest(tables=(TableName("c"),), rebuild=True)))
    lane, opens = OpenRuns(agent), threading.Event()
    monkeypatch.setattr(OpenGate, "check", lambda gate, *given: GateReading(opens.is_set(), "lag 3"))
    lane.drive(run_id)
    wait_until(lambda: step_of(agent, run_id, "catch_up").note == "lag 3", 10)
    lane.submit_command(run_id, OperatorControl("pause"))
    wait_until(lambda: state_of(agent, run_id) == "paused", 10)
    # An operator has stopped the table, and restarted the serving version.
    pool.running.pop("c@v2")
    agent.ledger.update_deployment(TableName("c"), 2, wanted="stopped", state="stopped")
    wait_until(lambda: step_of(agent, run_id, "catch_up").note == "c@v2 is stopped: it starts once the run is resumed")
    assert "c@v2" not in pool.running
    lane.submit_command(run_id, OperatorControl("resume"))
    wait_until(lambda: "c@v2" in pool.running, 10)
    opens.set()
    wait_until(lambda: state_of(agent, run_id) == "done", 10)


def test_a_cancel_waits_for_a_version_that_somebody_holds_and_ends_as_any_other(
    agent: AgentContext, pool: Any, caplog: pytest.LogCaptureFixture
) -> None:
    deploy(agent, pool, small_project.texts())
    run_id = submit(agent, plan(agent, small_project.texts(), PlanRequest(tables=(TableName("c"),), rebuild=True)))
    lane, busy = (
        OpenRuns(at(agent, "before swap running", lambda: tell(agent, run_id, "cancel"))),
        [Busy("c@v2 is held")],
    )

    def given_up(*about: Any, **more: Any) -> Any:
        if busy:
            raise busy.pop()
        return give_up(*about, **more)

    give_up = run_driver.give_up
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_driver, "give_up", given_up)
        lane.drive(run_id)
        wait_until(lambda: state_of(agent, run_id) == "cancelled", 10)
    assert not busy and pool.views == SERVING
    assert "cannot be executed" not in caplog.text


def test_the_end_of_a_cancelled_run_is_reported_even_if_its_versions_cannot_be_stopped_yet(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, pool, small_project.texts())
    run_id = submit(agent, plan(agent, UPPER, REBUILD))
    of, errors = type(agent.locks), [Busy("c@v2 is held")]
    works = of.holding

    def once(*given: Any, **more: Any) -> Any:
        if errors:
            raise errors.pop()
        return works(*given, **more)

    def cancel() -> None:
        tell(agent, run_id, "cancel")
        faults.at, faults.act = "after swap cancelled", lambda: monkeypatch.setattr(of, "holding", once)

    faults = ActAt("before swap running", cancel)
    lane = OpenRuns(replace(agent, faults=faults))  # type: ignore[arg-type]  # Acts instead of dying.
    lane.drive(run_id)
    wait_until(lambda: not lane._woken)
    assert (state_of(agent, run_id), pool.views, errors) == ("cancelled", SERVING, [])
    assert ends_told(agent, run_id) == (1, 1)
    assert {d.wanted for d in agent.ledger.deployments() if d.version == 2} == {"stopped"}


@pytest.mark.parametrize("word", ["pause", "resume"])
def test_a_command_that_changes_nothing_does_not_report_an_end_again(word: str, agent: AgentContext, pool: Any) -> None:
    pool.refuse["a@v1"] = EngineRefused("no such column", error_class="UNRESOLVED_COLUMN")
    run_id = submit(agent, plan(agent, small_project.texts(), EVERYTHING))
    assert drive(at(agent, "before start failed", lambda: tell(agent, run_id, word)), run_id) == "failed"
    assert drive(agent, run_id) == "failed"
    assert ends_told(agent, run_id) == (1, 1) and not agent.ledger.run_commands(run_id)
    assert drive(agent, run_id, OperatorControl("retry")) == "failed"
    assert ends_told(agent, run_id) == (2, 2)


def test_a_command_to_an_unreadable_run_reports_its_end_once(agent: AgentContext, pool: Any) -> None:
    run_id, lane = unreadable(agent, pool, "missing")
    before = ends_told(agent, run_id)
    lane.resume_open()
    wait_until(lambda: not lane._woken)
    lane.wake(run_id)
    wait_until(lambda: not lane._woken)
    assert ends_told(agent, run_id) == (before[0] + 1, before[1] + 1)


@pytest.mark.parametrize("state", ["done", "cancelled"])
def test_a_cancel_of_an_unreadable_run_does_not_change_an_earlier_end(
    state: str, agent: AgentContext, pool: Any
) -> None:
    run_id, lane = unreadable(agent, pool, "missing")
    tell(agent, run_id, "cancel")
    assert agent.ledger.advance_run(run_id, was="running", state=state, ended_at=5.0, steps=())
    before = agent.ledger.run(run_id)
    lane.resume_open()
    wait_until(lambda: not lane._woken)
    assert agent.ledger.run(run_id) == before and not agent.ledger.run_commands(run_id)
    assert {"a@v2", "b@v2", "c@v2"} <= set(pool.running)


def test_a_pause_during_the_last_step_does_not_fail_a_run_that_has_finished(agent: AgentContext, pool: Any) -> None:
    deploy(agent, pool, small_project.texts())
    made = plan(agent, UPPER, PlanRequest(tables=(TableName("a"),), rebuild=True))
    run_id = submit(agent, made)
    row = agent.ledger.run(run_id)
    assert row is not None
    paused = at(agent, f"evidence {row.steps[-1].do}", lambda: tell(agent, run_id, "pause"))
    RunDriver(paused, row, threading.Event()).drive()
    assert state_of(agent, run_id) == "done"


def test_a_command_that_hits_a_bug_resumes_a_run_once(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    met = []

    def broken(*_: Any) -> Any:
        met.append(True)
        raise KeyError("nothing")

    run_id = submit(agent, plan(agent, small_project.texts(), EVERYTHING))
    monkeypatch.setattr(run_driver, "advance_run", broken)
    monkeypatch.setattr(run_driver, "end_unexecutable", broken)
    lane = OpenRuns(agent)
    lane.submit_command(run_id, OperatorControl("pause"))
    wait_until(lambda: len(met) > 1 and not lane._woken)
    assert len(met) == 2


def test_a_run_that_hits_a_bug_is_resumed_by_a_new_command_only(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    met = []

    def broken(*_: Any) -> Any:
        met.append(True)
        raise KeyError("nothing")

    run_id = submit(agent, plan(agent, small_project.texts(), EVERYTHING))
    lane = OpenRuns(agent)
    with monkeypatch.context() as patch:
        patch.setattr(run_driver, "RunDriver", broken)
        patch.setattr(run_driver, "end_unexecutable", broken)
        for _ in range(3):
            lane.resume_open()
            wait_until(lambda: not lane._woken)
        assert len(met) == 2
    lane.submit_command(run_id, OperatorControl("resume"))
    wait_until(lambda: not lane._woken)
    assert state_of(agent, run_id) == "done"


def test_a_command_given_while_a_run_hits_a_bug_resumes_the_run(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = submit(agent, plan(agent, small_project.texts(), EVERYTHING))
    lane, drivers = OpenRuns(agent), [None, RunDriver]

    def tell_and_break(*_: Any) -> None:
        lane.submit_command(run_id, OperatorControl("cancel"))
        raise KeyError("nothing")

    monkeypatch.setattr(run_driver, "RunDriver", lambda *given: drivers.pop(0)(*given))  # type: ignore[misc]  # A bug.
    monkeypatch.setattr(run_driver, "end_unexecutable", tell_and_break)
    lane.drive(run_id)
    wait_until(lambda: not lane._woken)
    assert (state_of(agent, run_id), drivers) == ("cancelled", [])


def test_the_first_pointer_to_a_version_that_was_stopped_does_not_move(agent: AgentContext, pool: Any) -> None:
    run_id = submit(agent, plan(agent, small_project.texts(), EVERYTHING))
    stopping = at(agent, "after swap running", lambda: stop_by_operator(agent, pool, "a").join())
    assert drive(stopping, run_id) == "failed"
    assert step_of(agent, run_id, "swap").note.startswith("no pointer has moved: a was stopped by bob at ")
    assert "a" not in pool.views and "a@v1" not in pool.running
    agent.ledger.retry_run(run_id, serial=agent.locks.announce_start())
    assert drive(agent, run_id, OperatorControl("retry")) == "done"
    assert pool.views == SERVING and sorted(pool.running) == ["a@v1", "b@v1", "c@v1"]
