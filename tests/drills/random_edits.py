"""Drill: random edits of random statements on the old checkpoint; does Spark do what our action promises?

Run: PYTHONPATH=. python tests/drills/random_edits.py [--seed N …] [--count N]. The old text runs over part 1 of the
input and the new text over part 2 on one checkpoint, and the new text alone over both, as in
`edited_statement_on_old_checkpoint.py`. An edit is *unsafe* if we record, keep or restart it although the tables differ
or Spark refuses; it is shrunk as far as it stays unsafe, and printed. Statements with LIMIT or `first` are left out,
because they may select different rows in each run. A pair whose old or new text Spark refuses on its own is `not run`,
and replaced by another. Returns 1 if anything is unsafe. 300 pairs take half an hour on two idle cores.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from drill_process import run_drill, spark_server
from random_trials import Run, drawn, small, tried

from core.changes.kinds import ChangeKind
from core.model.actions import Action
from core.plan.descriptions import evidence_words

AT_ONCE = 75
"""Pairs per server, because a server keeps the plans of all queries that it has run."""

KINDS = ("equal", "seam", "differs", "unreadable", "refused", "not run")
ACTIONS = (Action.KEEP, Action.RECORD, Action.RESTART, Action.REBUILD)


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--seed", type=int, nargs="+", default=[1])
    words.add_argument("--count", type=int, default=300)
    words.add_argument("--only", type=int, nargs="+", help="numbers of the seed to run alone")
    asked = words.parse_args()
    return max(drill(seed, asked.count, asked.only) for seed in asked.seed)


def drill(seed: int, count: int, only: Sequence[int] | None) -> int:
    """Try pairs of one seed until enough have run, and print the results."""
    began = time.monotonic()
    found: list[Run] = []
    first = 0
    while only and not found:
        found = portion(seed, only)
    while not only and (left := count - sum(each.kind != "not run" for each in found)) > 0:
        found += portion(seed, range(first, first + min(AT_ONCE, left + left // 5 + 1)))
        first = len(found)
        print(f"  seed {seed}: {first} pairs drawn, {time.monotonic() - began:.0f} s", flush=True)
    report(seed, found, time.monotonic() - began)
    return int(any(each.unsafe for each in found))


def portion(seed: int, numbers: Sequence[int]) -> list[Run]:
    """Try some pairs on a separate server, and print unsafe pairs."""
    pairs = drawn(seed, numbers)
    with tempfile.TemporaryDirectory(prefix="headgate-pairs-") as name:
        folder = Path(name)
        with spark_server(folder / "home", memory="2g") as pool:
            runs = tried(pool, folder / "pairs", pairs)
            for each in runs:
                if each.unsafe:
                    tell(f"UNSAFE {seed}/{each.number}", each)
                    tell("  smaller", small(pool, folder / str(each.number), each))
    return runs


def tell(word: str, found: Run) -> None:
    """Print both texts of a pair, Spark's result and our classification."""
    trial = found.trial
    print(f"{word}: {trial.edit.name}; Spark: {trial.outcome}; we: {trial.change.kind} {trial.change.action}")
    for side, revision in (("old", trial.edit.old), ("new", trial.edit.new)):
        print(f"    {side}: {revision.texts.ddl}\n         {revision.texts.dml}")
    for name, rows in trial.seen.items():
        print(f"    {name}: {sum(rows.values())} rows, {sorted(rows.elements())[:6]}")
    if trial.said:
        print(f"    Spark: {trial.said[:600]}")
    print(f"    {'; '.join(map(evidence_words, trial.change.evidence))}", flush=True)


def report(seed: int, found: Sequence[Run], seconds: float) -> None:
    """Print the number of pairs by outcome and action, by kind of edit, and where we are stricter than Spark."""
    cells = Counter((each.kind, each.trial.change.action) for each in found)
    print(f"{'':12}" + "".join(f"{action:>10}" for action in ACTIONS))
    for kind in KINDS:
        print(f"{kind:12}" + "".join(f"{cells[kind, action]:10}" for action in ACTIONS))
    ran = [each for each in found if each.kind != "not run"]
    for each in found:
        if each.kind in ("equal", "seam") and each.trial.change.action is Action.REBUILD and each.wrote:
            change = each.trial.change
            print(f"  stricter: {each.kind}, {change.kind} {'; '.join(map(evidence_words, change.evidence))[:110]}")
    sorts = Counter(each.pair.kind for each in ran)
    print("  edits:", ", ".join(f"{number} {kind}" for kind, number in sorts.most_common()))
    refused = Counter(each.trial.outcome.removeprefix("not run: ") for each in found if each.kind == "not run")
    print("  not run:", "; ".join(f"{number} {why}" for why, number in refused.most_common(12)))
    waters = (each for each in found if each.trial.change.kind is ChangeKind.WATERMARK_DELAY)
    closed = sum(each.kind == "differs" and not each.unsafe for each in waters)
    print(f"  {closed} differ because of what the old watermark closed, which operators must acknowledge")
    wrote, unsafe = sum(each.wrote for each in ran), sum(each.unsafe for each in found)
    print(f"seed {seed}: {len(ran)} pairs, {wrote} with rows, {unsafe} unsafe; {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    run_drill(main)
