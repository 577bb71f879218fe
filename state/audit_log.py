"""The command log and the audit log. Audit entries are append-only; triggers and a hash chain protect them.

The latest entry is also recorded in a separate table, in the same transaction, so that a removal of the last entries is
detected.
"""

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import replace

from state.audit_chain import FIRST, AuditCheck, AuditHead, check_audit, hash_of
from state.row_mapping import field_names, row_from_values, values_by_column
from state.row_types import AuditArchiveRow, AuditRow, CommandRow
from state.transactions import LedgerReads, LedgerWrites, insert, sqlite_errors_translated, upsert

_WORDS = {
    "submit_plan": "plan",
    "run": "runs",
    "opinion": "Spark analysis",
    "upgrade_shown": "upgrade test",
    "measure": "measurement",
    "look_for_inputs": "look for topics and folders",
    "policy_apply": "policy apply",
    "policy_approve": "policy approve",
    "cordon_pool": "cordon pool",
    "uncordon_pool": "uncordon pool",
    "exit": "down",
}
"""Display names of operations whose name on the socket is not self-explanatory."""

_ABOUT = (
    "SELECT * FROM {0} WHERE EXISTS (SELECT 1 FROM json_each(?) "
    "WHERE instr(' ' || {0}.subject || ' ', ' ' || value || ' ')) ORDER BY id DESC LIMIT ?"
)
"""SQL for the newest rows whose subject contains one of several words.

A subject is one word, or table names separated by spaces.
"""


def op_words(op: str) -> str:
    """Return the name of an operation on the agent's socket for display."""
    return _WORDS.get(op, op)


class AuditReads(LedgerReads):
    """Methods that read the command log and the audit log."""

    def commands(self, limit: int = 100) -> tuple[CommandRow, ...]:
        """List the latest commands, accepted or refused, newest first."""
        return self._rows(CommandRow, "SELECT * FROM command ORDER BY id DESC LIMIT ?", (limit,))

    def audits(self, limit: int = 100) -> tuple[AuditRow, ...]:
        """List the latest audit entries, newest first."""
        return self._rows(AuditRow, "SELECT * FROM audit ORDER BY id DESC LIMIT ?", (limit,))

    def commands_about(self, subjects: Iterable[str], limit: int = 100) -> tuple[CommandRow, ...]:
        """Return the latest commands whose subject contains one of the words in `subjects`, newest first."""
        return self._rows(CommandRow, _ABOUT.format("command"), (json.dumps(sorted(subjects)), limit))

    def audits_about(self, subjects: Iterable[str], limit: int = 100) -> tuple[AuditRow, ...]:
        """Return the latest audit entries whose subject contains one of the words in `subjects`, newest first."""
        return self._rows(AuditRow, _ABOUT.format("audit"), (json.dumps(sorted(subjects)), limit))

    def audit_archives(self) -> tuple[AuditArchiveRow, ...]:
        """Return the archive files that contain older audit entries, oldest file first."""
        return self._rows(AuditArchiveRow, "SELECT * FROM audit_archive ORDER BY last")

    def check_audit(self) -> AuditCheck:
        """Verify the whole audit log, in archives and ledger. Raises LedgerUnavailable if a file cannot be read."""
        columns, archive = field_names(AuditRow), field_names(AuditArchiveRow)
        # One statement reads one snapshot, in which an entry is either in the ledger or in an archive, never in both.
        found = self._values(
            f"SELECT head.entry, head.hash, archives.rows, {', '.join(f'audit.{name}' for name in columns)} "
            f"FROM (SELECT json_group_array(json_array({', '.join(archive)})) AS rows "
            "FROM (SELECT * FROM audit_archive ORDER BY last)) AS archives "
            "LEFT JOIN audit_head AS head ON TRUE LEFT JOIN audit ON TRUE ORDER BY audit.id"
        )
        head = AuditHead(*found[0][:2]) if found[0][0] is not None else None
        archives = [row_from_values(AuditArchiveRow, archive, values) for values in json.loads(found[0][2])]
        entries = [row_from_values(AuditRow, columns, values[3:]) for values in found if values[3] is not None]
        with sqlite_errors_translated(self.path):
            return check_audit(self.path.parent, archives, entries, head)


class AuditWrites(AuditReads, LedgerWrites):
    """Methods that write the command log and the audit log. The ledger assigns the ids of the rows."""

    def add_command(self, command: CommandRow) -> int:
        """Add a row to the command log and return its id."""
        with self._transaction() as connection:
            return insert(connection, "command", values_by_column(command, without=("id",)))

    def add_audit(self, audit: AuditRow) -> int:
        """Append an entry to the audit log and return its id."""
        with self._transaction() as connection:
            return put_audit(connection, audit)


def put_audit(connection: sqlite3.Connection, audit: AuditRow) -> int:
    """Append an audit entry within the caller's transaction, and return its id."""
    # The hash covers the stored values.
    stored = row_from_values(AuditRow, field_names(AuditRow), list(values_by_column(audit).values()))
    found = connection.execute("SELECT hash FROM audit_head").fetchone()
    chained = replace(stored, previous=found[0] if found else FIRST)
    chained = replace(chained, hash=hash_of(chained, chained.previous))
    entry = insert(connection, "audit", values_by_column(chained, without=("id",)))
    upsert(connection, "audit_head", {"one": 1, "entry": entry, "hash": chained.hash}, ("one",))
    return entry
