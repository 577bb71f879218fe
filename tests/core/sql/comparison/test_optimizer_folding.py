"""Expressions that Spark's optimizer preserves; doubtful ones count as changed."""

from collections.abc import Iterator
from random import Random

import pytest
from optimized_aggregates import OptimizedAggregates, judged
from random_aggregate_conditions import pair

from core.sql.statement import ParsedStatement
from core.sql.statement_reader import read_statements
from pipelines.local_pool.connect_server import LocalPool

SOURCE = "FROM STREAM a WATERMARK ts DELAY OF INTERVAL 1 MINUTE GROUP BY k, window(ts, '5 minutes')"
WHOLE = """
    sum(v) > 2
    sum(v) > 2 AND sum(v) < 10
    sum(v) > 2.5 OR count(*) = 3
    NOT (count(*) IN (1, 2)) AND min(w) BETWEEN 1 AND 5
    sum(v) IS NOT NULL
    abs(sum(v) - max(id)) > count(*)
"""
DOUBTFUL = """
    count(*) >= count(*)
    count(*) IS NULL OR sum(v) > 1
    true OR sum(v) > 1
    sum(v) > NULL
    CAST(count(*) AS INT) < 300
    count(*) < 3000000000
    count(*) = 2.5
    count(*) = 5 AND (count(*) > 3 OR sum(v) > 1)
    sum(v) > 2 AND (sum(v) > 2 OR count(*) > 3)
    CASE WHEN sum(v) > 1 THEN 1 ELSE 2 END = 3
    coalesce(count(*), sum(v)) > 1
    rand() > 0.5 AND sum(v) > 1
"""


def read(text: str) -> ParsedStatement:
    (parsed,), problems = read_statements(f"INSERT INTO t {text}", "q.sql")
    assert problems == ()
    return parsed


@pytest.mark.parametrize("condition", WHOLE.strip().splitlines())
def test_expressions_that_spark_keeps_whole_are_not_part_of_the_state(condition: str) -> None:
    assert read(f"SELECT k, sum(v) AS s {SOURCE} HAVING {condition.strip()}").aggregate_deciding_expressions == ""
    assert read(f"SELECT k, sum(v) + 1 AS s {SOURCE} HAVING {condition.strip()}").aggregate_deciding_expressions == ""


@pytest.mark.parametrize("condition", DOUBTFUL.strip().splitlines())
def test_expressions_that_spark_may_simplify_are_part_of_the_state(condition: str) -> None:
    text = f"SELECT k, sum(v) AS s {SOURCE} HAVING {condition.strip()}"
    assert read(text).aggregate_deciding_expressions in read(text).state
    assert " HAVING " in read(text).aggregate_deciding_expressions


@pytest.mark.parametrize(
    ("value", "whole"),
    [
        ("CASE WHEN count(*) > 1 THEN sum(v) ELSE 0 END", True),
        ("CASE WHEN count(*) > 1 THEN sum(v) WHEN count(*) > 5 THEN max(id) END", True),
        ("coalesce(sum(v), 0)", True),
        ("CAST(sum(v) / count(*) AS INT)", True),
        ("if(count(*) > 1, sum(v), sum(v))", False),
        ("CASE WHEN count(*) > 1 THEN 1 ELSE 2 END", False),
        ("CASE count(*) WHEN 1 THEN sum(v) END", False),
        ("coalesce(sum(v) + NULL, max(id))", False),
        ("nullif(sum(v), max(id))", False),
    ],
)
def test_a_value_holds_the_whole_state_or_a_part_that_spark_may_simplify(value: str, whole: bool) -> None:
    assert (read(f"SELECT k, {value} AS s {SOURCE}").aggregate_deciding_expressions == "") is whole


def test_a_query_around_an_aggregate_is_compared_with_its_reads() -> None:
    inner = f"SELECT k, sum(v) AS s, count(*) AS c, uuid() AS r {SOURCE}"
    assert read(f"SELECT k, s FROM ({inner}) AS q WHERE c > 1 AND s > 2").aggregate_deciding_expressions == ""
    assert "c <= c" in read(f"SELECT k, s FROM ({inner}) AS q WHERE c >= c AND s > 2").aggregate_deciding_expressions


@pytest.fixture(scope="module")
def optimized(pool: LocalPool) -> Iterator[OptimizedAggregates]:
    with OptimizedAggregates(pool) as session:
        yield session


@pytest.mark.sampled
@pytest.mark.spark
@pytest.mark.parametrize("number", range(30))
def test_after_a_restart_spark_keeps_the_same_aggregates(optimized: OptimizedAggregates, number: int) -> None:
    old, new = pair(Random(f"tests/{number}"))
    assert judged(optimized, old, new) != "UNSAFE", f"{old}\n{new}"
