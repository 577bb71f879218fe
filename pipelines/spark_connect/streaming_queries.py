"""Starts, stops and lists the operating session's streaming queries, and finds out why queries ended."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from pyspark.sql.connect.dataframe import DataFrame
from pyspark.sql.connect.plan import SQL, LogicalPlan
from pyspark.sql.connect.proto import base_pb2, relations_pb2
from pyspark.sql.connect.streaming.query import StreamingQuery

from core.model.errors import Busy, EngineRefused, PoolUnreachable, SparkFailure
from core.ports.spark import AnotherQuery, FunctionFault, QueryStart, ReportedQuery, ignore_stop_request
from core.sql.registered_functions import RegisteredFunction
from core.text.sentence import Fact, Sentence
from pipelines.spark_connect.call_deadlines import lingering, remaining
from pipelines.spark_connect.error_translation import MaybeStopped, error_class, failure_of, first_line, schema_of
from pipelines.spark_connect.function_in_worker import SLOW
from pipelines.spark_connect.job_writer import job_writer
from pipelines.spark_connect.listener_events import ListenerEvents
from pipelines.spark_connect.python_functions import PythonFunctions
from pipelines.spark_connect.session import Session, spark_errors
from pipelines.spark_connect.upsert_writers import OpenBatches, find_python_mismatch, upsert_writer

STOP_S = 30.0
"""Longest wait, in seconds, for a stopped query to disappear, if the caller has no deadline."""

LINGER_S = 60.0
"""Extra seconds for which a start waits for an answer after its caller's deadline.

Without the answer, the SQL and checkpoint of the new query would be unknown.
"""

_SUSPENDED_S = 5.0
"""If more seconds than this pass between two listings, the pool or the agent is assumed to have been suspended."""

ROCKSDB = (
    "spark.sql.streaming.stateStore.providerClass",
    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
)
"""Setting of a query with transformWithState, which works only with this state store (Spark 4.2.0)."""
WORKER_PYTHON = "spark.sql.execution.pyspark.python"
"""Setting with the program that runs a query's Python functions."""
START_SETTINGS = (ROCKSDB[0], WORKER_PYTHON)
"""Names of the settings that a query may need at its start."""

_WAITING = ("waiting for data", "waiting for next trigger")
"""Parts of the status message that Spark reports for a query that waits for input (Spark 4.2.0)."""

_BACK_FILL_S = 30.0
"""Seconds between two progress requests for a query that has reported no progress."""


class BuiltPlan(LogicalPlan):
    """A plan that another process has built, in Spark Connect's encoding."""

    def __init__(self, relation: bytes) -> None:
        super().__init__(None)
        self._relation = relation

    def plan(self, session: Any) -> Any:
        """Return the plan as PySpark expects it of its own plans."""
        return relations_pb2.Relation.FromString(self._relation)


