"""The decision about a single table, based on its own change, state, checkpoint and bindings."""

from dataclasses import replace

from core.changes.classification import Change
from core.changes.kinds import ChangeKind
from core.model.actions import Action
from core.model.evidence import Notice
from core.model.names import TableName, physical_name
from core.model.reasons import Reason
from core.model.states import ALIVE, State, WantedState
from core.model.table_formats import table_format
from core.observed.planner_input import ObservedDeployment
from core.observed.versions import Binding
from core.plan.descriptions import evidence_words
from core.planner.allowed_strategies import REBUILDS
from core.planner.context import ObservedTables, PlanningContext, TableBindings
from core.planner.decision_model import DeployWalk, TableDecision
from core.planner.warning_and_refusal_kinds import PlanRefusalKind, PlanWarningKind


def decide_table(walk: DeployWalk, table: TableName, because_of: tuple[TableName, ...] = ()) -> TableDecision | None:
    """Return the decision about a table that was requested, or that is in the plan because of its own change.

    Returns None, after recording a refusal, if the table is not declared.
    """
    context = walk.context
    if context.declared.tables.get(table) is None:
        walk.found.refuse(table, PlanRefusalKind.NOT_DECLARED.of())
        return None
    if context.observed.is_external(table):
        return decide_external(walk, table, because_of)
    if context.observed.was_external(table):
        walk.found.refuse(table, PlanRefusalKind.WAS_EXTERNAL.of())
        return None
    if not context.observed.is_deployed(table):
        return TableDecision(Action.START, Reason.NEW, context.changes.first_start(table), because_of)
    decision = replace(_of_deployed(walk, table), because_of=because_of)
    if decision.action is Action.REBUILD and not decision.change.classified:
        walk.found.warn(table, PlanWarningKind.CHANGE_UNKNOWN.of(evidence=evidence_words(decision.change.evidence[0])))
    return decision


def may_start_anew(context: PlanningContext, table: TableName) -> bool:
    """True if the plan may replace the only version of a declared table with a new one instead of changing it.

    The existing version must differ in SQL or YAML, must never have run, and must have no readers.
    """
    if context.observed.deployment(table).begun or not context.observed.is_deployed(table):
        return False
    return not context.bindings.readers(table) and context.changes.of(table).action in (Action.RESTART, Action.REBUILD)


def is_in_catalog(observed: ObservedTables, bindings: TableBindings, table: TableName) -> bool:
    """True if an external table is in the catalog: either it was observed there, or a deployed statement reads it."""
    return observed.is_deployed(table) or bool(bindings.readers(table))


def start_anew(
    observed: ObservedTables, table: TableName, reason: Reason, because_of: tuple[TableName, ...]
) -> TableDecision:
    """Return the decision to start a new version of a table whose only version never ran."""
    evidence = (Notice.NEVER_RAN.of(version=observed.deployment(table).version),)
    return TableDecision(Action.START, reason, Change(ChangeKind.NONE, Action.START, evidence), because_of)


def is_at_rest(walk: DeployWalk, table: TableName) -> bool:
    """True if an operator stopped a table and the request does not name it.

    Such a table is started only if a reader needs it.
    """
    seen = walk.context.observed.deployment(table)
    return seen.state == State.STOPPED and seen.wanted == WantedState.STOPPED and table not in walk.scope.named


def alter_ends_query_of(walk: DeployWalk, child: TableName, parent: TableName) -> bool:
    """True if Spark ends a reader's running query when the parent is altered.

    An added column ends queries that stream the table; a wider type also ends queries that join it as a static side.
    False for an external table, which was altered before the plan was made.
    """
    above = walk.context.declared.tables.get(parent)
    if above is None or above.external or not table_format(above.parsed_ddl.format).added_column_stops_readers:
        return False
    widened = walk.context.changes.of(parent).kind is ChangeKind.COLUMN_WIDENED
    reads = any(b.parent == parent and (b.streamed or widened) for b in walk.context.bindings.of(child))
    return reads and walk.context.observed.deployment(child).state in ALIVE


