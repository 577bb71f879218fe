"""A generated first case: rows by declared types that join, a later row for the watermark, and a round trip."""

import json
from datetime import UTC, datetime
from decimal import Decimal

import small_project

from core.model.names import TableName
from core.project.model import Table
from core.statement_tests.case_reader import read_cases
from core.statement_tests.case_writer import ROWS, first_case, literals_in, made_up_row, written_case

A = TableName("a")
COLUMNS = (
    "id BIGINT, kind STRING, price DECIMAL(5,2), `per cent` FLOAT, at TIMESTAMP, day DATE, ok BOOLEAN, raw BINARY, "
    "tags ARRAY<STRUCT<k:STRING,n:INT>>, about MAP<STRING,DOUBLE>, other VARIANT"
)


def tables(select: str) -> dict[TableName, Table]:
    texts = small_project.texts(a=select)
    path = "pipelines/sources/p/{0}/sql-scripts/ddl.{0}.sql"
    texts[path.format("landed")] = f"CREATE TABLE landed ({COLUMNS}) USING json LOCATION 'landing';"
    texts[path.format("names")] = "CREATE TABLE names (id BIGINT, name STRING) USING csv LOCATION 'names';"
    return dict(small_project.project(texts).tables)


def test_a_case_is_read_again_as_it_was_written_with_the_rows_that_were_recorded() -> None:
    declared = tables("SELECT id, kind FROM STREAM landed")
    made = first_case(declared[A], declared)
    text = written_case(made, [(2, 'b "x"'), (1, None)], declared)
    assert text.startswith("# A first case") and "RECORDED" in text
    (again,), problems = read_cases({made.path: text}, declared)
    assert problems == ()
    assert (again.name, again.parts) == (made.name, made.parts)
    assert again.expected == ((1, None), (2, 'b "x"'))
    (part,) = again.parts
    first = part[TableName("landed")][0]
    assert first[:3] == (1, "kind 1", Decimal("1.05"))
    assert first[-1] is None


def test_a_case_whose_statement_writes_nothing_expects_nothing() -> None:
    declared = tables("SELECT id, kind FROM STREAM landed")
    text = written_case(first_case(declared[A], declared), [], declared)
    assert text.endswith("expect: []\n")


def test_rows_of_both_sides_of_a_join_have_the_same_ids_and_a_static_side_is_in_the_first_part() -> None:
    joined = (
        "SELECT l.id, n.name AS kind FROM STREAM landed WATERMARK at DELAY OF INTERVAL 1 HOUR AS l "
        "JOIN names AS n ON n.id = l.id"
    )
    declared = tables(joined)
    first, later = first_case(declared[A], declared).parts
    assert [row[0] for row in first[TableName("names")]] == [row[0] for row in first[TableName("landed")]] == [1, 2, 3]
    assert set(later) == {"landed"} and len(later[TableName("landed")]) == 1
    assert later[TableName("landed")][0][4] == datetime(2026, 1, 2, tzinfo=UTC)


def test_texts_that_a_filter_asks_for_are_in_every_row_and_ruled_out_ones_in_the_last() -> None:
    declared = tables("SELECT id, kind FROM STREAM landed WHERE kind IN ('x', 'y')")
    (part,) = first_case(declared[A], declared).parts
    assert [row[1] for row in part[TableName("landed")]] == ["x", "y", "x"]
    declared = tables("SELECT id, kind FROM STREAM landed WHERE kind <> 'void'")
    (part,) = first_case(declared[A], declared).parts
    assert [row[1] for row in part[TableName("landed")]] == ["kind 1", "kind 2", "void"] and ROWS == 3


def job_tables(code: str) -> dict[TableName, Table]:
    texts = small_project.texts()
    del texts["pipelines/facts/p/a/sql-scripts/dml.a.sql"]
    texts["pipelines/facts/p/a/sql-scripts/job.a.py"] = code
    return dict(small_project.project(texts).tables)


def test_a_job_gets_a_second_micro_batch_because_nobody_sees_what_it_keeps_as_state() -> None:
    declared = job_tables("def a(landed):\n    return landed\n")
    made = first_case(declared[A], declared)
    assert [len(part[TableName("landed")]) for part in made.parts] == [ROWS, 1]
    text = written_case(made, [], declared)
    assert "# A second micro-batch on the same checkpoint" in text and "watermark" not in text
    (again,), problems = read_cases({made.path: text}, declared)
    assert (again.parts, problems) == (made.parts, ())


def test_a_job_that_reads_no_table_has_a_case_without_rows() -> None:
    declared = job_tables("def a(spark):\n    return spark.readStream.format('rate').load()\n")
    made = first_case(declared[A], declared)
    (again,), problems = read_cases({made.path: written_case(made, [], declared)}, declared)
    assert (again.parts, problems) == (({},), ())


def test_a_text_that_a_statement_parses_is_json_with_the_schema_of_from_json() -> None:
    schema = "n INT, tags ARRAY<STRUCT<k: STRING, price: DECIMAL(6,2)>>"
    literals = literals_in([
        f"SELECT from_json(body, '{schema}') FROM STREAM x",
        "SELECT from_json(CAST(x.raw AS STRING), 'ARRAY<INT>') FROM STREAM x",
        "SELECT from_json(other, 'no type') FROM STREAM x",
    ])  # fmt: skip
    columns = (("body", "string"), ("raw", "binary"), ("other", "string"))
    body, raw, other = made_up_row(columns, 2, literals)
    assert json.loads(str(body)) == {"n": 2, "tags": [{"k": f"k {n}", "price": n + 0.05} for n in (1, 2, 3)]}
    assert raw == b"[1, 2, 3]" and other == "other 2"


def test_numbers_fit_their_types_however_many_rows_there_are() -> None:
    columns = (("small", "tinyint"), ("price", "decimal(3,2)"), ("raw", "binary"))
    assert made_up_row(columns, 1234, {}) == (1234 % 128, Decimal("4.05"), bytes([1234 % 256]))
