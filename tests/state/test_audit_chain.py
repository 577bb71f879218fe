"""The audit's hash chain: tampering that bypasses the triggers is detected, and the changed entries are named."""

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from state.audit_chain import AuditHead, breaks_of, hash_of
from state.ledger import Ledger, LedgerReader
from state.row_types import AuditRow

COLUMNS = "at, actor, action, subject, plan_hash, confirmation, outcome"


@pytest.fixture
def tampered(ledger: Ledger, path: Path) -> Callable[..., list[str]]:
    """Run statements on an audit of six entries without its triggers, and return what verification finds."""
    for number in range(1, 7):
        ledger.add_audit(AuditRow(0, number / 3, f"ana {number}", "stop", "ordérs", outcome="done"))

    def found(*acts: str) -> list[str]:
        with sqlite3.connect(path) as connection:
            for name in ("audit_is_not_changed", "audit_is_not_replaced", "audit_is_not_deleted"):
                connection.execute(f"DROP TRIGGER {name}")
            for act in acts:
                connection.execute(act)
        connection.close()
        with LedgerReader(path) as reader:
            return [each.words for each in reader.check_audit().breaks]

    return found


def swap(one: int, other: int) -> tuple[str, ...]:
    """Return statements that exchange two entries, with their hashes."""
    move = "UPDATE audit SET id = {} WHERE id = {}"
    return move.format(-1, one), move.format(one, other), move.format(other, -1)


def test_an_untouched_audit_is_valid(tampered: Callable[..., list[str]], ledger: Ledger) -> None:
    assert tampered() == []
    check = ledger.check_audit()
    assert (check.head, check.breaks) == (AuditHead(6, ledger.audits(1)[0].hash), ())


@pytest.mark.parametrize("column", COLUMNS.split(", "))
@pytest.mark.parametrize("number", [1, 3, 6])
def test_changed_entry_is_named(tampered: Callable[..., list[str]], column: str, number: int) -> None:
    value = "9.5" if column == "at" else "'eve'"
    assert tampered(f"UPDATE audit SET {column} = {value} WHERE id = {number}") == [f"entry {number} was changed"]


@pytest.mark.parametrize("number", [1, 3, 6])
def test_changed_entry_with_a_hash_that_fits_is_named(
    tampered: Callable[..., list[str]], ledger: Ledger, number: int
) -> None:
    entry = next(row for row in ledger.audits() if row.id == number)
    forged = hash_of(replace(entry, actor="eve"), entry.previous)
    act = f"UPDATE audit SET actor = 'eve', hash = '{forged}' WHERE id = {number}"
    assert tampered(act) == [f"entry {number} was changed"]


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("id = 1", ["entry 1 was removed"]),
        ("id = 3", ["entry 3 was removed"]),
        ("id IN (2, 3, 5)", ["entries 2 to 3 were removed", "entry 5 was removed"]),
        ("id = 6", ["entry 6 was removed"]),
        ("id > 3", ["entries 4 to 6 were removed"]),
        ("TRUE", ["entries 1 to 6 were removed"]),
    ],
)
def test_removed_entry_is_named_and_so_is_a_tail_that_was_cut_off(
    tampered: Callable[..., list[str]], condition: str, found: list[str]
) -> None:
    assert tampered(f"DELETE FROM audit WHERE {condition}") == found


def inserted(number: int, behind: AuditRow) -> str:
    """Return the statement that inserts an entry after another one, with matching hashes."""
    entry = AuditRow(number, 9.0, "eve", "stop", "orders")
    values = (number, 9.0, "eve", "stop", "orders", "", "", "", behind.hash, hash_of(entry, behind.hash))
    return f"INSERT INTO audit (id, {COLUMNS}, previous, hash) VALUES {values}"


def test_entry_that_was_inserted_at_the_end_is_named(tampered: Callable[..., list[str]], ledger: Ledger) -> None:
    assert tampered(inserted(7, ledger.audits(1)[0])) == ["entry 7 was inserted"]


def test_entry_that_was_inserted_between_others_is_named(tampered: Callable[..., list[str]], ledger: Ledger) -> None:
    later = [f"UPDATE audit SET id = {number + 1} WHERE id = {number}" for number in (6, 5, 4)]
    found = tampered(*later, inserted(4, ledger.audits(4)[-1]), "UPDATE audit_head SET entry = 7")
    assert found == ["entry 4 was inserted or moved"]


@pytest.mark.parametrize(
    ("pair", "found"),
    [
        ((1, 2), ["entry 1 was inserted or moved", "entry 2 was inserted or moved"]),
        ((2, 3), ["entry 2 was inserted or moved", "entry 3 was inserted or moved"]),
        ((5, 6), ["entry 5 was inserted or moved", "entry 6 was inserted or moved"]),
    ],
)
def test_entries_that_changed_places_are_named(
    tampered: Callable[..., list[str]], pair: tuple[int, int], found: list[str]
) -> None:
    assert tampered(*swap(*pair)) == found


def test_a_lost_record_of_the_newest_entry_is_reported(tampered: Callable[..., list[str]]) -> None:
    assert tampered("DELETE FROM audit_head") == ["the record of the newest entry was removed"]


def test_an_empty_audit_is_valid() -> None:
    assert breaks_of((), None) == ()
