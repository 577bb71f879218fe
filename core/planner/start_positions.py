"""Start positions of a statement: an event time, a partition, or a version or commit time of a transaction log.

A start at a version or commit time skips all earlier commits, whatever event times their rows have. Such a start needs
neither a filter nor a window.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from core.model.actions import Strategy
from core.model.names import TableName, whole_number
from core.model.table_formats import table_format
from core.observed.table_statistics import LogHistory
from core.plan.request import COMMITTED
from core.planner.strategy_refusal_kinds import StrategyNote, StrategyRefusal
from core.project.model import Table
from core.sql.statement import AT_TIME, AT_VERSION, LogStart, TableRead
from core.text.escaping import quoted_name
from core.text.sentence import Fact

_WINDOW = re.compile(r"(?<!_)\bwindow\(([^,]+), '([^']+)'(?:, '([^']+)')?(?:, '([^']+)')?\)")
_SPAN = re.compile(r"([0-9]{1,9}) (millisecond|second|minute|hour|day|week)s?")
_METADATA = re.compile(r"\b_metadata\b", re.I)
"""Matches the hidden column of file sources, which is not available in a query filtered by a start position."""
_PARTITION = re.compile(r"([A-Za-z_]\w*)=([^']+)\Z")


@dataclass(frozen=True, slots=True)
class EventTime:
    """The event-time columns of a statement's inputs, and the statement's windows over event time."""

    columns: tuple[tuple[TableName, str], ...]
    """Streamed parents, each with its event-time column or expression."""
    slide: timedelta = timedelta(0)
    """Distance between the starts of consecutive windows; zero without windows."""
    length: timedelta = timedelta(0)
    """Length of a window; zero without windows."""
    offset: timedelta = timedelta(0)
    """Offset of the window starts from 1970-01-01 00:00 UTC."""
    zoneless: frozenset[TableName] = frozenset()
    """Parents whose event-time column has no time zone; Spark would compare it in the session's time zone."""

    def aligned(self, at: str) -> str:
        """Return the first window start at or after a time, because an earlier window would lack some rows."""
        moment = _moment(at)
        if moment is None or not self.slide:
            return at
        behind = (moment - _EPOCH - self.offset) % self.slide
        return _written(moment + self.slide - behind if behind else moment)

    def conditions(self, at: str) -> dict[TableName, str]:
        """Return, for each streamed parent, the SQL condition that selects the rows at or after a time."""
        return {
            table: f"{column} >= TIMESTAMP_NTZ '{at.removesuffix('Z')}'"
            if table in self.zoneless
            else f"{column} >= TIMESTAMP '{at}'"
            for table, column in self.columns
        }


def event_time_of(table: Table, tables: Mapping[TableName, Table]) -> EventTime | None:
    """Return the event-time columns and windows of a statement; None if unknown.

    A column is known from a watermark, from a window, or as the only timestamp column of the only streamed parent.
    """
    statement = table.parsed
    streamed = tuple(read for read in statement.reads if read.streaming) if statement else ()
    if statement is None or not streamed:
        return None
    windows = [found for operator in statement.operators for key in operator.keys for found in _WINDOW.finditer(key)]
    every, length, offset = _steps(windows[0]) if windows else (timedelta(0), timedelta(0), timedelta(0))
    if every is None or ("metadata" in statement.select.lower() and _METADATA.search(statement.select)):
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
        # The alias of an expression is not a column of the table, so the condition uses the expression.
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
    declared = tables[table].parsed_ddl.columns if table in tables else ()
    wanted = column.lower()
    return next((each.type for each in declared if quoted_name(each.name).lower() == wanted), "")


def is_time(at: str) -> bool:
    """True if a start position is an event time."""
    return _moment(at) is not None


def epoch_of(at: str) -> float | None:
    """Return an event time in epoch seconds; None for any other start position."""
    moment = _moment(at)
    return moment.timestamp() if moment is not None else None


def partition_of(at: str) -> tuple[str, str] | None:
    """Return the column and value of a start position `column=value`; None for any other start position."""
    found = _PARTITION.match(at)
    return (found[1], found[2]) if found else None


def _steps(found: "re.Match[str]") -> tuple[timedelta | None, timedelta, timedelta]:
    every, length = _span(found[3] or found[2]), _span(found[2])
    offset = _span(found[4]) if found[4] else timedelta(0)
    known = every and length and offset is not None
    return (every, length or timedelta(0), offset or timedelta(0)) if known else (None, timedelta(0), timedelta(0))


