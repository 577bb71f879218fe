"""Uses of a column: by name, through stars and struct fields, along every path; uncertain uses count."""

import pytest

from core.lineage.column_lineage import LineageTracer
from core.lineage.column_usage import column_uses_downstream, column_uses_of_readers
from core.model.names import TableName as T
from core.project_reader.loader import read_project
from core.sql.lineage.model import ColumnOrigin, StatementLineage, UnresolvedName

HEAD = "project: p\nid: 5b0e4a52-9df2-4a52-9c0c-0f6f8d1a2b3c\ndefault_env: dev\nenvironments: {dev: {}}\n"


def tracer(**statements: str) -> LineageTracer:
    """Declare `landed (id, kind, amount)`, `side (id, kind)` and tables by `columns: select`, all BIGINT."""
    texts = {"headgate.yml": HEAD}
    for name, columns in (("landed", "id BIGINT, kind BIGINT, amount BIGINT"), ("side", "id BIGINT, kind BIGINT")):
        ddl = f"CREATE TABLE {name} ({columns}) USING json LOCATION '{name}'"
        texts[f"pipelines/sources/p/{name}/sql-scripts/ddl.{name}.sql"] = ddl
    for name, text in statements.items():
        columns, select = text.split(": ", 1)
        folder = f"pipelines/facts/p/{name}/sql-scripts"
        declared = ", ".join(f"{column} BIGINT" for column in columns.split(", "))
        texts[f"{folder}/ddl.{name}.sql"] = f"CREATE TABLE {name} ({declared}) USING parquet"
        texts[f"{folder}/dml.{name}.sql"] = f"INSERT INTO {name}\n{select}"
    found, problems = read_project(texts)
    assert found is not None, problems
    return LineageTracer(found)


def used(column: str, **statements: str) -> list[str]:
    """Return `table@lines -> output columns`, with a `.` before `@` if the table names the column itself."""
    found = column_uses_downstream(tracer(**statements), ColumnOrigin(T("landed"), column))
    return [
        f"{table}{'.' if use.direct else ''}@{use.place.rpartition(':')[2]}"
        + (f" -> {' '.join(use.output_columns)}" if use.output_columns else "")
        for table, use in found.items()
    ]


@pytest.mark.parametrize(
    "clause",
    [
        "SELECT id FROM STREAM landed\nWHERE kind > 1",
        "SELECT l.id FROM STREAM landed AS l\nLEFT SEMI JOIN side AS s ON s.id = l.kind",
        "SELECT id FROM (SELECT id FROM STREAM landed\nWHERE abs(landed.kind) = 1) AS q",
        "SELECT id FROM STREAM landed AS l\nWHERE EXISTS (SELECT 1 FROM side AS s WHERE s.id = l.kind)",
    ],
)
def test_a_condition_uses_a_column_without_an_output(clause: str) -> None:
    assert used("kind", a=f"id: {clause}") == ["a.@3"]
    assert used("amount", a=f"id: {clause}") == []


def test_a_value_is_followed_down_under_every_name_that_it_gets() -> None:
    assert used(
        "kind",
        a="id, word: SELECT id, kind + 1 AS word FROM STREAM landed",
        b="n: SELECT word AS n FROM STREAM a",
        c="id: SELECT id FROM STREAM a",
    ) == ["a.@2 -> word", "b@2 -> n"]


def test_a_star_hands_a_column_on() -> None:
    assert used(
        "amount", a="id, kind, amount: SELECT * FROM STREAM landed", b="amount: SELECT amount FROM STREAM a"
    ) == ["a.@2 -> amount", "b@2 -> amount"]


def test_a_part_of_with_is_looked_through() -> None:
    select = "WITH q AS (SELECT id, amount * 2 AS twice FROM STREAM landed)\nSELECT twice AS id FROM q"
    assert used("amount", a=f"id: {select}") == ["a.@2 -> id"]
    assert used("kind", a=f"id: {select}") == []


def test_a_table_reached_by_two_paths_names_the_lines_of_both() -> None:
    assert used(
        "kind",
        a="x: SELECT kind AS x FROM STREAM landed",
        b="y: SELECT x AS y FROM STREAM a\nUNION ALL\nSELECT kind FROM STREAM landed",
        c="z: SELECT y AS z FROM STREAM b",
    ) == ["a.@2 -> x", "b.@2,4 -> y", "c@2 -> z"]


def test_a_name_that_is_in_doubt_counts_as_a_use_of_each_column_that_it_may_be() -> None:
    select = "SELECT kind AS id FROM STREAM landed AS l\nJOIN side AS s ON s.id = l.id"
    assert used("kind", a=f"id: {select}") == ["a.@2 -> id"]


def test_each_column_lists_its_direct_readers_alone() -> None:
    found = column_uses_of_readers(
        tracer(a="id: SELECT id FROM STREAM landed\nWHERE kind = 1", b="id: SELECT id FROM STREAM a"), T("landed")
    )
    assert found == {"id": {"a": "dml.a.sql:2"}, "kind": {"a": "dml.a.sql:3"}, "amount": {}}


def test_an_untraceable_statement_may_use_a_column_for_anything() -> None:
    read = tracer(a="id: SELECT kind AS id FROM STREAM landed", b="id: SELECT id FROM STREAM a")
    missed = UnresolvedName("id", "the SQL is nested too deeply to be traced", "id", 0)
    read.follow = lambda made, known=read.follow: (  # type: ignore[method-assign,misc]  # Lineage cannot follow it.
        StatementLineage((), (), (missed,), ()) if made.name == "a" else known(made)
    )
    assert list(column_uses_downstream(read, ColumnOrigin(T("landed"), "amount"))) == ["a", "b"]
