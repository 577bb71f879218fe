"""Releases under faults: a full disk, a silent pool, two operators, failing versions, invalid checks."""

import errno
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import small_project
from agent_scenarios import stop_by_operator, wait_until

from core.model.errors import TryAgain, UsageError
from core.model.names import TableName as T
from core.observed.versions import Measurement
from core.run.model import OperatorControl
from pipelines.agent.context import AgentContext
from pipelines.agent.reconciler import BeforeRound, Reconciler
from pipelines.agent.runs import pointer_steps, run_driver, step_executor
from pipelines.agent.runs.catch_up_gate import CatchUpGate, GateReading
from pipelines.agent.runs.compared_versions import LedgerVersions
from pipelines.agent.runs.version_comparison import VersionComparison
from pipelines.storage import data_folder_records
from state.emergency_journal import EmergencyJournal
from tests.pipelines.agent import conftest
from tests.pipelines.agent.runs import test_run_driver as lane
from tests.pipelines.agent.runs.test_held_runs import begun as held
from tests.pipelines.agent.runs.test_held_runs import ended, hold_of, row_of
from tests.pipelines.agent.runs.test_pointer_moves import BEFORE, REBUILD, UPPER, begun, cut_off, said, serving


@pytest.fixture(autouse=True)
def fast_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (step_executor, pointer_steps):
        monkeypatch.setattr(module, "CatchUpGate", lane.OpenGate)
    monkeypatch.setattr(run_driver, "POLL_S", 0.001)


def retried(agent: AgentContext, run_id: str) -> str:
    """Carry out `runs retry` as the command handler begins it."""
    agent.ledger.retry_run(run_id, serial=agent.locks.announce_start())
    return lane.drive(agent, run_id, OperatorControl("retry"))


def test_a_full_disk_while_recording_a_swap_leaves_no_pointer_moved(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = begun(agent, pool)
    real = data_folder_records.write_json

    def full(path: str, value: Any) -> None:
        if path.endswith("/_serving.json"):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, value)

    with monkeypatch.context() as patch:
        patch.setattr(data_folder_records, "write_json", full)
        assert lane.drive(agent, run_id) == "failed"
    assert pool.views == BEFORE == serving(agent)
    assert "no pointer has moved" in said(agent, run_id)
    assert lane.drive(agent, run_id, OperatorControl("retry")) == "done"
    assert pool.views == serving(agent) != BEFORE