def _span(text: str) -> timedelta | None:
    """Return the length of an interval such as `5 minutes`; None if it varies, as with months."""
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


Histories = Callable[[TableName], LogHistory | None]
"""Function that returns the log history of a table's serving version; None if unknown."""


def streams_of(table: Table) -> tuple[TableName, ...]:
    """Return the tables that a statement streams, without duplicates, in the order of its text."""
    reads = table.parsed.reads if table.parsed else ()
    return tuple(dict.fromkeys(read.table for read in reads if read.streaming))


def is_log_start(at: str) -> bool:
    """True if a start position is a version or a commit time."""
    return whole_number(at) is not None or at.startswith(COMMITTED)


def has_arrival_starts(tables: Mapping[TableName, Table], table: Table) -> bool:
    """True if every stream of a statement reads topics, or files without a log, which have a time of arrival each."""
    streamed = streams_of(table)
    formats = [table_format(tables[name].parsed_ddl.format) for name in streamed if name in tables]
    by_arrival = [each.topics or (each.has_files and not each.transaction_log) for each in formats]
    return bool(streamed) and len(formats) == len(streamed) and all(by_arrival)


def log_starts(table: Table, at: str) -> tuple[LogStart, ...]:
    """Return the log position at which each stream of a statement starts."""
    option, value = (AT_VERSION, at) if whole_number(at) is not None else (AT_TIME, at.removeprefix(COMMITTED))
    return tuple(LogStart(name, option, value) for name in streams_of(table))


def has_log_starts(tables: Mapping[TableName, Table], table: Table) -> bool:
    """True if every stream of a statement can start at a version of its table's log."""
    streamed = streams_of(table)
    return bool(streamed) and all(
        n in tables and table_format(tables[n].parsed_ddl.format).starts_at_versions for n in streamed
    )


def why_no_log_start(tables: Mapping[TableName, Table], table: Table, at: str) -> Fact[StrategyRefusal] | None:
    """Return why a statement cannot start at a version or commit time; None if it can."""
    streamed = streams_of(table)
    for name in streamed:
        format = table_format(tables[name].parsed_ddl.format) if name in tables else table_format("")
        if format.topics and at.startswith(COMMITTED):
            return StrategyRefusal.TIME_OF_TOPICS.of(table=name, at=at)
        if format.has_files and not format.transaction_log and at.startswith(COMMITTED):
            return StrategyRefusal.TIME_OF_FILES.of(table=name, at=at)
        if not format.starts_at_versions:
            return StrategyRefusal.NO_VERSIONS.of(table=name, format=format.name or "unknown")
    if whole_number(at) is not None and len(streamed) > 1:
        return StrategyRefusal.SEVERAL_VERSIONS.of(tables=streamed, committed=COMMITTED)
    if whole_number(at) is None and epoch_of(at.removeprefix(COMMITTED)) is None:
        return StrategyRefusal.NOT_A_TIME.of(at=at.removeprefix(COMMITTED), committed=COMMITTED)
    for read in table.parsed.reads if table.parsed else ():
        said = [key for key, _ in read.options if key.lower() in (AT_VERSION.lower(), AT_TIME.lower())]
        if said:
            return StrategyRefusal.TEXT_SAYS.of(option=said[0])
    return None


def why_logs_beside_files(tables: Mapping[TableName, Table], table: Table) -> Fact[StrategyRefusal] | None:
    """Return a refusal if some streams of a statement start by commits and others by arrival; None otherwise."""
    formats = {name: table_format(tables[name].parsed_ddl.format) for name in streams_of(table) if name in tables}
    logs = tuple(name for name, format in formats.items() if format.starts_at_versions)
    others = tuple(name for name in formats if name not in logs)
    return StrategyRefusal.LOGS_BESIDE_FILES.of(logs=logs, others=others) if logs and others else None


def why_log_incomplete(table: Table, at: str, histories: Histories) -> Fact[StrategyRefusal] | None:
    """Return why a log does not cover a start position: commits from there on are missing, or the log ends before it.

    None if the log covers the position, or if the log is unknown.
    """
    version = whole_number(at)
    known = ((name, histories(name)) for name in streams_of(table))
    found = (
        _why_version(name, version, history) if version is not None else _why_time(name, at, history)
        for name, history in known
        if history is not None
    )
    return next((why for why in found if why is not None), None)


