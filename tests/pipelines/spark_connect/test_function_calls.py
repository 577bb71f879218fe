"""Replaced calls of SQL functions, compared with the functions of real Spark (run on 4.2.0)."""

import pytest

from core.sql.function_calls import SqlFunction, replace_calls
from core.sql.function_reader import complete_function, read_function
from core.sql.tokens.lexer import open_sql, tokens_of
from pipelines.spark_connect.error_translation import first_line
from pipelines.spark_connect.session import Session

pytestmark = pytest.mark.spark

FUNCTIONS = (
    "hg_vat(amount DOUBLE, rate DOUBLE DEFAULT 0.2) RETURNS DOUBLE RETURN amount * rate",
    "hg_byte(x TINYINT) RETURNS TINYINT RETURN x",
    "hg_whole(x DOUBLE) RETURNS INT RETURN x",
    "hg_number(x STRING) RETURNS INT RETURN x",
    "hg_net(x DECIMAL(10, 2)) RETURNS DECIMAL(12, 3) RETURN x - hg_vat(x, 0.5)",
    "hg_added(xs ARRAY<INT>, y INT) RETURNS ARRAY<INT> RETURN transform(xs, x -> x + y)",
    "hg_field(s STRUCT<a: INT>) RETURNS INT RETURN s.a",
    "hg_size(x BIGINT) RETURNS STRING RETURN CASE WHEN x > 2 THEN 'it''s big' WHEN x > 0 THEN \"some\" END",
    "hg_own(id BIGINT) RETURNS BIGINT RETURN hg_own.id + 1",
)  # fmt: skip
CALLS = (
    "hg_vat(10)", "hg_vat(id, 3)", "hg_vat(rate => 0.3, amount => id)", "hg_vat('10')", "hg_vat(NULL)", "hg_byte(1.7)",
    "hg_byte(id)", "hg_whole(1.7)", "hg_whole(-1.7)", "hg_number('12')", "hg_net(1.005)", "hg_net(id + 0.125)",
    "hg_added(array(1, 2), 5)", "hg_added(array(1), CAST(id AS INT))", "hg_field(named_struct('a', 4))",
    "hg_field(named_struct('b', '4'))", "hg_size(id)", "hg_size(NULL)", "hg_own(id)", "hg_own(hg_own(id))",
    "concat(hg_size(id), hg_vat(id, 2))", "typeof(hg_net(1))", "typeof(hg_vat(1))",
)  # fmt: skip
REFUSED = ("hg_vat('abc')", "hg_byte(300)", "hg_whole(1e20)", "hg_number('x')", "hg_vat(DATE'2026-01-01')")


@pytest.fixture(scope="module")
def known(session: Session) -> dict[str, SqlFunction]:
    found: dict[str, SqlFunction] = {}
    for each in FUNCTIONS:
        session.spark.sql(f"CREATE TEMPORARY FUNCTION {each}")
        draft, problems = read_function(f"CREATE FUNCTION {each}", "functions/f.sql")
        assert draft is not None, problems
        found[draft.name] = complete_function(draft, found)
    return found


def replaced(sql: str, known: dict[str, SqlFunction]) -> str:
    found = replace_calls(sql, tokens_of(open_sql(sql, "")), known)
    assert not found.wrong and found.called, sql
    return found.text


def test_a_replaced_call_has_the_values_and_the_type_of_the_call(
    session: Session, known: dict[str, SqlFunction]
) -> None:
    sql = f"SELECT {', '.join(f'{call} AS c{n}' for n, call in enumerate(CALLS))} FROM range(4) ORDER BY id"
    expected, found = (session.spark.sql(each) for each in (sql, replaced(sql, known)))
    assert [(each.name, each.dataType) for each in found.schema] == [(e.name, e.dataType) for e in expected.schema]
    assert found.collect() == expected.collect()


@pytest.mark.drill
@pytest.mark.long
def test_a_replaced_call_groups_and_filters_as_the_call_does(session: Session, known: dict[str, SqlFunction]) -> None:
    sql = (
        "SELECT hg_size(id) AS size, hg_vat(sum(id), 2) AS v, count_if(hg_own(id) > 3) AS n FROM range(9) "
        "WHERE hg_vat(id, 2) > 1 GROUP BY hg_size(id) HAVING hg_vat(max(id), 1) > 1 ORDER BY size"
    )
    assert session.spark.sql(replaced(sql, known)).collect() == session.spark.sql(sql).collect()


@pytest.mark.parametrize("call", REFUSED)
def test_a_replaced_call_fails_as_the_call_does(session: Session, known: dict[str, SqlFunction], call: str) -> None:
    failures = []
    for sql in (f"SELECT {call}", replaced(f"SELECT {call}", known)):
        with pytest.raises(Exception) as failed:
            session.spark.sql(sql).collect()
        failures.append(failed.value)
    assert failures[0].getCondition() == failures[1].getCondition()  # type: ignore[attr-defined]  # PySparkException
    # Spark does not place an overflow.
    if "== SQL" in str(failures[1]):
        assert first_line(str(failures[1])).endswith(f", in a call of {call.partition('(')[0]}")


@pytest.mark.drill
@pytest.mark.long
def test_what_spark_refuses_or_forgets_is_no_matter_for_replaced_calls(
    session: Session, known: dict[str, SqlFunction]
) -> None:
    sorted_by, mapped = (
        "SELECT id FROM range(3) ORDER BY hg_vat(id, -1)",
        "SELECT transform(array(1), z -> hg_vat(z, 2))",
    )
    for sql, condition in ((sorted_by, "UNSUPPORTED_SQL_UDF_USAGE"), (mapped, "LAMBDA_FUNCTION_WITH_SQL_UDF")):
        with pytest.raises(Exception, match=condition):
            session.spark.sql(sql).collect()
    assert [row[0] for row in session.spark.sql(replaced(sorted_by, known)).collect()] == [2, 1, 0]
    assert session.spark.sql(replaced(mapped, known)).collect()[0][0] == [2.0]
    # Spark resolves an inner function again each time.
    session.spark.sql("CREATE TEMPORARY FUNCTION hg_inner(x INT) RETURNS INT RETURN x")
    session.spark.sql("CREATE TEMPORARY FUNCTION hg_outer(x INT) RETURNS INT RETURN hg_inner(x)")
    session.spark.sql("CREATE OR REPLACE TEMPORARY FUNCTION hg_inner(x INT) RETURNS INT RETURN x * 100")
    assert session.spark.sql("SELECT hg_outer(1)").collect()[0][0] == 100
    session.spark.sql("DROP TEMPORARY FUNCTION hg_inner")
    with pytest.raises(Exception, match="UNRESOLVED_ROUTINE"):
        session.spark.sql("SELECT hg_outer(1)").collect()
