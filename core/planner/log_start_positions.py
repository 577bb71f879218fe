"""Where in the log of what it streams a statement can begin: at a version, or with what was committed from a time on.

What begins so reads no row from before, whatever its event time is; nothing is filtered, and no window is looked at.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from core.model.names import TableName, whole_number
from core.model.table_formats import table_format
from core.observed.log_history import LogHistory
from core.plan.request import COMMITTED
from core.planner.event_time import epoch_of
from core.planner.refusals import StrategyRefusal
from core.project.model import Table
from core.sql.log_starts import AT_TIME, AT_VERSION, LogStart
from core.text.sentence import Fact

Histories = Callable[[TableName], LogHistory | None]
"""What is known of the log of what serves a table."""


def is_log_start(at: str) -> bool:
    """Return whether a place to begin is a version, or a time of commits."""
    return whole_number(at) is not None or at.startswith(COMMITTED)


def log_starts(table: Table, at: str) -> tuple[LogStart, ...]:
    """Return where each stream of a statement begins, by table."""
    option, value = (AT_VERSION, at) if whole_number(at) is not None else (AT_TIME, at.removeprefix(COMMITTED))
    return tuple(LogStart(name, option, value) for name in _streamed(table))


def has_log_starts(tables: Mapping[TableName, Table], table: Table) -> bool:
    """Return whether all that a statement streams has a log at whose versions it can begin."""
    streamed = _streamed(table)
    return bool(streamed) and all(
        n in tables and table_format(tables[n].parsed_ddl.format).starts_at_versions for n in streamed
    )


def why_not_in_log(tables: Mapping[TableName, Table], table: Table, at: str) -> Fact[StrategyRefusal] | None:
    """Return why a statement cannot begin at a place in the log of what it streams; None where it can."""
    streamed = _streamed(table)
    for name in streamed:
        format = table_format(tables[name].parsed_ddl.format) if name in tables else table_format("")
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


def why_not_kept(table: Table, at: str, histories: Histories) -> Fact[StrategyRefusal] | None:
    """Return what is missing of the logs from a place on, or that they end before it; None where nothing is known to
    be."""
    version = whole_number(at)
    known = ((name, histories(name)) for name in _streamed(table))
    found = (
        _why_version(name, version, history) if version is not None else _why_time(name, at, history)
        for name, history in known
        if history is not None
    )
    return next((why for why in found if why is not None), None)


def rows_from(table: Table, at: str, histories: Histories) -> int | None:
    """Count the rows that a statement reads from a place on; None where a log does not say it."""
    total = 0
    for name in _streamed(table):
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


def _streamed(table: Table) -> tuple[TableName, ...]:
    reads = table.parsed.reads if table.parsed else ()
    return tuple(dict.fromkeys(read.table for read in reads if read.streaming))


def _day(epoch: float) -> str:
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
