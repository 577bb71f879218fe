"""Liveness of an active statement: whether it makes progress, or is silent only because of a long batch.

Spark reports an idle query every 10 s, but reports nothing during a batch or before the first commit. So silence is
compared with the typical duration of the statement's own batches. A statement is never restarted merely for being
silent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from core.lag.lag_samples import LagSample
from core.text.sentence import Sentence

SILENT_S = 30.0
"""Seconds of silence that are always acceptable, or three trigger intervals if that is longer."""

PATIENT_S = 600.0
"""Seconds allowed for a first, replayed or catch-up batch, even if batches are typically short."""

_MEDIANS = 10.0
_LARGE = 3.0
"""A batch is a catch-up batch if its backlog exceeds the typical input between two samples by this factor."""


@dataclass(frozen=True, slots=True)
class LivenessSigns:
    """Observations that determine whether an active query is live."""

    silent_s: float
    """Seconds since the query's last progress or idle event, or since the query was first seen."""
    trigger_s: float
    in_batch: bool
    """True if a batch is planned but not committed, or a trigger is active."""
    waits: bool = False
    """True if the query reports that it is waiting for data or for its trigger."""
    usual_s: float | None = None
    """Median duration of the query's batches in seconds; None if unknown."""
    patient: bool = False
    """True if the current batch is a first, replayed or catch-up batch."""


def allowed_silence_s(trigger_s: float) -> float:
    """Return the acceptable seconds of silence for any query with this trigger interval."""
    return max(3 * trigger_s, SILENT_S)


def why_not_live(signs: LivenessSigns) -> Sentence | None:
    """Return why an active statement is not live; None if it is."""
    if signs.silent_s <= allowed_silence_s(signs.trigger_s) or signs.waits:
        return None
    if not signs.in_batch:
        return Sentence(f"no progress for {signs.silent_s:.0f} s, and no batch is running")
    patient_s = PATIENT_S if signs.patient or signs.usual_s is None else 0.0
    if signs.silent_s <= max(_MEDIANS * (signs.usual_s or 0.0), patient_s):
        return None
    usual = "unknown" if signs.usual_s is None else f"{signs.usual_s:.1f} s"
    return Sentence(f"a batch has been running for {signs.silent_s:.0f} s; the typical duration is {usual}")


def usual_batch_s(samples: Sequence[LagSample]) -> float | None:
    """Return the median duration, in seconds, of the batches that read input; None if no batch did."""
    known = [sample.batch_ms / 1000 for sample in samples if sample.batch_ms and sample.in_rows_s != 0]
    return median(known) if known else None


def is_catch_up_batch(samples: Sequence[LagSample], heard_at: float) -> bool:
    """True if the batch that began after `heard_at` has an unusually large backlog, or if no baseline exists.

    `samples` are oldest first. The backlog is taken from the first sample after `heard_at`.
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