def rows_from(table: Table, at: str, histories: Histories) -> int | None:
    """Return how many rows a statement reads if it starts at a position; None if a log does not record the number."""
    total = 0
    for name in streams_of(table):
        history = histories(name)
        epoch = 0.0 if whole_number(at) is not None else epoch_of(at.removeprefix(COMMITTED)) or 0.0
        rows = (
            None
            if history is None
            else history.rows_from(int(at))
            if whole_number(at) is not None
            else history.rows_since(epoch)
        )
        if rows is None:
            return None
        total += rows
    return total


def _why_version(name: TableName, version: int, history: LogHistory) -> Fact[StrategyRefusal] | None:
    first = history.first
    if version > history.last:
        return StrategyRefusal.LOG_ENDS.of(table=name, version=history.last)
    if version >= first:
        return None
    if version == first - 1:
        return StrategyRefusal.VERSION_GONE.of(version=version, table=name, first=first)
    return StrategyRefusal.VERSIONS_GONE.of(version=version, last=first - 1, table=name, first=first)


def _why_time(name: TableName, at: str, history: LogHistory) -> Fact[StrategyRefusal] | None:
    epoch = epoch_of(at.removeprefix(COMMITTED))
    if epoch is None:
        return None
    if epoch > history.last_at:
        return StrategyRefusal.NO_COMMIT_SINCE.of(table=name, time=_day(history.last_at))
    if epoch >= history.first_at or history.first == 0:
        return None
    return StrategyRefusal.COMMITS_GONE.of(table=name, first=history.first, time=_day(history.first_at))


def _day(epoch: float) -> str:
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def partial_notes(tables: Mapping[TableName, Table], table: Table) -> Iterator[tuple[str, Fact[StrategyNote] | None]]:
    """Yield PARTIAL with a note on the start positions that the statement supports.

    Yields nothing if it supports none.
    """
    stateful = table.parsed is not None and table.parsed.stateful
    event = event_time_of(table, tables)
    if event is not None:
        yield (
            Strategy.PARTIAL,
            _kind_by_time(event, stateful=stateful).of(
                columns=tuple(f"{parent}.{column}" for parent, column in event.columns)
            ),
        )
    elif partitions := partitions_of(tables, table):
        yield Strategy.PARTIAL, StrategyNote.BY_PARTITION.of(columns=partitions)
    elif has_log_starts(tables, table):
        yield Strategy.PARTIAL, (StrategyNote.BY_COMMIT_WITH_STATE if stateful else StrategyNote.BY_COMMIT).of()


def _kind_by_time(event: EventTime, *, stateful: bool) -> StrategyNote:
    if event.slide:
        return StrategyNote.BY_WINDOW if event.slide >= event.length else StrategyNote.BY_SLIDING_WINDOW
    return StrategyNote.BY_TIME_WITH_STATE if stateful else StrategyNote.BY_TIME


def begins_by_rows(tables: Mapping[TableName, Table], table: Table) -> bool:
    """True if a statement can start at an event time or a partition, and not only at a log position."""
    return event_time_of(table, tables) is not None or bool(partitions_of(tables, table))


def why_not_partial(tables: Mapping[TableName, Table], table: Table, at: str) -> Fact[StrategyRefusal] | None:
    """Return why a statement cannot start at the position `at`; None if it can."""
    if not at:
        return StrategyRefusal.NO_START_POSITION.of()
    if is_log_start(at):
        return why_no_log_start(tables, table, at)
    if is_time(at):
        if event_time_of(table, tables) is not None:
            return None
        why = StrategyRefusal.NO_EVENT_TIME.of()
        commits = StrategyRefusal.NO_EVENT_TIME_BUT_COMMITS.of(why=why, committed=f"{COMMITTED}{at}")
        return commits if has_log_starts(tables, table) else why
    pair = partition_of(at)
    if pair is None:
        return StrategyRefusal.NO_SUCH_START_POSITION.of(at=at)
    known = pair[0].lower() in partitions_of(tables, table)
    return None if known else StrategyRefusal.NOT_PARTITIONED_BY.of(column=pair[0])


def partitions_of(tables: Mapping[TableName, Table], table: Table) -> tuple[str, ...]:
    """Return the columns, in lower case, by which all streamed tables of a statement are partitioned."""
    streamed = {read.table for read in table.parsed.reads if read.streaming} if table.parsed else set()
    found = [
        {c.lower() for c in tables[name].parsed_ddl.partitioning} if name in tables else set() for name in streamed
    ]
    return tuple(sorted(set.intersection(*found))) if found else ()
