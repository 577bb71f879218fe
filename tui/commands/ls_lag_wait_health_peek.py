"""The commands `ls`, `lag`, `wait` and `health`, about statements, and `peek`, which prints rows of a table."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from core.model.errors import HeadgateError, UsageError
from core.model.names import TableName
from core.model.states import State
from core.observed.versions import StatementLine
from core.text.wording import counted
from state.ledger_snapshot import LedgerSnapshot
from tui.agent_client.agent_process import WaitProgress
from tui.command_line.context import CommandContext
from tui.command_line.output import stdout_width
from tui.command_line.statement_output import (
    RIGHT,
    behind_text,
    check_fail_on,
    data_age_line,
    lag_text,
    parse_conditions,
    parse_count,
    short_or_dash,
    short_trend_text,
    statement_as_json,
    trend_text,
)
from tui.presentation.styling.table_layout import format_table
from tui.presentation.styling.value_formatting import cell_text, short_duration, short_number, short_size
from tui.presentation.view.pools import pool_named, pool_of_line
from tui.project_folder import project_folder_reader
from tui.project_folder.environment_selection import has_ledger
from tui.services import deployed_statements


def ls(context: CommandContext) -> int:
    """List statements and their states. Returns 1 if a `--fail-on` condition matches a listed statement."""
    args, output = context.args, context.output
    conditions = parse_conditions(args.fail_on)
    snapshot = read_snapshot(context)
    lines = chosen_lines(context, snapshot)
    pools = _pools_of(context, snapshot)
    if args.pool is not None:
        if snapshot.facts is not None:
            pool_named(snapshot.facts, args.pool)
        only = snapshot.facts.pools[0].name if snapshot.facts is not None else ""
        lines = [line for line in lines if pools.get((line.table, line.version), only) == args.pool]
    if output.as_json:
        found = [_with_pool(statement_as_json(line), pools, line) for line in lines]
        context.document("headgate.ls/1", age_s=snapshot.age_s, pool_state=snapshot.pool_state, statements=found)
    else:
        more = ("POOL",) if pools else ()
        head = ("TABLE", "PRODUCT", "STATE", "VER", "BEHIND", "LAG", "TREND", "ROWS", "ERR", "AGE", *more)
        printed = format_table(head, [_row(line, snapshot.read_at, pools) for line in lines], right=RIGHT)
        width = stdout_width()
        if width is not None and max(map(len, printed)) > width:
            rows = [_row(line, snapshot.read_at, pools, trend=short_trend_text) for line in lines]
            printed = format_table(head, rows, right=RIGHT)
        output.print(printed)
        output.say(data_age_line(context, snapshot, lines))
    return check_fail_on(context, conditions, lines, snapshot.statements)


_PoolNames = Mapping[tuple[TableName, int], str]
"""The name of the pool of each statement, by version; empty if the environment has one pool."""


def _pools_of(context: CommandContext, snapshot: LedgerSnapshot) -> _PoolNames:
    facts = snapshot.facts
    if facts is None or len(facts.pools) == 1:
        return {}
    recorded = context.operations.reader.recorded_pools()
    lines = (line for line in snapshot.statements if not line.external)
    return {(line.table, line.version): pool_of_line(facts, recorded, line).name for line in lines}


def _with_pool(found: dict[str, Any], pools: _PoolNames, line: StatementLine) -> dict[str, Any]:
    return {**found, "pool": pools.get((line.table, line.version))} if pools else found


def read_snapshot(context: CommandContext) -> LedgerSnapshot:
    """Return the ledger's current snapshot. Without a ledger, print a message and return an empty one."""
    if has_ledger(context.place):
        return context.operations.snapshot()
    context.output.say(f"{context.place.title} has never been started on this machine; start it: {context.place.up}")
    return LedgerSnapshot(read_at=0.0)


def chosen_lines(context: CommandContext, snapshot: LedgerSnapshot) -> list[StatementLine]:
    """Return the statements that the arguments select, including declared tables that were never deployed."""
    args = context.args
    lines = list(snapshot.statements if args.versions else snapshot.serving)
    known = {line.table for line in lines}
    lines += [
        _absent(entry)
        for entry in project_folder_reader.declared_tables(context.place.folder)
        if entry.table not in known
    ]
    lines = deployed_statements.named_lines(lines, context.operations.selected(args.tables))
    states = {word.strip() for word in args.state.split(",")} if args.state else set()
    words = ("external", *State)
    if unknown := sorted(states - {*map(str, words)}):
        raise UsageError(f"{unknown[0]!r} is not a state", remedy=f"one of {', '.join(words)}")
    chosen = [
        line
        for line in lines
        if (not args.product or line.product in args.product) and (not states or line.state_word in states)
    ]
    return sorted(chosen, key=lambda line: (line.table, line.version))


