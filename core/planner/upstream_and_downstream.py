"""Decisions about the readers and parents of tables that have a decision already.

The downstream walk is breadth-first. If several parents of a reader change, the most severe outcome decides. A reader
is revisited only for a more severe outcome, so the cost is linear in the reads. The upstream walk is depth-first, and
ends at running tables.
"""

import re
from dataclasses import replace

from core.changes.classification import Change
from core.changes.kinds import ChangeKind
from core.lineage.column_usage import column_reference_lines
from core.model.actions import Action, Strategy
from core.model.evidence import Evidence, Notice
from core.model.names import TableName
from core.model.reasons import STOPPED_MEANWHILE, Reason
from core.planner.column_widening import notice_of_ended_readers, use_of_wider_types
from core.planner.decision_model import BEGINS, DeployWalk, DownstreamOutcome, TableDecision
from core.planner.operator_choices import with_chosen_strategy
from core.planner.requested_tables import (
    alter_ends_query_of,
    checkpoint_lost_change,
    decide_external,
    decide_table,
    is_at_rest,
    is_in_catalog,
    may_start_anew,
    rebuild_reason,
    resume_safely,
    start_anew,
)
from core.planner.warning_and_refusal_kinds import PlanRefusalKind, PlanWarningKind
from core.sql.statement import selects_star
from core.text.sentence import Fact

_SEVERITY = {Action.RESUME: 1, Action.RESTART: 2, Action.REBUILD: 3, Action.START: 4}
"""Severity of each action for a reader. START is the most severe: a starting table reads the newest parents anyway."""


def decide_downstream(walk: DeployWalk) -> None:
    """Decide about the readers of changed tables, at any depth; readers outside the scope stay unchanged."""
    found = walk.found
    waiting = [table for table in sorted(found.by_table) if found.by_table[table].outcome]
    for table in [*waiting]:
        waiting += _take_set(walk, table)
    told: dict[TableName, DownstreamOutcome] = {}
    for table in waiting:
        outcome = found.by_table[table].outcome
        if outcome <= told.get(table, DownstreamOutcome.KEPT):
            continue
        told[table] = outcome
        for reader in walk.context.bindings.readers(table):
            if _decide_reader(walk, reader, table, outcome):
                waiting.append(reader)
                waiting += _take_set(walk, reader)


def _decide_reader(walk: DeployWalk, child: TableName, parent: TableName, outcome: DownstreamOutcome) -> bool:
    """Decide about a reader, given a parent's outcome; return True if the reader's outcome becomes more severe."""
    known = walk.found.by_table.get(child)
    if not walk.may_touch(child) or (known is not None and known.action is Action.START):
        return False
    wanted, evidence = _of_child(walk, child, parent, outcome)
    if wanted is None:
        return False
    before = known.outcome if known is not None else DownstreamOutcome.KEPT
    stays = (
        known is not None and known.lowered and known.strategy == Strategy.IN_PLACE and wanted.action is Action.REBUILD
    )
    if known is None or stays or _severity(wanted) > _severity(known):
        walk.found.put(
            child, with_chosen_strategy(walk, child, replace(wanted, because_of=known.because_of if known else ()))
        )
    walk.found.add_cause(child, parent, evidence)
    return walk.found.by_table[child].outcome > before


def _severity(decision: TableDecision) -> int:
    return _SEVERITY.get(decision.default.action, 0)


