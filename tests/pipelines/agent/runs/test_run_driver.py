"""Runs against a scripted pool: finished, failed and retried, overtaken, and killed at every point."""

import copy
import json
import shutil
import sqlite3
import threading
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import small_project
from agent_scenarios import one_pool, stop_by_operator, wait_until
from ledger_rows import plan_row, run_row

from core.model.errors import EngineRefused, HeadgateError, LedgerUnavailable, Refused, StoreUnreachable
from core.model.names import TableName
from core.model.states import State, WantedState
from core.plan.model import Plan
from core.plan.request import PlanRequest
from core.planner.planner import make_plan
from core.run.model import IllegalTransition, OperatorControl
from core.run.records import RunRow, StepRow
from core.run.state_machine import GatePolled
from pipelines.agent.context import AgentContext
from pipelines.agent.runs import pointer_steps, run_driver, step_executor
from pipelines.agent.runs.catch_up_gate import GateReading
from pipelines.agent.runs.run_driver import OpenRuns, RunDriver
from state.ledger import LedgerReader, create_or_open
from state.planner_input_from_registry import observe

EVERYTHING = PlanRequest(everything=True, children="all")


class Killed(BaseException):
    """Raised when the agent is killed."""


@dataclass
class KillAt:
    """Fault points that kill at the n-th pass, or only count."""

    at: int = 0
    passed: int = 0

    def pass_by(self, label: str) -> None:
        self.passed += 1
        if self.passed == self.at:
            raise Killed(label)


@dataclass
class OpenGate:
    """A gate over an empty backlog that opens at its second check; like `CatchUpGate`, only for a running version."""

    opened_at: float
    must_read_all_input: bool = False
    looks: int = 0

    def check(self, agent: AgentContext, deployment: Any) -> GateReading:
        self.looks += 1
        if deployment.state == State.FAILED or deployment.deleted or deployment.wanted == WantedState.STOPPED:
            return GateReading(False, f"it is {deployment.state}, wanted {deployment.wanted}", failed=True)
        return GateReading(self.looks > 1 and deployment.state == State.RUNNING, "lag 0")

    @staticmethod
    def why_closed(agent: AgentContext, deployment: Any) -> str:
        return "" if deployment.state == State.RUNNING else f"it is {deployment.state}"


@pytest.fixture(autouse=True)
def fast_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_executor, "CatchUpGate", OpenGate)
    monkeypatch.setattr(pointer_steps, "CatchUpGate", OpenGate)
    monkeypatch.setattr(run_driver, "POLL_S", 0.001)


def plan(agent: AgentContext, files: dict[str, str], request: PlanRequest) -> Plan:
    seen = observe(agent.ledger.deployments(include_deleted=True), taken=agent.ledger.taken_versions())
    made = make_plan(small_project.project(files), "dev", seen, request)
    assert not made.refusals, made.refusals
    return made


def submit(agent: AgentContext, made: Plan, reads: tuple[TableName, ...] = ()) -> str:
    run_id = f"run-{made.hash[:6]}"
    agent.ledger.put_plan(plan_row(made))
    steps = tuple(StepRow(n=s.n, do=s.do.value, table=s.table, version=s.version, state="waits") for s in made.steps)
    serial = agent.locks.announce_start()
    run = run_row(made.hash, id=run_id, steps=steps, continues=made.request.continues, serial=serial)
    agent.ledger.apply_plan(made.hash, run, reads=reads, now=2.0)
    return run_id


def drive(agent: AgentContext, run_id: str, *words: OperatorControl) -> str:
    for word in words:
        agent.ledger.put_run_command(run_id, word, at=1.0)
    row = agent.ledger.run(run_id)
    assert row is not None
    RunDriver(agent, row, threading.Event()).drive()
    row = agent.ledger.run(run_id)
    assert row is not None
    return row.state


def settle(agent: AgentContext, pool: Any) -> None:
    """Write what the reconciler writes about running queries."""
    for deployment in agent.ledger.deployments():
        if f"{deployment.table}@v{deployment.version}" in pool.running:
            agent.ledger.update_deployment(deployment.table, deployment.version, state="running")


