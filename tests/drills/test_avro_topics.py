"""Kafka topics in Avro on a real broker and real Spark: schemas that change under a running reader, and kills.

`schema_registry_server` plays the schema registry, because no real one can be installed here. The drill takes two to
three minutes, most of which are pauses before automatic restarts.
"""

import io
import json
import os
import signal
import struct
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow.parquet as parquet
import pytest
from confluent_kafka import Producer
from kafka_broker import QUIET, Broker
from live_project import until
from pytest_httpserver import HTTPServer
from schema_registry_server import PlayedRegistry
from tiny_project import Tiny, committed, tiny_that_runs

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}
COLUMNS = "id BIGINT, total DECIMAL(8,2), currency STRING"


def order(id: str, total: Any, *more: dict[str, Any]) -> dict[str, Any]:
    fields = [{"name": "id", "type": id}, {"name": "total", "type": total}, *more]
    return {"type": "record", "name": "Order", "namespace": "shop", "fields": fields}


CURRENCY = {"name": "currency", "type": "string", "default": "EUR"}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}
FIRST, SECOND = order("int", MONEY), order("int", MONEY, CURRENCY)
THIRD, FOURTH = order("long", ["null", MONEY], CURRENCY), order("long", ["null", MONEY], NOTE, CURRENCY)
UNLIKE = order("long", "string", CURRENCY)


@pytest.fixture(scope="module")
def registry() -> Iterator[PlayedRegistry]:
    with HTTPServer() as server:
        found = PlayedRegistry(server)
        found.add("orders-key", "long", id=1)
        found.add("orders-value", FIRST, id=2)
        found.add("orders-value", SECOND, id=3)
        yield found


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory, broker: Broker, registry: PlayedRegistry) -> Iterator[Tiny]:
    broker.create("orders", partitions=1)
    options = f"'kafka.bootstrap.servers'='{broker.servers}', subscribe='orders', 'value.format'='avro'"
    options += f", 'schema.registry'='{registry.url}'"
    ddl = {
        "orders": f"CREATE TABLE orders ({COLUMNS}, _key BIGINT, _offset BIGINT) USING kafka "
        f"OPTIONS ({options}, 'key.format'='avro');",
        "kept": f"CREATE TABLE kept ({COLUMNS}, k BIGINT, at BIGINT) USING parquet;",
        "lenient": f"CREATE TABLE lenient ({COLUMNS}, _corrupt STRING) USING kafka OPTIONS ({options});",
        "other": "CREATE TABLE other (id BIGINT, wrong STRING) USING parquet;",
        "unlike": f"CREATE TABLE unlike (id INT, total DOUBLE, amount INT) USING kafka OPTIONS ({options});",
        "never": "CREATE TABLE never (id INT) USING parquet;",
    }
    dml = {
        "kept": "INSERT INTO kept SELECT id, total, currency, _key AS k, _offset AS at FROM STREAM orders;",
        "other": "INSERT INTO other SELECT id, _corrupt AS wrong FROM STREAM lenient;",
        "never": "INSERT INTO never SELECT id FROM STREAM unlike WHERE amount > 0;",
    }
    root = tmp_path_factory.mktemp("avro")
    with tiny_that_runs(root, landed=0, ddl=ddl, dml=dml) as found:
        yield found


def produce(broker: Broker, schema: Any, id: int, values: Sequence[dict[str, Any]], topic: str = "orders") -> None:
    """Write messages with the id of their schema, and the id of the order as key."""
    producer = Producer({"bootstrap.servers": broker.servers}, logger=QUIET)
    for value in values:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
        key = io.BytesIO()
        fastavro.schemaless_writer(key, "long", value["id"])
        framed = struct.pack(">bI", 0, id) + out.getvalue()
        producer.produce(topic, key=struct.pack(">bI", 0, 1) + key.getvalue(), value=framed, partition=0)
    assert producer.flush(30) == 0


def rows(tiny: Tiny, table: str) -> list[dict[str, Any]]:
    files = committed(tiny.folder / f"data/tables/{table}__v1")
    return sorted(
        (row for file in files for row in parquet.read_table(file).to_pylist()), key=lambda row: row["id"] or 0
    )


def ids(tiny: Tiny, table: str = "kept") -> list[int]:
    return [row["id"] for row in rows(tiny, table)]


def values(*of: int, **more: Any) -> list[dict[str, Any]]:
    return [{"id": id, "total": Decimal(id) / 4, **more} for id in of]


def events(tiny: Tiny, kind: str) -> int:
    return tiny.done("events", "--json").count(f'"{kind}"')


