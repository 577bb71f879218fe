"""Cache of Spark's analyses: each question about a statement is put to Spark once per engine version.

Spark never receives a statement that it would execute, or that reads anything but Headgate's empty tables. Callers wait
for a limited time. An answer that arrives later is stored, so that the next attempt to plan finds it even if the pool
is busy. Starts and stops use another session, and never wait for an analysis.
"""

import json
import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, wait

from core.changes.spark_questions_and_answers import AnalysedRevision, AnalysisAnswer, AnalysisQuestion, find_answer
from core.model.errors import EngineRefused, HeadgateError, TryAgain
from core.model.table_formats import TABLE_FORMATS
from core.sql.analysis_safety import unsafe_for_analysis
from core.sql.ddl_reader import read_ddl
from core.sql.python_declarations import is_type
from pipelines.agent.context import READ_CALL_S, WRITE_CALL_S, AgentContext

log = logging.getLogger(__name__)

LONGEST_S = 60.0
"""Time limit, in seconds, for one question and for one caller.

The first question takes seconds, later questions much less.
"""

LEAST_S = 0.5
"""Minimum remaining time, in seconds, to ask another question."""


class SparkAnalysisCache:
    """Answers analysis questions from the ledger or, if it has no answer, from Spark. Spark's answers are stored."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent
        self._lock = threading.Lock()
        self._pending: dict[str, Future[AnalysisAnswer]] = {}

    def ask(
        self, questions: Sequence[AnalysisQuestion], seconds: float
    ) -> tuple[tuple[AnalysisAnswer | None, ...], str]:
        """Return an answer or None for each question, in order, and why answers are missing or outdated.

        The reason is empty if no answer is missing or outdated. A call takes at most `seconds`. If the pool is
        unreachable, earlier answers of any engine version are used.
        """
        ends_at = time.monotonic() + min(seconds, LONGEST_S)
        with self._lock:
            # An answer that arrives after the ledger was read is found here, so that nothing is asked twice.
            self._pending = {key: answer for key, answer in self._pending.items() if not answer.done()}
        known = self._agent.ledger.spark_analyses()
        found = {question.key: find_answer(known, question) for question in questions}
        why = ""
        try:
            pool = self._agent.pools.reachable()
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
            threading.Thread(target=self._clear_when_idle, name="clear analyses", daemon=True).start()
        else:
            self._clear()
        return tuple(found[question.key] for question in questions), why

    def _put(self, question: AnalysisQuestion, seconds: float) -> AnalysisAnswer:
        # After TryAgain, the analysis continues, and the next caller gets its answer.
        for side in (question.new, question.old):
            if side is not None:
                _refuse_unsafe(side)
        with self._lock:
            answer = self._pending.get(question.key)
            if answer is None:
                answer = self._pending[question.key] = Future()
                threading.Thread(target=self._answer, args=(question, answer), name="analysis", daemon=True).start()
        try:
            return answer.result(seconds)
        except TimeoutError as error:
            summary = f"Spark did not analyse the statement within {seconds:.3g} s"
            raise TryAgain(summary, remedy="plan again: the analysis goes on") from error

    def _answer(self, question: AnalysisQuestion, answer: "Future[AnalysisAnswer]") -> None:
        try:
            pool = self._agent.pools.reachable()
            found = pool.call(LONGEST_S, pool.analysis.ask, question)
            packed = json.dumps(found.as_json(), sort_keys=True)
            self._agent.ledger.put_spark_analysis(question.key, packed, at=self._agent.clock())
        except BaseException as error:
            with self._lock:
                self._pending.pop(question.key, None)
            answer.set_exception(error)
        else:
            answer.set_result(found)

    def _clear_when_idle(self) -> None:
        with self._lock:
            pending = list(self._pending.values())
        wait(pending)
        self._clear()

    def _clear(self) -> None:
        # Tables that cannot be dropped now are dropped before the next analysis.
        try:
            pool = self._agent.pools.reachable()
            pool.call(WRITE_CALL_S, pool.analysis.clear)
        except HeadgateError as error:
            log.info("the scratch tables of Spark analysis could not be dropped yet: %s", error.summary)


def _refuse_unsafe(side: AnalysedRevision) -> None:
    risk = unsafe_for_analysis(side.select)
    why = "" if risk is None else str(risk)
    for name, text in side.tables:
        ddl, _ = read_ddl(text, "")
        if ddl is not None and ddl.format not in TABLE_FORMATS:
            # A format can name any class of the pool, which Spark would load.
            why = why or f"{name} is {ddl.format}, not {', '.join(TABLE_FORMATS)}"
    for each in side.functions:
        if not is_type(each.returns):
            why = why or f"{each.function} returns {each.returns}, which is no type"
    if why:
        raise EngineRefused(f"Spark was not asked: {why}", remedy="correct the statement")