def deploy(agent: AgentContext, pool: Any, files: dict[str, str], request: PlanRequest = EVERYTHING) -> str:
    state = drive(agent, submit(agent, plan(agent, files, request)))
    settle(agent, pool)
    return state


def picture(agent: AgentContext, pool: Any) -> dict[str, Any]:
    """Return everything observable that a run leaves behind."""
    return {
        "running": sorted(pool.running),
        "views": dict(pool.views),
        "tables": sorted(pool.tables),
        "folders": sorted(Path(folder).name for folder in agent.files.folders),  # type: ignore[attr-defined]  # Scripted.
        "deployments": sorted(
            (d.table, d.version, d.wanted, d.active, d.revision[:6]) for d in agent.ledger.deployments()
        ),
    }


def test_a_first_deploy_starts_everything_and_points_to_it(agent: AgentContext, pool: Any) -> None:
    assert deploy(agent, pool, small_project.texts()) == "done"
    assert pool.starts == ["a@v1", "b@v1", "c@v1"]
    assert pool.views == {"a": "a__v1", "b": "b__v1", "c": "c__v1"}
    assert plan(agent, small_project.texts(), EVERYTHING).empty


def test_a_rebuild_runs_beside_the_old_version_and_keeps_it_for_children_left_behind(
    agent: AgentContext, pool: Any
) -> None:
    deploy(agent, pool, small_project.texts())
    changed = small_project.texts(a="SELECT id, upper(kind) AS kind FROM STREAM landed")
    assert deploy(agent, pool, changed, PlanRequest(tables=(TableName("a"),), rebuild=True)) == "done"
    assert sorted(pool.running) == ["a@v1", "a@v2", "b@v2", "c@v1"]
    assert pool.views == {"a": "a__v2", "b": "b__v2", "c": "c__v1"}


def test_a_refused_start_blocks_its_readers_and_the_run_continues_after_the_fix(agent: AgentContext, pool: Any) -> None:
    pool.refuse["a@v1"] = EngineRefused("no such column", error_class="UNRESOLVED_COLUMN")
    run_id = submit(agent, plan(agent, small_project.texts(), EVERYTHING))
    assert drive(agent, run_id) == "failed"
    row = agent.ledger.run(run_id)
    assert row is not None
    assert {s.table for s in row.steps if s.state == "blocked"} == {"a", "b", "c"}
    assert pool.running == {}
    del pool.refuse["a@v1"]
    assert drive(agent, run_id, OperatorControl("retry")) == "done"
    assert sorted(pool.running) == ["a@v1", "b@v1", "c@v1"]


def test_a_stop_that_overtakes_a_start_wins(agent: AgentContext, pool: Any) -> None:
    run_id = submit(agent, plan(agent, small_project.texts(), EVERYTHING))
    real = agent.files.read

    def stopped_meanwhile(folder: str) -> Any:
        if agent.ledger.deployment(TableName("b"), 1) and folder.endswith("b__v1"):
            stop_by_operator(agent, pool, "b")
        return real(folder)

    agent.files.read = stopped_meanwhile  # type: ignore[method-assign]  # An operator's stop at the worst moment.
    assert drive(agent, run_id) == "failed"
    assert "b@v1" not in pool.running
    assert "c@v1" in pool.running


