"""Drill: drive the generator through steady, x5, stop, x0.2, parent stopped, parent dropped; is the lag trend right?

Run: PYTHONPATH=. python tests/drills/lag_trend_accuracy.py [FOLDER [STEADY_S]]. Takes about 13 minutes on its own demo,
and more with a longer steady phase; prints for each phase when the statement's own input changed, after how many
seconds the trend was right for the first time and for good, and how often it changed.

The truth comes from the times and rows of the parent's files, read independently of the agent. The slow statement's
parent delays orders by its watermark of 20 seconds, so that its input changes later than the generator.
"""

import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import pyarrow.parquet as parquet
from drill_process import run_drill
from live_project import committed
from pizzeria_demo import Pizzeria

SLOW = "order_labels"
"""Reads src_orders, at most four files at a time."""

PARENT = "src_orders__v1"

EVERY_S = 2.0

GRAIN_S = 15.0
"""Seconds of a batch and two samples, because the end of a backlog cannot be known more precisely."""

WORKED_OFF = 60
"""Rows below which a backlog counts as processed: about one batch of the parent at 8 orders/s."""


@dataclass(frozen=True)
class Phase:
    """A change to the demo, and the trends that the slow statement must then have, in this order."""

    name: str
    begin: Callable[[Pizzeria], None]
    words: tuple[str, ...]
    seconds: float
    rate: float | None = None
    """Nominal orders per second from this phase on; None if the rate does not change."""


@dataclass(frozen=True)
class Seen:
    """One observation of the slow statement."""

    at: float
    trend: str
    lag_rows: int | None
    eta_s: float | None


def feed(rate: float, *, paused: bool = False) -> Callable[[Pizzeria], None]:
    """Return a function that sets the generator's rate, without bursts."""

    def begin(demo: Pizzeria) -> None:
        hidden = demo.folder / "data/.feeds"
        hidden.write_text(json.dumps({"rate": rate, "paused": paused, "bursts": None}))
        hidden.rename(demo.folder / "data/feeds.json")

    return begin


def stop_parent(demo: Pizzeria) -> None:
    demo.done("stop", "src_orders", "--confirm", "yes")


def start_parent(demo: Pizzeria) -> None:
    demo.done("start", "src_orders", "--confirm", "yes")


def drop_parent(demo: Pizzeria) -> None:
    shutil.move(demo.folder / "data/tables/src_orders__v1", demo.folder / "data/gone")


STEADY_S = float(sys.argv[2]) if len(sys.argv) > 2 else 90.0

PHASES = (
    Phase("steady, 8 orders/s", feed(8), ("steady",), STEADY_S, 8),
    Phase("x5, 40 orders/s", feed(40), ("growing",), 120, 40),
    Phase("x0.2, 8 orders/s", feed(8), ("draining", "steady"), 180, 8),
    Phase("stop", feed(8, paused=True), ("draining", "idle", "starved"), 120, 0),
    Phase("again, 8 orders/s", feed(8), ("steady",), 75, 8),
    Phase("parent stopped", stop_parent, ("draining", "starved"), 60),
    Phase("parent started", start_parent, ("draining", "growing", "steady"), 60),
    Phase("parent dropped", drop_parent, ("starved",), 60),
)


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="headgate-lag-"))
    demo = Pizzeria(root)
    try:
        demo.begin()
        rate = 8.0
        for phase in PHASES:
            began, seen = watch(demo, phase)
            changed_s = 0.0 if phase.rate is None else changed(arrivals(demo), began, rate, phase.rate) - began
            rate = rate if phase.rate is None else phase.rate
            print(told(phase, seen, changed_s), flush=True)
        return 0
    finally:
        demo.down()


def watch(demo: Pizzeria, phase: Phase) -> tuple[float, list[Seen]]:
    """Begin a phase and observe the slow statement until the phase ends; times are relative to its beginning."""
    began = time.time()
    phase.begin(demo)
    seen: list[Seen] = []
    while time.time() - began < phase.seconds:
        row = demo.statements()[SLOW]
        seen.append(Seen(time.time() - began, row["trend"], row["lag_rows"], row["eta_s"]))
        time.sleep(EVERY_S)
    return began, seen


def arrivals(demo: Pizzeria) -> list[tuple[float, int]]:
    """Return what the parent has written as (time, rows) for each second with files, oldest first."""
    rows: Counter[int] = Counter()
    for file in committed(demo.folder / "data/tables" / PARENT):
        rows[int(file.stat().st_mtime)] += parquet.ParquetFile(file).metadata.num_rows
    return [(float(at), rows[at]) for at in sorted(rows)]


def changed(written: list[tuple[float, int]], began: float, old: float, new: float) -> float:
    """Return when the parent's output adopted a new rate: the first batch nearer to it than to the old one."""
    if not new:
        return max((at for at, _ in written), default=began)
    for (before, _), (at, rows) in pairwise(written):
        rate = rows / max(1.0, at - before)
        if at > began and abs(rate - new) < abs(rate - old):
            return at
    return began


def told(phase: Phase, seen: list[Seen], changed_s: float) -> str:
    """Describe when the trend was right, for the first time and for good, its course, and the accuracy of the ETA."""
    after = [one for one in seen if one.at >= changed_s]
    right = [one.trend in phase.words for one in after]
    first = next((one.at for one, good in zip(after, right, strict=True) if good), None)
    wrong = [one.at for one, good in zip(after, right, strict=True) if not good]
    course = [seen[0], *(b for a, b in pairwise(seen) if a.trend != b.trend)]
    words = "  ".join(f"{one.at:.0f}s {one.trend}" for one in course)
    lags = f"lag {seen[0].lag_rows} → {seen[-1].lag_rows}"
    last = f"for good after {wrong[-1] + EVERY_S - changed_s:.0f} s" if wrong else "right all the time"
    begun = "never right" if first is None else f"right after {first - changed_s:.0f} s"
    return f"{phase.name:20} input changed at {changed_s:.0f} s, {begun}, {last}; {lags}{eta(seen)}\n{'':20} {words}"


def eta(seen: list[Seen]) -> str:
    """Compare the estimates in the second half of a drain with the time at which the backlog was processed."""
    calls = [one for one in seen if one.trend == "draining"]
    drained = next(
        (one.at for one in seen if calls and one.at > calls[0].at and (one.lag_rows or 0) < WORKED_OFF), None
    )
    if drained is None or (calls[0].lag_rows or 0) < 5 * WORKED_OFF:
        return ""
    half = (calls[0].at + drained) / 2
    late = [one for one in calls if half <= one.at < drained]
    errors = sorted((one.eta_s or 0) / (drained - one.at) - 1 for one in late)
    if not errors:
        return ""
    wide = sum(abs((one.eta_s or 0) - (drained - one.at)) > max(0.3 * (drained - one.at), GRAIN_S) for one in late)
    return (
        f"; worked off at {drained:.0f} s, ETA error {errors[0]:+.0%} to {errors[-1]:+.0%},"
        f" median {errors[len(errors) // 2]:+.0%}, {wide} of {len(errors)} beyond 30 % and {GRAIN_S:.0f} s"
    )


if __name__ == "__main__":
    run_drill(main)
