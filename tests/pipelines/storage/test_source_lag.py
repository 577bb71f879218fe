"""Lag from files in the layout of Spark 4.2.0; `test_measured_lag` covers the same on real Spark."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from spark_files import Consumer, WrittenTable

from core.model.names import TableName
from core.model.table_formats import TABLE_FORMATS, TableFormat
from core.ports.storage import SourceLag
from pipelines.storage import file_sources
from pipelines.storage.row_counting import RowCounter
from pipelines.storage.source_lag import FORGET_S, SourceLags

T = TableName("orders")

FILES = {name: format for name, format in TABLE_FORMATS.items() if not format.transaction_log}


def test_lag_is_what_was_written_and_not_consumed(tmp_path: Path) -> None:
    table, consumer, measure = _pair(tmp_path)
    now = time.time()
    uris = [table.write(rows=n, at=now - 100 + n) for n in (1, 2, 3, 4)]
    done = consumer.plan(*uris[:2])
    position = measure(done)
    assert (position.files, position.rows, position.exact) == (2, 7, True)
    assert (position.produced_rows, position.consumed_rows) == (10, 3)
    assert position.bytes == sum(entry["size"] for entry in table.entries[2:])
    assert position.oldest_s == pytest.approx(97, abs=5) and position.newest_s == pytest.approx(96, abs=5)


def test_a_batch_under_way_counts_as_lag_until_it_is_committed(tmp_path: Path) -> None:
    table, consumer, measure = _pair(tmp_path)
    first, second = table.write(rows=5), table.write(rows=7)
    done = consumer.plan(first)
    planned = consumer.plan(second)
    assert measure(done).rows == 7
    assert measure(planned).rows == 0


def test_before_the_first_commit_everything_is_lag(tmp_path: Path) -> None:
    table, _, measure = _pair(tmp_path)
    table.write(rows=5)
    assert measure(-1).rows == 5


def test_growing_logs_are_followed_over_their_compactions(tmp_path: Path) -> None:
    table, consumer, measure = _pair(tmp_path)
    waiting: list[str] = []
    for n in range(47):
        waiting.append(table.write(rows=3))
        if n % 2:
            measure(consumer.plan(waiting.pop(0)))
        position = measure(consumer.batch)
        assert (position.files, position.rows) == (len(waiting), 3 * len(waiting)), n
        assert (position.produced_rows, position.consumed_rows) == (3 * (n + 1), 3 * (n + 1 - len(waiting)))


def test_a_measurer_started_late_agrees_with_one_that_was_always_there(tmp_path: Path) -> None:
    table, consumer, measure = _pair(tmp_path)
    for n in range(33):
        uri = table.write(rows=2)
        if n < 25:
            consumer.plan(uri)
        measure(consumer.batch)
    early = measure(consumer.batch)
    late = _measurer(tmp_path)(consumer.batch)
    assert (early.files, early.rows, early.produced_rows) == (late.files, late.rows, late.produced_rows) == (8, 16, 66)


def test_batches_cleaned_up_between_two_reads_are_found_in_the_compact_file(tmp_path: Path) -> None:
    table, consumer, measure = _pair(tmp_path)
    measure(consumer.plan(table.write(rows=1)))
    for _ in range(14):
        consumer.plan(table.write(rows=1))
    table.write(rows=1)
    for log in (table.folder / "_spark_metadata", consumer.folder / "sources" / "0"):
        for batch in range(9):
            (log / str(batch)).unlink()
    assert (measure(consumer.batch).files, measure(consumer.batch).produced_rows) == (1, 16)


def test_a_file_consumed_before_its_table_was_measured_is_never_lag(tmp_path: Path) -> None:
    table, consumer = WrittenTable(tmp_path / "t"), Consumer(tmp_path / "c")
    lags = SourceLags(refresh_s=1000)
    source = ((0, T, str(table.folder), "parquet"),)
    assert lags.measure(str(consumer.folder), {}, source)[0].files == 0
    done = consumer.plan(table.write())
    assert lags.measure(str(consumer.folder), {0: done}, source)[0].files == 0
    lags._refreshed.clear()
    assert lags.measure(str(consumer.folder), {0: done}, source)[0].files == 0


def test_a_parent_that_vanished_is_missing_and_not_zero(tmp_path: Path) -> None:
    table, consumer, measure = _pair(tmp_path)
    done = consumer.plan(table.write())
    assert not measure(done).missing
    os.rename(table.folder, tmp_path / "trash")
    gone = SourceLag(T, files=0, bytes=0, rows=None, exact=False, oldest_s=None, missing=True)
    assert measure(done) == gone
    assert _measurer(tmp_path)(done) == gone


def test_a_parent_that_was_replaced_is_missing(tmp_path: Path) -> None:
    table, consumer, measure = _pair(tmp_path)
    done = consumer.plan(table.write())
    measure(done)
    os.rename(table.folder, tmp_path / "trash")
    other = WrittenTable(table.folder)
    other.folder.joinpath("_headgate.json").write_text("{}")
    for _ in range(3):
        other.write()
        other.entries[-1]["path"] = other.entries[-1]["path"].replace("part", "other")
    (other.folder / "_spark_metadata" / "0").write_text("v1\n" + json.dumps(other.entries[0]))
    assert measure(done).missing
    assert _measurer(tmp_path)(done).missing


@pytest.mark.parametrize("note", [True, False], ids=["a table", "a folder that a late task made"])
def test_an_empty_table_in_place_of_the_parent_counts_as_missing(tmp_path: Path, note: bool) -> None:
    table, consumer, measure = _pair(tmp_path)
    done = consumer.plan(table.write())
    measure(done)
    os.rename(table.folder, tmp_path / "trash")
    table.folder.mkdir()
    if note:
        table.folder.joinpath("_headgate.json").write_text("{}")
    assert measure(done).missing
    assert _measurer(tmp_path)(done).missing


def test_two_statements_on_one_table_have_each_their_lag(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path / "t")
    uris = [table.write(rows=4) for _ in range(3)]
    lags = SourceLags(refresh_s=0)
    found = []
    for n, name in enumerate("ab", start=1):
        consumer = Consumer(tmp_path / name)
        done = consumer.plan(*uris[:n])
        found.append(lags.measure(str(consumer.folder), {0: done}, ((0, T, str(table.folder), "parquet"),))[0].rows)
    assert found == [8, 4]


def test_an_unmeasured_statement_holds_no_files_of_a_growing_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, stays, _ = _pair(tmp_path)
    deleted = Consumer(tmp_path / "deleted")
    now = 1000.0
    monkeypatch.setattr("pipelines.storage.source_lag.time.monotonic", lambda: now)
    lags = SourceLags(refresh_s=0, counter=RowCounter(budget_s=60))
    source = ((0, T, str(table.folder), "parquet"),)
    first = table.write(rows=5)
    for consumer in (stays, deleted):
        lags.measure(str(consumer.folder), {0: consumer.plan(first)}, source)
    for _ in range(100):
        now += FORGET_S / 40
        done = stays.plan(table.write(rows=1))
        assert lags.measure(str(stays.folder), {0: done}, source)[0].files == 0
    assert [len(reading.pending) for reading in lags._readings.values()] == [0]
    assert [len(held._readers) for held in lags._sources.values()] == [1]
    assert lags.measure(str(deleted.folder), {0: deleted.batch}, source)[0].rows == 100, "as if it were new"


def test_a_log_that_did_not_change_is_not_listed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, consumer, measure = _pair(tmp_path)
    done = consumer.plan(table.write(rows=5))
    log = Path(f"{table.folder}/_spark_metadata")
    measure(done)
    os.utime(log, ns=(1, 1))
    measure(done)
    monkeypatch.setattr(file_sources, "read_table_log", None)
    assert measure(done).rows == 0
    monkeypatch.undo()
    table.write(rows=3)
    assert measure(done).rows == 3, "a change within the same tick of a clock as well"


def test_a_landing_folder_is_listed_without_hidden_files_and_with_partitions(tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    for name in ("a.json", "day=1/b.json", ".c.json", "_d.json", "_temporary/e.json", "f.json._COPYING_"):
        (landing / name).parent.mkdir(parents=True, exist_ok=True)
        (landing / name).write_text('{"a":1}\n' * 6)
    consumer = Consumer(tmp_path / "c")
    lags = SourceLags(refresh_s=0)
    source = ((0, T, f"file:{landing}", "json"),)
    first = lags.measure(str(consumer.folder), {}, source)[0]
    assert (first.files, first.rows, first.exact, first.produced_rows) == (2, 12, False, 12)
    done = consumer.plan(f"file://{landing}/a.json")
    (landing / "g.json").write_text('{"a":1}\n' * 12)
    second = lags.measure(str(consumer.folder), {0: done}, source)[0]
    assert (second.files, second.rows, second.produced_rows, second.consumed_rows) == (2, 18, 24, 6)
    (landing / "g.json").unlink()
    assert lags.measure(str(consumer.folder), {0: done}, source)[0].files == 1


@pytest.mark.parametrize("format", FILES.values(), ids=FILES)
def test_a_folder_without_its_read_files_is_a_different_one_for_formats_that_keep_files(
    tmp_path: Path, format: TableFormat
) -> None:
    consumer, landing = Consumer(tmp_path / "c"), tmp_path / "landing"
    landing.mkdir()
    done = consumer.plan(f"file://{landing}/cleaned up")
    source = ((0, T, str(landing), format.name),)
    found = SourceLags(refresh_s=0).measure(str(consumer.folder), {0: done}, source)[0]
    assert found.missing == format.keeps_read_files


def test_rows_beyond_the_budget_are_estimated_and_said_to_be(tmp_path: Path) -> None:
    table, consumer = WrittenTable(tmp_path / "t"), Consumer(tmp_path / "c")
    for _ in range(30):
        table.write(rows=10)
    lags = SourceLags(refresh_s=0, counter=RowCounter(window_s=0.0, budget_s=0.0))
    position = lags.measure(str(consumer.folder), {}, ((0, T, str(table.folder), "parquet"),))[0]
    assert (position.files, position.rows, position.exact, position.produced_rows) == (30, None, False, None)
    lags = SourceLags(refresh_s=0, counter=RowCounter(window_s=1000.0, budget_s=1e-6))
    position = lags.measure(str(consumer.folder), {}, ((0, T, str(table.folder), "parquet"),))[0]
    assert (position.rows, position.exact, position.produced_rows) == (300, False, None)


def _pair(folder: Path) -> tuple[WrittenTable, Consumer, Any]:
    return WrittenTable(folder / "t"), Consumer(folder / "c"), _measurer(folder)


def _measurer(folder: Path) -> Any:
    lags = SourceLags(refresh_s=0, counter=RowCounter(budget_s=60))

    def measure(upto: int) -> SourceLag:
        consumed = {0: upto} if upto >= 0 else {}
        return lags.measure(str(folder / "c"), consumed, ((0, T, str(folder / "t"), "parquet"),))[0]

    return measure
