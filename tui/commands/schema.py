"""The `schema` command, which prints the columns of a table in each of its versions."""

import time

from tui.command_line.context import CommandContext
from tui.presentation.reports.left_out import left_out_words
from tui.presentation.reports.schema_history import schema_as_json, schema_lines


def schema(context: CommandContext) -> int:
    """Print the columns of a table in each version, who reads them, and which compatibility modes allow them."""
    operations = context.operations
    found = operations.schema(context.args.table)
    context.output.answer(schema_as_json(found), lines=schema_lines(found, time.time()), hang=10)
    if words := left_out_words(operations.projects.read_sound_tables().project):
        context.output.say(words)
    return 0
