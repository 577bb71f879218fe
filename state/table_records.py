"""The rows of the ledger that make up the history of one table, read in one snapshot."""

from collections.abc import Iterable
from dataclasses import dataclass

from core.model.names import TableName
from core.observed.versions import serving_version
from core.run.records import RunRow
from state.ledger import LedgerReader
from state.row_types import AuditRow, CommandRow, EventRow, PlanRow


@dataclass(frozen=True, slots=True)
class TableRecords:
    """The ledger's rows about a table. Rows of each kind are sorted newest first."""

    table: TableName
    events: tuple[EventRow, ...] = ()
    """Events of the table's versions, and events of the environment, whose `table` is empty."""
    runs: tuple[RunRow, ...] = ()
    """Runs that may change the table."""
    plans: tuple[PlanRow, ...] = ()
    """The plans of the runs in `runs`."""
    upstream: tuple[EventRow, ...] = ()
    """Events of all tables upstream of the table's serving version."""
    commands: tuple[CommandRow, ...] = ()
    audits: tuple[AuditRow, ...] = ()


def read_table_records(reader: LedgerReader, table: TableName, limit: int) -> TableRecords:
    """Read the ledger's latest rows about a table in one snapshot. Each query returns at most `limit` rows."""
    with reader.frame():
        runs = reader.runs_of(table, limit)
        plans = tuple(plan for each in dict.fromkeys(run.plan_hash for run in runs) if (plan := reader.plan(each)))
        events = (*reader.events(table, limit), *reader.events(TableName(""), limit))
        subjects = subjects_of(reader, table, limit)
        commands, audits = reader.commands_about(subjects, limit), reader.audits_about(subjects, limit)
        upstream = [event for each in _upstream(reader, table) for event in reader.events(each, limit)]
        return TableRecords(
            table,
            _newest_first(events),
            runs=runs,
            plans=plans,
            upstream=_newest_first(upstream),
            commands=commands,
            audits=audits,
        )


def _newest_first(events: Iterable[EventRow]) -> tuple[EventRow, ...]:
    return tuple(sorted(events, key=lambda event: (event.at, event.id), reverse=True))


def _upstream(reader: LedgerReader, table: TableName) -> tuple[TableName, ...]:
    found: set[TableName] = set()
    open_ = [table]
    while open_:
        serving = serving_version(reader.versions(open_.pop()))
        reads = {binding.parent for binding in serving.bindings} - found - {table} if serving else set()
        found |= reads
        open_ += reads
    return tuple(sorted(found))


def subjects_of(reader: LedgerReader, table: TableName, limit: int) -> tuple[str, ...]:
    """Return the subjects under which logs mention a table: its name, its runs' ids and its plans' short hashes."""
    runs = reader.runs_of(table, limit)
    hashes = {run.plan_hash for run in runs} | set(reader.plans_about(table, limit))
    # Commands refer to plans by the first twelve characters of the hash, and to runs by the whole id.
    return (table, *sorted({run.id for run in runs} | {plan_hash[:12] for plan_hash in hashes}))
