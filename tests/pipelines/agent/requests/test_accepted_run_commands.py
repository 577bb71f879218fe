"""Commands to a run that an agent has accepted: the next agent processes each of them once, in order."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import small_project
from agent_scenarios import fast_lane, wait_until

from core.model.errors import EngineRefused, LedgerUnavailable, Refused, UsageError
from core.run.model import ACCEPTED_IN, OperatorControl
from pipelines.agent.context import AgentContext
from pipelines.agent.measurements.table_statistics_collector import TableStatisticsCollector
from pipelines.agent.requests.command_handler import CommandHandler
from pipelines.agent.requests.run_controls import journal_retry
from pipelines.agent.requests.socket_server import Caller
from pipelines.agent.runs import pointer_steps, run_driver, step_executor
from pipelines.agent.runs.run_driver import OpenRuns
from pipelines.spark_connect.query_progress import PoolUtilization
from state.ledger import Ledger
from tests.pipelines.agent.runs import test_run_driver as lane
from tests.pipelines.agent.runs.test_commands_during_runs import REBUILD, SERVING, UPPER, state_of
from tests.pipelines.agent.runs.test_held_runs import HELD

CALLER = Caller(1, os.getuid(), None)
SWAPPED = {"a": "a__v2", "b": "b__v2", "c": "c__v2"}


@pytest.fixture(autouse=True)
def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (step_executor, pointer_steps):
        monkeypatch.setattr(module, "CatchUpGate", lane.OpenGate)
    monkeypatch.setattr(run_driver, "POLL_S", 0.001)


class DiesAfterItsAnswers(OpenRuns):
    """A driver of runs whose agent is killed after it answers and before a run reads the command."""

    def wake(self, run_id: str) -> None:
        return


def asked(agent: AgentContext, run_id: str, *acts: str, runs: type[OpenRuns] = DiesAfterItsAnswers) -> None:
    """Send commands on a run to the agent's desk."""
    figures = TableStatisticsCollector(agent, PoolUtilization())
    handler = CommandHandler(agent, fast_lane(agent), runs(agent), figures, lambda **asked: None)
    for act in acts:
        confirm = f"dev {run_id[:4]}" if act == "swap" else run_id[:4]
        handler.handle(CALLER, {"op": "run", "args": {"id": run_id, "act": act}, "confirm": confirm})


def resumed(agent: AgentContext) -> None:
    """Let the next agent resume open runs until nothing is left to do."""
    driven = OpenRuns(agent)
    driven.resume_open()
    wait_until(lambda: not driven._woken)


@pytest.fixture
def release(agent: AgentContext, pool: Any) -> str:
    """A release that was applied but has not begun."""
    lane.deploy(agent, pool, small_project.texts())
    return lane.submit(agent, lane.plan(agent, UPPER, REBUILD))


@pytest.fixture
def failed(release: str, agent: AgentContext, pool: Any) -> str:
    """A release in which a start has failed for a reason that no longer exists."""
    pool.refuse["c@v2"] = EngineRefused("no memory", error_class="OOM")
    assert lane.drive(agent, release) == "failed"
    pool.refuse.clear()
    return release


def test_a_cancel_that_was_answered_is_carried_out_by_the_next_agent(
    release: str, agent: AgentContext, pool: Any
) -> None:
    asked(agent, release, "cancel")
    resumed(agent)
    assert (state_of(agent, release), pool.views) == ("cancelled", SERVING)
    assert sorted(pool.running) == ["a@v1", "b@v1", "c@v1"]


def test_a_pause_that_was_answered_holds_in_the_next_agent(release: str, agent: AgentContext, pool: Any) -> None:
    asked(agent, release, "pause")
    driven, starts = OpenRuns(agent), list(pool.starts)
    driven.resume_open()
    wait_until(lambda: state_of(agent, release) == "paused")
    wait_until(lambda: not agent.ledger.run_commands(release))
    assert (pool.starts, pool.views) == (starts, SERVING)
    driven.submit_command(release, OperatorControl("resume"))
    wait_until(lambda: not driven._woken)
    assert (state_of(agent, release), pool.views) == ("done", SWAPPED)


