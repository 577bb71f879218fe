"""The commands that execute a plan: `apply`, `delete`, `rollback`, `undelete`, `optimize` and `vacuum`."""

import time
from collections.abc import Sequence

from core.model.errors import Refused
from core.plan.model import Plan
from state.plans import refuse_closed
from tui.command_line import plan_lookup
from tui.command_line.context import CommandContext
from tui.commands.plan import read_request, say_set_aside
from tui.commands.review_approve import plan_lines
from tui.commands.runs import follow_run
from tui.presentation.screen_content.screen_frame import accepted_words
from tui.project_folder.request_scope import refuse_unknown
from tui.services import planner_input_reader


def apply(context: CommandContext) -> int:
    """Execute a submitted or saved plan. Returns 1 if a step failed or was blocked."""
    context.announce()
    found = plan_lookup.find_plan(context, context.args.plan)
    # The plan is checked before the user is asked to confirm, which would be pointless for a superseded plan.
    refuse_closed(plan_lookup.submit_saved_plan(context, found), now=time.time())
    return _execute(context, found.plan, shown=False)


def delete(context: CommandContext) -> int:
    """Plan the deletion of tables, show the plan, ask for confirmation, and execute it."""
    context.announce()
    asked = read_request(context, "delete")
    operations = context.operations
    declared = operations.projects.read_sound_tables()
    observed = planner_input_reader.observe(operations.reader)
    refuse_unknown(declared.project, observed, asked.request, asked.places)
    submitted = operations.submit(asked.request)
    say_set_aside(context, declared.project)
    if submitted.plan.empty:
        raise Refused("none of these tables is deployed", remedy="headgate ls lists the deployed tables")
    context.output.say("\n".join(plan_lines(context, submitted.plan)))
    return _execute(context, submitted.plan, shown=True)


def act_by_name(context: CommandContext) -> int:
    """Plan the command in `args` for the named tables, show the plan, ask for confirmation, and execute it.

    The command is a rollback, undelete, optimize or vacuum.
    """
    args = context.args
    return execute_by_name(context, args.verb, args.tables, retain=getattr(args, "retain", ""))


def execute_by_name(context: CommandContext, verb: str, words: Sequence[str], *, retain: str = "") -> int:
    """Plan `verb` for the named tables or runs, show the plan, ask for confirmation, and execute it."""
    context.announce()
    operations = context.operations
    request = operations.request_by_name(verb, words, retain=retain)
    declared = operations.projects.read_sound_tables()
    refuse_unknown(declared.project, planner_input_reader.observe(operations.reader), request)
    submitted = operations.submit(request)
    say_set_aside(context, declared.project)
    context.output.say("\n".join(plan_lines(context, submitted.plan)))
    return _execute(context, submitted.plan, shown=True)


def _execute(context: CommandContext, plan: Plan, *, shown: bool) -> int:
    from core.plan.confirmation import confirmation_for_plan

    output = context.output
    needed = confirmation_for_plan(plan)
    given = getattr(context.args, "confirm", None)
    if not shown and given is None and output.interactive:
        output.say("\n".join(plan_lines(context, plan)))
    loses = [f"  {node.table} loses {', '.join(node.loses)}" for node in plan.nodes if node.loses]
    confirm = context.confirm(needed.text, "\n".join(["Executing this plan.", *loses]), op="apply")
    run_id = context.operations.agent.apply(plan.hash, confirm=confirm)
    if context.args.detach:
        context.answer({"run": run_id, "plan": plan.hash}, lines=[run_id])
        return 0
    output.say(accepted_words(run_id))
    return follow_run(context, run_id)
