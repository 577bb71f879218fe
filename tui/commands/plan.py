"""The commands `plan` and `promote`: they compute a plan, print it, and submit it to the agent.

With `--offline` or `--observed`, it needs no agent.
"""

import argparse
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from core.model.errors import AgentUnreachable, LedgerUnavailable, TryAgain, UsageError
from core.model.names import TableName
from core.model.problems import Problem, Severity
from core.model.states import State
from core.observed.planner_input import PlannerInput
from core.plan.model import Plan
from core.plan.request import BY_NAME, PlanRequest
from core.text.wording import counted
from tui.agent_client import agent_process
from tui.command_line import plan_lookup
from tui.command_line.context import CommandContext
from tui.commands.review_approve import how_to_apply, plan_lines, plan_markdown, print_plan_diff, refuse_two_forms
from tui.presentation.styling.value_formatting import moment
from tui.project_folder import request_scope
from tui.project_folder.environment_selection import has_ledger
from tui.project_folder.parsing_performance import rare_garbage_collection
from tui.project_folder.request_scope import refuse_unknown
from tui.services import plan_submission, planner_input_reader
from tui.services.plan_submission import SubmittedPlan

if TYPE_CHECKING:
    from core.plan.rendering import PlanStanding
    from core.project.model import Project
    from core.project_reader.git_comparison import GitComparison
    from tui.project_folder.project_folder_reader import ProjectDeclaration
    from tui.services.pool_drain import PlannedDrain
    from tui.services.promotion import Promotion

_UNSUBMITTED = "no agent is running: the plan was computed but not submitted"

NO_CHANGE, CHANGES, LOSS = 0, 10, 11
"""Exit codes of `--exit-code`.

LOSS means that the plan loses data, affects a protected table, or needs an approval or a strong confirmation.
"""


@dataclass(frozen=True, slots=True)
class PlanArguments:
    """A plan request from the command line, with the lines that name its tables and the changes since a commit."""

    request: PlanRequest
    """The request in normal form, as in the plan."""
    places: Mapping[TableName, str]
    """File and line of each table named in a list file."""
    since: "GitComparison | None" = None
    """Changes since the commit of `--changed-since`; None without that option."""


def plan(context: CommandContext) -> int:
    """Compute a plan, print it, and submit it if an agent is running. `plan diff` compares two existing plans."""
    if context.args.subcommand == "diff":
        return print_plan_diff(context)
    with rare_garbage_collection():
        return _plan(context)


def promote(context: CommandContext) -> int:
    """Plan the revisions that run in another environment, print the plan, and submit it if an agent is running."""
    from core.plan.request import parse_children, parse_choices, parse_tables

    args, place = context.args, context.place
    if getattr(args, "env", None) is None:
        raise UsageError("--to is missing", remedy="name the environment to promote into: --to E")
    others = {*getattr(args, "environments", ())} - {args.target}
    if args.target is not None and others:
        raise UsageError(
            f"--to names {args.target}, and --env {', '.join(sorted(others))}", remedy="give only --to, or only --env"
        )
    if args.source == place.environment:
        raise UsageError(
            f"{args.source} cannot be promoted into itself", remedy="name two environments: --from E --to F"
        )
    if not (args.tables or args.product or args.all):
        remedy = f"headgate promote TABLE…, --product P, or --all --from {args.source} --to {place.environment}"
        raise UsageError("the request is empty", remedy=remedy)
    asked = PlanRequest(
        products=tuple(args.product),
        everything=args.all,
        children=parse_children(args.children) if args.children is not None else "",
        exclude=tuple(chain.from_iterable(map(parse_tables, args.exclude))),
        rebuild=args.rebuild,
        hold=args.hold,
        choices=parse_choices(args.strategy),
        promoted_from=args.source,
        with_parents=args.with_parents,
    )
    with rare_garbage_collection():
        found = context.operations.promotion(args.tables, asked)
        if found.same:
            already = f"{counted(len(found.same), 'table')} already {'runs' if len(found.same) == 1 else 'run'}"
            context.output.say(f"{already} the same revision in {place.environment} as in {args.source}")
        if found.revalued:
            context.output.say(_revalued(found.revalued, place.environment))
        return _plan(context, found)


