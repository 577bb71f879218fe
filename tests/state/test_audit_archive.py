"""Archives of the audit: entries move, a kill neither loses nor doubles any, and tampering with a file is detected."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import pytest

from core.model.errors import LedgerUnavailable
from state import retention
from state.audit_chain import AuditHead
from state.backup import back_up, restore
from state.ledger import Ledger, LedgerReader, create_or_open
from state.retention import AUDIT_D, AUDIT_KEPT, AUDIT_PART, DAY_S
from state.row_types import AuditRow, EnvironmentRow

ROOT = Path(__file__).parents[2]
NEW_YEAR = 1_798_761_600.0
"""2027-01-01 00:00 UTC."""
NOW = NEW_YEAR + 20 * DAY_S + AUDIT_D * DAY_S
"""The time at which entries up to 20 days after NEW_YEAR are old enough to be archived."""


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "AUDIT_PART", 4)


@pytest.fixture
def ledger(path: Path, facts: EnvironmentRow) -> Iterator[Ledger]:
    """A ledger that a test may close itself."""
    opened = create_or_open(path, facts)
    yield opened
    with suppress(sqlite3.ProgrammingError):
        opened.close()


def fill(ledger: Ledger, *days: float) -> None:
    """Add an entry for each number of days after the new year."""
    for n, day in enumerate(days):
        ledger.add_audit(AuditRow(0, NEW_YEAR + day * DAY_S, "ana", "stop", f"ordérs {n}", outcome="done"))


def archive_all(ledger: Ledger, now: float = NOW) -> None:
    rows = -1
    while rows != (rows := len(ledger.audits(10_000))):
        ledger.archive_audit(now)


def lines(path: Path, file: str = "audit-2027.jsonl") -> list[int]:
    """Return the numbers of the entries in an archive."""
    return [json.loads(line)["id"] for line in (path.parent / file).read_text().splitlines()]


def words(path: Path) -> list[str]:
    with LedgerReader(path) as reader:
        return [each.words for each in reader.check_audit().breaks]


def kept(ledger: Ledger) -> list[int]:
    return [entry.id for entry in reversed(ledger.audits(10_000))]


def test_entries_that_are_too_old_move_a_part_at_a_time(ledger: Ledger, path: Path) -> None:
    fill(ledger, *range(10), 21, 22)
    newest = ledger.audits(1)[0].hash
    ledger.archive_audit(NOW)
    assert (lines(path), kept(ledger)) == ([1, 2, 3, 4], list(range(5, 13)))
    archive_all(ledger)
    assert (lines(path), kept(ledger)) == (list(range(1, 11)), [11, 12])
    check = ledger.check_audit()
    assert (check.head, check.breaks, check.beyond) == (AuditHead(12, newest), (), ())
    assert (path.parent / "audit-2027.jsonl").stat().st_mode & 0o777 == 0o640


def test_a_flood_is_limited_whatever_its_age_and_its_newest_entries_stay(
    ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "AUDIT_KEPT", 3)
    fill(ledger, *[30.0] * 8)
    archive_all(ledger)
    assert (lines(path), kept(ledger), words(path)) == ([1, 2, 3, 4, 5], [6, 7, 8], [])


def test_an_old_entry_after_a_kept_one_waits_for_it(ledger: Ledger, path: Path) -> None:
    fill(ledger, 1, 25, 2)
    archive_all(ledger)
    assert (lines(path), kept(ledger)) == ([1], [2, 3])


def test_each_year_has_its_file_and_a_clock_set_back_opens_no_earlier_one(ledger: Ledger, path: Path) -> None:
    fill(ledger, -3, -2, -1, 1, -1, 2)
    archive_all(ledger)
    assert (lines(path, "audit-2026.jsonl"), lines(path)) == ([1, 2, 3], [4, 5, 6])
    assert [(each.file, each.first, each.last) for each in ledger.audit_archives()] == [
        ("audit-2026.jsonl", 1, 3),
        ("audit-2027.jsonl", 4, 6),
    ]
    fill(ledger, 30)
    assert (kept(ledger), words(path)) == ([7], [])


def test_the_audit_continues_after_all_of_it_was_archived(ledger: Ledger, path: Path) -> None:
    fill(ledger, 1, 2)
    archive_all(ledger)
    assert (kept(ledger), words(path)) == ([], [])
    fill(ledger, 30)
    assert (kept(ledger), words(path)) == ([3], [])


def test_bounds_are_those_of_the_documentation() -> None:
    assert (AUDIT_D, AUDIT_KEPT, AUDIT_PART) == (400, 100_000, 10_000)


def test_an_entry_that_no_archive_holds_cannot_be_deleted(ledger: Ledger, path: Path) -> None:
    fill(ledger, *range(6))
    ledger.archive_audit(NOW)
    connection = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute("DELETE FROM audit WHERE id = 5")
    connection.close()


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.5, 0.77, 0.999, 1.0])
@pytest.mark.parametrize("parts", [0, 1])
def test_a_kill_before_rows_leave_the_ledger_neither_loses_nor_duplicates_any(
    ledger: Ledger, path: Path, facts: EnvironmentRow, parts: int, share: float
) -> None:
    fill(ledger, *range(10), 30)
    for _ in range(parts):
        ledger.archive_audit(NOW)
    ledger.close()
    shutil.copy(path, path.with_name("before"))
    file = path.parent / "audit-2027.jsonl"
    began = file.stat().st_size if parts else 0
    with create_or_open(path, facts) as written:
        written.archive_audit(NOW)
    whole = file.read_bytes()
    # The ledger before the transaction, and part of the archive on disk, including torn lines.
    path.with_name("before").replace(path)
    file.write_bytes(whole[: began + int((len(whole) - began) * share)])
    assert words(path) == []
    with create_or_open(path, facts) as after:
        assert kept(after)[0] == 4 * parts + 1
        after.archive_audit(NOW)
        assert file.read_bytes() == whole
        archive_all(after)
        assert (lines(path), kept(after)) == (list(range(1, 11)), [11])
    assert words(path) == []


ARCHIVE = """
import json, os, signal, sys
from itertools import count
from pathlib import Path
from state import retention
from state.ledger import create_or_open
from state.row_types import EnvironmentRow, PoolRow
retention.AUDIT_PART = 4
path, facts, calls, now = sys.argv[1:]
seen, synced = count(1), os.fsync
def fsync(descriptor):
    if next(seen) == int(calls):
        os.kill(os.getpid(), signal.SIGKILL)
    synced(descriptor)
