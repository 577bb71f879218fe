"""The emergency journal preserves a stop request, whatever happens to the disk."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from state.emergency_journal import EmergencyJournal, JournalledStop

STOP, OTHER = (JournalledStop(serial, "ana", 1.0, (name,)) for serial, name in ((3, "orders@v2"), (4, "items")))


def drained(journal: EmergencyJournal) -> tuple[JournalledStop, ...]:
    """Remove and return all entries."""
    with journal.consume() as taken:
        return taken.stops


def test_entries_survive_the_process_and_are_drained_once(tmp_path: Path) -> None:
    journal = EmergencyJournal(tmp_path / "emergency.jsonl")
    stops = (STOP, replace(OTHER, actor="\u00e9\n\u2028"))
    assert all(journal.append(stop, after=0) for stop in stops)
    after = EmergencyJournal(tmp_path / "emergency.jsonl")
    assert after.pending().stops == drained(after) == stops
    assert drained(after) == ()


def test_full_disk_keeps_the_entry_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = EmergencyJournal(tmp_path / "emergency.jsonl")
    assert journal.append(STOP, after=0)
    monkeypatch.setattr(os, "fsync", full)
    assert not journal.append(OTHER, after=0)
    assert drained(journal) == (STOP, OTHER)


def full(descriptor: int) -> None:
    raise OSError(28, "No space left on device")


def test_folder_that_is_gone_keeps_the_entry_in_memory(tmp_path: Path) -> None:
    journal = EmergencyJournal(tmp_path / "gone" / "emergency.jsonl")
    journal.append(STOP, after=0)
    assert journal.has_pending() and drained(journal) == (STOP,)
    assert not journal.has_pending()


def test_torn_line_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "emergency.jsonl"
    path.write_bytes(b'{"act":"st')
    journal = EmergencyJournal(path)
    journal.append(STOP, after=0)
    assert journal.pending() == ((STOP,), (b'{"act":"st',))


def test_entries_stay_when_they_could_not_be_applied(tmp_path: Path) -> None:
    journal = EmergencyJournal(tmp_path / "emergency.jsonl")
    journal.append(STOP, after=0)
    with pytest.raises(RuntimeError), journal.consume() as taken:
        assert taken.stops == (STOP,)
        raise RuntimeError("the ledger is still locked")
    assert drained(EmergencyJournal(tmp_path / "emergency.jsonl")) == (STOP,)


@pytest.mark.parametrize("disk_is_full", [False, True])
def test_entries_appended_while_others_are_applied_are_next(
    disk_is_full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = EmergencyJournal(tmp_path / "emergency.jsonl")
    if disk_is_full:
        monkeypatch.setattr(os, "fsync", full)
    journal.append(STOP, after=0)
    again = replace(STOP, serial=7)
    with journal.consume() as taken:
        journal.append(OTHER, after=0)
        journal.append(again, after=0)
    assert (taken.stops, drained(journal), drained(journal)) == ((STOP,), (OTHER, again), ())
    assert not (tmp_path / "emergency.jsonl").exists()


def test_file_that_cannot_be_removed_gives_its_entries_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise OSError(30, "Read-only file system")

    journal = EmergencyJournal(tmp_path / "emergency.jsonl")
    journal.append(STOP, after=0)
    monkeypatch.setattr(Path, "unlink", refuse)
    assert (drained(journal), drained(journal), journal.has_pending()) == ((STOP,), (), False)
    journal.append(OTHER, after=0)
    assert drained(journal) == (OTHER,)


@pytest.mark.parametrize("disk_is_full", [False, True])
def test_a_stop_that_is_repeated_is_kept_once_with_its_newest_serial(
    disk_is_full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if disk_is_full:
        monkeypatch.setattr(os, "fsync", full)
    journal = EmergencyJournal(tmp_path / "emergency.jsonl")
    repeated = [replace(STOP, serial=n, at=float(n)) for n in range(10, 1010)]
    assert [journal.append(stop, after=9) for stop in repeated] == [not disk_is_full] * 1000
    assert drained(journal) == (replace(STOP, serial=1009, at=10.0),)
    journal.append(STOP, after=0)
    assert drained(journal) == (STOP,)


@pytest.mark.parametrize("disk_is_full", [False, True])
def test_a_stop_after_something_was_to_run_is_no_repetition(
    disk_is_full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if disk_is_full:
        monkeypatch.setattr(os, "fsync", full)
    journal, again = EmergencyJournal(tmp_path / "emergency.jsonl"), replace(STOP, serial=6)
    journal.append(STOP, after=2)
    journal.append(again, after=5)
    assert drained(journal)[-1] == again
