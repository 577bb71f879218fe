"""Who reads whom, and in which order: the only user of networkx; a graph never changes once it is built."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
        return self._reach(tables, lambda table: tuple(edge.parent for edge in self.parents(table)))

    def descendants(self, *tables: TableName) -> frozenset[TableName]:
        """Return everything below, without the tables themselves unless they are below each other."""
        return self._reach(tables, self.children)

    def cycles(self) -> tuple[tuple[TableName, ...], ...]:
        """Return one cycle per knot, each in reading order from its first name; empty when there is an order."""
        return cycles({table: tuple(edge.parent for edge in edges) for table, edges in self._parents.items()})

    def generations(self) -> tuple[tuple[TableName, ...], ...]:
        """Return topological generations, sources first, each sorted; raises AssertionError where there is a cycle."""
        parents = {table: tuple(edge.parent for edge in edges) for table, edges in self._parents.items()}
        found, knotted = _generations(parents)
        assert not knotted, cycles(parents)
        return found

    def _reach(
        self, tables: Iterable[TableName], step: Callable[[TableName], tuple[TableName, ...]]
    ) -> frozenset[TableName]:
        seen: set[TableName] = set()
        waiting = list(tables)
        while waiting:
            for found in step(waiting.pop()):
                if found not in seen:
                    seen.add(found)
                    waiting.append(found)
        return frozenset(seen)


def table_graph(project: Project) -> TableGraph:
    """Build the declared graph of a project; reads of unknown tables are left out."""
    return TableGraph(
        (edge for table in project.tables.values() for edge in edges_of(table) if edge.parent in project.tables),
        project.tables,
    )


def edges_of(table: Table) -> tuple[TableEdge, ...]:
    """Return a declared table's readings, none for an external one."""
    return tuple(TableEdge(read.table, table.name, read.streaming) for read in table.facts.reads) if table.facts else ()


def levels(parents_by_table: Mapping[TableName, Sequence[TableName]]) -> dict[TableName, int] | None:
    """Return each table its topological generation, 0 first; None where there is a cycle."""
    found, knotted = _generations(parents_by_table)
    return None if knotted else {table: level for level, tables in enumerate(found) for table in tables}


def cycles(parents_by_table: Mapping[TableName, Sequence[TableName]]) -> tuple[tuple[TableName, ...], ...]:
    """Find one cycle in each knot of tables that read each other: `(a, b, c)` means a feeds b, b feeds c, c feeds a."""
    _, knotted = _generations(parents_by_table)
    if not knotted:
        return ()
    import networkx

    digraph: Any = networkx.DiGraph()
    digraph.add_edges_from((parent, table) for table in sorted(knotted) for parent in sorted(parents_by_table[table]))
    found = []
    for knot in networkx.strongly_connected_components(digraph):
        first = min(knot)
        if len(knot) > 1 or digraph.has_edge(first, first):
            found.append(_shortest_cycle(digraph.subgraph(knot), first))
    return tuple(sorted(found))


def _shortest_cycle(knot: Any, first: TableName) -> tuple[TableName, ...]:
    """Walk breadth-first in name order from `first` until an edge leads back to it."""
    came_from: dict[TableName, TableName] = {}
    waiting = [first]
    for table in waiting:
        for child in sorted(knot.successors(table)):
            if child == first:
                path = [table]
                while path[-1] != first:
                    path.append(came_from[path[-1]])
                return tuple(reversed(path))
            if child not in came_from:
                came_from[child] = table
                waiting.append(child)
    raise AssertionError(f"{first} is in a strongly connected component without a cycle")


def _generations(
    parents_by_table: Mapping[TableName, Sequence[TableName]],
) -> tuple[tuple[tuple[TableName, ...], ...], frozenset[TableName]]:
    """Return topological generations, sources first, each sorted, and the tables that stand in or below a knot."""
    waits = {table: set(parents) for table, parents in parents_by_table.items()}
    children: dict[TableName, list[TableName]] = {}
    for table, parents in waits.items():
        for parent in parents:
            children.setdefault(parent, []).append(table)
    left = {table: len(parents) for table, parents in waits.items()}
    for parent in children:
        left.setdefault(parent, 0)
    generations: list[tuple[TableName, ...]] = []
    ready = sorted(table for table, count in left.items() if not count)
    while ready:
        generations.append(tuple(ready))
        following = []
        for table in ready:
            del left[table]
            for child in children.get(table, ()):
                left[child] -= 1
                if not left[child]:
                    following.append(child)
        ready = sorted(following)
    return tuple(generations), frozenset(left)
