"""The strategies for starting, restarting or rebuilding a statement, and why the others are ruled out."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from core.changes.checkpoint_compatibility import why_not_from_checkpoint
from core.changes.classification import Change
from core.changes.kinds import ChangeKind
from core.model.actions import Action, Strategy
from core.model.names import TableName
from core.model.reasons import Reason
from core.model.table_formats import table_format
from core.plan.descriptions import evidence_words
from core.planner.context import PlanningContext
from core.planner.decision_model import TableDecision, recreated_parents
from core.planner.rewrite_in_place import columns_of, rows_that_stay, why_not_rewritten_by_key
from core.planner.scope import PlanScope
from core.planner.start_positions import begins_by_rows, partial_notes
from core.planner.strategy_refusal_kinds import Refusal, StrategyNote, StrategyRefusal
from core.project.model import Table
from core.text.sentence import Fact

REBUILDS = frozenset(
    {
        Strategy.EARLIEST, Strategy.PARTIAL, Strategy.FORK, Strategy.SEEDED, Strategy.CARRY_OVER, Strategy.KEYED,
        Strategy.CHAIN,
    }
)  # fmt: skip
"""Strategies that rebuild a table, either as a new version or, with KEYED, by rewriting the rows of the current one."""

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
"""Kinds of change after which Spark may apply one source's offsets to another source."""
_SAME_QUERY = frozenset(
    {
        ChangeKind.NONE, ChangeKind.COMMENT_OR_FORMAT, ChangeKind.DESCRIPTION, ChangeKind.TRIGGER_OR_RATE,
        ChangeKind.PINNED_CONFIGURATION, ChangeKind.SCHEMA_TRACKING, ChangeKind.POOL,
    }
)  # fmt: skip


Offer = tuple[str, Fact[StrategyNote] | None]
"""A strategy and an optional note for operators."""


def strategies_of(
    context: PlanningContext, scope: PlanScope, decisions: Mapping[TableName, TableDecision], table: TableName
) -> dict[str, Fact[StrategyNote] | None]:
    """Return the strategies allowed for a table, each with an optional note for operators.

    The result is empty if the table is external or undeclared, or if the plan does not start, restart or rebuild it.
    """
    declared = context.declared.tables.get(table)
    if declared is None or declared.parsed is None:
        return {}
    case = StrategyCase(context, scope, decisions, declared, decisions[table].default)
    return {strategy: note for strategy, note in case.offers() if case.why_not_seeded(strategy) is None}


def why_not(
    context: PlanningContext,
    scope: PlanScope,
    decisions: Mapping[TableName, TableDecision],
    table: TableName,
    strategy: str,
) -> Refusal | None:
    """Return why a strategy is not allowed for a table; None if it is allowed or no specific reason is known."""
    declared, decision = context.declared.tables.get(table), decisions[table].default
    if declared is None or declared.parsed is None:
        return StrategyRefusal.NO_STATEMENT.of()
    if decision.action not in (Action.START, Action.RESTART, Action.REBUILD):
        return StrategyRefusal.NOT_STARTED.of()
    return StrategyCase(context, scope, decisions, declared, decision).why_not(strategy)


def why_sequence_would_be_forgotten(context: PlanningContext, table: Table) -> Fact[StrategyRefusal] | None:
    """Return a refusal if a new version would accept outdated rows, because it lacks each key's latest sequence.

    None if the table does not upsert by sequence, is not deployed, or has a version that never ran.
    """
    settings, begun = table.settings, context.observed.deployment(table.name).begun
    if not settings.upserts or not settings.sequence or not context.observed.is_deployed(table.name) or not begun:
        return None
    if settings.deletes:
        return StrategyRefusal.SEQUENCE_AND_DELETES_FORGOTTEN.of(sequence=settings.sequence)
    return StrategyRefusal.SEQUENCE_FORGOTTEN.of(sequence=settings.sequence)


