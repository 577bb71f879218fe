"""Measures how a new server is given its catalog: `python -m tests.bench.catalog_refill [TABLES]`, three minutes.

So many tables on Delta, of a few commits each, with a pointer each, in a registry. The server is killed with -9 and
started again, and what fills its catalog is what the agent calls. A server that has just started has compiled nothing
yet, which is the case that counts; `filled again` is the same over a catalog that has everything.
"""

import json
import os
import signal
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow
import pyarrow.parquet as parquet

from core.ipc.environment_paths import EnvironmentPaths
from core.model.names import TableName
from core.project.connectors import Connector
from core.project.model import Environment, Pool
from core.sql.compiler import compile_ddl
from core.sql.ddl_reader import read_ddl
from pipelines.agent.context import AgentContext, PoolConnection
from pipelines.agent.deployment_compiler import EnvironmentLayout
from pipelines.agent.pool_supervisor import SparkConnection
from pipelines.agent.reconciler import Reconciler
from pipelines.formats.checkpoints import TableCheckpoints
from pipelines.local_pool.connect_server import LocalPool
from pipelines.spark.session import Session
from state.emergency_journal import EmergencyJournal
from state.ledger import Ledger, create_or_open
from state.row_types import Deployment
from tests.support.delta_jars import delta_jars
from tests.support.ledger_rows import deployment_row, environment_row

TABLES = 100
COMMITS, ROWS = 3, 10
SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in (("id", "long"), ("v", "string"))
        ],
    }
)
KILLS = 5


@contextmanager
def attached(server: LocalPool) -> Iterator[SparkConnection]:
    session = Session(server.url, server.token, str(uuid.uuid4()))
    session.attach()
    connection = SparkConnection(session)
    try:
        yield connection
    finally:
        connection.close()


class NoPool:
    """The world's pool: what fills a catalog is given its connection."""

    def connection(self) -> PoolConnection:
        raise AssertionError("the connection is given")

    connection_for_stops = connection

    def start_again(self) -> bool:
        return False


def world_of(folder: Path, ledger: Ledger) -> AgentContext:
    paths = EnvironmentPaths(str(folder / "home"), str(folder / "a.sock"), os.getuid())
    layout = EnvironmentLayout(str(folder / "data"), Environment("dev"))
    return AgentContext(paths, str(folder), "p-id", "p", layout, ledger, "ledger", NoPool(), TableCheckpoints("ledger"))


def made(world: AgentContext, n: int) -> Deployment:
    """Write one table with its commits as Delta writes them, and return its row, which is of a statement at rest."""
    table = TableName(f"t{n}")
    place = Path(world.layout.table_folder(table, 1))
    world.files.prepare(str(place), {"run": "r"})
    ddl, problems = read_ddl(f"CREATE TABLE {table} (id BIGINT, v STRING) USING delta", "ddl")
    assert ddl is not None, problems
    (place / "delta/_delta_log").mkdir(parents=True)
    about = {"id": str(uuid.uuid4()), "format": {"provider": "parquet", "options": {}}, "schemaString": SCHEMA}
    begins = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    write(place, 0, begins, {"metaData": {**about, "partitionColumns": [], "configuration": {}, "createdTime": 0}})
    for commit in range(1, COMMITS + 1):
        file = place / f"delta/part-{commit}.parquet"
        parquet.write_table(pyarrow.table({"id": list(range(ROWS)), "v": ["v"] * ROWS}), file)
        added = {"path": file.name, "size": file.stat().st_size, "modificationTime": 0, "dataChange": True}
        write(place, commit, {"add": {**added, "partitionValues": {}}})
    return deployment_row(
        table, compiled_ddl=compile_ddl(ddl, world.layout.catalog_name(table, 1), f"{place}/delta"),
        columns=("id", "v"), format="delta", folder=str(place), wanted="stopped", state="stopped", bindings=(),
        table_id=world.files.identity(str(place), "delta"),
    )  # fmt: skip


def write(place: Path, version: int, *actions: Mapping[str, object]) -> None:
    """Write one commit."""
    lines = (json.dumps(action) + "\n" for action in ({"commitInfo": {"timestamp": 0}}, *actions))
    (place / f"delta/_delta_log/{version:020}.json").write_text("".join(lines))


def filled(world: AgentContext, pool: SparkConnection) -> float:
    """Fill a catalog, and return the seconds."""
    reconciler = Reconciler(world, EmergencyJournal(Path(world.places.home, "journal")))
    began = time.monotonic()
    reconciler.restore(pool)
    took = time.monotonic() - began
    refused = [row.error for row in world.ledger.deployments() if row.error]
    assert not refused, refused
    return took


def row(what: str, seconds: list[float]) -> None:
    every = ", ".join(f"{s:.1f}" for s in seconds)
    print(f"| {what} | {statistics.median(seconds):.1f} s | {max(seconds):.1f} s | {every} |", flush=True)


def measure(folder: Path, count: int) -> None:
    (folder / "home").mkdir()
    ledger = create_or_open(folder / "home/ledger.db", environment_row())
    world = world_of(folder, ledger)
    server = LocalPool(
        folder / "home", Pool(cores=2, memory="1500m"), connectors=(Connector("delta", jars=(str(delta_jars()),)),)
    )
    for n in range(count):
        ledger.put_deployment(made(world, n))
    server.start()
    try:
        after_kill, again = [], []
        for _ in range(KILLS):
            server.ready()
            os.kill(server.pid or 0, signal.SIGKILL)
            while server.alive():
                time.sleep(0.05)
            server.start()
            server.ready()
            with attached(server) as pool:
                after_kill.append(filled(world, pool))
                again.append(filled(world, pool))
                (rows,) = pool.tables.read(f"SELECT count(*) FROM t{count - 1}", 1)[1]
                assert rows == (COMMITS * ROWS,), rows
        row("after kill -9", after_kill)
        row("filled again", again)
    finally:
        server.end()


def main(arguments: list[str]) -> int:
    """Print the table; returns an exit code."""
    count = int(arguments[0]) if arguments else TABLES
    print(f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, {os.cpu_count()} cores", end="")
    print(f", load average {os.getloadavg()[0]:.1f} at the start; {count} tables with a pointer each, {KILLS} kills\n")
    print("| catalog | median | the longest | each, s |")
    print("|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="headgate-refill-") as folder:
        measure(Path(folder), count)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
