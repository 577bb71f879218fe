"""Calls of SQL functions: replaced by the bodies on their lines, and every mistake reported at the call."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.sql.function_calls import SqlFunction, replace_calls
from core.sql.function_reader import complete_function, read_function
from core.sql.tokens.lexer import SqlDiagnostic, open_sql, tokens_of


def function(text: str, *known: SqlFunction) -> SqlFunction:
    draft, problems = read_function(f"CREATE FUNCTION {text}", "functions/f.sql")
    assert draft is not None, problems
    return complete_function(draft, {each.name: each for each in known})


VAT = function("vat(amount DOUBLE, rate DOUBLE DEFAULT 0.2) RETURNS DOUBLE RETURN amount * rate")
TWICE = function("twice(x INT) RETURNS INT RETURN x + x")
NET = function("net(x DOUBLE) RETURNS DOUBLE RETURN x - vat(x)", VAT)
ADDED = function("added(xs ARRAY<INT>, y INT) RETURNS ARRAY<INT> RETURN transform(xs, x -> x + y)")
FIELD = function("field(s STRUCT<a: INT>) RETURNS INT RETURN field.s.a")
KNOWN = {each.name: each for each in (VAT, TWICE, NET, ADDED, FIELD)}


def replaced(sql: str) -> str:
    found = replace_calls(sql, tokens_of(open_sql(sql, "")), KNOWN)
    assert not found.wrong, [each.summary for each in found.wrong]
    return found.text


def mistake(sql: str) -> str:
    (found,) = replace_calls(sql, tokens_of(open_sql(sql, "")), KNOWN).wrong
    return f"{found.summary} [{found.remedy}] {sql[found.offset :].partition('(')[0]}"


@pytest.mark.parametrize(
    ("call", "expression"),
    [
        ("vat(a, 0.3)", "CAST(/* vat */ CAST(a AS double) * CAST(0.3 AS double) AS double)"),
        ("VAT ( a )", "CAST(/* vat */ CAST(a AS double) * CAST(0.2 AS double) AS double)"),
        ("`vat`(rate => b.c, amount => a)", "CAST(/* vat */ CAST(a AS double) * CAST(b.c AS double) AS double)"),
        ("field(named_struct('a', 1))", "CAST(/* field */ CAST(named_struct('a', 1) AS struct<a:int>).a AS int)"),
        (
            "added(ys, 'x')",
            "CAST(/* added */ transform(CAST(ys AS array<int>), x -> x + CAST('x' AS int)) AS array<int>)",
        ),
        ("twice(rand(1)[0] /* one */ + -- two\n1)", None),
    ],
)  # fmt: skip
def test_a_call_becomes_its_body_with_casts_to_the_declared_types(call: str, expression: str | None) -> None:
    if expression is not None:
        assert replaced(f"SELECT {call} AS x, 'vat(1)' FROM t") == f"SELECT {expression} AS x, 'vat(1)' FROM t"
    else:
        assert mistake(f"SELECT {call}").startswith("rand() is given to twice, which uses x more than once")


def test_calls_in_arguments_and_in_bodies_are_replaced_too() -> None:
    inner = "CAST(/* vat */ CAST(1 AS double) * CAST(0.2 AS double) AS double)"
    assert replaced("SELECT vat(vat(1), 2)") == (
        f"SELECT CAST(/* vat */ CAST({inner} AS double) * CAST(2 AS double) AS double)"
    )
    body = "CAST(x AS double) - CAST(/* vat */ CAST(CAST(x AS double) AS double) * CAST(0.2 AS double) AS double)"
    assert replaced("SELECT net(x)") == f"SELECT CAST(/* net */ {body} AS double)"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a.vat(1), vat, vat.x FROM vat",
        "WITH vat(a) AS (SELECT 1), net (b) AS (SELECT 2) SELECT 'vat(1)', \"vat(1)\" -- vat(1)",
        "SELECT * FROM t AS vat(a, b) JOIN (SELECT 1) net(c)",
        "INSERT INTO vat (a) SELECT /* vat(1) */ a FROM STREAM t",
    ],
)
def test_names_that_are_no_calls_stay(sql: str) -> None:
    assert replaced(sql) == sql


def test_everything_after_a_call_keeps_its_line_and_in_its_last_line_its_column() -> None:
    sql = "SELECT vat(\n  a, -- one\n  b) AS v,\n  other\nFROM STREAM t"
    lines = replaced(sql).split("\n")
    assert lines[0].startswith("SELECT CAST(/* vat */")
    assert lines[1:] == ["", "     AS v,", "  other", "FROM STREAM t"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("vat()", "vat takes 1 to 2 arguments, and this call has 0 [call vat(amount double, rate double)] vat"),
        ("twice(1, 2)", "twice takes 1 argument, and this call has 2 [call twice(x int)] twice"),
        ("vat(1, rat => 2)", "vat has no parameter rat [did you mean rate?] vat"),
        ("vat(1, amount => 2)", "amount is given twice to vat [give each argument once] vat"),
        ("vat(*)", "amount of vat is not one value [call vat(amount double, rate double)] vat"),
        ("vat(DISTINCT a)", "amount of vat is not one value [call vat(amount double, rate double)] vat"),
        ("twice(x -> x)", "x of twice is a lambda, and functions have no such values [call twice(x int)] twice"),
        ("twice(a) OVER (ORDER BY b)", "twice is computed for one row, and has no OVER [remove it] twice"),
        ("added(ys, x)",
         "x is also a variable of a lambda in added [rename the variable in functions/added.sql] added"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_call_is_reported_at_the_call_and_the_call_stays(call: str, said: str) -> None:
    assert mistake(f"SELECT 1, {call}") == said
    sql = f"SELECT {call}"
    assert replace_calls(sql, tokens_of(open_sql(sql, "")), KNOWN).text == sql


def test_nested_calls_cannot_grow_without_a_bound() -> None:
    found = [TWICE]
    with pytest.raises(SqlDiagnostic, match="becomes an expression of"):
        for n in range(20):
            body = f"f{n}(x INT) RETURNS INT RETURN {found[-1].name}(x) * {found[-1].name}(x + 1)"
            found.append(function(body, *found))


@given(
    st.lists(st.sampled_from(["vat(a)", "vat(\n a,\n b)", "twice(\nc)", "b", "'x'", "/* c */ d", "net(e)"]), min_size=1)
)
def test_every_position_after_replacement_is_mapped_to_the_text_before(columns: list[str]) -> None:
    from core.model.problems import Problem, Where
    from core.project_reader.substitution import SubstitutedSql

    sql = "SELECT " + ", ".join(f"{each} AS c{n}" for n, each in enumerate(columns)) + " FROM STREAM t"
    found = replace_calls(sql, tokens_of(open_sql(sql, "")), KNOWN)
    before, after = open_sql(sql, "f"), open_sql(found.text, "f")
    positions = SubstitutedSql(found.text, frozenset(), tuple(found.replaced))
    for mark in (*(f"AS c{n} " for n in range(len(columns))), "FROM STREAM"):
        mark = mark if mark in sql else mark.strip()
        at = after.where(found.text.index(mark))
        there = before.where(sql.index(mark))
        assert positions.of_file(Problem("s", "r", Where("f", at.line, at.column))).where == there
