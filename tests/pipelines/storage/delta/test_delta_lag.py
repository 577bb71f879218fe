"""The lag of statements that read Delta tables, without Spark: pending rows, and the bytes read per measurement."""

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from delta_files import WrittenLog, commit_batch, offset_line

from core.model.names import TableName
from core.model.states import TableFaultKind
from core.observed.time_left import Bound, Left, lost
from core.ports.storage import TableFault
from pipelines.storage import delta_log
from pipelines.storage.checkpoints import TableCheckpoints
from pipelines.storage.delta_tables import DeltaTables

P = TableName("p")


@pytest.fixture
def files() -> TableCheckpoints:
    return TableCheckpoints("ledger", logs={"delta": DeltaTables(refresh_s=0)})


def lag(files: TableCheckpoints, tmp_path: Path) -> Any:
    return files.lag(str(tmp_path / "cp"), ((0, P, str(tmp_path / "p"), "delta"),))[0]


def test_pending_input_is_counted_from_the_position_within_a_version(files: TableCheckpoints, tmp_path: Path) -> None:
    written, now = WrittenLog(tmp_path / "p"), time.time()
    written.commit(1, 2, 4, at=now - 100)
    written.commit(8, at=now - 50)
    assert (lag(files, tmp_path).rows, lag(files, tmp_path).versions) == (15, 3)
    commit_batch(tmp_path / "cp", 0, offset_line(written, 1, 0))
    found = lag(files, tmp_path)
    assert (found.files, found.bytes, found.rows, found.versions) == (3, 1400, 14, 2)
    assert found.oldest_s == pytest.approx(100, abs=5) and found.newest_s == pytest.approx(50, abs=5)
    commit_batch(tmp_path / "cp", 1, offset_line(written, 2, 0, snapshot=True))
    assert lag(files, tmp_path).rows == 14, "of a snapshot the files are those of the table, oldest first"
    commit_batch(tmp_path / "cp", 2, offset_line(written, 3))
    assert (lag(files, tmp_path).files, lag(files, tmp_path).oldest_s, lag(files, tmp_path).versions) == (0, None, 0)
    assert lag(files, tmp_path).consumed_rows == 15


def test_a_position_lasts_as_long_as_the_next_commit_and_the_files_of_others(
    files: TableCheckpoints, tmp_path: Path
) -> None:
    written, now, day_s = WrittenLog(tmp_path / "p"), time.time(), 86_400.0
    assert lag(files, tmp_path).time_left is None, "no position is committed"
    (path,) = written.commit(1, at=now - 20 * day_s)
    commit_batch(tmp_path / "cp", 0, offset_line(written, 1))
    commits = lag(files, tmp_path).time_left
    assert (commits.bound.kind, commits.seconds) == (Bound.COMMIT_AGE, pytest.approx(10 * day_s, abs=60))
    commit_batch(tmp_path / "cp", 1, offset_line(written, 2))
    assert lag(files, tmp_path).time_left.seconds == 30 * day_s, "everything is read"
    written.commit(1, removes=(path,), at=now - 5 * day_s)
    assert lag(files, tmp_path).time_left.seconds == pytest.approx(25 * day_s, abs=60)
    (tmp_path / "others").symlink_to(tmp_path / "p/delta")
    source = (0, P, str(tmp_path / "others"), "delta of others")
    vacuumed = files.lag(str(tmp_path / "cp"), (source,))[0].time_left
    assert vacuumed is not None and vacuumed.bound.kind is Bound.REPLACED_FILES
    assert vacuumed.seconds == pytest.approx(2 * day_s, abs=60)
    written.checkpoint()
    for version in range(3):
        (written.log / f"{version:020}.json").unlink()
    commit_batch(tmp_path / "cp", 2, offset_line(written, 1))
    assert lag(files, tmp_path).time_left == lost(Bound.COMMITS_GONE, table=P)


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        ({"delta.logRetentionDuration": "interval 2 hours"}, Left.LIMITED),
        ({"delta.logRetentionDuration": "interval 1 month"}, Left.UNKNOWN),
        ({"delta.enableExpiredLogCleanup": "false"}, Left.NEVER),
    ],
)
def test_the_retention_of_a_log_is_that_of_its_properties(
    files: TableCheckpoints, tmp_path: Path, properties: dict[str, str], kind: Left
) -> None:
    written = WrittenLog(tmp_path / "p", configuration=properties)
    commit_batch(tmp_path / "cp", 0, offset_line(written, 1))
    found = lag(files, tmp_path).time_left
    assert (found.kind, found.seconds) == (kind, 7200.0 if kind is Left.LIMITED else None)


