"""The commands `events`, `logs` and `audit`."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, TextIO

from core.model.errors import UsageError
from core.model.names import TableName, parse_statement_name, parse_table_name, query_name, split_query
from core.text.wording import counted
from state.row_types import AuditRow, EventRow
from state.table_records import subjects_of
from tui.agent_client import agent_process
from tui.command_line.context import CommandContext
from tui.presentation.screen_content.audit_log_events import AUDIT, EVENTS, Record, record_cells
from tui.presentation.styling.table_layout import TableColumn, format_records
from tui.presentation.view.pools import pool_named
from tui.project_folder.environment_selection import has_ledger


def events(context: CommandContext) -> int:
    """List events, oldest first. With `--follow`, print new events until interrupted."""
    args, output = context.args, context.output
    table = parse_table_name(args.tables) if args.tables else None
    reader = context.operations.reader
    if table and not reader.versions(table):
        raise UsageError(f"{table} has never been deployed here", remedy="headgate ls lists the tables")
    found = tuple(reversed(reader.events(table, args.limit)))
    if output.as_json:
        output.data([_event_as_json(event) for event in found])
        return 0
    output.print(_printed(EVENTS, found))
    if args.follow:
        _follow_events(context, table, {event.id: event.count for event in found})
    return 0


def logs(context: CommandContext) -> int:
    """Print the last lines of the log of agent, pool or a job. With `--follow`, print new lines until interrupted."""
    args, output = context.args, context.output
    where = context.place.where
    if args.job is not None:
        if args.of != "agent":
            raise UsageError(f"--job and {args.of} name two logs", remedy="leave out one of them")
        path = _job_log(context)
    else:
        if args.pool is not None and args.of != "pool":
            raise UsageError(f"{args.pool} names a pool", remedy=f"headgate logs pool {args.pool}")
        path = where.of_pool(_place_of_pool(context)).log if args.of == "pool" else where.agent_log
        has_ledger(context.place)
        if not os.path.exists(path):
            raise UsageError(f"there is no {args.of} log yet ({path})", remedy="headgate doctor --paths")
    found = agent_process.log_tail(path, args.limit)
    if output.as_json:
        output.data({"path": path, "lines": found})
        return 0
    output.print(found)
    if args.follow:
        _follow_file(path, lambda line: output.print([line]))
    return 0


def _place_of_pool(context: CommandContext) -> str:
    facts = agent_process.read_environment_row(context.place)
    if facts is None:
        return ""
    return pool_named(facts, context.args.pool).place if context.args.pool is not None else facts.pools[0].place


def _job_log(context: CommandContext) -> str:
    """Return the log of the version that `--job` names or, for a table, of the version whose log was written last."""
    asked = parse_statement_name(context.args.job)
    table, version = split_query(asked) or (parse_table_name(asked), None)
    found = [each for each in context.operations.reader.versions(table) if version in (None, each.version)]
    if not found:
        raise UsageError(f"{asked} has never been deployed here", remedy="headgate ls lists the tables")
    jobs = [each for each in found if each.in_python]
    if not jobs:
        deployed = ", ".join(f"v{each.version}" for each in found)
        raise UsageError(
            f"what is deployed of {asked} is not a job in Python: {deployed}",
            remedy=f"headgate history {table} shows its failures",
        )
    paths = [f"{context.place.where.job_logs}/{query_name(table, each.version)}.log" for each in jobs]
    written = [path for path in paths if os.path.exists(path)]
    if not written:
        raise UsageError(f"there is no log of {asked} yet ({paths[0]})", remedy="its code runs when it starts")
    return max(written, key=os.path.getmtime)


def audit(context: CommandContext) -> int:
    """List audit entries, oldest first. With `--verify`, check that no entry was changed or removed."""
    if context.args.verify:
        return _verify(context)
    found = tuple(reversed(_audited(context)))
    archives = context.operations.reader.audit_archives()
    if context.args.table is None and archives and len(found) < context.args.limit:
        folder, last = context.operations.reader.path.parent, archives[-1]
        many = "" if len(archives) == 1 else f", older ones in {counted(len(archives) - 1, 'file')} beside it"
        context.output.say(f"entries {last.first} to {last.last} are in {folder / last.file}{many}")
    context.output.answer([_audit_as_json(row) for row in found], lines=_printed(AUDIT, found))
    return 0


def _audited(context: CommandContext) -> tuple[AuditRow, ...]:
    reader, limit = context.operations.reader, context.args.limit
    if context.args.table is None:
        return reader.audits(limit)
    table = context.operations.statement(context.args.table)[0].table
    return reader.audits_about(subjects_of(reader, table, limit), limit)


def _verify(context: CommandContext) -> int:
    check = context.operations.reader.check_audit()
    archives = context.operations.reader.audit_archives()
    head, breaks = check.head, check.breaks
    body = {
        "whole": not breaks,
        "newest": head.entry if head else None,
        "hash": head.hash if head else None,
        "archives": [{"file": each.file, "first": each.first, "last": each.last} for each in archives],
        "breaks": [
            {"first": each.first, "last": each.last, "kind": each.kind, "file": each.file or None} for each in breaks
        ],
    }
    lines = [f"the audit is whole up to entry {head.entry}, {head.hash}" if head else "the audit is empty"]
    if breaks:
        lines = ["the audit was changed after it was written:", *(f"  {each.words}" for each in breaks)]
    lines += [f"  entries {each.first} to {each.last} are in {each.file}" for each in archives]
    more = "more after these, from a replaced ledger or an interrupted archiving"
    context.output.answer(body, lines=[*lines, *(f"  {file} has {many} {more}" for file, many in check.beyond)])
    return 1 if breaks else 0


def _follow_events(context: CommandContext, table: TableName | None, seen: dict[int, int]) -> None:
    version = context.operations.reader.data_version()
    while True:
        version = context.operations.wait_for_change(version, 1.0)
        for event in reversed(context.operations.reader.events(table, 100)):
            if seen.get(event.id) != event.count:
                context.output.print(_printed(EVENTS, [event])[1:])
            seen[event.id] = event.count


def _follow_file(path: str, show: Callable[[str], Any]) -> None:
    file = open(path, encoding="utf-8", errors="replace")  # noqa: SIM115  # Another one takes its place.
    try:
        file.seek(0, os.SEEK_END)
        while True:
            if line := file.readline():
                show(line.rstrip("\n"))
                continue
            if _is_another(path, file):
                # Print the lines that were written between the last read and the rotation.
                for line in file:
                    show(line.rstrip("\n"))
                file.close()
                file = open(path, encoding="utf-8", errors="replace")  # noqa: SIM115  # As above.
                continue
            time.sleep(0.25)
    finally:
        file.close()


def _is_another(path: str, file: TextIO) -> bool:
    try:
        now = os.stat(path)
    except FileNotFoundError:
        return False
    return not os.path.samestat(now, os.fstat(file.fileno())) or now.st_size < file.tell()


def _printed(columns: Sequence[TableColumn], records: Sequence[Record]) -> list[str]:
    return format_records(columns, [record_cells(one, _when(one.at)) for one in records])


def _event_as_json(event: EventRow) -> dict[str, Any]:
    return {name: value for name, value in asdict(event).items() if name != "fingerprint"}


def _audit_as_json(row: AuditRow) -> dict[str, Any]:
    names = ("id", "at", "actor", "action", "subject", "plan", "confirmation", "outcome", "hash")
    return {name: row.plan_hash if name == "plan" else getattr(row, name) for name in names}


def _when(at: float) -> str:
    return time.strftime("%m-%d %H:%M:%S", time.localtime(at))
