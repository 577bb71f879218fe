"""Measures progress and lag of every deployment every few seconds, and writes the results to the ledger."""

import logging
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from core.lag.faults import FaultSign, FaultWatch, ObjectiveWatch, fault_sign, objective_s
from core.lag.lag_samples import Lag, behind_s, total_lag
from core.lag.liveness import allowed_silence_s
from core.lag.slowness import BATCHES, BatchTimes, is_slow, slowness_text, why_slow
from core.lag.trend import LagTrend, UpstreamHealth, keeps_up_s, lag_trend
from core.lineage.table_graph import depths
from core.model.errors import HeadgateError, LedgerUnavailable
from core.model.events import EventKind
from core.model.file_stores import is_remote
from core.model.names import TableName, query_name, trigger_s
from core.model.states import ALIVE, Fault, State, Trend, WantedState
from core.model.table_formats import table_format
from core.observed.time_left import Bound, Left, lost, shortest, time_left_in_files
from core.observed.versions import Deployment, Measurement
from core.ports.spark import ReportedQuery
from core.ports.storage import CheckpointState, MeasuredFiles, SourceLag, StatementFolders
from core.sql.statement import TableRead
from core.text.wording import counted, long_duration
from pipelines.agent.context import AgentContext
from pipelines.agent.deployment_compiler import declared_objective, mirror_group, streamed_reads, streamed_sources
from pipelines.agent.tables.offset_mirror import OffsetMirror
from pipelines.agent.tables.replication_slots import holder_of_log
from pipelines.spark_connect.query_progress import InputRate, PoolUtilization, QueryProgress, query_progress_from_json
from state.row_types import SampleRow

log = logging.getLogger(__name__)

_ByVersion = Mapping[tuple[TableName, int], Deployment]

EVERY_S = 5.0
"""Seconds between two measurements."""

EVERY_VARIABLE = "HEADGATE_MEASURE_S"
"""Environment variable that overrides the interval, in seconds.

Drills set it, because they wait for many catch-up gates.
"""

SAVE_LAG_S = 300.0
"""Seconds between two saves of log positions.

After a restart, logs are read again from the last saved position.
"""

SKIPPED = "HEADGATE_MESSAGES_SKIPPED"
"""Error class of the event recorded when a statement skips messages that were deleted unread."""

POSITION_SHORT, POSITION_LOST = "HEADGATE_POSITION_EXPIRES", "HEADGATE_POSITION_LOST"
"""Error classes of the events recorded when a committed position is about to be lost, and when it is lost."""

KEPT = 180
"""Number of samples per deployment that are kept in memory: 15 minutes."""


@dataclass(slots=True)
class MeasurementHistory:
    """In-memory state of a deployment, kept from one measurement to the next."""

    samples: deque[SampleRow] = field(default_factory=lambda: deque(maxlen=KEPT))
    previous: str = "unknown"
    fault: FaultWatch = field(default_factory=FaultWatch)
    dropped: int = 0
    dropped_batch: int = -1
    watermark: str = ""
    watermark_at: float | None = None
    """When the current watermark was first seen; None if there is no watermark."""
    fastest_rows_s: float | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    input_rate: InputRate = field(default_factory=InputRate)
    batches: deque[BatchTimes] = field(default_factory=lambda: deque(maxlen=BATCHES))
    """The latest batches of the query's current run that were seen, oldest first."""
    run_id: str = ""
    """The query's current run."""
    progress_at: str = ""
    """Start of the trigger that is the newest of `batches`."""

    def set_trend(self, judged: LagTrend, now: float) -> None:
        """Store the latest trend. The watermark of a starved statement does not age."""
        self.previous = judged.trend
        if judged.trend is Trend.STARVED and self.watermark_at is not None:
            self.watermark_at = now

    def add_progress(self, progress: QueryProgress, run_id: str, now: float) -> None:
        """Update the history from the query's latest progress event. Passing the same event again has no effect."""
        if run_id != self.run_id:
            self.batches.clear()
            self.run_id = run_id
        if progress.at != self.progress_at and (times := progress.times) is not None:
            self.batches.append(times)
            self.progress_at = progress.at
        if progress.batch is not None and progress.batch != self.dropped_batch:
            self.dropped_batch = progress.batch
            self.dropped += progress.dropped_by_watermark or 0
        if progress.watermark and progress.watermark != self.watermark:
            self.watermark, self.watermark_at = progress.watermark, now
        if progress.state_rows is not None:
            self.state_rows, self.state_bytes = progress.state_rows, progress.state_bytes
        if progress.in_rows and progress.batch_ms:
            self.fastest_rows_s = max(self.fastest_rows_s or 0.0, progress.in_rows / progress.batch_ms * 1000)


