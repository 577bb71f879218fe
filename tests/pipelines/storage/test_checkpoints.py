"""Owner files, notes, reading and moving of checkpoint folders, without Spark."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from core.model.errors import Refused, TryAgain
from core.model.names import TableName
from core.ports.storage import CheckpointState, FolderTaken, SourceLag
from pipelines.storage.checkpoints import TableCheckpoints

FILES = TableCheckpoints("ledger-1", machine="m-1", epoch=2)


def note_of(folder: Path) -> dict[str, Any]:
    """Return the note next to a table or checkpoint."""
    found: dict[str, Any] = json.loads((folder / "_headgate.json").read_text())
    return found


def test_prepare_makes_a_folder_with_owner_and_note_and_leaves_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints" / "orders__v1"
    note = {"table": "orders", "version": 1, "run": "7f3a"}
    FILES.prepare(str(folder), note)
    assert json.loads((folder / "_headgate_owner").read_text()) == {
        "ledger": "ledger-1", "machine": "m-1", "epoch": 2, "run": "7f3a",
    }  # fmt: skip
    assert note_of(folder) == note
    assert [path.name for path in folder.parent.iterdir()] == ["orders__v1"]


@pytest.mark.parametrize("fails", ["fsync", "rename"])
def test_prepare_leaves_nothing_behind_on_a_full_disk(
    fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, fails, full)
    for _ in range(3):
        with pytest.raises(TryAgain, match="is full: No space left on device") as told:
            FILES.prepare(str(tmp_path / "tables" / "orders__v1"), {"run": "7f3a"})
        assert told.value.remedy == "free space there"
    assert list((tmp_path / "tables").iterdir()) == []


def test_prepare_leaves_a_folder_of_the_same_run_unchanged(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    FILES.prepare(str(folder), {"version": 1, "run": "7f3a"})
    (folder / "metadata").write_text('{"id":"abc"}')
    FILES.prepare(str(folder), {"version": 2, "run": "7f3a"})
    assert note_of(folder) == {"version": 1, "run": "7f3a"}
    assert FILES.read(str(folder)) == CheckpointState(id="abc", owner="ledger-1", epoch=2, machine="m-1", run="7f3a")


def test_a_folder_used_by_another_run_is_not_used_and_an_unused_one_is(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    FILES.prepare(str(folder), {"version": 1, "run": "7f3a"})
    FILES.prepare(str(folder), {"version": 1, "run": "91bc"})
    found = FILES.read(str(folder))
    assert found is not None and found.run == "91bc"
    (folder / "part-0.parquet").write_text("rows")
    with pytest.raises(FolderTaken, match="contains data written by run 91bc"):
        FILES.prepare(str(folder), {"version": 1, "run": "c0de"})
    assert note_of(folder) == {"version": 1, "run": "91bc"}


def test_a_folder_of_an_earlier_release_is_of_the_run_that_its_note_names(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    FILES.prepare(str(folder), {"run": "7f3a"})
    (folder / "_headgate_owner").write_text('{"ledger":"ledger-1","host":"h","epoch":1}')
    (folder / "part-0.parquet").write_text("rows")
    FILES.prepare(str(folder), {"run": "7f3a"})
    with pytest.raises(FolderTaken):
        FILES.prepare(str(folder), {"run": "91bc"})


def test_taking_over_writes_epoch_and_machine_and_keeps_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    TableCheckpoints("ledger-1", machine="m-0", epoch=1).prepare(str(folder), {"run": "7f3a"})
    FILES.take_over(str(folder))
    assert FILES.read(str(folder)) == CheckpointState(id="", owner="ledger-1", epoch=2, machine="m-1", run="7f3a")


def test_a_folder_of_a_former_ledger_is_taken_over_and_one_of_a_third_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    TableCheckpoints("ledger-0", machine="m-0", epoch=1).prepare(str(folder), {"run": "7f3a"})
    for former in ("", "ledger-9"):
        with pytest.raises(Refused, match="belongs to another ledger"):
            FILES.take_over(str(folder), former)
    FILES.take_over(str(folder), "ledger-0")
    assert FILES.read(str(folder)) == CheckpointState(id="", owner="ledger-1", epoch=2, machine="m-1", run="7f3a")


def test_the_clock_of_files_is_that_by_which_their_store_dates_them(tmp_path: Path) -> None:
    (tmp_path / "before").write_text("")
    found = TableCheckpoints("l").file_clock(str(tmp_path))
    (tmp_path / "after").write_text("")
    assert (tmp_path / "before").stat().st_mtime <= found <= (tmp_path / "after").stat().st_mtime
    assert sorted(each.name for each in tmp_path.iterdir()) == ["after", "before"]


def test_the_newest_batch_of_a_sink_counts_compacted_ones(tmp_path: Path) -> None:
    assert FILES.sink_batch(str(tmp_path)) is None
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    assert FILES.sink_batch(str(tmp_path)) is None
    for name in ("8", "9.compact", ".10.crc", ".10.tmp"):
        (log / name).write_text("v1")
    assert FILES.sink_batch(str(tmp_path)) == 9


@pytest.mark.parametrize("owner", ['{"ledger":"ledger-2"}', "garbage", None])
def test_a_folder_of_another_is_neither_prepared_nor_moved(tmp_path: Path, owner: str | None) -> None:
    folder = tmp_path / "c"
    folder.mkdir()
    if owner is not None:
        (folder / "_headgate_owner").write_text(owner)
    with pytest.raises(Refused):
        FILES.prepare(str(folder), {})
    with pytest.raises(Refused):
        FILES.set_aside(str(folder), str(tmp_path / "trash" / "c"))
    assert folder.exists()


def test_read_gives_the_newest_commit_and_what_it_had_consumed(tmp_path: Path) -> None:
    folder = _checkpoint(tmp_path / "c", commits=11, planned=12)
    found = FILES.read(str(folder))
    assert found is not None
    assert (found.id, found.batch, found.planned) == ("q-1", 11, 12)
    assert found.consumed == {0: 11, 2: 22}
    assert found.committed_at == pytest.approx((folder / "commits" / "11").stat().st_mtime, abs=0.001)


def test_read_follows_the_commits_as_they_come(tmp_path: Path) -> None:
    folder = _checkpoint(tmp_path / "c", commits=1, planned=2)
    first = FILES.read(str(folder))
    (folder / "commits" / "2").write_text("v1\n{}")
    second = FILES.read(str(folder))
    assert first is not None and second is not None
    assert (first.consumed, second.consumed) == ({0: 1, 2: 12}, {0: 2, 2: 13})


def test_a_checkpoint_before_its_first_commit_has_consumed_nothing(tmp_path: Path) -> None:
    found = FILES.read(str(_checkpoint(tmp_path / "c", commits=-1, planned=0)))
    assert found is not None and (found.batch, found.planned, found.consumed) == (None, 0, {})


def test_a_folder_that_is_no_checkpoint_reads_as_none(tmp_path: Path) -> None:
    assert FILES.read(str(tmp_path / "absent")) is None
    broken = _checkpoint(tmp_path / "broken", commits=0, planned=0)
    (broken / "metadata").write_text("not json")
    assert FILES.read(str(broken)) is None
    empty = _checkpoint(tmp_path / "empty", commits=0, planned=0)
    (empty / "offsets" / "0").write_text("")
    assert FILES.read(str(empty)) is None


def test_the_checkpoints_of_a_version_are_its_first_and_those_of_seams(tmp_path: Path) -> None:
    for name in ("b__v1", "b__v1.a__v2.7", "b__v11", "b__v11.a__v2.7", "bb__v1"):
        FILES.prepare(str(tmp_path / name), {"run": "7f3a"})
    assert FILES.checkpoints_of_version(str(tmp_path / "b__v1")) == (
        str(tmp_path / "b__v1"),
        str(tmp_path / "b__v1.a__v2.7"),
    )
    assert FILES.checkpoints_of_version(str(tmp_path / "none" / "b__v1")) == ()


def test_set_aside_moves_once_and_never_over_something(tmp_path: Path) -> None:
    folder, trash = tmp_path / "t", tmp_path / "trash" / "t"
    FILES.prepare(str(folder), {"n": 1})
    FILES.set_aside(str(folder), str(trash))
    FILES.set_aside(str(folder), str(trash))
    FILES.prepare(str(folder), {"n": 2})
    FILES.set_aside(str(folder), str(trash))
    assert not folder.exists()
    assert sorted(note_of(path)["n"] for path in trash.parent.iterdir()) == [1, 2]
    assert note_of(trash) == {"n": 1}


def test_a_restored_folder_leaves_no_empty_folder_in_the_trash(tmp_path: Path) -> None:
    """An empty folder contains no proof of ownership, so a purge would keep both it and the data folder."""
    trash = tmp_path / "trash"
    for name in ("t__v1", "c__v1"):
        for kind in ("tables", "checkpoints"):
            FILES.prepare(str(tmp_path / kind / name), {})
            FILES.set_aside(str(tmp_path / kind / name), str(trash / name / kind / name))
    for kind in ("tables", "checkpoints"):
        FILES.put_back(str(trash / "t__v1" / kind / "t__v1"), str(tmp_path / kind / "t__v1"))
    assert sorted(path.name for path in trash.iterdir()) == ["c__v1"]
    for kind in ("tables", "checkpoints"):
        FILES.put_back(str(trash / "c__v1" / kind / "c__v1"), str(tmp_path / kind / "c__v1"))
    assert not trash.exists()


def test_a_restored_folder_replaces_empty_folders_that_a_stream_has_created_meanwhile(tmp_path: Path) -> None:
    folder, trash = tmp_path / "t", tmp_path / "trash" / "t"
    FILES.prepare(str(folder), {"n": 1})
    FILES.set_aside(str(folder), str(trash))
    (folder / "_spark_metadata/more").mkdir(parents=True)
    assert not FILES.has_owner(str(folder))
    FILES.put_back(str(trash), str(folder))
    assert note_of(folder) == {"n": 1} and FILES.has_owner(str(folder))
    FILES.set_aside(str(folder), str(trash))
    (folder / "empty").mkdir(parents=True)
    (folder / "part").touch()
    with pytest.raises(Refused, match="exists, and"):
        FILES.put_back(str(trash), str(folder))
    assert (folder / "part").exists() and note_of(trash) == {"n": 1}


def test_set_aside_copies_to_another_file_system_and_restarts_an_interrupted_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, trash = tmp_path / "checkpoints" / "c", tmp_path / "trash" / "c"
    FILES.prepare(str(folder), {"run": "r"})
    _checkpoint(folder, commits=2, planned=3)
    within = os.rename

    def rename(place: str, target: str) -> None:
        if place == str(folder):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        within(place, target)

    monkeypatch.setattr(os, "rename", rename)
    cut_off = trash.with_name("c.copy")
    (cut_off / "commits").mkdir(parents=True)
    (cut_off / "commits" / "9").write_text("half")
    files = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    FILES.set_aside(str(folder), str(trash))
    assert not folder.exists() and not cut_off.exists()
    assert {path.relative_to(trash): path.read_bytes() for path in trash.rglob("*") if path.is_file()} == files


def test_a_note_replaces_the_previous_one_completely(tmp_path: Path) -> None:
    FILES.prepare(str(tmp_path / "t"), {"a": 1, "b": 2})
    FILES.note(str(tmp_path / "t"), {"a": 3})
    assert note_of(tmp_path / "t") == {"a": 3}


def test_an_unreachable_path_exits_with_try_again(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TryAgain, match="cannot be reached"):
        FILES.prepare(str(tmp_path / "file" / "c"), {})


def _checkpoint(folder: Path, *, commits: int, planned: int) -> Path:
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"q-1"}')
    for batch in range(planned + 1):
        lines = ["v1", '{"batchWatermarkMs":0}', f'{{"logOffset":{batch}}}', "-", f'{{"logOffset":{batch + 11}}}']
        (folder / "offsets" / str(batch)).write_text("\n".join(lines))
        (folder / "offsets" / f".{batch}.crc").write_text("x")
    for batch in range(commits + 1):
        (folder / "commits" / str(batch)).write_text("v1\n{}")
    (folder / "commits" / ".99.tmp").write_text("")
    return folder


@pytest.mark.parametrize(
    ("names", "lacks"),
    [
        ((), ""),
        (("0",), ""),
        (("0", "1", "2"), ""),
        (("0", "1", "3", "7"), "sources/0/2"),
        (("4", "5"), "sources/0/0"),
        (("9.compact",), ""),
        (("7", "8", "9.compact", "10"), ""),
        (("1", "9.compact", "10"), ""),
        (("9.compact", "11"), "sources/0/10"),
        (("9.compact", "19.compact", "20", ".21.tmp"), ""),
    ],
)
def test_files_that_spark_reads_at_a_start_exist_or_are_reported(
    names: tuple[str, ...], lacks: str, tmp_path: Path
) -> None:
    log = tmp_path / "sources" / "0"
    log.mkdir(parents=True)
    for name in names:
        (log / name).write_text("v1\n")
    assert FILES.missing_checkpoint_file(str(tmp_path)) == lacks


def test_a_checkpoint_without_logs_of_files_lacks_none(tmp_path: Path) -> None:
    assert FILES.missing_checkpoint_file(str(tmp_path)) == FILES.missing_checkpoint_file(str(tmp_path / "gone")) == ""


def test_a_broker_that_does_not_answer_leaves_the_lag_behind_other_brokers_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, silent = TableCheckpoints("ledger"), TryAgain("no broker of b:9092 answers")

    def lag(read: object, table: TableName, location: str) -> SourceLag:
        if location == "b":
            raise silent
        return SourceLag(table, 3, 0, rows=3, exact=True, oldest_s=5.0)

    monkeypatch.setattr(files, "topic_offsets", lambda checkpoint, source: {})
    monkeypatch.setattr(files._topics, "lag", lag)
    x, y = (0, TableName("x"), "a", "kafka"), (1, TableName("y"), "b", "kafka")
    known, unknown = files.lag(str(tmp_path), (x, y))
    assert (known.rows, known.unmeasured, unknown.unmeasured) == (3, None, silent)
    with pytest.raises(TryAgain, match="no broker of b:9092 answers"):
        files.lag(str(tmp_path), (y,))
