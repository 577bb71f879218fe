"""What was measured of each version's table and of the environment: the inputs of every price in a plan."""

from collections.abc import Mapping

from core.model.names import TableName
from core.observed.table_statistics import Headroom, TableStatistics
from state.row_mapping import sqlite_value
from state.transactions import LedgerReads, LedgerWrites, upsert

_TABLE_STATISTICS = """
SELECT d."table", d.version, f.at, f.rows, f.exact IS NOT 0, f.bytes, f.files, f.earliest, f.gone, m.fastest_rows_s,
  m.state_rows, m.state_bytes, m.batch_ms / 1000.0, f.small_files, f.log_entries, f.log_bytes, coalesce(f.log, '')
FROM deployment d LEFT JOIN table_statistics f ON f.deployment = d.id LEFT JOIN measurement m ON m.deployment = d.id
WHERE d.drop_after IS NULL AND (?1 IS NULL OR d."table" = ?1)
  AND (f.deployment IS NOT NULL OR m.deployment IS NOT NULL)"""

_PUT = """
INSERT INTO table_statistics (deployment, at, rows, exact, bytes, files, earliest, gone, small_files, log_entries,
  log_bytes, log)
SELECT id, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13 FROM deployment WHERE "table" = ?1 AND version = ?2
ON CONFLICT (deployment) DO UPDATE SET at = excluded.at, rows = excluded.rows, exact = excluded.exact,
  bytes = excluded.bytes, files = excluded.files, earliest = excluded.earliest, gone = excluded.gone,
  small_files = excluded.small_files, log_entries = excluded.log_entries, log_bytes = excluded.log_bytes,
  log = excluded.log"""


class TableStatisticsReads(LedgerReads):
    """Reads of table statistics."""

    def table_statistics(self, of: TableName | None = None) -> dict[tuple[TableName, int], TableStatistics]:
        """Return what is known of every version that is not deleted, by table and version; 0 is an external table.

        Of one table only, or of all; 3 µs each.
        """
        return {
            (table, version): TableStatistics(at, rows, exact == 1, *others)
            for table, version, at, rows, exact, *others in self._values(_TABLE_STATISTICS, (of,))
        }

    def headroom(self) -> Headroom:
        """Read the headroom of the environment; empty before it was measured."""
        found = self._values("SELECT at, disk_free, disk_total, cores, busy, engine FROM headroom")
        return Headroom(*found[0]) if found else Headroom()


class TableStatisticsWrites(TableStatisticsReads, LedgerWrites):
    """Writes of table statistics."""

    def put_table_statistics(self, measured: Mapping[tuple[TableName, int], TableStatistics]) -> None:
        """Write what was measured of tables; rate and state are a measurement's, and are not written here."""
        with self._transaction() as connection:
            connection.executemany(
                _PUT,
                [
                    (table, version, f.at, f.rows, f.exact, f.bytes, f.files, f.earliest, f.gone, f.small_files,
                     f.log_entries, f.log_bytes, f.log)
                    for (table, version), f in measured.items()
                ],
            )  # fmt: skip

    def put_headroom(self, headroom: Headroom) -> None:
        """Write the headroom of the environment over what was there."""
        names = ("at", "disk_free", "disk_total", "cores", "busy", "engine")
        values = {name: sqlite_value(getattr(headroom, name)) for name in names}
        with self._transaction() as connection:
            upsert(connection, "headroom", {"one": 1, **values}, key=("one",))
