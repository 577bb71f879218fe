"""Declares the metadata columns of tables with `metadata: true`, and reports names that collide with them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from core.model.names import TableName
from core.model.problems import Problem, Where
from core.model.table_formats import table_format
from core.project.model import Table
from core.project_reader.parse_cache import ParseCache
from core.sql.metadata_columns import METADATA_NAMES, declares_metadata, with_metadata_columns
from core.sql.statement import line_of


def with_metadata(
    tables: dict[TableName, Table], parse_cache: ParseCache, problems: list[Problem]
) -> dict[TableName, Table]:
    """Return the tables; those with `metadata: true` have the metadata columns as their last ones.

    A DDL that already declares them, as one that was deployed does, stays unchanged. An external table has none.
    """
    if not any(table.settings.metadata for table in tables.values()):
        return tables
    return {name: _with_metadata(table, parse_cache, problems) for name, table in tables.items()}


def _with_metadata(table: Table, parse_cache: ParseCache, problems: list[Problem]) -> Table:
    if not table.settings.metadata:
        return table
    if table.external:
        return replace(table, settings=replace(table.settings, metadata=False))
    wrong = tuple(_collisions(table))
    problems += wrong
    if declares_metadata(table.parsed_ddl) or wrong:
        return table
    text = with_metadata_columns(table.ddl.text)
    _, ddl, _ = parse_cache.ddl(text, table.ddl.path)
    assert ddl is not None and declares_metadata(ddl), f"the columns of {table.name} cannot be added to {text}"
    return replace(table, ddl=replace(table.ddl, text=text, written=table.ddl.as_written), parsed_ddl=ddl)


def _collisions(table: Table) -> Iterator[Problem]:
    assert table.parsed is not None and table.dml is not None, f"{table.name} is external"
    off = "write metadata: false in the yml of the table"
    own = [each.name for each in table.parsed_ddl.columns if each.name.lower() in METADATA_NAMES]
    if own and not declares_metadata(table.parsed_ddl):
        from core.sql.ddl_reader import column_line

        where = Where(table.ddl.path, column_line(table.ddl.text, own[0]))
        summary = f"{table.name} declares {own[0]}, a column that metadata: true adds"
        yield Problem(summary, f"leave it out or declare all six (headgate help metadata), or {off}", where, own[0])
    for column in table.parsed.columns:
        name = column.name.lower()
        if name in METADATA_NAMES:
            at = line_of(table.dml.text, table.parsed, _offset(name, table.parsed.select))
            summary = f"the statement of {table.name} writes {name}, a column that metadata: true adds"
            yield Problem(summary, f"give it another name, or {off}", Where(table.dml.path, at), name)
    if table_format(table.parsed_ddl.format).topics and _is_raw(table):
        summary = f"{table.name} writes raw messages, which have no columns for metadata"
        form = f"write value.format='json', or {off}"
        yield Problem(summary, form, Where(table.ddl.path, table.parsed_ddl.line), table.name)


def _is_raw(table: Table) -> bool:
    from core.sql.kafka_topics import VALUE_FORMAT, ValueFormat

    options: Mapping[str, str] = {key.lower(): value for key, value in table.parsed_ddl.options}
    return options.get(VALUE_FORMAT, "").lower() == ValueFormat.RAW


def _offset(name: str, select: str) -> int:
    """Return where a SELECT names an output column, preferring an alias."""
    found = re.search(rf"\bAS\s+`?{name}\b", select, re.I) or re.search(rf"\b{name}\b", select, re.I)
    return found.end() if found is not None else 0