def test_pending_rows_of_a_merge_are_those_that_it_changed(files: TableCheckpoints, tmp_path: Path) -> None:
    written = WrittenLog(tmp_path / "p")
    (path,) = written.commit(100)
    commit_batch(tmp_path / "cp", 0, offset_line(written, 2))
    changed = {"numTargetRowsInserted": "2", "numTargetRowsUpdated": "1", "numTargetRowsDeleted": "1"}
    (path,) = written.commit(101, removes=(path,), metrics=changed)
    assert (lag(files, tmp_path).rows, lag(files, tmp_path).exact) == (4, True)
    written.commit(90, removes=(path,))
    assert (lag(files, tmp_path).rows, lag(files, tmp_path).exact) == (None, False)


def test_a_file_without_statistics_makes_only_the_row_count_unknown(files: TableCheckpoints, tmp_path: Path) -> None:
    written = WrittenLog(tmp_path / "p")
    written.commit(3, None)
    found = lag(files, tmp_path)
    assert (found.files, found.rows, found.exact, found.missing) == (2, None, False, False)


def test_rows_removed_after_the_position_of_a_stream_of_rows_are_reported(
    files: TableCheckpoints, tmp_path: Path
) -> None:
    written, place, checkpoint = WrittenLog(tmp_path / "p"), str(tmp_path / "p"), str(tmp_path / "cp")
    (path,) = written.commit(3)
    sources = ((0, P, place, "delta"),)
    for batch, offset in enumerate((offset_line(written, 1), offset_line(written, 1, 0, snapshot=True))):
        commit_batch(tmp_path / "cp", batch, offset)
        assert files.source_fault(checkpoint, sources) is None
    written.commit(2, removes=(path,))
    assert files.source_fault(checkpoint, sources) == (
        P,
        TableFault(
            TableFaultKind.ROWS_CHANGED,
            "was changed by a commit in version 2, which it has not read: a stream of rows cannot continue past that",
        ),
    )
    (tmp_path / "p/delta/part-2-0.parquet").touch()
    assert files.source_fault(checkpoint, sources, take_changes={0}) is None
    commit_batch(tmp_path / "cp", 2, offset_line(written, 3))
    assert files.source_fault(checkpoint, sources) is None, "what is behind it does not matter"


def test_a_statement_that_reads_files_and_delta_has_a_lag_of_both_in_the_order_of_its_text(
    files: TableCheckpoints, tmp_path: Path
) -> None:
    written = WrittenLog(tmp_path / "p")
    written.commit(3)
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "a.json").write_text('{"a": 1}\n')
    sources = ((0, TableName("landed"), str(tmp_path / "landing"), "json"), (1, P, str(tmp_path / "p"), "delta"))
    commit_batch(tmp_path / "cp", 0, '{"logOffset":-1}', offset_line(written, 1))
    first, second = files.lag(str(tmp_path / "cp"), sources)
    assert (first.table, first.files, first.versions) == ("landed", 1, None)
    assert (second.table, second.rows, second.versions) == ("p", 3, 1)


