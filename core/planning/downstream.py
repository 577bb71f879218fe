"""Downwards from what is decided: each table meets the most severe outcome of its parents.

Breadth-first, and a table is visited again only for a more severe outcome, so that the cost is linear in the edges.
"""

import re
from dataclasses import replace

from core.changes.classification import Change
from core.changes.kinds import ChangeKind
from core.lineage.column_usage import column_reference_lines
from core.model.actions import Action, Strategy
from core.model.names import TableName
from core.model.reasons import Reason
from core.planning.decisions import DeployWalk, DownstreamOutcome, TableDecision
from core.planning.operator_choices import with_chosen_strategy
from core.planning.requested_tables import checkpoint_lost_change, decide_table, is_at_rest, rebuild_reason

_SEVERITY = {Action.RESTART: 1, Action.REBUILD: 2, Action.START: 3}
"""How much is done to a table; one that starts reads the newest versions of all its parents anyway."""


def decide_downstream(walk: DeployWalk) -> None:
    """Take along what reads a table that is not what it was; what is out of scope is left alone."""
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
            if _reach(walk, reader, table, outcome):
                waiting.append(reader)
                waiting += _take_set(walk, reader)


def _reach(walk: DeployWalk, child: TableName, parent: TableName, outcome: DownstreamOutcome) -> bool:
    """Decide one reader of a table with an outcome; True when its own readers must hear of it."""
    known = walk.found.by_table.get(child)
    if not walk.may_touch(child) or (known is not None and known.action is Action.START):
        return False
    wanted, evidence = _of_child(walk, child, parent, outcome)
    if wanted is None:
        return False
    before = known.outcome if known is not None else DownstreamOutcome.KEPT
    stays = known is not None and known.lowered and known.by == Strategy.IN_PLACE and wanted.action is Action.REBUILD
    if known is None or stays or _severity(wanted) > _severity(known):
        walk.found.put(
            child, with_chosen_strategy(walk, child, replace(wanted, because_of=known.because_of if known else ()))
        )
    walk.found.blame(child, parent, evidence)
    return walk.found.by_table[child].outcome > before


def _severity(decision: TableDecision) -> int:
    return _SEVERITY.get(decision.default.action, 0)


def _of_child(
    walk: DeployWalk, child: TableName, parent: TableName, outcome: DownstreamOutcome
) -> tuple[TableDecision | None, str]:
    """Return what one parent's outcome asks of a reader, with what was seen there; None is nothing."""
    declared = walk.context.declared.tables.get(child)
    assert declared is not None and declared.facts is not None
    stateful = declared.facts.stateful
    if outcome is DownstreamOutcome.GROWN:
        words = "" if is_at_rest(walk, child) else _use_of_added(walk, child, parent)
        return _of_grown(walk, child, stateful=stateful) if words else None, words
    if outcome is DownstreamOutcome.REWRITTEN:
        words = f"upstream {parent} is rewritten"
        return _recreated(walk, child, Reason.PARENT_REWRITTEN) if stateful else None, words
    if not any(b.parent == parent and b.streamed for b in walk.context.bindings.of(child)):
        return _restarted(walk, child, Reason.STATIC_PARENT_REBUILT), f"static side {parent} is re-created"
    named = all(read.source_name for read in declared.facts.reads if read.streaming)
    if outcome is DownstreamOutcome.CHAINED and (named or not stateful):
        return _restarted(walk, child, Reason.PARENT_CHAINED), f"upstream {parent} continues in a new version"
    return _recreated(walk, child, Reason.PARENT_REBUILT), f"upstream {parent} is re-created"


def _recreated(walk: DeployWalk, child: TableName, reason: Reason) -> TableDecision:
    """Rebuild a reader, for its own change where that asks for it as well."""
    change = walk.context.changes.of(child)
    own = change.action is Action.REBUILD and reason is Reason.PARENT_REBUILT
    return TableDecision(Action.REBUILD, rebuild_reason(change) if own else reason, change)


def _restarted(walk: DeployWalk, child: TableName, reason: Reason) -> TableDecision:
    """Restart a reader on its checkpoint, or rebuild it where its own change or the checkpoint asks for that."""
    change = walk.context.changes.of(child)
    if change.action is Action.REBUILD:
        return TableDecision(Action.REBUILD, rebuild_reason(change), change)
    if not walk.context.observed.deployment(child).checkpoint_ok:
        return TableDecision(Action.REBUILD, Reason.CHECKPOINT_LOST, checkpoint_lost_change(change, Action.REBUILD))
    if change.action is not Action.RESTART:
        kind = ChangeKind.STATIC_SIDE if reason is Reason.STATIC_PARENT_REBUILT else ChangeKind.NONE
        change = replace(change, kind=kind, action=Action.RESTART)
    return TableDecision(
        Action.RESTART, reason, change, strategy=Strategy.SEAM if reason is Reason.PARENT_CHAINED else ""
    )


def _of_grown(walk: DeployWalk, child: TableName, *, stateful: bool) -> TableDecision | None:
    """Take along a reader that uses an added column: by its own change, else for what its star takes in."""
    change = walk.context.changes.of(child)
    if change.action in (Action.RESTART, Action.REBUILD):
        safe = walk.context.observed.deployment(child).checkpoint_ok
        return decide_table(walk, child) if safe else _restarted(walk, child, Reason.COLUMNS_ABOVE)
    if stateful:
        evidence = (*change.evidence, "the added column becomes part of its state")
        return TableDecision(
            Action.REBUILD, Reason.STATE_CHANGED, Change(ChangeKind.STATE_CHANGED, Action.REBUILD, evidence)
        )
    return _restarted(walk, child, Reason.COLUMNS_ABOVE)


def _use_of_added(walk: DeployWalk, child: TableName, parent: TableName) -> str:
    """Describe how a reader takes in a column that a parent gets; empty where it does not."""
    declared = walk.context.declared.tables.get(child)
    assert declared is not None and declared.facts is not None
    added = walk.context.changes.added_columns(parent)
    if any(column.expression.endswith("*") for column in declared.facts.columns):
        return f"selects * from {parent}, which gains {', '.join(added)}"
    for column in added:
        if not re.search(rf"\b{re.escape(column)}\b", declared.facts.select, re.I):
            continue
        place = column_reference_lines(column, parent, declared, walk.context.declared.tables)
        if place:
            return f"reads the added column {parent}.{column} at {place}"
    return ""


def _take_set(walk: DeployWalk, table: TableName) -> list[TableName]:
    """Rebuild the rest of a statement set with one of its statements: they start, stop and swap together."""
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
            walk.found.refuse(other, f"{other} belongs to one statement set with {table}", "exclude both or neither")
            continue
        walk.found.put(other, _with_set(walk, other, known))
        walk.found.blame(other, table, f"one statement set with {table}")
        taken.append(other)
    return taken


def _with_set(walk: DeployWalk, table: TableName, known: TableDecision | None) -> TableDecision:
    change = walk.context.changes.of(table)
    decision = TableDecision(Action.REBUILD, Reason.WITH_ITS_SET, change, known.because_of if known else ())
    found = with_chosen_strategy(walk, table, decision)
    return found if found.action is Action.REBUILD else decision
