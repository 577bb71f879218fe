"""Drill: kill -9 the agent at every point of a release over four statements, of its rollback, and of one with seams.

Run: PYTHONPATH=. python tests/drills/release_kills.py FILE [MINUTES [KILLS]]. Each life is one run of the diamond of
tests/support/release_project.py, in which the agent dies at KILLS points, 24 by default, far apart; all lives together
cover every point. Meanwhile an operator stops and starts a neighbour, another neighbour has failed, and another
operator stops or restarts a statement of the release, releases or deletes another table, or cancels the release. FILE
stores finished lives, so that a later call continues; no life begins after MINUTES, 4 by default. Prints a line per
life: actor, outcome, seconds, and by table the rows expected/got/doubled/missed in the serving versions; then a table
of all lives in FILE. Takes about forty minutes in all.
"""

import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from drill_process import run_drill
from release_lives import OTHERS_RUNS, REQUESTS, Ending, Life, Others, lived, one_point_per_step, points_of
from release_project import Released, released

ACTING = {
    "release": ("", "stop inside", "restart inside", "release beside", "delete beside"),
    "rollback": ("", "stop inside", "release beside", "delete beside", "restart inside"),
    "seam": ("", "stop inside", "restart inside", "release beside"),
}
"""The other actors in the lives of each kind of request, in turn."""


def main() -> int:
    file = Path(sys.argv[1])
    minutes = float(sys.argv[2]) if len(sys.argv) > 2 else 4.0
    kills = int(sys.argv[3]) if len(sys.argv) > 3 else 24
    root = Path(tempfile.mkdtemp(prefix="headgate-drill-"))
    began = time.monotonic()
    try:
        with released(root) as world:
            notes = read_notes(file, world, kills)
            print(f"{len(notes['lives'])} lives, {len(notes['ends'])} lived; up after {time.monotonic() - began:.0f} s")
            others = Others(world)
            others.start()
            before = ""
            while time.monotonic() - began < minutes * 60 and (n := next_life(notes, before)) is not None:
                one = notes["lives"][n]
                if one["request"] == "rollback" and before != "release":
                    live(world, Life("release", ()))
                notes["ends"][str(n)] = asdict(live(world, Life(one["request"], tuple(one["points"]), one["actor"])))
                write_notes(file, notes)
                before = one["request"]
            others.end()
            notes["seconds"] += time.monotonic() - began
            notes["acts"] += others.acts
            write_notes(file, notes)
        tell(notes)
        return 1 if any(end["wrong"] for end in notes["ends"].values()) else 0
    finally:
        shutil.rmtree(root)


def read_notes(file: Path, world: Released, kills: int) -> dict[str, Any]:
    """Return the stored lives and results; if nothing is stored, all lives without results."""
    if not file.exists():
        lives = all_lives(world, kills)
        write_notes(file, {"lives": [asdict(life) for life in lives], "ends": {}, "seconds": 0.0, "acts": 0})
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def next_life(notes: dict[str, Any], before: str) -> int | None:
    """Return the next life to play, preferably a rollback only after a release."""
    open_ = [n for n in range(len(notes["lives"])) if str(n) not in notes["ends"]]
    fit = (n for n in open_ if before == "release" or notes["lives"][n]["request"] != "rollback")
    return next(fit, open_[0] if open_ else None)


def write_notes(file: Path, notes: dict[str, Any]) -> None:
    hidden = file.with_suffix(".part")
    hidden.write_text(json.dumps(notes, indent=1, default=str))
    hidden.rename(file)


def all_lives(world: Released, kills: int) -> list[Life]:
    """Return lives that pass every point of each request, in turn, then a cancel in a step of each kind."""
    own = {actor: {f"{s['n']} {s['do']} " for s in world.plan(*words)["steps"]} for actor, words in OTHERS_RUNS.items()}
    by_request, cancels = [], dict[str, Life]()
    for request, acting in ACTING.items():
        world.edit()
        if request == "rollback":
            live(world, Life("release", ()))
        plan = world.plan(*REQUESTS[request])
        labels = points_of(plan)
        lives = [labels[n :: -(-len(labels) // kills)] for n in range(-(-len(labels) // kills))]
        for n, life in enumerate(lives[1:], 1):
            # Points that the other actor's run also passes are assigned to the first life, in which no other run
            # exists.
            steps = own.get(acting[n % len(acting)], set())
            meets = {p for p in life if steps and (p.startswith("swap ") or any(s in f"{p} " for s in steps))}
            lives[0] += [point for point in life if point in meets]
            lives[n] = [point for point in life if point not in meets]
        by_request.append([Life(request, tuple(life), acting[n % len(acting)]) for n, life in enumerate(lives)])
        if request == "release":
            one_each = one_point_per_step(plan, seed=1)
            cancels = {" ".join(point.split(" ")[2:3]): Life(request, (point,), "cancel") for point in one_each}
    return [life for turn in zip_longest(*by_request) for life in turn if life is not None] + list(cancels.values())


def live(world: Released, life: Life) -> Ending:
    """Play a life, print and return its ending."""
    if life.request != "rollback":
        world.edit()
    end = lived(world, life)
    rows = " ".join(f"{table} {rows}" for table, rows in end.rows.items())
    acted = life.actor or "alone"
    print(f"{life.request:8} {acted:14} {end.state:11} {end.seconds:4.0f} s  {rows}  swap {end.swap_ms} ms  "
          f"{'; '.join(end.wrong) or 'ok'} | died at {', '.join(end.died_at)} | not met: {', '.join(end.not_met)}",
          flush=True)  # fmt: skip
    return end


def tell(notes: dict[str, Any]) -> None:
    """Print a table of the finished lives."""
    kinds = Counter[tuple[str, str, str]]()
    points: Counter[tuple[str, str, str]] = Counter()
    for n, end in notes["ends"].items():
        life = notes["lives"][int(n)]
        kind = (life["request"], life["actor"] or "alone", end["state"] if not end["wrong"] else "WRONG")
        kinds[kind] += 1
        points[kind] += len(end["died_at"])
    for kind, count in sorted(kinds.items()):
        print(f"{kind[0]:9} {kind[1]:15} {kind[2]:8} {count:3} lives {points[kind]:4} kills")
    tried = {(notes["lives"][int(n)]["request"], p) for n, end in notes["ends"].items() for p in end["died_at"]}
    every = {(life["request"], point) for life in notes["lives"] for point in life["points"]}
    swaps = sorted(end["swap_ms"] for end in notes["ends"].values() if end["swap_ms"] is not None)
    back = sorted(end["took_s"] for n, end in notes["ends"].items() if notes["lives"][int(n)]["request"] == "rollback")
    print(f"{len(tried)} of {len(every)} points; {notes['acts']} acts on a neighbour; {notes['seconds']:.0f} s; "
          f"swaps {swaps} ms; rollbacks {[round(s) for s in back]} s with their kills")  # fmt: skip


if __name__ == "__main__":
    run_drill(main)
