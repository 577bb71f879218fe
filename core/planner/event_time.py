"""Where in event time a statement can begin: its windows, the columns that tell the time, and the filter of a part."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from core.model.names import TableName
from core.project.model import Table
from core.sql.statement import TableRead
from core.text.escaping import quoted_name

_WINDOW = re.compile(r"(?<!_)\bwindow\(([^,]+), '([^']+)'(?:, '([^']+)')?(?:, '([^']+)')?\)")
_SPAN = re.compile(r"([0-9]{1,9}) (millisecond|second|minute|hour|day|week)s?")
_METADATA = re.compile(r"\b_metadata\b", re.I)
"""A hidden column of files, which does not pass the filter."""
_PARTITION = re.compile(r"([A-Za-z_]\w*)=([^']+)\Z")


@dataclass(frozen=True, slots=True)
class EventTime:
    """What tells the time of a statement's rows."""

    columns: tuple[tuple[TableName, str], ...]
    """Streamed parents, each with its column, or the expression over its columns that tells the time."""
    slide: timedelta = timedelta(0)
    """How far the starts of its windows are apart; zero where it has none."""
    length: timedelta = timedelta(0)
    """How long a window is; zero where it has none."""
    offset: timedelta = timedelta(0)
    """Of the first window's start, from midnight of 1970 in UTC, where Spark counts them from."""
    zoneless: frozenset[TableName] = frozenset()
    """Parents whose column has no time zone: Spark would compare it with a moment by the session's own zone."""

    def aligned(self, at: str) -> str:
        """Return the start of the earliest window that begins at or after a time: an earlier one would lack rows."""
        moment = _moment(at)
        if moment is None or not self.slide:
            return at
        behind = (moment - _EPOCH - self.offset) % self.slide
        return _written(moment + self.slide - behind if behind else moment)

    def conditions(self, at: str) -> dict[TableName, str]:
        """Write the condition of each streamed parent that leaves out what came before a time."""
        return {
            table: f"{column} >= TIMESTAMP_NTZ '{at.removesuffix('Z')}'"
            if table in self.zoneless
            else f"{column} >= TIMESTAMP '{at}'"
            for table, column in self.columns
        }


def event_time_of(table: Table, tables: Mapping[TableName, Table]) -> EventTime | None:
    """Find what tells the time: watermarks, else the window's column, else the one timestamp of the one parent."""
    statement = table.parsed
    streamed = tuple(read for read in statement.reads if read.streaming) if statement else ()
    if statement is None or not streamed:
        return None
    windows = [found for operator in statement.operators for key in operator.keys for found in _WINDOW.finditer(key)]
    every, length, offset = _steps(windows[0]) if windows else (timedelta(0), timedelta(0), timedelta(0))
    if every is None or _METADATA.search(statement.select):
        return None
    columns = _columns(streamed, windows, tables, stateful=statement.stateful)
    zoneless = frozenset(table for table, column in columns if _type_of(column, table, tables) == "timestamp_ntz")
    return EventTime(columns, every, length, offset, zoneless) if columns else None


def _columns(
    streamed: Sequence[TableRead],
    windows: Sequence["re.Match[str]"],
    tables: Mapping[TableName, Table],
    *,
    stateful: bool,
) -> tuple[tuple[TableName, str], ...]:
    if all(read.watermark for read in streamed):
        # An expression is told by its own text: the name that it gets is not a column of the table.
        return tuple((r.table, r.watermark.column.partition(" AS ")[0]) for r in streamed if r.watermark)
    parent = streamed[0].table
    if len(streamed) > 1:
        return ()
    if windows:
        column = windows[0][1].rpartition(".")[2]
        return ((parent, column),) if _type_of(column, parent, tables) else ()
    declared = tables[parent].parsed_ddl.columns if parent in tables else ()
    times = [column.name for column in declared if column.type in ("timestamp", "timestamp_ntz", "timestamp_ltz")]
    return ((parent, quoted_name(times[0])),) if len(times) == 1 and not stateful else ()


def _type_of(column: str, table: TableName, tables: Mapping[TableName, Table]) -> str:
    """Return the declared type of a table's column; empty where it is none."""
    declared = tables[table].parsed_ddl.columns if table in tables else ()
    return next((each.type for each in declared if quoted_name(each.name).lower() == column.lower()), "")


def is_time(at: str) -> bool:
    """Return whether a place to begin is a time."""
    return _moment(at) is not None


def epoch_of(at: str) -> float | None:
    """Return a time as epoch seconds, None for any other place."""
    moment = _moment(at)
    return moment.timestamp() if moment is not None else None


def partition_of(at: str) -> tuple[str, str] | None:
    """Read `column=value`; None for any other place."""
    found = _PARTITION.match(at)
    return (found[1], found[2]) if found else None


def _steps(found: "re.Match[str]") -> tuple[timedelta | None, timedelta, timedelta]:
    every, length = _span(found[3] or found[2]), _span(found[2])
    offset = _span(found[4]) if found[4] else timedelta(0)
    known = every and length and offset is not None
    return (every, length or timedelta(0), offset or timedelta(0)) if known else (None, timedelta(0), timedelta(0))


def _span(text: str) -> timedelta | None:
    """Read an interval of fixed length; None for months, and whatever else cannot be told."""
    parts = _SPAN.findall(text.lower())
    if not parts or _SPAN.sub("", text.lower()).strip():
        return None
    return sum((timedelta(**{f"{unit}s": int(number)}) for number, unit in parts), timedelta(0))


def _moment(at: str) -> datetime | None:
    if at[4:5] != "-":
        return None
    try:
        found = datetime.fromisoformat(at)
    except ValueError:
        return None
    return found.replace(tzinfo=found.tzinfo or UTC).astimezone(UTC)


def _written(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