def _absent(entry: project_folder_reader.DeclaredTable) -> StatementLine:
    return StatementLine(
        TableName(entry.table), 0, product=entry.product, layer=str(entry.layer), owner="", state=str(State.ABSENT),
        external=entry.external,
    )  # fmt: skip


def _row(
    line: StatementLine, now: float, pools: _PoolNames, trend: Callable[[StatementLine], str] = trend_text
) -> tuple[str, ...]:
    cells = _cells(line, now, trend)
    return (*cells, pools.get((line.table, line.version), "")) if pools else cells


def _cells(line: StatementLine, now: float, trend: Callable[[StatementLine], str]) -> tuple[str, ...]:
    if line.external:
        # Only external tables with a log are measured.
        rows, wrong = "" if line.at is None else short_or_dash(line.rows_total), "!" if line.error else ""
        copied = short_duration(max(0.0, now - line.copied_at)) if line.copied_at is not None else ""
        return (line.table, line.product, line.state_word, "", "", "", "", rows, wrong, copied)
    since = short_duration(now - line.state_since) if line.state_since and line.state != State.ABSENT else ""
    return (
        line.table,
        line.product,
        str(line.state),
        f"v{line.version}" if line.version else "",
        behind_text(line),
        lag_text(line),
        trend(line),
        short_or_dash(line.rows_total),
        str(line.restarts) + ("!" if line.error_class else ""),
        since,
    )


def lag(context: CommandContext) -> int:
    """List the lag of statements, in total and per input. Returns 1 if a `--fail-on` condition matches a statement."""
    output = context.output
    snapshot = read_snapshot(context)
    conditions = parse_conditions(context.args.fail_on)
    lines = [line for line in chosen_lines(context, snapshot) if not line.external]
    measured = {(m.table, m.version): m for m in context.operations.reader.measurements()} if snapshot.facts else {}
    if output.as_json:
        found = []
        for line in lines:
            measurement = measured.get((line.table, line.version))
            found.append({**statement_as_json(line), "sources": list(measurement.sources) if measurement else []})
        context.document("headgate.lag/1", statements=found)
        return check_fail_on(context, conditions, lines, snapshot.statements)
    rows = []
    for line in lines:
        measurement = measured.get((line.table, line.version))
        of_topics = measurement is not None and any(source.get("topics") for source in measurement.sources)
        rows.append((line.table, "", *_lag_cells(line, in_files=not of_topics)))
        for source in measurement.sources if measurement else ():
            rows.append(("", str(source.get("table", "?")), *_source_cells(source)))
    head = ("TABLE", "INPUT", "BEHIND", "LAG", "FILES", "BYTES", "TREND")
    output.print(format_table(head, rows, right=RIGHT))
    output.say(data_age_line(context, snapshot, lines))
    return check_fail_on(context, conditions, lines, snapshot.statements)


def _lag_cells(line: StatementLine, *, in_files: bool) -> tuple[str, ...]:
    files = str(line.lag_files) if in_files and line.lag_files is not None else ""
    return (
        behind_text(line),
        lag_text(line),
        files,
        short_size(line.lag_bytes) if in_files and line.lag_bytes is not None else "",
        trend_text(line),
    )


def _source_cells(source: dict[str, Any]) -> tuple[str, ...]:
    rows = source.get("rows")
    mark = "" if source.get("exact", True) else "~"
    behind, in_files = source.get("behind_s"), not source.get("topics")
    size = source.get("bytes") if in_files else source.get("wal_bytes")
    return (
        "?" if behind is None else short_duration(behind),
        "?" if rows is None else mark + short_number(rows),
        str(source["files"]) if in_files and source.get("files") is not None else "",
        "" if size is None else short_size(size),
        "gone" if source.get("missing") else counted(source["versions"], "version") if source.get("versions") else "",
    )


def peek(context: CommandContext) -> int:
    """Print some rows of a table, or the newest messages of its topics, as read by the agent."""
    args = context.args
    found = context.operations.agent.peek(args.table, version=args.table_version, limit=args.limit)
    cells = [tuple(cell_text(value)[:80] for value in row) for row in found.rows]
    context.output.answer(
        {"table": args.table, "columns": list(found.columns), "rows": found.rows, "newest_first": found.newest_first},
        f"{args.table}: {found.counted}",
        lines=format_table(found.columns, cells) if found.columns else (),
    )
    return 0


