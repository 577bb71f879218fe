"""Starts and restarts interrupted by a kill: the next agent's reconciler establishes the desired state."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import pytest
import small_project
from agent_scenarios import fast_lane, wait_until

from core.model.errors import (
    EngineRefused,
    HeadgateError,
    LedgerUnavailable,
    PoolUnreachable,
    Refused,
    TryAgain,
    UsageError,
)
from core.model.names import TableName
from core.model.states import State
from core.observed.versions import Deployment
from core.plan.request import PlanRequest
from core.ports.spark import ReportedQuery
from core.run.model import OperatorControl
from pipelines.agent.context import AgentContext
from pipelines.agent.reconciler import BeforeRound, Reconciler
from pipelines.agent.runs import run_context, starting_steps
from pipelines.agent.runs.run_context import running_readers
from pipelines.agent.runs.run_driver import OpenRuns, RunDriver
from pipelines.agent.statement_locks import StatementLocks
from pipelines.agent.statements import deployment_lifecycle
from pipelines.agent.statements import statement_control as fast_lane_module
from state.ledger import Ledger
from tests.pipelines.agent.runs import test_run_driver as lane
from tests.pipelines.agent.runs.test_held_runs import HELD
from tests.pipelines.agent.runs.test_run_driver import (
    Killed,
    fast_gates,  # noqa: F401  # A fixture of every test here.
)

C = TableName("c")


@pytest.fixture
def deployed(agent: AgentContext, pool: Any) -> AgentContext:
    assert lane.deploy(agent, pool, small_project.texts()) == "done"
    return agent


def die(*_: Any, **more: Any) -> None:
    raise Killed


def version(agent: AgentContext) -> Deployment:
    found = agent.ledger.deployment(C, 1)
    assert found is not None
    return found


def round_of_the_next_agent(agent: AgentContext, pool: Any) -> None:
    agent.locks = StatementLocks()
    agent.locks.count_above(agent.ledger.newest_serial())
    found: tuple[ReportedQuery, ...] = pool.connection().queries.active()
    Reconciler(agent, fast_lane(agent)._emergency).round(BeforeRound.of(agent), found, ())


CUTS = {
    "before anything is asked": (fast_lane_module.StatementControl, "_begin"),
    "before the effect": (deployment_lifecycle, "_started"),
    "before the evidence": (Ledger, "update_deployment"),
}


@pytest.mark.parametrize("cut", CUTS)
def test_a_start_that_a_kill_has_cut_off_is_carried_out_by_the_next_agent(
    cut: str, deployed: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast_lane(deployed).stop((C,), time.monotonic(), by="ana")
    assert "c@v1" not in pool.running
    with monkeypatch.context() as killed:
        killed.setattr(*CUTS[cut], die)
        with pytest.raises(Killed):
            fast_lane(deployed).start((C,), time.monotonic(), by="ana")
    assert version(deployed).wanted == "running"
    round_of_the_next_agent(deployed, pool)
    found = version(deployed)
    assert (found.state, "c@v1" in pool.running) == ("starting", True)
    assert found.run_id == pool.run_of("c@v1")


@pytest.mark.parametrize("cut", ["before the effect", "after the stop"])
def test_a_restart_that_a_kill_has_cut_off_is_carried_out_by_the_next_agent(
    cut: str, deployed: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as killed:
        where = (fast_lane_module, "start") if cut == "after the stop" else CUTS[cut]
        killed.setattr(*where, die)
        with pytest.raises(Killed):
            fast_lane(deployed).restart((C,), time.monotonic(), by="ana")
    assert "c@v1" not in pool.running
    round_of_the_next_agent(deployed, pool)
    assert (version(deployed).state, "c@v1" in pool.running) == ("starting", True)


def test_a_stop_after_a_start_that_was_cut_off_holds(
    deployed: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast_lane(deployed).stop((C,), time.monotonic(), by="ana")
    with monkeypatch.context() as killed:
        killed.setattr(*CUTS["before the effect"], die)
        with pytest.raises(Killed):
            fast_lane(deployed).start((C,), time.monotonic(), by="ana")
    fast_lane(deployed).stop((C,), time.monotonic(), by="bob")
    round_of_the_next_agent(deployed, pool)
    assert (version(deployed).wanted, "c@v1" in pool.running) == ("stopped", False)


@pytest.fixture
def undeleting(deployed: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[OpenRuns, str]]:
    """A run that restores c, during which the pool is silent when its statement is to be resumed."""

    def away(*_: Any) -> None:
        pool.reachable = False
        raise PoolUnreachable("the pool is silent")

    of_c = {"tables": (C,)}
    deleting = lane.submit(deployed, lane.plan(deployed, small_project.texts(), PlanRequest(verb="delete", **of_c)))
    assert lane.drive(deployed, deleting) == "done"
    run_id = lane.submit(deployed, lane.plan(deployed, small_project.texts(), PlanRequest(verb="undelete", **of_c)))
    runs = OpenRuns(deployed)
    with monkeypatch.context() as silent:
        silent.setattr(deployment_lifecycle, "_started", away)
        runs.drive(run_id)
        wait_until(lambda: not pool.reachable)
    yield runs, run_id
    deployed.stopping.set()
    wait_until(lambda: not runs._woken, 10)
    deployed.stopping.clear()


def test_versions_that_a_cancelled_run_was_to_resume_do_not_start_afterwards(
    undeleting: tuple[OpenRuns, str], deployed: AgentContext, pool: Any
) -> None:
    runs, run_id = undeleting
    runs.submit_command(run_id, OperatorControl("cancel", by="ana"))
    wait_until(lambda: not runs._woken, 10)
    assert (version(deployed).wanted, version(deployed).state) == ("stopped", "stopped")
    assert running_readers(deployed, TableName("a"), 1) == "b@v1"
    pool.reachable = True
    round_of_the_next_agent(deployed, pool)
    assert "c@v1" not in pool.running
    with deployed.ledger._transaction() as later:
        later.execute("UPDATE run SET serial = serial + 1000 WHERE id = ?", (run_id,))
    round_of_the_next_agent(deployed, pool)
    assert "c@v1" not in pool.running, "nor once the run has another serial, or is forgotten"


def stopped_while_the_pool_was_down(agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`headgate down`, a stop of c, and `headgate up`; the row still contains the old query."""
    pool.running.clear()
    for found in agent.ledger.deployments():
        if not found.external:
            agent.ledger.observe_deployment(found, state=State.STOPPED, state_since=1.0)
    stop_that_is_not_confirmed(agent, pool, monkeypatch)
    round_of_the_next_agent(agent, pool)
    lane.settle(agent, pool)
    assert (version(agent).state, version(agent).query_id != "") == ("stopped", True)


