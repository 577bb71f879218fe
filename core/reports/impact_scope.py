"""The scope of a change: all downstream tables, and the part of the project that is needed to plan the change.

Declared and deployed readers are downstream, together with their statement sets. The part consists of these tables and
everything upstream of them. A plan for the part equals a plan for the whole project, but its cost depends only on the
size of the part.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from core.lineage.column_lineage import LineageTracer
from core.lineage.table_graph import distances, edges_of, reach
from core.model.names import TableName, split_physical
from core.model.states import State
from core.observed.planner_input import ObservedDeployment
from core.planner.context import DeclaredTables, TableBindings
from core.project.model import Project
from core.reports.inventory import InventoryReading


def affected_part(
    project: Project, observed: Mapping[TableName, ObservedDeployment], root: TableName
) -> tuple[Project, Mapping[TableName, ObservedDeployment]]:
    """Return the part of the project and of the observations that is needed to plan a change of `root`.

    If the bindings of any deployed statement are unknown, the part is the whole project. The function passes once over
    the project, and needs time linear in the part.
    """
    if any(_is_unread(seen) for seen in observed.values()):
        return project, observed
    parents, children = _readings(project, observed)
    below = _below(project, children)
    # A pointer that leads to another table keeps that table from being dropped, wherever the pointer is declared.
    astray = {name for name, seen in observed.items() if _leads_astray(name, seen)}
    part = {root, *astray} | reach((root, *astray), below)
    part |= reach(part, lambda name: parents.get(name, ()))
    tables = {name: table for name, table in project.tables.items() if name in part}
    return replace(project, tables=tables), {name: seen for name, seen in observed.items() if name in part}


def affected_tables(
    project: Project, observed: Mapping[TableName, ObservedDeployment], root: TableName
) -> frozenset[TableName]:
    """Return `root` and all declared and deployed tables downstream of it, in time linear in the project."""
    return reach((root,), _below(project, _readings(project, observed)[1])) | {root}


def _below(
    project: Project, children: Mapping[TableName, Iterable[TableName]]
) -> Callable[[TableName], Iterable[TableName]]:
    units: dict[str, list[TableName]] = {}
    for name, table in project.tables.items():
        if not table.external:
            units.setdefault(table.folder, []).append(name)

    def below(name: TableName) -> Iterable[TableName]:
        table = project.tables.get(name)
        return (*children.get(name, ()), *(units.get(table.folder, ()) if table is not None else ()))

    return below


def _is_unread(seen: ObservedDeployment) -> bool:
    return seen.state != State.ABSENT and not seen.bindings and (seen.version > 0 or seen.deployed is None)


def _leads_astray(name: TableName, seen: ObservedDeployment) -> bool:
    if not seen.pointer or seen.pointer.startswith(f"{name}__v"):
        return False
    target = split_physical(seen.pointer)
    return target is not None and target[0] != name


def _readings(
    project: Project, observed: Mapping[TableName, ObservedDeployment]
) -> tuple[Mapping[TableName, set[TableName]], Mapping[TableName, list[TableName]]]:
    parents: dict[TableName, set[TableName]] = {}
    for name, table in project.tables.items():
        if table.parsed is not None:
            parents[name] = {edge.parent for edge in edges_of(table)}
    for name, seen in observed.items():
        if seen.bindings:
            parents.setdefault(name, set()).update([binding.parent for binding in seen.bindings])
    children: dict[TableName, list[TableName]] = {}
    for name, found in parents.items():
        for parent in found:
            children.setdefault(parent, []).append(name)
    return parents, children


@dataclass(frozen=True, slots=True)
class DownstreamReach:
    """All tables that a change may affect, with the reads through which it reaches them."""

    depth: Mapping[TableName, int]
    """Number of reads from the changed table (depth 0) to each table; a step within a statement set adds nothing."""
    through: Mapping[TableName, tuple[InventoryReading, ...]]
    """For each table, its reads of other affected tables, sorted by name; may be empty in a statement set."""
    readers: frozenset[TableName]
    """Tables reached through reads alone; all other tables are in a statement set that is rebuilt together."""


def downstream_reach(
    declared: DeclaredTables, bindings: TableBindings, tracer: LineageTracer, root: TableName
) -> DownstreamReach:
    """Return everything downstream of `root`, in time linear in the reads.

    The first pass is breadth-first and follows only reads; the second pass also follows statement sets.
    """
    readers: dict[TableName, dict[TableName, bool]] = {}

    def step(table: TableName) -> dict[TableName, bool]:
        readers[table] = _readers(bindings, tracer, table)
        return readers[table]

    depth = distances((root,), step)
    waiting = list(depth)
    by_reading = frozenset(depth) - {root}
    through: dict[TableName, dict[TableName, bool]] = {}
    for table in waiting:
        if table not in readers:
            readers[table] = _readers(bindings, tracer, table)
        for child, streamed in readers[table].items():
            through.setdefault(child, {})[table] = streamed
        beside = dict.fromkeys(readers[table], 1) | dict.fromkeys(declared.statement_set(table), 0)
        for other, further in beside.items():
            if other not in depth:
                depth[other] = depth[table] + further
                waiting.append(other)
    listed = {
        t: tuple([InventoryReading(p, streamed) for p, streamed in sorted(found.items())])
        for t, found in through.items()
    }
    return DownstreamReach(depth, listed, by_reading)


def _readers(bindings: TableBindings, tracer: LineageTracer, parent: TableName) -> dict[TableName, bool]:
    found: dict[TableName, bool] = {}
    for reader in tracer.readers(parent):
        reads = reader.parsed.reads if reader.parsed is not None else ()
        found[reader.name] = any(read.streaming for read in reads if read.table == parent)
    for name in bindings.readers(parent):
        bound = any(binding.streamed for binding in bindings.of(name) if binding.parent == parent)
        found[name] = found.get(name, False) or bound
    return found
