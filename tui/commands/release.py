"""The command `release`: shows runs that replace versions, and swaps, rolls back or retires their versions."""

import time

from core.model.actions import StepKind
from core.model.errors import UsageError
from core.model.names import TableName, parse_table_name
from core.reports.base_comparison import comparison_as_markdown
from core.run.model import StepState
from core.run.records import OVERLAY_COMPARISON
from core.run.release import Release
from tui.command_line.context import CommandContext
from tui.command_line.exit_codes import INTERRUPTED
from tui.commands.apply import execute_by_name
from tui.commands.runs import follow_run, planned_steps, run_as_json, step_table
from tui.presentation.reports.check_results import (
    base_comparison_as_json,
    base_comparison_lines,
    blocks,
    result_as_json,
    result_lines,
)
from tui.presentation.screen_content.releases import release_as_json, release_details, release_lines
from tui.services.comparison_with_base import COMPARE_S, compare_now, overlay_of, stored_comparison
from tui.services.deployed_statements import find_release, list_releases
from tui.services.environment_service import EnvironmentService


def release(context: CommandContext) -> int:
    """List releases, show a release, or perform an operation on it."""
    act = context.args.subcommand or "list"
    return _ACTS[act](context)


def _list(context: CommandContext) -> int:
    now = time.time()
    operations = context.operations
    found = tuple(map(operations.release_as_it_is, list_releases(operations.reader, now)))
    if context.output.as_json:
        context.document("headgate.releases/1", releases=[release_as_json(each) for each in found])
        return 0
    context.output.print(release_lines(found, now))
    if not found:
        context.output.say("no run has replaced a version yet")
    return 0


def _show(context: CommandContext) -> int:
    operations, now = context.operations, time.time()
    found = operations.release_as_it_is(_found(context))
    row = operations.as_it_is(operations.run(found.run))
    if context.output.as_json:
        context.document("headgate.release/1", release=release_as_json(found), steps=run_as_json(row)["steps"])
        return 0
    steps = ["", *step_table(row.steps, planned_steps(context, row))] if context.args.steps else []
    context.output.print([*release_details(found, now), *steps])
    return 0


def _swap(context: CommandContext) -> int:
    context.announce()
    found, output, agent = _found(context), context.output, context.operations.agent
    if context.args.confirm is None and output.interactive:
        output.say("\n".join(release_details(found, time.time())))
    moved = ", ".join(f"{pair.table} v{pair.old.version} → v{pair.new.version}" for pair in found.pairs)
    needed = agent.confirmation_of_swap(found.run)
    confirm = context.confirm(needed.text, f"Moving the pointers of {moved}.", op="run", act="swap")
    agent.swap(found.run, confirm=confirm)
    if context.args.detach:
        said = f"run {found.run} may swap now: headgate runs {found.run} --follow"
        context.answer({"run": found.run, "act": "swap"}, said)
        return 0
    return follow_run(context, found.run, past_hold=True)


def _rollback(context: CommandContext) -> int:
    return execute_by_name(context, "rollback", (_found(context).run,))


def _retire(context: CommandContext) -> int:
    return execute_by_name(context, "retire", (_found(context).run,))


def _close(context: CommandContext) -> int:
    context.announce()
    run, reader = _found(context).run, context.args.reader.strip()
    if not reader:
        raise UsageError("a ticket is closed by its reader's name", remedy=f"headgate release show {run} lists tickets")
    context.operations.agent.close_ticket(run, reader)
    closed = f"run {run}: the ticket of {reader} is closed"
    context.answer({"run": run, "reader": reader, "act": "close"}, closed)
    return 0


def _found(context: CommandContext) -> Release:
    word, operations = context.args.run, context.operations
    if any(line.table == word for line in operations.snapshot().statements):
        acts = f"; headgate rollback {word} and headgate plan retire {word} take a table"
        raise UsageError(
            f"{word} is a table: a release is named by its run", remedy=f"headgate release lists them{acts}"
        )
    return find_release(operations.reader, word, time.time())


