"""Drill: statements on a real cluster are rebuilt while its processes die and operators interfere; then rows.

Run: python -m tests.drills.cluster_faults standalone|yarn [SEED [ROOT]]. Takes a quarter of an hour on two cores, and
longer if they are busy. The project is smaller than the sample, because sixteen statements, a cluster and an HDFS are
too much for two cores; it has the same kinds of statements. In each round rows land, a table is rebuilt with its
readers, and a fault of the cluster, of the agent or of an operator happens at a seeded moment, each kind once, in a
seeded order. After each round every table must have every row once. On YARN, the data folder is in HDFS. ROOT (a new
folder) is kept. Exits 1 if a row is lost or doubled, a statement was active twice or does not come back, or a run
cannot be completed.
"""

import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from drill_process import run_drill
from live_project import Impatient, alive, until
from mini_hdfs import MiniHdfs, mini_hdfs
from pool_jars import delta_jars
from tiny_project import FIRST_COMPILER, files_in_log

from core.ipc.environment_paths import cluster_root
from core.model.errors import HeadgateError
from core.project.connectors import Connector
from core.project.model import Pool
from core.project.pool_recipe import RecipeInput, RecipeKind, recipe
from pipelines.demo.servers import java_program
from pipelines.local_pool.detached_servers import free_port
from pipelines.local_pool.java_and_spark import spark_home
from pipelines.local_pool.standalone_cluster import StandaloneCluster
from pipelines.storage.file_store import store_of
from tests.drills.test_clusters import executor_of, kill, pid_of, up
from tests.drills.test_named_pools import TwoPools

COLUMNS = "(id BIGINT, kind STRING, at TIMESTAMP)"
DDL = {
    "landed": f"CREATE TABLE landed {COLUMNS} USING json LOCATION 'landing';",
    "kept": f"CREATE TABLE kept {COLUMNS} USING parquet;",
    "marked": f"CREATE TABLE marked {COLUMNS} USING parquet;",
    "once": f"CREATE TABLE once {COLUMNS} USING parquet;",
    "copied": "CREATE TABLE copied (id BIGINT, kind STRING) USING delta;",
    "paired": f"CREATE TABLE paired {COLUMNS} USING parquet;",
    "counted": "CREATE TABLE counted (id BIGINT, kind STRING, n BIGINT) USING parquet;",
}
DELAY = "WATERMARK at DELAY OF INTERVAL 20 SECONDS"
DML = {
    "kept": "INSERT INTO kept SELECT id, kind, at FROM STREAM landed WHERE id > 0;",
    "marked": "INSERT INTO marked SELECT id, upper(kind) AS kind, at FROM STREAM kept;",
    "once": f"INSERT INTO once SELECT DISTINCT id, kind, at FROM STREAM kept {DELAY};",
    "copied": "INSERT INTO copied SELECT id, kind FROM STREAM once;",
    "paired": f"""INSERT INTO paired SELECT m.id, m.kind, m.at
FROM STREAM marked {DELAY} AS m JOIN STREAM once {DELAY} AS o
ON o.id = m.id AND o.at >= m.at - INTERVAL 20 SECONDS AND o.at <= m.at + INTERVAL 20 SECONDS;""",
    "counted": f"""INSERT INTO counted SELECT unix_seconds(window.start) AS id, kind, count(*) AS n
FROM STREAM paired {DELAY} GROUP BY window(at, '30 seconds'), kind;""",
}
WINDOW_S = 30
AT_ONCE, LATER = ("kept", "marked"), ("once", "copied", "paired")
"""Tables that have a landed row as soon as it was processed, and those that wait for their watermark."""
WITHHELD = 30
"""Most rows that the latter may lack: the delay of the watermark, and a trigger."""
REBUILT = ("marked", "once", "paired", "copied")
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
"""The time of row 0; each later row is a second younger."""

BACK_S, RUN_S = 600.0, 1_800.0
"""Longest times in seconds until all statements are back, and until a run has ended, on a machine with other work."""
MOMENT_S = 15.0
"""Longest time in seconds from the begin of a rebuild to the fault."""

