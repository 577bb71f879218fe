"""A swap that cannot move all pointers moves none, wherever the agent dies meanwhile."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import small_project
from agent_scenarios import fast_lane, stop_by_operator, wait_until

from core.model.actions import Action, StepKind
from core.model.errors import EngineRefused, LedgerUnavailable
from core.model.names import TableName as T
from core.plan.model import Step
from core.plan.request import PlanRequest
from core.run.model import OperatorControl
from core.run.records import RunRow
from core.run.release import ReleaseState
from pipelines.agent.context import AgentContext
from pipelines.agent.identity.registry_records import newer_serving
from pipelines.agent.runs import pointer_steps, run_driver, step_executor
from state.ledger import LedgerReader
from state.releases import releases
from tests.pipelines.agent import conftest
from tests.pipelines.agent.runs import test_run_driver as lane
from tui.presentation.screen_content.releases import verdict

UPPER = "SELECT id, upper(kind) AS kind FROM STREAM landed"
REBUILD = PlanRequest(tables=(T("a"),), rebuild=True, children="all")
BEFORE = {"a": "a__v1", "b": "b__v1", "c": "c__v1"}
AFTER = {"a": "a__v2", "b": "b__v2", "c": "c__v2"}
NO = EngineRefused("the metastore says no", error_class="METASTORE")


@dataclass
class Labelled(lane.KillAt):
    """Fault points that also record their labels."""

    labels: list[str] = field(default_factory=list)

    def pass_by(self, label: str) -> None:
        self.labels.append(label)
        super().pass_by(label)


@pytest.fixture(autouse=True)
def fast_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (step_executor, pointer_steps):
        monkeypatch.setattr(module, "CatchUpGate", lane.OpenGate)
    monkeypatch.setattr(run_driver, "POLL_S", 0.001)


def refuse(monkeypatch: pytest.MonkeyPatch, how_often: dict[str, int]) -> None:
    """Make the pool refuse to point views to these targets, each as many times as given."""
    real = conftest._Tables.point

    def point(tables: Any, view: str, targets: tuple[str, ...], columns: tuple[str, ...]) -> None:
        if how_often.get(targets[-1], 0):
            how_often[targets[-1]] -= 1
            raise NO
        real(tables, view, targets, columns)

    monkeypatch.setattr(conftest._Tables, "point", point)


def begun(agent: AgentContext, pool: Any) -> str:
    """Deploy a, b and c, and submit a release of all three."""
    lane.deploy(agent, pool, small_project.texts())
    return lane.submit(agent, lane.plan(agent, small_project.texts(a=UPPER), REBUILD))


def said(agent: AgentContext, run_id: str) -> str:
    row = agent.ledger.run(run_id)
    assert row is not None
    return next(step.note for step in row.steps if step.do == "swap")


def serving(agent: AgentContext) -> dict[str, str]:
    return {str(d.table): f"{d.table}__v{d.version}" for d in agent.ledger.deployments() if d.active and not d.external}


def test_a_single_refusal_is_retried(agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = begun(agent, pool)
    refuse(monkeypatch, {"b__v2": 1})
    assert lane.drive(agent, run_id) == "done"
    assert pool.views == AFTER == serving(agent)


@pytest.mark.parametrize("target", ["a__v2", "b__v2", "c__v2"])
def test_a_pointer_that_is_refused_twice_takes_all_back(
    target: str, agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = begun(agent, pool)
    refuse(monkeypatch, {target: 2})
    assert lane.drive(agent, run_id) == "failed"
    assert pool.views == BEFORE == serving(agent)
    view = target.split("__")[0]
    assert said(agent, run_id) == f"METASTORE: {view} was refused 2 times: the metastore says no; no pointer has moved"
    assert lane.drive(agent, run_id, OperatorControl("retry")) == "done"
    assert pool.views == AFTER == serving(agent)


def test_a_pointer_that_could_not_be_moved_back_is_named_and_a_retry_moves_all(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = begun(agent, pool)
    refuse(monkeypatch, {"a__v2": 2, "c__v1": 1})
    assert lane.drive(agent, run_id) == "failed"
    assert "some pointers have moved and could not be moved back" in said(agent, run_id)
    assert lane.drive(agent, run_id, OperatorControl("retry")) == "done"
    assert pool.views == AFTER == serving(agent)


def test_a_first_pointer_that_was_made_is_dropped_again(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, {"a__v1": 2})
    run_id = lane.submit(agent, lane.plan(agent, small_project.texts(), lane.EVERYTHING))
    assert lane.drive(agent, run_id) == "failed"
    assert "a" not in pool.views


def test_a_kill_at_any_point_of_moving_back_leaves_all_pointers_moved_or_none(
    tmp_path: Path, agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = begun(agent, pool)
    kept = lane.KeptAgent(agent, tmp_path / "kept")

    def one(at: int, folder: str, refusals: int) -> tuple[list[str], str]:
        fresh, faults = kept.again(tmp_path / folder), Labelled(at)
        with monkeypatch.context() as patch:
            refuse(patch, {"a__v2": refusals})
            try:
                state = lane.drive(replace(fresh, faults=faults), run_id)  # type: ignore[arg-type]  # Counts and kills.
            except lane.Killed:
                state = lane.drive(fresh, run_id)
        fresh_pool: Any = fresh.pools.default.client
        assert fresh_pool.views == serving(fresh), (at, state)
        assert fresh_pool.views == (AFTER if state == "done" else BEFORE), (at, state)
        fresh.ledger.close()
        return faults.labels, state

    labels = one(0, "none", 2)[0]
    points = [at for at, label in enumerate(labels, 1) if "swap" in label]
    assert [labels[at - 1] for at in points[-6:-3]] == ["swap back c", "swap back b", "swap back a"]
    for refusals in (2, 99):
        ends = {one(at, f"{refusals}-{at}", refusals)[1] for at in points}
        assert ends == {"failed"} if refusals == 99 else {"failed", "done"}


@pytest.mark.parametrize("fails", ["pool", "ledger"])
def test_a_cancel_puts_pointers_back_that_a_swap_has_moved(
    fails: str, agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = begun(agent, pool)
    with monkeypatch.context() as patch:
        patch.setattr(run_driver, "POOL_WAIT_S", 0.0)
        if fails == "pool":
            patch.setattr(conftest._Tables, "swap", cut_off(conftest._Tables.swap))
        else:
            patch.setattr(type(agent.ledger), "activate", locked)
        assert lane.drive(agent, run_id) == "failed"
    # If the pool is unreachable, the cancel is repeated; if it is reachable, a failed swap leaves every pointer
    # unmoved.
    assert (pool.views == BEFORE) is (fails == "ledger") and serving(agent) == BEFORE
    assert lane.drive(agent, run_id, OperatorControl("cancel")) == "cancelled"
    assert pool.views == BEFORE == serving(agent)
    assert sorted(pool.running) == ["a@v1", "b@v1", "c@v1"]


def cut_off(real: Callable[..., float]) -> Callable[..., float]:
    """Make the pool unreachable once the first pointer has moved."""

    def swap(tables: Any, pointers: Any, before: Any) -> float:
        real(tables, pointers[:1], before)
        raise conftest.PoolUnreachable("no answer within 30 s")

    return swap


def locked(*_: object, **__: object) -> None:
    raise LedgerUnavailable("the ledger is locked by another program")


def test_an_interrupted_swap_that_is_not_resumed_leaves_no_pointer_moved(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = begun(agent, pool)
    with pytest.raises(lane.Killed):
        lane.drive(replace(agent, faults=KilledAt("swap b")), run_id)  # type: ignore[arg-type]  # Kills.
    assert pool.views == {**BEFORE, "c": "c__v2"}
    stop_by_operator(agent, pool, "b").join()
    assert lane.drive(agent, run_id) == "failed"
    assert said(agent, run_id).startswith("no pointer has moved: b was stopped by bob at ")
    assert pool.views == BEFORE == serving(agent)
    assert newer_serving(agent) is None
    agent.ledger.retry_run(run_id, serial=agent.locks.announce_start())
    assert lane.drive(agent, run_id, OperatorControl("retry")) == "done"
    assert pool.views == AFTER == serving(agent)


def test_pointers_left_moved_by_a_silent_pool_move_back_while_a_version_is_behind(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, behind = begun(agent, pool), iter(["", "", "", "lag 7 rows"])
    seen: list[dict[str, str]] = []

    def why_closed(*_: object) -> str:
        seen.append(dict(pool.views))
        return next(behind, "")

    real = conftest._Tables.swap
    monkeypatch.setattr(lane.OpenGate, "why_closed", staticmethod(why_closed))
    monkeypatch.setattr(conftest._Tables, "swap", cut_off_once(real))
    assert lane.drive(agent, run_id) == "done"
    assert seen[3] == {**BEFORE, "c": "c__v2"} and seen[4] == BEFORE
    assert pool.views == AFTER == serving(agent)


def test_a_cancel_after_a_kill_does_not_call_aborted_what_the_ledger_has_swapped(
    agent: AgentContext, pool: Any
) -> None:
    run_id = begun(agent, pool)
    swap = next(step.n for step in row_of(agent, run_id).steps if step.do == "swap")
    with pytest.raises(lane.Killed):
        lane.drive(replace(agent, faults=KilledAt(f"evidence {swap} swap")), run_id)  # type: ignore[arg-type]  # Kills.
    assert lane.drive(agent, run_id, OperatorControl("cancel")) == "cancelled"
    assert [step.state for step in row_of(agent, run_id).steps if step.do == "swap"] == ["done"]
    assert pool.views == AFTER == serving(agent)
    assert {"a@v2", "b@v2", "c@v2"} <= {*pool.running}
    words = "a@v1, b@v1, c@v1 keep running, and no stop is scheduled: headgate stop a@v1 b@v1 c@v1 stops them"
    (over,) = (event for event in agent.ledger.events() if event.summary == f"run {run_id} cancelled")
    assert over.detail == words
    with LedgerReader(agent.ledger.path) as reader:
        (found,) = releases(reader, (row_of(agent, run_id),), agent.clock())
        assert (found.state, found.note) == (ReleaseState.DONE, words)
        assert verdict(found, agent.clock()) == f"Its run was cancelled after the swap: {words}."
        fast_lane(agent).stop(("a@v1", "b@v1", "c@v1"), time.monotonic(), by="bob")
        (found,) = releases(reader, (row_of(agent, run_id),), agent.clock())
        assert (found.state, found.note) == (ReleaseState.DONE, "") and not found.is_open


def read_locked_after_the_swap(
    agent: AgentContext, monkeypatch: pytest.MonkeyPatch, then: Callable[[], object]
) -> None:
    """Lock the ledger once, by calling `then`, right after a swap has been recorded."""
    first, skipped_comparisons = [True], pointer_steps.skipped_comparisons

    def once(*given: Any) -> str:
        if serving(agent) == AFTER and first and first.pop():
            then()
            locked()
        return skipped_comparisons(*given)

    monkeypatch.setattr(pointer_steps, "skipped_comparisons", once)


def test_a_swap_that_the_ledger_has_is_done_although_one_of_its_versions_has_failed_since(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = begun(agent, pool)
    failed = partial(agent.ledger.update_deployment, T("b"), 2, state="failed", error="x", error_class="X")
    read_locked_after_the_swap(agent, monkeypatch, failed)
    lane.drive(agent, run_id)
    assert said(agent, run_id) == "c → c__v2, b → b__v2, a → a__v2"
    assert pool.views == AFTER == serving(agent)


@pytest.mark.parametrize("word", ["cancel", "pause"])
def test_a_command_before_a_repeated_swap_treats_it_as_done_if_the_ledger_has_it(
    word: str, agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = begun(agent, pool)
    tell = partial(agent.ledger.put_run_command, run_id, OperatorControl(word, by="ana"), at=1.0)
    read_locked_after_the_swap(agent, monkeypatch, tell)
    runs = run_driver.OpenRuns(agent)
    runs.drive(run_id)
    wait_until(lambda: row_of(agent, run_id).state == {"cancel": "cancelled", "pause": "paused"}[word], 10)
    assert [step.state for step in row_of(agent, run_id).steps if step.do == "swap"] == ["done"]
    assert pool.views == AFTER == serving(agent)
    if word == "cancel":
        (over,) = (event for event in agent.ledger.events() if event.summary == f"run {run_id} cancelled")
        assert over.detail.startswith("a@v1, b@v1, c@v1 keep running")
    agent.stopping.set()
    wait_until(lambda: not runs._woken, 10)


def test_a_cancel_treats_a_recorded_swap_as_done_even_if_its_poll_failed(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, behind = begun(agent, pool), iter(["lag 7 rows"])
    monkeypatch.setattr(lane.OpenGate, "why_closed", staticmethod(lambda *_: next(behind, "")))
    tell = partial(agent.ledger.put_run_command, run_id, OperatorControl("cancel", by="ana"), at=1.0)
    read_locked_after_the_swap(agent, monkeypatch, tell)
    assert lane.drive(agent, run_id) == "cancelled"
    assert [step.state for step in row_of(agent, run_id).steps if step.do == "swap"] == ["done"]
    assert pool.views == AFTER == serving(agent)


@pytest.mark.parametrize("polled", [False, True])
def test_a_swap_that_hits_a_bug_leaves_no_pointer_moved(
    polled: bool, agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, behind = begun(agent, pool), iter(["lag 7 rows"] if polled else [])
    seen: list[dict[str, str]] = []

    def broken(*_: object) -> int:
        seen.append(dict(pool.views))
        raise KeyError("nothing")

    monkeypatch.setattr(lane.OpenGate, "why_closed", staticmethod(lambda *_: next(behind, "")))
    monkeypatch.setattr(pointer_steps, "_served", broken)
    assert lane.drive(agent, run_id) == "failed"
    assert said(agent, run_id).startswith("the agent failed unexpectedly on this step (KeyError)")
    assert seen == [AFTER] and pool.views == BEFORE == serving(agent)


@dataclass
class KilledAt:
    """Fault points that kill at a label."""

    label: str

    def pass_by(self, label: str) -> None:
        if label == self.label:
            raise lane.Killed(label)


def row_of(agent: AgentContext, run_id: str) -> RunRow:
    found = agent.ledger.run(run_id)
    assert found is not None
    return found


def cut_off_once(real: Callable[..., float]) -> Callable[..., float]:
    """Make the pool silent once the first pointer of the first swap has moved."""
    first = [True]

    def swap(tables: Any, pointers: Any, before: Any) -> float:
        if first and first.pop():
            real(tables, pointers[:1], before)
            raise conftest.PoolUnreachable("no answer within 30 s")
        return real(tables, pointers, before)

    return swap


@pytest.mark.parametrize(
    ("action", "before", "version", "said"),
    [
        (Action.START, 0, 1, "a__v1"),
        (Action.REBUILD, 1, 2, "a__v2"),
        (Action.RESTART, 1, 1, "shows all columns of a__v1"),
        (Action.REBUILD, 1, 1, "shows all columns of a__v1"),
    ],
)
def test_a_pointer_that_stays_at_its_version_is_not_reported_as_moved(
    action: Action, before: int, version: int, said: str
) -> None:
    node = SimpleNamespace(action=action, from_version=before, version=version)
    run: Any = SimpleNamespace(nodes={"a": node}, versions=lambda step: [("a", version)])
    assert pointer_steps.moves_in_words(run, Step(1, StepKind.SWAP, T("a"), version, (), "")) == said
