"""Drill: compare Spark's behavior for an edited statement on its old checkpoint with our classification of the edit.

Run: PYTHONPATH=. python tests/drills/edited_statement_on_old_checkpoint.py [FOLDER [WORD…]]. For every pair of
fixtures/plans/same_checkpoint.txt, or those whose names contain a WORD, the old text runs over part 1 of the input and
the new text over part 2, on one checkpoint and one table; the new text alone runs over both parts. Either the tables
are equal; or they differ only in rows that the old text wrote before the seam; or they differ otherwise or cannot be
read; or Spark refuses. An edit with unequal tables must not be recorded, one whose tables differ or that is refused
must not be restarted, and a rebuild that Spark would not need must state its reason. Takes five minutes on two idle
cores.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from checkpoint_trials import Trial, run, verdict
from drill_process import run_drill, spark_server
from revision_pairs import edits

from core.changes.classification import classify


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="headgate-same-checkpoint-"))
    root.mkdir(parents=True, exist_ok=True)
    words = sys.argv[2:]
    found = [e for e in edits("same_checkpoint.txt") if not words or any(word in e.name for word in words)]
    trials = [Trial(edit, number, classify(edit.old, edit.new)) for number, edit in enumerate(found)]
    with spark_server(root / "home", memory="1g") as pool:
        run(trials, pool, root)
    return report(trials)


def report(trials: Sequence[Trial]) -> int:
    """Print the table; return 1 if a row is wrong or differs from the fixture, else 0."""
    wrong = 0
    print(f"{'EDIT':58} {'SPARK 4.2.0':62} {'ROW':4} {'ACTION':8} VERDICT")
    for trial in trials:
        said = verdict(trial.outcome, trial.change)
        if trial.edit.expected[0] != trial.outcome:
            said += f"; the fixture says {trial.edit.expected[0]}"
        wrong += said.startswith("WRONG") or "; the fixture says" in said
        name = ", ".join((trial.edit.name, *trial.edit.marks))
        print(f"{name:58} {trial.outcome:62} {trial.change.kind.definition.code:4} {trial.change.action:8} {said}")
    kinds = Counter(trial.outcome.split()[0] for trial in trials)
    print(
        f"{len(trials)} edits: {', '.join(f'{count} {kind}' for kind, count in sorted(kinds.items()))}; {wrong} wrong"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    run_drill(main)
