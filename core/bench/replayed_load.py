"""Load made from a sample of rows: the sample is replayed in cycles, with new keys and current times.

A replay keeps what columns drawn one by one would lose: which values occur together, how often each occurs, and which
rows of different sources match. Every source advances through its sample in the same proportion, so rows that matched
in the sample match in the load. In each cycle, keys get other values, because equal rows would be dropped as duplicates
and state would not grow.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

from core.bench.quantiles import quantile
from core.model.names import TableName, whole_number
from core.sql.tokens.data_types import element_type

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
_FIXED = frozenset({"_value", "_content", "_op"})
"""Columns that are no keys, whatever their values: those of messages that are not parsed, and kinds of changes."""
_DOCUMENT = ("{", "[", "<")
"""How a text begins that is JSON or XML, which another text for a key would damage."""
_FILL = {"_value": " ", "_content": " "}
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


def key_columns(samples: Sequence[SourceSample], groups: Mapping[Column, str] | None = None) -> frozenset[Column]:
    """Return the columns whose values get another value in each cycle, as (table, column).

    These are the keys of each source, the columns that refer to a key of another source, and those with which sources
    are joined with each other: columns that a statement equates have the same group in `groups`. If these did not
    change, each row would match those of all earlier cycles, and the state of joins would grow with their product.
    """
    values = {
        (sample.table, name): [row[name] for row in sample.rows if row.get(name) is not None]
        for sample in samples
        for name, kind in sample.columns
        if _is_keyed(kind) and name not in _FIXED
    }
    distinct = {column: frozenset(map(str, found)) for column, found in values.items()}
    keys = {
        column
        for column, found in values.items()
        if len(found) >= LEAST_KEYS
        and len(distinct[column]) >= DISTINCT * len(found)
        and not str(found[0]).startswith(_DOCUMENT)
    }
    refers = {
        column
        for column in values.keys() - keys
        for key in keys
        if key[0] != column[0] and _refers(distinct[column], distinct[key])
    }
    return frozenset(keys | refers | _joined_streams(samples, groups or {}))


def _joined_streams(samples: Sequence[SourceSample], groups: Mapping[Column, str]) -> set[Column]:
    """Return the columns of numbers and text, also in lists, that are equated with one of another sample."""
    mine = [(each.table, name) for each in samples for name, kind in each.columns if _is_keyed(_scalar(kind))]
    tables = {(groups[column], column[0]) for column in mine if column in groups}
    shared = {group for group, count in Counter(group for group, _ in tables).items() if count > 1}
    return {column for column in mine if groups.get(column) in shared}


def _scalar(kind: str) -> str:
    return element_type(kind) if kind.startswith("array<") else kind


def _is_keyed(kind: str) -> bool:
    return kind in INTEGERS or kind.startswith(_TEXT)


def _refers(values: frozenset[str], key: frozenset[str]) -> bool:
    common = len(values & key)
    return common >= COVERED * len(key) and common >= 0.8 * len(values)


@dataclass(frozen=True, slots=True)
class JoinedValues:
    """The values of a column that is joined with a static side, which are taken from that side."""

    values: Sequence[object]
    """Those of the static side, as the column has them."""
    places: Mapping[str, int]
    """For the text of each value of the sample that finds a match, the place of it in `values`."""
    step: int
    """By how many places a value moves on in each cycle, so that keys do not repeat at once; 0 if they stay."""

    def value(self, of: object, cycle: int) -> object | None:
        """Return what a value of the sample is in a cycle, counted from 0; None if it finds no match."""
        place = self.places.get(str(of))
        return None if place is None else self.values[(place + cycle * self.step) % len(self.values)]


def joined_values(
    streamed: Sequence[SourceSample],
    static: Sequence[SourceSample],
    groups: Mapping[Column, str],
    keys: frozenset[Column],
) -> dict[Column, JoinedValues]:
    """Return the values of each streamed column that a statement equates with one of a static side.

    Columns that are equated have the same group in `groups`. A value that the static side has stays, so that as many
    rows match as in the samples. Others get a match only if no value has one, or if one of the samples is made up. In
    each cycle, keys move on through the values of the static side, unless several columns together are joined with it.
    """
    of_sides = [(side.table, name) for side in static for name, _ in side.columns if (side.table, name) in groups]
    joined_by = Counter(table for table, group in {(table, groups[table, name]) for table, name in of_sides})
    made_up = {sample.table for sample in (*streamed, *static) if sample.made_up}
    found: dict[Column, JoinedValues] = {}
    for group in sorted({groups[column] for column in of_sides}):
        sides = [column for column in of_sides if groups[column] == group]
        mine = [
            (each.table, name)
            for each in streamed
            for name, _ in each.columns
            if groups.get((each.table, name)) == group
        ]
        values = _in_all([_distinct(static, column) for column in sides])
        texts = dict.fromkeys(text for column in mine for text in _distinct(streamed, column))
        at = {text: place for place, text in enumerate(values)}
        draws = not at.keys() & texts.keys() or any(table in made_up for table, _ in (*sides, *mine))
        places = {
            text: at.get(text, number % len(values))
            for number, text in enumerate(texts)
            if values and (text in at or draws)
        }
        moves = any(column in keys for column in mine) and all(joined_by[table] == 1 for table, _ in sides)
        kinds = {(each.table, name): kind for each in streamed for name, kind in each.columns}
        for column in mine:
            if places and (typed := _typed(values, kinds[column])):
                found[column] = JoinedValues(typed, places, len(places) if moves else 0)
    return found


def begun_at(rows: Sequence[Row], column: str, at: datetime) -> tuple[Row, ...]:
    """Return rows whose times are moved by the same duration, so that the earliest time in a column is `at`."""
    known = [value for row in rows if isinstance(value := row.get(column), datetime)]
    if not known:
        return tuple(rows)
    moved = at.replace(tzinfo=None) - min(each.replace(tzinfo=None) for each in known)
    return tuple(
        {name: value + moved if isinstance(value, datetime) else value for name, value in row.items()} for row in rows
    )


def _distinct(samples: Sequence[SourceSample], column: Column) -> dict[str, None]:
    """Return the texts of a column's values, in the order in which they occur first."""
    (sample,) = [each for each in samples if each.table == column[0]]
    return dict.fromkeys(str(value) for row in sample.rows if (value := row.get(column[1])) is not None)


