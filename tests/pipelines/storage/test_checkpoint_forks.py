"""Forked and seeded checkpoints as files: their contents, idempotence, and a kill between any two operations."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from spark_files import Consumer, WrittenTable

from core.model.errors import Refused, TryAgain
from core.model.names import TableName
from core.ports.storage import FolderTaken, OriginRows, SeenFile, StartPosition, VersionFolders
from pipelines.storage.checkpoints import TableCheckpoints

FILES = TableCheckpoints("ledger-1", machine="m-1", epoch=2)
NOTE = {"run": "7f3a", "table": "orders", "version": 2}
STATE = ("0/0/{n}.delta", "0/1/{n}.delta", "0/1/left-keyToNumValues/{n}_ab12.changelog")


class Versions:
    """A version with a history of batches, and the prepared folders of the next one."""

    def __init__(self, root: Path, batches: int) -> None:
        self.root = root
        self.old = VersionFolders(f"{root}/t ü/orders__v1", f"{root}/c/orders__v1")
        self.new = VersionFolders(f"{root}/t ü/orders__v2", f"{root}/c/orders__v2")
        self.table = WrittenTable(Path(self.old.table))
        self.query = Consumer(Path(self.old.checkpoint))
        state = Path(self.old.checkpoint, "state/0/_metadata/metadata")
        state.parent.mkdir(parents=True)
        state.write_text("v1")
        for _ in range(batches):
            self.batch()
        for folder in (self.new.table, self.new.checkpoint):
            FILES.prepare(folder, NOTE)

    def batch(self) -> None:
        self.table.write()
        n = self.query.commit(f"file:///in/{self.query.batch + 1}.json")
        for path in STATE:
            file = Path(self.old.checkpoint, "state", path.format(n=n + 1))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("state")

    def fork(self, rows: OriginRows = OriginRows.LEFT) -> StartPosition:
        return FILES.fork(self.old, self.new, NOTE, rows=rows)


def files(folder: str) -> set[str]:
    """Return every file below a folder, by its relative path."""
    return {
        os.path.relpath(f"{at}/{name}", folder) for at, _, names in os.walk(folder) for name in names
    }  # fmt: skip


def log_of(table: str) -> list[dict[str, Any]]:
    """Return the entries of a table's sink log, from its newest compacted file and those after it."""
    folder = Path(table, "_spark_metadata")
    names = {int(path.name.removesuffix(".compact")): path for path in folder.iterdir()}
    start = max((n for n, path in names.items() if path.suffix == ".compact"), default=0)
    texts = [names[n].read_text().split("\n") for n in range(start, max(names) + 1)]
    assert all(text[0] == "v1" for text in texts)
    return [json.loads(line) for text in texts for line in text[1:] if line]


def test_a_fork_ends_with_the_newest_committed_batch_and_has_its_own_id(tmp_path: Path) -> None:
    versions = Versions(tmp_path, 5)
    versions.table.write()
    versions.query.plan("file:///in/5.json")
    Path(versions.old.checkpoint, "offsets/5").write_text("v1")
    Path(versions.old.checkpoint, "state/0/0/6.delta").write_text("of the batch under way")
    cut = versions.fork()
    found = FILES.read(versions.new.checkpoint)
    assert cut.batch == 4 and found is not None
    assert (found.batch, found.planned, found.id, found.run) == (4, 4, cut.id, "7f3a") and cut.id not in ("", "q-1")
    assert FILES.sink_batch(versions.new.table) == 4 and log_of(versions.new.table) == []
    below = files(versions.new.checkpoint)
    assert {"state/0/0/5.delta", "state/0/1/left-keyToNumValues/5_ab12.changelog", "state/0/_metadata/metadata"} < below
    assert "state/0/0/6.delta" not in below and "sources/0/5" in below
    assert {"_headgate_owner", "_headgate.json", "_headgate_fork"} < below


def test_a_fork_of_the_rows_has_files_of_its_own_that_outlive_the_origin(tmp_path: Path) -> None:
    versions = Versions(tmp_path, 13)
    cut = versions.fork(OriginRows.INSIDE)
    assert cut.batch == 12
    assert {path.name for path in Path(versions.new.table, "_spark_metadata").iterdir()} == {
        "9.compact", "10", "11", "12",
    }  # fmt: skip
    entries = log_of(versions.new.table)
    assert [entry["path"] for entry in entries] == [
        f"file://{tmp_path}/t%20ü/orders__v2/part%20{n}.parquet" for n in range(13)
    ]
    FILES.prepare(f"{tmp_path}/x", NOTE)
    os.rename(versions.old.table, tmp_path / "purged")
    contents = FILES.contents(versions.new.table, "parquet")
    assert contents is not None and (contents.files, contents.rows) == (13, 130)


