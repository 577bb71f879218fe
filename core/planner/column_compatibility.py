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
)
from core.lineage.column_usage import column_reference_lines
from core.model.names import TableName, physical_name
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
    for conflict, against in found.items():
        if counted := [each for each in against if _counts(mode, conflict, each in (serving, *pinned))]:
            walk.found.refuse(table, _refusal(walk, conflict, declared, counted, pinned))
        elif any(_counts(former, conflict, each in (serving, *pinned)) for each in against):
            lowered = PlanWarningKind.COMPATIBILITY_LOWERED.of(before=former, mode=mode, conflict=conflict.why)
            walk.found.warn(table, lowered)


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

    A statement that the plan deploys is read as it is declared, and any other as it is deployed.
    """
    tables, name = walk.context.declared.tables, TableName(reader)
    statement, known = tables.get(name), walk.found.by_table.get(name)
    if statement is None or statement.dml is None or not conflict.column:
        return ""
    deployed = walk.context.revisions.deployed(name)
    if deployed is not None and (known is None or known.action not in NEEDS_TEXTS):
        dml = Script(statement.dml.path, deployed.texts.dml, parts=statement.dml.parts)
        statement = replace(statement, parsed=deployed.parsed, parsed_ddl=deployed.ddl, dml=dml)
    return column_reference_lines(conflict.column.partition(".")[0], table, statement, tables)


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
