"""Statistics of tables: what is recorded for a real folder, how often, and what callers receive."""

import os
import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from delta_files import WrittenLog
from ledger_rows import deployment_row, external_row
from spark_files import Consumer, WrittenTable

from core.model.errors import LedgerUnavailable, TryAgain, UsageError
from core.model.names import TableName
from core.observed.table_statistics import TableStatistics, history_of
from core.observed.versions import Measurement
from core.ports.spark import ReportedQuery
from core.project.model import Environment, Pool
from core.project.revision import RevisionTexts
from pipelines.agent.context import AgentContext
from pipelines.agent.deployment_compiler import EnvironmentLayout
from pipelines.agent.measurements import table_statistics_collector
from pipelines.agent.measurements.lag_collector import LagCollector
from pipelines.agent.measurements.table_statistics_collector import (
    EVERY_S,
    LOGS_EVERY_S,
    ROUND_S,
    TableStatisticsCollector,
)
from pipelines.agent.requests.command_handler import CommandHandler
from pipelines.agent.runs.run_driver import OpenRuns
from pipelines.agent.statements.statement_control import StatementControl
from pipelines.spark_connect.query_progress import PoolUtilization, QueryProgress
from pipelines.storage.checkpoints import TableCheckpoints
from pipelines.storage.delta_tables import DeltaTables
from state.emergency_journal import EmergencyJournal
from state.planner_input_from_registry import observe
from tests.pipelines.agent.conftest import ScriptedPool

A, LANDED = TableName("a"), TableName("landed")


class Landed:
    """A landing folder of ten files of ten lines, and a@v1 that has read seven of them into its table."""

    def __init__(self, agent: AgentContext, folder: Path) -> None:
        self.landing, self.checkpoint = folder / "landing", folder / "c"
        self.landing.mkdir()
        for n in range(10):
            (self.landing / f"{n}.json").write_text('{"i":1}\n' * 10)
            os.utime(self.landing / f"{n}.json", (100.0 + n, 100.0 + n))
        self.table, self.consumer = WrittenTable(folder / "t"), Consumer(self.checkpoint)
        for n in range(7):
            self.consumer.commit(f"file://{self.landing}/{n}.json")
            self.table.write(rows=10, at=500.0 + n)
        external = external_row(columns=("i",), format="json", folder=str(self.landing))
        reads = RevisionTexts("d", "INSERT INTO a SELECT i FROM STREAM landed", "")
        agent.ledger.put_deployment(external)
        agent.ledger.put_deployment(
            deployment_row(
                texts=reads, columns=("i",), folder=str(self.table.folder), checkpoint=str(self.checkpoint),
                checkpoint_id="q-1", wanted="stopped", state="stopped",
            )
        )  # fmt: skip
        agent.files = TableCheckpoints("ledger")
        agent.clock = lambda: 10_000.0


@pytest.fixture
def landed(agent: AgentContext, tmp_path: Path) -> Landed:
    return Landed(agent, tmp_path)


def take(agent: AgentContext, measurer: TableStatisticsCollector) -> dict[TableName, TableStatistics]:
    """Run one round, and return the ledger's statistics after it."""
    measurer.round(tuple(agent.ledger.deployments()))
    return {table: found for (table, _), found in agent.ledger.table_statistics().items()}


def test_a_round_measures_every_table_and_the_files_a_rebuild_would_miss(agent: AgentContext, landed: Landed) -> None:
    measurer = TableStatisticsCollector(agent, PoolUtilization())
    found = take(agent, measurer)
    size = sum(entry["size"] for entry in landed.table.entries)
    assert found[LANDED] == TableStatistics(10_000.0, 100, False, 800, 10, 100.0, None)
    assert found[A] == TableStatistics(10_000.0, 70, True, size, 7, 500.0, 0)
    for n in (0, 1, 9):
        (landed.landing / f"{n}.json").unlink()
    assert take(agent, measurer) == found
    agent.clock = lambda: 10_000.0 + EVERY_S
    again = take(agent, measurer)
    assert (again[A].gone, again[A].rows) == (2, 70)
    assert (again[LANDED].files, again[LANDED].earliest, again[LANDED].gone) == (7, 102.0, None)
    assert observe(agent.ledger.deployments(), agent.ledger.table_statistics())[A].statistics == again[A]


