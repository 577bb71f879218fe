"""Recorded messages of Debezium as Spark reads them: the rows of changes, and what is refused instead of misread.

The messages are from Debezium 3.5.0 on PostgreSQL 18. Each name states the settings or the change shown by a message.
"""

import json
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from core.model.errors import EngineRefused
from core.sql.ddl_reader import read_ddl
from core.sql.kafka_topics import row_condition, row_expressions, topic_fault
from pipelines.spark_connect.session import Session, spark_errors

pytestmark = pytest.mark.spark

FIXTURE = Path(__file__).parents[2] / "fixtures" / "debezium.jsonl"
RECORDED = [json.loads(line) for line in FIXTURE.read_text().splitlines()]
Message = tuple[str | None, str | None]
NO_DECIMAL = "has a value that is no {}; Debezium writes one with decimal.handling.mode=string"
NO_TIME = "has a value that is no {}; Debezium writes one with time.precision.mode=isostring"


def recorded(*names: str) -> list[Message]:
    return [(each["key"], each["value"]) for name in names for each in RECORDED if each["name"] == name]


def rows(session: Session, columns: str, messages: Sequence[Message]) -> list[Any]:
    """Return the rows of a table with these columns, in the order of the messages."""
    with spark_errors():
        return list(table(session, columns, messages).collect())


def table(session: Session, columns: str, messages: Sequence[Message], format: str = "debezium") -> Any:
    options = f"'kafka.bootstrap.servers'='a:9092', subscribe='t', 'value.format'='{format}'"
    ddl, problems = read_ddl(f"CREATE TABLE k ({columns}) USING kafka OPTIONS ({options})", "ddl.k.sql")
    assert ddl is not None and topic_fault(ddl) is None, problems
    steps, selected = row_expressions(ddl)
    source = [(key, value, n) for n, (key, value) in enumerate(messages)]
    found: Any = session.spark.createDataFrame(source, "key STRING, value STRING, offset BIGINT").orderBy("offset")
    found = found.selectExpr("CAST(key AS BINARY)", "CAST(value AS BINARY)", "offset", "0 AS partition", "'t' AS topic")
    found = found.where(row_condition(ddl))
    for step in steps:
        found = found.selectExpr("*", step)
    return found.selectExpr(*selected)


def refusal(session: Session, columns: str, messages: Sequence[Message]) -> str:
    with pytest.raises(EngineRefused) as refused:
        rows(session, columns, messages)
    assert refused.value.error_class == "HEADGATE_POISON_MESSAGE"
    return str(refused.value.summary)


def edited(name: str, **fields: object) -> list[Message]:
    """Return recorded messages in whose envelope some fields are replaced."""
    return [(key, json.dumps(json.loads(value or "") | fields)) for key, value in recorded(name)]


def test_the_row_after_each_change_and_the_key_of_a_delete_are_rows_and_tombstones_are_not(session: Session) -> None:
    columns = "id INT, v STRING, total DECIMAL(10,2), da DATE, ts TIMESTAMP_NTZ, _op STRING, _offset BIGINT"
    after = (Decimal("1.50"), date(2026, 11, 27), datetime(2026, 11, 26, 23, 2, 3, 500000))
    for prefix in ("change", "with schema"):
        found = rows(session, columns, recorded(*(f"{prefix}: {op}" for op in ("r", "u", "d", "tombstone"))))
        assert [tuple(row) for row in found] == [
            (1, "v", *after, "r", 0),
            (1, "w", *after, "u", 1),
            (1, None, None, None, None, "d", 2),
        ]


def test_a_tombstone_is_no_fault_although_a_query_filters_and_explodes(session: Session) -> None:
    """Spark evaluates the rows' condition and the query's condition together (seen with 4.2.0)."""
    messages = [*recorded("change: r"), *recorded("change: d"), *recorded("change: tombstone")]
    messages = [(key, value) for key, value in messages for _ in range(2)]
    found = table(session, "id INT, ia ARRAY<INT>, _op STRING", messages)
    exploded = found.where("_op <> 'd'").selectExpr("id", "explode(coalesce(ia, array(1))) AS item")
    assert [row["id"] for row in exploded.collect()] == [1, 1]
    exploded = found.selectExpr("id", "explode(ia) AS item", "_op").where("_op <> 'd'")
    assert [row["id"] for row in exploded.collect()] == []


