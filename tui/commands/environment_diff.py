"""The command `diff` with two environments: what runs in one and not in the other, from both ledgers, read-only."""

from core.model.errors import UsageError
from core.model.names import parse_table_name
from tui.command_line.context import CommandContext
from tui.presentation.reports.environment_difference import (
    difference_as_json,
    difference_lines,
    difference_summary,
    unobserved_words,
)
from tui.project_folder.parsing_performance import rare_garbage_collection
from tui.services.environment_comparison import compare_environments

DIFFERS = 10
"""Exit code if a table differs, as that of `plan --exit-code` for a plan with changes."""


def environment_diff(context: CommandContext) -> int:
    """Print the tables that differ between two environments, and what a promotion from the first would do.

    Returns DIFFERS if a table differs, and otherwise 0.
    """
    args, output, place = context.args, context.output, context.place
    names: tuple[str, ...] = args.environments
    if len(names) != 2 or names[0] == names[1] or args.spark:
        remedy = "headgate diff --env E --env F, with tables or --product to compare only these"
        raise UsageError("two different environments can be compared, without --spark", remedy=remedy)
    with rare_garbage_collection():
        found = compare_environments(
            context.operations,
            (names[0], names[1]),
            tables=tuple(map(parse_table_name, args.names)),
            products=args.product,
        )
    for name in found.unobserved:
        output.say(unobserved_words(name))
    shown, same = found.tables if args.all else found.differing, len(found.tables) - len(found.differing)
    valued = found.other_values
    if output.as_json:
        output.data(difference_as_json(names, shown, project=place.project, same=same, other_values=valued))
    else:
        output.print(difference_lines(names, shown))
        summary = difference_summary(len(found.differing), same, valued)
        output.say(summary + (" (--all)" if valued and not args.all else ""))
        for note in found.notes():
            output.say(note)
    return DIFFERS if found.differing else 0
