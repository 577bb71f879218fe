"""How long a run still takes, by what its plan predicted of each step and how far it has come."""

from collections.abc import Iterable, Sequence

from core.model.actions import StepKind
from core.observed.step_durations import Seconds
from core.plan.model import Step
from core.plan.predictions import step_ends
from core.run.model import SATISFIED, StepState
from core.run.records import StepRow


def time_left(steps: Sequence[Step], records: Iterable[StepRow], now: float) -> Seconds | None:
    """Return how long the run of a plan's steps still takes; None where that is not known, or no step is left.

    (0, 0): a step is open that takes longer than predicted. What the others take says nothing of that one.
    """
    records = tuple(records)
    if not steps or all(record.state in SATISFIED for record in records):
        return None
    lows, highs, late = {}, {}, False
    unpredicted = {step.n for step in steps if step.do is StepKind.HOLD}
    for record in records:
        if record.state in SATISFIED:
            lows[record.n] = highs[record.n] = 0.0
        elif record.predicted_low_s is not None and record.predicted_high_s is not None:
            begun = record.started_at if record.state in (StepState.RUNNING, StepState.GATE) else None
            left = Seconds(record.predicted_low_s, record.predicted_high_s).less(now - begun if begun else 0.0)
            lows[record.n], highs[record.n] = left.low, left.high
            late |= begun is not None and left.high <= 0 and record.n not in unpredicted
    if late:
        return Seconds(0.0, 0.0)
    if len(highs) < len(steps):
        return None
    return Seconds(*(max(step_ends(steps, found).values(), default=0.0) for found in (lows, highs)))