class StartSettings:
    """Changes settings of the operating session for the start of one query, while no other query starts.

    A query keeps the settings with which it was started (Spark 4.2.0).
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._turn = threading.Condition()
        self._starting = 0
        self._alone = False
        # An earlier agent may have died between the start of a query and the reset.
        self._left = frozenset(START_SETTINGS)

    @contextmanager
    def applied(self, settings: tuple[tuple[str, str], ...]) -> Iterator[None]:
        """Start a query within the block, with these settings, given as (name, value). Raises Busy at the deadline."""
        alone = bool(settings or self._left)
        with self._turn:
            if not self._turn.wait_for(lambda: not (self._alone or (alone and self._starting)), remaining()):
                raise Busy("another statement is starting with settings of its own", remedy="try again")
            self._alone = alone
            self._starting += 1
        try:
            if self._left:
                self._reset()
            if settings:
                self._left = frozenset(name for name, _ in settings)
                self._session.spark.conf._set_all(configs=dict(settings), silent=False)
            yield
        finally:
            try:
                if settings:
                    self._reset()
            finally:
                with self._turn:
                    self._alone = False
                    self._starting -= 1
                    self._turn.notify_all()

    def _reset(self) -> None:
        unset = base_pb2.ConfigRequest.Unset(keys=sorted(self._left))
        self._session.spark.client.config(base_pb2.ConfigRequest.Operation(unset=unset))
        self._left = frozenset()


class SparkQueries:
    """Implements `core.ports.spark.Queries` for one session generation. Thread-safe."""

    def __init__(self, session: Session, whose: str = "") -> None:
        """Use one session. `whose` is shown before the name of each query in Spark's user interface and logs."""
        self._session = session
        self._whose = f"{whose}/" if whose else ""
        self._manager = session.spark.streams
        self._events = ListenerEvents(session.spark)
        self._batches = OpenBatches(session)
        self._functions = PythonFunctions(session)
        self._lock = threading.Lock()
        self._known: dict[str, tuple[str, str]] = {}
        self._started: dict[str, QueryStart] = {}
        """The start request of each run, by run id. Contains only runs that this connection started."""
        self._ended: list[ReportedQuery] = []
        self._asked: dict[str, float] = {}
        self._python_fits = False
        self._beginning_writer = threading.Lock()
        self._settings = StartSettings(session)
        self._answered_at = time.monotonic()

    def start(self, start: QueryStart, run_id: str = "") -> ReportedQuery:
        """Start a query, or return the running query of that name if it is known to be the same.

        It is the same if its run id is `run_id`, or if this connection started it with an identical `start`. Otherwise
        AnotherQuery is raised, because a query's name does not reveal its SQL and checkpoint. Running queries are
        listed only after Spark has refused the start, because a listing covers all statements.
        """
        try:
            with lingering(LINGER_S):
                return self._begun(start)
        except EngineRefused as error:
            with spark_errors():
                running = self._find(start.name)
            if running is None:
                raise
            with self._lock:
                is_it = running.runId == run_id or self._started.get(running.runId) == start
            if not is_it:
                raise AnotherQuery(f"{start.name} is running, started by another agent or differently") from error
            return ReportedQuery(name=start.name, id=running.id, run_id=running.runId, active=True)

    def _begun(self, start: QueryStart) -> ReportedQuery:
        query = self.launch(start)
        with self._lock:
            self._known[query.runId] = (start.name, query.id)
            self._started[query.runId] = start
        return ReportedQuery(name=start.name, id=query.id, run_id=query.runId, active=True)

    def launch(self, start: QueryStart) -> StreamingQuery:
        """Start a query and return Spark's handle. Raises EngineRefused, for example if the name is taken.

        Raises Busy while the pool starts the writer of another keyed table, or if the process of this query's writer
        starts too late. Spark 4.2.0 abandons such a process after 10 s: six processes that started together on two
        cores were all late, and competed with the processes of the next attempts.
        """
        if not runs_writer(start):
            return self._launched(start)
        if not self._beginning_writer.acquire(blocking=False):
            raise Busy(f"{start.name} waits for the writer of another statement to begin", remedy="try again")
        try:
            return self._launched(start)
        except EngineRefused as error:
            if error.failure is not SparkFailure.WORKER_LATE:
                raise
            raise Busy(f"the pool is too busy to begin the writer of {start.name}", remedy="try again") from error
        finally:
            self._beginning_writer.release()

    def _launched(self, start: QueryStart) -> StreamingQuery:
        with spark_errors():
            self._functions.register(start.functions)
            # `spark.sql()` would first analyse the text separately. Without that, a start takes 0.83 to 0.90 of the CPU
            # time on the server (100 starts, Spark 4.2.0).
            plan = SQL(start.select) if start.job is None else BuiltPlan(start.job.relation)
            frame: Any = DataFrame(plan, self._session.spark)
            if start.added:
                others = frame.drop(*(name for name, _ in start.added))
                frame = others.selectExpr("*", *(f"{value} AS {name}" for name, value in start.added))
            if start.messages:
                frame = frame.selectExpr(*start.messages)
            writer = frame.writeStream.queryName(self._whose + start.name).outputMode(start.mode)
            writer = _triggered(writer.option("checkpointLocation", start.checkpoint), start.trigger)
            if runs_writer(start) and self._find(start.name) is None:
                # If the writer's process died, the pool may still be executing its last requests.
                self._batches.end(start.name, time.monotonic() + STOP_S)
            begin = _beginning(writer, start)
            with self._settings.applied(start.job.settings if start.job is not None else ()):
                query: StreamingQuery = begin()
        return query

    def stop(self, name: str, calling: Callable[[], object] = ignore_stop_request, *, upserts: bool = False) -> None:
        """Stop a query and wait until it is gone. Does nothing if there is no such query.

        `calling` is called before each stop request to Spark. With `upserts`, for a query that replaces rows by key,
        the call also waits until the query's last batch is no longer being written.
        """
        ends_at = time.monotonic() + STOP_S
        for known in self._remembered(name):
            # A busy server lists its queries slowly. A query that is no longer known by its id is found below.
            with suppress(EngineRefused), spark_errors():
                self._end(known, calling)
        with spark_errors():
            while (query := self._find(name)) is not None:
                self._end(query, calling)
                if time.monotonic() > ends_at:
                    raise PoolUnreachable(f"{name} was asked to stop but is still running", remedy="stop it again")
        if upserts:
            self._batches.end(name, ends_at)

    def active(self) -> tuple[ReportedQuery, ...]:
        """List the session's active queries. Costs one remote call, plus some for queries without known progress."""
        with self._lock:
            started = frozenset(self._started)
        with spark_errors():
            listed = self._manager.active
            now = time.monotonic()
            if now - self._answered_at > _SUSPENDED_S:
                self._events.restart_silence()
            self._answered_at = now
            self._events.listen(alone=not listed)
            found = tuple(self._described(query) for query in listed)
        run_ids = frozenset(query.run_id for query in found)
        self._events.forget_other_runs(run_ids)
        with self._lock:
            gone = {run_id: known for run_id, known in self._known.items() if run_id not in run_ids}
            self._known = {query.run_id: (query.name, query.id) for query in found}
            # Keep queries that were started after the listing.
            self._started = {run: start for run, start in self._started.items() if run in run_ids or run not in started}
            self._asked = {run_id: at for run_id, at in self._asked.items() if run_id in run_ids}
        for run_id, (name, id) in gone.items():
            self._record_end(name, id, run_id)
        return found

    def refresh(self, query: ReportedQuery) -> ReportedQuery:
        """Return a query with its latest progress, status message and trigger activity, requested from the server."""
        with spark_errors():
            asked = StreamingQuery(self._session.spark, query.id, query.run_id, query.name)
            if (last := asked.lastProgress) is not None:
                self._events.put(query.run_id, _as_json(last))
            status = asked.status
        message = str(status["message"])
        return replace(
            query,
            progress=self._events.progress(query.run_id),
            message=message,
            waits=_is_waiting(message),
            trigger_active=bool(status["isTriggerActive"]),
            silent_s=self._events.silence_s(query.run_id),
        )

    def ended(self) -> tuple[ReportedQuery, ...]:
        """Return the queries that `active` found ended without a stop by Headgate. Each query is returned only once.

        If one of them failed, the call first checks that the server can run anything. If the server cannot, the error
        of this check is raised, because the server then ended the queries, whatever errors they report.
        """
        with self._lock:
            failed = any(query.error for query in self._ended)
        if failed:
            with spark_errors():
                self._session.run_test_statement()
        with self._lock:
            ended, self._ended = tuple(self._ended), []
        return ended

    def is_running(self, name: str) -> bool:
        """True if a query of this name is active. Costs one remote call."""
        with spark_errors():
            return self._find(name) is not None

    def end_batches(self, name: str) -> None:
        """Wait until no batch of a query that has ended is being written by a Python process."""
        self._batches.end(name, time.monotonic() + STOP_S)

    def register_running(self, name: str, id: str, run_id: str) -> None:
        """Register a query that an earlier agent started, so that its end is noticed and reported with the reason."""
        with self._lock:
            self._known.setdefault(run_id, (name, id))

    def load_functions(self, functions: Sequence[RegisteredFunction]) -> Fact[FunctionFault] | None:
        """Execute the modules of functions in the pool, each once, and return the first error; None if there is none.

        Runs a Spark job if there are any that this connection has not loaded. Raises Busy if no process begins in time.
        """
        try:
            with spark_errors():
                found = self._functions.load(functions)
        except MaybeStopped:
            raise
        except EngineRefused as error:
            files = ", ".join(f"{each.function}.py" for each in functions)
            if error.failure is SparkFailure.WORKER_LATE:
                raise Busy(f"the pool is too busy to execute {files}", remedy="try again") from error
            if error.failure is not SparkFailure.WORKER_DIED:
                return FunctionFault.NOT_LOADED.of(error=error.summary)
            if len(functions) == 1:
                return FunctionFault.ENDED.of(file=files)
            # One process executed all files, so each is executed alone to find the one that ended it.
            return next((fault for each in functions if (fault := self.load_functions((each,)))), None)
        kind = FunctionFault.SLOW if found.startswith(f"[{SLOW}] ") else FunctionFault.NOT_LOADED
        return kind.of(error=found.partition("] ")[2]) if found else None

    def register_functions(self, functions: Sequence[RegisteredFunction]) -> None:
        """Register functions for statements that are analysed before they start."""
        with spark_errors():
            self._functions.register(functions)

    def python_mismatch(self) -> Sentence | None:
        """Explain why the pool's Python cannot run writers of keyed tables; None if it can.

        Only the result None is cached.
        """
        if not self._python_fits:
            why = find_python_mismatch(self._session)
            self._python_fits = not why
            return why
        return None

    def _remembered(self, name: str) -> tuple[StreamingQuery, ...]:
        with self._lock:
            known = [(id, run_id) for run_id, (of, id) in self._known.items() if of == name]
        return tuple(StreamingQuery(self._session.spark, id, run_id, name) for id, run_id in known)

    def _end(self, query: StreamingQuery, calling: Callable[[], object]) -> None:
        with self._lock:
            # A requested end is not reported.
            self._known.pop(query.runId, None)
        calling()
        query.stop()

    def _find(self, name: str) -> StreamingQuery | None:
        return next((query for query in self._manager.active if _name_of(query) == name), None)

    def _described(self, query: StreamingQuery) -> ReportedQuery:
        progress = self._events.progress(query.runId)
        message, trigger_active = "", False
        if progress is None and self._is_request_due(query.runId):
            last = query.lastProgress
            if last is not None:
                progress = _as_json(last)
                self._events.put(query.runId, progress)
        if progress is None:
            status = query.status
            message, trigger_active = str(status["message"]), bool(status["isTriggerActive"])
        return ReportedQuery(
            name=_name_of(query),
            id=query.id,
            run_id=query.runId,
            active=True,
            message=message,
            waits=_is_waiting(message),
            trigger_active=trigger_active,
            progress=progress,
            silent_s=self._events.silence_s(query.runId),
        )

    def _is_request_due(self, run_id: str) -> bool:
        """True if a run's progress must be requested now. Requests are rare, because the listener receives progress."""
        now = time.monotonic()
        if now - self._asked.get(run_id, -_BACK_FILL_S) < _BACK_FILL_S:
            return False
        self._asked[run_id] = now
        return True

    def _record_end(self, name: str, id: str, run_id: str) -> None:
        """Record that a query has ended, and why. The server keeps the reason for an hour (Spark 4.2.0)."""
        try:
            with spark_errors():
                error = StreamingQuery(self._session.spark, id, run_id, name).exception()
        except EngineRefused:
            error = None
        text = "" if error is None else str(error)
        query = ReportedQuery(
            name=name,
            id=id,
            run_id=run_id,
            active=False,
            error_class=error_class(text),
            error=first_line(text) if text else "",
            failure=failure_of(text),
            schema=schema_of(text),
        )
        with self._lock:
            self._ended.append(query)


