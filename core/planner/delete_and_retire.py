"""Plans that delete tables or retire replaced versions; a version is never removed while anything reads it."""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from shlex import quote

from core.lineage.table_graph import reach
from core.model.actions import Action
from core.model.names import TableName, physical_name, split_physical
from core.model.reasons import Reason
from core.model.states import stays_at_rest
from core.observed.planner_input import ObservedDeployment
from core.observed.versions import Binding
from core.plan.model import PlanNode
from core.planner.context import DeclaredTables, ObservedTables, PlanningContext
from core.planner.decision_model import WarningsAndRefusals
from core.planner.plan_nodes import PlanBody, deleted_node, kept_node, plan_levels
from core.planner.plan_steps import StepBuilder
from core.planner.retired_versions import RetiredVersion, retired_versions
from core.planner.scope import PlanScope
from core.planner.warning_and_refusal_kinds import PlanRefusalKind, PlanWarningKind
from core.sql.statement import describe_log_start, read_log_start


@dataclass(slots=True)
class DeleteDecisions(WarningsAndRefusals):
    """The tables that a delete includes, with the refusals and warnings recorded so far."""

    tables: set[TableName] = field(default_factory=set)


def delete_body(context: PlanningContext, scope: PlanScope) -> PlanBody:
    """Draft a delete: stop statements from sinks to sources, drop the pointers, then move all versions to the trash."""
    found = decide_delete(context, scope)
    versions = {table: context.observed.deployment(table).version for table in found.tables}
    bindings = {table: context.bindings.of(table) for table in found.tables}
    levels = plan_levels(context.declared, bindings, versions, every_version=True)
    order = sorted(found.tables, key=lambda table: (-levels[table], table))
    old = retired_versions(context, deleted=found.tables, bindings_then={}) if found.tables else ()
    nodes = tuple(deleted_node(context, table, levels[table]) for table in order)
    running = {table: _newest_first(context.observed.deployment(table), rest=()) for table in order}
    existing = {table: _existing(context.observed, table) for table in order}
    steps = StepBuilder()
    readers = {table: context.bindings.readers(table) for table in order}
    clones = {table: context.observed.deployment(table).clones for table in order}
    steps.delete(nodes, running, existing, readers, clones)
    for version in old:
        if not version.readers:
            steps.stop(version, context.bindings.readers(version.table), (), why="only deleted tables read it")
            found.warn(version.table, PlanWarningKind.READ_BY_DELETED.of(version=version.version))
    kept = tuple(kept_node(context, t, 0) for t in sorted({v.table for v in old if not v.readers}))
    return PlanBody((*nodes, *kept), steps.all, (), found.refusals, found.warnings)


def _existing(observed: ObservedTables, table: TableName) -> tuple[int, ...]:
    seen = observed.deployment(table)
    return _newest_first(seen, rest=seen.kept)


def _newest_first(seen: ObservedDeployment, *, rest: tuple[int, ...]) -> tuple[int, ...]:
    # Version 0 is that of an external table.
    return tuple(sorted({seen.version, *seen.retained, *rest} - {0}, reverse=True))


def decide_delete(context: PlanningContext, scope: PlanScope) -> DeleteDecisions:
    """Decide which tables a delete includes.

    If a table that the request names has active readers, the request is refused. A table that the request includes
    without naming it is kept if it has readers.
    """
    found = DeleteDecisions()
    named = scope.named
    for table in scope.requested:
        if context.observed.is_external(table):
            if table in named:
                found.refuse(table, PlanRefusalKind.EXTERNAL_NOT_DELETED.of())
            else:
                found.warn(table, PlanWarningKind.EXTERNAL_STAYS.of())
        elif context.observed.is_deployed(table):
            found.tables.add(table)
        elif table in named:
            found.refuse(table, PlanRefusalKind.NOTHING_TO_DELETE.of())
    _take_readers(context, scope, found)
    _keep_what_others_need(context, named, found)
    for table in sorted(found.tables & named):
        _refuse_under_readers(context, table, found)
        _refuse_half_a_set(table, _deployed_set(context, table), found)
    _refuse_under_pointers(context.observed, found)
    _refuse_under_what_runs_on(context.observed, found)
    for table in sorted(found.tables):
        _warn_of_other_versions(context.observed, table, found)
        _warn_of_overlays(context.observed, table, _existing(context.observed, table), found)
        for source in context.declared.streamed_changes(context.bindings.of(table)):
            found.warn(table, PlanWarningKind.SLOT_LEFT.of(source=source))
        declared = context.declared.tables.get(table)
        if declared is not None and (topic := declared.written_topic(context.declared.environment.naming)):
            found.warn(table, PlanWarningKind.TOPIC_STAYS.of(topic=topic))
    return found


