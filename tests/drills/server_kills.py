"""Drill: kill -9 the Connect server at ten seeded moments while the demo feeds, settle, and compare every table.

Run: python tests/drills/server_kills.py [KILLS [SEED [ROOT]]]. Takes about twenty minutes; ROOT (a new folder) is kept.
After each kill the drill waits until every statement runs again. After eight starts of the server within ten minutes
the agent waits for an operator: the drill prints that and requests the pool with `headgate up`. Exits 1 if a table has
one row too many or too few, or if a statement does not come back.
"""

import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from drill_process import run_drill
from exact_results import finish
from expected_results import ExpectedRules
from live_project import Impatient, alive, until
from pizzeria_demo import Pizzeria

BACK_S = 240.0
RATE = "4"
"""Orders per second. The rate is low, so that catching up ten times does not dominate the duration."""
MOMENT_S = 15.0
"""Maximum seconds from the return of all statements to the next kill: the longest trigger, so that a kill may hit any
phase."""


def main() -> int:
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    kept = len(sys.argv) > 3
    root = Path(sys.argv[3]).absolute() if kept else Path(tempfile.mkdtemp(prefix="headgate-drill-"))
    demo, moments = Pizzeria(root), random.Random(seed)
    try:
        demo.begin("--rate", RATE)
        bad = sum(not kill(demo, number + 1, moments.uniform(0, MOMENT_S)) for number in range(kills))
        bad += finish(demo, ExpectedRules())
        print(f"{kills} kills with seed {seed}: {bad} things are wrong")
        return 1 if bad else 0
    finally:
        demo.down()
        if not kept:
            shutil.rmtree(root)


def kill(demo: Pizzeria, number: int, moment: float) -> bool:
    """Kill the server after a moment and wait until all statements are back; return whether they came back."""
    time.sleep(moment)  # A kill at a random moment is the point of this drill.
    pid = demo.pool_pid()
    doing = ", ".join(f"{t} {batch}" for t, batch in busy(demo)) or "no batch under way"
    os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    killed_at = time.time()
    try:
        until(lambda: not alive(pid), 10, "the server is dead")
        until(lambda: demo.pool_pid() != pid or demo.pool()[0] == "failed", 60, "another server was started")
        asked = "" if demo.pool_pid() != pid else f" asked for by `headgate up`, because {demo.pool()[1]}"
        if asked:
            demo.done("up")
            until(lambda: demo.pool_pid() != pid, 60, "another server was started on request")
        server_s = time.monotonic() - began
        until(lambda: demo.all_run() and demo.measured_since(killed_at), BACK_S, "every statement runs")
    except Impatient as error:
        states = {t: s for t, s in demo.states().items() if s != "running"}
        print(f"kill {number:2}: {error}; {states}", flush=True)
        return False
    print(
        f"kill {number:2}: {moment:4.1f} s after all ran, pid {pid}, met {doing}; new process after {server_s:.1f} s"
        f"{asked}, all run again after {time.monotonic() - began:.0f} s",
        flush=True,
    )
    return True


def busy(demo: Pizzeria) -> list[tuple[str, int]]:
    """Return the statements whose newest batch has begun but is not committed, with the number of that batch."""
    found = []
    for folder in sorted((demo.folder / "data/checkpoints").iterdir()):
        offset, commit = newest(folder / "offsets"), newest(folder / "commits")
        if offset > commit:
            found.append((folder.name, offset))
    return found


def newest(folder: Path) -> int:
    return max((int(path.name) for path in folder.iterdir() if path.name.isdigit()), default=-1)


if __name__ == "__main__":
    run_drill(main)