def test_pointers_that_a_silent_pool_did_not_move_back_move_when_it_answers(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run_id = begun(agent, pool)
    with monkeypatch.context() as patch:
        patch.setattr(run_driver, "POOL_WAIT_S", 0.0)
        patch.setattr(conftest._Tables, "swap", cut_off(conftest._Tables.swap))
        assert lane.drive(agent, run_id) == "failed"
    pool.reachable = False
    assert lane.drive(agent, run_id, OperatorControl("cancel")) == "cancelled"
    pool.reachable = True
    reconciler = Reconciler(agent, EmergencyJournal(tmp_path / "e.jsonl"))
    for _ in range(3):
        reconciler.round(BeforeRound.of(agent), pool.connection().queries.active(), ())
        reconciler.catalog._register_at = 0.0
    assert pool.views == BEFORE == serving(agent)


def test_a_version_that_failed_after_it_was_started_is_started_again_by_a_retry(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, real, gate = begun(agent, pool), lane.OpenGate.check, CatchUpGate(0.0)
    fails = ["b"]

    def look(asked: Any, agent: AgentContext, deployment: Any) -> GateReading:
        started = [step.state for step in row_of(agent, run_id).steps if (step.do, step.table) == ("start", "b")]
        if started != ["done"]:
            return GateReading(False, "not yet")
        if deployment.table in fails:
            fails.clear()
            pool.running.pop("b@v2")
            agent.ledger.update_deployment(T("b"), 2, state="failed", error_class="OOM", error="no memory")
        now = agent.ledger.deployment(deployment.table, deployment.version)
        assert now is not None
        why = gate._why_cannot_catch_up(now, agent.monotonic())
        return GateReading(False, why, failed=True) if why else real(asked, agent, now)

    monkeypatch.setattr(lane.OpenGate, "check", look)
    assert lane.drive(agent, run_id) == "failed"
    assert lane.drive(agent, run_id, OperatorControl("retry")) == "done" and "b@v2" in pool.running


def test_a_failed_release_does_not_swap_over_a_newer_one(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = begun(agent, pool)
    with monkeypatch.context() as patch:
        patch.setattr(lane.OpenGate, "check", lambda *_: GateReading(False, "lost rows", failed=True))
        assert lane.drive(agent, run_id) == "failed"
    other = small_project.texts(a="SELECT id, lower(kind) AS kind FROM STREAM landed")
    assert lane.drive(agent, lane.submit(agent, lane.plan(agent, other, REBUILD))) == "done"
    newer = dict(pool.views)
    assert retried(agent, run_id) == "failed" and "@v3 serves meanwhile" in said(agent, run_id)
    assert pool.views == newer == serving(agent)


def test_a_version_that_caught_up_a_day_ago_is_measured_again_before_the_swap(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane.deploy(agent, pool, small_project.texts())
    _, run_id, driven = held(agent)
    monkeypatch.setattr(pointer_steps, "CatchUpGate", CatchUpGate)

    def measured(ago_s: float) -> None:
        at = agent.clock() - ago_s
        agent.ledger.put_measurements([Measurement(T(name), 2, at, batch=7, lag_files=0, lag_rows=0) for name in "abc"])

    measured(86_400)
    lane.settle(agent, pool)
    driven.submit_command(run_id, OperatorControl("swap", by="bob"))
    wait_until(lambda: hold_of(agent, run_id) == "done" and "measured" in swap_note(agent, run_id))
    assert set(pool.views.values()) == {"a__v1", "b__v1", "c__v1"}
    measured(0)
    assert ended(agent, run_id) == "done" and set(pool.views.values()) == {"a__v2", "b__v2", "c__v2"}


def swap_note(agent: AgentContext, run_id: str) -> str:
    return " ".join(step.note for step in row_of(agent, run_id).steps if step.do == "swap")


@pytest.mark.parametrize("words", ["swap cancel", "cancel swap", "pause swap cancel", "swap swap"])
def test_words_of_two_operators_at_once_leave_pointers_as_the_ledger_has_them(
    words: str, agent: AgentContext, pool: Any
) -> None:
    lane.deploy(agent, pool, small_project.texts())
    _, run_id, driven = held(agent)
    for word in words.split():
        # No commands are accepted after a cancel.
        with suppress(UsageError):
            agent.ledger.put_run_command(run_id, OperatorControl(word, by="bob"), at=1.0)
    driven.wake(run_id)
    assert ended(agent, run_id) == ("cancelled" if "cancel" in words else "done")
    # The replaced versions are soaking.
    wait_until(lambda: len(pool.running) == (3 if "cancel" in words else 6))
    assert pool.views == serving(agent)


def test_an_operators_stop_of_the_serving_version_fails_the_hold_and_moves_no_pointer(
    agent: AgentContext, pool: Any
) -> None:
    lane.deploy(agent, pool, small_project.texts())
    _, run_id, _ = held(agent)
    stop_by_operator(agent, pool, "b").join(10)
    assert ended(agent, run_id) == "failed"
    assert set(pool.views.values()) == {"a__v1", "b__v1", "c__v1"} and "b@v1" not in pool.running


CHECKS = {
    "unreadable": "SELEC * FROM a",
    "drops": "SELECT * FROM a WHERE id < 0; DROP TABLE a",
    "inserts": "INSERT INTO a SELECT * FROM a",
}


@pytest.mark.parametrize("name", list(CHECKS))
def test_a_check_that_cannot_be_read_or_writes_blocks_and_is_never_sent(
    name: str, agent: AgentContext, pool: Any
) -> None:
    lane.deploy(agent, pool, small_project.texts())
    new = agent.ledger.deployment(T("a"), 1)
    assert new is not None
    texts = replace(new.texts, yml=f"checks: [{{name: {name}, sql: '{CHECKS[name]}'}}]\n")
    comparison = VersionComparison(agent, LedgerVersions(agent.ledger))
    with comparison.turn():
        found = comparison.check(replace(new, texts=texts), 1, {T("a"): "a__v1"})
    assert [(each.check, each.verdict) for each in found] == [(f"check {name}", "failed")]
    assert not pool.compared


def test_a_check_that_does_not_end_is_named_and_keeps_what_was_compared(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane.deploy(agent, pool, small_project.texts())
    real = conftest._Tables.read_files

    def read(tables: Any, sql: str, *more: Any) -> Any:
        if "< 0" in sql:
            raise TryAgain("the query did not end within 285 s")
        return real(tables, sql, *more)

    monkeypatch.setattr(conftest._Tables, "read_files", read)
    yml = "checks: [{name: endless, sql: 'SELECT * FROM a WHERE id < 0'}]\n"
    files = small_project.texts(a=UPPER) | {"pipelines/facts/p/a/a.yml": yml}
    run_id = lane.submit(agent, lane.plan(agent, files, replace(REBUILD, children="none")))
    assert lane.drive(agent, run_id) == "failed"
    note = next(step.note for step in row_of(agent, run_id).steps if step.do == "validate")
    assert note.startswith("check endless: the query did not end within 285 s")
    assert {found.check: found.verdict for found in agent.ledger.check_results(run_id)}["differences"] == "ok"
