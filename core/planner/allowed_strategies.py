"""Which strategies may be had for a statement, with what to know of each before it is chosen."""

from collections.abc import Iterator, Mapping

from core.changes.checkpoint_compatibility import why_state_not_taken
from core.changes.classification import kinds_between
from core.changes.kinds import ChangeKind
from core.model.actions import Action, Strategy
from core.model.names import TableName
from core.model.reasons import Reason
from core.model.table_formats import table_format
from core.plan.descriptions import evidence_words
from core.planner.context import ObservedTables, PlanningContext, TableChanges
from core.planner.decisions import TableDecision, recreated_parents
from core.planner.refusals import Refusal, StrategyRefusal
from core.planner.rewrite_in_place import not_keyed, rows_that_stay
from core.planner.scope import PlanScope
from core.planner.start_positions import begins_by_rows, partial_notes
from core.project.model import Table
from core.sql.statement import TableDdl
from core.text.sentence import Fact

REBUILDS = frozenset(
    {
        Strategy.EARLIEST, Strategy.PARTIAL, Strategy.FORK, Strategy.SEEDED, Strategy.CARRY_OVER, Strategy.KEYED,
        Strategy.CHAIN,
    }
)  # fmt: skip
"""Strategies that make the table's rows anew, or its version."""

_NEVER_IN_PLACE = {
    Reason.ASKED: StrategyRefusal.REBUILD_ASKED,
    Reason.UNPROVEN: StrategyRefusal.CHANGE_UNKNOWN,
    Reason.PARENT_REBUILT: StrategyRefusal.PARENT_RECREATED,
    Reason.READS_OLD_VERSION: StrategyRefusal.PARENT_AT_OTHER_VERSION,
    Reason.PARENT_REWRITTEN: StrategyRefusal.PARENT_REWRITTEN,
    Reason.COLUMNS_IN_STATE: StrategyRefusal.STATE_LACKS_COLUMNS,
    Reason.TYPES_IN_STATE: StrategyRefusal.STATE_LACKS_TYPE,
    Reason.WITH_ITS_SET: StrategyRefusal.SET_REBUILT,
}
_MOVED = frozenset({Reason.PARENT_REBUILT, Reason.READS_OLD_VERSION})
_OTHER_SOURCES = frozenset({ChangeKind.SOURCES_CHANGED, ChangeKind.NAMED_SOURCES_CHANGED, ChangeKind.SOURCE_REPLACED})
"""Edits after which a position of one source may be read as one of another."""
_SAME_QUERY = frozenset(
    {
        ChangeKind.NONE, ChangeKind.COMMENT_OR_FORMAT, ChangeKind.DESCRIPTION, ChangeKind.TRIGGER_OR_RATE,
        ChangeKind.PINNED_CONFIGURATION, ChangeKind.SCHEMA_TRACKING, ChangeKind.POOL,
    }
)  # fmt: skip
"""Edits that leave query and state as they are."""


def strategies_of(
    context: PlanningContext, scope: PlanScope, decisions: Mapping[TableName, TableDecision], table: TableName
) -> dict[str, str]:
    """Return each strategy that may be had for a decided table, its note by its word; none for an external one."""
    declared = context.declared.tables.get(table)
    if declared is None or declared.parsed is None:
        return {}
    found = _strategies_of(context, scope, decisions, declared)
    return {strategy: note for strategy, note in found.items() if not_positioned(context, declared, strategy) is None}


def _strategies_of(
    context: PlanningContext, scope: PlanScope, decisions: Mapping[TableName, TableDecision], declared: Table
) -> dict[str, str]:
    """Return what may be had whatever the formats of its tables can do."""
    decision = decisions[declared.name].default
    match decision.action:
        case Action.START:
            return {Strategy.FIRST: "", **dict(_begun_later(context, declared, decisions))}
        case Action.RESTART:
            others = _instead_of_restart(context, declared, decision, decisions)
            return {decision.strategy: "", Strategy.EARLIEST: "", **dict(others)}
        case Action.REBUILD:
            return {
                Strategy.EARLIEST: "",
                **dict(_instead_of_earliest(context, scope, declared, decision, decisions)),
            }
        case _:
            return {}


def _instead_of_restart(
    context: PlanningContext, table: Table, decision: TableDecision, decisions: Mapping[TableName, TableDecision]
) -> Iterator[tuple[str, str]]:
    yield from _begun_later(context, table, decisions)
    yield from _with_what_is_there(context, table, decision, decisions)
    yield from _written_again(context, table, decision, decisions)