CONCURRENT = "[CONCURRENT_STREAM_LOG_UPDATE]"
"""Spark's error of a query whose checkpoint another query is using."""

LOCAL_POOL = f"local: {{cores: 1, memory: 1g, conf: {{spark.driver.extraJavaOptions: '{FIRST_COMPILER}'}}}}"


@dataclass(frozen=True)
class Comparison:
    """The ids in a table, compared with those of the landed rows."""

    rows: int
    lost: Counter[int]
    doubled: Counter[int]
    """Ids that occur more often than they should."""

    def __str__(self) -> str:
        return f"{_several(self.lost)} missing, {_several(self.doubled)} extra"


def _several(ids: Counter[int]) -> str:
    return f"{ids.total()} {sorted(ids)[:5]}"


@dataclass
class OnCluster(TwoPools):
    """The project of this drill, whose statements run in the pool `cluster` and can move to the pool `local`."""

    data: str = ""
    pools: str = ""
    _read: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Rows by file."""

    def write(self, **dml: str) -> None:
        super().write(**dml)
        (self.folder / "headgate.yml").write_text(f"""project: faults
id: 7c1e4a52-9df2-4a52-9c0c-0f6f8d1a2b3c
default_env: dev
environments:
  dev:
    data: {self.data}
    pools:
      {self.pools}
      {LOCAL_POOL}
defaults: {{trigger: 4 seconds}}
{self._connectors()}""")

    def land(self, count: int, *, later_s: int = 0) -> None:
        """Land one file; its rows are `later_s` seconds younger than their ids say."""
        rows = [
            {"id": n, "kind": "ab"[n % 2], "at": (FIRST + timedelta(seconds=n + later_s)).isoformat()}
            for n in range(self.landed + 1, self.landed + count + 1)
        ]
        store_of(self.data).make_folders(f"{self.data}/landing")
        text = "".join(json.dumps(row) + "\n" for row in rows)
        store_of(self.data).replace(f"{self.data}/landing/{self.landed + count:09}.json", text.encode())
        self.landed += count

    def served(self) -> dict[str, int]:
        """Return the serving version of each table with a statement."""
        rows = self.ledger('SELECT "table", version FROM deployment WHERE active AND NOT external')
        return {str(table): int(str(version)) for table, version in rows}

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of the serving version, as its log has them."""
        folder = f"{self.data}/tables/{table}__v{self.served()[table]}"
        return [row for path in files_in_log(folder, self.format_of(table)) for row in self._rows_in(path)]

    def ids_of(self, table: str) -> list[int]:
        return sorted(int(row["id"]) for row in self.rows(table))

    def _rows_in(self, path: str) -> list[dict[str, Any]]:
        if path not in self._read:
            self._read[path] = parquet.ParquetFile(BytesIO(store_of(path).read(path))).read().to_pylist()
        return self._read[path]

    def compared(self, withheld: int = WITHHELD) -> dict[str, Comparison]:
        """Compare each table with the landed rows.

        Tables that wait for a watermark may lack the last rows, up to a number of `withheld`.
        """
        found = {}
        for table in (*AT_ONCE, *LATER):
            there = Counter(self.ids_of(table))
            last = max(there, default=0) if table in LATER else self.landed
            wanted = Counter(range(1, max(last, self.landed - withheld) + 1))
            found[table] = Comparison(there.total(), wanted - there, there - wanted)
        return found

    def faults(self, withheld: int = WITHHELD) -> dict[str, str]:
        """Return, for each table that has not every landed row once, what differs."""
        return {table: str(found) for table, found in self.compared(withheld).items() if found.lost or found.doubled}

    def wrong_states(self, pool: str = "cluster") -> dict[str, str]:
        """Return the statements that do not run in the pool."""
        sql = (
            "SELECT \"table\", state, json_extract(pool, '$.name'), error FROM deployment WHERE active AND NOT external"
        )
        rows = [tuple(map(str, row)) for row in self.ledger(sql)]
        return {table: f"{state} in {at}: {error[:160]}" for table, state, at, error in rows
                if (state, at) != ("running", pool)}  # fmt: skip

    def active_twice(self) -> set[str]:
        """Return when a statement was active in two pools, or on a checkpoint that another query was using."""
        sql = "SELECT id, summary FROM event WHERE summary LIKE '%was active in the pool%'"
        found = {f"event {number}: {summary}" for number, summary in self.ledger(sql)}
        for log in [*self.root.glob("home/*/dev/pools/*/pool.log*"), *self.root.glob("far/server.log")]:
            with suppress(OSError):
                lines = log.read_text(errors="replace").splitlines()
                found |= {f"{before}: {line}" for before, line in pairwise(lines) if CONCURRENT in line}
        return found

    def kill_agent(self) -> None:
        pid = self.agent_pid()
        os.kill(pid, signal.SIGKILL)
        until(lambda: not alive(pid), 10, "the agent is dead")
        # It waits for pools, of which one may be away.
        self.run("up")


