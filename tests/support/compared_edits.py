"""Edits of a statement, executed on real Spark and compared as a release compares two versions.

Statements run as batch queries over the same rows, in a different order for the new version. Drills cover the rows that
a stream withholds.
"""

import re
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ledger_rows import deployment_row

from core.model.names import TableName
from core.observed.aligned_positions import AlignedPair
from core.observed.versions import Binding
from core.project.revision import RevisionTexts
from core.validation.verdicts import BLOCKING, CheckResult
from pipelines.agent.runs.compared_versions import LedgerVersions
from pipelines.agent.runs.differences_explained_by_release import VersionPair
from pipelines.agent.runs.version_comparison import VersionComparison
from pipelines.spark_connect.catalog import SparkTables
from pipelines.spark_connect.session import Session

LANDED = """SELECT id, kind, amount, price, ts, note, tags, status FROM (SELECT n AS id,
CASE WHEN n % 20 = 7 THEN NULL WHEN n % 3 = 0 THEN 'a' WHEN n % 3 = 1 THEN 'B' ELSE 'c' END AS kind,
CASE WHEN n % 25 = 3 THEN NULL ELSE CAST(n * 1.07 AS DECIMAL(12, 2)) END AS amount, n / 7D AS price,
TIMESTAMP '2026-03-29 00:00:00' + make_dt_interval(0, 0, 0, n * 30) AS ts,
concat('note number ', n % 50) AS note, IF(n % 4 = 0, array(), transform(sequence(1, 1 + n % 3), x -> concat('t', x)))
AS tags, IF(n % 10 = 0, 'void', 'ok') AS status FROM (SELECT IF(r.id >= 400, r.id - 400, r.id) AS n
FROM range(405) AS r))"""
"""405 rows over 3 h 20 min, five of them twice, with NULL kinds and amounts and empty arrays."""
RATES = "SELECT * FROM VALUES ('a', 2, 'x'), ('c', 3, 'y') AS rates(kind, rate, zone)"
TWICE = "SELECT * FROM VALUES ('a', 2, 'x'), ('c', 3, 'y'), ('a', 2, 'z'), ('B', 1, 'v') AS twice(kind, rate, zone)"
TABLES = {"landed": LANDED, "rates": RATES, "twice": TWICE}
READS = tuple(Binding(TableName(table), 0, table == "landed") for table in TABLES)
FAR_MS = 4_102_444_800_000
"""A watermark later than every row."""
_WATERMARK = re.compile(r"\s+WATERMARK \w+ DELAY OF INTERVAL \d+ \w+", re.I)


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit: a SELECT and the columns that it writes, before and after."""

    name: str
    old: str
    new: str
    columns: str
    new_columns: str = ""
    """The columns after the edit; empty if the columns stay the same."""
    key: str = ""
    reads: str = "true"
    """Condition on the rows of `landed` that the new version reads; its SQL does not show that other rows are lost."""
    told: str = ""
    """The expected sentence about rows or values that the new SQL itself removes."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The results of comparing both versions of one edit."""

    results: dict[str, CheckResult]
    seconds: float

    @property
    def blocked(self) -> bool:
        return any(result.verdict in BLOCKING for result in self.results.values())

    @property
    def words(self) -> str:
        """Describe the checks that found a difference; empty if none did."""
        return "; ".join(f"{r.check} {r.verdict}: {r.summary}" for r in self.results.values() if r.verdict != "ok")


class EditedOnSpark:
    """Executes edits on Spark, and compares the two versions of each."""

    def __init__(self, session: Session, folder: Path) -> None:
        self._session, self._folder = session, folder

    def judge(self, edit: Edit, **old_row: Any) -> Judged:
        """Execute an edit and compare its versions; `old_row` overrides fields of the old version's ledger row."""
        versions = []
        for n, (side, select, columns) in enumerate(
            (("old", edit.old, edit.columns), ("new", edit.new, edit.new_columns or edit.columns)), 1
        ):
            folder = self._folder / f"{len(list(self._folder.iterdir()))}"
            self._write(select, side, columns, folder, edit.reads if side == "new" else "true")
            yml = f"key: [{edit.key}]\n" if edit.key else ""
            texts = RevisionTexts(f"CREATE TABLE a ({columns}) USING parquet", f"INSERT INTO a {select}", yml)
            versions.append(deployment_row(version=n, texts=texts, folder=str(folder), bindings=READS))
        old, new = replace(versions[0], **old_row), versions[1]
        began = time.monotonic()
        agent = self._agent()
        comparison = VersionComparison(agent, LedgerVersions(agent.ledger))
        with comparison.turn():
            found = comparison.compare(VersionPair(old, new, AlignedPair(0, 0, FAR_MS, FAR_MS)))
        return Judged({result.check: result for result in found}, time.monotonic() - began)

    def _write(self, select: str, side: str, columns: str, folder: Path, reads: str) -> None:
        for table, sql in TABLES.items():
            rows = self._session.spark.sql(sql)
            rows = rows.where(reads) if table == "landed" else rows
            ordered = rows.orderBy(*rows.columns[:2], ascending=side == "old")
            ordered.coalesce(1).createOrReplaceTempView(table)
        batch = _WATERMARK.sub("", select).replace("STREAM ", "")
        names = [column.split()[0] for column in _split(columns)]
        types = [column.split(maxsplit=1)[1] for column in _split(columns)]
        cast = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in zip(names, types, strict=True))
        self._session.spark.sql(f"SELECT {cast} FROM ({batch})").write.parquet(str(folder))

    def _agent(self) -> Any:
        def call(seconds: float, fn: Any, *args: Any) -> Any:
            return fn(*args)

        tables = SparkTables(self._session)
        pool = SimpleNamespace(connection=lambda: SimpleNamespace(call=call, tables=tables))
        files = SimpleNamespace(
            written_files=lambda folder, upto: tuple(map(str, sorted(Path(folder).glob("part-*")))),
            contents=lambda folder, format: None,
            sink_batch=lambda folder: 0,
        )
        ledger = SimpleNamespace(
            deployments=lambda: (_source("landed"), _source("rates"), _source("twice")),
            deployment=lambda table, version: None,
            runs_of=lambda table: (),
            measurement=lambda table, version: None,
        )
        return SimpleNamespace(pool=pool, files=files, ledger=ledger)


def _source(table: str) -> Any:
    columns = {
        "landed": "id BIGINT, kind STRING, amount DECIMAL(12,2), price DOUBLE, ts TIMESTAMP, note STRING, "
        "tags ARRAY<STRING>, status STRING"
    }.get(table, "kind STRING, rate INT, zone STRING")
    texts = RevisionTexts(f"CREATE TABLE {table} ({columns}) USING json LOCATION '{table}'", "", "")
    return deployment_row(table, version=0, texts=texts, external=True, bindings=())


def _split(columns: str) -> list[str]:
    return [part.strip() for part in re.split(r",(?![^(<]*[)>])", columns)]
