"""OPTIMIZE and VACUUM on real Spark: what the log records, and what a vacuum deletes with which readers."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from core.model.errors import EngineRefused
from core.ports.storage import Upkeep

pytestmark = [pytest.mark.spark, pytest.mark.drill]

AT_ONCE = "USING delta TBLPROPERTIES ('delta.deletedFileRetentionDuration'='interval 0 hours')"


def many_files(lake: Any, table: str, commits: int = 3, rest: str = AT_ONCE) -> str:
    """Create a table with `commits` versions of two small files each."""
    name: str = lake.table(table, rest=rest)
    for n in range(commits):
        lake.insert(table, 4, files=2, at=10 * n)
    return name


def data_files(lake: Any, table: str) -> int:
    return len(list(Path(lake.place(table), "delta").glob("part-*.parquet")))


def unread(lake: Any, child: str, parent: str, **more: Any) -> int | None:
    source = (0, parent, lake.place(parent), "delta")
    found: int | None = lake.files.unread_before(lake.checkpoint(child), source, time.time() + 1, **more)
    return found


@pytest.mark.long
def test_the_log_records_the_results_of_optimize_and_vacuum(lake: Any) -> None:
    name, place = many_files(lake, "p"), lake.place("p")
    assert lake.files.kept_h(place, "delta") == 0.0 and lake.files.upkeep(f"{place}/delta", "OPTIMIZE", "t") is None
    lake.upkeep.optimize(name, "t")
    assert lake.files.upkeep(f"{place}/delta", "OPTIMIZE", "t") == Upkeep(6, 1)
    assert lake.files.upkeep(f"{place}/delta", "OPTIMIZE", "another") is None
    head = lake.files.log_mark(f"{place}/delta").version
    lake.upkeep.optimize(name, "t")
    assert lake.files.log_mark(f"{place}/delta").version == head, "twice is once"
    assert data_files(lake, "p") == 7 and lake.files.upkeep(f"{place}/delta", "VACUUM", "v") is None
    lake.upkeep.vacuum(name, "0", "v")
    assert lake.files.upkeep(f"{place}/delta", "VACUUM", "v") == Upkeep(6) and data_files(lake, "p") == 1
    assert lake.count("p") == 12 and lake.files.contents(place, "delta").small_files == 1
    lake.insert("p", 4, files=2, at=100)
    lake.upkeep.optimize(f"{place}/delta", "by its folder")
    assert lake.files.upkeep(f"{place}/delta", "OPTIMIZE", "by its folder") == Upkeep(3, 1)
    lake.upkeep.vacuum(f"{place}/delta", "", "by its folder")
    assert lake.files.upkeep(f"{place}/delta", "VACUUM", "by its folder") == Upkeep(3) and data_files(lake, "p") == 1


def test_a_limit_of_rows_per_file_that_a_pool_has_for_its_streams_does_not_hold_for_optimize(
    lake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, beside = many_files(lake, "p", 1), lake.session.another_session

    def limited(session_id: str, *, conf: Any) -> Any:
        return beside(session_id, conf={"spark.sql.files.maxRecordsPerFile": "1", **conf})

    monkeypatch.setattr(lake.session, "another_session", limited)
    lake.upkeep.optimize(name, "t")
    assert lake.files.upkeep(f"{lake.place('p')}/delta", "OPTIMIZE", "t") == Upkeep(2, 1)


def test_upkeep_respects_the_retention_that_spark_alone_would_ignore(lake: Any) -> None:
    name = many_files(lake, "q", 1)
    lake.upkeep.optimize(name, "t")
    lake.upkeep.vacuum(name, "1", "t")
    assert lake.files.upkeep(f"{lake.place('q')}/delta", "VACUUM", "t") == Upkeep(0), "they are younger than an hour"
    lake.sql(f"VACUUM {name} RETAIN 1 HOURS")
    assert lake.files.upkeep(f"{lake.place('q')}/delta", "VACUUM", "") == Upkeep(2), (
        "by default RETAIN means nothing but 0"
    )
    name = many_files(lake, "p", 1, "USING delta")
    assert lake.files.kept_h(lake.place("p"), "delta") == 168.0
    with pytest.raises(EngineRefused) as refused:
        lake.upkeep.vacuum(name, "167", "t")
    assert refused.value.error_class == "DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT"


@pytest.mark.long
def test_a_vacuum_deletes_what_a_stopped_reader_has_still_to_read_unless_it_waits(lake: Any) -> None:
    name = many_files(lake, "p", 2)
    lake.table("c")
    select = f"SELECT id, v FROM STREAM {name}"
    assert unread(lake, "c", "p") is None, "before its first batch it reads what there is then"
    lake.run("c", select)
    assert unread(lake, "c", "p") is None
    lake.insert("p", 4, files=2, at=100)
    assert unread(lake, "c", "p") is None, "nothing of it was replaced"
    lake.upkeep.optimize(name, "t")
    assert unread(lake, "c", "p") == 3
    source = (0, "p", lake.place("p"), "delta")
    assert lake.files.unread_before(lake.checkpoint("c"), source, time.time() - 3600) is None, "not yet its time"
    lake.run("c", select)
    assert unread(lake, "c", "p") is None
    lake.upkeep.vacuum(name, "0", "t")
    lake.insert("p", 1, at=200)
    lake.run("c", select)
    assert lake.count("c") == 13, "it goes on over what was optimized and vacuumed, and nothing twice"


@pytest.mark.long
def test_files_of_an_initial_snapshot_that_was_read_in_part_are_still_to_be_read(lake: Any) -> None:
    name = many_files(lake, "p", 3)
    lake.table("c")
    query = lake.start("c", f"SELECT id, v FROM STREAM {name} WITH ('maxFilesPerTrigger'='1')", trigger="1 hour")
    lake.until(lambda: lake.batch("c") == 0)
    lake.queries.stop(query.name)
    assert unread(lake, "c", "p") is None
    lake.upkeep.optimize(name, "t")
    assert unread(lake, "c", "p") == 3, "the version that its first batches read"


@pytest.mark.long
def test_an_optimize_that_is_ended_has_changed_nothing(lake: Any) -> None:
    name, place = many_files(lake, "p", 6), lake.place("p")
    before, head, over = lake.count("p"), lake.files.log_mark(f"{place}/delta").version, threading.Event()

    def end() -> None:
        while not over.wait(0.05):
            lake.upkeep.cancel("mine")

    thread = threading.Thread(target=end)
    thread.start()
    try:
        with pytest.raises(EngineRefused):
            lake.upkeep.optimize(name, "mine")
    finally:
        over.set()
        thread.join()
    assert lake.files.log_mark(f"{place}/delta").version == head
    lake.upkeep.optimize(name, "mine")
    assert lake.files.log_mark(f"{place}/delta").version == head + 1 and lake.count("p") == before


@pytest.mark.long
def test_a_merge_fails_if_its_files_are_rewritten_meanwhile(lake: Any) -> None:
    name = many_files(lake, "p", 2)
    slow = (
        "SELECT id, coalesce(java_method('java.lang.Thread', 'sleep', id * 0 + 2500), 'x') AS v FROM range(0, 1, 1, 1)"
    )
    said: list[Exception] = []

    def merge() -> None:
        try:
            lake.sql(f"MERGE INTO {name} t USING ({slow}) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET t.v = s.v")
        except Exception as error:
            said.append(error)

    thread = threading.Thread(target=merge)
    thread.start()
    while thread.is_alive() and not said:
        lake.upkeep.optimize(name, "t")
        lake.insert("p", 1, at=500)
    thread.join()
    assert "CONCURRENT" in str(said), "so that a keyed statement stands still for OPTIMIZE"
