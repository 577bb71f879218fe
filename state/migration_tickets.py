"""Migration tickets: who still reads what a release replaced, from the swap until they read what serves instead."""

from collections.abc import Iterable
from dataclasses import dataclass

from core.model.errors import Refused
from core.model.names import TableName
from state.row_mapping import values_by_column
from state.transactions import LedgerReads, LedgerWrites


@dataclass(frozen=True, slots=True)
class MigrationTicket:
    """A reader of a version that a run has replaced, written at the swap."""

    run_id: str
    table: TableName
    reader: str
    """A statement that stays on the old version, or a reader that the project only declares."""
    product: str
    owner: str
    is_statement: bool
    """Whether it is a statement of ours, whose ticket is closed by what it reads."""
    old: str
    """Physical table: `orders__v1`."""
    new: str
    cut_batch: int | None
    """Last batch of the old version that was known at the swap; None where none was."""
    cut_at: float
    """When the pointer moved."""
    deadline: float
    """Until when it is expected to have moved."""
    closed_at: float | None = None
    closed_by: str = ""

    @property
    def version(self) -> int:
        """The old version."""
        return int(self.old.rpartition("__v")[2])


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
