"""Rows that are written as files of a source are read again with the same values, in every format."""

import json
import os
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from delta_files import WrittenLog

from core.bench.request import BenchSource
from core.model.errors import HeadgateError, UsageError
from core.model.names import TableName
from pipelines.bench.source_files import read_sample, show_file, write_rows
from pipelines.storage.delta_log import DeltaLog

S = TableName("s")
COLUMNS = (
    ("id", "bigint"), ("name", "string"), ("price", "double"), ("at", "timestamp"), ("local", "timestamp_ntz"),
    ("day", "date"),
)  # fmt: skip
AT = datetime(2026, 1, 2, 3, 4, 5, 678900, tzinfo=UTC)
ROWS = (
    {"id": 1, "name": "a, b", "price": 1.5, "at": AT, "local": AT, "day": date(2026, 1, 2)},
    {"id": 2, "name": None, "price": None, "at": AT, "local": AT, "day": date(2026, 1, 3)},
)


def source(folder: Path, format: str, columns: tuple[tuple[str, str], ...] = COLUMNS, **options: str) -> BenchSource:
    return BenchSource(S, str(folder), format, columns, options, sample=str(folder))


def delta(folder: Path) -> Path:
    """Create an empty Delta table, and return its folder."""
    return WrittenLog(folder).log.parent


@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("json", {}),
        ("json", {"multiline": "true"}),
        ("csv", {"header": "true"}),
        ("csv", {"sep": ";"}),
        ("parquet", {}),
    ],
)
def test_rows_are_read_as_they_were_written(tmp_path: Path, format: str, options: dict[str, str]) -> None:
    of = source(tmp_path, format, **options)
    hidden = write_rows(of, "one", ROWS)
    assert read_sample(of) == ()
    assert show_file(hidden) == str(tmp_path / f"one.{format}")
    assert read_sample(of) == ROWS


def test_rows_of_a_delta_table_are_there_once_they_are_committed(tmp_path: Path) -> None:
    folder = delta(tmp_path)
    of = source(folder, "delta")
    first, second = (write_rows(of, f"f{number}", [row]) for number, row in enumerate(ROWS))
    assert read_sample(of) == ()
    assert show_file(second) == f"{folder}@1"
    assert read_sample(of) == ROWS[1:]
    assert show_file(first) == f"{folder}@2"
    log = DeltaLog(str(folder))
    log.refresh()
    assert (log.head, log.active().rows, not log.keeps_all()) == (2, 2, False)
    assert not [each for each in os.listdir(folder) if each.endswith(".commit")]


def test_values_of_partition_columns_are_in_the_log_and_not_in_the_files(tmp_path: Path) -> None:
    folder = delta(tmp_path)
    of = replace(source(folder, "delta"), partitioning=("day", "name"))
    show_file(write_rows(of, "f", ROWS))
    lines = (folder / f"_delta_log/{1:020}.json").read_text().splitlines()
    added = [line["add"] for line in map(json.loads, lines) if "add" in line]
    assert [each["partitionValues"] for each in added] == [
        {"day": "2026-01-02", "name": "a, b"}, {"day": "2026-01-03", "name": None},
    ]  # fmt: skip
    assert "day" not in parquet.read_schema(folder / added[0]["path"]).names


def test_partitions_of_a_sample_are_read_from_the_paths_that_spark_writes(tmp_path: Path) -> None:
    folder = delta(tmp_path)
    columns = (("id", "bigint"), ("day", "date"), ("n", "int"))
    of = replace(source(folder, "delta", columns), partitioning=("day", "n"))
    hidden = Path(write_rows(of, "f", [{"id": 1, "day": date(2026, 1, 2), "n": 7}]))
    add = json.loads(hidden.read_text().splitlines()[1])
    name = add["add"]["path"]
    (folder / "day=2026-01-02/n=7").mkdir(parents=True)
    (folder / name).rename(folder / "day=2026-01-02/n=7" / name)
    add["add"]["path"] = f"day=2026-01-02/n=7/{name}"
    hidden.write_text(json.dumps(add) + "\n")
    show_file(str(hidden))
    assert read_sample(of) == ({"id": 1, "day": date(2026, 1, 2), "n": 7},)


def test_without_a_table_nothing_is_committed(tmp_path: Path) -> None:
    hidden = write_rows(source(tmp_path, "delta"), "f", ROWS)
    with pytest.raises(HeadgateError, match="there is no Delta table"):
        show_file(hidden)


@pytest.mark.parametrize("format", ["json", "parquet"])
def test_nested_values_are_kept(tmp_path: Path, format: str) -> None:
    columns = (("tags", "array<string>"), ("of", "struct<x:int,y:string>"))
    row = {"tags": ["a", "b"], "of": {"x": 1, "y": "z"}}
    of = source(tmp_path, format, columns)
    show_file(write_rows(of, "one", [row]))
    assert read_sample(of) == (row,)


def test_the_newest_files_are_the_sample_in_the_order_in_which_they_were_written(tmp_path: Path) -> None:
    of = source(tmp_path, "json", (("id", "bigint"),))
    for number in range(5):
        path = Path(show_file(write_rows(of, f"f{number}", [{"id": number}])))
        path.touch()
    assert [row["id"] for row in read_sample(of, most=3)] == [2, 3, 4]
    (tmp_path / "_spark_metadata").mkdir()
    (tmp_path / "_spark_metadata/0").write_text("v1")
    assert len(read_sample(of)) == 5


def test_a_file_that_is_no_such_format_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[1]")
    with pytest.raises(UsageError, match=r"x\.json cannot be read as json: a line is no object"):
        read_sample(source(tmp_path, "json"))


def test_a_sample_that_does_not_exist_is_empty(tmp_path: Path) -> None:
    assert read_sample(source(tmp_path / "none", "json")) == ()


@pytest.mark.parametrize(("name", "text"), [("r.csv", "id,name\n1,a\n"), ("r.jsonl", '{"id": 1, "name": "a"}\n')])
def test_samples_in_place_of_topics_and_databases_have_the_format_of_their_ending(
    tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    columns = (("id", "bigint"), ("name", "string"))
    for of in (source(tmp_path, "kafka", columns), replace(source(tmp_path, "parquet", columns), stands_in=True)):
        assert read_sample(of) == ({"id": 1, "name": "a"},)
