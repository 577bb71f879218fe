"""The command `demo`: the pizzeria sample with its prepared changes, and the six scenarios with a database."""

import argparse
import os
import sys
import time
from contextlib import suppress
from typing import Any

from core.model.actions import StepKind
from core.model.errors import HeadgateError, UsageError
from core.model.states import WantedState
from core.observed.versions import StatementLine
from core.plan.request import PlanRequest
from core.text.wording import did_you_mean
from tui.agent_client import agent_process
from tui.command_line.arguments import SCENARIOS
from tui.command_line.context import CommandContext
from tui.commands import console_up_down
from tui.commands.doctor import check_lines
from tui.commands.runs import follow_run, wait_of
from tui.presentation.reports.scenario_comparison import comparison_lines, comparison_markdown
from tui.presentation.styling.theme import choose_glyphs
from tui.presentation.styling.value_formatting import short_number
from tui.services import demo_project, doctor_checks, teardown
from tui.services.plan_submission import find_plan_row, plan_of_row

ROWS_S = 900.0
SETTLE_S = 600.0
"""Longest wait, in seconds, for a round of closing events to be processed."""
MORE_ROUNDS = 2
"""Maximum number of additional rounds of closing events while windows are open."""


def demo(context: CommandContext) -> int:
    """Start the demo or a scenario, `settle` or `change` the demo, or `compare` the scenarios."""
    if context.args.subcommand == "settle":
        return _settle(_inside(context))
    if context.args.subcommand == "change":
        return _change(context, context.args.kind)
    if context.args.subcommand == "compare":
        return _compare(context)
    return _run(context, _folder(context))


def _run(context: CommandContext, folder: str) -> int:
    args, output = context.args, context.output
    with_console = not (args.no_console or output.as_json)
    if with_console:
        console_up_down.require_terminal(context)
    scenario = args.scenario or demo_project.scenario_of(folder)
    if scenario and args.format:
        raise UsageError("--format is for the sample without a database", remedy="leave out --format")
    began = time.monotonic()
    running = demo_project.is_demo_folder(folder) and agent_process.is_listening(_at(context, folder).operations.client)
    if not running and not _healthy(context, folder, terminal=with_console):
        return 1
    made = demo_project.copy_sample(folder, context.environ, format=args.format, scenario=scenario)
    bound = _at(context, str(made["folder"]))
    place, operations = bound.place, bound.operations
    output.say(f"{place.title}  ({place.folder}, {'made' if made['made'] else 'found'})")
    agent_process.make_home(place)
    if scenario:
        started = demo_project.start_servers(place.folder, bound.environ, output.progress)
        output.say(f"servers are up after {time.monotonic() - began:.1f} s: {', '.join(started) or 'all were running'}")
    log = f"{place.where.home}/generator.log"
    work = ("--work", "--project", place.folder) if scenario else ()
    if demo_project.start_generator(place, bound.environ, rate=args.rate, log=log, work=work):
        output.say("the generator is running: new orders arrive every second, for two hours or until `headgate down`")
    if agent_process.ensure_running(place, operations.client, bound.environ, progress=output.progress):
        output.say(f"agent and pool are up after {time.monotonic() - began:.1f} s")
    else:
        output.say(f"attached to what was already running, in {time.monotonic() - began:.1f} s")
    run_id = _first_plan(bound)
    if not with_console:
        return _until_rows(bound, run_id, began)
    output.clear()
    return _console(bound)


def _healthy(context: CommandContext, folder: str, *, terminal: bool) -> bool:
    checks = [c for c in doctor_checks.check_machine(context.environ, folder) if terminal or c.name != "terminal"]
    failed = [check for check in checks if not check.ok]
    if not failed:
        return True
    error = HeadgateError(failed[0].summary, remedy=failed[0].remedy)
    body = {"error": error.as_json(), "checks": [check.as_json() for check in checks]}
    context.output.answer(body, "\n".join(check_lines(checks)))
    return False


def _first_plan(context: CommandContext) -> str:
    """Deploy the sample and return the id of the run.

    If a run is already open, its id is returned and nothing is deployed. Empty if the sample was deployed before.
    """
    operations, output = context.operations, context.output
    under_way = operations.reader.open_runs()
    if under_way:
        return under_way[0].id
    if any(not d.external for d in operations.reader.deployments(include_deleted=True)):
        return ""
    # Spark is known to accept the statements of the sample, so checking them would only delay the first rows.
    submitted = operations.submit(PlanRequest(everything=True), asks_spark=False)
    run_id = operations.agent.apply(submitted.plan.hash, confirm=submitted.confirm)
    output.say(
        f"first plan {submitted.plan.hash[:4]}: {len(submitted.plan.order)} tables, {len(submitted.plan.steps)} steps; "
        f"submitted and confirmed for you as run {run_id}"
    )
    return run_id


