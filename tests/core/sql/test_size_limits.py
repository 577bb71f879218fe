"""Extremely large texts are parsed or refused; no exception escapes, and the parser never ends the process."""

import pytest

from core.sql.ddl_reader import read_ddl
from core.sql.statement_reader import read_statements
from core.sql.tokens.lexer import MOST_INDEXES, MOST_TOKENS, open_sql
from tests.bench.oversized_text_cases import Text, fill, nested, select, where, wide_texts


@pytest.mark.sampled
@pytest.mark.parametrize("text", [*nested(70), *nested(2_000)], ids=lambda text: text.what)
def test_deeply_nested_texts_are_read_or_refused(text: Text) -> None:
    found, problems = read_ddl(text.text, "f.sql") if text.kind == "ddl" else read_statements(text.text, "f.sql")
    assert bool(found) is not any(problem.severity.value == "error" for problem in problems)


@pytest.mark.sampled
@pytest.mark.parametrize("text", list(wide_texts()), ids=lambda text: text.what)
def test_texts_as_people_and_generators_write_them_are_read(text: Text) -> None:
    found, problems = read_ddl(text.text, "f.sql") if text.kind == "ddl" else read_statements(text.text, "f.sql")
    assert found and problems == ()


def test_a_text_with_too_many_tokens_is_refused_at_the_first_excess_token() -> None:
    lines = fill(lambda n: f"\n  c_{n}", ",", pieces=MOST_TOKENS // 2)
    (problem,) = read_statements(select(lines), "f.sql")[1]
    assert problem.summary == f"the text has more than {MOST_TOKENS:,} tokens"
    assert problem.where and problem.where.line > MOST_TOKENS // 2 - 10


def test_a_chain_of_indexes_is_refused_before_it_ends_the_process() -> None:
    (problem,) = read_statements(where("a" + "[0]" * (MOST_INDEXES + 2) + " = 1"), "f.sql")[1]
    assert problem.summary == "the SQL is nested too deeply to be read safely"


def test_each_of_many_wrong_statements_has_its_own_line() -> None:
    text = ";\n".join(["INSERT INTO t SELECT id FROM"] * 500)
    problems = read_statements(text, "f.sql")[1]
    assert [problem.where.line for problem in problems if problem.where] == list(range(1, 501))


def test_strings_side_by_side_are_one_string() -> None:
    (parsed,), problems = read_statements(select("'a''b''''c' AS kind"), "f.sql")
    assert problems == () and parsed.columns[0].expression == r"'a\'b\'\'c'"


@pytest.mark.parametrize("text", ["", "one line", "\n", "a\nb", "a\n\nb\n"])
def test_every_position_has_the_line_found_by_counting(text: str) -> None:
    source = open_sql(text, "f.sql")
    assert [source.line(at) for at in range(len(text) + 1)] == [
        text[:at].count("\n") + 1 for at in range(len(text) + 1)
    ]


def test_a_chain_of_dependent_with_queries_costs_time_linear_in_its_length() -> None:
    def canonical(parts: int) -> str:
        chain = ", ".join(f"c{n} AS (SELECT id, v + v AS v FROM c{n - 1} WHERE v > {n})" for n in range(1, parts))
        text = f"INSERT INTO t WITH c0 AS (SELECT id, v FROM STREAM orders), {chain} SELECT id, v FROM c{parts - 1}"
        (found,), problems = read_statements(text, "dml.t.sql")
        assert not problems
        return found.canonical

    assert len(canonical(80)) < 3 * len(canonical(40))


def test_a_number_of_thousands_of_digits_is_no_ordinal() -> None:
    # `int` refuses more than 4,300 digits (Python 3.11).
    (problem,) = read_statements(f"INSERT INTO a SELECT count(*) AS c FROM STREAM s GROUP BY {'9' * 5000}", "f.sql")[1]
    assert problem.summary == "an aggregate over a stream needs a watermark in append mode"
