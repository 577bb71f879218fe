"""After a cancelled run, the ledger knows everything that is half done, even if an agent was killed."""

from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

import pytest
import small_project
from agent_scenarios import wait_until

from core.model.errors import Busy, EngineRefused, LedgerUnavailable, TryAgain
from core.model.names import TableName as T
from core.observed.versions import Binding, Deployment
from core.plan.request import PlanRequest
from core.run.model import OperatorControl
from pipelines.agent.context import AgentContext
from pipelines.agent.housekeeping import stop_soaked
from pipelines.agent.identity import registry_records
from pipelines.agent.identity.registry_records import RegistryRecords
from pipelines.agent.runs import cancelled_run_cleanup, stop_and_trash_steps
from pipelines.agent.runs.run_driver import OpenRuns
from pipelines.storage.data_folder_records import SERVING_FILE, read_record
from state.ledger import Ledger
from tests.pipelines.agent.runs.test_commands_during_runs import REBUILD, SERVING, UPPER, at, state_of, step_of
from tests.pipelines.agent.runs.test_run_driver import (
    Killed,
    deploy,
    drive,
    fast_gates,  # noqa: F401  # A fixture of every test here.
    picture,
    plan,
    submit,
    unreadable,
)

CANCEL = OperatorControl("cancel")
DELETE_C = PlanRequest(verb="delete", tables=(T("c"),))


@dataclass
class DieAt:
    """Fault points that kill at the first label containing certain words."""

    at: str

    def pass_by(self, label: str) -> None:
        if " ".join(word for word in label.split() if not word.isdigit()) == self.at:
            raise Killed(label)


def dies(*_: Any, **__: Any) -> Any:
    raise Killed("in the middle of a step")


def killed(agent: AgentContext, run_id: str, where: str = "") -> None:
    with pytest.raises(Killed):
        drive(replace(agent, faults=DieAt(where)), run_id)  # type: ignore[arg-type]  # Kills.


def at_rest(agent: AgentContext, pool: Any) -> dict[str, Any]:
    """Return everything except actual and desired states, because a cancelled delete leaves its statement stopped."""
    found = picture(agent, pool)
    rows = [(table, version, active) for table, version, _, active, _ in found["deployments"]]
    return {**found, "deployments": rows, "running": [], "aside": dict(agent.files.aside)}  # type: ignore[attr-defined]


def test_a_delete_cancelled_while_the_ledger_rejects_its_tombstone_is_reverted(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, pool, small_project.texts())
    before = at_rest(agent, pool)
    run_id = submit(agent, plan(agent, small_project.texts(), DELETE_C))
    tried = []

    def locked(*_: Any, **__: Any) -> None:
        tried.append(agent.files.aside)  # type: ignore[attr-defined]  # Scripted.
        raise LedgerUnavailable("the ledger is locked by another program")

    monkeypatch.setattr(Ledger, "tombstone", locked)
    lane = OpenRuns(agent)
    lane.drive(run_id)
    wait_until(lambda: bool(tried))
    lane.submit_command(run_id, CANCEL)
    wait_until(lambda: state_of(agent, run_id) == "cancelled")
    assert at_rest(agent, pool) == before


@pytest.mark.parametrize("verb", ["delete", "undelete"])
@pytest.mark.parametrize("error", [TryAgain("the data folder cannot be reached"), Busy("c@v1 is held by the purge")])
def test_a_pending_revert_keeps_a_cancelled_run_open(
    error: TryAgain, verb: str, agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, pool, small_project.texts())
    if verb == "undelete":
        assert drive(agent, submit(agent, plan(agent, small_project.texts(), DELETE_C))) == "done"
    before = at_rest(agent, pool)
    run_id = submit(agent, plan(agent, small_project.texts(), replace(DELETE_C, verb=verb)))
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "tombstone" if verb == "delete" else "restore", dies)
        killed(agent, run_id)
    tried = []

    def away(*_: Any) -> None:
        tried.append(True)
        raise error

    lane = OpenRuns(agent)
    with monkeypatch.context() as patched:
        patched.setattr(type(agent.files), "put_back" if verb == "delete" else "set_aside", away)
        lane.submit_command(run_id, CANCEL)
        wait_until(lambda: len(tried) > 1)
        assert state_of(agent, run_id) != "cancelled"
    wait_until(lambda: state_of(agent, run_id) == "cancelled" and not lane._woken)
    assert at_rest(agent, pool) == before


def test_a_delete_moves_nothing_while_the_ledger_is_not_writable(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, pool, small_project.texts())
    run_id = submit(agent, plan(agent, small_project.texts(), DELETE_C))
    tried = []

    def locked(*_: Any, **__: Any) -> None:
        tried.append(True)
        raise LedgerUnavailable("the ledger is locked by another program")

    monkeypatch.setattr(Ledger, "heartbeat", locked)
    lane = OpenRuns(agent)
    lane.drive(run_id)
    wait_until(lambda: bool(tried))
    assert agent.files.aside == {} and "c__v1" in pool.tables  # type: ignore[attr-defined]  # Scripted.
    lane.submit_command(run_id, CANCEL)
    wait_until(lambda: state_of(agent, run_id) == "cancelled")


