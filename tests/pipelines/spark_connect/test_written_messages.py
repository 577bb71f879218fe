"""Rows written to a topic as messages by Spark, and read back once through a table over the topic."""

from typing import Any

import pytest

from core.sql.ddl_reader import read_ddl
from core.sql.kafka_topics import row_expressions, topic_fault
from core.sql.statement import TableDdl
from core.sql.written_topics import message_expressions, sink_fault
from pipelines.spark_connect.session import Session

pytestmark = pytest.mark.spark
COLUMNS = """_key STRING, _headers ARRAY<STRUCT<key: STRING, value: BINARY>>, id BIGINT, n DECIMAL(20,4), x DOUBLE,
  ok BOOLEAN, day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, raw BINARY, tags ARRAY<STRING>, s STRUCT<a: INT, b: STRING>,
  m MAP<STRING, INT>, `a b` STRING"""
ROW = """SELECT 'k' AS _key, array(named_struct('key', 'h', 'value', CAST('v' AS BINARY))) AS _headers, 1 AS id,
  1234567890123456.7891 AS n, 0.1D AS x, true AS ok, DATE'2026-01-02' AS day,
  TIMESTAMP'2026-01-02 03:04:05.678901' AS at, TIMESTAMP_NTZ'2026-01-02 03:04:05.000001' AS local,
  X'00FF' AS raw, array('a', NULL) AS tags, named_struct('a', 1, 'b', NULL) AS s, map('x', 1) AS m, 'ü"' AS `a b`
UNION ALL SELECT NULL, NULL, 2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL"""


def over_topic(columns: str, option: str) -> TableDdl:
    options = f"'kafka.bootstrap.servers'='a:9092', {option}"
    ddl, problems = read_ddl(f"CREATE TABLE k ({columns}) USING kafka OPTIONS ({options})", "ddl.k.sql")
    assert ddl is not None, problems
    return ddl


def test_every_value_comes_back_as_it_was_written(session: Session) -> None:
    written, read = over_topic(COLUMNS, "topic='t'"), over_topic(COLUMNS, "subscribe='t'")
    assert sink_fault(written) is None and topic_fault(read) is None
    rows: Any = session.spark.sql(ROW)
    messages = rows.selectExpr(*message_expressions(written))
    assert messages.columns == ["key", "headers", "value"]
    found = read_back(messages, read)
    assert sorted(found.collect(), key=lambda row: row.id) == sorted(rows.collect(), key=lambda row: row.id)


def read_back(messages: Any, read: TableDdl) -> Any:
    """Return the rows of a table over messages that have a value."""
    found = messages.selectExpr("*", "0L AS offset", "0 AS partition", "'t' AS topic")
    steps, selected = row_expressions(read)
    for step in steps:
        found = found.selectExpr("*", step)
    return found.selectExpr(*selected)


@pytest.mark.parametrize("columns", ["", ", _corrupt STRING"])
def test_conditions_on_its_fields_do_not_parse_a_message_again(session: Session, columns: str) -> None:
    read = over_topic(f"id BIGINT, kind STRING, note STRING{columns}", "subscribe='t'")
    messages: Any = session.spark.sql("SELECT CAST(id AS STRING) AS value FROM range(9)")
    rows = read_back(messages, read).where("kind = 'a' AND id > 3").selectExpr("id", "upper(kind)", "note")
    optimized = rows._explain_string(extended=True).partition("== Optimized Logical Plan ==")[2]
    assert optimized.partition("== Physical Plan ==")[0].count("from_json(") == 1, optimized


def test_a_null_is_a_field_and_a_value_of_another_type_is_cast(session: Session) -> None:
    expressions = message_expressions(over_topic("id BIGINT, at DATE", "topic='t'"))
    (row,) = session.spark.sql("SELECT '7' AS id, NULL AS at").selectExpr(*expressions).collect()
    assert row.value == '{"id":7,"at":null}'
