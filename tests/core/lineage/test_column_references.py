"""The lines of a reader's statement that name a parent's column."""

from dataclasses import replace

import pytest

from core.lineage.column_usage import column_reference_lines
from core.model.names import TableName as T
from core.project.model import Layer, Script, Settings, Table
from core.sql.ddl_reader import read_ddl
from core.sql.statement_reader import read_statements


def declared(name: str, columns: str) -> Table:
    ddl, problems = read_ddl(f"CREATE TABLE {name} ({columns}) USING parquet", f"ddl.{name}.sql")
    assert ddl is not None, problems
    return Table(T(name), "p", Layer.SOURCE, T(name), "x", Script("x", ""), ddl)


PROJECT = {
    T("orders"): declared("orders", "k BIGINT, other BIGINT, ref BIGINT"),
    T("p"): declared("p", "id BIGINT, k BIGINT"),
}
"""Columns by table. The column id of orders was removed, but p has a column with that name."""


def reader(dml: str) -> Table:
    statements, problems = read_statements(dml, "x/dml.r.sql")
    assert statements, problems
    ddl, _ = read_ddl("CREATE TABLE r (x BIGINT) USING parquet", "ddl.r.sql")
    assert ddl is not None
    return Table(
        T("r"), "p", Layer.FACT, T("r"), "x", Script("x/ddl.r.sql", ""), ddl,
        Script("x/dml.r.sql", dml), statements[0], Settings(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("dml", "expected"),
    [
        ("INSERT INTO r\nSELECT id\nFROM STREAM orders", "dml.r.sql:2"),
        ("-- head\n\nINSERT INTO r SELECT\n  o.id AS x\nFROM STREAM orders AS o WHERE\n o.`ID` > 1", "dml.r.sql:4,6"),
        ("INSERT INTO r\r\nSELECT\r\n id AS x\r\nFROM STREAM orders", "dml.r.sql:3"),
        ("INSERT INTO r SELECT other AS id FROM STREAM orders", ""),
        ("INSERT INTO r SELECT 'id' AS x /* id */ FROM STREAM orders -- id", ""),
        ("INSERT INTO r SELECT p.id AS x FROM STREAM orders AS o JOIN p ON p.k = o.k", ""),
        ("INSERT INTO r SELECT id(k) AS x FROM STREAM orders", ""),
        ("INSERT INTO r SELECT upper(o.id) AS x FROM STREAM orders AS o", "dml.r.sql:1"),
        ("INSERT INTO r SELECT x FROM (SELECT k AS x,\n id FROM STREAM orders)", "dml.r.sql:2"),
        ("INSERT INTO r WITH w AS (SELECT ref AS id FROM STREAM orders)\nSELECT id AS x FROM w", ""),
        ("INSERT INTO r WITH w AS (SELECT * FROM STREAM orders)\nSELECT id AS x FROM w", "dml.r.sql:2"),
        ("INSERT INTO r SELECT k AS x FROM STREAM orders UNION ALL\nSELECT id AS x FROM STREAM p", ""),
        ("INSERT INTO r SELECT id AS x FROM STREAM orders UNION ALL\nSELECT k AS x FROM STREAM p", "dml.r.sql:1"),
        ("INSERT INTO r SELECT orders.id AS x FROM STREAM orders", "dml.r.sql:1"),
        ("INSERT INTO r SELECT s.id AS x FROM (SELECT struct(k AS id) AS s FROM STREAM orders)", ""),
        ("INSERT INTO r SELECT p.k AS x FROM STREAM orders AS o\nJOIN p USING (id)", "dml.r.sql:2"),
        ("INSERT INTO r SELECT id AS x\nFROM STREAM orders AS o JOIN p ON p.k = o.k", "dml.r.sql:1"),
        ("INSERT INTO r SELECT k AS x FROM STREAM orders AS o JOIN (SELECT id FROM p) AS q ON q.id = o.k", ""),
        ("INSERT INTO r SELECT k AS x FROM STREAM orders\nWHERE k IN (SELECT p.k FROM p WHERE p.id = 1)", ""),
        (
            "INSERT INTO r SELECT k AS x FROM STREAM orders\nWHERE k IN (SELECT p.k FROM p\n WHERE orders.id = 1)",
            "dml.r.sql:3",
        ),
    ],
)
def test_the_lines_that_name_the_column_are_found(dml: str, expected: str) -> None:
    assert column_reference_lines("id", T("orders"), reader(dml), PROJECT) == expected


def test_a_star_hands_a_column_on_while_the_reader_declares_it() -> None:
    table = reader("INSERT INTO r\nSELECT * FROM STREAM orders")
    assert column_reference_lines("id", T("orders"), table, PROJECT) == ""
    assert column_reference_lines("x", T("orders"), table, PROJECT) == "dml.r.sql:2"


def test_an_unresolved_name_counts_as_a_use() -> None:
    table = reader("INSERT INTO r SELECT o.k AS x FROM STREAM orders AS o JOIN q ON\n q.id = o.k")
    assert column_reference_lines("id", T("orders"), table, PROJECT) == "dml.r.sql:2"
    assert column_reference_lines("id", T("p"), table, PROJECT) == ""


def test_the_line_counts_from_the_start_of_the_file_for_a_later_statement() -> None:
    dml = "INSERT INTO q SELECT k AS x FROM STREAM orders;\n\nINSERT INTO r\nSELECT id AS x FROM STREAM orders;"
    table = reader(dml)
    second = read_statements(dml, "x")[0][1]
    assert column_reference_lines("id", T("orders"), replace(table, parsed=second), PROJECT) == "dml.r.sql:4"
