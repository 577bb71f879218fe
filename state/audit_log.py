"""Commands and the audit; audit entries are only added, which triggers in the database hold."""

from state.row_mapping import values_by_column
from state.row_types import AuditRow, CommandRow
from state.transactions import LedgerReads, LedgerWrites, insert


class AuditReads(LedgerReads):
    """Reads of commands and of the audit."""

    def commands(self, limit: int = 100) -> tuple[CommandRow, ...]:
        """List the newest commands, accepted and refused, newest first."""
        return self._rows(CommandRow, "SELECT * FROM command ORDER BY id DESC LIMIT ?", (limit,))

    def audits(self, limit: int = 100) -> tuple[AuditRow, ...]:
        """List the newest audit entries, newest first."""
        return self._rows(AuditRow, "SELECT * FROM audit ORDER BY id DESC LIMIT ?", (limit,))


class AuditWrites(AuditReads, LedgerWrites):
    """Writes of commands and of the audit; the ledger gives the ids."""

    def add_command(self, command: CommandRow) -> int:
        """Add a command and return its id."""
        with self._transaction() as connection:
            return insert(connection, "command", values_by_column(command, without=("id",)))

    def add_audit(self, audit: AuditRow) -> int:
        """Add an audit entry and return its id."""
        with self._transaction() as connection:
            return insert(connection, "audit", values_by_column(audit, without=("id",)))
