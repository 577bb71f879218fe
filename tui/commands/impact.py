"""The command `impact`: what would happen below a table if it were rebuilt, dropped, or lost a column."""

import shutil

from core.plan.request import parse_children
from tui.agent_client import agent_commands
from tui.command_line.context import CommandContext
from tui.presentation.reports.impact import about, as_json, column_lines, lines
from tui.project_folder.parsing_performance import rare_garbage_collection
from tui.services import planner_input


@rare_garbage_collection()
def impact(context: CommandContext) -> int:
    """Answer for a table, or for one of its columns; the answers are what plans of the same requests decide."""
    args, voice = context.args, context.voice
    said = planner_input.read_observed(args.observed, context.place.environment) if args.observed else None
    known = said.known if said else context.operations.known()
    if said:
        place, projects = context.place, context.operations.projects
        said.refuse_impossible(projects.read().project, place.environment, known.observed, projects.facts)
    children = parse_children(args.children) if args.children is not None else ""
    found = context.operations.impact(args.column, known, children=children)
    commands = {
        str(answer.event): agent_commands.plan_command(context.place, answer.request)
        for answer in found.answers
        if answer.request is not None
    }
    if voice.as_json:
        context.document("headgate.impact/1", **as_json(found, commands))
        return 0
    width = shutil.get_terminal_size().columns
    written = [about(found)]
    for answer in found.answers:
        written += ["", *lines(answer, found, width, commands.get(str(answer.event), ""))]
    if found.columns:
        written += ["", *column_lines(found.columns, width)]
    voice.print(written)
    return 0