def test_metadata_of_the_change_are_columns_if_they_are_declared(session: Session) -> None:
    columns = """id INT, _lsn BIGINT, _xid BIGINT, _committed_at TIMESTAMP, _snapshot STRING,
        _transaction STRUCT<id: STRING, total_order: BIGINT>"""
    first, change = rows(session, columns, [*recorded("change: r"), *recorded("one key: d")])
    assert (first["_lsn"], first["_xid"], first["_snapshot"], first["_transaction"]) == (24496384, 767, "first", None)
    assert first["_committed_at"].timestamp() == 1795744766.124
    assert (change["_xid"], change["_snapshot"], *change["_transaction"]) == (768, "false", "768:24549600", 4)


def test_changes_of_one_key_are_in_sequence_although_a_snapshot_has_a_higher_lsn(session: Session) -> None:
    messages = recorded(*(f"one key: {op}" for op in "rcud"))
    columns = "id INT, v STRING, _op STRING, _lsn BIGINT, _sequence BIGINT"
    found = sorted(rows(session, columns, messages), key=lambda row: (row["id"], row["_sequence"]))
    assert [(row["id"], row["_op"], row["v"]) for row in found] == [
        (2, "r", "s"), (2, "u", "straddle2"),
        (10, "c", "a"), (10, "u", "b"), (10, "u", "c"), (10, "d", None), (10, "c", "d"),
    ]  # fmt: skip
    assert found[0]["_lsn"] > found[1]["_lsn"], "the snapshot was taken while the transaction of the update was open"


def test_values_of_every_type_are_exact(session: Session) -> None:
    columns = """id INT, si SMALLINT, bi BIGINT, n DECIMAL(10,2), nn DECIMAL(20,3), r FLOAT, d DOUBLE, b BOOLEAN,
        tx STRING, ch STRING, ba STRING, da DATE, ti STRING, ts TIMESTAMP_NTZ, ts3 TIMESTAMP, tstz TIMESTAMP, u STRING,
        jb STRING, ia ARRAY<INT>, ta ARRAY<STRING>, na ARRAY<STRING>"""
    (found,) = rows(session, columns, recorded("string, isostring: row 1"))
    instants = [found[name].timestamp() for name in ("ts3", "tstz")]
    assert instants == [1795741323.123, 1795734123.123456]
    assert [value for name, value in found.asDict().items() if name not in ("ts3", "tstz")] == [
        1, 2, 9007199254740993, Decimal("12.30"), Decimal("12345678901234567.891"), pytest.approx(1.1), 0.1, True, "x",
        "c    ", "3q2+7w==", date(2026, 11, 27), "01:02:03.123456Z", datetime(2026, 11, 27, 1, 2, 3, 123456),
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", '{"a": 1.10}', [1, 2, None], ["a", None], ["1.50"],
    ]  # fmt: skip
    (found,) = rows(session, "n DECIMAL(10,2), mo DECIMAL(5,2), da DATE", recorded("string, isostring: row 4"))
    assert tuple(found) == (Decimal("-3000.00"), None, None)
    (found,) = rows(session, "id INT, si DECIMAL(5,1), da DATE, tstz TIMESTAMP", recorded("double, connect: row 1"))
    assert found["si"] == Decimal("2.0") and found["da"] == date(2026, 11, 27)
    assert found["tstz"].timestamp() == 1795734123.123456


@pytest.mark.parametrize(
    ("name", "column", "words"),
    [
        ("string, adaptive: row 1", "ts TIMESTAMP_NTZ", NO_TIME),
        ("string, adaptive: row 1", "ts3 TIMESTAMP", NO_TIME),
        ("string, adaptive: row 1", "ts DATE", NO_TIME),
        ("double, connect: row 1", "n DECIMAL(10,2)", NO_DECIMAL),
        ("precise, adaptive: row 1", "n DECIMAL(10,2)", NO_DECIMAL),
        ("precise, adaptive: row 1", "nn DECIMAL(20,3)", NO_DECIMAL),
        ("string, isostring: row 1", "n DECIMAL(10,0)", NO_DECIMAL),
        ("string, isostring: row 1", "nn DECIMAL(10,3)", NO_DECIMAL),
        ("string, isostring: row 2", "n DECIMAL(10,2)", NO_DECIMAL),
        ("string, isostring: row 2", "da DATE", NO_TIME),
        ("string, isostring: row 2", "tstz TIMESTAMP", NO_TIME),
        ("string, isostring: row 1", "bi INT", "is not JSON of the declared columns"),
        ("string, isostring: row 1", "tx INT", "is not JSON of the declared columns"),
    ],
)
def test_a_value_that_could_be_another_is_refused_with_its_offset_and_the_setting(
    session: Session, name: str, column: str, words: str
) -> None:
    said = words.format(column) + "; correct what writes the topic"
    said = f"the message at offset 1 in partition 0 of topic t {said}"
    found = refusal(session, f"id INT, {column}", [*recorded("one key: r"), *recorded(name)])
    assert found.startswith(said), found