os.fsync = fsync
ledger, rows = create_or_open(Path(path), EnvironmentRow(**{**json.loads(facts), "pools": (PoolRow(),)})), -1
while rows != (rows := len(ledger.audits(10_000))):
    ledger.archive_audit(float(now))
"""


def archive_until_killed(path: Path, facts: EnvironmentRow, calls: int) -> None:
    """Archive everything in a separate process, which is killed just before its sync number `calls`."""
    words = [str(path), json.dumps(asdict(facts)), str(calls), str(NOW)]
    subprocess.run([sys.executable, "-c", ARCHIVE, *words], cwd=ROOT, check=False)


def test_a_process_that_is_killed_between_file_and_rows_leaves_every_entry_once(
    ledger: Ledger, path: Path, facts: EnvironmentRow
) -> None:
    fill(ledger, *range(10), 30)
    ledger.close()
    for calls in range(1, 8):
        archive_until_killed(path, facts, calls)
        with LedgerReader(path) as reader:
            check = reader.check_audit()
            rows = [entry.id for entry in reversed(reader.audits())]
            archives = reader.audit_archives()
        archived = archives[-1].last if archives else 0
        assert (check.breaks, rows) == ((), list(range(archived + 1, 12)))
        assert lines(path)[:archived] == list(range(1, archived + 1))
    assert lines(path) == list(range(1, 11))


def test_a_full_disk_leaves_the_rows_in_the_ledger(ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(ledger, *range(6))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(LedgerUnavailable, match="No space left"):
            ledger.archive_audit(NOW)
    assert (kept(ledger), words(path)) == ([1, 2, 3, 4, 5, 6], [])
    archive_all(ledger)
    assert (lines(path), kept(ledger)) == ([1, 2, 3, 4, 5, 6], [])


Edit = Callable[[list[str]], list[str]]


def edited(line: str, **values: object) -> str:
    return json.dumps(json.loads(line) | values)


TAMPERED: dict[str, tuple[Edit, list[str]]] = {
    "changed": (
        lambda found: [*found[:2], edited(found[2], actor="eve"), *found[3:]],
        ["entry 3 was changed in audit-2027.jsonl"],
    ),
    "changed time": (
        lambda found: [*found[:2], edited(found[2], at="soon"), *found[3:]],
        ["entry 3 was changed in audit-2027.jsonl"],
    ),
    "changed last": (
        lambda found: [*found[:-1], edited(found[-1], outcome="refused")],
        ["entry 6 was changed in audit-2027.jsonl"],
    ),
    "unreadable": (lambda found: [*found[:2], "{", *found[3:]], ["entry 3 was changed in audit-2027.jsonl"]),
    "removed": (lambda found: found[:1] + found[3:], ["entries 2 to 3 were removed in audit-2027.jsonl"]),
    "removed first": (lambda found: found[1:], ["entry 1 was removed in audit-2027.jsonl"]),
    "cut off": (lambda found: found[:4], ["entries 5 to 6 were removed in audit-2027.jsonl"]),
    "emptied": (lambda found: [], ["entries 1 to 6 were removed in audit-2027.jsonl"]),
    "inserted": (
        lambda found: [*found[:3], edited(found[3], actor="eve", hash="x"), *found[3:]],
        ["entry 4 was changed in audit-2027.jsonl", "entry 4 was inserted or moved in audit-2027.jsonl"],
    ),
    "added": (
        lambda found: [*found, edited(found[-1], id=7, actor="eve")],
        ["entry 7 was inserted in audit-2027.jsonl"],
    ),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_tampering_with_an_archive_is_detected(ledger: Ledger, path: Path, what: str) -> None:
    fill(ledger, *range(6), 30, 31)
    archive_all(ledger)
    file = path.parent / "audit-2027.jsonl"
    edit, found = TAMPERED[what]
    file.write_text("".join(f"{line}\n" for line in edit(file.read_text().splitlines())))
    assert words(path) == found


def test_a_missing_archive_is_reported_with_its_contents_and_the_rest_is_still_checked(
    ledger: Ledger, path: Path
) -> None:
    fill(ledger, -2, -1, 1, 2, 30)
    archive_all(ledger)
    (path.parent / "audit-2026.jsonl").unlink()
    assert words(path) == ["audit-2026.jsonl with entries 1 to 2 is missing"]
    # New entries go to new files, because a lost archive must not be started again under its old name.
    (path.parent / "audit-2027.jsonl").unlink()
    archive_all(ledger, NOW + 20 * DAY_S)
    assert lines(path, "audit-2027.2.jsonl") == [5]
    assert words(path) == [
        "audit-2026.jsonl with entries 1 to 2 is missing",
        "audit-2027.jsonl with entries 3 to 4 is missing",
    ]


@pytest.mark.parametrize(
    ("act", "found"),
    [
        ("DELETE FROM audit WHERE id = 7", ["entry 7 was removed"]),
        ("UPDATE audit SET previous = 'x' WHERE id = 7", ["entry 7 was changed"]),
        ("DELETE FROM audit", ["entries 7 to 8 were removed"]),
        ("DELETE FROM audit; DELETE FROM audit_head", ["the record of the newest entry was removed"]),
        ("DELETE FROM audit_archive", ["entries 1 to 6 were removed"]),
    ],
)
def test_the_chain_holds_from_the_archive_into_the_ledger(
    ledger: Ledger, path: Path, act: str, found: list[str]
) -> None:
    fill(ledger, *range(6), 30, 31)
    archive_all(ledger)
    connection = sqlite3.connect(path)
    for name in ("audit_is_not_changed", "audit_is_not_deleted"):
        connection.execute(f"DROP TRIGGER {name}")
    connection.executescript(act)
    connection.close()
    assert words(path) == found


def test_a_restored_ledger_leaves_the_archives_of_the_other(
    ledger: Ledger, path: Path, facts: EnvironmentRow, tmp_path: Path
) -> None:
    fill(ledger, *range(6))
    ledger.archive_audit(NOW)
    back_up(path, tmp_path / "monday.db")
    fill(ledger, 8, 9)
    archive_all(ledger)
    ledger.close()
    assert lines(path) == list(range(1, 9))
    restore(
        tmp_path / "monday.db", path, project_id=facts.project_id, project=facts.project,
        environment=facts.environment, actor="ana", now=NEW_YEAR + 10 * DAY_S,
    )  # fmt: skip
    with create_or_open(path, facts) as restored:
        assert kept(restored) == [5, 6, 7]
        check = restored.check_audit()
        assert (check.breaks, check.beyond) == ((), (("audit-2027.jsonl", 4),))
        archive_all(restored)
        assert (lines(path), lines(path, "audit-2027.2.jsonl")) == (list(range(1, 9)), [5, 6, 7])
        check = restored.check_audit()
        assert (check.breaks, check.beyond) == ((), (("audit-2027.jsonl", 4),))
