"""The emergency journal keeps an intent whatever the disk does."""

import os
from pathlib import Path
from typing import Any

import pytest

from state.emergency_journal import EmergencyJournal

STOP = {"act": "stop", "table": "orders", "version": 2}


def drained(journal: EmergencyJournal) -> list[dict[str, Any]]:
    """Take all entries."""
    with journal.taking() as entries:
        return entries


def test_entries_survive_the_process_and_are_drained_once(tmp_path: Path) -> None:
    journal = EmergencyJournal(tmp_path / "emergency.jsonl")
    journal.append(STOP)
    journal.append({"act": "stop", "table": "é\n", "version": 1})
    after = EmergencyJournal(tmp_path / "emergency.jsonl")
    assert drained(after) == [STOP, {"act": "stop", "table": "é\n", "version": 1}]
    assert drained(after) == []


def test_full_disk_keeps_the_entry_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    journal = EmergencyJournal(tmp_path / "emergency.jsonl")
    assert journal.append(STOP).on_disk
    monkeypatch.setattr(os, "fsync", full)
    assert not journal.append({"n": 2}).on_disk
    assert drained(journal) == [STOP, {"n": 2}]


def test_folder_that_is_gone_keeps_the_entry_in_memory(tmp_path: Path) -> None:
    journal = EmergencyJournal(tmp_path / "gone" / "emergency.jsonl")
    journal.append(STOP)
    assert drained(journal) == [STOP]


def test_torn_line_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "emergency.jsonl"
    path.write_bytes(b'{"act":"st')
    journal = EmergencyJournal(path)
    journal.append(STOP)
    assert drained(journal) == [STOP]


def test_entries_stay_when_they_could_not_be_applied(tmp_path: Path) -> None:
    journal = EmergencyJournal(tmp_path / "emergency.jsonl")
    journal.append(STOP)
    with pytest.raises(RuntimeError), journal.taking() as entries:
        assert entries == [STOP]
        raise RuntimeError("the ledger is still locked")
    assert drained(EmergencyJournal(tmp_path / "emergency.jsonl")) == [STOP]


def test_file_that_cannot_be_removed_gives_its_entries_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise OSError(30, "Read-only file system")

    journal = EmergencyJournal(tmp_path / "emergency.jsonl")
    journal.append(STOP)
    monkeypatch.setattr(Path, "unlink", refuse)
    assert (drained(journal), drained(journal)) == ([STOP], [])
    journal.append({"n": 2})
    assert drained(journal) == [{"n": 2}]


@pytest.mark.parametrize("disk_is_full", [False, True])
def test_a_stop_that_is_repeated_is_kept_once_until_it_was_taken(
    disk_is_full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    if disk_is_full:
        monkeypatch.setattr(os, "fsync", full)
    journal = EmergencyJournal(tmp_path / "emergency.jsonl")
    appended = [journal.append({"at": n, "act": "stop"}) for n in range(1000)]
    assert [each.on_disk for each in appended] == [not disk_is_full] * 1000
    assert [each.is_new for each in appended] == [True, *[False] * 999]
    assert drained(journal) == [{"at": 0, "act": "stop"}]
    journal.append({"at": 1001, "act": "stop"})
    assert drained(journal) == [{"at": 1001, "act": "stop"}]
