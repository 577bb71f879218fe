"""Validation of a release against a scripted pool: what blocks, what is awaited, and what is never compared."""

import threading
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
import small_project
from agent_scenarios import stop_by_operator, wait_until

from core.model.actions import StepKind
from core.model.errors import EngineRefused, LedgerUnavailable, PoolUnreachable, Refused
from core.model.names import TableName as T
from core.model.states import State
from core.observed.aligned_positions import BatchHistory, BatchPosition
from core.observed.versions import Measurement
from core.plan.request import PlanRequest
from core.ports.storage import FolderContents
from core.run.model import OperatorControl
from core.run.records import CheckResultRow, StepRow
from pipelines.agent.context import AgentContext
from pipelines.agent.runs import validation_step, version_comparison
from pipelines.agent.runs.run_driver import RunDriver
from tests.pipelines.agent.runs.test_run_driver import deploy, drive, fast_gates, plan, submit

__all__ = ["fast_gates"]

UPPER = small_project.texts(a="SELECT id, upper(kind) AS kind FROM STREAM landed")
REBUILD_A = PlanRequest(tables=(T("a"),), rebuild=True, children="none")
DIFFERENCE = ("side", "effect", "old_rows", "new_rows", "old_1", "new_1", "old_2", "new_2", "old_3", "new_3")
DOUBLED = (("new", -1, 0, 7, None, '{"id":4,"kind":"password=hunter2"}', None, None, None, None),)


@pytest.fixture
def served(agent: AgentContext, pool: Any) -> AgentContext:
    """Serve landed → a → b, c."""
    deploy(agent, pool, small_project.texts())
    return agent


def step_of(agent: AgentContext, run: str, do: str = "validate") -> StepRow:
    row = agent.ledger.run(run)
    assert row is not None
    return next(step for step in row.steps if step.do == do)


def results(agent: AgentContext, run: str) -> dict[str, CheckResultRow]:
    return {result.check: result for result in agent.ledger.check_results(run)}


def has_read(agent: AgentContext, version: int, *marks: str, table: str = "a") -> None:
    histories: dict[str, BatchHistory] = agent.files.histories  # type: ignore[attr-defined]  # A double's.
    found = {batch: BatchPosition((mark,)) for batch, mark in enumerate(marks, 5)}
    histories[agent.layout.checkpoint_folder(T(table), version)] = BatchHistory(found, {})


def test_only_the_files_of_batches_that_have_read_the_same_are_compared(served: AgentContext, pool: Any) -> None:
    has_read(served, 1, "1:x", "2:y", "3:z")
    has_read(served, 2, "2:y")
    run = submit(served, plan(served, UPPER, REBUILD_A))
    assert drive(served, run) == "done"
    _, views = pool.compared[0]
    data = served.layout.data
    assert [view.files for view in views] == [(f"{data}/tables/a__v{n}/part-0.parquet",) for n in (1, 2)]
    assert {view.columns for view in views} == {(("id", "bigint"), ("kind", "string"))}
    assert list(results(served, run)) == ["schema", "differences", "duplicates", "rows", "nulls", "sums", "profile"]
    (found, *_) = served.ledger.check_results(run, T("a"))
    assert (found.old_version, found.old_batch, found.new_version, found.new_batch) == (1, 6, 2, 5)
    assert step_of(served, run).note == "equal in 7 checks" and pool.views["a"] == "a__v2"


def test_unexpected_differences_block_and_leave_what_serves_alone_until_a_retry_finds_none(
    served: AgentContext, pool: Any
) -> None:
    pool.answered["WITH uneven"] = (DIFFERENCE, DOUBLED)
    run = submit(served, plan(served, UPPER, REBUILD_A))
    assert drive(served, run) == "failed"
    note = step_of(served, run).note
    assert note.startswith("differences: 7 rows only in the new version, unexpected; not compared: kind; for example")
    assert "hunter2" not in note
    assert step_of(served, run, "swap").state == "blocked"
    assert pool.views["a"] == "a__v1" and "a@v1" in pool.running
    found = results(served, run)["differences"]
    assert (found.verdict, found.counts["unexpected"]) == ("unexpected", 7)
    assert found.examples == ({"why": "", "old": None, "new": {"id": 4, "kind": "password=*****"}},)
    row = served.ledger.deployment(T("a"), 2)
    assert row is not None and not row.active and row.served_at is None
    pool.answered.clear()
    assert drive(served, run, OperatorControl("retry")) == "done"
    assert results(served, run)["differences"].verdict == "ok" and pool.views["a"] == "a__v2"


