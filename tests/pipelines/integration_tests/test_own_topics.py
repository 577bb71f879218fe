"""Topics of an ephemeral environment on a real broker, and rows of cases as messages in them."""

from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from kafka_broker import Broker

from core.integration_tests.given_messages import given_message_expressions
from core.sql.ddl_reader import read_ddl
from core.sql.kafka_topics import row_expressions, topic_fault
from core.sql.statement import TableDdl
from pipelines.integration_tests.own_topics import (
    OpenTopics,
    create_topics,
    delete_topics,
    existing_topics,
    parsed_messages,
    partition_counts,
    write_messages,
)
from pipelines.spark_connect.session import Session


def test_topics_are_created_filled_in_order_and_deleted_and_no_other_is_touched(broker: Broker) -> None:
    broker.create("it_1")
    broker.create("orders_of_others")
    locations = [f"kafka://{broker.servers}/it_1_a,it_1_b", f"kafka://{broker.servers}/it_1_a"]
    assert existing_topics(locations, "it_1_") == []
    create_topics(locations, {})
    assert existing_topics(locations, "it_1_") == ["it_1_a", "it_1_b"]
    future, past = 4_000_000_000_000, 1
    written = [(b"k", b"1", [("h", b"v")], future), (None, None, None, past), (None, b"3", None, None)]
    write_messages(locations[0], written)
    found = broker.messages("it_1_a")
    assert [(each.key(), each.value(), each.headers()) for each in found] == [
        (b"k", b"1", [("h", b"v")]), (None, None, None), (None, b"3", None),
    ]  # fmt: skip
    assert [each.timestamp()[1] for each in found[:2]] == [future, past] and found[2].timestamp()[1] > past
    assert delete_topics(locations, "it_1_") == []
    assert existing_topics(locations, "it_1") == ["it_1"] and broker.size("orders_of_others") == 0
    assert delete_topics(locations, "it_1_") == [], "a second deletion finds nothing"


def test_messages_are_distributed_by_key_and_found_by_time(broker: Broker) -> None:
    location = f"kafka://{broker.servers}/it_2_a"
    create_topics([location], {"it_2_a": 3})
    assert partition_counts([location, f"kafka://{broker.servers}/none"]) == [(location, "it_2_a", 3)]
    with closing(OpenTopics(location)) as topics:
        assert topics.ends() == {("it_2_a", n): 0 for n in range(3)}
        keyed = [(f"{n % 5}".encode(), b"", None, 1_000 + n) for n in range(30)]
        topics.write(("it_2_a", each) for each in keyed)
        before = topics.ends(1_015)
        assert sum(topics.ends().values()) == 30 and sum(before.values()) == 15
        assert all(at < 1_015 for at in topics.times({each: n - 1 for each, n in before.items() if n}).values())
        topics.write(("it_2_a", (None, b"", None, None)) for _ in range(300))
    found = broker.messages("it_2_a")
    by_key = {key: {each.partition() for each in found if each.key() == key} for key, *_ in keyed}
    assert all(len(each) == 1 for each in by_key.values()), "as Kafka's own producers do"
    assert {each.partition() for each in found if each.key() is None} == {0, 1, 2}
    delete_topics([location], "it_2_")


COLUMNS = """_key STRING, id BIGINT, n DECIMAL(20,4), x DOUBLE, ok BOOLEAN, day DATE, at TIMESTAMP, local TIMESTAMP_NTZ,
  tags ARRAY<STRING>, note STRING"""
NOW = datetime(2026, 1, 2, 3, 4, 5, 678901)
ROWS = [
    ("k", 1, Decimal("123456789012.7891"), 0.1, True, date(2026, 1, 2), NOW.replace(tzinfo=UTC), NOW, ["a", None], "ü"),
    (None, 2, None, None, None, None, None, None, None, None),
]  # fmt: skip


def table(columns: str, format: str) -> TableDdl:
    options = f"'kafka.bootstrap.servers'='a:9092', subscribe='t', 'value.format'='{format}'"
    ddl, problems = read_ddl(f"CREATE TABLE k ({columns}) USING kafka OPTIONS ({options})", "ddl.k.sql")
    assert ddl is not None and topic_fault(ddl) is None, problems
    return ddl


def read_back(session: Session, ddl: TableDdl, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Write rows as messages, and read these as a statement does."""
    schema = ", ".join(f"`{column.name}` {column.type}" for column in ddl.columns)
    frame: Any = session.spark.createDataFrame(rows, schema).coalesce(1)
    encoded = frame.selectExpr(*given_message_expressions(ddl)).toArrow().to_pylist()
    messages = [(n, key, value) for n, (key, value, _, _) in enumerate(parsed_messages(encoded))]
    found: Any = session.spark.createDataFrame(messages, "offset BIGINT, key BINARY, value BINARY").orderBy("offset")
    found = found.selectExpr("*", "0 AS partition", "'t' AS topic")
    steps, selected = row_expressions(ddl)
    for step in steps:
        found = found.selectExpr("*", step)
    return [tuple(row) for row in found.selectExpr(*selected).collect()]


@pytest.mark.spark
def test_rows_of_a_case_are_read_back_as_they_were_given(session: Session) -> None:
    frame: Any = session.spark.createDataFrame(ROWS, COLUMNS.replace("\n", ""))
    assert read_back(session, table(COLUMNS, "json"), ROWS) == [tuple(row) for row in frame.collect()]
    kept = [(1, None), (None, "not json")]
    assert read_back(session, table("id BIGINT, _corrupt STRING", "json"), kept) == kept
    assert read_back(session, table("_value STRING, _key STRING", "raw"), [("v", "k"), (None, None)]) == [
        ("v", "k"), (None, None),
    ]  # fmt: skip


@pytest.mark.spark
@pytest.mark.drill
@pytest.mark.long
def test_changes_of_a_case_are_read_back_as_debezium_writes_them(session: Session) -> None:
    columns = "id BIGINT, n DECIMAL(9,2), day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, tags ARRAY<INT>, note STRING"
    whole = (1, Decimal("1.50"), date(2026, 1, 2), NOW.replace(tzinfo=UTC), NOW, [1], "x")
    changes = [
        (*whole, "r", -9_223_372_036_854_775_000),
        (1, None, None, None, None, None, None, "u", 5),
        (1, None, None, None, None, None, None, "d", 6),
    ]
    ddl = table(f"{columns}, _op STRING, _sequence BIGINT", "debezium")
    found = read_back(session, ddl, changes)
    assert [(row[0], row[1], row[2], row[5], row[6], row[7], row[8]) for row in found] == [
        (row[0], row[1], row[2], row[5], row[6], row[7], row[8]) for row in changes
    ]
    assert found[0][4] == NOW and found[0][3].timestamp() == NOW.replace(tzinfo=UTC).timestamp()
    assert read_back(session, table("id BIGINT, _op STRING", "debezium"), [(7, None)]) == [(7, "c")]
