"""The command `ls`: statements with state, version, lag and trend, and declared tables that were never deployed."""

from core.model.errors import UsageError
from core.model.names import TableName
from core.model.states import State
from state.ledger_snapshot import LedgerSnapshot
from state.registry import StatementLine
from tui.command_line.context import CommandContext
from tui.command_line.fail_on import parse_conditions
from tui.command_line.output import format_table
from tui.command_line.statement_output import (
    RIGHT,
    behind_text,
    check_fail_on,
    data_age_line,
    lag_text,
    short_or_dash,
    statement_as_json,
    trend_text,
)
from tui.presentation.styling.value_formatting import short_duration
from tui.project_folder import project_reader
from tui.project_folder.environment_selection import has_ledger
from tui.services import deployed_statements


def ls(context: CommandContext) -> int:
    """List statements; 1 when `--fail-on` matches one."""
    args, voice = context.args, context.voice
    conditions = parse_conditions(args.fail_on)
    snapshot = read_snapshot(context)
    lines = chosen_lines(context, snapshot)
    if voice.as_json:
        found = [statement_as_json(line) for line in lines]
        context.document("headgate.ls/1", age_s=snapshot.age_s, pool_state=snapshot.pool_state, statements=found)
    else:
        head = ("TABLE", "PRODUCT", "STATE", "VER", "BEHIND", "LAG", "TREND", "ROWS", "ERR", "AGE")
        voice.print(format_table(head, [_row(line, snapshot.read_at) for line in lines], right=RIGHT))
        voice.say(data_age_line(context, snapshot, lines))
    return check_fail_on(context, conditions, lines)


def read_snapshot(context: CommandContext) -> LedgerSnapshot:
    """Read the ledger; nothing when the environment was never started, which is no failure for a list."""
    if has_ledger(context.place):
        return context.operations.snapshot()
    context.voice.say(f"{context.place.title} has never been started on this machine; start it: headgate up")
    return LedgerSnapshot(read_at=0.0)


def chosen_lines(context: CommandContext, snapshot: LedgerSnapshot) -> list[StatementLine]:
    """Return the lines that the arguments select, including declared tables that were never deployed."""
    args = context.args
    lines = list(snapshot.statements if args.versions else snapshot.serving)
    known = {line.table for line in lines}
    lines += [
        _absent(entry) for entry in project_reader.declared_tables(context.place.folder) if entry.table not in known
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


def _absent(entry: project_reader.DeclaredTable) -> StatementLine:
    return StatementLine(
        TableName(entry.table), 0, entry.product, str(entry.layer), "", str(State.ABSENT), external=entry.external
    )


def _row(line: StatementLine, now: float) -> tuple[str, ...]:
    if line.external:
        wrong = "!" if line.error else ""
        return (line.table, line.product, line.state_word, "", "", "", "", short_or_dash(line.rows_total), wrong, "")
    since = short_duration(now - line.state_since) if line.state_since and line.state != State.ABSENT else ""
    return (
        line.table,
        line.product,
        str(line.state),
        f"v{line.version}" if line.version else "",
        behind_text(line),
        lag_text(line),
        trend_text(line),
        short_or_dash(line.rows_total),
        str(line.restarts) + ("!" if line.error_class else ""),
        since,
    )
