"""Predicted ranges from measured durations: steps in sequence, gates in parallel, and the whole plan."""

from collections.abc import Mapping
from dataclasses import replace

import domain_builders
import pytest

from core.model.actions import StepKind
from core.model.names import TableName
from core.observed.planner_input import Seconds
from core.observed.table_statistics import TableStatistics
from core.plan.model import Plan, PlanNode, Step
from core.plan.predictions import PlanPrediction, predict

A, B = TableName("a"), TableName("b")
MEASURED = {"start": Seconds(2.0, 6.0), "swap": Seconds(1.0, 1.0)}
KNOWN = {A: TableStatistics(rate_rows_s=100.0, batch_s=2.0), B: TableStatistics(rate_rows_s=50.0, batch_s=2.0)}


def step(n: int, do: StepKind, table: TableName, *after: int) -> Step:
    return Step(n, do, table, 2, after, why="", tables=(A, B) if do is StepKind.SWAP else ())


BESIDE = (
    step(1, StepKind.START, A), step(2, StepKind.CATCH_UP, A, 1), step(3, StepKind.START, B),
    step(4, StepKind.CATCH_UP, B, 3), step(5, StepKind.SWAP, A, 2, 4),
)  # fmt: skip


@pytest.fixture
def nodes() -> tuple[PlanNode, ...]:
    declared = domain_builders.project(domain_builders.table("a"))
    found: Plan = domain_builders.plan(declared, {}, "a")
    return tuple(replace(found.nodes[0], table=table, replay_rows=1000) for table in (A, B))


def predicted(
    nodes: tuple[PlanNode, ...],
    steps: tuple[Step, ...] = BESIDE,
    measured: Mapping[str, Seconds] = MEASURED,
    known: Mapping[TableName, TableStatistics] = KNOWN,
) -> PlanPrediction:
    return predict(nodes, steps, lambda table: known.get(table, TableStatistics()), measured)


def of_step(found: PlanPrediction, n: int) -> tuple[float | None, float | None]:
    return found.steps[n - 1].predicted_low_s, found.steps[n - 1].predicted_high_s


def test_the_prediction_of_a_plan_covers_start_trigger_reading_parallel_gates_and_swap(
    nodes: tuple[PlanNode, ...],
) -> None:
    found = predicted(nodes)
    # Reading takes 10 s with the fastest batch, a tenth or twice of that; three checks take 10 s; at most a trigger,
    # two batches and two rounds are added.
    assert of_step(found, 2) == (11.0, 54.0)
    assert of_step(found, 4) == (12.0, 74.0)
    assert of_step(found, 1) == of_step(found, 3) == (2.0, 6.0)
    # Readers may start once a start has been sent; the sum is the slower gate, and the swap.
    assert found.whole == Seconds(2 + 10 + 1, 74 + 1)
    # A table is done when its last step ends.
    assert [(node.predicted_low_s, node.predicted_high_s) for node in found.nodes] == [(13.0, 75.0)] * 2


def test_steps_that_are_not_waited_for_are_added_up_and_levels_beside_each_other_are_not(
    nodes: tuple[PlanNode, ...],
) -> None:
    made = {**MEASURED, "create": Seconds(1.0, 2.0)}
    steps = (step(1, StepKind.CREATE, A), step(2, StepKind.START, A, 1), step(3, StepKind.CREATE, B),
             step(4, StepKind.START, B, 3))  # fmt: skip
    assert predicted(nodes, steps, made).whole == Seconds(1 + 1 + 2, 2 + 2 + 6)


def test_a_step_that_waits_for_a_gate_holds_up_no_other_that_is_ready(nodes: tuple[PlanNode, ...]) -> None:
    made = {**MEASURED, "restart": Seconds(50.0, 50.0), "record": Seconds(1.0, 1.0)}
    steps = (step(1, StepKind.RESTART, A), step(2, StepKind.SWAP, A, 1), step(3, StepKind.RECORD, B))
    found = predicted(nodes, steps, made)
    assert found.whole == Seconds(51.0, 51.0)
    assert predicted(nodes, (*steps[:1], replace(steps[2], n=2)), made).nodes[1].predicted_high_s == 1.0


def test_irreversible_steps_wait_until_a_start_is_proved(nodes: tuple[PlanNode, ...]) -> None:
    made = {**MEASURED, "stop": Seconds(1.0, 1.0)}
    steps = (step(1, StepKind.START, A), step(2, StepKind.STOP, B, 1))
    assert predicted(nodes, steps, made).whole == Seconds(3.0, 7.0)


def test_a_downstream_gate_reads_while_the_upstream_one_waits(nodes: tuple[PlanNode, ...]) -> None:
    """For a chain of three, 44 to 189 s were predicted and 47 s needed; for a downstream gate, 18 s and 15 s."""
    steps = (step(1, StepKind.CATCH_UP, A), step(2, StepKind.CATCH_UP, B, 1))
    found = predicted(nodes, steps)
    assert of_step(found, 2) == (10.0, 20 + 10 + 24)
    assert found.whole == Seconds(1 + 10 + 10, 54 + 54)


def test_steps_of_the_same_table_count_alone(nodes: tuple[PlanNode, ...]) -> None:
    own = {**MEASURED, "start a": Seconds(2.0, 3.0)}
    assert of_step(predicted(nodes, measured=own), 1) == (2.0, 3.0)
    assert of_step(predicted(nodes, measured=own), 3) == (2.0, 6.0)


def test_unmeasured_steps_have_no_prediction(nodes: tuple[PlanNode, ...]) -> None:
    no_swap = predicted(nodes, measured={"start": Seconds(2.0, 6.0)})
    assert no_swap.whole is None and of_step(no_swap, 5) == (None, None)
    assert {node.predicted_low_s for node in no_swap.nodes} == {None}
    assert of_step(predicted(nodes, known={}), 2) == (None, None)
    unread = tuple(replace(node, replay_rows=None) for node in nodes)
    assert of_step(predicted(unread), 2) == (None, None)


def test_a_table_with_known_durations_has_a_range_beside_one_without(nodes: tuple[PlanNode, ...]) -> None:
    steps = (step(1, StepKind.START, A), step(2, StepKind.CATCH_UP, A, 1), step(3, StepKind.START, B),
             step(4, StepKind.CATCH_UP, B, 3))  # fmt: skip
    found = predicted(nodes, steps, known={B: KNOWN[B]})
    assert found.whole is None and found.nodes[0].predicted_high_s is None
    assert (found.nodes[1].predicted_low_s, found.nodes[1].predicted_high_s) == (12.0, 74.0)
