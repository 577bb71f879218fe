"""headgate test --integration over Kafka topics and database tables, on a real broker and a shared server."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka_broker import Broker, free_port
from tiny_project import Tiny, tiny_that_runs, until

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

CASE = """given:
  - orders_in: [{id: 1, product: 7, _key: k, _timestamp: 2026-01-01T00:00:00Z}, {id: 2, product: 8}]
    products: [{id: 7, price: 2.50}]
  - orders_in: [{id: 3, product: 7, _timestamp: 2031-01-01T00:00:00Z}]
    changes_in: [{id: 1, total: 1.25, _op: c, _sequence: 1}, {id: 1, total: 2.50, _op: u, _sequence: 2}]
expect:
  orders: [{id: 1, price: 2.50, at: 2026-01-01T00:00:00Z, number: 0}, {id: 3, price: 2.50, at: 2031-01-01T00:00:00Z,
    number: 2}]
  orders_out: [{_key: '1', id: 1, price: 2.50}, {_key: '3', id: 3, price: 2.50}]
  returned: [{id: 1, name: k1}, {id: 3, name: k3}]
  changes: [{id: 1, total: 1.25, op: c, seq: 1}, {id: 1, total: 2.50, op: u, seq: 2}]
key: {orders: [id]}
"""
JOIN = """INSERT INTO orders SELECT o.id, p.price, o._timestamp AS at, o._offset AS number
FROM STREAM orders_in AS o JOIN products AS p ON p.id = o.product;"""
DML = {
    "orders": JOIN,
    "orders_out": "INSERT INTO orders_out SELECT CAST(id AS STRING) AS _key, id, price FROM STREAM orders;",
    "returned": "INSERT INTO returned SELECT id, concat('k', _key) AS name FROM STREAM returned_in;",
    "changes": "INSERT INTO changes SELECT id, total, _op AS op, _sequence AS seq FROM STREAM changes_in;",
}


def ddl(servers: str) -> dict[str, str]:
    def over(topic: str, kind: str = "subscribe", more: str = "") -> str:
        return f"USING kafka OPTIONS ('kafka.bootstrap.servers'='{servers}', {kind}='{topic}'{more});"

    columns = "id BIGINT, product BIGINT, _key STRING, _timestamp TIMESTAMP, _offset BIGINT"
    latest = ", startingOffsets='latest', minOffsetsPerTrigger='1000'"
    debezium = ", 'value.format'='debezium'"
    captured = "id BIGINT, total DECIMAL(9,2), _op STRING, _sequence BIGINT"
    database = "OPTIONS (url 'jdbc:postgresql://127.0.0.1:1/none', user 'nobody', dbtable 'public.products')"
    return {
        "orders_in": f"CREATE TABLE orders_in ({columns}) {over('orders', more=latest)}",
        "returned_in": f"CREATE TABLE returned_in (id BIGINT, _key STRING) {over('orders-out')}",
        "changes_in": f"CREATE TABLE changes_in ({captured}) {over('pg.x', more=debezium)}",
        "products": f"CREATE TABLE products (id BIGINT, price DECIMAL(9,2)) USING jdbc {database};",
        "orders": "CREATE TABLE orders (id BIGINT, price DECIMAL(9,2), at TIMESTAMP, number BIGINT) USING parquet;",
        "orders_out": f"CREATE TABLE orders_out (_key STRING, id BIGINT, price DECIMAL(9,2)) "
        f"{over('orders-out', 'topic')}",
        "returned": "CREATE TABLE returned (id BIGINT, name STRING) USING parquet;",
        "changes": "CREATE TABLE changes (id BIGINT, total DECIMAL(9,2), op STRING, seq BIGINT) USING parquet;",
    }


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory, broker: Broker) -> Iterator[Tiny]:
    for topic in ("orders", "orders-out"):
        broker.create(topic)
    root = tmp_path_factory.mktemp("headgate")
    yml = {"orders": "mirror_offsets: a-group-of-production\n", "orders_out": "key: [id]\n"}
    with tiny_that_runs(root, landed=0, ddl=ddl(broker.servers), dml=DML, yml=yml) as found:
        cases = found.folder / "pipelines/facts/p/integration"
        cases.mkdir()
        (cases / "ordered.yml").write_text(CASE)
        yield found


def own_topics(broker: Broker) -> list[str]:
    return [topic for topic in broker.admin.list_topics(timeout=10).topics if topic.startswith("it_")]


def left(tiny: Tiny) -> list[Path]:
    return sorted((tiny.root / "home").glob("ephemeral/*"))


def results(tiny: Tiny, *words: str, code: int = 0) -> dict[str, Any]:
    done = tiny.run("test", "--integration", *words, "--pool", "dev", "--json")
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_rows_become_messages_and_messages_rows_and_no_topic_is_left(tiny: Tiny, broker: Broker) -> None:
    found = results(tiny)
    (result,) = found["results"]
    assert result["outcome"] == "passed", result
    (end,) = found["environments"]
    assert end["brokers"] == [broker.servers] and not end["left"] and not left(tiny)
    assert own_topics(broker) == [] and broker.size("orders") == broker.size("orders-out") == 0
    assert not [each for each in broker.admin.list_consumer_groups().result(30).valid if "production" in each.group_id]


def test_without_a_broker_nothing_starts(tiny: Tiny, broker: Broker) -> None:
    folder = tiny.folder / "pipelines/facts/p/orders_in/sql-scripts/ddl.orders_in.sql"
    before = folder.read_text()
    folder.write_text(before.replace(broker.servers, f"127.0.0.1:{free_port()}"))
    try:
        refused = tiny.run("test", "--integration", "--pool", "dev")
    finally:
        folder.write_text(before)
    assert refused.returncode == 3, refused.stdout + refused.stderr
    assert "no broker of 127.0.0.1:" in refused.stderr and "check that Kafka runs" in refused.stderr
    assert not left(tiny) and own_topics(broker) == []


def test_a_first_case_is_recorded_and_passes(tiny: Tiny, broker: Broker) -> None:
    (path,) = tiny.done("test", "init", "--integration", "orders", "--pool", "dev").split()
    try:
        assert "orders_in" in (tiny.folder / path).read_text()
        outcomes = {each["name"]: each["outcome"] for each in results(tiny)["results"]}
    finally:
        (tiny.folder / path).unlink()
    assert outcomes == {"p/ordered": "passed", "p/orders_recorded": "passed"} and own_topics(broker) == []


def test_a_killed_command_leaves_topics_that_the_next_one_deletes(tiny: Tiny, broker: Broker) -> None:
    program = str(Path(sys.executable).with_name("headgate"))
    command = subprocess.Popen(
        [program, "test", "--integration", "--pool", "dev"],
        cwd=tiny.folder, env={**os.environ, "HEADGATE_HOME": str(tiny.root / "home")}, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    until(lambda: bool(own_topics(broker)), 120, "its topics exist")
    command.kill()
    command.wait(30)
    assert own_topics(broker) and left(tiny)
    done = tiny.run("test", "--integration", "--pool", "dev")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"no topic at {broker.servers}" in done.stderr and "left by a command that was killed" in done.stderr
    assert own_topics(broker) == [] and not left(tiny)


@pytest.mark.parametrize("scenario", ["restart", "late", "schema", "replay", "recovery"])
def test_a_scenario_runs_over_topics(tiny: Tiny, broker: Broker, scenario: str) -> None:
    found = results(tiny, "--scenario", scenario)
    (result,) = found["results"]
    assert result["outcome"] in ("passed", "skipped"), result
    assert all(not each["left"] for each in found["environments"]) and own_topics(broker) == []
