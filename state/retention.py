"""Retention: how long rows are kept in each table of the ledger. Every round removes a bounded number of rows.

Rows in use are never removed: open runs with their plans, the revisions of all versions, and the newest version of
every table, whose number is not reused. Audit entries are moved into files next to the ledger (`state.audit_chain`);
policies are kept forever. Samples and Spark's analysis answers are limited in `state.measurements`.
"""

from core.model.actions import UNDO_D
from state.audit_chain import append_part
from state.registry import RegistryWrites
from state.row_mapping import values_by_column
from state.row_types import AuditArchiveRow, AuditRow, ClockCheck
from state.transactions import sqlite_errors_translated, upsert

DAY_S = 86400.0
EVENTS_D = 30
EVENTS_KEPT = 100_000
"""Maximum number of events kept, even if they are younger than `EVENTS_D` days."""
COMMANDS_D = 90
COMMANDS_KEPT = 100_000
RUNS_D = UNDO_D
PLAN_TEXTS_D = 7
"""Days that a plan's texts are kept after its expiry, so that a failed run can be compared with later edits."""
PLANS_D = 30
"""Days after expiry until a plan without a run is removed. Other plans are removed with their run."""
VERSIONS_D = 90
"""Days until a version with purged files is removed; also applies to commands on a version that is gone."""
STAGED_D = 90
AUDIT_D = 400
"""Age, in days, at which audit entries are archived, so that the ledger always has the entries of the last year."""
AUDIT_KEPT = 100_000
"""Maximum number of audit entries kept in the ledger, even if they are younger than `AUDIT_D` days."""
AUDIT_PART = 10_000
"""Entries archived per round, in one file and one transaction."""

FORGETS_S = max(EVENTS_D, COMMANDS_D, RUNS_D, VERSIONS_D, STAGED_D) * DAY_S
"""The longest retention that deletes rows, in seconds. Audit entries are archived instead."""

_PART = 200
"""Number of rows removed per transaction."""
_PLANS_PART = 4
"""Number of plans removed per transaction. A plan can take megabytes."""
_COMMANDS_PART = 1_000
"""Number of commands removed per transaction: as many as a caller can add by repeating requests."""
_PARTS = 10
"""Maximum number of transactions per rule and round."""
_PAGES = 1000
"""Number of free pages released to the file system per round: 4 MB."""

_RULES: tuple[tuple[float, int, str], ...] = (
    (
        EVENTS_D,
        _PART,
        "DELETE FROM event WHERE id IN (SELECT id FROM event WHERE at < :before ORDER BY at LIMIT :most)",
    ),
    (
        0,
        _PART,
        "DELETE FROM event WHERE id IN (SELECT id FROM event WHERE id <= "
        f"(SELECT id FROM event ORDER BY id DESC LIMIT 1 OFFSET {EVENTS_KEPT}) ORDER BY id LIMIT :most)",
    ),
    (
        COMMANDS_D,
        _COMMANDS_PART,
        "DELETE FROM command WHERE id IN (SELECT id FROM command ORDER BY id LIMIT :most) AND (at < :before OR id <= "
        f"(SELECT id FROM command ORDER BY id DESC LIMIT 1 OFFSET {COMMANDS_KEPT}))",
    ),
    (
        PLAN_TEXTS_D,
        _PLANS_PART,
        "UPDATE plan SET texts = '' WHERE hash IN (SELECT hash FROM plan WHERE expires_at < :before AND texts <> '' "
        "AND hash NOT IN (SELECT plan_hash FROM run WHERE ended_at IS NULL) LIMIT :most)",
    ),
    (
        PLANS_D,
        _PLANS_PART,
        "DELETE FROM plan WHERE hash IN (SELECT hash FROM plan WHERE expires_at < :before "
        "AND hash NOT IN (SELECT plan_hash FROM run) LIMIT :most)",
    ),
    (PLANS_D, _PART, "DELETE FROM approval WHERE plan_hash NOT IN (SELECT hash FROM plan)"),
    (
        PLANS_D,
        _PART,
        'DELETE FROM plan_table WHERE (plan_hash, "table") IN (SELECT plan_hash, "table" FROM plan_table '
        "WHERE plan_hash NOT IN (SELECT hash FROM plan) LIMIT :most)",
    ),
    (
        VERSIONS_D,
        _PART,
        "DELETE FROM word WHERE subject IN (SELECT subject FROM word WHERE at < :before AND NOT EXISTS (SELECT 1 FROM "
        'deployment WHERE subject IN ("table", "table" || \'@v\' || version)) LIMIT :most)',
    ),
    (0, _PART, "DELETE FROM migration_ticket WHERE run_id NOT IN (SELECT id FROM run)"),
    (
        STAGED_D,
        _PART,
        'DELETE FROM staged WHERE (actor, folder, "table") IN '
        '(SELECT actor, folder, "table" FROM staged WHERE at < :before LIMIT :most)',
    ),
    (
        0,
        _PART,
        "DELETE FROM revision WHERE revision IN (SELECT revision FROM revision "
        "WHERE revision NOT IN (SELECT revision FROM deployment) LIMIT :most)",
    ),
)
"""Rules as (age in days, 0 if irrelevant; rows per transaction; SQL that removes older rows)."""

