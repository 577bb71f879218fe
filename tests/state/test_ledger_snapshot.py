"""The cached view of the ledger: reused until something is written, and discarded if the file is replaced."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from core.model.actions import Action, StepKind
from core.model.names import TableName
from core.observed.versions import Binding, Deployment, Measurement
from core.plan.model import Step
from core.run.records import StepRow
from state.ledger import Ledger, LedgerReader, create_or_open
from state.ledger_snapshot import LedgerSnapshot, SnapshotCache, StatementDetails
from tests.support.ledger_rows import environment_row, plan_of, plan_row, run_row

Made = Callable[..., Deployment]
A, B, C = TableName("a"), TableName("b"), TableName("c")


@pytest.fixture
def cache(ledger: Ledger, path: Path, deployment: Made) -> Iterator[SnapshotCache]:
    for table in (C, A):
        ledger.put_deployment(deployment(table))
    with LedgerReader(path) as reader:
        yield SnapshotCache(reader, clock=lambda: 50.0)


def shown(snapshot: LedgerSnapshot) -> list[tuple[str, int]]:
    return [(line.table, line.version) for line in snapshot.statements]


def test_a_ledger_that_was_not_written_gives_the_same_object(cache: SnapshotCache, ledger: Ledger) -> None:
    first = cache.snapshot()
    assert cache.snapshot() is first
    ledger.heartbeat(41.0)
    second = cache.snapshot()
    assert second.version != first.version
    assert second.statements is first.statements
    assert (second.age_s, second.stale, second.pool_state) == (9.0, True, second.facts and second.facts.pool_state)


def test_changed_rows_are_read_and_keep_their_place(cache: SnapshotCache, ledger: Ledger, deployment: Made) -> None:
    first = cache.snapshot()
    ledger.put_measurements([Measurement(A, 1, at=9.0, lag_rows=7)])
    second = cache.snapshot()
    assert [old is new for old, new in zip(first.statements, second.statements, strict=True)] == [False, True]
    assert second.statements[0].measurement == Measurement(A, 1, at=9.0, lag_rows=7)
    ledger.put_deployment(deployment(B))
    assert shown(cache.snapshot()) == [(A, 1), (B, 1), (C, 1)]
    ledger.tombstone(A, 1, drop_after=9.0, trash="")
    assert shown(cache.snapshot()) == [(B, 1), (C, 1)]


def test_a_different_file_in_its_place_is_read_completely(tmp_path: Path, deployment: Made) -> None:
    here, restored = tmp_path / "ledger.db", tmp_path / "restored.db"
    for path, tables in ((here, (A, C)), (restored, (B,))):
        with create_or_open(path, environment_row()) as ledger:
            for table in tables:
                ledger.put_deployment(deployment(table))
    with LedgerReader(here) as reader:
        cache = SnapshotCache(reader)
        assert shown(cache.snapshot()) == [(A, 1), (C, 1)]
        shutil.move(restored, here)
        assert shown(cache.snapshot()) == [(B, 1)]


def test_every_statement_bound_to_any_version_is_a_reader(
    cache: SnapshotCache, ledger: Ledger, deployment: Made
) -> None:
    ledger.put_deployment(replace(deployment(B), bindings=(Binding(A, 3, True), Binding(C, 1, False))))
    snapshot = cache.snapshot()
    assert snapshot.readers_of(A) == snapshot.readers_of(C) == ((B, 1),)
    assert snapshot.readers_of(TableName("aa")) == ()


@pytest.mark.parametrize(("trend", "compiled", "limited"), [
    ("growing", "SELECT * FROM STREAM a WITH (MaxFilesPerTrigger = 1)", True),
    ("steady", "SELECT * FROM STREAM a WITH (MaxFilesPerTrigger = 1)", False),
    ("growing", "SELECT 1", False),
])  # fmt: skip
def test_sql_limits_what_grows_while_it_says_so(
    cache: SnapshotCache, ledger: Ledger, trend: str, compiled: str, limited: bool
) -> None:
    assert not cache.snapshot().statements[0].limited
    ledger.update_deployment(A, 1, compiled=compiled)
    ledger.put_measurements([Measurement(A, 1, at=9.0, trend=trend)])
    assert cache.snapshot().statements[0].limited is limited


@pytest.mark.parametrize(("state", "since", "trend"), [
    ("stopped", 8.0, "steady"), ("stopped", 10.0, "unknown"), ("unknown", 10.0, "unknown"), ("running", 10.0, "steady"),
])  # fmt: skip
def test_a_trend_from_before_a_statement_ended_is_ignored(
    cache: SnapshotCache, ledger: Ledger, state: str, since: float, trend: str
) -> None:
    ledger.put_measurements([Measurement(A, 1, at=9.0, trend="steady")])
    ledger.update_deployment(A, 1, state=state, state_since=since)
    assert cache.snapshot().statements[0].trend == trend
    measured = ledger.measurement(A, 1)
    assert measured is not None and measured.trend == trend


def test_without_a_reading_nothing_is_fresh_and_nothing_serves() -> None:
    nothing = LedgerSnapshot(read_at=0.0)
    assert (nothing.age_s, nothing.stale, nothing.pool_state, nothing.serving) == (None, True, None, ())
    assert StatementDetails(A).serving is None


def test_a_release_is_read_while_what_it_replaced_runs_on(
    cache: SnapshotCache, ledger: Ledger, deployment: Made
) -> None:
    assert cache.snapshot().releases == ()
    swap = Step(1, StepKind.SWAP, A, 2, (), "", (A,))
    made = plan_of(A, steps=(swap,), action=Action.REBUILD, from_version=1, version=2)
    ledger.put_plan(plan_row(made))
    steps = (StepRow(1, "swap", "a", 2, "running", started_at=8.0),)
    ledger.apply_plan(made.hash, run_row(made.hash, id="7f3a-1", steps=steps), now=1.0)
    assert [one.state for one in cache.snapshot().releases] == ["halted"]
    ledger.put_agent(1, 2.0)
    assert [(one.run, one.state) for one in cache.snapshot().releases] == [("7f3a-1", "swapping")]
    ledger.put_step("7f3a-1", replace(steps[0], state="done", ended_at=9.0))
    ledger.put_deployment(replace(deployment(A), version=2, active=False))
    ledger.activate({A: 2}, by="7f3a-1", at=9.0)
    ledger.update_deployment(A, 1, stops_at=99.0, bindings=())
    ledger.put_run_state("7f3a-1", "done", ended_at=10.0)
    (observing,) = cache.snapshot().releases
    assert (observing.state, observing.old_until, observing.rollback) == ("observing", 99.0, "headgate rollback 7f3a-1")
    ledger.update_deployment(A, 1, stops_at=None, wanted="stopped", state="stopped")
    assert cache.snapshot().releases == ()