def test_rows_that_come_before_lie_in_a_folder_of_the_new_table(tmp_path: Path) -> None:
    versions = Versions(tmp_path, 3)
    versions.fork(OriginRows.BEFORE)
    assert log_of(versions.new.table) == [] and len(log_of(versions.new.before)) == 3
    assert "_before/part 2.parquet" in files(versions.new.table)


@pytest.mark.sampled
@pytest.mark.parametrize("rows", OriginRows)
def test_a_fork_killed_anywhere_is_complete_after_a_repetition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: OriginRows
) -> None:
    """The fork is killed at each rename and link in turn, while the origin continues as a running query does."""
    acts = 0

    def count(real: Any, fails_at: int) -> Any:
        def act(*given: Any, **more: Any) -> Any:
            nonlocal acts
            acts += 1
            if acts == fails_at:
                raise KeyboardInterrupt
            return real(*given, **more)

        return act

    point, ended = 0, False
    while not ended:
        point, acts = point + 1, 0
        root = tmp_path / str(point)
        root.mkdir()
        versions = Versions(root, 11)
        with monkeypatch.context() as patch:
            for name in ("rename", "link"):
                patch.setattr(os, name, count(getattr(os, name), point))
            try:
                versions.fork(rows)
                ended = True
            except KeyboardInterrupt:
                versions.batch()
        cut = versions.fork(rows)
        found = FILES.read(versions.new.checkpoint)
        assert found is not None and found.batch == cut.batch == FILES.sink_batch(versions.new.table)
        assert found.id == cut.id
        held = {OriginRows.LEFT: 0, OriginRows.INSIDE: found.batch + 1, OriginRows.BEFORE: 0}[rows]
        assert len(log_of(versions.new.table)) == held
        if rows is OriginRows.BEFORE:
            assert len(log_of(versions.new.before)) == found.batch + 1
        # What a kill inside `prepare` leaves behind does not belong to the fork.
        left = {path.name for path in Path(versions.new.checkpoint).parent.iterdir()}
        assert {name for name in left if not re.search(r"\.[0-9a-f]{8}$", name)} == {"orders__v1", "orders__v2"}
    assert point > 20


def test_a_repeated_fork_changes_nothing_and_keeps_later_batches(tmp_path: Path) -> None:
    versions = Versions(tmp_path, 3)
    cut = versions.fork()
    Path(versions.new.checkpoint, "offsets/3").write_text("of the new version")
    versions.batch()
    assert versions.fork() == cut
    assert Path(versions.new.checkpoint, "offsets/3").read_text() == "of the new version"


def test_a_version_that_began_from_nothing_is_never_forked_into(tmp_path: Path) -> None:
    versions = Versions(tmp_path, 3)
    Path(versions.new.checkpoint, "metadata").write_text('{"id":"other"}')
    with pytest.raises(FolderTaken, match="was started before its positions were prepared"):
        versions.fork()
    with pytest.raises(FolderTaken, match="contains data written by run"):
        FILES.fork(versions.old, versions.new, NOTE | {"run": "91bc"}, rows=OriginRows.LEFT)


def test_before_the_first_batch_there_is_nothing_to_continue_from(tmp_path: Path) -> None:
    versions = Versions(tmp_path, 0)
    assert versions.fork(OriginRows.BEFORE) == StartPosition(None, "") == versions.fork(OriginRows.BEFORE)
    assert FILES.sink_batch(versions.new.table) is None and os.path.isdir(versions.new.before)


def test_an_incomplete_checkpoint_is_not_forked(tmp_path: Path) -> None:
    versions = Versions(tmp_path, 4)
    Path(versions.old.checkpoint, "state/0/1/4.delta").unlink()
    with pytest.raises(TryAgain, match="could not be copied completely"):
        versions.fork()
    found = FILES.read(versions.new.checkpoint)
    assert found is not None and found.batch is None
    Path(versions.old.checkpoint, "state/0/1/4.delta").write_text("state")
    Path(versions.old.table, "_spark_metadata/3").unlink()
    with pytest.raises(TryAgain, match="does not reach batch 3"):
        versions.fork()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    versions = Versions(tmp_path, 2)
    Path(versions.old.table, "part 1.parquet").unlink()
    with pytest.raises(Refused, match=r"part 1.parquet is missing, but its table refers to it"):
        versions.fork(OriginRows.INSIDE)


