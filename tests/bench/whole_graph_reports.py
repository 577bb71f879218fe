"""Measures reports on the whole graph: `python -m tests.bench.whole_graph_reports [RUNS]`, about a minute.

They run in process, with the project parsed or the ledger open, and with garbage collection as rare as in a command.
Each bound is 50 ms at 3,000 tables. The graphs of 24 and 200 layers have equally many reads per table, so that a linear
algorithm costs the same per read.
"""

import gc
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from core.lineage.column_lineage import LineageTracer
from core.lineage.table_graph import edges_of, table_graph
from core.model.names import TableName
from core.model.states import State
from core.observed.planner_input import PlannerInput
from core.observed.versions import Deployment, Measurement, serving_versions
from core.project.model import Project
from core.project_reader.loader import read_project
from core.project_reader.revision_reader import revision_of
from core.reports.impact import as_if_running, impact_of
from core.reports.inventory import DOWNSTREAM, UPSTREAM, InventorySelection, hierarchy, inventory_of, select
from core.sql.lineage.model import ColumnOrigin
from state.ledger import LedgerReader, create_or_open
from state.ledger_snapshot import SnapshotCache
from tests.bench.generated_projects import layered_texts, project_texts
from tests.support.ledger_rows import environment_row
from tui.presentation.reports.product_health import health_by_product
from tui.presentation.reports.table_hierarchy import rows
from tui.project_folder.parsing_performance import rare_garbage_collection
from tui.services import planner_input_reader

TABLES = 3_000
BOUND_MS = 50.0

Rows = Iterator[str]


