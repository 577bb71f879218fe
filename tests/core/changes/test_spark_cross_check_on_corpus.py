"""Our analysis against Spark's verdicts on the whole corpus: a plan must not report false disagreements."""

import corpus_agreement
from sql_corpus import Case, Verdict, cases, load

from core.changes.spark_cross_check import disagreements
from core.changes.spark_questions_and_answers import (
    AnalysedColumn,
    AnalysedOperator,
    AnalysedRead,
    AnalysedStatement,
    AnalysisRefusal,
)
from core.sql.statement import ParsedStatement
from core.sql.statement_reader import read_any

KINDS = {
    "stateStoreSave": "aggregate",
    "sessionWindowStateStoreSaveExec": "session_window",
    "symmetricHashJoin": "stream_join",
    "globalLimit": "limit",
}
"""Operators by their names in Spark's progress, in which the corpus was recorded, with the names in Spark's analysis.
"""


def opinion(verdict: Verdict) -> AnalysedStatement:
    return AnalysedStatement(
        sources=tuple(AnalysedRead(*read) for read in verdict.reads),
        columns=tuple(AnalysedColumn(name, "", True) for name in verdict.columns),
        operators=tuple(AnalysedOperator(name, KINDS.get(name, name)) for name in verdict.operators),
        refused=AnalysisRefusal("", verdict.refused) if verdict.refused else None,
    )


def compared(case: Case, verdicts: list[Verdict]) -> list[tuple[ParsedStatement, AnalysedStatement]]:
    """Pair our statements with Spark's, omitting statements that have a Problem or do not stream, as a plan does."""
    found, problems = read_any(case.text, "q.sql", every_table_streams=case.reads == "stream")
    refused = any(ours.refused for ours in corpus_agreement.ours(case))
    if problems or refused or len(found) != len(verdicts):
        return []
    pairs = zip(found, map(opinion, verdicts), strict=True)
    return [(parsed, said) for parsed, said in pairs if any(read.streaming for read in parsed.reads)]


def test_spark_agrees_with_the_corpus_except_for_known_cases() -> None:
    recorded = load()
    pairs = {case.key: compared(case, recorded[case.key]) for case in cases() if case.key in recorded}
    assert sum(map(len, pairs.values())) > 250
    wrong = {
        key for key, found in pairs.items() if any(disagreements(parsed, said, parsed.select) for parsed, said in found)
    }
    assert wrong <= corpus_agreement.disagreements().keys()
    assert len(wrong) <= 0.02 * sum(map(len, pairs.values()))
