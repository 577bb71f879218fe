"""The commands `inventory`, which lists tables, and `report`, which shows a table with its neighbours."""

import os
import shutil
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from core.model.errors import UsageError
from core.model.names import TableName
from core.text.wording import counted
from tui.command_line.context import CommandContext
from tui.presentation.reports.function_uses import function_as_json, function_lines
from tui.presentation.reports.left_out import left_out_as_json, left_out_words
from tui.presentation.reports.table_hierarchy import kind_of, nested, rows, state_of, table_as_json, version_of
from tui.presentation.styling.table_layout import format_table
from tui.project_folder.parsing_performance import rare_garbage_collection
from tui.project_folder.user_named_files import write_whole
from tui.services.environment_service import broken_references

if TYPE_CHECKING:
    from core.project.model import Project
    from core.reports.inventory import HierarchyRow, InventoryEntry

MOST_READERS = 3
"""Maximum number of readers named on a line."""


@rare_garbage_collection()
def inventory(context: CommandContext) -> int:
    """List declared and deployed tables, filtered by the command's options."""
    from core.reports.inventory import InventorySelection, select

    args, output = context.args, context.output
    declared = context.operations.projects.read_sound_tables()
    project, every = declared.project, context.operations.inventory(declared.project)
    _refuse_unknown(args.product, every)
    selection = InventorySelection(tuple(args.product), args.unused, args.single_reader, args.cross_product)
    found = select(every, selection)
    if args.unused or args.single_reader:
        broken_references(declared).refuse_readers([entry.table for entry in found])
    if output.as_json:
        tables = [as_json(entry) for entry in found]
        functions = [function_as_json(each) for each in context.operations.function_uses(project)]
        left_out = left_out_as_json(project)
        context.document("headgate.inventory/1", tables=tables, functions=functions, left_out=left_out)
        return 0
    head = ("TABLE", "PRODUCT", "LAYER", "FORMAT", "KIND", "VER", "STATE", "READS", "READ BY")
    output.print(format_table(head, [_row(entry) for entry in found], right=("VER", "READS")))
    if uses := context.operations.function_uses(project):
        output.print(["", *function_lines(uses)])
    deployed = sum(entry.serving is not None for entry in found)
    output.say(f"{context.place.title}: {len(found)} of {counted(len(every), 'table')}, {deployed} deployed")
    if words := left_out_words(project):
        output.say(words)
    return 0


def as_json(entry: "InventoryEntry") -> dict[str, Any]:
    """Return a table for `headgate.inventory/1`. Null means unknown. Fields may be added, but never changed."""
    return {
        **table_as_json(entry),
        "format": entry.format or None,
        "parents": [{"table": parent.table, "streamed": parent.streamed} for parent in entry.parents],
        "children": [{"table": child.table, "streamed": child.streamed} for child in entry.children],
        "other_products": list(entry.products),
    }


def _row(entry: "InventoryEntry") -> tuple[str, ...]:
    more = len(entry.children) - MOST_READERS
    readers = ", ".join(child.table for child in entry.children[:MOST_READERS]) + (f" +{more}" if more > 0 else "")
    return (
        str(entry.table),
        entry.product,
        str(entry.layer),
        entry.format,
        kind_of(entry) if entry.declared else "undeclared",
        version_of(entry),
        state_of(entry),
        str(len(entry.parents) or ""),
        readers,
    )


def _refuse_unknown(products: Iterable[str], entries: "Iterable[InventoryEntry]") -> None:
    from core.text.wording import did_you_mean

    known = sorted({entry.product for entry in entries})
    for product in products:
        if product not in known:
            raise UsageError(
                f"there is no product {product}",
                remedy=did_you_mean(product, known) or f"products: {', '.join(known)}",
            )


MOST_LEVELS = 100
"""Maximum nesting of the output, because programs that read nested JSON or YAML are recursive."""


@rare_garbage_collection()
def report(context: CommandContext) -> int:
    """Print or draw the tables upstream and downstream of a table, or in one direction only."""
    args, output = context.args, context.output
    if args.yaml and output.as_json:
        raise UsageError("--json and --yaml cannot be combined", remedy="give one of them")
    declared = context.operations.projects.read_sound_tables()
    entries = context.operations.inventory(declared.project)
    references = broken_references(declared)
    references.refuse_broken([_table_named(args.table)])
    ways = [way for way, asked in (("up", args.up), ("down", args.down)) if asked] or ["up", "down"]
    trees = [(way, _table_hierarchy(entries, args.table, way, depth=args.depth)) for way in ways]
    for way, branches in trees:
        tables = {branch.table for branch in branches}
        references.refuse_broken(tables)
        if way == "down":
            references.refuse_readers(tables)
    if args.svg:
        from tui.presentation.diagrams.hierarchy_svg import hierarchy_svg

        write_whole(os.path.join(context.cwd, args.svg), hierarchy_svg(trees))
        output.say(f"written: {args.svg}")
    if output.as_json:
        output.data(report_as_data(trees, context, declared.project))
    elif args.yaml:
        from core.text.yaml_writer import as_yaml

        output.print(as_yaml(report_as_data(trees, context, declared.project)).rstrip("\n").split("\n"))
    elif not args.svg:
        head, *laid = rows(trees, shutil.get_terminal_size().columns)
        output.print(format_table(head, laid, right=("VER", "LAG")))
    if not (output.as_json or args.yaml) and (words := left_out_words(declared.project)):
        output.say(words)
    return 0


def _table_hierarchy(
    entries: "Sequence[InventoryEntry]", words: str, direction: str, *, depth: int | None = None
) -> "tuple[HierarchyRow, ...]":
    from core.reports.inventory import hierarchy as walk
    from core.text.wording import did_you_mean

    by_name = {entry.table: entry for entry in entries}
    name = _table_named(words)
    if name not in by_name:
        remedy = did_you_mean(name, by_name) or "headgate inventory lists the tables"
        raise UsageError(f"{name or 'a table without a name'} is neither declared nor deployed", remedy=remedy)
    return walk(by_name, name, direction, depth=depth)


def _table_named(words: str) -> TableName:
    return TableName(words.strip().strip("`").lower())


def report_as_data(
    trees: "list[tuple[str, tuple[HierarchyRow, ...]]]", context: CommandContext, project: "Project"
) -> dict[str, Any]:
    """Return a `headgate.report/1` document. Null means unknown. Fields may be added, but never changed.

    `{"format", "project", "environment", "table", "product", "layer", "external", "stateful", "keyed", "owner",
    "declared", "folder", "files": [path], "version", "state", "lag_rows", "trend", "streamed", "again", "hidden",
    "parents": [the same, nested], "children": [the same, nested], "left_out": {"tables": [table], "problems": number}}`

    A nested parent has only `parents`, and a nested child only `children`. `streamed` is true if a stream connects the
    table to its neighbour in the tree, `again` is true if the table is expanded elsewhere, and `hidden` is the number
    of neighbours beyond `--depth`. `left_out` is about the files with errors, and only at the top level.
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
    return found | {"left_out": left_out_as_json(project)}
