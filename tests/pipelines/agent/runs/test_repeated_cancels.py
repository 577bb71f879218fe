"""A repeated cancel: each version is given up at most once, and a later start of such a version holds."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import small_project
from agent_scenarios import fast_lane, wait_until

from core.model.errors import Busy, LedgerUnavailable
from core.model.names import TableName, query_name
from core.observed.versions import Binding
from core.run.model import OperatorControl
from pipelines.agent.context import AgentContext
from pipelines.agent.runs import run_ends
from pipelines.agent.runs.run_driver import OpenRuns
from pipelines.agent.statement_locks import StatementLocks
from state.operator_commands import CommandStamp
from state.registry import TableAct
from tests.pipelines.agent.runs.test_commands_during_runs import REBUILD, UPPER, at, state_of, tell
from tests.pipelines.agent.runs.test_run_driver import (
    deploy,
    fast_gates,  # noqa: F401  # A fixture of every test here.
    plan,
    submit,
    unreadable,
)

SERVING = dict.fromkeys(("a@v1", "b@v1", "c@v1"), "running")


def cancelled(agent: AgentContext, run_id: str) -> None:
    """Drive a run until it is cancelled and all its clean-up is done."""
    lane = OpenRuns(agent)
    lane.drive(run_id)
    wait_until(lambda: not lane._woken)
    assert state_of(agent, run_id) == "cancelled"


def wanted(agent: AgentContext) -> dict[str, str]:
    return {query_name(d.table, d.version): str(d.wanted) for d in agent.ledger.deployments() if not d.external}


class HeldTwice:
    """Makes another actor hold a@v2 during the first two tries of a cancel; the other versions are given up first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, after_each: Callable[[], object]) -> None:
        self.left = 2
        holding = StatementLocks.holding

        def hold(locks: StatementLocks, *versions: Any, by: str, **more: Any) -> Any:
            if by == "a cancel" and versions == ((TableName("a"), 2),) and self.left:
                self.left -= 1
                after_each()
                raise Busy("a@v2 is held by what bob has started")
            return holding(locks, *versions, by=by, **more)

        monkeypatch.setattr(StatementLocks, "holding", hold)


def test_a_cancel_that_is_tried_again_leaves_running_what_an_operator_has_started_after_it(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, pool, small_project.texts())
    run_id = submit(agent, plan(agent, UPPER, REBUILD))
    started: list[str] = []

    def start() -> None:
        if not started:
            assert wanted(agent)["c@v2"] == "stopped"
            started.extend(each.outcome for each in fast_lane(agent).start(("c@v2",), time.monotonic(), by="ana"))

    held = HeldTwice(monkeypatch, start)
    cancelled(at(agent, "before swap running", lambda: tell(agent, run_id, "cancel")), run_id)
    assert (started, held.left) == (["started, first batch pending"], 0)
    # a@v2 also continues, because c@v2 reads it.
    assert sorted(pool.running) == sorted([*SERVING, "a@v2", "c@v2"])
    assert wanted(agent) == {**SERVING, "a@v2": "running", "b@v2": "stopped", "c@v2": "running"}


def test_a_cancel_stops_what_an_operator_had_started_before_it(agent: AgentContext, pool: Any) -> None:
    deploy(agent, pool, small_project.texts())
    run_id = submit(agent, plan(agent, UPPER, REBUILD))

    def start_then_cancel() -> None:
        fast_lane(agent).restart(("c@v2",), time.monotonic(), by="ana")
        tell(agent, run_id, "cancel")

    cancelled(at(agent, "before swap running", start_then_cancel), run_id)
    assert sorted(pool.running) == [*SERVING]


def test_a_cancel_stops_starts_accepted_before_it_and_recorded_after_it(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, pool, small_project.texts())
    run_id = submit(agent, plan(agent, UPPER, REBUILD))

    def cancel_while_a_start_waits_for_its_version() -> None:
        ana = CommandStamp(agent.locks.announce_start(), "ana", 1.0)
        with monkeypatch.context() as unheard:
            unheard.setattr(OpenRuns, "wake", lambda *_: None)
            OpenRuns(agent).submit_command(run_id, OperatorControl("cancel", by="bob"))
        assert agent.ledger.want_running(TableName("c"), 2, ana, TableAct("a start by ana", 1.0))

    cancelled(at(agent, "before swap running", cancel_while_a_start_waits_for_its_version), run_id)
    assert sorted(pool.running) == [*SERVING] and wanted(agent)["c@v2"] == "stopped"


def test_a_cancel_that_is_repeated_stops_what_an_operator_has_started_between(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, pool, small_project.texts())
    run_id = submit(agent, plan(agent, UPPER, REBUILD))

    def start_and_cancel_again() -> None:
        fast_lane(agent).start(("c@v2",), time.monotonic(), by="ana")
        tell(agent, run_id, "cancel")

    HeldTwice(monkeypatch, start_and_cancel_again)
    cancelled(at(agent, "before swap running", lambda: tell(agent, run_id, "cancel")), run_id)
    assert sorted(pool.running) == [*SERVING]


def test_a_repeated_cancel_reports_once_what_continues_to_run(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, pool, small_project.texts())
    run_id = submit(agent, plan(agent, UPPER, REBUILD))

    def cancel() -> None:
        # The serving version already reads c@v2.
        bound = Binding(TableName("c"), 2, streamed=True)
        agent.ledger.update_deployment(TableName("b"), 1, bindings=(bound,))
        tell(agent, run_id, "cancel")

    held = HeldTwice(monkeypatch, lambda: None)
    cancelled(at(agent, "before swap running", cancel), run_id)
    told = [
        event.count for event in agent.ledger.events() if event.summary == "keeps running after a cancel: b@v1 reads it"
    ]
    assert (told, held.left) == ([1], 0)


def test_a_cancel_of_a_run_that_cannot_be_read_leaves_running_what_was_started_after_it(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, _ = unreadable(agent, pool, "missing")
    tell(agent, run_id, "cancel")
    undo, started = run_ends.undo_cancelled, []

    def start_once(*given: Any) -> None:
        if not started:
            ana = CommandStamp(agent.locks.announce_start(), "ana", 1.0)
            started.append(agent.ledger.want_running(TableName("c"), 2, ana, TableAct("a start by ana", 1.0)))
            raise LedgerUnavailable("the ledger is locked")
        undo(*given)

    monkeypatch.setattr(run_ends, "undo_cancelled", start_once)
    cancelled(agent, run_id)
    assert started == [True] and wanted(agent)["c@v2"] == "running"
