"""Measures the commands that operators wait for: `python -m tests.bench.command_latency [RUNS]`, several minutes.

Each run is a separate process over cached files. The bounds concern wall time; CPU time beside it shows how much of
that was waiting for other work on the machine.
"""

import gc
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from core.lineage.table_graph import edges_of
from core.plan.codec import plan_hash
from core.plan.model import Plan
from core.plan.request import PlanRequest
from core.planner.planner import make_plan
from core.project.model import Project
from core.project_reader.loader import read_project
from state.ledger import LedgerReader
from state.ledger_snapshot import SnapshotCache
from tests.bench.generated_projects import project_texts, write
from tests.terminal.ledger_under_load import make
from tui.project_folder.environment_selection import select_environment
from tui.services.deployed_statements import open_reader

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "tui.cli")
SIZES = (1_000, 3_000, 10_000)
COLD_S = {1_000: 1.5, 3_000: 4.0, 10_000: None}
ONE_S = {1_000: 0.3, 3_000: 0.6, 10_000: 3.0}
WHOLE_S = {1_000: None, 3_000: 1.0, 10_000: 3.0}
CHANGED_S = {1_000: None, 3_000: 0.7, 10_000: None}


@dataclass(frozen=True, slots=True)
class Taken:
    """The cost of one run."""

    wall: float
    cpu: float
    mb: int = 0
    """Peak resident memory; 0 for commands that run in this process."""


def table_of(rows: Iterator[str]) -> Iterator[str]:
    """Yield the lines of the table, each as soon as it is measured."""
    yield "| what | files | bound | median | worst | CPU, median | CPU, least | memory | runs | holds |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    yield from rows


