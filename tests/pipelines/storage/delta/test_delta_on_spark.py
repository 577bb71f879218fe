"""Delta's behavior on real Spark, on which our formulas and messages depend: one test per trap."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.model.errors import EngineRefused, Refused
from core.model.states import TableFaultKind
from core.ports.spark import QueryStart
from core.ports.storage import TableFault
from pipelines.agent.statements.deployment_lifecycle import refuse_mismatched_batches
from pipelines.storage.checkpoint_logs import text_of
from pipelines.storage.delta_log import DeltaLog
from pipelines.storage.delta_readers import offsets_in
from pipelines.storage.delta_tables import DeltaTables

pytestmark = [pytest.mark.spark, pytest.mark.drill]


def sums(lake: Any, table: str, versions: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the files, bytes and rows of versions according to Delta's own history."""
    found = {row["version"]: row["operationMetrics"] for row in _history(lake, table)}
    chosen = [found[version] for version in versions]
    files = sum(int(m.get("numFiles") or m.get("numAddedFiles") or 0) for m in chosen)
    return (
        files,
        sum(int(m.get("numOutputBytes") or 0) for m in chosen),
        sum(int(m.get("numOutputRows") or 0) for m in chosen),
    )


def _history(lake: Any, table: str) -> list[Any]:
    found: list[Any] = lake.session.spark.sql(f"DESCRIBE HISTORY {lake.name(table)}").collect()
    return found


def behind(lake: Any, child: str, parent: str) -> tuple[int, int, int | None, int | None]:
    lag = lake.lag(child, parent)[0]
    assert not lag.missing
    return lag.files, lag.bytes, lag.rows, lag.versions


def test_lag_of_a_stopped_statement_is_what_the_history_says(lake: Any) -> None:
    lake.table("p")
    lake.table("c")
    select = f"SELECT id, v FROM STREAM {lake.name('p')}"
    assert behind(lake, "c", "p") == (0, 0, 0, 0)
    lake.insert("p", 10, files=2)
    assert behind(lake, "c", "p") == (*sums(lake, "p", (1,)), 2), (
        "before its first batch all that the table holds waits"
    )
    lake.run("c", select)
    assert behind(lake, "c", "p") == (0, 0, 0, 0)
    assert lake.lag("c", "p")[0].oldest_s is None
    for rows, files in ((7, 3), (1, 1), (12, 4)):
        lake.insert("p", rows, files=files)
    found = lake.lag("c", "p")[0]
    assert behind(lake, "c", "p") == (*sums(lake, "p", (2, 3, 4)), 3)
    assert found.exact and 0 < found.oldest_s < 120 and found.newest_s <= found.oldest_s
    assert (found.produced_rows, found.consumed_rows) == (30, 10)


@pytest.mark.long
def test_rewritten_files_are_not_new_rows(lake: Any) -> None:
    lake.table("p")
    lake.table("c")
    select = f"SELECT id, v FROM STREAM {lake.name('p')}"
    lake.insert("p", 10, files=2)
    lake.run("c", select)
    lake.insert("p", 12, files=4)
    lake.sql(f"OPTIMIZE {lake.name('p')}")
    assert behind(lake, "c", "p")[:3] == sums(lake, "p", (2,))
    assert lake.files.rows(lake.place("p"), "delta") == 22 and lake.files.contents(lake.place("p"), "delta").files == 1
    lake.run("c", select)
    assert behind(lake, "c", "p") == (0, 0, 0, 0) and lake.count("c") == 22


@pytest.mark.long
def test_lag_within_the_initial_snapshot_and_within_a_version(lake: Any) -> None:
    lake.table("p")
    lake.table("c")
    lake.insert("p", 11, files=4)
    lake.insert("p", 9, files=3, at=100)
    limited = f"SELECT id, v FROM STREAM {lake.name('p')} WITH ('maxFilesPerTrigger'='2')"
    lake.run("c", limited)
    lake.insert("p", 10, files=5, at=200)
    seen = []
    lake.run("c", limited)
    offsets = {n: offsets_in(text_of(f"{lake.checkpoint('c')}/offsets/{n}"))[0] for n in range(lake.batch("c") + 1)}
    assert any(offset.in_snapshot and offset.index >= 0 for offset in offsets.values()), offsets
    assert any(not offset.in_snapshot and offset.index >= 0 for offset in offsets.values()), offsets
    written = {json.loads(line)["txn"]["version"]: rows for line, rows in _batches(lake, "c")}
    left = 30
    for batch, offset in sorted(offsets.items()):
        left -= written[batch]
        waits = DeltaTables().lag(offset, "p", f"{lake.place('p')}/delta")
        # According to the current log, later commits are also pending at each of these offsets.
        assert waits.rows == left, (batch, offset)
        seen.append(waits.rows)
    assert seen[-1] == 0 and lake.count("c") == 30