@pytest.mark.parametrize(("acts", "ends"), [(("pause", "resume"), "done"), (("resume", "pause"), "paused")])
def test_words_that_were_answered_keep_their_order_over_a_kill(
    acts: tuple[str, ...], ends: str, release: str, agent: AgentContext, pool: Any
) -> None:
    asked(agent, release, *acts)
    driven = OpenRuns(agent)
    driven.resume_open()
    wait_until(lambda: state_of(agent, release) == ends)
    wait_until(lambda: not agent.ledger.run_commands(release))
    agent.stopping.set()
    wait_until(lambda: not driven._woken)


def test_a_cancel_of_a_failed_run_that_was_answered_is_carried_out_by_the_next_agent(
    failed: str, agent: AgentContext, pool: Any
) -> None:
    asked(agent, failed, "cancel")
    resumed(agent)
    assert state_of(agent, failed) == "cancelled"
    assert sorted(pool.running) == ["a@v1", "b@v1", "c@v1"]


def test_an_answered_swap_confirmation_ends_the_hold_in_the_next_agent(agent: AgentContext, pool: Any) -> None:
    lane.deploy(agent, pool, small_project.texts())
    run_id = lane.submit(agent, lane.plan(agent, UPPER, HELD))
    before = OpenRuns(agent)
    before.drive(run_id)

    def is_held() -> bool:
        row = agent.ledger.run(run_id)
        return row is not None and any((step.do, step.state) == ("hold", "gate") for step in row.steps)

    wait_until(is_held)
    agent.stopping.set()
    wait_until(lambda: not before._woken)
    agent.stopping.clear()
    asked(agent, run_id, "swap")
    resumed(agent)
    assert (state_of(agent, run_id), pool.views) == ("done", SWAPPED)


def test_a_command_is_carried_out_once(release: str, agent: AgentContext, pool: Any) -> None:
    asked(agent, release, "pause")
    row = agent.ledger.run(release)
    assert row is not None
    (word,) = agent.ledger.run_commands(release)
    heard = {"state": "paused", "ended_at": None, "steps": (), "heard": (word.serial,)}
    assert agent.ledger.advance_run(release, was="running", **heard)
    assert not agent.ledger.run_commands(release)
    agent.ledger.put_run_command(release, OperatorControl("resume"), at=1.0)
    (later,) = agent.ledger.run_commands(release)
    assert later.serial > word.serial, "no serial is given twice"
    resumed(agent)
    assert state_of(agent, release) == "done"


def test_a_retry_whose_tables_are_taken_is_reported_as_not_carried_out(
    failed: str, agent: AgentContext, pool: Any
) -> None:
    agent.ledger.put_run_command(failed, OperatorControl("retry", by="bob"), at=1.0)
    other = lane.submit(agent, lane.plan(agent, UPPER, REBUILD))
    driven = OpenRuns(agent)
    driven.drive(failed)
    wait_until(lambda: not driven._woken)
    assert (state_of(agent, failed), state_of(agent, other)) == ("failed", "running")
    assert not agent.ledger.run_commands(failed)
    told = [event for event in agent.ledger.events() if "was not carried out" in event.summary]
    assert [event.summary for event in told] == [
        f"the command to retry run {failed} was not carried out: the run is failed"
    ]
    assert "bob" in told[0].detail and other in told[0].detail


@pytest.fixture
def next_run(failed: str, agent: AgentContext, pool: Any) -> str:
    """A run that continues the failed one and is building the same versions."""
    next_run = lane.submit(agent, lane.plan(agent, UPPER, replace(REBUILD, continues=failed)))
    pool.refuse["c@v2"] = EngineRefused("no memory again", error_class="OOM")
    assert lane.drive(agent, next_run) == "failed"
    pool.refuse.clear()
    return next_run


@pytest.mark.parametrize("act", ["cancel", "retry", "skip"])
def test_a_command_during_the_check_of_its_run_touches_no_version_of_a_continuing_run(
    act: str, failed: str, next_run: str, agent: AgentContext, pool: Any
) -> None:
    row, running, wanted = agent.ledger.run(failed), dict(pool.running), wanted_of(agent)
    assert row is not None
    stale = replace(row, continued_by="")
    refused = pytest.raises(Refused, match=f"^run {failed} was continued by run {next_run}$")
    with refused:
        agent.ledger.put_run_command(failed, OperatorControl(act, 1, "bob"), at=1.0)
    if act != "cancel":
        with refused:
            journal_retry(agent, stale, skipping=act == "skip", by="bob")
    resumed(agent)
    assert (state_of(agent, failed), agent.ledger.run_commands(failed)) == ("failed", ())
    assert (wanted_of(agent), pool.running) == (wanted, running)