def test_all_differences_from_the_schema_are_listed_before_anything_starts(tiny: Tiny) -> None:
    refused = tiny.run("plan", "never")
    assert refused.returncode == 3, refused
    said = refused.stdout + refused.stderr
    assert "schema 3 (version 2 of orders-value) has total as decimal(8,2), not DOUBLE" in said, refused
    assert "has no field amount, nor a default for it" in said, refused


def test_messages_of_two_schemas_are_rows_and_peek_shows_them_decoded(tiny: Tiny, broker: Broker) -> None:
    produce(broker, FIRST, 2, values(1, 2))
    produce(broker, SECOND, 3, values(3, currency="CHF"))
    applied = tiny.apply(tiny.plan("kept", "other"))
    assert applied.returncode == 0, applied.stdout + applied.stderr
    until(lambda: ids(tiny) == [1, 2, 3], 60, "the messages are rows")
    assert [tuple(row.values()) for row in rows(tiny, "kept")] == [
        (1, Decimal("0.25"), "EUR", 1, 0), (2, Decimal("0.50"), "EUR", 2, 1), (3, Decimal("0.75"), "CHF", 3, 2),
    ]  # fmt: skip
    shown = json.loads(tiny.done("peek", "orders", "--json"))
    newest = dict(zip(shown["columns"], shown["rows"][0], strict=True))
    assert json.loads(newest["_value"]) == {"id": 3, "total": "0.75", "currency": "CHF"}, shown
    assert newest["_key"] == "3"


def test_a_new_schema_under_a_running_reader_and_a_killed_pool_lose_and_double_nothing(
    tiny: Tiny, broker: Broker, registry: PlayedRegistry
) -> None:
    registry.add("orders-value", THIRD, id=5)
    produce(broker, THIRD, 5, values(4, 5, currency="USD"))
    until(lambda: ids(tiny) == [1, 2, 3, 4, 5], 60, "messages of the new schema are rows")
    assert events(tiny, "HEADGATE_NEW_SCHEMA") >= 1
    os.kill(tiny.pool_pid(), signal.SIGKILL)
    produce(broker, FIRST, 2, values(6))
    registry.fails_with(503)
    produce(broker, FOURTH, 6, values(7, currency="USD", note="n"))
    until(lambda: ids(tiny) == [1, 2, 3, 4, 5, 6] or "answers with status 503" in tiny.done("show", "kept"), 120,
          "a registry that is down delays only messages of new schemas")  # fmt: skip
    until(lambda: "answers with status 503" in tiny.done("show", "kept"), 60, "the reason is shown")
    registry.add("orders-value", FOURTH, id=6)
    registry.fails_with(None)
    until(lambda: ids(tiny) == list(range(1, 8)), 90, "all messages are rows, each once")
    until(lambda: ids(tiny, "other") == list(range(1, 8)), 60, "the other reader has them as well")


def test_a_schema_that_cannot_be_read_as_declared_stops_the_reader_before_its_message(
    tiny: Tiny, broker: Broker, registry: PlayedRegistry
) -> None:
    registry.add("orders-value", UNLIKE, id=9)
    checks = json.loads(tiny.run("doctor", "--json").stdout)["checks"]
    found = [check for check in checks if check["name"] == "inputs" and check["facts"].get("table") == "orders"]
    assert "schema 9 (version 5 of orders-value) has total as string" in found[0]["summary"], checks
    produce(broker, UNLIKE, 9, [{"id": 8, "total": "?", "currency": "EUR"}])
    said = "has a value of schema 9 (version 5 of orders-value), which has total as string, not DECIMAL(8,2)"
    until(lambda: said in tiny.done("show", "kept"), 90, "the statement says why it failed")
    assert ids(tiny) == list(range(1, 8))
    until(lambda: len(rows(tiny, "other")) == 8, 60, "a declared column keeps the value")
    assert [row["id"] for row in rows(tiny, "other") if row["wrong"]] == [None]


def test_init_declares_topics_with_the_columns_of_their_schema(
    tiny: Tiny, broker: Broker, registry: PlayedRegistry
) -> None:
    broker.create("bills", partitions=1)
    registry.add("bills-value", SECOND, id=20)
    produce(broker, SECOND, 20, [{"id": n, "total": Decimal(n), "currency": "EUR"} for n in range(5)], "bills")
    place = f"{broker.servers}/bills?schema.registry={registry.url}"
    tiny.done("init", "table", "bills_in", "--kafka", place)
    ddl = next(tiny.folder.rglob("ddl.bills_in.sql")).read_text()
    assert "  id INT,\n  total DECIMAL(8,2),\n  currency STRING,\n" in ddl, ddl
    applied = tiny.apply(tiny.plan("src_bills_in"))
    assert applied.returncode == 0, applied.stdout + applied.stderr
    until(lambda: tiny.ids("src_bills_in", 1) == list(range(5)), 60, "all messages are rows")