def test_cancel_leaves_what_serves_as_it_was(agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy(agent, pool, small_project.texts())
    before = dict(pool.views)
    monkeypatch.setattr(OpenGate, "check", lambda *_: GateReading(False, "lost rows", failed=True))
    changed = small_project.texts(b="SELECT id, upper(kind) AS kind FROM STREAM a")
    run_id = submit(agent, plan(agent, changed, PlanRequest(tables=(TableName("b"),), rebuild=True)))
    assert drive(agent, run_id) == "failed"
    assert drive(agent, run_id, OperatorControl("cancel")) == "cancelled"
    assert (pool.views, "b@v1" in pool.running, "b@v2" in pool.running) == (before, True, False)


def test_a_rollback_counts_the_rows_in_the_versions_that_it_takes_out_of_service(
    agent: AgentContext, pool: Any
) -> None:
    deploy(agent, pool, small_project.texts())
    changed = small_project.texts(a="SELECT id, upper(kind) AS kind FROM STREAM landed")
    deploy(agent, pool, changed, PlanRequest(tables=(TableName("a"),), rebuild=True, children="all"))
    agent.files.emitted.update(a__v2=1234, b__v2=0)  # type: ignore[attr-defined]  # Scripted.
    run_id = submit(agent, plan(agent, changed, PlanRequest(verb="rollback", tables=(TableName("a"),))))
    assert drive(agent, run_id) == "done"
    row = agent.ledger.run(run_id)
    assert row is not None
    assert {step.table: step.note for step in row.steps if step.do == "stop"} == {
        "a": "rows emitted by v2 since the swap stay in a__v2: 1,234",
        "b": "rows emitted by v2 since the swap stay in b__v2: 0",
        "c": "rows emitted by v2 since the swap stay in c__v2: not counted",
    }


WRONG = EngineRefused("no such column: knd", error_class="UNRESOLVED_COLUMN")
BROKEN = "SELECT id, upper(knd) AS kind FROM STREAM a"
FIXED = "SELECT id, upper(kind) AS kind FROM STREAM a"


def go_on(
    agent: AgentContext, pool: Any, files: dict[str, str], failed: str, request: PlanRequest = EVERYTHING
) -> Plan:
    """Plan the continuation of a failed run, with the fix in the files, and drive it to its end."""
    pool.refuse.clear()
    settle(agent, pool)
    made = plan(agent, files, replace(request, continues=failed))
    assert drive(agent, submit(agent, made)) == "done"
    settle(agent, pool)
    after = agent.ledger.run(failed)
    assert after is not None and after.continued_by == f"run-{made.hash[:6]}"
    return made


def test_a_fix_continues_with_the_versions_made_by_a_failed_rebuild(agent: AgentContext, pool: Any) -> None:
    deploy(agent, pool, small_project.texts())
    upper = "SELECT id, upper(kind) AS kind FROM STREAM landed"
    rebuild = PlanRequest(tables=(TableName("a"),), rebuild=True, children="all")
    pool.refuse["b@v2"] = WRONG
    failed = submit(agent, plan(agent, small_project.texts(a=upper, b=BROKEN), rebuild))
    assert drive(agent, failed) == "failed"
    assert {"a@v2", "c@v2"} <= set(pool.running)
    pool.starts.clear()
    made = go_on(agent, pool, small_project.texts(a=upper, b=FIXED), failed, rebuild)
    assert pool.starts == ["b@v3"], "what the failed run had started is used, not made again"
    assert pool.views == {"a": "a__v2", "b": "b__v3", "c": "c__v2"}
    assert sorted(pool.running) == ["a@v2", "b@v3", "c@v2"]
    assert "b__v2" not in pool.tables
    assert [step.do for step in made.steps if step.table == "a"] == ["catch_up", "validate", "stop"]
    assert plan(agent, small_project.texts(a=upper, b=FIXED), EVERYTHING).empty


def test_a_version_that_was_stopped_meanwhile_is_started_again_on_its_checkpoint(
    agent: AgentContext, pool: Any
) -> None:
    deploy(agent, pool, small_project.texts())
    rebuild = PlanRequest(tables=(TableName("a"),), rebuild=True, children="all")
    pool.refuse["b@v2"] = WRONG
    failed = submit(agent, plan(agent, small_project.texts(b=BROKEN), rebuild))
    assert drive(agent, failed) == "failed"
    del pool.running["a@v2"]
    agent.ledger.update_deployment(TableName("a"), 2, wanted="stopped", state="stopped")
    made = go_on(agent, pool, small_project.texts(b=FIXED), failed, rebuild)
    assert [step.do for step in made.steps if step.table == "a"][:2] == ["resume", "catch_up"]
    assert sorted(pool.running) == ["a@v2", "b@v3", "c@v2"]


def test_a_first_start_with_wrong_sql_leaves_nothing_behind_after_the_fix(agent: AgentContext, pool: Any) -> None:
    pool.refuse["b@v1"] = WRONG
    failed = submit(agent, plan(agent, small_project.texts(b=BROKEN.replace("STREAM a", "STREAM landed")), EVERYTHING))
    assert drive(agent, failed) == "failed"
    made = go_on(agent, pool, small_project.texts(b=FIXED), failed)
    assert {node.table: str(node.action) for node in made.nodes} == {
        "landed": "keep", "a": "keep", "b": "start", "c": "keep",
    }  # fmt: skip
    assert sorted(pool.running) == ["a@v1", "b@v2", "c@v1"]
    assert pool.views["b"] == "b__v2"
    assert "b__v1" not in pool.tables
    assert [d.version for d in agent.ledger.deployments() if d.table == "b"] == [2]


def test_a_delete_sets_nothing_aside_that_a_new_reader_keeps_running(agent: AgentContext, pool: Any) -> None:
    deploy(agent, pool, small_project.texts())
    run_id = submit(agent, plan(agent, small_project.texts(), PlanRequest(verb="delete", everything=True)))
    c = agent.ledger.deployment(TableName("c"), 1)
    assert c is not None
    agent.ledger.put_deployment(replace(c, table=TableName("late"), active=True))
    assert drive(agent, run_id) == "failed"
    assert "a@v1" in pool.running and "a__v1" in pool.tables
    assert not {"b@v1", "c@v1"} & pool.running.keys()


def test_taking_the_edit_back_sets_aside_what_the_failed_run_made(agent: AgentContext, pool: Any) -> None:
    deploy(agent, pool, small_project.texts())
    pool.refuse["b@v2"] = WRONG
    failed = submit(agent, plan(agent, small_project.texts(b="SELECT id, kind FROM STREAM landed"), EVERYTHING))
    assert drive(agent, failed) == "failed"
    before = dict(pool.views)
    made = go_on(agent, pool, small_project.texts(), failed)
    assert {str(step.do) for step in made.steps} == {"stop", "tombstone"}
    assert pool.views == before
    assert sorted(pool.running) == ["a@v1", "b@v1", "c@v1"]
    assert sorted(name for name in pool.tables if "v2" in name) == []


def test_a_run_is_continued_once_and_only_after_it_failed(agent: AgentContext, pool: Any) -> None:
    pool.refuse["b@v1"] = WRONG
    failed = submit(agent, plan(agent, small_project.texts(b=BROKEN), EVERYTHING))
    assert drive(agent, failed) == "failed"
    made = go_on(agent, pool, small_project.texts(b=FIXED), failed)
    again = plan(agent, small_project.texts(b=BROKEN), replace(EVERYTHING, continues=failed))
    with pytest.raises(Refused, match="was continued by run"):
        submit(agent, again)
    other = plan(agent, small_project.texts(b=BROKEN), replace(EVERYTHING, continues=f"run-{made.hash[:6]}"))
    with pytest.raises(Refused, match="is done"):
        submit(agent, other)


class KeptAgent:
    """A snapshot of a scripted environment (ledger, data folder, pool and files) from which tests start again."""

    def __init__(self, agent: AgentContext, folder: Path) -> None:
        self._agent, self._kept, self._facts = agent, folder, agent.ledger.facts()
        self._doubles = copy.deepcopy((agent.pools.default.client, agent.files))
        Path(agent.layout.data).mkdir(exist_ok=True)
        shutil.copytree(agent.layout.data, folder / "data")
        with closing(LedgerReader(agent.ledger.path)) as reader:
            reader.copy_to(folder / "ledger.db")

    def again(self, folder: Path) -> AgentContext:
        """Start again from the snapshot, with the ledger in a new folder and the data folder restored."""
        folder.mkdir()
        shutil.copy(self._kept / "ledger.db", folder)
        shutil.rmtree(self._agent.layout.data)
        shutil.copytree(self._kept / "data", self._agent.layout.data)
        pool, files = copy.deepcopy(self._doubles)
        ledger = create_or_open(folder / "ledger.db", self._facts)
        return replace(self._agent, ledger=ledger, pools=one_pool(pool), files=files)


CHANGED = small_project.texts(a="SELECT id, upper(kind) AS kind FROM STREAM landed")
SEQUENCE = (
    (small_project.texts(), EVERYTHING),
    (CHANGED, PlanRequest(tables=(TableName("a"),), rebuild=True)),
    (CHANGED, PlanRequest(verb="delete", tables=(TableName("b"),))),
)
"""A first deploy, a rebuild and a delete."""


def is_killed(agent: AgentContext, files: dict[str, str], request: PlanRequest, faults: KillAt) -> bool:
    """Carry out a request, with a new agent after a kill, and return whether it was killed."""
    run_id, killed = submit(agent, plan(agent, files, request)), False
    try:
        state = drive(replace(agent, faults=faults), run_id)  # type: ignore[arg-type]  # Counts and kills.
    except Killed:
        killed, state = True, drive(agent, run_id)
    assert state == "done"
    settle(agent, agent.pools.default.client)
    return killed


@pytest.mark.drill
@pytest.mark.parametrize("third", [0, *(pytest.param(n, marks=[pytest.mark.drill, pytest.mark.long]) for n in (1, 2))])
def test_a_kill_at_any_point_ends_in_the_same_world(third: int, tmp_path: Path, agent: AgentContext, pool: Any) -> None:
    """A third of the points is tried when long tests are left out."""
    kept: list[tuple[KeptAgent, int]] = []
    for number, each in enumerate(SEQUENCE):
        before, counting = KeptAgent(agent, tmp_path / f"before {number}"), KillAt()
        is_killed(agent, *each, counting)
        kept.append((before, counting.passed))
    expected = picture(agent, pool)
    assert sum(points for _, points in kept) > 100
    for number, (before, points) in enumerate(kept):
        for point in range(1 + third, points + 1, 3):
            fresh, faults = before.again(tmp_path / f"{number}.{point}"), KillAt(point)
            kills = [is_killed(fresh, *each, faults) for each in SEQUENCE[number:]]
            assert kills == [True] + [False] * (len(kills) - 1), (number, point)
            assert picture(fresh, fresh.pools.default.client) == expected, (number, point)
            fresh.ledger.close()


def waits_for_ever(run: Any, step: Any) -> GatePolled:
    return GatePolled(step.n, "first batch pending")


def start_of(agent: AgentContext, run_id: str) -> StepRow:
    row = agent.ledger.run(run_id)
    assert row is not None
    return next(step for step in row.steps if step.do == "start")


def taken_up_after_a_kill(agent: AgentContext, monkeypatch: pytest.MonkeyPatch) -> tuple[str, int]:
    """End an agent while the first start of a run waits for its batch; return the run's id and the step's number."""
    monkeypatch.setattr(step_executor.starting_steps, "check_started", waits_for_ever)
    run_id = submit(agent, plan(agent, small_project.texts(), EVERYTHING))
    before = OpenRuns(agent)
    before.drive(run_id)
    wait_until(lambda: start_of(agent, run_id).state == "gate")
    agent.stopping.set()
    wait_until(lambda: not before._woken)
    agent.stopping.clear()
    return run_id, start_of(agent, run_id).n


def test_a_skip_before_a_new_agent_repeats_the_start_is_carried_out(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, n = taken_up_after_a_kill(agent, monkeypatch)
    lane = OpenRuns(agent)
    lane.submit_command(run_id, OperatorControl("skip", n, "ana"))
    wait_until(lambda: start_of(agent, run_id).state == "skipped")
    lane.submit_command(run_id, OperatorControl("cancel"))
    wait_until(lambda: not lane._woken)


def test_a_skip_that_is_too_late_is_refused_with_the_reason(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, n = taken_up_after_a_kill(agent, monkeypatch)
    pool.running.clear()
    pool.refuse["a@v1"] = EngineRefused("no such column", error_class="UNRESOLVED_COLUMN")
    assert drive(agent, run_id, OperatorControl("skip", n, "ana")) == "failed"
    said = [event.summary for event in agent.ledger.events() if "was not skipped" in event.summary]
    assert said == [f"step {n} of run {run_id}, start {start_of(agent, run_id).table}, was not skipped: it is failed"]


def test_the_plan_in_the_ledger_is_the_plan_that_runs(agent: AgentContext) -> None:
    made = plan(agent, small_project.texts(), EVERYTHING)
    submit(agent, made)
    row = agent.ledger.plan(made.hash)
    assert row is not None
    assert json.loads(row.body)["hash"] == made.hash


def test_a_ledger_that_is_locked_for_a_moment_fails_no_step(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, refused = type(agent.ledger).put_deployment, iter([True, True, False])

    def locked(ledger: Any, deployment: Any) -> None:
        if next(refused, False):
            raise LedgerUnavailable("the ledger is locked by another program")
        real(ledger, deployment)

    monkeypatch.setattr(type(agent.ledger), "put_deployment", locked)
    assert deploy(agent, pool, small_project.texts()) == "done"
    assert sorted(pool.running) == ["a@v1", "b@v1", "c@v1"]


def test_a_store_that_does_not_answer_for_a_moment_fails_no_step(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, silent = type(agent.files).prepare, iter([True, True, False])

    def prepare(files: Any, *given: Any) -> None:
        if next(silent, False):
            raise StoreUnreachable("the name node does not answer in time")
        real(files, *given)

    monkeypatch.setattr(type(agent.files), "prepare", prepare)
    assert deploy(agent, pool, small_project.texts()) == "done"
    assert sorted(pool.running) == ["a@v1", "b@v1", "c@v1"]


@pytest.mark.parametrize("outage", [LedgerUnavailable, StoreUnreachable])
def test_a_gate_that_cannot_be_measured_for_a_moment_keeps_its_count(
    outage: type[HeadgateError], agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, pool, small_project.texts())
    looked = OpenGate.check

    def locked(gate: OpenGate, *given: Any) -> GateReading:
        if gate.looks == 1:
            gate.looks += 1
            raise outage("it does not answer")
        return looked(gate, *given)

    monkeypatch.setattr(OpenGate, "check", locked)
    assert deploy(agent, pool, small_project.texts(), PlanRequest(tables=(TableName("b"),), rebuild=True)) == "done"
    assert pool.starts.count("b@v2") == 1


@pytest.mark.parametrize("where", ["_perform", "poll"])
def test_our_own_bug_fails_its_step_and_is_not_repeated_forever(
    where: str, agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise KeyError("nothing")

    deploy(agent, pool, small_project.texts())
    monkeypatch.setattr(step_executor.StepExecutor, where, fail)
    run_id = submit(agent, plan(agent, small_project.texts(), PlanRequest(tables=(TableName("b"),), rebuild=True)))
    assert drive(agent, run_id) == "failed"
    row = agent.ledger.run(run_id)
    assert row is not None and any(
        "the agent failed unexpectedly on this step (KeyError)" in step.note for step in row.steps
    )


def unreadable(agent: AgentContext, pool: Any, plan_is: str) -> tuple[str, OpenRuns]:
    """Leave an open run of a rebuild at its gate, with a plan that no Headgate version can read."""
    deploy(agent, pool, small_project.texts())
    request = PlanRequest(tables=(TableName("a"),), rebuild=True, children="all")
    run_id = submit(
        agent, plan(agent, small_project.texts(a="SELECT id, upper(kind) AS kind FROM STREAM landed"), request)
    )
    row = agent.ledger.run(run_id)
    assert row is not None
    for step in row.steps:
        state = "done" if step.do in ("create", "start") else "gate" if step.do == "catch_up" else "waits"
        agent.ledger.put_step(run_id, replace(step, state=state))
        if step.do == "start":
            old = agent.ledger.deployment(TableName(step.table), 1)
            assert old is not None
            checkpoint = f"/c/{step.table}__v2"
            new = replace(old, version=2, active=False, state="running", checkpoint=checkpoint)
            agent.ledger.put_deployment(new)
            pool.running[f"{step.table}@v2"] = pool.running[f"{step.table}@v1"]
    with sqlite3.connect(agent.ledger.path) as ledger:
        ledger.execute({
            "missing": "UPDATE run SET plan_hash = 'gone' WHERE id = ?",
            "of another version": "UPDATE plan SET body = '{\"format\": \"headgate.plan/9\"}' WHERE run_id = ?",
            "no JSON": "UPDATE plan SET body = '{' WHERE run_id = ?",
        }[plan_is], (run_id,))  # fmt: skip
    return run_id, OpenRuns(agent)


def ended(agent: AgentContext, run_id: str) -> RunRow:
    """Return the row of a run once its thread has ended."""
    wait_until(lambda: not any(thread.name == f"run {run_id}" for thread in threading.enumerate()))
    row = agent.ledger.run(run_id)
    assert row is not None
    return row


PLANS = ["missing", "of another version", "no JSON"]


@pytest.mark.parametrize("plan_is", PLANS)
def test_a_run_whose_plan_cannot_be_read_ends_failed_with_its_error_and_frees_its_tables(
    plan_is: str, agent: AgentContext, pool: Any
) -> None:
    run_id, lane = unreadable(agent, pool, plan_is)
    lane.resume_open()
    row = ended(agent, run_id)
    assert row.state == "failed" and row.ended_at is not None
    (failed,) = [step for step in row.steps if step.state == "failed"]
    assert failed.note.startswith("the agent cannot execute this run: ")
    assert agent.ledger.open_runs() == (), "no round takes it up again"
    assert "a@v2" in pool.running, "nothing is stopped unasked"


@pytest.mark.parametrize("plan_is", PLANS)
def test_a_run_whose_plan_cannot_be_read_can_be_cancelled(plan_is: str, agent: AgentContext, pool: Any) -> None:
    run_id, lane = unreadable(agent, pool, plan_is)
    lane.resume_open()
    ended(agent, run_id)
    lane.submit_command(run_id, OperatorControl("cancel"))
    row = ended(agent, run_id)
    assert row.state == "cancelled" and row.ended_at is not None
    assert sorted(pool.running) == ["a@v1", "b@v1", "c@v1"], "what serves goes on, what the run started does not"
    assert {step.state for step in row.steps} <= {"done", "cancelled"}


@pytest.mark.parametrize("word", [None, OperatorControl("cancel")])
def test_a_run_with_an_unreadable_plan_has_swapped_what_the_registry_records(
    word: OperatorControl | None, agent: AgentContext, pool: Any
) -> None:
    run_id, lane = unreadable(agent, pool, "of another version")
    row = agent.ledger.run(run_id)
    assert row is not None
    swap = next(step for step in row.steps if step.do == "swap")
    agent.ledger.put_step(run_id, replace(swap, state="running", tries=1))
    agent.ledger.activate({TableName(name): 2 for name in "abc"}, by=run_id, at=agent.clock())
    lane.resume_open() if word is None else lane.submit_command(run_id, word)
    row = ended(agent, run_id)
    assert next(step for step in row.steps if step.do == "swap").state == "done"
    assert {"a@v2", "b@v2", "c@v2"} <= pool.running.keys()


def test_a_run_that_hits_a_bug_is_not_restarted_every_second(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise IllegalTransition("step 1: done → waits")

    run_id = submit(agent, plan(agent, small_project.texts(), EVERYTHING))
    monkeypatch.setattr(run_driver, "advance_run", broken)
    OpenRuns(agent).resume_open()
    assert ended(agent, run_id).state == "failed" and agent.ledger.open_runs() == ()
