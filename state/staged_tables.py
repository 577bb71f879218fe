"""What actors have staged, each in a project folder of theirs; never part of another's plan."""

from collections.abc import Iterable

from core.model.names import TableName
from state.row_mapping import values_by_column
from state.row_types import StagedRow
from state.transactions import LedgerReads, LedgerWrites, upsert


class StagedReads(LedgerReads):
    """Reads of what is staged."""

    def staged(self) -> tuple[StagedRow, ...]:
        """List what all actors have staged, by actor, folder and table."""
        return self._rows(StagedRow, 'SELECT * FROM staged ORDER BY actor, folder, "table"')


class StagedWrites(StagedReads, LedgerWrites):
    """Writes of what is staged."""

    def stage(self, staged: Iterable[StagedRow]) -> None:
        """Stage tables, each for its actor and folder, all or none; a second time replaces the verb."""
        with self._transaction() as connection:
            for one in staged:
                upsert(connection, "staged", values_by_column(one), key=("actor", "folder", "table"))

    def unstage(self, actor: str, folder: str, tables: Iterable[TableName]) -> None:
        """Remove tables from what an actor staged in a folder."""
        with self._transaction() as connection:
            connection.executemany(
                'DELETE FROM staged WHERE actor = ? AND folder = ? AND "table" = ?',
                [(actor, folder, table) for table in tables],
            )
