"""Positions in a Delta table's log: the end of a query's batch, possible starts, and files of a clone."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from delta_files import WrittenLog

from core.model.errors import Refused
from core.model.names import TableName as T
from core.sql.statement import AT_TIME, AT_VERSION, LogStart
from pipelines.storage import delta_readers
from pipelines.storage.checkpoints import TableCheckpoints
from pipelines.storage.delta_log import DataFile, DeltaLog

DAY = 1_767_225_600.0


def written(root: Path) -> WrittenLog:
    """Return a table whose versions 1 to 5 were committed a minute apart, with 1 to 5 rows."""
    log = WrittenLog(root / "p__v1")
    for n in range(1, 6):
        log.commit(n, at=DAY + 60 * n)
    return log


def why(folder: Path, at: str, *, changes: bool = False) -> str | None:
    start = LogStart(T("p"), AT_VERSION if at.isdecimal() else AT_TIME, at)
    return TableCheckpoints("ledger").why_not_from(str(folder), "delta", start, takes_changes=changes)


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(DAY + seconds, UTC).isoformat()


@pytest.fixture
def on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat the data files of written logs as present."""
    monkeypatch.setattr(delta_readers, "missing", lambda paths: frozenset())


def test_a_batch_ends_before_the_next_one_of_its_query_whoever_commits_between(tmp_path: Path) -> None:
    log, files = WrittenLog(tmp_path / "c__v1"), TableCheckpoints("ledger")
    for batch in range(3):
        log.commit(1, batch=("q", batch))
        log.commit(1, batch=("another", batch))
    places = [files.written_version(str(log.folder), "q", batch) for batch in range(4)]
    assert places == [2, 4, 6, None], "version 1 is batch 0, and 2 somebody else's"
    assert files.written_version(str(log.folder), "unknown", 0) is None
    assert files.written_version(str(tmp_path / "gone"), "q", 0) is None


def test_a_history_has_the_first_version_and_the_rows_of_the_newest_ones(tmp_path: Path) -> None:
    log, files = written(tmp_path), TableCheckpoints("ledger")
    found = files.log_history(str(log.folder), "delta")
    assert found is not None and (found.first, found.last, found.rows_from(3)) == (0, 5, 12)
    assert (found.last_at, found.rows_since(DAY + 61)) == (DAY + 300, 14)
    assert files.log_history(str(log.folder), "parquet") is None
    assert files.log_history(str(tmp_path / "gone"), "delta") is None


@pytest.mark.usefixtures("on_disk")
def test_only_versions_in_the_log_are_valid_start_positions(tmp_path: Path) -> None:
    folder = written(tmp_path).folder
    assert [why(folder, at) for at in ("0", "3", "5", moment(-9), moment(120), moment(300))] == [None] * 6
    assert why(folder, "6") == "p ends with version 5, which is before 6"
    assert why(folder, moment(301)) == f"p ends with version 5, which is before {moment(301)}"
    assert why(tmp_path / "gone", "1") == "p is gone: there is no _delta_log"


@pytest.mark.usefixtures("on_disk")
def test_rows_changed_after_a_position_end_a_stream_that_begins_there(tmp_path: Path) -> None:
    log = written(tmp_path)
    log.commit(1, removes=("part-1-0.parquet",))
    end = "a stream that starts earlier cannot continue past that"
    assert why(log.folder, "3") == f"p was changed by a commit in version 6: {end}"
    assert why(log.folder, "3", changes=True) is None
    log.commit(1)
    assert why(log.folder, "7") is None


def test_missing_files_are_reported(tmp_path: Path) -> None:
    assert why(written(tmp_path).folder, "2") == "p lacks files of version 2: VACUUM has deleted them"


def test_a_clone_names_files_elsewhere_and_values_of_partitions_are_not_read_from_their_folders(tmp_path: Path) -> None:
    log, files = WrittenLog(tmp_path / "g__v2"), TableCheckpoints("ledger")
    log.add("file:///data/tables/c%20__v1/delta/k=a%2520b/part-1.parquet", batch=("q", 0))
    log.add("k=a%2520b/part-2.parquet", batch=("q", 1))
    read = DeltaLog(f"{log.folder}/delta")
    read.refresh()
    assert [read.place_of(file) for file in read.files_at(2)] == [
        "/data/tables/c __v1/delta/k=a%20b/part-1.parquet",
        f"{log.folder}/delta/k=a%20b/part-2.parquet",
    ]
    assert read.place_of(DataFile("/data/x.parquet", 1, 1, 0.0)) == "/data/x.parquet"
    with pytest.raises(Refused, match="some are partitions of another version"):
        files.written_files(str(log.folder), 1)
