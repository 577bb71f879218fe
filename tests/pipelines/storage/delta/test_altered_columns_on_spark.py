"""Delta columns that are widened, renamed or dropped: Spark's behavior, and the contents of the log."""

from typing import Any

import pytest

from core.model.errors import EngineRefused
from core.model.names import TableName
from core.model.states import TableFaultKind
from core.sql.statement import AT_VERSION, LogStart

pytestmark = [pytest.mark.spark, pytest.mark.drill]

WIDENING = "delta.enableTypeWidening"


def ended(lake: Any, **selects: str) -> dict[str, str]:
    """Let queries read everything available, and return each one's error class, or ""."""
    started = {table: lake.start(table, select, trigger="available now") for table, select in selects.items()}
    names = {query.name for query in started.values()}
    lake.until(lambda: not names & lake.mine().keys())
    classes = {query.run_id: query.error_class for query in lake.queries.ended()}
    return {table: classes.get(query.run_id, "") for table, query in started.items()}


def distinct(lake: Any, table: str) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = lake.sql(f"SELECT count(*), count(DISTINCT id), max(v) FROM {lake.name(table)}")
    return found


@pytest.mark.long
def test_a_wider_type_ends_a_reader_at_once_and_no_row_is_lost_or_repeated(lake: Any) -> None:
    name = lake.table("p", "id BIGINT, v INT")
    lake.sql(f"INSERT INTO {name} SELECT id, int(id) FROM range(0, 4, 1, 4)")
    select, columns = f"SELECT id, v FROM STREAM {name}", "id BIGINT, v BIGINT"
    thin = f"{select} WITH ('maxFilesPerTrigger'='1')"
    for table in ("ran", "stood", "within"):
        lake.table(table, columns)
        lake.start(table, thin if table == "within" else select, trigger="1 second")
    lake.until(lambda: lake.batch("within") is not None)
    lake.queries.stop(lake.query("within"))
    lake.until(lambda: lake.batch("ran") == 0 and lake.batch("stood") == 0)
    lake.queries.stop(lake.query("stood"))
    lake.sql(f"INSERT INTO {name} VALUES (10, 10)")
    lake.tables.widen_columns(name, (("id", "bigint"), ("v", "bigint")), WIDENING)
    lake.until(lambda: not lake.mine())
    assert (
        "DELTA_SCHEMA_CHANGED" in {found.name: found.error_class for found in lake.queries.ended()}[lake.query("ran")]
    )
    lake.tables.widen_columns(name, (("id", "bigint"), ("v", "bigint")), WIDENING)
    lake.sql(f"INSERT INTO {name} VALUES (20, 5000000000)")
    lake.table("began", columns)
    assert set(ended(lake, ran=select, stood=select, within=thin, began=select).values()) == {""}
    for table in ("ran", "stood", "within", "began"):
        assert distinct(lake, table) == [(6, 6, 5000000000)], table
    with pytest.raises(EngineRefused):
        lake.tables._run(f"ALTER TABLE {name} ALTER COLUMN v TYPE INT")


@pytest.mark.long
def test_a_narrower_column_refuses_what_is_too_large_and_rounds_what_is_too_fine(lake: Any) -> None:
    name = lake.table("p", "id INT, v INT, d DECIMAL(10,2), f FLOAT")
    lake.table("c", "id INT, v INT")
    lake.table("r", "id INT, d DECIMAL(10,2), f FLOAT")
    lake.tables.widen_columns(name, (("v", "bigint"), ("d", "decimal(12,4)"), ("f", "double")), WIDENING)
    lake.sql(f"INSERT INTO {name} VALUES (1, 5000000000, 1.2345, 1.000000001D)")
    found = ended(lake, c=f"SELECT id, v FROM STREAM {name}", r=f"SELECT id, d, f FROM STREAM {name}")
    assert found == {"c": "CAST_OVERFLOW_IN_TABLE_INSERT", "r": ""}
    assert lake.count("c") == 0
    assert lake.sql(f"SELECT string(d), string(f) FROM {lake.name('r')}") == [("1.23", "1.0")]


