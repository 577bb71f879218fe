"""Drill: carry out real plans on the demo, and compare the predicted duration of each step with the actual one.

Run: PYTHONPATH=. python tests/drills/predicted_steps.py [ROUNDS [ROOT]]. Deploys the demo, for which nothing can be
predicted, then ROUNDS (2) times rebuilds a statement and a chain of them, edits two, deletes one and deploys it again.
Prints each predicted step, how many were within their range, and the width of the ranges; then the same for whole runs.
Takes six minutes a round on two idle cores; ROOT (a new folder) is kept. Exits 1 if fewer than 20 steps were predicted,
or fewer than four in five took as long as predicted.
"""

import json
import shutil
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from drill_process import run_drill
from live_project import until
from pizzeria_demo import Pizzeria

INSIDE = 0.8
GRAIN_S = 0.1
"""Durations are rounded to this many seconds."""
SETTLED_S = 180.0


@dataclass(frozen=True, slots=True)
class Compared:
    """The predicted and actual duration of a step or a run."""

    what: str
    low_s: float
    high_s: float
    took_s: float

    @property
    def inside(self) -> bool:
        return self.low_s - GRAIN_S <= self.took_s <= self.high_s + GRAIN_S

    @property
    def ratio(self) -> float:
        """The actual duration divided by the middle of the range."""
        return self.took_s / max((self.low_s + self.high_s) / 2, GRAIN_S)

    def line(self) -> str:
        word = "" if self.inside else "shorter" if self.took_s < self.low_s else "LONGER"
        return f"  {self.what:44} {self.low_s:7.1f} {self.high_s:7.1f} {self.took_s:7.1f}  {word}"


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    kept = len(sys.argv) > 2
    demo = Pizzeria(Path(sys.argv[2]).absolute() if kept else Path(tempfile.mkdtemp(prefix="headgate-drill-")))
    steps: list[Compared] = []
    runs: list[Compared] = []
    try:
        demo.begin()
        for number in range(rounds):
            for title, plan in plans(demo, number):
                carried_out(demo, title, plan, steps, runs)
        report("steps", steps)
        report("runs", runs)
        good = len(steps) >= 20 and sum(one.inside for one in steps) >= INSIDE * len(steps)
        return 0 if good else 1
    finally:
        demo.down()
        if not kept:
            shutil.rmtree(demo.root, ignore_errors=True)


def plans(demo: Pizzeria, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each plan of a round, once the preceding plan has been carried out."""
    yield "rebuild a leaf", demo.plan("fct_takings", "--rebuild", "--children", "none")
    if number == 0:
        demo.done("demo", "change", "column")
        yield "add a column", demo.plan("int_priced_items")
    edit(demo, "int_paid_orders", f"-- Edited {number}.\n")
    yield "edit a comment", demo.plan("int_paid_orders")
    pace(demo, 12 + number)
    yield "change a pace", demo.plan("fct_takings")
    yield "rebuild a chain", demo.plan("int_order_items", "--rebuild", "--children", "all")
    yield "delete", demo.plan("delete", "vw_busy_windows")
    yield "deploy again", demo.plan("vw_busy_windows")


def edit(demo: Pizzeria, table: str, head: str) -> None:
    (file,) = demo.folder.rglob(f"dml.{table}.sql")
    file.write_text(head + file.read_text())


def pace(demo: Pizzeria, seconds: int) -> None:
    """Write a different trigger for fct_takings, which restarts the statement."""
    file = demo.folder / "pipelines/facts/sales/fct_takings/fct_takings.yml"
    lines = [line for line in file.read_text().splitlines() if not line.startswith("trigger:")]
    file.write_text("\n".join([*lines, f"trigger: {seconds} seconds", ""]))


def carried_out(demo: Pizzeria, title: str, plan: dict[str, Any], steps: list[Compared], runs: list[Compared]) -> None:
    """Apply a plan; print and collect predicted and actual durations."""
    if not plan["steps"]:
        print(f"{title}: nothing to do", flush=True)
        return
    done = demo.apply(plan)
    assert done.returncode == 0, done.stdout + done.stderr
    run = next(one for one in json.loads(demo.done("runs", "--json")) if one["plan"] == plan["hash"])
    promised = (plan["predicted_low_s"], plan["predicted_high_s"])
    assert promised == (run["predicted_low_s"], run["predicted_high_s"]), (promised, run)
    print(f"{title}: run {run['id']}, {len(run['steps'])} steps", flush=True)
    for step in run["steps"]:
        found = compared(f"{step['do']} {step['table']}", step)
        print(found.line() if found else f"  {step['do']} {step['table']}: nothing predicted, "
              f"{step['ended_at'] - step['started_at']:.1f} s", flush=True)  # fmt: skip
        steps += [found] if found else []
    whole = compared(f"run: {title}", run)
    if whole:
        print(whole.line(), flush=True)
        runs.append(whole)
    until(lambda: set(demo.states().values()) <= {"running", "absent"}, SETTLED_S, "every statement runs")


def compared(what: str, record: dict[str, Any]) -> Compared | None:
    """Compare a step or a run; None without a prediction."""
    if record["predicted_low_s"] is None:
        return None
    took_s = record["ended_at"] - record["started_at"]
    return Compared(what, record["predicted_low_s"], record["predicted_high_s"], took_s)


def report(what: str, found: Sequence[Compared]) -> None:
    """Print how many steps took as long as predicted, in total and by kind, and the width of the ranges."""
    kinds: dict[str, list[Compared]] = defaultdict(list)
    for one in found:
        kinds["all"].append(one)
        if what == "steps":
            kinds[one.what.split()[0]].append(one)
    for kind, those in kinds.items():
        inside = sum(one.inside for one in those)
        widths = statistics.median(one.high_s - one.low_s for one in those)
        ratio = statistics.median(one.ratio for one in those)
        print(f"{what}, {kind}: {inside} of {len(those)} inside; median ratio to the middle {ratio:.2f}, "
              f"median width {widths:.1f} s", flush=True)  # fmt: skip


if __name__ == "__main__":
    run_drill(main)
