"""What a pool still does for a batch of a keyed statement whose query is gone: ended, and waited for.

`StreamingQuery.stop` returns while a MERGE of its batch runs on to its commit, without the process that asked for it
(Spark 4.2.0: 4.3 s after a stop that took 0.04 s).
"""

import threading
import time
from collections.abc import Collection

from core.model.errors import PoolUnreachable
from pipelines.spark.session import Session, spark_errors
from pipelines.spark.upsert_writers import batch_mark

_LOOKS_S = 0.05

_THREAD = "SparkConnectExecuteThread_opId="
"""Begins the name of the thread that executes an operation; the one that sends its results outlives it (4.2.0)."""


class OpenBatches:
    """The operations of batches that were told to end; one per session generation, used by several threads."""

    def __init__(self, session: Session) -> None:
        """Ask for nothing yet."""
        self._session = session
        self._ending: dict[str, frozenset[str]] = {}
        """By mark the operations that were told to end and may not have: Spark names each to the first asker alone."""
        self._lock = threading.Lock()

    def end(self, name: str, ends_at: float) -> None:
        """Return once nothing writes a batch of a query that is gone, by its name; raises PoolUnreachable.

        What it has not committed is written by the next start, as after a kill. `ends_at` is monotonic.
        """
        mark = batch_mark(name)
        with spark_errors():
            # Without its view no statement over a batch begins any more; with it goes what Spark has kept of the batch.
            for view in self._session.spark.sql(f"SHOW VIEWS LIKE '{mark}_*'").collect():
                self._session.spark.catalog.dropTempView(view.viewName)
            told = frozenset(self._session.spark.interruptTag(mark))
            with self._lock:
                ending = self._ending[mark] = self._ending.get(mark, frozenset()) | told
            while ending := self._under_way(ending):
                if time.monotonic() > ends_at:
                    summary = f"{name} is stopped, but its last batch is still being written"
                    raise PoolUnreachable(summary, remedy="stop it again")
                time.sleep(_LOOKS_S)
        with self._lock:
            self._ending.pop(mark, None)

    def _under_way(self, operations: Collection[str]) -> frozenset[str]:
        """Return which operations are not over: one that was told to end is, once the thread that executes it is gone.

        Its state says so earlier, and a commit that has begun is not taken back. The list of threads is made while the
        query is planned (an inline table), in the process that commits, and needs no free core.
        """
        if not operations:
            return frozenset()
        rows = ", ".join(f"('{each}')" for each in sorted(operations))
        executes = f"instr(reflect('java.lang.Thread', 'getAllStackTraces'), concat('{_THREAD}', id)) > 0"
        found = self._session.spark.sql(f"SELECT id, {executes} FROM VALUES {rows} t(id)").collect()
        return frozenset(str(row[0]) for row in found if row[1])
