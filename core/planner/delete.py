"""What a delete comes to before it is judged: which tables go, and why others stay; none goes under a live reader."""

from collections import deque
from collections.abc import Set
from dataclasses import dataclass, field

from core.lineage.table_graph import reach
from core.model.names import TableName, physical_name, split_physical
from core.model.states import stays_at_rest
from core.observed.deployment import ObservedDeployment
from core.planner.context import DeclaredTables, ObservedTables, PlanningContext
from core.planner.decisions import PlanRemarks
from core.planner.plan_nodes import PlanBody, deleted_node, kept_node, plan_levels
from core.planner.plan_steps import StepBuilder
from core.planner.retired_and_orphan_versions import retired_versions
from core.planner.scope import PlanScope


@dataclass(slots=True)
class DeleteDecisions(PlanRemarks):
    """A delete as it is being decided."""

    tables: set[TableName] = field(default_factory=set)


def delete_body(context: PlanningContext, scope: PlanScope) -> PlanBody:
    """Draft a delete: stops from the sinks, then pointers, then what is set aside."""
    found = decide_delete(context, scope)
    versions = {table: context.observed.deployment(table).version for table in found.tables}
    bindings = {table: context.bindings.of(table) for table in found.tables}
    levels = plan_levels(context.declared, bindings, versions, every_version=True)
    order = sorted(found.tables, key=lambda table: (-levels[table], table))
    old = retired_versions(context.observed, context.bindings, frozenset(), found.tables, {}) if found.tables else ()
    nodes = tuple(deleted_node(context, table, levels[table]) for table in order)
    running = {table: _newest_first(context.observed.deployment(table), rest=()) for table in order}
    existing = {
        table: _newest_first(context.observed.deployment(table), rest=context.observed.deployment(table).kept)
        for table in order
    }
    steps = StepBuilder()
    readers = {table: context.bindings.readers(table) for table in order}
    clones = {table: context.observed.deployment(table).clones for table in order}
    steps.delete(nodes, running, existing, readers, clones)
    for version in old:
        if not version.readers:
            steps.stop(version, context.bindings.readers(version.table), (), why="only deleted tables read it")
            found.warn(version.table, f"v{version.version} stops: only deleted tables read it")
    kept = tuple(kept_node(context, t, 0) for t in sorted({v.table for v in old if not v.readers}))
    return PlanBody((*nodes, *kept), steps.all, (), found.refusals, found.warnings)


def _newest_first(seen: ObservedDeployment, *, rest: tuple[int, ...]) -> tuple[int, ...]:
    """Return the serving version, those that still run for others, and the rest; external tables have none."""
    return tuple(sorted({seen.version, *seen.retained, *rest} - {0}, reverse=True))


def decide_delete(context: PlanningContext, scope: PlanScope) -> DeleteDecisions:
    """Decide what goes; tables that were not named one by one stay where others read them, named ones refuse."""
    found = DeleteDecisions()
    named = scope.named
    for table in scope.requested:
        if context.observed.is_external(table):
            if table in named:
                found.refuse(table, f"{table} is external: Headgate does not delete it", "leave it out")
            else:
                found.warn(table, "is external and is not deleted")
        elif context.observed.is_deployed(table):
            found.tables.add(table)
        elif table in named:
            found.refuse(table, f"{table} is not deployed; there is nothing to delete", "leave it out")
    _take_readers(context, scope, found)
    _keep_what_others_need(context, named, found)
    for table in sorted(found.tables & named):
        _refuse_under_readers(context, table, found)
        _refuse_half_a_set(table, _deployed_set(context, table), found)
    _refuse_under_pointers(context.observed, found)
    _refuse_under_what_runs_on(context.observed, found)
    for table in sorted(found.tables):
        _warn_of_ways_back(context.observed, table, found)
    return found


def _take_readers(context: PlanningContext, scope: PlanScope, found: DeleteDecisions) -> None:
    """Take along, down to the sinks, the readers that the request accepts."""
    waiting = sorted(found.tables - scope.upstream)
    while waiting:
        for reader in context.bindings.readers(waiting.pop()):
            table = context.declared.tables.get(reader)
            if reader not in found.tables and scope.may_touch(reader, table.product if table else ""):
                found.tables.add(reader)
                waiting.append(reader)