def drain(context: CommandContext) -> int:
    """Plan the moves that empty a pool, print the plan, and submit it if an agent is running."""
    args = context.args
    asked = PlanRequest(drains=args.name, drains_to=args.to or "", lost=args.lost)
    with rare_garbage_collection():
        return _plan(context, context.operations.drain(asked))


def _revalued(tables: Sequence[TableName], environment: str) -> str:
    named = ", ".join(tables[:3]) + (f" and {len(tables) - 3} more" if len(tables) > 3 else "")
    words = f"{named} {'runs' if len(tables) == 1 else 'run'} with other values of variables"
    which = " ".join(tables) if len(tables) <= 3 else "TABLE…"
    remedy = f"headgate plan {which} --env {environment}"
    return f"{words} than headgate.yml now gives {environment}, which no promotion deploys: {remedy}"


def _plan(context: CommandContext, promotion: "Promotion | PlannedDrain | None" = None) -> int:
    args, output, operations = context.args, context.output, context.operations
    refuse_two_forms(context)
    undo = operations.undo(args.undone, children=args.children, rebuild=args.rebuild) if _undoes(args) else None
    given = promotion or undo
    environment = context.place.environment
    said = planner_input_reader.read_observed(args.observed, environment) if args.observed else None
    asked = PlanArguments(given.request, {}) if given else _asked(context, args.subcommand or "deploy", said)
    request = asked.request
    declared = given.declared if given else operations.projects.read_sound_tables()
    offline = bool(args.observed or args.offline)
    answering = not offline and _agent_ready(context, declared)
    if answering or args.save:
        # Added here, so that the submitted plan is the one computed below.
        request = plan_submission.with_nonce(request, operations.reader if answering else None)
    source = promotion.source if promotion else {}
    known = said.known if said else replace(operations.planner_input(), source=source)
    if not (said or has_ledger(context.place)):
        output.say(
            f"{context.place.title} has never been started on this machine: planning as if nothing were deployed"
        )
    if asked.since and args.observed:
        from core.project_reader.git_comparison import with_texts_of_commit

        known = replace(known, observed=with_texts_of_commit(asked.since, known.observed))
    refuse_unknown(declared.project, known.observed, request, asked.places)
    if said:
        said.refuse_impossible(declared.project, environment, known.observed, operations.projects.parse_cache)
    found = operations.compute_over(declared.project, known, request)
    with suppress(AgentUnreachable):
        if answering and operations.look_for_inputs(found, declared.project):
            known = replace(operations.planner_input(), source=source)
            found = operations.compute_over(declared.project, known, request)
    if promotion is None:
        say_set_aside(context, declared.project)
    submitted: SubmittedPlan | None = None
    if not (offline or found.refusals) and (answering or not found.empty):
        taken = _submit(context, found, known, declared, answering=answering)
        # An empty plan is not reported as submitted: it only supersedes an earlier plan.
        submitted = taken if taken and not taken.plan.empty else None
        found = taken.plan if taken else found
    if args.save and found.refusals:
        output.say(f"not saved: the plan is refused, and {args.save} was not changed")
    elif args.save:
        plan_lookup.save(os.path.join(context.cwd, args.save), found, declared)
        output.say(f"saved: {args.save}")
    if output.as_json:
        output.data(_as_json(found, submitted))
    else:
        # A promotion, a drain and an undo plan deployed texts, not files.
        problems = () if promotion or _undoes(args) else declared.problems
        warnings = [problem for problem in problems if problem.severity is Severity.WARNING]
        _print(context, warnings, found, submitted)
    if found.refusals:
        return 3
    return _exit_code(found, known) if args.exit_code else 0


def say_set_aside(context: CommandContext, project: "Project") -> None:
    """Print how many errors in the project's files do not concern the computed plan; nothing if there are none."""
    if count := len(project.errors()):
        them, are = ("it", "was") if count == 1 else ("them", "were")
        context.output.say(
            f"{counted(count, 'problem')} in files that this plan does not need {are} set aside: "
            f"headgate plan --all lists {them}"
        )


