"""The standalone cluster of a pool: whether its workers share the data folder."""

import shutil
from pathlib import Path
from typing import Protocol

from core.model.errors import EngineRefused, PoolUnreachable
from core.project.model import Pool
from pipelines.local_pool.standalone_master import is_this_machine, read_master

WRITES_S = 60.0
"""Longest wait, in seconds, for executors to write the files by which the data folder is tested.

On two cores, a new executor took 14 s (4.2.0).
"""

MOST_FILES = 64
"""Largest number of files that the executors write for the test."""

TEST_FOLDER = "_headgate_workers"
"""Folder in the data folder for these files."""


class ExecutorWriter(Protocol):
    """A connection with which executors can be made to write files."""

    def write_from_executors(self, folder: str, files: int, *, seconds: float) -> None:
        """Have tasks write `files` files to a folder, one each."""


def require_shared_data(pool: Pool, writer: ExecutorWriter, data: str) -> None:
    """Raise PoolUnreachable unless the workers of the pool's cluster write to this machine's data folder.

    A worker on another machine that lacks the folder would create it: Spark reports no error, and the rows are lost to
    readers elsewhere. Only workers on other machines are tested.
    """
    try:
        hosts = {worker.host for worker in read_master(pool.master_page).alive}
    except PoolUnreachable:
        hosts = {"?"}
    if all(map(is_this_machine, hosts)):
        return
    folder, files = Path(data, TEST_FOLDER), min(max(pool.cores, len(hosts)), MOST_FILES)
    remedy = "mount the folder at the same path on every worker, or set data: to a folder that all of them share"
    try:
        writer.write_from_executors(str(folder), files, seconds=WRITES_S)
        found = len(list(folder.glob("part-*")))
    except (EngineRefused, PoolUnreachable) as error:
        summary = f"the workers of {pool.master} cannot write to {data}: {error.summary}"
        raise PoolUnreachable(summary, remedy=remedy) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if found < files:
        summary = f"the workers of {pool.master} do not share {data}: {files - found} of {files} test files are missing"
        raise PoolUnreachable(summary, remedy=remedy)