def stop_that_is_not_confirmed(agent: AgentContext, pool: Any, _: pytest.MonkeyPatch) -> None:
    pool.refuse_stop["c@v1"] = PoolUnreachable("the pool is silent")
    fast_lane(agent).stop((C,), time.monotonic(), by="bob")
    pool.refuse_stop.clear()


def stopped_after_it_had_failed(agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    del pool.running["c@v1"]
    failed = {"state": "failed", "error": "full", "error_class": "HEADGATE_DISK_FULL"}
    agent.ledger.update_deployment(C, 1, **failed, query_id="", run_id="")
    with monkeypatch.context() as unrecorded:
        unrecorded.setattr(fast_lane_module, "mark_stopped", lambda *_: False)
        fast_lane(agent).stop((C,), time.monotonic(), by="bob")
    assert version(agent).state == "failed"


def cancel_a_restart_that_a_silent_pool_has_cut_off(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> None:
        pool.reachable = False
        raise PoolUnreachable("the pool is silent")

    agent.locks.count_above(agent.ledger.newest_serial())
    filtered = small_project.texts(c="SELECT id, kind FROM STREAM a WHERE id > 1")
    run_id = lane.submit(agent, lane.plan(agent, filtered, PlanRequest(tables=(C,))))
    runs = OpenRuns(agent)
    with monkeypatch.context() as silent:
        silent.setattr(deployment_lifecycle, "_started", away)
        runs.drive(run_id)
        wait_until(lambda: not pool.reachable)
        runs.submit_command(run_id, OperatorControl("cancel", by="ana"))
        wait_until(lambda: not runs._woken, 10)
    row = agent.ledger.run(run_id)
    assert row is not None and row.state == "cancelled"
    pool.reachable = True
    monkeypatch.setattr("pipelines.agent.reconciler.has_space", lambda _: True)
    round_of_the_next_agent(agent, pool)


@pytest.mark.parametrize(
    "stopped", [stopped_while_the_pool_was_down, stop_that_is_not_confirmed, stopped_after_it_had_failed]
)
def test_a_stopped_statement_stays_stopped_after_a_cancel_of_the_run_that_would_restart_it(
    stopped: Any, deployed: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed.locks.count_above(deployed.ledger.newest_serial())
    stopped(deployed, pool, monkeypatch)
    assert version(deployed).wanted == "stopped"
    cancel_a_restart_that_a_silent_pool_has_cut_off(deployed, pool, monkeypatch)
    found = version(deployed)
    assert (found.wanted, found.state, "c@v1" in pool.running) == ("stopped", "stopped", False)


def test_an_operators_restart_that_was_cut_off_is_carried_out_although_a_run_of_the_statement_was_cancelled(
    deployed: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed.locks.count_above(deployed.ledger.newest_serial())
    with monkeypatch.context() as killed:
        killed.setattr(*CUTS["before the effect"], die)
        with pytest.raises(Killed):
            fast_lane(deployed).restart((C,), time.monotonic(), by="bob")
    assert version(deployed).state == "stopping"
    cancel_a_restart_that_a_silent_pool_has_cut_off(deployed, pool, monkeypatch)
    assert (version(deployed).wanted, "c@v1" in pool.running) == ("running", True)


@pytest.fixture
def left(undeleting: tuple[OpenRuns, str], deployed: AgentContext, pool: Any) -> str:
    """The run of an agent that was killed after recording a start and before performing it."""
    runs, run_id = undeleting
    deployed.stopping.set()
    wait_until(lambda: not runs._woken, 10)
    deployed.stopping.clear()
    pool.reachable = True
    return run_id


def test_a_start_that_a_run_has_recorded_is_called_off_once_the_run_has_ended_and_not_before(
    left: str, deployed: AgentContext, pool: Any
) -> None:
    round_of_the_next_agent(deployed, pool)
    assert version(deployed).wanted == "running", "the run goes on, and starts it"
    assert deployed.ledger.advance_run(left, was="running", state="failed", ended_at=2.0, steps=())
    round_of_the_next_agent(deployed, pool)
    assert (version(deployed).wanted, version(deployed).state) == ("stopped", "stopped")
    assert deployed.ledger.events()[0].summary == "stays stopped: the run that was to start it has ended"
    assert running_readers(deployed, TableName("a"), 1) == "b@v1"
    deployed.ledger.retry_run(left, serial=deployed.locks.announce_start(), by="bob", at=3.0)
    assert lane.drive(deployed, left) == "done"
    assert (version(deployed).wanted, "c@v1" in pool.running) == ("running", True)


def test_a_restart_that_is_refused_leaves_what_an_operator_had_stopped_wanted_stopped(
    deployed: AgentContext, pool: Any
) -> None:
    deployed.locks.count_above(deployed.ledger.newest_serial())
    fast_lane(deployed).stop((C,), time.monotonic(), by="ana")
    before = deployed.ledger.latest_command("c@v1")
    filtered = small_project.texts(c="SELECT id, kind FROM STREAM a WHERE id > 1")
    made = lane.plan(deployed, filtered, PlanRequest(tables=(C,)))
    assert [step.do for step in made.steps] == ["restart"]
    run_id = lane.submit(deployed, made)
    del pool.tables["c__v1"]
    pool.refuse_table["c__v1"] = EngineRefused("the metastore is away", error_class="IO")
    assert lane.drive(deployed, run_id) == "failed"
    assert (version(deployed).wanted, version(deployed).state) == ("stopped", "stopped")
    assert deployed.ledger.latest_command("c@v1") == before
    assert lane.drive(deployed, run_id, OperatorControl("cancel", by="ana")) == "cancelled"
    ended = deployed.ledger.events()[0]
    assert (ended.summary, ended.detail) == (
        f"run {run_id} cancelled", "c v1 serves and is stopped: headgate start c starts it",
    )  # fmt: skip


def is_not_there(*_: Any, **__: Any) -> None:
    raise Refused("the checkpoint of c@v1 is not the one it had before")


def each_in_turn(*acts: Callable[..., object]) -> Callable[..., object]:
    """Return a function that performs each act once in turn, and the last one from then on."""
    left = list(acts)
    return lambda *args, **more: (left.pop(0) if len(left) > 1 else left[0])(*args, **more)


def restart_after_a_stop_that_the_pool_did_not_hear(agent: AgentContext, pool: Any) -> str:
    """Restart c, which runs while an operator's stop of it waits for the pool; return the final state of the run."""
    agent.locks.count_above(agent.ledger.newest_serial())
    pool.refuse_stop["c@v1"] = PoolUnreachable("the pool is silent")
    fast_lane(agent).stop((C,), time.monotonic(), by="ana")
    pool.refuse_stop.clear()
    assert (version(agent).wanted, version(agent).state, "c@v1" in pool.running) == ("stopped", "stopping", True)
    filtered = small_project.texts(c="SELECT id, kind FROM STREAM a WHERE id > 1")
    return lane.drive(agent, lane.submit(agent, lane.plan(agent, filtered, PlanRequest(tables=(C,)))))


@pytest.mark.parametrize("error", [PoolUnreachable("the pool is silent"), LedgerUnavailable("the ledger is locked")])
def test_a_restart_that_is_refused_at_its_second_try_leaves_wanted_stopped_what_an_operator_had_stopped(
    error: HeadgateError, deployed: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(starting_steps, "refuse_start", each_in_turn(unavailable, is_not_there))
    assert restart_after_a_stop_that_the_pool_did_not_hear(deployed, pool) == "failed"
    for _ in range(2):
        round_of_the_next_agent(deployed, pool)
    assert (version(deployed).wanted, "c@v1" in pool.running) == ("stopped", False)


def test_a_restart_that_is_refused_is_taken_back_once_the_ledger_takes_that(
    deployed: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(*_: Any) -> None:
        raise LedgerUnavailable("the ledger is locked by another program")

    monkeypatch.setattr(starting_steps, "refuse_start", is_not_there)
    monkeypatch.setattr(Ledger, "take_back", each_in_turn(locked, Ledger.take_back))
    assert restart_after_a_stop_that_the_pool_did_not_hear(deployed, pool) == "failed"
    round_of_the_next_agent(deployed, pool)
    assert (version(deployed).wanted, "c@v1" in pool.running) == ("stopped", False)


@pytest.mark.parametrize("word", ["", "pause", "cancel"])
def test_a_restart_that_its_run_gives_up_leaves_wanted_stopped_what_an_operator_had_stopped(
    word: str, deployed: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = replace(deployed, monotonic=partial(next, count(0.0, 500.0)))

    def away(*_: Any, **__: Any) -> None:
        (run,) = deployed.ledger.open_runs()
        if word and not deployed.ledger.run_commands(run.id):
            deployed.ledger.put_run_command(run.id, OperatorControl(word, by="ana"), at=1.0)  # type: ignore[arg-type]  # One.
        raise PoolUnreachable("the pool is silent")

    def wait(driver: RunDriver) -> None:
        driver._agent.stopping.set()

    monkeypatch.setattr(RunDriver, "_wait", wait)
    with monkeypatch.context() as patched:
        patched.setattr(starting_steps, "refuse_start", away)
        ended = restart_after_a_stop_that_the_pool_did_not_hear(silent, pool)
    deployed.stopping.clear()
    assert ended == {"": "failed", "pause": "paused", "cancel": "cancelled"}[word]
    for _ in range(2):
        round_of_the_next_agent(deployed, pool)
    assert (version(deployed).wanted, "c@v1" in pool.running) == ("stopped", False)


def test_a_restart_that_is_refused_after_a_retry_leaves_running_what_an_operator_has_started_before_it(
    deployed: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast_lane(deployed).stop((C,), time.monotonic(), by="ana")
    filtered = small_project.texts(c="SELECT id, kind FROM STREAM a WHERE id > 1")
    made = lane.plan(deployed, filtered, PlanRequest(tables=(C,)))
    run = run_context.RunContext(deployed, made, lane.submit(deployed, made))
    monkeypatch.setattr(starting_steps, "refuse_start", each_in_turn(die, is_not_there))
    with pytest.raises(Killed):
        starting_steps.restart(run, made.steps[0])
    fast_lane(deployed).start((C,), time.monotonic(), by="bob")
    with deployed.ledger._transaction() as retried:
        retried.execute("UPDATE run SET serial = ? WHERE id = ?", (deployed.locks.announce_start(), run.id))
    with pytest.raises(Refused):
        starting_steps.restart(run, made.steps[0])
    assert (version(deployed).wanted, "c@v1" in pool.running) == ("running", True)


def test_a_restart_counts_as_begun_even_if_its_checkpoint_cannot_be_read_afterwards(
    deployed: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, begin = type(deployed.files).read, run_context.RunContext.start_unless_stopped

    def away(*_: Any) -> None:
        monkeypatch.setattr(type(deployed.files), "read", read)
        raise TryAgain("the data folder cannot be reached")

    def begin_and_lose_the_folder(*args: Any, **more: Any) -> Any:
        begun = begin(*args, **more)
        monkeypatch.setattr(type(deployed.files), "read", away)
        return begun

    monkeypatch.setattr(run_context.RunContext, "start_unless_stopped", begin_and_lose_the_folder)
    filtered = small_project.texts(c="SELECT id, kind FROM STREAM a WHERE id > 1")
    made = lane.plan(deployed, filtered, PlanRequest(tables=(C,)))
    assert lane.drive(deployed, lane.submit(deployed, made)) == "done"
    assert "WHERE" in pool.running["c@v1"].select


def test_a_held_version_whose_start_was_interrupted_is_started_before_the_confirmation(
    deployed: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rebuilt = small_project.texts(a="SELECT id, upper(kind) AS kind FROM STREAM landed")
    held = lane.submit(deployed, lane.plan(deployed, rebuilt, HELD))

    def waits_for_the_word() -> bool:
        row = deployed.ledger.run(held)
        return row is not None and any((step.do, step.state) == ("hold", "gate") for step in row.steps)

    runs = OpenRuns(deployed)
    runs.drive(held)
    wait_until(waits_for_the_word, 10)
    deployed.stopping.set()
    wait_until(lambda: not runs._woken, 10)
    deployed.stopping.clear()
    fast_lane(deployed).stop(("c@v2",), time.monotonic(), by="bob")
    assert lane.drive(deployed, held) == "failed"
    deployed.ledger.retry_run(held, serial=deployed.locks.announce_start(), by="bob", at=1.0)
    with monkeypatch.context() as killed:
        killed.setattr(run_context, "start", die)
        with pytest.raises(Killed):
            lane.drive(deployed, held)
    assert "c@v2" not in pool.running
    runs = OpenRuns(deployed)
    runs.resume_open()
    wait_until(lambda: waits_for_the_word() and "c@v2" in pool.running, 10)
    deployed.stopping.set()
    wait_until(lambda: not runs._woken, 10)


def test_no_run_continues_one_whose_cancel_was_accepted(deployed: AgentContext, pool: Any) -> None:
    pool.refuse["b@v2"] = EngineRefused("no such column", error_class="UNRESOLVED_COLUMN")
    rebuilt = small_project.texts(a="SELECT id, upper(kind) AS kind FROM STREAM landed")
    request = PlanRequest(tables=(TableName("a"),), rebuild=True, children="all")
    failed = lane.submit(deployed, lane.plan(deployed, rebuilt, request))
    assert lane.drive(deployed, failed) == "failed"
    deployed.ledger.put_run_command(failed, OperatorControl("cancel", by="ana"), at=1.0)
    with pytest.raises(UsageError, match=f"run {failed} is being cancelled by ana"):
        lane.submit(deployed, lane.plan(deployed, rebuilt, replace(request, continues=failed)))


@pytest.fixture
def unreadable_once_started(deployed: AgentContext, monkeypatch: pytest.MonkeyPatch) -> AgentContext:
    """An environment in which a checkpoint's folder cannot be reached while the start of its query is recorded."""
    unreachable: set[str] = deployed.files.unreachable  # type: ignore[attr-defined]  # Scripted.
    recorded = deployment_lifecycle._record_start

    def record(agent: AgentContext, deployment: Deployment, query: ReportedQuery) -> None:
        unreachable.add(deployment.checkpoint)
        try:
            recorded(agent, deployment, query)
        finally:
            unreachable.discard(deployment.checkpoint)

    monkeypatch.setattr(deployment_lifecycle, "_record_start", record)
    return deployed


def test_an_operators_start_is_done_though_its_checkpoint_cannot_be_read_afterwards(
    unreadable_once_started: AgentContext, pool: Any
) -> None:
    agent = unreadable_once_started
    fast_lane(agent).stop((C,), time.monotonic(), by="bob")
    (came,) = fast_lane(agent).start((C,), time.monotonic(), by="ana")
    assert (came.outcome, version(agent).wanted) == ("started, first batch pending", "running")
    assert "c@v1" in pool.running


def test_a_step_that_starts_is_done_though_its_checkpoint_cannot_be_read_afterwards(
    unreadable_once_started: AgentContext, pool: Any
) -> None:
    agent = unreadable_once_started
    texts = small_project.texts(c="SELECT id, upper(kind) AS kind FROM STREAM a")
    run_id = lane.submit(agent, lane.plan(agent, texts, PlanRequest(tables=(C,), rebuild=True)))
    lane.drive(agent, run_id)
    run = agent.ledger.run(run_id)
    assert run is not None and "c@v2" in pool.running
    assert {step.state for step in run.steps if step.do == "start"} == {"done"}


def test_an_automatic_start_holds_even_if_its_checkpoint_cannot_be_read_afterwards(
    unreadable_once_started: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = unreadable_once_started
    del pool.running["c@v1"]
    full = {"error_class": "HEADGATE_DISK_FULL", "error": "full", "query_id": "", "run_id": ""}
    agent.ledger.update_deployment(C, 1, state="failed", **full)
    monkeypatch.setattr("pipelines.agent.reconciler.has_space", lambda _: True)
    for _ in range(2):
        round_of_the_next_agent(agent, pool)
        assert "c@v1" in pool.running
