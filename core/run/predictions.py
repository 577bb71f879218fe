"""How long steps and a run will take, as ranges, from what a ledger has measured of earlier ones.

A step that is done at once takes what its kind took before: between the shortest and the longest tenth. A new version
that catches up waits for its trigger, reads what there is, and stays within its bound for three measurements.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from core.model.actions import StepKind
from core.model.names import TableName
from core.plan.model import Plan, Step
from core.run.model import SATISFIED, StepState

GATED = frozenset({StepKind.CATCH_UP, StepKind.RESTART})
"""Their effect is waited for, beside each other; all other steps of a run are done one after the other."""

MEASURED_EVERY_S = 5.0
CHECKS = 3
"""Measurements in a row that open a gate."""

SLOWER = 3.0
"""The fastest batch ever seen is no usual one: reading takes up to so many times as long."""

OWN_LEAST = 2
"""Steps of one kind on one table from which only those count, not what other tables took."""


@dataclass(frozen=True, slots=True)
class Seconds:
    """A range of durations."""

    low: float
    high: float

    def __add__(self, other: "Seconds") -> "Seconds":
        return Seconds(self.low + other.low, self.high + other.high)

    def less(self, elapsed_s: float) -> "Seconds":
        """Return what is left after some of it has passed, never below 0."""
        return Seconds(max(0.0, self.low - elapsed_s), max(0.0, self.high - elapsed_s))


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """How long a step took that was done at the first try."""

    do: str
    table: str
    took_s: float


@dataclass(frozen=True, slots=True)
class MeasuredStatement:
    """What is known of a statement: its trigger in the plan, and its batches as the version that serves had them."""

    trigger_s: float
    fastest_rows_s: float | None = None
    batch_s: float | None = None


@dataclass(frozen=True, slots=True)
class RunPrediction:
    """What is predicted of a run before it begins; None where nothing like it was measured."""

    run: Seconds | None
    steps: Mapping[int, Seconds] = field(default_factory=dict)
    """By number; a step that nothing is known of is missing."""


class PredictedStep(Protocol):
    """What is read of a step's record; `state.row_types.StepRow` is one."""

    @property
    def do(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def started_at(self) -> float | None: ...
    @property
    def predicted_low_s(self) -> float | None: ...
    @property
    def predicted_high_s(self) -> float | None: ...


def predict_run(
    plan: Plan, measured: Sequence[MeasuredStep], statements: Mapping[TableName, MeasuredStatement]
) -> RunPrediction:
    """Predict a plan's steps and its whole run; `statements` by table."""
    steps = {}
    for step in plan.steps:
        found = _caught_up(plan, step, statements) if step.do is StepKind.CATCH_UP else _like(step, measured)
        if found is not None:
            steps[step.n] = found
    if len(steps) < len(plan.steps):
        return RunPrediction(None, steps)
    ends = [_end(plan.steps, {n: pick(found) for n, found in steps.items()}) for pick in (_low, _high)]
    return RunPrediction(Seconds(*ends), steps)


def time_left(steps: Iterable[PredictedStep], now: float) -> Seconds | None:
    """Return how long a run still takes by what was predicted of its steps; None where that is not known.

    (0, 0) with a step still open: it takes longer than predicted.
    """
    one_by_one, beside = Seconds(0.0, 0.0), Seconds(0.0, 0.0)
    for step in steps:
        if step.state in SATISFIED:
            continue
        if step.predicted_low_s is None or step.predicted_high_s is None:
            return None
        begun = step.started_at if step.state in (StepState.RUNNING, StepState.GATE) else None
        left = Seconds(step.predicted_low_s, step.predicted_high_s).less(now - begun if begun is not None else 0.0)
        if step.do in GATED:
            beside = Seconds(max(beside.low, left.low), max(beside.high, left.high))
        else:
            one_by_one += left
    return one_by_one + beside


def _low(found: Seconds) -> float:
    return found.low


def _high(found: Seconds) -> float:
    return found.high


def _like(step: Step, measured: Sequence[MeasuredStep]) -> Seconds | None:
    kind = [each for each in measured if each.do == step.do]
    own = [each.took_s for each in kind if each.table == step.table]
    took = sorted(own if len(own) >= OWN_LEAST else [each.took_s for each in kind])
    if not took:
        return None
    tenth = len(took) // 10
    return Seconds(took[tenth], took[-1 - tenth])


def _caught_up(plan: Plan, step: Step, statements: Mapping[TableName, MeasuredStatement]) -> Seconds | None:
    """Predict trigger, reading and gate; None where it is not known how much it reads, or how fast."""
    node = next((node for node in plan.nodes if node.table == step.table), None)
    known = statements.get(step.table)
    if node is None or known is None or node.replay_rows is None:
        return None
    if node.replay_rows and not known.fastest_rows_s:
        return None
    reading_s = node.replay_rows / known.fastest_rows_s if known.fastest_rows_s else 0.0
    checks_s = (CHECKS - 1) * MEASURED_EVERY_S
    begins_s = 2 * (known.trigger_s + (known.batch_s or 0.0)) + 2 * MEASURED_EVERY_S
    return Seconds(reading_s + checks_s, SLOWER * reading_s + checks_s + begins_s)


def _end(steps: Sequence[Step], seconds: Mapping[int, float]) -> float:
    """Return when the last step ends, as `advance_run` goes: gates are waited for beside what is done meanwhile."""
    ends: dict[int, float] = {}
    hand = 0.0
    for step in steps:
        begins = max([hand, *(ends[n] for n in step.after if n in ends)])
        ends[step.n] = begins + seconds[step.n]
        hand = begins if step.do in GATED else ends[step.n]
    return max(ends.values(), default=0.0)
