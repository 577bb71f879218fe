"""Upwards from what is decided: depth-first to the first tables that really run, and no further."""

from core.changes.classification import Change
from core.changes.kinds import ChangeKind
from core.model.actions import Action
from core.model.names import TableName
from core.model.reasons import Reason
from core.planning.decisions import BEGINS, DeployWalk, TableDecision
from core.planning.operator_choices import with_chosen_strategy
from core.planning.requested_tables import (
    decide_external,
    is_at_rest,
    is_in_catalog,
    may_start_anew,
    resume_safely,
    start_anew,
)


def decide_upstream(walk: DeployWalk, table: TableName) -> None:
    """Start what a decided table needs."""
    found = walk.found
    waiting = [table]
    while waiting:
        child = waiting.pop()
        for parent in reversed(_parents(walk, child)):
            if parent in found.by_table:
                if _wake(walk, parent, child):
                    waiting.append(parent)
                _add_cause(walk, parent, child)
            elif _meet(walk, parent, child):
                waiting.append(parent)


def _parents(walk: DeployWalk, table: TableName) -> tuple[TableName, ...]:
    """Return the parents that matter after the plan: declared ones where the new texts will run."""
    action = walk.found.by_table[table].action
    if action in (Action.START, Action.REBUILD):
        return tuple(edge.parent for edge in walk.context.declared.graph.parents(table))
    names = {binding.parent for binding in walk.context.bindings.of(table)}
    if action is Action.RESTART:
        names |= {edge.parent for edge in walk.context.declared.graph.parents(table)}
    return tuple(sorted(names))


def _wake(walk: DeployWalk, parent: TableName, child: TableName) -> bool:
    """Start a table that was at rest, because one that begins reads it."""
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
    if known.reason in (Reason.COLD_PARENT, Reason.REGISTERED) and parent not in walk.scope.members:
        walk.found.blame(parent, child)


def _meet(walk: DeployWalk, parent: TableName, child: TableName) -> bool:
    """Decide a parent that nothing asked for; True when the walk goes on above it."""
    context, found = walk.context, walk.found
    if parent in walk.scope.excluded:
        _meet_excluded(walk, parent, child)
        return False
    if context.observed.is_external(parent):
        found.put(parent, decide_external(walk, parent, (child,)))
        return False
    declared = context.declared.tables.get(parent)
    if not context.observed.is_deployed(parent):
        if declared is None:
            found.refuse(child, f"{child} reads {parent}, which is neither declared nor deployed", f"declare {parent}")
            return False
        begun = TableDecision(Action.START, Reason.COLD_PARENT, context.changes.first_start(parent), (child,))
        found.put(parent, with_chosen_strategy(walk, parent, begun))
        return True
    if declared is not None and may_start_anew(context, parent):
        found.put(parent, start_anew(context.observed, parent, Reason.COLD_PARENT, (child,)))
        return True
    change = context.changes.of(parent) if declared is not None else Change(ChangeKind.NONE, Action.KEEP)
    if change.action is not Action.KEEP:
        what = change.kind.facts.reason if change.kind.facts.is_of_the_environment else "changed on disk"
        found.warn(parent, f"{what} but is not part of the request: it stays on its deployed revision")
    if context.observed.is_running(parent):
        found.put(parent, TableDecision(Action.KEEP, Reason.SERVES, Change(ChangeKind.NONE, Action.KEEP)))
        return False
    decision = TableDecision(Action.RESUME, Reason.COLD_PARENT, Change(ChangeKind.NONE, Action.RESUME), (child,))
    found.put(parent, resume_safely(walk, parent, decision))
    return True


def _meet_excluded(walk: DeployWalk, parent: TableName, child: TableName) -> None:
    context = walk.context
    if context.observed.is_running(parent) or (
        context.observed.is_external(parent) and is_in_catalog(context.observed, context.bindings, parent)
    ):
        return
    if context.observed.is_deployed(parent):
        walk.found.warn(
            child, f"lacks its upstream table: {parent} is excluded and {context.observed.deployment(parent).state}"
        )
        return
    walk.found.refuse(
        child,
        f"{child} has nothing to read: {parent} is excluded and not deployed",
        f"leave {parent} in, or exclude {child} too",
    )