class LagCollector:
    """Measures the lag of all deployments. If a checkpoint is unreadable, the lag is unknown, never zero."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent
        self.load = PoolUtilization()
        self.mirror = OffsetMirror(agent)
        self._history: dict[tuple[TableName, int], MeasurementHistory] = {}
        self._reads: dict[tuple[TableName, int, str], tuple[TableRead, ...]] = {}
        self._objectives: dict[str, str] = {}
        self._transitions = ObjectiveTransitions(agent)
        self._positions_at_risk = PositionsAtRisk(agent)
        self._holders: dict[TableName, Deployment | None] = {}
        """The version that holds a database's log, by table of changes; filled anew in each round."""
        self._agent.files.restore_lag(agent.ledger.encoded_lag())
        self._saved_at = agent.monotonic()
        self._skipping: set[tuple[TableName, int, TableName]] = set()
        """Statements (table and version) that are skipping messages that were deleted unread, with the source of the
        messages."""
        self._lost: dict[tuple[TableName, int, TableName], int] = {}
        """Number of messages of a source that were deleted unread, for statements that are not running."""
        self._slow: dict[tuple[TableName, int], tuple[str, str]] = {}
        """Pool and run of the queries of statements that are slow, filled anew in each round."""
        self._unmeasured: set[str] = set()
        """Statements that could not be measured in the last round, so that each failure is logged once."""
        self._ahead: Mapping[str, MeasuredFiles | Exception] = {}
        """By checkpoint: what was measured in this round from the files of statements in remote stores."""

    def round(self, deployments: tuple[Deployment, ...], queries: tuple[ReportedQuery, ...]) -> None:
        """Measure all deployments once, and write the results to the ledger."""
        self._holders.clear()
        self._slow.clear()
        query_by_name = {query.name: query for query in queries}
        by_version = {(d.table, d.version): d for d in deployments}
        measurements: list[Measurement] = []
        samples: list[tuple[TableName, int, SampleRow]] = []
        unmeasured: set[str] = set()
        measured_ones = [
            each
            for each in _parents_first(deployments)
            if not each.external and (each.active or each.wanted != WantedState.STOPPED)
        ]
        self._ahead = self._measured_ahead(measured_ones, by_version)
        for deployment in measured_ones:
            query = query_by_name.get(query_name(deployment.table, deployment.version))
            try:
                measured = self._measure(deployment, by_version, query)
            except LedgerUnavailable:
                raise
            except Exception as error:
                name = query_name(deployment.table, deployment.version)
                if name not in self._unmeasured:
                    log.warning("%s was not measured: %r", name, error)
                unmeasured.add(name)
                self._transitions.interrupt(deployment)
                measurements.append(self._unmeasured_lag(deployment, query, error))
                continue
            measurements.append(measured[0])
            samples.append((deployment.table, deployment.version, measured[1]))
        self._unmeasured = unmeasured
        self._forget(by_version)
        self._agent.work.put_slow(self._slow)
        self._agent.ledger.put_measurements(measurements)
        self._agent.ledger.add_samples(samples)
        if self._agent.monotonic() - self._saved_at >= SAVE_LAG_S:
            self._saved_at = self._agent.monotonic()
            self._agent.ledger.put_encoded_lag(self._agent.files.encoded_lag())

    def _report_skipped(self, deployment: Deployment, positions: Iterable[SourceLag]) -> None:
        """Record an event when a statement skips messages that were deleted unread, possibly while it was stopped."""
        about = (deployment.table, deployment.version)
        for position in positions:
            key = (*about, position.table)
            if position.skipped and deployment.state not in ALIVE:
                self._lost[key] = position.skipped
                continue
            lost = max(position.skipped or 0, self._lost.pop(key, 0))
            if lost and key not in self._skipping:
                self._skipping.add(key)
                words = f"{query_name(*about)} skips {counted(lost, 'message')} of {position.table}"
                why = f"{words} that retention has deleted unread, by failOnDataLoss = false"
                self._agent.event(EventKind.EXCEPTION, SKIPPED, about=about, detail=why, fingerprint=SKIPPED)
            if not position.skipped:
                self._skipping.discard(key)

    def _remember(self, key: tuple[TableName, int], now: float) -> MeasurementHistory:
        history = self._history[key] = MeasurementHistory()
        history.samples.extend(self._agent.ledger.samples(*key, since=now - KEPT * EVERY_S))
        if last := self._agent.ledger.measurement(*key):
            history.fault = FaultWatch(FaultSign(Fault(last.fault), last.fault_why))
            history.fastest_rows_s = last.fastest_rows_s
            history.state_rows, history.state_bytes = last.state_rows, last.state_bytes
        return history

    def _forget(self, by_version: dict[tuple[TableName, int], Deployment]) -> None:
        for key in self._history.keys() - by_version.keys():
            del self._history[key]
        self._reads = {key: found for key, found in self._reads.items() if key[:2] in by_version}
        self._transitions.forget({deployment.table for deployment in by_version.values()})
        revisions = {deployment.revision for deployment in by_version.values()}
        self._objectives = {key: found for key, found in self._objectives.items() if key in revisions}

    def _measure(
        self, deployment: Deployment, by_version: dict[tuple[TableName, int], Deployment], query: ReportedQuery | None
    ) -> tuple[Measurement, SampleRow]:
        now = self._agent.clock()
        key = (deployment.table, deployment.version)
        history = self._history.get(key) or self._remember(key, now)
        files = self._files_of(deployment, by_version)
        found, positions = files.state, self._positions(deployment, by_version, files)
        if (fault := next((each.unmeasured for each in positions if each.unmeasured is not None), None)) is not None:
            raise _PartlyMeasured(fault, positions)
        lag = total_lag(positions)
        progress = query_progress_from_json(query.progress) if query and query.progress else None
        if query and progress:
            self.load.batch(key, progress, now)
            history.add_progress(progress, query.run_id, now)
        self._report_skipped(deployment, positions)
        self._positions_at_risk.report(deployment, positions)
        rates = _rates(deployment, progress, found.committed_at if found else None, now)
        arriving_s = history.input_rate.rows_s(progress) if progress else None
        sample = _sample(now, lag, rates, progress, positions)
        history.samples.append(sample)
        judged = self._judge(deployment, by_version, positions, found, lag.behind_s)
        history.set_trend(judged, now)
        bound_s = self._judge_fault(deployment, lag, judged)
        return Measurement(
            table=deployment.table,
            version=deployment.version,
            at=now,
            lag_rows=lag.rows,
            lag_files=lag.files,
            lag_bytes=lag.bytes,
            exact=lag.exact,
            behind_s=lag.behind_s,
            data_age_s=lag.newest_s,
            fault=history.fault.said.fault,
            fault_why=history.fault.said.why,
            trend=judged.trend,
            rate_rows_s=judged.rate_rows_s,
            eta_s=judged.eta_s,
            in_rows_s=rates[0] and arriving_s,
            out_rows_s=rates[1],
            rows_total=files.rows,
            **_committed(found, progress),
            state_rows=history.state_rows,
            state_bytes=history.state_bytes,
            dropped_by_watermark=history.dropped,
            sources=tuple(_source(position) | self._mirrored(deployment, position) for position in positions),
            fastest_rows_s=history.fastest_rows_s,
            time_left=_shortest_left(positions),
            objective_s=bound_s,
            slow=self._slowness(deployment, lag, query),
        ), sample

    def _slowness(self, deployment: Deployment, lag: Lag, query: ReportedQuery | None) -> str:
        if query is None or not query.active or deployment.state not in ALIVE:
            return ""
        key, interval_s = (deployment.table, deployment.version), trigger_s(deployment.trigger)
        batches = tuple(self._history[key].batches)
        if not is_slow(batches, trigger_s=interval_s, bound_s=keeps_up_s(interval_s), behind_s=lag.behind_s):
            return ""
        pool = self._agent.pools.of(deployment).declared
        self._slow[key] = (pool.name, query.run_id)
        found = why_slow(
            batches,
            trigger_s=interval_s,
            cores=pool.cores if pool.url is None else None,
            stages=self._agent.work.stages(key, query.run_id),
            in_python=deployment.in_python or bool(deployment.texts.functions),
        )
        return slowness_text(found)

    def _mirrored(self, deployment: Deployment, position: SourceLag) -> dict[str, object]:
        shows = position.topics and position.wal_bytes is None and deployment.active
        group = mirror_group(deployment, self._agent.layout) if shows else ""
        fault = self.mirror.fault_of(deployment.table, deployment.version)
        return {"group": group, "group_fault": str(fault or "")} if group else {}

    def _unmeasured_lag(self, deployment: Deployment, query: ReportedQuery | None, error: Exception) -> Measurement:
        """Return what Spark and the checkpoint report about a statement whose total lag could not be measured.

        The lag behind the sources that could be measured is part of it.
        """
        positions = error.positions if isinstance(error, _PartlyMeasured) else ()
        key = (deployment.table, deployment.version)
        history = self._history.get(key) or MeasurementHistory()
        progress = query_progress_from_json(query.progress) if query and query.progress else None
        found, rows, ahead = None, None, self._ahead.get(deployment.checkpoint)
        if isinstance(ahead, MeasuredFiles):
            found, rows = ahead.state, ahead.rows
        # The checkpoint itself may be the reason.
        with suppress(HeadgateError, OSError):
            if ahead is None:
                found = self._agent.files.read(deployment.checkpoint)
                rows = self._agent.files.rows(deployment.folder, deployment.format)
        why = error.summary if isinstance(error, HeadgateError) else "the measurement failed, see headgate logs agent"
        unknown = (_unknown_source(each.parent, why) for each in deployment.bindings if each.streamed)
        return Measurement(
            *key,
            self._agent.clock(),
            fault=history.fault.said.fault,
            fault_why=history.fault.said.why,
            **_committed(found, progress),
            rows_total=rows,
            state_rows=history.state_rows,
            state_bytes=history.state_bytes,
            dropped_by_watermark=history.dropped,
            sources=tuple(map(_source, positions) if positions else unknown),
            time_left=_shortest_left(positions),
            fastest_rows_s=history.fastest_rows_s,
        )

    def _measured_ahead(
        self, deployments: Iterable[Deployment], by_version: dict[tuple[TableName, int], Deployment]
    ) -> Mapping[str, MeasuredFiles | Exception]:
        """Measure the files of all statements in remote stores in one go, and request the offsets of all topics."""
        found: list[StatementFolders] = []
        unread: dict[str, MeasuredFiles | Exception] = {}
        for each in deployments:
            read = [of for binding in each.bindings if (of := by_version.get((binding.parent, binding.version)))]
            remote = any(map(is_remote, (each.checkpoint, each.folder, *(of.folder for of in read))))
            if remote or any(table_format(of.format).topics for of in read):
                try:
                    sources = streamed_sources(each, self._reads_of(each), by_version)
                    found.append(StatementFolders(each.checkpoint, sources, each.folder, each.format))
                except HeadgateError as error:
                    unread[each.checkpoint] = error
        return {**self._agent.files.measure_ahead(found), **unread} if found else unread

    def _files_of(self, deployment: Deployment, by_version: dict[tuple[TableName, int], Deployment]) -> MeasuredFiles:
        """Return what was measured ahead or, for a statement with local files only, measure its files now."""
        ahead = self._ahead.get(deployment.checkpoint)
        fault = ahead.unmeasured if isinstance(ahead, MeasuredFiles) else ahead
        if fault is not None:
            raise fault
        if isinstance(ahead, MeasuredFiles):
            return ahead
        files = self._agent.files
        found = files.read(deployment.checkpoint)
        lag = files.lag(deployment.checkpoint, streamed_sources(deployment, self._reads_of(deployment), by_version))
        return MeasuredFiles(found, lag, files.rows(deployment.folder, deployment.format))

    def _positions(
        self, deployment: Deployment, by_version: dict[tuple[TableName, int], Deployment], files: MeasuredFiles
    ) -> tuple[SourceLag, ...]:
        begun = files.state is not None and files.state.batch is not None
        return tuple(self._with_time_left(deployment, each, by_version, begun=begun) for each in files.lag)

    def _with_time_left(
        self, deployment: Deployment, position: SourceLag, by_version: _ByVersion, *, begun: bool
    ) -> SourceLag:
        """Return a position with its time left, if known, and with the version for which a database keeps its log."""
        bindings = (binding for binding in deployment.bindings if binding.parent == position.table)
        parent = next((found for b in bindings if (found := by_version.get((b.parent, b.version)))), None)
        format, left = table_format(parent.stored_as if parent else ""), position.time_left
        if left is None and begun and position.missing:
            left = lost(Bound.SOURCE_GONE, table=position.table)
        elif left is None and begun and parent is not None and format.has_files and not format.transaction_log:
            left = time_left_in_files(position.table, external=parent.external)
        elif left is not None and left.held_bytes and parent and (holder := self._holder(parent, by_version)):
            left = replace(left, held_by=holder.table, held_version=holder.version)
        return position if left is None else replace(position, time_left=replace(left, at=self._agent.clock()))

    def _holder(self, table: Deployment, by_version: _ByVersion) -> Deployment | None:
        if table.table not in self._holders:
            self._holders[table.table] = None
            # The checkpoint of another statement may be unreachable.
            with suppress(HeadgateError):
                self._holders[table.table] = holder_of_log(self._agent, table, by_version)
        return self._holders[table.table]

    def _reads_of(self, deployment: Deployment) -> tuple[TableRead, ...]:
        key = (deployment.table, deployment.version, deployment.revision)
        if key not in self._reads:
            self._reads[key] = streamed_reads(deployment)
        return self._reads[key]

    def _judge_fault(self, deployment: Deployment, lag: Lag, judged: LagTrend) -> float:
        """Update the fault of a version, and return its lag objective in seconds."""
        if deployment.revision not in self._objectives:
            self._objectives[deployment.revision] = declared_objective(deployment)
        declared = self._objectives[deployment.revision] or self._agent.layout.environment.objective
        bound_s = objective_s(declared, deployment.trigger)
        sign = fault_sign(lag, judged, state=deployment.state, wanted=deployment.wanted, objective_s=bound_s)
        history = self._history[deployment.table, deployment.version]
        history.fault = history.fault.updated(sign, self._agent.clock())
        self._transitions.record_transition(deployment, lag.behind_s, bound_s)
        return bound_s

    def _judge(
        self,
        deployment: Deployment,
        by_version: dict[tuple[TableName, int], Deployment],
        positions: tuple[SourceLag, ...],
        found: CheckpointState | None,
        behind_s: float | None,
    ) -> LagTrend:
        history = self._history[deployment.table, deployment.version]
        version_by_parent = {binding.parent: binding.version for binding in deployment.bindings}
        parents = []
        for position in positions:
            key = (position.table, version_by_parent.get(position.table, 0))
            parent, known = by_version.get(key), self._history.get(key)
            parents.append(
                UpstreamHealth(
                    table=position.table,
                    state=parent.state if parent else State.ABSENT,
                    missing=position.missing or parent is None,
                    external=bool(parent and parent.external),
                    silent_s=position.newest_s,
                    trend=known.previous if known else "",
                )
            )
        now = self._agent.clock()
        return lag_trend(
            tuple(history.samples),
            now,
            interval_s=EVERY_S,
            state=deployment.state,
            parents=tuple(parents),
            trigger_s=trigger_s(deployment.trigger),
            previous=history.previous,
            # The commit age begins at the start, so that time while stopped does not count against a statement.
            commit_age_s=now - max(found.committed_at, deployment.started_at or 0.0)
            if found and found.committed_at
            else None,
            watermark_age_s=now - history.watermark_at if history.watermark_at else None,
            behind_s=behind_s,
            proven=bool(found and found.committed_at and found.committed_at >= (deployment.started_at or 0.0)),
            rests_since=deployment.state_since,
            started_at=deployment.started_at,
            by_files=any(_is_limited_in_files(read) for read in self._reads_of(deployment)),
        )


