"""Reads the columns of tables and views in a PostgreSQL database, and checks whether a declared table can be read.

The client library is an optional dependency and is imported at the first check. Like Spark's driver, the library reads
the password from ~/.pgpass.
"""

import re
from typing import Any, LiteralString

from core.model.errors import Refused, TryAgain
from core.model.states import TableFaultKind
from core.ports.storage import TableFault
from core.sql.jdbc_tables import connection_parameters, qualified_table
from core.sql.statement import TableDdl

ANSWER_S = 5
"""Longest wait for a connection and for an answer, in seconds."""

_COLUMNS: LiteralString = """
SELECT attname::text, format_type(atttypid, atttypmod), has_column_privilege(attrelid, attnum, 'SELECT')
FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_TYPES = {
    "smallint": "SMALLINT", "integer": "INT", "bigint": "BIGINT", "real": "FLOAT", "double precision": "DOUBLE",
    "boolean": "BOOLEAN", "date": "DATE", "timestamp without time zone": "TIMESTAMP",
    "timestamp with time zone": "TIMESTAMP", "bytea": "BINARY", "numeric": "DECIMAL(38,18)",
}  # fmt: skip
"""Spark's types by PostgreSQL's types (Spark 4.2.0, PostgresDialect).

All other types are read as STRING, except a time of day, which is not read because Spark adds a date to it.
"""
_DATED = ("date", "timestamp")
_PRECISION = re.compile(r"numeric\((\d+),(\d+)\)")
_LENGTH = re.compile(r"\(\d+\)")


def database_fault(ddl: TableDdl) -> TableFault | None:
    """Return why a declared database table cannot be read, for example because a column is missing; None if it can.

    Types are not compared, because Spark casts them. Raises TryAgain if the database refuses the connection or does not
    answer, and Refused if the client library is not installed.
    """
    name, readable = qualified_table(ddl), {column.lower(): may_read for column, _, may_read in _columns(ddl)}
    if not readable:
        remedy = "create it, or correct dbtable"
        return TableFault(TableFaultKind.GONE, f"{ddl.table} reads {name}, and the database has no such table", remedy)
    for column in ddl.columns:
        may_read = readable.get(column.name.lower())
        if may_read is None:
            remedy = f"remove it from the DDL, or add it to {name}"
            return TableFault(
                TableFaultKind.COLUMNS_CHANGED, f"{ddl.table}: {name} has no column {column.name}", remedy
            )
        if not may_read:
            user = connection_parameters(ddl)["user"]
            why = f"{ddl.table}: {user} may not read {column.name} of {name}"
            return TableFault(TableFaultKind.COLUMNS_CHANGED, why, f"GRANT SELECT ON {name} TO {user}")
    return None


def columns_in_database(ddl: TableDdl) -> tuple[tuple[str, str], ...]:
    """Return the columns that the user may read, in order, each with its type in Spark; empty if the table is unknown.

    The type is empty if Spark cannot read the column. Raises the same errors as `database_fault`.
    """
    return tuple((name, _spark_type(kind)) for name, kind, may_read in _columns(ddl) if may_read)


def _spark_type(kind: str) -> str:
    if kind.endswith("[]"):
        element = _spark_type(kind.removesuffix("[]"))
        return element and f"ARRAY<{element}>"
    if found := _PRECISION.fullmatch(kind):
        precision, scale = int(found[1]), int(found[2])
        return f"DECIMAL({precision},{scale})" if scale <= precision <= 38 else _TYPES["numeric"]
    plain = _LENGTH.sub("", kind)
    return "" if plain.startswith("time ") else _TYPES.get(plain, "STRING")


def rows_in_database(ddl: TableDdl, limit: int) -> list[tuple[Any, ...]]:
    """Return at most `limit` rows of a table, with their values in the order of the declared columns.

    Dates and times are text, because Python has neither dates BC nor infinity. Raises the same errors as
    `database_fault`.
    """
    from psycopg.sql import SQL, Identifier

    there = {name.lower(): (name, kind.startswith(_DATED)) for name, kind, _ in sorted(_columns(ddl))}
    found = (there.get(column.name.lower(), (column.name, False)) for column in ddl.columns)
    names = SQL(", ").join(SQL("{}::text" if is_date else "{}").format(Identifier(name)) for name, is_date in found)
    table = SQL(".").join(Identifier(part) for part in qualified_table(ddl).split("."))
    return _query(ddl, SQL("SELECT {} FROM {} LIMIT {}").format(names, table, limit))


def _columns(ddl: TableDdl) -> list[tuple[str, str, bool]]:
    """Return each column's name, PostgreSQL type and whether the user may read it; empty for an unknown table."""
    found = _query(ddl, _COLUMNS, qualified_table(ddl))
    return [(str(name), str(kind), bool(may_read)) for name, kind, may_read in found]


def _query(ddl: TableDdl, text: Any, *values: str) -> list[tuple[Any, ...]]:
    try:
        import psycopg
    except ImportError as error:
        raise Refused(
            f"{ddl.table} cannot be checked: the package psycopg is not installed",
            remedy="pip install 'headgate[postgres]', then headgate down --keep-pool and headgate up",
        ) from error
    given: dict[str, Any] = {**connection_parameters(ddl), "connect_timeout": ANSWER_S}
    given["options"] = f"-c statement_timeout={ANSWER_S}s -c default_transaction_read_only=on -c datestyle=ISO"
    try:
        with psycopg.connect(**given) as connection:
            return connection.execute(text, values or None).fetchall()
    except psycopg.Error as error:
        why = str(error).strip().partition("\n")[0] or "it gave no reason"
        raise TryAgain(
            f"{ddl.table}: the database does not answer: {why}",
            remedy="check that it runs, its address, user and dbname, and ~/.pgpass",
        ) from error
