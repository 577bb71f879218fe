"""Many statements over one external table without rows, on a real agent and pool."""

import os
from pathlib import Path

from live_project import Driven

HEAD = """project: many
id: 2f0e4a52-9df2-4a52-9c0c-0f6f8d1a2b3c
default_env: dev
environments:
  dev:
    pool: {cores: 2, memory: 3g}
defaults: {trigger: 10 seconds}
"""


class ManyStatements(Driven):
    """A project with the statements t0, t1, … over the external table `landed`, which has no rows."""

    @property
    def folder(self) -> Path:
        return self.root / "many"

    def write(self, count: int) -> None:
        """Write the files of a project with `count` statements."""
        (self.folder / "data/landing").mkdir(parents=True)
        (self.folder / "headgate.yml").write_text(HEAD)
        columns = "(id BIGINT, kind STRING)"
        self._table("sources", "landed", f"CREATE TABLE landed {columns} USING json LOCATION 'landing';", "")
        for n in range(count):
            ddl = f"CREATE TABLE t{n} {columns} USING parquet;"
            self._table("facts", f"t{n}", ddl, f"INSERT INTO t{n} SELECT id, kind FROM STREAM landed WHERE id > {n};")

    def _table(self, layer: str, table: str, ddl: str, dml: str) -> None:
        scripts = self.folder / f"pipelines/{layer}/p/{table}/sql-scripts"
        scripts.mkdir(parents=True)
        (scripts / f"ddl.{table}.sql").write_text(ddl)
        if dml:
            (scripts / f"dml.{table}.sql").write_text(dml)

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