def test_a_lateral_view_that_doubles_rows_blocks_here_and_downstream_with_figures_first(
    served: AgentContext, pool: Any
) -> None:
    pool.answered["count(*) AS rows"] = (("side", "rows"), (("old", 1944), ("new", 3888)))
    pool.answered["sum(n - d)"] = (
        ("side", "keys", "excess", "least", "most"),
        (("new", 1944, 1944, '{"id":1}', '{"id":2}'),),
    )
    exploded = small_project.texts(a="SELECT id, kind FROM STREAM landed LATERAL VIEW explode(array(1, 2)) twice")
    run = submit(served, plan(served, exploded, PlanRequest(tables=(T("a"),), rebuild=True)))
    assert drive(served, run) == "failed"
    assert step_of(served, run).note.startswith(
        "rows 1,944 → 3,888; duplicates: 0 → 1,944 duplicate rows by all columns"
    )
    by_table = {(r.table, r.check): r for r in served.ledger.check_results(run)}
    assert "_t" not in by_table[T("a"), "differences"].summary
    assert by_table[T("a"), "duplicates"].verdict == by_table[T("a"), "rows"].verdict == "unexpected"
    n = step_of(served, run).n
    assert drive(served, run, OperatorControl("skip", n)) == "failed"
    below = {r.check: r for r in served.ledger.check_results(run) if r.table != T("a")}
    assert below["duplicates"].verdict == "unexpected"
    assert below["differences"].summary.startswith("how often a row stands is not compared: a: lateral view")
    assert pool.views["a"] == "a__v1"


def test_if_nothing_blocks_the_note_names_the_figures_first(served: AgentContext, pool: Any) -> None:
    pool.answered["count(*) AS rows"] = (("side", "rows"), (("old", 10), ("new", 20)))
    exploded = small_project.texts(a="SELECT id, kind FROM STREAM landed LATERAL VIEW explode(array(1, 2)) twice")
    run = submit(served, plan(served, exploded, REBUILD_A))
    assert drive(served, run) == "done"
    assert step_of(served, run).note.startswith(
        "rows 10 → 20, as expected: differences: how often a row stands is not compared: lateral view changed"
    )


def swap_note(agent: AgentContext, run: str) -> str:
    row = agent.ledger.run(run)
    assert row is not None
    return next(step.note for step in row.steps if step.do == StepKind.SWAP)


def test_differences_can_be_accepted_by_skipping_the_step(served: AgentContext, pool: Any) -> None:
    pool.answered["WITH uneven"] = (DIFFERENCE, DOUBLED)
    run = submit(served, plan(served, UPPER, REBUILD_A))
    assert drive(served, run) == "failed"
    n = step_of(served, run).n
    assert drive(served, run, OperatorControl("skip", n)) == "done"
    assert pool.views["a"] == "a__v2" and results(served, run)["differences"].verdict == "unexpected"
    over = step_of(served, run).note
    assert over.startswith("skipped by an operator; before that: differences: 7 rows only in the new version")
    assert swap_note(served, run) == f"a__v2; a: {over}"


@pytest.mark.parametrize(
    ("act", "ends"), [("skip", "done"), ("cancel", "cancelled"), ("stop", "failed"), ("agent", "running")]
)
def test_an_abandoned_comparison_ends_and_lets_the_next_one_run(
    act: str, ends: str, served: AgentContext, pool: Any
) -> None:
    run = submit(served, plan(served, UPPER, REBUILD_A))
    pool.slow_reads = True
    row = served.ledger.run(run)
    assert row is not None
    driven = threading.Thread(target=RunDriver(served, row, threading.Event()).drive)
    driven.start()
    wait_until(lambda: len(pool.compared) == 1 and step_of(served, run).note == "comparing")
    (thread,) = (one for one in threading.enumerate() if one.name == "validate a")
    if act == "stop":
        stop_by_operator(served, pool, "a")
    elif act == "agent":
        served.stopping.set()
    else:
        served.ledger.put_run_command(run, OperatorControl(act, step_of(served, run).n), at=1.0)
    thread.join(10)
    assert not thread.is_alive() and len(pool.ended_reads) == 1 and len(pool.compared) == 1, "ended on the server too"
    driven.join(10)
    found = served.ledger.run(run)
    assert found is not None and found.state == ends and not served.ledger.check_results(run)
    assert version_comparison._one_at_a_time.acquire(timeout=1)
    version_comparison._one_at_a_time.release()


