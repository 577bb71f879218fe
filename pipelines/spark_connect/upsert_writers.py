"""Writers of keyed tables, by version: functions to which Spark passes every batch of a stream.

Spark runs a writer in a Python process of the pool, where Headgate is not installed. The function is pickled by value
and must contain everything that it uses, so it is nested in another function. A deployment keeps the version with which
it was created. A released writer therefore never changes; any change needs a new version.
"""

import hashlib
import json
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
from core.text.escaping import backquoted, escape_glob
from core.text.sentence import Sentence
from pipelines.spark_connect.session import Session, spark_errors

Writer = Callable[[Any, int], None]


def upsert_writer(upsert: Upsert, name: str) -> Writer:
    """Return the function that writes the batches of query `name`. Raises EngineRefused for an unknown version.

    The function tags its operations on the pool with `batch_mark(name)`.
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
    """Return the tag of a query's batch writes, which is also the name prefix of its batch views."""
    return f"{BATCH_VIEW}_{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def _writer_1(upsert: Upsert, mark: str) -> Writer:
    """Return the writer that compares timestamps only to the millisecond when it detects changed rows."""
    return _merging(upsert, mark, upsert.checkpoint, "")


def _writer_2(upsert: Upsert, mark: str) -> Writer:
    """Return the writer that compares timestamps to the microsecond and accepts any checkpoint path."""
    return _merging(upsert, mark, escape_glob(upsert.checkpoint), _MICROSECONDS)


def _merging(upsert: Upsert, mark: str, checkpoint: str, as_json: str) -> Writer:
    """Return a writer that merges the last row of each key and records the batch. Repeating a batch has no effect.

    All statements share one session for their batch views (Spark 4.2.0), so each batch uses a unique view name. For the
    same reason a batch is recorded by appending zero rows with the checkpoint's query id and the batch number, not by a
    setting of the MERGE.
    """
    place, named = upsert.place, _BATCH
    statements, no_row = _statements(upsert, as_json), f"SELECT * FROM {_table(upsert.place)} WHERE false"
    query: list[str] = []

    def write(batch: Any, number: int) -> None:
        spark = batch.sparkSession
        if not query:
            from pyspark.sql.connect.client.retries import DefaultPolicy

            # By default, the client retries for 20 min after the server has ended (Spark 4.2.0), and holds 150 MB
            # meanwhile.
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
            # The error of a stream contains that of its process, but not the server's causes (4.2.0).
            if "No space left on device" in str(getattr(error, "_stacktrace", "")):
                raise OSError(28, "No space left on device") from error
            raise
        finally:
            spark.catalog.dropTempView(view)
            batch.unpersist()

    return write


def _statements(upsert: Upsert, as_json: str) -> tuple[str, ...]:
    """Return the SQL that writes one batch. A row replaces or deletes the stored row unless its sequence is older.

    Deleted keys are kept with their sequences in a separate table, so that a late row cannot restore a deleted key. A
    row that equals the stored one is not written, so that readers do not see it twice.
    """
    key, columns, place, gone = upsert.key, upsert.columns, _table(upsert.place), _table(upsert.deleted)
    at = backquoted(upsert.sequence) if upsert.sequence else ""
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
    compared = [name for name in columns if name not in upsert.uncompared]
    before, after = (f"to_json(struct({_each(side + '.{c}', compared)}){as_json})" for side in "ts")
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
    """Return the query for each key's last row in a batch. It fails if a key is NULL or the order is ambiguous."""
    keys, columns = _each("{c}", upsert.key), _each("{c}", upsert.columns)
    at = backquoted(upsert.sequence) if upsert.sequence else ""
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
    return by.join(form.format(c=backquoted(name)) for name in names)


def _table(path: str) -> str:
    return f"delta.{backquoted(path)}"


BATCH_VIEW = "headgate_batch"
"""Name prefix of all batch views."""
_BATCH = "\0"
"""Placeholder for the batch view's name: a character that no path, name or condition can contain."""

NULL_KEY = "[HEADGATE_NULL_KEY] a row has no key: "
NULL_SEQUENCE = "[HEADGATE_NULL_SEQUENCE] a row has no sequence, at the key "
TWO_ROWS = "[HEADGATE_TWO_ROWS_PER_KEY] a batch has two rows of one key, and no sequence says which is newer: "

_MICROSECONDS = (
    ", map('timeZone', 'UTC', 'timestampFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSS', "
    "'timestampNTZFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSS')"
)
"""JSON options for comparing rows. By default, Spark's JSON drops everything below a millisecond (Spark 4.2.0)."""

_WRITERS: Mapping[int, Callable[[Upsert, str], Writer]] = {1: _writer_1, 2: _writer_2}


NEEDED = ("pandas", "pyarrow", "grpc", "grpc_status", "google")
"""Packages that PySpark imports in a writer's process (Spark 4.2.0)."""

_MISMATCH = "PYTHON_VERSION_MISMATCH"


def find_python_mismatch(session: Session) -> Sentence | None:
    """Explain why the pool's Python cannot run a writer; None if it can. Runs a Spark job."""
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
    return describe_python_mismatch((major, minor), missing)


def describe_python_mismatch(version: tuple[int, int], missing: Sequence[str]) -> Sentence | None:
    """Explain why a Python of this version without the packages `missing` cannot run a writer; None if it can."""
    ours = sys.version_info[:2]
    if version != ours:
        return Sentence(f"the pool runs Python {version[0]}.{version[1]}, and Headgate {ours[0]}.{ours[1]}")
    return Sentence(f"the pool's Python has no {', '.join(missing)}") if missing else None


_LOOKS_S = 0.05

_THREAD = "SparkConnectExecuteThread_opId="
"""Name prefix of the thread that executes an operation (Spark 4.2.0).

The thread that sends the operation's results lives longer.
"""


class OpenBatches:
    """Interrupts running batches of keyed tables and waits for them to end. One per session generation; thread-safe."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._ending: dict[str, frozenset[str]] = {}
        """Ids of interrupted operations that may still run, by tag. Spark returns an id only to the first
        interruption."""
        self._lock = threading.Lock()

    def end(self, name: str, ends_at: float) -> None:
        """Wait until no batch of a stopped query is being written. Raises PoolUnreachable after `ends_at`.

        `ends_at` is a monotonic time. The next start rewrites an uncommitted batch, as after a kill.
        """
        mark = batch_mark(name)
        with spark_errors():
            # Without the view no further statement over the batch can start; dropping it also frees the cached batch.
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
        """Return the interrupted operations that a server thread still executes.

        Spark reports an interrupted operation as ended although it still completes a commit that has begun. The threads
        are listed while Spark plans a query over an inline table, because this planning happens in the process that
        commits and needs no free core.
        """
        if not operations:
            return frozenset()
        rows = ", ".join(f"('{each}')" for each in sorted(operations))
        executes = f"instr(reflect('java.lang.Thread', 'getAllStackTraces'), concat('{_THREAD}', id)) > 0"
        found = self._session.spark.sql(f"SELECT id, {executes} FROM VALUES {rows} t(id)").collect()
        return frozenset(str(row[0]) for row in found if row[1])
