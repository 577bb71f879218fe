"""The commands `lineage` (tree, JSON, diagram source or picture) and `impact` (the effects of a change)."""

import os
import shutil
from typing import TYPE_CHECKING, Any

from core.model.errors import UsageError
from tui.agent_client import agent_commands
from tui.command_line.context import CommandContext
from tui.presentation.reports.column_lineage import BranchKind, LineageTreeRow, gap_line, name_of, row_conditions, tree
from tui.presentation.reports.left_out import left_out_as_json, left_out_words
from tui.presentation.styling.table_layout import format_table
from tui.project_folder.parsing_performance import rare_garbage_collection
from tui.project_folder.user_named_files import write_whole

if TYPE_CHECKING:
    from core.lineage.column_lineage import ColumnLineage
    from core.project.model import Project


def lineage(context: CommandContext) -> int:
    """Print or draw the lineage of a column, or of all columns of a table."""
    args, output = context.args, context.output
    if args.format and output.as_json:
        raise UsageError("--json and --format are two forms of the same data", remedy="give one of them")
    found = context.operations.lineage(args.column, "down" if args.down else "up")
    project = context.operations.projects.read_sound_tables().project
    for path, html in ((args.svg, False), (args.html, True)):
        if path:
            from tui.presentation.diagrams.lineage_svg import lineage_html, lineage_svg

            write_whole(os.path.join(context.cwd, path), lineage_html(found) if html else lineage_svg(found))
            output.say(f"written: {path}")
    edited = context.operations.edited(node.at.table for node in found.nodes)
    if output.as_json:
        body = as_json(found, context.place.project)
        functions = [{"function": n, "file": path, "used_by": users} for n, path, users in _functions(found, project)]
        output.data({**body, "edited": list(edited), "functions": functions, "left_out": left_out_as_json(project)})
    elif args.format:
        from tui.presentation.diagrams.lineage_text import lineage_dot, lineage_mermaid

        text = lineage_mermaid(found) if args.format == "mermaid" else lineage_dot(found)
        output.print(text.splitlines())
    elif not (args.svg or args.html):
        output.print(_text(found))
        if called := _functions(found, project):
            output.print(
                [
                    "",
                    *format_table(
                        ("FUNCTION", "FILE", "USED BY"), [(*each[:2], ", ".join(each[2])) for each in called]
                    ),
                ]
            )
    if edited and not output.as_json:
        output.say(f"this is the lineage of the files; the files of {', '.join(edited)} differ from what is deployed")
    if found.gaps and not output.as_json:
        output.say(f"{len(found.gaps)} name{'s' if len(found.gaps) > 1 else ''} could not be traced")
    if words := left_out_words(project):
        output.say(words)
    return 0


def as_json(found: "ColumnLineage", project: str) -> dict[str, Any]:
    """Return a `headgate.lineage/1` document. Fields may be added, but never changed.

    `{"format", "project", "root": {"table", "column"}, "direction": "up"|"down", "nodes": [{"table", "column", "type",
    "kind": "column"|"rows"|"landed", "format", "location", "expression"}], "edges": [{"from": {"table", "column"},
    "to": {"table", "column"}, "kind": "value"|"condition", "clause", "expression", "fields": ["path in a struct"],
    "through": [{"name", "expression"}], "file", "line"}], "unresolved": [{"table", "column", "name", "reason", "file",
    "line"}]}`

    The command adds `"edited": [table]`, the tables whose files differ from the deployed ones, `"functions":
    [{"function", "file", "used_by"}]`, the project's functions that their statements use, and `"left_out":
    {"tables": [table], "problems": number}` for the files with errors. A null column represents
    the rows of a table or, in the root, all of its columns. A node of kind `landed` is an external table with files of
    `format` at `location`. Edges point in the direction of data flow, whatever the `direction`. A column depends on the
    rows of its table as well as on its own edges. Nodes and edges are listed in the order in which they are reached.
    """

    def place(at: Any) -> dict[str, Any]:
        return {"table": at.table, "column": at.column or None}

    return {
        "format": "headgate.lineage/1",
        "project": project,
        "root": place(found.root),
        "direction": found.direction,
        "nodes": [
            {
                **place(node.at),
                "type": node.type or None,
                "kind": "landed" if node.landed else "column" if node.at.column else "rows",
                "format": node.format or None,
                "location": node.location or None,
                "expression": node.expression or None,
            }
            for node in found.nodes
        ],
        "edges": [
            {
                "from": place(edge.source),
                "to": place(edge.target),
                "kind": str(edge.kind),
                "clause": edge.clause,
                "expression": edge.expression,
                "fields": list(edge.fields),
                "through": [{"name": step.name, "expression": step.expression} for step in edge.through],
                "file": edge.path,
                "line": edge.line,
            }
            for edge in found.edges
        ],
        "unresolved": [
            {**place(gap.at), "name": gap.name, "reason": gap.reason, "file": gap.path, "line": gap.line}
            for gap in found.gaps
        ],
    }