def test_a_new_table_is_measured_whenever_its_age_has_doubled(agent: AgentContext, landed: Landed) -> None:
    agent.ledger.update_deployment(A, 1, created_at=10_000.0)
    measurer, looked = TableStatisticsCollector(agent, PoolUtilization()), []
    for seconds in (0, 14, 15, 29, 30, 59, 60, 119, 120, 239, 240, 479, 480, 959, 960, 1559, 1560):
        agent.clock = partial(float, 10_000 + seconds)
        if take(agent, measurer)[A].at == 10_000 + seconds:
            looked.append(seconds)
    assert looked == [0, 15, 30, 60, 120, 240, 480, 960, 1560]


def test_a_table_measured_as_empty_is_measured_again_once_it_has_rows(agent: AgentContext, landed: Landed) -> None:
    """The interval doubles with age; plans used to assume no rows for a table that had filled since."""

    def rounds(seconds: int, rows: int | None) -> float | None:
        agent.clock = partial(float, 10_000 + seconds)
        agent.ledger.put_measurements([Measurement(A, 1, 10_000.0 + seconds, trend="steady", rows_total=rows)])
        return take(agent, measurer)[A].at

    measurer = TableStatisticsCollector(agent, PoolUtilization())
    assert rounds(0, 70) == 10_000.0
    assert rounds(100, 140) == 10_000.0, "no more than twice as many"
    assert rounds(101, 141) == 10_101.0
    assert rounds(102, 999) == 10_101.0, "it was looked at just now, and holds 70"
    assert rounds(117, None) == 10_101.0, "what it holds is not known"
    assert rounds(118, 999) == 10_118.0
    again = TableStatisticsCollector(agent, PoolUtilization())
    agent.clock = partial(float, 10_140)
    assert {table: found for (table, _), found in agent.ledger.table_statistics().items()}[A].at == 10_118.0
    again.round(tuple(agent.ledger.deployments()))
    assert take(agent, again)[A].at == 10_140.0, "a new agent knows with how many rows it was looked at"


def test_a_new_agent_knows_when_a_table_was_measured_last(agent: AgentContext, landed: Landed) -> None:
    found = take(agent, TableStatisticsCollector(agent, PoolUtilization()))
    (landed.landing / "0.json").unlink()
    agent.clock = lambda: 10_000.0 + EVERY_S / 2
    assert take(agent, TableStatisticsCollector(agent, PoolUtilization())) == found


def test_unreachable_tables_keep_their_last_known_figures(
    agent: AgentContext, landed: Landed, monkeypatch: pytest.MonkeyPatch
) -> None:
    measurer = TableStatisticsCollector(agent, PoolUtilization())
    found = take(agent, measurer)
    agent.clock = lambda: 10_000.0 + EVERY_S

    def refused(folder: str, format: str) -> None:
        raise TryAgain(f"{folder} cannot be reached")

    monkeypatch.setattr(agent.files, "contents", refused)
    assert take(agent, measurer) == found


def test_measurements_that_the_ledger_rejected_are_taken_again_at_the_next_tick(
    agent: AgentContext, landed: Landed, monkeypatch: pytest.MonkeyPatch
) -> None:
    measurer = TableStatisticsCollector(agent, PoolUtilization())

    def locked(*_: object) -> None:
        raise LedgerUnavailable("the ledger is locked")

    with monkeypatch.context() as patched:
        patched.setattr(agent.ledger, "put_table_statistics", locked)
        with pytest.raises(LedgerUnavailable):
            take(agent, measurer)
    assert set(take(agent, measurer)) == {A, LANDED}


