"""Decodes Spark's progress events, and measures input rates and how busy a pool is.

A value that Spark did not report is None or empty.
"""

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from core.lag.slowness import BatchTimes
from core.model.names import TableName


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """Progress of one micro-batch, decoded from `StreamingQueryProgress.json` (Spark 4.2)."""

    batch: int | None = None
    at: str = ""
    """Start of the trigger, ISO 8601 in UTC."""
    in_rows: int | None = None
    """Rows read in this batch, summed over the sources because Spark reports no total."""
    in_rows_s: float | None = None
    """Rows of this batch per second since the previous trigger, which may have found none, summed over the sources.
    None for a first batch, which has no previous trigger."""
    out_rows_s: float | None = None
    """Rows processed per second, summed over the sources."""
    batch_ms: int | None = None
    """Duration of the whole trigger in milliseconds."""
    durations: Mapping[str, int] = field(default_factory=dict)
    """Milliseconds by phase, without the total."""
    watermark: str = ""
    """Event time before which rows are late, ISO 8601. Empty without a watermark."""
    state_rows: int | None = None
    state_bytes: int | None = None
    dropped_by_watermark: int | None = None
    """Late rows dropped in this batch. Spark counts them after partial aggregation, so only zero or non-zero is
    meaningful."""
    state_update_ms: int = 0
    """Milliseconds that tasks spent with changing state, summed over the tasks."""
    state_commit_ms: int = 0
    """Milliseconds that tasks spent with committing state, summed over the tasks."""
    state_tasks: int = 1
    """Most tasks of an operator with state."""

    @property
    def times(self) -> BatchTimes | None:
        """Where the time of the batch went; None for a trigger that ran no batch."""
        if self.batch is None or self.batch_ms is None or "addBatch" not in self.durations:
            return None
        return BatchTimes(
            self.batch,
            self.batch_ms,
            self.durations,
            state_rows=self.state_rows,
            state_update_ms=self.state_update_ms,
            state_commit_ms=self.state_commit_ms,
            state_tasks=self.state_tasks,
        )


def query_progress_from_json(progress: Mapping[str, Any]) -> QueryProgress:
    """Decode a progress event. Unknown and malformed fields are ignored."""
    sources = [source for source in progress.get("sources") or () if isinstance(source, Mapping)]
    operators = [operator for operator in progress.get("stateOperators") or () if isinstance(operator, Mapping)]
    durations = {
        str(name): int(value) for name, value in (progress.get("durationMs") or {}).items() if _is_number(value)
    }
    total = durations.pop("triggerExecution", None)
    watermark = str((progress.get("eventTime") or {}).get("watermark") or "")
    in_rows, in_rows_s = _sum_int(sources, "numInputRows"), _sum(sources, "inputRowsPerSecond")
    return QueryProgress(
        batch=_int(progress.get("batchId")),
        at=str(progress.get("timestamp") or ""),
        in_rows=in_rows,
        # For a first batch Spark divides by an infinite time.
        in_rows_s=None if in_rows and in_rows_s == 0 else in_rows_s,
        out_rows_s=_sum(sources, "processedRowsPerSecond"),
        batch_ms=total if total is not None else _int(progress.get("batchDuration")),
        durations=durations,
        # Until it has seen an event time, Spark reports the epoch (4.2.0).
        watermark="" if watermark.startswith("1970-01-01T00:00:00") else watermark,
        state_rows=_sum_int(operators, "numRowsTotal"),
        state_bytes=_sum_int(operators, "memoryUsedBytes"),
        dropped_by_watermark=_sum_int(operators, "numRowsDroppedByWatermark"),
        state_update_ms=sum(_sum_int(operators, name) or 0 for name in ("allUpdatesTimeMs", "allRemovalsTimeMs")),
        state_commit_ms=_sum_int(operators, "commitTimeMs") or 0,
        state_tasks=max((_int(each.get("numShufflePartitions")) or 1 for each in operators), default=1),
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _int(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and _is_number(value) else None


def _sum(parts: list[Mapping[str, Any]], name: str) -> float | None:
    """Sum a rate over all sources; None if none reports it. NaN (first batch, idle trigger) is ignored."""
    numbers = [float(part[name]) for part in parts if _is_number(part.get(name))]
    return sum(numbers) if numbers else None


def _sum_int(parts: list[Mapping[str, Any]], name: str) -> int | None:
    numbers = [int(part[name]) for part in parts if _is_number(part.get(name))]
    return sum(numbers) if numbers else None


class InputRate:
    """Measures the rows that arrive per second for one query, from the times between its batches.

    Spark divides the rows of a batch by the time since the previous trigger, even if that trigger found no rows: with
    one row every ten seconds and a trigger of one second, it reports one row per second (4.2.0).
    """

    def __init__(self) -> None:
        self._next = 0
        self._began: float | None = None
        self._rows_s: float | None = None

    def rows_s(self, progress: QueryProgress) -> float | None:
        """Return the rate at a query's latest progress event. Passing the same event again has no effect.

        It is Spark's own rate if the batch before was not passed, or if the event is about a trigger without rows.
        """
        began = _time_of(progress.at)
        if progress.batch is None or began is None:
            return progress.in_rows_s
        if progress.in_rows and began != self._began:
            since_s = 0.0 if self._began is None or progress.batch != self._next else began - self._began
            self._rows_s = progress.in_rows / since_s if since_s > 0 else progress.in_rows_s
            self._began = began
        # A trigger that finds no rows has the number of the next batch, unless it runs a batch for the watermark.
        self._next = progress.batch + (1 if "addBatch" in progress.durations else 0)
        return self._rows_s if progress.in_rows else progress.in_rows_s


def _time_of(text: str) -> float | None:
    """Return an ISO 8601 time in epoch seconds; None if it is malformed."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


WINDOW_S = 300.0


class PoolUtilization:
    """Measures how busy a pool is, from the batch durations of the last minutes. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[tuple[TableName, int], int] = {}
        self._since: float | None = None
        self._batches: deque[tuple[float, float]] = deque()

    def batch(self, key: tuple[TableName, int], progress: QueryProgress, now: float) -> None:
        """Record the latest batch of a table version.

        Batches since the last call that were not recorded are assumed to have taken as long as this batch.
        """
        if progress.batch is None or progress.batch_ms is None:
            return
        with self._lock:
            before = self._seen.get(key)
            self._seen[key] = progress.batch
            self._since = now if self._since is None else self._since
            if before is not None and progress.batch > before:
                self._batches.append((now, (progress.batch - before) * progress.batch_ms / 1000))
            self._forget(now)

    def busy(self, now: float, cores: int) -> float | None:
        """Return the share of core time spent in batches over the last minutes; None before any progress event."""
        with self._lock:
            self._forget(now)
            if self._since is None or now <= self._since:
                return None
            return sum(seconds for _, seconds in self._batches) / (now - self._since) / cores

    def _forget(self, now: float) -> None:
        while self._batches and self._batches[0][0] < now - WINDOW_S:
            self._batches.popleft()
        if self._since is not None:
            self._since = max(self._since, now - WINDOW_S)
