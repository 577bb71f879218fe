"""Columns inferred from a sample of messages: types that fit all messages, and what a sample cannot show."""

import json
from typing import Any

import pytest

from core.sql.avro_schemas import RegisteredSchema
from core.sql.ddl_reader import read_ddl
from core.sql.kafka_topics import ValueFormat
from core.sql.sampled_messages import (
    SampledMessage,
    SampledTopic,
    SampleFault,
    columns_of_sample,
    columns_of_schema,
    sampled_fields,
)


def messages(*values: Any, key: Any = None) -> list[SampledMessage]:
    """Return messages with these values; text is taken as it is."""
    texts = [value if isinstance(value, str) or value is None else json.dumps(value) for value in values]
    return [SampledMessage(0, n, key, text) for n, text in enumerate(texts)]


def sampled(*values: Any, key: Any = None) -> SampledTopic:
    found = columns_of_sample(messages(*values, key=key))
    assert isinstance(found, SampledTopic), found
    return found


def of_field(*values: Any) -> tuple[str, str]:
    """Return type and remark of a field `at` with these values, which may be JSON text; None is a NULL."""
    texts = [value if isinstance(value, str) else json.dumps(value) for value in values]
    column = sampled(*(f'{{"at": {text}}}' for text in texts)).columns[0]
    return column.type, column.remark


def change(after: dict[str, Any] | None, op: str = "c") -> dict[str, Any]:
    return {"op": op, "before": None, "after": after, "source": {"lsn": 1, "snapshot": "false"}}


@pytest.mark.parametrize(
    ("values", "kind", "remark"),
    [
        ((1, 2), "BIGINT", ""),
        ((1, None), "BIGINT", ""),
        ((None, None), "STRING", "always NULL in the sample"),
        ((2**63, 1), "DECIMAL(38,0)", "larger than BIGINT"),
        ((10**40,), "STRING", "numbers of more than 38 digits, as text"),
        ((1767225600123,), "BIGINT", "may be a time: timestamp_millis(at)"),
        ((1767225600,), "BIGINT", "may be a time: timestamp_seconds(at)"),
        ((12, 1767225600), "BIGINT", ""),
        ((1, "1.5"), "DOUBLE", "a number with decimals: DECIMAL keeps it exactly"),
        (("1.5", "1e400"), "STRING", "numbers of more than 38 digits, as text"),
        (("1e999999999",), "STRING", "numbers of more than 38 digits, as text"),
        (("0.12345678901234567891",), "DECIMAL(38,20)", "DOUBLE would round it"),
        (("NaN", 1), "DOUBLE", "a number with decimals: DECIMAL keeps it exactly"),
        (("true", "false"), "BOOLEAN", ""),
        (('"2026-01-01T00:00:00Z"', '"2026-01-01T00:00:00.123456+02:00"'), "TIMESTAMP", ""),
        (('"2026-01-01 00:00:00.5"',), "TIMESTAMP_NTZ", ""),
        (('"2026-01-01"',), "DATE", ""),
        (('"2026-02-30"',), "STRING", ""),
        (('"2026-01-01T25:00:00Z"',), "STRING", ""),
        (('"2026-01-01T00:00:00Z"', '"soon"'), "STRING", ""),
        (('"12"', '"3.5"'), "STRING", "text of numbers"),
        ((1, '"x"', '"y"'), "STRING", "JSON text: integer 1 times, string 2 times"),
        (({"aB": 1}, {"c d": [1, None]}), "STRUCT<aB: BIGINT, `c d`: ARRAY<BIGINT>>", ""),
        (({},), "STRING", "JSON text"),
        (({str(n): n for n in range(201)},), "STRING", "JSON text"),
        (([], []), "ARRAY<STRING>", ""),
        (([1, "x"],), "ARRAY<STRING>", ""),
        (([{"x": True}, {"y": None}],), "ARRAY<STRUCT<x: BOOLEAN, y: STRING>>", ""),
    ],
)  # fmt: skip
def test_a_type_holds_all_sampled_values_of_a_field(values: tuple[Any, ...], kind: str, remark: str) -> None:
    assert of_field(*values) == (kind, remark)