def test_a_comparison_that_is_ended_while_it_waits_for_another_never_begins(served: AgentContext, pool: Any) -> None:
    run = submit(served, plan(served, UPPER, REBUILD_A))
    row = served.ledger.run(run)
    assert row is not None
    driven = threading.Thread(target=RunDriver(served, row, threading.Event()).drive)
    with version_comparison._one_at_a_time:
        driven.start()
        wait_until(lambda: step_of(served, run).note == "comparing")
        (thread,) = (one for one in threading.enumerate() if one.name == "validate a")
        served.ledger.put_run_command(run, OperatorControl("cancel"), at=1.0)
        thread.join(10)
        assert not thread.is_alive() and not pool.compared
    driven.join(10)


def test_without_a_position_it_waits_and_says_how_far_both_have_read(served: AgentContext, pool: Any) -> None:
    has_read(served, 1, "3:z")
    has_read(served, 2, "2:y")
    run = submit(served, plan(served, UPPER, REBUILD_A))
    thread = threading.Thread(target=drive, args=(served, run))
    thread.start()
    wait_until(lambda: "no common position yet" in step_of(served, run).note)
    assert step_of(served, run).note == (
        "no common position yet, for at most 30m: a@v1 has read 3 files or messages of landed, a@v2 2"
    )
    assert not pool.compared
    has_read(served, 2, "2:y", "3:z")
    thread.join(30)
    assert step_of(served, run).note == "equal in 7 checks"


def test_waiting_for_a_position_that_never_comes_is_bounded_and_then_asks(served: AgentContext, pool: Any) -> None:
    has_read(served, 1, "3:z")
    has_read(served, 2, "2:y")
    passed = count(0.0, 60.0)
    served = replace(served, monotonic=lambda: next(passed))
    run = submit(served, plan(served, UPPER, REBUILD_A))
    assert drive(served, run) == "failed"
    found = step_of(served, run)
    assert found.note == (
        "within 30m no position was found that both have read: a@v1 has read 3 files or messages of landed, a@v2 2"
    )
    assert pool.views["a"] == "a__v1" and not pool.compared
    assert drive(served, run, OperatorControl("skip", found.n)) == "done" and pool.views["a"] == "a__v2"
    assert step_of(served, run).note == f"skipped by an operator; before that: {found.note}"
    assert swap_note(served, run) == f"a__v2; a: {step_of(served, run).note}"


def test_files_that_cannot_be_reached_for_a_while_are_waited_for(served: AgentContext, pool: Any) -> None:
    unreachable: set[str] = served.files.unreachable  # type: ignore[attr-defined]  # A double's.
    place = served.layout.checkpoint_folder(T("a"), 1)
    unreachable.add(place)
    run = submit(served, plan(served, UPPER, REBUILD_A))
    thread = threading.Thread(target=drive, args=(served, run))
    thread.start()
    wait_until(lambda: "cannot be reached" in step_of(served, run).note)
    assert step_of(served, run).state == "gate"
    unreachable.discard(place)
    thread.join(30)
    assert step_of(served, run).note == "equal in 7 checks"


def test_rows_of_unreadable_batches_never_count_as_no_rows(served: AgentContext, pool: Any) -> None:
    has_read(served, 1)
    has_read(served, 2)
    run = submit(served, plan(served, UPPER, REBUILD_A))
    thread = threading.Thread(target=drive, args=(served, run))
    thread.start()
    wait_until(lambda: "it is not known" in step_of(served, run).note)
    assert not pool.compared and pool.views["a"] == "a__v1"
    files: Any = served.files
    place = served.layout.checkpoint_folder(T("a"), 1)
    assert ("a__v1", "parquet", f"id in {place}") in files.asked_records
    assert {format for _, format, _ in files.asked_records} == {"parquet"}
    files.sink = None  # Now neither version has written a batch.
    thread.join(30)
    assert step_of(served, run).note == "equal in 7 checks"