_OLD_AUDIT = """SELECT * FROM audit WHERE id < coalesce(
  (SELECT id FROM audit WHERE at >= ? AND id > (SELECT entry FROM audit_head) - ? ORDER BY id LIMIT 1), 1 << 62)
  ORDER BY id LIMIT ?"""
"""SQL for the oldest audit entries that are too old or beyond the maximum number."""
_OLD_RUNS = "SELECT id FROM run WHERE ended_at < :before ORDER BY ended_at LIMIT :most"
_OLD_VERSIONS = """SELECT id FROM deployment old WHERE purged_at < :before AND version <
  (SELECT max(version) FROM deployment new WHERE new."table" = old."table") LIMIT :most"""


class RetentionWrites(RegistryWrites):
    """Methods that remove old rows, and that write the clock check on which the removal relies."""

    def put_clock_check(self, check: ClockCheck, moved_s: float = 0.0) -> None:
        """Write a check of the wall clock, and shift pending deadlines by `moved_s` seconds in the same transaction."""
        with self._registering() as connection:
            if moved_s:
                connection.execute(
                    "UPDATE deployment SET drop_after = drop_after + ?1, stops_at = stops_at + ?1, changed = ?2 "
                    "WHERE trash <> '' OR stops_at IS NOT NULL",
                    (moved_s, self._next_change()),
                )
                connection.execute(
                    "UPDATE migration_ticket SET deadline = deadline + ? WHERE closed_at IS NULL", (moved_s,)
                )
                connection.execute(
                    "UPDATE plan SET expires_at = expires_at + ? WHERE expires_at > ?", (moved_s, check.wall - moved_s)
                )
                connection.execute("UPDATE unlock SET until = until + ?", (moved_s,))
            upsert(connection, "clock_check", {"one": 1, **values_by_column(check)}, key=("one",))

    def forget_old(self, now: float) -> None:
        """Remove a bounded number of old rows in several transactions, and release free pages of the ledger's file."""
        with self._registering() as connection:
            ids = connection.execute(_OLD_VERSIONS, _limits(now, VERSIONS_D)).fetchall()
            named = (("measurement", "deployment"), ("table_statistics", "deployment"), ("deployment", "id"))
            for table, column in named:
                connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", ids)
        with self._transaction() as connection:
            ids = connection.execute(_OLD_RUNS, _limits(now, RUNS_D)).fetchall()
            for table, column in (
                ("step", "run_id"),
                ("run_word", "run_id"),
                ("check_result", "run_id"),
                ("run_table", "run_id"),
                ("run", "id"),
            ):
                connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", ids)
        for days, part, sql in _RULES:
            for _ in range(_PARTS):
                with self._transaction() as connection:
                    removed = connection.execute(sql, _limits(now, days, part)).rowcount
                if removed < part:
                    break
        with self._writing, sqlite_errors_translated(self.path):
            # As a script, the pragma runs to its end; `execute` would stop after the first page (Python 3.11).
            self._connection.executescript(f"PRAGMA incremental_vacuum({_PAGES})")

    def archive_audit(self, now: float) -> None:
        """Move a bounded number of old audit entries into an archive file; a kill neither loses nor duplicates entries.

        Raises LedgerUnavailable if the archive cannot be written; the ledger then keeps all entries.
        """
        entries = self._rows(AuditRow, _OLD_AUDIT, (now - AUDIT_D * DAY_S, AUDIT_KEPT, AUDIT_PART))
        if not entries:
            return
        archives = self._rows(AuditArchiveRow, "SELECT * FROM audit_archive ORDER BY last")
        with sqlite_errors_translated(self.path):
            record = append_part(self.path.parent, archives, entries)
        with self._transaction() as connection:
            upsert(connection, "audit_archive", values_by_column(record), ("file",))
            connection.execute("DELETE FROM audit WHERE id <= ?", (record.last,))


def _limits(now: float, days: float, most: int = _PART) -> dict[str, float]:
    return {"before": now - days * DAY_S, "most": most}
