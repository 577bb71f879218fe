"""A diamond of four statements that are released together, and neighbours that fail or have runs of their own.

landed → base → even, odd → both; aside is stopped and started, beside is released, spare is deleted, and broken fails.
"""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from live_project import Driven, alive, until
from tiny_project import Tiny

from core.project.model import Pool
from pipelines.local_pool.connect_server import LocalPool
from pipelines.spark_connect.session import Session

TABLE = "CREATE TABLE {} (id BIGINT, kind STRING) USING parquet;"
FIRST = "INSERT INTO {} SELECT id, kind FROM STREAM landed;"
DML = {
    "base": "INSERT INTO base SELECT id, concat(kind, '0') AS kind FROM STREAM landed;",
    "even": "INSERT INTO even SELECT id, kind FROM STREAM base WHERE id % 2 = 0;",
    "odd": "INSERT INTO odd SELECT id, kind FROM STREAM base WHERE id % 2 = 1;",
    "both": "INSERT INTO both SELECT id, kind FROM STREAM even UNION ALL SELECT id, kind FROM STREAM odd;",
    **{table: FIRST.format(table) for table in ("aside", "beside", "spare")},
    "broken": "INSERT INTO broken SELECT id, CAST(raise_error('as asked') AS STRING) AS kind FROM STREAM landed;",
}
DDL = {
    "landed": "CREATE TABLE landed (id BIGINT, kind STRING) USING json LOCATION 'landing';",
    **{table: TABLE.format(table) for table in DML},
}
RELEASED = ("base", "even", "odd", "both")
RELEASE, ROLLBACK = ("base", "--rebuild", "--hold"), ("rollback", "base")
SEAM = ("base", "--rebuild", "--strategy", "even=seam", "--strategy", "odd=seam")
"""Arguments of a release with seams. It is not held, because such a plan would need an approval by a second login."""
WHOLE = (*RELEASED, "aside", "beside", "spare")


@dataclass(frozen=True)
class Rows:
    """Counts of the rows in one table's serving version."""

    expected: int
    got: int
    doubled: int
    missed: int

    @property
    def good(self) -> bool:
        return self.doubled == self.missed == 0 and self.got == self.expected

    def __str__(self) -> str:
        return f"{self.expected}/{self.got}/{self.doubled}/{self.missed}"


