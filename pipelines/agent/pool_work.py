"""What the pools really do, from the REST APIs of their servers, which the agent asks only on demand."""

import logging
import threading
import time
from collections.abc import Callable, Mapping

from core.model.errors import PoolUnreachable
from core.model.names import TableName
from core.observed.spark_work import ClusterFigures, Executor, ServerHeap, StageTimes, WorkOfPool
from pipelines.spark_connect.call_deadlines import MissedDeadline, call
from pipelines.spark_connect.spark_ui import SparkUi

log = logging.getLogger(__name__)

EVERY_S = 10.0
"""Seconds between two rounds in which the stages of slow statements are read."""

MOST_AT_ONCE = 4
"""Most statements whose stages are read in a round; with more slow ones, they take turns."""

KEPT_S = 4.0
"""Seconds for which an answer about executors is used again, however many people look."""

LOOK_S = 3.0
"""Longest time, in seconds, that somebody who looks at a pool waits for all answers about it."""

Key = tuple[TableName, int]


class PoolWork:
    """Reads the executors of pools for those who look, and the stages of statements while they are slow. Thread-safe.

    A pool without a REST API gives neither.
    """

    def __init__(
        self,
        uis: Mapping[str, Callable[[], SparkUi | None]],
        *,
        clusters: Mapping[str, Callable[[], ClusterFigures | None]] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the pools by name. Each function of `uis` returns a pool's REST API; None if it has none now.

        Each of `clusters` asks the manager of a pool's cluster, by pool: it raises PoolUnreachable if that does not
        answer, and returns None if the pool has none.
        """
        self._uis = uis
        self._clusters = clusters or {}
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._slow: dict[Key, tuple[str, str]] = {}
        """Pool and run of the queries of statements that are slow."""
        self._stages: dict[Key, tuple[str, tuple[StageTimes, ...]]] = {}
        """Runs of queries, with the stages of their latest batches that were read."""
        self._read_at: dict[Key, float] = {}
        self._known: dict[str, tuple[float, WorkOfPool]] = {}
        self._unread: dict[str, str] = {}

    def put_slow(self, runs: Mapping[Key, tuple[str, str]]) -> None:
        """Replace the statements that are slow: the pool and the run of the query of each."""
        with self._lock:
            self._slow = dict(runs)
            for known in (self._stages, self._read_at):
                for key in known.keys() - runs.keys():
                    del known[key]

    def stages(self, key: Key, run_id: str) -> tuple[StageTimes, ...]:
        """Return the stages of the latest batches of a query's run that were read; empty if none were."""
        with self._lock:
            run, stages = self._stages.get(key, ("", ()))
            return stages if run == run_id else ()

    def round(self) -> None:
        """Read the stages of a few slow statements, those first that were read longest ago."""
        with self._lock:
            order = sorted(self._slow, key=lambda key: (self._read_at.get(key, 0.0), key))
            due = {key: self._slow[key] for key in order[:MOST_AT_ONCE]}
        for key, (pool, run_id) in due.items():
            ui = self._uis[pool]()
            if ui is None:
                continue
            stages: tuple[StageTimes, ...] = ()
            try:
                stages = ui.stages(run_id)
                self._unread.pop(pool, None)
            except PoolUnreachable as error:
                if self._unread.get(pool) != error.summary:
                    self._unread[pool] = error.summary
                    log.warning("the tasks of slow statements are not known: %s", error.summary)
            with self._lock:
                if self._slow.get(key) == (pool, run_id):
                    self._stages[key], self._read_at[key] = (run_id, stages), self._monotonic()

    def of_pool(self, pool: str) -> WorkOfPool:
        """Return what a pool does, which may be up to `KEPT_S` old; the manager of its cluster is asked too."""
        with self._lock:
            at, known = self._known.get(pool, (-KEPT_S, WorkOfPool()))
            if self._monotonic() - at < KEPT_S:
                return known
        try:
            found = call(LOOK_S, self._read, pool)
        except MissedDeadline:
            found = WorkOfPool(unread=f"no answer within {LOOK_S:.3g} s")
        with self._lock:
            self._known[pool] = (self._monotonic(), found)
        return found

    def _read(self, pool: str) -> WorkOfPool:
        executors, heap, unread = self._server(self._uis[pool]())
        cluster, cluster_unread = self._cluster(self._clusters.get(pool, lambda: None))
        return WorkOfPool(executors, unread, cluster, cluster_unread, heap)

    def _server(self, ui: SparkUi | None) -> tuple[tuple[Executor, ...], ServerHeap | None, str]:
        if ui is None:
            return (), None, "the agent cannot read Spark's REST API there"
        try:
            return ui.executors(), ui.heap(), ""
        except PoolUnreachable as error:
            return (), None, error.summary

    def _cluster(self, ask: Callable[[], ClusterFigures | None]) -> tuple[ClusterFigures | None, str]:
        try:
            return ask(), ""
        except PoolUnreachable as error:
            return None, error.summary