def _batches(lake: Any, table: str) -> list[tuple[str, int]]:
    """Return the transaction line and the number of rows for each commit of a query."""
    found = []
    for path in sorted(Path(lake.place(table), "delta/_delta_log").glob("*.json")):
        lines = path.read_text().splitlines()
        rows = sum(json.loads(json.loads(line)["add"]["stats"])["numRecords"] for line in lines if '"add"' in line[:6])
        found += [(line, rows) for line in lines if line.startswith('{"txn"')]
    return found


@pytest.mark.long
def test_a_log_is_read_the_same_from_a_checkpoint_as_from_its_beginning(lake: Any) -> None:
    name = lake.table("p")
    for n in range(11):
        lake.insert("p", 3, files=2, at=10 * n)
    place = f"{lake.place('p')}/delta"
    whole = DeltaLog(place)
    assert list(Path(place, "_delta_log").glob("*.checkpoint.parquet")), "Delta writes a checkpoint every ten commits"
    whole.refresh()
    lake.sql(f"DELETE FROM {name} WHERE id = 100")
    whole.refresh()
    again = DeltaLog(place)
    again.refresh()
    assert (again.id, again.head, again.batches) == (whole.id, whole.head, whole.batches)
    assert again.active() == whole.active() and again.active().rows == lake.count("p") == 32
    assert not whole.keeps_all() and not again.keeps_all()
    held = lake.files.contents(lake.place("p"), "delta")
    assert (held.small_files, held.log_entries) == (held.files, whole.head - 10)
    assert held.log_bytes == sum(Path(place, f"_delta_log/{n:020}.json").stat().st_size for n in (11, 12))


def test_a_table_is_created_below_our_own_files_and_nowhere_beside_them(lake: Any) -> None:
    lake.files.prepare(lake.place("p"), {"run": "r"})
    ddl = lake.ddl("p")
    with pytest.raises(EngineRefused) as refused:
        lake.tables.create(lake.name("p"), ddl.replace("/p/delta'", "/p'"))
    assert refused.value.error_class == "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"
    lake.tables.create(lake.name("p"), ddl)
    lake.tables.create(lake.name("p"), ddl)
    assert lake.files.identity(lake.place("p"), "delta") == lake.sql(f"DESCRIBE DETAIL {lake.name('p')}")[0][1]


def test_a_new_catalog_is_given_the_table_as_its_log_has_it(lake: Any) -> None:
    name = lake.table("p", "id BIGINT NOT NULL COMMENT 'key', v STRING")
    lake.insert("p", 3)
    lake.sql(f"ALTER TABLE {name} ADD COLUMNS (more INT)")
    before = lake.files.identity(lake.place("p"), "delta")
    declared = lake.ddl("p", "id BIGINT NOT NULL COMMENT 'key', v STRING")
    lake.tables.forget(name)
    with pytest.raises(EngineRefused) as refused:
        lake.tables.create(name, declared)
    assert refused.value.error_class == "DELTA_CREATE_TABLE_SCHEME_MISMATCH"
    lake.tables.create(name, declared, exists=True)
    assert lake.count("p") == 3 and lake.files.identity(lake.place("p"), "delta") == before
    lake.tables.create(name, declared, exists=True)
    for _ in ("there already", "registered anew"):
        lake.tables.create(name, lake.ddl("p", "id INT, v STRING"), exists=True)
        with pytest.raises(EngineRefused, match="has id bigint in the catalog, not id string"):
            lake.tables.create(name, lake.ddl("p", "id STRING, v STRING"), exists=True)
        lake.tables.forget(name)


