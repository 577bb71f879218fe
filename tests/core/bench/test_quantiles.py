from hypothesis import given
from hypothesis import strategies as st

from core.bench.quantiles import LEAST, distribution, quantile


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.sampled_from([0.5, 0.95, 0.99, 1.0]))
def test_a_quantile_is_the_least_value_that_enough_values_do_not_exceed(values: list[float], part: float) -> None:
    ordered = sorted(values)
    found = quantile(ordered, part)
    share = [sum(each <= value for each in ordered) >= round(part * len(ordered), 9) for value in ordered]
    assert found == ordered[share.index(True)]


def test_a_distribution_of_a_hundred_values_is_exact() -> None:
    found = distribution(range(1, 101))
    assert found is not None
    assert (found.p50, found.p95, found.p99, found.least, found.most, found.mean) == (50, 95, 99, 1, 100, 50.5)


def test_of_few_values_only_the_median_is_given() -> None:
    few, enough = distribution(range(LEAST - 1)), distribution(range(LEAST))
    assert few is not None and (few.p50, few.p95, few.p99, few.high) == (4, None, None, 8)
    assert enough is not None and (enough.p95, enough.p99, enough.high) == (9, 9, 9)


def test_no_values_have_no_distribution() -> None:
    assert distribution([]) is None
