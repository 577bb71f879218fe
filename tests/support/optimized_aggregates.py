"""Compares the aggregates that remain in Spark's optimized plans with our classification of the edit."""

import re
import uuid
from types import TracebackType
from typing import Any, Self

from pyspark.errors import PySparkException
from random_aggregate_conditions import CALLS, COLUMNS
from revision_pairs import YML

from core.changes.classification import classify
from core.model.actions import Action
from core.model.names import TableName
from core.project.model import Settings
from core.project.revision import RevisionTexts
from core.project_reader.revision_reader import read_revision
from pipelines.local_pool.connect_server import LocalPool
from pipelines.spark_connect.session import Session

_STREAMED = re.compile(r"STREAM a WATERMARK ts DELAY OF INTERVAL 10 MINUTES")
_DDL = "CREATE TABLE t (k STRING, n0 BIGINT, n1 BIGINT) USING parquet;"


class OptimizedAggregates:
    """A session in which Spark optimizes statements over the table `a` without running them."""

    def __init__(self, pool: LocalPool) -> None:
        self._session = Session(pool.url, pool.token, str(uuid.uuid4()))
        self._database = f"optimized_{uuid.uuid4().hex[:8]}"

    def __enter__(self) -> Self:
        self._session.attach()
        spark = self._session.spark
        spark.sql(f"CREATE DATABASE {self._database}")
        spark.sql(f"USE {self._database}")
        spark.sql(f"CREATE TABLE a ({COLUMNS}) USING parquet")
        spark.sql("INSERT INTO a SELECT 1, 'x', 2, 3, TIMESTAMP'2026-01-01 12:00:00'")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._session.close()

    def kept(self, statement: str) -> frozenset[str] | None:
        """Return the aggregate functions in a statement's optimized plan; None if Spark refuses the statement."""
        query = _STREAMED.sub("a", statement.removeprefix("INSERT INTO t "))
        try:
            frame: Any = self._session.spark.sql(query)
            text = frame._explain_string(mode="extended")
        except PySparkException:
            return None
        optimized = text.partition("== Optimized Logical Plan ==")[2].partition("== Physical Plan ==")[0]
        names = (call.partition("(")[0] for call in CALLS)
        return frozenset(name for name in names if re.search(rf"\b{name}\(", optimized))


def judged(spark: OptimizedAggregates, old: str, new: str) -> str:
    """Return the verdict on an edit. `UNSAFE` means that a restart would find the state of different aggregates."""
    texts = (RevisionTexts(_DDL, text, YML) for text in (old, new))
    before, after = (read_revision(TableName("t"), each, Settings()) for each in texts)
    if before is None or after is None:
        return "not read"
    kept = [spark.kept(each) for each in (old, new)]
    if None in kept:
        return "refused by Spark"
    same = kept[0] == kept[1]
    if classify(before, after).action is Action.REBUILD:
        return "rebuild, aggregates as before" if same else "rebuild, other aggregates"
    return "restart" if same else "UNSAFE"
