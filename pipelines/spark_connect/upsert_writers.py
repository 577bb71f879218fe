"""Writers of keyed tables, by version: the function to which a stream passes each of its batches.

Spark runs the function in a Python process of the pool, where Headgate is not installed. It is pickled by value and
must contain everything it uses, so it is nested in another function. The version that a deployment was created with
never changes; a different writer gets a new version.
"""

import hashlib
import json
import re
import sys
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from pyspark.sql.connect.functions.builtin import col
from pyspark.sql.connect.udf import UserDefinedFunction
from pyspark.sql.types import StringType

from core.model.errors import EngineRefused, PoolUnreachable
from core.ports.spark import Upsert
from core.text.sentence import Sentence
from pipelines.spark_connect.session import Session, spark_errors

Writer = Callable[[Any, int], None]


def upsert_writer(upsert: Upsert, name: str) -> Writer:
    """Return the function that writes the batches of the query of a name; raises EngineRefused for an unknown version.

    What it has the pool do carries `batch_mark(name)` as a tag.
    """
    make = _WRITERS.get(upsert.writer)
    if make is None:
        raise EngineRefused(
            f"writer {upsert.writer} of keyed tables is not known to this version",
            remedy="use the version of Headgate that deployed it, or rebuild the table",
            error_class="HEADGATE_UNKNOWN_WRITER",
        )
    return make(upsert, batch_mark(name))


def batch_mark(name: str) -> str:
    """Return what the views of a query's batches begin with, and the tag of what is done to write them."""
    return f"{BATCH_VIEW}_{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def _writer_1(upsert: Upsert, mark: str) -> Writer:
    """Return a writer to which rows that differ by less than a millisecond are equal."""
    return _merging(upsert, mark, upsert.checkpoint, "")


def _writer_2(upsert: Upsert, mark: str) -> Writer:
    """Return a writer that compares timestamps as exactly as Spark has them, wherever its checkpoint lies."""
    return _merging(upsert, mark, _PATTERN.sub(r"\\\g<0>", upsert.checkpoint), _MICROSECONDS)


def _merging(upsert: Upsert, mark: str, checkpoint: str, as_json: str) -> Writer:
    """Write the last row of each key by MERGE, then record the batch: both twice are both once.

    Views are of the session that all statements share (Spark 4.2.0): each batch has a name of its own. For the same
    reason the batch is no setting of a MERGE but an append of no row, with the id of the checkpoint's query and the
    batch's number.
    """
    place, named = upsert.place, _BATCH
    statements, no_row = _statements(upsert, as_json), f"SELECT * FROM {_table(upsert.place)} WHERE false"
    query: list[str] = []

    def write(batch: Any, number: int) -> None:
        spark = batch.sparkSession
        if not query:
            from pyspark.sql.connect.client.retries import DefaultPolicy

            # By itself it looks for 20 min for a server that has ended (Spark 4.2.0), and holds 150 MB all the while.
            spark.client.set_retry_policies([DefaultPolicy(max_retries=5, max_backoff=1000)])
            spark.addTag(mark)
            lines = spark.read.text(f"{checkpoint}/metadata").collect()
            query.append(str(json.loads("".join(line[0] for line in lines))["id"]))
        view = f"{mark}_{uuid.uuid4().hex}"
        batch.persist()
        try:
            batch.createOrReplaceTempView(view)
            for sql in statements:
                spark.sql(sql.replace(named, view)).collect()
            record = spark.sql(no_row).write.format("delta").mode("append")
            record.option("txnAppId", query[0]).option("txnVersion", str(number)).save(place)
        except Exception as error:
            # The error of a stream holds that of its process, and not what the server says of its causes (4.2.0).
            if "No space left on device" in str(getattr(error, "_stacktrace", "")):
                raise OSError(28, "No space left on device") from error
            raise
        finally:
            spark.catalog.dropTempView(view)
            batch.unpersist()

    return write