def test_the_days_of_infinity_are_no_date(session: Session) -> None:
    messages = edited("change: u", after={"id": 1, "da": -622191234})
    assert NO_TIME.format("da DATE") in refusal(session, "id INT, da DATE", messages)


@pytest.mark.parametrize(
    "column",
    [
        "tx STRING",
        "ba STRING",
        "jb STRING",
        "ta ARRAY<STRING>",
        "ta STRING",
        "ia ARRAY<INT>",
        "ia ARRAY<DOUBLE>",
        "ia ARRAY<STRING>",
        "ia STRING",
        "na ARRAY<STRING>",
    ],
)
def test_a_large_value_that_debezium_does_not_know_is_refused(session: Session, column: str) -> None:
    assert rows(session, "id INT, n INT", recorded("unchanged: u"))[0]["n"] == 2
    found = refusal(session, f"id INT, {column}", recorded("unchanged: u"))
    assert f"may lack the large unchanged value of {column}: set REPLICA IDENTITY FULL for its table" in found


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        (recorded("change: t"), "is a TRUNCATE, which deletes rows that it does not name"),
        (edited("change: u", op="m"), "is a logical decoding message"),
        (edited("change: u", op="x"), "has an unknown op"),
        (edited("change: u", after=None), "has no row after the change"),
        ([('{"id": 1}', '{"id": 1, "v": "w"}')], "has no envelope of Debezium"),
        ([('{"id": 1}', "w")], "is not JSON of the declared columns"),
        ([(None, recorded("change: d")[0][1])], "is a delete without a key"),
        ([("Struct{id=1}", recorded("change: d")[0][1])], "is a delete whose key is not JSON"),
        ([('{"other": 1}', recorded("change: d")[0][1])], "is a delete whose key has none of the declared columns"),
    ],
)
def test_a_message_that_is_no_change_of_a_row_is_refused_or_kept(
    session: Session, messages: list[Message], words: str
) -> None:
    assert f"in partition 0 of topic t {words}" in refusal(session, "id INT, v STRING", messages)
    found = rows(session, "id INT, v STRING, _op STRING, _corrupt STRING", [*messages, *recorded("change: u")])
    assert [tuple(row) for row in found] == [(None, None, None, messages[0][1]), (1, "w", "u", None)]


def test_a_column_called_payload_is_a_column_and_a_part_of_an_envelope_is_not(session: Session) -> None:
    value = edited("change: u", after={"id": 7, "payload": '{"a": 1}', "op": "x"})[0][1]
    found = rows(session, "id INT, payload STRING, op STRING", [('{"id": 7}', value), *recorded("with schema: d")])
    assert [tuple(row) for row in found] == [(7, '{"a": 1}', "x"), (1, None, None)]


def test_a_null_array_is_a_value_if_postgresql_logs_the_row_before(session: Session) -> None:
    full = edited("unchanged: u", before={"id": 1, "na": None})
    assert rows(session, "id INT, na ARRAY<STRING>", full)[0]["na"] is None
    assert rows(session, "id INT, na ARRAY<STRING>", recorded("one key: r"))[0]["na"] is None


@pytest.mark.parametrize(
    "value", ['{"id": 1}{"id": 2}', '{"id": 1}\n{"id": 2}', '{"id": 1} x', '{"id": 1},', "", " ", "null"]
)
def test_a_value_that_is_more_or_less_than_one_json_object_is_refused_or_kept(session: Session, value: str) -> None:
    with pytest.raises(EngineRefused, match="is not JSON of the declared columns"), spark_errors():
        table(session, "id INT", [(None, value)], "json").collect()
    with spark_errors():
        kept = table(session, "id INT, _corrupt STRING", [(None, value), (None, None)], "json").collect()
    assert [row[1] for row in kept] == [value, None]


def test_a_second_change_in_one_message_is_refused(session: Session) -> None:
    ((key, value),) = recorded("change: r")
    assert value is not None
    assert "is not JSON of the declared columns" in refusal(session, "id INT", [(key, value + value)])
