"""Lag measured from files against the truth on real Spark: rows landed minus rows written."""

import os
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark


def test_lag_equals_the_truth_for_a_stopped_and_a_running_statement(ground: Any) -> None:
    ground.table("parent")
    ground.table("child")
    ground.start("parent", f"SELECT a, b FROM STREAM {ground.source} WITH ('maxFilesPerTrigger'='1')")
    source = ("parent", ground.place("parent"), "parquet")
    for n in range(12):
        ground.land(10 + n)
    ground.until(lambda: ground.files.read(ground.checkpoint("parent")).batch == 11)
    total = sum(10 + n for n in range(12))
    ground.files.prepare(ground.checkpoint("child"), {})
    assert _figures(ground, source) == (12, total, True, total, 0)

    ground.start("child", f"SELECT a, b FROM STREAM parent_{ground.mark}__v1")
    ground.until(lambda: ground.lag("child", source)[0].files == 0)
    ground.queries.stop(ground.query("child"))
    assert ground.count(f"SELECT count(*) FROM child_{ground.mark}__v1") == total
    assert _figures(ground, source) == (0, 0, True, total, total)

    ground.land(7)
    ground.until(lambda: ground.files.read(ground.checkpoint("parent")).batch == 12)
    assert _figures(ground, source) == (1, 7, True, total + 7, total)


@pytest.mark.drill
def test_a_landing_of_lines_is_measured_in_files_exactly_and_in_rows_nearly(ground: Any) -> None:
    ground.table("t")
    for _ in range(3):
        ground.land(50)
    source = (ground.source, f"{ground.folder}/landing", "json")
    before = ground.lag("t", source)[0]
    assert (before.files, before.rows, before.exact, before.missing) == (3, 150, False, False)
    ground.start("t", f"SELECT a, b FROM STREAM {ground.source}")
    ground.until(lambda: ground.lag("t", source)[0].files == 0)
    after = ground.lag("t", source)[0]
    assert (after.rows, after.produced_rows, after.consumed_rows) == (0, 150, 150)


@pytest.mark.drill
def test_ordinals_of_a_join_and_a_union_follow_the_order_of_the_sql(ground: Any) -> None:
    for name in ("p", "q", "joined", "united"):
        ground.table(name, "a BIGINT, b STRING, ts TIMESTAMP")
    for name in ("p", "q"):
        ground.start(name, f"SELECT a, b, ts FROM STREAM {ground.source}")
    ground.land(10)
    for name in ("p", "q"):
        ground.until(lambda name=name: ground.files.read(ground.checkpoint(name)).batch == 0)
    mark = ground.mark
    joined = (
        f"SELECT x.a, y.b, y.ts FROM STREAM q_{mark}__v1 WATERMARK ts DELAY OF INTERVAL 1 MINUTE AS x "
        f"JOIN STREAM p_{mark}__v1 WATERMARK ts DELAY OF INTERVAL 1 MINUTE AS y ON x.ts = y.ts AND x.b = y.b"
    )
    united = f"SELECT a, b, ts FROM STREAM p_{mark}__v1 UNION ALL SELECT a, b, ts FROM STREAM {ground.source}"
    ground.start("joined", joined)
    ground.start("united", united)
    for name, sources in (("joined", ("q", "p")), ("united", ("p", ground.source))):
        ground.until(lambda name=name: ground.files.read(ground.checkpoint(name)).batch is not None)
        ground.queries.stop(ground.query(name))
        logs = [Path(f"{ground.checkpoint(name)}/sources/{n}/0").read_text() for n in (0, 1)]
        for log, source in zip(logs, sources, strict=True):
            place = f"{ground.folder}/landing/" if source == ground.source else f"{ground.place(source)}/"
            assert place in log, (name, source)


@pytest.mark.drill
def test_a_parent_moved_away_leaves_its_child_active_and_its_lag_missing(ground: Any) -> None:
    for name in ("parent", "child"):
        ground.table(name)
    ground.land(4)
    ground.start("parent", f"SELECT a, b FROM STREAM {ground.source}")
    child = ground.start("child", f"SELECT a, b FROM STREAM parent_{ground.mark}__v1", trigger="3 seconds")
    source = ("parent", ground.place("parent"), "parquet")
    ground.until(lambda: ground.files.read(ground.checkpoint("child")).batch == 0)
    ground.queries.stop(ground.query("parent"))
    ground.tables.forget(f"parent_{ground.mark}__v1")
    # A query that is listing the folder at this moment would fail.
    ground.until(lambda: ground.queries.refresh(child).waits)
    os.rename(ground.place("parent"), f"{ground.folder}/trash")
    assert ground.lag("child", source)[0].missing
    assert ground.query("child") in ground.mine() and ground.queries.ended() == ()


def test_a_child_of_a_partitioned_parent_has_no_lag_when_all_is_read(ground: Any) -> None:
    ground.table("parent", "a BIGINT, b STRING", partitioned="b")
    ground.table("child")
    ground.land(9)
    ground.start("parent", f"SELECT a, b FROM STREAM {ground.source}")
    source = ("parent", ground.place("parent"), "parquet")
    ground.until(lambda: ground.files.read(ground.checkpoint("parent")).batch == 0)
    ground.files.prepare(ground.checkpoint("child"), {})
    assert _figures(ground, source)[:3] == (3, 9, True)
    ground.start("child", f"SELECT a, b FROM STREAM parent_{ground.mark}__v1")
    ground.until(lambda: ground.lag("child", source)[0].files == 0)
    assert ground.count(f"SELECT count(*) FROM child_{ground.mark}__v1") == 9


def _figures(ground: Any, source: tuple[str, str, str]) -> tuple[object, ...]:
    found = ground.lag("child", source)[0]
    assert not found.missing
    return found.files, found.rows, found.exact, found.produced_rows, found.consumed_rows
