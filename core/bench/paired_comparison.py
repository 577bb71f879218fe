"""Comparison of repeated measurements of an old and a new version, with a confidence interval of their ratio.

The interval is Student's t interval over logarithms: of the ratios of pairs, if each new value was measured right after
or right before its old one, so that both had the same conditions; otherwise of the two groups (Welch). If several
figures are compared, each interval is wider, so that all of them hold together at 95 % (Bonferroni).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from core.model.errors import UsageError

CONFIDENCE = 0.95
LEAST_PAIRS = 3
"""Number of pairs below which nothing is concluded: the interval of two pairs is some ten times as wide as their
difference.
"""


class Verdict(StrEnum):
    """What a comparison shows."""

    MORE = "more"
    """The new values are higher; the interval of the ratio lies above 1."""
    LESS = "less"
    NOT_SHOWN = "not shown"
    """The interval contains 1: a difference, if any, is smaller than its ends."""
    TOO_FEW = "too few"
    """There are fewer than `LEAST_PAIRS` values on a side."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The ratio of new to old values, with its confidence interval."""

    verdict: Verdict
    old: float
    """Geometric mean of the old values."""
    new: float
    ratio: float
    """Geometric mean of the ratios."""
    low: float
    """Lower end of the interval of the ratio."""
    high: float
    count: int
    """Number of pairs; for unpaired values, of values on the side that has fewer."""
    paired: bool

    @property
    def largest_hidden(self) -> float:
        """The largest relative difference that the interval does not exclude, such as 0.08 for 8 %."""
        return max(self.high - 1, 1 - self.low, 0.0)


def compare_pairs(old: Sequence[float], new: Sequence[float], *, together: int = 1) -> Comparison:
    """Compare values measured in pairs, the first old value with the first new one. All values are above 0.

    `together` is the number of comparisons whose intervals shall hold together. Raises UsageError if there are no
    values, if the numbers of values differ, or if a value is not positive.
    """
    _check(old, new)
    if len(old) != len(new):
        raise UsageError(f"{len(old)} old and {len(new)} new values are no pairs")
    logs = [math.log(b / a) for a, b in zip(old, new, strict=True)]
    return _compared(old, new, _mean(logs), _half_width(logs, _confidence(together)), paired=True)


def compare_groups(old: Sequence[float], new: Sequence[float], *, together: int = 1) -> Comparison:
    """Compare values that were not measured in pairs; otherwise as `compare_pairs`."""
    _check(old, new)
    before, after = [math.log(each) for each in old], [math.log(each) for each in new]
    return _compared(old, new, _mean(after) - _mean(before), _welch(before, after, _confidence(together)), paired=False)


def _check(old: Sequence[float], new: Sequence[float]) -> None:
    if not old or not new:
        raise UsageError("there is nothing to compare: a side has no values")
    if not all(each > 0 and math.isfinite(each) for each in (*old, *new)):
        raise UsageError("only values above 0 can be compared")


def _compared(old: Sequence[float], new: Sequence[float], centre: float, half: float, *, paired: bool) -> Comparison:
    count = min(len(old), len(new))
    low, high = (_exp(centre - half), _exp(centre + half)) if count >= LEAST_PAIRS else (0.0, math.inf)
    verdict = (
        Verdict.TOO_FEW
        if count < LEAST_PAIRS
        else Verdict.MORE
        if low > 1
        else Verdict.LESS
        if high < 1
        else Verdict.NOT_SHOWN
    )
    means = [math.exp(_mean([math.log(each) for each in side])) for side in (old, new)]
    return Comparison(
        verdict,
        old=means[0],
        new=means[1],
        ratio=math.exp(centre),
        low=low,
        high=high,
        count=count,
        paired=paired,
    )


def _confidence(together: int) -> float:
    return 1 - (1 - CONFIDENCE) / together


def _half_width(values: Sequence[float], confidence: float) -> float:
    count = len(values)
    return student_t(count - 1, confidence) * math.sqrt(_variance(values) / count) if count > 1 else math.inf


def _welch(old: Sequence[float], new: Sequence[float], confidence: float) -> float:
    if min(len(old), len(new)) < 2:
        return math.inf
    parts = [_variance(side) / len(side) for side in (old, new)]
    total = sum(parts)
    if total == 0:
        return 0.0
    below = sum(part**2 / (len(side) - 1) for part, side in zip(parts, (old, new), strict=True))
    return student_t(total**2 / below, confidence) * math.sqrt(total) if below > 0 else math.inf


@lru_cache(maxsize=256)
def student_t(freedom: float, confidence: float = CONFIDENCE) -> float:
    """Return the two-sided quantile of Student's t distribution, such as 2.571 for 5 degrees of freedom at 95 %."""
    low, high = 0.0, 2.0
    while _outside(high, freedom) > 1 - confidence:
        low, high = high, high * 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _outside(middle, freedom) > 1 - confidence else (low, middle)
    return high


def _outside(t: float, freedom: float) -> float:
    """Return the probability of a value beyond ±t, which is a regularized incomplete beta function."""
    a, b, x = freedom / 2, 0.5, freedom / (freedom + t * t)
    if x >= 1:
        return 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1 - front * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """Evaluate the continued fraction of the incomplete beta function (Lentz; DLMF 8.17.22)."""
    tiny = 1e-300
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1) or tiny)
    found = d
    for m in range(1, 300):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + term * d or tiny)
            c = 1 + term / c or tiny
            found *= d * c
        if abs(d * c - 1) < 1e-14:
            break
    return found


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    centre = _mean(values)
    return math.fsum((each - centre) ** 2 for each in values) / (len(values) - 1)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