def main(arguments: list[str]) -> int:
    """Print the table; return the exit code."""
    runs = int(arguments[0]) if arguments else 10
    print(f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, {os.cpu_count()} cores", end="")
    print(f", load average {os.getloadavg()[0]:.1f} at the start\n")
    print("| what | bound | median | worst | CPU, median | CPU, least | runs | holds |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, rare_garbage_collection():
        for line in _all(Path(folder), runs):
            print(line, flush=True)
    print(f"\nload average {os.getloadavg()[0]:.1f} at the end")
    return 0


def _all(folder: Path, runs: int) -> Rows:
    project = _project(project_texts(TABLES))
    yield from _over_the_ledger(folder, project, runs)
    yield from _over_the_project(project, runs)
    for layers in (24, 200):
        yield from _layered(layers, runs)


def _over_the_ledger(folder: Path, project: Project, runs: int) -> Rows:
    path = folder / "ledger.db"
    _write(path, project)
    with LedgerReader(path) as reader:
        size = f"{TABLES:,} tables in the ledger"
        yield _row(f"{size}: inventory", runs, lambda: inventory_of(project, serving_versions(reader.statements())))

        def health() -> object:
            shown = SnapshotCache(reader).snapshot()
            return health_by_product(shown.serving, frozenset())

        yield _row(f"{size}: health of every product", runs, health)
        yield _row(
            f"{size}: read what a plan is computed from",
            runs,
            lambda: planner_input_reader.planner_input(reader),
            bound=None,
        )
        known = planner_input_reader.planner_input(reader)
    yield from _impacts(project, known, "in the ledger", runs)


def _over_the_project(project: Project, runs: int) -> Rows:
    size = f"{TABLES:,} tables"
    yield _row(f"{size}: inventory", runs, lambda: inventory_of(project, {}))
    entries = inventory_of(project, {})
    for name, selection in (
        ("read by another product", InventorySelection(cross_product=True)),
        ("unused", InventorySelection(unused=True)),
        ("with a single reader", InventorySelection(single_reader=True)),
    ):
        found = len(select(entries, selection))
        what = f"{size}: those {name} ({found}), with the inventory"
        yield _row(what, runs, lambda chosen=selection: select(inventory_of(project, {}), chosen))  # type: ignore[misc]  # Bound now.
    top, _ = _top_and_middle(project)

    def report() -> object:
        by_name = {entry.table: entry for entry in inventory_of(project, {})}
        return rows([(way, hierarchy(by_name, top, way)) for way in (UPSTREAM, DOWNSTREAM)], 80)

    yield _row(f"{size}: report of {top}, with the inventory", runs, report)
    yield from _impacts(project, PlannerInput(), "as declared", runs)


def _impacts(project: Project, known: PlannerInput, words: str, runs: int) -> Rows:
    graph = table_graph(project)
    for name in _top_and_middle(project):
        below = len(graph.descendants(name))
        tracer = LineageTracer(project)
        tracer.readers(name)
        what = f"{TABLES:,} tables {words}: impact of {name}, {below:,} below"
        yield _row(f"{what}, first", 1, lambda: _ask(project, known, ColumnOrigin(name), tracer), bound=None)  # noqa: B023 (called here)
        yield _row(what, runs, lambda: _ask(project, known, ColumnOrigin(name), tracer))  # noqa: B023 (called here)
        column = ColumnOrigin(name, "kind")
        yield _row(f"{what}, column kind, first", 1, lambda: _ask(project, known, column, tracer), bound=None)  # noqa: B023 (called here)
        yield _row(f"{what}, column kind", runs, lambda: _ask(project, known, column, tracer))  # noqa: B023 (called here)


def _ask(project: Project, known: PlannerInput, root: ColumnOrigin, tracer: LineageTracer) -> object:
    return impact_of(project, "dev", known, root, tracer, children="all")


def _layered(layers: int, runs: int) -> Rows:
    project = _project(layered_texts(layers, 4))
    readings = sum(len(edges_of(table)) for table in project.tables.values())
    root = TableName("landed")
    entries = {entry.table: entry for entry in inventory_of(project, {})}
    tracer = LineageTracer(project)
    words = f"{layers} layers, 4 wide, {readings:,} readings"
    bound = BOUND_MS if layers == 24 else None
    acts: tuple[tuple[str, Callable[[], object]], ...] = (
        ("inventory", lambda: inventory_of(project, {})),
        ("report of what lands", lambda: rows([(DOWNSTREAM, hierarchy(entries, root, DOWNSTREAM))], 80)),
        ("impact of what lands", lambda: _ask(project, PlannerInput(), ColumnOrigin(root), tracer)),
    )
    for what, act in acts:
        act()
        yield _row(f"{words}: {what}", runs, act, bound=bound, readings=readings)


def _top_and_middle(project: Project) -> tuple[TableName, TableName]:
    """Return the declared table with the most tables below it, and the median one."""
    graph = table_graph(project)
    ours = sorted((len(graph.descendants(n)), n) for n, table in project.tables.items() if not table.external)
    return ours[-1][1], ours[len(ours) // 2][1]


def _project(texts: dict[str, str]) -> Project:
    project, problems = read_project(texts)
    assert project is not None, problems[:3]
    return project


def _write(path: Path, project: Project) -> None:
    """Deploy every table in a ledger, with measurements."""
    facts = environment_row(project_id=project.id, project=project.name)
    observed = as_if_running(project)
    with create_or_open(path, facts) as ledger:
        for name, table in project.tables.items():
            texts, seen = revision_of(table), observed[name]
            ledger.put_deployment(
                Deployment(
                    table=name, version=seen.version, product=table.product, layer=table.layer,
                    owner=table.settings.owner, revision=texts.hash, texts=texts.texts, compiled="SELECT …",
                    compiled_ddl="CREATE …", columns=tuple(c.name for c in table.parsed_ddl.columns), format="parquet",
                    folder=f"/data/{name}", checkpoint=f"/data/c/{name}", checkpoint_id=name, trigger="10 seconds",
                    mode="append", stateful=table.parsed is not None and table.parsed.stateful, wanted="running",
                    state=State.RUNNING, state_since=1.0, active=True, bindings=seen.bindings, started_at=1.0,
                    external=table.external,
                )
            )  # fmt: skip
        ledger.put_measurements(
            [Measurement(name, observed[name].version, at=9.0, lag_rows=5, trend="steady") for name in project.tables]
        )


def _row(
    what: str,
    runs: int,
    act: Callable[[], object],
    *,
    bound: float | None = BOUND_MS,
    readings: int = 0,
) -> str:
    wall, cpu = [], []
    for _ in range(runs):
        gc.collect()
        began, busy = time.monotonic(), time.process_time()
        act()
        wall.append((time.monotonic() - began) * 1000)
        cpu.append((time.process_time() - busy) * 1000)
    median = statistics.median(wall)
    each = f", {median * 1000 / readings:.1f} µs a reading" if readings else ""
    holds = "" if bound is None else "yes" if median <= bound else "no"
    bounded = "-" if bound is None else f"{bound:g} ms"
    return (
        f"| {what}{each} | {bounded} | {median:.1f} ms | {max(wall):.1f} ms | {statistics.median(cpu):.1f} ms "
        f"| {min(cpu):.1f} ms | {runs} | {holds} |"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
