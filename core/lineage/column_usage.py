"""Uses of a column by statements that read the column itself or columns derived from it, with line numbers.

A name that cannot be resolved counts as a use.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from core.model.names import TableName
from core.model.table_formats import table_format
from core.project.model import Settings, Table
from core.sql.metadata_columns import METADATA_COLUMNS, METADATA_NAMES
from core.sql.statement import Column, ParsedStatement, TableDdl, line_of

if TYPE_CHECKING:
    from core.lineage.column_lineage import LineageTracer
    from core.sql.lineage.model import ColumnOrigin, StatementLineage


def column_reference_lines(column: str, parent: TableName, reader: Table, tables: Mapping[TableName, Table]) -> str:
    """Return the lines of `reader`'s SQL file that refer to a column of `parent`, as in `dml.x.sql:3,7`.

    The result is empty if there are none. `tables` are all tables of the project. The column may have been removed from
    the parent's DDL.
    """
    if reader.parsed is None or reader.dml is None or all(read.table != parent for read in reader.parsed.reads):
        return ""

    def columns_of(name: TableName) -> tuple[Column, ...] | None:
        declared = tables[name].parsed_ddl.columns if name in tables else None
        if name != parent or any(each.name.lower() == column.lower() for each in declared or ()):
            return declared
        return (*(declared or ()), Column(column, ""))

    return reference_lines_in(table_lineage(reader, columns_of), (column,), parent, reader)


def table_lineage(table: Table, columns_of: Callable[[TableName], tuple[Column, ...] | None]) -> "StatementLineage":
    """Return the lineage of a table's statement; its metadata columns depend on no input.

    A star does not pass metadata columns of an input on to a table that has its own. Raises AssertionError if the table
    is external.
    """
    from core.sql.lineage.model import LineageOutput
    from core.sql.lineage.statement_lineage import lineage_of

    assert table.parsed is not None, f"{table.name} is external"
    found = lineage_of(table.parsed, columns_of)
    if not table.settings.metadata or not found.outputs:
        return found
    own = (LineageOutput(column.name, "added by metadata: true", (), 0) for column in METADATA_COLUMNS)
    return replace(found, outputs=(*(each for each in found.outputs if each.name not in METADATA_NAMES), *own))


def reads_column(
    statement: ParsedStatement, parent: TableName, column: str, columns: Mapping[TableName, tuple[Column, ...]]
) -> bool:
    """True if a statement may read `column` of the table `parent`.

    `columns` maps each table that the statement reads to its declared columns.
    """
    from core.sql.lineage.statement_lineage import lineage_of

    found, name = lineage_of(statement, columns.get), column.lower()
    origins = (*(each.origin for each in found.references), *(i.origin for each in found.outputs for i in each.inputs))
    doubts = (set(each.name.lower().split(".")) for each in found.unresolved)
    named = any(origin.table == parent and origin.column.lower() == name for origin in origins)
    return named or not found.outputs or any({name, "*"} & each for each in doubts)


def writes_null_without(
    column: str,
    statement: ParsedStatement,
    parent: TableName,
    columns: Mapping[TableName, tuple[Column, ...]],
    *,
    written: TableDdl,
    settings: Settings,
) -> bool:
    """True if a statement would go on without a column, in lower case, of a table, and write NULL in its place.

    That is the case if only a star passes the column on, to a column of the same name that may be NULL in a table of
    files: a stream is written by the names of columns, so one may be missing (run on Spark 4.2.0 and Delta 4.4.0).
    `columns` maps each table that the statement reads to its columns, including `column`; `written` is the DDL of the
    table that it writes, and `settings` are those of this table.
    """
    from core.sql.lineage.statement_lineage import lineage_of

    by_position = statement.stateful or _SET_OPERATION.search(statement.canonical) is not None
    if by_position or settings.upserts or not table_format(written.format).has_files:
        return False
    required = (*written.partitioning, *(each.name for each in written.columns if not each.nullable))
    found = lineage_of(statement, columns.get)
    if not found.outputs or found.unresolved or column in map(str.lower, required):
        return False

    def is_it(origin: "ColumnOrigin") -> bool:
        return origin.table == parent and origin.column.lower() == column

    passed_on = (each for each in found.outputs if any(is_it(source.origin) for source in each.inputs))
    named = any(is_it(each.origin) for each in found.references)
    return not named and all(column == each.name == each.expression.lower() for each in passed_on)


_SET_OPERATION = re.compile(r"\b(?:UNION|INTERSECT|EXCEPT|MINUS)\b", re.IGNORECASE)


def reference_lines_in(found: "StatementLineage", columns: Iterable[str], parent: TableName, reader: Table) -> str:
    """Return the lines of `reader`'s SQL file that refer to any of `columns` of `parent`, as in `dml.x.sql:3,7`.

    The result is empty if there are none. `found` is the lineage of the reader's statement.
    """
    assert reader.parsed is not None and reader.dml is not None, f"{reader.name} is external and has no statement"
    offsets = {offset for column in columns for offset in _references(column.lower(), parent, reader, found)}
    lines = sorted({reader.dml.at(line_of(reader.dml.text, reader.parsed, offset)).line for offset in offsets})
    file = reader.dml.file.rpartition("/")[2]
    return f"{file}:{','.join(map(str, lines))}" if lines else ""


def _references(column: str, parent: TableName, reader: Table, found: "StatementLineage") -> Iterator[int]:
    def is_it(origin: "ColumnOrigin") -> bool:
        return origin.table == parent and origin.column.lower() == column

    # An unresolved name may be this column, and an unresolved star may contain it.
    doubts = (each for each in found.unresolved if not found.outputs or {column, "*"} & set(each.name.split(".")))
    named = [*(each.offset for each in found.references if is_it(each.origin)), *(each.offset for each in doubts)]
    if not named:
        # A star passes the column on without naming it; it counts as read if the reader declares it.
        written = {each.name.lower() for each in reader.parsed_ddl.columns}
        flows = (each for each in found.outputs if each.name in written and any(is_it(i.origin) for i in each.inputs))
        named = [each.offset for each in flows]
    yield from named


@dataclass(frozen=True, slots=True)
class ColumnUse:
    """One statement's use of a column, or of columns derived from it."""

    place: str
    """Lines that refer to the column or a column derived from it, as in `dml.orders.sql:3,7`."""
    direct: str
    """Lines that refer to the column itself; empty if the statement reads only derived columns."""
    output_columns: tuple[str, ...]
    """Output columns of the statement that are derived from the column, spelled as in the DDL.

    An output column is not derived from a column that only decides which rows exist.
    """


