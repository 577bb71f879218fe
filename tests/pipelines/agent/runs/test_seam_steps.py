"""A statement that keeps its table and switches to another version of its parent: exactly, or not at all."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import small_project
from agent_scenarios import fast_lane

from core.model.actions import StepKind
from core.model.errors import TryAgain
from core.model.names import TableName as T
from core.observed.aligned_positions import BatchHistory, BatchPosition, Unaligned
from core.observed.versions import Deployment
from core.plan.request import PlanRequest, StrategyChoice
from core.ports.spark import QueryStart
from core.run.model import OperatorControl
from core.run.state_machine import GateOpened, GatePolled, StepFailed
from pipelines.agent.context import AgentContext
from pipelines.agent.runs import new_checkpoint_steps
from pipelines.agent.runs.new_checkpoint_steps import SeamPlace, _unless_half_done
from pipelines.agent.runs.step_executor import StepExecutor
from pipelines.agent.statements.statement_control import StatementControl
from state.emergency_journal import EmergencyJournal
from tests.pipelines.agent.runs.test_run_driver import Killed, deploy, drive, fast_gates, plan, settle, submit

__all__ = ["fast_gates"]

UPPER = small_project.texts(a="SELECT id, upper(kind) AS kind FROM STREAM landed")
UPPER["headgate.yml"] = UPPER["headgate.yml"].replace("dev: {}", "dev: {policy: {validate: off}}")
SEAM_B = PlanRequest(tables=(T("a"),), rebuild=True, choices=(StrategyChoice(T("b"), "seam"),))


@pytest.fixture
def old(agent: AgentContext, pool: Any) -> Iterator[AgentContext]:
    """Serve landed → a → b, c, with a clock that advances at every look."""
    moments = count(0.0, 60.0)
    made = replace(agent, monotonic=lambda: next(moments))
    deploy(made, pool, small_project.texts())
    yield made


def row(agent: AgentContext, table: str, version: int) -> Deployment:
    found = agent.ledger.deployment(T(table), version)
    assert found is not None
    return found


def reads(*consumed: str, held: dict[str, tuple[int, int]] | None = None) -> BatchHistory:
    """Return a history of batches from 0 on with these read positions; each wrote one file unless `held` is given."""
    batches = {n: BatchPosition((mark,)) for n, mark in enumerate(consumed)}
    return BatchHistory(batches, {f"{n + 1}:w": (n, n) for n in batches} if held is None else held)


def have_read(agent: AgentContext, a1: BatchHistory, a2: BatchHistory, b1: BatchHistory) -> None:
    layout = agent.layout
    histories: dict[str, BatchHistory] = agent.files.histories  # type: ignore[attr-defined]  # A double's.
    for table, version, history in (("a", 1, a1), ("a", 2, a2), ("b", 1, b1)):
        histories[layout.checkpoint_folder(T(table), version)] = history


def test_it_continues_at_the_batch_of_the_new_version_with_the_same_input(old: AgentContext, pool: Any) -> None:
    have_read(old, reads("1:x", "3:x"), reads("2:x", "3:x", "4:x"), reads("1:w", "1:w", "2:w"))
    assert deploy(old, pool, UPPER, SEAM_B) == "done"
    b, before = row(old, "b", 1), old.layout.checkpoint_folder(T("b"), 1)
    assert b.checkpoint == f"{before}.a__v2.2" and b.active and b.compiled == "SELECT id, kind FROM STREAM a__v2"
    assert b.older_rows == "rows from a@v1" and not row(old, "a", 2).older_rows
    assert old.files.seeded == [(b.checkpoint, 2, before)]  # type: ignore[attr-defined]  # A double's.
    assert pool.running["b@v1"].checkpoint == b.checkpoint and b.folder == old.layout.table_folder(T("b"), 1)
    assert sorted(pool.running) == ["a@v1", "a@v2", "b@v1", "c@v1"], "c, of another product, reads a@v1"
    said = [event.summary for event in old.ledger.events() if "continues after" in event.summary]
    assert [text.partition(", by")[0] for text in said] == ["continues after batch 2, on batch 1 of a@v2"]
    aside: dict[str, str] = old.files.aside  # type: ignore[attr-defined]  # A double's.
    assert before in aside.values() and plan(old, UPPER, PlanRequest(tables=(T("a"), T("b")))).empty


@pytest.mark.parametrize(
    ("a2", "b1", "why"),
    [
        (reads("2:x"), reads("1:w"), "a@v1 has read 1 files or messages of landed, a@v2 2"),
        (reads("1:x"), reads("7:other"), "b@v1 has read only part of a batch of a@v1"),
        (reads("1:x"), reads(), "b@v1 has committed no batch yet"),
    ],
)
def test_a_seam_without_a_matching_batch_fails_and_never_stops_the_statement(
    a2: BatchHistory, b1: BatchHistory, why: str, old: AgentContext, pool: Any
) -> None:
    have_read(old, reads("1:x"), a2, b1)
    run = submit(old, plan(old, UPPER, SEAM_B))
    assert drive(old, run) == "failed"
    found = old.ledger.run(run)
    assert found is not None
    (failed,) = [step for step in found.steps if step.do == "seam"]
    assert failed.note.startswith(f"no batch matched within 300 s, and nothing has changed: {why}")
    assert "b@v1" not in pool.stops and row(old, "b", 1).compiled == "SELECT id, kind FROM STREAM a__v1"
    assert "a@v1" in pool.running and pool.views["a"] == "a__v2", "it reads on, and what it reads runs on"
    have_read(old, reads("1:x"), reads("1:x"), reads("1:w"))
    settle(old, pool)
    assert drive(old, run, OperatorControl("retry")) == "done" and row(old, "b", 1).checkpoint.endswith("a__v2.0")


def test_it_continues_as_before_if_it_advanced_until_it_was_stopped(
    old: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    have_read(old, reads("1:x", "2:x"), reads("1:x"), reads("1:w"))
    stop, stopped = type(pool.connection().queries).stop, []

    def stop_late(queries: Any, name: str, *calling: Any, **more: Any) -> None:
        if name == "b@v1" and not stopped:
            have_read(old, reads("1:x", "2:x"), reads("1:x"), reads("1:w", "2:w"))
            stopped.append(name)
        stop(queries, name, *calling, **more)

    monkeypatch.setattr(type(pool.connection().queries), "stop", stop_late)
    assert drive(old, submit(old, plan(old, UPPER, SEAM_B))) == "failed"
    assert stopped and pool.running["b@v1"].checkpoint == old.layout.checkpoint_folder(T("b"), 1)
    assert row(old, "b", 1).bindings[0].version == 1 and not old.files.seeded  # type: ignore[attr-defined]  # A double's.


def test_it_is_done_even_if_the_old_checkpoint_cannot_be_moved_to_the_trash(
    old: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    have_read(old, reads("1:x"), reads("1:x"), reads("1:w"))

    def away(*_: Any) -> None:
        raise TryAgain("the trash cannot be reached")

    monkeypatch.setattr(type(old.files), "set_aside", away)
    assert deploy(old, pool, UPPER, SEAM_B) == "done"
    assert pool.running["b@v1"].checkpoint == row(old, "b", 1).checkpoint
    assert "the former checkpoints of b@v1 are not in the trash" in [said.summary for said in old.ledger.events()]


def stop_b_before_its_seam(old: AgentContext, pool: Any) -> None:
    fast_lane(old).stop((T("b"),), time.monotonic(), by="bob")
    assert "b@v1" not in pool.running


def test_a_stopped_statement_stays_stopped_where_no_checkpoint_can_be_made(
    old: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_b_before_its_seam(old, pool)
    have_read(old, reads("1:x"), reads("1:x"), reads("1:w"))

    def full(*args: Any, **more: Any) -> None:
        raise TryAgain("no space left on the device")

    monkeypatch.setattr(type(old.files), "create_checkpoint_after", full)
    assert drive(old, submit(old, plan(old, UPPER, SEAM_B))) == "failed"
    assert row(old, "b", 1).bindings[0].version == 1
    assert (row(old, "b", 1).wanted, "b@v1" in pool.running) == ("stopped", False)


def test_a_stopped_statement_stays_stopped_where_no_batch_fits_after_its_stop(
    old: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_b_before_its_seam(old, pool)
    have_read(old, reads("1:x"), reads("1:x"), reads("1:w"))
    half_done = Unaligned("batch 1 of b@v1 is written, not committed")
    monkeypatch.setattr(new_checkpoint_steps, "_unless_half_done", lambda *_: half_done)
    assert drive(old, submit(old, plan(old, UPPER, SEAM_B))) == "failed"
    assert row(old, "b", 1).bindings[0].version == 1
    assert (row(old, "b", 1).wanted, "b@v1" in pool.running) == ("stopped", False)


@dataclass
class ArrivesAt:
    """A start requested by another agent that takes effect at one of this agent's fault points."""

    label: str
    pool: Any
    start: QueryStart

    def pass_by(self, label: str) -> None:
        if label == self.label:
            assert self.pool.begin(self.start)


