"""A version that begins at a time, on real Spark: earlier rows never arrive, later ones once, in whole windows."""

from typing import Any

import pytest

from core.model.names import TableName
from core.sql.compiler import compile_select
from core.sql.statement_reader import read_statements

pytestmark = pytest.mark.spark

FROM_30 = "ts >= TIMESTAMP '2026-01-01T00:00:30Z'"
"""Condition that selects half of the rows landed by `ground.land(60)`: a row for each second of a minute."""


def compiled(ground: Any, select: str) -> str:
    (parsed,), problems = read_statements(f"INSERT INTO t {select}", "f.sql")
    assert problems == ()
    return compile_select(parsed, {TableName("src"): ground.source}, {TableName("src"): FROM_30})


def test_rows_from_the_time_on_arrive_once_across_a_stop_and_an_edit(ground: Any) -> None:
    ground.table("t", "a BIGINT, b STRING")
    for n in range(4):
        ground.land(60, a=n)
        # The statement is edited after the first two files. The start condition stays, because it is not part of the
        # SQL.
        more = " WHERE length(src.b) = 2" if n > 1 else ""
        ground.start("t", compiled(ground, f"SELECT a, src.b FROM STREAM src WITH ('maxFilesPerTrigger'='1'){more}"))
        ground.until(lambda n=n: ground.files.read(ground.checkpoint("t")).batch == n)
        ground.queries.stop(ground.query("t"))
    counted = ground.tables.read(f"SELECT a, count(*) FROM t_{ground.mark}__v1 GROUP BY a ORDER BY a", 10)[1]
    assert counted == tuple((n, 30) for n in range(4))


@pytest.mark.drill
def test_every_window_from_the_start_time_on_is_complete(ground: Any) -> None:
    ground.table("t", "a BIGINT, b STRING")
    ground.land(60)
    windowed = (
        "SELECT count(*) AS a, date_format(window.start, 'ss') AS b FROM STREAM src "
        "WATERMARK ts DELAY OF INTERVAL 1 SECOND GROUP BY window(ts, '10 seconds')"
    )
    ground.start("t", compiled(ground, windowed))
    ground.until(lambda: ground.count(f"SELECT count(*) FROM t_{ground.mark}__v1") == 2)
    ground.queries.stop(ground.query("t"))
    assert ground.tables.read(f"SELECT b, a FROM t_{ground.mark}__v1 ORDER BY b", 10)[1] == (("30", 10), ("40", 10))


@pytest.mark.drill
def test_a_time_that_is_an_expression_is_filtered_below_the_watermark(ground: Any) -> None:
    ground.table("t", "a BIGINT, b STRING")
    ground.land(60)
    select = (
        "SELECT a, date_format(z, 'ss') AS b FROM STREAM src "
        "WATERMARK ts + INTERVAL 0 SECOND AS z DELAY OF INTERVAL 1 SECOND AS s"
    )
    ground.start("t", compiled(ground, select))
    ground.until(lambda: ground.count(f"SELECT count(*) FROM t_{ground.mark}__v1") == 30)
    assert ground.tables.read(f"SELECT min(b), max(b) FROM t_{ground.mark}__v1", 10)[1] == (("30", "59"),)
    ground.queries.stop(ground.query("t"))
