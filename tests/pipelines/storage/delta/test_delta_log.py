"""Logs of Delta tables without Spark: repeated reads, refusals, and how logs are distinguished."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet as parquet
import pytest
from delta_files import WrittenLog, commit_batch, offset_line

from core.model.errors import Refused, TryAgain
from core.model.names import TableName
from core.model.states import TableFaultKind
from core.model.table_formats import format_of_others
from core.observed.table_statistics import SMALL_FILE
from core.ports.storage import SeenLog, TableFault
from pipelines.storage import delta_log, delta_tables
from pipelines.storage.checkpoints import TableCheckpoints
from pipelines.storage.delta_log import CommitsGone, DeltaLog, NoDeltaLog
from pipelines.storage.delta_tables import DeltaTables

P = TableName("p")


@pytest.fixture
def files() -> TableCheckpoints:
    return TableCheckpoints("ledger", logs={"delta": DeltaTables(refresh_s=0)})


def lag(files: TableCheckpoints, tmp_path: Path) -> Any:
    return files.lag(str(tmp_path / "cp"), ((0, P, str(tmp_path / "p"), "delta"),))[0]


def test_a_commit_is_read_once_however_often_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written, read = WrittenLog(tmp_path / "p"), []
    real = delta_log._actions
    monkeypatch.setattr(delta_log, "_actions", lambda lines: (read.append(1), real(lines))[1])
    log = DeltaLog(f"{tmp_path}/p/delta")
    for _ in range(3):
        written.commit(5, 5)
        for _ in range(4):
            log.refresh()
            assert log.active().rows == 10 * written.version
            assert [commit.version for commit in log.since(1)] == list(range(1, written.version + 1))
    assert len(read) == 4


def test_removed_rows_are_not_held_and_read_rows_may_be_gone(files: TableCheckpoints, tmp_path: Path) -> None:
    written, folder = WrittenLog(tmp_path / "p"), str(tmp_path / "p")
    paths = written.commit(3, 4)
    commit_batch(tmp_path / "cp", 0, offset_line(written, 2))
    source = ((0, P, folder, "delta"),)
    assert files.count_missing_inputs(str(tmp_path / "cp"), source) == 0
    written.commit(removes=(paths[0],))
    assert files.rows(folder, "delta") == 4 and files.contents(folder, "delta").files == 1  # type: ignore[union-attr]
    assert files.count_missing_inputs(str(tmp_path / "cp"), source) is None


def test_a_recreated_table_is_a_different_table(files: TableCheckpoints, tmp_path: Path) -> None:
    written = WrittenLog(tmp_path / "p")
    written.commit(3)
    commit_batch(tmp_path / "cp", 0, offset_line(written, 2))
    assert not lag(files, tmp_path).missing
    shutil.rmtree(tmp_path / "p")
    assert lag(files, tmp_path).missing and files.identity(str(tmp_path / "p"), "delta") == ""
    assert files.contents(str(tmp_path / "p"), "delta") is None
    again = WrittenLog(tmp_path / "p", id="id-2")
    again.commit(9)
    again.commit(9)
    assert lag(files, tmp_path).missing and files.identity(str(tmp_path / "p"), "delta") == "id-2"
    assert files.rows(str(tmp_path / "p"), "delta") == 18


def test_a_log_recreated_in_a_folder_with_the_same_inode_is_a_different_log(tmp_path: Path) -> None:
    WrittenLog(tmp_path / "p").commit(3)
    log = DeltaLog(f"{tmp_path}/p/delta")
    log.refresh()
    assert (log.id, log.active().rows) == ("id-1", 3)
    again = WrittenLog(tmp_path / "q", id="id-2")
    again.commit(9)
    for commit in again.log.iterdir():
        commit.replace(tmp_path / "p/delta/_delta_log" / commit.name)
    log.refresh()
    assert (log.id, log.active().rows) == ("id-2", 9)


def test_a_shorter_copy_of_a_log_is_not_the_log_that_was_read(files: TableCheckpoints, tmp_path: Path) -> None:
    written = WrittenLog(tmp_path / "p")
    for _ in range(3):
        written.commit(1)
    commit_batch(tmp_path / "cp", 0, offset_line(written, 4))
    assert lag(files, tmp_path).rows == 0
    for version in (2, 3):
        (written.log / f"{version:020}.json").unlink()
    assert lag(files, tmp_path).missing
    assert files.source_fault(str(tmp_path / "cp"), ((0, P, str(tmp_path / "p"), "delta"),)) == (
        P,
        TableFault(TableFaultKind.REPLACED, "is an older copy: it ends with version 1, and version 3 was read"),
    )


def test_a_table_in_an_unmounted_folder_is_not_gone(files: TableCheckpoints, tmp_path: Path) -> None:
    written, place = WrittenLog(tmp_path / "tables" / "p"), tmp_path / "tables" / "p"
    written.commit(1)
    commit_batch(tmp_path / "cp", 0, offset_line(written, 1))
    sources = ((0, P, str(place), "delta"),)
    (tmp_path / "tables").rename(tmp_path / "elsewhere")
    with pytest.raises(TryAgain, match="tables is not there"):
        files.identity(str(place), "delta")
    with pytest.raises(TryAgain, match="tables is not there"):
        files.source_fault(str(tmp_path / "cp"), sources)
    (tmp_path / "tables").mkdir()
    assert files.identity(str(place), "delta") == ""
    assert files.source_fault(str(tmp_path / "cp"), sources) == (
        P,
        TableFault(TableFaultKind.GONE, "is gone: there is no _delta_log"),
    )


def test_an_unreadable_log_is_reported_and_retried(files: TableCheckpoints, tmp_path: Path) -> None:
    written = WrittenLog(tmp_path / "p")
    written.commit(1)
    (written.log / f"{2:020}.json").write_text("{half a line")
    with pytest.raises(TryAgain, match="cannot be read"):
        lag(files, tmp_path)
    with pytest.raises(NoDeltaLog):
        DeltaLog(str(tmp_path / "nothing")).refresh()


def test_the_files_of_a_batch_are_those_that_the_table_held_after_it(files: TableCheckpoints, tmp_path: Path) -> None:
    written, folder = WrittenLog(tmp_path / "p"), str(tmp_path / "p")
    first, second = (written.commit(3, batch=("q", batch)) for batch in range(2))
    written.commit(batch=("q", 2))
    place = f"{folder}/delta/"
    for path in (*first, *second):
        Path(place, path).touch()
    assert files.written_files(folder, -1) == ()
    assert files.written_files(folder, 0) == (place + first[0],)
    assert files.written_files(folder, 2) == (place + first[0], place + second[0])
    assert files.written_files(folder, 9) is None
    Path(place, first[0]).unlink()
    with pytest.raises(Refused, match="1 of 2 are gone, as after a VACUUM"):
        files.written_files(folder, 2)


def test_files_that_are_not_the_rows_of_the_table_are_not_compared(files: TableCheckpoints, tmp_path: Path) -> None:
    written, folder = WrittenLog(tmp_path / "p"), str(tmp_path / "p")
    written.add("v=a%20b/part.parquet", batch=("q", 0))
    (tmp_path / "p/delta/v=a b").mkdir()
    (tmp_path / "p/delta/v=a b/part.parquet").touch()
    assert files.written_files(folder, 0) == (f"{folder}/delta/v=a b/part.parquet",)
    written.add("part-2.parquet", batch=("q", 1), deletionVector={"cardinality": 1})
    with pytest.raises(Refused, match="rows that were deleted are still there"):
        files.written_files(folder, 1)
    mapped = WrittenLog(tmp_path / "m", configuration={"delta.columnMapping.mode": "name"})
    mapped.commit(3, batch=("q", 0))
    with pytest.raises(Refused, match="columns have other names there"):
        files.written_files(str(tmp_path / "m"), 0)


def test_rows_since_a_moment_are_those_of_the_commits_since(files: TableCheckpoints, tmp_path: Path) -> None:
    written, folder, now = WrittenLog(tmp_path / "p"), str(tmp_path / "p"), time.time()
    written.commit(3, at=now - 100)
    written.commit(4, 5, at=now - 10)
    assert files.rows_since(folder, "delta", now - 50) == 9
    assert files.rows_since(folder, "delta", now + 50) == 0
    assert files.rows_since(str(tmp_path / "none"), "delta", now) is None


def test_a_reader_holds_the_rows_of_a_batch_until_rows_change_in_another_way(
    files: TableCheckpoints, tmp_path: Path
) -> None:
    written, folder = WrittenLog(tmp_path / "p"), tmp_path / "p"
    (path,) = written.commit(3, batch=("q", 0))
    written.commit()
    written.commit(2, removes=(path,))
    written.commit(batch=("q", 1))
    held = files.batch_history(str(tmp_path / "cp"), 0, str(folder)).held
    assert held == {"id-1:2:0": (0, 0), "id-1:3:0": (0, 0), "id-1:5:0": (1, 1)}


def test_the_newest_commits_of_a_long_log_are_held_and_older_ones_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_log, "KEPT_COMMITS", 3)
    written = WrittenLog(tmp_path / "p")
    for n in range(8):
        written.commit(n, batch=("q", n))
    log = DeltaLog(f"{tmp_path}/p/delta")
    log.refresh()
    assert len(log._commits) == len(log.batch_by_version) == 3
    assert [commit.rows for commit in log.since(1)] == list(range(8))
    (written.log / f"{1:020}.json").unlink()
    with pytest.raises(CommitsGone):
        list(log.since(1))


def test_small_files_and_the_log_since_its_checkpoint_are_counted_once_for_each_version(tmp_path: Path) -> None:
    written, files = WrittenLog(tmp_path / "t"), TableCheckpoints("ledger", logs={"delta": DeltaTables(refresh_s=0)})
    small, large = written.commit(10, SMALL_FILE // 100)
    found = files.contents(str(tmp_path / "t"), "delta")
    assert found is not None and (found.files, found.small_files, found.log_entries) == (2, 1, 2)
    assert found.log_bytes == sum(path.stat().st_size for path in written.log.iterdir())
    for _ in range(3):
        written.commit(1, removes=(small,))
    found = files.contents(str(tmp_path / "t"), "delta")
    assert found is not None and (found.files, found.small_files, found.log_entries) == (4, 3, 5)
    with DeltaTables().open(str(tmp_path / "t/delta")) as log:
        assert log is not None and large in {file.path for file in log.files_at(4)}


def test_a_log_that_is_far_behind_its_checkpoint_has_a_length_and_no_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_tables, "LOOKED_AT", 3)
    written, files = WrittenLog(tmp_path / "t"), TableCheckpoints("ledger", logs={"delta": DeltaTables(refresh_s=0)})
    for expected in ((1, True), (2, True), (3, True), (4, False)):
        found = files.contents(str(tmp_path / "t"), "delta")
        assert found is not None and (found.log_entries, found.log_bytes is not None) == expected
        written.commit(1)


def test_rows_that_no_statement_wrote_are_reported_with_operation_and_version(
    files: TableCheckpoints, tmp_path: Path
) -> None:
    log = WrittenLog(tmp_path)
    ours = {"notMatchedPredicates": '[{"predicate":"(NOT headgate_gone#7)","actionType":"insert"}]'}
    (first,) = log.commit(5, operation="MERGE", parameters=ours)
    log.commit(operation="WRITE", batch=("q", 0))
    assert files.written_by_hand(str(tmp_path), "delta") is None, "its own MERGE, and the record of its batch"
    assert files.written_by_hand(str(tmp_path), "parquet") is None
    log.commit(1, operation="WRITE")
    log.commit(operation="MERGE", removes=(first,), parameters=ours)
    assert files.written_by_hand(str(tmp_path), "delta") == (3, "WRITE")
    log.commit(4, operation="DELETE", removes=("part-3-0.parquet",))
    assert files.written_by_hand(str(tmp_path), "delta") == (5, "DELETE")
    log.commit(1, operation="MERGE", parameters={"notMatchedPredicates": '[{"actionType":"insert"}]'})
    assert files.written_by_hand(str(tmp_path), "delta") == (6, "MERGE"), "by hand: its conditions are not ours"


def test_a_log_with_an_unreadable_beginning_is_refused_and_not_treated_as_a_missing_table(
    files: TableCheckpoints, tmp_path: Path
) -> None:
    log = WrittenLog(tmp_path)
    log.commit(1)
    damaged = log.log / f"{1:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    damaged.write_text("{}")
    (log.log / f"{0:020}.{1:020}.compacted.json").write_text("{}")
    (log.log / f"{0:020}.json").unlink()
    with pytest.raises(TryAgain, match="its checkpoint of version 1 does not name its table"):
        files.identity(str(tmp_path), "delta")
    damaged.unlink()
    with pytest.raises(TryAgain, match="begins with version 1, and no usable checkpoint precedes it"):
        files.identity(str(tmp_path), "delta")
    (log.log / f"{1:020}.json").unlink()
    assert files.identity(str(tmp_path), "delta") == "", "there is no commit"


def test_the_oldest_version_is_determined_by_commits_alone(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path)
    log.commit(1)
    found = DeltaLog(str(tmp_path / "delta"))
    found.refresh()
    (log.log / f"{0:020}.json").unlink()
    (log.log / f"{0:020}.{1:020}.compacted.json").write_text("{}")
    assert found.first() == 1


def test_a_folder_exists_or_not_and_an_unreachable_one_is_neither(tmp_path: Path) -> None:
    files = TableCheckpoints("ledger")
    (tmp_path / "file").write_text("")
    assert files.is_there(str(tmp_path))
    assert not files.is_there(str(tmp_path / "none")) and not files.is_there(str(tmp_path / "file"))
    assert not files.is_there(str(tmp_path / "file" / "below"))
    with pytest.raises(TryAgain, match="cannot be reached"):
        files.is_there(str(tmp_path / ("x" * 300)))


def test_missing_files_are_reported_by_a_log_reader_that_begins_at_a_later_checkpoint(tmp_path: Path) -> None:
    written, sources = WrittenLog(tmp_path / "p"), ((0, P, str(tmp_path / "p"), "delta"),)
    (first,) = written.commit(3)
    written.optimize(first, into=3)
    written.checkpoint()
    commit_batch(tmp_path / "cp", 0, offset_line(written, 1))
    assert TableCheckpoints("ledger").source_fault(str(tmp_path / "cp"), sources) == (
        P,
        TableFault(
            TableFaultKind.FILES_GONE, "lacks files of version 1, which is to be read next: VACUUM has deleted them"
        ),
    )
    (written.folder / "delta" / first).touch()
    assert TableCheckpoints("ledger").source_fault(str(tmp_path / "cp"), sources) is None


def test_rows_that_were_taken_out_before_a_checkpoint_may_have_been_read(tmp_path: Path) -> None:
    written, sources = WrittenLog(tmp_path / "p"), ((0, P, str(tmp_path / "p"), "delta"),)
    first, second = written.commit(3, 4)
    written.optimize(second, into=4)
    written.checkpoint()
    commit_batch(tmp_path / "cp", 0, offset_line(written, 2))
    assert TableCheckpoints("ledger").count_missing_inputs(str(tmp_path / "cp"), sources) == 0, (
        "OPTIMIZE has taken no row out"
    )
    written.commit(removes=(first,))
    written.checkpoint()
    assert TableCheckpoints("ledger").count_missing_inputs(str(tmp_path / "cp"), sources) is None


def test_the_position_of_a_log_distinguishes_it_from_an_older_copy_even_if_written_on(
    files: TableCheckpoints, tmp_path: Path
) -> None:
    place, written = f"{tmp_path}/p/delta", WrittenLog(tmp_path / "p", id="id-9")
    shutil.copytree(place, tmp_path / "copy")
    written.commit(2)
    before = files.log_mark(place)
    assert before is not None and (before.id, before.version) == ("id-9", 1) and before.commit
    written.commit(3)
    assert files.log_mark(place, 1) == before, "it has come farther"
    shutil.rmtree(place)
    shutil.copytree(tmp_path / "copy", place)
    older = files.log_mark(place, 1)
    assert older is not None and older.version == 0
    WrittenLog(tmp_path / "other", id="id-9").commit(9)
    shutil.copy(tmp_path / "other/delta/_delta_log/00000000000000000000.json",
                f"{place}/_delta_log/00000000000000000001.json")  # fmt: skip
    other = files.log_mark(place, 1)
    assert other is not None and other.version == 1 and other.commit != before.commit
    assert files.log_mark(f"{tmp_path}/p") is None


PROTOCOL = {"minReaderVersion": 3, "minWriterVersion": 7}


@pytest.mark.parametrize(
    ("protocol", "words"),
    [
        ({"minReaderVersion": 1, "minWriterVersion": 2}, ""),
        (PROTOCOL | {"readerFeatures": ["deletionVectors", "v2Checkpoint"], "writerFeatures": ["rowTracking"]}, ""),
        (PROTOCOL | {"readerFeatures": ["v3Time"], "writerFeatures": ["v3Time"]}, "it requires v3Time, which Headgate"),
        (PROTOCOL | {"readerFeatures": [], "writerFeatures": ["coordinatedCommits-preview"]},
         "it requires coordinatedCommits-preview, which Headgate does not support"),
        ({"minReaderVersion": 4, "minWriterVersion": 9}, "it requires readers of version 4"),
    ],
)  # fmt: skip
def test_a_table_that_asks_for_more_than_is_read_here_has_no_figure(
    protocol: dict[str, Any], words: str, files: TableCheckpoints, tmp_path: Path
) -> None:
    log, source = WrittenLog(tmp_path), (0, P, str(tmp_path), "delta")
    log.commit(5)
    log._write([{"protocol": protocol}], time.time())
    log.commit(2)
    if not words:
        assert files.rows(str(tmp_path), "delta") == 7
        return
    for look in (
        lambda: files.rows(str(tmp_path), "delta"),
        lambda: files.lag(str(tmp_path / "c"), (source,)),
        lambda: files.identity(str(tmp_path), "delta"),
    ):
        with pytest.raises(TryAgain, match=words):
            look()


def test_a_checkpoint_of_policy_v2_is_read_with_the_files_that_it_names(
    files: TableCheckpoints, tmp_path: Path
) -> None:
    log = WrittenLog(tmp_path)
    for rows in (5, 7, 11):
        log.commit(rows)
    lines = [json.loads(line) for n in range(4) for line in (log.log / f"{n:020}.json").read_text().splitlines()]
    adds = [line["add"] for line in lines if "add" in line]
    (log.log / "_sidecars").mkdir()
    rows = [{**add, "deletionVector": None} for add in adds[:2]]
    parquet.write_table(pyarrow.table({"add": rows}), log.log / "_sidecars" / "one.parquet")
    parquet.write_table(pyarrow.table({"add": [*adds[2:]]}), log.log / "_sidecars" / "two.parquet")
    top = [line for line in lines if "metaData" in line]
    top += [{"sidecar": {"path": f"{name}.parquet", "sizeInBytes": 1}} for name in ("one", "two")]
    top += [{"txn": {"appId": "q", "version": 3}}, {"protocol": PROTOCOL | {"readerFeatures": ["v2Checkpoint"]}}]
    for id in ("b", "a"):
        place = log.log / f"{3:020}.checkpoint.{id}0a083e8-7026-4e79-81be-64bd76c43a11.json"
        place.write_text("".join(json.dumps(line) + "\n" for line in top))
    log.commit(13)
    for version in range(4):
        (log.log / f"{version:020}.json").unlink()
    held = files.contents(str(tmp_path), "delta")
    assert held is not None and (held.rows, held.files, held.log_entries) == (36, 4, 1)
    assert files.sink_batch(str(tmp_path), format="delta", query="q") == 3


def test_the_log_of_an_external_table_is_in_its_folder_and_ours_is_one_level_below(tmp_path: Path) -> None:
    files, others = TableCheckpoints("ledger"), format_of_others("delta")
    log = WrittenLog(tmp_path)
    log.commit(5)
    assert (files.identity(str(tmp_path), "delta"), files.identity(str(tmp_path), others)) == ("id-1", "")
    place = f"{tmp_path}/delta"
    assert (files.identity(place, "delta"), files.identity(f"{place}/", others)) == ("", "id-1")
    assert files.identity(f"file://{place}", others) == "id-1" and files.is_there(f"file:{place}")
    assert (files.rows(place, others), files.lag("/none", ((0, P, place, others),))[0].rows) == (5, 5)
    found = files.source_position(place, format=others)
    assert isinstance(found, SeenLog) and found.version == 2
    assert format_of_others("json") == "json"