@pytest.mark.parametrize("plan_is", ["readable", "missing"])
@pytest.mark.parametrize("where", ["tombstone", "before tombstone running", "evidence unpoint"])
def test_a_delete_cancelled_after_a_kill_is_reverted(
    where: str, plan_is: str, agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, pool, small_project.texts())
    before = at_rest(agent, pool)
    run_id = submit(agent, plan(agent, small_project.texts(), DELETE_C))
    with monkeypatch.context() as patched:
        if where == "tombstone":
            patched.setattr(Ledger, where, dies)
        killed(agent, run_id, where)
    assert "c" not in pool.views
    if plan_is == "missing":
        monkeypatch.setattr(Ledger, "plan", lambda *_: None)
    lane = OpenRuns(agent)
    lane.submit_command(run_id, CANCEL)
    wait_until(lambda: state_of(agent, run_id) == "cancelled" and not lane._woken)
    assert at_rest(agent, pool) == before


@pytest.mark.parametrize("where", ["files", "catalog"])
def test_an_undelete_that_is_cancelled_after_a_kill_leaves_all_in_the_trash(
    where: str, agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, pool, small_project.texts())
    assert drive(agent, submit(agent, plan(agent, small_project.texts(), DELETE_C))) == "done"
    before = at_rest(agent, pool)
    run_id = submit(agent, plan(agent, small_project.texts(), PlanRequest(verb="undelete", tables=(T("c"),))))
    with monkeypatch.context() as patched:
        if where == "files":
            patched.setattr("pipelines.agent.runs.stop_and_trash_steps.register_again", dies)
        else:
            patched.setattr(Ledger, "restore", dies)
        killed(agent, run_id)
    assert at_rest(agent, pool) != before
    assert drive(agent, run_id, CANCEL) == "cancelled"
    assert at_rest(agent, pool) == before


@pytest.mark.parametrize("at", [1, 2])
def test_a_cancelled_undelete_of_a_clone_leaves_its_base_in_the_trash(
    at: int, agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, pool, small_project.texts())
    deploy(agent, pool, UPPER, REBUILD)
    agent.ledger.update_deployment(T("a"), 2, clone_of=1)
    every = PlanRequest(verb="delete", tables=(T("a"), T("b"), T("c")))
    assert drive(agent, submit(agent, plan(agent, UPPER, every))) == "done"
    before, again = at_rest(agent, pool), stop_and_trash_steps.register_again
    run_id = submit(agent, plan(agent, UPPER, PlanRequest(verb="undelete", tables=(T("a"),))))

    def refused(agent: AgentContext, pool: Any, deployment: Deployment) -> None:
        if (deployment.table, deployment.version) == ("a", at):
            raise EngineRefused("the metastore refuses it")
        again(agent, pool, deployment)

    with monkeypatch.context() as patched:
        patched.setattr(stop_and_trash_steps, "register_again", refused)
        assert drive(agent, run_id) == "failed"
    assert at_rest(agent, pool) != before
    assert drive(agent, run_id, CANCEL) == "cancelled"
    assert at_rest(agent, pool) == before


def test_a_swap_that_is_cancelled_before_the_ledger_has_it_is_not_recorded_as_serving(
    agent: AgentContext, pool: Any
) -> None:
    deploy(agent, pool, small_project.texts())
    run_id = submit(agent, plan(agent, UPPER, REBUILD))
    killed(agent, run_id, "swap commit")
    assert drive(agent, run_id, CANCEL) == "cancelled"
    found = read_record(agent.layout.data, SERVING_FILE)
    assert found is not None and (found.row, found.count) == ({"a": 1, "b": 1, "c": 1}, agent.ledger.facts().served)
    assert pool.views == SERVING


def test_the_serving_version_after_a_cancel_is_recorded_later_if_the_data_folder_is_full(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, pool, small_project.texts())
    records = RegistryRecords(agent)
    run_id = submit(agent, plan(agent, UPPER, REBUILD))
    killed(agent, run_id, "before swap running")
    records.round()
    killed(agent, run_id, "swap commit")

    def full(*_: Any) -> None:
        raise TryAgain("no space left on the device")

    with monkeypatch.context() as patched:
        patched.setattr(cancelled_run_cleanup, "record_serving", full)
        assert drive(agent, run_id, CANCEL) == "cancelled"
    assert serving(agent) == {"a": 2, "b": 2, "c": 2} and pool.views == SERVING
    with monkeypatch.context() as patched, pytest.raises(TryAgain):
        patched.setattr(registry_records, "write_record", full)
        records.round()
    records.round()
    assert serving(agent) == {"a": 1, "b": 1, "c": 1}


def serving(agent: AgentContext) -> dict[str, Any]:
    found = read_record(agent.layout.data, SERVING_FILE)
    assert found is not None
    return dict(found.row)