def _until_rows(context: CommandContext, run_id: str, began: float) -> int:
    operations, output = context.operations, context.output

    def tell(line: StatementLine) -> None:
        rows = f", {short_number(line.rows_total)} rows" if line.rows_total else ""
        output.say(f"  {line.table} has processed rows after {time.monotonic() - began:.0f} s{rows}")

    expected = _expected(context, run_id)
    demo_project.wait_for_rows(operations, expected, tell=tell, progress=output.progress, seconds=ROWS_S)
    if run_id:
        # The last statements may have rows before the run is recorded as done.
        code = follow_quietly(context, run_id)
        if code:
            return code
    if output.as_json:
        lines = [line for line in operations.snapshot().serving if not line.external]
        output.data(
            {"folder": context.place.folder, "statements": len(lines), "took_s": round(time.monotonic() - began, 1)}
        )
    else:
        output.say(f"every statement has processed rows after {time.monotonic() - began:.0f} s")
        program = console_up_down.started_program(os.path.abspath(sys.argv[0]), context.environ)
        output.say(f"next: cd {context.place.folder}; {program} ls; {program}; {program} down")
    return 0


def _expected(context: CommandContext, run_id: str) -> frozenset[str]:
    operations = context.operations
    lines = operations.snapshot().serving
    running = {str(line.table) for line in lines if not line.external and line.wanted == WantedState.RUNNING}
    if not run_id:
        return frozenset(running)
    plan = plan_of_row(find_plan_row(operations.reader, operations.run(run_id).plan_hash))
    return frozenset(running | {str(step.table) for step in plan.steps if step.do is StepKind.START})


def follow_quietly(context: CommandContext, run_id: str) -> int:
    """Wait until a run finishes. Returns 0 if it succeeded; otherwise, prints its steps and returns an exit code."""
    while (row := context.operations.run(run_id)).state not in ("done", "failed", "cancelled"):
        context.output.progress(wait_of(row))
        time.sleep(0.2)
    return 0 if row.state == "done" else follow_run(context, run_id)


def _console(context: CommandContext) -> int:
    def stop_everything() -> None:
        ended = teardown.end_all(
            context.place,
            context.operations.client,
            keep_pool=False,
            confirm="",
            progress=context.output.progress,
        )
        context.output.say("ended: " + ", ".join(ended))

    code = console_up_down.open_console(context, offer_down=stop_everything)
    if teardown.still_running(context.place):
        program = console_up_down.started_program(sys.argv[0], context.environ)
        again, ends = f"{program} demo {context.place.folder}", f"{program} down {context.place.options}"
        context.output.say(f"the demo keeps running: {again} reopens it, {ends} stops it")
    return code


def _compare(context: CommandContext) -> int:
    """Run the scenarios one after another over the same changes, and print how correct and current their tables are."""
    args, output = context.args, context.output
    if args.markdown and output.as_json:
        raise UsageError("--json and --markdown cannot be combined", remedy="give one of them")
    root = os.path.abspath(os.path.join(context.cwd, os.path.expanduser(args.folder or "headgate-compare")))
    if not _healthy(context, root, terminal=False):
        return 1
    for folder in (f"{root}/scenario-{number}" for number in SCENARIOS):
        if demo_project.is_demo_folder(folder):
            _remove(_at(context, folder))  # A comparison that failed or was killed has left this folder behind.
    try:
        found = [_compared(context, f"{root}/scenario-{number}", number) for number in args.scenario or SCENARIOS]
    finally:
        with suppress(OSError):  # It may contain something else.
            os.rmdir(root)
    body = {"seed": args.seed, "rate": args.rate, "scenarios": found}
    glyphs = choose_glyphs(context.environ)
    lines = comparison_markdown(found) if args.markdown else comparison_lines(found, glyphs)
    output.answer(body, lines=lines)
    return 0


def _compared(context: CommandContext, folder: str, number: int) -> dict[str, Any]:
    """Measure a scenario in a new folder, and delete the folder. After a failure it stays, because it shows why."""
    made = demo_project.copy_sample(folder, context.environ, scenario=number)
    bound = _at(context, str(made["folder"]))
    try:
        found = _measured(bound)
    except HeadgateError:
        _end(bound)
        raise
    except BaseException:
        _remove(bound)
        raise
    _remove(bound)
    return found