def _written_again(
    context: PlanningContext, table: Table, decision: TableDecision, decisions: Mapping[TableName, TableDecision]
) -> Iterator[tuple[str, str]]:
    if not_keyed(context, table, decision, decisions) is None:
        until = "until it has caught up, readers see old and new rows in any order"
        yield Strategy.KEYED, f"{rows_that_stay(context, table)}; {until}"


def _with_what_is_there(
    context: PlanningContext, table: Table, decision: TableDecision, decisions: Mapping[TableName, TableDecision]
) -> Iterator[tuple[str, str]]:
    """Return the new versions that go on with the old one's state or positions."""
    if not_forked(context, table, decision, decisions) is None:
        note = "rows, positions and state are those of the old version, which is kept as a fallback"
        cloned = "; the new table is a clone: files of the old one stay as long as it is there"
        yield Strategy.FORK, note + (cloned if table_format(table.parsed_ddl.format).clones else "")
    if not_carried_over(context, table, decision, decisions) is None:
        yield Strategy.CARRY_OVER, "has no rows from before the start"


def _instead_of_earliest(
    context: PlanningContext,
    scope: PlanScope,
    table: Table,
    decision: TableDecision,
    decisions: Mapping[TableName, TableDecision],
) -> Iterator[tuple[str, str]]:
    yield from _begun_later(context, table, decisions)
    yield from _with_what_is_there(context, table, decision, decisions)
    stays = not recreated_parents(table, decisions)
    if not_chained(context, scope, table, decision, decisions) is None:
        yield Strategy.CHAIN, "the pointer becomes the union of both versions"
    yield from _written_again(context, table, decision, decisions)
    if not_seamed(context.observed, context.changes, table, decision) is None:
        yield (
            Strategy.SEAM,
            "from the batch at which the new upstream version had read what the old one had, if there is one",
        )
    if decision.reason is Reason.ASKED and context.changes.of(table.name).action is Action.RESTART and stays:
        if not scope.request.rebuild:
            yield Strategy.IN_PLACE, ""
    elif not_in_place(context.observed, context.changes, decisions, table, decision) is None:
        yield Strategy.IN_PLACE, "old rows and old state keep their old meaning and are mixed with new ones"


def not_positioned(context: PlanningContext, table: Table, strategy: str) -> Fact[StrategyRefusal] | None:
    """Return why a statement cannot begin where a strategy sets it; None where it can."""
    if strategy != Strategy.SEEDED or table.parsed is None:
        return None
    if not table.parsed.stateful:
        return forgotten_sequences(context, table)
    tables = context.declared.tables
    streamed = [read.table for read in table.parsed.reads if read.streaming and read.table in tables]
    formats = {name: table_format(tables[name].parsed_ddl.format) for name in streamed}
    unread = tuple(f"{n} ({format.name})" for n, format in formats.items() if not format.read_before_first_batch)
    if unread:
        return StrategyRefusal.STATE_BEFORE_FIRST_BATCH.of(sources=unread)
    return forgotten_sequences(context, table)


def forgotten_sequences(context: PlanningContext, table: Table) -> Fact[StrategyRefusal] | None:
    """Return that a new version would take older rows that the serving one does not, for lack of those from before.

    None where rows have no order, and where nothing serves that would tell.
    """
    settings = table.settings
    if not settings.upserts or not settings.sequence or not context.observed.is_deployed(table.name):
        return None
    if settings.deletes:
        return StrategyRefusal.SEQUENCE_AND_DELETES_FORGOTTEN.of(sequence=settings.sequence)
    return StrategyRefusal.SEQUENCE_FORGOTTEN.of(sequence=settings.sequence)


def _begun_later(
    context: PlanningContext, table: Table, decisions: Mapping[TableName, TableDecision]
) -> Iterator[tuple[str, str]]:
    tables = context.declared.tables
    if forgotten_sequences(context, table) is None or begins_by_rows(tables, table):
        yield from partial_notes(tables, table)
    if not recreated_parents(table, decisions):
        note = (
            "windows that are open at that point lack their earlier rows"
            if table.parsed and table.parsed.stateful
            else ""
        )
        yield Strategy.SEEDED, note


def not_carried_over(
    context: PlanningContext, table: Table, decision: TableDecision, decisions: Mapping[TableName, TableDecision]
) -> Fact[StrategyRefusal] | None:
    """Return why a new version cannot begin where the old one has read to, without its rows; None where it can."""
    if table.parsed is None or table.parsed.stateful:
        return StrategyRefusal.KEEPS_STATE.of()
    if table.settings.upserts:
        return forgotten_sequences(context, table) or StrategyRefusal.UPSERTS.of()
    return _other_positions(context, table, decision, decisions)


