"""The `history` command, which prints a table's deploys, operator actions and failures."""

import time

from tui.command_line.context import CommandContext
from tui.presentation.reports.table_history import history_as_json, history_lines
from tui.services.deployed_statements import history_of


def history(context: CommandContext) -> int:
    """Print a table's history, oldest first: deploys, operator actions, failures, and events of its environment."""
    table = context.operations.statement(context.args.table)[0].table
    operations = context.operations
    found = history_of(operations.reader, table, context.args.limit, as_it_is=operations.as_it_is)
    context.output.answer(history_as_json(table, found), lines=history_lines(found, time.time()), hang=23)
    return 0
