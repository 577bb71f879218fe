"""Refusal of edits of a table's columns that its compatibility mode does not allow."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from core.changes.schema_compatibility import (
    ColumnConflict,
    Direction,
    TableColumns,
    columns_in,
    columns_of,
    conflicts,
    dropped_fields,
)
from core.lineage.column_usage import column_reference_lines, writes_null_without
from core.model.names import TableName, physical_name
from core.model.table_formats import table_format
from core.planner.context import PlanningContext
from core.planner.decision_model import NEEDS_TEXTS, DeployWalk
from core.planner.warning_and_refusal_kinds import (
    CompatibilitySource,
    KnownReaders,
    PlanRefusalKind,
    PlanWarningKind,
)
from core.project.model import Compatibility, Project, Script, Table
from core.project.revision import Revision
from core.sql.ddl_reader import column_line
from core.sql.metadata_columns import METADATA_NAMES
from core.sql.statement import Column, ParsedStatement, TableDdl
from core.text.sentence import Fact


def refuse_incompatible_columns(walk: DeployWalk, table: TableName, old: Revision, mode: Compatibility) -> None:
    """Refuse a table's new columns if they conflict with a version in a way that its compatibility mode does not allow.

    The new columns are compared with the serving version, with each version that has a reader and, for a transitive
    mode, with every existing version that has served. If the yml lowers the mode together with the columns, the new
    mode applies, and a warning names what the former mode would have refused.
    """
    declared, former = walk.context.declared.tables[table], Compatibility(old.settings.compatibility or mode)
    before, after = columns_of(old), columns_of(walk.context.revisions.declared(table))
    if before == after:
        return
    serving = walk.context.observed.deployment(table).version
    pinned = _readers_by_version(walk.context, declared)
    versions = {**_replaced(walk.context, table), serving: before}
    found: dict[ColumnConflict, list[int]] = {}
    for version, columns in sorted(versions.items()):
        for conflict in conflicts(columns, after):
            if _concerns(walk, conflict, declared, pinned.get(version, ())):
                found.setdefault(conflict, []).append(version)
            elif mode.forward:
                _warn_of_null(walk, conflict, table, pinned.get(version, ()))
    if mode.forward:
        _refuse_unfit_stars(walk, declared, mode, sorted({reader for each in pinned.values() for reader in each}))
    for conflict, against in found.items():
        if counted := [each for each in against if _counts(mode, conflict, each in (serving, *pinned))]:
            walk.found.refuse(table, _refusal(walk, conflict, declared, counted, pinned))
        elif any(_counts(former, conflict, each in (serving, *pinned)) for each in against):
            lowered = PlanWarningKind.COMPATIBILITY_LOWERED.of(before=former, mode=mode, conflict=conflict.why)
            walk.found.warn(table, lowered)


def _refuse_unfit_stars(walk: DeployWalk, declared: Table, mode: Compatibility, readers: Iterable[str]) -> None:
    """Refuse new columns that a star passes on to a table which lacks them, if its format has only declared columns."""
    project = walk.context.declared.project
    for reader in map(TableName, readers):
        statement = _statement_that_runs(walk, reader)
        if statement is None or statement.parsed is None or statement.settings.upserts:
            continue
        written = statement.parsed_ddl
        if not table_format(written.format).columns_are_fixed:
            continue
        columns = _columns_read(statement.parsed, walk.context.declared.tables)
        beyond = _passed_on_beyond(statement.parsed, declared.name, columns, written)
        # A table with metadata columns has its own instead of those that are read.
        own = METADATA_NAMES if statement.settings.metadata else ()
        if lacking := tuple(name for name in beyond if name not in own):
            source = _source(project, declared)
            why = PlanRefusalKind.STAR_INCOMPATIBLE.of(reader=reader, columns=lacking, source=source, mode=mode)
            walk.found.refuse(declared.name, why)


def _columns_read(statement: ParsedStatement, tables: Mapping[TableName, Table]) -> dict[TableName, tuple[Column, ...]]:
    return {read.table: tables[read.table].parsed_ddl.columns for read in statement.reads if read.table in tables}


def _passed_on_beyond(
    statement: ParsedStatement, parent: TableName, columns: Mapping[TableName, tuple[Column, ...]], written: TableDdl
) -> tuple[str, ...]:
    """Return the columns and nested fields of a table that a star passes on to a table that lacks them.

    `columns` maps each table that the statement reads to its columns; `written` is the DDL of the table that it writes.
    """
    from core.sql.lineage.statement_lineage import lineage_of

    types = {each.name.lower(): each.type for each in columns[parent]}
    declared = {each.name.lower(): each.type for each in written.columns}
    found: list[str] = []
    for each in lineage_of(statement, columns.get).outputs:
        passed_on = any(i.origin.table == parent and i.origin.column.lower() == each.name for i in each.inputs)
        if not passed_on or each.name != each.expression.lower():
            continue
        if each.name not in declared:
            found.append(each.name)
        else:
            found += [path for path, _ in dropped_fields(each.name, types[each.name], declared[each.name])]
    return tuple(found)


def _warn_of_null(walk: DeployWalk, conflict: ColumnConflict, table: TableName, readers: Iterable[str]) -> None:
    """Warn of each statement that a dropped column does not break, but whose own column is NULL from then on."""
    column, tables = conflict.top_column, walk.context.declared.tables
    for reader in map(TableName, readers):
        statement = _statement_that_runs(walk, reader)
        written = statement.parsed_ddl.columns if statement is not None else ()
        if statement is None or all(each.name.lower() != column for each in written):
            continue
        if _writes_null(column, table, statement, tables):
            walk.found.warn(reader, PlanWarningKind.STAR_WRITES_NULL.of(parent=table, column=conflict.column))


def _counts(mode: Compatibility, conflict: ColumnConflict, last_or_read: bool) -> bool:
    """True if a mode does not allow a conflict with a version that serves, has readers, or neither."""
    against = mode.backward if conflict.direction is Direction.BACKWARD else mode.forward
    return against and (last_or_read or mode.transitive)


def _replaced(context: PlanningContext, table: TableName) -> dict[int, TableColumns]:
    """Return the columns of the versions that a table's serving version replaced; unreadable DDL is left out."""
    parsed = (
        (version, context.revisions.ddl(text)) for version, text in context.observed.deployment(table).replaced_ddl
    )
    return {version: columns_in(ddl) for version, ddl in parsed if ddl is not None}


