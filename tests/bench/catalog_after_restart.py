"""Measures the catalog after a server was killed: `python -m tests.bench.catalog_after_restart [TABLES]`, two minutes.

So many Delta tables with a pointer each, in a ledger as an agent keeps it. In each round the server is killed (-9) and
started again, and the agent's own code gives the new one its catalog: tables, then pointers. One round does so one
table after the other, the next one as many at once as the agent does, in turn, so that both meet the same machine. At
the end three pointers are read. Told are the seconds of each, and how many times as fast the second is.
"""

import os
import signal
import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path

from core.ipc.environment_paths import EnvironmentPaths
from core.model.names import TableName
from core.project.connectors import Connector
from core.project.model import Environment, Pool
from pipelines.agent import reconciler
from pipelines.agent.bounded_threads import in_threads
from pipelines.agent.context import AgentContext
from pipelines.agent.deployment_compiler import EnvironmentLayout
from pipelines.agent.pool_supervisor import SparkConnection
from pipelines.agent.reconciler import Reconciler
from pipelines.formats.checkpoints import TableCheckpoints
from pipelines.local_pool.connect_server import LocalPool
from pipelines.spark.session import Session
from state.emergency_journal import EmergencyJournal
from state.ledger import create_or_open
from tests.support.delta_jars import delta_jars
from tests.support.ledger_rows import deployment_row, environment_row

TABLES = 100
ROUNDS = 2
BOUND_S = 2.0
COLUMNS = "(id BIGINT, v STRING)"


class Lake:
    """Tables of one environment, and the server that has them in its catalog, as long as it lives."""

    def __init__(self, root: Path, tables: int) -> None:
        self.home = root / "home"
        self.home.mkdir()
        self.pool = LocalPool(
            self.home, Pool(cores=2, memory="2g"), connectors=(Connector("delta", jars=(str(delta_jars()),)),)
        )
        ledger = create_or_open(self.home / "ledger.db", environment_row())
        self.world = AgentContext(
            places=EnvironmentPaths(str(self.home), str(root / "a.sock"), os.getuid()),
            folder=str(root),
            project_id="p-id",
            project="p",
            layout=EnvironmentLayout(str(root / "data"), Environment("dev")),
            ledger=ledger,
            ledger_id="ledger",
            pool=None,  # type: ignore[arg-type]  # The catalog is filled before there is one.
            files=TableCheckpoints("ledger"),
        )
        self.names = [TableName(f"t{n}") for n in range(tables)]
        self.reconciler = Reconciler(self.world, EmergencyJournal(root / "emergency"))

    def make(self) -> None:
        """Make every table with one row, as runs have made them long ago."""
        attached = self.attached()
        in_threads(reconciler.ACTS_AT_ONCE, lambda name: self._make(attached, name), self.names)
        attached.close()

    def _make(self, attached: SparkConnection, table: TableName) -> None:
        layout, files = self.world.layout, self.world.files
        folder, name = layout.table_folder(table, 1), layout.catalog_name(table, 1)
        ddl = f"CREATE TABLE IF NOT EXISTS {name} {COLUMNS} USING delta LOCATION '{folder}/delta'"
        files.prepare(folder, {"run": "r"})
        attached.tables.create(name, ddl)
        attached.session.spark.sql(f"INSERT INTO {name} VALUES (1, 'a')").collect()
        row = deployment_row(
            table, format="delta", folder=folder, compiled_ddl=ddl, columns=("id", "v"), bindings=(), run_id="",
            table_id=files.identity(folder, "delta"),
        )  # fmt: skip
        self.world.ledger.put_deployment(row)

    def attached(self) -> SparkConnection:
        session = Session(self.pool.url, self.pool.token, str(uuid.uuid4()))
        session.attach()
        session.prove()
        return SparkConnection(session)

    def filled(self, at_once: int) -> float:
        """Kill the server, start another one, and return how long its catalog took, so many tables at once."""
        os.kill(self.pool.pid, signal.SIGKILL)
        while self.pool.alive():
            time.sleep(0.01)
        self.pool.start()
        self.pool.ready()
        attached = self.attached()
        reconciler.ACTS_AT_ONCE = at_once
        began = time.monotonic()
        self.reconciler.restore(attached)
        took = time.monotonic() - began
        self.check(attached)
        attached.close()
        return took

    def check(self, attached: SparkConnection) -> None:
        """Look for every table and pointer, and read three of these: each leads to its table's one row."""
        there = {row["tableName"] for row in attached.session.spark.sql("SHOW TABLES").collect()}
        assert there >= {*self.names, *(self.world.layout.catalog_name(name, 1) for name in self.names)}
        for name in (self.names[0], self.names[len(self.names) // 2], self.names[-1]):
            assert attached.session.spark.sql(f"SELECT id FROM {name}").collect() == [(1,)]


def main(arguments: list[str]) -> int:
    """Print the table; returns an exit code, 1 where the bound is missed."""
    count, at_once = int(arguments[0]) if arguments else TABLES, reconciler.ACTS_AT_ONCE
    print(f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, {os.cpu_count()} cores", end="")
    print(f", load average {os.getloadavg()[0]:.1f} at the start; {count} tables and pointers\n")
    with tempfile.TemporaryDirectory(prefix="headgate-catalog-") as folder:
        lake = Lake(Path(folder), count)
        lake.pool.start()
        try:
            lake.pool.ready()
            lake.make()
            found: dict[int, list[float]] = {1: [], at_once: []}
            for _ in range(ROUNDS):
                for threads in found:
                    found[threads].append(lake.filled(threads))
        finally:
            lake.pool.end()
    serial, parallel = (statistics.median(seconds) for seconds in found.values())
    print("| tables at once | catalog filled after | each round |")
    print("|---|---|---|")
    for threads, seconds in found.items():
        each = ", ".join(f"{one:.2f} s" for one in seconds)
        print(f"| {threads} | {statistics.median(seconds):.2f} s | {each} |")
    print(f"\n{at_once} at once are {serial / parallel:.1f} times as fast; the bound of {BOUND_S:g} s is ", end="")
    print("kept" if parallel <= BOUND_S else "missed")
    return int(parallel > BOUND_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
