"""`release diff`: what the comparison of a release has found, with examples of what is expected and of what is not."""

from core.model.actions import StepKind
from core.model.errors import UsageError
from core.model.names import parse_table_name
from core.run.model import StepState
from tui.command_line.context import CommandContext
from tui.presentation.reports.release_diff import blocks, result_as_json, result_lines


def diff(context: CommandContext) -> int:
    """Show what was found for the tables of a run, or for one; 1 where something blocks the release."""
    operations = context.operations
    row = operations.run(context.args.run)
    table = parse_table_name(context.args.table) if context.args.table else None
    if table is not None and table not in {step.table for step in row.steps}:
        raise UsageError(f"run {row.id} does nothing to {table}", remedy=f"headgate runs {row.id} lists its steps")
    found = operations.reader.check_results(row.id, table)
    if context.voice.as_json:
        context.document("headgate.release_diff/1", run=row.id, results=[result_as_json(each) for each in found])
    else:
        skipped = [step for step in row.steps if (step.do, step.state) == (StepKind.VALIDATE, StepState.SKIPPED)]
        context.voice.print([f"{each.table}: {each.note}" for each in skipped if table in (None, each.table)])
        context.voice.print(result_lines(found))
        if not found and not skipped:
            about = f" of {table}" if table else ""
            compares = any(step.do == StepKind.VALIDATE and table in (None, step.table) for step in row.steps)
            said = f"has compared no rows{about} so far" if compares else f"compares no rows{about}"
            context.voice.say(f"run {row.id} {said}")
    return 1 if any(map(blocks, found)) else 0