def _of_child(
    walk: DeployWalk, child: TableName, parent: TableName, outcome: DownstreamOutcome
) -> tuple[TableDecision | None, Evidence | None]:
    """Return the decision that a parent's outcome requires for a reader, and the evidence for it.

    The decision is None if the outcome requires none.
    """
    declared = walk.context.declared.tables.get(child)
    assert declared is not None and declared.parsed is not None
    stateful = declared.parsed.stateful
    if outcome is DownstreamOutcome.GROWN:
        return _of_altered(walk, child, parent, stateful=stateful)
    if outcome is DownstreamOutcome.REWRITTEN:
        seen = Notice.PARENT_REWRITTEN.of(parent=parent)
        return _recreated(walk, child, Reason.PARENT_REWRITTEN) if stateful else None, seen
    if not any(b.parent == parent and b.streamed for b in walk.context.bindings.of(child)):
        return _restarted(walk, child, Reason.STATIC_PARENT_REBUILT), Notice.STATIC_RECREATED.of(parent=parent)
    named = all(read.source_name for read in declared.parsed.reads if read.streaming)
    if outcome is DownstreamOutcome.CHAINED and (named or not stateful):
        return _restarted(walk, child, Reason.PARENT_CHAINED), Notice.PARENT_CONTINUES.of(parent=parent)
    return _recreated(walk, child, Reason.PARENT_REBUILT), Notice.PARENT_RECREATED.of(parent=parent)


def _recreated(walk: DeployWalk, child: TableName, reason: Reason) -> TableDecision:
    """Return the decision about a reader whose parent is re-created.

    If the reader's own change also requires a rebuild, this change is the reason for the decision.
    """
    change = walk.context.changes.of(child)
    own = change.action is Action.REBUILD and reason is Reason.PARENT_REBUILT
    return TableDecision(Action.REBUILD, rebuild_reason(change) if own else reason, change)


def _restarted(walk: DeployWalk, child: TableName, reason: Reason) -> TableDecision:
    change = walk.context.changes.of(child)
    if change.action is Action.REBUILD:
        return TableDecision(Action.REBUILD, rebuild_reason(change), change)
    seen = walk.context.observed.deployment(child)
    if not seen.checkpoint_ok:
        lost = checkpoint_lost_change(seen, change, Action.REBUILD)
        return TableDecision(Action.REBUILD, Reason.CHECKPOINT_LOST, lost)
    if change.action is not Action.RESTART:
        kind = ChangeKind.STATIC_SIDE if reason is Reason.STATIC_PARENT_REBUILT else ChangeKind.NONE
        change = replace(change, kind=kind, action=Action.RESTART)
    return TableDecision(
        Action.RESTART, reason, change, chosen_strategy=Strategy.SEAM if reason is Reason.PARENT_CHAINED else ""
    )


def _of_altered(
    walk: DeployWalk, child: TableName, parent: TableName, *, stateful: bool
) -> tuple[TableDecision | None, Evidence | None]:
    if stateful and (star := _stars_of_added(walk, child, parent)) is not None:
        change = walk.context.changes.of(child)
        state = replace(change, kind=ChangeKind.STATE_CHANGED, action=Action.REBUILD)
        return TableDecision(Action.REBUILD, Reason.COLUMNS_IN_STATE, state), Notice.STATE_WOULD_HOLD.of(use=star)
    use = None if is_at_rest(walk, child) else _use_of_added(walk, child, parent)
    if use is not None:
        return _decide_user_of_changed_column(walk, child, stateful=stateful), use
    use = use_of_wider_types(walk, child, parent)
    if use is not None and stateful:
        change = walk.context.changes.of(child)
        state = replace(change, kind=ChangeKind.STATE_CHANGED, action=Action.REBUILD)
        return TableDecision(Action.REBUILD, Reason.TYPES_IN_STATE, state), Notice.STATE_HOLDS_OLD_TYPE.of(use=use)
    if use is not None and walk.context.changes.of(child).action in (Action.RESTART, Action.REBUILD):
        return _decide_user_of_changed_column(walk, child, stateful=stateful), use
    if alter_ends_query_of(walk, child, parent):
        return _paused(walk, child, parent), notice_of_ended_readers(walk.context, parent)
    return None, None


def _decide_user_of_changed_column(walk: DeployWalk, child: TableName, *, stateful: bool) -> TableDecision | None:
    change = walk.context.changes.of(child)
    if change.action in (Action.RESTART, Action.REBUILD):
        safe = walk.context.observed.deployment(child).checkpoint_ok
        return decide_table(walk, child) if safe else _restarted(walk, child, Reason.COLUMNS_ABOVE)
    if stateful:
        evidence = (*change.evidence, Notice.STATE_TAKES_COLUMN.of())
        return TableDecision(
            Action.REBUILD, Reason.STATE_CHANGED, Change(ChangeKind.STATE_CHANGED, Action.REBUILD, evidence)
        )
    return _restarted(walk, child, Reason.COLUMNS_ABOVE)


