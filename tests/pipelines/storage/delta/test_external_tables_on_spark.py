"""External Delta tables on real Spark: registered and read, but never created or changed by us."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from core.model.states import TableFaultKind
from core.model.table_formats import format_of_others
from core.ports.storage import TableFault
from core.sql.compiler import compile_ddl
from core.sql.ddl_reader import read_ddl

pytestmark = [pytest.mark.spark, pytest.mark.drill]

OTHERS = format_of_others("delta")


@dataclass
class Foreign:
    lake: Any
    folder: str

    def sql(self, text: str) -> None:
        self.lake.sql(text.format(t=f"delta.`{self.folder}`"))

    def insert(self, rows: int, at: int = 0, more: str = "") -> None:
        self.sql(f"INSERT INTO {{t}} SELECT {at} + id, concat('v', id){more} FROM range({rows})")

    def files(self) -> dict[str, tuple[int, int]]:
        found = {}
        for folder, _, names in os.walk(self.folder):
            for name in names:
                about = os.stat(f"{folder}/{name}")
                found[f"{folder}/{name}"] = (about.st_size, about.st_mtime_ns)
        return found


def made(lake: Any, name: str = "foreign", columns: str = "id BIGINT, v STRING", rest: str = "") -> Foreign:
    found = Foreign(lake, f"{lake.folder}/{name}")
    lake.sql(f"CREATE TABLE delta.`{found.folder}` ({columns}) USING delta {rest}")
    return found


def register(lake: Any, foreign: Foreign, columns: str = "id BIGINT, v STRING") -> str:
    name = f"orders_{lake.mark}"
    ddl, problems = read_ddl(f"CREATE TABLE orders ({columns}) USING delta LOCATION '{foreign.folder}'", "ddl")
    assert ddl is not None, problems
    there = lake.files.columns(foreign.folder, OTHERS)
    lake.tables.create(name, compile_ddl(ddl, name, foreign.folder), exists=True, columns=there)
    return name


def lag(lake: Any, foreign: Foreign, reader: str = "c") -> Any:
    return lake.files.lag(lake.checkpoint(reader), ((0, "orders", foreign.folder, OTHERS),))[0]


def why_other(lake: Any, foreign: Foreign, **more: Any) -> Any:
    return lake.files.source_fault(lake.checkpoint("c"), ((0, "orders", foreign.folder, OTHERS),), **more)


def test_an_external_table_is_registered_and_read_without_changes_in_its_folder(lake: Any) -> None:
    foreign = made(lake, "a {c} [d] é#")
    foreign.insert(5)
    foreign.sql("ALTER TABLE {t} ADD COLUMNS (more INT)")
    foreign.insert(4, 10, ", 1")
    before = foreign.files()
    table = register(lake, foreign)
    lake.table("c")
    lake.run("c", f"SELECT id, v FROM STREAM {table}")
    assert lake.count("c") == 9 and foreign.files() == before
    assert lake.files.identity(foreign.folder, OTHERS) == lake.sql(f"DESCRIBE DETAIL {table}")[0][1]
    foreign.insert(3, 20, ", 1")
    waits = lag(lake, foreign)
    assert (waits.rows, waits.versions, waits.exact, waits.missing) == (3, 1, True, False) and waits.oldest_s < 60
    held = lake.files.contents(foreign.folder, OTHERS)
    assert (held.rows, held.exact) == (12, True)


def test_delta_reads_an_escape_in_a_location_literally_and_creates_a_folder_without_a_log(lake: Any) -> None:
    foreign = made(lake, "a b")
    foreign.insert(2)
    for n, place in enumerate((f"{lake.folder}/a%20b", f"file:{lake.folder}/a%20b")):
        lake.sql(f"CREATE TABLE escaped{n}_{lake.mark} USING delta LOCATION '{place}'")
        assert Path(lake.folder, "a%20b").exists(), "so such a path is a Problem with file and line"
        shutil.rmtree(Path(lake.folder, "a%20b"))
    table = register(lake, Foreign(lake, f"file:{foreign.folder}"))
    assert lake.sql(f"SELECT count(*) FROM {table}") == [(2,)]


@pytest.mark.parametrize(
    ("change", "operation"),
    [("DELETE FROM {t} WHERE id = 1", "DELETE"),
     *(pytest.param(*case, marks=pytest.mark.long) for case in [
         ("UPDATE {t} SET v = 'x' WHERE id = 1", "UPDATE"), ("INSERT OVERWRITE {t} SELECT 1, 'v'", "WRITE"),
         ("RESTORE TABLE {t} TO VERSION AS OF 1", "RESTORE")])],
)  # fmt: skip
def test_changes_by_the_owner_are_reported_with_operation_and_version(change: str, operation: str, lake: Any) -> None:
    foreign = made(lake)
    foreign.insert(4)
    foreign.insert(4, 10)
    table = register(lake, foreign)
    lake.table("c")
    lake.run("c", f"SELECT id, v FROM STREAM {table}")
    foreign.sql(change)
    said = f"was changed by {operation} in version 3, which it has not read: a stream of rows cannot continue past that"
    assert why_other(lake, foreign) == ("orders", TableFault(TableFaultKind.ROWS_CHANGED, said))
    assert why_other(lake, foreign, take_changes={0}) is None


def test_a_recreated_static_side_is_read_as_it_is_and_a_missing_one_ends_its_reader(
    lake: Any,
) -> None:
    foreign = made(lake)
    foreign.insert(5)
    table = register(lake, foreign)
    for name in ("p", "c"):
        lake.table(name)
    lake.insert("p", 2)
    select = f"SELECT p.id, o.v FROM STREAM {lake.name('p')} p JOIN {table} o ON o.id = p.id"
    query = lake.start("c", select, trigger="200 milliseconds")
    lake.until(lambda: lake.batch("c") == 0)
    foreign.insert(1, 77)
    lake.insert("p", 1, at=77)
    lake.until(lambda: lake.batch("c") == 1)
    assert lake.count("c") == 3, "a row that came after the start is joined"
    before = lake.files.identity(foreign.folder, OTHERS)
    shutil.rmtree(foreign.folder)
    made(lake)
    foreign.insert(100)
    assert lake.files.identity(foreign.folder, OTHERS) not in ("", before)
    lake.insert("p", 1, at=50)
    lake.until(lambda: lake.batch("c") == 2)
    assert lake.count("c") == 4, "Spark does not compare the id of a static side"
    shutil.rmtree(foreign.folder)
    lake.insert("p", 1, at=51)
    lake.until(lambda: query.name not in lake.mine())
    (ended,) = [found for found in lake.queries.ended() if found.name == query.name]
    assert ended.error_class == "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS", "which says nothing of what was done"
    assert not Path(foreign.folder).exists(), "and it makes nothing"


def test_a_registered_table_follows_the_log_of_its_owner(lake: Any) -> None:
    foreign = made(lake)
    foreign.insert(2)
    table = register(lake, foreign)
    shutil.rmtree(foreign.folder)
    made(lake, columns="k BIGINT, w STRING")
    foreign.insert(3)
    assert [row[0] for row in lake.sql(f"DESCRIBE {table}")] == ["k", "w"]
    lake.table("c")
    lake.run("c", f"SELECT k AS id, w AS v FROM STREAM {table}")
    assert lake.count("c") == 3


@pytest.mark.long
def test_its_changes_are_streamed_if_its_own_log_records_them(lake: Any) -> None:
    foreign = made(lake, rest="TBLPROPERTIES ('delta.enableChangeDataFeed'='true')")
    foreign.insert(5)
    table = register(lake, foreign)
    lake.table("c")
    select = f"SELECT id, concat(v, _change_type) AS v FROM STREAM {table} WITH ('readChangeFeed'='true')"
    lake.run("c", select)
    assert lake.files.properties(foreign.folder, OTHERS) == {"delta.enableChangeDataFeed": "true"}
    foreign.sql("DELETE FROM {t} WHERE id = 1")
    foreign.sql("UPDATE {t} SET v = 'x' WHERE id = 2")
    assert why_other(lake, foreign, take_changes={0}) is None
    assert (lag(lake, foreign).versions, lag(lake, foreign).rows) == (2, 2)
    lake.run("c", select)
    kinds = sorted(str(row[0]).removeprefix("v1").removeprefix("v2") for row in lake.sql(
        f"SELECT v FROM {lake.name('c')} WHERE id IN (1, 2)"))  # fmt: skip
    assert kinds == ["delete", "insert", "insert", "update_preimage", "xupdate_postimage"]


FEATURES = {
    "deletion vectors": ("id BIGINT, v STRING", "TBLPROPERTIES ('delta.enableDeletionVectors'='true')"),
    "column mapping": ("id BIGINT, v STRING", "TBLPROPERTIES ('delta.columnMapping.mode'='name')"),
    "partitioned": ("id BIGINT, v STRING", "PARTITIONED BY (v)"),
    "checkpoints v2": ("id BIGINT, v STRING", "TBLPROPERTIES ('delta.checkpointPolicy'='v2')"),
    "in several parts": ("id BIGINT, v STRING", "TBLPROPERTIES ('delta.enableDeletionVectors'='true')"),
}


@pytest.mark.parametrize(
    ("feature", "top"),
    [("checkpoints v2", "json"), pytest.param("checkpoints v2", "parquet", marks=pytest.mark.long),
     *(pytest.param(feature, "json", marks=pytest.mark.long) for feature in FEATURES if feature != "checkpoints v2")],
)  # fmt: skip
def test_features_of_an_external_table_change_no_figure_even_behind_a_cleaned_log(
    feature: str, top: str, lake: Any
) -> None:
    columns, rest = FEATURES[feature]
    foreign = made(lake, columns=columns, rest=rest)
    about = {"spark.databricks.delta.checkpointV2.topLevelFileFormat": top}
    if feature == "in several parts":
        about["spark.databricks.delta.checkpoint.partSize"] = "5"
    for key, value in about.items():
        lake.sql(f"SET {key}={value}")
    foreign.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointInterval'='4')")
    foreign.insert(20)
    foreign.sql("DELETE FROM {t} WHERE id IN (3, 4, 5)")
    if feature == "column mapping":
        foreign.sql("ALTER TABLE {t} RENAME COLUMN v TO w")
        foreign.sql("ALTER TABLE {t} ADD COLUMNS (v STRING)")
        foreign.sql("ALTER TABLE {t} DROP COLUMN w")
    for n in range(6):
        foreign.insert(2, 100 + 10 * n)
    for key in about:
        lake.sql(f"RESET {key}")
    log = Path(foreign.folder, "_delta_log")
    whole = lake.files.contents(foreign.folder, OTHERS)
    newest = max(int(path.name.partition(".")[0]) for path in log.glob("0*.checkpoint.*"))
    for version in range(newest):
        (log / f"{version:020}.json").unlink()
    lake.read_anew()
    cleaned = lake.files.contents(foreign.folder, OTHERS)
    count = lake.sql(f"SELECT count(*) FROM delta.`{foreign.folder}`")[0][0]
    assert (cleaned.rows, cleaned.files, cleaned.bytes) == (whole.rows, whole.files, whole.bytes)
    assert (cleaned.rows, cleaned.exact) == (count, True) == (29, True)
    assert lake.files.columns(foreign.folder, OTHERS) == {"id": "bigint", "v": "string"}
    lake.table("c")
    assert lag(lake, foreign).rows == count
    table = register(lake, foreign)
    lake.run("c", f"SELECT id, v FROM STREAM {table}")
    assert lake.count("c") == count and lag(lake, foreign).rows == 0
    foreign.insert(5, 500)
    assert lag(lake, foreign).rows == 5
