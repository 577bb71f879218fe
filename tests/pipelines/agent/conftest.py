"""An agent without Spark: a scripted pool and scripted files around a real ledger."""

import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import pytest
from agent_scenarios import one_pool, wait_until
from ledger_rows import environment_row

from core.changes.spark_questions_and_answers import AnalysisAnswer, AnalysisQuestion
from core.ipc.environment_paths import EnvironmentPaths
from core.model.errors import Busy, EngineRefused, HeadgateError, PoolUnreachable, Refused, TryAgain
from core.model.names import TableName, query_name
from core.model.states import State
from core.observed.aligned_positions import BatchHistory, BatchPosition
from core.observed.cluster_manager import ManagerWord
from core.observed.table_statistics import LogHistory
from core.ports.spark import (
    Analysis,
    AnotherQuery,
    BuiltJob,
    CatalogTable,
    FileView,
    FunctionFault,
    Jobs,
    Pointer,
    Queries,
    QueryStart,
    ReportedQuery,
    Tables,
    TableUpkeep,
    ignore_stop_request,
    ignore_view,
    never,
)
from core.ports.storage import (
    CheckpointState,
    FolderContents,
    FolderTaken,
    LogMark,
    OriginRows,
    SeenFile,
    SourceLag,
    StartPosition,
    TableFault,
    Upkeep,
    VersionFolders,
)
from core.project.model import Environment
from core.sql.avro_schemas import SchemasByPart
from core.sql.python_jobs import PythonJob
from core.sql.registered_functions import RegisteredFunction
from core.sql.statement import LogStart
from core.text.sentence import Fact
from pipelines.agent.context import AgentContext, FaultPoints, PoolConnection
from pipelines.agent.deployment_compiler import EnvironmentLayout
from pipelines.agent.runs.run_driver import RunDriver
from pipelines.spark_connect.call_deadlines import MissedDeadline
from pipelines.storage.checkpoints import TableCheckpoints
from state.ledger import create_or_open

_PHYSICAL = re.compile(r"\b(?:\w+\.)*\w+__v\d+\b")
"""Names of versions in a compiled text."""

P = ParamSpec("P")
T = TypeVar("T")


def _at_once() -> object:
    return None


