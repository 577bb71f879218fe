"""Which tables a delete takes, and why not: nothing goes under a reader that runs or is wanted."""

from collections import deque
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from core.model.names import TableName, split_physical
from core.model.states import stays_at_rest
from core.plan.model import PlanRefusal, PlanWarning
from core.planning.context import PlanningContext
from core.planning.declared_tables import DeclaredTables
from core.planning.observed_tables import ObservedTables
from core.planning.scope import PlanScope
from core.planning.table_bindings import TableBindings


@dataclass(slots=True)
class DeleteDecision:
    """A delete as it is being decided."""

    tables: set[TableName] = field(default_factory=set)
    refusals: list[PlanRefusal] = field(default_factory=list)
    warnings: list[PlanWarning] = field(default_factory=list)


def decide_delete(context: PlanningContext, scope: PlanScope) -> DeleteDecision:
    """Decide what goes; tables that were not named one by one stay where others read them, named ones refuse."""
    found = DeleteDecision()
    named = scope.named
    for table in scope.asked:
        if context.observed.is_external(table):
            if table in named:
                found.refusals.append(
                    PlanRefusal(table, f"{table} is external: Headgate does not delete it", "leave it out")
                )
            else:
                found.warnings.append(PlanWarning(table, "is external and is not deleted"))
        elif context.observed.is_deployed(table):
            found.tables.add(table)
        elif table in named:
            found.refusals.append(
                PlanRefusal(table, f"{table} is not deployed; there is nothing to delete", "leave it out")
            )
    _take_readers(context.declared, context.bindings, scope, found)
    sets = _statement_sets(context.declared, context.observed)
    _keep_what_others_need(context.declared, context.bindings, named, sets, found)
    for table in sorted(found.tables & named):
        _refuse_under_readers(context, table, found)
        _refuse_half_a_set(table, sets.get(table, ()), found)
    _refuse_under_pointers(context.observed, found)
    for table in sorted(found.tables):
        _warn_of_ways_back(context.observed, table, found)
    return found


def _take_readers(declared: DeclaredTables, bindings: TableBindings, scope: PlanScope, found: DeleteDecision) -> None:
    """Take along, down to the sinks, the readers that the request accepts."""
    waiting = sorted(found.tables - scope.above)
    while waiting:
        for reader in bindings.readers(waiting.pop()):
            table = declared.tables.get(reader)
            if reader not in found.tables and scope.may_touch(reader, table.product if table else ""):
                found.tables.add(reader)
                waiting.append(reader)


def _statement_sets(declared: DeclaredTables, observed: ObservedTables) -> dict[TableName, tuple[TableName, ...]]:
    """Return each deployed table of a statement set the deployed tables of its set, itself among them."""
    by_folder: dict[str, list[TableName]] = {}
    for name, table in declared.tables.items():
        if not table.external and observed.is_deployed(name):
            by_folder.setdefault(table.folder, []).append(name)
    return {name: tuple(names) for names in by_folder.values() if len(names) > 1 for name in names}


def _keep_what_others_need(
    declared: DeclaredTables,
    bindings: TableBindings,
    named: Set[TableName],
    sets: Mapping[TableName, tuple[TableName, ...]],
    found: DeleteDecision,
) -> None:
    """Keep, up to the sources, whatever a table that stays is reading, and the sets of which a table stays."""
    waiting = deque(sorted(table for table in found.tables if table not in named))
    while waiting:
        table = waiting.popleft()
        if table not in found.tables:
            continue
        readers = [reader for reader in bindings.readers(table) if reader not in found.tables]
        rest = sorted(other for other in sets.get(table, ()) if other not in found.tables)
        if readers:
            found.warnings.append(PlanWarning(table, f"stays: {_with_products(declared, readers)} {_read(readers)} it"))
        elif rest:
            found.warnings.append(PlanWarning(table, f"stays: it belongs to one statement set with {', '.join(rest)}"))
        else:
            continue
        found.tables.discard(table)
        near = (*(binding.parent for binding in bindings.of(table)), *sets.get(table, ()))
        waiting.extend(other for other in near if other in found.tables and other not in named)


def _refuse_under_readers(context: PlanningContext, table: TableName, found: DeleteDecision) -> None:
    live: list[TableName] = []
    resting: list[TableName] = []
    for reader in context.bindings.readers(table):
        if reader in found.tables:
            continue
        seen = context.observed.deployment(reader)
        at_rest = stays_at_rest(seen.state, seen.wanted)
        (resting if at_rest else live).append(reader)
    if live:
        below = _below(context.bindings, table) | {table}
        found.refusals.append(
            PlanRefusal(
                table,
                f"{table} is read by {_with_products(context.declared, live)}",
                f"delete them together: headgate plan delete {' '.join(sorted(below | found.tables))}",
            )
        )
    for reader in resting:
        words = (
            f"is {context.observed.deployment(reader).state} and reads {table}: it could not resume from its checkpoint"
        )
        found.warnings.append(PlanWarning(reader, words))


def _refuse_under_pointers(observed: ObservedTables, found: DeleteDecision) -> None:
    """Refuse what the pointer of a table that stays leads to."""
    for other in observed.tables():
        target = split_physical(observed.deployment(other).pointer)
        if target is None or target[0] not in found.tables or other in found.tables:
            continue
        found.refusals.append(
            PlanRefusal(
                target[0],
                f"{target[0]} is what the pointer {other} serves: {observed.deployment(other).pointer}",
                f"delete them together: headgate plan delete {target[0]} {other}",
            )
        )


def _warn_of_ways_back(observed: ObservedTables, table: TableName, found: DeleteDecision) -> None:
    """Return which older versions go with a table."""
    seen = observed.deployment(table)
    never_served = {orphan.version for orphan in seen.orphan_versions}
    kept = [f"v{version}" for version in seen.kept if version not in never_served]
    if kept:
        goes = "is an older version, and goes" if len(kept) == 1 else "are older versions, and go"
        found.warnings.append(PlanWarning(table, f"{', '.join(kept)} {goes} with it"))


def _below(bindings: TableBindings, table: TableName) -> set[TableName]:
    """Return everything that is deployed below a table."""
    seen: set[TableName] = set()
    waiting = [table]
    while waiting:
        for reader in bindings.readers(waiting.pop()):
            if reader not in seen:
                seen.add(reader)
                waiting.append(reader)
    return seen


def _refuse_half_a_set(table: TableName, whole: tuple[TableName, ...], found: DeleteDecision) -> None:
    rest = sorted(other for other in whole if other not in found.tables)
    if rest:
        found.refusals.append(
            PlanRefusal(
                table,
                f"{table} belongs to one statement set with {', '.join(rest)}",
                f"delete the set: headgate plan delete {' '.join(sorted([table, *rest]))}",
            )
        )


def _read(readers: list[TableName]) -> str:
    return "reads" if len(readers) == 1 else "read"


def _with_products(declared: DeclaredTables, readers: list[TableName]) -> str:
    words = []
    for reader in readers:
        table = declared.tables.get(reader)
        words.append(f"{reader} ({table.product})" if table is not None and table.product else str(reader))
    return ", ".join(words)