def _paused(walk: DeployWalk, child: TableName, parent: TableName) -> TableDecision:
    """Return the decision to resume a reader that only has to stop while its parent is altered.

    The reader's own new SQL is included only if it was requested and only has to be recorded.
    """
    known = walk.found.by_table.get(child)
    recorded = known is not None and known.action is Action.RECORD
    change = known.change if known and recorded else Change(ChangeKind.NONE, Action.RESUME)
    widened = walk.context.changes.of(parent).kind is ChangeKind.COLUMN_WIDENED
    reason = Reason.TYPES_STOP_READERS if widened else Reason.COLUMNS_STOP_READERS
    return resume_safely(walk, child, TableDecision(Action.RESUME, reason, change))


def _use_of_added(walk: DeployWalk, child: TableName, parent: TableName) -> Fact[Notice] | None:
    declared = walk.context.declared.tables.get(child)
    assert declared is not None and declared.parsed is not None
    added = walk.context.changes.added_columns(parent)
    if added and any(column.expression.endswith("*") for column in declared.parsed.columns):
        return Notice.STAR_GAINS.of(parent=parent, columns=added)
    for column in added:
        if not re.search(rf"\b{re.escape(column)}\b", declared.parsed.select, re.I):
            continue
        place = column_reference_lines(column, parent, declared, walk.context.declared.tables)
        if place:
            return Notice.READS_ADDED.of(parent=parent, column=column, place=place)
    return None


def _stars_of_added(walk: DeployWalk, child: TableName, parent: TableName) -> Fact[Notice] | None:
    """Return a notice of the parent's added columns if a star in the reader includes them at any level.

    Returns None otherwise.
    """
    declared = walk.context.declared.tables.get(child)
    assert declared is not None and declared.parsed is not None
    added = walk.context.changes.added_columns(parent)
    return Notice.STAR_GAINS.of(parent=parent, columns=added) if added and selects_star(declared.parsed) else None


def _take_set(walk: DeployWalk, table: TableName) -> list[TableName]:
    """Extend a rebuild to the table's whole statement set, whose tables swap together; return the added tables."""
    decision = walk.found.by_table[table]
    if decision.action is not Action.REBUILD:
        return []
    taken = []
    for other in walk.context.declared.statement_set(table):
        known = walk.found.by_table.get(other)
        if other == table or not walk.context.observed.is_deployed(other):
            continue
        if known is not None and known.action in (Action.REBUILD, Action.START):
            continue
        if other in walk.scope.excluded:
            walk.found.refuse(other, PlanRefusalKind.SET_HALF_EXCLUDED.of(other=table))
            continue
        walk.found.put(other, _with_set(walk, other, known))
        walk.found.add_cause(other, table, Notice.WITH_ITS_SET.of(table=table))
        taken.append(other)
    return taken


def _with_set(walk: DeployWalk, table: TableName, known: TableDecision | None) -> TableDecision:
    change = walk.context.changes.of(table)
    decision = TableDecision(Action.REBUILD, Reason.WITH_ITS_SET, change, known.because_of if known else ())
    found = with_chosen_strategy(walk, table, decision)
    return found if found.action is Action.REBUILD else decision


def decide_upstream(walk: DeployWalk, table: TableName) -> None:
    """Decide about the tables upstream of a planned table, and start those on which the table depends.

    A paused reader does not start any table.
    """
    found = walk.found
    if found.by_table[table].reason in STOPPED_MEANWHILE:
        return
    waiting = [table]
    while waiting:
        child = waiting.pop()
        for parent in reversed(_parents(walk, child)):
            if parent in found.by_table:
                if _resume_parent(walk, parent, child):
                    waiting.append(parent)
                _add_cause(walk, parent, child)
            elif _decide_parent(walk, parent, child):
                waiting.append(parent)


