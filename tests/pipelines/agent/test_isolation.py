"""Isolation: a bad statement or table does not harm others; it is marked with its error and retried."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agent_scenarios import fast_lane, held_elsewhere, in_a_thread, one_pool, put_made, wait_until
from ledger_rows import deployment_row, external_row

from core.model.act_outcomes import UNCONFIRMED
from core.model.errors import EngineRefused, PoolUnreachable, Refused, TryAgain
from core.model.names import TableName
from core.observed.versions import Deployment
from core.ports.spark import QueryStart, ReportedQuery, ignore_stop_request
from core.project.overlay import OVERLAY_FILE, Overlay, overlay_as_text
from core.project.revision import RevisionTexts
from pipelines.agent.context import AgentContext
from pipelines.agent.measurements.lag_collector import LagCollector
from pipelines.agent.pool.pool_catalog import ACTS_AT_ONCE
from pipelines.agent.reconciler import BeforeRound, Reconciler
from pipelines.agent.statements import deployment_lifecycle
from pipelines.agent.statements import statement_control as fast_lane_module
from pipelines.spark_connect import call_deadlines
from pipelines.spark_connect.call_deadlines import CircuitBreaker, MissedDeadline
from pipelines.spark_connect.session import Session
from state.emergency_journal import EmergencyJournal

BAD, GOOD = TableName("a"), TableName("b")


@pytest.fixture
def agent(agent: AgentContext) -> AgentContext:
    """An agent whose clock advances by a minute at each reading, so that everything waiting is due."""
    return replace(agent, monotonic=partial(next, count(0.0, 60.0)))


@pytest.fixture
def reconciler(agent: AgentContext, tmp_path: Path) -> Reconciler:
    return Reconciler(agent, EmergencyJournal(tmp_path / "emergency.jsonl"))


def deploy(agent: AgentContext, *tables: str, **changed: Any) -> None:
    for table in tables:
        runs_as = {"query_id": "q", "run_id": f"run of {table}@v1"}
        put_made(agent, deployment_row(table, **(runs_as | changed)))


def lost(pool: Any) -> None:
    """Lose every query together with its session."""
    pool.running.clear()


def reconcile(reconciler: Reconciler, *ended: ReportedQuery) -> None:
    agent = reconciler.agent
    before = BeforeRound.of(agent)
    reconciler.round(before, agent.pools.default.connection().queries.active(), ended)


def found(agent: AgentContext, table: TableName) -> Deployment:
    deployment = agent.ledger.deployment(table, 1)
    assert deployment is not None
    return deployment


def runs(pool: Any, table: str) -> None:
    pool.running[f"{table}@v1"] = QueryStart(f"{table}@v1", "SELECT 1", "t", "parquet", f"/c/{table}__v1", "1 second")


def test_a_file_system_hiccup_at_a_restart_is_reported_and_retried(
    agent: AgentContext, pool: Any, reconciler: Reconciler
) -> None:
    deploy(agent, "a", "b")
    agent.files.unreachable.add("/c/a__v1")  # type: ignore[attr-defined]  # Scripted.
    reconcile(reconciler)
    assert pool.starts == ["b@v1"]
    assert (found(agent, BAD).state, found(agent, BAD).error) == (
        "degraded", "/c/a__v1 cannot be reached: Input/output error",
    )  # fmt: skip
    reconcile(reconciler)
    assert len([event for event in agent.ledger.events() if "Input/output" in event.detail]) == 1, "said once"
    agent.files.unreachable.clear()  # type: ignore[attr-defined]  # Scripted.
    reconcile(reconciler)
    assert "a@v1" in pool.starts and found(agent, BAD).error == ""


@pytest.mark.parametrize("wanted", ["running", "stopped"])
def test_a_checkpoint_that_cannot_be_read_ends_no_round(
    wanted: str, agent: AgentContext, pool: Any, reconciler: Reconciler
) -> None:
    deploy(agent, "a", wanted=wanted, state=wanted)
    deploy(agent, "b")
    if wanted == "running":
        runs(pool, "a")
    agent.files.unreachable.add("/c/a__v1")  # type: ignore[attr-defined]  # Scripted.
    reconcile(reconciler)
    assert pool.starts == ["b@v1"]
    assert found(agent, BAD).state == wanted and found(agent, BAD).checkpoint_ok
    said = found(agent, BAD).error
    assert said == ("" if wanted == "running" else "/c/a__v1 cannot be reached: Input/output error")
    agent.files.unreachable.clear()  # type: ignore[attr-defined]  # Scripted.
    reconcile(reconciler)
    assert found(agent, BAD).error == ""


def test_a_stop_that_spark_refuses_is_reported_and_retried(
    agent: AgentContext, pool: Any, reconciler: Reconciler
) -> None:
    deploy(agent, "a", wanted="stopped", state="stopping")
    deploy(agent, "b")
    runs(pool, "a")
    pool.refuse_stop["a@v1"] = EngineRefused("it did not stop within 15 s", error_class="TIMEOUT")
    reconcile(reconciler)
    assert pool.starts == ["b@v1"]
    assert (found(agent, BAD).state, found(agent, BAD).error) == ("stopping", "it did not stop within 15 s")
    pool.refuse_stop.clear()
    reconcile(reconciler)
    assert (found(agent, BAD).state, found(agent, BAD).error, "a@v1" in pool.running) == ("stopped", "", False)


def test_our_own_bug_on_a_statement_is_reported_for_that_statement(
    agent: AgentContext, pool: Any, reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, "a", "b")
    read = type(agent.files).read

    def broken(files: Any, folder: str) -> Any:
        return 1 / 0 if folder == "/c/a__v1" else read(files, folder)

    monkeypatch.setattr(type(agent.files), "read", broken)
    reconcile(reconciler)
    assert pool.starts == ["b@v1"] and "ZeroDivisionError" in found(agent, BAD).error


def test_a_refused_table_keeps_no_other_out_of_the_catalog_and_is_registered_later(
    agent: AgentContext, pool: Any, reconciler: Reconciler
) -> None:
    agent.ledger.put_deployment(external_row())
    deploy(agent, "a", "b")
    pool.refuse_table["a__v1"] = EngineRefused("no permission on /t/a__v1", error_class="IO")
    pool.tables.clear()
    reconciler.restore(pool.connection())
    assert set(pool.tables) == {"landed", "b__v1"} and set(pool.views) == {"b"}
    assert found(agent, BAD).error == "its table is not in the pool's catalog: no permission on /t/a__v1"
    lost(pool)
    reconcile(reconciler)
    assert pool.starts == ["b@v1"] and found(agent, BAD).state == "degraded"
    pool.refuse_table.clear()
    reconcile(reconciler)
    assert "a__v1" in pool.tables and pool.views["a"] == "a__v1"
    reconcile(reconciler)
    assert "a@v1" in pool.starts and found(agent, BAD).error == ""


def test_a_table_whose_folder_cannot_be_reached_is_not_said_to_be_missing_from_the_catalog(
    agent: AgentContext, pool: Any, reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> str:
        raise TryAgain("the data folder cannot be reached")

    agent.files.ids["/t/a__v1"] = "id"  # type: ignore[attr-defined]  # Scripted.
    deploy(agent, "a", format="delta")
    reconciler.restore(pool.connection())
    reconcile(reconciler)
    reconcile(reconciler)
    with monkeypatch.context() as patch:
        patch.setattr(agent.files, "identity", away)
        reconciler.restore(pool.connection())
        assert (found(agent, BAD).state, found(agent, BAD).error) == ("running", "")
        lost(pool)
        reconcile(reconciler)
        assert found(agent, BAD).error.startswith("it waits for a__v1, which could not be checked: the data")
    reconcile(reconciler)
    reconcile(reconciler)
    assert "a@v1" in pool.running and found(agent, BAD).error == ""


def test_a_start_by_hand_registers_its_table_first_where_the_catalog_has_refused_it(
    agent: AgentContext, pool: Any, reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> bool:
        raise EngineRefused("the metastore is away", error_class="IO")

    agent.ledger.put_deployment(external_row())
    deploy(agent, "a", wanted="stopped", state="stopped", query_id="", run_id="")
    pool.refuse_table["a__v1"] = EngineRefused("no permission on /t/a__v1", error_class="IO")
    pool.tables.clear()
    reconciler.restore(pool.connection())
    lane = fast_lane(agent)
    with pytest.raises(Refused, match="a__v1 is not in the pool's catalog, which refuses it: no permission"):
        lane.start(("a",), 0.0, by="ann")
    assert pool.starts == [] and found(agent, BAD).wanted == "stopped"
    pool.refuse_table.clear()
    with monkeypatch.context() as patch:
        patch.setattr(type(pool.connection().tables), "has", refused)
        with pytest.raises(Refused, match="does not say whether it has a__v1: the metastore is away"):
            lane.start(("a",), 0.0, by="ann")
    reconcile(reconciler)
    assert pool.starts == [] and found(agent, BAD).wanted == "stopped", "a start that was refused does not begin later"
    lane.start(("a",), 0.0, by="ann")
    assert "a__v1" in pool.tables and pool.starts == ["a@v1"]


def test_a_restart_that_the_catalog_refuses_stops_nothing_and_a_lost_query_waits_for_the_catalog(
    agent: AgentContext, pool: Any, reconciler: Reconciler
) -> None:
    agent.ledger.put_deployment(external_row())
    deploy(agent, "a", wanted="stopped", state="stopped", query_id="", run_id="")
    reconciler.restore(pool.connection())
    fast_lane(agent).start(("a",), 0.0, by="ann")
    pool.tables.clear()
    pool.refuse_table["a__v1"] = EngineRefused("the metastore is away", error_class="IO")
    with pytest.raises(Refused, match="the metastore is away"):
        fast_lane(agent).restart(("a",), 0.0, by="ann")
    assert "a@v1" in pool.running
    lost(pool)
    reconcile(reconciler)
    assert found(agent, BAD).state != "failed" and found(agent, BAD).wanted == "running"
    pool.refuse_table.clear()
    pool.tables["landed"] = ""
    reconcile(reconciler)
    assert "a@v1" in pool.running and "a__v1" in pool.tables


def test_a_hundred_tables_take_few_requests_and_a_refused_one_costs_its_group_alone(
    agent: AgentContext, pool: Any, reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, *(f"t{n}" for n in range(100)))
    asked: list[str] = []

    def call(self: Any, seconds: float, fn: Any, *args: Any, **more: Any) -> Any:
        asked.append(fn.__name__)
        return fn(*args, **more)

    connection = pool.connection()
    monkeypatch.setattr(type(connection), "call", call)
    reconciler.restore(connection)
    assert len(pool.tables) == len(pool.views) == 100
    assert Counter(asked) == {"create_together": 10, "point_together": 10}
    pool.tables.clear()
    asked.clear()
    pool.refuse_table["t7__v1"] = EngineRefused("no permission on /t/t7__v1", error_class="IO")
    reconciler.restore(connection)
    assert len(pool.tables) == 99 and "t7__v1" not in pool.tables
    assert Counter(asked) == {"create_together": 10, "create": 10, "point_together": 10}
    assert found(agent, TableName("t7")).error.startswith("its table is not in the pool's catalog: no permission")


def test_a_refused_pointer_blocks_no_statement_and_is_created_later(
    agent: AgentContext, pool: Any, reconciler: Reconciler
) -> None:
    deploy(agent, "a", "b")
    pool.refuse_table["a"] = EngineRefused("a is a table", error_class="EXPECT_VIEW_NOT_TABLE")
    reconciler.restore(pool.connection())
    assert pool.views == {"b": "b__v1"}
    assert found(agent, BAD).error == "its pointer is not in the pool's catalog: a is a table"
    reconcile(reconciler)
    assert sorted(pool.starts) == ["a@v1", "b@v1"]
    pool.refuse_table.clear()
    reconcile(reconciler)
    assert pool.views == {"a": "a__v1", "b": "b__v1"}


def test_a_table_is_not_tried_again_while_a_run_swaps_another_version_in(
    agent: AgentContext, pool: Any, reconciler: Reconciler
) -> None:
    deploy(agent, "a")
    agent.ledger.put_deployment(deployment_row("a", version=2, active=False))
    pool.refuse_table["a__v1"] = EngineRefused("no permission", error_class="IO")
    reconciler.restore(pool.connection())
    pool.refuse_table.clear()
    with held_elsewhere(agent, (BAD, 2)):
        reconcile(reconciler)
        assert pool.views == {}
    agent.ledger.activate({BAD: 2})
    pool.views["a"] = "a__v2"
    reconcile(reconciler)
    assert "a__v1" in pool.tables and pool.views == {"a": "a__v2"}


def test_readers_of_a_refused_table_wait_for_it(agent: AgentContext, pool: Any, reconciler: Reconciler) -> None:
    agent.ledger.put_deployment(external_row())
    deploy(agent, "a")
    pool.refuse_table["landed"] = EngineRefused("the format is not known", error_class="DATA_SOURCE_NOT_FOUND")
    reconciler.restore(pool.connection())
    external = agent.ledger.deployment(TableName("landed"), 0)
    assert external is not None and (external.state, external.error[:12]) == ("running", "its table is")
    reconcile(reconciler)
    assert pool.starts == [] and found(agent, BAD).state == "degraded"
    assert "it waits for landed, which is not in the pool's catalog" in found(agent, BAD).error


def test_a_statement_does_not_wait_for_a_table_that_the_base_of_its_overlay_has_removed(
    agent: AgentContext, pool: Any, reconciler: Reconciler
) -> None:
    agent.ledger.put_deployment(external_row(folder="/data/tables/landed__v3"))
    deploy(agent, "a")
    overlay = Overlay("dev", "/home/dev", "/data", "/branch", 1.0, "ana", 9e9, inherited={TableName("landed"): 3})
    Path(agent.places.home, OVERLAY_FILE).write_text(overlay_as_text(overlay))
    agent.files.removed.add("/data/tables/landed__v3")  # type: ignore[attr-defined]  # Scripted.
    pool.refuse_table["landed"] = EngineRefused("there is no such folder", error_class="PATH_NOT_FOUND")
    reconciler.restore(pool.connection())
    reconcile(reconciler)
    assert pool.starts == [] and found(agent, BAD).state == "failed"
    assert found(agent, BAD).error.startswith("a@v1 reads landed@v3 of dev, which is gone: it is no longer in")


def test_an_end_reported_while_the_version_was_held_is_not_lost(
    agent: AgentContext, pool: Any, reconciler: Reconciler
) -> None:
    deploy(agent, "a")
    ended = ReportedQuery("a@v1", "q", "run of a@v1", False, error_class="DIVIDE_BY_ZERO", error="Division by zero.")
    with agent.locks.holding((BAD, 1), by="a test"):
        reconcile(reconciler, ended)
    reconcile(reconciler)
    assert (found(agent, BAD).state, pool.starts) == ("failed", [])


def test_a_stop_succeeds_while_the_catalog_is_being_filled(agent: AgentContext, pool: Any) -> None:
    deploy(agent, "a")
    runs(pool, "a")
    pool.restored = False
    (outcome,) = fast_lane(agent).stop((BAD,), time.monotonic(), by="bob")
    assert outcome.outcome == "stopped" and "a@v1" not in pool.running


def test_measuring_continues_after_a_statement_that_cannot_be_measured(agent: AgentContext) -> None:
    agent.ledger.put_deployment(external_row())
    ddl, dml = "CREATE TABLE {} (id BIGINT) USING parquet", "INSERT INTO {} SELECT id FROM STREAM landed"
    for table in ("a", "b"):
        deploy(agent, table, revision=table, texts=RevisionTexts(ddl.format(table), dml.format(table), ""))
    agent.files.unreachable.add("/c/a__v1")  # type: ignore[attr-defined]  # Scripted.
    LagCollector(agent).round(agent.ledger.deployments(), ())
    good, bad = agent.ledger.measurement(GOOD, 1), agent.ledger.measurement(BAD, 1)
    assert good is not None and good.lag_rows == 0
    assert bad is not None and (bad.lag_rows, bad.trend) == (None, "unknown")


@pytest.fixture
def at_work() -> Iterator[threading.Event]:
    released = threading.Event()
    yield released
    released.set()


def test_an_act_for_each_of_many_is_bounded_and_fails_after_all_were_tried(at_work: threading.Event) -> None:
    begun: list[int] = []

    def act(item: int) -> int:
        begun.append(item)
        at_work.wait(30)
        if item in (3, 5):
            raise TryAgain(f"{item} failed")
        return item * 2

    raised: list[str] = []

    def all_of_them() -> None:
        try:
            call_deadlines.in_threads(4, act, range(10))
        except TryAgain as error:
            raised.append(error.summary)

    thread = in_a_thread(all_of_them)
    wait_until(lambda: len(begun) == 4)
    at_work.set()
    thread.join(30)
    assert raised == ["3 failed"] and sorted(begun) == list(range(10))
    assert call_deadlines.in_threads(4, lambda item: item * 2, range(3)) == (0, 2, 4)


def hang() -> None:
    threading.Event().wait(call_deadlines.remaining())
    raise MissedDeadline("no answer")


class FrozenQueries:
    """Queries of a server that accepts calls and never answers; a call ends with its deadline, as in gRPC."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    def stop(self, name: str, calling: Any = ignore_stop_request, *, upserts: bool = False) -> None:
        calling()
        self.hang()

    def start(self, start: QueryStart) -> ReportedQuery:
        return self.hang()

    def hang(self) -> Any:
        self.threads.append(threading.active_count())
        hang()