def _agent_ready(context: CommandContext, declared: "ProjectDeclaration") -> bool:
    """True if an agent answers. Raises Refused if it serves another data folder or naming than is declared."""
    if not agent_process.is_listening(context.operations.client):
        return False
    with suppress(LedgerUnavailable):
        context.operations.refuse_edited_environment(declared)
    with suppress(LedgerUnavailable):
        planner_input_reader.wait_until_statements_observed(
            context.place, context.operations.reader, context.output.progress
        )
    return True


def _asked(context: CommandContext, verb: str, said: "planner_input_reader.ObservedDocument | None") -> PlanArguments:
    if verb in BY_NAME:
        observed, retain = said.known.observed if said else None, getattr(context.args, "retain", "")
        found = context.operations.request_by_name(verb, context.args.tables, observed, retain=retain)
        return PlanArguments(found, {})
    return read_request(context, verb)


def _undoes(args: argparse.Namespace) -> bool:
    return bool(args.subcommand == "undo")


def _submit(
    context: CommandContext, found: Plan, known: PlannerInput, declared: "ProjectDeclaration", *, answering: bool
) -> SubmittedPlan | None:
    try:
        if answering:
            return context.operations.submit(found.request, first=(found, known), declared=declared)
        context.output.say(_UNSUBMITTED)
    except (AgentUnreachable, LedgerUnavailable):
        context.output.say(_UNSUBMITTED)
    except TryAgain as error:
        context.output.say(f"the plan was computed but not submitted: {error.summary}")
    return None


def _as_json(found: Plan, submitted: SubmittedPlan | None) -> dict[str, Any]:
    from core.plan.codec import plan_as_json
    from core.plan.rendering import frozen_now

    body = plan_as_json(found)
    if submitted:
        names = ("expires_at", "confirm", "level", "approved")
        body["submitted"] = {name: getattr(submitted, name) for name in names}
        body["submitted"]["frozen"] = frozen_now(found, time.time())
    return body


def _print(context: CommandContext, warnings: Sequence[Problem], found: Plan, submitted: SubmittedPlan | None) -> None:
    from tui.command_line.output import problem_line

    for problem in warnings:
        context.output.say(problem_line(problem.as_json()))
    standing = _standing(submitted)
    report = plan_markdown if context.args.markdown else plan_lines
    context.output.print(report(context, found, standing))
    if found.refusals:
        return
    if found.empty:
        context.output.say("nothing to do")
    elif submitted:
        if submitted.unanswered:
            context.output.say(f"not confirmed by Spark: {submitted.unanswered}")
        context.output.say(how_to_apply(context, found, approved=submitted.approved))


def _standing(submitted: SubmittedPlan | None) -> "PlanStanding | None":
    if submitted is None:
        return None
    from core.plan.rendering import PlanStanding

    return PlanStanding(expires=moment(submitted.expires_at, time.time()), approved=submitted.approved)


def _exit_code(found: Plan, known: PlannerInput) -> int:
    # A deployed table without files in the project counts as a change.
    from core.plan.confirmation import confirmation_for_plan

    if found.empty:
        left = (known.observed.get(name) for name in found.request.gone)
        return CHANGES if any(seen and seen.state != State.ABSENT for seen in left) else NO_CHANGE
    asked = confirmation_for_plan(found).level in ("C3", "C4")
    lost = any(node.loses for node in found.nodes)
    return LOSS if asked or lost or found.protected or found.approvals else CHANGES


def read_request(context: CommandContext, verb: str) -> PlanArguments:
    """Read a `deploy` or `delete` request from arguments and list files. Raises UsageError if it is invalid."""
    from core.plan.request import parse_children, parse_choices, parse_layer, parse_start, parse_tables
    from core.planner.scope import normal_request

    args = context.args
    _refuse_nothing(args, verb)
    select = partial(context.operations.selected, declared=verb == "deploy")
    tables = select(args.tables)
    listed = request_scope.read_lists(args.list, context.cwd, select)
    for line in request_scope.repeated(tables, listed):
        context.output.say(line)
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
        start=parse_start(start) if start is not None else context.place.start if verb == "deploy" else "",
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