def _parents(walk: DeployWalk, table: TableName) -> tuple[TableName, ...]:
    action = walk.found.by_table[table].action
    if action in (Action.START, Action.REBUILD):
        return tuple(edge.parent for edge in walk.context.declared.graph.parents(table))
    names = {binding.parent for binding in walk.context.bindings.of(table)}
    if action is Action.RESTART:
        names |= {edge.parent for edge in walk.context.declared.graph.parents(table)}
    return tuple(sorted(names))


def _resume_parent(walk: DeployWalk, parent: TableName, child: TableName) -> bool:
    """Resume a stopped parent for a starting reader; return True if the walk continues upstream of the parent."""
    known = walk.found.by_table[parent]
    begins = walk.found.by_table[child].action in BEGINS
    if not begins or known.action not in (Action.KEEP, Action.RECORD) or not is_at_rest(walk, parent):
        return False
    if not walk.context.observed.deployment(parent).checkpoint_ok and known.change.kind is ChangeKind.CHECKPOINT_LOST:
        return False
    resumed = TableDecision(Action.RESUME, Reason.COLD_PARENT, known.change, (child,))
    walk.found.put(parent, resume_safely(walk, parent, resumed))
    return True


def _add_cause(walk: DeployWalk, parent: TableName, child: TableName) -> None:
    known = walk.found.by_table[parent]
    if known.reason in (Reason.COLD_PARENT, Reason.REGISTERED) and parent not in walk.scope.requested:
        walk.found.add_cause(parent, child)


def _decide_parent(walk: DeployWalk, parent: TableName, child: TableName) -> bool:
    """Decide about a parent that was not requested; return True if the walk continues upstream of the parent."""
    context, found = walk.context, walk.found
    if parent in walk.scope.excluded:
        _decide_excluded_parent(walk, parent, child)
        return False
    if context.observed.is_external(parent):
        found.put(parent, decide_external(walk, parent, (child,)))
        return False
    declared = context.declared.tables.get(parent)
    if not context.observed.is_deployed(parent):
        if declared is None:
            found.refuse(child, PlanRefusalKind.PARENT_UNKNOWN.of(parent=parent))
            return False
        begun = TableDecision(Action.START, Reason.COLD_PARENT, context.changes.first_start(parent), (child,))
        found.put(parent, with_chosen_strategy(walk, parent, begun))
        return True
    if declared is not None and may_start_anew(context, parent):
        found.put(parent, start_anew(context.observed, parent, Reason.COLD_PARENT, (child,)))
        return True
    change = context.changes.of(parent) if declared is not None else Change(ChangeKind.NONE, Action.KEEP)
    if change.action is not Action.KEEP:
        found.warn(parent, _not_requested(change))
    if context.observed.is_running(parent):
        found.put(parent, TableDecision(Action.KEEP, Reason.SERVES, Change(ChangeKind.NONE, Action.KEEP)))
        return False
    decision = TableDecision(Action.RESUME, Reason.COLD_PARENT, Change(ChangeKind.NONE, Action.RESUME), (child,))
    found.put(parent, resume_safely(walk, parent, decision))
    return True


def _not_requested(change: Change) -> Fact[PlanWarningKind]:
    if change.kind.definition.is_of_the_environment:
        return PlanWarningKind.ENVIRONMENT_CHANGED.of(change=change.kind.definition.reason.clause)
    return PlanWarningKind.CHANGED_ON_DISK.of()


def _decide_excluded_parent(walk: DeployWalk, parent: TableName, child: TableName) -> None:
    context = walk.context
    if context.observed.is_running(parent) or (
        context.observed.is_external(parent) and is_in_catalog(context.observed, context.bindings, parent)
    ):
        return
    if context.observed.is_deployed(parent):
        state = context.observed.deployment(parent).state
        walk.found.warn(child, PlanWarningKind.PARENT_EXCLUDED.of(parent=parent, state=state))
        return
    walk.found.refuse(child, PlanRefusalKind.NOTHING_TO_READ.of(parent=parent))