def test_a_continued_run_is_not_reopened_by_an_earlier_command(failed: str, agent: AgentContext, pool: Any) -> None:
    agent.ledger.put_run_command(failed, OperatorControl("retry", by="bob"), at=1.0)
    after = lane.submit(agent, lane.plan(agent, UPPER, replace(REBUILD, continues=failed)))
    assert agent.ledger.advance_run(after, was="running", state="failed", ended_at=2.0, steps=())
    resumed(agent)
    assert (state_of(agent, failed), state_of(agent, after)) == ("failed", "failed")
    told = next(event for event in agent.ledger.events() if "was not carried out" in event.summary)
    assert f"run {failed} was continued by run {after}" in told.detail


def wanted_of(agent: AgentContext) -> list[tuple[str, int, str]]:
    return [(found.table, found.version, found.wanted) for found in agent.ledger.deployments()]


def test_a_pause_from_before_a_run_failed_does_not_hold_its_retry(release: str, agent: AgentContext, pool: Any) -> None:
    asked(agent, release, "pause")
    row = agent.ledger.run(release)
    assert row is not None
    assert agent.ledger.advance_run(release, was="running", state="failed", ended_at=2.0, steps=())
    asked(agent, release, "retry")
    resumed(agent)
    assert (state_of(agent, release), pool.views) == ("done", SWAPPED)


@pytest.mark.parametrize("act", ["retry", "resume", "pause"])
def test_no_command_takes_effect_after_a_cancel(act: str, release: str, agent: AgentContext, pool: Any) -> None:
    asked(agent, release, "cancel")
    with pytest.raises(UsageError, match=f"run {release} is being cancelled by "):
        asked(agent, release, act)
    asked(agent, release, "cancel")
    assert [word.act for word in agent.ledger.run_commands(release)] == ["cancel"]
    resumed(agent)
    assert state_of(agent, release) == "cancelled"


@pytest.mark.parametrize("act", ["cancel", "pause"])
def test_an_unrecorded_command_is_not_answered_as_accepted(
    act: str, release: str, agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(*_: Any, **more: Any) -> None:
        raise LedgerUnavailable("the ledger is locked by another program")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "put_run_command", locked)
        with pytest.raises(LedgerUnavailable):
            asked(agent, release, act, runs=OpenRuns)
    resumed(agent)
    assert (state_of(agent, release), pool.views) == ("done", SWAPPED)


@pytest.mark.parametrize("skipping", [0, 1])
def test_a_retry_or_skip_is_refused_if_its_run_was_cancelled_during_its_check(
    skipping: int, failed: str, agent: AgentContext, pool: Any
) -> None:
    seen = agent.ledger.run(failed)
    assert seen is not None
    assert lane.drive(agent, failed, OperatorControl("cancel", by="bob")) == "cancelled"
    after = agent.ledger.run(failed)
    act = "skip" if skipping else "retry"
    with pytest.raises(UsageError, match=f"run {failed} is cancelled: there is nothing to {act}"):
        journal_retry(agent, seen, skipping=skipping, by="ana")
    assert agent.ledger.run(failed) == after and not agent.ledger.run_commands(failed)


@pytest.mark.sampled
@pytest.mark.parametrize("state", ["done", "failed", "cancelled"])
@pytest.mark.parametrize("act", sorted(ACCEPTED_IN))
def test_a_command_without_meaning_for_an_ended_run_is_refused_with_its_state(
    act: str, state: str, release: str, agent: AgentContext
) -> None:
    ends: Callable[..., bool] = agent.ledger.advance_run
    assert ends(release, was="running", state=state, ended_at=2.0, steps=())
    if state in ACCEPTED_IN[act]:
        return
    with pytest.raises(UsageError, match=f"run {release} is {state}: there is nothing to {act}") as refused:
        asked(agent, release, act)
    assert refused.value.exit_code == 2
    assert not agent.ledger.run_commands(release)
