"""The demo as drills operate it, and the comparison of its tables with the expected rows."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pyarrow.parquet as parquet
from expected_results import (
    EXPECTED_TABLES,
    ExpectedRules,
    expected_rows,
    landed_counts,
    real_rows_query,
)
from live_project import Driven, committed

from pipelines.demo.data_folder import DemoDataFolder

DISTINCT = {"src_orders": "orders", "src_payments": "payments", "dim_seatings": "table_assignments"}
"""For each table that removes duplicates and keeps every event: its feed."""

_MILLIS = re.compile(r"unix_millis\((\w+)\)")
_JOINED = re.compile(r"concat_ws\(',', cast\((\w+) AS ARRAY<STRING>\)\)")
_PART = re.compile(r"\s*((?:[^,()]|\((?:[^()]|\([^()]*\))*\))+)(?:,|$)")
_QUESTION = re.compile(r"SELECT (.*) FROM \S+ WHERE (\w+) (>|<>) (\S+)")

Row = tuple[object, ...]


@dataclass
class Pizzeria(Driven):
    """The demo of `headgate demo`, in its own folder and home."""

    @property
    def folder(self) -> Path:
        return self.root / "headgate-demo"

    @property
    def data(self) -> DemoDataFolder:
        return DemoDataFolder(self.folder / "data")

    def begin(self, *words: str) -> dict[str, Any]:
        """Start the demo, and return its decoded JSON once every statement has rows."""
        self.root.mkdir(parents=True, exist_ok=True)
        found: dict[str, Any] = json.loads(self.done("demo", str(self.folder), "--no-console", "--json", *words))
        return found

    def settle(self) -> dict[str, Any]:
        """Stop the feeds and close every window; return the decoded JSON of `demo settle`."""
        found: dict[str, Any] = json.loads(self.done("demo", "settle", "--json"))
        return found

    def states(self) -> dict[str, str]:
        """Return the state of every statement, by table."""
        return {table: row["state"] for table, row in self.statements().items() if not row["external"]}

    def all_run(self) -> bool:
        """Return whether every statement is running."""
        return set(self.states().values()) == {"running"}

    def measured_since(self, moment: float) -> bool:
        """Return whether every statement has been measured, and therefore its state observed, since a moment."""
        rows = [row for row in self.statements().values() if not row["external"]]
        return all((row["measured_at"] or 0.0) > moment for row in rows)

    def rows(self, table: str, version: int, rules: ExpectedRules) -> Iterator[Row]:
        """Yield a version's real rows from the files in its sink log, in the form of `expected_results`."""
        asked = _QUESTION.fullmatch(real_rows_query(table, rules=rules))
        assert asked, real_rows_query(table, rules=rules)
        columns, real, sign, bound = asked[1], asked[2], asked[3], asked[4].strip("'")
        readers = [_reader(part.strip()) for part in _PART.findall(columns)]
        wanted = list(dict.fromkeys([name for name, _ in readers] + [real]))
        for file in committed(self.folder / f"data/tables/{table}__v{version}"):
            for row in parquet.ParquetFile(file).read(columns=wanted).to_pylist():
                if row[real] is not None and (row[real] > int(bound) if sign == ">" else row[real] != bound):
                    yield tuple(read(row[name]) for name, read in readers)

    def compare(self, rules: ExpectedRules) -> tuple[list[str], int]:
        """Compare every table with its expected rows; return the lines to print, and how many tables differ."""
        truth, wrong, lines = expected_rows(self.data, rules), 0, []
        serving = {table: int(row["version"]) for table, row in self.statements().items() if not row["external"]}
        assert set(serving) == set(EXPECTED_TABLES), set(serving) ^ set(EXPECTED_TABLES)
        counts = landed_counts(self.data)
        for table in EXPECTED_TABLES:
            found = Counter(self.rows(table, serving[table], rules))
            missing, extra = truth[table] - found, found - truth[table]
            good = not missing and not extra
            wrong += not good
            landed = ""
            if table in DISTINCT:
                lines_landed, distinct = counts[DISTINCT[table]]
                good_count = distinct == found.total() == len({row[0] for row in found})
                wrong += not good_count
                landed = (
                    f"; landed {lines_landed} lines, {distinct} ids = {found.total()} rows = "
                    f"{len({row[0] for row in found})} distinct ids: {'yes' if good_count else 'NO'}"
                )
            differs = f"{missing.total()} MISSING {_some(missing)}, {extra.total()} EXTRA {_some(extra)}"
            lines.append(
                f"{table + '__v' + str(serving[table]):24} {found.total():7} rows, reference {truth[table].total():7}: "
                + ("equal" if good else differs)
                + landed
            )
        return lines, wrong


def _reader(part: str) -> tuple[str, Any]:
    """Return the column that an expression reads and the conversion of its values, as `expected_results` uses them."""
    if found := _MILLIS.fullmatch(part):
        return found[1], lambda value: value if value is None else _millis(value)
    if found := _JOINED.fullmatch(part):
        return found[1], lambda value: ",".join(str(one) for one in value)
    assert re.fullmatch(r"\w+", part), part
    return part, lambda value: value


def _millis(value: Any) -> int:
    # Spark writes UTC without a zone, in nanoseconds; pyarrow returns pandas' type only if pandas is installed.
    return int(arrow.scalar(value, arrow.timestamp("ns")).value) // 1_000_000


def _some(rows: Counter[Row]) -> str:
    return ", ".join(str(row) for row in list(rows)[:3])