@pytest.mark.parametrize("label", ["seam stop b", "seam seed b", "seam move b"])
def test_a_late_start_on_the_old_checkpoint_is_stopped_for_the_new_one(
    label: str, old: AgentContext, pool: Any
) -> None:
    have_read(old, reads("1:x"), reads("1:x"), reads("1:w"))
    late = ArrivesAt(label, pool, pool.running["b@v1"])
    assert deploy(replace(old, faults=late), pool, UPPER, SEAM_B) == "done"  # type: ignore[arg-type]  # A double.
    b = row(old, "b", 1)
    assert b.checkpoint.endswith(".a__v2.0") and pool.running["b@v1"].checkpoint == b.checkpoint
    assert pool.running["b@v1"].select == b.compiled
    aside: dict[str, str] = old.files.aside  # type: ignore[attr-defined]  # A double's.
    assert late.start.checkpoint in aside.values()


@dataclass
class DieOnce:
    """Fault points that kill at the named one, once."""

    label: str
    died: bool = False

    def pass_by(self, label: str) -> None:
        if label == self.label and not self.died:
            self.died = True
            raise Killed(label)


@pytest.mark.sampled
@pytest.mark.parametrize("label", ["seam stop b", "seam seed b", "seam move b"])
def test_after_a_kill_inside_it_the_next_agent_finds_the_old_state_or_the_new_one(
    label: str, old: AgentContext, pool: Any
) -> None:
    run = submit(old, plan(old, UPPER, SEAM_B))
    old.faults = DieOnce(label)
    with pytest.raises(Killed):
        drive(old, run)
    b = row(old, "b", 1)
    moved = b.bindings[0].version == 2
    assert moved is (label == "seam move b"), "text, binding and checkpoint move in one write"
    assert (b.checkpoint != old.layout.checkpoint_folder(T("b"), 1)) is moved
    assert b.wanted == "running" and "b@v1" not in pool.running
    assert drive(old, run) == "done"
    assert pool.running["b@v1"].select == "SELECT id, kind FROM STREAM a__v2"
    assert {place for place, *_ in old.files.seeded} == {row(old, "b", 1).checkpoint}  # type: ignore[attr-defined]