def not_forked(
    context: PlanningContext, table: Table, decision: TableDecision, decisions: Mapping[TableName, TableDecision]
) -> Fact[StrategyRefusal] | None:
    """Return why a new version cannot take rows, positions and state of the old one; None where it can."""
    if table.settings.upserts:
        remembers = table.settings.deletes and table.settings.sequence
        return (StrategyRefusal.DELETED_KEYS if remembers else StrategyRefusal.COMMITS_UNKNOWN).of()
    if not decision.change.kind.definition.state_may_be_copied and not _is_cloned_to_go_on(table, decision):
        return _other_positions(context, table, decision, decisions) or _why_nothing_to_fork(table, decision).of()
    if context.observed.deployment(table.name).rows_before:
        return StrategyRefusal.ROWS_BEFORE.of()
    return _other_positions(context, table, decision, decisions)


def _why_nothing_to_fork(table: Table, decision: TableDecision) -> StrategyRefusal:
    if decision.change.kind in _SAME_QUERY:
        return StrategyRefusal.SAME_QUERY
    stateful = table.parsed is not None and table.parsed.stateful
    return StrategyRefusal.OTHER_STATE if stateful else StrategyRefusal.NO_STATE


def _is_cloned_to_go_on(table: Table, decision: TableDecision) -> bool:
    """Return whether a version without state may begin with the old rows: that costs nothing where they are cloned."""
    stateless = table.parsed is not None and not table.parsed.stateful
    return stateless and decision.change.kind.definition.leaves_seam and table_format(table.parsed_ddl.format).clones


def _other_positions(
    context: PlanningContext, table: Table, decision: TableDecision, decisions: Mapping[TableName, TableDecision]
) -> Fact[StrategyRefusal] | None:
    """Return why positions of the old version mean nothing in a new one; None where they do."""
    if lost := _lost(context.observed, table.name):
        return lost
    if decision.reason in _MOVED or recreated_parents(table, decisions):
        return StrategyRefusal.PARENT_RECREATED.of()
    before = {(b.parent, b.version) for b in context.bindings.of(table.name) if b.streamed}
    declared = {
        (b.parent, b.version) for b in context.bindings.bind(context.revisions.declared(table.name)) if b.streamed
    }
    edits = _kinds(context.changes, table.name)
    if before != declared or not edits.isdisjoint(_OTHER_SOURCES):
        return StrategyRefusal.PARENTS_CHANGE.of()
    old = context.revisions.deployed(table.name)
    if old is not None and old.ddl.format != table.parsed_ddl.format:
        return StrategyRefusal.FORMAT_CHANGES.of(before=old.ddl.format, after=table.parsed_ddl.format)
    own = context.changes.of(table.name)
    known = own.kind is ChangeKind.NONE or (edits and own.classified)
    return None if known else StrategyRefusal.CHANGE_UNKNOWN.of()


def _lost(observed: ObservedTables, table: TableName) -> Fact[StrategyRefusal] | None:
    lost = observed.deployment(table).why_lost
    return StrategyRefusal.LOST.of(what=lost) if lost is not None else None


def not_chained(
    context: PlanningContext,
    scope: PlanScope,
    table: Table,
    decision: TableDecision,
    decisions: Mapping[TableName, TableDecision],
) -> Fact[StrategyRefusal] | None:
    """Return why a new version cannot take only what comes, beside the rows of the old one; None where it can."""
    edits = _kinds(context.changes, table.name)
    if decision.change.kind is not ChangeKind.TABLE_FORMAT or any(k.definition.changes_inputs_or_key for k in edits):
        return StrategyRefusal.CHAIN_NEEDS_STORAGE.of()
    if table.parsed is None or table.parsed.stateful:
        return StrategyRefusal.KEEPS_STATE.of()
    if table.settings.mode != "append":
        return StrategyRefusal.UPSERTS.of()
    if context.observed.deployment(table.name).rows_before:
        return StrategyRefusal.ROWS_BEFORE.of()
    old = context.revisions.deployed(table.name)
    if old is None or _columns(old.ddl) != _columns(table.parsed_ddl):
        return StrategyRefusal.CHAIN_COLUMNS.of()
    for reader in context.bindings.readers(table.name):
        declared = context.declared.tables.get(reader)
        if declared is None or not scope.may_touch(reader, declared.product):
            return StrategyRefusal.READER_LEFT_BEHIND.of(reader=reader)
        if any(b.parent == table.name and not b.streamed for b in context.bindings.of(reader)):
            return StrategyRefusal.READER_LACKS_ROWS.of(reader=reader)
        if why := _not_moved(context.observed, context.changes, declared):
            return StrategyRefusal.READER_CANNOT_MOVE.of(reader=reader, why=why)
    return _other_positions(context, table, decision, decisions)


