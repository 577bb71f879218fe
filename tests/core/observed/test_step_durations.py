"""Durations of past steps, by kind, and by table if known."""

from core.observed.planner_input import MeasuredStep, Seconds, step_durations


def test_steps_of_one_table_have_a_range_of_their_own_once_there_are_two() -> None:
    one = (MeasuredStep("start", "a", 2.0), MeasuredStep("start", "b", 6.0), MeasuredStep("swap", "b", 1.0))
    assert step_durations(one) == {"start": Seconds(2.0 / 1.5 - 1.0, 10.0), "swap": Seconds(0.0, 2.5)}
    two = (*one, MeasuredStep("start", "a", 3.0))
    assert step_durations(two)["start a"] == Seconds(2.0 / 1.5 - 1.0, 5.5)


def test_odd_tenths_do_not_count() -> None:
    many = [MeasuredStep("start", "c", float(seconds)) for seconds in (*range(1, 20), 900)]
    assert step_durations(many)["start"] == Seconds(1.0, 28.0)