def _name_of(query: StreamingQuery) -> str:
    """Return a query's name without what precedes it in Spark's user interface; earlier versions put nothing there."""
    return (query.name or "").rpartition("/")[2]


def runs_writer(start: QueryStart) -> bool:
    """True if a Python process of the pool writes each batch of a query."""
    return start.upsert is not None or bool(start.job is not None and start.job.each_batch)


def _beginning(writer: Any, start: QueryStart) -> Callable[[], Any]:
    """Return the call that starts a query."""
    if start.upsert is not None:
        upserting: Callable[[], Any] = writer.foreachBatch(upsert_writer(start.upsert, start.name)).start
        return upserting
    if start.job is not None and start.job.each_batch:
        appending: Callable[[], Any] = writer.foreachBatch(job_writer(start, start.job.each_batch)).start
        return appending
    # Always set the format: without it a missing table is silently created as parquet (Spark 4.2.0).
    writer = writer.format(start.format)
    if start.messages:
        sending: Callable[[], Any] = writer.options(**dict(start.options)).start
        return sending
    if start.partitioned_by:
        # `toTable` ignores the table's partitioning, and a table created over files has no partition columns in the
        # catalog (Spark 4.2.0): readers would skip files that are not in partition folders.
        writer = writer.partitionBy(*start.partitioned_by)
    return lambda: writer.toTable(start.target)


def _triggered(writer: Any, trigger: str) -> Any:
    if trigger.strip().lower() in ("available now", "availablenow"):
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=trigger)


def _as_json(progress: Any) -> Mapping[str, Any]:
    decoded: Mapping[str, Any] = json.loads(progress.json)
    return decoded


def _is_waiting(message: str) -> bool:
    return any(words in message.lower() for words in _WAITING)
