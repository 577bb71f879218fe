"""The audit is append-only, as enforced by the database itself."""

import sqlite3
from pathlib import Path

import pytest

from state.ledger import Ledger
from state.row_types import AuditRow


@pytest.mark.parametrize(
    "act", ["UPDATE audit SET actor = 'eve'", "DELETE FROM audit", "REPLACE INTO audit SELECT * FROM audit"]
)
def test_audit_entry_can_be_neither_changed_nor_deleted(ledger: Ledger, path: Path, act: str) -> None:
    ledger.add_audit(AuditRow(0, 1.0, "ana", "stop", "orders", outcome="done"))
    before = ledger.audits()
    connection = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute(act)
    connection.close()
    assert ledger.audits() == before


def test_newest_entries_come_first(ledger: Ledger) -> None:
    for subject in ("a", "b", "c"):
        ledger.add_audit(AuditRow(0, 1.0, "ana", "stop", subject))
    assert [entry.subject for entry in ledger.audits(limit=2)] == ["c", "b"]
