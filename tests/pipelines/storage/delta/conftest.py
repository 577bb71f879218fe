"""Delta tables in a folder, on the shared server with Delta, with the checkpoints of queries between them."""

import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from core.model.errors import Busy
from core.model.names import TableName
from core.ports.spark import QueryStart, ReportedQuery, Upsert
from core.ports.storage import SourceLag
from core.sql.compiler import compile_ddl
from core.sql.ddl_reader import read_ddl
from core.sql.registered_functions import RegisteredFunction
from pipelines.spark_connect.catalog import SparkTables, SparkUpkeep
from pipelines.spark_connect.session import Session
from pipelines.spark_connect.streaming_queries import SparkQueries
from pipelines.storage.checkpoints import TableCheckpoints
from pipelines.storage.delta_tables import DeltaTables


@dataclass
class Lake:
    """Tables with unique names, so that tests can share a server."""

    folder: Path
    session: Session
    queries: SparkQueries
    mark: str = field(default_factory=lambda: uuid.uuid4().hex[:6])

    def __post_init__(self) -> None:
        self.tables = SparkTables(self.session)
        self.upkeep = SparkUpkeep(self.session)
        self.read_anew()

    def read_anew(self) -> None:
        """Discard everything known about logs, as after a restart of the agent."""
        self.files = TableCheckpoints("ledger", logs={"delta": DeltaTables(refresh_s=0)})

    def name(self, table: str) -> str:
        """Return a table's name in the catalog."""
        return f"{table}_{self.mark}__v1"

    def place(self, table: str) -> str:
        """Return the folder of the version, which contains our files next to the table's folder."""
        return f"{self.folder}/tables/{table}"

    def ddl(self, table: str, columns: str = "id BIGINT, v STRING", rest: str = "USING delta") -> str:
        found, problems = read_ddl(f"CREATE TABLE {table} ({columns}) {rest}", "ddl")
        assert found is not None, problems
        return compile_ddl(found, self.name(table), f"{self.place(table)}/delta")

    def table(self, table: str, columns: str = "id BIGINT, v STRING", rest: str = "USING delta") -> str:
        """Create a table as a run does, and return its name in the catalog."""
        self.files.prepare(self.place(table), {"run": "r"})
        self.tables.create(self.name(table), self.ddl(table, columns, rest))
        return self.name(table)

    def sql(self, text: str) -> list[tuple[object, ...]]:
        return [tuple(row) for row in self.session.spark.sql(text).collect()]

    def insert(self, table: str, rows: int, *, files: int = 1, at: int = 0) -> None:
        """Commit `rows` rows in `files` files as one version."""
        self.sql(f"INSERT INTO {self.name(table)} SELECT {at} + id, concat('v', id) FROM range(0, {rows}, 1, {files})")

    def start(
        self,
        table: str,
        select: str,
        *,
        checkpoint: str = "",
        trigger: str = "0 seconds",
        parts: tuple[str, ...] = (),
        upsert: Upsert | None = None,
        functions: tuple[RegisteredFunction, ...] = (),
    ) -> ReportedQuery:
        """Start the query that fills a table, once the pool can start the Python process that the query may need."""
        place = self.checkpoint(checkpoint or table)
        self.files.prepare(place, {"run": "r"})
        about = (self.query(table), select, self.name(table), "delta", place, trigger)
        begun = QueryStart(*about, partitioned_by=parts, upsert=upsert, functions=functions)
        started: list[ReportedQuery] = []

        def has_begun() -> bool:
            with suppress(Busy):
                started.append(self.queries.start(begun))
            return bool(started)

        self.until(has_begun)
        return started[0]

    def upsert(self, table: str, *columns: str, sequence: str = "", deletes: str = "") -> Upsert:
        """Return how a table is written, keyed by the first of its columns."""
        place, checkpoint = self.place(table), self.checkpoint(table)
        return Upsert(f"{place}/delta", f"{place}/deleted", checkpoint, columns, columns[:1], sequence, deletes)

    def run(self, table: str, select: str, *, checkpoint: str = "", upsert: Upsert | None = None) -> None:
        """Let a table's query read everything available, and end."""
        query = self.start(table, select, checkpoint=checkpoint, trigger="available now", upsert=upsert)
        self.until(lambda: query.name not in self.mine())
        ended = [
            f"{found.error_class} {found.error}".strip()
            for found in self.queries.ended()
            if found.run_id == query.run_id
        ]
        assert not any(ended), ended

    def query(self, table: str) -> str:
        return f"{table}_{self.mark}@v1"

    def checkpoint(self, table: str) -> str:
        return f"{self.folder}/checkpoints/{table}"

    def batch(self, table: str) -> int | None:
        found = self.files.read(self.checkpoint(table))
        return found.batch if found else None

    def lag(self, table: str, *parents: str) -> tuple[SourceLag, ...]:
        given = tuple((n, TableName(each), self.place(each), "delta") for n, each in enumerate(parents))
        return self.files.lag(self.checkpoint(table), given)

    def count(self, table: str) -> int:
        return int(str(self.sql(f"SELECT count(*) FROM {self.name(table)}")[0][0]))

    def until(self, condition: Callable[[], object], seconds: float = 180) -> None:
        """Wait for a condition; fail on timeout."""
        ends_at = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < ends_at, "the condition did not become true in time"
            time.sleep(0.05)

    def mine(self) -> dict[str, ReportedQuery]:
        """Return the queries of this lake, by name."""
        return {query.name: query for query in self.queries.active() if self.mark in query.name}


@pytest.fixture(scope="session")
def delta_queries(delta_session: Session) -> SparkQueries:
    """The queries of the shared session, with its only listener."""
    return SparkQueries(delta_session)


@pytest.fixture
def lake(delta_session: Session, delta_queries: SparkQueries, tmp_path: Path) -> Iterator[Lake]:
    """A lake on the shared server; its queries are stopped at the end."""
    lake = Lake(tmp_path, delta_session, delta_queries)
    os.makedirs(f"{tmp_path}/tables")
    yield lake
    for name in lake.mine():
        lake.queries.stop(name)
