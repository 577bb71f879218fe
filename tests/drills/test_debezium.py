"""Changes of a PostgreSQL table, read from Debezium through Kafka into a keyed table, while Kafka Connect is killed.

`HEADGATE_SEED` repeats a run.
"""

import os
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC
from threading import Event, Thread
from typing import Any

import psycopg
import pyarrow.parquet as parquet
import pytest
from kafka_broker import Broker
from kafka_connect import KafkaConnect, debezium
from postgres_server import PostgresServer, running_postgres
from tiny_project import Tiny, committed, tiny_that_runs, until

from pipelines.storage.delta_log import DeltaLog

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

SEED = int(os.environ.get("HEADGATE_SEED", "29"))
IDS = range(1, 41)
ARRIVES_S = 120.0
CAPTURED = "id INT, name STRING, balance DECIMAL(10,2), born DATE, changed_at TIMESTAMP"
KAFKA = "'kafka.bootstrap.servers'='{servers}', subscribe='{topic}'"
DDL = {
    "changes": f"""CREATE TABLE changes ({CAPTURED}, _op STRING, _sequence BIGINT) USING kafka
        OPTIONS ({KAFKA.format(servers="{servers}", topic="pg.public.customers")}, 'value.format'='debezium');""",
    "customers": f"CREATE TABLE customers ({CAPTURED}, op STRING, seq BIGINT) USING delta;",
    "outbox": f"""CREATE TABLE outbox (id INT, total DECIMAL(8,2), _headers ARRAY<STRUCT<key: STRING, value: BINARY>>)
        USING kafka OPTIONS ({KAFKA.format(servers="{servers}", topic="outbox.event.order")});""",
    "placed": "CREATE TABLE placed (id INT, total DECIMAL(8,2), type STRING) USING parquet;",
}
DML = {
    "customers": """INSERT INTO customers SELECT id, name, balance, born, changed_at, _op AS op, _sequence AS seq
        FROM STREAM changes;""",
    "placed": """INSERT INTO placed SELECT id, total,
        CAST(map_from_entries(_headers)['eventType'] AS STRING) AS type FROM STREAM outbox;""",
}
YML = {"customers": "mode: upsert\nkey: [id]\nsequence: seq\ndeletes: op = 'd'\n"}
SETTINGS = {"decimal_handling_mode": "string", "time_precision_mode": "isostring"}
ROUTED = {
    "snapshot.mode": "no_data", "tombstones.on.delete": "false", "transforms": "outbox",
    "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
    "transforms.outbox.table.expand.json.payload": "true",
    "transforms.outbox.table.fields.additional.placement": "type:header:eventType",
}  # fmt: skip
CHANGED = "name = name || '.', balance = balance + 0.01, changed_at = clock_timestamp()"


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with running_postgres() as found:
        found.run(
            "CREATE TABLE customers (id int PRIMARY KEY, name text, balance numeric(10,2), born date, "
            "changed_at timestamptz)",
            "INSERT INTO customers SELECT n, 'c' || n, n * 1.5, date '1950-01-01' + n * 400, now() "
            "FROM generate_series(1, 40) n",
            "CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text, aggregateid text, "
            "type text, payload jsonb)",
        )
        yield found


@pytest.fixture(scope="module")
def connect(
    tmp_path_factory: pytest.TempPathFactory, broker: Broker, postgres: PostgresServer
) -> Iterator[KafkaConnect]:
    """A Kafka Connect worker that has not been started."""
    customers = debezium(postgres, "pg", **SETTINGS, table_include_list="public.customers")
    outbox = debezium(postgres, "outbox", table_include_list="public.outbox") | ROUTED
    worker = KafkaConnect(tmp_path_factory.mktemp("work") / "connect", broker, {"customers": customers, "out": outbox})
    yield worker
    worker.kill()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory, broker: Broker) -> Iterator[Tiny]:
    for topic in ("pg.public.customers", "outbox.event.order"):
        broker.create(topic)
    ddl = {table: text.replace("{servers}", broker.servers) for table, text in DDL.items()}
    formats = {"customers": "delta"}
    with tiny_that_runs(tmp_path_factory.mktemp("cdc"), landed=0, formats=formats, ddl=ddl, dml=DML, yml=YML) as found:
        applied = found.apply(found.plan("--all"))
        assert applied.returncode == 0, applied.stdout + applied.stderr
        yield found


