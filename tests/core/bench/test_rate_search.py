from hypothesis import given
from hypothesis import strategies as st

from core.bench.rate_search import RateLimits, RateTrial, next_rate, rate_range

LIMITS = RateLimits(first=500, least=1, most=1e6, precision=1.15, trials=40)


def searched(capacity: float, limits: RateLimits = LIMITS) -> list[RateTrial]:
    trials: list[RateTrial] = []
    while (rate := next_rate(trials, limits)) is not None:
        trials.append(RateTrial(rate, sustained=rate <= capacity))
    return trials


@given(st.floats(2, 9e5))
def test_the_search_encloses_the_capacity_within_the_precision(capacity: float) -> None:
    trials = searched(capacity)
    found = rate_range(trials)
    assert found.sustained is not None and found.failed is not None
    assert found.sustained <= capacity < found.failed
    assert found.failed / found.sustained <= LIMITS.precision
    assert len({each.rate for each in trials}) == len(trials)


def test_the_search_ends_at_its_limits() -> None:
    assert rate_range(searched(0.5)).sustained is None
    assert rate_range(searched(1e9)).failed is None
    assert len(searched(3000, RateLimits(500, 1, 1e6, 1.0001, trials=5))) == 5


def test_a_rate_above_a_failed_one_does_not_count_as_sustained() -> None:
    trials = [RateTrial(100, sustained=True), RateTrial(200, sustained=False), RateTrial(400, sustained=True)]
    assert rate_range(trials).sustained == 100
