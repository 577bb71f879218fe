"""Rewrite of a keyed table in place: whether it is allowed, and which old rows would remain.

A written row replaces an existing row that has the same key and the same or a lower sequence. If the old and the new
SQL produce the same keys and sequences, the result is the same as after a rebuild. All other edits may leave rows that
a rebuild would not produce.
"""

from collections.abc import Mapping

from core.model.evidence import Notice
from core.model.names import TableName
from core.model.reasons import Reason
from core.planner.context import PlanningContext
from core.planner.decision_model import TableDecision, recreated_parents
from core.planner.strategy_refusal_kinds import StrategyRefusal
from core.project.model import Table
from core.project.revision import Revision
from core.sql.statement import ParsedStatement, TableDdl
from core.text.sentence import Fact

COMPATIBLE, TOLERANT = "compatible", "tolerant"
"""YAML tags: `compatible` allows the table's rows to be upserted again; `tolerant` marks a reader that accepts this."""


def why_not_rewritten_by_key(
    context: PlanningContext, table: Table, decision: TableDecision, decisions: Mapping[TableName, TableDecision]
) -> Fact[StrategyRefusal] | None:
    """Return why a table cannot be rewritten in place by upserting all its rows; None if it can."""
    if table.settings.mode != "upsert" or not table.settings.key:
        return StrategyRefusal.NOT_UPSERTED.of()
    old = context.revisions.deployed(table.name)
    if old is None or (old.settings.mode, old.settings.key) != ("upsert", table.settings.key):
        return StrategyRefusal.KEY_CHANGES.of()
    return (
        _other_rows(context, table, old)
        or _not_declared(context, table)
        or _read_again_differently(context, table, decision, decisions)
        or _other_order(old, context.revisions.declared(table.name), table)
    )


def rows_that_stay(context: PlanningContext, table: Table) -> Fact[Notice]:
    """Return the notice about the old rows and recorded deletions that remain after a rewrite in place."""
    old = context.revisions.deployed(table.name)
    remembers = old is None or bool(old.settings.deletes and old.settings.sequence)
    rows = (Notice.KEYS_STAY if keys_stay(context, table) else Notice.KEYS_KEPT).of()
    return Notice.DELETIONS_STAY.of(rows=rows) if remembers else rows


def keys_stay(context: PlanningContext, table: Table) -> bool:
    """True if a rewrite in place may leave rows whose keys the new SQL does not produce.

    No such row remains if the edit changes only values, and each output row is made from a single input row.
    """
    old = context.revisions.deployed(table.name)
    parsed = table.parsed
    if old is None or old.parsed is None or parsed is None:
        return True
    stateful = old.parsed.stateful or parsed.stateful
    static = any(not read.streaming for read in (*old.parsed.reads, *parsed.reads))
    if stateful or static or old.settings.deletes != table.settings.deletes:
        return True
    return not _pairs_all_rows(old.parsed, parsed)


def _other_rows(context: PlanningContext, table: Table, old: Revision) -> Fact[StrategyRefusal] | None:
    if columns_of(old.ddl) != columns_of(table.parsed_ddl):
        return StrategyRefusal.COLUMNS_CHANGE.of()
    stored = any(kind.definition.needs_another_table for kind in context.changes.kinds(table.name))
    return StrategyRefusal.STORED_DIFFERENTLY.of() if stored else None


def _not_declared(context: PlanningContext, table: Table) -> Fact[StrategyRefusal] | None:
    if COMPATIBLE not in table.settings.tags:
        return StrategyRefusal.NOT_COMPATIBLE.of(tag=COMPATIBLE)
    for reader in context.bindings.readers(table.name):
        declared = context.declared.tables.get(reader)
        if declared is None or TOLERANT not in declared.settings.tags:
            return StrategyRefusal.READER_NOT_TOLERANT.of(reader=reader, tag=TOLERANT)
    return None


def _read_again_differently(
    context: PlanningContext, table: Table, decision: TableDecision, decisions: Mapping[TableName, TableDecision]
) -> Fact[StrategyRefusal] | None:
    """Return why reading all input again might not reproduce the existing rows; None if it will reproduce them."""
    if decision.reason in (Reason.PARENT_REBUILT, Reason.READS_OLD_VERSION) or recreated_parents(table, decisions):
        return StrategyRefusal.UPSTREAM_RECREATED.of()
    for read in table.parsed.reads if table.parsed else ():
        parent = context.declared.tables.get(read.table)
        if read.streaming and parent is not None and parent.settings.upserts:
            return StrategyRefusal.STREAMS_DELETES.of(parent=read.table)
    return None


def _other_order(old: Revision, new: Revision, table: Table) -> Fact[StrategyRefusal] | None:
    if old.parsed is None or new.parsed is None:
        return StrategyRefusal.CHANGE_UNKNOWN.of()
    if old.settings.sequence != new.settings.sequence:
        return StrategyRefusal.SEQUENCE_CHANGES.of()
    if not new.settings.sequence and not new.parsed.stateful:
        return StrategyRefusal.NO_SEQUENCE.of()
    sources = [[(read.table, read.streaming) for read in each.reads] for each in (old.parsed, new.parsed)]
    if sources[0] != sources[1]:
        return StrategyRefusal.READS_OTHER_TABLES.of()
    names = {name.lower() for name in (*new.settings.key, new.settings.sequence) if name}
    changed = _changed_columns_of(old.parsed, new.parsed)
    if changed is None:
        return StrategyRefusal.KEY_UNCERTAIN.of(columns=tuple(sorted(names)))
    moved = tuple(sorted(names & changed))
    return StrategyRefusal.KEY_COMPUTED_DIFFERENTLY.of(columns=moved) if moved else None


def _changed_columns_of(old: ParsedStatement, new: ParsedStatement) -> frozenset[str] | None:
    if old.canonical == new.canonical:
        return frozenset()
    if any(" UNION " in each.canonical.upper() for each in (old, new)):
        return None
    # The parser is loaded only where a statement was edited.
    from core.sql.comparison.query_edits import aliases_of_both
    from core.sql.comparison.row_effects import row_effects

    effects = row_effects(old.canonical, new.canonical, aliases_of_both(old, new))
    # A changed subquery may feed any column.
    return None if effects.unpairable_because or effects.within else frozenset(name.lower() for name in effects.changed)


def _pairs_all_rows(old: ParsedStatement, new: ParsedStatement) -> bool:
    """True if the edited statement still produces a row from each input row from which the old one did."""
    if old.canonical == new.canonical:
        return True
    from core.sql.comparison.query_edits import aliases_of_both
    from core.sql.comparison.row_effects import RowSide, row_effects

    effects = row_effects(old.canonical, new.canonical, aliases_of_both(old, new))
    fewer = any(row.side is not RowSide.NEW for row in effects.rows)
    return not (
        fewer or effects.unpairable_because or effects.within or effects.multiplicity_change or effects.merged_by
    )


def columns_of(ddl: TableDdl) -> tuple[tuple[str, str], ...]:
    """Return the column names and types in lower case, for comparing two tables."""
    return tuple((column.name.lower(), column.type.lower()) for column in ddl.columns)
