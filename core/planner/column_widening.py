"""In-place widening of columns in deployed tables, and its effect on the tables' readers."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from core.changes.kinds import ChangeKind
from core.lineage.column_usage import column_reference_lines
from core.model.actions import Action
from core.model.evidence import Notice
from core.model.names import TableName
from core.model.table_formats import is_wider, rounds, table_format
from core.planner.context import PlanningContext
from core.planner.decision_model import DeployWalk
from core.planner.warning_and_refusal_kinds import PlanRefusalKind, PlanWarningKind
from core.project.model import Table
from core.sql.statement import Column
from core.text.sentence import Fact

_COUNT = re.compile(r"\bcount\s*\(\s*\*\s*\)", re.I)


@dataclass(frozen=True, slots=True)
class WiderType:
    """A column that is widened in place, with its type before and after."""

    column: str
    was: str
    now: str


def wider_types(context: PlanningContext, table: TableName) -> tuple[WiderType, ...]:
    """Return the columns that a table's pending change widens in place, in declaration order."""
    if context.changes.of(table).kind is not ChangeKind.COLUMN_WIDENED:
        return ()
    old = context.revisions.deployed(table)
    assert old is not None, "what was widened has texts from before"
    before = {column.name.lower(): column.type for column in old.ddl.columns}
    now = context.revisions.declared(table).ddl.columns
    pairs = ((column, before.get(column.name.lower(), column.type)) for column in now)
    return tuple(WiderType(column.name, was, column.type) for column, was in pairs if was != column.type)


def notice_of_ended_readers(context: PlanningContext, table: TableName) -> Fact[Notice]:
    """Return the notice that Spark ends the queries that read a table when the table is altered."""
    widened = context.changes.of(table).kind is ChangeKind.COLUMN_WIDENED
    return Notice.ENDS_AT_TYPE.of(parent=table) if widened else Notice.ENDS_AT_COLUMN.of(parent=table)


def use_of_wider_types(walk: DeployWalk, child: TableName, parent: TableName) -> Fact[Notice] | None:
    """Return a notice that a reader uses a widened column of its parent; None if it does not use any.

    A stateful reader counts as using a column if its SQL mentions the column's name or selects a star.
    """
    reader = walk.context.declared.tables.get(child)
    if reader is None or reader.parsed is None:
        return None
    star = "*" in _COUNT.sub("", reader.parsed.select)
    for wider in wider_types(walk.context, parent):
        if not star and not re.search(rf"\b{re.escape(wider.column)}\b", reader.parsed.select, re.I):
            continue
        place = column_reference_lines(wider.column, parent, reader, walk.context.declared.tables)
        if place:
            return Notice.READS_WIDENED_AT.of(parent=parent, column=wider.column, type=wider.now, place=place)
        if reader.parsed.stateful:
            return Notice.READS_WIDENED.of(parent=parent, column=wider.column, type=wider.now)
    return None


def refuse_unfit_reader(walk: DeployWalk, reader: TableName, table: TableName) -> None:
    """Refuse to widen a column if the state, files or column types of a reader cannot hold the wider type.

    If the reader would fail only on values too large for its output column, record a warning instead.
    """
    known = walk.found.by_table.get(reader)
    begins = known is not None and known.action in (Action.START, Action.REBUILD)
    declared = walk.context.declared.tables.get(reader)
    use = None if begins else use_of_wider_types(walk, reader, table)
    if use is None or declared is None or declared.parsed is None:
        return
    if declared.parsed.stateful:
        old_type = Notice.STATE_HOLDS_OLD_TYPE.of(use=use)
        walk.found.refuse(table, PlanRefusalKind.STATE_HOLDS_OLD_TYPE.of(reader=reader, use=old_type))
        return
    for wider, column in _narrower_columns(walk, declared, table):
        source, narrower = f"{table}.{wider.column}", column.type
        of_two_types = not table_format(declared.parsed_ddl.format).widening_property
        if not of_two_types and not rounds(wider.now, narrower):
            said = PlanWarningKind.VALUE_MAY_END_IT
            walk.found.warn(reader, said.of(source=source, type=wider.now, column=column.name, narrower=narrower))
            continue
        kind = PlanRefusalKind.FILES_OF_TWO_TYPES if of_two_types else PlanRefusalKind.VALUES_ROUNDED
        into = {"reader": reader, "source": source, "type": wider.now, "column": column.name, "narrower": narrower}
        walk.found.refuse(table, kind.of(**into))


def _narrower_columns(walk: DeployWalk, reader: Table, parent: TableName) -> Iterator[tuple[WiderType, Column]]:
    """Yield each widened column together with a narrower column that the reader derives from it.

    Columns with an explicit cast are skipped.
    """
    from core.sql.expression_properties import expression_type
    from core.sql.lineage.model import InputKind
    from core.sql.lineage.statement_lineage import lineage_of

    assert reader.parsed is not None, "only statements read"
    tables = walk.context.declared.tables
    found = lineage_of(reader.parsed, lambda name: tables[name].parsed_ddl.columns if name in tables else None)
    columns = {column.name.lower(): column for column in reader.parsed_ddl.columns}
    by_name = {wider.column.lower(): wider for wider in wider_types(walk.context, parent)}
    for output in found.outputs:
        values = {
            each.origin.column.lower()
            for each in output.inputs
            if each.origin.table == parent and each.kind is InputKind.VALUE
        }
        column = columns.get(output.name)
        for wider in (by_name[name] for name in sorted(values & by_name.keys())):
            if column is not None and is_wider(wider.now, column.type) and not expression_type(output.expression):
                yield wider, column