class Operations:
    """What operators do in a round, and how often runs, statements and commands ended in which way."""

    def __init__(self, on: OnCluster) -> None:
        self.on = on
        self.did: Counter[str] = Counter()
        self.bad: list[str] = []

    def rebuild(self, table: str) -> None:
        """Begin a rebuild of a table and its readers."""
        plan = self.on.plan(table, "--rebuild", "--children", "all")
        applied = self.on.run("apply", plan["hash"][:12], "--confirm", self.on.confirmation(plan), "--detach", "--json")
        self.did[f"rebuild: exit code {applied.returncode}"] += 1

    def stop_one(self, chance: random.Random) -> None:
        """Stop a statement while a run may change it; nothing may start it until an operator does."""
        table = chance.choice(REBUILT)
        said = self.on.run("stop", table, "--confirm", "yes", "--json")
        self.did[f"stop: exit code {said.returncode}"] += 1
        until(lambda: self._query_is_gone(table), 60, f"{table} is stopped")
        before = self.on.ids_of(table)
        self.on.land(10)
        until(lambda: set(range(1, self.on.landed + 1)) <= set(self.on.ids_of("kept")), BACK_S, "its source goes on")
        if not self._query_is_gone(table) or self.on.ids_of(table) != before:
            self.bad.append(f"{table} goes on although an operator has stopped it")
        self.did[f"start: exit code {self.on.run('start', table, '--confirm', 'yes').returncode}"] += 1

    def _query_is_gone(self, table: str) -> bool:
        sql = "SELECT count(*) FROM deployment WHERE \"table\" = ? AND state IN ('running', 'starting', 'unknown')"
        return self.on.ledger(sql, table) == [(0,)]

    def drain(self, *, detached: bool = False) -> None:
        """Empty the pool `cluster`; wait first for open runs, which hold its statements."""
        self.end_runs()
        plan = json.loads(self.on.done("pool", "drain", "cluster", "--to", "local", "--json"))
        words = ["apply", plan["hash"][:12], "--confirm", plan["submitted"]["confirm"]]
        applied = self.on.run(*words, *(["--detach"] if detached else []))
        self.did[f"drain: exit code {applied.returncode}"] += 1

    def drained(self) -> int:
        """Return how many statements the newest run has moved."""
        newest = "SELECT id FROM run ORDER BY started_at DESC LIMIT 1"
        sql = f"SELECT count(*) FROM step WHERE run_id = ({newest}) AND do = 'restart' AND state = 'done'"
        return int(str(self.on.ledger(sql)[0][0]))

    def move_back(self) -> None:
        """Wait until all statements are in the pool `local`, and move them back."""
        self.end_runs()
        self.restart_failed()
        until(lambda: not self.on.wrong_states("local"), BACK_S, "the statements run in the other pool")
        self.on.done("pool", "uncordon", "cluster")
        applied = self.on.apply(self.on.plan("--all"))
        self.did[f"moved back: exit code {applied.returncode}"] += 1

    def end_runs(self) -> None:
        """Wait until each run has ended, and retry it if it failed; a run that fails again is wrong."""
        for attempt in range(3):
            until(lambda: not self.on.ledger("SELECT 1 FROM run WHERE ended_at IS NULL"), RUN_S, "runs have ended")
            newest = json.loads(self.on.done("runs", "--json"))
            failed = next((run for run in newest[:1] if run["state"] == "failed"), None)
            if failed is None:
                return
            notes = "; ".join(step["note"] for step in failed["steps"] if step["state"] == "failed")
            self.did[f"run failed and was retried: {notes[:150]}"] += 1
            asked = self.on.run("runs", "retry", failed["id"])
            confirm = asked.stderr.rsplit("--confirm '", 1)[1].split("'")[0] if "--confirm '" in asked.stderr else ""
            self.on.run("runs", "retry", failed["id"], "--confirm", confirm or "yes", "--follow")
            if attempt == 2:
                self.bad.append(f"the run {failed['id']} fails again and again: {notes}")

    def restart_failed(self) -> None:
        """Start failed statements, as an operator would after a look at the error."""
        for table, error in self.on.ledger("SELECT \"table\", error FROM deployment WHERE active AND state = 'failed'"):
            self.did[f"failed, and started by an operator: {str(error)[:150]}"] += 1
            self.on.run("start", str(table), "--confirm", "yes")