def test_registered_without_its_log_a_table_would_come_to_be_empty(lake: Any) -> None:
    missing = f"{lake.folder}/tables/nothing"
    lake.sql(f"CREATE TABLE {lake.name('p')} USING delta LOCATION '{missing}'")
    assert Path(missing).exists(), "so what is registered is looked at before"
    assert lake.files.identity(lake.place("q"), "delta") == ""


def test_batches_without_a_row_are_in_the_tables_record_as_well(lake: Any) -> None:
    lake.table("p")
    lake.table("c")
    lake.insert("p", 5)
    lake.run("c", f"SELECT id, v FROM STREAM {lake.name('p')} WHERE id < 0")
    query = lake.files.read(lake.checkpoint("c")).id
    assert lake.batch("c") == 0 == lake.files.sink_batch(lake.place("c"), format="delta", query=query)
    assert lake.files.sink_batch(lake.place("c"), format="delta", query="another") is None


def test_a_checkpoint_restored_from_an_older_copy_loses_rows_silently_and_is_refused(lake: Any) -> None:
    lake.table("p")
    lake.table("c")
    select, checkpoint = f"SELECT id, v FROM STREAM {lake.name('p')}", lake.checkpoint("c")
    lake.insert("p", 3)
    lake.run("c", select)
    shutil.copytree(checkpoint, f"{checkpoint}.copy")
    lake.insert("p", 3, at=10)
    lake.run("c", select)
    shutil.rmtree(checkpoint)
    shutil.copytree(f"{checkpoint}.copy", checkpoint)
    found = lake.files.read(checkpoint)
    sink = lake.files.sink_batch(lake.place("c"), format="delta", query=found.id)
    with pytest.raises(Refused, match="is at batch 0 and its table at batch 1"):
        refuse_mismatched_batches("c@v1", found.planned, found.batch, sink)
    # A start would write new rows as batch 1, which the table already contains.
    lake.insert("p", 1, at=99)
    lake.run("c", select)
    assert lake.count("c") == 6, "the rows of the new batch were lost"
    # A table that is an older copy lacks rows that its checkpoint has committed.
    lake.sql(f"RESTORE TABLE {lake.name('c')} TO VERSION AS OF 1")
    assert lake.count("c") == 3


@pytest.mark.long
def test_a_new_checkpoint_on_a_table_that_holds_rows_writes_them_again(lake: Any) -> None:
    lake.table("p")
    lake.table("c")
    lake.insert("p", 4)
    for checkpoint in ("one", "two"):
        lake.run("c", f"SELECT id, v FROM STREAM {lake.name('p')}", checkpoint=checkpoint)
    assert lake.count("c") == 8


def test_a_recreated_source_is_reported_before_a_start_and_by_spark(lake: Any) -> None:
    lake.table("p")
    lake.table("c")
    lake.insert("p", 4)
    select = f"SELECT id, v FROM STREAM {lake.name('p')}"
    lake.run("c", select)
    sources = ((0, "p", lake.place("p"), "delta"),)
    assert lake.files.source_fault(lake.checkpoint("c"), sources) is None
    before = lake.files.identity(lake.place("p"), "delta")
    lake.sql(
        f"CREATE OR REPLACE TABLE {lake.name('p')} (id BIGINT, v STRING) USING delta LOCATION '{lake.place('p')}/delta'"
    )
    now = lake.files.identity(lake.place("p"), "delta")
    assert now != before
    assert lake.files.source_fault(lake.checkpoint("c"), sources) == (
        "p",
        TableFault(TableFaultKind.REPLACED, f"was re-created: its id is {now}, and what was read had {before}"),
    )
    assert lake.lag("c", "p")[0].missing
    with pytest.raises(AssertionError, match="DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE"):
        lake.insert("p", 1)
        lake.run("c", select)
    shutil.rmtree(f"{lake.place('p')}/delta")
    assert lake.files.source_fault(lake.checkpoint("c"), sources) == (
        "p",
        TableFault(TableFaultKind.GONE, "is gone: there is no _delta_log"),
    )


