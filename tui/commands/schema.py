"""The `schema` command, which prints the columns of a table in each of its versions."""

import time

from core.model.names import parse_table_name
from tui.command_line.context import CommandContext
from tui.presentation.reports.left_out import left_out_words
from tui.presentation.reports.schema_history import schema_as_json, schema_lines
from tui.project_folder.environment_selection import has_ledger
from tui.services.table_schemas import schema_history


def schema(context: CommandContext) -> int:
    """Print the columns of a table in each version, who reads them, and which compatibility modes allow them."""
    operations, table = context.operations, parse_table_name(context.args.table)
    project = operations.projects.read_sound_tables().project
    reader = operations.reader if has_ledger(context.place) else None
    found = schema_history(reader, project, table, operations.projects.parse_cache)
    context.output.answer(schema_as_json(found), lines=schema_lines(found, time.time()), hang=10)
    if words := left_out_words(project):
        context.output.say(words)
    return 0
