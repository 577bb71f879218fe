"""Readers that the project only declares: each is told which table it reads now, and which one it will."""

from collections.abc import Mapping, Sequence

from core.changes.kinds import ChangeKind
from core.model.actions import Action
from core.model.names import TableName, physical_name
from core.plan.model import OutsideReader, PlanNode
from core.planning.declared_tables import DeclaredTables
from core.planning.observed_tables import ObservedTables


def outside_readers(
    declared: DeclaredTables, observed: ObservedTables, nodes: Sequence[PlanNode]
) -> tuple[OutsideReader, ...]:
    """Return the declared readers of what is rebuilt, written again, altered or deleted, by table and name."""
    return outside_readers_of(declared, observed, {n.table: after for n in nodes if (after := _after(n)) is not None})


def outside_readers_of(
    declared: DeclaredTables, observed: ObservedTables, after_by_table: Mapping[TableName, str]
) -> tuple[OutsideReader, ...]:
    """Return the declared readers of tables with what each pointer will serve, by table and name."""
    found = []
    for table, after in after_by_table.items():
        made = declared.tables.get(table)
        before = _name(table, observed.deployment(table).version)
        for name, owner in made.settings.outside_readers if made is not None else ():
            found.append(OutsideReader(name, table, before, after, owner))
    return tuple(sorted(found, key=lambda reader: (reader.table, reader.reader)))


def _after(node: PlanNode) -> str | None:
    """Return what its pointer serves after the plan, empty where it goes; None where nothing changes for a reader."""
    if node.action is Action.DELETE:
        return ""
    if node.action is Action.REBUILD or (node.action is Action.RESTART and node.change is ChangeKind.COLUMN_ADDED):
        return _name(node.table, node.version)
    return None


def _name(table: TableName, version: int) -> str:
    return physical_name(table, version) if version else table
