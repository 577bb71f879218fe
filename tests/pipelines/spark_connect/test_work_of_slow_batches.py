"""Why batches on a real server are slow: skewed rows, memory that is short, and a slow store, by their sentences."""

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql.connect.dataframe import DataFrame
from pyspark.sql.connect.session import SparkSession

from core.lag.slowness import BATCHES, Slowness, is_slow, why_slow
from core.model.errors import PoolUnreachable
from core.observed.spark_work import StageTimes
from core.project.model import Pool
from core.text.sentence import Fact
from pipelines.local_pool.connect_server import LocalPool
from pipelines.spark_connect.query_progress import query_progress_from_json
from pipelines.spark_connect.session import Session, endless

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

SLOW_FILES = """
import java.io.IOException;
import org.apache.hadoop.fs.*;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

public class SlowFiles extends RawLocalFileSystem {
  public java.net.URI getUri() { return java.net.URI.create("slow:///"); }
  private FSDataOutputStream slow(final FSDataOutputStream out) throws IOException {
    return new FSDataOutputStream(out, null) {
      public void close() throws IOException {
        try { Thread.sleep(1500); } catch (InterruptedException e) { throw new IOException(e); }
        super.close();
      }
    };
  }
  public FSDataOutputStream create(Path f, boolean overwrite, int size, short r, long block, Progressable p)
      throws IOException {
    FSDataOutputStream out = super.create(f, overwrite, size, r, block, p);
    return f.getName().startsWith("part-") ? slow(out) : out;
  }
  public FSDataOutputStream create(Path f, FsPermission m, boolean overwrite, int size, short r, long block,
      Progressable p) throws IOException {
    FSDataOutputStream out = super.create(f, m, overwrite, size, r, block, p);
    return f.getName().startsWith("part-") ? slow(out) : out;
  }
}
"""
"""A file system of Hadoop that takes 1.5 s to close a data file."""

CONF = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.join.preferSortMergeJoin": "true",
    # 1 GB of heap then leaves 22 MB for sorting.
    "spark.memory.fraction": "0.03",
    "spark.hadoop.fs.slow.impl": "SlowFiles",
}
CORES = 2


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalPool, SparkSession]]:
    """A server with two cores, little memory for sorting, and a slow file system."""
    classes = tmp_path_factory.mktemp("classes")
    (classes / "SlowFiles.java").write_text(SLOW_FILES)
    jars = Path(pyspark.__file__).parent / "jars"
    subprocess.run(["javac", "-cp", f"{jars}/*", "-d", classes, classes / "SlowFiles.java"], check=True)
    conf = tuple({**CONF, "spark.driver.extraClassPath": str(classes)}.items())
    pool = LocalPool(tmp_path_factory.mktemp("home"), Pool(cores=CORES, memory="1g", conf=conf))
    pool.start()
    try:
        pool.ready()
        session = Session(pool.url, pool.token, "33333333-3333-4333-8333-333333333333", lost=lambda lost: None)
        session.call(60.0, session.attach)
        with endless():
            yield pool, session.spark
    finally:
        pool.end()


def reason(
    server: tuple[LocalPool, SparkSession],
    tmp_path: Path,
    query: Callable[[DataFrame], DataFrame],
    *,
    rows: int = 1_000_000,
    scheme: str = "",
) -> tuple[Fact[Slowness] | None, list[dict[str, Any]]]:
    """Run a statement over four files of `rows` rows, one in each batch, and return why it is slow."""
    pool, spark = server
    source = tmp_path / "in"
    for _ in range(4):
        spark.range(0, rows, 1, 1).write.mode("append").parquet(str(source))
    stream = spark.readStream.schema("id LONG").option("maxFilesPerTrigger", 1).parquet(str(source))
    writer = query(stream).writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    running = writer.trigger(processingTime="1 second").start(f"{scheme}{tmp_path}/out", format="parquet")
    try:
        ends_at = time.monotonic() + 300.0
        while (running.lastProgress or {}).get("batchId", -1) < 3:
            assert time.monotonic() < ends_at and running.exception() is None
            running.processAllAvailable()
        progress = [dict(each) for each in running.recentProgress]
        found = (query_progress_from_json(each).times for each in progress)
        batches = tuple(each for each in found if each is not None)[-BATCHES:]
        stages = stages_of(pool, str(running.runId))
    finally:
        running.stop()
    assert is_slow(batches, trigger_s=1.0, bound_s=30.0, behind_s=None), progress
    return why_slow(batches, trigger_s=1.0, cores=CORES, stages=stages), progress


def stages_of(pool: LocalPool, run_id: str) -> tuple[StageTimes, ...]:
    """Read the stages of a run; the first answers of a server may be late."""
    for left in range(5, -1, -1):
        try:
            assert pool.ui is not None
            return pool.ui.stages(run_id)
        except PoolUnreachable:
            if not left:
                raise
    raise AssertionError("the last attempt returns or raises")


def told(found: tuple[Fact[Slowness] | None, list[dict[str, Any]]]) -> Fact[Slowness]:
    fact, progress = found
    assert fact is not None, progress
    print(f"\n{fact}; {fact.remedy}")
    return fact


def test_a_key_with_most_of_the_rows_is_found(server: tuple[LocalPool, SparkSession], tmp_path: Path) -> None:
    def skewed(stream: DataFrame) -> DataFrame:
        keys = stream.selectExpr("IF(id % 50 = 0, id % 997, 1) AS k", "id")
        work = "aggregate(sequence(1, 60), 0L, (a, x) -> a + x * id % 7) AS work"
        # Spark would filter before it distributes the rows, unless the condition is random.
        return keys.repartition("k").selectExpr("k", "id", work).where("work % 100000 = 1 + 0 * rand()")

    fact = told(reason(server, tmp_path, skewed, rows=300_000))
    assert fact.kind is Slowness.SKEW
    assert "one of 8 tasks" in str(fact)


def test_memory_that_is_short_is_found(server: tuple[LocalPool, SparkSession], tmp_path: Path) -> None:
    _, spark = server

    def joined(stream: DataFrame) -> DataFrame:
        wide = stream.selectExpr("id", "repeat(sha2(CAST(id AS STRING), 512), 2) AS text")
        # Both sides are sorted by id, before the rows are filtered, because the condition is random.
        return wide.join(spark.range(1_000_000), "id").where("text > 'ff' || CAST(rand() AS STRING)")

    fact = told(reason(server, tmp_path, joined))
    assert fact.kind is Slowness.SPILL


def test_a_slow_store_is_found(server: tuple[LocalPool, SparkSession], tmp_path: Path) -> None:
    fact = told(reason(server, tmp_path, lambda stream: stream.repartition(8), rows=1000, scheme="slow://"))
    assert fact.kind is Slowness.WRITING


def test_work_without_any_of_these_is_only_work(server: tuple[LocalPool, SparkSession], tmp_path: Path) -> None:
    def computed(stream: DataFrame) -> DataFrame:
        work = "aggregate(sequence(1, 60), 0L, (a, x) -> a + x * id % 7) AS work"
        return stream.repartition(8).selectExpr("id", work).where("work % 100000 = 1")

    fact = told(reason(server, tmp_path, computed, rows=300_000))
    assert fact.kind is Slowness.COMPUTING