def _parents_first(deployments: Iterable[Deployment]) -> list[Deployment]:
    """Sort upstream deployments first, so that starvation reaches all downstream deployments in the same round."""
    every = tuple(deployments)
    by_table = depths((each.table, [binding.parent for binding in each.bindings]) for each in every)
    return sorted(every, key=lambda each: by_table[each.table])


def _rates(
    deployment: Deployment, progress: QueryProgress | None, committed_at: float | None, now: float
) -> tuple[float | None, float | None]:
    """Return rows read and processed per second; None if unknown or if no query runs, 0 after a long silence."""
    if progress is None or deployment.state not in ALIVE:
        return None, None
    if committed_at is not None and now - committed_at > allowed_silence_s(trigger_s(deployment.trigger)):
        return 0.0, 0.0
    return progress.in_rows_s, progress.out_rows_s


def _committed(found: CheckpointState | None, progress: QueryProgress | None) -> dict[str, Any]:
    """Return the fields of a measurement that describe the newest batch."""
    return {
        "batch": found.batch if found else None,
        "committed_at": found.committed_at if found else None,
        "batch_ms": progress.batch_ms if progress else None,
        "durations": dict(progress.durations) if progress else {},
        "watermark": progress.watermark if progress else "",
    }


def _is_limited_in_files(read: TableRead) -> bool:
    return any(key.lower() == "maxfilespertrigger" for key, _ in read.options)