def _measured(context: CommandContext) -> dict[str, Any]:
    args, place, operations, output = context.args, context.place, context.operations, context.output
    output.say(f"{place.title}  ({place.folder})")
    agent_process.make_home(place)
    demo_project.start_servers(place.folder, context.environ, output.progress)
    agent_process.ensure_running(place, operations.client, context.environ, progress=output.progress)
    run_id = _first_plan(context)
    if follow_quietly(context, run_id):
        raise HeadgateError(f"{place.title} cannot be deployed", remedy=f"headgate events --project {place.folder}")
    pace = ["--rate", str(args.rate), "--seed", str(args.seed)]
    words = ["--measure", str(args.transactions), "--project", place.folder, "--data", place.data, *pace]
    found = demo_project.run_demo_child(
        words, context.environ, seconds=demo_project.MEASURE_S, progress=output.progress
    )
    lines = [line for line in operations.snapshot().serving if not line.external]
    state = [measurement.state_bytes or 0 for measurement in operations.reader.measurements()]
    return {**found, "statements": len(lines), "state_bytes": sum(state)}


def _end(context: CommandContext) -> None:
    client, progress = context.operations.client, context.output.progress
    teardown.end_all(context.place, client, keep_pool=False, confirm="", progress=progress)


def _remove(context: CommandContext) -> None:
    """End the scenario, and delete its folder."""
    _end(context)
    teardown.delete_caches(context.place, context.environ)
    teardown.purge(context.place, teardown.owned_places(context.place), context.output.progress)


def _settle(context: CommandContext) -> int:
    output, operations = context.output, context.operations
    context.announce()
    rounds = demo_project.rounds_of(operations.project())
    began = time.monotonic()
    settled: list[demo_project.SettledRound] = []
    open_still: list[str] = []
    while len(settled) < rounds or (open_still and len(settled) < rounds + MORE_ROUNDS):
        last = len(settled) >= rounds - 1
        one = demo_project.settle_round(operations, context.environ, output.progress, last=last, seconds=SETTLE_S)
        settled.append(one)
        output.say(f"closing round {len(settled)} of {rounds} was processed after {one.took_s:.0f} s")
        open_still = demo_project.not_closed(operations, settled[0].closed_when_watermark_reaches) if last else []
    if open_still:
        raise HeadgateError(f"windows are still open in {', '.join(open_still)}", remedy="headgate demo settle again")
    took = time.monotonic() - began
    ids = [-one.number for one in settled]
    output.answer(
        {"settled": True, "rounds": len(settled), "took_s": round(took, 1), "closing_ids": ids},
        f"settled after {took:.0f} s: the generator is stopped, all windows are closed, nothing lags",
        "closing events have negative ids; `headgate demo` starts the generator again",
    )
    return 0


def _change(context: CommandContext, kind: str) -> int:
    if kind not in demo_project.CHANGES:
        listed = f"headgate demo change {'|'.join(demo_project.CHANGES)}"
        raise UsageError(f"{kind!r} is not a change", remedy=did_you_mean(kind, demo_project.CHANGES) or listed)
    bound = _inside(context)
    bound.announce()
    command = ["--change", kind, "--project", bound.place.folder]
    answer = demo_project.run_demo_child(
        [*command, *(["--with-readers"] if context.args.with_readers else [])], bound.environ
    )
    output = context.output
    if output.as_json:
        output.data(answer)
        return 0
    if answer.get("already_made"):
        output.say("this change was already made; nothing was written")
    for path in answer.get("written", ()):
        output.print([str(path)])
    table = str(answer["table"])
    output.say(f"expected for {table}: {answer['expected']}")
    output.say(f"see it: headgate plan {table} --children all {bound.place.options}")
    return 0


def _folder(context: CommandContext) -> str:
    # The process that copies the sample runs in `/`, so its path must be absolute.
    if not context.args.folder:
        return demo_project.default_folder(context.cwd, getattr(context.args, "scenario", None))
    return os.path.abspath(os.path.join(context.cwd, os.path.expanduser(context.args.folder)))


def _inside(context: CommandContext) -> CommandContext:
    folder = _folder(context)
    if not demo_project.is_demo_folder(folder):
        act = " ".join(filter(None, (context.args.subcommand, getattr(context.args, "kind", ""))))
        raise UsageError(
            f"{folder} is not a Headgate demo",
            remedy=f"create one: headgate demo; or name its folder: headgate demo {act} FOLDER",
        )
    if scenario := demo_project.scenario_of(folder):
        raise UsageError(
            f"{folder} is scenario {scenario}, and {context.args.subcommand} is for the sample without a database",
            remedy="headgate demo compare measures the scenarios",
        )
    return _at(context, folder)


def _at(context: CommandContext, folder: str) -> CommandContext:
    """Return a context for the demo's folder and default environment, ignoring HEADGATE_PROJECT and HEADGATE_ENV."""
    environ = {k: v for k, v in context.environ.items() if k not in ("HEADGATE_PROJECT", "HEADGATE_ENV")}
    args = argparse.Namespace(**{**vars(context.args), "project": folder, "env": None})
    return CommandContext(args, context.output, environ)
