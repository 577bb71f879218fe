"""Our analysis of the corpus against Spark's recorded verdicts, and the corpus with tokens deleted and doubled."""

from collections import Counter

import pytest
from corpus_agreement import compared, disagreements, whole
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from sql_corpus import Case, cases, load
from token_mutations import edited, pieces

from core.sql.statement_reader import read_any, read_statements

CASES = cases()
RECORDED = load()


def test_the_corpus_is_large_enough_and_spark_was_asked_about_all_of_it() -> None:
    constructs = Counter(case.construct for case in CASES)
    assert len(CASES) >= 300 and min(constructs.values()) >= 10
    assert sum(bool(verdict.refused) for verdicts in RECORDED.values() for verdict in verdicts) >= 40
    assert sorted(RECORDED) == sorted(case.key for case in CASES)


def test_disagreements_with_spark_are_known_and_never_unsafe() -> None:
    found = [each for case in CASES for each in compared(case, RECORDED[case.key])]
    assert [str(each) for each in found if each.unsafe] == []
    assert sorted({each.key for each in found}) == sorted(disagreements())
    assert len(disagreements()) <= 0.02 * sum(len(verdicts) for verdicts in RECORDED.values())


@pytest.mark.parametrize("case", [case for case in CASES if len(case.statements) > 1], ids=lambda case: case.name)
def test_a_file_is_described_statement_by_statement(case: Case) -> None:
    together, apart = whole(case)
    assert together == apart


@settings(max_examples=examples(600))
@given(st.sampled_from(CASES), st.data())
def test_a_token_deleted_or_doubled_gives_a_result_or_a_problem(case: Case, data: st.DataObject) -> None:
    tokens = pieces(case.text)
    at = data.draw(st.integers(0, len(tokens) - 1))
    text = edited(case.text, tokens[at], doubled=data.draw(st.booleans()))
    for read in (read_any, read_statements):
        parsed, problems = read(text, "f.sql", every_table_streams=case.reads == "stream")
        assert parsed or problems
        assert all(problem.where and problem.where.line and problem.detail for problem in problems if text.strip())
