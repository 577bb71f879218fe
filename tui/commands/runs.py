"""The command `runs`: lists, shows, follows and controls runs, and continues failed ones."""

import json
import textwrap
import time
from collections.abc import Iterable, Sequence
from typing import Any

from core.model.actions import StepKind
from core.model.errors import AgentUnreachable, Refused, UsageError
from core.plan.codec import plan_from_json
from core.plan.descriptions import act_words
from core.plan.model import Step
from core.run.model import HALTED, SATISFIED
from core.run.records import RunRow, StepRow
from core.run.release import time_left
from core.run.stopped_statement_sentences import stopped_serving, stopped_serving_words
from tui.agent_client import agent_process
from tui.agent_client.agent_process import WaitProgress
from tui.command_line.context import CommandContext
from tui.commands.review_approve import plan_lines
from tui.presentation.screen_content.releases import time_left_words
from tui.presentation.screen_content.runs import (
    CONTINUES_WITH,
    OPEN_STEPS,
    PRINTED_RUNS,
    STEPS,
    finished_steps_words,
    is_held,
    run_cells,
    run_summary,
    step_cells,
)
from tui.presentation.screen_content.statement_rows import RowContext
from tui.presentation.styling.styled_text import plain
from tui.presentation.styling.table_layout import format_records
from tui.presentation.styling.theme import WORDS_ALONE
from tui.services.follow_up_plans import RunContinuation

COLUMNS = 98
"""Width in columns at which a step's full note is wrapped."""

ENDED = ("done", "failed", "cancelled")


INTERRUPTED = 130


AGENT_GONE_S = 3.0
"""Seconds without an agent before the command stops following a run. The next agent continues the run."""
AGENT_SILENT_S = 60.0
"""The same for an agent that is alive but does not answer, for example on a busy machine."""


def runs(context: CommandContext) -> int:
    """List runs, show or follow a run, or send it a command."""
    output, operations = context.output, context.operations
    if context.args.subcommand not in ("", "show"):
        return _control(context, context.args.subcommand)
    if context.args.run is not None:
        row = operations.run(context.args.run)
        if context.args.follow:
            return follow_run(context, row.id)
        return _report(context, row)
    rows = tuple(map(operations.as_it_is, operations.reader.runs()))
    none = [] if rows else ["no plan has been executed yet"]
    lines = format_records(PRINTED_RUNS, [run_cells(row, time.time()) for row in rows]) if rows else ()
    output.answer([run_as_json(row) for row in rows], *none, lines=lines)
    return 0


def follow_run(context: CommandContext, run_id: str, before: RunRow | None = None, *, past_hold: bool = False) -> int:
    """Print a run's steps until the run finishes or is held, and return an exit code.

    The exit code is 0 if the run succeeded or is held, 130 after Ctrl-C, and otherwise 1. Ctrl-C does not stop the run.
    With `past_hold`, a held run continues to be followed, because its swap was just requested and may not have begun.
    `before` is the run as it was before a retry or resume; steps that had finished by then are not printed again.
    """
    output, operations = context.output, context.operations
    told = {step.n: (step.state, step.tries) for step in before.steps} if before else {}
    planned = planned_steps(context, operations.run(run_id))
    version = -1
    seen = time.monotonic()
    try:
        while True:
            row = operations.run(run_id)
            _tell_steps(context, row, planned, told)
            if row.state in ENDED or (is_held(row) and not past_hold):
                return _report(context, row, told=True)
            where = progress_words(row, planned, time.time())
            output.progress(wait_of(row, where))
            if agent_process.is_listening(operations.client):
                seen = time.monotonic()
            elif (silent_s := time.monotonic() - seen) > AGENT_GONE_S:
                _refuse_without_agent(context, row, silent_s, where)
            version = operations.wait_for_change(version, 0.5)
    except KeyboardInterrupt:
        output.say(f"detached: run {run_id} continues; headgate runs {run_id} --follow follows it")
        return INTERRUPTED


def _refuse_without_agent(context: CommandContext, row: RunRow, silent_s: float, where: str) -> None:
    """Raise AgentUnreachable unless an agent is alive that may answer later."""
    found = agent_process.find_agent_process(context.operations.place)
    if found is None:
        raise AgentUnreachable(
            f"the agent stopped during run {row.id}: {where}",
            remedy=f"to continue from there: headgate up, then headgate runs {row.id} --follow",
        )
    if silent_s > AGENT_SILENT_S:
        raise AgentUnreachable(
            f"the agent (pid {found.pid}) is alive but has not answered for {AGENT_SILENT_S:.0f} s; "
            f"run {row.id}: {where}",
            remedy=f"headgate logs agent shows what it does; headgate runs {row.id} --follow follows the run again",
        )


def wait_of(row: RunRow, where: str = "") -> WaitProgress:
    """Return the progress of a run, with the time since its start, whenever the caller began to follow it."""
    return WaitProgress(f"run {row.id}", max(0.0, time.time() - row.started_at), 0.0, where)


def planned_steps(context: CommandContext, row: RunRow) -> tuple[Step, ...]:
    """Return the steps of a run's plan; empty if the plan was deleted or is in the format of a different version."""
    kept = context.operations.reader.plan(row.plan_hash)
    if kept is None:
        return ()
    try:
        return plan_from_json(json.loads(kept.body)).steps
    except UsageError:
        return ()


def progress_words(row: RunRow, planned: Sequence[Step], now: float) -> str:
    """Describe an open run: its progress, its current step and its remaining time."""
    current = next((step for step in row.steps if step.state in OPEN_STEPS), None)
    doing = f"{act_words(current.do)} {current.table} {current.note}".rstrip() if current else str(row.state)
    if all(step.state in SATISFIED for step in row.steps):
        doing = "all steps are done"
    return f"{finished_steps_words(row)}, {doing}{time_left_words(time_left(planned, row.steps, now))}"


