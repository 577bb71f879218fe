"""What the comparison of a release has found: for each table of a run a row for each check, of the last look."""

from collections.abc import Iterable

from core.model.names import TableName
from state.row_mapping import values_by_column
from state.row_types import CheckResultRow
from state.transactions import LedgerReads, LedgerWrites, insert


class CheckResultReads(LedgerReads):
    """Reads of results."""

    def check_results(self, run_id: str, table: TableName | None = None) -> tuple[CheckResultRow, ...]:
        """List the results of a run, of one table or of all, by table in the order in which they were found."""
        return self._rows(
            CheckResultRow,
            'SELECT * FROM check_result WHERE run_id = ?1 AND (?2 IS NULL OR "table" = ?2) ORDER BY "table", n',
            (run_id, table),
        )


class CheckResultWrites(CheckResultReads, LedgerWrites):
    """Writes of results."""

    def put_check_results(self, run_id: str, table: TableName, results: Iterable[CheckResultRow]) -> None:
        """Write the results of one table over those of an earlier comparison in the same run."""
        with self._transaction() as connection:
            connection.execute('DELETE FROM check_result WHERE run_id = ? AND "table" = ?', (run_id, table))
            for result in results:
                insert(connection, "check_result", values_by_column(result))
