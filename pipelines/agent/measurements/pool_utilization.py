"""How much of a pool's time batches take, from the progress that its queries report."""

import threading
from collections import deque

from core.model.names import TableName
from pipelines.spark.query_progress import QueryProgress

WINDOW_S = 300.0


class PoolUtilization:
    """Seconds of batches over the last minutes; written by the thread that measures, read by another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[tuple[TableName, int], int] = {}
        self._since: float | None = None
        self._batches: deque[tuple[float, float]] = deque()

    def batch(self, key: tuple[TableName, int], progress: QueryProgress, now: float) -> None:
        """Record the last progress of a version; batches in between are assumed to take as long as the last."""
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
        """Return seconds of batches by second and core; None before there was anything to see."""
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