def resume_safely(walk: DeployWalk, table: TableName, decision: TableDecision) -> TableDecision:
    """Return `decision` if the statement can continue from its checkpoint; otherwise refuse, and keep the table.

    The checkpoint must be intact, and all parents to which it is bound must still be deployed.
    """
    deleted = [
        b
        for b in stale_bindings(walk.context.observed, walk.context.bindings, table)
        if not walk.context.observed.is_deployed(b.parent)
    ]
    if walk.context.observed.deployment(table).checkpoint_ok and not deleted:
        return decision
    if deleted:
        names = tuple(physical_name(binding.parent, binding.version) for binding in deleted)
        walk.found.refuse(table, PlanRefusalKind.READS_DELETED.of(versions=names))
        return TableDecision(Action.KEEP, decision.reason, replace(decision.change, action=Action.KEEP))
    seen = walk.context.observed.deployment(table)
    walk.found.refuse(table, PlanRefusalKind.CANNOT_RESUME.of(why=seen.why_lost))
    return TableDecision(
        Action.KEEP,
        Reason.CHECKPOINT_LOST,
        checkpoint_lost_change(seen, decision.change, Action.KEEP),
        decision.because_of,
    )


def checkpoint_lost_change(seen: ObservedDeployment, change: Change, action: Action) -> Change:
    """Return a CHECKPOINT_LOST change, whose evidence is a notice of the loss, followed by the evidence of `change`."""
    return Change(ChangeKind.CHECKPOINT_LOST, action, (Notice.LOST.of(what=seen.why_lost), *change.evidence))


def rebuild_as_asked(
    walk: DeployWalk, table: TableName, change: Change, because_of: tuple[TableName, ...] = ()
) -> TableDecision:
    """Return the decision to rebuild a deployed table because the request demands it, even if nothing has changed."""
    seen = walk.context.observed.deployment(table)
    if seen.checkpoint_ok:
        return TableDecision(Action.REBUILD, Reason.ASKED, change, because_of)
    return TableDecision(
        Action.REBUILD, Reason.CHECKPOINT_LOST, checkpoint_lost_change(seen, change, Action.REBUILD), because_of
    )


def rebuild_reason(change: Change) -> Reason:
    """Return why the table's own change requires a rebuild; UNPROVEN if the change is unknown."""
    return change.kind.definition.reason if change.classified else Reason.UNPROVEN


def stale_bindings(observed: ObservedTables, bindings: TableBindings, table: TableName) -> tuple[Binding, ...]:
    """Return a table's bindings to parent versions that do not serve."""
    return tuple(
        binding
        for binding in bindings.of(table)
        if binding.version and binding.version != observed.serving_version(binding.parent)
    )


def _of_deployed(walk: DeployWalk, table: TableName) -> TableDecision:
    context, change = walk.context, walk.context.changes.of(table)
    if may_start_anew(context, table):
        return start_anew(context.observed, table, Reason.NEW, ())
    if change.action is Action.REBUILD:
        return TableDecision(Action.REBUILD, rebuild_reason(change), change)
    choice = walk.choices.get(table)
    if (walk.scope.request.rebuild and table in walk.scope.requested) or (
        choice is not None and choice.strategy in REBUILDS
    ):
        return rebuild_as_asked(walk, table, change)
    stale = stale_bindings(context.observed, context.bindings, table)
    if stale:
        return _of_stale(walk, table, change, stale)
    if change.action is Action.RESTART:
        return resume_safely(walk, table, TableDecision(Action.RESTART, change.kind.definition.reason, change))
    if is_at_rest(walk, table):
        return TableDecision(change.action, _reason(change, Reason.AT_REST), change)
    if not context.observed.is_running(table):
        reason = _reason(change, Reason.DORMANT)
        return resume_safely(walk, table, TableDecision(Action.RESUME, reason, change))
    if change.action is Action.RECORD:
        return TableDecision(Action.RECORD, change.kind.definition.reason, change)
    if why := context.observed.deployment(table).why_lost:
        walk.found.warn(table, PlanWarningKind.CANNOT_RESTART.of(why=why))
    return TableDecision(Action.KEEP, _reason(change, Reason.UNCHANGED), change)