def test_the_lag_over_a_hundred_parents_reads_only_new_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = TableCheckpoints("ledger", logs={"delta": DeltaTables(refresh_s=0)})
    read: list[int] = []
    real = delta_log._actions
    monkeypatch.setattr(delta_log, "_actions", lambda lines: (read.append(1), real(lines))[1])
    logs = []
    for n in range(100):
        written = WrittenLog(tmp_path / f"t{n}")
        for _ in range(20):
            written.commit(5, 5)
        logs.append(written)
        commit_batch(tmp_path / f"cp{n}", 0, offset_line(written, 11))

    def waiting() -> set[int | None]:
        return {
            files.lag(str(tmp_path / f"cp{n}"), ((0, P, str(tmp_path / f"t{n}"), "delta"),))[0].rows for n in range(100)
        }

    assert waiting() == {100}
    for written in logs:
        written.commit(5)
    read.clear()
    assert waiting() == {105} == waiting()
    assert len(read) == 100, "a commit is read once"


def test_a_log_cleaned_up_while_it_is_read_is_reported(files: TableCheckpoints, tmp_path: Path) -> None:
    written, sources = WrittenLog(tmp_path / "p"), ((0, P, str(tmp_path / "p"), "delta"),)
    for _ in range(4):
        written.commit(1)
    written.checkpoint()
    for batch, (offset, gone) in enumerate([(offset_line(written, 2), 2), (offset_line(written, 2, snapshot=True), 3)]):
        commit_batch(tmp_path / "cp", batch, offset)
        assert files.source_fault(str(tmp_path / "cp"), sources) is None and not lag(files, tmp_path).missing
        (written.log / f"{gone:020}.json").rename(tmp_path / "away")
        found = files.source_fault(str(tmp_path / "cp"), sources)
        why = f"no longer has version {gone} in its log, which is to be read next"
        assert found == (P, TableFault(TableFaultKind.LOG_GONE, why))
        assert lag(files, tmp_path).missing
        (tmp_path / "away").rename(written.log / f"{gone:020}.json")


def test_pending_input_of_a_reader_far_behind_is_read_once(
    files: TableCheckpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_log, "KEPT_COMMITS", 20)
    written, sources = WrittenLog(tmp_path / "p"), ((0, P, str(tmp_path / "p"), "delta"),)
    for _ in range(60):
        written.commit(1)
    written.checkpoint()
    read: list[int] = []
    real = delta_log._actions
    monkeypatch.setattr(delta_log, "_actions", lambda lines: (read.append(1), real(lines))[1])
    commit_batch(tmp_path / "cp", 0, offset_line(written, 11))
    for n in range(3):
        assert lag(files, tmp_path).rows == 50 + n
        assert lag(files, tmp_path).versions == 50 + n
        assert files.source_fault(str(tmp_path / "cp"), sources) is None
        written.commit(1)
    first = len(read)
    assert first < 2 * 60 + 10, "each by what waits and by what has changed"
    (path,) = written.commit(1)
    written.commit(1, removes=(path,), operation="UPDATE")
    assert lag(files, tmp_path).versions == 55
    found = files.source_fault(str(tmp_path / "cp"), sources)
    assert found is not None and "UPDATE in version 65" in found[1].why
    assert len(read) - first < 10


def test_knowledge_of_a_log_does_not_count_for_its_replacement(files: TableCheckpoints, tmp_path: Path) -> None:
    written, sources = WrittenLog(tmp_path / "p"), ((0, P, str(tmp_path / "p"), "delta"),)
    (path,) = written.commit(1)
    written.commit(1)
    commit_batch(tmp_path / "cp", 0, offset_line(written, 2))
    assert lag(files, tmp_path).rows == 1 and files.source_fault(str(tmp_path / "cp"), sources) is None
    shutil.rmtree(tmp_path / "p")
    again = WrittenLog(tmp_path / "p")
    again.commit(1)
    again.commit(5, removes=(path,), operation="DELETE")
    again.commit(7)
    assert lag(files, tmp_path).versions == 2
    found = files.source_fault(str(tmp_path / "cp"), sources)
    assert found is not None and "DELETE in version 2" in found[1].why
