"""Columns from Delta's logs in the notation of DESCRIBE: equal to Spark's, or None if a type is unknown."""

import json
from pathlib import Path
from typing import Any

import pytest
from delta_files import WrittenLog

from core.model.errors import EngineRefused
from core.ports.spark import CatalogTable
from pipelines.spark_connect.declared_tables import read_declared, why_other_columns
from pipelines.storage.checkpoints import TableCheckpoints
from pipelines.storage.delta_schemas import columns_of

TYPES = (
    "a BIGINT, b STRING, c DECIMAL(10, 2), d STRUCT<x: INT, Y_z: ARRAY<STRING>>, e MAP<STRING, TIMESTAMP_NTZ>, "
    "g TIMESTAMP NOT NULL COMMENT 'it''s when', h INTEGER, i DEC, k TIMESTAMP_LTZ, "
    "l VARIANT, m SMALLINT, n TINYINT, o FLOAT, p DOUBLE, q DATE, r BINARY, s BOOLEAN, "
    "t ARRAY<MAP<INT, STRUCT<u: BYTE>>>"
)


def schema(kind: object, **metadata: str) -> str:
    return json.dumps(
        {"type": "struct", "fields": [{"name": "a", "type": kind, "nullable": True, "metadata": metadata}]}
    )


def test_types_that_are_not_known_are_not_guessed(tmp_path: Path) -> None:
    assert columns_of(schema("long")) == {"a": "bigint"}
    assert columns_of(schema("string", __CHAR_VARCHAR_TYPE_STRING="varchar(3)")) == {"a": "varchar(3)"}
    for unknown in (schema("geography"), schema({"type": "udt"}), schema("string", __COLLATIONS="{}"), "", "[]", "{}"):
        assert columns_of(unknown) is None, unknown
    WrittenLog(tmp_path / "p").commit(1)
    assert TableCheckpoints("l").columns(f"{tmp_path}/p", "delta") is None, "this log says nothing of its columns"
    assert TableCheckpoints("l").columns(f"{tmp_path}/none", "parquet") is None


@pytest.mark.spark
@pytest.mark.drill
def test_a_log_has_the_same_columns_as_spark_even_from_a_checkpoint(lake: Any) -> None:
    name = lake.table("p", TYPES)

    def described() -> dict[str, str]:
        rows = [(str(row[0]), str(row[1])) for row in lake.sql(f"DESCRIBE {name}")]
        return dict(rows[: next((n for n, row in enumerate(rows) if not row[0] or row[0][0] == "#"), len(rows))])

    def plain(types: dict[str, str]) -> dict[str, str]:
        return {column: kind.replace("`", "").lower() for column, kind in types.items()}

    assert plain(lake.files.columns(lake.place("p"), "delta")) == plain(described())
    for n in range(10):
        lake.sql(f"ALTER TABLE {name} ADD COLUMNS (later_{n} INT)")
    assert list(Path(lake.place("p"), "delta/_delta_log").glob("*.checkpoint.parquet")), "made every ten commits"
    again = TableCheckpoints("ledger").columns(lake.place("p"), "delta")
    assert plain(dict(again or {})) == plain(described()) and "later_9" in (again or {})


@pytest.mark.spark
@pytest.mark.drill
def test_tables_that_match_their_logs_are_registered_in_one_request(lake: Any) -> None:
    names = {table: lake.table(table, TYPES) for table in ("p", "q", "other", "unknown")}
    lake.sql(f"ALTER TABLE {names['q']} ADD COLUMNS (later INT)")
    found = {table: lake.files.columns(lake.place(table), "delta") for table in names}
    given = [
        CatalogTable(names[table], lake.ddl(table, declared), exists=True, columns=columns)
        for table, declared, columns in (
            ("p", TYPES, found["p"]),
            ("q", TYPES, found["q"]),
            ("other", TYPES.replace("a BIGINT", "a STRING"), found["other"]),
            ("unknown", TYPES, None),
        )
    ]
    assert lake.tables.create_together(given) == {names["p"], names["q"]}, "all are there, two of them as declared"
    for name in names.values():
        lake.tables.forget(name)
    said: list[str] = []
    run = lake.tables._run
    lake.tables._run = lambda sql: (said.append(sql), run(sql))
    assert lake.tables.create_together(given) == {names["p"], names["q"]}
    assert len(said) == 1 and lake.count("q") == 0
    assert lake.tables.point_together([(f"v_{lake.mark}", (names["q"],), ("a", "later"))]) == {f"v_{lake.mark}"}
    assert lake.sql(f"SELECT later FROM v_{lake.mark}") == [] and len(said) == 2
    with pytest.raises(EngineRefused, match="has a bigint in the catalog, not a string"):
        lake.tables.create(given[2].name, given[2].ddl, exists=True)
    lake.tables.create(given[3].name, given[3].ddl, exists=True)


@pytest.mark.spark
@pytest.mark.drill
def test_a_table_with_varchar_which_describe_calls_a_string_is_registered_again(lake: Any) -> None:
    columns = "a VARCHAR(10), b STRUCT<c: CHAR(3)>"
    name, ddl = lake.table("p", columns), lake.ddl("p", columns)
    logged = lake.files.columns(lake.place("p"), "delta")
    assert lake.sql(f"DESCRIBE {name}")[0][1] == "string" and logged["a"] == "varchar(10)"
    lake.tables.forget(name)
    for _ in ("registered anew", "there already"):
        lake.tables.create(name, ddl, exists=True, columns=logged)


@pytest.mark.parametrize(
    ("declared", "there", "same"),
    [("STRUCT<a: INT NOT NULL COMMENT 'it''s, a: BIGINT', b: STRING>", "struct<a:int,b:string>", True),
     ("ARRAY<STRUCT<`a b`: INT NOT NULL>>", "array<struct<a b:int>>", True),
     ("STRUCT<a: BIGINT COMMENT 'int'>", "struct<a:int>", False)],
)  # fmt: skip
def test_a_comment_on_a_field_does_not_make_a_different_table(declared: str, there: str, same: bool) -> None:
    ddl = read_declared(f"CREATE TABLE IF NOT EXISTS t__v1 (s {declared}) USING delta LOCATION '/t'")
    assert (why_other_columns(ddl, {"s": there}) is None) is same
