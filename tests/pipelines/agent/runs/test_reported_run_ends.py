"""A run's end and the commands that it did not carry out are reported once, in the transaction that records them."""

import sqlite3
from dataclasses import replace
from typing import Any

import pytest
import small_project
from agent_scenarios import wait_until

from core.model.errors import EngineRefused, LedgerUnavailable
from core.model.names import TableName
from core.plan.request import PlanRequest
from core.run.model import OperatorControl
from pipelines.agent.context import AgentContext
from pipelines.agent.runs import run_driver, run_ends
from pipelines.agent.runs.run_driver import OpenRuns
from pipelines.agent.runs.run_ends import end_unexecutable
from tests.pipelines.agent.runs.test_commands_during_runs import (
    REBUILD,
    SERVING,
    UPPER,
    ActAt,
    at,
    ends_told,
    state_of,
    step_of,
    tell,
)
from tests.pipelines.agent.runs.test_ended_runs import WHY, accept, end
from tests.pipelines.agent.runs.test_run_driver import (
    EVERYTHING,
    Killed,
    deploy,
    drive,
    fast_gates,  # noqa: F401  # A fixture of every test here.
    plan,
    submit,
    unreadable,
)

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


def die(*_: Any) -> None:
    raise Killed


def next_agent(agent: AgentContext) -> None:
    """Let the next agent resume open runs until nothing is left to do."""
    lane = OpenRuns(agent)
    lane.resume_open()
    wait_until(lambda: not lane._woken)


def told(agent: AgentContext, what: str) -> list[tuple[str, str]]:
    """Return summary and detail of the events whose summary contains `what`, oldest first."""
    return [(e.summary, e.detail) for e in reversed(agent.ledger.events()) if what in e.summary]


@pytest.fixture
def release(agent: AgentContext, pool: Any) -> str:
    """A release that was applied but has not begun."""
    deploy(agent, pool, small_project.texts())
    return submit(agent, plan(agent, UPPER, REBUILD))


def test_an_outside_end_is_recorded_and_reported_together_or_not_at_all(release: str, agent: AgentContext) -> None:
    with sqlite3.connect(agent.ledger.path) as other:
        other.execute("CREATE TRIGGER full BEFORE INSERT ON event BEGIN INSERT INTO missing VALUES (1); END")
    with pytest.raises(LedgerUnavailable):
        end(agent, release)
    assert state_of(agent, release) == "running"
    with sqlite3.connect(agent.ledger.path) as other:
        other.execute("DROP TRIGGER full")
    end(agent, release)
    assert (state_of(agent, release), ends_told(agent, release)) == ("failed", (1, 1))
    assert agent.ledger.check_audit().breaks == ()


@pytest.mark.parametrize("where", ["before swap cancelled", "after swap cancelled"])
def test_a_kill_around_the_record_of_a_cancel_leaves_its_end_reported_once(
    where: str, release: str, agent: AgentContext, pool: Any
) -> None:
    def cancel() -> None:
        tell(agent, release, "cancel")
        faults.at, faults.act = where, die

    faults = ActAt("before swap running", cancel)
    driven = OpenRuns(replace(agent, faults=faults))  # type: ignore[arg-type]  # Acts instead of dying.
    driven.drive(release)
    wait_until(lambda: not driven._woken)
    next_agent(agent)
    assert (state_of(agent, release), pool.views) == ("cancelled", SERVING)
    assert ends_told(agent, release) == (1, 1)
    assert agent.ledger.check_audit().breaks == ()