@dataclass
class ScriptedPool:
    """A pool in memory, with queries, tables and views by name.

    `refuse` maps the name of a query to Spark's refusal, and `answers` the key of a question to Spark's answer. `told`
    contains fields of a query as events report them, and `shown` as a status call returns them.
    """

    running: dict[str, QueryStart] = field(default_factory=dict)
    tables: dict[str, str] = field(default_factory=dict)
    views: dict[str, str] = field(default_factory=dict)
    refuse: dict[str, EngineRefused] = field(default_factory=dict)
    starts: list[str] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)
    answers: dict[str, AnalysisAnswer | HeadgateError] = field(default_factory=dict)
    asked: list[AnalysisQuestion] = field(default_factory=list)
    analysing: Callable[[], object] = _at_once
    """Returns once Spark has analysed a statement."""
    cleared: int = 0
    engine: str = "4.2.0"
    python_mismatch: str = ""
    function_fault: Fact[FunctionFault] | None = None
    loaded: list[RegisteredFunction] = field(default_factory=list)
    told: dict[str, Any] = field(default_factory=dict)
    shown: dict[str, Any] = field(default_factory=dict)
    looks: list[str] = field(default_factory=list)
    reachable: bool = True
    restored: bool = True
    """False while the catalog is being filled."""
    databases: set[str] = field(default_factory=set)
    foreign: dict[str, str] = field(default_factory=dict)
    """Places of names of other environments, by name."""
    refuse_stop: dict[str, HeadgateError] = field(default_factory=dict)
    refuse_table: dict[str, HeadgateError] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)
    """Queries whose first batch does not end."""
    compared: list[tuple[str, tuple[FileView, ...]]] = field(default_factory=list)
    """Queries over files, with their views."""
    answered: dict[str, tuple[tuple[str, ...], tuple[tuple[object, ...], ...]]] = field(default_factory=dict)
    """Results of queries over files, by a word contained in the query."""
    slow_reads: bool = False
    """True if a query over files runs until it is cancelled."""
    ended_reads: set[str] = field(default_factory=set)
    """Tags with which queries over files were cancelled."""
    looked_after: list[str] = field(default_factory=list)
    """Received OPTIMIZE and VACUUM statements."""
    looks_after: Callable[[str], object] = field(default=lambda sql: None)
    """Called with each OPTIMIZE or VACUUM statement; may act or raise."""
    cloned: list[tuple[str, str, int, str]] = field(default_factory=list)
    widened: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    """Clones by name, with the folder and version of the base and the clone's own folder."""
    recorded: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Batches that tests have recorded in logs: for each query, the table's folder and the batch."""
    late: list[str] = field(default_factory=list)
    """Methods of ports whose next call misses its deadline; such a call waits in `overdue`."""
    overdue: list["LateCall"] = field(default_factory=list)
    built: list[str] = field(default_factory=list)
    """Queries whose job was built."""
    refuse_job: dict[str, EngineRefused] = field(default_factory=dict)
    """Errors of jobs, by the name of their query."""
    endless_jobs: dict[str, threading.Event] = field(default_factory=dict)
    """Jobs whose build lasts until it is cancelled, by the name of their query; the event is set when it begins."""
    is_down: bool = False
    manager_says: Fact[ManagerWord] | None = None
    """True if the pool is a local server that does not run."""
    known: dict[str, QueryStart] = field(default_factory=dict)
    """Requests of the runs that this connection has started, by run id."""

    def begin(self, start: QueryStart) -> str:
        """Begin a query as Spark does, and return its new run id; refused if its name is in use."""
        if start.name in self.running:
            raise EngineRefused(f"{start.name} is active")
        self.starts.append(start.name)
        self.running[start.name] = start
        return self.run_of(start.name)

    def run_of(self, name: str) -> str:
        """Return the run id of a query; a query that a test has added directly is in its first run."""
        begun = self.starts.count(name)
        return f"run {begun} of {name}" if begun > 1 else f"run of {name}"

    def connection(self) -> PoolConnection:
        if self.is_down:
            raise PoolUnreachable("the pool is down")
        if not self.restored:
            raise PoolUnreachable("the pool is starting")
        return _Connection(self)

    def connection_for_stops(self) -> PoolConnection:
        if self.is_down:
            raise PoolUnreachable("the pool is down")
        return _Connection(self)

    def start_again(self) -> bool:
        return False

    def connectors(self) -> None:
        return None

    def manager_word(self) -> Fact[ManagerWord] | None:
        return self.manager_says

    @property
    def holds_catalog(self) -> bool:
        return not self.is_down


class LateCall:
    """A call that missed its deadline and has not taken effect; a test decides when it does, and who notices."""

    def __init__(self, pool: ScriptedPool, effect: Callable[[], Any], start: QueryStart | None) -> None:
        self.work: Future[Any] = Future()
        self._pool, self._effect, self._start = pool, effect, start

    def arrive(self) -> None:
        """Take effect, and complete the abandoned call with the result."""
        try:
            self.work.set_result(self._effect())
        except HeadgateError as error:
            self.work.set_exception(error)

    def give_up(self) -> None:
        """End the call without an answer; it may still take effect later."""
        self.work.set_exception(MissedDeadline("the pool did not answer in time"))

    def arrive_unheard(self) -> None:
        """Take effect on the pool without notice; a start is refused if its name is in use by then."""
        if self._start is None:
            self._effect()
        elif self._start.name not in self._pool.running:
            self._pool.begin(self._start)


