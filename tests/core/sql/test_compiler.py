"""Compiling changes names and nothing else."""

import pytest

from core.model.names import TableName
from core.sql.compiler import compile_ddl, compile_select
from core.sql.ddl_reader import read_ddl
from core.sql.statement_reader import read_statements

PHYSICAL = {
    TableName("orders"): "orders__v3",
    TableName("dim"): "dim__v1",
    TableName("t"): "t__v9",
    TableName("odd"): "of another kind",
}


def compiled(select: str) -> str:
    """Compile the only SELECT of a statement without Problems."""
    (parsed,), problems = read_statements(f"INSERT INTO target {select}", "f.sql")
    assert problems == ()
    return compile_select(parsed, PHYSICAL)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("SELECT id FROM STREAM orders", "SELECT id FROM STREAM orders__v3"),
        ("SELECT id\r\nFROM STREAM( orders )  o -- orders", "SELECT id\r\nFROM STREAM( orders__v3 )  o"),
        ("SELECT 'orders' AS orders FROM STREAM ORDERS /* orders */ AS o", None),
        ("SELECT id FROM STREAM `orders`", "SELECT id FROM STREAM orders__v3"),
        (
            "SELECT o.id FROM STREAM orders o JOIN odd ON o.id = odd.id",
            "SELECT o.id FROM STREAM orders__v3 o JOIN `of another kind` AS odd ON o.id = odd.id",
        ),
        (
            "SELECT orders.id FROM STREAM orders WITH (maxFilesPerTrigger=1) WATERMARK ts DELAY OF INTERVAL 1 DAY",
            "SELECT orders.id FROM STREAM orders__v3 WITH (maxFilesPerTrigger=1) WATERMARK ts DELAY OF INTERVAL 1 DAY"
            " AS orders",
        ),
        (
            "WITH orders AS (SELECT orders.id FROM STREAM orders) SELECT orders.id FROM orders",
            "WITH orders AS (SELECT orders.id FROM STREAM orders__v3 AS orders) SELECT orders.id FROM orders",
        ),
        ("SELECT id FROM STREAM t WHERE t.t = 1", "SELECT id FROM STREAM t__v9 AS t WHERE t.t = 1"),
        ("SELECT t FROM STREAM t WHERE t = 't'", "SELECT t FROM STREAM t__v9 WHERE t = 't'"),
        (
            "SELECT orders.id FROM STREAM orders WHERE EXISTS (SELECT 1 FROM dim WHERE dim.id = orders.id)",
            "SELECT orders.id FROM STREAM orders__v3 AS orders"
            " WHERE EXISTS (SELECT 1 FROM dim__v1 AS dim WHERE dim.id = orders.id)",
        ),
        ("SELECT 'é ü 日本' AS x FROM STREAM orders", "SELECT 'é ü 日本' AS x FROM STREAM orders__v3"),
    ],
)
def test_only_table_names_are_replaced(written: str, expected: str | None) -> None:
    assert compiled(written) == (expected or written.replace("STREAM ORDERS", "STREAM orders__v3"))


def test_with_before_insert_becomes_part_of_the_select() -> None:
    text = "WITH a AS (SELECT * FROM dim)\nINSERT INTO t SELECT o.id FROM STREAM orders o JOIN a ON o.id = a.id;"
    (parsed,), _ = read_statements(text, "f.sql")
    expected = "WITH a AS (SELECT * FROM dim__v1)\nSELECT o.id FROM STREAM orders__v3 o JOIN a ON o.id = a.id"
    assert compile_select(parsed, PHYSICAL) == expected


def test_a_read_without_a_physical_table_is_a_bug_of_the_caller() -> None:
    (parsed,), _ = read_statements("INSERT INTO t SELECT id FROM STREAM unknown", "f.sql")
    with pytest.raises(KeyError):
        compile_select(parsed, PHYSICAL)