def _take_readers(context: PlanningContext, scope: PlanScope, found: DeleteDecisions) -> None:
    waiting = sorted(found.tables - scope.upstream)
    while waiting:
        for reader in context.bindings.readers(waiting.pop()):
            table = context.declared.tables.get(reader)
            if reader not in found.tables and scope.may_touch(reader, table.product if table else ""):
                found.tables.add(reader)
                waiting.append(reader)


def _deployed_set(context: PlanningContext, table: TableName) -> tuple[TableName, ...]:
    return tuple(other for other in context.declared.statement_set(table) if context.observed.is_deployed(other))


def _keep_what_others_need(context: PlanningContext, named: Set[TableName], found: DeleteDecisions) -> None:
    """Keep an unnamed table if a table that is not deleted reads it, or shares a statement set with it."""
    waiting = deque(sorted(table for table in found.tables if table not in named))
    while waiting:
        table = waiting.popleft()
        if table not in found.tables:
            continue
        readers = [reader for reader in context.bindings.readers(table) if reader not in found.tables]
        whole = _deployed_set(context, table)
        rest = [other for other in whole if other not in found.tables]
        if readers:
            by = _with_products(context.declared, readers)
            found.warn(table, PlanWarningKind.STAYS_FOR_READERS.of(readers=by))
        elif rest:
            found.warn(table, PlanWarningKind.STAYS_WITH_SET.of(tables=tuple(rest)))
        else:
            continue
        found.tables.discard(table)
        near = (*(binding.parent for binding in context.bindings.of(table)), *whole)
        waiting.extend(other for other in near if other in found.tables and other not in named)


def _refuse_under_readers(context: PlanningContext, table: TableName, found: DeleteDecisions) -> None:
    live: list[TableName] = []
    resting: list[TableName] = []
    for reader in context.bindings.readers(table):
        if reader in found.tables:
            continue
        seen = context.observed.deployment(reader)
        at_rest = stays_at_rest(seen.state, seen.wanted)
        (resting if at_rest else live).append(reader)
    if live:
        below = {table, *reach((table,), context.bindings.readers)}
        named, together = _with_products(context.declared, live), tuple(sorted(below | found.tables))
        found.refuse(table, PlanRefusalKind.READ_BY.of(readers=named, together=together))
    for reader in resting:
        state = context.observed.deployment(reader).state
        found.warn(reader, PlanWarningKind.WOULD_NOT_RESUME.of(state=state, parent=table))


def _refuse_under_pointers(observed: ObservedTables, found: DeleteDecisions) -> None:
    for other in observed.tables():
        target = split_physical(observed.deployment(other).pointer)
        if target is None or target[0] not in found.tables or other in found.tables:
            continue
        version = observed.deployment(other).pointer
        found.refuse(target[0], PlanRefusalKind.SERVED_BY_POINTER.of(other=other, version=version))


def _refuse_under_what_runs_on(observed: ObservedTables, found: DeleteDecisions) -> None:
    for other in sorted(set(observed.tables()) - found.tables):
        for version, bindings in observed.replaced_versions_kept_running(other):
            for table in sorted({b.parent for b in bindings} & found.tables):
                reader = physical_name(other, version)
                found.refuse(table, PlanRefusalKind.READ_BY_REPLACED.of(reader=reader, other=other))


