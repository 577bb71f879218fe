"""Comparison of repeated measurements of an old and a new version, with a confidence interval of their ratio.

The interval is Student's t interval at 95 % over logarithms: of the ratios of pairs, if each new value was measured
right after or right before its old one, so that both had the same conditions; otherwise of the two groups (Welch).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from core.model.errors import UsageError

CONFIDENCE = 0.95
LEAST_PAIRS = 3
"""Number of pairs below which nothing is concluded: the interval of two pairs is some ten times as wide as their
difference.
"""

_TWO_SIDED_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Quantile 0.975 of Student's t distribution for 1 to 30 degrees of freedom."""


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


def compare_pairs(old: Sequence[float], new: Sequence[float]) -> Comparison:
    """Compare values measured in pairs, the first old value with the first new one. All values are above 0.

    Raises UsageError if there are no values, if the numbers of values differ, or if a value is not positive.
    """
    _check(old, new)
    if len(old) != len(new):
        raise UsageError(f"{len(old)} old and {len(new)} new values are no pairs")
    logs = [math.log(b / a) for a, b in zip(old, new, strict=True)]
    return _compared(old, new, _mean(logs), _half_width(logs), paired=True)


def compare_groups(old: Sequence[float], new: Sequence[float]) -> Comparison:
    """Compare values that were not measured in pairs. All values are above 0. Raises UsageError as `compare_pairs`."""
    _check(old, new)
    before, after = [math.log(each) for each in old], [math.log(each) for each in new]
    return _compared(old, new, _mean(after) - _mean(before), _welch(before, after), paired=False)


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


def _half_width(values: Sequence[float]) -> float:
    count = len(values)
    return student_t(count - 1) * math.sqrt(_variance(values) / count) if count > 1 else math.inf


def _welch(old: Sequence[float], new: Sequence[float]) -> float:
    if min(len(old), len(new)) < 2:
        return math.inf
    parts = [_variance(side) / len(side) for side in (old, new)]
    total = sum(parts)
    if total == 0:
        return 0.0
    below = sum(part**2 / (len(side) - 1) for part, side in zip(parts, (old, new), strict=True))
    return student_t(int(total**2 / below)) * math.sqrt(total) if below > 0 else math.inf


def student_t(freedom: int) -> float:
    """Return the two-sided 95 % quantile of Student's t distribution; `freedom` is at least 1."""
    if freedom <= len(_TWO_SIDED_95):
        return _TWO_SIDED_95[max(freedom, 1) - 1]
    # Cornish-Fisher expansion around the normal quantile, exact to four digits from 30 degrees of freedom on.
    z = 1.959964
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    centre = _mean(values)
    return math.fsum((each - centre) ** 2 for each in values) / (len(values) - 1)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
