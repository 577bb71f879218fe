"""The origin of each column of a statement: text pairs in tests/fixtures/lineage, verified by hand."""

from pathlib import Path

import pytest

from core.model.names import TableName
from core.sql.ddl_reader import read_ddl
from core.sql.lineage.model import InputKind, LineageInput, StatementLineage
from core.sql.lineage.statement_lineage import lineage_of
from core.sql.statement import Column
from core.sql.statement_reader import read_statements

FIXTURES = Path(__file__).parents[3] / "fixtures/lineage"


def declared() -> dict[str, tuple[Column, ...]]:
    """Return the columns of the tables that all cases share."""
    found = {}
    for text in (FIXTURES / "tables.sql").read_text().split(";\n"):
        if text.strip():
            ddl, problems = read_ddl(text, "tables.sql")
            assert ddl is not None, problems
            found[str(ddl.table)] = ddl.columns
    return found


TABLES = declared()


def cases() -> list[tuple[str, str, list[str]]]:
    """Return name, SELECT and expected lines of every case."""
    found = []
    for block in (FIXTURES / "statements.txt").read_text().split("== ")[1:]:
        head, _, expected = block.partition("\n--\n")
        name, _, select = head.partition("\n")
        found.append((name, select, expected.strip().splitlines()))
    return found


CASES = cases()


def columns_of(name: TableName) -> tuple[Column, ...] | None:
    return TABLES.get(name)


def followed(select: str) -> StatementLineage:
    """Return the lineage of a SELECT."""
    statements, problems = read_statements(f"INSERT INTO t {select}", "dml.t.sql")
    assert statements, problems
    return lineage_of(statements[0], columns_of)


def told(found: StatementLineage) -> list[str]:
    """Return a lineage in the form of the fixtures, without expressions and conditions that use no column."""
    lines = []
    for output in found.outputs:
        values = " ".join(place(each) for each in output.inputs if each.kind is InputKind.VALUE)
        conditions = " ".join(place(each) for each in output.inputs if each.kind is InputKind.CONDITION)
        lines.append(f"{output.name} <- {values or '-'}" + (f" if {conditions}" if conditions else ""))
    for condition in found.conditions:
        lines.append(f"{condition.clause}: {' '.join(place(each) for each in condition.inputs) or '-'}")
    return [*lines, *(f"? {each.name} in {each.within}: {each.reason}" for each in found.unresolved)]


def place(each: LineageInput) -> str:
    fields = f"/{','.join(each.fields)}" if each.fields else ""
    column = each.origin.column
    return f"{each.origin.table}.{f'`{column}`' if ' ' in column else column or '*'}{fields}"


@pytest.mark.parametrize(("select", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_every_column_and_every_condition_is_followed_to_the_tables(select: str, expected: list[str]) -> None:
    assert told(followed(select)) == expected


@pytest.mark.parametrize("name", ["current_date", "current_timestamp", "current_user", "session_user"])
def test_a_column_takes_precedence_over_a_function_without_brackets(name: str) -> None:
    (parsed,), _ = read_statements(f"INSERT INTO s SELECT {name} AS d FROM STREAM t", "q.sql")
    for columns, origins in (((Column(name, ""),), [name]), ((Column("a", ""),), [])):
        found = lineage_of(parsed, {TableName("t"): columns}.get)
        assert [one.origin.column for one in found.outputs[0].inputs] == origins
        assert found.unresolved == ()


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        ("SELECT o.id FROM STREAM orders o JOIN pizzas p ON p.id = o.pizza_id", ["pizzas.id = orders.pizza_id"]),
        ("SELECT o.id FROM STREAM orders o, pizzas p WHERE o.pizza_id <=> CAST(p.id AS INT) AND o.amount > 1",
         ["orders.pizza_id = pizzas.id"]),
        ("SELECT o.id FROM STREAM orders o JOIN payments p USING (id)", ["orders.id = payments.id"]),
        ("WITH q AS (SELECT id AS n, upper(name) AS up FROM clients) "
         "SELECT o.id FROM STREAM orders o JOIN q ON q.n = o.id AND q.up = o.status", ["clients.id = orders.id"]),
        ("SELECT o.id FROM STREAM orders o JOIN payments p ON p.paid_at > o.ts AND p.paid_at BETWEEN o.ts AND o.ts",
         ["orders.ts <= payments.paid_at", "payments.paid_at <= orders.ts"]),
        ("SELECT o.id FROM STREAM orders o JOIN payments p ON p.id = o.id OR p.order_id = o.id", []),
        ("SELECT o.id FROM STREAM orders o JOIN payments p ON p.order_id = o.id + 1 AND p.id = 1", []),
        ("SELECT o.id FROM STREAM orders o JOIN clients c ON c.name = o.customer.name AND o.id = o.id", []),
    ],
)  # fmt: skip
def test_columns_that_a_term_of_a_condition_compares_unchanged_are_known(select: str, expected: list[str]) -> None:
    found = [
        f"{each.one.table}.{each.one.column} {'=' if each.equal else '<='} {each.other.table}.{each.other.column}"
        for each in followed(select).comparisons
    ]
    assert found == expected


def test_an_output_knows_the_column_that_it_copies() -> None:
    outputs = followed("SELECT q.n AS m, q.n + 1 AS more FROM (SELECT id AS n FROM STREAM orders) AS q").outputs
    assert [each.copies and each.copies.column for each in outputs] == ["id", None]