@pytest.mark.parametrize(
    ("change", "operation", "error"),
    [("UPDATE {p} SET v = 'x' WHERE id = 1", "UPDATE", "DELTA_SOURCE_TABLE_IGNORE_CHANGES"),
     *(pytest.param(*case, marks=pytest.mark.long) for case in [
         ("DELETE FROM {p} WHERE id = 1", "DELETE", "DELTA_SOURCE_TABLE_IGNORE_CHANGES"),
         ("DELETE FROM {p}", "DELETE", "DELTA_SOURCE_IGNORE_DELETE"),
         ("RESTORE TABLE {p} TO VERSION AS OF 1", "RESTORE", "DELTA_SOURCE_IGNORE_DELETE")])],
)  # fmt: skip
def test_rows_changed_by_hand_in_a_source_are_reported_before_spark_ends_its_reader(
    change: str, operation: str, error: str, lake: Any
) -> None:
    name = lake.table("p")
    lake.table("c")
    lake.insert("p", 4)
    lake.insert("p", 4, at=10)
    select = f"SELECT id, v FROM STREAM {name}"
    lake.run("c", select)
    lake.sql(change.format(p=name))
    sources = ((0, "p", lake.place("p"), "delta"),)
    assert lake.files.source_fault(lake.checkpoint("c"), sources) == (
        "p",
        TableFault(
            TableFaultKind.ROWS_CHANGED,
            f"was changed by {operation} in version 3, which it has not read: a stream of rows cannot continue past "
            "that",
        ),
    )
    assert lake.files.source_fault(lake.checkpoint("c"), sources, take_changes={0}) is None
    with pytest.raises(AssertionError, match=error):
        lake.run("c", select)
    lake.run("c", f"SELECT id, v FROM STREAM {name} WITH ('skipChangeCommits'='true')")
    assert lake.count("c") == 8, "and with its option it goes on"


@pytest.mark.long
def test_files_that_vacuum_deleted_before_they_were_read_are_reported(lake: Any) -> None:
    name = lake.table("p")
    lake.table("c")
    select = f"SELECT id, v FROM STREAM {name}"
    lake.insert("p", 1)
    lake.run("c", select)
    for n in range(3):
        lake.insert("p", 1, at=n)
    sources = ((0, "p", lake.place("p"), "delta"),)
    lake.sql(f"OPTIMIZE {name}")
    assert lake.files.source_fault(lake.checkpoint("c"), sources) is None
    lake.sql("SET spark.databricks.delta.retentionDurationCheck.enabled=false")
    lake.sql(f"VACUUM {name} RETAIN 0 HOURS")
    lake.sql("RESET spark.databricks.delta.retentionDurationCheck.enabled")
    assert lake.files.source_fault(lake.checkpoint("c"), sources) == (
        "p",
        TableFault(
            TableFaultKind.FILES_GONE, "lacks files of version 2, which is to be read next: VACUUM has deleted them"
        ),
    )


@pytest.mark.long
def test_a_dropped_sink_is_recreated_by_spark_with_new_rows_only(lake: Any) -> None:
    lake.table("p")
    name = lake.table("c")
    lake.insert("p", 4)
    select = f"SELECT id, v FROM STREAM {lake.name('p')}"
    lake.run("c", select)
    before = lake.files.identity(lake.place("c"), "delta")
    shutil.rmtree(f"{lake.place('c')}/delta")
    lake.tables.forget(name)
    lake.tables.create(name, lake.ddl("c"))
    lake.insert("p", 1, at=10)
    lake.run("c", select)
    assert lake.count("c") == 1, "Spark compares the id of what is read, not of what is written"
    assert lake.files.identity(lake.place("c"), "delta") not in ("", before)


def test_a_parents_log_cleaned_up_behind_a_statement_is_reported(lake: Any) -> None:
    lake.table("p")
    lake.table("c")
    lake.insert("p", 1)
    lake.run("c", f"SELECT id, v FROM STREAM {lake.name('p')}")
    for n in range(12):
        lake.insert("p", 1, at=n)
    log = Path(lake.place("p"), "delta/_delta_log")
    for version in range(9):
        (log / f"{version:020}.json").unlink()
    sources = ((0, "p", lake.place("p"), "delta"),)
    lake.read_anew()
    assert lake.files.source_fault(lake.checkpoint("c"), sources) == (
        "p",
        TableFault(TableFaultKind.LOG_GONE, "no longer has version 2 in its log, which is to be read next"),
    )
    assert lake.lag("c", "p")[0].missing