def _statements(upsert: Upsert, as_json: str) -> tuple[str, ...]:
    """Return what is run over a batch: a row replaces one with an older or the same sequence, or deletes it.

    Deleted keys are remembered with theirs in a table of their own, so that a row which comes late does not bring one
    back. What is equal already is not written again, so that no reader hears of it twice.
    """
    key, columns, place, gone = upsert.key, upsert.columns, _table(upsert.place), _table(upsert.deleted)
    at = _quoted(upsert.sequence) if upsert.sequence else ""
    same, last, statements = _each("t.{c} = s.{c}", key, " AND "), _last_rows(upsert, as_json), []
    if upsert.deletes and at:
        kept = (*key, upsert.sequence)
        names = _each("{c}", kept)
        statements = [
            f"CREATE TABLE IF NOT EXISTS {gone} USING delta AS SELECT {names} FROM {_BATCH} WHERE false",
            f"""MERGE INTO {gone} t USING ({last}) s ON {same}
            WHEN MATCHED AND s.{at} > t.{at} AND s.headgate_gone THEN UPDATE SET t.{at} = s.{at}
            WHEN MATCHED AND s.{at} > t.{at} THEN DELETE
            WHEN NOT MATCHED AND s.headgate_gone THEN INSERT ({names}) VALUES ({_each("s.{c}", kept)})""",
        ]
        last = f"SELECT s.* FROM ({last}) s LEFT ANTI JOIN {gone} t ON {same} AND t.{at} > s.{at}"
    before, after = (f"to_json(struct({_each(side + '.{c}', columns)}){as_json})" for side in "ts")
    differs = f"{before} <> {after}"
    newer = f"(t.{at} IS NULL OR s.{at} > t.{at} OR (s.{at} = t.{at} AND {differs}))" if at else differs
    not_older = f"(t.{at} IS NULL OR s.{at} >= t.{at})" if at else "true"
    merge = f"""MERGE INTO {place} t USING ({last}) s ON {same}
        WHEN MATCHED AND s.headgate_gone AND {not_older} THEN DELETE
        WHEN MATCHED AND NOT s.headgate_gone AND {newer} THEN UPDATE SET {_each("t.{c} = s.{c}", columns)}
        WHEN NOT MATCHED AND NOT s.headgate_gone
        THEN INSERT ({_each("{c}", columns)}) VALUES ({_each("s.{c}", columns)})"""
    return (*statements, merge)


def _last_rows(upsert: Upsert, as_json: str) -> str:
    """Return the query of the last row of each key in a batch; it fails at a row that has no place."""
    keys, columns = _each("{c}", upsert.key), _each("{c}", upsert.columns)
    at = _quoted(upsert.sequence) if upsert.sequence else ""
    shown = f"to_json(struct({keys}), map('ignoreNullFields', 'false'))"
    wrong = f"WHEN {_each('{c} IS NULL', upsert.key, ' OR ')} THEN raise_error(concat('{NULL_KEY}', {shown}))"
    if at:
        wrong += f" WHEN {at} IS NULL THEN raise_error(concat('{NULL_SEQUENCE}', {shown}))"
    else:
        wrong += f" WHEN headgate_of > 1 THEN raise_error(concat('{TWO_ROWS}', {shown}))"
    order = f"{at} DESC, headgate_gone DESC, headgate_row DESC".removeprefix(" DESC, ")
    return f"""SELECT {columns}, headgate_gone FROM (
            SELECT *, row_number() OVER (PARTITION BY {keys} ORDER BY {order}) AS headgate_n,
            count(*) OVER (PARTITION BY {keys}) AS headgate_of FROM (
                SELECT {columns}, coalesce(({upsert.deletes or "false"}
                ), false) AS headgate_gone, to_json(struct({columns}){as_json}) AS headgate_row FROM {_BATCH}))
            WHERE headgate_n = 1 AND CASE {wrong} ELSE true END"""


def _each(form: str, names: Sequence[str], by: str = ", ") -> str:
    return by.join(form.format(c=_quoted(name)) for name in names)


def _table(path: str) -> str:
    return f"delta.{_quoted(path)}"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


BATCH_VIEW = "headgate_batch"
"""How the views of batches are called, before what tells them apart."""
_BATCH = "\0"
"""Stands in the texts for the view of a batch: no path, name or condition can hold it."""

NULL_KEY = "[HEADGATE_NULL_KEY] a row has no key: "
NULL_SEQUENCE = "[HEADGATE_NULL_SEQUENCE] a row has no sequence, at the key "
TWO_ROWS = "[HEADGATE_TWO_ROWS_PER_KEY] a batch has two rows of one key, and no sequence says which is newer: "

