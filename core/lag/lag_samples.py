"""Measured lag: individual samples, the total over all streamed sources, and series of samples without gaps."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Protocol

from core.model.names import TableName
from core.ports.storage import SourceLag


class LagSample(Protocol):
    """The fields of a lag sample that this package reads; `state.row_types.SampleRow` implements it."""

    @property
    def at(self) -> float: ...
    @property
    def lag_rows(self) -> int | None: ...
    @property
    def lag_files(self) -> int | None: ...
    @property
    def in_rows_s(self) -> float | None: ...
    @property
    def batch_ms(self) -> int | None: ...
    @property
    def produced_rows(self) -> int | None: ...
    @property
    def consumed_rows(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Lag:
    """The input pending in all streamed sources of a statement."""

    rows: int | None
    """Pending rows; None if unknown for any source."""
    files: int | None
    """Pending files; None if any source is gone or was replaced."""
    bytes: int
    exact: bool
    oldest_s: float | None
    missing: tuple[TableName, ...]
    """Sources that are gone or were replaced."""
    newest_s: float | None = None
    """Age, in seconds, of the latest input in the source that has been silent the longest; None if unknown."""

    @property
    def behind_s(self) -> float | None:
        """Age of the oldest pending input in seconds; 0 if none is pending, None if unknown."""
        return behind_s(self.files, self.oldest_s) if not self.missing else None


def behind_s(files: int | None, oldest_s: float | None) -> float | None:
    """Return the lag in seconds from the number of pending files and the age of the oldest; None if unknown."""
    return 0.0 if files == 0 else oldest_s


def total_lag(positions: Iterable[SourceLag]) -> Lag:
    """Return the total lag over all sources of a statement; zero without sources."""
    known = tuple(positions)
    rows = [position.rows for position in known if position.rows is not None]
    return Lag(
        rows=sum(rows) if len(rows) == len(known) else None,
        files=None if any(position.missing for position in known) else sum(position.files for position in known),
        bytes=sum(position.bytes for position in known),
        exact=all(position.exact for position in known),
        oldest_s=max((position.oldest_s for position in known if position.oldest_s is not None), default=None),
        missing=tuple(position.table for position in known if position.missing),
        newest_s=max((position.newest_s for position in known if position.newest_s is not None), default=None),
    )


LEAST_SAMPLES = 6
"""Number of consecutive samples needed to determine a trend."""

_HOLE = 3.0


@dataclass(frozen=True, slots=True)
class SampleSeries:
    """The latest samples without a gap between them, as parallel tuples, oldest first."""

    at: tuple[float, ...]
    lag: tuple[float, ...]
    """Pending rows, or pending files if the number of rows is unknown."""
    files: tuple[float, ...]
    """Pending files; shorter than the other tuples if unknown for some samples."""
    in_rows: bool
    arrived: tuple[float, ...]
    """Cumulative input since the first sample, in the unit of `lag`."""
    processed: tuple[float, ...]
    """Cumulative processed input since the first sample, in the unit of `lag`."""
    batch_rows_s: float
    """Median rows per second of the latest batches, as reported by Spark; 0 if unknown or if lag is in files."""
    has_counters: bool
    """True if `arrived` and `processed` were counted, not estimated from changes in the lag."""
    batches_s: tuple[float, ...]
    """Duration of the latest batch, in seconds, at each recent sample."""
    arrived_at: float
    """When input last arrived, in epoch seconds; the time of the first sample if none has arrived since."""
    usual_gap_s: float
    """Median time between two samples with new input."""
    interval_s: float

    def arrival_rate(self) -> float:
        """Return the recent input rate per second: the median of the last three arrivals, to ignore a single burst."""
        seen = [n for n in range(1, len(self.at)) if self.arrived[n] > self.arrived[n - 1]]
        rates = [
            (self.arrived[n] - self.arrived[n - 1]) / min(self.at[n] - self.at[before], 2 * self.usual_gap_s)
            for before, n in zip([0, *seen], seen, strict=False)
        ]
        missed = (self.at[-1] - self.arrived_at) / self.usual_gap_s
        rates += [0.0] * int(missed - 1)
        return median(rates[-3:]) if rates else 0.0


def sample_series(samples: Sequence[LagSample], now: float, interval_s: float) -> SampleSeries | None:
    """Return the latest samples without a gap; None if they are too few or too old, or if the lag is unknown."""
    if not samples or now - samples[-1].at > _HOLE * interval_s:
        return None
    in_rows = samples[-1].lag_rows is not None
    row = _unbroken(samples, interval_s, in_rows=in_rows)
    if len(row) < LEAST_SAMPLES:
        return None
    lag = tuple(float(_amount(sample, in_rows=in_rows) or 0) for sample in row)
    at = tuple(sample.at for sample in row)
    arrived, processed = _counters(row, lag, in_rows=in_rows)
    seen = [n for n in range(1, len(at)) if arrived[n] > arrived[n - 1]]
    gaps = [at[after] - at[before] for before, after in pairwise(seen)]
    batches = tuple(sample.batch_ms / 1000 for sample in row[-24:] if sample.batch_ms is not None)
    batch_rows_s = [sample.in_rows_s for sample in row[-4:] if in_rows and sample.in_rows_s is not None]
    return SampleSeries(
        at=at,
        lag=lag,
        files=tuple(float(sample.lag_files) for sample in row if sample.lag_files is not None),
        in_rows=in_rows,
        arrived=arrived,
        processed=processed,
        batch_rows_s=median(batch_rows_s) if batch_rows_s else 0.0,
        has_counters=in_rows and row[-1].produced_rows is not None and row[-1].consumed_rows is not None,
        batches_s=batches or (0.0,),
        arrived_at=at[seen[-1]] if seen else at[0],
        usual_gap_s=max(interval_s, median(gaps)) if gaps else interval_s,
        interval_s=interval_s,
    )


def _amount(sample: LagSample, *, in_rows: bool) -> int | None:
    return sample.lag_rows if in_rows else sample.lag_files


def _unbroken(samples: Sequence[LagSample], interval_s: float, *, in_rows: bool) -> Sequence[LagSample]:
    if _amount(samples[-1], in_rows=in_rows) is None:
        return ()
    for n in range(len(samples) - 1, 0, -1):
        before, after = samples[n - 1], samples[n]
        if _amount(before, in_rows=in_rows) is None or not 0 < after.at - before.at <= _HOLE * interval_s:
            return samples[n:]
        if _went_back(before.produced_rows, after.produced_rows) or _went_back(
            before.consumed_rows, after.consumed_rows
        ):
            return samples[n:]
    return samples


def _went_back(before: int | None, after: int | None) -> bool:
    return before is not None and after is not None and after < before


def _counters(
    row: Sequence[LagSample], lag: tuple[float, ...], *, in_rows: bool
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the cumulative input and the cumulative processed input at each sample.

    Without counters, an increase in lag counts as input, and a decrease as processed input.
    """
    arrived, processed = [0.0], [0.0]
    for n in range(1, len(row)):
        produced = _step(row[n - 1].produced_rows, row[n].produced_rows) if in_rows else None
        consumed = _step(row[n - 1].consumed_rows, row[n].consumed_rows) if in_rows else None
        change = lag[n] - lag[n - 1]
        arrived.append(arrived[-1] + (max(change, 0.0) if produced is None else produced))
        processed.append(processed[-1] + (max(-change, 0.0) if consumed is None else consumed))
    return tuple(arrived), tuple(processed)


def _step(before: int | None, after: int | None) -> float | None:
    return None if before is None or after is None else float(after - before)
