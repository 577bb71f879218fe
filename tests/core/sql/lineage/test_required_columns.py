"""Required columns: if they are declared, the lineage of the statement finds no missing column."""

from collections.abc import Iterator
from random import Random

import pytest
from random_sql import statement
from sql_corpus import cases

from core.model.names import TableName as T
from core.sql.lineage.statement_lineage import lineage_of
from core.sql.statement import Column, ParsedStatement, RequiredColumns
from core.sql.statement_codec import decode_statements, encode_statements
from core.sql.statement_reader import read_statements


def required(select: str) -> RequiredColumns | None:
    (parsed,), problems = read_statements(f"INSERT INTO t {select}", "dml.sql")
    assert problems == ()
    return parsed.requires


def missing(parsed: ParsedStatement, declared: dict[T, set[str]]) -> list[str]:
    """Return the names that surely do not exist if the tables have these columns only."""
    columns = {table: tuple(Column(name, "", "string") for name in sorted(names)) for table, names in declared.items()}
    return [each.name for each in lineage_of(parsed, lambda table: columns.get(table, ())).unresolved if each.lacking]


def statements() -> Iterator[ParsedStatement]:
    for case in cases():
        for text in case.statements:
            written = text if "INSERT" in text.upper() else f"INSERT INTO totals {text}"
            yield from read_statements(written, "dml.sql", every_table_streams=case.reads == "stream")[0]
    for number in range(300):
        yield from read_statements(f"INSERT INTO t {statement(Random(f'required/{number}'))}", "dml.sql")[0]


def test_no_column_is_missing_if_the_required_ones_are_declared() -> None:
    random, known, unknown = Random("required"), 0, 0
    for parsed in statements():
        if parsed.requires is None:
            unknown += 1
            continue
        known += 1
        declared: dict[T, set[str]] = {}
        for tables, names in parsed.requires:
            for name in names:
                declared.setdefault(random.choice(tables), set()).add(name)
        assert missing(parsed, declared) == [], parsed.select
    assert known > 2 * unknown > 0


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        ("SELECT a.ID, b.n AS m FROM STREAM o AS a JOIN p AS b ON b.id = a.id", {"o": "id", "p": "id n"}),
        ("SELECT id, n FROM STREAM o JOIN p USING (id)", {"o": "id", "p": "id", "o p": "id n"}),
        ("SELECT place.city AS city, upper(city) AS c FROM STREAM o", {"o": "place"}),
        ("WITH q AS (SELECT id AS k, * FROM STREAM o) SELECT k, n FROM q", {"o": "id n"}),
        ("SELECT s.id FROM (SELECT id FROM STREAM o UNION ALL SELECT k FROM STREAM p) AS s", {"o": "id", "p": "k"}),
        (
            "SELECT window.start AS s, count(*) AS n FROM STREAM o WATERMARK ts DELAY OF INTERVAL 1 MINUTE "
            "GROUP BY window(ts, '1 minute') HAVING n > 1",
            {"o": "ts"},
        ),
    ],
)
def test_columns_are_required_of_the_tables_that_may_have_them(select: str, expected: dict[str, str]) -> None:
    assert required(select) == tuple(
        (tuple(T(name) for name in tables.split()), tuple(names.split())) for tables, names in sorted(expected.items())
    )


@pytest.mark.parametrize(
    "select",
    [
        "SELECT id FROM STREAM o WHERE id IN (SELECT k FROM p)",
        "SELECT transform(tags, x -> x + n) AS t FROM STREAM o",
        "SELECT * EXCEPT (id) FROM STREAM o",
        "SELECT o.id FROM STREAM o LEFT SEMI JOIN p ON p.id = o.id",
        "SELECT a FROM STREAM o LATERAL VIEW explode(tags) e AS a",
        "SELECT k FROM (SELECT id FROM STREAM o) AS s (k)",
        "SELECT q.k FROM (SELECT id FROM STREAM o) AS q",
    ],
)
def test_names_that_need_the_whole_lineage_are_not_guessed(select: str) -> None:
    assert required(select) is None


def test_the_value_does_not_depend_on_whether_the_list_is_known() -> None:
    (one,), _ = read_statements("INSERT INTO t SELECT id FROM STREAM o", "dml.sql")
    assert one.requires == (((T("o"),), ("id",)),)
    assert one == ParsedStatement(
        one.writes, one.select, one.reads, one.columns, one.operators, one.canonical, one.state, one.pre, one.post
    )


def test_required_columns_are_packed_with_their_statement() -> None:
    text = (
        "INSERT INTO t SELECT id, n FROM STREAM o JOIN p USING (id); INSERT INTO t SELECT * EXCEPT (id) FROM STREAM o"
    )
    read, problems = read_statements(text, "dml.sql")
    found, _ = decode_statements(encode_statements(read, problems, text), text, "dml.sql")
    assert [each.requires for each in found] == [read[0].requires, None]