@pytest.mark.parametrize(
    ("state", "why"),
    [({"state": State.FAILED}, "a@v1 is failed and has read less"),
     ({"state": State.STOPPED, "wanted": "stopped"}, "a@v1 is stopped and has read less"),
     ({"checkpoint_ok": False}, "the checkpoint of a@v1 does not say what it has read")],
)  # fmt: skip
def test_a_version_that_stopped_reading_is_not_waited_for(
    state: dict[str, Any], why: str, served: AgentContext, pool: Any
) -> None:
    made = plan(served, UPPER, REBUILD_A)
    served.ledger.update_deployment(T("a"), 1, **state)
    has_read(served, 1, "1:x")
    has_read(served, 2, "2:y")
    run = submit(served, made)
    assert drive(served, run) == "done"
    assert step_of(served, run).note == f"rows were not compared: {why}"
    found = results(served, run)["differences"]
    assert (found.verdict, found.old_batch, found.new_batch) == ("skipped", None, None)


@pytest.mark.parametrize(("lag", "measured_at", "waits"), [(3, 60.0, True), (0, 40.0, True), (0, 60.0, False)], ids=str)
def test_a_version_that_read_all_of_an_ended_input_is_not_waited_for(
    lag: int, measured_at: float, waits: bool, served: AgentContext, pool: Any
) -> None:
    edited = small_project.texts(b="SELECT id, upper(kind) AS kind FROM STREAM a")
    made = plan(served, edited, PlanRequest(tables=(T("b"),), rebuild=True, children="none"))
    has_read(served, 1, "1:x", table="b")
    has_read(served, 2, "2:y", table="b")
    run = submit(served, made)
    served.ledger.update_deployment(T("a"), 1, state=State.FAILED, state_since=50.0)
    served.ledger.put_measurements([Measurement(T("b"), 1, measured_at, lag_files=lag)])
    row = served.ledger.run(run)
    assert row is not None
    driven = threading.Thread(target=RunDriver(served, row, threading.Event()).drive)
    driven.start()
    if waits:
        wait_until(lambda: step_of(served, run).note.startswith("no common position yet"))
        served.stopping.set()
    driven.join(30)
    ended = "rows were not compared: b@v1 has read less, and has stopped reading: a@v1 is failed"
    assert (step_of(served, run).note == ended) is not waits


def test_input_that_is_gone_is_not_waited_for(served: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation_step, "GONE_EVERY_S", 0.0)
    monkeypatch.setattr(type(served.files), "count_missing_inputs", lambda *_: 4)
    has_read(served, 1, "9:x")
    has_read(served, 2, "5:y")
    run = submit(served, plan(served, UPPER, REBUILD_A))
    assert drive(served, run) == "done"
    why = "rows were not compared: 4 files that a@v1 has read are no longer there"
    assert step_of(served, run).note == why


