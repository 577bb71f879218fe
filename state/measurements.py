"""Methods for measurements of versions (latest values, samples and table statistics) and for events.

Samples are thinned out with age: all are kept for an hour, one per minute for a day, one per quarter of an hour for a
week.
"""

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from core.model.events import EventKind
from core.model.names import TableName
from core.observed.table_statistics import Headroom, TableStatistics
from core.observed.versions import Measurement
from state.row_mapping import field_names, sqlite_value, values_by_column
from state.row_types import EventRow, SampleRow
from state.transactions import TREND_OF_STATE, LedgerReads, LedgerWrites, insert, upsert, while_it_may_run

_TENTHS = 10
_EPOCH = 1_699_999_200
_DEPLOYMENTS = 1 << 20
"""The `place` of a sample is (tenths of a second since `_EPOCH`) * `_DEPLOYMENTS` + deployment. Samples of one moment
are adjacent, so that a round of 10,000 touches few pages and thinning frees whole pages. Reading the samples of one
version costs one seek per round (`sample_round`)."""

_AGES = (("sample", "sample_minute", 3600, 60), ("sample_minute", "sample_quarter", 24 * 3600, 900))
"""Rules for thinning out samples: source table, target table, minimum age in seconds, seconds per kept sample."""
SAMPLES_S = 7 * 24 * 3600

_AGED_COLUMNS = "place, lag_rows, lag_files, in_rows_s, out_rows_s, batch_ms"
_FROM = f"""FROM deployment d CROSS JOIN sample_round round CROSS JOIN {{}} s
WHERE d."table" = ?1 AND d.version = ?2 AND round.slot >= ?3 AND s.place = round.slot * {_DEPLOYMENTS} + d.id"""
_SAMPLES = f"""
SELECT place / {_DEPLOYMENTS} / {_TENTHS}.0 + {_EPOCH} AS at, * FROM (
SELECT {_AGED_COLUMNS}, NULL AS lag_bytes, NULL AS produced_rows, NULL AS consumed_rows {_FROM.format("sample_quarter")}
UNION ALL SELECT {_AGED_COLUMNS}, NULL, NULL, NULL {_FROM.format("sample_minute")}
UNION ALL SELECT {_AGED_COLUMNS}, lag_bytes, produced_rows, consumed_rows {_FROM.format("sample")})
ORDER BY place"""

_MEASURED = f"""
SELECT d."table", d.version, m.*, {while_it_may_run("in_rows_s")}, {while_it_may_run("out_rows_s")},
  {TREND_OF_STATE} AS trend
FROM deployment d JOIN measurement m ON m.deployment = d.id"""

_COUNTED = (
    "at", "rows", "exact", "bytes", "files", "earliest", "gone", "small_files", "log_entries", "log_bytes", "log",
)  # fmt: skip
"""Fields of table statistics that have a column; the other fields come from the measurement."""

_STATISTICS = {name: f"f.{name}" for name in _COUNTED} | {
    "exact": "f.exact IS NOT 0",
    "log": "coalesce(f.log, '')",
    "rate_rows_s": "m.fastest_rows_s",
    "state_rows": "m.state_rows",
    "state_bytes": "m.state_bytes",
    "batch_s": "m.batch_ms / 1000.0",
    "time_left": "coalesce(m.time_left, '')",
}
"""SQL expression for each field of table statistics."""

_EXACT = field_names(TableStatistics).index("exact")

_TABLE_STATISTICS = f"""
SELECT d."table", d.version, {", ".join(_STATISTICS[name] for name in field_names(TableStatistics))}
FROM deployment d LEFT JOIN table_statistics f ON f.deployment = d.id LEFT JOIN measurement m ON m.deployment = d.id
WHERE d.drop_after IS NULL AND (?1 IS NULL OR d."table" = ?1)
  AND (f.deployment IS NOT NULL OR m.deployment IS NOT NULL)"""

_PUT_STATISTICS = f"""
INSERT INTO table_statistics (deployment, {", ".join(_COUNTED)})
SELECT id, {", ".join(f":{name}" for name in _COUNTED)} FROM deployment WHERE "table" = :table AND version = :version
ON CONFLICT (deployment) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in _COUNTED)}"""

ANSWERS_KEPT = 2000
"""Number of analysis answers kept. Once an answer is removed, Spark is asked again."""


