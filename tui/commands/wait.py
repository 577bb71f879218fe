"""The command that waits: for a state, or for a lag that was measured after it was asked."""

import time
from collections.abc import Iterable

from core.model.errors import HeadgateError, UsageError
from core.model.states import State
from core.observed.versions import StatementLine
from core.text.wording import counted
from tui.agent_client.agent_process import WaitProgress
from tui.command_line.context import CommandContext
from tui.command_line.statement_output import lag_text, parse_count, statement_as_json
from tui.services import deployed_statements


def wait(context: CommandContext) -> int:
    """Wait until all tables are there; 1 when one failed or the time is over."""
    args, voice = context.args, context.voice
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
        voice.progress(WaitProgress(text, time.time() - began, 0.0, f"{missing[0].table} {missing[0].state}"))
        version = context.operations.wait_for_change(version, 0.5)
        time.sleep(0.05)
    if voice.as_json:
        voice.data(
            {"waited_s": round(time.time() - began, 3), "statements": [statement_as_json(line) for line in lines]}
        )
    else:
        voice.say(f"{counted(len(lines), 'statement')} ready after {time.time() - began:.1f} s")
    return 0


def _lines(context: CommandContext, tables: Iterable[str]) -> list[StatementLine]:
    lines = [line for line in context.operations.snapshot().serving if not line.external]
    return deployed_statements.named_lines(lines, context.operations.selected(tables))


def _there(line: StatementLine, state: str | None, bound: int | None, began: float) -> bool:
    if state is not None and str(line.state) != state:
        return False
    if bound is None:
        return True
    # A figure from before the question says nothing of what has landed since.
    fresh = line.at is not None and line.at >= began
    behind = line.lag_rows if line.lag_rows is not None else line.lag_files
    return fresh and behind is not None and behind <= bound


def _give_up(context: CommandContext, lines: list[StatementLine], why: str) -> int:
    if context.voice.as_json:
        error = HeadgateError(why, remedy="headgate ls, headgate events")
        context.voice.data({"error": error.as_json(), "statements": [statement_as_json(line) for line in lines]})
    else:
        context.voice.say(f"headgate: {why}")
    return 1
