"""Drill: kill -9 the agent before and after every intent, effect and evidence of a rebuild, a delete and a start.

Run: python tests/drills/agent_kills.py [FIRST [LAST]]. Takes about fifteen minutes and prints one line per point. Every
cycle rebuilds, deletes and starts one statement, and the agent dies once in each of the three runs: in cycle N at the
Nth point of each. FIRST and LAST choose cycles.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from drill_process import run_drill
from tiny_project import DML, Impatient, Tiny, alive, until

FAST = {"HEADGATE_MEASURE_S": "1"}
REBUILD, DELETE, START = ["marked", "--rebuild"], ["delete", "marked"], ["marked"]
REQUESTS = (REBUILD, DELETE, START)


def main() -> int:
    first = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    root = Path(tempfile.mkdtemp(prefix="headgate-drill-"))
    tiny = Tiny(root, FAST)
    tiny.write()
    try:
        tiny.land(50)
        tiny.done("up")
        assert tiny.apply(tiny.plan("--all")).returncode == 0
        labels = count(tiny, root)
        cycles = max(len(found) for found in labels)
        each = ", ".join(f"{len(found)} in {' '.join(words)}" for words, found in zip(REQUESTS, labels, strict=True))
        print(f"{sum(map(len, labels))} points: {each}", flush=True)
        last = int(sys.argv[2]) if len(sys.argv) > 2 else cycles
        bad = killed = 0
        for point in range(first, last + 1):
            change(tiny, point)
            for words, found in zip(REQUESTS, labels, strict=True):
                began = time.monotonic()
                label = found[point - 1] if point <= len(found) else ""
                fault = pass_through(tiny, words, point if label else 0)
                killed += bool(label)
                bad += fault != "ok"
                if label or fault != "ok":
                    took = time.monotonic() - began
                    print(f"{' '.join(words):16} {point:3} {label:28} {took:3.0f} s  {fault}", flush=True)
        print(f"{bad} of {killed} points failed")
        return 1 if bad else 0
    finally:
        tiny.down()
        shutil.rmtree(root)


def count(tiny: Tiny, root: Path) -> list[list[str]]:
    """Run one cycle without kills, and return the labels of the points that each run passes."""
    found = []
    change(tiny, 0)
    for n, words in enumerate(REQUESTS):
        trace = root / f"trace{n}"
        renew_agent(tiny, HEADGATE_FAULT_TRACE=str(trace))
        assert tiny.apply(tiny.plan(*words)).returncode == 0, words
        found.append([line.split(" ", 1)[1] for line in trace.read_text().splitlines()])
    return found


def change(tiny: Tiny, point: int) -> None:
    """Land more rows and change the statement, so that it is rebuilt."""
    tiny.land(7)
    tiny.write(marked=DML["marked"].replace("upper(kind)", f"concat(kind, '{point}')"))


def pass_through(tiny: Tiny, words: list[str], point: int) -> str:
    """Apply one plan while the agent dies at a point (0: at none); return `ok` or what is wrong afterwards."""
    try:
        renew_agent(tiny, HEADGATE_FAULT_AT=str(point) if point else "")
        applied = tiny.apply(tiny.plan(*words))
        if not point:
            return "ok" if applied.returncode == 0 else f"exit code {applied.returncode}: {applied.stderr.strip()}"
        until(partial(dead, tiny.agent_pid()), 30, "the agent is dead")
        tiny.done("up")
        until(lambda: '"running"' not in tiny.done("runs", "--json"), 120, "the resumed run has ended")
        newest = json.loads(tiny.done("runs", "--json"))[0]
        if newest["state"] != "done":
            notes = "; ".join(step["note"] for step in newest["steps"] if step["state"] == "failed")
            return f"the run ended {newest['state']}: {notes}"
        return gone(tiny) if words is DELETE else holds(tiny)
    except AssertionError as error:
        return " ".join(str(error).split())


def renew_agent(tiny: Tiny, **environ: str) -> None:
    tiny.done("down", "--keep-pool", "--confirm", "")
    tiny.done("up", **environ)
    # If a plan were made before the agent has found its statements running, it would resume them, and pass other points
    # than those counted.
    until(lambda: tiny.statements()["kept"]["state"] == "running", 60, "the agent has found the running statements")


def dead(pid: int) -> bool:
    return not alive(pid)


def holds(tiny: Tiny) -> str:
    """Check that the version that serves and runs contains every landed id once; return `ok` or what is wrong."""
    until(lambda: tiny.statements()["marked"]["state"] == "running", 60, "the statement runs")
    version = int(str(tiny.statements()["marked"]["version"]).lstrip("v"))
    wanted = list(range(1, tiny.landed + 1))
    try:
        until(lambda: len(tiny.ids("marked", version)) >= len(wanted), 60, "all rows arrived")
    except Impatient as error:
        return f"{error}: {len(tiny.ids('marked', version))} of {len(wanted)} in v{version}"
    if tiny.ids("marked", version) != wanted:
        return "rows are doubled"
    states = {table: row["state"] for table, row in tiny.statements().items()}
    return "ok" if states["kept"] == "running" else f"states {states}"


def gone(tiny: Tiny) -> str:
    """Check that no file of the deleted statement is left in place; return `ok` or what is wrong."""
    left = [path.name for path in (tiny.folder / "data/tables").glob("marked__v*")]
    left += [path.name for path in (tiny.folder / "data/checkpoints").glob("marked__v*")]
    if left:
        return f"left in place: {', '.join(left)}"
    rows = tiny.statements()
    state = rows["marked"]["state"] if "marked" in rows else "absent"
    return "ok" if state == "absent" else f"the statement is {state}"


if __name__ == "__main__":
    os.umask(0o022)
    run_drill(main)