@dataclass(frozen=True, slots=True)
class StrategyCase:
    """Decides which strategies are allowed for one statement, given all decisions of the plan.

    Each `why_not_…` method returns None if the strategy is allowed.
    """

    context: PlanningContext
    scope: PlanScope
    decisions: Mapping[TableName, TableDecision]
    table: Table
    decision: TableDecision

    def offers(self) -> Iterator[Offer]:
        """Yield the candidate strategies for the decision's action, default first, each with an optional note.

        Callers must filter out strategies that `why_not_seeded` rules out.
        """
        match self.decision.action:
            case Action.START:
                yield Strategy.FIRST, None
                yield from self._started_later()
            case Action.RESTART:
                yield self.decision.strategy, None
                yield Strategy.EARLIEST, None
                yield from self._started_later()
                yield from self._from_the_old_version()
                yield from self._rewritten()
            case Action.REBUILD:
                yield Strategy.EARLIEST, None
                yield from self._started_later()
                yield from self._from_the_old_version()
                if self.why_not_chained() is None:
                    yield Strategy.CHAIN, StrategyNote.UNION_OF_BOTH.of()
                yield from self._rewritten()
                if self.why_not_seamed() is None:
                    yield Strategy.SEAM, StrategyNote.FROM_COMMON_BATCH.of()
                yield from self._in_place()

    def _started_later(self) -> Iterator[Offer]:
        tables = self.context.declared.tables
        if why_sequence_would_be_forgotten(self.context, self.table) is None or begins_by_rows(tables, self.table):
            yield from partial_notes(tables, self.table)
        if not self._recreated:
            yield Strategy.SEEDED, StrategyNote.OPEN_WINDOWS.of() if self._stateful else None

    def _from_the_old_version(self) -> Iterator[Offer]:
        if self.why_not_forked() is None:
            clones = table_format(self.table.parsed_ddl.format).clones
            yield Strategy.FORK, (StrategyNote.CLONES_OLD if clones else StrategyNote.SAME_AS_OLD).of()
        if self.why_not_carried_over() is None:
            yield Strategy.CARRY_OVER, StrategyNote.NO_ROWS_BEFORE.of()

    def _rewritten(self) -> Iterator[Offer]:
        if self.why_not_keyed() is None:
            yield Strategy.KEYED, StrategyNote.SEES_BOTH.of(rows=rows_that_stay(self.context, self.table))

    def _in_place(self) -> Iterator[Offer]:
        asked = self.decision.reason is Reason.ASKED
        if asked and self._own.action is Action.RESTART and not self._recreated:
            if not self.scope.request.rebuild:
                yield Strategy.IN_PLACE, None
        elif self.why_not_in_place() is None:
            yield Strategy.IN_PLACE, StrategyNote.MIXED.of()

    def why_not(self, strategy: str) -> Refusal | None:
        """Return why a strategy is not allowed; None if it is allowed, or if no specific reason is known."""
        if why := self.why_not_seeded(strategy):
            return why
        starts = self.decision.action is Action.START
        match strategy:
            case Strategy.SEEDED | Strategy.CARRY_OVER | Strategy.FORK | Strategy.CHAIN if self._recreated:
                return StrategyRefusal.OFFSETS_MEANINGLESS.of(parents=self._recreated)
            case Strategy.CHAIN:
                return self.why_not_chained()
            case Strategy.KEYED:
                return self.why_not_keyed()
            case Strategy.SEAM:
                return self.why_not_seamed()
            case Strategy.IN_PLACE if self.decision.action is Action.REBUILD:
                return self.why_not_in_place()
            case Strategy.CARRY_OVER if not starts:
                return self.why_not_carried_over()
            case Strategy.FORK if not starts:
                return self.why_not_forked()
            case _:
                return None

    @property
    def _stateful(self) -> bool:
        return self.table.parsed is not None and self.table.parsed.stateful

    @property
    def _to_topic(self) -> bool:
        return table_format(self.table.parsed_ddl.format).topics

    @property
    def _own(self) -> Change:
        return self.context.changes.of(self.table.name)

    @property
    def _edits(self) -> frozenset[ChangeKind]:
        return self.context.changes.kinds(self.table.name)

    @property
    def _recreated(self) -> tuple[TableName, ...]:
        return recreated_parents(self.table, self.decisions)

    def why_not_seeded(self, strategy: str) -> Fact[StrategyRefusal] | None:
        """Return why a SEEDED start (new rows only) is not allowed; None if it is, or for any other `strategy`."""
        if strategy != Strategy.SEEDED or self.table.parsed is None:
            return None
        tables = self.context.declared.tables
        reads = self.table.parsed.reads if self._stateful else ()
        streamed = [read.table for read in reads if read.streaming and read.table in tables]
        formats = {name: table_format(tables[name].parsed_ddl.format) for name in streamed}
        unread = tuple(f"{n} ({format.name})" for n, format in formats.items() if not format.read_before_first_batch)
        if unread:
            return StrategyRefusal.STATE_BEFORE_FIRST_BATCH.of(sources=unread)
        return why_sequence_would_be_forgotten(self.context, self.table)

    def why_not_carried_over(self) -> Fact[StrategyRefusal] | None:
        """Return why a new version cannot start with an empty table and the old version's offsets; None if it can."""
        if self.table.parsed is None or self._stateful:
            return StrategyRefusal.KEEPS_STATE.of()
        if self.table.settings.upserts:
            return why_sequence_would_be_forgotten(self.context, self.table) or StrategyRefusal.UPSERTS.of()
        return self._why_offsets_do_not_apply()

    def why_not_forked(self) -> Fact[StrategyRefusal] | None:
        """Return why a new version cannot take over the rows, offsets and state of the old version; None if it can."""
        if self._to_topic:
            return StrategyRefusal.TOPIC_NOT_FORKED.of()
        settings = self.table.settings
        if settings.upserts:
            remembers = settings.deletes and settings.sequence
            return (StrategyRefusal.DELETED_KEYS if remembers else StrategyRefusal.COMMITS_UNKNOWN).of()
        definition = self.decision.change.kind.definition
        # A clone costs nothing, so a version without state may start with the old rows as well.
        clones = not self._stateful and definition.leaves_seam and table_format(self.table.parsed_ddl.format).clones
        if not definition.state_may_be_copied and not clones:
            return self._why_offsets_do_not_apply() or self._why_no_fork().of()
        if self.context.observed.deployment(self.table.name).rows_before:
            return StrategyRefusal.ROWS_BEFORE.of()
        return self._why_offsets_do_not_apply()

    def _why_no_fork(self) -> StrategyRefusal:
        if self.decision.change.kind in _SAME_QUERY:
            return StrategyRefusal.SAME_QUERY
        return StrategyRefusal.OTHER_STATE if self._stateful else StrategyRefusal.NO_STATE

    def _why_offsets_do_not_apply(self) -> Fact[StrategyRefusal] | None:
        context, name = self.context, self.table.name
        if lost := self._lost():
            return lost
        if self.decision.reason in _MOVED or self._recreated:
            return StrategyRefusal.PARENT_RECREATED.of()
        bound = (context.bindings.of(name), context.bindings.bind(context.revisions.declared(name)))
        before, after = ({(b.parent, b.version) for b in bindings if b.streamed} for bindings in bound)
        edits = self._edits
        if before != after or not edits.isdisjoint(_OTHER_SOURCES):
            return StrategyRefusal.PARENTS_CHANGE.of()
        old = context.revisions.deployed(name)
        if old is not None and old.ddl.format != self.table.parsed_ddl.format:
            return StrategyRefusal.FORMAT_CHANGES.of(before=old.ddl.format, after=self.table.parsed_ddl.format)
        known = self._own.kind is ChangeKind.NONE or (edits and self._own.classified)
        return None if known else StrategyRefusal.CHANGE_UNKNOWN.of()

    def _lost(self) -> Fact[StrategyRefusal] | None:
        lost = self.context.observed.deployment(self.table.name).why_lost
        return StrategyRefusal.LOST.of(what=lost) if lost is not None else None

    def why_not_keyed(self) -> Fact[StrategyRefusal] | None:
        """Return why the statement cannot rewrite all rows of its current table by key; None if it can."""
        return why_not_rewritten_by_key(self.context, self.table, self.decision, self.decisions)

    def why_not_chained(self) -> Fact[StrategyRefusal] | None:
        """Return why the pointer cannot serve the union of the old and the new version; None if it can."""
        context, name = self.context, self.table.name
        if self._to_topic:
            return StrategyRefusal.NO_RECORD_OF_BATCHES.of()
        changes_inputs = any(kind.definition.changes_inputs_or_key for kind in self._edits)
        if self.decision.change.kind is not ChangeKind.TABLE_FORMAT or changes_inputs:
            return StrategyRefusal.CHAIN_NEEDS_STORAGE.of()
        if self.table.parsed is None or self._stateful:
            return StrategyRefusal.KEEPS_STATE.of()
        if self.table.settings.mode != "append":
            return StrategyRefusal.UPSERTS.of()
        if context.observed.deployment(name).rows_before:
            return StrategyRefusal.ROWS_BEFORE.of()
        old = context.revisions.deployed(name)
        if old is None or columns_of(old.ddl) != columns_of(self.table.parsed_ddl):
            return StrategyRefusal.CHAIN_COLUMNS.of()
        for reader in context.bindings.readers(name):
            declared = context.declared.tables.get(reader)
            if declared is None or not self.scope.may_touch(reader, declared.product):
                return StrategyRefusal.READER_LEFT_BEHIND.of(reader=reader)
            if any(b.parent == name and not b.streamed for b in context.bindings.of(reader)):
                return StrategyRefusal.READER_LACKS_ROWS.of(reader=reader)
            if why := replace(self, table=declared)._why_not_moved():
                return StrategyRefusal.READER_CANNOT_MOVE.of(reader=reader, why=why)
        return self._why_offsets_do_not_apply()

    def why_not_in_place(self) -> Refusal | None:
        """Return why the statement cannot continue from its checkpoint and must be rebuilt; None if it can continue."""
        return StrategyRefusal.PARENT_RECREATED.of() if self._recreated else self.why_not_restarted()

    def why_not_restarted(self) -> Refusal | None:
        """Return why a restart from the checkpoint cannot replace the rebuild; None if it can.

        Re-created parents are not considered.
        """
        pair, change = self.context.changes.compared(self.table.name), self.decision.change
        if self.decision.reason is Reason.UNPROVEN and change.evidence and pair is not None:
            return StrategyRefusal.UNPROVEN.of(evidence=evidence_words(change.evidence[0]))
        if self.decision.reason in _NEVER_IN_PLACE:
            return _NEVER_IN_PLACE[self.decision.reason].of()
        if lost := self._lost():
            return lost
        if pair is None or not change.classified:
            return StrategyRefusal.CHANGE_UNKNOWN.of()
        refused = why_not_from_checkpoint(*pair)
        return refused.of() if refused is not None else None

    def why_not_seamed(self) -> Fact[StrategyRefusal] | None:
        """Return why the statement cannot keep its table while a parent is re-created; None if it can."""
        if self.decision.reason is Reason.WITH_ITS_SET:
            return StrategyRefusal.SET_REBUILT.of()
        if self.decision.reason not in _MOVED:
            return StrategyRefusal.NO_PARENT_RECREATED.of()
        return self._why_not_moved()

    def _why_not_moved(self) -> Fact[StrategyRefusal] | None:
        if self.table.parsed is None or self._stateful:
            return StrategyRefusal.KEEPS_STATE.of()
        if self._to_topic:
            return StrategyRefusal.NO_RECORD_OF_BATCHES.of()
        if [read.source_name for read in self.table.parsed.reads if read.streaming] != [""]:
            return StrategyRefusal.SEVERAL_STREAMS.of()
        if not self._own.kind.definition.keeps_table_across_seam:
            return StrategyRefusal.OWN_CHANGE.of()
        return self._lost()