def test_a_second_seam_that_is_killed_leaves_no_checkpoint_behind(old: AgentContext, pool: Any) -> None:
    assert deploy(old, pool, UPPER, SEAM_B) == "done"
    first_seam = row(old, "b", 1).checkpoint
    lower = {**UPPER, **small_project.texts(a="SELECT id, lower(kind) AS kind FROM STREAM landed")}
    lower["headgate.yml"] = UPPER["headgate.yml"]
    run = submit(old, plan(old, lower, SEAM_B))
    old.faults = DieOnce("seam move b")
    with pytest.raises(Killed):
        drive(old, run)
    assert drive(old, run) == "done"
    aside: dict[str, str] = old.files.aside  # type: ignore[attr-defined]  # A double's.
    assert row(old, "b", 1).checkpoint != first_seam
    assert {old.layout.checkpoint_folder(T("b"), 1), first_seam} <= {*aside.values()}
    until = old.clock() + old.layout.environment.drop_after_d * 86400
    trash = old.layout.trash_folder(T("b"), 1)
    times = {int(Path(into).parent.name) for into in aside if into.startswith(f"{trash}/before_seam/")}
    assert all(abs(found - until) < 3600 for found in times)


def test_a_checkpoint_that_a_seam_has_made_is_the_version_s_own(agent: AgentContext) -> None:
    layout, b = agent.layout, T("b")
    made = layout.seam_folder(b, 1, (T("a"), 2), 7)
    assert layout.is_checkpoint(made, b, 1) and layout.is_checkpoint(layout.checkpoint_folder(b, 1), b, 1)
    assert not layout.is_checkpoint(layout.checkpoint_folder(b, 11), b, 1) and not layout.is_checkpoint(
        f"{made}/x", b, 1
    )


def test_a_stop_by_an_operator_ends_the_wait_and_holds(old: AgentContext, pool: Any, tmp_path: Path) -> None:
    have_read(old, reads("1:x"), reads("2:x"), reads("1:w"))
    made = plan(old, UPPER, SEAM_B)
    run = submit(old, made)
    executor = StepExecutor(old, made, run)
    (seam,) = [step for step in made.steps if step.do is StepKind.SEAM]
    assert isinstance(executor.perform(seam), GateOpened) and isinstance(executor.poll(seam), GatePolled)
    StatementControl(old, EmergencyJournal(tmp_path / "e")).stop((T("b"),), 0.0, by="alice")
    ended = executor.poll(seam)
    assert isinstance(ended, StepFailed) and "was stopped by" in ended.note
    assert "b@v1" not in pool.running and row(old, "b", 1).wanted == "stopped"


def test_a_table_with_a_log_that_has_a_batch_more_than_is_committed_does_not_move(old: AgentContext) -> None:
    deployment, place = replace(row(old, "b", 1), format="delta"), SeamPlace(1, (T("a"), 2), 1)
    assert _unless_half_done(old, deployment, place) == place
    old.files.sink = 2  # type: ignore[attr-defined]  # A double's.
    assert _unless_half_done(old, deployment, place) == Unaligned("batch 2 of b@v1 is written, not committed")


def test_it_is_not_stopped_while_nothing_can_be_started(
    old: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    have_read(old, reads("1:x", "3:x"), reads("2:x", "3:x", "4:x"), reads("1:w", "1:w", "2:w"))
    made = plan(old, UPPER, SEAM_B)
    run, stops = submit(old, made), list(pool.stops)
    seam_step = next(step for step in made.steps if step.do is StepKind.SEAM)

    @dataclass
    class CatalogGone:
        def pass_by(self, label: str) -> None:
            pool.restored = not label.startswith(f"effect {seam_step.n} ")

    assert drive(replace(old, faults=CatalogGone()), run) == "failed"  # type: ignore[arg-type]  # A double.
    assert "b@v1" not in pool.stops[len(stops) :] and "b@v1" in pool.running
