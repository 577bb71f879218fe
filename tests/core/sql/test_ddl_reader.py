"""DDL files: the facts of a table, and the Problems of unreadable ones."""

import pytest

from core.sql.ddl_reader import read_ddl
from core.sql.statement import Column, TableDdl


def test_all_clauses_are_read_in_any_order() -> None:
    text = (
        "\ufeff-- made by hand\r\nCREATE TABLE IF NOT EXISTS Orders (\r\n  id BIGINT NOT NULL,\r\n"
        "  clientName STRING COMMENT 'as written; \"x\"'\r\n) COMMENT 'orders' LOCATION 'landing/orders'\r\n"
        "TBLPROPERTIES ('a.b' = 'c') PARTITIONED BY (id) OPTIONS (multiLine true) USING JSON;\r\n"
    )
    ddl, problems = read_ddl(text, "ddl.orders.sql")
    assert problems == ()
    assert ddl == TableDdl(
        table="orders",  # type: ignore[arg-type] # A literal stands for the parsed name.
        columns=(
            Column("id", "", "bigint", False),
            Column("clientName", "", "string", True, 'as written; "x"'),
        ),
        format="json",
        partitioning=("id",),
        location="landing/orders",
        properties=(("a.b", "c"),),
        options=(("multiLine", "true"),),
        comment="orders",
        line=2,
    )


@pytest.mark.parametrize("options", ["path '/landing'", "'PATH' = '/landing', multiLine true"])
def test_a_path_among_the_options_is_the_location(options: str) -> None:
    ddl, problems = read_ddl(f"CREATE TABLE t (x INT) USING json OPTIONS ({options})", "f.sql")
    assert problems == () and ddl is not None
    assert (ddl.location, [key for key, _ in ddl.options]) == ("/landing", ["multiLine"] if "multi" in options else [])


def test_a_repeated_location_is_refused_as_by_spark() -> None:
    ddl, (problem,) = read_ddl("CREATE TABLE t (x INT) USING json OPTIONS (path '/a') LOCATION '/a'", "f.sql")
    assert ddl is None and problem.summary == "the table's location is given twice: the second is path in OPTIONS"


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("INTEGER", "int"),
        ("LONG", "bigint"),
        ("short", "smallint"),
        ("byte", "tinyint"),
        ("REAL", "float"),
        ("DECIMAL", "decimal(10,0)"),
        ("NUMERIC(12)", "decimal(12,0)"),
        ("dec(12, 2)", "decimal(12,2)"),
        ("VARCHAR(10)", "varchar(10)"),
        ("TIMESTAMP_LTZ", "timestamp"),
        ("timestamp_ntz", "timestamp_ntz"),
        ("INTERVAL DAY TO SECOND", "interval day to second"),
        ("Array<Map<String, Struct<A: Int>>>", "array<map<string,struct<A:int>>>"),
        ("STRUCT<a INT NOT NULL COMMENT 'x', `b c`: STRING>", "struct<a:int not null comment 'x',`b c`:string>"),
        ("STRUCT<>", "struct<>"),
        ("STRING COLLATE UTF8_BINARY", "string collate utf8_binary"),
    ],
)
def test_types_have_one_form(written: str, normal: str) -> None:
    ddl, problems = read_ddl(f"CREATE TABLE t (x {written}, y INT) USING parquet", "f.sql")
    assert problems == () and ddl is not None
    assert [column.type for column in ddl.columns] == [normal, "int"]


@pytest.mark.parametrize(
    ("text", "summary", "place"),
    [
        ("", "the file contains no statement", (1, 1)),
        ("SELECT 1", "a ddl file contains CREATE TABLE, not SELECT", (1, 1)),
        ("CREATE VIEW v AS SELECT 1", "a ddl file contains CREATE TABLE, not CREATE VIEW V", (1, 1)),
        ("CREATE TABLE t", "the table has no columns", (1, 14)),
        ("CREATE TABLE t USING parquet", "the table has no columns", (1, 16)),
        ("CREATE TABLE t () USING parquet", "the table has no columns", (1, 16)),
        ("CREATE TABLE t AS SELECT 1", "the table has no columns", (1, 16)),
        ("CREATE TABLE t (a INT)", "the table has no format", (1, 22)),
        ("CREATE TABLE d.t (a INT) USING parquet", "the table name cannot be qualified with a database", (1, 14)),
        ("CREATE TABLE t__v1 (a INT) USING parquet", "'t__v1' is not a table name", (1, 14)),
        ("CREATE TABLE t (a itn) USING parquet", "itn is not a Spark type", (1, 19)),
        ("CREATE TABLE t (\n  a INT,\n  b ARRAY<INT\n) USING parquet", "array<…> is not closed", (3, 11)),
        ("CREATE TABLE t (a INT, A INT) USING parquet", "column A is declared twice", (1, 26)),
        ("CREATE TABLE t (a STRUCT<x: INT, X: INT>) USING parquet", "field X of a is declared twice", (1, 17)),
        ("CREATE TABLE t (a MAP<INT, ARRAY<STRUCT<x: INT, y: INT, x: INT>>>) USING parquet", "field x of a", (1, 17)),
        ("CREATE TABLE t (a INT,) USING parquet", ", is not allowed here", (1, 22)),
        ("CREATE TABLE t (a INT DEFAULT 3) USING parquet", "DEFAULT is not allowed here", (1, 23)),
        ("CREATE TABLE t (a INT) USING parquet PARTITIONED BY (b)", "b is not a column of the table", (1, 22)),
        ("CREATE TABLE t (a INT) USING parquet USING json", "USING appears twice", (1, 38)),
        ("CREATE TABLE t (a INT) USING json OPTIONS (x 'a', X 'b')", "X appears twice", (1, 51)),
        ("CREATE TABLE t (a INT) USING json TBLPROPERTIES (x 'a', x 'b')", "x appears twice", (1, 57)),
        ("CREATE TABLE t (a INT) USING parquet CLUSTER BY (a)", "CLUSTER BY cannot be read here", (1, 38)),
        ("CREATE TABLE t (values INT, `select` INT, from INT, A INT, a INT) USING parquet", "column a is", (1, 62)),
        ("CREATE TABLE t (a INT) USING x; CREATE TABLE u", "a ddl file contains one CREATE TABLE", (1, 33)),
        ("CREATE TABLE t (a INT COMMENT 'x) USING parquet", "the SQL cannot be parsed: a string", (1, 31)),
    ],
)
def test_an_invalid_table_is_one_problem_with_its_position(text: str, summary: str, place: tuple[int, int]) -> None:
    ddl, (problem,) = read_ddl(text, "ddl.t.sql")
    assert ddl is None
    assert problem.summary.startswith(summary)
    assert problem.where is not None and (problem.where.line, problem.where.column) == place
    assert problem.remedy


def test_a_mistyped_type_gets_the_nearest_name() -> None:
    _, (problem,) = read_ddl("CREATE TABLE t (a timestmp) USING parquet", "f.sql")
    assert problem.remedy == "did you mean timestamp?"


def test_a_type_nested_without_end_is_a_problem() -> None:
    ddl, problems = read_ddl(f"CREATE TABLE t (a {'ARRAY<' * 5000}INT{'>' * 5000}) USING parquet", "f.sql")
    assert ddl is None and "too deeply" in problems[0].summary
