"""Who reads whom, and in which order: the only user of networkx; a graph never changes once it is built.

The order comes from `graphlib`, which is in Python; `networkx` names cycles once there are some. To import it takes a
process 150 ms of CPU, more than half of a plan of one table, and then it is no faster: of its time at 3,000 and 10,000
tables the levels take 0.9, and to find no cycle takes 0.5. `reach` is ours for the same reason: ancestors take as long
as with `networkx`, descendants 0.45 of it (`tests/bench/graph_algorithms.py`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from core.model.names import TableName
from core.project.model import Project, Table


@dataclass(frozen=True, slots=True)
class TableEdge:
    """A statement's reading of one parent; `streamed` wins where it reads the parent both ways."""

    parent: TableName
    child: TableName
    streamed: bool


class TableGraph:
    """Tables as nodes, readings as edges from parent to child; lists come sorted by name."""

    def __init__(self, edges: Iterable[TableEdge], tables: Iterable[TableName] = ()) -> None:
        parents: dict[TableName, dict[TableName, TableEdge]] = {table: {} for table in tables}
        children: dict[TableName, set[TableName]] = {table: set() for table in parents}
        for edge in edges:
            for end in (edge.parent, edge.child):
                parents.setdefault(end, {})
                children.setdefault(end, set())
            before = parents[edge.child].setdefault(edge.parent, edge)
            if edge.streamed and not before.streamed:
                parents[edge.child][edge.parent] = edge
            children[edge.parent].add(edge.child)
        self._parents = {t: tuple(found[parent] for parent in sorted(found)) for t, found in parents.items()}
        self._children = {t: tuple(sorted(found)) for t, found in children.items()}

    def tables(self) -> tuple[TableName, ...]:
        """Return every node."""
        return tuple(sorted(self._parents))

    def parents(self, table: TableName) -> tuple[TableEdge, ...]:
        """Return what a table reads; nothing for a table that is not in the graph."""
        return self._parents.get(table, ())

    def children(self, table: TableName) -> tuple[TableName, ...]:
        """Return who reads a table, streamed or static."""
        return self._children.get(table, ())

    def ancestors(self, *tables: TableName) -> frozenset[TableName]:
        """Return everything above, without the tables themselves unless they are above each other."""
        return reach(tables, lambda table: (edge.parent for edge in self.parents(table)))

    def descendants(self, *tables: TableName) -> frozenset[TableName]:
        """Return everything below, without the tables themselves unless they are below each other."""
        return reach(tables, self.children)

    def cycles(self) -> tuple[tuple[TableName, ...], ...]:
        """Return one cycle per knot, each in reading order from its first name; empty when there is an order."""
        return cycles({table: tuple(edge.parent for edge in edges) for table, edges in self._parents.items()})

    def generations(self) -> tuple[tuple[TableName, ...], ...]:
        """Return topological generations, sources first, each sorted; raises AssertionError where there is a cycle."""
        parents = {table: tuple(edge.parent for edge in edges) for table, edges in self._parents.items()}
        found, knotted = _generations(parents)
        assert not knotted, self.cycles()
        return found


def table_graph(project: Project) -> TableGraph:
    """Build the declared graph of a project; reads of unknown tables are left out."""
    return TableGraph(
        (edge for table in project.tables.values() for edge in edges_of(table) if edge.parent in project.tables),
        project.tables,
    )


def edges_of(table: Table) -> tuple[TableEdge, ...]:
    """Return a declared table's readings, none for an external one."""
    return (
        tuple(TableEdge(read.table, table.name, read.streaming) for read in table.parsed.reads) if table.parsed else ()
    )


def reach(tables: Iterable[TableName], step: Callable[[TableName], Iterable[TableName]]) -> frozenset[TableName]:
    """Return everything that steps lead to from some tables, without the tables unless steps lead to them as well."""
    seen: set[TableName] = set()
    waiting = list(tables)
    while waiting:
        for found in step(waiting.pop()):
            if found not in seen:
                seen.add(found)
                waiting.append(found)
    return frozenset(seen)


def levels(parents_by_table: Mapping[TableName, Sequence[TableName]]) -> dict[TableName, int] | None:
    """Return each table its topological generation, 0 first; None where there is a cycle."""
    found, knotted = _generations(parents_by_table)
    return None if knotted else {table: level for level, tables in enumerate(found) for table in tables}


def depths(readings: Iterable[tuple[TableName, Iterable[TableName]]]) -> dict[TableName, int]:
    """Return each table's distance from its farthest source, 0 for a source, of tables with their parents.

    A table that comes several times, with the parents of each of its versions, has all of them. Versions may read
    each other in a circle where the tables do not: those in or below one come after all the others.
    """
    parents: dict[TableName, list[TableName]] = {}
    for table, above in readings:
        parents.setdefault(table, []).extend(above)
    generations, knotted = _generations(parents)
    found = {table: depth for depth, tables in enumerate(generations) for table in tables}
    return found | dict.fromkeys(knotted, len(generations))


def distances(start: Iterable[TableName], step: Callable[[TableName], Iterable[TableName]]) -> dict[TableName, int]:
    """Return each table that `step` leads to, with its readings from the nearest of `start`, which are at 0.

    Breadth-first, the nearest first; linear in readings.
    """
    found = dict.fromkeys(start, 0)
    waiting = list(found)
    for table in waiting:
        for beside in step(table):
            if beside not in found:
                found[beside] = found[table] + 1
                waiting.append(beside)
    return found


def cycles(parents_by_table: Mapping[TableName, Sequence[TableName]]) -> tuple[tuple[TableName, ...], ...]:
    """Find one cycle in each knot of tables that read each other: `(a, b, c)` means a feeds b, b feeds c, c feeds a."""
    with suppress(CycleError):
        TopologicalSorter(parents_by_table).prepare()
        return ()
    import networkx

    edges = sorted((parent, table) for table, parents in parents_by_table.items() for parent in parents)
    digraph: Any = networkx.DiGraph(edges)
    found = []
    for knot in networkx.strongly_connected_components(digraph):
        first = min(knot)
        # A graph of its own, because a view of one comes in the order of hashes.
        inside: Any = networkx.DiGraph(edge for edge in edges if knot.issuperset(edge))
        back = [networkx.shortest_path(inside, child, first) for child in inside.successors(first)] if inside else []
        found += [(first, *min(back, key=len)[:-1])] if back else []
    return tuple(sorted(found))


def _generations(
    parents_by_table: Mapping[TableName, Sequence[TableName]],
) -> tuple[tuple[tuple[TableName, ...], ...], frozenset[TableName]]:
    """Return topological generations, sources first, each sorted, and the tables that stand in or below a cycle."""
    sorter = TopologicalSorter(parents_by_table)
    with suppress(CycleError):
        sorter.prepare()
    found = []
    while ready := sorter.get_ready():
        found.append(tuple(sorted(ready)))
        sorter.done(*ready)
    every = {*parents_by_table, *(parent for parents in parents_by_table.values() for parent in parents)}
    return tuple(found), frozenset(every.difference(*found))
