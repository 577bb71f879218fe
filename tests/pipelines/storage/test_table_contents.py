"""The contents of a table's folder, over files in the layout of Spark 4.2.0."""

import os
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.orc
import pyarrow.parquet
import pytest
from spark_files import Consumer, WrittenTable

from core.model.names import TableName
from core.model.table_formats import TABLE_FORMATS, RowCounting, TableFormat
from core.ports.storage import FolderContents
from pipelines.storage import row_counting, table_contents
from pipelines.storage.table_contents import TableFolders, rows_since

T = TableName("orders")


@pytest.fixture
def footers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files whose footers were read."""
    read: list[str] = []
    rows_of = row_counting.parquet_rows

    def noted(path: str) -> int | None:
        read.append(os.path.basename(path))
        return rows_of(path)

    monkeypatch.setattr(row_counting, "parquet_rows", noted)
    return read


def test_a_written_table_holds_the_existing_files_of_its_log(tmp_path: Path, footers: list[str]) -> None:
    table, folders = WrittenTable(tmp_path / "t"), TableFolders()
    for n in range(12):
        table.write(rows=n, at=1000.0 + n)
    pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), table.folder / "of a task that failed.parquet")
    size = sum(entry["size"] for entry in table.entries)
    assert folders.contents(str(table.folder), "parquet") == FolderContents(12, size, 66, True, 1000.0, 1011.0)
    assert len(footers) == 12
    table.write(rows=100, at=2000.0)
    found = folders.contents(f"file://{table.folder}/", "parquet")
    assert found is not None and (found.files, found.rows, found.exact) == (13, 166, True)
    assert footers[12:] == ["part 12.parquet"]
    (table.folder / "part 0.parquet").unlink()
    (table.folder / "part 3.parquet").unlink()
    found = folders.contents(str(table.folder), "parquet")
    assert found is not None and (found.files, found.rows, found.exact, found.earliest) == (11, 163, True, 1001.0)


def test_rows_since_a_moment_are_those_of_files_that_the_log_names(tmp_path: Path, footers: list[str]) -> None:
    table = WrittenTable(tmp_path / "t")
    for n in range(12):
        table.write(rows=n, at=1000.0 + n)
    folder = f"file://{table.folder}/"
    assert rows_since(folder, "parquet", 1009.0) == 9 + 10 + 11
    assert footers == ["part 9.parquet", "part 10.parquet", "part 11.parquet"]
    assert rows_since(folder, "parquet", 1012.0) == 0
    assert rows_since(folder, "parquet", 0.0, count_s=-1.0) is None


def test_unchanged_table_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, folders = WrittenTable(tmp_path / "t"), TableFolders()
    table.write()
    for folder in (table.folder / "_spark_metadata", table.folder):
        os.utime(folder, (1000.0, 1000.0))
    first = folders.contents(str(table.folder), "parquet")
    monkeypatch.setattr(table_contents, "whole_table_log", None)
    assert folders.contents(str(table.folder), "parquet") is first


def test_rows_beyond_the_time_of_one_look_are_estimated_and_counted_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, folders = WrittenTable(tmp_path / "t"), TableFolders(count_s=2.5)
    for n in range(7):
        table.write(rows=10 + n)
    clock = iter(range(1000))
    monkeypatch.setattr(row_counting.time, "monotonic", lambda: float(next(clock)))
    looks = [folders.contents(str(table.folder), "parquet") for _ in range(4)]
    assert [look and look.exact for look in looks] == [False, False, False, True]
    assert [look and look.rows for look in looks][-1] == 91
    assert looks[0] is not None and looks[0].rows is not None and 60 < looks[0].rows < 90
    monkeypatch.undo()
    late = TableFolders(count_s=-1.0).contents(str(table.folder), "parquet")
    assert late is not None and (late.files, late.rows, late.exact) == (7, None, False)


def test_landed_lines_are_estimated_and_hidden_files_left_out(tmp_path: Path) -> None:
    for n, name in enumerate(("b.json", "day=1/a.json", ".c.json", "_d.json", "e.json._COPYING_")):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text('{"a":1}\n' * 6)
        os.utime(path, (1000.0 - n, 1000.0 - n))
    folders = TableFolders()
    assert folders.contents(str(tmp_path), "json") == FolderContents(2, 96, 12, False, 999.0, 1000.0)
    (tmp_path / "day=1" / "f.json").write_text('{"a":1}\n' * 100)
    found = folders.contents(str(tmp_path), "json")
    assert found is not None and (found.files, found.rows, found.exact) == (3, 112, False)
    (tmp_path / "g.json.gz").write_text("packed")
    found = folders.contents(str(tmp_path), "json")
    assert found is not None and (found.files, found.rows) == (4, None)
    assert folders.contents(str(tmp_path), "orc") is not None


def _parquet(path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"a": [1, 2, 3]}), path)


def _orc(path: Path) -> None:
    pyarrow.orc.write_table(pyarrow.table({"a": [1, 2, 3]}), path)


def _lines(path: Path) -> None:
    path.write_text("12345678\n" * 3)


THREE_ROWS = {"parquet": _parquet, "json": _lines, "csv": _lines, "orc": _orc, "text": _lines}
COUNTED = {RowCounting.FOOTERS: (3, True), RowCounting.LINES: (3, False), RowCounting.NONE: (None, False)}


FILES = {name: format for name, format in TABLE_FORMATS.items() if format.has_files and not format.transaction_log}


@pytest.mark.parametrize("format", FILES.values(), ids=FILES)
def test_rows_of_every_format_are_known_as_its_row_says(tmp_path: Path, format: TableFormat) -> None:
    THREE_ROWS[format.name](tmp_path / "part 0")
    found = TableFolders().contents(str(tmp_path), format.name)
    assert found is not None and (found.rows, found.exact) == COUNTED[format.row_counting]


def test_empty_and_missing_folders_are_distinguished(tmp_path: Path) -> None:
    for format in ("parquet", "json"):
        assert TableFolders().contents(str(tmp_path), format) == FolderContents(0, 0, 0, True, None)
    assert TableFolders().contents(str(tmp_path / "absent"), "parquet") is None
    assert TableFolders().contents("ftp://host/orders", "parquet") is None


def test_files_that_were_read_and_are_gone_are_counted(tmp_path: Path) -> None:
    table, consumer = WrittenTable(tmp_path / "t"), Consumer(tmp_path / "c")
    source: Any = ((0, T, str(table.folder), "parquet"),)
    uris = [table.write() for _ in range(25)]
    for uri in uris[:20]:
        consumer.plan(uri)
    assert table_contents.missing_files(str(consumer.folder), {0: 14}, source) == 0
    for n in (2, 7, 17, 23):
        (table.folder / f"part {n}.parquet").unlink()
    assert table_contents.missing_files(str(consumer.folder), {0: 14}, source) == 2
    assert table_contents.missing_files(str(consumer.folder), {0: 19}, source) == 3
    assert table_contents.missing_files(str(consumer.folder), {}, source) == 0
    elsewhere: Any = ((0, T, str(tmp_path / "absent"), "parquet"),)
    assert table_contents.missing_files(str(consumer.folder), {0: 19}, elsewhere) == 3
    with pytest.raises(FileNotFoundError):
        table_contents.missing_files(str(tmp_path), {0: 19}, source)