def _reason(change: Change, unchanged: Reason) -> Reason:
    return unchanged if change.kind is ChangeKind.NONE else change.kind.definition.reason


def _of_stale(walk: DeployWalk, table: TableName, change: Change, stale: tuple[Binding, ...]) -> TableDecision:
    """Return the decision about a table that reads parent versions which do not serve.

    The table is rebuilt if it streams from such a version or has lost its checkpoint. Otherwise, it is restarted. In
    both cases, the table is bound to the serving versions.
    """
    serving = walk.context.observed.serving_version
    evidence = tuple(
        Notice.READS_OLD.of(version=physical_name(b.parent, b.version), parent=b.parent, serving=serving(b.parent))
        for b in stale
    )
    seen = replace(change, evidence=(*change.evidence, *evidence))
    if any(binding.streamed for binding in stale):
        return TableDecision(Action.REBUILD, Reason.READS_OLD_VERSION, seen)
    deployment = walk.context.observed.deployment(table)
    if not deployment.checkpoint_ok:
        lost = checkpoint_lost_change(deployment, seen, Action.REBUILD)
        return TableDecision(Action.REBUILD, Reason.CHECKPOINT_LOST, lost)
    kind = change.kind if change.action is Action.RESTART else ChangeKind.STATIC_SIDE
    return TableDecision(Action.RESTART, Reason.READS_OLD_VERSION, replace(seen, kind=kind, action=Action.RESTART))


def decide_external(walk: DeployWalk, table: TableName, because_of: tuple[TableName, ...]) -> TableDecision:
    """Return the decision about an external table; a plan can only register its declaration or added columns.

    Any other change causes a refusal if the table was requested; otherwise, it causes a warning.
    """
    context = walk.context
    if not context.observed.is_deployed(table):
        if is_in_catalog(context.observed, context.bindings, table):
            return TableDecision(Action.KEEP, Reason.LANDS, Change(ChangeKind.NONE, Action.KEEP), because_of)
        return TableDecision(Action.START, Reason.REGISTERED, Change(ChangeKind.NONE, Action.START), because_of)
    change = context.changes.of(table)
    if change.kind.definition.same_statement:
        return TableDecision(change.action, _reason(change, Reason.LANDS), change, because_of)
    if _is_declared_anew(context, table):
        _warn_of_old_options(walk, table)
        return TableDecision(Action.RESTART, Reason.DECLARED_ANEW, change, because_of)
    if change.kind is ChangeKind.COLUMN_ADDED:
        return TableDecision(Action.RESTART, Reason.COLUMNS_ADDED, change, because_of)
    edits = ", ".join(map(evidence_words, change.evidence))
    if table in walk.scope.requested:
        walk.found.refuse(table, PlanRefusalKind.EXTERNAL_CHANGED.of(edits=edits or "the edit is unknown"))
    else:
        walk.found.warn(table, PlanWarningKind.EXTERNAL_CHANGED.of(edits=edits))
    return TableDecision(Action.KEEP, Reason.LANDS, change, because_of)


def _warn_of_old_options(walk: DeployWalk, table: TableName) -> None:
    context = walk.context
    format = table_format(context.declared.tables[table].parsed_ddl.format)
    if not format.has_files:
        readers = tuple(
            name for name in context.bindings.readers(table) if context.observed.deployment(name).state in ALIVE
        )
        if readers:
            walk.found.warn(table, PlanWarningKind.OPTIONS_LATER.of(readers=readers))


def _is_declared_anew(context: PlanningContext, table: TableName) -> bool:
    """True if a changed declaration of an external table still refers to the same log, topics or database table.

    The REGISTER step then compares the columns with the log or publication and, if the brokers differ, also compares
    the ids of the topics.
    """
    old = context.revisions.deployed(table)
    new = context.declared.tables[table].parsed_ddl
    if old is not None and table_format(new.format).topics and old.ddl.format == new.format:
        from core.sql.kafka_topics import has_same_messages

        return has_same_messages(old.ddl, new)
    format = table_format(new.format)
    if old is None or not (format.transaction_log or format.changes or format.database):
        return False
    return (old.ddl.format, old.ddl.location) == (new.format, new.location)