def test_a_table_is_written_from_its_facts_and_reads_back_equal() -> None:
    text = (
        "create external table t (id BIGINT not null comment 'it''s', `N x` STRUCT<A: INT, b: DEC>) using PARQUET "
        "options (a.b=1) partitioned by (id) location 'landing/t' comment 'c' tblproperties ('k'='v')"
    )
    ddl, problems = read_ddl(text, "ddl.t.sql")
    assert problems == () and ddl is not None
    sql = compile_ddl(ddl, "t__v2", "/data/it's/t__v2")
    assert sql == (
        "CREATE TABLE IF NOT EXISTS t__v2 (id bigint NOT NULL COMMENT 'it\\'s', `N x` struct<A:int,b:decimal(10,0)>) "
        "USING parquet OPTIONS ('a.b'='1') PARTITIONED BY (id) LOCATION '/data/it\\'s/t__v2' COMMENT 'c' "
        "TBLPROPERTIES ('k'='v')"
    )
    again, _ = read_ddl(sql.replace("t__v2 (", "t (", 1), "ddl.t.sql")
    assert again is not None and again.columns == ddl.columns and again.location == "/data/it's/t__v2"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("SELECT id FROM orders AS o", "SELECT id FROM STREAM orders__v3 AS o"),
        ("SELECT orders.id FROM orders", "SELECT orders.id FROM STREAM orders__v3 AS orders"),
        (
            "SELECT o.id FROM STREAM orders o, t x WHERE o.id = x.id",
            "SELECT o.id FROM STREAM orders__v3 o, STREAM t__v9 x WHERE o.id = x.id",
        ),
        (
            "WITH orders AS (SELECT id FROM orders WITH (maxFilesPerTrigger=1)) SELECT id FROM orders",
            "WITH orders AS (SELECT id FROM STREAM orders__v3 WITH (maxFilesPerTrigger=1)) SELECT id FROM orders",
        ),
        (
            "SELECT orders.ts FROM orders WATERMARK ts DELAY OF INTERVAL 1 DAY",
            "SELECT orders.ts FROM STREAM orders__v3 WATERMARK ts DELAY OF INTERVAL 1 DAY AS orders",
        ),
    ],
)
def test_stream_is_written_where_every_table_streams(written: str, expected: str) -> None:
    (parsed,), problems = read_statements(f"INSERT INTO target {written}", "f.sql", every_table_streams=True)
    assert problems == ()
    assert compile_select(parsed, PHYSICAL) == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("SELECT id FROM STREAM orders", "SELECT id FROM (SELECT * FROM STREAM orders__v3 WHERE ts >= 1)"),
        (
            "SELECT orders.id FROM STREAM(orders) WHERE id > 0",
            "SELECT orders.id FROM (SELECT * FROM STREAM(orders__v3) WHERE ts >= 1) AS orders WHERE id > 0",
        ),
        (
            "SELECT o.id FROM STREAM orders WITH (maxFilesPerTrigger=1) IDENTIFIED BY x "
            "WATERMARK ts DELAY OF INTERVAL 1 DAY AS o JOIN dim ON o.id = dim.id",
            "SELECT o.id FROM (SELECT * FROM STREAM orders__v3 WITH (maxFilesPerTrigger=1) IDENTIFIED BY x "
            "WHERE ts >= 1) WATERMARK ts DELAY OF INTERVAL 1 DAY AS o JOIN dim__v1 AS dim ON o.id = dim.id",
        ),
        (
            "SELECT orders.id FROM STREAM orders WATERMARK ts DELAY OF INTERVAL 1 DAY",
            "SELECT orders.id FROM (SELECT * FROM STREAM orders__v3 WHERE ts >= 1) "
            "WATERMARK ts DELAY OF INTERVAL 1 DAY AS orders",
        ),
        (
            "SELECT id FROM STREAM orders UNION ALL SELECT id FROM STREAM t",
            "SELECT id FROM (SELECT * FROM STREAM orders__v3 WHERE ts >= 1) UNION ALL SELECT id FROM STREAM t__v9",
        ),
    ],
)
def test_a_version_that_starts_later_filters_its_stream_before_all_else(written: str, expected: str) -> None:
    (parsed,), problems = read_statements(f"INSERT INTO target {written}", "f.sql")
    assert problems == ()
    assert compile_select(parsed, PHYSICAL, {TableName("orders"): "ts >= 1", TableName("dim"): "x"}) == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("SELECT orders.id FROM orders", "SELECT orders.id FROM (SELECT * FROM STREAM orders__v3 WHERE a) AS orders"),
        (
            "SELECT id FROM orders WITH (maxFilesPerTrigger=1) WATERMARK ts DELAY OF INTERVAL 1 DAY o",
            "SELECT id FROM (SELECT * FROM STREAM orders__v3 WITH (maxFilesPerTrigger=1) WHERE a) "
            "WATERMARK ts DELAY OF INTERVAL 1 DAY o",
        ),
    ],
)
def test_tables_without_stream_are_streamed_too(written: str, expected: str) -> None:
    (parsed,), problems = read_statements(f"INSERT INTO target {written}", "f.sql", every_table_streams=True)
    assert problems == ()
    assert compile_select(parsed, PHYSICAL, {TableName("orders"): "a"}) == expected
