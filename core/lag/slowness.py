"""Why a statement is slow: what takes most of the time of its latest batches.

A statement that keeps up, and whose batches are no longer than its trigger, is not slow, and no reason is given.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from core.observed.versions import KEYS_BY_PART
from core.text.sentence import Fact, FactKind

BATCHES = 5
"""Number of latest batches from which the reason is found."""

MOST_OF = 0.5
"""Share of the time from which a part of a batch is the reason."""

_LONG = 1.2
"""Batches are too long if most of them take longer than this many triggers."""


class Slowness(FactKind):
    """What makes a statement slow, with averages over its latest batches; the remedy says what to change."""

    PLANNING = (
        "planning takes {share}% of a batch, {part_s} of {batch_s} s on average",
        "simplify the query, or lengthen its trigger: each batch is planned anew",
    )
    READING = (
        "finding new input takes {share}% of a batch, {part_s} of {batch_s} s on average",
        "the store or broker of an input answers slowly, or the input has very many files",
    )
    COMMITTING = (
        "writing to the checkpoint takes {share}% of a batch, {part_s} of {batch_s} s on average",
        "the store of the checkpoint is slow",
    )
    COMPUTING = (
        "Spark's work takes {share}% of a batch, {part_s} of {batch_s} s on average",
        "give the pool more cores, or make the query cheaper",
    )
    STATE_UPDATES = (
        "reading and updating its state takes at least {part_s} of the {batch_s} s of a batch; it has {rows:number} "
        "{rows:row/rows}",
        "shorten the watermark or the key, so that it keeps less, or give the pool more cores",
    )
    STATE_COMMITS = (
        "writing its state to the checkpoint takes at least {part_s} of the {batch_s} s of a batch; it has "
        "{rows:number} {rows:row/rows}",
        "the store of the checkpoint is slow, or the state too large: a shorter watermark keeps less of it",
    )
    NO_PART = (
        "no part of a batch of {batch_s} s dominates: {parts}",
        "give the pool more cores, or run fewer statements in it",
    )
    TRIGGER = (
        "it waits for its trigger: a batch takes {batch_s} s on average, and the trigger starts one every {trigger_s} "
        "s",
        "raise the limit of its batches, such as maxFilesPerTrigger, or shorten its trigger",
    )


_KIND_BY_PART = {
    "planning": Slowness.PLANNING,
    "reading": Slowness.READING,
    "computing": Slowness.COMPUTING,
    "committing": Slowness.COMMITTING,
}


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """Where the time of one batch went, as Spark reported it."""

    batch_ms: int
    durations: Mapping[str, int] = field(default_factory=dict)
    """Milliseconds by phase, without the total."""
    state_rows: int | None = None
    state_update_ms: int = 0
    """Milliseconds that tasks spent with changing state, summed over tasks that run at the same time."""
    state_commit_ms: int = 0
    """Milliseconds that tasks spent with writing state to the checkpoint, summed in the same way."""
    state_tasks: int = 1
    """Most tasks of an operator with state."""


def why_slow(
    batches: Sequence[BatchTimes], *, trigger_s: float, bound_s: float, behind_s: float | None, cores: int | None
) -> Fact[Slowness] | None:
    """Return what takes the time of a statement's latest batches; None if it is not slow, or if no batch is known.

    It is slow if input has waited for longer than `bound_s` seconds, or if most of several batches took longer than the
    interval of the trigger, unless that is 0. `cores` are the cores on which its tasks run, None if unknown.
    """
    if not batches:
        return None
    is_behind = behind_s is not None and behind_s > bound_s
    is_long = (
        trigger_s > 0 and len(batches) > 1 and _median([each.batch_ms for each in batches]) > _LONG * trigger_s * 1000
    )
    if not (is_behind or is_long):
        return None
    batch_ms = _mean([each.batch_ms for each in batches])
    if batch_ms < MOST_OF * trigger_s * 1000:
        return Slowness.TRIGGER.of(batch_s=_seconds(batch_ms), trigger_s=_seconds(trigger_s * 1000))
    part_ms = {
        part: _mean([sum(each.durations.get(key, 0) for key in keys) for each in batches])
        for part, keys in KEYS_BY_PART.items()
    }
    largest = max(part_ms, key=lambda part: part_ms[part])
    if not batch_ms or not part_ms[largest]:
        return None
    if part_ms[largest] < MOST_OF * batch_ms:
        parts = sorted(part_ms.items(), key=lambda each: -each[1])
        shown = tuple(f"{part} {_percent(ms, batch_ms)}%" for part, ms in parts if ms)
        return Slowness.NO_PART.of(batch_s=_seconds(batch_ms), parts=shown)
    if largest == "computing" and (found := _in_state(batches, part_ms[largest], batch_ms, cores)) is not None:
        return found
    part_s, batch_s = _seconds(part_ms[largest]), _seconds(batch_ms)
    return _KIND_BY_PART[largest].of(share=_percent(part_ms[largest], batch_ms), part_s=part_s, batch_s=batch_s)


def _in_state(
    batches: Sequence[BatchTimes], computing_ms: float, batch_ms: float, cores: int | None
) -> Fact[Slowness] | None:
    """Return the part of the state if it takes most of the work whichever tasks ran at the same time."""
    ms_by_kind = {
        Slowness.STATE_UPDATES: _mean([each.state_update_ms / _at_once(each, cores) for each in batches]),
        Slowness.STATE_COMMITS: _mean([each.state_commit_ms / _at_once(each, cores) for each in batches]),
    }
    kind, ms = max(ms_by_kind.items(), key=lambda each: each[1])
    if not MOST_OF * computing_ms <= ms <= computing_ms:
        return None
    return kind.of(part_s=_seconds(ms), batch_s=_seconds(batch_ms), rows=batches[-1].state_rows or 0)


def _at_once(batch: BatchTimes, cores: int | None) -> int:
    return max(1, batch.state_tasks if cores is None else min(cores, batch.state_tasks))


def _median(values: Sequence[int]) -> int:
    # The lower of two: the module `statistics` takes longer to import than this one.
    return sorted(values)[(len(values) - 1) // 2]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _seconds(ms: float) -> float:
    seconds = ms / 1000
    return round(seconds, 1) if seconds < 100 else float(round(seconds))


def _percent(part: float, whole: float) -> int:
    return min(100, round(100 * part / whole))


def slowness_text(found: Fact[Slowness] | None) -> str:
    """Return a reason as a string, from which `slowness_of` restores it; empty for None."""
    return json.dumps(found.as_json(), separators=(",", ":")) if found is not None else ""


def slowness_of(text: str) -> Fact[Slowness] | None:
    """Restore a reason from the output of `slowness_text`; None for any other string, as from a newer Headgate."""
    try:
        given = {name: tuple(value) if isinstance(value, list) else value for name, value in json.loads(text).items()}
        del given["sentence"]
        found = Slowness[str(given.pop("kind")).upper()].of(**given)
        # This raises an error if a sentence lacks a value.
        _ = str(found), found.remedy
        return found
    except (ValueError, KeyError, AttributeError, TypeError, AssertionError):
        return None
