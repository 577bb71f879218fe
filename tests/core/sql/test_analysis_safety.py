"""SQL that may be shown to Spark: one query over declared tables, without access to anything outside it."""

import pytest

from core.sql.analysis_safety import unsafe_for_analysis


@pytest.mark.parametrize(
    "select",
    [
        "SELECT i FROM STREAM a JOIN b USING (i)",
        "SELECT builtin.upper(k) AS k, System.Builtin.`lower`(k) AS l FROM a",
        "SELECT s.f.g AS x, misspelled(k) AS y, count(*) FROM STREAM a GROUP BY ALL",
        "WITH q AS (SELECT 1 AS i) SELECT * FROM q",
    ],
)
def test_query_over_declared_tables_may_be_shown(select: str) -> None:
    assert unsafe_for_analysis(select) is None


@pytest.mark.parametrize(
    ("select", "why"),
    [
        ("SELECT reflect('a', 'b') AS x FROM VALUES (1)", "reflect calls a Java method"),
        ("SELECT xpath_string(k, 'a') AS x FROM a", "xpath_string opens whatever file"),
        ("SELECT TRANSFORM(i) USING 'touch x' AS (y) FROM a", "Headgate cannot read it: "),
        ("SELECT * FROM text.`/etc/passwd`", "text./etc/passwd is a path or a table of another database"),
        ("SELECT * FROM STREAM parquet.`s3://b/x`", "parquet.s3://b/x is a path"),
        ("SELECT i FROM a WHERE i IN (SELECT i FROM other.b)", "other.b is a path or a table of another database"),
        ("SELECT mart.f(k) AS x FROM a", "mart.f is a catalog function"),
        ("SELECT `spark_catalog`.mart.`F` (k) AS x FROM a", "spark_catalog.mart.f is a catalog function"),
        ("SELECT session.f(k) AS x FROM a", "session.f is a catalog function"),
        ("SELECT IDENTIFIER('ref' || 'lect')('a', 'b') AS x FROM a", "Headgate cannot read it: IDENTIFIER(…) hides"),
        ("SELECT * FROM IDENTIFIER('text./etc/passwd')", "Headgate cannot read it: IDENTIFIER(…) hides"),
        ("EXECUTE IMMEDIATE 'DROP TABLE a'", "Headgate cannot read it: "),
        ("DROP TABLE a", "Headgate cannot read it: "),
        ("INSERT INTO a SELECT * FROM b", "it is not one query"),
        ("SELECT 1 AS i; SELECT 2 AS i", "it is not one query"),
        ("SELECT /* /*+ */ reflect('a', 'b') -- */ i FROM a", "Headgate cannot read it: Spark ends a comment"),
    ],
)
def test_any_other_query_is_unsafe_with_a_reason(select: str, why: str) -> None:
    assert str(unsafe_for_analysis(select)).startswith(why)
