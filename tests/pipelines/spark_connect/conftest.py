"""A folder with landed JSON files and tables over it, on the shared pool."""

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from core.model.names import TableName
from core.ports.spark import QueryStart, ReportedQuery
from core.ports.storage import SourceLag
from pipelines.spark_connect.catalog import SparkTables
from pipelines.spark_connect.session import Session
from pipelines.spark_connect.streaming_queries import SparkQueries
from pipelines.storage.checkpoints import TableCheckpoints
from pipelines.storage.row_counting import RowCounter
from pipelines.storage.source_lag import SourceLags


@dataclass
class Field:
    """Tables with unique names, so that tests can share a server."""

    folder: Path
    session: Session
    mark: str = field(default_factory=lambda: uuid.uuid4().hex[:6])
    parts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Partition columns by table name."""

    def __post_init__(self) -> None:
        self.queries = SparkQueries(self.session)
        self.tables = SparkTables(self.session)
        self.files = TableCheckpoints("ledger")
        # Generous, so that a slow machine does not turn exact figures into estimates.
        self.files._lags = SourceLags(counter=RowCounter(budget_s=60), refresh_s=0)
        self.landed = 0
        (self.folder / "landing").mkdir()
        self.source = f"src_{self.mark}"
        columns = "a BIGINT, b STRING, ts TIMESTAMP"
        location = f"LOCATION '{self.folder}/landing'"
        self.tables.create(self.source, f"CREATE TABLE IF NOT EXISTS {self.source} ({columns}) USING json {location}")

    def land(self, rows: int, *, a: int = 1) -> None:
        """Land one complete file."""
        lines = [json.dumps({"a": a, "b": f"b{n % 3}", "ts": f"2026-01-01T00:00:{n % 60:02d}Z"}) for n in range(rows)]
        hidden = self.folder / "landing" / ".hidden"
        hidden.write_text("".join(f"{line}\n" for line in lines))
        os.rename(hidden, self.folder / "landing" / f"f{self.landed}.json")
        self.landed += 1

    def table(self, name: str, columns: str = "a BIGINT, b STRING", partitioned: str = "") -> str:
        """Create an empty table and return its physical name."""
        physical = f"{name}_{self.mark}__v1"
        self.parts[name] = (partitioned,) if partitioned else ()
        parts = f"PARTITIONED BY ({partitioned})" if partitioned else ""
        self.files.prepare(self.place(name), {"table": name})
        self.tables.create(
            physical,
            f"CREATE TABLE IF NOT EXISTS {physical} ({columns}) USING parquet {parts} LOCATION '{self.place(name)}'",
        )
        return physical

    def start(
        self,
        name: str,
        select: str,
        *,
        trigger: str = "0 seconds",
        run_id: str = "",
        added: tuple[tuple[str, str], ...] = (),
    ) -> ReportedQuery:
        """Start the query that fills a table, or find it running as `run_id`; creates its checkpoint."""
        physical = f"{name}_{self.mark}__v1"
        self.files.prepare(self.checkpoint(name), {"table": name})
        return self.queries.start(
            QueryStart(
                self.query(name),
                select,
                physical,
                "parquet",
                self.checkpoint(name),
                trigger,
                partitioned_by=self.parts.get(name, ()),
                added=added,
            ),
            run_id,
        )

    def query(self, name: str) -> str:
        return f"{name}_{self.mark}@v1"

    def place(self, name: str) -> str:
        return f"{self.folder}/tables/{name}"

    def checkpoint(self, name: str) -> str:
        return f"{self.folder}/checkpoints/{name}"

    def lag(self, name: str, *sources: tuple[str, str, str]) -> tuple[SourceLag, ...]:
        """Measure a statement's sources, given as (name, folder, format) in the order of its SQL."""
        given = tuple((n, TableName(name), folder, format) for n, (name, folder, format) in enumerate(sources))
        return self.files.lag(self.checkpoint(name), given)

    def count(self, sql: str) -> int:
        """Run a batch query that returns one number."""
        value = self.tables.read(sql, 1)[1][0][0]
        assert isinstance(value, int)
        return value

    def until(self, condition: Callable[[], object], seconds: float = 60) -> None:
        """Wait for a condition; fail on timeout."""
        ends_at = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < ends_at, "the condition did not become true in time"
            time.sleep(0.05)

    def mine(self) -> dict[str, ReportedQuery]:
        """Return the queries of this field, by name."""
        return {query.name: query for query in self.queries.active() if self.mark in query.name}


@pytest.fixture
def ground(session: Session, tmp_path: Path) -> Iterator[Field]:
    """A field on the shared server; its queries are stopped at the end."""
    ground = Field(tmp_path, session)
    yield ground
    for name in ground.mine():
        ground.queries.stop(name)
