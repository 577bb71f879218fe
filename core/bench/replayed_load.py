"""Load made from a sample of rows: the sample is replayed in cycles, with new keys and current times.

A replay keeps what columns drawn one by one would lose: which values occur together, how often each occurs, and which
rows of different sources match. Every source advances through its sample in the same proportion, so rows that matched
in the sample match in the load. In each cycle, keys get other values, because equal rows would be dropped as duplicates
and state would not grow.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

from core.bench.quantiles import quantile
from core.model.names import TableName

LEAST_KEYS = 10
"""Number of rows from which the sample shows whether a column is a key."""
DISTINCT = 0.9
"""Share of distinct values from which on a column of whole numbers or text is a key: repeated events are allowed."""
COVERED = 0.3
"""Share of the values of a key that a column of another source contains, if it refers to the key."""

INTEGERS = {"tinyint": 1 << 7, "smallint": 1 << 15, "int": 1 << 31, "bigint": 1 << 63}
"""Types of whole numbers, each with the first value that it cannot hold."""

_TEXT = ("string", "char", "varchar")
_TIMES = frozenset({"timestamp", "timestamp_ntz"})
_FIXED = frozenset({"_value", "_op"})
"""Columns that are no keys, whatever their values: the value of a message that is not parsed, and kinds of changes."""
_FILL = {"_value": " "}
"""What fills up a column; a value may be JSON, which spaces at its end do not change."""

Row = Mapping[str, object]
"""A row by column. Timestamps are aware datetimes and dates are dates; everything else is as JSON has it."""

Column = tuple[TableName, str]


@dataclass(frozen=True, slots=True)
class SourceSample:
    """Rows of a source, in the order in which they were written."""

    table: TableName
    columns: tuple[tuple[str, str], ...]
    """Names and types of the declared columns."""
    rows: tuple[Row, ...]
    event_column: str = ""
    """The column by which readers order events; empty if the source has no timestamps."""
    made_up: bool = False
    """Whether the rows are made up from the declaration instead of read."""


def is_time(kind: str) -> bool:
    """True if a type has values that move with the clock."""
    return kind in _TIMES


def key_columns(samples: Sequence[SourceSample]) -> frozenset[Column]:
    """Return the columns whose values get another value in each cycle, as (table, column).

    These are the keys of each source, and the columns that refer to a key of another source.
    """
    values = {
        (sample.table, name): [row[name] for row in sample.rows if row.get(name) is not None]
        for sample in samples
        for name, kind in sample.columns
        if (kind in INTEGERS or kind.startswith(_TEXT)) and name not in _FIXED
    }
    distinct = {column: frozenset(map(str, found)) for column, found in values.items()}
    keys = {
        column
        for column, found in values.items()
        if len(found) >= LEAST_KEYS and len(distinct[column]) >= DISTINCT * len(found)
    }
    refers = {
        column
        for column in values.keys() - keys
        for key in keys
        if key[0] != column[0] and _refers(distinct[column], distinct[key])
    }
    return frozenset(keys | refers)


def _refers(values: frozenset[str], key: frozenset[str]) -> bool:
    common = len(values & key)
    return common >= COVERED * len(key) and common >= 0.8 * len(values)


@dataclass(slots=True)
class ReplayedLoad:
    """Load from the samples of all sources that are written to."""

    samples: Mapping[TableName, SourceSample]
    keys: frozenset[Column]
    padding: Mapping[TableName, tuple[str, int]] = field(default_factory=dict)
    """A text column of a source and the length to which it is filled up, for records of a given size."""
    _span: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        numbers = [
            abs(value)
            for sample in self.samples.values()
            for row in sample.rows
            for name, value in row.items()
            if (sample.table, name) in self.keys and isinstance(value, int)
        ]
        self._span = 10 ** len(str(max(numbers, default=0)))

    @property
    def tables(self) -> tuple[TableName, ...]:
        """The sources that have rows, by name."""
        return tuple(sorted(table for table, sample in self.samples.items() if sample.rows))

    def share(self, table: TableName) -> float:
        """Return the part of all rows that a source has."""
        return len(self.samples[table].rows) / sum(len(sample.rows) for sample in self.samples.values())

    def lateness_s(self) -> float:
        """Return by how much 99 of 100 rows of the samples are at most behind the newest event before them."""
        behind: list[float] = []
        for sample in self.samples.values():
            newest: datetime | None = None
            for row in sample.rows:
                event = row.get(sample.event_column)
                if isinstance(event, datetime):
                    newest = event if newest is None else max(newest, event)
                    behind.append((newest - event).total_seconds())
        return quantile(sorted(behind), 0.99) if behind else 0.0

    def counts(self, before: float, upto: float) -> dict[TableName, tuple[int, int]]:
        """Return the first row and the number of rows of each source between two totals of rows over all sources.

        Totals that follow each other give rows that follow each other, however they are rounded.
        """
        found = {}
        for table in self.tables:
            share = self.share(table)
            first, last = math.floor(before * share + 1e-9), math.floor(upto * share + 1e-9)
            found[table] = (first, last - first)
        return found

    def rows(
        self, table: TableName, first: int, count: int, *, at_s: float, spread_s: float
    ) -> list[dict[str, object]]:
        """Return `count` rows from number `first` of the endless load on.

        The newest event of the rows is at `at_s`, in epoch seconds. The others are before it by as much as in the
        sample; if that is more than `spread_s` in total, proportionally less.
        """
        sample = self.samples[table]
        numbers = range(first, first + count)
        base = [sample.rows[number % len(sample.rows)] for number in numbers]
        newest = datetime.fromtimestamp(at_s, UTC)
        return [
            self._row(sample, row, number // len(sample.rows), event)
            for number, row, event in zip(numbers, base, _events(sample, base, newest, spread_s), strict=True)
        ]

    def _row(self, sample: SourceSample, row: Row, cycle: int, event: datetime) -> dict[str, object]:
        found: dict[str, object] = dict(row)
        own = row.get(sample.event_column)
        moved = event - own if isinstance(own, datetime) else None
        for name, kind in sample.columns:
            value = row.get(name)
            if isinstance(value, datetime):
                found[name] = event if moved is None else value + moved
            elif isinstance(value, date):
                found[name] = event.date() if moved is None else value + timedelta(days=moved.days)
            elif cycle and (sample.table, name) in self.keys:
                found[name] = self._renamed(value, kind, cycle)
        if sample.table in self.padding:
            name, length = self.padding[sample.table]
            found[name] = str(found.get(name) or "").ljust(length, _FILL.get(name, "x"))
        return found

    def _renamed(self, value: object, kind: str, cycle: int) -> object:
        if isinstance(value, int):
            return (abs(value) + cycle * self._span) % INTEGERS.get(kind, 1 << 63)
        return None if value is None else f"{value}~{cycle}"


def _events(sample: SourceSample, rows: Sequence[Row], newest: datetime, spread_s: float) -> Iterator[datetime]:
    own = [row.get(sample.event_column) for row in rows]
    known = [each for each in own if isinstance(each, datetime)]
    latest = max(known, default=newest)
    widest = max(((latest - each).total_seconds() for each in known), default=0.0)
    shrink = min(1.0, spread_s / widest) if widest > 0 else 1.0
    for each in own:
        before = latest - each if isinstance(each, datetime) else timedelta()
        yield newest - before * shrink


def event_column(sample_columns: Sequence[tuple[str, str]], watermarks: Sequence[str]) -> str:
    """Return the column by which events of a source are ordered; empty if it has no timestamps.

    `watermarks` are the watermark columns of the statements downstream, those nearest to the source first.
    """
    times = {name.lower(): name for name, kind in sample_columns if is_time(kind)}
    return next((times[each.lower()] for each in watermarks if each.lower() in times), next(iter(times.values()), ""))
