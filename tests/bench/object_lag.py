"""Measures the lag of many statements over S3: `python -m tests.bench.object_lag [STATEMENTS]`, two minutes.

Each statement has a local checkpoint and reads a source of its own in S3: one half are folders with JSON files, the
other half are Delta tables. A round is the agent's own: it measures all statements, several at once. The store (moto,
one Python process) runs on the same machine, so the network is not included, and it answers only one request at a time.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from core.model.names import TableName
from core.model.table_formats import format_of_others
from core.ports.storage import MeasuredFiles, StatementFolders
from pipelines.storage.checkpoints import TableCheckpoints
from pipelines.storage.file_store import store_of
from pipelines.storage.remote_reads import RemoteReads
from tests.support.moto_s3 import MotoS3, moto_s3

BATCHES, FOLDERS, LARGE = 12, 4, 2_000


class Statement:
    """A statement with a committed history over a source that has one batch more."""

    def __init__(self, s3: MotoS3, home: Path, number: int) -> None:
        self.s3, self.checkpoint = s3, home / f"c{number}"
        self.source = f"t{number}"
        self.is_delta = bool(number % 2)
        self.written = self.read = 0
        format = format_of_others("delta") if self.is_delta else "json"
        sources = ((0, TableName(self.source), f"{s3.root}/{self.source}", format),)
        self.folders = StatementFolders(str(self.checkpoint), sources, str(home / f"s{number}"), "parquet")
        for name in ("sources/0", "offsets", "commits"):
            (self.checkpoint / name).mkdir(parents=True)
        (self.checkpoint / "metadata").write_text('{"id":"q"}')
        for _ in range(BATCHES):
            self.commit()
            self.consume()
        self.commit()

    def commit(self) -> None:
        """Write a batch to the source."""
        n, self.written = self.written, self.written + 1
        if not self.is_delta:
            self.s3.put(f"{self.source}/day={n % FOLDERS}/p{n}.json", b'{"id":1}\n' * 10)
            return
        actions: list[object] = [{"metaData": {"id": "i", "schemaString": "{}"}}] if n == 0 else []
        actions.append({"add": {"path": f"p{n}", "size": 9, "modificationTime": 1, "stats": '{"numRecords":10}'}})
        self.s3.put(f"{self.source}/_delta_log/{n:020}.json", "\n".join(map(json.dumps, actions)).encode())

    def consume(self) -> None:
        """Commit a batch of the statement."""
        n, self.read = self.read, self.read + 1
        offset: dict[str, object] = {"logOffset": n}
        if self.is_delta:
            about = {"sourceVersion": 1, "reservoirId": "i", "reservoirVersion": n + 1}
            offset = about | {"index": -1, "isStartingVersion": False}
        else:
            path = f"{self.s3.root}/{self.source}/day={n % FOLDERS}/p{n}.json"
            entry = {"path": path, "timestamp": 1, "batchId": n}
            (self.checkpoint / f"sources/0/{n}").write_text(f"v1\n{json.dumps(entry)}")
        (self.checkpoint / f"offsets/{n}").write_text(f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(offset)}')
        (self.checkpoint / f"commits/{n}").write_text("v1\n{}")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
        moto_s3(Path(folder), patch) as s3,
    ):
        every = [Statement(s3, Path(folder), n) for n in range(count)]
        files = TableCheckpoints("l", refresh_s=0.0)
        files._remote = RemoteReads(wait_s=600.0)

        def a_round() -> None:
            measured = files.measure_ahead(each.folders for each in every)
            for each in every:
                found = measured[str(each.checkpoint)]
                assert isinstance(found, MeasuredFiles) and found.state is not None, found
                assert [lag.files for lag in found.lag] == [each.written - each.read], (each.source, found)

        print(f"{count} statements")
        print(f"first round           {measured(a_round)}")
        for _ in range(3):
            print(f"round without news    {measured(a_round)}")
        for _ in range(3):
            for each in every:
                each.commit()
                each.consume()
            print(f"round after a batch   {measured(a_round)}")
        for n in range(LARGE):
            s3.put(f"large/day={n % 30}/p{n}.json", b"")
        place = f"{s3.root}/large"
        print(f"listing of {LARGE:,} files  {measured(lambda: store_of(place).below(place))}")
        files = TableCheckpoints("l", refresh_s=0.0)
        files.measure_ahead(each.folders for each in every[:1])
        s3.freeze()
        for _ in range(3):
            print(f"round while frozen    {measured(lambda: files.measure_ahead(each.folders for each in every))}")
        s3.thaw()


def measured(act: Callable[[], object]) -> str:
    began, used = time.monotonic(), time.process_time()
    act()
    return f"{time.monotonic() - began:.2f} s, {time.process_time() - used:.2f} s of CPU"


if __name__ == "__main__":
    main()