def _sum(values: Iterable[int | None]) -> int | None:
    numbers = list(values)
    known = [number for number in numbers if number is not None]
    return sum(known) if known and len(known) == len(numbers) else None


def _unknown_source(table: TableName, why: str) -> dict[str, object]:
    known = dict.fromkeys(("rows", "files", "bytes", "behind_s", "newest_s"))
    return {"table": table, **known, "exact": False, "missing": False, "unmeasured": why}


class _PartlyMeasured(HeadgateError):
    """Raised with the lag behind all sources if it is unknown for one of them."""

    def __init__(self, fault: HeadgateError, positions: tuple[SourceLag, ...]) -> None:
        super().__init__(fault.summary, remedy=fault.remedy)
        self.positions = positions


def _source(position: SourceLag) -> dict[str, object]:
    if position.unmeasured is not None:
        return _unknown_source(position.table, position.unmeasured.summary)
    found: dict[str, object] = {
        "table": position.table,
        "rows": position.rows,
        "files": position.files,
        "bytes": position.bytes,
        "behind_s": behind_s(position.files, position.oldest_s) if not position.missing else None,
        "newest_s": position.newest_s,
        "exact": position.exact,
        "missing": position.missing,
    }
    if position.topics:
        found["topics"] = True
    if position.skipped is not None:
        found["skipped"] = position.skipped
    if position.wal_bytes is not None:
        found["wal_bytes"] = position.wal_bytes
    if position.time_left is not None:
        found["time_left"] = position.time_left.as_json()
    return found if position.versions is None else found | {"versions": position.versions}


