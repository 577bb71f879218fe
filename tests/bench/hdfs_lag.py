"""Measures the lag of many statements in HDFS: `python -m tests.bench.hdfs_lag [STATEMENTS]`, two minutes.

Each statement reads a table of its own with a log of batches; one half of the tables are Delta tables. A round is the
agent's own: it measures all statements, several at once, each with its checkpoint. The name node and the data node run
on the same machine, so the network between agent and HDFS is not included, and the rates at which they answer limit the
rounds. A second argument is the number of statements that are measured at once.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from core.model.names import TableName
from core.ports.storage import MeasuredFiles, StatementFolders
from pipelines.storage import hdfs_files
from pipelines.storage.checkpoints import TableCheckpoints
from pipelines.storage.file_store import store_of
from pipelines.storage.remote_reads import AT_ONCE, RemoteReads
from tests.support.mini_hdfs import mini_hdfs

BATCHES = 12
RATED_S = 4.0


class Statement:
    """A statement with a committed history over a table that has one batch more."""

    def __init__(self, root: str, number: int) -> None:
        self.table, self.checkpoint = f"{root}/tables/t{number}__v1", f"{root}/checkpoints/c{number}__v1"
        self.format = "delta" if number % 2 else "json"
        self.files = store_of(root)
        self.source = (0, TableName(f"t{number}"), self.table, self.format)
        self.folders = StatementFolders(self.checkpoint, (self.source,), f"{root}/tables/s{number}__v1", "parquet")
        self.written = self.read = 0
        self.files.write(f"{self.checkpoint}/metadata", b'{"id":"q"}')
        self.files.write(f"{self.checkpoint}/_headgate_owner", b'{"ledger":"l"}')
        for _ in range(BATCHES):
            self.commit()
            self.consume()
        self.commit()

    def commit(self) -> None:
        """Write a batch to the table that the statement reads."""
        n, self.written = self.written, self.written + 1
        if self.format == "delta":
            actions: list[object] = [{"metaData": {"id": "i", "schemaString": "{}"}}] if n == 0 else []
            actions.append({"add": {"path": f"p{n}", "size": 9, "modificationTime": 1, "stats": '{"numRecords":10}'}})
            text = "\n".join(map(json.dumps, actions))
            self.files.write(f"{self.table}/delta/_delta_log/{n:020}.json", text.encode())
            return
        entry = {"path": f"{self.table}/p{n}", "size": 9, "isDir": False, "modificationTime": 1, "action": "add"}
        self.files.write(f"{self.table}/_spark_metadata/{n}", f"v1\n{json.dumps(entry)}".encode())

    def consume(self) -> None:
        """Commit a batch of the statement."""
        n, self.read = self.read, self.read + 1
        offset: dict[str, object] = {"logOffset": n}
        if self.format == "delta":
            about = {"sourceVersion": 1, "reservoirId": "i", "reservoirVersion": n + 1}
            offset = about | {"index": -1, "isStartingVersion": False}
        else:
            entry = {"path": f"{self.table}/p{n}", "timestamp": 1, "batchId": n}
            self.files.write(f"{self.checkpoint}/sources/0/{n}", f"v1\n{json.dumps(entry)}".encode())
        text = f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(offset)}'
        self.files.write(f"{self.checkpoint}/offsets/{n}", text.encode())
        self.files.write(f"{self.checkpoint}/commits/{n}", b"v1\n{}")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    at_once = int(sys.argv[2]) if len(sys.argv) > 2 else AT_ONCE
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
        mini_hdfs(Path(folder), patch) as hdfs,
        ThreadPoolExecutor(8) as threads,
    ):
        # Writing as fast as possible is not what is measured.
        hdfs_files.CALL_S = 60.0
        every = list(threads.map(lambda n: Statement(f"{hdfs.root}/d", n), range(count)))
        files = TableCheckpoints("l", refresh_s=0.0)
        files._remote = RemoteReads(at_once=at_once, wait_s=600.0)

        def a_round() -> None:
            measured = files.measure_ahead(each.folders for each in every)
            for each in every:
                found = measured[each.checkpoint]
                assert isinstance(found, MeasuredFiles) and found.state is not None, found
                assert [lag.files for lag in found.lag] == [each.written - each.read], (each.source, found)

        print(f"{count} statements, {at_once} at once, load average {os.getloadavg()[0]:.1f}")
        print(f"first round           {measured(a_round)}")
        time.sleep(2.5)
        a_round()
        for _ in range(3):
            print(f"round without news    {measured(a_round)}")
        saved = files.encoded_lag()
        for _ in range(3):
            list(threads.map(lambda each: (each.commit(), each.consume()), every))
            print(f"round after a batch   {measured(a_round)}")
        files = TableCheckpoints("l", refresh_s=0.0)
        files._remote = RemoteReads(at_once=at_once, wait_s=600.0)
        files.restore_lag(saved)
        print(f"first of another agent {measured(a_round)}")
        place = f"{every[0].checkpoint}/metadata"
        asked: tuple[tuple[str, Callable[[str], object]], ...] = (
            ("statuses", store_of(place).stat), ("files read", store_of(place).read),
        )  # fmt: skip
        for what, ask in asked:
            print(f"{what} {rate(partial(ask, place)):.0f} a second")
        print(f"load average {os.getloadavg()[0]:.1f}")


def rate(ask: Callable[[], object]) -> float:
    """Return how often eight threads can call `ask` in a second."""
    until = time.monotonic() + RATED_S

    def count(_: int) -> int:
        done = 0
        while time.monotonic() < until:
            ask()
            done += 1
        return done

    with ThreadPoolExecutor(8) as threads:
        return sum(threads.map(count, range(8))) / RATED_S


def measured(act: Callable[[], None]) -> str:
    began, used = time.monotonic(), time.process_time()
    act()
    return f"{time.monotonic() - began:.2f} s, {time.process_time() - used:.2f} s of CPU"


if __name__ == "__main__":
    main()
