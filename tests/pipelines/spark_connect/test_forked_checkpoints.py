"""Forked and seeded checkpoints on real Spark: every row exactly once in the new version, even past a compaction."""

import json
import os
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from core.ports.spark import QueryStart
from core.ports.storage import OriginRows, VersionFolders
from pipelines.local_pool.connect_server import LocalPool
from pipelines.spark_connect.session import Session
from pipelines.spark_connect.streaming_queries import SparkQueries
from pipelines.storage.file_stream_logs import local_path

pytestmark = pytest.mark.spark
PROVIDERS = {
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
NOTE = {"run": "7f3a"}
_OTHERS = (OriginRows.INSIDE, OriginRows.BEFORE)
COUNTED = (
    "SELECT b, count(*) AS a FROM STREAM {} WITH ('maxFilesPerTrigger'='1') WATERMARK ts DELAY OF INTERVAL 5 MINUTES "
    "AS s GROUP BY window(ts, '20 minutes'), b"
)
LANDED_S = int(time.time()) - 3600


def folders(ground: Any, name: str) -> VersionFolders:
    return VersionFolders(ground.place(name), ground.checkpoint(name))


def ready(ground: Any, name: str, columns: str = "a BIGINT, b STRING", partitioned: str = "") -> None:
    """Create a table and its checkpoint, as a run creates a version."""
    for folder in (ground.place(name), ground.checkpoint(name)):
        ground.files.prepare(folder, NOTE)
    ground.table(name, columns, partitioned)


def start(ground: Any, name: str, select: str, queries: Any = None, *, trigger: str = "0 seconds") -> None:
    physical = f"{name}_{ground.mark}__v1"
    parts, checkpoint = ground.parts.get(name, ()), ground.checkpoint(name)
    given = QueryStart(ground.query(name), select, physical, "parquet", checkpoint, trigger, partitioned_by=parts)
    (queries or ground.queries).start(given)


def land(ground: Any, first: int, last: int, *, each: int = 2) -> None:
    """Land rows numbered from `first` up to but not including `last`, `each` per file, a minute of event time apart."""
    for number in range(first, last, each):
        hidden = ground.folder / "landing" / ".hidden"
        rows = (
            {"a": n, "b": f"b{n % 3}", "ts": f"2026-01-01T{n // 60:02d}:{n % 60:02d}:00Z"}
            for n in range(number, number + each)
        )
        hidden.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        # Spark reads files by age, so rows arrive in order and none of them is late.
        os.utime(hidden, (LANDED_S + number, LANDED_S + number))
        os.rename(hidden, ground.folder / "landing" / f"f {number:06d}.json")


def read(ground: Any, name: str, columns: str = "a") -> list[tuple[object, ...]]:
    return list(ground.tables.read(f"SELECT {columns} FROM {name}_{ground.mark}__v1", 10_000)[1])


def numbers(ground: Any, name: str) -> Counter[object]:
    return Counter(row[0] for row in read(ground, name))


def committed(ground: Any, name: str) -> int:
    found = ground.files.read(ground.checkpoint(name))
    return -1 if found is None or found.batch is None else found.batch


def behind(ground: Any, name: str) -> int:
    """Return the number of landed files that are not read yet."""
    return int(ground.lag(name, ("in", f"{ground.folder}/landing", "json"))[0].files)


@pytest.mark.drill
@pytest.mark.parametrize("rows", [OriginRows.LEFT, *(pytest.param(rows, marks=pytest.mark.drill) for rows in _OTHERS)])
def test_every_row_is_once_in_the_new_version_or_before_it(ground: Any, rows: OriginRows) -> None:
    """The origin continues while it is forked, and both sink logs are compacted at batches 9 and 19."""
    one_by_one = "WITH ('maxFilesPerTrigger'='1')"
    land(ground, 0, 30)
    ready(ground, "old")
    start(ground, "old", f"SELECT a, b FROM STREAM {ground.source} {one_by_one}")
    ground.until(lambda: committed(ground, "old") >= 6)
    ready(ground, "new", "a BIGINT, b STRING, c STRING", "b" if rows is not OriginRows.INSIDE else "")
    cut = ground.files.fork(folders(ground, "old"), folders(ground, "new"), NOTE, rows=rows)
    assert cut.batch is not None and 6 <= cut.batch < 14
    start(ground, "new", f"SELECT a, b, 'new' AS c FROM STREAM {ground.source} {one_by_one}")
    land(ground, 30, 50)
    ground.until(lambda: behind(ground, "new") == 0 == behind(ground, "old"))
    assert ground.files.read(ground.checkpoint("new")).id == cut.id
    assert numbers(ground, "old") == Counter(range(50))
    origin = [local_path(file.path) for file in ground.files.source_position(ground.place("old"), upto=cut.batch)]
    after = set(range(50)) - {n for path in origin for n in pyarrow.parquet.read_table(path)["a"].to_pylist()}
    assert len(after) == 50 - 2 * (cut.batch + 1)
    if rows is OriginRows.INSIDE:
        assert numbers(ground, "new") == Counter(range(50))
        assert {n for n, c in read(ground, "new", "a, c") if c == "new"} == after
    else:
        assert numbers(ground, "new") == Counter(after)
    if rows is OriginRows.BEFORE:
        before = f"before_{ground.mark}"
        ground.tables.create(
            before,
            f"CREATE TABLE IF NOT EXISTS {before} (a BIGINT, b STRING) USING parquet "
            f"LOCATION '{folders(ground, 'new').before}'",
        )
        union = f"SELECT a FROM {before} UNION ALL SELECT a FROM new_{ground.mark}__v1"
        found = ground.tables.read(union, 1000)[1]
        assert Counter(row[0] for row in found) == Counter(range(50))
    newest = max(
        int(p.name.removesuffix(".compact")) for p in Path(ground.place("new"), "_spark_metadata").glob("[0-9]*")
    )
    assert newest >= 20


@pytest.mark.drill
@pytest.mark.long
@pytest.mark.parametrize("provider", ["hdfs", "rocksdb"])
def test_a_forked_state_counts_on_as_the_old_one_does(ground: Any, pool: LocalPool, provider: str) -> None:
    """An aggregate keeps its windows across the fork, so both versions end with the same rows."""
    conf = {"spark.sql.streaming.stateStore.providerClass": PROVIDERS[provider]}
    session = Session(pool.url, pool.token, str(uuid.uuid4()), conf=conf)
    session.attach()
    queries = SparkQueries(session)
    select = COUNTED.format(ground.source)
    land(ground, 0, 60, each=4)
    ready(ground, "old", "b STRING, a BIGINT")
    try:
        start(ground, "old", select, queries)
        ground.until(lambda: committed(ground, "old") >= 7)
        ready(ground, "new", "b STRING, a BIGINT")
        cut = ground.files.fork(folders(ground, "old"), folders(ground, "new"), NOTE, rows=OriginRows.INSIDE)
        start(ground, "new", f"{select} HAVING count(*) > 0", queries)
        land(ground, 60, 120, each=4)
        ground.until(lambda: behind(ground, "new") == 0 == behind(ground, "old"))
        ground.until(lambda: len(read(ground, "new", "b, a")) == len(read(ground, "old", "b, a")) >= 15)
        assert cut.batch is not None
        assert sorted(read(ground, "new", "b, a")) == sorted(read(ground, "old", "b, a"))
    finally:
        for name in ("old", "new"):
            queries.stop(ground.query(name))
        session.close()


def test_a_seeded_version_holds_only_later_rows(ground: Any) -> None:
    """Seeded from a plain folder and from a table of another query; the first new batch pins its own settings."""
    land(ground, 0, 10)
    ready(ground, "above")
    start(ground, "above", f"SELECT a, b FROM STREAM {ground.source}")
    ground.until(lambda: committed(ground, "above") >= 0 and behind(ground, "above") == 0)
    for name, source, folder in (
        ("plain", ground.source, f"{ground.folder}/landing"),
        ("table", f"above_{ground.mark}__v1", ground.place("above")),
    ):
        ready(ground, name)
        cut = ground.files.create_checkpoint_after(folders(ground, name), (ground.files.source_position(folder),), NOTE)
        assert cut.batch is None
        start(ground, name, f"SELECT a, b FROM STREAM {source} WITH ('maxFilesPerTrigger'='1')")
    ready(ground, "counted", "b STRING, a BIGINT")
    ground.files.create_checkpoint_after(
        folders(ground, "counted"), (ground.files.source_position(f"{ground.folder}/landing"),), NOTE
    )
    start(ground, "counted", COUNTED.format(ground.source))
    land(ground, 10, 40)
    ground.until(lambda: numbers(ground, "plain").total() >= 30 and numbers(ground, "table").total() >= 30)
    assert numbers(ground, "plain") == Counter(range(10, 40)) == numbers(ground, "table")
    # A window of 20 minutes closes once a row arrives 5 minutes after its end; no window contains rows from before the
    # seed.
    ground.until(lambda: len(read(ground, "counted")) == 3)
    assert sorted(read(ground, "counted", "b, a")) == [("b0", 3), ("b1", 4), ("b2", 3)]
    offsets = Path(ground.checkpoint("plain"), "offsets/1").read_text().split("\n")
    assert "spark.sql.streaming.stateStore.providerClass" in json.loads(offsets[1])["conf"]
