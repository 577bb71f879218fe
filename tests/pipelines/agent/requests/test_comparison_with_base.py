"""The comparison of an overlay with its base: what is compared, awaited, left out, stored and refused."""

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from agent_scenarios import fast_lane, wait_until
from overlay_ledgers import TwoLedgers, two_ledgers

from core.model.errors import EngineRefused, HeadgateError, Refused, TryAgain, UsageError
from core.model.names import TableName as T
from core.observed.aligned_positions import BatchHistory, BatchPosition
from core.observed.versions import Measurement
from core.project.model import Environment
from core.run.records import OVERLAY_COMPARISON, CheckResultRow
from core.text.sentence import Sentence
from pipelines.agent.context import AgentContext
from pipelines.agent.deployment_compiler import EnvironmentLayout
from pipelines.agent.requests import comparison_with_base
from pipelines.agent.requests.command_handler import CommandHandler
from pipelines.agent.requests.socket_server import Caller
from pipelines.agent.runs import common_positions
from state.ledger import LedgerReader

HERE = Caller(1, 0, None)


@pytest.fixture
def two(agent: AgentContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TwoLedgers:
    """Make the agent that of the overlay pr-123."""
    monkeypatch.setattr(comparison_with_base, "POLL_S", 0.01)
    agent.layout = EnvironmentLayout(str(tmp_path / "pr-123"), Environment("pr-123"))
    found = two_ledgers(tmp_path, agent.ledger)
    found.write_overlay(Path(agent.places.home))
    return found


@pytest.fixture
def commands(agent: AgentContext) -> CommandHandler:
    unused: Any = None
    return CommandHandler(agent, fast_lane(agent), unused, unused, unused)


def begin(commands: CommandHandler, seconds: float = 0) -> dict[str, Any]:
    return commands.handle(HERE, {"op": "compare", "args": {"seconds": seconds}})


def progress(commands: CommandHandler, id: str) -> dict[str, Any]:
    return commands.handle(HERE, {"op": "comparison", "args": {"id": id}})


def compare(commands: CommandHandler, seconds: float = 0) -> None:
    id = begin(commands, seconds)["id"]
    wait_until(lambda: not progress(commands, id)["running"])


def stored(agent: AgentContext) -> dict[tuple[str, str], CheckResultRow]:
    return {(row.table, row.check): row for row in agent.ledger.check_results(OVERLAY_COMPARISON)}


def has_read(agent: AgentContext, two: TwoLedgers, environment: str, table: str, version: int, *marks: str) -> None:
    histories: dict[str, BatchHistory] = agent.files.histories  # type: ignore[attr-defined]  # A double's.
    found = {batch: BatchPosition((mark,), 60_000) for batch, mark in enumerate(marks, 5)}
    # Every reader of the table has read what it held after each of these batches.
    held = {"1:a": (5, 4 + len(marks))}
    histories[two.at(environment, table, version, "checkpoints")] = BatchHistory(found, held)


def test_every_table_that_both_serve_is_compared_at_one_position_and_the_result_outlives_the_agent(
    two: TwoLedgers, agent: AgentContext, commands: CommandHandler, pool: Any, tmp_path: Path
) -> None:
    has_read(agent, two, "dev", "paid", 1, "1:x", "2:y", "3:z")
    has_read(agent, two, "pr-123", "paid", 1, "2:y")
    compare(commands)
    with LedgerReader(tmp_path / "home" / "ledger.db") as reader:
        found = {(row.table, row.check): row for row in reader.check_results(OVERLAY_COMPARISON)}
    position = found["paid", "position"]
    assert (position.old_version, position.new_version, position.old_batch, position.new_batch) == (1, 1, 6, 5)
    assert position.summary == "batch 6 of paid@v1 of dev and batch 5 of paid@v1 of pr-123"
    assert position.counts == {"old_watermark_ms": 60_000, "new_watermark_ms": 60_000}
    change = found["paid", "change"]
    edit = "filter or projection: filter changed: id > 3 → id > 5"
    assert (change.verdict, change.summary) == ("expected", edit)
    assert found["report", "change"].summary == "unchanged, downstream of paid"
    assert {check for table, check in found if table == "report"} >= {"schema", "differences", "rows"}
    views = [view for _, each in pool.compared for view in each if "paid" in view.files[0]]
    assert {view.files[0] for view in views} == {
        f"{two.at(each, 'paid', 1)}/part-0.parquet" for each in ("dev", "pr-123")
    }
    assert ("orders", "change") not in found, "an inherited table is the base's own"


def test_tables_of_one_side_are_listed_and_those_that_the_overlay_reads_are_not(
    two: TwoLedgers, agent: AgentContext, commands: CommandHandler
) -> None:
    two.put("dev", "other", 4, "SELECT id, kind FROM STREAM landed")
    two.put("pr-123", "fresh", 1, "SELECT id, kind FROM STREAM orders")
    compare(commands)
    found = {table: row for (table, check), row in stored(agent).items() if check == "presence"}
    assert {table: (row.old_version, row.new_version, row.summary) for table, row in found.items()} == {
        "fresh": (0, 1, "only pr-123 has it"),
        "other": (4, 0, "only dev has it: pr-123 has not built it, and does not read it"),
    }


def test_a_table_that_the_overlay_still_builds_is_not_compared(
    two: TwoLedgers, agent: AgentContext, commands: CommandHandler
) -> None:
    two.put("pr-123", "report", 1, "SELECT id, kind FROM STREAM paid", reads=1, active=False)
    compare(commands)
    row = stored(agent)["report", "differences"]
    assert (row.verdict, row.summary) == ("skipped", "report@v1 of pr-123 does not serve yet")
    assert (row.old_version, row.new_version, row.counts) == (2, 1, {"left_out": "not serving"})


def test_a_time_limit_that_is_no_number_is_refused(two: TwoLedgers, commands: CommandHandler) -> None:
    with pytest.raises(UsageError, match="nan is not a number of seconds"):
        begin(commands, math.nan)


def test_a_position_is_waited_for_and_a_table_without_one_is_left_out_after_the_time_limit(
    two: TwoLedgers, agent: AgentContext, commands: CommandHandler
) -> None:
    has_read(agent, two, "dev", "paid", 1, "3:z")
    has_read(agent, two, "pr-123", "paid", 1, "2:y")
    id = begin(commands, 60)["id"]
    assert begin(commands, 0) == {"id": id, "joined": True}
    waits = "paid waits for a position that both have read: paid@v1 of dev has read 3 files or messages of orders, "
    wait_until(lambda: progress(commands, id)["about"].startswith(waits))
    has_read(agent, two, "pr-123", "paid", 1, "2:y", "3:z")
    wait_until(lambda: not progress(commands, id)["running"])
    assert stored(agent)["paid", "position"].new_batch == 6
    has_read(agent, two, "pr-123", "paid", 1, "2:y")
    compare(commands)
    row = stored(agent)["paid", "differences"]
    assert row.verdict == "skipped" and row.summary.startswith("within 0s no position was found that both have read: ")


@pytest.mark.parametrize(
    ("side", "fields", "words"),
    [
        ("pr-123", {"state": "failed"}, "paid@v1 of pr-123 is failed: paid@v1 of dev has read 3 files or messages"),
        ("dev", {"state": "stopped", "wanted": "stopped"}, "paid@v1 of dev is stopped and has read less"),
    ],
)
def test_a_position_that_cannot_come_is_not_waited_for(
    side: str, fields: dict[str, str], words: str, two: TwoLedgers, agent: AgentContext, commands: CommandHandler
) -> None:
    has_read(agent, two, "dev", "paid", 1, "3:z")
    has_read(agent, two, "pr-123", "paid", 1, "2:y")
    (two.base if side == "dev" else two.own).update_deployment(T("paid"), 1, **fields)
    for ledger in (two.own, two.base):
        reports = (Measurement(T("report"), each.version, 5.0, lag_files=0) for each in ledger.versions(T("report")))
        ledger.put_measurements((Measurement(T("paid"), 1, 5.0, lag_files=0), *reports))
    compare(commands, 60)
    found = stored(agent)
    assert found["paid", "differences"].summary.startswith(words)
    assert f"paid@v1 of {side} is {fields['state']}" in found["report", "differences"].summary


def test_a_base_that_has_moved_on_is_reported_and_not_compared(
    two: TwoLedgers, agent: AgentContext, commands: CommandHandler
) -> None:
    two.put("dev", "orders", 4, "SELECT id, kind FROM STREAM landed WHERE id > 1")
    two.put("dev", "paid", 2, "SELECT id, kind FROM STREAM orders WHERE id > 3", reads=4)
    two.base.update_deployment(T("paid"), 1, drop_after=5.0)
    compare(commands, 60)
    row = stored(agent)["paid", "base"]
    assert (row.verdict, row.old_version) == ("skipped", 2) and row.old_batch is None
    assert row.counts == {"left_out": "base"}
    assert row.summary.startswith("dev has moved on: dev now reads orders@v4 of dev, and pr-123 still orders@v3 of dev")
    assert "headgate down --env pr-123 --purge" in row.summary


def test_a_version_that_is_gone_from_the_base_is_named(
    two: TwoLedgers, agent: AgentContext, commands: CommandHandler
) -> None:
    two.base.update_deployment(T("orders"), 3, drop_after=5.0)
    compare(commands, 60)
    row = stored(agent)["paid", "base"]
    assert "orders@v3 of dev, which pr-123 reads, is no longer where it was" in row.summary


def failure(commands: CommandHandler) -> HeadgateError:
    id = begin(commands)["id"]
    with pytest.raises(HeadgateError) as found:
        wait_until(lambda: not progress(commands, id)["running"])
    return found.value


def test_a_base_that_is_gone_is_one_clear_sentence_and_leaves_the_stored_result(
    two: TwoLedgers, agent: AgentContext, commands: CommandHandler, tmp_path: Path
) -> None:
    compare(commands)
    before = stored(agent)
    two.base.close()
    shutil.rmtree(tmp_path / "home-dev")
    error = failure(commands)
    assert isinstance(error, Refused)
    assert error.summary == f"dev, which pr-123 overlays, is gone: there is no ledger {tmp_path}/home-dev/ledger.db"
    assert error.remedy.startswith("headgate down --env pr-123 --purge")
    assert stored(agent) == before


def test_a_comparison_that_ends_early_stores_nothing(
    two: TwoLedgers, agent: AgentContext, commands: CommandHandler
) -> None:
    has_read(agent, two, "pr-123", "report", 1, "3:z")
    id = begin(commands, 60)["id"]
    wait_until(lambda: progress(commands, id)["done"] == 1)
    agent.stopping.set()
    with pytest.raises(TryAgain):
        wait_until(lambda: not progress(commands, id)["running"])
    assert not stored(agent)


def test_a_new_agent_does_not_know_the_comparison_of_the_old_one(commands: CommandHandler, two: TwoLedgers) -> None:
    with pytest.raises(TryAgain, match="the agent was restarted"):
        progress(commands, "12345678")


def test_a_table_that_spark_cannot_read_is_left_out_and_the_others_are_compared(
    two: TwoLedgers, agent: AgentContext, commands: CommandHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = type(agent.pools.default.connection().tables)
    read = tables.read_files

    def once(self: Any, sql: str, limit: int, views: Any, tag: str = "") -> Any:
        if "/dev_paid" in views[0].files[0]:
            raise EngineRefused("File does not exist", error_class="FAILED_READ_FILE")
        return read(self, sql, limit, views, tag)

    monkeypatch.setattr(tables, "read_files", once)
    compare(commands)
    found = stored(agent)
    assert (found["paid", "differences"].verdict, found["paid", "differences"].summary) == (
        "skipped", "File does not exist",
    )  # fmt: skip
    assert found["paid", "differences"].counts == {"left_out": "failed"}
    assert found["report", "differences"].verdict != "skipped"


def test_a_table_that_no_comparison_can_compare_has_its_own_reason(
    two: TwoLedgers, agent: AgentContext, commands: CommandHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common_positions, "why_never_equal", lambda *_: Sentence("paid reads the changes of orders"))
    compare(commands, 60)
    row = stored(agent)["paid", "differences"]
    assert (row.summary, row.counts) == ("paid reads the changes of orders", {"left_out": "changes"})


def test_nothing_of_the_base_is_written(
    two: TwoLedgers, agent: AgentContext, commands: CommandHandler, tmp_path: Path
) -> None:
    two.base.close()
    home = tmp_path / "home-dev"
    before = {path: path.read_bytes() for path in home.iterdir()}
    compare(commands)
    assert {path: path.read_bytes() for path in home.iterdir()} == before


def test_an_environment_without_a_base_is_refused(agent: AgentContext, commands: CommandHandler) -> None:
    with pytest.raises(UsageError, match="dev overlays no other environment"):
        begin(commands)


def test_the_ledger_of_another_project_is_not_read(
    two: TwoLedgers, agent: AgentContext, commands: CommandHandler
) -> None:
    agent.project_id = "another"
    summary = failure(commands).summary
    assert summary.startswith("dev, which pr-123 overlays, was replaced: ") and "belongs to p dev" in summary
