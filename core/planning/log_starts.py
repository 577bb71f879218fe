"""Where in the log of what it streams a statement can begin: at a version, or with what was committed from a time on.

What begins so reads no row from before, whatever its event time is; nothing is filtered, and no window is looked at.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from core.model.names import TableName, whole_number
from core.model.table_formats import table_format
from core.observed.log_history import LogHistory
from core.plan.request import COMMITTED
from core.planning.event_time import epoch_of
from core.project.model import Table
from core.sql.log_starts import AT_TIME, AT_VERSION, LogStart

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


def why_not_in_log(tables: Mapping[TableName, Table], table: Table, at: str) -> str:
    """Explain why a statement cannot begin at a place in the log of what it streams; empty where it can."""
    streamed = _streamed(table)
    for name in streamed:
        format = table_format(tables[name].parsed_ddl.format) if name in tables else table_format("")
        if not format.starts_at_versions:
            return f"{name} has no versions to begin at: its format is {format.name or 'unknown'}"
    if whole_number(at) is not None and len(streamed) > 1:
        return f"a version is one table's, and it streams {', '.join(streamed)}: use partial@{COMMITTED}TIME"
    if whole_number(at) is None and epoch_of(at.removeprefix(COMMITTED)) is None:
        return f"{at.removeprefix(COMMITTED)} is not a time: {COMMITTED}2026-01-02T03:04Z"
    for read in table.parsed.reads if table.parsed else ():
        said = [key for key, _ in read.options if key.lower() in (AT_VERSION.lower(), AT_TIME.lower())]
        if said:
            return f"its own text says {said[0]}"
    return ""


def why_not_kept(table: Table, at: str, histories: Histories) -> str:
    """Explain what is missing of the logs from a place on, or that they end before it; empty where nothing is known
    to be."""
    for name in _streamed(table):
        history = histories(name)
        if history is None:
            continue
        if (
            why := _why_version(name, int(at), history)
            if whole_number(at) is not None
            else _why_time(name, at, history)
        ):
            return why
    return ""


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


def _why_version(name: TableName, version: int, history: LogHistory) -> str:
    if version > history.last:
        return f"{name} ends with version {history.last}; seeded@now begins with what comes"
    if version >= history.first:
        return ""
    last = history.first - 1
    gone = f"version {version} of {name} is" if version == last else f"versions {version} to {last} of {name} are"
    return f"{gone} missing: its log begins with version {history.first}"


def _why_time(name: TableName, at: str, history: LogHistory) -> str:
    epoch = epoch_of(at.removeprefix(COMMITTED))
    if epoch is None:
        return ""
    if epoch > history.last_at:
        return f"nothing of {name} was committed since {_day(history.last_at)}; seeded@now begins with what comes"
    if epoch >= history.first_at or history.first == 0:
        return ""
    begins = f"version {history.first} of {_day(history.first_at)}"
    return f"what was committed to {name} before is missing: its log begins with {begins}"


def _streamed(table: Table) -> tuple[TableName, ...]:
    reads = table.parsed.reads if table.parsed else ()
    return tuple(dict.fromkeys(read.table for read in reads if read.streaming))


def _day(epoch: float) -> str:
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
