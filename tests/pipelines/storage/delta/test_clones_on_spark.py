"""A version that begins with another version's rows or position: exact on Spark; and what a clone depends on."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from core.model.errors import EngineRefused
from core.model.names import TableName
from core.ports.spark import FileView
from core.ports.storage import OriginRows, SeenLog, StartPosition, VersionFolders
from core.sql.statement import AT_TIME, AT_VERSION, LogStart

pytestmark = [pytest.mark.spark, pytest.mark.drill]


def folders(lake: Any, table: str) -> VersionFolders:
    return VersionFolders(lake.place(table), lake.checkpoint(table))


def streams(lake: Any, rest: str = "USING delta") -> str:
    """Return a statement over `p`. The child `c` of `p` has read two versions in two batches."""
    lake.table("p", rest=rest)
    lake.table("c")
    select = f"SELECT * FROM STREAM {lake.name('p')}"
    for at in (0, 100):
        lake.insert("p", 10, files=2, at=at)
        lake.run("c", select)
    return select


def ids(lake: Any, table: str) -> list[int]:
    return sorted(int(str(row[0])) for row in lake.sql(f"SELECT id FROM {lake.name(table)}"))


def begun(lake: Any, table: str, rows: OriginRows) -> StartPosition:
    """Let a table continue from the position of `c`, with the steps of a run."""
    lake.table(table)
    lake.files.prepare(lake.checkpoint(table), {"run": "r"})
    cut = lake.files.fork(folders(lake, "c"), folders(lake, table), {"run": "r"}, rows=rows)
    assert cut.batch is not None
    origin = lake.files.read(lake.checkpoint("c"))
    assert origin is not None
    if rows is OriginRows.INSIDE:
        version = lake.files.written_version(lake.place("c"), origin.id, cut.batch)
        assert version is not None
        place = f"{lake.place(table)}/delta"
        for _ in range(2):
            lake.tables.clone(lake.name(table), f"{lake.place('c')}/delta", version, place)
    lake.tables.record_batch(f"{lake.place(table)}/delta", cut.id, cut.batch)
    return cut


@pytest.mark.long
def test_a_clone_and_its_base_both_continue_from_the_moment_of_the_clone(lake: Any) -> None:
    select = streams(lake)
    lake.insert("p", 10, at=200)
    lake.run("c", select)
    cut = begun(lake, "g", OriginRows.INSIDE)
    assert cut.batch == 2 and lake.files.sink_batch(lake.place("g"), format="delta", query=cut.id) == 2
    lake.insert("p", 10, files=3, at=300)
    lake.run("c", select)
    lake.run("g", select)
    expected = sorted(at + n for at in (0, 100, 200, 300) for n in range(10))
    assert ids(lake, "g") == ids(lake, "c") == expected
    assert lake.files.identity(lake.place("g"), "delta") != lake.files.identity(lake.place("c"), "delta")


@pytest.mark.long
def test_a_clone_is_made_as_of_the_batch_however_far_its_table_has_come_since(lake: Any) -> None:
    select = streams(lake)
    lake.table("g")
    lake.files.prepare(lake.checkpoint("g"), {"run": "r"})
    cut = lake.files.fork(folders(lake, "c"), folders(lake, "g"), {"run": "r"}, rows=OriginRows.INSIDE)
    lake.insert("p", 10, at=200)
    lake.run("c", select)
    again = begun(lake, "g", OriginRows.INSIDE)
    assert again == cut and len(ids(lake, "g")) == 20, "done twice it stands where it was cut first"
    lake.run("g", select)
    assert ids(lake, "g") == ids(lake, "c") and len(ids(lake, "g")) == 30


@pytest.mark.long
def test_a_carried_over_version_has_each_row_after_the_cut_once(lake: Any) -> None:
    select = streams(lake)
    begun(lake, "g", OriginRows.LEFT)
    lake.insert("p", 10, at=200)
    lake.run("g", select)
    assert ids(lake, "g") == list(range(200, 210))


@pytest.mark.long
def test_a_version_that_begins_now_reads_each_new_row_once_even_on_an_empty_table(lake: Any) -> None:
    select = streams(lake)
    lake.table("g")
    lake.files.prepare(lake.checkpoint("g"), {"run": "r"})
    seen = lake.files.source_position(lake.place("p"))
    assert isinstance(seen, SeenLog)
    cut = lake.files.create_checkpoint_after(folders(lake, "g"), (seen,), {"run": "r"}, batch=0)
    lake.tables.record_batch(f"{lake.place('g')}/delta", cut.id, 0)
    lake.run("g", select)
    assert ids(lake, "g") == []
    lake.insert("p", 10, at=200)
    lake.run("g", select)
    assert ids(lake, "g") == list(range(200, 210))
    assert not os.path.exists(f"{lake.place('g')}/_spark_metadata")


def own_files(lake: Any, table: str) -> list[Path]:
    return sorted((Path(lake.place(table)) / "delta").glob("*.parquet"))


@pytest.mark.long
def test_a_clone_breaks_when_files_of_its_base_are_deleted(lake: Any) -> None:
    """Therefore, the base of a clone is neither moved to the trash nor vacuumed while the clone exists."""
    streams(lake)
    cut = begun(lake, "g", OriginRows.INSIDE)
    base = Path(lake.place("c")) / "delta"
    log = [json.loads(line) for path in sorted((Path(lake.place("g")) / "delta/_delta_log").glob("*.json"))
           for line in path.read_text().splitlines()]  # fmt: skip
    named = [action["add"]["path"] for action in log if "add" in action]
    assert named and all(path.startswith(f"file:{base}/") or path.startswith(f"file://{base}/") for path in named)
    contents = lake.files.contents(lake.place("g"), "delta")
    assert contents is not None and contents.rows == 20
    lake.insert("g", 5, at=900)
    files = (*lake.files.written_files(lake.place("g"), cut.batch), *(str(path) for path in own_files(lake, "g")))
    view = FileView("of_both", lake.place("g"), files, (("id", "BIGINT"), ("v", "STRING")), "delta")
    assert lake.tables.read_files("SELECT count(*) FROM of_both", 10, (view,))[1] == ((25,),)
    newest = {name: lake.files.log_mark(f"{lake.place(name)}/delta").version for name in "cg"}
    assert not any(lake.files.lost_files(lake.place(name), newest[name]) for name in "cg")
    for path in own_files(lake, "c"):
        path.unlink()
    lost = lake.files.lost_files(lake.place("c"), newest["c"])
    assert len(lost) == contents.files and set(lost) == set(lake.files.lost_files(lake.place("g"), newest["g"]))
    with pytest.raises(Exception, match=r"FAILED_READ_FILE|FILE_NOT_EXIST"):
        ids(lake, "g")


@pytest.mark.long
def test_a_clone_has_the_columns_of_its_base_and_gets_those_added_since(lake: Any) -> None:
    streams(lake)
    begun(lake, "g", OriginRows.INSIDE)
    lake.tables.add_columns(lake.name("g"), (("id", "BIGINT"), ("v", "STRING"), ("more", "INT")))
    assert lake.sql(f"SELECT count(*), count(more) FROM {lake.name('g')}") == [(20, 0)]
    ddl = lake.ddl("g", "id BIGINT, v STRING, more INT")
    lake.tables.forget(lake.name("g"))
    lake.tables.create(lake.name("g"), ddl, exists=True)
    assert lake.count("g") == 20


def begun_at(lake: Any, table: str, start: LogStart) -> str:
    """Return the statement over `p` of a version that begins at a position in the log of `p`."""
    lake.table(table)
    return f"SELECT * FROM STREAM {lake.name('p')} WITH ('{start.option}'='{start.value}')"


@pytest.mark.long
def test_a_version_begins_with_the_rows_of_a_version_or_of_a_time(lake: Any) -> None:
    streams(lake)
    lake.insert("p", 10, at=200)
    history = lake.files.log_history(lake.place("p"), "delta")
    assert history is not None and [rows for _, _, rows in history.commits] == [0, 10, 10, 10]
    assert (history.first, history.rows_from(2)) == (0, 20)
    second = history.commits[2]
    moment = datetime.fromtimestamp((history.commits[1][1] + second[1]) / 2, UTC).isoformat()
    for name, option, value in (("v", AT_VERSION, str(second[0])), ("t", AT_TIME, moment)):
        start = LogStart(TableName("p"), option, value)
        assert not lake.files.why_not_from(lake.place("p"), "delta", start, takes_changes=False)
        select = begun_at(lake, name, start)
        lake.run(name, select)
        assert ids(lake, name) == [*range(100, 110), *range(200, 210)]


@pytest.mark.long
def test_a_start_position_applies_only_to_the_first_batch(lake: Any) -> None:
    streams(lake)
    lake.run("g", begun_at(lake, "g", LogStart(TableName("p"), AT_VERSION, "2")))
    lake.insert("p", 10, at=200)
    lake.run("g", begun_at(lake, "g", LogStart(TableName("p"), AT_VERSION, "1")))
    assert ids(lake, "g") == [*range(100, 110), *range(200, 210)]


def test_spark_refuses_a_missing_version_and_so_do_we(lake: Any) -> None:
    streams(lake, "USING delta TBLPROPERTIES ('delta.checkpointInterval'='2')")
    beyond = LogStart(TableName("p"), AT_VERSION, "9")
    why = lake.files.why_not_from(lake.place("p"), "delta", beyond, takes_changes=False)
    assert why == "p ends with version 2, which is before 9"
    with pytest.raises((EngineRefused, AssertionError), match=r"DELTA_VERSION_NOT_FOUND|version 9"):
        lake.run("g", begun_at(lake, "g", beyond))
    log = Path(lake.place("p")) / "delta/_delta_log"
    for name in (f"{0:020}.json", f"{1:020}.json"):
        (log / name).unlink()
    first = LogStart(TableName("p"), AT_VERSION, "1")
    lake.read_anew()
    why = lake.files.why_not_from(lake.place("p"), "delta", first, takes_changes=False)
    assert why == "version 1 of p is no longer in its log, which begins with 2"


@pytest.mark.long
def test_a_change_by_hand_after_a_start_position_is_reported_before_spark_ends_the_reader(lake: Any) -> None:
    streams(lake)
    lake.sql(f"DELETE FROM {lake.name('p')} WHERE id = 100")
    start = LogStart(TableName("p"), AT_VERSION, "2")
    why = lake.files.why_not_from(lake.place("p"), "delta", start, takes_changes=False)
    assert why == "p was changed by DELETE in version 3: a stream that starts earlier cannot continue past that"
    assert not lake.files.why_not_from(lake.place("p"), "delta", start, takes_changes=True)
    with pytest.raises((EngineRefused, AssertionError), match="DELTA_SOURCE"):
        lake.run("g", begun_at(lake, "g", start))
