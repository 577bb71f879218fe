"""Measures planning alone, in process, by number of edges: `python -m tests.bench.planning [RUNS]`, about a minute.

The bound concerns wall time; CPU time beside it shows how much of that was waiting for other work on the machine. The
garbage collector runs as rarely as in a command.
"""

import gc
import os
import resource
import statistics
import sys
import time
from collections.abc import Iterator, Mapping

from core.lineage.table_graph import edges_of
from core.model.names import TableName
from core.observed.planner_input import ObservedDeployment
from core.plan.request import PlanRequest
from core.planner.planner import make_plan
from core.project.model import Project
from core.project_reader.loader import read_project
from tests.bench.generated_projects import layered_texts, project_texts
from tests.support.domain_builders import deployed
from tui.project_folder.parsing_performance import rare_garbage_collection

BOUND_S = {"10,000 tables": 0.5, "24 layers of 4": 0.05}
REQUESTS = (
    ("all, nothing deployed", PlanRequest(everything=True)),
    ("all, all of it runs", PlanRequest(everything=True)),
    ("all, made anew", PlanRequest(everything=True, rebuild=True)),
    ("all, deleted", PlanRequest(verb="delete", everything=True)),
    ("the first table made anew, with all below", PlanRequest(rebuild=True, children="all")),
)


def main(arguments: list[str]) -> int:
    """Print the table; return the exit code."""
    runs = int(arguments[0]) if arguments else 5
    print(f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, {os.cpu_count()} cores", end="")
    print(f", load average {os.getloadavg()[0]:.1f} at the start\n")
    print("| graph | edges | planned | steps | bound | median | CPU, least | CPU for an edge | holds |")
    print("|---|---|---|---|---|---|---|---|---|")
    for graph, texts in (
        ("24 layers of 4", layered_texts(24, 4)),
        ("200 layers of 4", layered_texts(200, 4)),
        ("3,000 tables", project_texts(3_000)),
        ("10,000 tables", project_texts(10_000)),
    ):
        project, problems = read_project(texts)
        assert project is not None, problems[:3]
        gc.collect()
        with rare_garbage_collection():
            for line in _rows(graph, project, runs):
                print(line, flush=True)
    mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(
        f"\nload average {os.getloadavg()[0]:.1f} at the end; {mb} MB at most, with the projects and their observations"
    )
    return 0


def _rows(graph: str, project: Project, runs: int) -> Iterator[str]:
    edges = sum(len(edges_of(table)) for table in project.tables.values())
    there = as_in_a_ledger(project)
    first = next(name for name, table in project.tables.items() if table.parsed is not None)
    for what, request in REQUESTS:
        asked = request if request.everything else PlanRequest(tables=(first,), rebuild=True, children="all")
        observed: Mapping[TableName, ObservedDeployment] = {} if "nothing" in what else there
        plan = make_plan(project, "dev", observed, asked)
        taken = []
        for _ in range(runs):
            gc.collect()
            began, busy = time.monotonic(), time.process_time()
            make_plan(project, "dev", observed, asked)
            taken.append((time.monotonic() - began, time.process_time() - busy))
        wall, cpu = statistics.median(one[0] for one in taken), min(one[1] for one in taken)
        bound = BOUND_S.get(graph)
        holds = "" if bound is None else "yes" if wall <= bound else "no"
        yield (
            f"| {graph} | {edges:,} | {what} | {len(plan.steps):,} | {f'{bound:g} s' if bound else '-'} "
            f"| {wall * 1000:,.0f} ms | {cpu * 1000:,.0f} ms | {cpu / edges * 1e6:.0f} µs | {holds} |"
        )


def as_in_a_ledger(project: Project) -> dict[TableName, ObservedDeployment]:
    """Return observations of all tables as running, with the texts, versions and bindings that a ledger records."""
    bindings = {str(name): 0 if table.external else 1 for name, table in project.tables.items()}
    return {name: deployed(table, bindings=bindings) for name, table in project.tables.items()}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