@dataclass
class Released(Tiny):
    """The project of this module, deployed on a real agent and pool."""

    releases: int = 0
    agent: subprocess.Popen[bytes] | None = None
    """The newest agent started here, or None while the one from `headgate up` runs."""
    texts_of: dict[tuple[str, int], int] = field(default_factory=dict)
    """By version: the number of the SQL text that produced all its rows. Versions that passed a seam are absent."""

    def __post_init__(self) -> None:
        self.ddl, self.dml = DDL, DML

    def begin(self) -> None:
        """Deploy and start everything; the table `broken` fails and remains failed."""
        self.write()
        self.land(40)
        self.done("up")
        assert self.apply(self.plan("--all", "--exclude", "broken")).returncode == 0
        failed = self.apply(self.plan("broken"))
        assert failed.returncode == 1, failed.stdout + failed.stderr
        self.texts_of |= {(table, 1): 0 for table in RELEASED}

    def edit(self) -> None:
        """Edit the text of `base`, which changes the rows of all four statements, and land more rows."""
        self.releases += 1
        self.write(base=DML["base"].replace("'0'", f"'{self.releases}'"))
        self.land(6)

    def renew_agent(self, points: Sequence[str] = ()) -> None:
        """Kill the agent and start another, as a service manager would; the new one dies at the first of `points`."""
        if self.agent is None:
            with suppress(OSError, ValueError):
                os.kill(self.agent_pid(), signal.SIGKILL)
                until(lambda: not alive(self.agent_pid()), 10, "the agent is dead")
        else:
            self.agent.kill()
            self.agent.wait()
        environ = {**os.environ, "HEADGATE_HOME": str(self.root / "home"), **self.environ}
        with (self.home() / "agent.log").open("ab") as log:
            self.agent = subprocess.Popen(
                [sys.executable, "-I", "-m", "pipelines.agent", "--project", str(self.folder), "--env", "dev"],
                cwd="/",
                env={**environ, "HEADGATE_FAULT_AT": ",".join(points)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        # The new agent may die at its very first step.
        until(lambda: self.is_dead() or self._holds_lock(), 60, "the agent is there")

    def is_dead(self) -> bool:
        """Return whether the newest agent has ended; its process id may have been reused."""
        return self.agent is not None and self.agent.poll() is not None

    def _holds_lock(self) -> bool:
        with suppress(OSError, ValueError):
            return self.agent is not None and self.agent_pid() == self.agent.pid
        return False

    def deaths(self) -> list[str]:
        """Return the labels of the points at which agents have died as requested."""
        return re.findall(r"dying at fault point \d+ (.+), as asked", (self.home() / "agent.log").read_text())

    def newest_run(self, *, other_than: Collection[str] = ()) -> tuple[str, str]:
        """Return the id and state of the newest run about the released tables; both are empty if it is excluded."""
        found = self.ledger(
            "SELECT id, state FROM run WHERE id IN (SELECT run_id FROM step WHERE \"table\" = 'base') "
            "ORDER BY started_at DESC, rowid DESC LIMIT 1"
        )
        id, state = (str(found[0][0]), str(found[0][1])) if found else ("", "")
        return ("", "") if id in other_than else (id, state)

    def serving(self) -> dict[str, tuple[int, str, str]]:
        """Return the serving version of each table, with its revision and the run id of its query."""
        found = self.ledger(
            'SELECT "table", version, revision, run_id FROM deployment WHERE active = 1 AND version > 0'
        )
        return {str(table): (int(str(version)), str(text), str(run)) for table, version, text, run in found}

    def confirmed(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command as an operator would, typing the confirmation that it requires."""
        first = self.run(*words)
        if "--confirm '" not in first.stderr:
            return first
        return self.run(*words, "--confirm", first.stderr.rsplit("--confirm '", 1)[1].split("'")[0])

    def cancel(self, run_id: str) -> subprocess.CompletedProcess[str]:
        return self.confirmed("runs", "cancel", run_id)

    def begin_run(self, plan: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
        """Apply a plan without waiting; the approval of another login is written directly into the ledger."""
        with closing(sqlite3.connect(self.home() / "ledger.db", timeout=30)) as ledger, ledger:
            approved = "INSERT OR REPLACE INTO approval (plan_hash, uid, login, at) VALUES (?, 4711, 'bob', ?)"
            ledger.execute(approved, (plan["hash"], time.time()))
        return self.confirmed("apply", str(plan["hash"])[:12], "--detach")

    def open_runs(self) -> int:
        return len(self.ledger("SELECT 1 FROM run WHERE ended_at IS NULL"))

    def all_run(self, *tables: str) -> bool:
        """Return whether the serving versions of these tables are running."""
        found = self.ledger("SELECT \"table\" FROM deployment WHERE active = 1 AND state = 'running'")
        return {str(table) for (table,) in found} >= set(tables)

    def learn(self, plan: Mapping[str, Any]) -> None:
        """Record which SQL text produces the rows of a plan's versions; after a seam, versions and readers have two."""
        if any(step["do"] == "seam" for step in plan["steps"]):
            for table in RELEASED[1:]:
                self.texts_of.pop((table, self.serving()[table][0]), None)
        for node in plan["nodes"]:
            if node["action"] == "rebuild" and node["table"] in RELEASED:
                self.texts_of[node["table"], int(node["version"])] = self.releases


@contextmanager
def released(root: Path) -> Iterator[Released]:
    """Yield the project with all tables deployed; stop everything afterwards."""
    world = Released(root, {"HEADGATE_MEASURE_S": "1"})
    try:
        world.begin()
        yield world
    finally:
        world.down()


def rows_of(world: Released, *tables: str) -> dict[str, Rows]:
    """Count the rows of each serving version by SQL in the pool; rows produced by other SQL count as missing."""
    with asked(world) as session:
        sql = " UNION ALL ".join(f"SELECT '{table}', id, substring(kind, 2) FROM {table}" for table in tables)
        found = session.call(60, session.spark.sql(sql).collect)
    numbers = {table: world.texts_of.get((table, version)) for table, (version, *_) in world.serving().items()}
    texts = {table: str(number) for table, number in numbers.items() if number is not None}
    return {
        table: _counted(
            world.landed, table, [int(id) for of, id, text in found if of == table and texts.get(table) in (None, text)]
        )
        for table in tables
    }


def _counted(landed: int, table: str, ids: list[int]) -> Rows:
    wanted = {n for n in range(1, landed + 1) if table not in ("even", "odd") or n % 2 == (table == "odd")}
    once = set(ids)
    return Rows(len(wanted), len(ids), len(ids) - len(once), len(wanted - once))


@contextmanager
def asked(world: Driven) -> Iterator[Session]:
    """Yield a new session on the pool, for queries on the serving versions."""
    server = LocalPool(world.home(), Pool())
    session = Session(server.url, server.token, str(uuid.uuid4()))
    try:
        yield session
    finally:
        with suppress(Exception):
            session.release()


def releases_of(world: Released) -> dict[str, str]:
    """Return the state of each release by run id, as `headgate release` reports it."""
    found = json.loads(world.done("release", "--json"))["releases"]
    return {str(one["run"]): str(one["state"]) for one in found}
