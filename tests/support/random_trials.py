"""Trials of random pairs: finds unsafe ones, and shrinks each for as long as it remains unsafe."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from checkpoint_trials import Trial, run, verdict
from random_edits import Pair, pair, smaller_pairs
from revision_pairs import Edit

from core.changes.classification import classify
from core.changes.kinds import ChangeKind
from core.model.actions import Action
from pipelines.local_pool.connect_server import LocalPool

SHRINK_TRIES, SHRINK_AT_ONCE = 40, 8
FILE_ROWS = 6
_LAST = 26
"""Minutes covered by part 1 of the inputs. Part 2 begins before they end, so that some of its rows are late."""


@dataclass(frozen=True, slots=True)
class Run:
    """A random pair that has been tried on Spark."""

    number: int
    pair: Pair
    trial: Trial

    @property
    def kind(self) -> str:
        """The kind of outcome on Spark, without details, or `not run` if Spark refuses one of the texts on its own."""
        words = self.trial.outcome.replace("not run", "not-run").split()
        return words[0].rstrip(":").replace("-", " ")

    @property
    def unsafe(self) -> bool:
        """True if Spark, on the old checkpoint, does not do what the planned action promises.

        A changed delay (row 6d) may lead to a difference, because windows closed by the old watermark stay closed;
        operators must acknowledge that.
        """
        change, outcome = self.trial.change, self.trial.outcome
        if self.kind == "not run":
            kept = change.action in (Action.KEEP, Action.RECORD)
            return kept and "new 1 was refused" in outcome and "SERVER" not in outcome
        acknowledged = (change.kind, outcome) == (ChangeKind.WATERMARK_DELAY, "differs")
        return verdict(outcome, change).startswith("WRONG") and not acknowledged

    @property
    def wrote(self) -> bool:
        """True if at least one text wrote a row; tables without rows are trivially equal."""
        return any(self.trial.seen.values())


def drawn(seed: int, numbers: Sequence[int]) -> list[tuple[int, Pair, Edit]]:
    """Return the random pairs with these numbers, which the seed determines."""
    return [(number, *pair(Random(f"{seed}/{number}"))) for number in numbers]


def tried(pool: LocalPool, folder: Path, pairs: Sequence[tuple[int, Pair, Edit]]) -> list[Run]:
    """Try pairs on a running server, in a folder that must not exist yet."""
    folder.mkdir(parents=True)
    trials = [Trial(edit, number, classify(edit.old, edit.new)) for number, _, edit in pairs]
    run(trials, pool, folder, records)
    return [Run(number, found, trial) for (number, found, _), trial in zip(pairs, trials, strict=True)]


def small(pool: LocalPool, folder: Path, found: Run) -> Run:
    """Return the smallest pair found with the same edit that is still unsafe, after a limited number of tries."""
    seen: set[tuple[str, str]] = set()
    best, left, round_number = found, SHRINK_TRIES, 0
    while left > 0:
        candidates = list(islice(_candidates(best, seen), min(left, SHRINK_AT_ONCE)))
        if not candidates:
            break
        round_number, left = round_number + 1, left - len(candidates)
        runs = tried(pool, folder / str(round_number), [(at, *each) for at, each in enumerate(candidates)])
        still = [each for each in runs if each.unsafe and each.kind == best.kind]
        best = min((best, *still), key=lambda each: _length(each.trial.edit))
    return Run(found.number, best.pair, best.trial)


def _candidates(best: Run, seen: set[tuple[str, str]]) -> Iterator[tuple[Pair, Edit]]:
    """Yield smaller pairs that we classify in the same way, each only once."""
    for each in smaller_pairs(best.pair):
        edit = each.edit
        if edit is None or _length(edit) >= _length(best.trial.edit):
            continue
        texts = (edit.old.texts.dml, edit.new.texts.dml)
        if texts in seen or classify(edit.old, edit.new).action is not best.trial.change.action:
            continue
        seen.add(texts)
        yield each, edit


def _length(edit: Edit) -> int:
    return len(edit.old.texts.dml) + len(edit.new.texts.dml)


def records(name: str, part: int) -> Iterator[list[dict[str, Any]]]:
    """Yield the files of one part of an input: rows that match in joins, and a last row that closes all windows."""
    if name.startswith("dim"):
        if part == 1:
            yield [_row(number, "xyzq"[number % 4], 0) for number in range(1, 9 if name == "dim" else 5)]
        return
    offset = {"a": 0, "b": 1, "c": 2}[name]
    numbers = range(1, _LAST - 2 * offset) if part == 1 else range(_LAST - 5 + offset, 2 * _LAST)
    for first in numbers[::FILE_ROWS]:
        yield [_row(number, "xyzw"[number % (4 - offset % 2)], offset) for number in range(first, first + FILE_ROWS)]
    if part == 2:
        yield [_row(300, "q", offset)]


def _row(number: int, key: str, offset: int) -> dict[str, Any]:
    """Return one row of an input; rows are a minute apart, with one-digit values, and some have no name."""
    at = f"2026-01-01T{11 + (50 + number) // 60}:{(50 + number) % 60:02}:00Z"
    name = {"name": "xyzw"[(number + offset) % 4]} if number % 6 else {}
    return {"id": number, "k": key, "v": (number * 3 + offset) % 8, "w": number % 10, "ts": at} | name