class _Connection:
    def __init__(self, pool: ScriptedPool) -> None:
        self._pool = pool
        self.queries: Queries = _Queries(pool)
        self.tables: Tables = _Tables(pool)
        self.analysis: Analysis = _Analysis(pool)
        self.upkeep: TableUpkeep = _Upkeep(pool)
        self.jobs: Jobs = _Jobs(pool)

    def call(self, seconds: float, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if not self._pool.reachable:
            raise PoolUnreachable("the pool is silent")
        if (name := getattr(fn, "__name__", "")) in self._pool.late:
            self._pool.late.remove(name)
            start = next((arg for arg in args if isinstance(arg, QueryStart)), None)
            self._pool.overdue.append(LateCall(self._pool, partial(fn, *args, **kwargs), start))
            raise MissedDeadline("no answer within 20 s", work=self._pool.overdue[-1].work)
        return fn(*args, **kwargs)


@dataclass
class _Jobs:
    pool: ScriptedPool

    def build(
        self,
        job: PythonJob,
        *,
        name: str,
        table: str,
        columns: tuple[tuple[str, str], ...],
        cancelled: Callable[[], bool] = never,
    ) -> BuiltJob:
        self.pool.built.append(name)
        if name in self.pool.endless_jobs:
            self.pool.endless_jobs[name].set()
            wait_until(cancelled)
            raise Busy("the build was cancelled")
        if name in self.pool.refuse_job:
            raise self.pool.refuse_job[name]
        return BuiltJob(job.code.encode(), settings=columns)


@dataclass
class _Queries:
    pool: ScriptedPool

    def start(self, start: QueryStart, run_id: str = "") -> ReportedQuery:
        if start.name in self.pool.refuse:
            raise self.pool.refuse[start.name]
        if start.name in self.pool.running:
            found = self._query(start.name)
            if found.run_id == run_id or self.pool.known.get(found.run_id) == start:
                return found
            raise AnotherQuery(f"{start.name} runs, started in another way")
        self._refuse(start)
        self.pool.begin(start)
        found = self._query(start.name)
        self.pool.known[found.run_id] = start
        return found

    def _refuse(self, start: QueryStart) -> None:
        """Refuse what Spark 4.2.0 refuses: a missing table, or a checkpoint that another query uses.

        `toTable` silently creates a missing target, as a table that the agent does not know.
        """
        made = start.messages or start.target in self.pool.tables
        assert made, f"{start.target} is written before it is made"
        missing = [name for name in _PHYSICAL.findall(start.select) if name not in self.pool.tables]
        if missing:
            raise EngineRefused(f"{missing[0]} cannot be found", error_class="TABLE_OR_VIEW_NOT_FOUND")
        if any(other.checkpoint == start.checkpoint for other in self.pool.running.values()):
            # `spark.sql.streaming.stopActiveRunOnRestart` is false in the operating session.
            raise EngineRefused("another query with same id is already active", error_class="CONCURRENT_QUERY")

    def stop(self, name: str, calling: Callable[[], object] = ignore_stop_request, *, upserts: bool = False) -> None:
        calling()
        calling()
        if name in self.pool.refuse_stop:
            raise self.pool.refuse_stop[name]
        self.pool.stops.append(name)
        self.pool.running.pop(name, None)

    def active(self) -> tuple[ReportedQuery, ...]:
        return tuple(self._query(name) for name in sorted(self.pool.running))

    def ended(self) -> tuple[ReportedQuery, ...]:
        return ()

    def register_running(self, name: str, id: str, run_id: str, jar: str = "") -> None:
        return

    def python_mismatch(self) -> str:
        return self.pool.python_mismatch

    def load_functions(self, functions: Sequence[RegisteredFunction]) -> Fact[FunctionFault] | None:
        self.pool.loaded += functions
        return self.pool.function_fault

    def refresh(self, query: ReportedQuery) -> ReportedQuery:
        self.pool.looks.append(query.name)
        return replace(query, **self.pool.shown)

    def _query(self, name: str) -> ReportedQuery:
        known = ReportedQuery(name, f"id of {name}", self.pool.run_of(name), True, progress={"batchId": 1})
        return replace(known, **self.pool.told)


@dataclass
class _Tables:
    pool: ScriptedPool

    def create(self, name: str, ddl: str, *, exists: bool = False, columns: Mapping[str, str] | None = None) -> None:
        if name in self.pool.refuse_table:
            raise self.pool.refuse_table[name]
        self.pool.tables.setdefault(name, ddl)

    def create_over_avro(self, name: str, ddl: str, schemas: SchemasByPart) -> None:
        self.pool.tables[name] = f"{[each.id for each in schemas['value'] if each.text]} in {ddl}"

    def create_database(self, name: str) -> None:
        self.pool.databases.add(name)

    def places(self, names: Sequence[str]) -> Mapping[str, str]:
        return {name: place for name, place in self.pool.foreign.items() if name in names}

    def has(self, name: str) -> bool:
        return name in self.pool.tables

    def create_together(self, tables: Sequence[CatalogTable]) -> frozenset[str]:
        for table in tables:
            self.create(table.name, table.ddl, exists=table.exists)
        return frozenset(table.name for table in tables)

    def point_together(self, pointers: Sequence[Pointer]) -> frozenset[str]:
        for pointer in pointers:
            self.point(*pointer)
        return frozenset(view for view, _, _ in pointers)

    def add_columns(self, name: str, columns: tuple[tuple[str, str], ...]) -> None:
        self.pool.tables[name] += f" + {columns}"

    def widen_columns(self, name: str, columns: tuple[tuple[str, str], ...], allowing: str) -> None:
        self.pool.widened[name] = columns

    def clone(self, name: str, source: str, version: int, location: str) -> None:
        self.pool.cloned.append((name, source, version, location))
        self.pool.tables[name] = f"clone of {source} as of {version}"

    def record_batch(self, location: str, query: str, batch: int) -> None:
        self.pool.recorded[query] = (location, batch)

    def forget(self, name: str) -> None:
        writers = [query.name for query in self.pool.running.values() if query.target == name]
        assert not writers, f"{name} is dropped while {writers[0]} writes it, which ends the query"
        self.pool.tables.pop(name, None)

    def point(self, view: str, targets: tuple[str, ...], columns: tuple[str, ...]) -> None:
        if view in self.pool.refuse_table:
            raise self.pool.refuse_table[view]
        for target in targets:
            if target not in self.pool.tables:
                raise EngineRefused(f"{target} cannot be found", error_class="TABLE_OR_VIEW_NOT_FOUND")
        self.pool.views[view] = " + ".join(targets)

    def swap(self, pointers: Sequence[Pointer], before: Callable[[str], object] = ignore_view) -> float:
        for view, targets, columns in pointers:
            before(view)
            self.point(view, targets, columns)
        return 0.0

    def existing_pointers(self, pointers: Sequence[Pointer]) -> frozenset[Pointer]:
        return frozenset(found for found in pointers if self.pool.views.get(found[0]) == " + ".join(found[1]))

    def unpoint(self, view: str) -> None:
        self.pool.views.pop(view, None)

    def read_files(
        self, sql: str, limit: int, views: Sequence[FileView], tag: str = ""
    ) -> tuple[tuple[str, ...], tuple[tuple[object, ...], ...]]:
        """Return the answer for the first word contained in the query, or no rows: no differences, no duplicates."""
        self.pool.compared.append((sql, tuple(views)))
        while self.pool.slow_reads and tag not in self.pool.ended_reads:
            time.sleep(0.01)
        if tag in self.pool.ended_reads:
            raise EngineRefused("the operation was cancelled", error_class="OPERATION_CANCELED")
        return next((found for word, found in self.pool.answered.items() if word in sql), ((), ()))

    def cancel_reads(self, tag: str) -> None:
        self.pool.ended_reads.add(tag)

    def read(self, sql: str, limit: int) -> tuple[tuple[str, ...], tuple[tuple[object, ...], ...]]:
        return ("sql",), ((sql,),)


@dataclass
class _Upkeep:
    pool: ScriptedPool

    def optimize(self, table: str, tag: str) -> None:
        self._look_after(f"optimize {table}")

    def vacuum(self, table: str, retain_h: str, tag: str) -> None:
        self._look_after(f"vacuum {table} {retain_h}".rstrip())

    def _look_after(self, what: str) -> None:
        self.pool.looked_after.append(what)
        self.pool.looks_after(what)

    def cancel(self, tag: str) -> None:
        self.pool.ended_reads.add(tag)


@dataclass
class _Analysis:
    pool: ScriptedPool

    def engine(self) -> str:
        return self.pool.engine

    def ask(self, question: AnalysisQuestion) -> AnalysisAnswer:
        self.pool.asked.append(question)
        self.pool.analysing()
        answer = self.pool.answers.get(question.key, TryAgain("Spark is silent"))
        if isinstance(answer, AnalysisAnswer):
            return answer
        raise answer

    def clear(self) -> None:
        self.pool.cleared += 1


@dataclass
class ScriptedFiles:
    """Folders in memory; a checkpoint gets its id when its query starts for the first time."""

    pool: ScriptedPool
    owner: str
    folders: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    aside: dict[str, str] = field(default_factory=dict)
    notes_aside: dict[str, Any] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)
    planned: int = 1
    """The planned batch; batch 1 is committed everywhere."""
    sink: int | None = 1
    """The newest batch in every table's sink log."""
    asked_records: set[tuple[str, str, str]] = field(default_factory=set)
    """(folder, format, query) of each sink log that was requested."""
    told: dict[str, Any] = field(default_factory=dict)
    """Additional contents of every owner file, besides its ledger."""
    epoch: int = 1
    machine: str = ""
    clock_ahead_s: float = 0.0
    """Seconds by which the clock of the files is ahead of the agent's."""
    taken_over: list[str] = field(default_factory=list)
    forked: dict[str, tuple[str, OriginRows]] = field(default_factory=dict)
    """Checkpoints that were forked from another one, with the treatment of its rows."""
    unreachable: set[str] = field(default_factory=set)
    """Folders that the file system cannot reach at the moment."""
    emitted: dict[str, int] = field(default_factory=dict)
    """Number of rows that a table has received since any moment, by the name of its folder."""
    histories: dict[str, BatchHistory] = field(default_factory=dict)
    """Batch histories, by checkpoint."""
    ids: dict[str, str] = field(default_factory=dict)
    """Ids of tables, by folder."""
    log_heads: dict[str, int] = field(default_factory=dict)
    """The newest versions of logs, by the folder of their table."""
    log_commits: dict[str, dict[int, str]] = field(default_factory=dict)
    """Marks of commits, by folder and version, which distinguish commits with the same number."""
    others: dict[str, tuple[TableName, TableFault]] = field(default_factory=dict)
    """By checkpoint: the source that was replaced by another table, and the fault."""
    unmade: dict[str, tuple[str, ...] | HeadgateError] = field(default_factory=dict)
    """By location: the topics that do not exist, or the error of the brokers."""
    newest: dict[str, tuple[int, float | None]] = field(default_factory=dict)
    """By location: the sum of the latest offsets, and the timestamp of the newest message."""
    not_from: dict[str, str] = field(default_factory=dict)
    """The reason why no stream can begin at a position in a log."""
    logged: bool = False
    """True if a table contains the batch of a fork only once the batch is recorded in the log."""
    versions: dict[int, int] = field(default_factory=lambda: {1: 7})
    """Versions of a table with a log, by batch."""
    by_hand: dict[str, tuple[int, str]] = field(default_factory=dict)
    lost: dict[tuple[str, int], tuple[str, ...]] = field(default_factory=dict)
    lacking: str = ""
    types: dict[str, Mapping[str, str]] = field(default_factory=dict)
    said: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """By table: the version and the operation that wrote rows without the statement."""
    seeded: list[tuple[str, int | None, str]] = field(default_factory=list)
    """Seeded checkpoints, with their batch and the checkpoint they resemble."""

    upkept: dict[str, Upkeep] = field(default_factory=dict)
    """Results of OPTIMIZE or VACUUM since any moment, by the name of the folder."""
    unread: dict[str, int] = field(default_factory=dict)
    """Versions not yet read that a vacuum would delete, by checkpoint."""
    kept: float | None = 168.0

    held: FolderContents | None = None
    removed: set[str] = field(default_factory=set)
    """Folders that were removed."""
    """The contents of every table."""

    def is_there(self, folder: str) -> bool:
        return folder not in self.removed

    def has_owner(self, folder: str) -> bool:
        return folder not in self.removed

    def file_clock(self, folder: str) -> float:
        return time.time() + self.clock_ahead_s

    def contents(self, folder: str, format: str) -> FolderContents | None:
        return self.held

    def log_mark(self, place: str, version: int | None = None) -> LogMark | None:
        head, commits = self.log_heads.get(place, 0), self.log_commits.get(place, {})
        at = head if version is None else min(version, head)
        return LogMark(found, at, commits.get(at, f"commit {at}")) if (found := self.ids.get(place)) else None

    def upkeep(self, place: str, operation: str, tag: str) -> Upkeep | None:
        return self.upkept.get(Path(place.removesuffix("/delta")).name)

    def kept_h(self, folder: str, format: str) -> float | None:
        return self.kept

    def unread_before(
        self, checkpoint: str, source: tuple[int, TableName, str, str], moment: float, *, takes_changes: bool = False
    ) -> int | None:
        return self.unread.get(Path(checkpoint).name)

    def prepare(self, folder: str, note: Mapping[str, Any]) -> None:
        before = self.folders.setdefault(folder, note)
        if before.get("run") != note.get("run"):
            raise FolderTaken(f"{folder} contains data written by run {before.get('run')}, not by this run")

    def take_over(self, folder: str, former: str = "") -> None:
        self._reach(folder)
        self.taken_over.append(folder)

    def sink_batch(self, folder: str, *, format: str = "", query: str = "") -> int | None:
        self.asked_records.add((Path(folder).name, format, query))
        if self.logged and query in {f"id in {checkpoint}" for checkpoint in self.begun_elsewhere}:
            return self.sink if query in self.pool.recorded else None
        return self.sink

    def identity(self, folder: str, format: str) -> str:
        return self.ids.get(folder, "")

    def columns(self, folder: str, format: str) -> Mapping[str, str] | None:
        return self.types.get(folder)

    def properties(self, folder: str, format: str) -> Mapping[str, str]:
        return self.said.get(folder, {})

    def log_history(self, folder: str, format: str) -> LogHistory | None:
        return None

    def why_not_from(
        self, folder: str, format: str, start: LogStart, *, takes_changes: bool, tracked: bool = False
    ) -> str | None:
        return self.not_from.get(start.value)

    def written_version(self, folder: str, query: str, batch: int) -> int | None:
        return self.versions.get(batch)

    def missing_checkpoint_file(self, folder: str) -> str:
        return self.lacking

    def lost_files(self, folder: str, version: int) -> tuple[str, ...]:
        return self.lost.get((folder, version), ())

    def written_by_hand(self, folder: str, format: str) -> tuple[int, str] | None:
        return self.by_hand.get(folder)

    def missing_topics(self, locations: Iterable[str]) -> dict[str, tuple[str, ...] | HeadgateError]:
        return {each: self.unmade.get(each, ()) for each in locations}

    def missing_folders(self, folders: Iterable[str]) -> tuple[str, ...]:
        return tuple(folder for folder in folders if folder in self.unmade)

    def newest_message(self, location: str) -> tuple[int, float | None]:
        return self.newest[location]

    def source_fault(
        self,
        checkpoint: str,
        sources: tuple[tuple[int, TableName, str, str], ...],
        *,
        take_changes: Set[int] = frozenset(),
        tracked: bool = False,
        running: bool = False,
    ) -> tuple[TableName, TableFault] | None:
        return self.others.get(checkpoint)

    def read(self, folder: str) -> CheckpointState | None:
        self._reach(folder)
        if folder not in self.folders:
            return None
        self.started.update(start.checkpoint for start in self.pool.running.values())
        return CheckpointState(
            id=f"id in {folder}" if folder in self.started | self.forked.keys() else "",
            owner=self.owner,
            batch=1,
            planned=self.planned,
            **self.told,
        )

    def batch_history(self, checkpoint: str, sources: int, folder: str) -> BatchHistory:
        """Return a history in which every version read the same in its batch 1, unless a test overrides it."""
        self._reach(checkpoint)
        same = BatchHistory({1: BatchPosition(("1:a",) * sources)}, {"1:a": (1, 1)})
        return self.histories.get(checkpoint, same)

    def count_missing_inputs(self, checkpoint: str, sources: tuple[tuple[int, TableName, str, str], ...]) -> int | None:
        return 0

    def written_files(self, folder: str, upto: int) -> tuple[str, ...] | None:
        return (f"{folder}/part-0.parquet",)

    def source_position(
        self, folder: str, upto: int | None = None, *, format: str = "", since: float | None = None
    ) -> tuple[SeenFile, ...]:
        return (SeenFile(f"file://{folder}/part-0.parquet", 1),)

    def create_checkpoint_after(
        self, version: Any, seen: Any, note: Mapping[str, Any], *, batch: int | None = None, like: str = ""
    ) -> StartPosition:
        self.folders[version.checkpoint] = note
        self.started.add(version.checkpoint)
        self.seeded.append((version.checkpoint, batch, like))
        return StartPosition(batch, f"id in {version.checkpoint}")

    @property
    def begun_elsewhere(self) -> set[str]:
        """Return the checkpoints that were forked or seeded."""
        return {*self.forked, *(checkpoint for checkpoint, _, _ in self.seeded)}

    def note(self, folder: str, note: Mapping[str, Any]) -> None:
        self.folders[folder] = note

    def fork(
        self, origin: VersionFolders, copy: VersionFolders, note: Mapping[str, Any], *, rows: OriginRows
    ) -> StartPosition:
        self._reach(copy.checkpoint)
        self.forked.setdefault(copy.checkpoint, (origin.checkpoint, rows))
        return StartPosition(1, f"id in {copy.checkpoint}")

    def set_aside(self, folder: str, into: str) -> None:
        if folder in self.folders:
            self.aside[into] = folder
            self.notes_aside[into] = self.folders.pop(folder)

    def remove(self, folder: str) -> bool:
        """Delete what a test has put on the disk, as the real implementation does."""
        return TableCheckpoints(self.owner).remove(folder)

    def checkpoints_of_version(self, checkpoint: str) -> tuple[str, ...]:
        return tuple(sorted(f for f in self.folders if f == checkpoint or f.startswith(f"{checkpoint}.")))

    def put_back(self, aside: str, folder: str) -> None:
        if aside in self.aside:
            self.folders[self.aside.pop(aside)] = self.notes_aside.pop(aside)
        elif folder not in self.folders:
            raise Refused(f"{aside} is no longer in the trash")

    def rows(self, folder: str, format: str) -> int | None:
        return None

    def rows_since(self, folder: str, format: str, moment: float) -> int | None:
        return self.emitted.get(Path(folder).name)

    def encoded_lag(self) -> Mapping[str, str]:
        return {}

    def restore_lag(self, encoded: Mapping[str, str]) -> None:
        return

    def lag(self, checkpoint: str, sources: tuple[tuple[int, TableName, str, str], ...]) -> tuple[SourceLag, ...]:
        self._reach(checkpoint)
        return tuple(SourceLag(table, 0, 0, 0, True, None) for _, table, _, _ in sources)

    def _reach(self, folder: str) -> None:
        if folder in self.unreachable:
            raise TryAgain(f"{folder} cannot be reached: Input/output error")


