"""Measures lag over a long history: `python -m tests.bench.lag_history [FILES ...]`, four minutes for a million files.

One table has FILES files with equal row counts in `_spark_metadata`, and one statement has consumed all but three. Each
size runs in its own process; a round measures the statement's lag and its parent's rows, as the agent does. Footers are
not read, so that only the cost of lists remains.
"""

import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from core.model.names import TableName
from pipelines.storage import row_counting
from pipelines.storage.checkpoints import TableCheckpoints

SIZES = (10_000, 100_000, 1_000_000)
ROUNDS = 50
"""Number of rounds. Each round writes one new file and consumes one; every tenth round compacts both logs."""
ROWS = 10
PENDING = 3


class History:
    """A table and a checkpoint that have had one batch per file since the beginning."""

    def __init__(self, folder: Path, files: int) -> None:
        self.table, self.checkpoint = folder / "t", folder / "c"
        self.log, self.read = self.table / "_spark_metadata", self.checkpoint / "sources" / "0"
        for place in (self.log, self.read, self.checkpoint / "offsets", self.checkpoint / "commits"):
            place.mkdir(parents=True)
        (self.checkpoint / "metadata").write_text('{"id":"q"}')
        self.written, self.consumed = files, files - PENDING
        for place, end, line in ((self.log, self.written, self._entry), (self.read, self.consumed, self._reading)):
            covered = end // 10 * 10
            with open(place / f"{covered - 1}.compact", "w", encoding="utf-8") as file:
                file.write("v1")
                file.writelines(f"\n{line(n)}" for n in range(covered))
            for n in range(covered, end):
                (place / str(n)).write_text(f"v1\n{line(n)}")
        self._commit()

    def grow(self) -> None:
        """Write one batch of the table and consume one."""
        _add(self.log, self.written, self._entry)
        _add(self.read, self.consumed, self._reading)
        self.written, self.consumed = self.written + 1, self.consumed + 1
        self._commit()

    def _commit(self) -> None:
        batch = self.consumed - 1
        for place, text in (("offsets", f'v1\n{{}}\n{{"logOffset":{batch}}}'), ("commits", "v1\n{}")):
            (self.checkpoint / place / str(batch)).write_text(text)
            (self.checkpoint / place / str(batch - 100)).unlink(missing_ok=True)

    def _path(self, n: int) -> str:
        return f"file://{self.table}/part-00000-{n:08}-5b1f-4a0e-9c51-2f3d7f6e1c00-c000.snappy.parquet"

    def _entry(self, n: int) -> str:
        entry = {"path": self._path(n), "size": 2048, "isDir": False, "modificationTime": 1_800_000_000_000 + n}
        return json.dumps(entry | {"blockReplication": 1, "blockSize": 33554432, "action": "add"})

    def _reading(self, n: int) -> str:
        return json.dumps({"path": self._path(n), "timestamp": 1_800_000_000_000 + n, "batchId": n})


def _add(log: Path, batch: int, line: object) -> None:
    """Write one batch; every tenth batch contains all earlier ones. Older files go after 10 min or 120 batches."""
    assert callable(line)
    (log / str(batch - 120)).unlink(missing_ok=True)
    if batch % 10 < 9:
        (log / str(batch)).write_text(f"v1\n{line(batch)}")
        return
    covered = (log / f"{batch - 10}.compact").rename(log / f"{batch}.compact")
    with open(covered, "a", encoding="utf-8") as file:
        file.writelines(f"\n{line(n)}" for n in range(batch - 9, batch + 1))


def measure(files: int) -> None:
    """Print one row of the table."""
    row_counting.parquet_rows = lambda path: ROWS
    row_counting.BUDGET_S = 60.0
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder), files)
        agent = TableCheckpoints("ledger")
        agent._lags._counter._budget_s = 60.0
        empty = _rss_mb()
        first = _cpu(lambda: _round(agent, history, PENDING))
        gc.collect()
        held, peak = _rss_mb() - empty, max(0.0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - empty)
        at_rest = _cpu(lambda: [_round(agent, history, PENDING) for _ in range(ROUNDS)]) / ROUNDS
        spent: list[float] = []
        for _ in range(ROUNDS):
            history.grow()
            spent.append(_cpu(lambda: _round(agent, history, PENDING)))
        print(
            f"| {files:,} | {held:.0f} MB | {peak:.0f} MB | {first:.2f} s | {1000 * at_rest:.1f} ms "
            f"| {1000 * sum(spent) / ROUNDS:.1f} ms | {1000 * max(spent):.1f} ms |",
            flush=True,
        )


def _round(agent: TableCheckpoints, history: History, pending: int) -> None:
    time.sleep(0.51)
    found = agent.lag(str(history.checkpoint), ((0, TableName("t"), str(history.table), "parquet"),))[0]
    assert (found.files, found.rows, found.exact) == (pending, pending * ROWS, True), found
    assert found.produced_rows == history.written * ROWS, found
    assert agent.rows(str(history.table), "parquet") == history.written * ROWS


def _cpu(act: object) -> float:
    assert callable(act)
    before = time.process_time()
    act()
    return time.process_time() - before


def _rss_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def main(arguments: list[str]) -> int:
    """Print the table; return the exit code."""
    if arguments[:1] == ["one"]:
        measure(int(arguments[1]))
        return 0
    print(f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, {os.cpu_count()} cores", end="")
    print(f", load average {os.getloadavg()[0]:.1f} at the start\n")
    print("| files | memory held | at most | first round, CPU | at rest | one file more | the worst of them |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for files in map(int, arguments or map(str, SIZES)):
        subprocess.run([sys.executable, "-m", "tests.bench.lag_history", "one", str(files)], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
