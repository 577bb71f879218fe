"""Collects table statistics and the environment's free resources for cost estimates, in a mostly idle thread."""

import logging
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

from core.model.errors import HeadgateError
from core.model.names import TableName
from core.model.table_formats import table_format
from core.observed.table_statistics import Headroom, TableStatistics
from core.observed.versions import Deployment, Measurement
from pipelines.agent.context import READ_CALL_S, AgentContext
from pipelines.agent.deployment_compiler import streamed_reads, streamed_sources
from pipelines.spark_connect import call_deadlines
from pipelines.spark_connect.query_progress import PoolUtilization
from pipelines.storage.file_system import disk_space

log = logging.getLogger(__name__)

EVERY_S = 600.0
"""Seconds between two regular measurements of a table.

A new table is also measured whenever its age has doubled.
"""

LOGS_EVERY_S = 30.0
"""Seconds between two measurements of an input that has a transaction log.

Such measurements are cheap, and nothing else measures inputs.
"""

TICK_S = 15.0
"""Seconds between two checks for due tables, and so the longest time for which a new table lacks statistics."""

ROUND_S = 60.0
"""Maximum duration of a round, in seconds.

Tables that a round does not reach are measured in the next round, right after new tables.
"""

_REST = 4.0
"""Idle time after a measurement, as a multiple of its duration, because stops, starts and lag have priority."""

_AT_ONCE = 50
"""Maximum number of tables whose statistics one transaction writes."""

Key = tuple[TableName, int]


class TableStatisticsCollector:
    """Measures tables one after another, using at most a fifth of a CPU core."""

    def __init__(self, agent: AgentContext, load: PoolUtilization) -> None:
        self._agent = agent
        self._load = load
        known = agent.ledger.table_statistics()
        self._looked = {key: statistics.at or 0.0 for key, statistics in known.items()}
        self._rows = {key: statistics.rows for key, statistics in known.items()}

    def round(self, deployments: tuple[Deployment, ...]) -> None:
        """Measure the environment's free resources, then all tables that are due, least recently measured first."""
        self._agent.ledger.put_headroom(self._headroom())
        by_version = {(d.table, d.version): d for d in deployments}
        now = self._agent.clock()
        rows = {(m.table, m.version): m.rows_total for m in self._agent.ledger.measurements()}
        due = [
            key
            for key, deployment in by_version.items()
            if self._is_due(deployment, now) or self._outgrown(key, rows.get(key), now)
        ]
        found: dict[Key, TableStatistics] = {}
        ends_at = time.monotonic() + ROUND_S
        for key in sorted(due, key=lambda key: (self._looked.get(key, 0.0), key)):
            began = time.monotonic()
            found |= self._statistics(key, by_version)
            if len(found) >= _AT_ONCE:
                self._put(found, by_version)
                found = {}
            rest = min(ROUND_S, _REST * (time.monotonic() - began))
            if self._agent.stopping.wait(rest) or time.monotonic() >= ends_at:
                break
        self._put(found, by_version)

    def _is_due(self, deployment: Deployment, now: float) -> bool:
        looked = self._looked.get((deployment.table, deployment.version), 0.0)
        at_most = LOGS_EVERY_S if _is_input_with_log(deployment) else EVERY_S
        return now - looked >= min(at_most, max(TICK_S, looked - deployment.created_at))

    def _outgrown(self, key: Key, rows: int | None, now: float) -> bool:
        before = self._rows.get(key)
        grew = rows is not None and before is not None and rows > 2 * before
        return grew and now - self._looked.get(key, 0.0) >= TICK_S

    def measure(self, tables: Iterable[TableName], seconds: float) -> tuple[list[TableName], list[TableName]]:
        """Measure tables now, for at most `seconds`.

        Return the measured and the unmeasured tables, both sorted by name.
        """
        until = time.monotonic() + seconds
        by_version = {(d.table, d.version): d for d in self._agent.ledger.deployments()}
        measured: list[TableName] = []
        asked = sorted(set(tables))
        for table in asked:
            if (left := until - time.monotonic()) <= 0:
                break
            try:
                found = call_deadlines.call(left, self._measure_one, table, by_version)
            except call_deadlines.MissedDeadline:
                break
            measured += [table] if found else []
        return measured, [table for table in asked if table not in measured]

    def _measure_one(self, table: TableName, by_version: Mapping[Key, Deployment]) -> bool:
        found: dict[Key, TableStatistics] = {}
        for key in by_version:
            if key[0] == table:
                found |= self._statistics(key, by_version)
        self._put(found, by_version)
        return bool(found)

    def _put(self, found: Mapping[Key, TableStatistics], by_version: Mapping[Key, Deployment]) -> None:
        if found:
            self._agent.ledger.put_table_statistics(found)
        # Table lists show row counts from lag measurements. Inputs with a transaction log have no lag measurement, so
        # their row counts are written as one.
        inputs = {key: each for key, each in found.items() if _is_input_with_log(by_version[key])}
        if inputs:
            rows = [Measurement(*key, each.at or 0.0, rows_total=each.rows) for key, each in inputs.items()]
            self._agent.ledger.put_measurements(rows)
        self._looked |= {key: statistics.at or 0.0 for key, statistics in found.items()}
        self._rows |= {key: statistics.rows for key, statistics in found.items()}

    def _statistics(self, key: Key, by_version: Mapping[Key, Deployment]) -> dict[Key, TableStatistics]:
        # If its location is unreachable, a version keeps its previous statistics. The row count of an unreachable input
        # becomes unknown, because table lists do not show how old a row count is.
        deployment, files = by_version[key], self._agent.files
        now = self._agent.clock()
        if not table_format(deployment.format).has_files:
            # Topics have no table statistics; readers measure topics by offsets.
            return {}
        try:
            held = files.contents(deployment.folder, deployment.stored_as)
            history = files.log_history(deployment.folder, deployment.stored_as)
            gone = None
            if not deployment.external:
                sources = streamed_sources(deployment, streamed_reads(deployment), by_version)
                gone = files.count_missing_inputs(deployment.checkpoint, sources)
        except HeadgateError as error:
            log.info("%s v%s was not measured: %s", *key, error.summary)
            self._looked[key] = now
            if _is_input_with_log(deployment):
                self._agent.ledger.put_measurements([Measurement(*key, now)])
            return {}
        if held is None:
            return {key: TableStatistics(at=now, exact=False, gone=gone)}
        return {key: held.as_statistics(now, gone, history)}

    def _headroom(self) -> Headroom:
        pools, now = self._agent.layout.environment.pools, self._agent.clock()
        # The load of each of several pools is unknown: batches are counted together.
        cores = pools[0].cores if len(pools) == 1 and pools[0].url is None else None
        free, total = disk_space(self._agent.layout.data)
        engine = ""
        with suppress(HeadgateError):
            connection = self._agent.pools.reachable()
            engine = connection.call(READ_CALL_S, connection.analysis.engine)
        return Headroom(
            at=now,
            disk_free=free,
            disk_total=total,
            cores=cores,
            busy=self._load.busy(now, cores) if cores else None,
            engine=engine,
        )


def _is_input_with_log(deployment: Deployment) -> bool:
    return deployment.external and table_format(deployment.format).transaction_log
