"""Many statements over one external table without rows, on a real agent and pool."""

import os
from pathlib import Path

from live_project import Driven

HEAD = """project: many
id: 2f0e4a52-9df2-4a52-9c0c-0f6f8d1a2b3c
default_env: dev
environments:
  dev:
POOLS
defaults: {trigger: TRIGGER}
"""


class ManyStatements(Driven):
    """A project with the statements t0, t1, … over the external table `landed`, which has no rows."""

    @property
    def folder(self) -> Path:
        return self.root / "many"

    def write(self, count: int, *, pools: int = 1, memory: str = "3g", trigger: str = "10 seconds") -> None:
        """Write the files of a project with `count` statements, evenly in the pools p0, p1, … if there are several.

        `memory` is the heap of each pool.
        """
        (self.folder / "data/landing").mkdir(parents=True)
        pool = f"{{cores: 2, memory: {memory}}}"
        lines = ["    pools:", *(f"      p{n}: {pool}" for n in range(pools))] if pools > 1 else [f"    pool: {pool}"]
        head = HEAD.replace("POOLS", "\n".join(lines)).replace("TRIGGER", trigger)
        (self.folder / "headgate.yml").write_text(head)
        columns = "(id BIGINT, kind STRING)"
        self._table("sources", "landed", f"CREATE TABLE landed {columns} USING json LOCATION 'landing';", "")
        for n in range(count):
            ddl = f"CREATE TABLE t{n} {columns} USING parquet;"
            dml = f"INSERT INTO t{n} SELECT id, kind FROM STREAM landed WHERE id > {n};"
            scripts = self._table("facts", f"t{n}", ddl, dml)
            if pools > 1:
                (scripts.parent / f"t{n}.yml").write_text(f"pool: p{n % pools}\n")

    def _table(self, layer: str, table: str, ddl: str, dml: str) -> Path:
        scripts = self.folder / f"pipelines/{layer}/p/{table}/sql-scripts"
        scripts.mkdir(parents=True)
        (scripts / f"ddl.{table}.sql").write_text(ddl)
        if dml:
            (scripts / f"dml.{table}.sql").write_text(dml)
        return scripts

    def started(self, since: float) -> int:
        """Return how many statements were started after `since` and are starting or running."""
        sql = "SELECT count(*) FROM deployment WHERE started_at > ? AND state IN ('starting', 'running')"
        return int(str(self.ledger(sql, since)[0][0]))

    def tables_in(self, state: str) -> frozenset[str]:
        """Return the tables whose statements are in the given state."""
        sql = 'SELECT "table" FROM deployment WHERE state = ? AND NOT external'
        return frozenset(str(row[0]) for row in self.ledger(sql, state))

    def threads(self) -> int:
        """Return the agent's number of threads."""
        return len(os.listdir(f"/proc/{self.agent_pid()}/task"))

    def files(self) -> int:
        """Return the agent's number of open files."""
        return len(os.listdir(f"/proc/{self.agent_pid()}/fd"))


def memory_mib(pid: int) -> int:
    """Return the memory in use by a process (RSS)."""
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:", 1)[1].split()[0]) // 1024


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process in seconds."""
    used = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    return sum(map(int, used)) / os.sysconf("SC_CLK_TCK")
