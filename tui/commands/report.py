"""The command `report`: the tables up- and downstream of a table, as a tree, as nested data, or as a picture."""

import os
import shutil
from typing import TYPE_CHECKING, Any

from core.model.errors import UsageError
from tui.command_line.context import CommandContext
from tui.command_line.output import format_table
from tui.presentation.reports.table_hierarchy import nested, rows
from tui.project_folder.parsing_performance import rare_garbage_collection
from tui.project_folder.user_named_files import write_whole
from tui.services import inventory_lineage

if TYPE_CHECKING:
    from core.reports.hierarchy import HierarchyRow

MOST_LEVELS = 100
"""Levels that nested data is written with: readers of JSON and YAML recurse too."""


@rare_garbage_collection()
def report(context: CommandContext) -> int:
    """Print or draw the hierarchy of a table: upwards and downwards where neither is asked for."""
    args, voice = context.args, context.voice
    if args.yaml and voice.as_json:
        raise UsageError("--json and --yaml cannot be combined", remedy="give one of them")
    entries = context.operations.inventory()
    ways = [way for way, asked in (("up", args.up), ("down", args.down)) if asked] or ["up", "down"]
    trees = [(way, inventory_lineage.table_hierarchy(entries, args.table, way, depth=args.depth)) for way in ways]
    if args.svg:
        from tui.presentation.diagrams.hierarchy_svg import hierarchy_svg

        write_whole(os.path.join(context.cwd, args.svg), hierarchy_svg(trees))
        voice.say(f"written: {args.svg}")
    if voice.as_json:
        voice.data(as_data(trees, context))
    elif args.yaml:
        from core.text.yaml_writer import as_yaml

        voice.print(as_yaml(as_data(trees, context)).rstrip("\n").split("\n"))
    elif not args.svg:
        head, *laid = rows(trees, shutil.get_terminal_size().columns)
        voice.print(format_table(head, laid, right=("VER", "LAG")))
    return 0


def as_data(trees: "list[tuple[str, tuple[HierarchyRow, ...]]]", context: CommandContext) -> dict[str, Any]:
    """Return `headgate.report/1`; fields may be added within /1, never changed. What is not known is null.

    `{"format", "project", "environment", "table", "product", "layer", "external", "stateful", "keyed", "owner",
    "declared", "folder", "files": [path], "version", "state", "lag_rows", "trend", "streamed", "again", "hidden",
    "parents": [the same, nested], "children": [the same, nested]}`.

    A parent has `parents` alone, a child `children` alone. `streamed`: how it is read by, or reads, the table that it
    hangs on. `again`: it is expanded elsewhere in this tree. `hidden`: how many next to it the depth leaves out.
    """
    deepest = max(branch.depth for _, branches in trees for branch in branches)
    if deepest > MOST_LEVELS:
        raise UsageError(
            f"the hierarchy has {deepest} levels, too many for nested output",
            remedy=f"--depth {MOST_LEVELS}, or headgate inventory --json",
        )
    found: dict[str, Any] = {
        "format": "headgate.report/1",
        "project": context.place.project,
        "environment": context.place.environment,
    }
    for way, branches in trees:
        found |= nested(branches, way)
    return found
