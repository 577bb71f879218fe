"""Spark analysis: statements are analysed over empty tables of our own; nothing of the operator's is touched.

A statement is never shown a table of the operator's: each table that it names is made anew, empty, by its declaration,
in a database of ours. So tables that are not in the catalog yet are analysed like any other.
"""

import threading
import uuid
from collections.abc import Callable
from typing import TypeVar

from core.changes.spark_analysis import AnalysisAnswer, AnalysisQuestion
from core.model.errors import TryAgain
from pipelines.spark import call_deadlines
from pipelines.spark.error_translation import SessionLost
from pipelines.spark.session import UNTIMED_S, Session, spark_errors
from pipelines.spark_analysis.scratch_databases import ScratchDatabases

T = TypeVar("T")


class SparkAnalysis:
    """Implements `core.ports.spark.Analysis`: one question at a time, in sessions of its own."""

    def __init__(self, session: Session) -> None:
        """Prepare, beside the operating session; nothing is sent before the first question."""
        self._operating = session
        name = uuid.uuid5(uuid.NAMESPACE_OID, f"{session.session_id}/analysis")
        self._prefix = f"headgate_analysis_{name.hex[:12]}"
        self._scratch: ScratchDatabases | None = None
        self._lock = threading.Lock()

    def engine(self) -> str:
        """Return Spark's version, without a call once it is known."""
        with spark_errors():
            return str(self._operating.spark.version)

    def ask(self, question: AnalysisQuestion) -> AnalysisAnswer:
        """Answer a question; raises EngineRefused where a table cannot be made, TryAgain, PoolUnreachable.

        A deadline that is missed here raises TryAgain shortly before the caller's own, so that a slow analysis is not
        taken for a pool that is silent: stops and starts are not held up by it. Tables stay for the next question.
        """
        return self._alone(lambda: self._opened().answer(question))

    def clear(self) -> None:
        """Drop everything that was made for the questions so far."""
        if self._scratch is not None:
            self._alone(self._close)

    def _alone(self, act: Callable[[], T]) -> T:
        left = call_deadlines.remaining()
        seconds = UNTIMED_S if left is None else max(0.1, min(0.95 * left, left - 0.2))
        try:
            return call_deadlines.call(seconds, self._locked, act)
        except (call_deadlines.MissedDeadline, SessionLost) as error:
            # Of another session than the operating one, which is not lost.
            summary = f"Spark did not analyse the statement: {error.summary}"
            raise TryAgain(summary, remedy="try again when the pool is less busy") from error

    def _locked(self, act: Callable[[], T]) -> T:
        if not self._lock.acquire(timeout=call_deadlines.remaining() or 0):
            raise TryAgain("Spark is busy with other analysis requests", remedy="try again in a moment")
        try:
            with spark_errors():
                return act()
        except SessionLost:
            lost, self._scratch = self._scratch, None
            if lost is not None:
                lost.leave()
            raise
        finally:
            self._lock.release()

    def _opened(self) -> ScratchDatabases:
        if self._scratch is None:
            # A session for some questions only: what Spark remembers of them goes with it.
            self._scratch = ScratchDatabases(self._operating.beside(str(uuid.uuid4())), self._prefix)
        return self._scratch

    def _close(self) -> None:
        scratch, self._scratch = self._scratch, None
        if scratch is not None:
            scratch.close()