def _in_all(found: Sequence[Mapping[str, None]]) -> list[str]:
    """Return the texts that all static sides have or, if there are none, those of the first one."""
    common = [text for text in found[0] if all(text in each for each in found)]
    return common or list(found[0])


def _typed(values: Sequence[str], kind: str) -> list[object]:
    """Return texts as values of a type; empty if they are not of that type."""
    if kind in INTEGERS:
        whole = all(whole_number(each.removeprefix("-")) is not None for each in values)
        return [int(each) for each in values] if whole else []
    return list(values) if _is_keyed(kind) else []


@dataclass(slots=True)
class ReplayedLoad:
    """Load from the samples of all sources that are written to."""

    samples: Mapping[TableName, SourceSample]
    keys: frozenset[Column]
    padding: Mapping[TableName, tuple[str, int]] = field(default_factory=dict)
    """A text column of a source and the length to which it is filled up, for records of a given size."""
    joined: Mapping[Column, JoinedValues] = field(default_factory=dict)
    """Columns that are joined with static sides, with the values that they have."""
    _span: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        numbers = [
            abs(value)
            for sample in self.samples.values()
            for row in sample.rows
            for name, listed in row.items()
            if (sample.table, name) in self.keys
            for value in (listed if isinstance(listed, list) else [listed])
            if isinstance(value, int)
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
            elif (own_of := self.joined.get((sample.table, name))) and (
                drawn := own_of.value(value, cycle)
            ) is not None:
                found[name] = drawn
            elif cycle and (sample.table, name) in self.keys:
                found[name] = self._renamed(value, kind, cycle)
        if sample.table in self.padding:
            name, length = self.padding[sample.table]
            found[name] = str(found.get(name) or "").ljust(length, _FILL.get(name, "x"))
        return found

    def _renamed(self, value: object, kind: str, cycle: int) -> object:
        if isinstance(value, list):
            return [self._renamed(each, element_type(kind), cycle) for each in value]
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
