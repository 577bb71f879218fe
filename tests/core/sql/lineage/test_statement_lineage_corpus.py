"""Lineage of every statement of the corpus, against the columns and sources recorded from Spark 4.2.0."""

from sql_corpus import Case, Verdict, cases, load, tables

from core.model.names import TableName
from core.sql.ddl_reader import read_ddl
from core.sql.lineage.model import StatementLineage
from core.sql.lineage.statement_lineage import lineage_of
from core.sql.statement import Column, ParsedStatement
from core.sql.statement_reader import read_statements


def declared() -> dict[str, tuple[Column, ...]]:
    """Return the columns of the corpus tables; the view over orders has those of orders, other views three columns."""
    found = {}
    for text in tables():
        ddl, _ = read_ddl(text, "tables.sql")
        if ddl is not None:
            found[str(ddl.table)] = ddl.columns
    three = tuple(column for column in found["orders"] if column.name in ("id", "amount", "ts"))
    return {**found, "paid_orders": found["orders"], "day-orders": three, "my orders": three, "shop.orders": three}


TABLES = declared()
RECORDED = load()


def columns_of(name: TableName) -> tuple[Column, ...] | None:
    return TABLES.get(name)


def accepted() -> list[tuple[str, ParsedStatement, Verdict]]:
    """Return each statement that both we and Spark accept, with Spark's verdict."""
    found = []
    for case in cases():
        for text, verdict in zip(case.statements, RECORDED.get(case.key, []), strict=False):
            written = text if "INSERT" in text.upper() else f"INSERT INTO totals {text}"
            parsed, _ = read_statements(written, "dml.sql", every_table_streams=case.reads == "stream")
            if len(parsed) == 1 and not verdict.refused and verdict.columns:
                found.append((case.key, parsed[0], verdict))
    return found


def test_columns_and_sources_are_those_that_spark_found() -> None:
    compared, others = accepted(), []
    assert len(compared) > 200
    for key, parsed, verdict in compared:
        found = lineage_of(parsed, columns_of)
        names = [output.name for output in found.outputs]
        sources = {table.lower() for table, _, _ in verdict.reads}
        if found.unresolved or names != [column.lower() for column in verdict.columns] or tables_of(found) - sources:
            others.append((key, found, verdict))
    assert others == []


def tables_of(found: StatementLineage) -> set[str]:
    return {str(i.origin.table) for each in (*found.outputs, *found.conditions) for i in each.inputs}


def test_lineage_never_raises_for_a_statement_that_spark_rejects() -> None:
    for case in cases():
        assert isinstance(case, Case)
        for parsed in read_statements(case.text, "dml.sql", every_table_streams=case.reads == "stream")[0]:
            found = lineage_of(parsed, columns_of)
            assert found.outputs or found.unresolved