_STEP_FIELDS = (
    "n", "do", "table", "version", "state", "tries", "note", "started_at", "ended_at", "predicted_low_s",
    "predicted_high_s",
)  # fmt: skip
_RUN_FIELDS = ("actor", "state", "started_at", "ended_at", "predicted_low_s", "predicted_high_s")


def run_as_json(row: RunRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "plan": row.plan_hash,
        **{name: getattr(row, name) for name in _RUN_FIELDS},
        "continues": row.continues or None,
        "continued_by": row.continued_by or None,
        "acknowledged_by": row.acknowledged_by or None,
        "steps": [{name: getattr(step, name) for name in _STEP_FIELDS} for step in row.steps],
    }


def _control(context: CommandContext, act: str) -> int:
    context.announce()
    row = context.operations.run(context.args.run)
    if act == "retry" and (found := context.operations.continuation(row.id)) is not None:
        return _continue(context, found)
    confirm = ""
    if act in ("cancel", "skip"):
        short = row.id[:4]
        rests = stopped_serving(context.operations.reader.deployments(), {step.table for step in row.steps})
        question = f"cancel run {row.id}: versions that were started but not swapped in are stopped; tables are kept."
        if act == "skip":
            question = f"skip step {context.args.step} of run {row.id}: later steps continue without it."
        elif rests:
            context.output.say(stopped_serving_words(rests))
        confirm = context.confirm(short, question, op="run", act=act)
    step = context.args.step if act == "skip" else 0
    context.operations.agent.run_control(row.id, act, step=step, confirm=confirm)
    said = f"run {row.id}: acknowledged" if act == "ack" else f"{act} sent to run {row.id}"
    context.answer({"run": row.id, "act": act}, said)
    if act in ("resume", "retry") and context.args.follow:
        return follow_run(context, row.id, row)
    return 0


def _continue(context: CommandContext, found: RunContinuation) -> int:
    from core.plan.descriptions import step_line

    output, plan = context.output, found.submitted.plan
    if plan.empty:
        raise Refused(
            f"run {found.run.id} has nothing left to do: the files match what is deployed",
            remedy="headgate ls shows it",
        )
    edited = ", ".join(edit.table for edit in found.edits)
    output.say(f"edited since run {found.run.id} failed: {edited}")
    for edit in found.edits:
        output.say("\n".join(f"  {line}" for line in edit.lines()))
    output.say(
        "\n".join(["", *plan_lines(context, plan), "", "steps", *(f"  {step_line(step)}" for step in plan.steps)])
    )
    question = f"Continuing run {found.run.id} with this plan; headgate review {plan.hash[:12]} shows it in full."
    confirm = context.confirm(found.submitted.confirm, question, op="apply")
    run_id = context.operations.agent.apply(plan.hash, confirm=confirm)
    if context.args.follow:
        return follow_run(context, run_id)
    body = {"run": run_id, "act": "retry", "continues": found.run.id, "plan": plan.hash}
    context.answer(body, f"run {run_id} continues run {found.run.id}: headgate runs {run_id} --follow")
    return 0


def _tell_steps(
    context: CommandContext, row: RunRow, planned: Sequence[Step], told: dict[int, tuple[str, int]]
) -> None:
    for step, words in zip(row.steps, step_table(row.steps, planned)[1:], strict=True):
        mark = (step.state, step.tries)
        if step.state not in ("waits", *OPEN_STEPS) and told.get(step.n) != mark:
            context.output.say(words)
        told[step.n] = mark


def step_table(steps: Iterable[StepRow], planned: Iterable[Step]) -> list[str]:
    """Return a header, and a line with state, duration and note of each step."""
    look, tables = RowContext(WORDS_ALONE, time.time()), {step.n: step.tables for step in planned}
    return format_records(STEPS, [step_cells(step, look, names=tables.get(step.n, ())) for step in steps])


def _report(context: CommandContext, row: RunRow, *, told: bool = False) -> int:
    row = context.operations.as_it_is(row)
    promotion = context.operations.reader.promotion_of(row.plan_hash)
    if context.output.as_json:
        source = {"promoted_from": promotion["promoted_from"]} if promotion is not None else {}
        context.answer({**run_as_json(row), **source})
    else:
        planned = planned_steps(context, row)
        summary = plain(run_summary(row, context.place.environment, time.time(), planned=planned)).strip()
        origin = [f"promotes what runs in {promotion['promoted_from']}"] if promotion is not None else []
        context.output.print([summary, *origin, *(() if told else step_table(row.steps, planned))])
        wrong = [step for step in row.steps if step.state == "failed"]
        if wrong and row.state == "failed" and not row.continued_by:
            note = "\n".join(textwrap.wrap(wrong[0].note, COLUMNS, subsequent_indent="  ", break_long_words=False))
            context.output.say(
                f"step {wrong[0].n} failed: {note}\n  once the cause is fixed: headgate runs retry {row.id} --follow"
            )
            if wrong[0].do == StepKind.VALIDATE:
                context.output.say(
                    f"  headgate release diff {row.id} {wrong[0].table} lists what was compared\n"
                    f"  headgate runs skip {row.id} --step {wrong[0].n} continues despite it"
                )
        if row.state == HALTED:
            context.output.say(f"no agent is running: {CONTINUES_WITH}")
        if is_held(row):
            waits = "all new versions run and have caught up; nothing is swapped until the swap is confirmed"
            context.output.say(
                f"run {row.id} is held: {waits}\n  headgate release swap {row.id}, or headgate runs cancel {row.id}"
            )
    bad = row.state in ("failed", "cancelled") or any(step.state in ("failed", "blocked") for step in row.steps)
    return 1 if bad else 0
