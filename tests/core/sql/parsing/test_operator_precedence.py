"""Every expression of Spark's grammar, and every pair of its operators, grouped as Spark groups them."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from spark_parser import SparkParser, spark_parser

from core.model.problems import Severity
from core.sql.statement_reader import read_any

FIXTURE = Path(__file__).parents[3] / "fixtures/sql/expressions.txt"
LINES = [line for line in FIXTURE.read_text(encoding="utf-8").split("\n") if line and not line.startswith("#")]
NO_OPERAND = frozenset(
    ("query", "ansiNonReserved", "errorCapturingIdentifierExtra", "parameterMarker", "identifierList")
)
"""Rules for operands that are not tested: queries, keywords, names or errors in names, and values from outside."""
_OPERATORS = "* / % DIV + - || << >> >>> & ^ | = < <=> != AND OR"
OPERATORS = _OPERATORS.split()
BEHIND = (
    *("IS NULL", "IS NOT NULL", "IN (1, 2)", "NOT IN (1)", "LIKE 'x'", "RLIKE 'x'", "BETWEEN 1 AND 2", "IS TRUE"),
    *("IS DISTINCT FROM d", "LIKE ANY ('x', 'y')", "NOT LIKE 'x'"),
)
TIGHT = ("::int", ".f", " COLLATE x")


def canonical(expression: str) -> str | None:
    """Return the canonical text of an expression, or None if we refuse it."""
    parsed, problems = read_any(f"SELECT {expression} AS q FROM t", "q.sql")
    return None if any(problem.severity is Severity.ERROR for problem in problems) else parsed[0].canonical


def split(line: str) -> tuple[str, str, str]:
    """Return an expression, the mark after it, and the words of its Problem."""
    mark = next((each for each in (" !! ", " ~~ ") if each in line), "")
    expression, _, words = line.partition(mark) if mark else (line, "", "")
    return expression, mark.strip(), words


@pytest.mark.parametrize("line", LINES)
def test_every_expression_of_the_grammar_is_read(line: str) -> None:
    expression, mark, words = split(line)
    _, problems = read_any(f"SELECT {expression} AS q FROM t", "q.sql")
    errors = [problem.summary for problem in problems if problem.severity is Severity.ERROR]
    assert errors[:1] == ([words] if mark else [])


@pytest.mark.parametrize("call", ["a LIKE ANY ('x')", "a ILIKE SOME ('x', b)", "a NOT LIKE ALL ('x')"])
def test_like_any_is_no_aggregate(call: str) -> None:
    parsed, problems = read_any(f"SELECT {call} AS q FROM STREAM t", "q.sql")
    assert problems == () and parsed[0].operators == ()


@pytest.mark.parametrize(
    ("flat", "grouped"),
    [
        ("a || b + c", "(a || b) + c"),
        ("a & b << c", "a & (b << c)"),
        ("a ^ b & c", "a ^ (b & c)"),
        ("a | b ^ c", "a | (b ^ c)"),
        ("a | b || c", "a | (b || c)"),
        ("a >>> b + 1", "shiftrightunsigned(a, b + 1)"),
        ("a + b COLLATE x", "a + (b COLLATE x)"),
        ("a = b < c", "(a = b) < c"),
        ("a = b IN (1)", "(a = b) IN (1)"),
        ("a LIKE b = c", "a LIKE (b = c)"),
        ("a BETWEEN b AND c = d", "a BETWEEN b AND (c = d)"),
        ("CASE WHEN a | b = 1 THEN c || d + e END", "CASE WHEN (a | b) = 1 THEN (c || d) + e END"),
        ("transform(a, x -> x | 1 & 2)", "transform(a, x -> x | (1 & 2))"),
        ("sum(a) OVER (ORDER BY b | c & d ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
         "sum(a) OVER (ORDER BY b | (c & d) ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)"),
    ],
)  # fmt: skip
def test_operators_bind_as_in_spark(flat: str, grouped: str) -> None:
    assert canonical(flat) == canonical(grouped) != None  # noqa: E711


def test_an_alias_behind_operators_stays_one() -> None:
    (parsed,), _ = read_any(
        "SELECT a | b & c d, e || f + 1 AS g, -h & 2 FROM STREAM s JOIN t x ON s.a & 1 = x.a & 1", "q"
    )
    assert [column.name for column in parsed.columns] == ["d", "g", "(-h) & 2"]


def test_a_lateral_view_needs_no_as() -> None:
    view = "SELECT x, y FROM STREAM s LATERAL VIEW OUTER posexplode(m) t {}x, y LATERAL VIEW explode(n) u"
    (plain,), _ = read_any(view.format(""), "q.sql")
    (with_as,), _ = read_any(view.format("AS "), "q.sql")
    assert plain.canonical == with_as.canonical


@pytest.mark.parametrize("name", ["time", "void"])
def test_a_struct_field_may_have_the_name_of_a_type(name: str) -> None:
    plain, quoted = (canonical(f"CAST(a AS STRUCT<{each}: INT, b: STRING>)") for each in (name, f"`{name}`"))
    assert plain == quoted != canonical(f"CAST(a AS STRUCT<b: {name}>)")


@pytest.mark.parametrize("name", ["current_date", "current_timestamp", "current_user", "session_user"])
def test_a_name_in_except_is_a_column(name: str) -> None:
    plain, quoted = (read_any(f"SELECT * EXCEPT ({each}) FROM STREAM s", "q")[0] for each in (name, f"`{name}`"))
    assert plain[0].canonical == quoted[0].canonical


def pairs() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield pairs of operators, with the possible groupings of each pair."""
    for a, b in product(OPERATORS, OPERATORS):
        yield f"a {a} b {b} c", (f"(a {a} b) {b} c", f"a {a} (b {b} c)")
        yield f"a BETWEEN b AND c {b} d", (f"(a BETWEEN b AND c) {b} d", f"a BETWEEN b AND (c {b} d)")
    for a, b in product(OPERATORS, BEHIND):
        yield f"a {a} b {b}", (f"(a {a} b) {b}", f"a {a} (b {b})")
    for a, b in product(OPERATORS, TIGHT):
        yield f"a {a} b{b}", (f"(a {a} b){b}", f"a {a} (b{b})")


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkParser]:
    with spark_parser() as parser:
        yield parser


@pytest.mark.spark
@pytest.mark.drill
@pytest.mark.long
def test_the_expressions_are_those_of_the_grammar(spark: SparkParser) -> None:
    taken, used = {}, set[str]()
    for expression, mark, _ in map(split, LINES):
        text = f"SELECT {expression} AS q FROM t"
        taken[expression] = bool(spark.plan(text)), mark != "~~"
        used |= spark.rules(text) if mark != "~~" else set()
    assert [expression for expression, (really, said) in taken.items() if really is not said] == []
    assert spark.rules_below("expression", without=NO_OPERAND) - used == set()


@pytest.mark.spark
@pytest.mark.drill
@pytest.mark.long
def test_every_pair_of_operators_is_grouped_as_by_spark(spark: SparkParser) -> None:
    wrong = []
    for flat, forms in pairs():
        plan = spark.plan(f"SELECT {flat} AS q FROM t")
        plans = [spark.plan(f"SELECT {form} AS q FROM t") for form in forms]
        ours = [form for form in forms if canonical(form) == canonical(flat)]
        theirs = [form for form, each in zip(forms, plans, strict=True) if each == plan]
        read = canonical(flat) is not None
        # A plan is printed without brackets, so that both forms may look alike.
        if read is not bool(plan) or (len(theirs) == 1 and len(ours) == 1 and ours != theirs):
            wrong.append(flat)
    assert wrong == []
