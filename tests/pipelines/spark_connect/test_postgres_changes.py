"""Changes of a real PostgreSQL database as a stream of a real pool: types, messages, and errors of the source."""

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from postgres_server import PostgresServer, running_postgres

from core.model.errors import SparkFailure
from core.sql.compiler import compile_ddl
from core.sql.ddl_reader import read_ddl
from core.sql.postgres_changes import NEW_SLOT, row_columns, with_slot
from pipelines.spark_connect.error_translation import error_class, failure_of, first_line

pytestmark = pytest.mark.spark
COLUMNS = """id BIGINT, total DECIMAL(8,2), paid BOOLEAN, at TIMESTAMP, day DATE, raw BINARY, ratio DOUBLE, doc STRING,
_op STRING, _lsn BIGINT, _committed_at TIMESTAMP"""
VALUES = """1, 2.5, true, '2026-01-02 03:04:05.678+01', '2026-01-02', '\\x00ff', 0.1, '{"a": 1}'"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_postgres() as found:
        found.run(
            "CREATE TABLE orders (id bigint PRIMARY KEY, total numeric(8,2), paid bool, at timestamptz, day date,"
            " raw bytea, ratio float8, doc jsonb)",
            "CREATE PUBLICATION headgate FOR TABLE orders",
            "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
        )
        yield found


def declare(ground: Any, server: PostgresServer, columns: str, option: str) -> str:
    """Create the view of an external table over the slot `s`, and return its name."""
    url = f"jdbc:postgresql://127.0.0.1:{server.port}/postgres"
    options = f"url '{url}', user 'postgres', publication 'headgate', {option}"
    ddl, problems = read_ddl(f"CREATE TABLE d ({columns}) USING postgres_changes OPTIONS ({options})", "d.sql")
    assert ddl is not None, problems
    name = f"changes_{ground.mark}_{len(columns)}"
    ground.tables.create(name, compile_ddl(with_slot(ddl, "s"), name, ddl.location))
    return name


def streamed(ground: Any, name: str, folder: Path) -> tuple[list[dict[str, Any]], str]:
    """Run a stream over all available changes; return the rows written so far, and the error that ended it."""
    spark = ground.session.spark
    query = spark.sql(f"SELECT * FROM STREAM {name}").writeStream.format("parquet").trigger(availableNow=True)
    query = query.option("checkpointLocation", f"{folder}/checkpoint").start(f"{folder}/out")
    ground.until(lambda: not query.isActive)
    error = query.exception()
    rows = [] if error else spark.read.parquet(f"{folder}/out").collect()
    return [row.asDict() for row in rows], str(error or "")


def test_values_have_the_declared_types_and_a_lost_slot_is_named(
    ground: Any, server: PostgresServer, tmp_path: Path
) -> None:
    name = declare(ground, server, COLUMNS, "dbtable 'orders'")
    server.run(f"INSERT INTO orders VALUES ({VALUES})", "UPDATE orders SET total = 3", "DELETE FROM orders")
    rows, error = streamed(ground, name, tmp_path)
    assert not error
    rows.sort(key=lambda row: row["_lsn"])
    assert [(row["_op"], row["id"], row["total"]) for row in rows] == [
        ("c", 1, Decimal("2.50")), ("u", 1, Decimal("3.00")), ("d", 1, None),
    ]  # fmt: skip
    inserted = rows[0]
    assert (inserted["paid"], inserted["day"], inserted["raw"]) == (True, datetime.date(2026, 1, 2), b"\x00\xff")
    assert (inserted["ratio"], inserted["doc"]) == (0.1, '{"a": 1}')
    assert inserted["at"].replace(tzinfo=datetime.UTC).isoformat() == "2026-01-02T02:04:05.678000+00:00"
    server.run("SELECT pg_drop_replication_slot('s')")
    try:
        _, error = streamed(ground, name, tmp_path)
    finally:
        server.run("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    assert error_class(error) == "HEADGATE_SLOT_MISSING"
    assert first_line(error) == f"the replication slot s does not exist; {NEW_SLOT}"
    assert failure_of(error) is None


def test_messages_are_rows(ground: Any, server: PostgresServer, tmp_path: Path) -> None:
    name = declare(ground, server, "_prefix STRING, _content STRING, _committed_at TIMESTAMP", "messages 'app'")
    server.run("SELECT pg_logical_emit_message(true, 'app', 'é')", "SELECT pg_logical_emit_message(true, 'other', 'x')")
    rows, error = streamed(ground, name, tmp_path)
    assert not error
    assert [(row["_prefix"], row["_content"]) for row in rows] == [("app", "é")]
    assert rows[0]["_committed_at"] is not None


def test_a_value_that_does_not_fit_its_type_ends_the_query(ground: Any, server: PostgresServer, tmp_path: Path) -> None:
    name = declare(ground, server, "doc BIGINT, _op STRING", "dbtable 'orders'")
    server.run(f"INSERT INTO orders VALUES ({VALUES})", "DELETE FROM orders")
    _, error = streamed(ground, name, tmp_path)
    assert error_class(error).startswith("CAST_INVALID_INPUT")


def test_text_that_spark_would_cast_to_another_value_ends_the_query(ground: Any) -> None:
    text = ("CREATE TABLE d (day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, raw BINARY) USING postgres_changes OPTIONS "
            "(url 'jdbc:postgresql://h/d', user 'u', dbtable 't', publication 'p')")  # fmt: skip
    ddl, _ = read_ddl(text, "d.sql")
    assert ddl is not None
    for n, wrong in enumerate(("0044-03-15 BC", "10:00:00", "10:00:00-05", "abc")):
        source = ground.session.spark.createDataFrame([(wrong,)], f"{ddl.columns[n].name} STRING")
        with pytest.raises(Exception, match=r"CAST_INVALID_INPUT|raw is no bytea"):
            source.selectExpr(row_columns(ddl)[n]).collect()


def test_a_database_that_does_not_answer_is_a_transient_failure(
    ground: Any, server: PostgresServer, tmp_path: Path
) -> None:
    name = declare(ground, server, COLUMNS, "dbtable 'orders'")
    server.kill()
    try:
        _, error = streamed(ground, name, tmp_path)
    finally:
        server.start()
    assert failure_of(error) is SparkFailure.DATABASE_LOST
    assert "does not answer" in first_line(error)