def wait(context: CommandContext) -> int:
    """Wait until all selected statements reach a given state or lag. Returns 1 on failure or timeout."""
    args, output = context.args, context.output
    state = args.state or (None if args.lag is not None else str(State.RUNNING))
    if state is not None and state not in set(State):
        raise UsageError(f"{state!r} is not a state", remedy=f"one of {', '.join(State)}")
    bound = None if args.lag is None else parse_count(args.lag)
    began = time.time()
    deadline = time.monotonic() + args.timeout
    version = -1
    while True:
        lines = _lines(context, args.tables)
        missing = [line for line in lines if not _there(line, state, bound, began)]
        if not missing:
            break
        failed = [line for line in missing if line.state == State.FAILED and state != State.FAILED]
        if failed:
            return _give_up(
                context, lines, f"{failed[0].table} failed: {failed[0].error_class or 'see headgate events'}"
            )
        if time.monotonic() > deadline:
            names = ", ".join(f"{line.table} ({line.state}, lag {lag_text(line) or '-'})" for line in missing[:5])
            return _give_up(context, lines, f"not reached within {args.timeout:.0f} s: {names}")
        text = f"{len(missing)} of {counted(len(lines), 'statement')}"
        output.progress(WaitProgress(text, time.time() - began, 0.0, f"{missing[0].table} {missing[0].state}"))
        version = context.operations.wait_for_change(version, 0.5)
        time.sleep(0.05)
    output.answer(
        {"waited_s": round(time.time() - began, 3), "statements": [statement_as_json(line) for line in lines]},
        f"{counted(len(lines), 'statement')} ready after {time.time() - began:.1f} s",
    )
    return 0


def _lines(context: CommandContext, tables: Iterable[str]) -> list[StatementLine]:
    lines = [line for line in context.operations.snapshot().serving if not line.external]
    return deployed_statements.named_lines(lines, context.operations.selected(tables))


def _there(line: StatementLine, state: str | None, bound: int | None, began: float) -> bool:
    if state is not None and str(line.state) != state:
        return False
    if bound is None:
        return True
    # A figure measured before the command started does not include later input.
    fresh = line.at is not None and line.at >= began
    behind = line.lag_rows if line.lag_rows is not None else line.lag_files
    return fresh and behind is not None and behind <= bound


def _give_up(context: CommandContext, lines: list[StatementLine], why: str) -> int:
    error = HeadgateError(why, remedy="headgate ls, headgate events")
    body = {"error": error.as_json(), "statements": [statement_as_json(line) for line in lines]}
    context.output.answer(body, f"headgate: {why}")
    return 1


def health(context: CommandContext) -> int:
    """Summarize statements by product and layer. Returns 1 if a `--fail-on` condition matches a statement."""
    from core.run.records import overdue_tickets
    from core.text.wording import did_you_mean
    from tui.presentation.reports import product_health
    from tui.presentation.screen_content.releases import ticket_as_json, ticket_words, verdict

    args, output = context.args, context.output
    conditions = parse_conditions(args.fail_on)
    snapshot = context.operations.snapshot()
    known = sorted({line.product for line in snapshot.serving})
    for product in args.products:
        if product not in known:
            raise UsageError(
                f"no table of product {product} is deployed here",
                remedy=did_you_mean(product, known) or f"products: {', '.join(known) or 'none yet'}",
            )
    lines = [line for line in snapshot.serving if not args.products or line.product in args.products]
    staged = frozenset(str(mark.table) for mark in snapshot.staged)
    found = product_health.health_by_product(snapshot.serving, staged, args.products)
    late = overdue_tickets(snapshot.tickets, snapshot.read_at)
    if output.as_json:
        products = [product_health.as_json(product) for product in found]
        releases = [{"run": one.run, "state": one.state, "since": one.since} for one in snapshot.releases]
        context.document(
            "headgate.health/1",
            age_s=snapshot.age_s,
            pool_state=snapshot.pool_state,
            products=products,
            releases=releases,
            overdue_tickets=[{"run": one.run_id, **ticket_as_json(one)} for one in late],
        )
    else:
        output.print(format_table(product_health.HEAD, product_health.rows(found), right=product_health.RIGHT))
        if failing := product_health.failing_rows(found, snapshot.read_at):
            output.print(
                ["", *format_table(("FAILING", "VER", "PRODUCT", "STATE", "LAST ERROR"), failing, right=("VER",))]
            )
        output.print(f"run {one.run}: {said}" for one in snapshot.releases if (said := verdict(one, snapshot.read_at)))
        output.print(f"run {one.run_id}: ticket of {ticket_words(one, snapshot.read_at)}" for one in late)
        output.say(data_age_line(context, snapshot, lines))
    return check_fail_on(context, conditions, lines, snapshot.statements)
