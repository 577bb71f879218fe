"""Effects after their deadline: matched with their request, and awaited by the next operation."""

import time
from pathlib import Path
from typing import Any

import pytest
import small_project
from agent_scenarios import fast_lane
from ledger_rows import deployment_row

from core.model.act_outcomes import ActResult
from core.model.actions import StepKind
from core.model.errors import Busy, PoolUnreachable
from core.model.names import TableName
from core.observed.versions import Deployment
from core.plan.model import Step
from pipelines.agent.context import AgentContext
from pipelines.agent.reconciler import BeforeRound, Reconciler
from pipelines.agent.runs import starting_steps
from pipelines.agent.runs.step_executor import StepExecutor
from state.emergency_journal import EmergencyJournal
from tests.pipelines.agent.runs.test_run_driver import (
    EVERYTHING,
    deploy,
    drive,
    fast_gates,  # noqa: F401  # A fixture of every test here.
    plan,
    submit,
)

C = TableName("c")
FILTERED = "SELECT id, kind FROM STREAM a WHERE id > 1"


@pytest.fixture
def reconciler(agent: AgentContext, tmp_path: Path) -> Reconciler:
    return Reconciler(agent, EmergencyJournal(tmp_path / "emergency.jsonl"))


def reconcile(reconciler: Reconciler) -> None:
    before = BeforeRound.of(reconciler.agent)
    reconciler.round(before, reconciler.agent.pools.default.connection().queries.active(), ())


def row(agent: AgentContext, table: TableName = C) -> Deployment:
    found = agent.ledger.deployment(table, 1)
    assert found is not None
    return found


@pytest.fixture
def late(agent: AgentContext, pool: Any, reconciler: Reconciler) -> Any:
    """An environment in which the start of c, whose query was lost with its session, has missed its deadline."""
    deploy(agent, pool, small_project.texts())
    del pool.running["c@v1"]
    pool.late.append("start")
    with pytest.raises(PoolUnreachable):
        reconcile(reconciler)
    (call,) = pool.overdue
    return call


def restart_of_c(agent: AgentContext) -> tuple[StepExecutor, Step]:
    made = plan(agent, small_project.texts(c=FILTERED), EVERYTHING)
    (step,) = [step for step in made.steps if step.do is StepKind.RESTART]
    return StepExecutor(agent, made, submit(agent, made)), step


def test_no_step_changes_the_text_of_a_version_whose_start_may_still_take_effect(
    late: Any, agent: AgentContext, pool: Any
) -> None:
    steps, restart = restart_of_c(agent)
    before = row(agent)
    with pytest.raises(Busy, match="c@v1 waits for the end of a call that the pool has not answered in time"):
        steps.perform(restart)
    assert row(agent) == before
    late.arrive()
    steps.perform(restart)
    assert pool.running["c@v1"].select == row(agent).compiled and "WHERE" in row(agent).compiled


def test_an_unrecorded_late_start_is_not_mistaken_for_the_start_of_the_new_text(
    late: Any, agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    late.give_up()
    taken_over = starting_steps.take_over_texts

    def arrives(run: Any, step: Any) -> None:
        taken_over(run, step)
        late.arrive_unheard()

    monkeypatch.setattr(starting_steps, "take_over_texts", arrives)
    assert drive(agent, submit(agent, plan(agent, small_project.texts(c=FILTERED), EVERYTHING))) == "done"
    assert pool.running["c@v1"].select == row(agent).compiled and "WHERE" in row(agent).compiled


def test_a_late_start_that_matches_the_ledger_is_found_and_not_repeated(
    late: Any, agent: AgentContext, pool: Any, reconciler: Reconciler
) -> None:
    many = len(pool.starts)
    reconcile(reconciler)
    assert len(pool.starts) == many, "nobody knows yet what came of it"
    late.arrive()
    reconcile(reconciler)
    assert len(pool.starts) == many + 1 and row(agent).run_id == pool.run_of("c@v1")


@pytest.mark.parametrize("state", ["running", "pending", "failed"])
def test_a_query_under_an_unrecorded_run_is_stopped(
    state: str, agent: AgentContext, pool: Any, reconciler: Reconciler
) -> None:
    """Another agent requested the query with older SQL, and was killed."""
    deploy(agent, pool, small_project.texts())
    before = pool.running.pop("c@v1")
    run_id = "" if state == "failed" else row(agent).run_id
    agent.ledger.update_deployment(C, 1, compiled="SELECT 2", state=state, run_id=run_id)
    pool.begin(before)
    reconcile(reconciler)
    begun = [query.select for name, query in pool.running.items() if name == "c@v1"]
    assert begun == ([] if state == "failed" else ["SELECT 2"])
    events = agent.ledger.events()
    said = [event for event in events if "a run id that was not recorded" in f"{event.summary} {event.detail}"]
    assert len(said) == 1
    reconcile(reconciler)
    assert row(agent).run_id == ("" if state == "failed" else pool.run_of("c@v1"))


def test_a_stop_is_not_confirmed_while_a_start_may_still_come_and_holds_when_it_has(
    late: Any, agent: AgentContext, pool: Any, reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.agent.statements.statement_control.HOLDER_S", 0.0)
    monkeypatch.setattr("pipelines.agent.statements.statement_control.STOP_S", 0.0)
    (outcome,) = fast_lane(agent).stop((C,), time.monotonic(), by="bob")
    assert outcome.result is ActResult.SENT
    late.arrive()
    reconcile(reconciler)
    assert "c@v1" not in pool.running and (row(agent).wanted, row(agent).state) == ("stopped", "stopped")


def test_a_late_start_of_a_version_that_was_deleted_since_is_stopped_and_an_unknown_query_is_not(
    agent: AgentContext, pool: Any, reconciler: Reconciler
) -> None:
    deploy(agent, pool, small_project.texts())
    gone = deployment_row("c", version=7, active=False, wanted="stopped", state="stopped")
    agent.ledger.put_deployment(gone)
    agent.ledger.tombstone(C, 7, drop_after=9e9, trash="/trash/c")
    for name in ("c@v7", "theirs"):
        pool.running[name] = pool.running["c@v1"]
    reconcile(reconciler)
    assert "c@v7" not in pool.running and "theirs" in pool.running
    said = {event.summary for event in agent.ledger.events() if event.kind in ("pool", "state")}
    assert "a query of a deleted version was active: it was stopped" in said
    assert "query 'theirs' is running in our session but is not in the registry" in said
    agent.ledger.purged(C, 7, 1.0)
    pool.running["c@v7"] = pool.running["c@v1"]
    reconcile(reconciler)
    assert "c@v7" not in pool.running
