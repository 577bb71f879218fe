"""Commands and the audit; audit entries are only added, which triggers in the database hold."""

from state.access import Reads, Writes, insert
from state.encoding import record
from state.rows import Audit, Command


class AuditReads(Reads):
    """Reads of commands and of the audit."""

    def commands(self, limit: int = 100) -> tuple[Command, ...]:
        """List the newest commands, accepted and refused, newest first."""
        return self._rows(Command, "SELECT * FROM command ORDER BY id DESC LIMIT ?", (limit,))

    def audits(self, limit: int = 100) -> tuple[Audit, ...]:
        """List the newest audit entries, newest first."""
        return self._rows(Audit, "SELECT * FROM audit ORDER BY id DESC LIMIT ?", (limit,))


class AuditWrites(AuditReads, Writes):
    """Writes of commands and of the audit; the ledger gives the ids."""

    def add_command(self, command: Command) -> int:
        """Add a command and return its id."""
        with self._transaction() as connection:
            return insert(connection, "command", record(command, without=("id",)))

    def end_command(self, command_id: int, *, outcome: str, ended_at: float, took_ms: int, detail: str = "") -> None:
        """Say how a command ended."""
        with self._transaction() as connection:
            connection.execute(
                "UPDATE command SET outcome = ?, ended_at = ?, took_ms = ?, detail = ? WHERE id = ?",
                (outcome, ended_at, took_ms, detail, command_id),
            )

    def add_audit(self, audit: Audit) -> int:
        """Add an audit entry and return its id."""
        with self._transaction() as connection:
            return insert(connection, "audit", record(audit, without=("id",)))