class FrozenPool:
    """A pool that was frozen after its catalog was filled, behind a real breaker and real deadlines."""

    def __init__(self) -> None:
        session: Any = object.__new__(Session)
        self.queries: Any = FrozenQueries()
        session.breaker, session._lost = CircuitBreaker(hang, probe_s=0.01, every_s=0.01), None
        self.breaker = session.breaker
        tables = SimpleNamespace(has=lambda name: self.queries.hang())
        self._connection = SimpleNamespace(call=session.call, queries=self.queries, tables=tables)

    def connection(self) -> Any:
        return self._connection

    connection_for_stops = connection


def test_a_frozen_pool_with_a_hundred_statements_costs_few_threads_and_nothing_is_called_stopped(
    agent: AgentContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_lane_module, "STOP_S", 0.2)
    monkeypatch.setattr(deployment_lifecycle, "WRITE_CALL_S", 0.2)
    monkeypatch.setattr(deployment_lifecycle, "READ_CALL_S", 0.2)
    tables = [f"t{n}" for n in range(100)]
    deploy(agent, *tables)
    pool: Any = FrozenPool()
    agent = replace(agent, pools=one_pool(pool))
    before = threading.active_count()
    reconciler = Reconciler(agent, EmergencyJournal(Path(agent.folder, "e")))
    for _ in range(5):
        with pytest.raises(PoolUnreachable):
            reconciler.round(BeforeRound.of(agent), (), ())
    outcomes = fast_lane(agent).stop(tuple(map(TableName, tables)), time.monotonic(), by="bob")
    assert len(outcomes) == 100 and {outcome.result for outcome in outcomes} <= UNCONFIRMED
    # Each operation has one thread, and another for its call; two belong to the breaker.
    assert max(pool.queries.threads) <= before + 2 * ACTS_AT_ONCE + 2
    pool.breaker.close()
    wait_until(lambda: threading.active_count() <= before + 1)
    assert {d.state for d in agent.ledger.deployments()} == {"stopping"}
