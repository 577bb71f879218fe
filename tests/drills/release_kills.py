"""Drill: kill -9 the agent at every point of a release over four statements, and of its rollback, and cancel some.

Run: PYTHONPATH=. python tests/drills/release_kills.py [KILLS [FIRST [LAST [FILE]]]]. In each cycle the diamond of
tests/support/release_project.py is released and rolled back; the agent dies KILLS times in each of the two runs, 8 by
default, the last point of one run being far from the next, so that all cycles together kill it at every point. An
operator stops and starts one statement meanwhile, another release runs beside, and a neighbour has failed. FIRST and
LAST choose cycles, FILE keeps the points for the next call. After the last cycle one release per step before the swap
is cancelled once the agent has died in that step.
Prints a line for each run: how it ended, its seconds, and by table the rows expected/got/doubled/missed in what the
pointers serve. Takes some twenty minutes.
"""

import json
import shutil
import sys
import tempfile
import time
from itertools import takewhile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from drill_process import run_drill
from release_project import RELEASE, ROLLBACK, Ending, Others, Released, killed_at, one_point_per_step, released

REQUESTS = {"release": RELEASE, "rollback": ROLLBACK}
BESIDE = ("1 create", "2 start", "3 catch_up", "4 swap", "5 stop", "swap")
"""Beginnings of labels that the release beside passes as well: nothing is released beside a kill there."""


def main() -> int:
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    root = Path(tempfile.mkdtemp(prefix="headgate-drill-"))
    began = time.monotonic()
    try:
        with released(root) as world:
            points = points_of(world, root, Path(sys.argv[4]) if len(sys.argv) > 4 else root / "points.json")
            counts = ", ".join(f"{len(labels)} of a {name}" for name, labels in points.items())
            cycles = max(-(-len(labels) // kills) for labels in points.values())
            last = int(sys.argv[3]) if len(sys.argv) > 3 else cycles + 1
            print(f"points: {counts}; {cycles} cycles, then cancels; begun after {time.monotonic() - began:.0f} s")
            others = Others(world)
            others.start()
            ends: list[Ending] = []
            for cycle in range(first, min(last, cycles) + 1):
                world.edit()
                for name, labels in points.items():
                    ends.append(one(world, name, labels[cycle - 1 :: cycles]))
            if last > cycles:
                for point in before_the_swap(world):
                    world.edit()
                    ends.append(one(world, "cancel", [point]))
            others.end()
            bad, unmet = [end for end in ends if end.wrong], sorted({point for end in ends for point in end.not_met})
            print(
                f"{sum(len(end.died_at) for end in ends)} kills in {len(ends)} runs, {others.acts} acts of operators, "
                f"{time.monotonic() - began:.0f} s: {len(bad)} runs are wrong; not met: {', '.join(unmet) or 'none'}"
            )
            return 1 if bad else 0
    finally:
        shutil.rmtree(root)


def points_of(world: Released, root: Path, file: Path) -> dict[str, list[str]]:
    """Return the points of a release and of a rollback, from the file or by carrying out both."""
    if not file.exists():
        world.edit()
        file.write_text(json.dumps({name: world.trace(words, root / name) for name, words in REQUESTS.items()}))
    found: dict[str, list[str]] = json.loads(file.read_text())
    return found


def before_the_swap(world: Released) -> list[str]:
    """Return a point of each step before the swap."""
    world.edit()
    chosen = one_point_per_step(world.plan(*RELEASE), seed=1)
    return list(takewhile(lambda label: "swap" not in label, chosen))


def one(world: Released, name: str, points: list[str]) -> Ending:
    """Kill, look and print."""
    words = REQUESTS.get(name, RELEASE)
    free = all(not label.startswith(BESIDE) and not label.split(" ", 1)[1].startswith(BESIDE) for label in points)
    end = killed_at(world, words, points, beside=free and name == "release", cancel=name == "cancel")
    rows = " ".join(f"{table} {rows}" for table, rows in end.rows.items())
    print(f"{name:8} {end.state:9} {end.seconds:4.0f} s  {rows}  {'; '.join(end.wrong) or 'ok'} | "
          f"died at {', '.join(end.died_at)}", flush=True)  # fmt: skip
    return end


if __name__ == "__main__":
    run_drill(main)
