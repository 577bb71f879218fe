"""What the comparison of a release has found: for each table of a run a row for each check, of the last look."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from core.model.names import TableName
from state.row_mapping import values_by_column
from state.transactions import LedgerReads, LedgerWrites, insert


@dataclass(frozen=True, slots=True)
class CheckResultRow:
    """One check of one table in a release; `verdict` of `core.validation.verdicts.CheckVerdict`."""

    run_id: str
    table: TableName
    n: int
    """From 1, in the order in which they are shown."""
    at: float
    old_version: int
    new_version: int
    old_batch: int | None
    """The batches up to which rows were compared; None where rows were not compared."""
    new_batch: int | None
    check: str
    verdict: str
    summary: str
    counts: dict[str, object] = field(default_factory=dict)
    examples: tuple[dict[str, object], ...] = ()
    """Each with `why`, `old` and `new`; bounded, and without what looks like a secret."""


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