def _sample(
    now: float,
    lag: Lag,
    rates: tuple[float | None, float | None],
    progress: QueryProgress | None,
    positions: tuple[SourceLag, ...],
) -> SampleRow:
    return SampleRow(
        at=now,
        lag_rows=lag.rows,
        lag_files=lag.files,
        lag_bytes=lag.bytes,
        # The duration of a first batch, which has no rate, is excluded from the typical duration.
        in_rows_s=0.0 if rates[0] is None and rates[1] is not None else rates[0],
        out_rows_s=rates[1],
        batch_ms=progress.batch_ms if progress else None,
        produced_rows=_sum(position.produced_rows for position in positions),
        consumed_rows=_sum(position.consumed_rows for position in positions),
    )


def _shortest_left(positions: Iterable[SourceLag]) -> str:
    left = shortest(position.time_left for position in positions)
    return left.as_text() if left is not None else ""


class PositionsAtRisk:
    """Records an event when a statement's position is about to be lost, and another when it is lost."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent
        self._reported: dict[tuple[TableName, int, TableName], Left] = {}

    def report(self, deployment: Deployment, positions: Iterable[SourceLag]) -> None:
        """Record an event for each source whose position is newly at risk or newly lost."""
        about = (deployment.table, deployment.version)
        for position in positions:
            key, left = (*about, position.table), position.time_left
            if left is None or not left.at_risk:
                self._reported.pop(key, None)
            elif self._reported.get(key) is not left.kind:
                self._reported[key] = left.kind
                error_class = POSITION_LOST if left.kind is Left.LOST else POSITION_SHORT
                detail = f"the position of {query_name(*about)} in {position.table}: {left.amount}: {left.advice}"
                self._agent.event(EventKind.EXCEPTION, error_class, about=about, detail=detail, fingerprint=error_class)


class ObjectiveTransitions:
    """Records an event whenever a table exceeds its lag objective or meets it again.

    After an agent restart, the previous result is read from the ledger's events.
    """

    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent
        self._watches: dict[TableName, ObjectiveWatch] = {}

    def record_transition(self, deployment: Deployment, behind_s: float | None, objective_s: float) -> None:
        """Record an event if a serving version has exceeded its lag objective or meets it again.

        `behind_s` and `objective_s` are in seconds; `behind_s` is None if the lag is unknown. Statements that an
        operator has stopped are ignored. A statement that may have no query can miss its objective, but not meet it.
        """
        if not deployment.active or deployment.wanted == WantedState.STOPPED:
            return
        table, now = deployment.table, self._agent.clock()
        if behind_s is not None and behind_s <= objective_s and deployment.state not in ALIVE:
            behind_s = None
        before = self._watches.get(table) or self._recalled(table)
        after = before.updated(behind_s, objective_s, now)
        if after.missed != before.missed:
            objective = f"the objective of {long_duration(objective_s)}"
            summary = (
                f"{long_duration(behind_s)} behind, beyond {objective}"
                if after.missed
                else f"within {objective} again, after {long_duration(after.since - before.since)}"
            )
            kind = EventKind.MISSED if after.missed else EventKind.MET
            self._agent.event(kind, summary, about=(table, deployment.version))
        # Only after the event was written: if the ledger was unavailable, the next measurement records it.
        self._watches[table] = after

    def interrupt(self, deployment: Deployment) -> None:
        """Restart the period in which a table must meet its objective, because its lag could not be measured."""
        if deployment.active and (watch := self._watches.get(deployment.table)):
            self._watches[deployment.table] = watch.updated(None, 0.0, 0.0)

    def forget(self, tables: set[TableName]) -> None:
        """Drop the state of all tables except `tables`."""
        self._watches = {table: watch for table, watch in self._watches.items() if table in tables}

    def _recalled(self, table: TableName) -> ObjectiveWatch:
        last = self._agent.ledger.objective_event(table)
        return ObjectiveWatch(last.kind == EventKind.MISSED, last.at) if last else ObjectiveWatch()
