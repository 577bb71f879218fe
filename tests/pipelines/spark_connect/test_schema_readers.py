"""What `core.changes.schema_compatibility` says about columns, compared with readers on real Spark."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from schema_readers import VALUES, ZONE, SchemaReaders, ddl_of, rows_of

from core.changes.schema_compatibility import Direction, ReadResult, column_reading, columns_in, conflicts
from pipelines.spark_connect.session import Session

pytestmark = pytest.mark.spark

OLD = "id INT NOT NULL, a INT, b STRING, m STRING NOT NULL, s STRUCT<x: INT, y: STRING>, l ARRAY<STRUCT<x: INT>>"
EDITS = {
    "nothing": OLD,
    "added nullable": f"{OLD}, n DOUBLE",
    "added NOT NULL": f"{OLD}, n DOUBLE NOT NULL",
    "dropped": OLD.replace("b STRING, ", ""),
    "dropped NOT NULL": OLD.replace("m STRING NOT NULL, ", ""),
    "renamed": OLD.replace("b STRING", "c STRING"),
    "reordered": OLD.replace("a INT, b STRING", "b STRING, a INT"),
    "in capitals": OLD.replace("a INT", "A INT"),
    "widened": OLD.replace("a INT", "a BIGINT"),
    "now NOT NULL": OLD.replace("b STRING", "b STRING NOT NULL"),
    "now nullable": OLD.replace(" NOT NULL, s", ", s"),
    "another type": OLD.replace("a INT", "a DATE"),
    "a field added": OLD.replace("y: STRING", "y: STRING, z: INT"),
    "a field dropped": OLD.replace(", y: STRING", ""),
    "a field widened": OLD.replace("s STRUCT<x: INT", "s STRUCT<x: BIGINT"),
    "fields reordered": OLD.replace("x: INT, y: STRING", "y: STRING, x: INT"),
    "a field of elements added": OLD.replace("ARRAY<STRUCT<x: INT>>", "ARRAY<STRUCT<x: INT, z: INT>>"),
    "elements widened": OLD.replace("ARRAY<STRUCT<x: INT>>", "ARRAY<STRUCT<x: BIGINT>>"),
    "a column instead of a struct": OLD.replace("s STRUCT<x: INT, y: STRING>", "s STRING"),
}
FAST = ("added nullable", "dropped")
PAIRS = {(written, read) for written in VALUES for read in VALUES if written != read}


@pytest.fixture
def readers(delta_session: Session, tmp_path: Path) -> Iterator[SchemaReaders]:
    spark = delta_session.spark
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    yield SchemaReaders(spark, tmp_path)
    spark.conf.set("spark.sql.session.timeZone", zone or "UTC")


def edit_disagreements(readers: SchemaReaders, edit: str, format: str) -> list[str]:
    old, new = ddl_of(OLD, format), ddl_of(EDITS[edit], format)
    broken = {conflict.direction for conflict in conflicts(columns_in(old), columns_in(new))}
    found = []
    for direction in Direction:
        seen = readers.edited(old, new, direction)
        if (seen is not ReadResult.READS) != (direction in broken):
            found.append(f"{edit}, {format}, {direction}: Spark {seen}")
    return found


@pytest.mark.drill
@pytest.mark.parametrize("edit", FAST)
def test_readers_of_parquet_survive_the_edits_that_the_rules_allow(readers: SchemaReaders, edit: str) -> None:
    readers.streams = False
    assert edit_disagreements(readers, edit, "parquet") == []


@pytest.mark.drill
def test_parquet_reads_some_types_wrongly_without_an_error(readers: SchemaReaders) -> None:
    readers.streams = False
    found = readers.parquet_types("int", ("smallint", "bigint", "string", "date"))
    assert [*found.values()] == [ReadResult.WRONG, ReadResult.READS, ReadResult.FAILS, ReadResult.WRONG]


@pytest.mark.drill
@pytest.mark.long
@pytest.mark.parametrize("format", ["parquet", "delta"])
@pytest.mark.parametrize("edit", EDITS)
def test_every_edit_has_on_spark_the_effect_that_the_rules_give(readers: SchemaReaders, edit: str, format: str) -> None:
    assert edit_disagreements(readers, edit, format) == []


@pytest.mark.drill
@pytest.mark.long
@pytest.mark.parametrize("reader", ["a file", "an altered table", "a cast"])
@pytest.mark.parametrize("written", VALUES)
def test_every_pair_of_types_is_read_as_the_rules_say(readers: SchemaReaders, written: str, reader: str) -> None:
    others = [kind for kind in VALUES if kind != written]
    trial, format, direction = {
        "a file": (readers.parquet_types, "parquet", Direction.BACKWARD),
        "an altered table": (readers.altered_types, "delta", Direction.BACKWARD),
        "a cast": (readers.cast_types, "delta", Direction.FORWARD),
    }[reader]
    found = trial(written, others)
    said = {kind: column_reading(written, kind, format, direction) for kind in others}
    assert {
        f"{written} as {kind}": (str(found[kind]), str(said[kind])) for kind in others if found[kind] != said[kind]
    } == {}


@pytest.mark.drill
@pytest.mark.long
def test_partition_columns_are_read_from_the_names_of_folders(readers: SchemaReaders) -> None:
    kinds = ("smallint", "int", "bigint", "double", "decimal(12,2)", "date", "string")
    wrong = {}
    for written in ("int", "bigint", "date", "string"):
        path = readers.write(
            f"SELECT id, c FROM (SELECT * FROM ({rows_of(written)}) WHERE c IS NOT NULL)", f"by_{written}", "c"
        )
        right = readers.right_rows(written, [kind for kind in kinds if kind != written])
        for kind, rows in right.items():
            seen = readers.declared(path, f"id INT, c {kind}", rows and [row for row in rows if row[1] is not None])
            said = column_reading(written, kind, "parquet", Direction.BACKWARD, partitions=True)
            if seen is not said:
                wrong[f"{written} as {kind}"] = (str(seen), str(said))
    assert wrong == {}