def main(arguments: list[str]) -> int:
    """Print the table; return the exit code."""
    runs = int(arguments[0]) if arguments else 10
    print(f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, {os.cpu_count()} cores", end="")
    print(f", load average {os.getloadavg()[0]:.1f} at the start\n")
    with tempfile.TemporaryDirectory() as folder:
        for line in table_of(_rows(Path(folder), runs)):
            print(line, flush=True)
    print(f"\nload average {os.getloadavg()[0]:.1f} at the end")
    return 0


def _rows(folder: Path, runs: int) -> Iterator[str]:
    yield from _starts(folder, runs)
    for tables in SIZES:
        yield from _plans(folder, tables, runs)
    yield from _same_everywhere(folder, runs)


def _starts(folder: Path, runs: int) -> Iterator[str]:
    project = folder / "small"
    files = write(project_texts(20), project)
    environ = _environ(folder / "home-small")
    yield _row("`headgate --version`", 0, 0.15, [_run(("--version",), project, environ) for _ in range(runs)])
    place = select_environment(environ, str(project))
    os.makedirs(place.where.home)
    with make(Path(place.where.home), 1_000):
        taken = [_run(("ls",), project, environ) for _ in range(runs)]
        yield _row("`headgate ls`, ledger of 1,000 statements", 0, 0.3, taken)
        reader = open_reader(place)
        reads = [_timed(lambda: _of_product(reader)) for _ in range(runs)]
        yield _row("health of one product at 1,000 tables, read in process", 0, 0.05, reads)
        reader.close()
    assert files


def _of_product(reader: LedgerReader) -> int:
    lines = SnapshotCache(reader).snapshot().serving
    return sum(line.product == "product_001" for line in lines)


def _plans(folder: Path, tables: int, runs: int) -> Iterator[str]:
    """Measure one size: cold, unchanged, with one file changed, for one table, and for the whole project."""
    project, home = folder / f"of-{tables}", folder / f"home-{tables}"
    texts = project_texts(tables)
    files = write(texts, project)
    environ = _environ(home)
    _run(("help",), project, environ)
    statements = [path for path in sorted(texts) if "/dml." in path]
    middle = statements[len(statements) // 2]
    one = ("plan", Path(middle).name.split(".")[1], "--offline")
    few = max(1, min(runs, 30_000 // tables))
    cold = []
    for _ in range(max(1, few // 5)):
        shutil.rmtree(home, ignore_errors=True)
        cold.append(_run(one, project, environ))
    yield _row(f"{tables:,} tables: plan one table, cold", files, COLD_S[tables], cold)
    yield _row(
        f"{tables:,} tables: plan one table, nothing changed",
        files,
        ONE_S[tables],
        [_run(one, project, environ) for _ in range(few)],
    )
    edited = []
    for number in range(min(few, 3)):
        (project / middle).write_text(f"{texts[middle]}-- edit {number}\n")
        edited.append(_run(one, project, environ))
    yield _row(f"{tables:,} tables: plan one table, one file changed", files, CHANGED_S[tables], edited)
    yield _row(
        f"{tables:,} tables: plan the whole, nothing deployed",
        files,
        WHOLE_S[tables],
        [_run(("plan", "--all", "--offline"), project, environ) for _ in range(few)],
    )
    observed = folder / f"observed-{tables}.json"
    names = [Path(path).name.split(".")[1] for path in texts if "/ddl." in path]
    observed.write_text(json.dumps({"tables": {name: {"state": "running"} for name in names}}))
    yield _row(
        f"{tables:,} tables: plan the whole, all of it runs",
        files,
        WHOLE_S[tables],
        [_run(("plan", "--all", "--observed", str(observed)), project, environ) for _ in range(few)],
    )


def _same_everywhere(folder: Path, runs: int) -> Iterator[str]:
    """Check that parents come first, and that every process makes the same plan."""
    large = _project(project_texts(3_000))
    plan = make_plan(large, "dev", {}, PlanRequest(everything=True))
    edges = sum(len(edges_of(table)) for table in large.tables.values())
    wrong = violations(plan, large)
    yield f"| order violations at 3,000 tables, {edges:,} edges | - | 0 | {wrong} | | | | | 1 | {_mark(not wrong)} |"
    seeds = min(runs, 4)
    hashes = {_hash_under_seed(seed, folder) for seed in range(seeds)}
    others = len(hashes - {plan_hash(plan)})
    yield f"| different plans under other PYTHONHASHSEEDs | - | 0 | {others} | | | | | {seeds} | {_mark(not others)} |"


def violations(plan: Plan, project: Project) -> int:
    """Count edges whose parent does not come before its reader in the plan."""
    place = {table: number for number, table in enumerate(plan.order)}
    edges = [edge for table in project.tables.values() for edge in edges_of(table)]
    return sum(place[edge.parent] >= place[edge.child] for edge in edges)


def _hash_under_seed(seed: int, folder: Path) -> str:
    script = (
        "from tests.bench.command_latency import _project; from tests.bench.generated_projects import project_texts;"
        "from core.plan.request import PlanRequest; from core.planner.planner import make_plan;"
        "print(make_plan(_project(project_texts(3000)), 'dev', {}, PlanRequest(everything=True)).hash)"
    )
    environ = {**_environ(folder / "home-seeds"), "PYTHONHASHSEED": str(seed)}
    done = subprocess.run([sys.executable, "-c", script], env=environ, cwd=ROOT, capture_output=True, check=True)
    return done.stdout.decode().strip()


def _project(texts: dict[str, str]) -> Project:
    project, problems = read_project(texts)
    assert project is not None, problems[:3]
    return project


def _run(arguments: tuple[str, ...], project: Path, environ: dict[str, str]) -> Taken:
    """Run one command in a process of its own, and measure wall time and CPU time including its children."""
    began = time.monotonic()
    child = subprocess.Popen(
        [*COMMAND, *arguments], cwd=project, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    said = child.stderr.read() if child.stderr else b""
    _, status, used = os.wait4(child.pid, 0)
    wall = time.monotonic() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, (arguments, child.returncode, said.decode()[-500:])
    return Taken(wall, used.ru_utime + used.ru_stime, used.ru_maxrss // 1024)


def _timed(act: Callable[[], object]) -> Taken:
    gc.collect()
    began, busy = time.monotonic(), time.process_time()
    act()
    return Taken(time.monotonic() - began, time.process_time() - busy)


def _environ(home: Path) -> dict[str, str]:
    """Return an environment with its own home and bytecode cache, which the first run fills."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADGATE_")}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    compiled = str(home.parent / "compiled")
    return {**kept, "HEADGATE_HOME": str(home), "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": compiled}


def _row(what: str, files: int, bound: float | None, taken: list[Taken]) -> str:
    median = statistics.median(one.wall for one in taken)
    cpu = sorted(one.cpu for one in taken)
    bounded = "-" if bound is None else f"{bound:g} s"
    holds = "" if bound is None else _mark(median <= bound)
    most = max(one.mb for one in taken)
    memory = f"{most} MB" if most else "-"
    return (
        f"| {what} | {files or '-'} | {bounded} | {median:.3f} s | {max(one.wall for one in taken):.3f} s "
        f"| {statistics.median(cpu):.3f} s | {cpu[0]:.3f} s | {memory} | {len(taken)} | {holds} |"
    )


def _mark(holds: bool) -> str:
    return "yes" if holds else "no"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
