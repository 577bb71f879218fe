"""Servers that no agent manages, and checkouts of a tiny project whose environments share them."""

import hashlib
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from live_project import Driven
from pool_jars import delta_jars
from tiny_project import DDL, DML, FIRST_COMPILER

from core.project.connectors import DELTA
from core.project.model import Pool
from pipelines.local_pool.connect_server import LocalPool
from pipelines.spark_connect.session import Session

HEAD = """project: tiny
id: 5b0e4a52-9df2-4a52-9c0c-0f6f8d1a2b3c
default_env: {first}
environments:
{environments}
defaults: {{trigger: 1 second}}
connectors: {{delta: {{jars: ['{jars}']}}}}
"""

Entries = dict[str, str]
"""The tables and views of a server, as `database.name`, with their location or with the text of the view."""


@dataclass
class Server:
    """A Spark Connect server that no agent manages."""

    process: LocalPool

    @property
    def url(self) -> str:
        return f"{self.process.url}/;authorization=Bearer%20{self.process.token}"

    @contextmanager
    def session(self) -> Iterator[Session]:
        found = Session(self.process.url, self.process.token, str(uuid.uuid4()))
        found.attach()
        try:
            yield found
        finally:
            found.close()

    def entries(self) -> Entries:
        with self.session() as session:
            found = {}
            for (database,) in session.spark.sql("SHOW DATABASES").collect():
                for row in session.spark.sql(f"SHOW TABLES IN {database}").collect():
                    name = f"{database}.{row['tableName']}"
                    about = session.spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
                    lines = {str(line["col_name"]): str(line["data_type"]) for line in about}
                    found[name] = lines.get("View Text") or lines.get("Location", "").removeprefix("file:")
            return found

    def count(self, view: str) -> int:
        with self.session() as session:
            return int(session.spark.sql(f"SELECT count(*) FROM {view}").collect()[0][0])


@contextmanager
def server(folder: Path) -> Iterator[Server]:
    delta = DELTA.__class__(name="delta", coordinates=(), jars=(str(delta_jars()),))
    conf = (("spark.driver.extraJavaOptions", FIRST_COMPILER),)
    process = LocalPool(folder, Pool(cores=2, memory="1g", conf=conf), connectors=(delta,))
    process.start()
    try:
        process.ready()
        yield Server(process)
    finally:
        process.end()


@dataclass
class Checkout(Driven):
    """One environment of a checkout: the folder of the project, and the data folder and naming of the environment."""

    name: str = ""
    environment: str = "dev"
    naming: Callable[[str], str] = str
    """Turns a table or version into its `database.name` on the server."""

    @property
    def folder(self) -> Path:
        return self.root / "tiny"

    @property
    def data(self) -> Path:
        return self.root / f"data-{self.environment}"

    def run(self, *words: str, **environ: str):  # type: ignore[no-untyped-def]  # As `Driven.run`.
        return super().run(*words, "--env", self.environment, **environ)

    def script(self, table: str) -> Path:
        """Return the file with the statement of a table."""
        return self.folder / f"pipelines/facts/p/{table}/sql-scripts/dml.{table}.sql"

    def write(self, *, format: str = "parquet", **environments: str) -> None:
        """Write the files of the project; each environment is given by the rest of its section.

        `kept` has the given format, and `marked` is on Delta.
        """
        lines = [f"  {name}: {{data: {self.root}/data-{name}, {rest}}}" for name, rest in environments.items()]
        head = HEAD.format(first=next(iter(environments)), environments="\n".join(lines), jars=delta_jars())
        formats = {"kept": format, "marked": "delta"}
        ddl = DDL | {name: DDL[name].replace("USING parquet", f"USING {each}") for name, each in formats.items()}
        for table, text in ddl.items():
            layer = "sources" if table == "landed" else "facts"
            scripts = self.folder / f"pipelines/{layer}/p/{table}/sql-scripts"
            scripts.mkdir(parents=True, exist_ok=True)
            (scripts / f"ddl.{table}.sql").write_text(text)
            if table in DML:
                (scripts / f"dml.{table}.sql").write_text(DML[table])
        (self.folder / "headgate.yml").write_text(head)

    def land(self, rows: int, *, after: int = 0) -> None:
        """Land one file with `rows` rows, whose ids begin after `after`."""
        (self.data / "landing").mkdir(parents=True, exist_ok=True)
        lines = "".join(json.dumps({"id": after + n + 1, "kind": "a"}) + "\n" for n in range(rows))
        hidden = self.data / "landing/.part"
        hidden.write_text(lines)
        hidden.rename(self.data / f"landing/rows-{after}.json")

    def deploy(self) -> None:
        self.done("up")
        found = self.apply(self.plan("--all"))
        assert found.returncode == 0, found.stdout + found.stderr

    def content(self) -> dict[str, str]:
        """Return the digests of all files of tables and checkpoints, by path."""
        parts = (self.data / "tables", self.data / "checkpoints")
        files = (path for part in parts if part.exists() for path in part.rglob("*") if path.is_file())
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    def names(self) -> set[str]:
        return {self.naming(each) for table in DML for each in (table, f"{table}__v1")}