def diff(context: CommandContext) -> int:
    """Show a run's validation results, or compare an overlay with its base.

    Returns 1 if a result is unexpected, or if a table of both environments could not be compared.
    """
    args, operations = context.args, context.operations
    if args.run is None or args.last or args.markdown or args.timeout is not None:
        return _compare_with_base(context)
    if operations.place.overlay is not None and args.table is None and _is_compared(operations, args.run):
        return _compare_with_base(context)
    row = operations.run(context.args.run)
    table = parse_table_name(context.args.table) if context.args.table else None
    if table is not None and table not in {step.table for step in row.steps}:
        raise UsageError(f"run {row.id} has no step for {table}", remedy=f"headgate runs {row.id} lists its steps")
    found = operations.reader.check_results(row.id, table)
    if context.output.as_json:
        context.document("headgate.release_diff/1", run=row.id, results=[result_as_json(each) for each in found])
    else:
        skipped = [step for step in row.steps if (step.do, step.state) == (StepKind.VALIDATE, StepState.SKIPPED)]
        context.output.print([f"{each.table}: {each.note}" for each in skipped if table in (None, each.table)])
        context.output.print(result_lines(found))
        if not found and not skipped:
            about = f" of {table}" if table else ""
            compares = any(step.do == StepKind.VALIDATE and table in (None, step.table) for step in row.steps)
            said = f"has compared no rows{about} so far" if compares else f"compares no rows{about}"
            context.output.say(f"run {row.id} {said}")
    return 1 if any(map(blocks, found)) else 0


def _compare_with_base(context: CommandContext) -> int:
    args, output, operations = context.args, context.output, context.operations
    if args.markdown and output.as_json:
        raise UsageError("--json and --markdown cannot be combined", remedy="give one of them")
    if args.last and args.timeout is not None:
        raise UsageError("--last compares nothing, so it has no --timeout", remedy="give one of them")
    overlay = overlay_of(operations)
    if args.table is not None:
        raise UsageError(
            "the comparison of an overlay with its base has no run, and shows all tables or one",
            remedy=f"headgate release diff --last {args.table}, or headgate release diff {args.run} {args.table}",
        )
    table = args.run
    if table is not None and not _is_compared(operations, table):
        raise UsageError(
            f"{operations.place.environment} has no table {table} to compare with {overlay.base}",
            remedy="headgate release diff --last lists the tables; without an option, RUN is a run of a release",
        )
    if args.last:
        found = stored_comparison(operations, overlay)
        if found is None:
            here = operations.place.environment
            raise UsageError(f"{here} has not been compared with {overlay.base} yet", remedy="headgate release diff")
    else:
        limit_s = COMPARE_S if args.timeout is None else args.timeout
        try:
            found = compare_now(operations, overlay, limit_s, output.progress)
        except KeyboardInterrupt:
            output.say("interrupted; the agent goes on comparing: headgate release diff --last shows the result")
            return INTERRUPTED
    if found is not None and table is not None:
        found = found.only(TableName(table))
        if found is None:
            raise UsageError(
                f"the comparison with {overlay.base} has no results for {table}",
                remedy="headgate release diff --last lists the tables",
            )
    if output.as_json:
        body = base_comparison_as_json(found) if found else {"base": overlay.base, "results": []}
        context.document("headgate.base_comparison/1", **body)
    elif found is None:
        output.say(f"{operations.place.environment} has built no table yet, and {overlay.base} has none")
    elif args.markdown:
        output.print(comparison_as_markdown(found).splitlines())
    else:
        output.print(base_comparison_lines(found, time.time()))
    return 0 if found is None or found.passes else 1


def _is_compared(operations: EnvironmentService, word: str) -> bool:
    """True if a word is a table of the overlay or of the stored comparison."""
    stored = operations.reader.check_results(OVERLAY_COMPARISON)
    here = (line.table for line in operations.snapshot().statements)
    return word in {*here, *(result.table for result in stored)}


_ACTS = {
    "list": _list,
    "show": _show,
    "diff": diff,
    "swap": _swap,
    "rollback": _rollback,
    "retire": _retire,
    "close": _close,
}
