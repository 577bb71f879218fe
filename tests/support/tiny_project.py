"""A tiny project on a real agent and pool, driven through the command line as a user would drive it."""

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
from live_project import Driven, Impatient, alive, committed, until
from pool_jars import delta_jars, kafka_jars, postgres_jars, s3_jars

from pipelines.storage.delta_log import DeltaLog, NoDeltaLog
from pipelines.storage.file_stream_logs import local_path, whole_table_log

__all__ = ["DML", "Impatient", "Tiny", "alive", "approved", "committed", "tiny_that_runs", "until"]

FIRST_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=192m"
"""Java options for a server that starts often and processes little; with them, Java reserves only 48 MB for code."""

HEAD = f"""project: tiny
id: 5b0e4a52-9df2-4a52-9c0c-0f6f8d1a2b3c
default_env: dev
environments:
  dev:
    pool: {{cores: 2, memory: 1g, conf: {{spark.driver.extraJavaOptions: '{FIRST_COMPILER}'}}}}
defaults: {{trigger: 1 second}}
"""
DDL = {
    "landed": "CREATE TABLE landed (id BIGINT, kind STRING) USING json LOCATION 'landing';",
    "kept": "CREATE TABLE kept (id BIGINT, kind STRING) USING parquet;",
    "marked": "CREATE TABLE marked (id BIGINT, kind STRING) USING parquet;",
}
DML = {
    "kept": "INSERT INTO kept SELECT id, kind FROM STREAM landed WHERE id > 0;",
    "marked": "INSERT INTO marked SELECT id, upper(kind) AS kind FROM STREAM kept;",
}


@dataclass
class Tiny(Driven):
    """A project landed → kept → marked, or of the given tables, with its own folder and home."""

    landed: int = 0
    format: str = "parquet"
    """The format of tables written by statements."""
    formats: Mapping[str, str] = field(default_factory=dict)
    """Exceptions to `format`, by table."""
    ddl: Mapping[str, str] = field(default_factory=lambda: DDL)
    dml: Mapping[str, str] = field(default_factory=lambda: DML)
    yml: Mapping[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.root / "tiny"

    def write(self, **dml: str) -> None:
        """Write the project's files; a keyword argument replaces the statement of the table of that name."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "headgate.yml").write_text(HEAD + self._connectors())
        (self.folder / "data/landing").mkdir(parents=True, exist_ok=True)
        for table, ddl in self.ddl.items():
            layer = "sources" if table == "landed" else "facts"
            scripts = self.folder / f"pipelines/{layer}/p/{table}/sql-scripts"
            scripts.mkdir(parents=True, exist_ok=True)
            (scripts / f"ddl.{table}.sql").write_text(ddl.replace("USING parquet", f"USING {self.format_of(table)}"))
            if table in self.yml:
                (scripts.parent / f"{table}.yml").write_text(self.yml[table])
            if table in self.dml:
                (scripts / f"dml.{table}.sql").write_text(dml.get(table, self.dml[table]))

    def add(self, ddl: Mapping[str, str], dml: Mapping[str, str]) -> None:
        """Write additional tables, or new SQL for existing tables."""
        self.ddl, self.dml = {**self.ddl, **ddl}, {**self.dml, **dml}
        self.write()

    def land(self, count: int) -> None:
        """Land one file with `count` rows, whose ids continue those of the previous files."""
        rows = [{"id": self.landed + n, "kind": "ab"[n % 2]} for n in range(1, count + 1)]
        self.landed += count
        hidden = self.folder / "data/landing/.part"
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
        hidden.rename(self.folder / f"data/landing/{self.landed:09}.json")

    def ids(self, table: str, version: int) -> list[int]:
        """Return the ids in a version's table, from the files in its log, as readers in Spark see them."""
        folder = self.folder / f"data/tables/{table}__v{version}"
        format = self.format_of(table)
        files = files_in_log(str(folder), format) if format == "delta" else committed(folder)
        return sorted(
            int(value) for file in files for value in parquet.read_table(file, columns=["id"])["id"].to_pylist()
        )

    def format_of(self, table: str) -> str:
        """Return the format of a table that is written by a statement."""
        return self.formats.get(table, self.format)

    def _connectors(self) -> str:
        ours = "delta" in (self.format, *self.formats.values())
        jars = {"delta": delta_jars} if ours or any("USING delta" in ddl for ddl in self.ddl.values()) else {}
        if any("USING kafka" in ddl for ddl in self.ddl.values()):
            jars["kafka"] = kafka_jars
        if any("USING jdbc" in ddl or "USING postgres_changes" in ddl for ddl in self.ddl.values()):
            jars["postgres"] = postgres_jars
        if any("LOCATION 's3" in ddl for ddl in self.ddl.values()):
            jars["s3"] = s3_jars
        found = ", ".join(f"{name}: {{jars: ['{of()}']}}" for name, of in jars.items())
        return f"connectors: {{{found}}}\n" if found else ""


def files_in_log(folder: str, format: str) -> list[str]:
    """Return the paths of the files of a version in its log, as readers in Spark see them; none before its first batch.

    `folder` may be in any store.
    """
    if format == "delta":
        log = DeltaLog(f"{folder}/delta")
        try:
            log.refresh()
        except NoDeltaLog:
            return []
        return [log.place_of(file) for file in log.files_at(log.head)]
    try:
        entries = list(whole_table_log(f"{folder}/_spark_metadata"))
    except FileNotFoundError:
        return []
    return [local_path(str(entry["path"])) for entry in entries if entry.get("action", "add") == "add"]


@contextmanager
def tiny_that_runs(
    root: Path, *, landed: int, format: str = "parquet", environ: Mapping[str, str] | None = None, **more: Any
) -> Iterator[Tiny]:
    """Yield a project whose agent and pool are up, with nothing deployed; stop both afterwards."""
    found = Tiny(root, {"HEADGATE_MEASURE_S": "1", **(environ or {})}, format=format, **more)
    found.write()
    if landed:
        found.land(landed)
    found.done("up")
    try:
        yield found
    finally:
        agent, pool = found.agent_pid(), found.pool_pid()
        found.down()
        assert not alive(agent)
        assert not alive(pool)


def approved(tiny: Tiny, plan: dict[str, Any]) -> dict[str, Any]:
    """Have another login approve a plan, by writing to the ledger, because this process has only one login."""
    with closing(sqlite3.connect(tiny.home() / "ledger.db", timeout=30)) as ledger, ledger:
        ledger.execute(
            "INSERT INTO approval (plan_hash, uid, login, at) VALUES (?, 4711, 'bob', ?)", (plan["hash"], time.time())
        )
    return plan
