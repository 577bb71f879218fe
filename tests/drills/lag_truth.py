"""Drill: the generator is driven through steady, x5, stop, x0.2, parent stopped, parent dropped; is the word right?

Run: PYTHONPATH=. python tests/drills/lag_truth.py [FOLDER]. Takes about 13 minutes on a demo of its own; prints, for
each phase, after how many seconds the word was right for the first time and for good, and how often it changed.
"""

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from pizzeria import Pizzeria

SLOW = "order_labels"
"""Reads src_orders, at most four files at a time."""

EVERY_S = 2.0


@dataclass(frozen=True)
class Phase:
    """What is done to the demo, and the words that are true of the slow statement from then on, in this order."""

    name: str
    begin: Callable[[Pizzeria], None]
    words: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class Seen:
    """One look."""

    at: float
    trend: str
    lag_rows: int | None
    eta_s: float | None


def feed(rate: float, *, paused: bool = False) -> Callable[[Pizzeria], None]:
    """Make an act that sets the generator's rate, without bursts."""

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


PHASES = (
    Phase("steady, 8 orders/s", feed(8), ("steady",), 90),
    Phase("x5, 40 orders/s", feed(40), ("growing",), 120),
    Phase("x0.2, 8 orders/s", feed(8), ("draining",), 120),
    Phase("stop", feed(8, paused=True), ("draining", "idle", "starved"), 120),
    Phase("again, 8 orders/s", feed(8), ("steady",), 75),
    Phase("parent stopped", stop_parent, ("draining", "starved"), 60),
    Phase("parent started", start_parent, ("draining", "growing", "steady"), 60),
    Phase("parent dropped", drop_parent, ("starved",), 60),
)


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="headgate-lag-"))
    demo = Pizzeria(root)
    try:
        demo.begin()
        for phase in PHASES:
            print(told(phase, watch(demo, phase)), flush=True)
        return 0
    finally:
        demo.down()


def watch(demo: Pizzeria, phase: Phase) -> list[Seen]:
    """Begin a phase and look at the slow statement until it is over; times count from its beginning."""
    phase.begin(demo)
    began = time.time()
    seen: list[Seen] = []
    while time.time() - began < phase.seconds:
        row = demo.statements()[SLOW]
        seen.append(Seen(time.time() - began, row["trend"], row["lag_rows"], row["eta_s"]))
        time.sleep(EVERY_S)
    return seen


def told(phase: Phase, seen: list[Seen]) -> str:
    """Say when the word was right, for the first time and for good, how it went and how good the ETA was."""
    right = [one.trend in phase.words for one in seen]
    first = next((one.at for one, good in zip(seen, right, strict=True) if good), None)
    wrong = [one.at for one, good in zip(seen, right, strict=True) if not good]
    course = [seen[0], *(b for a, b in pairwise(seen) if a.trend != b.trend)]
    words = "  ".join(f"{one.at:.0f}s {one.trend}" for one in course)
    lags = f"lag {seen[0].lag_rows} → {seen[-1].lag_rows}"
    last = f"right for good from {wrong[-1] + EVERY_S:.0f} s" if wrong else "right all the time"
    begun = "never right" if first is None else f"first right at {first:.0f} s"
    return f"{phase.name:20} {begun}, {last}; {lags}{eta(seen)}\n{'':20} {words}"


def eta(seen: list[Seen]) -> str:
    """Compare the estimates of the second half of a drain with when the lag was in fact worked off."""
    drained = next((one.at for one in seen if one.trend in ("idle", "steady") and (one.lag_rows or 0) < 60), None)
    estimates = [one for one in seen if one.trend == "draining" and one.eta_s and drained and one.at > drained / 2]
    if not estimates or drained is None:
        return ""
    errors = sorted((one.eta_s or 0) / max(1.0, drained - one.at) - 1 for one in estimates if drained > one.at)
    return (
        f"; ETA error {errors[0]:+.0%} to {errors[-1]:+.0%}, median {errors[len(errors) // 2]:+.0%}" if errors else ""
    )


if __name__ == "__main__":
    sys.exit(main())