def test_a_field_that_only_some_messages_have_says_so() -> None:
    found = sampled({"id": 1}, {"id": 2, "note": "x"}, {"id": 3, "note": None})
    assert [(each.name, each.remark) for each in found.columns] == [
        ("id", ""),
        ("note", "in 2 of 3 messages"),
        ("_timestamp", ""),
    ]
    assert found.format is ValueFormat.JSON and found.key == ()


def test_names_that_sql_cannot_tell_apart_or_have_are_left_out() -> None:
    found = sampled({"Id": 1, "_x": 1, "a`b": 2, "": 3, "s": {"_y": 1, "Y": 2, "y": 3}}, {"id": 1}, {"id": 2})
    assert [column.name for column in found.columns] == ["a`b", "s", "id", "_timestamp"]
    assert found.left_out == ("Id", "_x", "")
    assert found.columns[1].type == "STRUCT<_y: BIGINT, Y: BIGINT>"


def test_a_declaration_with_every_kind_of_name_and_type_can_be_read() -> None:
    found = sampled({"a`b": {"c d": 1, "eF": [1.5]}, "select": 1, "tïtle": "x", "n": 2**70}, key="k")
    columns = ", ".join(f"`{each.name.replace('`', '``')}` {each.type}" for each in found.columns)
    ddl, problems = read_ddl(f"CREATE TABLE t ({columns}) USING kafka OPTIONS (subscribe='t')", "ddl.t.sql")
    assert ddl is not None and not problems
    assert [column.name for column in ddl.columns] == ["a`b", "select", "tïtle", "n", "_key", "_timestamp"]
    assert ddl.columns[0].type == "struct<`c d`:bigint,eF:array<double>>"


@pytest.mark.parametrize(
    ("value", "key", "columns"),
    [
        ("a line", "k", ["_key STRING", "_value STRING", "_timestamp TIMESTAMP"]),
        ("[1, 2]", None, ["_value STRING", "_timestamp TIMESTAMP"]),
        ("0x01fe", "0xff", ["_key BINARY", "_value BINARY", "_timestamp TIMESTAMP"]),
        ("\0\0\0\0\1x", "\0k", ["_key BINARY", "_value BINARY", "_timestamp TIMESTAMP"]),
    ],
)
def test_values_that_are_no_objects_are_raw(value: str, key: str | None, columns: list[str]) -> None:
    found = sampled(value, key=key)
    assert found.format is ValueFormat.RAW
    assert [f"{column.name} {column.type}" for column in found.columns] == columns


def test_values_that_may_be_avro_say_so() -> None:
    assert [column.remark for column in sampled("0x00000000fe", "\0\0\0\0\1x").columns if column.remark] == [
        "may be Avro: ?schema.registry=URL after the topic reads it"
    ]
    assert not any(column.remark for column in sampled("0x00000000fe", "text").columns)


def test_avro_has_the_columns_of_its_newest_schema() -> None:
    inner = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "aB", "type": "int"}, {"name": "r", "type": ["null", "R"]}],
    }
    kinds = {
        "id": "long", "n": ["null", "int"],
        "price": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2},
        "at": {"type": "long", "logicalType": "timestamp-micros"}, "tags": {"type": "array", "items": "string"},
        "by": {"type": "map", "values": "double"}, "s": inner, "either": ["int", "string"], "_x": "int",
        "e": {"type": "enum", "name": "E", "symbols": ["A"]},
    }  # fmt: skip
    record = {"type": "record", "name": "T", "fields": [{"name": name, "type": kind} for name, kind in kinds.items()]}
    schema = RegisteredSchema(7, json.dumps(record), "orders-value", 3)
    found = columns_of_schema(messages("\0\0\0\0\7x", None, key="k"), schema)
    assert isinstance(found, SampledTopic) and found.format is ValueFormat.AVRO
    assert [f"{column.name} {column.type}" for column in found.columns] == [
        "id BIGINT", "n INT", "price DECIMAL(8,2)", "at TIMESTAMP", "tags ARRAY<STRING>", "by MAP<STRING, DOUBLE>",
        "s STRUCT<aB: INT>", "e STRING", "_key STRING", "_timestamp TIMESTAMP",
    ]  # fmt: skip
    assert found.left_out == ("either", "_x")
    other = columns_of_schema(messages("\0\0\0\0\7x", "{}"), schema)
    assert f"{other}" == (
        "has 1 of 2 messages that are not Avro with the id of a schema, such as offset 1 of partition 0"
    )
    text = columns_of_schema(messages("\0\0\0\0\7x"), RegisteredSchema(7, '"string"', "orders-value", 3))
    assert f"{text}" == "has schema 7 (version 3 of orders-value), of which no field can be a column"


