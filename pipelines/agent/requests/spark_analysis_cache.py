"""Spark analysis through the agent: each question is asked once per engine version.

Spark never sees a statement that would run or read anything but our empty tables. Callers wait in threads of their own,
with a time limit; starts and stops use another session and never wait for an analysis.
"""

import json
import logging
import threading
import time
from collections.abc import Sequence

from core.changes.spark_analysis import AnalysedRevision, AnalysisAnswer, AnalysisQuestion, find_answer
from core.model.errors import EngineRefused, HeadgateError, TryAgain
from core.model.table_formats import TABLE_FORMATS
from core.sql.analysis_safety import unsafe_for_analysis
from core.sql.ddl_reader import read_ddl
from pipelines.agent.context import READ_CALL_S, WRITE_CALL_S, AgentContext

log = logging.getLogger(__name__)

LONGEST_S = 60.0
"""Longest time that a caller can ask for; a first question takes seconds, later ones tenths of a second."""


LEAST_S = 0.5
"""With less than this many seconds left, no further question is asked."""


class SparkAnalysisCache:
    """Answers from the ledger if possible, otherwise from Spark, and keeps Spark's answers."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent

    def ask(
        self, questions: Sequence[AnalysisQuestion], seconds: float
    ) -> tuple[tuple[AnalysisAnswer | None, ...], str]:
        """Answer questions in their order within `seconds`; None without an answer, and one sentence on why.

        If the pool is unreachable, older answers are used, whichever engine version gave them.
        """
        ends_at = time.monotonic() + min(seconds, LONGEST_S)
        known = self._agent.ledger.spark_analyses()
        found = {question.key: find_answer(known, question) for question in questions}
        why = ""
        try:
            pool = self._agent.pool.connection()
            engine = pool.call(READ_CALL_S, pool.analysis.engine)
            unanswered = [q for q in questions if (answer := found[q.key]) is None or answer.engine != engine]
            for question in {question.key: question for question in unanswered}.values():
                left = ends_at - time.monotonic()
                if left <= LEAST_S:
                    raise TryAgain(f"Spark did not analyse all statements within {seconds:.3g} s")
                try:
                    found[question.key] = self._put(question, left)
                except EngineRefused as error:
                    why = why or error.summary
        except TryAgain as error:
            why = error.summary
            # In the background, because the caller has already waited long enough for a slow pool.
            threading.Thread(target=self._clear, name="clear analyses", daemon=True).start()
        else:
            self._clear()
        return tuple(found[question.key] for question in questions), why

    def _put(self, question: AnalysisQuestion, seconds: float) -> AnalysisAnswer:
        for side in (question.new, question.old):
            if side is not None:
                _refuse_unsafe(side)
        pool = self._agent.pool.connection()
        answer = pool.call(seconds, pool.analysis.ask, question)
        packed = json.dumps(answer.as_json(), sort_keys=True)
        self._agent.ledger.put_opinion(question.key, packed, at=self._agent.clock())
        return answer

    def _clear(self) -> None:
        """Drop the scratch tables; those that cannot be dropped now are dropped before the next analysis."""
        try:
            pool = self._agent.pool.connection()
            pool.call(WRITE_CALL_S, pool.analysis.clear)
        except HeadgateError as error:
            log.info("the scratch tables of Spark analysis could not be dropped yet: %s", error.summary)


def _refuse_unsafe(side: AnalysedRevision) -> None:
    """Raise EngineRefused for a statement that must not be shown to Spark."""
    why = unsafe_for_analysis(side.select)
    for name, text in side.tables:
        ddl, _ = read_ddl(text, "")
        if ddl is not None and ddl.format not in TABLE_FORMATS:
            # A format can name any class of the pool, which Spark would load.
            why = why or f"{name} is {ddl.format}, not {', '.join(TABLE_FORMATS)}"
    if why:
        raise EngineRefused(f"Spark was not asked: {why}", remedy="correct the statement")