def test_an_agent_that_ends_while_cleaning_up_a_cancelled_run_has_reported_its_end(
    release: str, agent: AgentContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = OpenRuns(at(agent, "before swap running", lambda: tell(agent, release, "cancel")))

    def stopping(*_: Any) -> None:
        lane._woken[release].set()
        agent.stopping.set()

    monkeypatch.setattr(run_driver, "abort", stopping)
    lane.drive(release)
    wait_until(lambda: not lane._woken)
    assert (state_of(agent, release), ends_told(agent, release)) == ("cancelled", (1, 1))


def test_a_skip_that_is_too_late_is_reported_in_the_transaction_that_consumes_it(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.refuse["a@v1"] = EngineRefused("no such column", error_class="UNRESOLVED_COLUMN")
    run_id = submit(agent, plan(agent, small_project.texts(), EVERYTHING))
    assert drive(agent, run_id) == "failed"
    n = step_of(agent, run_id, "start").n
    agent.ledger.put_run_command(run_id, OperatorControl("skip", n, "ana"), at=3.0)
    writes = type(agent.ledger).advance_run

    def and_die(*given: Any, **more: Any) -> None:
        writes(*given, **more)
        die()

    with monkeypatch.context() as patch:
        patch.setattr(type(agent.ledger), "advance_run", and_die)
        lane = OpenRuns(agent)
        lane.drive(run_id)
        wait_until(lambda: not lane._woken)
    next_agent(agent)
    assert told(agent, "not skipped") == [
        (f"step {n} of run {run_id}, start a, was not skipped: it is failed", "asked for by ana")
    ]


def test_a_cancel_at_the_moment_of_the_runs_end_is_reported_as_not_carried_out(agent: AgentContext, pool: Any) -> None:
    deploy(agent, pool, small_project.texts())
    run_id = submit(agent, plan(agent, UPPER, PlanRequest(tables=(TableName("a"),), rebuild=True)))
    row = agent.ledger.run(run_id)
    assert row is not None
    last = row.steps[-1]
    assert drive(at(agent, f"before {last.do} done", lambda: tell(agent, run_id, "cancel")), run_id) == "done"
    next_agent(agent)
    assert not agent.ledger.run_commands(run_id)
    assert told(agent, "not carried out") == [
        (f"the command to cancel run {run_id} was not carried out: the run is done", "asked for by bob")
    ]
    assert ends_told(agent, run_id) == (1, 1)


def test_a_cancel_of_a_finished_unreadable_run_is_reported_as_not_carried_out(agent: AgentContext, pool: Any) -> None:
    run_id, lane = unreadable(agent, pool, "missing")
    tell(agent, run_id, "cancel")
    assert agent.ledger.advance_run(run_id, was="running", state="done", ended_at=5.0, steps=())
    lane.resume_open()
    wait_until(lambda: not lane._woken)
    ((summary, detail),) = told(agent, "not carried out")
    assert summary == f"the command to cancel run {run_id} was not carried out: the run is done"
    assert detail.startswith("asked for by bob; ")


@pytest.mark.parametrize("act", ["swap", "skip", "resume", "retry"])
def test_a_command_overtaken_by_an_outside_end_is_reported_to_its_author(
    act: str, release: str, agent: AgentContext
) -> None:
    accept(agent, release, act)
    end(agent, release)
    assert told(agent, "not carried out") == [
        (f"the command to {act} run {release} was not carried out: the run is failed", f"asked for by ana; {WHY}")
    ]
    assert not agent.ledger.run_commands(release)


def test_a_command_given_during_an_outside_end_is_reported_to_its_author(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, lane = unreadable(agent, pool, "missing")
    failed = run_ends._failed

    def told_beside(*given: Any) -> Any:
        accept(agent, run_id, "resume")
        return failed(*given)

    monkeypatch.setattr(run_ends, "_failed", told_beside)
    lane.resume_open()
    wait_until(lambda: not lane._woken)
    ((summary, _),) = told(agent, "not carried out")
    assert summary == f"the command to resume run {run_id} was not carried out: the run is failed"


def test_a_run_that_records_a_pause_during_an_outside_end_is_ended_nevertheless(
    release: str, agent: AgentContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = run_ends._failed

    def paused_beside(*given: Any) -> Any:
        agent.ledger.advance_run(release, was="running", state="paused", ended_at=None, steps=())
        return failed(*given)

    monkeypatch.setattr(run_ends, "_failed", paused_beside)
    end(agent, release)
    assert (state_of(agent, release), ends_told(agent, release)) == ("failed", (1, 1))


def test_no_end_is_reported_of_a_run_that_was_retried_meanwhile(
    release: str, agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.refuse["c@v2"] = EngineRefused("no memory", error_class="OOM")
    assert drive(agent, release) == "failed"
    agent.ledger.put_run_command(release, OperatorControl("retry", by="bob"), at=1.0)
    row, words = agent.ledger.run(release), agent.ledger.run_commands(release)
    assert row is not None
    read = type(agent.ledger).run

    def retried_since(ledger: Any, run_id: str) -> Any:
        found = read(ledger, run_id)
        monkeypatch.setattr(type(ledger), "run", read)
        accept(agent, run_id, "retry")
        return found

    monkeypatch.setattr(type(agent.ledger), "run", retried_since)
    end_unexecutable(agent, row, WHY, words)
    assert state_of(agent, release) == "running"
    assert told(agent, "not carried out") == []
    assert [word.act for word in agent.ledger.run_commands(release)] == ["retry"]


def test_a_run_that_hits_a_bug_is_reported_as_halted_once_each_time(
    release: str, agent: AgentContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise KeyError("nothing")

    with monkeypatch.context() as patch:
        patch.setattr(run_driver, "RunDriver", broken)
        patch.setattr(run_driver, "end_unexecutable", broken)
        lane = OpenRuns(agent)
        for _ in range(3):
            lane.resume_open()
            wait_until(lambda: not lane._woken)
    ((summary, detail),) = told(agent, "is stuck")
    assert summary == f"run {release} is stuck: the agent failed unexpectedly on it (KeyError)"
    assert f"headgate runs cancel {release}" in detail
    lane.submit_command(release, OperatorControl("cancel", by="ana"))
    wait_until(lambda: not lane._woken)
    assert state_of(agent, release) == "cancelled"


def test_a_run_with_a_step_of_a_newer_version_can_be_cancelled(release: str, agent: AgentContext, pool: Any) -> None:
    assert drive(at(agent, "before swap running", lambda: end(agent, release)), release) == "failed"
    with sqlite3.connect(agent.ledger.path) as other:
        other.execute("UPDATE plan SET body = '{' WHERE run_id = ?", (release,))
        other.execute("UPDATE step SET do = 'reorder' WHERE run_id = ? AND do = 'stop'", (release,))
    tell(agent, release, "cancel")
    next_agent(agent)
    assert (state_of(agent, release), pool.views) == ("cancelled", SERVING)
    assert sorted(pool.running) == ["a@v1", "b@v1", "c@v1"]
    assert step_of(agent, release, "reorder").state == "cancelled"
