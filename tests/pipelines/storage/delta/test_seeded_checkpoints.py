"""A checkpoint that continues on another table with a log: its position, and the query id in its own table."""

import json
from pathlib import Path

import pytest
from delta_files import WrittenLog, commit_batch, offset_line

from core.model.errors import Refused
from core.ports.storage import SeenLog, VersionFolders
from pipelines.storage.checkpoint_logs import text_of
from pipelines.storage.checkpoints import TableCheckpoints
from pipelines.storage.delta_readers import offsets_in

NOTE = {"run": "7f3a", "table": "c", "version": 1}


class Moved:
    """A statement that has completely read version 3 of `p__v1`, and `p__v2`, to which it is to move."""

    def __init__(self, root: Path) -> None:
        self.files = TableCheckpoints("ledger-1")
        self.old, self.new = WrittenLog(root / "p__v1", "id-old"), WrittenLog(root / "p__v2", "id-new")
        self.child = WrittenLog(root / "c__v1", "id-c")
        self.checkpoint = root / "checkpoints/c__v1"
        self.folders = VersionFolders(str(root / "c__v1"), str(root / "checkpoints/c__v1.p__v2.4"))
        self.files.prepare(str(self.checkpoint), NOTE)
        for batch in range(4):
            self.new.commit(5, batch=("writer", batch))
        self.child.commit(5, batch=("q-1", 4))
        commit_batch(self.checkpoint, 4, offset_line(self.old, 5))

    def seed(self, upto: int) -> str:
        seen = self.files.source_position(str(self.new.folder), upto)
        return self.files.create_checkpoint_after(self.folders, (seen,), NOTE, batch=4, like=str(self.checkpoint)).id


def test_it_is_positioned_after_the_batch_of_the_other_table_and_keeps_its_query(tmp_path: Path) -> None:
    moved = Moved(tmp_path)
    assert moved.seed(upto=2) == "q-1"
    place = Path(moved.folders.checkpoint)
    assert {
        n: (o.table_id, o.version, o.index, o.in_snapshot) for n, o in offsets_in(text_of(f"{place}/offsets/4")).items()
    } == {0: ("id-new", 4, -1, False)}
    assert (place / "offsets/3").read_text().split("\n")[2] == (place / "offsets/4").read_text().split("\n")[2]
    found = moved.files.read(str(place))
    assert found is not None and (found.id, found.batch, found.planned) == ("q-1", 4, 4)
    assert moved.files.sink_batch(moved.folders.table, format="delta", query=found.id) == 4, "its table agrees"
    assert not (Path(moved.folders.table) / "_spark_metadata").exists()
    (lag,) = moved.files.lag(str(place), ((0, "p", str(moved.new.folder), "delta"),))
    assert (lag.rows, lag.versions, lag.missing) == (5, 1, False)


def test_twice_is_once_and_the_newest_batch_is_the_end_of_the_log(tmp_path: Path) -> None:
    moved = Moved(tmp_path)
    assert moved.seed(upto=3) == moved.seed(upto=3) == "q-1"
    (line,) = Path(moved.folders.checkpoint, "offsets/4").read_text().split("\n")[2:]
    assert json.loads(line)["reservoirVersion"] == 5 == moved.new.version + 1


def test_a_batch_that_the_log_does_not_name_and_a_start_without_a_batch_are_refused(tmp_path: Path) -> None:
    moved = Moved(tmp_path)
    with pytest.raises(Refused, match="no longer distinguishes batch 9"):
        moved.seed(upto=9)
    moved.new.commit(1, batch=("another", 2))
    with pytest.raises(Refused, match="no longer distinguishes batch 2"):
        moved.seed(upto=2)
    with pytest.raises(Refused, match="cannot be marked as read before its first batch"):
        moved.files.create_checkpoint_after(moved.folders, (SeenLog("{}"),), NOTE)
