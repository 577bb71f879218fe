"""Texts that sqlglot accepts and Spark refuses: each is a Problem, and Spark is asked to confirm it."""

from pathlib import Path

import pytest

from core.model.problems import Severity
from core.sql.statement_reader import read_any
from pipelines.spark_connect.session import Session

FIXTURE = Path(__file__).parents[3] / "fixtures/sql/refused.txt"
BLOCKS = [block.strip().split("\n") for block in FIXTURE.read_text(encoding="utf-8").split("\n\n")[1:]]
TEXTS = [(text.removeprefix("otherwise: ").replace("\\n", "\n"), summary) for text, summary in BLOCKS]
REFUSED = [text for text, _ in BLOCKS if not text.startswith("otherwise: ")]


@pytest.mark.parametrize(("text", "summary"), TEXTS, ids=[text for text, _ in TEXTS])
def test_a_text_that_spark_rejects_is_a_problem(text: str, summary: str) -> None:
    _, problems = read_any(text, "q.sql")
    errors = [problem for problem in problems if problem.severity is Severity.ERROR]
    assert errors and errors[0].summary.startswith(summary)
    assert all(problem.remedy and problem.where and problem.where.line for problem in problems)


@pytest.mark.parametrize(
    "select",
    [
        "SELECT a, b[0], c['k'], f(d)[1], array(1, 2)[0] FROM s",
        "SELECT a NOT IN (1), b IS NOT NULL, NOT c, NULL FROM s",
        "SELECT count(*), * EXCEPT (a), s.* FROM s GROUP BY ALL LIMIT 3 OFFSET 1",
        "SELECT a AS b, c d, CASE WHEN any(e) = all(f) THEN 1 END FROM s HAVING g = any(h)",
        "SELECT '${', \"a, )\", `b, $c` -- , )\n, d /* ( */ FROM s",
        "SELECT /*+ BROADCAST(s), REPARTITION(3) */ a FROM s /* + b */",
        "SELECT trim(BOTH FROM a), extract(YEAR FROM b), INTERVAL 1 DAY, interval, apply, identifier FROM s",
        "SELECT window(ts, '1 hour').start, left(a, 1), if(a, b, c), map('k', :x) FROM s",
    ],
)
def test_a_text_that_spark_accepts_has_no_syntax_problem(select: str) -> None:
    _, problems = read_any(select, "q.sql")
    summaries = [problem.summary for problem in problems if problem.severity is Severity.ERROR]
    assert [each for each in summaries if "the parameter used here" not in each] == []


@pytest.mark.spark
def test_spark_refuses_them_before_it_looks_for_tables(session: Session) -> None:
    taken = []
    for text in REFUSED:
        try:
            session.spark.sql(f"EXPLAIN {text}").collect()
            taken.append(text)
        except Exception as error:
            if "TABLE_OR_VIEW_NOT_FOUND" in str(error) or "UNRESOLVED" in str(error):
                taken.append(text)
    assert taken == []
