"""Predicted durations of a plan, its tables and its steps, as ranges based on measurements in the ledger.

A step is expected to take as long as earlier steps of its kind. Catching up means waiting for the trigger, reading the
input, and keeping the lag within its limit for three consecutive measurements. If the duration of a step is unknown, so
are the durations of all steps that wait for it.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from core.model.actions import BEGINS, NEEDS_PROOF, READABLE_ONCE_STARTED, UPKEEP, StepKind
from core.model.names import TableName, trigger_s
from core.observed.planner_input import Seconds, StepDurations
from core.observed.table_statistics import TableStatistics
from core.plan.model import PlanNode, Step

WAITED_FOR = BEGINS | UPKEEP | {StepKind.CATCH_UP, StepKind.VALIDATE, StepKind.HOLD}
"""Steps for which a run waits in parallel; all other steps are executed one at a time."""

_AT_ONCE = {do: Seconds(0.0, 1.0) for do in (StepKind.RECORD, StepKind.SOAK)}
"""Assumed durations of steps that only write to the ledger, until there are measurements."""
_UNMEASURED = {**_AT_ONCE, StepKind.VALIDATE: Seconds(2.0, 60.0)}
"""Assumed durations of steps without measurements; a comparison waits for one or two batches, at most a minute."""

_NO_WORD = Seconds(0.0, 0.0)
"""Assumed duration of a hold, because no planner can know when an operator will release it."""

MEASURED_EVERY_S = 5.0
CHECKS = 3
"""Number of consecutive measurements with an acceptable lag that open a gate."""

SLOWER, FASTER = 2.0, 10.0
"""Factors applied to the reading time at the rate of the fastest batch.

A typical batch may take twice as long. If all batches so far were small, as in the demo, reading may take only a tenth
of the time.
"""


Predicted = TypeVar("Predicted", PlanNode, Step)


@dataclass(frozen=True, slots=True)
class PlanPrediction:
    """The predicted durations of a plan; values that depend on missing measurements are None."""

    whole: Seconds | None
    nodes: tuple[PlanNode, ...]
    steps: tuple[Step, ...]


def predict(
    nodes: Sequence[PlanNode],
    steps: Sequence[Step],
    statistics: Callable[[TableName], TableStatistics],
    durations: StepDurations,
) -> PlanPrediction:
    """Return nodes and steps with predicted ranges, in O(n log n) time for n steps.

    The range of a step is its own duration. The range of a table is the time from the start of the run to the end of
    the table's last step.
    """
    node_by_table = {node.table: node for node in nodes}
    gates = {step.n for step in steps if step.do is StepKind.CATCH_UP}
    known: dict[int, Seconds] = {}
    for step in steps:
        match step.do:
            case StepKind.CATCH_UP:
                below = not gates.isdisjoint(step.after)
                found = _catching_up(node_by_table.get(step.table), statistics(step.table), below=below)
            case StepKind.HOLD:
                found = _NO_WORD
            case _:
                found = durations.get(f"{step.do} {step.table}", durations.get(step.do, _UNMEASURED.get(step.do)))
        if found is not None:
            known[step.n] = found
    if not known:
        return PlanPrediction(None, tuple(nodes), tuple(steps))
    lows = step_ends(steps, {n: found.low for n, found in known.items()})
    highs = step_ends(steps, {n: found.high for n, found in known.items()})
    ends = {step.n: Seconds(lows[step.n], highs[step.n]) if step.n in highs else None for step in steps}
    by_table: dict[TableName, list[Seconds | None]] = {}
    for step in steps:
        for table in step.tables or (step.table,):
            by_table.setdefault(table, []).append(ends[step.n])
    return PlanPrediction(
        _last(ends.values()),
        tuple(_with_range(node, _last(by_table.get(node.table, ()))) for node in nodes),
        tuple(_with_range(step, known.get(step.n)) for step in steps),
    )


def _with_range(of: Predicted, found: Seconds | None) -> Predicted:
    if found is None:
        return of
    return replace(of, predicted_low_s=round(found.low, 1), predicted_high_s=round(found.high, 1))


def _last(ends: Iterable[Seconds | None]) -> Seconds | None:
    known = []
    for end in ends:
        if end is None:
            return None
        known.append(end)
    return Seconds(max(end.low for end in known), max(end.high for end in known)) if known else None


def _catching_up(node: PlanNode | None, known: TableStatistics, *, below: bool) -> Seconds | None:
    """Return how long a version takes to catch up; None if the number of rows or the rate is unknown.

    With `below`, the version's gate follows another gate, and the version may have read its input in the meantime.
    """
    if node is None or node.replay_rows is None or (node.replay_rows and not known.rate_rows_s):
        return None
    reading_s = node.replay_rows / known.rate_rows_s if known.rate_rows_s else 0.0
    checks_s = (CHECKS - 1) * MEASURED_EVERY_S
    begins_s = trigger_s(node.trigger) + 2 * (known.batch_s or 0.0) + 2 * MEASURED_EVERY_S
    if below:
        return Seconds(checks_s, reading_s + checks_s + begins_s)
    return Seconds(reading_s / FASTER + checks_s, SLOWER * reading_s + checks_s + begins_s)


def step_ends(steps: Sequence[Step], seconds: Mapping[int, float]) -> dict[int, float]:
    """Return when each step ends, in seconds from the start of a run that executes them as `advance_run` does.

    Steps are executed one at a time, but gates are awaited in parallel. A step of unknown duration is left out, and so
    are all steps that wait for it.
    """
    by_n = {step.n: step for step in steps}
    readers: dict[int, list[int]] = {}
    waits: dict[int, int] = {}
    begins = dict.fromkeys(by_n, 0.0)
    for step in steps:
        waits[step.n] = len(step.after)
        for n in step.after:
            readers.setdefault(n, []).append(step.n)
    later: list[tuple[float, int]] = [(0.0, step.n) for step in steps if not step.after]
    ready: list[int] = []
    ends: dict[int, float] = {}
    hand = 0.0
    while later or ready:
        if not ready:
            hand = max(hand, later[0][0])
        while later and later[0][0] <= hand:
            heapq.heappush(ready, heapq.heappop(later)[1])
        step = by_n[heapq.heappop(ready)]
        if step.n not in seconds and step.do in WAITED_FOR:
            continue
        if step.n not in seconds:
            break
        ends[step.n] = hand + seconds[step.n]
        started = hand
        hand = hand if step.do in WAITED_FOR else ends[step.n]
        for n in readers.get(step.n, ()):
            at_once = step.do in READABLE_ONCE_STARTED and by_n[n].do not in NEEDS_PROOF
            begins[n] = max(begins[n], started if at_once else ends[step.n])
            waits[n] -= 1
            if not waits[n]:
                heapq.heappush(later, (begins[n], n))
    return ends