def test_a_swap_whose_record_fails_for_longer_than_a_pool_is_waited_for_is_recorded_once_the_ledger_is_back(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, pool, small_project.texts())
    run_id = submit(agent, plan(agent, UPPER, REBUILD))
    locked, heartbeat, activate = [True], Ledger.heartbeat, Ledger.activate

    def back(ledger: Ledger, at: float) -> None:
        locked.clear()
        heartbeat(ledger, at)

    def refused(ledger: Ledger, *given: Any, **more: Any) -> None:
        if locked:
            raise LedgerUnavailable("the ledger is locked by another program")
        activate(ledger, *given, **more)

    monkeypatch.setattr(Ledger, "heartbeat", back)
    monkeypatch.setattr(Ledger, "activate", refused)
    assert drive(replace(agent, monotonic=partial(next, count(0.0, 500.0))), run_id) == "done"
    assert {d.table: d.version for d in agent.ledger.deployments() if d.active and d.version} == dict.fromkeys("abc", 2)
    assert pool.views == {"a": "a__v2", "b": "b__v2", "c": "c__v2"}


def test_a_swap_that_is_paused_before_the_ledger_has_it_leaves_pointers_and_record_as_they_were(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, pool, small_project.texts())
    run_id = submit(agent, plan(agent, UPPER, REBUILD))

    def refused(*_: Any, **__: Any) -> None:
        raise LedgerUnavailable("the ledger is locked by another program")

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "activate", refused)
        lane = OpenRuns(at(agent, "swap commit", lambda: lane.submit_command(run_id, OperatorControl("pause"))))
        lane.drive(run_id)
        wait_until(lambda: state_of(agent, run_id) == "paused")
        assert step_of(agent, run_id, "swap").state == "waits"
    found = read_record(agent.layout.data, SERVING_FILE)
    assert pool.views == SERVING and found is not None and found.row == {"a": 1, "b": 1, "c": 1}
    lane.submit_command(run_id, OperatorControl("resume"))
    wait_until(lambda: state_of(agent, run_id) == "done")
    assert pool.views == {"a": "a__v2", "b": "b__v2", "c": "c__v2"}


def rolled_back_half(agent: AgentContext, pool: Any) -> str:
    """Rebuild, begin a rollback until the former versions run, and die."""
    deploy(agent, pool, small_project.texts())
    deploy(agent, pool, UPPER, REBUILD)
    run_id = submit(agent, plan(agent, UPPER, PlanRequest(verb="rollback", tables=(T("a"),))))
    killed(agent, run_id, "before swap running")
    assert {"a@v1", "b@v1", "c@v1"} <= pool.running.keys()
    return run_id


def read_by_another(agent: AgentContext, pool: Any, parent: str) -> None:
    """Deploy a statement of another product that reads a former version."""
    c = agent.ledger.deployment(T("c"), 1)
    assert c is not None
    reads = (Binding(T(parent), 1, True),)
    late = replace(c, table=T("late"), active=True, wanted="running", bindings=reads, checkpoint="/c/late__v1")
    agent.ledger.put_deployment(late)
    pool.running["late@v1"] = pool.running["c@v1"]


def test_a_cancelled_rollback_stops_what_it_has_resumed(agent: AgentContext, pool: Any) -> None:
    run_id = rolled_back_half(agent, pool)
    assert drive(agent, run_id, CANCEL) == "cancelled"
    assert sorted(pool.running) == ["a@v2", "b@v2", "c@v2"]


def test_a_cancelled_rollback_keeps_a_version_that_another_statement_now_reads(agent: AgentContext, pool: Any) -> None:
    run_id = rolled_back_half(agent, pool)
    read_by_another(agent, pool, "a")
    assert drive(agent, run_id, CANCEL) == "cancelled"
    assert sorted(pool.running) == ["a@v1", "a@v2", "b@v2", "c@v2", "late@v1"]
    kept = agent.ledger.deployment(T("a"), 1)
    assert kept is not None and kept.wanted == "running"
    stop_soaked(agent)
    assert state_wanted(agent, "a", 1) == "running", "it is still read"
    late = agent.ledger.deployment(T("late"), 1)
    assert late is not None
    agent.ledger.put_deployment(replace(late, active=False, wanted="stopped"))
    stop_soaked(agent)
    assert state_wanted(agent, "a", 1) == "stopped"


def state_wanted(agent: AgentContext, table: str, version: int) -> str:
    found = agent.ledger.deployment(T(table), version)
    assert found is not None
    return found.wanted


def test_a_run_whose_plan_cannot_be_read_puts_back_what_its_swap_has_moved(agent: AgentContext, pool: Any) -> None:
    run_id, lane = unreadable(agent, pool, "missing")
    row = agent.ledger.run(run_id)
    assert row is not None
    for step in row.steps:
        if step.do in ("catch_up", "validate"):
            agent.ledger.put_step(run_id, replace(step, state="done", tries=1))
        elif step.do == "swap":
            agent.ledger.put_step(run_id, replace(step, state="running", tries=1))
    pool.tables.update({f"{table}__v2": "" for table in "abc"})
    pool.views.update(a="a__v2", b="b__v2")
    lane.submit_command(run_id, CANCEL)
    wait_until(lambda: state_of(agent, run_id) == "cancelled" and not lane._woken)
    assert pool.views == SERVING