class MeasurementReads(LedgerReads):
    """Methods that read measurements, samples and events."""

    def measurements(self) -> tuple[Measurement, ...]:
        """Return the latest measurements of all versions, by table and version; for screens, `statements` is faster."""
        return self._rows(Measurement, f'{_MEASURED} ORDER BY d."table", d.version')

    def measurement(self, table: TableName, version: int) -> Measurement | None:
        """Return the latest measurement of a version; None before the first measurement."""
        return self._row(Measurement, f'{_MEASURED} WHERE d."table" = ? AND d.version = ?', (table, version))

    def samples(self, table: TableName, version: int, since: float = 0.0) -> tuple[SampleRow, ...]:
        """List a version's samples since `since`, in epoch seconds, oldest first.

        Bytes and counters are None in samples older than an hour.
        """
        return self._rows(SampleRow, _SAMPLES, (table, version, max(0, _slot(since))))

    def encoded_lag(self) -> dict[str, str]:
        """Return the positions and totals from which the agent continues to measure lag, as JSON by key."""
        return dict(self._values("SELECT key, body FROM folded_lag"))

    def events(self, table: TableName | None = None, limit: int = 100) -> tuple[EventRow, ...]:
        """Return the latest events of a table, newest first; if `table` is None, of all tables and the environment."""
        if table is None:
            return self._rows(EventRow, "SELECT * FROM event ORDER BY at DESC, id DESC LIMIT ?", (limit,))
        sql = 'SELECT * FROM event WHERE "table" = ? ORDER BY at DESC, id DESC LIMIT ?'
        return self._rows(EventRow, sql, (table, limit))

    def events_of(self, table: TableName, kind: str) -> tuple[EventRow, ...]:
        """List a table's events of one kind, newest first."""
        sql = 'SELECT * FROM event WHERE "table" = ? AND kind = ? ORDER BY at DESC, id DESC'
        return self._rows(EventRow, sql, (table, kind))

    def objective_event(self, table: TableName) -> EventRow | None:
        """Return the last event in which a table missed its lag objective or met it again; None if there is none."""
        sql = 'SELECT * FROM event WHERE "table" = ? AND kind IN (?, ?) ORDER BY at DESC, id DESC LIMIT 1'
        found = self._rows(EventRow, sql, (table, EventKind.MISSED, EventKind.MET))
        return found[0] if found else None

    def table_statistics(self, of: TableName | None = None) -> dict[tuple[TableName, int], TableStatistics]:
        """Return the statistics of existing versions, by table and version; with `of`, of one table only.

        External tables have version 0. The call takes 3 µs per version.
        """
        return {
            (table, version): _statistics(figures)
            for table, version, *figures in self._values(_TABLE_STATISTICS, (of,))
        }

    def headroom(self) -> Headroom:
        """Return the environment's free disk space and cores. All values are unknown before the first measurement."""
        return self._row(Headroom, "SELECT * FROM headroom") or Headroom()

    def spark_analyses(self) -> dict[str, str]:
        """Return the cached answers to questions of plans, as JSON by key; the call takes milliseconds.

        They are Spark's analyses, results of upgrade tests, and topics that the agent has seen.
        """
        return dict(self._values("SELECT key, answer FROM spark_analysis ORDER BY key"))