@pytest.mark.long
def test_a_state_that_holds_a_column_does_not_take_its_wider_type(lake: Any) -> None:
    name = lake.table("p", "id BIGINT, v INT, ts TIMESTAMP")
    lake.sql(f"INSERT INTO {name} SELECT id, int(id), TIMESTAMP'2026-01-01 00:00:00' FROM range(4)")
    of, keys = f"FROM STREAM {name} WATERMARK ts DELAY OF INTERVAL 1 HOUR", "window(ts, '1 second')"
    selects = {
        "key": f"SELECT v AS id, count(*) AS v {of} GROUP BY v, {keys}",
        "largest": f"SELECT id, max(v) AS v {of} GROUP BY id, {keys}",
        "other": f"SELECT id, count(*) AS v {of} GROUP BY id, {keys}",
    }
    for table in selects:
        lake.table(table, "id BIGINT, v BIGINT")
    assert set(ended(lake, **selects).values()) == {""}
    lake.tables.widen_columns(name, (("v", "bigint"),), WIDENING)
    lake.sql(f"INSERT INTO {name} VALUES (5, 5, TIMESTAMP'2026-01-01 03:00:00')")
    assert ended(lake, **selects) == {
        "key": "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
        "largest": "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
        "other": "",
    }


@pytest.mark.long
def test_a_state_that_holds_a_star_does_not_take_an_added_column(lake: Any) -> None:
    name = lake.table("p", "id BIGINT, v INT, ts TIMESTAMP")
    lake.sql(f"INSERT INTO {name} VALUES (1, 1, TIMESTAMP'2026-01-01 00:00:00')")
    of = f"FROM STREAM {name} WATERMARK ts DELAY OF INTERVAL 1 HOUR"
    selects = {
        "star": f"SELECT DISTINCT * {of}",
        "below": f"SELECT id FROM (SELECT DISTINCT * {of})",
        "named": f"SELECT id, v FROM (SELECT DISTINCT id, v, ts {of})",
    }
    for table in selects:
        lake.table(table, "id BIGINT, v INT, ts TIMESTAMP")
    assert set(ended(lake, **selects).values()) == {""}
    for table in ("p", "star"):
        lake.sql(f"ALTER TABLE {lake.name(table)} ADD COLUMN more INT")
    lake.sql(f"INSERT INTO {name} VALUES (5, 5, TIMESTAMP'2026-01-01 03:00:00', 5)")
    refused = "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE"
    assert ended(lake, **selects) == {"star": refused, "below": refused, "named": ""}


@pytest.mark.long
def test_a_static_side_with_a_wider_type_ends_its_reader_and_a_pointer_casts_until_it_is_moved(lake: Any) -> None:
    name, side = lake.table("p", "id BIGINT, v BIGINT"), lake.table("s", "id BIGINT, v INT")
    pointer = f"pointer_{lake.mark}"
    lake.tables.point(pointer, (side,), ("id", "v"))
    lake.table("c", "id BIGINT, v BIGINT")
    for table in (name, side):
        lake.sql(f"INSERT INTO {table} VALUES (1, 1)")
    select = f"SELECT p.id, s.v FROM STREAM {name} p JOIN {side} s ON p.id = s.id"
    lake.start("c", select, trigger="500 milliseconds")
    lake.until(lambda: lake.batch("c") == 0)
    lake.tables.widen_columns(side, (("v", "bigint"),), WIDENING)
    lake.sql(f"INSERT INTO {side} VALUES (2, 5000000000)")
    lake.sql(f"INSERT INTO {name} VALUES (2, 2)")
    lake.until(lambda: not lake.mine())
    (found,) = [query for query in lake.queries.ended() if query.name == lake.query("c")]
    assert found.error_class == "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS"
    assert found.error == "columns of its static side were changed by hand: a start reads them as they are now"
    assert ended(lake, c=select) == {"c": ""} and distinct(lake, "c") == [(2, 2, 5000000000)]
    with pytest.raises(EngineRefused) as refused:
        lake.tables.read(f"SELECT * FROM {pointer}", 9)
    assert refused.value.error_class == "CAST_OVERFLOW"
    lake.tables.point(pointer, (side,), ("id", "v"))
    assert sorted(lake.tables.read(f"SELECT v FROM {pointer}", 9)[1]) == [(1,), (5000000000,)]


