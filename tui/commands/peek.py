"""The command `peek`: some rows of a table, read through the agent."""

from core.text.wording import counted
from tui.command_line.context import CommandContext
from tui.command_line.output import format_table


def peek(context: CommandContext) -> int:
    """Print some rows of a table, through the agent."""
    args, voice = context.args, context.voice
    columns, rows = context.operations.agent.peek(args.table, version=args.table_version, limit=args.limit)
    if voice.as_json:
        voice.data({"table": args.table, "columns": list(columns), "rows": rows})
        return 0
    cells = [tuple("null" if value is None else str(value).replace("\n", " ")[:80] for value in row) for row in rows]
    voice.print(format_table(columns, cells) if columns else [])
    voice.say(f"{counted(len(rows), 'row')} of {args.table}, in no order")
    return 0
