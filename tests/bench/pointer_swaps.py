"""Measures the duration of a swap: `python -m tests.bench.pointer_swaps [POINTERS ...]`, two minutes on real Spark.

A release of POINTERS tables, each with one row that holds its version, is swapped back and forth with ALTER VIEW as a
run does it, while two readers with sessions of their own read pointers in a loop. The table shows the time from the
first pointer to the last, and the number of failed reads, which must be 0.
"""

import os
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.project.model import Pool
from pipelines.local_pool.connect_server import LocalPool
from pipelines.spark_connect.catalog import SparkTables
from pipelines.spark_connect.session import Session

SIZES = (1, 5, 20)
SWAPS = 20
READERS = 2


@contextmanager
def attached(pool: LocalPool) -> Iterator[Session]:
    session = Session(pool.url, pool.token, str(uuid.uuid4()))
    session.attach()
    try:
        yield session
    finally:
        session.close()


def made(session: Session, folder: Path, count: int) -> SparkTables:
    """Create both versions of every table, with one row each, and point to the first."""
    tables = SparkTables(session)
    for n in range(count):
        for version in (1, 2):
            name, place = f"t{count}_{n}__v{version}", folder / f"t{count}_{n}__v{version}"
            tables.create(name, f"CREATE TABLE IF NOT EXISTS {name} (version INT) USING parquet LOCATION '{place}'")
            session.spark.sql(f"INSERT INTO {name} VALUES ({version})").collect()
        tables.point(f"t{count}_{n}", (f"t{count}_{n}__v1",), ("version",))
    return tables


def read(pool: LocalPool, count: int, over: threading.Event, seen: Counter[str]) -> None:
    """Read every pointer repeatedly until `over` is set, and count the results: a version, or the class of an error."""
    with attached(pool) as session:
        n = 0
        while not over.is_set():
            try:
                (row,) = session.spark.sql(f"SELECT version FROM t{count}_{n % count}").collect()
                seen[f"v{row[0]}"] += 1
            except Exception as error:
                seen[f"error {type(error).__name__}"] += 1
            n += 1


def measure(pool: LocalPool, folder: Path, count: int) -> None:
    """Swap and read, and print one row."""
    seen: Counter[str] = Counter()
    over = threading.Event()
    windows = []
    with attached(pool) as session:
        tables = made(session, folder, count)
        readers = [threading.Thread(target=read, args=(pool, count, over, seen)) for _ in range(READERS)]
        for reader in readers:
            reader.start()
        try:
            while not seen:
                time.sleep(0.01)
            for swap in range(SWAPS):
                version = 2 - swap % 2
                pointers = [(f"t{count}_{n}", f"t{count}_{n}__v{version}", ("version",)) for n in range(count)]
                windows.append(tables.swap(pointers) * 1000)
        finally:
            over.set()
            for reader in readers:
                reader.join()
    reads, errors = seen["v1"] + seen["v2"], sum(n for what, n in seen.items() if what.startswith("error"))
    print(f"| {count} | {statistics.median(windows):.0f} ms | {max(windows):.0f} ms | {reads} | {errors} |", flush=True)


def main(arguments: list[str]) -> int:
    """Print the table; return the exit code."""
    print(f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, {os.cpu_count()} cores", end="")
    print(f", load average {os.getloadavg()[0]:.1f} at the start; {SWAPS} swaps, {READERS} readers\n")
    print("| pointers | window, median | the longest | reads meanwhile | reads that failed |")
    print("|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="headgate-swaps-") as folder:
        home = Path(folder, "home")
        home.mkdir()
        pool = LocalPool(home, Pool(cores=2, memory="1g"))
        pool.start()
        try:
            pool.ready()
            for count in map(int, arguments or SIZES):
                measure(pool, Path(folder), count)
        finally:
            pool.end()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