class MeasurementWrites(MeasurementReads, LedgerWrites):
    """Methods that write measurements, samples and events."""

    def put_measurements(self, measurements: Iterable[Measurement]) -> None:
        """Replace the latest measurements of several versions in one transaction; unknown versions are ignored."""
        with self._transaction() as connection:
            change = self._next_change()
            for measurement in measurements:
                deployment = _deployment(connection, measurement.table, measurement.version)
                if deployment is not None:
                    values = values_by_column(measurement, without=("table", "version"))
                    values |= {"deployment": deployment, "changed": change}
                    upsert(connection, "measurement", values, key=("deployment",))

    def add_samples(self, samples: Iterable[tuple[TableName, int, SampleRow]]) -> None:
        """Add samples as (table, version, sample); times are rounded to tenths of a second.

        All samples of a round should have the same `at`, since reading costs one seek per timestamp.
        """
        with self._transaction() as connection:
            for table, version, sample in samples:
                deployment = _deployment(connection, table, version)
                if deployment is None:
                    continue
                slot = _slot(sample.at)
                values = values_by_column(sample, without=("at",)) | {"place": slot * _DEPLOYMENTS + deployment}
                connection.execute("INSERT OR IGNORE INTO sample_round VALUES (?)", (slot,))
                upsert(connection, "sample", values, key=("place",))

    def put_encoded_lag(self, encoded: Mapping[str, str]) -> None:
        """Replace the stored result of `encoded_lag`. Only changed entries are written."""
        with self._transaction() as connection:
            known = dict(connection.execute("SELECT key, body FROM folded_lag").fetchall())
            connection.executemany("DELETE FROM folded_lag WHERE key = ?", [(key,) for key in known.keys() - encoded])
            changed = [(key, body) for key, body in encoded.items() if known.get(key) != body]
            connection.executemany("INSERT OR REPLACE INTO folded_lag VALUES (?, ?)", changed)

    def thin_samples(self, now: float) -> None:
        """Thin out old samples, in one transaction per time span.

        Call this once a minute.
        """
        for source, target, age_s, span_s in _AGES:
            span, end = span_s * _TENTHS, _slot(now - age_s)
            while (start := self._oldest(source, span)) is not None and start + span <= end:
                with self._transaction() as connection:
                    _thin(connection, source, target, (start, start + span))
        oldest = _slot(now - SAMPLES_S)
        with self._transaction() as connection:
            connection.execute("DELETE FROM sample_quarter WHERE place < ?", (oldest * _DEPLOYMENTS,))
            connection.execute("DELETE FROM sample_round WHERE slot < ?", (oldest,))

    def add_event(self, event: EventRow) -> int:
        """Add an event and return its id.

        If the version already has an event of the same kind and fingerprint, that event is updated and its `count`
        incremented instead. The ledger assigns `id`, `count` and `first_at`.
        """
        with self._transaction() as connection:
            return put_event(connection, event)

    def _oldest(self, samples: str, span: int) -> int | None:
        (place,) = self._values(f"SELECT min(place) FROM {samples}")[0]
        return None if place is None else int(place) // _DEPLOYMENTS // span * span

    def put_table_statistics(self, measured: Mapping[tuple[TableName, int], TableStatistics]) -> None:
        """Replace the statistics of versions, except throughput and state, which are read from measurements."""
        with self._transaction() as connection:
            connection.executemany(
                _PUT_STATISTICS,
                [
                    {"table": table, "version": version, **{name: getattr(one, name) for name in _COUNTED}}
                    for (table, version), one in measured.items()
                ],
            )

    def put_headroom(self, headroom: Headroom) -> None:
        """Replace the measurement of free disk space and cores."""
        with self._transaction() as connection:
            upsert(connection, "headroom", {"one": 1, **values_by_column(headroom)}, key=("one",))

    def put_spark_analysis(self, key: str, answer: str, *, at: float) -> None:
        """Cache the answer to a question of a plan, and remove the oldest answers beyond `ANSWERS_KEPT`."""
        with self._transaction() as connection:
            upsert(connection, "spark_analysis", {"key": key, "at": at, "answer": answer}, key=("key",))
            connection.execute(
                "DELETE FROM spark_analysis WHERE key NOT IN "
                "(SELECT key FROM spark_analysis ORDER BY at DESC, key LIMIT ?)",
                (ANSWERS_KEPT,),
            )


def put_event(connection: sqlite3.Connection, event: EventRow) -> int:
    """Add or update an event as `add_event` does, but within the caller's transaction; return its id."""
    if event.fingerprint:
        of_its_kind = (event.table, event.version, event.kind, event.fingerprint)
        found = connection.execute(
            "UPDATE event SET at = ?, summary = ?, detail = ?, count = count + 1 "
            "WHERE \"table\" = ? AND version = ? AND kind = ? AND fingerprint = ? AND fingerprint <> '' "
            "RETURNING id",
            tuple(map(sqlite_value, (event.at, event.summary, event.detail, *of_its_kind))),
        ).fetchall()
        if found:
            return int(found[0][0])
    values = values_by_column(event, without=("id",)) | {"count": 1, "first_at": event.at}
    return insert(connection, "event", values)


def _thin(connection: sqlite3.Connection, source: str, target: str, slots: tuple[int, int]) -> None:
    """Move each version's first sample in a time span to the table `target`, and delete the span's other samples."""
    places = (slots[0] * _DEPLOYMENTS, slots[1] * _DEPLOYMENTS)
    within = "place >= ? AND place < ?"
    connection.execute(
        f"INSERT OR IGNORE INTO {target} SELECT {_AGED_COLUMNS} FROM {source} WHERE place IN "
        f"(SELECT min(place) FROM {source} WHERE {within} GROUP BY place % {_DEPLOYMENTS}) ORDER BY place",
        places,
    )
    connection.execute(f"DELETE FROM {source} WHERE {within}", places)
    connection.execute(
        f"DELETE FROM sample_round WHERE slot >= ? AND slot < ? AND NOT EXISTS (SELECT 1 FROM {target} WHERE place "
        f"BETWEEN slot * {_DEPLOYMENTS} AND slot * {_DEPLOYMENTS} + {_DEPLOYMENTS - 1})",
        slots,
    )


def _deployment(connection: sqlite3.Connection, table: TableName, version: int) -> int | None:
    found = connection.execute(
        'SELECT id FROM deployment WHERE "table" = ? AND version = ?', (table, version)
    ).fetchone()
    return int(found[0]) if found else None


def _slot(at: float) -> int:
    return round((at - _EPOCH) * _TENTHS)


def _statistics(figures: list[Any]) -> TableStatistics:
    figures[_EXACT] = figures[_EXACT] == 1
    return TableStatistics(*figures)