def column_uses_downstream(tracer: "LineageTracer", at: "ColumnOrigin") -> Mapping[TableName, ColumnUse]:
    """Return the use of a declared column by each downstream table, at any depth.

    Tables that do not use the column are omitted.
    """
    lost: dict[TableName, set[str]] = {at.table: {at.column.lower()}}
    places: dict[TableName, dict[TableName, str]] = {}
    waiting = [at.table]
    while waiting:
        parent = waiting.pop(0)
        for reader in tracer.readers(parent):
            read = tracer.follow(reader)
            place = reference_lines_in(read, sorted(lost[parent]), parent, reader)
            if not place:
                continue
            places.setdefault(reader.name, {})[parent] = place
            made = lost.setdefault(reader.name, set())
            fresh = _made(read, parent, lost[parent]) - made
            made |= fresh
            # A statement is visited again if another path derives more of its columns.
            if fresh and reader.name not in waiting:
                waiting.append(reader.name)
    return {
        table: ColumnUse(_joined(found.values()), found.get(at.table, ""), _spelled(tracer, table, lost[table]))
        for table, found in sorted(places.items())
    }


def column_uses_of_readers(tracer: "LineageTracer", table: TableName) -> Mapping[str, Mapping[TableName, str]]:
    """Return, for each column of `table`, the lines in each reader's SQL file that refer to the column.

    Readers that do not refer to a column are omitted.
    """
    readers = [(reader, tracer.follow(reader)) for reader in tracer.readers(table)]
    found: dict[str, dict[TableName, str]] = {}
    for column in tracer.columns(table):
        places = ((reader, reference_lines_in(read, (column.name,), table, reader)) for reader, read in readers)
        found[column.name] = {reader.name: place for reader, place in places if place}
    return found


def _made(found: "StatementLineage", parent: TableName, columns: set[str]) -> set[str]:
    from core.sql.lineage.model import InputKind

    if not found.outputs:
        # A statement without lineage may derive anything from it.
        return {each.within.lower() for each in found.unresolved}
    made = {
        output.name
        for output in found.outputs
        if any(_is_one(each.origin, parent, columns) and each.kind is InputKind.VALUE for each in output.inputs)
    }
    doubts = {each.within.lower() for each in found.unresolved if {*columns, "*"} & set(each.name.lower().split("."))}
    return made | {output.name for output in found.outputs if output.name in doubts or "*" in doubts}


def _is_one(origin: "ColumnOrigin", parent: TableName, columns: set[str]) -> bool:
    return origin.table == parent and origin.column.lower() in columns


def _spelled(tracer: "LineageTracer", table: TableName, columns: Iterable[str]) -> tuple[str, ...]:
    known = {column.name.lower(): column.name for column in tracer.columns(table)}
    return tuple(sorted(known.get(column, column) for column in columns))


def _joined(places: Iterable[str]) -> str:
    """Merge the line references to each file: `f:3` and `f:3,7` become `f:3,7`."""
    files: dict[str, set[int]] = {}
    for place in places:
        file, _, lines = place.rpartition(":")
        files.setdefault(file, set()).update(map(int, lines.split(",")))
    return "; ".join(f"{file}:{','.join(map(str, sorted(lines)))}" for file, lines in files.items())
