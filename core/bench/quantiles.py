"""Quantiles of measured values."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LEAST = 10
"""Number of values from which a percentile above the median is given. With fewer, it is just the largest value."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """The quantiles of some values, by nearest rank, so that each is a value that was measured."""

    count: int
    p50: float
    p95: float | None
    """None if there are fewer than `LEAST` values, as for `p99`."""
    p99: float | None
    least: float
    most: float
    mean: float

    @property
    def high(self) -> float:
        """The 99th percentile or, of too few values, the largest one."""
        return self.most if self.p99 is None else self.p99


def distribution(values: Iterable[float]) -> Distribution | None:
    """Return the distribution of values; None if there are none."""
    ordered = sorted(values)
    if not ordered:
        return None
    return Distribution(
        count=len(ordered),
        p50=quantile(ordered, 0.50),
        p95=quantile(ordered, 0.95) if len(ordered) >= LEAST else None,
        p99=quantile(ordered, 0.99) if len(ordered) >= LEAST else None,
        least=ordered[0],
        most=ordered[-1],
        mean=math.fsum(ordered) / len(ordered),
    )


def quantile(ordered: Sequence[float], part: float) -> float:
    """Return the nearest-rank quantile `part` (above 0, at most 1) of values in ascending order."""
    # A product such as 0.07 * 100 is a little above the whole number that it stands for.
    return ordered[max(0, math.ceil(round(part * len(ordered), 9)) - 1)]