_MICROSECONDS = (
    ", map('timeZone', 'UTC', 'timestampFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSS', "
    "'timestampNTZFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSS')"
)
"""How rows are told apart as JSON, which leaves out what is below a millisecond by itself (Spark 4.2.0)."""

_PATTERN = re.compile(r"[{}\[\]*?\\]")
"""Letters of a path that Spark takes for a pattern."""

_WRITERS: Mapping[int, Callable[[Upsert, str], Writer]] = {1: _writer_1, 2: _writer_2}


NEEDED = ("pandas", "pyarrow", "grpc", "grpc_status", "google")
"""Packages that PySpark's own process for a writer imports (4.2.0)."""

_MISMATCH = "PYTHON_VERSION_MISMATCH"


def why_other_python(session: Session) -> Sentence | None:
    """Explain why the pool's Python cannot run a writer; None where it can. It takes a job on the pool."""
    needed = NEEDED

    def look(_: Any) -> str:
        import importlib.util

        missing = [name for name in needed if importlib.util.find_spec(name) is None]
        return json.dumps([*sys.version_info[:2], missing])

    try:
        with spark_errors():
            rows = session.spark.range(1).select(UserDefinedFunction(look, StringType())(col("id"))).collect()
    except EngineRefused as error:
        if error.error_class == _MISMATCH:
            return Sentence(error.summary)
        raise
    major, minor, missing = json.loads(rows[0][0])
    return other_python((major, minor), missing)


def other_python(version: tuple[int, int], missing: Sequence[str]) -> Sentence | None:
    """Explain in words in what a Python differs from ours; None where it does not matter."""
    ours = sys.version_info[:2]
    if version != ours:
        return Sentence(f"the pool runs Python {version[0]}.{version[1]}, and Headgate {ours[0]}.{ours[1]}")
    return Sentence(f"the pool's Python has no {', '.join(missing)}") if missing else None


_LOOKS_S = 0.05

_THREAD = "SparkConnectExecuteThread_opId="
"""Begins the name of the thread that executes an operation; the one that sends its results outlives it (4.2.0)."""


class OpenBatches:
    """Interrupts running batches and waits until they end; one instance per session generation, thread-safe."""

    def __init__(self, session: Session) -> None:
        """Ask for nothing yet."""
        self._session = session
        self._ending: dict[str, frozenset[str]] = {}
        """By mark the operations that were told to end and may not have: Spark names each to the first asker alone."""
        self._lock = threading.Lock()

    def end(self, name: str, ends_at: float) -> None:
        """Return once nothing writes a batch of a query that is gone, by its name; raises PoolUnreachable.

        What it has not committed is written by the next start, as after a kill. `ends_at` is monotonic.
        """
        mark = batch_mark(name)
        with spark_errors():
            # Without its view no statement over a batch begins any more; with it goes what Spark has kept of the batch.
            for view in self._session.spark.sql(f"SHOW VIEWS LIKE '{mark}_*'").collect():
                self._session.spark.catalog.dropTempView(view.viewName)
            told = frozenset(self._session.spark.interruptTag(mark))
            with self._lock:
                ending = self._ending[mark] = self._ending.get(mark, frozenset()) | told
            while ending := self._under_way(ending):
                if time.monotonic() > ends_at:
                    summary = f"{name} is stopped, but its last batch is still being written"
                    raise PoolUnreachable(summary, remedy="stop it again")
                time.sleep(_LOOKS_S)
        with self._lock:
            self._ending.pop(mark, None)

    def _under_way(self, operations: Collection[str]) -> frozenset[str]:
        """Return which operations are not over: one that was told to end is, once the thread that executes it is gone.

        Its state says so earlier, and a commit that has begun is not taken back. The list of threads is made while the
        query is planned (an inline table), in the process that commits, and needs no free core.
        """
        if not operations:
            return frozenset()
        rows = ", ".join(f"('{each}')" for each in sorted(operations))
        executes = f"instr(reflect('java.lang.Thread', 'getAllStackTraces'), concat('{_THREAD}', id)) > 0"
        found = self._session.spark.sql(f"SELECT id, {executes} FROM VALUES {rows} t(id)").collect()
        return frozenset(str(row[0]) for row in found if row[1])
