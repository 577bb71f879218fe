"""Messages in Avro as Spark reads them: rows of the declared columns whatever schema wrote them, or a refusal."""

import io
import json
import struct
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from core.model.errors import EngineRefused
from core.sql.avro_schemas import RegisteredSchema
from core.sql.ddl_reader import read_ddl
from core.sql.kafka_topics import row_expressions, topic_fault
from pipelines.spark_connect.session import Session, spark_errors

pytestmark = pytest.mark.spark

BYTES = {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}
LINE = {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}, {"name": "n", "type": "int"}]}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
ORDER: dict[str, Any] = {
    "type": "record", "name": "Order", "namespace": "shop",
    "fields": [
        {"name": "id", "type": "int"}, {"name": "total", "type": ["null", BYTES], "default": None},
        {"name": "at", "type": MILLIS}, {"name": "secret", "type": "string"},
        {"name": "lines", "type": {"type": "array", "items": LINE}},
    ],
}  # fmt: skip
COLUMNS = "id BIGINT, total DECIMAL(12,4), at TIMESTAMP, lines ARRAY<STRUCT<sku: STRING, n: BIGINT>>, currency STRING"
AT = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
ROW = {"id": 5, "total": Decimal("12.50"), "at": AT, "secret": "x", "lines": [{"sku": "a", "n": 3}]}
SERVERS = "'kafka.bootstrap.servers'='a:9092', subscribe='t', 'value.format'='avro'"
REGISTERED = f"{SERVERS}, 'schema.registry'='http://registry:8081'"
Message = tuple[bytes | None, bytes | None]


def with_fields(*more: Mapping[str, Any], without: str = "") -> dict[str, Any]:
    return ORDER | {"fields": [*(each for each in ORDER["fields"] if each["name"] != without), *more]}


def encoded(schema: Any, value: Any, id: int | None = None) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return (b"" if id is None else struct.pack(">bI", 0, id)) + out.getvalue()


def versions(*schemas: Any, first: int = 1, subject: str = "t-value") -> tuple[RegisteredSchema, ...]:
    """Return versions of a subject, with ids from `first` on."""
    return tuple(RegisteredSchema(first + n, json.dumps(each), subject, n + 1) for n, each in enumerate(schemas))


def rows(session: Session, columns: str, messages: Sequence[Message], options: str = REGISTERED, **schemas: Any) -> Any:
    """Return the rows of a table with these columns, in the order of `messages`, which are pairs of key and value."""
    ddl, problems = read_ddl(f"CREATE TABLE k ({columns}) USING kafka OPTIONS ({options})", "ddl.k.sql")
    assert ddl is not None and topic_fault(ddl) is None, problems or (ddl and topic_fault(ddl))
    steps, selected = row_expressions(ddl, schemas)
    source = [(key, value, n) for n, (key, value) in enumerate(messages)]
    with spark_errors():
        found: Any = session.spark.createDataFrame(source, "key BINARY, value BINARY, offset BIGINT")
        found = found.selectExpr("*", "0 AS partition", "'t' AS topic")
        for step in steps:
            found = found.selectExpr("*", step)
        return [tuple(row) for row in found.orderBy("offset").selectExpr(*selected).collect()]


def refusal(session: Session, error_class: str, columns: str, *messages: bytes, **more: Any) -> str:
    with pytest.raises(EngineRefused) as refused:
        rows(session, columns, [(None, value) for value in messages], **more)
    assert refused.value.error_class == error_class, refused.value.summary
    return str(refused.value.summary)


def test_messages_of_several_schemas_are_rows_of_the_declared_columns(delta_session: Session) -> None:
    currency = {"name": "currency", "type": "string", "default": "EUR"}
    renamed = {"name": "amount", "type": ["null", BYTES], "aliases": ["total"], "default": None}
    schemas = versions(ORDER, with_fields(currency), with_fields(currency, without="total"))
    first, later, third = (
        encoded(ORDER, ROW, 1),
        encoded(with_fields(currency), ROW | {"currency": "CHF"}, 2),
        encoded(with_fields(currency, without="total"), ROW | {"currency": "USD"}, 3),
    )
    found = rows(delta_session, COLUMNS, [(None, each) for each in (first, later, third, None)], value=schemas)
    lines = [(("a", 3))]
    read = [row[:2] + row[4:] for row in found]
    assert read == [
        (5, Decimal("12.5000"), "EUR"),
        (5, Decimal("12.5000"), "CHF"),
        (5, None, "USD"),
        (None, None, None),
    ]
    assert [tuple(line) for line in found[0][3]] == lines and found[0][2].timestamp() == AT.timestamp()
    aliased = versions(ORDER, with_fields(renamed, without="total"))
    found = rows(delta_session, "amount DECIMAL(8,2)", [(None, first)], value=aliased)
    assert found == [(Decimal("12.50"),)]


