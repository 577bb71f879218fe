"""The command `test`: runs test cases, tests upgrades from old checkpoints, or writes a first test case."""

import time
from contextlib import closing

from core.model.errors import UsageError
from core.model.names import TableName
from core.statement_tests.request import CaseOutcome, CaseResult, result_from_json
from core.statement_tests.upgrade import upgrade_words
from core.text.wording import counted
from tui.agent_client.agent_process import WaitProgress
from tui.command_line.context import CommandContext
from tui.presentation.reports.check_results import case_as_json, case_lines, cases_summary
from tui.presentation.reports.left_out import left_out_as_json, left_out_words
from tui.services import statement_tests
from tui.services.statement_tests import PlannedUpgrade, SelectedCases


def test(context: CommandContext) -> int:
    """Run test cases or, with `test init TABLE`, write a first one. Returns 1 if one fails, 2 if one cannot run."""
    args = context.args
    if args.integration:
        from tui.commands import integration_tests

        return integration_tests.init(context) if args.subcommand == "init" else integration_tests.run(context)
    for option in ("pool", "scenario", "lateness"):
        if getattr(args, option, None) is not None:
            raise UsageError(f"--{option} is about integration tests", remedy="add --integration")
    if args.subcommand == "init":
        return _init(context)
    if args.junit or args.markdown:
        raise UsageError("--junit and --markdown are about integration tests", remedy="add --integration")
    if args.since is not None and not args.upgrade:
        raise UsageError("--since names the old texts of an upgrade", remedy="add --upgrade, or leave out --since")
    selected = statement_tests.select_cases(context.operations, args.tables, args.product)
    statement_tests.refuse_nothing(selected, args.tables)
    return _upgrade(context, selected) if args.upgrade else _run(context, selected, None)


def _upgrade(context: CommandContext, selected: SelectedCases) -> int:
    since = context.args.since or statement_tests.DEPLOYED
    upgrade = statement_tests.find_upgrade(context.operations, since)
    named = statement_tests.restricted(selected, upgrade)
    untested = sorted(set(upgrade.old) & selected.chosen - {case.table for case in named.cases})
    if untested:
        context.output.say(f"changed since {since}, without a case: {', '.join(untested)}")
    return _run(context, named, upgrade)


def _run(context: CommandContext, selected: SelectedCases, upgrade: PlannedUpgrade | None) -> int:
    output, began = context.output, time.monotonic()
    request = statement_tests.request_of(
        context.operations, selected, case_s=context.args.timeout, old=upgrade.old if upgrade else {}
    )
    results: list[CaseResult] = []
    told = []
    for note in (statement_tests.parquet_note(selected), statement_tests.session_note(selected)):
        if note:
            output.say(note)
    trials = sum(len(case.parts) if upgrade else 1 for case in selected.cases)
    # Closed here, so that an interruption ends the child before the command exits.
    with closing(statement_tests.run_child(request, context.environ, trials=trials)) as answers:
        for answer in answers if selected.cases else ():
            if "doing" in answer:
                done = f"{len(results)} of {counted(len(selected.cases), 'case')}"
                output.progress(
                    WaitProgress(f"{selected.label(answer['doing'])}, {done}", time.monotonic() - began, 0.0)
                )
                continue
            result = selected.as_shown(result_from_json(answer["result"]))
            results.append(result)
            change = upgrade.changes.get(TableName(result.table)) if upgrade else None
            compatible = upgrade.compatible.get(TableName(result.table), "") if upgrade else ""
            words = upgrade_words(result, change, compatible) if change else ()
            told.append(case_as_json(result, words, str(change.kind) if change else ""))
            if not output.as_json:
                output.print(case_lines(result, words))
    if not output.as_json and (left_out := left_out_words(selected.project)):
        output.say(left_out)
    if not output.as_json and selected.not_run:
        output.say(f"not run, because of errors in files: the test cases of {', '.join(selected.not_run)}")
    if upgrade and (became := statement_tests.report_failed_upgrades(context.operations, selected, upgrade, results)):
        output.say(became)
    took = time.monotonic() - began
    bad = [each for each in results if each.outcome in (CaseOutcome.FAILED, CaseOutcome.ERROR)]
    if output.as_json:
        context.document(
            "headgate/tests",
            passed=not (bad or selected.not_run),
            took_s=round(took, 1),
            cases=told,
            left_out=left_out_as_json(selected.project),
            not_run=list(selected.not_run),
        )
    elif results:
        output.say(cases_summary(results, took))
    else:
        output.say("nothing to run: no table with a case differs from its old text")
    return 1 if bad else 2 if selected.not_run else 0


def _init(context: CommandContext) -> int:
    output, began = context.output, time.monotonic()
    context.announce()

    def tell(doing: str) -> None:
        output.progress(WaitProgress(doing, time.monotonic() - began, 0.0))

    args = context.args
    path = statement_tests.write_first_case(
        context.operations, args.table, context.environ, case_s=args.timeout, tell=tell
    )
    said = "its expected rows were recorded, not verified: review them, then run headgate test"
    output.answer({"written": path}, said, lines=[path])
    return 0
