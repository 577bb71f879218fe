"""The metadata columns that `metadata: true` adds to a table: which statement wrote a row, and when.

They are the last columns of the table, and the statement's SELECT does not contain them.
"""

import re
from dataclasses import replace

from core.sql.statement import Column, TableDdl
from core.text.escaping import quoted_string_literal

METADATA_COLUMNS = (
    Column("__create_timestamp", "", "timestamp"),
    Column("__query_name", "", "string"),
    Column("__query_description", "", "string"),
    Column("__query_id", "", "string"),
    Column("__query_version", "", "int"),
    Column("__query_create_timestamp", "", "timestamp"),
)
METADATA_NAMES = frozenset(column.name for column in METADATA_COLUMNS)

_TOKEN = re.compile(
    r"""--[^\n]*|/\*.*?\*/|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`[^`]*`|[()]""",
    re.DOTALL,
)
"""Matches brackets, and everything in which a bracket is not one."""


def declares_metadata(ddl: TableDdl) -> bool:
    """True if a table's last columns are the metadata columns."""
    last = ddl.columns[-len(METADATA_COLUMNS) :]
    return [(column.name.lower(), column.type) for column in last] == [(c.name, c.type) for c in METADATA_COLUMNS]


def with_metadata_columns(text: str) -> str:
    """Return a valid CREATE TABLE with the metadata columns after its own; no line gets another number."""
    depth = 0
    for found in _TOKEN.finditer(text):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if found[0] == ")" and depth == 0:
            columns = ", ".join(f"{column.name} {column.type.upper()}" for column in METADATA_COLUMNS)
            return f"{text[: found.start()]}, {columns}{text[found.start() :]}"
    return text


def without_metadata(ddl: TableDdl) -> TableDdl:
    """Return the DDL of a table with `metadata: true` without the metadata columns."""
    return replace(ddl, columns=tuple(each for each in ddl.columns if each.name.lower() not in METADATA_NAMES))


def metadata_values(
    name: str, description: str, *, id: str, version: int, created_at: float
) -> tuple[tuple[str, str], ...]:
    """Return the metadata columns as (name, SQL expression), in order; a row has NULL if there is no description.

    A batch that is repeated from a checkpoint gets the same values. In a stream, `current_timestamp()` is the time in
    the checkpoint's offsets (`batchTimestampMs`), which Spark writes before the batch; `now()` is the time of each
    attempt (Spark 4.2.0, `MicroBatchExecution.runBatch`).
    """
    values = (
        "current_timestamp()",
        quoted_string_literal(name),
        quoted_string_literal(description) if description else "CAST(NULL AS STRING)",
        quoted_string_literal(id),
        f"CAST({version} AS INT)",
        f"timestamp_millis({int(created_at * 1000)})",
    )
    return tuple((column.name, value) for column, value in zip(METADATA_COLUMNS, values, strict=True))