def test_each_type_of_avro_is_read_as_the_type_of_sql_that_holds_its_values(delta_session: Session) -> None:
    cases: list[tuple[Any, Any, str, Any]] = [
        ("boolean", True, "BOOLEAN", True), ("long", 2**40, "BIGINT", 2**40), ("int", 3, "DOUBLE", 3.0),
        ("float", 0.5, "DOUBLE", 0.5), ("bytes", b"\x01", "BINARY", b"\x01"),
        ({"type": "enum", "name": "K", "symbols": ["A", "B"]}, "B", "STRING", "B"),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab", "BINARY", b"ab"),
        ({"type": "map", "values": "int"}, {"x": 1}, "MAP<STRING, BIGINT>", {"x": 1}),
        ({"type": "int", "logicalType": "date"}, date(2026, 1, 2), "DATE", date(2026, 1, 2)),
        ({"type": "int", "logicalType": "time-millis"}, 5, "INT", 5),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, AT.replace(tzinfo=None), "TIMESTAMP_NTZ",
         AT.replace(tzinfo=None)),
        ({"type": "string", "logicalType": "uuid"}, "x", "STRING", "x"),
        (["string", "null"], None, "STRING", None),
    ]  # fmt: skip
    fields = [{"name": f"f{n}", "type": kind} for n, (kind, *_) in enumerate(cases)]
    schema = {"type": "record", "name": "All", "fields": fields}
    plain = json.loads(json.dumps(schema).replace('"time-millis"', '"none"').replace('"uuid"', '"none"'))
    value = encoded(plain, {f"f{n}": written for n, (_, written, *_) in enumerate(cases)}, 1)
    columns = ", ".join(f"f{n} {sql}" for n, (_, _, sql, _) in enumerate(cases))
    found = rows(delta_session, columns, [(None, value)], value=versions(schema))
    assert found == [tuple(bytearray(read) if isinstance(read, bytes) else read for *_, read in cases)]


def test_a_default_that_spark_would_refuse_does_not_matter_where_a_message_has_the_field(
    delta_session: Session,
) -> None:
    odd = with_fields({"name": "note", "type": "string", "default": None, "doc": "d"})
    value = encoded(with_fields({"name": "note", "type": "string"}), ROW | {"note": "n"}, 1)
    assert rows(delta_session, "id INT, note STRING", [(None, value)], value=versions(odd)) == [(5, "n")]


def test_a_recursive_record_is_read_as_deep_as_it_is_declared(delta_session: Session) -> None:
    node = {"type": "record", "name": "Node", "fields": [{"name": "v", "type": "int"},
            {"name": "next", "type": ["null", "Node"], "default": None}]}  # fmt: skip
    value = encoded(node, {"v": 1, "next": {"v": 2, "next": {"v": 3, "next": None}}}, 1)
    found = rows(delta_session, "v INT, next STRUCT<v: INT>", [(None, value)], value=versions(node))
    assert found == [(1, (2,))]


def test_keys_have_schemas_of_their_own_and_any_type(delta_session: Session) -> None:
    keys = versions("long", {"type": "record", "name": "K", "fields": []}, first=9, subject="t-key")
    both = f"{REGISTERED}, 'key.format'='avro'"
    message = (encoded("long", 7, 9), encoded(ORDER, ROW, 1))
    found = rows(delta_session, "id INT, _key BIGINT", [message, (None, None)], both, key=keys, value=versions(ORDER))
    assert found == [(5, 7), (None, None)]
    plain = both.replace("'value.format'='avro', ", "")
    found = rows(delta_session, "id INT, _key BIGINT", [(message[0], b'{"id": 3}')], plain, key=keys)
    assert found == [(3, 7)]
    with pytest.raises(EngineRefused, match="has a key of schema 10"):
        rows(delta_session, "id INT, _key BIGINT", [(encoded("long", 7, 10), None)], both, key=keys, value=keys)


def test_values_without_ids_have_the_schema_in_the_options(delta_session: Session) -> None:
    own = f"{SERVERS}, 'avro.schema'='{json.dumps(ORDER)}'"
    found = rows(delta_session, "id INT, _offset BIGINT", [(None, encoded(ORDER, ROW)), (None, None)], own)
    assert found == [(5, 0), (None, 1)]
    assert "has a value that is not Avro of avro.schema" in refusal(
        delta_session, "HEADGATE_POISON_MESSAGE", "id INT", b"", options=own
    )


def test_a_message_that_cannot_be_read_as_declared_fails_the_batch(delta_session: Session) -> None:
    schemas = versions(ORDER, with_fields({"name": "total", "type": "string"}, without="total"))
    good, poison = encoded(ORDER, ROW, 1), "HEADGATE_POISON_MESSAGE"
    cut = refusal(delta_session, poison, COLUMNS.replace(", currency STRING", ""), good[:-2], value=schemas)
    assert cut.startswith("the message at offset 0 in partition 0 of topic t has a value that is not Avro of schema 1")
    unframed = refusal(delta_session, poison, "id INT", b'{"id": 5}', value=schemas)
    assert "has no value that begins with a zero byte and the id of a schema" in unframed
    other = refusal(
        delta_session, "HEADGATE_UNREADABLE_SCHEMA", "id INT, total DECIMAL(8,2)", encoded(ORDER, ROW, 2), value=schemas
    )
    assert "schema 2 (version 2 of t-value), which has total as string, not DECIMAL(8,2); declare such" in other
    new = refusal(delta_session, "HEADGATE_NEW_SCHEMA", "id INT", encoded(ORDER, ROW, 4), value=schemas)
    assert new.startswith("schema 4 of the value at offset 0 in partition 0 of topic t was not known")


def test_a_declared_column_keeps_values_that_cannot_be_read_but_none_of_an_unknown_schema(
    delta_session: Session,
) -> None:
    schemas = (*versions(ORDER), RegisteredSchema(4, subject="t-value"))
    values = [encoded(ORDER, ROW, 1), encoded(ORDER, ROW, 4), b"\0\0\0\0\1\xff", b"?"]
    columns = "id INT, _corrupt STRING"
    found = rows(delta_session, columns, [(None, each) for each in values], value=schemas)
    assert found[0] == (5, None) and [id for id, _ in found[1:]] == [None] * 3
    assert found[2:] == [(None, "AAAAAAH/"), (None, "Pw==")]
    refusal(delta_session, "HEADGATE_NEW_SCHEMA", columns, encoded(ORDER, ROW, 5), value=schemas)