def held(tiny: Tiny, table: str = "customers") -> list[tuple[Any, ...]]:
    """Return the rows of a keyed table by id, from its log, as readers in Spark see them."""
    folder = tiny.folder / f"data/tables/{table}__v1/delta"
    log = DeltaLog(str(folder))
    log.refresh()
    files = [folder / file.path for file in log.files_at(log.head)]
    tables = [parquet.read_table(file, coerce_int96_timestamp_unit="us") for file in files]
    found = [row for table in tables for row in table.to_pylist()]
    columns = ("id", "name", "balance", "born")
    return sorted((*(row[name] for name in columns), row["changed_at"].replace(tzinfo=UTC)) for row in found)


def truth(postgres: PostgresServer) -> list[tuple[Any, ...]]:
    rows = postgres.run("SELECT id, name, balance, born, changed_at FROM customers ORDER BY id")
    return [(*row[:4], row[4].astimezone(UTC)) for row in rows]


def agrees(tiny: Tiny, postgres: PostgresServer) -> None:
    def same() -> bool:
        return held(tiny) == truth(postgres)

    until(same, ARRIVES_S, "the keyed table equals the table in the database")


@contextmanager
def transaction(postgres: PostgresServer, *statements: str) -> Iterator[tuple["psycopg.Connection[Any]", str]]:
    """Yield an open transaction that has run statements, with its id; commit it at the end."""
    with psycopg.connect(postgres.dsn) as connection:
        for statement in statements:
            connection.execute(statement.encode())
        ((number,),) = connection.execute("SELECT pg_current_xact_id()::text").fetchall()
        yield connection, number


def awaited(postgres: PostgresServer, number: str) -> None:
    """Wait until the creation of a slot is waiting for the transaction `number` to end."""
    sql = (
        f"SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted AND transactionid = '{number}'"
    )
    until(lambda: postgres.run(sql) != [(0,)], 60, f"the slot waits for transaction {number}")


def test_a_transaction_open_during_the_snapshot_is_not_lost(
    tiny: Tiny, connect: KafkaConnect, postgres: PostgresServer
) -> None:
    """The transaction's change has a lower LSN than the snapshot, which does not contain the change."""
    with ThreadPoolExecutor() as beside, transaction(postgres) as (first, number):
        started = beside.submit(connect.start)
        awaited(postgres, number)
        with transaction(postgres) as (second, number):
            first.commit()
            awaited(postgres, number)
            with transaction(postgres, "UPDATE customers SET name = 'straddles' WHERE id = 2") as (third, _):
                second.commit()
                agrees(tiny, postgres)
                third.commit()
        started.result()
    agrees(tiny, postgres)
    assert [row[1] for row in held(tiny) if row[0] == 2] == ["straddles"]


def test_each_kind_of_change_leaves_the_row_after_it(
    tiny: Tiny, connect: KafkaConnect, postgres: PostgresServer
) -> None:
    every = f"UPDATE customers SET {CHANGED} WHERE id = 3"
    add = "INSERT INTO customers VALUES (%s, '%s', -1.25, '1969-12-31', '2026-01-01 00:00:00.123456+00')"
    with transaction(postgres, *[every] * 5):
        pass
    with transaction(postgres, add % (50, "a"), "UPDATE customers SET name = 'b' WHERE id = 50",
                     "DELETE FROM customers WHERE id = 50", add % (50, "c")):  # fmt: skip
        pass
    postgres.run("DELETE FROM customers WHERE id IN (4, 5)", add % (4, "again"), add % (51, "gone"))
    postgres.run("DELETE FROM customers WHERE id = 51", "UPDATE customers SET id = 52 WHERE id = 6")
    postgres.run("UPDATE customers SET name = NULL, balance = NULL, born = NULL WHERE id = 7")
    agrees(tiny, postgres)
    began = time.monotonic()
    postgres.run(every)
    agrees(tiny, postgres)
    print(f"a change is a row after {time.monotonic() - began:.1f} s")


