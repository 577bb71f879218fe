"""Compares our graph algorithms with networkx: `python -m tests.bench.graph_algorithms [RUNS]`, a minute.

For each row, both run alternately in one process, over the same tables, and their results are checked to be equal. The
ratio is the median of the CPU-time ratios of the runs; above 1, networkx is faster. In the first two rows of a size,
building the graph for networkx is included; in the last two, it is not. The cost of the import, which a command pays
once, is measured in separate processes.
"""

import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import networkx

from core.lineage.table_graph import cycles, edges_of, levels, table_graph
from core.model.names import TableName
from core.project.model import Project
from core.project_reader.loader import read_project
from tests.bench.generated_projects import project_texts

SIZES = (3_000, 10_000)
ROOTS = 50
"""Number of tables, spread evenly, whose ancestors and descendants are searched."""

Parents = Mapping[TableName, Sequence[TableName]]


def main(arguments: list[str]) -> int:
    """Print the table; return the exit code."""
    runs = int(arguments[0]) if arguments else 9
    print(f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, {os.cpu_count()} cores", end="")
    print(f", load average {os.getloadavg()[0]:.1f} at the start\n")
    print("| what | as it is | networkx | as it is : networkx |")
    print("|---|---|---|---|")
    for line in _rows(runs):
        print(line, flush=True)
    print(f"\nload average {os.getloadavg()[0]:.1f} at the end")
    return 0


def _rows(runs: int) -> Iterator[str]:
    yield from _imports(runs)
    for tables in SIZES:
        project, problems = read_project(project_texts(tables))
        assert project is not None, problems[:3]
        yield from _of_project(project, runs)


def _imports(runs: int) -> Iterator[str]:
    """Measure a process that imports the library against one that does not."""
    for library in ("graphlib", "networkx"):
        taken = [(_process("pass"), _process(f"import {library}")) for _ in range(runs)]
        without, with_it = (statistics.median(each[side] for each in taken) * 1e3 for side in (0, 1))
        yield f"| import {library}, CPU of a process without and with it | {without:.0f} ms | {with_it:.0f} ms | |"


def _process(program: str) -> float:
    child = subprocess.Popen([sys.executable, "-c", program])
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    return used.ru_utime + used.ru_stime


def _of_project(project: Project, runs: int) -> Iterator[str]:
    parents = {
        name: tuple(edge.parent for edge in edges_of(table) if edge.parent in project.tables)
        for name, table in project.tables.items()
    }
    size = f"{len(parents):,} tables"
    ours, theirs = table_graph(project), _digraph(parents)
    yield _row(f"{size}: levels, by graphlib", runs, lambda: levels(parents), lambda: _networkx_levels(parents))
    yield _row(f"{size}: that there is no cycle, by graphlib", runs, lambda: cycles(parents), lambda: _knots(parents))
    names = sorted(parents)
    roots = names[:: max(len(names) // ROOTS, 1)]
    yield _row(
        f"{size}: ancestors of {len(roots)}, by our own walk",
        runs,
        lambda: [ours.ancestors(root) for root in roots],
        lambda: [networkx.ancestors(theirs, root) for root in roots],
    )
    yield _row(
        f"{size}: descendants of {len(roots)}, by our own walk",
        runs,
        lambda: [ours.descendants(root) for root in roots],
        lambda: [networkx.descendants(theirs, root) for root in roots],
    )


def _digraph(parents: Parents) -> networkx.DiGraph:
    graph = networkx.DiGraph()
    graph.add_nodes_from(parents)
    graph.add_edges_from((parent, table) for table, found in parents.items() for parent in found)
    return graph


def _networkx_levels(parents: Parents) -> dict[TableName, int]:
    found = networkx.topological_generations(_digraph(parents))
    return {table: level for level, tables in enumerate(found) for table in tables}


def _knots(parents: Parents) -> tuple[object, ...]:
    graph = _digraph(parents)
    found = networkx.strongly_connected_components(graph)
    return tuple(knot for knot in found if len(knot) > 1 or graph.has_edge(*(2 * tuple(knot))))


def _row(what: str, runs: int, ours: Callable[[], object], theirs: Callable[[], object]) -> str:
    assert ours() == theirs(), what
    taken = []
    for number in range(runs):
        both = (ours, theirs) if number % 2 else (theirs, ours)
        times = {act: _timed(act) for act in both}
        taken.append((times[ours], times[theirs]))
    one, other = (statistics.median(each[side] for each in taken) * 1e3 for side in (0, 1))
    ratio = statistics.median(each[0] / each[1] for each in taken)
    return f"| {what} | {one:.1f} ms | {other:.1f} ms | {ratio:.2f} |"


def _timed(act: Callable[[], object]) -> float:
    gc.collect()
    began = time.process_time()
    act()
    return time.process_time() - began


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