def test_a_file_system_without_links_gets_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = Versions(tmp_path, 2)

    def link(origin: str, copy: str) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", link)
    assert versions.fork(OriginRows.INSIDE).batch == 1
    path = Path(versions.new.table, "part 1.parquet")
    assert path.stat().st_nlink == 1 and path.read_bytes() == Path(versions.old.table, "part 1.parquet").read_bytes()


def test_a_seeded_checkpoint_has_read_up_to_the_given_positions(tmp_path: Path) -> None:
    versions = Versions(tmp_path, 3)
    seen = FILES.source_position(versions.old.table)
    assert len(seen) == 3 and FILES.source_position(versions.old.table, upto=1) == seen[:2]
    cut = FILES.create_checkpoint_after(versions.new, (seen, ()), NOTE, batch=7, like=versions.old.checkpoint)
    found = FILES.read(versions.new.checkpoint)
    assert found is not None and (found.batch, found.planned, found.id) == (7, 7, cut.id)
    assert found.consumed == {0: 0}
    assert Path(versions.new.checkpoint, "offsets/6").read_text().split("\n")[2:] == ['{"logOffset":0}', "-"]
    assert FILES.sink_batch(versions.new.table) == 7
    assert FILES.create_checkpoint_after(versions.new, ((),), NOTE) == cut


def test_a_version_that_begins_now_runs_its_first_batch_itself(tmp_path: Path) -> None:
    versions = Versions(tmp_path, 3)
    cut = FILES.create_checkpoint_after(versions.new, (FILES.source_position(versions.old.table), ()), NOTE)
    found = FILES.read(versions.new.checkpoint)
    assert found is not None and (cut.batch, found.batch, found.planned, found.id) == (None, None, None, cut.id)
    assert FILES.sink_batch(versions.new.table) is None
    none, lines = (Path(versions.new.checkpoint, f"sources/0/{n}").read_text().split("\n") for n in (0, 1))
    # Spark reads for batch 1 the entries with this batch number.
    assert none == ["v1"] and [json.loads(line)["batchId"] for line in lines[1:]] == [0, 0, 0]
    assert not Path(versions.new.checkpoint, "sources/1").exists()


def test_files_marked_as_read_are_no_lag_even_after_compaction(tmp_path: Path) -> None:
    versions = Versions(tmp_path, 3)
    source = (0, TableName("orders"), versions.old.table, "parquet")
    FILES.create_checkpoint_after(versions.new, (FILES.source_position(versions.old.table),), NOTE)
    query = Consumer(Path(versions.new.checkpoint))
    query.entries = [
        {"path": file.path, "timestamp": 1, "batchId": 0} for file in FILES.source_position(versions.old.table)
    ]
    query.batch = 1
    for _ in range(10):
        query.commit(versions.table.write())
        (lag,) = FILES.lag(versions.new.checkpoint, (source,))
        assert (lag.files, lag.rows) == (0, 0)
    versions.table.write()
    (lag,) = TableCheckpoints("ledger-1").lag(versions.new.checkpoint, (source,))
    assert (lag.files, lag.rows) == (1, 10)


def test_files_of_a_plain_folder_are_named_as_spark_names_them(tmp_path: Path) -> None:
    landing = tmp_path / "in [é] 100%"
    (landing / "day=1").mkdir(parents=True)
    for name in ("b c.json", "_hidden.json", ".d.json", "day=1/a+b#.json"):
        (landing / name).write_text("{}")
    os.utime(landing / "b c.json", (0, 1.25))
    assert FILES.source_position(str(landing))[0] == SeenFile(
        f"file://{tmp_path}/in%20%5Bé%5D%20100%25/b%20c.json", 1250
    )
    assert [file.path.rpartition("/")[2] for file in FILES.source_position(str(landing))] == [
        "b%20c.json",
        "a+b%23.json",
    ]


def test_files_written_since_a_time_stay_unread(tmp_path: Path) -> None:
    for name, at in (("old.json", 10.0), ("new.json", 20.0)):
        (tmp_path / name).write_text("{}")
        os.utime(tmp_path / name, (0, at))
    found = FILES.source_position(str(tmp_path), format="json", since=20.0)
    assert [file.path.rpartition("/")[2] for file in found] == ["old.json"]  # type: ignore[union-attr]  # Files.


def test_a_batch_that_the_record_holds_only_with_later_ones_is_refused(tmp_path: Path) -> None:
    versions = Versions(tmp_path, 12)
    for n in range(9):
        Path(versions.old.table, f"_spark_metadata/{n}").unlink(missing_ok=True)
    with pytest.raises(Refused, match="no longer distinguishes batch 4 from later ones"):
        FILES.source_position(versions.old.table, upto=4)
    assert len(FILES.source_position(versions.old.table, upto=10)) == 11
