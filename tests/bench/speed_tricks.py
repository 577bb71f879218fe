"""Measures each optimization that complicates the code, with and without it: `python -m tests.bench.speed_tricks
[RUNS]`.

Takes some minutes. Each run is a separate process, both variants alternate, and the ratio is the median of with to
without, run by run; below 1, the optimization pays. One that saves less than a tenth should be deleted. A second
process saves wall time only if a core is free; the CPU time of the busier process shows that on any machine.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from core.lineage.table_graph import edges_of
from core.observed.versions import Binding
from core.project_reader.loader import read_project
from core.project_reader.revision_reader import revision_of
from state.ledger import create_or_open
from tests.bench.command_latency import _environ
from tests.bench.generated_projects import project_texts, write
from tests.support.ledger_rows import deployment_row, environment_row, external_row
from tests.terminal.ledger_under_load import make
from tests.terminal.pseudo_terminal import Terminal
from tui.project_folder.environment_selection import select_environment

WITH = ""
ONE_PROCESS = "from tui.project_folder import parsing_performance as p; p.MANY = 10**9; "
USUAL_COLLECTION = (
    "import gc; from tui.project_folder import parsing_performance as p; p._SELDOM = gc.get_threshold(); "
)
NO_COPY = "from state.parse_cache_file import ParseCacheFile as c; c.load_project = c.save_project = lambda *_: None; "
READ_AGAIN = (
    "from state.ledger import LedgerReader as r; from state.registry import RegistryReads as g; "
    "r.deployments = g.deployments; "
)
NO_PICTURE = "from tui.terminal.first_frame import FirstFrame as f; f.draw = lambda *_: None; "
TELL = (
    "import atexit, resource, sys; atexit.register(lambda: print(*(sum(resource.getrusage(whose)[:2]) "
    "for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)), file=sys.stderr)); "
)
"""Code that makes a command print its CPU time and that of its finished child processes."""
COMMAND = "import sys; from tui.cli import main; sys.exit(main())"
CONSOLE = "import runpy; runpy.run_module('tests.terminal.ledger_under_load', run_name='__main__', alter_sys=True)"


def main(arguments: list[str]) -> int:
    """Print the table; return the exit code."""
    runs = int(arguments[0]) if arguments else 5
    print(f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, {os.cpu_count()} cores", end="")
    print(f", load average {os.getloadavg()[0]:.1f} at the start\n")
    print("| trick | what it is for | time | with | without | with : without |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for line in _rows(Path(folder), runs):
            print(line, flush=True)
    print(f"\nload average {os.getloadavg()[0]:.1f} at the end")
    return 0


def _rows(folder: Path, runs: int) -> Iterator[str]:
    yield from _first_frames(folder, runs)
    for tables in (1_000, 3_000):
        yield from _plans(folder, tables, runs, "two processes")
    for trick in ("rare collection", "project copy"):
        for tables in (3_000, 10_000):
            yield from _plans(folder, tables, runs, trick)
    yield from _differences(folder, 3_000, runs)


def _first_frames(folder: Path, runs: int) -> Iterator[str]:
    home = folder / "console"
    home.mkdir()
    with make(home, 1_000):

        def start(trick: str) -> float:
            with Terminal([sys.executable, "-c", trick + CONSOLE, str(home)], 80, 24) as terminal:
                while "product_000" not in terminal.text():
                    terminal.pump(0.005)
                return time.monotonic() - terminal.began

        yield _row("first frame", "first content of the console, 1,000 statements", "wall", NO_PICTURE, start, runs)


def _plans(folder: Path, tables: int, runs: int, trick: str) -> Iterator[str]:
    """Plan the whole project, without a parse cache for `two processes` and with one for the other tricks."""
    project, home = folder / f"of-{tables}", folder / f"home-{tables}"
    write(project_texts(tables), project)
    environ = _environ(home)
    cold = trick == "two processes"

    def planned(without: str) -> float:
        if cold:
            shutil.rmtree(home, ignore_errors=True)
        # The second process imports this program, and must not run it again.
        program = f"if __name__ == '__main__':\n    {TELL}{without}{COMMAND}"
        command = [sys.executable, "-c", program, "plan", "--all", "--offline"]
        done = subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True, check=True)
        return max(map(float, done.stderr.split()[-2:]))

    if not cold:
        planned(WITH)
    without = {"two processes": ONE_PROCESS, "rare collection": USUAL_COLLECTION, "project copy": NO_COPY}[trick]
    what = f"{tables:,} tables: plan the whole, {'cold' if cold else 'nothing changed'}"
    yield _row(trick, what, "CPU of the busiest process", without, planned, runs)


def _differences(folder: Path, tables: int, runs: int) -> Iterator[str]:
    """Compare two environments with the same deployments."""
    project, home = folder / f"of-two-{tables}", folder / f"home-two-{tables}"
    texts = project_texts(tables)
    manifest = texts["headgate.yml"].replace("environments:\n", "environments:\n  stage: {data: staged}\n")
    write(texts | {"headgate.yml": manifest}, project)
    environ = _environ(home)
    found, problems = read_project(texts | {"headgate.yml": manifest})
    assert found is not None, problems
    for name in ("dev", "stage"):
        place = select_environment(environ, str(project), environment=name)
        facts = environment_row(project_id=place.project_id, project=place.project, environment=name)
        with create_or_open(Path(place.where.ledger), facts) as ledger:
            for table, declared in found.tables.items():
                revision, written = revision_of(declared), not declared.external
                row = deployment_row if written else external_row
                parents = tuple(
                    Binding(edge.parent, int(not found.tables[edge.parent].external), edge.streamed)
                    for edge in edges_of(declared)
                )
                of_files = {"product": declared.product, "layer": str(declared.layer), "bindings": parents}
                version = {"version": int(written), "revision": revision.hash, "texts": revision.texts}
                ledger.put_deployment(row(table, **of_files, **version))

    def compared(without: str) -> float:
        program = f"if __name__ == '__main__':\n    {TELL}{without}{COMMAND}"
        command = [sys.executable, "-c", program, "diff", "--env", "dev", "--env", "stage"]
        done = subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True, check=True)
        return max(map(float, done.stderr.split()[-2:]))

    compared(WITH)
    what = f"{tables:,} tables: compare two environments"
    yield _row("versions read once", what, "CPU of the busiest process", READ_AGAIN, compared, runs)


def _row(trick: str, what: str, kind: str, without: str, act: Callable[[str], float], runs: int) -> str:
    act(WITH)
    taken = []
    for number in range(runs):
        ways = (WITH, without) if number % 2 else (without, WITH)
        times = {way: act(way) for way in ways}
        taken.append((times[WITH], times[without]))
    one, other = (statistics.median(each[side] for each in taken) for side in (0, 1))
    ratio = statistics.median(each[0] / each[1] for each in taken)
    return f"| {trick} | {what} | {kind} | {one:.2f} s | {other:.2f} s | {ratio:.2f} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