def test_an_unreadable_log_does_not_prevent_measuring_other_tables(agent: AgentContext, landed: Landed) -> None:
    (landed.table.folder / "_spark_metadata" / "3").write_text("v1\nnothing of Spark's")
    assert set(take(agent, TableStatisticsCollector(agent, PoolUtilization()))) == {LANDED}


def test_missing_tables_and_checkpoints_have_no_figures(agent: AgentContext, landed: Landed) -> None:
    os.rename(landed.table.folder, f"{landed.table.folder}.away")
    os.rename(landed.checkpoint, f"{landed.checkpoint}.away")
    assert take(agent, TableStatisticsCollector(agent, PoolUtilization()))[A] == TableStatistics(
        at=10_000.0, exact=False
    )


def test_an_asker_gets_figures_at_once_and_hears_what_was_not_measured(
    agent: AgentContext, landed: Landed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measurer = TableStatisticsCollector(agent, PoolUtilization())
    take(agent, measurer)
    acts = StatementControl(agent, EmergencyJournal(tmp_path / "e"))
    commands = CommandHandler(agent, acts, OpenRuns(agent), measurer, lambda _: None)

    def ask(**args: Any) -> dict[str, Any]:
        return commands.handle(SimpleNamespace(name="ana"), {"op": "measure", "args": args})  # type: ignore[arg-type]

    (landed.landing / "3.json").unlink()
    assert ask(tables=["a", "b"]) == {"measured": ["a"], "unmeasured": ["b"]}
    assert agent.ledger.table_statistics()[A, 1].gone == 1
    assert ask(tables=["a"], seconds=0.0) == {"measured": [], "unmeasured": ["a"]}
    with pytest.raises(UsageError, match="not a number of seconds"):
        ask(tables=["a"], seconds="soon")


def test_capacity_is_the_disk_of_the_data_folder_and_the_present_pool(
    agent: AgentContext, pool: ScriptedPool, tmp_path: Path
) -> None:
    load = PoolUtilization()
    agent.clock = lambda: 1000.0
    agent.layout = EnvironmentLayout(str(tmp_path / "not" / "there"), Environment("dev", pool=Pool(cores=4)))
    measurer = TableStatisticsCollector(agent, load)
    measurer.round(())
    room, disk = agent.ledger.headroom(), os.statvfs(tmp_path)
    assert (room.at, room.cores, room.busy, room.engine) == (1000.0, 4, None, "4.2.0")
    assert room.disk_total == disk.f_blocks * disk.f_frsize and 0 < (room.disk_free or 0) < room.disk_total
    pool.reachable = False
    agent.layout = EnvironmentLayout(str(tmp_path), Environment("dev", pool=Pool(url="sc://host:15002")))
    measurer.round(())
    assert (agent.ledger.headroom().cores, agent.ledger.headroom().busy, agent.ledger.headroom().engine) == (
        None,
        None,
        "",
    )


def test_busy_is_the_seconds_of_batches_by_second_and_core() -> None:
    load = PoolUtilization()
    assert load.busy(0.0, 2) is None
    for n in range(121):
        now = 5.0 * n
        load.batch((A, 1), QueryProgress(batch=n, batch_ms=2000), now)
        load.batch((A, 2), QueryProgress(batch=3 * n, batch_ms=1000), now)
        load.batch((LANDED, 0), QueryProgress(), now)
    assert load.busy(600.0, 2) == pytest.approx(0.5, rel=0.02)
    assert load.busy(750.0, 2) == pytest.approx(0.25, rel=0.05)
    assert load.busy(2000.0, 2) == 0.0


def test_statistics_of_large_tables_take_a_fifth_of_a_core_and_the_oldest_comes_first(
    agent: AgentContext, landed: Landed, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, waited, looked = 0.0, 0.0, []

    def contents(folder: str, format: str) -> None:
        nonlocal now
        now += 2.0
        looked.append(folder)

    def wait(seconds: float) -> bool:
        nonlocal now, waited
        now, waited = now + seconds, waited + seconds
        return False

    monkeypatch.setattr(agent.files, "contents", contents)
    monkeypatch.setattr("pipelines.agent.measurements.table_statistics_collector.time.monotonic", lambda: now)
    monkeypatch.setattr(agent, "stopping", SimpleNamespace(wait=wait))
    for n in range(20):
        agent.ledger.put_deployment(external_row(f"big{n:02}", folder=f"/big/{n:02}"))
    measurer, deployments = TableStatisticsCollector(agent, PoolUtilization()), tuple(agent.ledger.deployments())
    measurer.round(deployments)
    assert (len(looked), waited) == (ROUND_S / 10, ROUND_S * 0.8), "what comes anew waits no longer than a round"
    while len(looked) < len(deployments):
        measurer.round(deployments)
    assert len(set(looked)) == len(deployments)


def test_a_round_ends_when_the_agent_is_to_end(
    agent: AgentContext, landed: Landed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_statistics_collector, "_AT_ONCE", 1)
    agent.stopping.set()
    assert len(take(agent, TableStatisticsCollector(agent, PoolUtilization()))) == 1


def test_the_rate_and_the_state_of_the_last_batches_stay_when_the_statement_stops(
    agent: AgentContext, landed: Landed
) -> None:
    def progress(rows: int, ms: int, **more: Any) -> tuple[ReportedQuery, ...]:
        sources = [{"numInputRows": rows}]
        return (ReportedQuery("a@v1", "q", "r", True, progress={"batchId": 1, "durationMs": {"triggerExecution": ms},
                                                        "sources": sources, **more}),)  # fmt: skip

    state = {"stateOperators": [{"numRowsTotal": 5, "memoryUsedBytes": 500}]}
    measurer, deployments = LagCollector(agent), tuple(agent.ledger.deployments())
    for n, queries in enumerate((progress(100, 1000), progress(900, 2000, **state), progress(0, 1), progress(10, 900))):
        agent.clock = partial(float, 10_000 + 5 * n)
        measurer.round(deployments, queries)
    LagCollector(agent).round(deployments, ())
    found = agent.ledger.table_statistics()[A, 1]
    assert (found.rate_rows_s, found.state_rows, found.state_bytes) == (450.0, 5, 500)


def test_an_input_with_a_log_has_its_rows_and_newest_version_within_half_a_minute(
    agent: AgentContext, tmp_path: Path
) -> None:
    written = WrittenLog(tmp_path / "lake")
    written.commit(30, 12, at=9_000.0)
    agent.ledger.put_deployment(external_row(format="delta", folder=str(tmp_path / "lake/delta")))
    agent.files = TableCheckpoints("ledger", logs={"delta": DeltaTables(refresh_s=0)})
    measurer = TableStatisticsCollector(agent, PoolUtilization())

    def listed(now: float) -> tuple[int | None, int | None, str]:
        agent.clock = lambda: now
        found = take(agent, measurer)[LANDED]
        (line,) = agent.ledger.statements()
        history = history_of(found.log)
        return line.rows_total, found.rows, f"{history.first}-{history.last} {history.last_at:.0f}" if history else ""

    assert listed(10_000.0) == (42, 42, "0-1 9000")
    written.commit(8, at=9_500.0)
    assert listed(10_000.0 + LOGS_EVERY_S - 1)[0] == 42
    assert listed(10_000.0 + LOGS_EVERY_S) == (50, 50, "0-2 9500")
    whole = written.log / f"{1:020}.json"
    whole.write_text("no JSON")
    agent.files = TableCheckpoints("ledger", logs={"delta": DeltaTables(refresh_s=0)})
    assert listed(10_000.0 + 2 * LOGS_EVERY_S) == (None, 50, "0-2 9500"), "figures with an age stay, others do not"
    shutil.rmtree(tmp_path / "lake")
    assert listed(10_000.0 + 3 * LOGS_EVERY_S) == (None, None, "")
