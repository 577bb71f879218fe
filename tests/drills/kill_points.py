"""Drill: kill -9 the agent before and after every intent, effect and evidence of a rebuild, a delete and a start.

Run: python tests/drills/kill_points.py [FIRST [LAST]]. Takes some twenty minutes; prints a line for each point.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from tiny import DML, Tiny, alive, until

FAST = {"HEADGATE_MEASURE_S": "1"}


def main() -> int:
    first = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    last = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    root = Path(tempfile.mkdtemp(prefix="headgate-drill-"))
    tiny = Tiny(root, FAST)
    tiny.write()
    try:
        tiny.land(50)
        tiny.done("up")
        assert tiny.apply(tiny.plan("--all")).returncode == 0
        labels = count(tiny, root)
        print(f"{len(labels)} points in one cycle of rebuild, delete and start", flush=True)
        bad = 0
        for point in range(first, (last or len(labels)) + 1):
            fault = cycle(tiny, point)
            print(f"{point:4} {labels[point - 1]:32} {fault}", flush=True)
            bad += fault != "ok"
        print(f"{bad} of {(last or len(labels)) - first + 1} points failed")
        return 1 if bad else 0
    finally:
        tiny.down()
        shutil.rmtree(root)


def count(tiny: Tiny, root: Path) -> list[str]:
    """Let one cycle pass with nobody killed, noting its points."""
    trace = root / "trace"
    renew_agent(tiny, HEADGATE_FAULT_TRACE=str(trace))
    for words in requests(tiny, 0):
        assert tiny.apply(tiny.plan(*words)).returncode == 0, words
    return [line.split(" ", 1)[1] for line in trace.read_text().splitlines()]


def cycle(tiny: Tiny, point: int) -> str:
    """Go through a cycle with the agent dying at one point, and say what is wrong afterwards."""
    renew_agent(tiny, HEADGATE_FAULT_AT=str(point))
    killed = 0
    for words in requests(tiny, point):
        found = tiny.apply(tiny.plan(*words))
        if found.returncode != 0:
            killed += 1
            pid = tiny.agent_pid()
            until(lambda p=pid: not alive(p), 30, "the agent is dead")
            tiny.done("up")
            finish_runs(tiny)
    if not killed:
        return "nobody was killed"
    return verdict(tiny)


def requests(tiny: Tiny, point: int) -> list[list[str]]:
    """Change the statement so that it is rebuilt, then delete and start it again; each time there is more input."""
    tiny.land(7)
    tiny.write(marked=DML["marked"].replace("upper(kind)", f"concat(kind, '{point}')"))
    return [["marked", "--rebuild"], ["delete", "marked"], ["marked"]]


def renew_agent(tiny: Tiny, **environ: str) -> None:
    tiny.done("down", "--keep-pool", "--confirm", "")
    tiny.done("up", **environ)


def finish_runs(tiny: Tiny) -> None:
    """Wait until the run that was taken up has ended."""
    until(lambda: '"running"' not in tiny.done("runs", "--json"), 120, "the run has ended")


def verdict(tiny: Tiny) -> str:
    """Compare what is there with what must be: every landed id once, one version running, the pointer on it."""
    here = tiny.statements()["marked"]
    version = int(str(here["version"]).lstrip("v"))
    wanted = list(range(1, tiny.landed + 1))
    try:
        until(lambda: len(tiny.ids("marked", version)) >= len(wanted), 60, "all rows arrived")
    except AssertionError as error:
        return str(error)
    if tiny.ids("marked", version) != wanted:
        return "rows are missing or doubled"
    states = [row["state"] for row in tiny.statements().values()]
    failed = '"failed"' in tiny.done("runs", "--json")
    if failed:
        return "a run failed"
    return "ok" if states.count("running") >= 2 else f"states {states}"


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main())
