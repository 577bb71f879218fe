"""Environments and checkouts of one project on shared servers: nothing is shared that is not declared."""

import hashlib
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from live_project import Driven, until
from pool_jars import delta_jars
from tiny_project import DDL, DML, FIRST_COMPILER

from core.project.connectors import DELTA
from core.project.model import Pool
from pipelines.local_pool.connect_server import LocalPool
from pipelines.spark_connect.session import Session

pytestmark = [pytest.mark.drill, pytest.mark.spark, pytest.mark.long]

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

    def write(self, **environments: str) -> None:
        """Write the files of the project; each environment is given by the rest of its section."""
        lines = [f"  {name}: {{data: {self.root}/data-{name}, {rest}}}" for name, rest in environments.items()]
        head = HEAD.format(first=next(iter(environments)), environments="\n".join(lines), jars=delta_jars())
        ddl = DDL | {"marked": DDL["marked"].replace("USING parquet", "USING delta")}
        for table, text in ddl.items():
            layer = "sources" if table == "landed" else "facts"
            scripts = self.folder / f"pipelines/{layer}/p/{table}/sql-scripts"
            scripts.mkdir(parents=True, exist_ok=True)
            (scripts / f"ddl.{table}.sql").write_text(text)
            if table in DML:
                (scripts / f"dml.{table}.sql").write_text(DML[table])
        (self.folder / "headgate.yml").write_text(head)

    def land(self, rows: int) -> None:
        (self.data / "landing").mkdir(parents=True, exist_ok=True)
        lines = "".join(json.dumps({"id": n + 1, "kind": "a"}) + "\n" for n in range(rows))
        (self.data / "landing/rows.json").write_text(lines)

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


@pytest.mark.parametrize("servers", [1, 2])
def test_environments_and_checkouts_share_only_what_is_declared(servers: int, tmp_path: Path) -> None:
    with ExitStack() as stack:
        one = stack.enter_context(server(tmp_path / "server1"))
        two = stack.enter_context(server(tmp_path / "server2")) if servers == 2 else one
        main, branch, third = (tmp_path / name for name in ("main", "branch", "third"))
        dev = Checkout(main, name="dev", naming=lambda table: f"default.{prefixed(table)}")
        stage = Checkout(main, name="stage", environment="stage", naming=lambda table: f"stage.{suffixed(table)}")
        other = Checkout(branch, name="branch", naming=lambda table: f"branch.{table}")
        dev.write(
            dev=f"naming: {{prefix: dev_}}, pool: {{name: one, url: '{one.url}'}}",
            stage=f"naming: {{suffix: _s, database: stage}}, sources: dev, pool: {{name: two, url: '{two.url}'}}",
        )
        other.write(dev=f"naming: {{catalog: spark_catalog, database: branch}}, pool: {{name: one, url: '{one.url}'}}")
        dev.land(10)
        other.land(7)
        for each in (dev, stage, other):
            stack.callback(each.run, "down", "--confirm", "")
            each.deploy()
        places = {"dev": one, "stage": two, "branch": one}
        for each, rows in ((dev, 10), (stage, 10), (other, 7)):
            view = each.naming("marked")
            until(lambda: places[each.name].count(view) == rows, 60, f"{view} has {rows} rows")  # noqa: B023  # At once.

        entries = {name: place.entries() for name, place in places.items()}
        for each in (dev, stage, other):
            mine = entries[each.name]
            assert each.names() <= mine.keys(), (each.names(), mine)
            for table in DML:
                assert mine[each.naming(f"{table}__v1")].startswith(f"{each.data}/tables/")
                assert f"`{each.naming(table + '__v1').split('.')[1]}`" in mine[each.naming(table)]
            assert all(path.startswith(str(each.data)) for path in each.content()) and each.content()
        assert not dev.names() & stage.names() | dev.names() & other.names() | stage.names() & other.names()
        # Of everything, stage shares with dev what it declares, the external table, and nothing else.
        shared = {name for name, place in entries["stage"].items() if place.startswith(f"{dev.data}/landing")}
        assert shared == {"default.dev_landed"}
        made = {name for each in (dev, stage, other) for name in each.names()}
        assert made | {"default.dev_landed", "branch.landed"} == {name for found in entries.values() for name in found}

        late = Checkout(third, name="third")
        late.write(dev=f"naming: {{prefix: dev_}}, pool: {{name: one, url: '{one.url}'}}")
        late.land(3)
        late.done("up")
        stack.callback(late.run, "down", "--confirm", "")
        before = [each.content() for each in (dev, stage, other)]
        refused = late.run("plan", "--all")
        said = refused.stdout + refused.stderr
        print(said)
        assert refused.returncode != 0
        assert "would meet dev_" in said and f"{dev.data}/tables/dev_" in said and str(dev.home()) in said
        assert one.entries() == entries["dev"]
        assert late.content() == {} and before == [each.content() for each in (dev, stage, other)]

        moved = (dev.folder / "headgate.yml").read_text()
        (dev.folder / "headgate.yml").write_text(moved.replace("prefix: dev_", "prefix: d_"))
        edited = dev.run("plan", "--all", "--rebuild")
        print(edited.stderr)
        dev.done("down", "--confirm", "")
        began = dev.run("up")
        print(began.stderr)
        assert began.returncode != 0 and "was deployed as dev_" in began.stderr


def prefixed(table: str) -> str:
    return f"dev_{table}"


def suffixed(table: str) -> str:
    name, mark, version = table.partition("__v")
    return f"{name}_s{mark}{version}"