Fault = Callable[[OnCluster, Operations, random.Random], None]


def kill_agent(on: OnCluster, ops: Operations, chance: random.Random) -> None:
    on.kill_agent()


def stop_of_another_actor(on: OnCluster, ops: Operations, chance: random.Random) -> None:
    ops.stop_one(chance)


def drain(on: OnCluster, ops: Operations, chance: random.Random) -> None:
    ops.drain()
    ops.move_back()


def kill_agent_in_drain(on: OnCluster, ops: Operations, chance: random.Random) -> None:
    ops.drain(detached=True)
    # Counted in statements, since their time depends on the machine.
    moved = chance.randrange(len(DML))
    until(lambda: ops.drained() >= moved, RUN_S, f"the drain has moved {moved} statements")
    time.sleep(chance.uniform(0.0, 3.0))  # The random moment is the point of this drill.
    ops.did[f"agent killed when a drain had moved {ops.drained()} of {len(DML)} statements"] += 1
    on.kill_agent()
    ops.move_back()


COMMON: dict[str, Fault] = {
    "agent killed": kill_agent,
    "stop by an operator": stop_of_another_actor,
    "drain": drain,
    "agent killed in a drain": kill_agent_in_drain,
}


@contextmanager
def standalone(root: Path) -> Iterator[tuple[OnCluster, dict[str, Fault]]]:
    """Run a standalone cluster of one worker, on which the agent's server runs."""
    cluster = StandaloneCluster(Path(cluster_root({"HEADGATE_HOME": str(root / "cluster")})))

    def is_started() -> bool:
        # On a busy machine, a process may exceed the deadline of its start.
        with suppress(HeadgateError):
            up(cluster)
            return True
        return False

    def kill_worker(on: OnCluster, ops: Operations, chance: random.Random) -> None:
        kill(pid_of(cluster, "worker 1"))
        time.sleep(chance.uniform(0.0, MOMENT_S))  # How long it is away.
        until(is_started, BACK_S, "the worker is back")

    def executor() -> int:
        # There may be none, or a new one beside the last one.
        with suppress(ValueError, StopIteration):
            return executor_of(cluster)
        return 0

    def kill_executor(on: OnCluster, ops: Operations, chance: random.Random) -> None:
        until(executor, 60, "there is an executor")
        kill(executor())

    def kill_server(on: OnCluster, ops: Operations, chance: random.Random) -> None:
        os.kill(on.pid_of("cluster"), signal.SIGKILL)

    def kill_master(on: OnCluster, ops: Operations, chance: random.Random) -> None:
        kill(pid_of(cluster, "master"))
        time.sleep(chance.uniform(0.0, MOMENT_S))  # How long it is away.
        until(is_started, BACK_S, "the master is back")

    try:
        until(is_started, BACK_S, "master and worker are up")
        status = cluster.status()
        pool = f"cluster: {{master: '{status['master']}', master_ui: '{status['master_ui']}', cores: 2, memory: 768m}}"
        yield (
            project(root, str(root / "tiny/data"), pool),
            COMMON
            | {
                "worker killed": kill_worker,
                "executor killed": kill_executor,
                "server killed": kill_server,
                "master killed": kill_master,
            },
        )
    finally:
        cluster.down()


