"""Why a statement is slow: what takes most of the time of its latest batches.

A statement that keeps up, and whose batches are no longer than its trigger, is not slow, and no reason is given.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from core.observed.spark_work import StageTimes
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
    CORES = (
        "its tasks wait {share}% of the time for a free core of the pool",
        "give the pool more cores, run fewer statements in it, or free the machine of other work",
    )
    SKEW = (
        "the rows are skewed: one of {tasks} tasks takes {ratio} times as long as the others on average, with "
        "{rows_ratio} times their rows",
        "spread the most frequent key over several, or aggregate in two steps",
    )
    LONG_TASK = (
        "one of {tasks} tasks takes {ratio} times as long as the others on average, though not for its rows",
        "the machine of its executor, or a store that it reads, is slow",
    )
    SPILL = (
        "its tasks write {spilled:size} of a batch to disk and read it again, because memory is short",
        "give the pool more memory, or limit its batches, such as by maxFilesPerTrigger",
    )
    GARBAGE = (
        "its tasks spend {share}% of their time in garbage collection",
        "give the pool more memory, or run fewer statements in it",
    )
    WRITING = (
        "its tasks wait {share}% of their time while they write its rows",
        "the store of its table is slow, unless other work keeps the machine busy",
    )
    WAITING = (
        "its tasks wait {share}% of their time and do not compute",
        "a store that they read or write is slow, a function in Python takes that time, or other work keeps the "
        "machine busy",
    )
    DRIVER = (
        "{share}% of Spark's work is outside tasks, such as listing files and committing the table",
        "compact the table, or lengthen its trigger so that it has fewer files and commits",
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

    batch: int
    """Number of the batch."""
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


def is_slow(batches: Sequence[BatchTimes], *, trigger_s: float, bound_s: float, behind_s: float | None) -> bool:
    """True if input has waited for longer than `bound_s` seconds, or if most of several batches outlasted the trigger.

    Without an interval, which is 0, no batch outlasts the trigger. False if no batch is known.
    """
    is_long = trigger_s > 0 and len(batches) > 1
    is_long = is_long and _median([each.batch_ms for each in batches]) > _LONG * trigger_s * 1000
    return bool(batches) and (is_long or (behind_s is not None and behind_s > bound_s))


def why_slow(
    batches: Sequence[BatchTimes],
    *,
    trigger_s: float,
    cores: int | None,
    stages: Sequence[StageTimes] = (),
    in_python: bool = False,
) -> Fact[Slowness] | None:
    """Return what takes the time of a slow statement's latest batches; None if Spark has not reported their durations.

    `cores` are the cores on which its tasks run, None if unknown. `stages` are those of some of its latest batches that
    are known, and `in_python` says whether its tasks may wait for code in Python.
    """
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
    if largest == "computing":
        found = (
            _in_tasks(stages)
            or _in_state(batches, part_ms[largest], batch_ms, cores)
            or _beside_computing(batches, stages, in_python)
        )
        if found is not None:
            return found
    part_s, batch_s = _seconds(part_ms[largest]), _seconds(batch_ms)
    return _KIND_BY_PART[largest].of(share=_percent(part_ms[largest], batch_ms), part_s=part_s, batch_s=batch_s)


_TIMES_OTHERS = 4.0
"""A task is much longer than the others if it runs so many times as long as they do on average."""

_MOST_IDLE = 0.7
"""Share of the time of tasks from which waiting is the reason; a task also waits while other work has its processor."""

_MOST_GARBAGE = 0.25
"""Share of the time of tasks from which garbage collection is the reason."""

_LEAST_SPILLED, _SPILLED_SHARE = 1 << 20, 0.25
"""Bytes of a batch, and share of the bytes that its tasks read and write, from which spilling is the reason."""


def _in_tasks(stages: Sequence[StageTimes]) -> Fact[Slowness] | None:
    """Return what the tasks of the stages wait for, or why some take so long."""
    took_ms = sum(each.ended_ms - each.began_ms for each in stages)
    if not took_ms:
        return None
    if (waited_ms := sum(each.waited_ms for each in stages)) >= MOST_OF * took_ms:
        return Slowness.CORES.of(share=_percent(waited_ms, took_ms))
    longest = max(stages, key=_excess_ms)
    if (long_ms := sum(map(_excess_ms, stages))) >= MOST_OF * took_ms and long_ms:
        return _long_task(longest)
    spilled = sum(each.spilled for each in stages)
    if spilled >= max(_LEAST_SPILLED, _SPILLED_SHARE * sum(each.moved for each in stages)):
        return Slowness.SPILL.of(spilled=spilled // len({each.batch for each in stages}))
    run_ms, gc_ms = sum(each.run_ms for each in stages), sum(each.gc_ms for each in stages)
    if run_ms and gc_ms >= _MOST_GARBAGE * run_ms:
        return Slowness.GARBAGE.of(share=_percent(gc_ms, run_ms))
    return None


def _excess_ms(stage: StageTimes) -> int:
    """Return how long the longest task of a stage runs if it is much longer than the others; 0 if it is not."""
    others_ms = (stage.run_ms - stage.longest_ms) / max(1, stage.tasks - 1)
    return stage.longest_ms if stage.tasks > 1 and stage.longest_ms > _TIMES_OTHERS * others_ms else 0


def _long_task(stage: StageTimes) -> Fact[Slowness]:
    others = stage.tasks - 1
    ratio = round(stage.longest_ms / max(1.0, (stage.run_ms - stage.longest_ms) / others))
    rows_ratio = round(stage.most_rows / max(1.0, (stage.rows - stage.most_rows) / others))
    if rows_ratio < _TIMES_OTHERS:
        return Slowness.LONG_TASK.of(tasks=stage.tasks, ratio=ratio)
    return Slowness.SKEW.of(tasks=stage.tasks, ratio=ratio, rows_ratio=rows_ratio)


def _beside_computing(
    batches: Sequence[BatchTimes], stages: Sequence[StageTimes], in_python: bool
) -> Fact[Slowness] | None:
    """Return what the time is spent on in which no task computes; None if tasks compute most of it."""
    computing_ms = {each.batch: each.durations.get("addBatch", 0) for each in batches}
    known = [each for each in stages if each.batch in computing_ms]
    if not known:
        return None
    whole_ms = sum(computing_ms[batch] for batch in {each.batch for each in known})
    outside_ms = whole_ms - _covered_ms(known)
    if outside_ms >= MOST_OF * whole_ms:
        return Slowness.DRIVER.of(share=_percent(outside_ms, whole_ms))
    in_state_ms = sum(
        each.state_update_ms + each.state_commit_ms for each in batches if each.batch in {one.batch for one in known}
    )
    run_ms = sum(each.run_ms for each in known)
    idle_ms = sum(map(_idle_ms, known)) - in_state_ms
    if not run_ms or idle_ms < _MOST_IDLE * run_ms:
        return None
    writing_ms = sum(_idle_ms(each) for each in known if each.writes and not each.reads) - in_state_ms
    if in_python or writing_ms < _MOST_IDLE * idle_ms:
        return Slowness.WAITING.of(share=_percent(idle_ms, run_ms))
    return Slowness.WRITING.of(share=_percent(writing_ms, run_ms))


def _idle_ms(stage: StageTimes) -> int:
    return stage.run_ms - stage.cpu_ms - stage.gc_ms - stage.shuffle_wait_ms


def _covered_ms(stages: Sequence[StageTimes]) -> int:
    """Return the milliseconds in which at least one of the stages ran."""
    covered, until = 0, 0
    for began, ended in sorted((each.began_ms, each.ended_ms) for each in stages):
        covered += max(0, ended - max(began, until))
        until = max(until, ended)
    return covered


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
