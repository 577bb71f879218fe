"""Places at which a statement can begin to read later: a time, a partition, a version of what it streams."""

from collections.abc import Iterator, Mapping

from core.model.actions import Strategy
from core.model.names import TableName
from core.plan.request import COMMITTED
from core.planner.event_time import EventTime, event_time_of, is_time, partition_of
from core.planner.log_start_positions import has_log_starts, is_log_start, why_not_in_log
from core.planner.refusals import StrategyRefusal
from core.project.model import Table
from core.text.sentence import Fact


def partial_notes(tables: Mapping[TableName, Table], table: Table) -> Iterator[tuple[str, str]]:
    """Yield the strategy that reads a part of what there is, with by what the part is told; nothing where none is."""
    event = event_time_of(table, tables)
    if event is not None:
        where = f"by {', '.join(f'{parent}.{column}' for parent, column in event.columns)}"
        yield Strategy.PARTIAL, where + _at_the_edge(table, event)
    elif partitions := partitions_of(tables, table):
        yield Strategy.PARTIAL, f"by partition: {', '.join(partitions)}"
    elif has_log_starts(tables, table):
        state = "; what its state would hold from before is missing" if table.parsed and table.parsed.stateful else ""
        yield Strategy.PARTIAL, f"by version, or by the time of commits{state}"


def begins_by_rows(tables: Mapping[TableName, Table], table: Table) -> bool:
    """Return whether a place to begin can be told from what its rows hold, not only from when they came."""
    return event_time_of(table, tables) is not None or bool(partitions_of(tables, table))


def _at_the_edge(table: Table, event: EventTime) -> str:
    """Return what is to be known of where a part begins; a window that reaches over it lacks rows."""
    if event.slide and event.slide >= event.length:
        return ", aligned to the start of a window"
    if event.slide:
        return ", aligned to the start of a window; windows that began before and end after it lack their earlier rows"
    stateful = table.parsed is not None and table.parsed.stateful
    return "; what its state would hold from before is missing" if stateful else ""


def not_partial(tables: Mapping[TableName, Table], table: Table, at: str) -> Fact[StrategyRefusal] | None:
    """Return why a statement cannot begin at a place; None where it can."""
    if not at:
        return StrategyRefusal.NO_PLACE.of()
    if is_log_start(at):
        return why_not_in_log(tables, table, at)
    if is_time(at):
        if event_time_of(table, tables) is not None:
            return None
        why = StrategyRefusal.NO_EVENT_TIME.of()
        commits = StrategyRefusal.NO_EVENT_TIME_BUT_COMMITS.of(why=why, committed=f"{COMMITTED}{at}")
        return commits if has_log_starts(tables, table) else why
    pair = partition_of(at)
    if pair is None:
        return StrategyRefusal.NO_SUCH_PLACE.of(at=at)
    known = pair[0].lower() in partitions_of(tables, table)
    return None if known else StrategyRefusal.NOT_PARTITIONED_BY.of(column=pair[0])


def partitions_of(tables: Mapping[TableName, Table], table: Table) -> tuple[str, ...]:
    """Return the columns by which all tables that it streams are partitioned, in lower case."""
    streamed = {read.table for read in table.parsed.reads if read.streaming} if table.parsed else set()
    found = [
        {c.lower() for c in tables[name].parsed_ddl.partitioning} if name in tables else set() for name in streamed
    ]
    return tuple(sorted(set.intersection(*found))) if found else ()