class SupervisedServer:
    """The server of the recipe for YARN, which is started again whenever it ends."""

    def __init__(self, root: Path, hdfs: MiniHdfs) -> None:
        self.port, home = free_port(), root / "far"
        conf = {
            # It is killed, and leaves its temporary files.
            "spark.driver.extraJavaOptions": f"{FIRST_COMPILER} -Djava.io.tmpdir={home}",
            "spark.local.dir": str(home),
            "spark.executor.extraJavaOptions": FIRST_COMPILER,
            "spark.driver.memory": "1g",
            # All machines of this cluster are this one, so nothing is copied to them.
            "spark.yarn.jars": f"local:{spark_home()}/jars/*",
            "spark.ui.enabled": "false",
        }
        given = RecipeInput(
            Pool("cluster", cores=2, memory="768m", conf=tuple(conf.items())),
            data=f"{hdfs.root}/warehouse",
            connectors=(Connector("delta", jars=(str(delta_jars()),)),),
            home=str(home),
            python=sys.executable,
            port=self.port,
        )
        found = recipe(RecipeKind.YARN, given)
        home.mkdir()
        ((name, script),) = found.files.items()
        self._script, self._log = home / name, home / "server.log"
        self._script.write_text(script)
        java = Path(java_program()).resolve().parents[1]
        self._environ = {**os.environ, "JAVA_HOME": str(java), "PATH": f"{java}/bin:{os.environ['PATH']}"}
        self.entry = f"cluster: {{url: 'sc://127.0.0.1:{self.port}', token: '${{file:{given.token_file}}}'}}"
        self._over = threading.Event()
        self._process = self._started()
        self._thread = threading.Thread(target=self._supervise, daemon=True)
        self._thread.start()

    def _started(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as output:
            return subprocess.Popen(
                ["sh", str(self._script)], env=self._environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def _supervise(self) -> None:
        while not self._over.wait(3.0):
            if self._process.poll() is not None:
                self._process = self._started()

    def answers(self) -> bool:
        """True if its port accepts connections, which it does once its executors are requested."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0):
            return True
        return False

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        self._process.kill()
        self._process.wait()


@contextmanager
def yarn(root: Path) -> Iterator[tuple[OnCluster, dict[str, Fault]]]:
    """Run HDFS, YARN, and a server under a supervisor whose executors run on YARN."""
    (root / "hdfs").mkdir()
    with pytest.MonkeyPatch.context() as patch, mini_hdfs(root / "hdfs", patch, yarn=True) as hdfs:
        server = SupervisedServer(root, hdfs)

        def kill_executor(on: OnCluster, ops: Operations, chance: random.Random) -> None:
            until(lambda: hdfs.containers("ExecutorBackend"), 120, "there is an executor")
            os.kill(chance.choice(sorted(hdfs.containers("ExecutorBackend"))), signal.SIGKILL)

        def kill_server(on: OnCluster, ops: Operations, chance: random.Random) -> None:
            server.kill()

        def freeze_cluster(on: OnCluster, ops: Operations, chance: random.Random) -> None:
            hdfs.freeze()
            time.sleep(chance.uniform(2.0, 20.0))  # How long neither HDFS nor YARN answers.
            hdfs.thaw()

        def lose_cluster(on: OnCluster, ops: Operations, chance: random.Random) -> None:
            hdfs.kill()
            hdfs.start()
            # Its context has ended with its application, whether or not its process has.
            server.kill()

        try:
            until(server.answers, 300, "the server is up")
            yield (
                project(root, f"{hdfs.root}/warehouse", server.entry),
                COMMON
                | {
                    "executor killed": kill_executor,
                    "server killed": kill_server,
                    "cluster frozen": freeze_cluster,
                    "cluster killed": lose_cluster,
                },
            )
        finally:
            server.end()


def project(root: Path, data: str, pool: str) -> OnCluster:
    """Write the project of this drill."""
    found = OnCluster(
        root, {"HEADGATE_MEASURE_S": "2"}, formats={"copied": "delta"}, ddl=DDL, dml=DML, data=data, pools=pool
    )
    found.write()
    return found


def main() -> int:
    kind = {"standalone": standalone, "yarn": yarn}[sys.argv[1]]
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    kept = len(sys.argv) > 3
    root = Path(sys.argv[3]).absolute() if kept else Path(tempfile.mkdtemp(prefix="headgate-drill-"))
    root.mkdir(exist_ok=True)
    try:
        with kind(root) as (on, faults):
            return rounds(on, faults, seed)
    finally:
        # Only once the cluster has ended, whose processes are recorded there.
        if not kept:
            shutil.rmtree(root, ignore_errors=True)


def rounds(on: OnCluster, faults: dict[str, Fault], seed: int) -> int:
    """Deploy the project, let every fault happen in a round of its own, and return the exit code."""
    ops, chance, began = Operations(on), random.Random(seed), time.monotonic()
    table: list[Round] = []
    try:
        on.land(100)
        # On a busy machine, a server may exceed the deadlines of its start.
        until(lambda: on.run("up").returncode == 0, BACK_S, "agent and pools are up")
        applied = on.apply(on.plan("--all"))
        assert applied.returncode == 0, applied.stdout + applied.stderr
        until(lambda: not on.faults(), BACK_S, "the first rows are in all tables")
        print(f"{sys.argv[1]}, seed {seed}: deployed after {time.monotonic() - began:.0f} s", flush=True)
        for number, name in enumerate(chance.sample(sorted(faults), len(faults)), start=1):
            table.append(in_round(ops, number, (name, faults[name]), chance))
        close_windows(ops)
        for what, count in sorted(ops.did.items()):
            print(f"  {count:4} {what}")
        return 1 if ops.bad else 0
    finally:
        print("\n".join(lines_of(table)))
        took = f"{len(table)} of {len(faults)} faults, {on.landed} rows in {time.monotonic() - began:.0f} s"
        print(f"{sys.argv[1]}, seed {seed}: {took}, {len(ops.bad)} things are wrong", flush=True)
        end(on)


def end(on: OnCluster) -> None:
    """End agent and servers."""
    pids = []
    for find in (on.agent_pid, lambda: on.pid_of("local"), lambda: on.pid_of("cluster")):
        with suppress(OSError, StopIteration, ValueError):
            pids.append(find())
    on.run("down", "--confirm", "")
    for pid in filter(alive, pids):
        os.kill(pid, signal.SIGKILL)


@dataclass(frozen=True)
class Round:
    """The row of a fault in the table that is printed at the end."""

    fault: str
    rebuilt: str
    back_s: float
    """Seconds from the fault until agent and statements ran, as the ledger has them; 0 if none was away."""
    exact_s: float
    """Seconds from the fault until runs had ended and all rows were in all tables."""
    compared: dict[str, Comparison]
    twice: int
    """Statements that were active in two pools, or on a checkpoint that another query was using."""


def lines_of(table: list[Round]) -> list[str]:
    """Return the table of all rounds."""
    lines = [f"{'fault':24}{'rebuilt':9}{'back':>8}{'exact':>8}{'rows':>8}{'lost':>6}{'doubled':>9}{'twice':>7}"]
    for each in table:
        rows = sum(found.rows for found in each.compared.values())
        lost = sum(found.lost.total() for found in each.compared.values())
        doubled = sum(found.doubled.total() for found in each.compared.values())
        times = f"{each.back_s:6.0f} s{each.exact_s:6.0f} s"
        lines.append(f"{each.fault:24}{each.rebuilt:9}{times}{rows:8}{lost:6}{doubled:9}{each.twice:7}")
    return lines


class Watch:
    """Looks twice a second whether agent and statements run."""

    def __init__(self, on: OnCluster) -> None:
        self._on, self._over = on, threading.Event()
        self.began = self.last_away = time.monotonic()
        # A round that fails need not end it.
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(0.5):
            with suppress(OSError, ValueError, sqlite3.Error):
                if not alive(self._on.agent_pid()) or self._on.wrong_states():
                    self.last_away = time.monotonic()

    def end(self) -> float:
        """Return the number of seconds from its begin until all ran again."""
        self._over.set()
        self._thread.join()
        return self.last_away - self.began


def in_round(ops: Operations, number: int, fault: tuple[str, Fault], chance: random.Random) -> Round:
    """Rebuild a table while rows land, let the fault happen, and compare all tables once everything runs again."""
    on, over, began, bad = ops.on, threading.Event(), time.monotonic(), len(ops.bad)
    table, moment = chance.choice(REBUILT), chance.uniform(0.0, MOMENT_S)

    def land() -> None:
        landed = True
        while not over.wait(1.5) or not landed:
            # While HDFS is away, the same file is tried again.
            landed = False
            with suppress(OSError):
                on.land(5)
                landed = True

    thread = threading.Thread(target=land, daemon=True)
    if fault[1] is not stop_of_another_actor:
        thread.start()
    known, watch = on.active_twice(), None
    try:
        ops.rebuild(table)
        time.sleep(moment)  # The random moment is the point of this drill.
        watch = Watch(on)
        fault[1](on, ops, chance)
        ops.end_runs()
    except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
        ops.bad.append(f"{fault[0]}: {' '.join(str(error).split())[:1000]}")
    finally:
        over.set()
        if thread.is_alive():
            thread.join()
    ops.bad += settled(ops)
    exact_s, back_s = (time.monotonic() - watch.began, watch.end()) if watch else (0.0, 0.0)
    twice = sorted(on.active_twice() - known)
    ops.bad += twice
    print(
        f"round {number}: {table} rebuilt, {fault[0]} after {moment:4.1f} s: {ops.bad[bad:] or 'every row once'}, "
        f"{on.landed} rows, {time.monotonic() - began:.0f} s",
        flush=True,
    )
    return Round(fault[0], table, back_s, exact_s, on.compared(), len(twice))


def settled(ops: Operations) -> list[str]:
    """Wait until all statements run and all tables are exact; return what is wrong then."""
    on = ops.on

    def is_well() -> bool:
        ops.restart_failed()
        return not on.wrong_states() and not on.faults()

    with suppress(Impatient):
        until(is_well, BACK_S, "all statements run, and every row is in every table once")
    return [f"{table} {what}" for table, what in (on.wrong_states() | on.faults()).items()]


def close_windows(ops: Operations) -> None:
    """Land two rows of much later times, and compare all rows and windows before them.

    The first row closes the windows, once the second one has let it pass.
    """
    on = ops.on
    last = on.landed
    on.land(1, later_s=3_600)
    on.land(1, later_s=7_200)
    wanted = Counter((int(((FIRST.timestamp() + n) // WINDOW_S) * WINDOW_S), "AB"[n % 2]) for n in range(1, last + 1))

    def found() -> Counter[tuple[int, str]]:
        return Counter({(row["id"], row["kind"]): row["n"] for row in on.rows("counted")})

    with suppress(Impatient):
        until(lambda: found() == wanted and not on.faults(1), BACK_S, "all windows are counted")
    windows = [(row["id"], row["kind"]) for row in on.rows("counted")]
    if found() != wanted or len(windows) != len(set(windows)):
        ops.bad.append(f"counted differs: {wanted - found()} missing, {found() - wanted} extra, {len(windows)} rows")
    ops.bad += [f"{table} {what}" for table, what in on.faults(1).items()]
    print(f"  {len(wanted)} windows: {'equal' if found() == wanted else 'NOT equal'}", flush=True)


if __name__ == "__main__":
    run_drill(main)
