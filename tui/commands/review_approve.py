"""The commands `review`, `approve` and `plan diff`, which accept a plan's hash or a saved plan."""

import shlex
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from core.model.errors import HeadgateError, UsageError
from core.plan.model import Plan
from core.text.escaping import escape_control_characters
from core.text.wording import counted
from tui.command_line import plan_lookup
from tui.command_line.context import CommandContext
from tui.presentation.styling.value_formatting import short_duration
from tui.services.plan_submission import with_edits

if TYPE_CHECKING:
    from core.plan.rendering import PlanStanding
    from state.row_types import PlanRow


NAMED = 6
"""Maximum number of tables listed per plan."""


def review(context: CommandContext) -> int:
    """List submitted plans, or show one plan in full."""
    from core.plan.codec import plan_as_json

    output = context.output
    refuse_two_forms(context)
    if context.args.plan is None:
        return _list(context)
    found = plan_lookup.find_plan(context, context.args.plan)
    if output.as_json:
        output.data({**plan_as_json(found.plan), "standing": plan_lookup.plan_status_as_json(found)})
        return 0
    standing = plan_lookup.plan_status_words(found)
    if context.args.markdown:
        output.print(plan_markdown(context, found.plan, standing))
        return 0
    output.print([*plan_lines(context, found.plan, standing), *reasons_of(context, found.plan)])
    if found.row is None or not standing.closed:
        output.say(how_to_apply(context, found.plan, context.args.plan if found.saved else "", approved=found.approved))
    return 0


def approve(context: CommandContext) -> int:
    """Approve a submitted plan as the current user."""
    from core.plan.confirmation import confirmation_for_act
    from state.plans import refuse_closed

    output, place = context.output, context.place
    context.announce()
    found = plan_lookup.find_plan(context, context.args.plan)
    row = plan_lookup.submitted_plan_row(found)
    refuse_closed(row, now=time.time())
    if context.args.confirm is None and output.interactive:
        output.say("\n".join(plan_lines(context, found.plan, plan_lookup.plan_status_words(found))))
    needed = confirmation_for_act("approve", (row.hash,), place.protected, environment=place.environment)
    confirm = context.confirm(needed.text, f"Approving plan {row.hash[:12]} by {row.author}.")
    approved, needs = context.operations.agent.approve(row.hash, confirm=confirm)
    body = {"hash": row.hash, "approved": approved, "approvals": needs}
    context.answer(body, f"plan {row.hash[:12]}: approvals {approved} of {needs}")
    return 0


def print_plan_diff(context: CommandContext) -> int:
    """Print the differences between two plans."""
    from core.plan.diff import difference_as_json, difference_lines

    first, second = (plan_lookup.find_plan(context, word).plan for word in (context.args.first, context.args.second))
    context.output.answer(difference_as_json(first, second), lines=difference_lines(first, second))
    return 0


def _list(context: CommandContext) -> int:
    from core.plan.request import request_line
    from tui.services.plan_submission import request_of_row

    output, now = context.output, time.time()
    rows = [with_edits(row, context.place) for row in context.operations.reader.plans()]
    if output.as_json:
        output.data({"plans": [_row_as_json(row, now) for row in rows]})
        return 0
    for row in rows:
        asked, tables = request_of_row(row)
        request = request_line(asked) if asked else "cannot be read"
        age = short_duration(now - row.created_at)
        status = plan_lookup.plan_status(row, now)
        about = {"applied": f"run {row.run_id}", "superseded": f"by {row.superseded_by}"}.get(status, "")
        first = f"{row.hash[:12]}  {status:<10}  {age:>5} ago  by {row.author:<10}  {request}"
        acts = f"{counted(len(tables), 'table')}: {_first(tables)}" if tables else ""
        output.print([first, *(f"{'':14}{line}" for line in (acts, about) if line)])
    if not rows:
        output.say("no plan has been submitted yet: headgate plan TABLE")
    return 0


def _first(tables: Sequence[str]) -> str:
    return ", ".join(tables[:NAMED]) + (f" and {len(tables) - NAMED} more" if len(tables) > NAMED else "")


def _row_as_json(row: "PlanRow", now: float) -> dict[str, Any]:
    from core.plan.codec import request_as_json
    from tui.services.plan_submission import request_of_row

    asked, tables = request_of_row(row)
    return {
        "hash": row.hash,
        "request": request_as_json(asked) if asked else None,
        "tables": list(tables),
        "author": row.author,
        "created_at": row.created_at,
        "expires_at": row.expires_at,
        "status": plan_lookup.plan_status(row, now),
        "run": row.run_id or None,
        "superseded_by": row.superseded_by or None,
        "superseded_at": row.superseded_at,
    }


def plan_lines(context: CommandContext, found: Plan, standing: "PlanStanding | None" = None) -> tuple[str, ...]:
    """Return a plan's report as lines that fit the terminal's width."""
    from core.plan.rendering import PlanStanding, judged_at, plan_lines

    known = replace(standing or PlanStanding(), options=context.given_options)
    lines = plan_lines(judged_at(found, time.time()), min(shutil.get_terminal_size((100, 24)).columns, 160), known)
    return tuple(map(escape_control_characters, lines))


def plan_markdown(context: CommandContext, found: Plan, standing: "PlanStanding | None") -> list[str]:
    """Return the lines of a plan's report in Markdown."""
    from core.plan.markdown import plan_as_markdown
    from core.plan.rendering import PlanStanding, judged_at

    # The report is read elsewhere, where the path of the project means nothing.
    options = f" --env {found.environment}" if getattr(context.args, "env", None) else ""
    known = replace(standing or PlanStanding(), options=options)
    return plan_as_markdown(judged_at(found, time.time()), known).splitlines()


def refuse_two_forms(context: CommandContext) -> None:
    """Raise UsageError if both JSON and Markdown are requested."""
    if context.args.markdown and context.output.as_json:
        raise UsageError("--json and --markdown cannot be combined", remedy="give one of them")


def reasons_of(context: CommandContext, found: Plan) -> list[str]:
    """Return lines that explain the action on each table of a plan and then list the plan's steps."""
    from core.plan.descriptions import node_why, step_line

    lines: list[str] = []
    for table in found.order:
        lines += ["", f"why {table}", *(f"  {line}" for line in node_why(found, table, context.given_options))]
    return [*lines, "", "steps", *(f"  {step_line(step)}" for step in found.steps)]


def how_to_apply(context: CommandContext, found: Plan, path: str = "", *, approved: int = 0) -> str:
    """Return the command that executes a plan, after those that approve it and unlock the environment if necessary."""
    from core.plan.confirmation import confirmation_for_plan

    text = confirmation_for_plan(found).text
    named = (shlex.quote(path) if path else found.hash[:12]) + context.given_options
    lines = [f"first, as another login: headgate approve {named}"] if approved < found.approvals else []
    lines += _how_to_unlock(context)
    lines.append(f"to execute it: headgate apply {named}" + (f" --confirm '{text}'" if text else ""))
    return "\n".join(lines)


def _how_to_unlock(context: CommandContext) -> list[str]:
    if not context.place.protected:
        return []
    from tui.presentation.view.ledger_view import access_of

    # Without an agent, nothing is known to be unlocked.
    with suppress(HeadgateError):
        snapshot, user = context.operations.snapshot(), context.operations.agent.actor()
        access = access_of(snapshot, user, time.time())
        if access.locked is None:
            return []
        if snapshot.read_only:
            return [f"{access.locked}: nobody can execute it until another policy is in force"]
    return [f"first, unlock the environment: headgate unlock 30m TICKET{context.given_options}"]