def test_partitions_of_a_table_are_kept_by_its_query(lake: Any) -> None:
    lake.table("p")
    lake.table("c", rest="USING delta PARTITIONED BY (v)")
    lake.insert("p", 2)
    query = lake.start("c", f"SELECT id, v FROM STREAM {lake.name('p')}", trigger="available now", parts=("v",))
    lake.until(lambda: query.name not in lake.mine())
    assert sorted(path.name for path in Path(lake.place("c"), "delta").glob("v=*")) == ["v=v0", "v=v1"]
    assert lake.files.rows(lake.place("c"), "delta") == 2


def test_without_its_format_a_query_does_not_write_into_the_table(lake: Any) -> None:
    lake.table("p")
    lake.table("c")
    start = QueryStart(
        lake.query("c"), f"SELECT id, v FROM STREAM {lake.name('p')}", lake.name("c"), "delta",
        lake.checkpoint("c"), "0 seconds",
    )  # fmt: skip
    with pytest.raises(EngineRefused, match="data source provider"):
        lake.queries.start(replace(start, format="parquet"))


@pytest.mark.long
def test_an_added_column_ends_a_running_reader_at_once_but_not_a_stopped_one(lake: Any) -> None:
    name = lake.table("p")
    lake.insert("p", 2)
    select = f"SELECT id FROM STREAM {name}"
    for table in ("c", "still"):
        lake.table(table)
        query = lake.start(table, select, trigger="500 milliseconds")
        lake.until(lambda table=table: lake.batch(table) == 0)
    lake.queries.stop(lake.query("still"))
    lake.tables.add_columns(name, (("id", "bigint"), ("more", "int")))
    query = lake.query("c")
    lake.until(lambda: query not in lake.mine())
    (ended,) = [found for found in lake.queries.ended() if found.name == query]
    assert "DELTA_SCHEMA_CHANGED" in f"{ended.error_class} {ended.error}"
    lake.sql(f"INSERT INTO {name} SELECT 10 + id, 'v', 1 FROM range(3)")
    for table in ("c", "still"):
        lake.run(table, select)
        assert lake.count(table) == 5, "from its checkpoint, and nothing twice"


def test_a_pointer_moves_between_versions_of_delta_and_of_files(lake: Any) -> None:
    name, files = lake.table("p"), f"f_{lake.mark}__v1"
    Path(lake.place("f")).mkdir()
    lake.tables.create(
        files, f"CREATE TABLE IF NOT EXISTS {files} (id BIGINT, v STRING) USING parquet LOCATION '{lake.place('f')}'"
    )
    lake.insert("p", 3)
    pointer = f"pointer_{lake.mark}"
    for target, rows in ((files, 0), (name, 3), (files, 0)):
        lake.tables.point(pointer, (target,), ("id", "v"))
        assert lake.tables.read(f"SELECT count(*) FROM {pointer}", 1)[1] == ((rows,),)


@pytest.mark.long
def test_read_marks_match_the_marks_of_the_parents_contents(lake: Any) -> None:
    lake.table("p")
    lake.table("m")
    lake.table("c")
    for n in range(2):
        lake.insert("p", 2, at=10 * n)
        lake.run("m", f"SELECT id, v FROM STREAM {lake.name('p')}")
    lake.run("c", f"SELECT id, v FROM STREAM {lake.name('m')}")
    parent = lake.files.batch_history(lake.checkpoint("m"), 1, lake.place("m"))
    child = lake.files.batch_history(lake.checkpoint("c"), 1, lake.place("c"))
    assert sorted(parent.batches) == [0, 1]
    assert parent.held[child.batches[0].consumed[0]] == (1, 1)


def test_a_read_of_a_table_with_missing_files_reports_sparks_message(lake: Any) -> None:
    lake.table("gone")
    shutil.rmtree(lake.place("gone"))
    with pytest.raises(EngineRefused, match="is not a Delta table") as refused:
        lake.tables.read(f"SELECT * FROM {lake.name('gone')}", 1)
    assert refused.value.error_class == "DELTA_PATH_DOES_NOT_EXIST"
