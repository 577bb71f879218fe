"""Readers that a plan does not move to a new version: statements at any depth, and exposures outside Headgate."""

from collections.abc import Iterator, Mapping, Sequence

from core.model.actions import Action
from core.model.names import TableName, physical_name
from core.plan.model import Exposure, LeftBehind, PlanNode
from core.planner.context import DeclaredTables, ObservedTables
from core.planner.decision_model import DeployWalk, DownstreamOutcome, TableDecision
from core.planner.warning_and_refusal_kinds import PlanWarningKind

_REPLACED = frozenset({DownstreamOutcome.CHAINED, DownstreamOutcome.CREATED})


def find_left_behind(walk: DeployWalk) -> None:
    """Record the readers, at any depth, that stay on an old version.

    Warns about direct readers that the request excludes or that are no longer declared.
    """
    decisions = walk.found.by_table
    level = [table for table in sorted(decisions) if decisions[table].outcome in _REPLACED]
    done: set[TableName] = set()
    depth = 1
    while level:
        following: dict[TableName, None] = {}
        for parent in level:
            for child in walk.context.bindings.readers(parent):
                if child not in done and not _goes_along(walk, child, parent, depth):
                    walk.found.left_behind.extend(_left(walk, child, parent, depth))
                    following[child] = None
                    if depth == 1:
                        _warn(walk, child, parent)
        done.update(following)
        level = sorted(following)
        depth += 1


def _goes_along(walk: DeployWalk, child: TableName, parent: TableName, depth: int) -> bool:
    """True if the plan moves a reader to its parent's new version.

    A restart also moves a direct reader (`depth` 1) that reads the parent only as a static side.
    """
    known = walk.found.by_table.get(child)
    if known is None:
        return False
    return known.rebinds_streams or (depth == 1 and _restarts_with_static_parent(walk, known, child, parent))


def _restarts_with_static_parent(walk: DeployWalk, known: TableDecision, child: TableName, parent: TableName) -> bool:
    # Static sides are bound to the latest version at each start.
    streams = any(b.parent == parent and b.streamed for b in walk.context.bindings.of(child))
    return known.action is Action.RESTART and not streams


def _left(walk: DeployWalk, child: TableName, parent: TableName, depth: int) -> Iterator[LeftBehind]:
    declared = walk.context.declared.tables.get(child)
    versions = {b.version for b in walk.context.bindings.of(child) if b.parent == parent}
    for version in sorted(versions):
        yield LeftBehind(
            child,
            declared.product if declared else "",
            physical_name(parent, version) if version else parent,
            owner=declared.settings.owner if declared else "",
            through=parent,
            depth=depth,
        )


def _warn(walk: DeployWalk, child: TableName, parent: TableName) -> None:
    if child in walk.scope.excluded:
        walk.found.warn(child, PlanWarningKind.EXCLUDED_STAYS.of(parent=parent))
    elif walk.context.declared.is_gone(child):
        walk.found.warn(child, PlanWarningKind.UNDECLARED_STAYS.of(parent=parent))


def exposures(declared: DeclaredTables, observed: ObservedTables, nodes: Sequence[PlanNode]) -> tuple[Exposure, ...]:
    """Return the exposures of rebuilt, rolled back, undeleted, altered or deleted tables, sorted by table and name."""
    return exposures_of(declared, observed, {n.table: after for n in nodes if (after := _after(n)) is not None})


def exposures_of(
    declared: DeclaredTables, observed: ObservedTables, after_by_table: Mapping[TableName, str]
) -> tuple[Exposure, ...]:
    """Return the exposures of tables, each with the physical name that the pointer will serve, sorted by table."""
    found = []
    for table, after in after_by_table.items():
        made = declared.tables.get(table)
        before = _served_name(table, observed.deployment(table).version)
        # Readers of a topic keep reading it.
        for name, owner in made.settings.outside_readers if made is not None and not made.written_topic() else ():
            found.append(Exposure(name, table, before, after, owner))
    return tuple(sorted(found, key=lambda reader: (reader.table, reader.reader)))


def _after(node: PlanNode) -> str | None:
    """Return the physical name that serves a node's table after the plan.

    The name is empty after a delete, and None if the plan does not affect the table's exposures.
    """
    if node.action is Action.DELETE:
        return ""
    if node.action in (Action.REBUILD, Action.ROLLBACK, Action.UNDELETE) or (
        node.action is Action.RESTART and node.change is not None and node.change.definition.alters_table
    ):
        return _served_name(node.table, node.version)
    return None


def _served_name(table: TableName, version: int) -> str:
    return physical_name(table, version) if version else table