_Readers = Mapping[int, tuple[str, ...]]
"""The known readers of each version: names of tables, and of exposures."""


def _readers_by_version(context: PlanningContext, declared: Table) -> _Readers:
    """Return the readers of each version; an exposure reads the pointer, and what it has an open ticket on."""
    table, seen = declared.name, context.observed.deployment(declared.name)
    found: dict[int, list[str]] = {}
    for reader in context.bindings.readers(table):
        for version in {b.version for b in context.bindings.of(reader) if b.parent == table}:
            found.setdefault(version, []).append(reader)
    for name, _ in declared.settings.outside_readers:
        found.setdefault(seen.version, []).append(name)
    for ticket in seen.tickets:
        found.setdefault(ticket.version, []).append(ticket.reader)
    return {version: tuple(dict.fromkeys(readers)) for version, readers in found.items()}


def _concerns(walk: DeployWalk, conflict: ColumnConflict, declared: Table, readers: tuple[str, ...]) -> bool:
    """True if a conflict concerns any reader; a dropped column concerns exposures, and statements that name it."""
    return not conflict.for_its_readers_only or bool(_broken(walk, conflict, declared, readers))


def _broken(walk: DeployWalk, conflict: ColumnConflict, declared: Table, readers: Iterable[str]) -> dict[str, str]:
    """Return the readers that a conflict concerns, with the lines at which they read its column; empty if unknown."""
    places = {reader: _place(walk, conflict, declared.name, reader) for reader in readers}
    if not conflict.for_its_readers_only:
        return places
    tables = walk.context.declared.tables
    return {reader: place for reader, place in places.items() if place or TableName(reader) not in tables}


def _place(walk: DeployWalk, conflict: ColumnConflict, table: TableName, reader: str) -> str:
    """Return the lines at which a statement reads the column of a conflict; empty if it does not, or is no statement.

    A column that a statement can do without is not read.
    """
    tables, statement = walk.context.declared.tables, _statement_that_runs(walk, TableName(reader))
    if statement is None or not conflict.column:
        return ""
    if conflict.for_its_readers_only and _writes_null(conflict.top_column, table, statement, tables):
        return ""
    return column_reference_lines(conflict.column.partition(".")[0], table, statement, tables)


def _statement_that_runs(walk: DeployWalk, name: TableName) -> Table | None:
    """Return a reader as it is declared if the plan deploys it, or else as it is deployed; None if no statement."""
    statement, known = walk.context.declared.tables.get(name), walk.found.by_table.get(name)
    if statement is None or statement.dml is None:
        return None
    deployed = walk.context.revisions.deployed(name)
    if deployed is None or (known is not None and known.action in NEEDS_TEXTS):
        return statement
    dml = Script(statement.dml.path, deployed.texts.dml, parts=statement.dml.parts)
    return replace(statement, parsed=deployed.parsed, parsed_ddl=deployed.ddl, dml=dml, settings=deployed.settings)


def _writes_null(column: str, table: TableName, reader: Table, tables: Mapping[TableName, Table]) -> bool:
    if reader.parsed is None:
        return False
    columns = {
        read.table: tables[read.table].parsed_ddl.columns for read in reader.parsed.reads if read.table in tables
    }
    if all(each.name.lower() != column for each in columns.get(table, ())):
        columns[table] = (*columns.get(table, ()), Column(column, ""))
    written, settings = reader.parsed_ddl, reader.settings
    return writes_null_without(column, reader.parsed, table, columns, written=written, settings=settings)


def _refusal(
    walk: DeployWalk, conflict: ColumnConflict, declared: Table, versions: list[int], pinned: _Readers
) -> Fact[PlanRefusalKind]:
    project = walk.context.declared.project
    named = dict.fromkeys(reader for version in versions for reader in pinned.get(version, ()))
    broken = _broken(walk, conflict, declared, named)
    readers = tuple(f"{reader} ({place})" if place else reader for reader, place in broken.items())
    line = column_line(declared.ddl.text, conflict.column.partition(".")[0])
    return PlanRefusalKind.INCOMPATIBLE.of(
        conflict=conflict.why,
        place=f"{declared.ddl.at(line)}",
        direction=conflict.direction,
        versions=tuple(physical_name(declared.name, version) for version in versions),
        read_by=KnownReaders.READ_BY.of(readers=readers) if readers else KnownReaders.UNREAD.of(),
        source=_source(project, declared),
        mode=project.compatibility(declared),
    )


def _source(project: Project, declared: Table) -> Fact[CompatibilitySource]:
    if declared.settings.compatibility:
        return CompatibilitySource.TABLE.of()
    if declared.product in project.compatibility_by_product:
        return CompatibilitySource.PRODUCT.of(product=declared.product)
    return CompatibilitySource.PROJECT.of()
