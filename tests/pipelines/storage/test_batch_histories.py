"""What batches have read and written, from logs as Spark lays them out: compacted, cleaned up, and growing."""

import os
from pathlib import Path

import pytest
from spark_files import Consumer, WrittenTable

from core.model.names import TableName
from core.observed.aligned_positions import AlignedPair, VersionHistory, newest_aligned
from pipelines.storage.batch_histories import BatchHistories
from pipelines.storage.checkpoints import TableCheckpoints


def clean_up(log: Path, upto: int) -> None:
    """Delete the files that Spark deletes ten minutes after a compacted file covers them."""
    for path in log.iterdir():
        number = path.name.removesuffix(".compact")
        if number.isdigit() and int(number) < upto:
            path.unlink()


def test_marks_are_the_same_for_the_same_files_in_any_order_and_batches(tmp_path: Path) -> None:
    raw = WrittenTable(tmp_path / "raw")
    uris = [raw.write() for _ in range(3)]
    one, other = Consumer(tmp_path / "one"), Consumer(tmp_path / "other")
    for uri in uris:
        one.commit(uri)
    other.commit(*reversed(uris[:2]))
    histories = BatchHistories()
    first = histories.history(str(one.folder), 1, str(tmp_path / "none"))
    second = histories.history(str(other.folder), 1, str(tmp_path / "none"))
    assert [position.consumed[0].split(":")[0] for _, position in sorted(first.batches.items())] == ["1", "2", "3"]
    assert second.batches[0].consumed == first.batches[1].consumed
    assert first.held == {}


def test_the_input_of_a_reader_is_found_among_the_batches_of_its_parent(tmp_path: Path) -> None:
    """This covers compacted files, and both logs growing."""
    parent, reader = WrittenTable(tmp_path / "parent"), Consumer(tmp_path / "reader")
    histories = BatchHistories()
    for batch in range(25):
        reader.commit(parent.write())
        mark = histories.history(str(reader.folder), 1, "").batches[batch].consumed[0]
        assert histories.history("", 0, str(parent.folder)).held[mark] == (batch, batch)
    again = BatchHistories()
    mine = again.history(str(reader.folder), 1, "").batches
    held = again.history("", 0, str(parent.folder)).held
    assert [held[mine[batch].consumed[0]] for batch in range(25)] == [(batch, batch) for batch in range(25)]


@pytest.mark.parametrize("seen", [-1, 3, 12])
def test_cleaned_up_batches_are_read_from_the_next_compact_file(tmp_path: Path, seen: int) -> None:
    parent, reader = WrittenTable(tmp_path / "parent"), Consumer(tmp_path / "reader")
    histories = BatchHistories()
    for batch in range(25):
        reader.commit(parent.write())
        if batch == seen:
            histories.history(str(reader.folder), 1, str(parent.folder))
    clean_up(tmp_path / "parent" / "_spark_metadata", 19)
    clean_up(tmp_path / "reader" / "sources" / "0", 19)
    mine = histories.history(str(reader.folder), 1, "").batches
    held = histories.history("", 0, str(parent.folder)).held
    for batch in range(19, 25):
        assert held[mine[batch].consumed[0]] == (batch, batch)
    assert {batch for first, _ in held.values() for batch in (first,)} == {*range(seen + 1), *range(19, 25)}


def test_batches_that_wrote_nothing_hold_what_was_there_before(tmp_path: Path) -> None:
    parent = WrittenTable(tmp_path / "parent")
    parent.write()
    for batch in (1, 2):
        (parent.folder / "_spark_metadata" / str(batch)).write_text("v1")
    held = BatchHistories().history("", 0, str(parent.folder)).held
    assert list(held.values()) == [(0, 2)]


def test_only_batches_whose_rows_are_in_the_table_count(tmp_path: Path) -> None:
    """Batch 1 is planned but not committed. It counts if its rows are in the table, as a reader may have read them."""
    reader, raw = Consumer(tmp_path / "reader"), WrittenTable(tmp_path / "raw")
    first, second = raw.write(), raw.write()
    reader.commit(first)
    reader.plan(second)
    (reader.folder / "offsets" / "1").write_text('v1\n{"batchWatermarkMs":77}\n{"logOffset":1}')
    histories = BatchHistories()
    assert set(histories.history(str(reader.folder), 1, str(tmp_path / "none")).batches) == {0}
    own = WrittenTable(tmp_path / "own")
    own.write(), own.write()
    found = histories.history(str(reader.folder), 1, str(own.folder)).batches
    assert set(found) == {0, 1} and found[1].watermark_ms == 77


def test_an_offset_whose_log_is_gone_is_not_known(tmp_path: Path) -> None:
    reader, raw = Consumer(tmp_path / "reader"), WrittenTable(tmp_path / "raw")
    reader.commit(raw.write())
    os.unlink(reader.folder / "sources" / "0" / "0")
    assert BatchHistories().history(str(reader.folder), 1, "").batches == {}


def test_the_files_of_batches_are_distinguished_from_later_ones_in_compact_files_too(tmp_path: Path) -> None:
    parent = WrittenTable(tmp_path / "parent")
    uris = [parent.write() for _ in range(5)]
    files = TableCheckpoints("ledger-1")
    folder = str(parent.folder)
    assert files.written_files(folder, -1) == ()
    assert files.written_files(folder, 2) == tuple(u.removeprefix("file://").replace("%20", " ") for u in uris[:3])
    uris += [parent.write() for _ in range(20)]
    assert len(files.written_files(folder, 4) or ()) == 5
    clean_up(parent.folder / "_spark_metadata", 19)
    assert len(files.written_files(folder, 4) or ()) == 5, "remembered"
    fresh = TableCheckpoints("ledger-1")
    assert fresh.written_files(folder, 4) is None, "no longer told apart"
    assert len(fresh.written_files(folder, 21) or ()) == 22
    assert fresh.written_files(str(tmp_path / "none"), 3) is None


def test_two_versions_over_two_versions_of_a_parent_are_aligned(tmp_path: Path) -> None:
    """The pairs are found from files alone: raw → a → b, twice."""
    raw = WrittenTable(tmp_path / "raw")
    uris = [raw.write() for _ in range(4)]
    files = TableCheckpoints("ledger-1")
    histories = {}
    for number, cuts in ((1, ([0], [1], [2])), (2, ([1, 0], [2, 3]))):
        a, a_reads = WrittenTable(tmp_path / f"a{number}"), Consumer(tmp_path / f"a{number}.c")
        b_reads = Consumer(tmp_path / f"b{number}.c")
        for cut in cuts:
            a_reads.commit(*(uris[place] for place in cut))
            b_reads.commit(a.write())
        a_version, b_version = (TableName("a"), number), (TableName("b"), number)
        histories[a_version] = VersionHistory(
            ((TableName("raw"), 0),), files.batch_history(str(a_reads.folder), 1, str(a.folder))
        )
        histories[b_version] = VersionHistory((a_version,), files.batch_history(str(b_reads.folder), 1, ""))
    assert newest_aligned(histories, (TableName("b"), 1), (TableName("b"), 2)) == AlignedPair(1, 0)
