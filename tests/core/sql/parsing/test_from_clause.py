"""Every position of a relation in Spark's grammar, with a statement that reads a relation there.

`tests/fixtures/corpus/{brackets_of_joins,places_of_relations}.txt` contain most of them, with Spark's own verdicts.
"""

from pathlib import Path

import pytest

from core.model.problems import Severity
from core.sql import statement_reader
from core.sql.parsing import table_names
from core.sql.parsing.stream_clauses import ExtractedClauses
from core.sql.statement_reader import read_any, read_statements

FIXTURE = Path(__file__).parents[3] / "fixtures/sql/places.txt"
BLOCKS = FIXTURE.read_text(encoding="utf-8").split("\n\n")
PLACES = [tuple(block.strip().splitlines()) for block in BLOCKS if not block.startswith("#")]


@pytest.mark.parametrize(("select", "expected"), [place[1:] for place in PLACES], ids=[place[0] for place in PLACES])
def test_a_relation_is_read_at_every_position_of_the_grammar(select: str, expected: str) -> None:
    parsed, problems = read_any(select, "q.sql")
    if expected.startswith("! "):
        errors = [problem.summary for problem in problems if problem.severity is Severity.ERROR]
        assert any(expected[2:] in error for error in errors), (errors, parsed)
    else:
        (statement,) = parsed
        assert " ".join(f"{read.table}{'~' if read.streaming else ''}" for read in statement.reads) == expected


@pytest.mark.parametrize(
    ("select", "kinds"),
    [
        ("SELECT o.id FROM (STREAM o JOIN STREAM p ON o.id = p.id)", ["stream_join"]),
        ("SELECT t.v FROM (STREAM o JOIN STREAM p USING (id)) AS t", ["stream_join"]),
        ("SELECT t.v FROM STREAM o JOIN (b JOIN STREAM p ON b.k = p.k) t ON t.id = o.id", ["stream_join"]),
        ("SELECT t.v FROM ((SELECT * FROM STREAM o LIMIT 3) x JOIN b USING (id)) AS t", ["limit"]),
        (
            "SELECT DISTINCT t.k, t.ts FROM (STREAM o WATERMARK ts DELAY OF INTERVAL 1 DAY JOIN b USING (id)) t",
            ["deduplicate"],
        ),
        (
            "SELECT DISTINCT t.k, t.ts FROM (STREAM o JOIN b USING (id)) WATERMARK ts DELAY OF INTERVAL 1 DAY AS t",
            ["deduplicate"],
        ),
        ("SELECT t.k FROM (b JOIN c USING (id)) AS t JOIN STREAM o ON o.k = t.k", []),
    ],
)
def test_state_below_brackets_is_seen(select: str, kinds: list[str]) -> None:
    (statement,), problems = read_statements(f"INSERT INTO t {select}", "dml.sql")
    assert problems == () and [operator.kind for operator in statement.operators] == kinds


@pytest.mark.parametrize(
    ("select", "summary"),
    [
        ("SELECT x.k FROM ((SELECT DISTINCT k FROM STREAM a) x JOIN b USING (k))", "DISTINCT over a stream needs"),
        ("SELECT t.k FROM (b JOIN (SELECT k, max(i) FROM STREAM a GROUP BY k) c USING (k)) t", "an aggregate over"),
        ("SELECT t.k FROM (STREAM a FULL JOIN b USING (k)) t", "Spark rejects a FULL JOIN"),
        ("SELECT a.k FROM (STREAM a JOIN STREAM b ON a.i < b.i)", "a join of two streams needs an equality condition"),
        ("SELECT a.k FROM (STREAM a JOIN b USING (k)) AS t", "a is hidden by the parentheses around it"),
        ("SELECT x.k FROM (((SELECT k FROM STREAM a) x) y)", "x is hidden by the parentheses around it"),
        ("SELECT p.k FROM ((SELECT k FROM STREAM a) JOIN (SELECT j FROM b)) AS p(q)", "1 column aliases"),
        ("SELECT k FROM STREAM a, VALUES (k) AS v(i)", "VALUES contains constants, not columns"),
        ("SELECT i, j FROM STREAM a UNION ALL SELECT i FROM STREAM b", "the sides of UNION have 2 and 1 columns"),
        (
            "SELECT i FROM STREAM a UNION ALL SELECT * FROM ((SELECT i FROM STREAM b) JOIN (SELECT j FROM c))",
            "the sides",
        ),
        (
            "WITH p AS (SELECT k, count(*) AS n FROM STREAM a GROUP BY k) SELECT k FROM STREAM b",
            "an aggregate over a stream needs a watermark in append mode, in p, a WITH query that nothing reads: "
            "Spark checks it anyway",
        ),
        (
            "WITH p AS (SELECT x.k FROM STREAM a AS x JOIN STREAM b AS y ON x.i > y.i) SELECT k FROM STREAM c",
            "a join of two streams needs an equality condition, in p, a WITH query that nothing reads",
        ),
    ],
)
def test_texts_that_spark_refuses_are_refused_inside_brackets_too(select: str, summary: str) -> None:
    parsed, problems = read_statements(f"INSERT INTO t {select}", "dml.sql")
    assert parsed == ()
    assert any(problem.summary.startswith(summary) for problem in problems), problems


def test_planning_errors_of_spark_are_not_claimed_as_analysis_errors() -> None:
    select = "WITH p AS (SELECT x.k FROM STREAM a AS x JOIN STREAM b AS y ON x.i > y.i) SELECT k FROM STREAM c"
    _, (problem,) = read_statements(f"INSERT INTO t {select}", "dml.sql")
    assert problem.summary.endswith("a WITH query that nothing reads")


def test_a_parsed_table_without_a_read_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        statement_reader,
        "resolve_table_names",
        lambda query, marks, **_: statement_reader.TableNames(ExtractedClauses()),
    )
    monkeypatch.setattr(statement_reader, "extract_stream_clauses", lambda tokens: ExtractedClauses(list(tokens)))
    _, problems = read_any("SELECT * FROM a JOIN b ON a.i = b.i", "q.sql")
    places = [problem.where.column for problem in problems if "not understood" in problem.summary and problem.where]
    assert places == [15, 22]


def test_a_name_that_the_parser_drops_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    select = table_names.exp.maybe_parse("SELECT 1 FROM x AS x", dialect="spark")
    monkeypatch.setattr(statement_reader, "parse_query", lambda tokens, text: select)
    monkeypatch.setattr(
        statement_reader, "resolve_table_names", lambda query, marks, **_: statement_reader.TableNames(marks)
    )
    _, problems = read_any("SELECT * FROM (STREAM a JOIN b USING (i)) t", "q.sql")
    places = [problem.where.column for problem in problems if "not understood" in problem.summary and problem.where]
    assert places[-2:] == [23, 30]