@pytest.fixture
def pool() -> ScriptedPool:
    return ScriptedPool()


@pytest.fixture
def agent(tmp_path: Path, pool: ScriptedPool) -> AgentContext:
    ledger = create_or_open(tmp_path / "home" / "ledger.db", environment_row())
    return AgentContext(
        places=EnvironmentPaths(str(tmp_path / "home"), str(tmp_path / "a.sock"), os.getuid()),
        folder=str(tmp_path),
        project_id="p-id",
        project="p",
        layout=EnvironmentLayout(str(tmp_path / "data"), Environment("dev")),
        ledger=ledger,
        ledger_id="ledger",
        pools=one_pool(pool),
        files=ScriptedFiles(pool, "ledger"),
        faults=FaultPoints(),
    )


def settle(agent: AgentContext) -> None:
    """Write what the reconciler writes about queries that have committed a first batch."""
    for deployment in agent.ledger.deployments():
        pool = agent.pools.of(deployment).client
        assert isinstance(pool, ScriptedPool)
        name = query_name(deployment.table, deployment.version)
        if deployment.state == State.STARTING and name in pool.running and name not in pool.pending:
            agent.ledger.update_deployment(deployment.table, deployment.version, state=State.RUNNING)


@pytest.fixture(autouse=True)
def prompt_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every query of a run commit its first batch while the run waits, unless the pool keeps it pending."""
    waits = RunDriver._wait

    def wait(driver: RunDriver) -> None:
        if isinstance(driver._agent.pools.default.client, ScriptedPool):
            settle(driver._agent)
        waits(driver)

    monkeypatch.setattr(RunDriver, "_wait", wait)