def test_changes_of_a_database_have_the_columns_of_its_table_and_a_key() -> None:
    row = {"id": 1, "price": "2.50", "at": "2026-01-01T00:00:00.5Z", "day": "2026-01-01Z", "j": {"a": 1}, "tags": ["a"]}
    deleted = change(None, "d") | {"before": {"id": 1, "price": None, "other": "x"}}
    found = sampled(change(row), {"payload": change({**row, "by": [{"x": 1}]}, "r")}, deleted, None, key='{"id": 1}')
    assert (found.format, found.key) == (ValueFormat.DEBEZIUM, ("id",))
    assert [(column.name, column.type, column.remark) for column in found.columns] == [
        ("id", "BIGINT", ""),
        ("price", "STRING", "text of numbers, DECIMAL if the column is numeric"),
        ("at", "TIMESTAMP", "TIMESTAMP_NTZ if the column of the database has no zone"),
        ("day", "DATE", ""),
        ("j", "STRING", "JSON text"),
        ("tags", "ARRAY<STRING>", ""),
        ("by", "ARRAY<STRING>", "in 1 of 2 messages"),
        ("_op", "STRING", ""),
        ("_sequence", "BIGINT", ""),
    ]
    assert sampled(change(row)).key == ()


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ((), SampleFault.EMPTY),
        ((None, None), SampleFault.NO_VALUES),
        (({"a": 1}, "{broken"), SampleFault.MIXED),
        (({"a": 1}, "[1]"), SampleFault.MIXED),
        (({"a": 1}, change({"id": 1})), SampleFault.MIXED),
        ((change({"id": 1}), change(None, "t")), SampleFault.MIXED),
        ((change(None, "d"),), SampleFault.NO_VALUES),
        (({}, {"_only": 1}), SampleFault.NO_FIELDS),
    ],
)
def test_a_sample_that_tells_no_columns_is_refused_with_a_remedy(values: tuple[Any, ...], kind: SampleFault) -> None:
    found = columns_of_sample(messages(*values))
    assert not isinstance(found, SampledTopic) and found.kind is kind
    assert str(found.remedy)


def test_a_message_that_is_not_like_the_others_is_named() -> None:
    found = columns_of_sample(messages({"a": 1}, None, "broken", {"a": 2}))
    assert f"{found}" == "has 1 of 3 messages that are not JSON objects, such as offset 2 of partition 0"


def test_the_fields_of_messages_are_those_of_objects_or_of_rows_after_a_change() -> None:
    json_values = messages({"id": 1}, {"id": 2, "Note": None}, "broken", None)
    assert sampled_fields(json_values, ValueFormat.JSON) == ("id", "Note")
    assert sampled_fields(messages("broken", None), ValueFormat.JSON) == ()
    changes = messages(change({"id": 1}), {"payload": change({"id": 1, "note": 1})}, change(None, "d"))
    assert sampled_fields(changes, ValueFormat.DEBEZIUM) == ("id", "note")
    assert sampled_fields(messages(change(None, "d")), ValueFormat.DEBEZIUM) == ()
