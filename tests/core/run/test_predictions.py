"""Ranges from what was measured: steps one after the other, gates beside each other, and what is left of them."""

from dataclasses import dataclass, replace

import domain_builders
import pytest

from core.model.actions import StepKind
from core.model.names import TableName
from core.plan.model import Plan, PlanNode, Step
from core.run.predictions import MeasuredStatement, MeasuredStep, Seconds, predict_run, time_left

A, B = TableName("a"), TableName("b")


def step(n: int, do: StepKind, table: TableName, *after: int) -> Step:
    return Step(n, do, table, 2, after, why="")


def rebuild(plan: Plan, node: PlanNode, rows: int | None = 1000) -> Plan:
    """Make a plan that rebuilds a and b beside each other and swaps both."""
    nodes = tuple(replace(node, table=table, replay_rows=rows) for table in (A, B))
    steps = (
        step(1, StepKind.START, A), step(2, StepKind.CATCH_UP, A, 1), step(3, StepKind.START, B),
        step(4, StepKind.CATCH_UP, B, 3), step(5, StepKind.SWAP, A, 2, 4),
    )  # fmt: skip
    return replace(plan, nodes=nodes, steps=steps)


MEASURED = (MeasuredStep("start", "a", 2.0), MeasuredStep("start", "b", 6.0), MeasuredStep("swap", "b", 1.0))
KNOWN = {A: MeasuredStatement(10.0, 100.0, 2.0), B: MeasuredStatement(10.0, 50.0, 2.0)}


@pytest.fixture
def plan() -> Plan:
    declared = domain_builders.project(domain_builders.table("a"))
    found = domain_builders.plan(declared, {}, "a")
    return rebuild(found, found.nodes[0])


def test_a_run_counts_start_trigger_reading_gate_and_swap_and_gates_beside_each_other(plan: Plan) -> None:
    found = predict_run(plan, MEASURED, KNOWN)
    # Reading takes 10 s at the fastest and three checks 10 s; at most 30 s, two triggers and batches, and one round.
    assert found.steps[2] == Seconds(20.0, 74.0)
    assert found.steps[4] == Seconds(30.0, 104.0)
    assert found.steps[1] == found.steps[3] == Seconds(2.0, 6.0)
    # Both starts, the slower gate, the swap.
    assert found.run == Seconds(2 + 2 + 30 + 1, 6 + 6 + 104 + 1)


def test_steps_of_the_same_table_count_alone_once_there_are_two(plan: Plan) -> None:
    own = (*MEASURED, MeasuredStep("start", "a", 3.0))
    assert predict_run(plan, own, KNOWN).steps[1] == Seconds(2.0, 3.0)


def test_odd_tenths_do_not_count(plan: Plan) -> None:
    many = tuple(MeasuredStep("start", "c", float(seconds)) for seconds in (*range(1, 20), 900))
    assert predict_run(plan, many, KNOWN).steps[1] == Seconds(3.0, 18.0)


def test_nothing_is_predicted_of_what_was_never_measured(plan: Plan) -> None:
    assert predict_run(plan, MEASURED[:2], KNOWN).run is None
    assert 5 not in predict_run(plan, MEASURED[:2], KNOWN).steps
    assert 2 not in predict_run(plan, MEASURED, {}).steps
    unread = rebuild(plan, plan.nodes[0], rows=None)
    assert 2 not in predict_run(unread, MEASURED, KNOWN).steps


@dataclass(frozen=True)
class Record:
    do: str
    state: str
    started_at: float | None = None
    predicted_low_s: float | None = 10.0
    predicted_high_s: float | None = 30.0


def test_what_is_left_is_what_was_predicted_less_what_has_passed() -> None:
    done, gate = Record("start", "done", 0.0), Record("catch_up", "gate", 100.0)
    later, swap = Record("catch_up", "waits"), Record("swap", "waits", predicted_low_s=1.0, predicted_high_s=2.0)
    assert time_left((done, gate, swap), 104.0) == Seconds(6.0 + 1.0, 26.0 + 2.0)
    assert time_left((done, gate, later, swap), 104.0) == Seconds(10.0 + 1.0, 30.0 + 2.0)
    assert time_left((done,), 104.0) == Seconds(0.0, 0.0)
    assert time_left((gate,), 200.0) == Seconds(0.0, 0.0)
    assert time_left((gate, replace(swap, predicted_low_s=None)), 104.0) is None