@pytest.mark.long
def test_spark_reports_a_missing_column_of_a_static_side_at_the_next_batch_and_at_a_start(lake: Any) -> None:
    name = lake.table("p", "id BIGINT, v BIGINT")
    side = lake.table("s", "id BIGINT, v INT", "USING delta TBLPROPERTIES ('delta.columnMapping.mode'='name')")
    lake.table("c", "id BIGINT, v INT")
    for table in (name, side):
        lake.sql(f"INSERT INTO {table} VALUES (1, 1)")
    select = f"SELECT p.id, s.v FROM STREAM {name} p JOIN {side} s ON p.id = s.id"
    lake.start("c", select, trigger="500 milliseconds")
    lake.until(lambda: lake.batch("c") == 0)
    lake.sql(f"ALTER TABLE {side} RENAME COLUMN v TO x")
    assert set(lake.files.columns(lake.place("s"), "delta")) == {"id", "x"}
    lake.sql(f"INSERT INTO {name} VALUES (2, 2)")
    lake.until(lambda: not lake.mine())
    (found,) = [query for query in lake.queries.ended() if query.name == lake.query("c")]
    assert found.error_class == "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS"
    with pytest.raises(EngineRefused) as refused:
        lake.start("c", select, trigger="available now")
    assert refused.value.error_class.startswith("UNRESOLVED_COLUMN")


@pytest.mark.long
def test_a_column_that_is_renamed_or_dropped_ends_its_readers_at_every_start(lake: Any) -> None:
    mapped = "USING delta TBLPROPERTIES ('delta.columnMapping.mode'='name')"
    names = {table: lake.table(table, "id BIGINT, v BIGINT, w BIGINT", mapped) for table in ("p", "q")}
    selects = {}
    for table, name in names.items():
        lake.sql(f"INSERT INTO {name} VALUES (1, 1, 1)")
        selects[f"{table}_c"] = f"SELECT id, v FROM STREAM {name}"
        lake.table(f"{table}_c", "id BIGINT, v BIGINT")
    assert set(ended(lake, **selects).values()) == {""}
    lake.start("p_c", selects["p_c"], trigger="500 milliseconds")
    lake.sql(f"ALTER TABLE {names['p']} RENAME COLUMN w TO x")
    lake.sql(f"ALTER TABLE {names['q']} DROP COLUMN w")
    lake.until(lambda: not lake.mine())
    (running,) = [found for found in lake.queries.ended() if found.name == lake.query("p_c") and found.error]
    assert "was renamed or dropped by hand" in running.error
    lake.sql(f"ALTER TABLE {names['p']} RENAME COLUMN x TO w")
    always = "DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE_USE_SCHEMA_LOG"
    assert ended(lake, **selects) == dict.fromkeys(selects, always), "also where it has its name again"
    for table, what in (("p", "column w was renamed to x"), ("q", "column w was dropped")):
        given = ((0, table, lake.place(table), "delta"),)
        (about, fault) = lake.files.source_fault(lake.checkpoint(f"{table}_c"), given)
        assert about == table and f"has changed since version 2: its {what}" in fault.why
        assert fault.kind is TableFaultKind.STREAM_COLUMNS_CHANGED
    begun = f"SELECT id, v FROM STREAM {names['q']} WITH ('startingVersion'='1')"
    lake.table("late", "id BIGINT, v BIGINT")
    assert ended(lake, late=begun) == {"late": always}
    assert "its column w was dropped in version 2" in lake.files.why_not_from(
        lake.place("q"), "delta", LogStart(TableName("q"), AT_VERSION, "1"), takes_changes=False
    )
