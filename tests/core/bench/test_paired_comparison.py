import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.bench.paired_comparison import Verdict, compare_groups, compare_pairs, student_t
from core.model.errors import UsageError

VALUES = st.lists(st.floats(0.01, 1e4), min_size=3, max_size=12)


def test_the_interval_of_pairs_is_that_of_a_t_test_over_logarithms() -> None:
    # Logarithms of 1.1, 1.2 and 1.3: mean 0.18000, standard error 0.04824, t(2) = 4.303.
    found = compare_pairs([10, 10, 10], [11, 12, 13])
    assert found.ratio == pytest.approx(1.19722, abs=1e-5)
    assert (found.low, found.high) == (pytest.approx(0.97281, abs=1e-4), pytest.approx(1.47340, abs=1e-4))
    assert found.verdict is Verdict.NOT_SHOWN


def test_a_steady_difference_is_shown_although_the_conditions_change() -> None:
    old = [10.0, 20.0, 15.0, 40.0]
    found = compare_pairs(old, [each * ratio for each, ratio in zip(old, (1.19, 1.21, 1.2, 1.2), strict=True)])
    assert found.verdict is Verdict.MORE
    assert compare_groups(old, [each * 1.2 for each in old]).verdict is Verdict.NOT_SHOWN


@given(VALUES, st.data())
def test_swapping_the_sides_inverts_the_result(old: list[float], data: st.DataObject) -> None:
    new = data.draw(st.lists(st.floats(0.01, 1e4), min_size=len(old), max_size=len(old)))
    for compare in (compare_pairs, compare_groups):
        one, other = compare(old, new), compare(new, old)
        assert one.ratio == pytest.approx(1 / other.ratio)
        assert math.log(one.low) == pytest.approx(-math.log(other.high), abs=1e-6)


@given(VALUES)
def test_equal_values_show_no_difference(values: list[float]) -> None:
    found = compare_pairs(values, values)
    assert found.verdict is Verdict.NOT_SHOWN
    assert found.largest_hidden == 0


def test_two_pairs_show_nothing() -> None:
    assert compare_pairs([1, 1], [9, 9.01]).verdict is Verdict.TOO_FEW


@pytest.mark.parametrize(("old", "new"), [([], [1.0]), ([1.0], [1.0, 2.0]), ([0.0], [1.0]), ([1.0], [math.inf])])
def test_values_that_cannot_be_compared_are_refused(old: list[float], new: list[float]) -> None:
    with pytest.raises(UsageError):
        compare_pairs(old, new)


@pytest.mark.parametrize(
    ("freedom", "confidence", "quantile"),
    # From the tables of Student's distribution in the NIST handbook, 1.3.6.7.2.
    [(1, 0.95, 12.706), (2, 0.95, 4.303), (5, 0.99, 4.032), (10, 0.9, 1.812), (30, 0.998, 3.385), (100, 0.95, 1.984)],
)
def test_quantiles_are_those_of_the_tables(freedom: float, confidence: float, quantile: float) -> None:
    assert student_t(freedom, confidence) == pytest.approx(quantile, abs=6e-4)


def test_intervals_that_hold_together_are_wider() -> None:
    alone, together = (compare_pairs([1, 1, 1, 1], [1.1, 1.2, 1.1, 1.2], together=number) for number in (1, 10))
    assert alone.verdict is Verdict.MORE
    assert together.low < alone.low and together.high > alone.high
    assert together.ratio == alone.ratio
