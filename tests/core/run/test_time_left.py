"""The time left in a run: the predictions of its steps minus the elapsed time."""

from dataclasses import dataclass, replace

from core.model.actions import StepKind
from core.model.names import TableName
from core.observed.planner_input import Seconds
from core.plan.model import Step
from core.run.release import time_left


@dataclass(frozen=True)
class Record:
    n: int
    state: str
    started_at: float | None = None
    predicted_low_s: float | None = 10.0
    predicted_high_s: float | None = 30.0


def step(n: int, do: StepKind, *after: int) -> Step:
    return Step(n, do, TableName("a"), 2, after, why="")


def test_the_time_left_is_the_prediction_minus_the_elapsed_time() -> None:
    start, gate = step(1, StepKind.START), step(2, StepKind.CATCH_UP, 1)
    beside, swap = step(3, StepKind.CATCH_UP, 1), step(4, StepKind.SWAP, 2, 3)
    done, open_gate = Record(1, "done", 1.0), Record(2, "gate", 100.0)
    later, last = Record(3, "waits"), Record(4, "waits", predicted_low_s=1.0, predicted_high_s=2.0)
    assert time_left(
        (start, gate, replace(swap, n=3, after=(2,))), (done, open_gate, replace(last, n=3)), 104.0
    ) == Seconds(7, 28)
    assert time_left((start, gate, beside, swap), (done, open_gate, later, last), 104.0) == Seconds(11.0, 32.0)
    assert time_left((start,), (done,), 104.0) is None, "nothing is left that could take longer than predicted"
    assert time_left((replace(gate, after=()),), (open_gate,), 200.0) == Seconds(0.0, 0.0)
    unknown = replace(last, n=3, predicted_low_s=None)
    assert time_left((start, gate, replace(swap, n=3, after=(2,))), (done, open_gate, unknown), 104.0) is None
    assert time_left((), (done, open_gate), 104.0) is None


def test_gates_that_wait_for_each_other_are_added_up() -> None:
    """They were once treated as parallel, so that a chain of three was given a third of its time."""
    steps = (step(1, StepKind.CATCH_UP), step(2, StepKind.CATCH_UP, 1), step(3, StepKind.CATCH_UP, 2))
    assert time_left(steps, (Record(1, "waits"), Record(2, "waits"), Record(3, "waits")), 0.0) == Seconds(30.0, 90.0)


def test_a_step_that_takes_longer_than_predicted_leaves_no_number_for_the_run() -> None:
    """The prediction of a swap, `up to 2 s left`, was once shown for the whole minute by which a gate was late."""
    steps = (step(1, StepKind.CATCH_UP), step(2, StepKind.CATCH_UP), step(3, StepKind.SWAP, 1, 2))
    swap = Record(3, "waits", predicted_low_s=1.0, predicted_high_s=2.0)
    late, beside = Record(1, "gate", 100.0), Record(2, "gate", 100.0, predicted_high_s=90.0)
    assert time_left(steps, (late, beside, swap), 129.0) == Seconds(1.0, 63.0)
    assert time_left(steps, (late, beside, swap), 131.0) == Seconds(0.0, 0.0)
    assert time_left(steps, (late, beside, replace(swap, predicted_low_s=None)), 131.0) == Seconds(0.0, 0.0)


def test_a_run_that_is_held_is_not_late() -> None:
    steps = (step(1, StepKind.HOLD), step(2, StepKind.SWAP, 1))
    hold = Record(1, "gate", 100.0, predicted_low_s=0.0, predicted_high_s=0.0)
    swap = Record(2, "waits", predicted_low_s=1.0, predicted_high_s=2.0)
    assert time_left(steps, (hold, swap), 500.0) == Seconds(1.0, 2.0)
