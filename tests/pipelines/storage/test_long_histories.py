"""Long histories: what is kept in memory, what is read again, and what a new agent knows about them."""

import gc
import tracemalloc
from pathlib import Path

import pytest

from core.model.names import TableName
from core.ports.storage import SourceLag
from pipelines.storage import row_counting
from pipelines.storage.row_counting import RowCounter
from pipelines.storage.source_lag import SourceLags
from tests.bench.lag_history import PENDING, ROWS, History

T = TableName("orders")
FILES = 20_000


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    """A table of 20,000 files, of which all but a few were consumed; footers are not read."""
    monkeypatch.setattr(row_counting, "parquet_rows", lambda path: ROWS)
    return History(tmp_path, FILES)


def lags_of_agent() -> SourceLags:
    return SourceLags(refresh_s=0, counter=RowCounter(budget_s=60))


def look(lags: SourceLags, history: History) -> SourceLag:
    source = ((0, T, str(history.table), "parquet"),)
    return lags.measure(str(history.checkpoint), {0: history.consumed - 1}, source)[0]


@pytest.mark.drill
def test_memory_does_not_grow_with_the_files_that_were_consumed(history: History) -> None:
    lags = lags_of_agent()
    tracemalloc.start()
    try:
        found = look(lags, history)
        rows = lags.rows(str(history.table), "parquet")
        gc.collect()
        held, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (found.files, found.produced_rows, rows) == (PENDING, FILES * ROWS, FILES * ROWS)
    # The row counts of 10,000 footers are kept for statements that read the source later.
    assert held / FILES < 200 and most / FILES < 300, (held / FILES, most / FILES)


def test_a_compacted_log_is_read_from_its_end(history: History) -> None:
    lags = lags_of_agent()
    look(lags, history)
    for _ in range(25):
        history.grow()
        spoil_the_beginning(history)
        assert look(lags, history).files == PENDING
    assert lags.rows(str(history.table), "parquet") == history.written * ROWS


def test_a_new_agent_continues_from_the_stored_totals_and_reads_only_new_files(history: History) -> None:
    before = lags_of_agent()
    look(before, history)
    encoded = before.encoded()
    for _ in range(25):
        history.grow()
    expected = look(before, history)
    spoil_the_beginning(history)
    after = lags_of_agent()
    after.restore(encoded)
    found = look(after, history)
    assert (found.files, found.rows, found.bytes, found.exact) == (PENDING, PENDING * ROWS, expected.bytes, True)
    assert (found.produced_rows, found.consumed_rows) == (history.written * ROWS, history.consumed * ROWS)
    assert look(before, history).produced_rows == found.produced_rows


def test_stored_totals_of_another_log_are_not_used(history: History, tmp_path: Path) -> None:
    before = lags_of_agent()
    look(before, history)
    encoded = before.encoded()
    history.table.rename(tmp_path / "old table")
    history.checkpoint.rename(tmp_path / "old checkpoint")
    anew = History(tmp_path, 50)
    after = lags_of_agent()
    after.restore(encoded)
    found = look(after, anew)
    assert (found.files, found.produced_rows) == (PENDING, 50 * ROWS)


def spoil_the_beginning(history: History) -> None:
    """Make the older part of both compacted logs unreadable, to show that it is not read."""
    for log in (history.log, history.read):
        for compact in log.glob("*.compact"):
            with open(compact, "r+b") as file:
                file.seek(3)
                file.write(b"?" * (compact.stat().st_size // 2))


@pytest.mark.sampled
@pytest.mark.parametrize("more", [0, 5])
def test_a_log_rewritten_in_the_same_folder_is_read_from_its_beginning(
    more: int, history: History, tmp_path: Path
) -> None:
    """This happens, for example, if the inode number of a folder is reused."""
    before = lags_of_agent()
    look(before, history)
    encoded = before.encoded()
    other = History(tmp_path / "other", FILES + more)
    for mine, its in ((history.log, other.log), (history.read, other.read)):
        for file in mine.iterdir():
            file.unlink()
        for file in its.iterdir():
            file.rename(mine / file.name)
    history.written, history.consumed = other.written, other.consumed
    after = lags_of_agent()
    after.restore(encoded)
    found = look(after, history)
    assert (found.files, found.produced_rows) == (PENDING, (FILES + more) * ROWS)
    assert next(iter(after._readings.values())).pending.keys() == {
        f"{other.table}/part-00000-{n:08}-5b1f-4a0e-9c51-2f3d7f6e1c00-c000.snappy.parquet"
        for n in range(other.consumed, other.written)
    }


def test_totals_stored_by_another_version_of_the_agent_are_ignored(history: History) -> None:
    lags = lags_of_agent()
    lags.restore({"source parquet /gone": "{}", "source of what": "no json", "source delta2 /x": "{}", "reading": ""})
    assert look(lags, history).files == PENDING