def _warn_of_other_versions(observed: ObservedTables, table: TableName, found: DeleteDecisions) -> None:
    seen = observed.deployment(table)
    never_served = {orphan.version for orphan in seen.orphan_versions}
    stays, bases = {seen.version}, dict(seen.clones)
    while missing := {bases[version] for version in stays if version in bases} - stays:
        stays |= missing
    kept = tuple(f"v{version}" for version in seen.kept if version not in never_served | stays)
    if kept:
        found.warn(table, PlanWarningKind.DELETED_AS_WELL.of(versions=kept))


def _warn_of_overlays(
    observed: ObservedTables, table: TableName, going: Collection[int], found: WarningsAndRefusals
) -> None:
    """Warn of each overlay that reads a version that the plan removes."""
    for overlay, version in observed.deployment(table).overlays:
        if version in going:
            name = physical_name(table, version)
            found.warn(table, PlanWarningKind.READ_BY_OVERLAY.of(overlay=overlay, version=name))


def _refuse_half_a_set(table: TableName, whole: tuple[TableName, ...], found: DeleteDecisions) -> None:
    rest = tuple(other for other in whole if other not in found.tables)
    if rest:
        together = tuple(sorted([table, *rest]))
        found.refuse(table, PlanRefusalKind.SET_HALF_DELETED.of(tables=rest, together=together))


def _with_products(declared: DeclaredTables, readers: Iterable[TableName]) -> tuple[str, ...]:
    words = []
    for reader in readers:
        table = declared.tables.get(reader)
        words.append(f"{reader} ({table.product})" if table is not None and table.product else str(reader))
    return tuple(words)


@dataclass(slots=True)
class ReplacedVersions(WarningsAndRefusals):
    """The replaced versions to retire, with the refusals and warnings recorded so far."""

    by_table: dict[TableName, tuple[int, ...]] = field(default_factory=dict)
    """Versions to retire by table, latest first."""


def retire_body(context: PlanningContext, scope: PlanScope) -> PlanBody:
    """Draft a plan that retires every replaced version, each after the versions that read it.

    Versions that still run are stopped. Then files and checkpoints move to the trash, where they remain until they are
    purged. The plan is refused while anything reads one of the versions. Clones that never served are retired as well,
    because the files of a clone's origin cannot be removed while the clone exists.
    """
    found = ReplacedVersions()
    for table in scope.requested:
        _take_replaced(context.observed, table, found)
    for table in found.by_table:
        _refuse_retiring_under_readers(context, table, found)
        _refuse_under_clones(context.observed, table, found)
        _warn_of_overlays(context.observed, table, found.by_table[table], found)
    serving = {table: context.observed.deployment(table).version for table in found.by_table}
    bindings = {table: context.bindings.of(table) for table in found.by_table}
    levels = plan_levels(context.declared, bindings, serving, every_version=True)
    order = sorted(found.by_table, key=lambda table: (-levels[table], table))
    nodes = tuple(_retired_node(context, table, found.by_table[table], levels[table]) for table in order)
    steps = _retire_steps(context, order, found.by_table)
    for table in order:
        if context.observed.deployment(table).former is not None:
            found.warn(table, PlanWarningKind.NO_ROLLBACK_LEFT.of())
        seen = context.observed.deployment(table)
        begins = [
            f"with {describe_log_start(each)}" if read_log_start(each) else f"WHERE {each}"
            for each in seen.begins_where
        ]
        begins += [f"after {seen.begins_after}"] if seen.begins_after else []
        if begins and not seen.rows_before:
            where = " and ".join(begins)
            found.warn(table, PlanWarningKind.EARLIER_ROWS_RETIRED.of(version=seen.version, where=where))
    return PlanBody(nodes, steps.all, (), found.refusals, found.warnings)


