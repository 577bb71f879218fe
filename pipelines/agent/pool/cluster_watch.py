"""The standalone cluster of a pool: what its master reports, and whether its workers share the data folder."""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from core.model.errors import EngineRefused, PoolUnreachable
from core.observed.cluster import ClusterFault, fault_of_cluster, fault_of_others_server
from core.project.data_folder import is_in_hdfs
from core.project.model import Pool
from core.text.sentence import Fact
from pipelines.local_pool.standalone_master import is_this_machine, read_master, require_master

log = logging.getLogger(__name__)

WRITES_S = 60.0
"""Longest wait, in seconds, for executors to write the files by which the data folder is tested.

On two cores, a new executor took 14 s (4.2.0).
"""

MOST_FILES = 64
"""Largest number of files that the executors write for the test."""

TEST_FOLDER = "_headgate_workers"
"""Folder in the data folder for these files; its name goes on with that of the pool, because several may test."""


class ExecutorWriter(Protocol):
    """A connection with which executors can be made to write files."""

    def write_from_executors(self, folder: str, files: int, *, seconds: float) -> None:
        """Have tasks write `files` files to a folder, one each."""


def require_shared_data(pool: Pool, writer: ExecutorWriter, data: str) -> None:
    """Raise PoolUnreachable unless the workers of the pool's cluster write to this machine's data folder.

    A worker on another machine that lacks the folder would create it: Spark reports no error, and the rows are lost to
    readers elsewhere. Only workers on other machines are tested, and only with a local folder.
    """
    if is_in_hdfs(data):
        return
    try:
        hosts = {worker.host for worker in read_master(pool.master_page).alive}
    except PoolUnreachable:
        hosts = {"?"}
    if all(map(is_this_machine, hosts)):
        return
    folder, files = Path(data, f"{TEST_FOLDER}_{pool.name}"), min(max(pool.cores, len(hosts)), MOST_FILES)
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


EVERY_S = 2.0
"""Seconds between two questions to a master."""

AGREEING = 2
"""Number of consecutive answers that must give the same kind of fault before it is reported; one without ends it."""


class ClusterWatch:
    """Asks the master of a pool's cluster what the pool can really do, because Spark shows dead workers as healthy.

    With its workers dead, a server answers every call, and each query is active and reports no exception (4.2.0).
    """

    def __init__(
        self,
        pool: Pool,
        application: Callable[[], str | None],
        changed: Callable[[Fact[ClusterFault] | None], object],
    ) -> None:
        """Watch the cluster of a pool that has the web interface of a master.

        `application` returns the name under which the pool's server has registered, or the id of the application of a
        server that others manage; None if it has not registered, or nobody knows. `changed` is called with a fault when
        it begins, also after another one, and with None when it ends.
        """
        self._pool = pool
        self._master = pool.master
        """Address of the master; of a server that others manage, None until the master has told it."""
        self._application = application
        self._changed = changed
        self._unread = ""
        self._suspected: Fact[ClusterFault] | None = None
        self._agreeing = 0
        self.fault: Fact[ClusterFault] | None = None
        """What keeps the pool from working, or would after the next failure; None if nothing is known to."""

    def round(self) -> None:
        """Ask the master once, for at most three times `ANSWERS_S`."""
        found = self._observed()
        is_same = found is not None and self._suspected is not None and found.kind is self._suspected.kind
        self._agreeing = self._agreeing + 1 if is_same else 1
        self._suspected = found
        if found == self.fault or (found is not None and self._agreeing < AGREEING):
            return
        self.fault = found
        self._changed(found)

    def _observed(self) -> Fact[ClusterFault] | None:
        try:
            view = read_master(self._pool.master_page)
            if self._pool.master is not None:
                return fault_of_cluster(self._pool, view, self._application())
            self._master = view.master
            return fault_of_others_server(view, self._application() or "")
        except PoolUnreachable as error:
            unread = error.summary
        try:
            if self._master is not None:
                require_master(self._master)
        except PoolUnreachable:
            return ClusterFault.LOST.of(master=self._master)
        # Its address may be wrong in headgate.yml, which says nothing about the workers; `headgate doctor` warns.
        if unread != self._unread:
            log.warning("dead workers would not be noticed: %s", unread)
        self._unread = unread
        return None
