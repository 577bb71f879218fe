"""The scope and the options of `plan` and `delete`, from their arguments to a request."""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from core.model.errors import UsageError
from core.model.names import TableName
from core.plan.request import PlanRequest
from tui.command_line.context import CommandContext
from tui.project_folder import request_scope

if TYPE_CHECKING:
    from core.project_reader.git_comparison import GitComparison


@dataclass(frozen=True, slots=True)
class PlanArguments:
    """A request, with what is only of use on this side."""

    request: PlanRequest
    """Normal: what is planned has the same one."""
    places: Mapping[TableName, str]
    """Where a list file names a table."""
    since: "GitComparison | None" = None
    """What was found with `--changed-since`."""


def read_request(context: CommandContext, verb: str) -> PlanArguments:
    """Read the scope of a `deploy` or `delete` from the arguments, and whatever they name; raises UsageError."""
    from core.plan.request import parse_children, parse_choices, parse_layer, parse_start, parse_tables
    from core.planner.scope import normal_request

    args = context.args
    _refuse_nothing(args, verb)
    select = partial(context.operations.selected, declared=verb == "deploy")
    tables = select(args.tables)
    listed = request_scope.read_lists(args.list, context.cwd, select)
    for line in request_scope.repeated(tables, listed):
        context.voice.say(line)
    folders = [request_scope.find_folder(each, context.cwd, context.place.folder) for each in args.dir]
    start = getattr(args, "start", None)
    since = _since(context)
    request = PlanRequest(
        verb=verb,
        tables=(*tables, *(each.table for each in listed), *(since.changed if since else ())),
        products=tuple(args.product),
        layers=tuple(parse_layer(word) for word in args.layer),
        folders=tuple(folders),
        pipelines=tuple(chain.from_iterable(map(parse_tables, args.pipeline))),
        changed_since=since.reference if since else "",
        gone=since.gone if since else (),
        settings=since.settings if since else (),
        everything=args.all,
        children=parse_children(args.children) if args.children is not None else "",
        exclude=select(chain.from_iterable(map(_words, args.exclude))),
        rebuild=getattr(args, "rebuild", False),
        keep_table=getattr(args, "keep_table", False),
        hold=getattr(args, "hold", False),
        start=parse_start(start) if start is not None else "",
        choices=parse_choices(getattr(args, "strategy", ())),
    )
    return PlanArguments(normal_request(request), {each.table: each.place for each in reversed(listed)}, since)


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word.strip()]


def _since(context: CommandContext) -> "GitComparison | None":
    reference = getattr(context.args, "changed_since", None)
    return context.operations.projects.since(reference) if reference is not None else None


def _refuse_nothing(args: argparse.Namespace, verb: str) -> None:
    if any(not product.strip() for product in args.product):
        raise UsageError("--product is empty", remedy="name a product; headgate ls shows them")
    if not (args.tables or getattr(args, "changed_since", None) is not None or any(_scopes(args))):
        command = "headgate plan" if verb == "deploy" else "headgate plan delete"
        raise UsageError("the request is empty", remedy=f"{command} TABLE…, --product P, or --all")


def _scopes(args: argparse.Namespace) -> Iterator[object]:
    yield from (args.list, args.product, args.layer, args.dir, args.pipeline, args.all)
