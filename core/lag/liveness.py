"""Whether a statement that is active is running: it moves, or it has a batch under way that may take its time.

Spark reports an idle query every 10 s, and a query nothing before its first commit; while a batch runs it is silent.
So silence alone says little: it counts against how long this statement's batches take. Nothing here is a ground for a
restart.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from core.lag.lag_samples import LagSample
from core.text.sentence import Sentence

SILENT_S = 30.0
"""Silence that says nothing, or three triggers where they are longer."""

PATIENT_S = 600.0
"""What a first, a replayed or a catch-up batch may take, however short the usual ones are."""

_MEDIANS = 10.0
_LARGE = 3.0
"""Times what is usually taken between two samples: so much waiting makes a batch that catches up."""


@dataclass(frozen=True, slots=True)
class LivenessSigns:
    """What is seen of an active query."""

    silent_s: float
    """Since its last progress or idle event, or since it was first seen."""
    trigger_s: float
    in_batch: bool
    """Whether a batch is planned and not committed, or a trigger is at work."""
    waits: bool = False
    """Whether it says itself that it waits, for data or for its trigger."""
    usual_s: float | None = None
    """The median of its batches; None where none is known."""
    patient: bool = False
    """Whether the batch is a first, a replayed or a catch-up one."""


def allowed_silence_s(trigger_s: float) -> float:
    """Return the silence up to which a statement needs no further sign."""
    return max(3 * trigger_s, SILENT_S)


def why_not_live(signs: LivenessSigns) -> Sentence | None:
    """Explain why an active statement is not running; None when it is."""
    if signs.silent_s <= allowed_silence_s(signs.trigger_s) or signs.waits:
        return None
    if not signs.in_batch:
        return Sentence(f"no progress for {signs.silent_s:.0f} s, and no batch is running")
    patient_s = PATIENT_S if signs.patient or signs.usual_s is None else 0.0
    if signs.silent_s <= max(_MEDIANS * (signs.usual_s or 0.0), patient_s):
        return None
    usual = "none before it is known" if signs.usual_s is None else f"{signs.usual_s:.1f} s is usual"
    return Sentence(f"a batch has been running for {signs.silent_s:.0f} s, {usual}")


def usual_batch_s(samples: Sequence[LagSample]) -> float | None:
    """Return the median of the batches that were seen to read something; None when none was."""
    known = [sample.batch_ms / 1000 for sample in samples if sample.batch_ms and sample.in_rows_s != 0]
    return median(known) if known else None


def is_catch_up_batch(samples: Sequence[LagSample], heard_at: float) -> bool:
    """Return whether the batch that began after `heard_at` has more to take than usual, or nobody knows what is usual.

    `samples` oldest first. What waits is taken from the first one since, while only little has come on top of it.
    """
    seen = next((sample for sample in samples if sample.at > heard_at), samples[-1] if samples else None)
    if seen is None:
        return True
    in_rows = seen.lag_rows is not None
    waiting = seen.lag_rows if in_rows else seen.lag_files
    taken = [step for before, after in pairwise(samples) if (step := _taken(before, after, in_rows=in_rows)) > 0]
    if waiting is None or not taken:
        return True
    return waiting > _LARGE * median(taken)


def _taken(before: LagSample, after: LagSample, *, in_rows: bool) -> int:
    pair = (before.consumed_rows, after.consumed_rows) if in_rows else (after.lag_files, before.lag_files)
    return pair[1] - pair[0] if pair[0] is not None and pair[1] is not None else 0
