"""Drill: lives of an environment in virtual time, each drawn from a seed: the real agent, operators and faults.

Run: PYTHONPATH=. .venv/bin/python tests/drills/agent_lives.py N [SEED] [--theme THEME] [--shrink] [--show]. Plays the
seeds SEED (1) to SEED + N - 1 in sequence on one core, all of one theme if given; `tests/support/drawn_life.py`
describes such a life. Prints lives per second, the hours lived, the edges passed, a table of words and faults by kind
(drawn; happened; requests, calls and threads affected), and for each broken rule its seeds; with `--shrink` also the
smallest script that breaks it, for `tests/fixtures/lives`. `--show` prints only the life of SEED. Returns 1 if a rule
was broken. A life takes 0.3 to 0.6 s of one core: a thousand take eight minutes.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from life_script import FAULTS, THEMES, Script, draw
from lives import Lives, Report


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("count", type=int)
    words.add_argument("seed", type=int, nargs="?", default=1)
    words.add_argument("--theme", default="", choices=[theme.__name__.lstrip("_") for theme in THEMES])
    words.add_argument("--shrink", action="store_true")
    words.add_argument("--show", action="store_true")
    asked = words.parse_args()
    # Passing the baton between threads on different cores would double the time.
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[asked.seed % len(os.sched_getaffinity(0))]})
    lives = Lives()
    try:
        if asked.show:
            return show(lives, draw(asked.seed, asked.theme))
        scripts = (draw(seed, asked.theme) for seed in range(asked.seed, asked.seed + asked.count))
        return drill(lives, scripts, shrink=asked.shrink)
    finally:
        lives.close()


def show(lives: Lives, script: Script) -> int:
    """Print one life."""
    end = lives.live(script)
    print(script.as_json())
    print("\n".join(end.trace))
    return int(bool(end.violations))


def table(report: Report) -> None:
    """Print how often each kind of event was drawn, happened, and affected anything: faults, then words."""
    print(f"{'fault or word':24}{'drawn':>8}{'came':>8}{'met':>8}")
    for kind in (*sorted(FAULTS), *sorted(report.drawn.keys() - {*FAULTS})):
        met = report.met[kind] if kind in FAULTS else ""
        print(f"{kind:24}{report.drawn[kind]:8}{report.came[kind]:8}{met:>8}")


def drill(lives: Lives, scripts: Iterable[Script], *, shrink: bool) -> int:
    """Play many lives, and print the results."""
    report, began, busy = Report(), time.monotonic(), time.process_time()
    for script in scripts:
        end = lives.live(script)
        report.take(script, end)
        if end.violations:
            print(f"  seed {script.seed}: {end.rule}: {end.violations[0].detail}", flush=True)
    took, busy = time.monotonic() - began, time.process_time() - busy
    print(
        f"{report.lives} lives in {took:.0f} s: {report.lives / took:.2f} a second, {report.lives / busy:.2f} for each "
        f"second of a core\n{report.virtual_s / 3600:.1f} hours lived\n"
        f"{len(report.passed)} edges passed, {sum(report.passed.values())} times"
    )
    table(report)
    for rule, scripts in sorted(report.failed.items()):
        print(f"{rule}, {len(scripts)} times: seeds {', '.join(script.seed for script in scripts[:12])}")
        if shrink:
            print(lives.shrink(scripts[0], rule).as_json())
    return int(bool(report.failed))


if __name__ == "__main__":
    sys.exit(main())