def _functions(found: "ColumnLineage", project: "Project") -> list[tuple[str, str, list[str]]]:
    """Return the name and file of each function that a statement of the lineage uses, with these statements."""
    users: dict[tuple[str, str], list[str]] = {}
    for name in sorted({edge.target.table for edge in found.edges}) if project.functions else ():
        for function, script in project.tables[name].functions if name in project.tables else ():
            users.setdefault((function, script.path), []).append(name)
    return [(*function, tables) for function, tables in sorted(users.items())]


def _text(found: "ColumnLineage") -> list[str]:
    rows = [_cells(branch) for branch in tree(found)]
    lines = format_table(("COLUMN", "TYPE", "FILE", "EXPRESSION"), rows)
    decided = [(each.table, each.place, each.clause, each.expression) for each in row_conditions(found)]
    if decided and found.direction == "up":
        lines += ["", *format_table(("ROWS OF", "FILE", "DECIDED BY", "EXPRESSION"), decided)]
    if found.gaps:
        lines += ["", "NOT TRACED", *(gap_line(gap) for gap in found.gaps)]
    if len(rows) == 1 and not found.gaps:
        word = "is computed from no column" if found.direction == "up" else "is read by no statement"
        lines.append(f"{name_of(found.root)} {word}")
    return lines


def _cells(branch: LineageTreeRow) -> tuple[str, ...]:
    text = "(above)" if branch.kind is BranchKind.AGAIN else branch.expression
    return ("  " * branch.depth + branch.mark + branch.name, branch.type, branch.place, text)


@rare_garbage_collection()
def impact(context: CommandContext) -> int:
    """Print the effects of changing a table or column, as planned by the planner."""
    from core.plan.request import parse_children
    from tui.presentation.reports.impact import about, as_json, column_lines, lines
    from tui.services import planner_input_reader

    args, output = context.args, context.output
    if args.column.endswith("()"):
        return _function_impact(context)
    said = planner_input_reader.read_observed(args.observed, context.place.environment) if args.observed else None
    known = said.known if said else context.operations.planner_input()
    if said:
        place, projects = context.place, context.operations.projects
        said.refuse_impossible(
            projects.read_sound_tables().project, place.environment, known.observed, projects.parse_cache
        )
    children = parse_children(args.children) if args.children is not None else ""
    found = context.operations.impact(args.column, known, children=children)
    commands = {
        str(answer.event): agent_commands.plan_command(context.place, answer.request)
        for answer in found.answers
        if answer.request is not None
    }
    project = context.operations.projects.read_sound_tables().project
    if output.as_json:
        context.document("headgate.impact/1", **as_json(found, commands), left_out=left_out_as_json(project))
        return 0
    width = shutil.get_terminal_size().columns
    written = [about(found)]
    for answer in found.answers:
        written += ["", *lines(answer, found, width, commands.get(str(answer.event), ""))]
    if found.columns:
        written += ["", *column_lines(found.columns, width)]
    output.print(written, hang=2)
    if words := left_out_words(project):
        output.say(words)
    return 0


def _function_impact(context: CommandContext) -> int:
    from tui.presentation.reports.function_uses import function_impact_as_json, function_impact_lines

    args, output = context.args, context.output
    if args.children is not None or args.observed:
        raise UsageError("--children and --observed are about tables", remedy="leave them out for a function")
    found = context.operations.function_impact(args.column)
    project = context.operations.projects.read_sound_tables().project
    if output.as_json:
        left_out = left_out_as_json(project)
        context.document("headgate.function_impact/1", **function_impact_as_json(found), left_out=left_out)
        return 0
    output.print(function_impact_lines(found), hang=2)
    if words := left_out_words(project):
        output.say(words)
    return 0
