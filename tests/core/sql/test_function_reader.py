"""Files of SQL functions: what is read, and one sentence with its place for every mistake."""

import pytest

from core.sql.function_calls import Parameter
from core.sql.function_reader import complete_function, read_function
from core.sql.tokens.lexer import SqlDiagnostic


def test_parameters_result_and_body_are_read_with_every_clause_that_changes_nothing() -> None:
    text = (
        "-- A comment.\nCREATE OR REPLACE TEMPORARY FUNCTION IF NOT EXISTS `Vat`(\n"
        "  Amount DECIMAL(10, 2) COMMENT 'net', rate DOUBLE DEFAULT 0.1 * (1 + 1)\n)\nRETURNS Decimal(12,2)\n"
        "LANGUAGE SQL DETERMINISTIC COMMENT 'vat' CONTAINS SQL\n"
        "RETURN AMOUNT -- gross\n  * vat.rate + day(current_date);"
    )
    draft, problems = read_function(text, "functions/vat.sql")
    assert draft is not None and problems == () and (draft.name, draft.line) == ("vat", 2)
    found = complete_function(draft, {})
    assert found.parameters == (Parameter("amount", "decimal(10,2)"), Parameter("rate", "double", "0.1 * (1 + 1)"))
    assert (found.returns, found.pieces) == ("decimal(12,2)", (0, " * ", 1, " + day(current_date)"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "1:1 the file contains no function"),
        ("SELECT 1", "1:1 the file does not begin with CREATE FUNCTION"),
        ("CREATE TABLE f (x INT)", "1:8 this is not CREATE FUNCTION"),
        ("CREATE FUNCTION f(x INT) RETURNS INT RETURN x;\nCREATE FUNCTION g() RETURNS INT RETURN 1", "2:1 a file"),
        ("CREATE FUNCTION a.f(x INT) RETURNS INT RETURN x", "1:17 the name of a function cannot be qualified"),
        ("CREATE FUNCTION f AS 'com.acme.F'", "1:17 f declares no parameters and no result"),
        ("CREATE FUNCTION f(x INT) RETURNS INT AS 'com.acme.F'", "1:38 f does not name its jar"),
        ("CREATE FUNCTION f RETURNS INT RETURN 1", "1:17 f has no parameters in brackets"),
        ("CREATE FUNCTION f(x) RETURNS INT RETURN x", "1:19 the parameter x has no type"),
        ("CREATE FUNCTION f(x INTT) RETURNS INT RETURN x", "1:21 INTT is not a Spark type"),
        ("CREATE FUNCTION f(x INT, X INT) RETURNS INT RETURN x", "1:26 the parameter x is declared twice"),
        ("CREATE FUNCTION f(x INT) RETURN x", "1:26 f does not declare its result"),
        ("CREATE FUNCTION f(x INT) RETURNS INT", "1:34 f has no body"),
        ("CREATE FUNCTION f() RETURNS TABLE(a INT) RETURN SELECT 1", "1:21 f returns a table"),
        ("CREATE FUNCTION f(x INT) RETURNS INT LANGUAGE PYTHON AS $$x$$", "1:38 f is not written in SQL"),
        ("CREATE FUNCTION f(x INT) RETURNS INT\nRETURN x + y", "2:12 y is not a parameter of f"),
        ("CREATE FUNCTION f(x INT) RETURNS INT RETURN x AS y", "1:50 the body of f has an alias"),
        ("CREATE FUNCTION f(x INT) RETURNS INT RETURN (SELECT max(a) FROM t)", "1:46 f reads tables"),
        ("CREATE FUNCTION f(x INT) RETURNS INT RETURN sum(x)", "1:45 f is computed for one row, and sum() is not"),
        ("CREATE FUNCTION f(x INT) RETURNS INT RETURN explode(x)", "1:45 f is computed for one row"),
        ("CREATE FUNCTION f(x INT) RETURNS INT RETURN rank() OVER (ORDER BY x)", "1:45 f is computed for one row"),
        ("CREATE FUNCTION f(x INT) RETURNS STRING RETURN java_method('a', 'b')", "1:48 java_method calls"),
        ("CREATE FUNCTION f(x INT) RETURNS INT RETURN x +", "1:45 the SQL cannot be parsed"),
        ("CREATE FUNCTION f(x STRING) RETURNS STRING RETURN 'a", "1:51 the SQL cannot be parsed"),
    ],
)  # fmt: skip
def test_a_mistake_is_a_problem_with_its_place(text: str, said: str) -> None:
    draft, problems = read_function(text, "functions/f.sql")
    assert draft is None and len(problems) == 1 and problems[0].remedy
    assert f"{problems[0].where} {problems[0].summary}".startswith(f"functions/f.sql:{said}")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("day(current_date) + day + extract(day FROM current_date)", "a parameter of f has a name that also means"),
        ("transform(array(day), day -> day)[0]", "a parameter of f has a name that also means"),
        ("length('a\nb') + day", "this string contains a line break"),
    ],
)
def test_a_body_whose_parameters_cannot_be_told_apart_is_refused(body: str, said: str) -> None:
    draft, problems = read_function(f"CREATE FUNCTION f(day INT) RETURNS INT RETURN {body}", "functions/f.sql")
    assert draft is not None, problems
    with pytest.raises(SqlDiagnostic, match=said):
        complete_function(draft, {})