def not_in_place(
    observed: ObservedTables,
    changes: TableChanges,
    decisions: Mapping[TableName, TableDecision],
    table: Table,
    decision: TableDecision,
) -> Refusal | None:
    """Return why it cannot go on from its checkpoint instead of a rebuild; None where it can."""
    if recreated_parents(table, decisions):
        return StrategyRefusal.PARENT_RECREATED.of()
    return why_not_in_place(observed, changes, table.name, decision)


def why_not_in_place(
    observed: ObservedTables, changes: TableChanges, table: TableName, decision: TableDecision
) -> Refusal | None:
    """Return why a rebuild cannot be a restart instead; None where it can."""
    pair = changes.compared(table)
    if decision.reason is Reason.UNPROVEN and decision.change.evidence and pair is not None:
        return StrategyRefusal.UNPROVEN.of(evidence=evidence_words(decision.change.evidence[0]))
    if decision.reason in _NEVER_IN_PLACE:
        return _NEVER_IN_PLACE[decision.reason].of()
    if lost := _lost(observed, table):
        return lost
    if pair is None or not decision.change.classified:
        return StrategyRefusal.CHANGE_UNKNOWN.of()
    refused = why_state_not_taken(*pair)
    return refused.of() if refused is not None else None


def not_seamed(
    observed: ObservedTables, changes: TableChanges, table: Table, decision: TableDecision
) -> Fact[StrategyRefusal] | None:
    """Return why it cannot keep its table across a re-created parent; None where it can."""
    if decision.reason is Reason.WITH_ITS_SET:
        return StrategyRefusal.SET_REBUILT.of()
    if decision.reason not in _MOVED:
        return StrategyRefusal.NO_PARENT_RECREATED.of()
    return _not_moved(observed, changes, table)


def _not_moved(observed: ObservedTables, changes: TableChanges, table: Table) -> Fact[StrategyRefusal] | None:
    """Return why a statement cannot go on in another version of what it streams; None where it can."""
    if table.parsed is None or table.parsed.stateful:
        return StrategyRefusal.KEEPS_STATE.of()
    if [read.source_name for read in table.parsed.reads if read.streaming] != [""]:
        return StrategyRefusal.SEVERAL_STREAMS.of()
    if not changes.of(table.name).kind.definition.keeps_table_across_seam:
        return StrategyRefusal.OWN_CHANGE.of()
    return _lost(observed, table.name)


def why_not(
    context: PlanningContext,
    scope: PlanScope,
    decisions: Mapping[TableName, TableDecision],
    table: TableName,
    strategy: str,
) -> Refusal | None:
    """Return why a strategy may not be had for a decided table; None where there is nothing special to say."""
    declared, decision = context.declared.tables.get(table), decisions[table].default
    if declared is None or declared.parsed is None:
        return StrategyRefusal.NO_STATEMENT.of()
    if decision.action not in (Action.START, Action.RESTART, Action.REBUILD):
        return StrategyRefusal.NOT_STARTED.of()
    recreated = recreated_parents(declared, decisions)
    if why := not_positioned(context, declared, strategy):
        return why
    match strategy:
        case Strategy.SEEDED | Strategy.CARRY_OVER | Strategy.FORK | Strategy.CHAIN if recreated:
            return StrategyRefusal.OFFSETS_MEANINGLESS.of(parents=recreated)
        case Strategy.CHAIN:
            return not_chained(context, scope, declared, decision, decisions)
        case Strategy.KEYED:
            return not_keyed(context, declared, decision, decisions)
        case Strategy.SEAM:
            return not_seamed(context.observed, context.changes, declared, decision)
        case Strategy.IN_PLACE if decision.action is Action.REBUILD:
            return not_in_place(context.observed, context.changes, decisions, declared, decision)
        case Strategy.CARRY_OVER if decision.action is not Action.START:
            return not_carried_over(context, declared, decision, decisions)
        case Strategy.FORK if decision.action is not Action.START:
            return not_forked(context, declared, decision, decisions)
        case _:
            return None


def _columns(ddl: TableDdl) -> tuple[tuple[str, str], ...]:
    return tuple((column.name.lower(), column.type.lower()) for column in ddl.columns)


def _kinds(changes: TableChanges, table: TableName) -> frozenset[ChangeKind]:
    compared = changes.compared(table)
    return kinds_between(*compared) if compared is not None else frozenset()