def test_events_of_an_outbox_are_rows_with_the_type_of_their_header(
    tiny: Tiny, connect: KafkaConnect, postgres: PostgresServer
) -> None:
    add = "INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('order', 'o-1', 'Placed', '%s')"
    with transaction(postgres, add % '{"id": 1, "total": 9.5}', "DELETE FROM outbox"):
        pass

    def placed() -> list[tuple[int, str, str]]:
        rows = [row for file in committed(tiny.folder / "data/tables/placed__v1") for row in
                parquet.read_table(file).to_pylist()]  # fmt: skip
        return [(row["id"], str(row["total"]), row["type"]) for row in rows]

    until(lambda: placed() == [(1, "9.50", "Placed")], ARRIVES_S, "the event is one row")


def test_init_declares_a_keyed_table_for_changes(
    tiny: Tiny, connect: KafkaConnect, broker: Broker, postgres: PostgresServer
) -> None:
    said = tiny.run("init", "table", "clients", "--kafka", f"{broker.servers}/pg.public.customers")
    assert said.returncode == 0, said
    yml = next(tiny.folder.rglob("src_clients.yml")).read_text()
    assert "mode: upsert\nkey: [id]\nsequence: _sequence\ndeletes: _op = 'd'\n" in yml
    applied = tiny.apply(tiny.plan("src_clients"))
    assert applied.returncode == 0, applied.stdout + applied.stderr
    columns = "id, name, balance::text, born, changed_at"
    rows = postgres.run(f"SELECT {columns} FROM customers ORDER BY id")

    def same() -> bool:
        return held(tiny, "src_clients") == [(*row[:4], row[4].astimezone(UTC)) for row in rows]

    until(same, ARRIVES_S, "the keyed table equals the table in the database")


def test_no_change_is_lost_or_stale_when_the_worker_is_killed_under_load(
    tiny: Tiny, connect: KafkaConnect, postgres: PostgresServer
) -> None:
    chance, ends, written = random.Random(SEED), Event(), [0]
    dies_at = chance.randint(100, 400)

    def change() -> str:
        number = chance.choice(IDS)
        return chance.choice(
            [
                f"UPDATE customers SET {CHANGED} WHERE id = {number}",
                f"DELETE FROM customers WHERE id = {number}",
                f"INSERT INTO customers VALUES ({number}, 'n', 0, '2000-02-29', clock_timestamp()) "
                f"ON CONFLICT (id) DO UPDATE SET name = 'u', changed_at = clock_timestamp()",
            ]
        )

    def write() -> None:
        with psycopg.connect(postgres.dsn) as connection:
            while not ends.is_set():
                with connection.transaction():
                    for _ in range(chance.randint(1, 4)):
                        connection.execute(change().encode())
                written[0] += 1
                ends.wait(0.005)

    writer = Thread(target=write)
    writer.start()
    try:
        until(lambda: written[0] >= dies_at, 60, "there is load")
        connect.kill()
        connect.start()
        ends_at = written[0] + 100
        until(lambda: written[0] >= ends_at, 60, "there is load after the start")
    finally:
        ends.set()
        writer.join()
    agrees(tiny, postgres)
    assert tiny.statements()["customers"]["state"] == "running"
    print(f"{written[0]} transactions, 1 kill: 0 lost, 0 stale")
