"""Files that a vacuum would delete although a statement still has to read them, without Spark."""

from pathlib import Path

import pytest
from delta_files import WrittenLog, commit_batch, offset_line

from core.model.names import TableName
from core.ports.storage import Upkeep
from pipelines.storage.checkpoints import TableCheckpoints
from pipelines.storage.delta_tables import DeltaTables

P = TableName("p")
EARLY, LATE = 1_000.0, 2_000.0


@pytest.fixture
def written(tmp_path: Path) -> WrittenLog:
    """Versions 1 and 2 with two files each; version 3 replaces all four at once."""
    log = WrittenLog(tmp_path / "p")
    first, second = log.commit(1, 1, at=EARLY), log.commit(1, 1, at=EARLY)
    log.commit(4, at=LATE, removes=(*first, *second))
    return log


def unread(tmp_path: Path, moment: float = LATE + 1, *, takes_changes: bool = False) -> int | None:
    files = TableCheckpoints("ledger", logs={"delta": DeltaTables(refresh_s=0)})
    source = (0, P, str(tmp_path / "p"), "delta")
    return files.unread_before(str(tmp_path / "cp"), source, moment, takes_changes=takes_changes)


@pytest.mark.parametrize(
    ("version", "index", "snapshot", "first"),
    [(1, -1, False, 1), (2, -1, False, 2), (2, 0, False, 2), (2, 1, False, None), (3, -1, False, None),
     (4, -1, False, None), (2, -1, True, 2), (2, 2, True, 2), (2, 3, True, None), (3, -1, True, None)],
)  # fmt: skip
def test_read_files_of_a_version_or_snapshot_may_be_deleted_and_the_rest_may_not(
    version: int, index: int, snapshot: bool, first: int | None, written: WrittenLog, tmp_path: Path
) -> None:
    commit_batch(tmp_path / "cp", 5, offset_line(written, version, index, snapshot=snapshot))
    assert unread(tmp_path) == first
    assert unread(tmp_path, LATE) is None, "what was replaced since is retained"


def test_changes_lie_in_files_of_their_own_and_are_read_by_their_version(written: WrittenLog, tmp_path: Path) -> None:
    commit_batch(tmp_path / "cp", 5, offset_line(written, 3))
    assert (unread(tmp_path), unread(tmp_path, takes_changes=True)) == (None, 3)
    commit_batch(tmp_path / "cp", 6, offset_line(written, 4))
    assert unread(tmp_path, takes_changes=True) is None


def test_a_first_batch_that_was_planned_reads_the_files_of_its_version(written: WrittenLog, tmp_path: Path) -> None:
    assert unread(tmp_path) is None, "no batch was planned: it reads what there is then"
    commit_batch(tmp_path / "cp", 0, offset_line(written, 3))
    (tmp_path / "cp" / "commits" / "0").unlink()
    assert unread(tmp_path) == 2, "the snapshot of version 2 ends before version 3"


def test_another_table_and_a_log_that_is_gone_keep_nothing(written: WrittenLog, tmp_path: Path) -> None:
    commit_batch(tmp_path / "cp", 5, offset_line(written, 1))
    (written.log / f"{1:020}.json").unlink()
    assert unread(tmp_path) is None
    other = WrittenLog(tmp_path / "q", id="id-2")
    commit_batch(tmp_path / "cp", 6, offset_line(other, 1))
    assert unread(tmp_path) is None


@pytest.mark.parametrize(("status", "done"), [("COMPLETED", Upkeep(4)), ("FAILED", None)])
def test_a_vacuum_that_was_cut_off_is_not_done(status: str, done: Upkeep | None, tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "p")
    metrics = {"numDeletedFiles": "4"} if status == "COMPLETED" else {}
    log.commit(operation="VACUUM END", metrics=metrics, parameters={"status": status}, tag="mine")
    assert TableCheckpoints("ledger").upkeep(str(tmp_path / "p/delta"), "VACUUM", "mine") == done


def test_upkeep_is_recognised_by_its_tag_whatever_the_clock_and_later_commits(
    tmp_path: Path,
) -> None:
    log, files, place = WrittenLog(tmp_path / "p"), TableCheckpoints("ledger"), str(tmp_path / "p/delta")
    log.commit(operation="OPTIMIZE", removes=("a", "b"), at=EARLY, tag="headgate-r-1")
    for _ in range(3):
        log.commit(1, at=EARLY - 500)
    log.commit(operation="OPTIMIZE", removes=("c",), at=LATE)
    assert files.upkeep(place, "OPTIMIZE", "headgate-r-1") == Upkeep(2)
    assert files.upkeep(place, "VACUUM", "headgate-r-1") is None
    assert files.upkeep(place, "OPTIMIZE", "headgate-r-2") is None, "by hand, or of another run"