def test_a_pool_that_does_not_answer_is_asked_again_and_a_refusal_fails_the_step(
    served: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = type(pool.connection().tables)
    read, asked = tables.read_files, []

    def answer(self: Any, sql: str, limit: int, views: Any, tag: str) -> Any:
        asked.append(sql)
        if len(asked) == 1:
            raise PoolUnreachable("the pool is silent")
        return read(self, sql, limit, views, tag)

    monkeypatch.setattr(tables, "read_files", answer)
    run = submit(served, plan(served, UPPER, REBUILD_A))
    assert drive(served, run) == "done" and len(asked) == 4

    def refuse(self: Any, sql: str, limit: int, views: Any, tag: str) -> Any:
        raise EngineRefused("the file is broken", error_class="FAILED_READ_FILE")

    monkeypatch.setattr(tables, "read_files", refuse)
    again = submit(served, plan(served, UPPER, replace(REBUILD_A, nonce="again")))
    assert drive(served, again) == "failed"
    assert step_of(served, again).note == "FAILED_READ_FILE: the file is broken"


def test_a_comparison_that_cannot_read_the_ledger_is_repeated(
    served: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked, compare = iter([LedgerUnavailable("the ledger is locked")]), version_comparison.VersionComparison.compare

    def once(*args: Any) -> Any:
        for error in locked:
            raise error
        return compare(*args)

    monkeypatch.setattr(version_comparison.VersionComparison, "compare", once)
    run = submit(served, plan(served, UPPER, REBUILD_A))
    assert drive(served, run) == "done", step_of(served, run).note


def test_a_check_of_the_project_that_gives_rows_blocks_by_its_name(served: AgentContext, pool: Any) -> None:
    sql = "SELECT a.kind FROM a JOIN landed ON a.id = landed.id WHERE a.kind < upper(a.kind)"
    yml = f"checks: [{{name: loud, sql: '{sql}'}}]\n"
    files = UPPER | {"pipelines/facts/p/a/a.yml": yml}
    pool.answered["kind < upper"] = (("kind",), (("x",), ("y",)))
    run = submit(served, plan(served, files, REBUILD_A))
    assert drive(served, run) == "failed"
    assert step_of(served, run).note.startswith('check loud: it gives rows, such as {"kind": "x"}; for example ')
    sql, (view,) = pool.compared[-1]
    assert f"FROM {view.name} AS a JOIN landed" in sql and view.name.startswith("headgate_new_")
    pool.answered.clear()
    assert drive(served, run, OperatorControl("retry")) == "done"
    assert results(served, run)["check loud"].verdict == "ok"


def test_a_version_whose_files_are_not_its_rows_is_not_compared_with_the_reason(
    served: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Any, folder: str, upto: int) -> Any:
        if "a__v1" in folder:
            raise Refused("some are partitions of another version")
        return read(self, folder, upto)

    read = type(served.files).written_files
    monkeypatch.setattr(type(served.files), "written_files", refuse)
    run = submit(served, plan(served, UPPER, REBUILD_A))
    assert drive(served, run) == "done" and pool.views["a"] == "a__v2"
    why = "the files of a@v1 are not its rows: some are partitions of another version"
    assert step_of(served, run).note == f"rows were not compared: {why}"
    found = results(served, run)["differences"]
    assert (found.verdict, found.summary) == ("skipped", why)


def test_a_check_over_rows_that_nobody_can_read_by_file_has_failed(
    served: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Any, folder: str, upto: int) -> Any:
        raise Refused("columns have other names there")

    monkeypatch.setattr(type(served.files), "written_files", refuse)
    yml = "checks: [{name: loud, sql: 'SELECT id FROM a WHERE id > 1'}]\n"
    files = UPPER | {"pipelines/facts/p/a/a.yml": yml}
    run = submit(served, plan(served, files, REBUILD_A))
    assert drive(served, run) == "failed" and pool.views["a"] == "a__v1"
    why = "the files of a@v2 are not its rows: columns have other names there"
    assert (results(served, run)["check loud"].verdict, results(served, run)["check loud"].summary) == ("failed", why)


def test_an_environment_without_validation_has_no_such_step(served: AgentContext) -> None:
    files = dict(UPPER)
    files["headgate.yml"] = files["headgate.yml"].replace("dev: {}", "dev: {policy: {validate: off}}")
    assert [step.do for step in plan(served, files, REBUILD_A).steps if step.do == "validate"] == []


def test_edits_in_place_explain_the_differences_of_a_rebuild_of_the_same_text(served: AgentContext, pool: Any) -> None:
    filtered = small_project.texts(c="SELECT id, kind FROM STREAM a WHERE id > 1")
    deploy(served, pool, filtered)
    assert pool.running["c@v1"].select.endswith("WHERE id > 1")
    again = PlanRequest(tables=(T("c"),), rebuild=True, children="none")
    assert drive(served, submit(served, plan(served, filtered, again))) == "done"
    (query,) = [sql for sql, _ in pool.compared if "WITH uneven" in sql]
    assert "WHEN ((`id` > 1)) IS NULL THEN 0 WHEN NOT coalesce((`id` > 1), false) THEN 1" in query


@pytest.mark.parametrize(("newest", "explained"), [(5.0, False), (5e9, True)])
def test_rows_added_to_a_static_side_since_its_reader_started_explain_differences(
    newest: float, explained: bool, agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = FolderContents(1, 10, 2, True, 1.0, newest)
    monkeypatch.setattr(type(agent.files), "contents", lambda *_: found, raising=False)
    files = small_project.texts(c="SELECT a.id, landed.kind FROM STREAM a JOIN landed ON a.id = landed.id")
    deploy(agent, pool, files)
    pool.answered["WITH uneven"] = (DIFFERENCE, (("new", 0 if explained else -1, 0, 7, *[None] * 6),))
    again = PlanRequest(tables=(T("c"),), rebuild=True, children="none")
    run = submit(agent, plan(agent, files, again))
    assert drive(agent, run) == ("done" if explained else "failed")
    (query,) = [sql for sql, _ in pool.compared if "WITH uneven" in sql]
    assert ("kind AS kind" in query) is not explained
    words = "7 rows only in the new version: landed: it has changed since c@v1 was started (may be explained)"
    assert (words in step_of(agent, run).note) is explained
