"""Search for the highest rate that a pipeline sustains: doubling up to the first failure, then bisection."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RateTrial:
    """A rate that was tried, in rows per second, and whether it was sustained."""

    rate: float
    sustained: bool


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The limits of a search, in rows per second."""

    first: float
    least: float
    """The search ends without a result if this rate is not sustained."""
    most: float
    """The search ends if this rate is sustained."""
    precision: float = 1.15
    """The search ends once the lowest failed rate is at most this factor above the highest sustained rate."""
    trials: int = 12
    """Maximum number of trials."""


@dataclass(frozen=True, slots=True)
class RateRange:
    """What trials show: the highest sustained rate below every failed rate, and the lowest failed rate."""

    sustained: float | None
    failed: float | None


def rate_range(trials: Sequence[RateTrial]) -> RateRange:
    """Return the range that trials show; a rate above a failed rate does not count as sustained."""
    failed = min((each.rate for each in trials if not each.sustained), default=None)
    below = [each.rate for each in trials if each.sustained and (failed is None or each.rate < failed)]
    return RateRange(max(below, default=None), failed)


def next_rate(trials: Sequence[RateTrial], limits: RateLimits) -> float | None:
    """Return the rate to try next; None once the search has ended.

    No rate is tried twice.
    """
    if not trials:
        return min(max(limits.first, limits.least), limits.most)
    if len(trials) >= limits.trials:
        return None
    found = rate_range(trials)
    low, high = found.sustained, found.failed
    if low is None:
        assert high is not None, "one of them is known after a trial"
        return None if high <= limits.least else max(limits.least, high / 2)
    if high is None:
        return None if low >= limits.most else min(limits.most, low * 2)
    middle: float = (low * high) ** 0.5
    return None if high / low <= limits.precision or not low < middle < high else middle
