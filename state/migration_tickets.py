"""Migration tickets: who still reads what a release replaced, from the swap until they read what serves instead."""

from collections.abc import Iterable

from core.model.errors import Refused
from core.run.records import MigrationTicket
from state.row_mapping import values_by_column
from state.transactions import LedgerReads, LedgerWrites


class TicketReads(LedgerReads):
    """Reads of tickets."""

    def tickets(self, run_id: str | None = None) -> tuple[MigrationTicket, ...]:
        """List the tickets of a run, or all, by table and reader."""
        which = "WHERE ?1 IS NULL OR run_id = ?1"
        return self._rows(
            MigrationTicket, f'SELECT * FROM migration_ticket {which} ORDER BY "table", reader, run_id', (run_id,)
        )

    def unclosed_tickets(self) -> tuple[MigrationTicket, ...]:
        """List the tickets that nobody has closed, by table and reader."""
        sql = 'SELECT * FROM migration_ticket WHERE closed_at IS NULL ORDER BY "table", reader, run_id'
        return self._rows(MigrationTicket, sql)


class TicketWrites(TicketReads, LedgerWrites):
    """Writes of tickets."""

    def open_tickets(self, tickets: Iterable[MigrationTicket]) -> None:
        """Write tickets; the first time counts."""
        with self._transaction() as connection:
            for ticket in tickets:
                values = values_by_column(ticket)
                columns = ", ".join(f'"{name}"' for name in values)
                marks = ", ".join("?" * len(values))
                sql = f"INSERT OR IGNORE INTO migration_ticket ({columns}) VALUES ({marks})"
                connection.execute(sql, tuple(values.values()))

    def close_ticket(self, run_id: str, reader: str, *, by: str, at: float) -> int:
        """Close the tickets of a reader; returns how many. Raises Refused where none of a run's is open."""
        with self._transaction() as connection:
            closed = connection.execute(
                "UPDATE migration_ticket SET closed_at = ?, closed_by = ? "
                "WHERE run_id = ? AND reader = ? AND closed_at IS NULL",
                (at, by, run_id, reader),
            ).rowcount
        if not closed:
            raise Refused(f"run {run_id} has no open ticket of {reader}", remedy=f"headgate release show {run_id}")
        return closed