def _take_replaced(observed: ObservedTables, table: TableName, found: ReplacedVersions) -> None:
    seen = observed.deployment(table)
    # A clone keeps the files of another version, so it is retired although it never served.
    orphans = {orphan.version for orphan in seen.orphan_versions} - {clone for clone, _ in seen.clones}
    replaced = tuple(sorted({*seen.kept} - orphans - {0}, reverse=True))
    if not observed.is_deployed(table):
        found.refuse(table, PlanRefusalKind.NOT_DEPLOYED.of())
    elif observed.is_external(table):
        found.refuse(table, PlanRefusalKind.EXTERNAL.of())
    elif not seen.pointer or not replaced:
        found.refuse(table, PlanRefusalKind.NOTHING_REPLACED.of())
    else:
        found.by_table[table] = replaced


def _refuse_retiring_under_readers(context: PlanningContext, table: TableName, found: ReplacedVersions) -> None:
    observed = context.observed
    going = {(table, version): physical_name(table, version) for version in found.by_table[table]}
    for reader in context.bindings.readers(table):
        named = _with_products(context.declared, (reader,))
        for reads in _names_read(context.bindings.of(reader), going):
            found.refuse(table, PlanRefusalKind.RETIRED_IS_READ.of(name=reads, named=named, reader=reader))
    for other in observed.tables():
        stays = [
            one for one in observed.replaced_versions_kept_running(other) if one[0] not in found.by_table.get(other, ())
        ]
        for version, bindings in stays:
            for reads in _names_read(bindings, going):
                name = physical_name(other, version)
                kind = PlanRefusalKind.RETIRED_IS_READ_BY_VERSION
                found.refuse(table, kind.of(name=reads, reader=name, other=other))
        former = observed.deployment(other).former
        if former is not None and not former.running and former.version not in found.by_table.get(other, ()):
            for reads in _names_read(former.bindings, going):
                lost = PlanWarningKind.ROLLBACK_OF_READER_LOST
                found.warn(table, lost.of(reader=other, version=former.version, name=reads))
    for ticket in observed.deployment(table).tickets:
        if (table, ticket.version) in going:
            name, quoted = going[table, ticket.version], quote(ticket.reader)
            why = PlanRefusalKind.TICKET_OPEN.of(reader=ticket.reader, name=name, run=ticket.run, quoted=quoted)
            found.refuse(table, why)


def _refuse_under_clones(observed: ObservedTables, table: TableName, found: ReplacedVersions) -> None:
    """Refuse to retire a version while a clone that the plan does not retire still uses its files."""
    going = found.by_table[table]
    for clone, base in observed.deployment(table).clones:
        if base in going and clone not in going:
            names = physical_name(table, clone), physical_name(table, base)
            found.refuse(table, PlanRefusalKind.CLONE_NEEDS_FILES.of(clone=names[0], base=names[1]))


def _names_read(bindings: Iterable[Binding], going: Mapping[tuple[TableName, int], str]) -> list[str]:
    return [going[b.parent, b.version] for b in bindings if (b.parent, b.version) in going]


def _retired_node(context: PlanningContext, table: TableName, versions: tuple[int, ...], level: int) -> PlanNode:
    return replace(
        kept_node(context, table, level),
        action=Action.RETIRE,
        reason=Reason.RETIRED,
        from_version=versions[0],
        loses=tuple(f"v{version}" for version in versions),
    )


def _retire_steps(
    context: PlanningContext, order: list[TableName], going: Mapping[TableName, tuple[int, ...]]
) -> StepBuilder:
    steps, aside = StepBuilder(), dict[TableName, list[int]]()
    for table in order:
        running = context.observed.deployment(table).retained
        for version in going[table]:
            if version in running:
                old = RetiredVersion(table, version)
                steps.stop(old, context.bindings.readers(table), (), why="it was replaced")
    stopped = {(step.table, step.version): step.n for step in steps.all}
    for table in order:
        readers = [n for reader in context.bindings.readers(table) for n in aside.get(reader, ())]
        done: dict[int, int] = {}
        for version in going[table]:
            own = [stopped[table, version]] if (table, version) in stopped else []
            clones = (done[c] for c, base in context.observed.deployment(table).clones if base == version and c in done)
            after = (*own, *readers, *clones)
            done[version] = steps.trash(table, version, after)
            aside.setdefault(table, []).append(done[version])
    return steps