def _deployed_set(context: PlanningContext, table: TableName) -> tuple[TableName, ...]:
    """Return the deployed tables of a table's statement set, itself among them."""
    return tuple(other for other in context.declared.statement_set(table) if context.observed.is_deployed(other))


def _keep_what_others_need(context: PlanningContext, named: Set[TableName], found: DeleteDecisions) -> None:
    """Keep, up to the sources, whatever a table that stays is reading, and the sets of which a table stays."""
    waiting = deque(sorted(table for table in found.tables if table not in named))
    while waiting:
        table = waiting.popleft()
        if table not in found.tables:
            continue
        readers = [reader for reader in context.bindings.readers(table) if reader not in found.tables]
        whole = _deployed_set(context, table)
        rest = [other for other in whole if other not in found.tables]
        if readers:
            found.warn(table, f"stays: {_with_products(context.declared, readers)} {_read(readers)} it")
        elif rest:
            found.warn(table, f"stays: it belongs to one statement set with {', '.join(rest)}")
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
        found.refuse(
            table,
            f"{table} is read by {_with_products(context.declared, live)}",
            f"delete them together: headgate plan delete {' '.join(sorted(below | found.tables))}",
        )
    for reader in resting:
        words = (
            f"is {context.observed.deployment(reader).state} and reads {table}: it could not resume from its checkpoint"
        )
        found.warn(reader, words)


def _refuse_under_pointers(observed: ObservedTables, found: DeleteDecisions) -> None:
    """Refuse what the pointer of a table that stays leads to."""
    for other in observed.tables():
        target = split_physical(observed.deployment(other).pointer)
        if target is None or target[0] not in found.tables or other in found.tables:
            continue
        found.refuse(
            target[0],
            f"{target[0]} is what the pointer {other} serves: {observed.deployment(other).pointer}",
            f"delete them together: headgate plan delete {target[0]} {other}",
        )


def _refuse_under_what_runs_on(observed: ObservedTables, found: DeleteDecisions) -> None:
    """Refuse what a version still reads that was replaced and runs on, though what serves instead of it does not."""
    for other in sorted(set(observed.tables()) - found.tables):
        for version, bindings in observed.runs_on(other):
            for table in sorted({b.parent for b in bindings} & found.tables):
                found.refuse(
                    table,
                    f"{table} is read by {physical_name(other, version)}, which was replaced and is kept running",
                    f"plan again once it has stopped: headgate show {other}",
                )


def _warn_of_ways_back(observed: ObservedTables, table: TableName, found: DeleteDecisions) -> None:
    """Warn of the other versions that go with a table."""
    seen = observed.deployment(table)
    never_served = {orphan.version for orphan in seen.orphan_versions}
    stays, bases = {seen.version}, dict(seen.clones)
    while missing := {bases[version] for version in stays if version in bases} - stays:
        stays |= missing
    kept = [f"v{version}" for version in seen.kept if version not in never_served | stays]
    if kept:
        goes = "does not serve, and goes" if len(kept) == 1 else "do not serve, and go"
        found.warn(table, f"{', '.join(kept)} {goes} with it: an undelete brings back only what serves")


def _refuse_half_a_set(table: TableName, whole: tuple[TableName, ...], found: DeleteDecisions) -> None:
    rest = [other for other in whole if other not in found.tables]
    if rest:
        found.refuse(
            table,
            f"{table} belongs to one statement set with {', '.join(rest)}",
            f"delete the set: headgate plan delete {' '.join(sorted([table, *rest]))}",
        )


def _read(readers: list[TableName]) -> str:
    return "reads" if len(readers) == 1 else "read"


def _with_products(declared: DeclaredTables, readers: list[TableName]) -> str:
    words = []
    for reader in readers:
        table = declared.tables.get(reader)
        words.append(f"{reader} ({table.product})" if table is not None and table.product else str(reader))
    return ", ".join(words)
