"""Writes folders of tables and checkpoints in the layout of Spark 4.2.0."""

import json
import time
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet


class WrittenTable:
    """A table folder with a `_spark_metadata` log: one file of `rows` rows per batch, every tenth batch compacted."""

    root = "file://"
    """What URIs begin with, before the absolute path of a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.entries: list[dict[str, Any]] = []
        self.batch = -1
        (folder / "_spark_metadata").mkdir(parents=True)

    def write(self, *, rows: int = 10, at: float | None = None) -> str:
        self.batch += 1
        path = self.folder / f"part {self.batch}.parquet"
        pyarrow.parquet.write_table(pyarrow.table({"a": list(range(rows))}), path)
        uri = f"{self.root}{str(path).replace(' ', '%20')}"
        modified = int((at or time.time()) * 1000)
        entry = {"path": uri, "size": path.stat().st_size, "isDir": False, "modificationTime": modified}
        new = [entry | {"blockReplication": 1, "blockSize": 1, "action": "add"}]
        self.entries += new
        _log(self.folder / "_spark_metadata", self.batch, new, self.entries)
        return uri


class Consumer:
    """A checkpoint with the log of its first source; `plan` only writes that log, `commit` also commits the batch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.entries: list[dict[str, Any]] = []
        self.batch = -1
        for name in ("sources/0", "offsets", "commits"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "metadata").write_text('{"id":"q-1"}')

    def plan(self, *uris: str) -> int:
        self.batch += 1
        new = [{"path": uri, "timestamp": 1, "batchId": self.batch} for uri in uris]
        self.entries += new
        _log(self.folder / "sources" / "0", self.batch, new, self.entries)
        return self.batch

    def commit(self, *uris: str) -> int:
        """Plan a batch and commit it; return its number."""
        batch = self.plan(*uris)
        offsets = f'v1\n{{"batchWatermarkMs":0}}\n{{"logOffset":{batch}}}'
        (self.folder / "offsets" / str(batch)).write_text(offsets)
        (self.folder / "commits" / str(batch)).write_text("v1\n{}")
        return batch


def _log(folder: Path, batch: int, new: list[dict[str, Any]], everything: list[dict[str, Any]]) -> None:
    compact = (batch + 1) % 10 == 0
    body = "\n".join(["v1", *(json.dumps(entry) for entry in (everything if compact else new))])
    (folder / f"{batch}{'.compact' if compact else ''}").write_text(body)
    (folder / f".{batch}.crc").write_text("x")
