"""Integration tests for the command `test`: runs cases and reports them, or writes a first case."""

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from core.integration_tests.case import IntegrationCase
from core.integration_tests.reports import MARKS, junit_xml, markdown
from core.integration_tests.results import TestResult
from core.integration_tests.scenarios import Disturbance, parse_scenarios
from core.model.errors import UsageError
from core.model.names import TableName
from core.project.ephemeral import Teardown
from core.statement_tests.comparison import difference_lines
from core.statement_tests.request import CaseOutcome
from core.text.wording import counted
from tui.command_line.context import CommandContext
from tui.project_folder.user_named_files import write_whole
from tui.services import ephemeral_environment, ephemeral_teardown, integration_tests
from tui.services.integration_scenarios import ScenarioRun, scenario_inputs
from tui.services.integration_tests import TestBench
from tui.services.statement_tests import DEPLOYED


def run(context: CommandContext) -> int:
    """Run the chosen cases. Returns 1 if one fails, or if something of an environment is left."""
    args, output, began = context.args, context.output, time.monotonic()
    if args.upgrade:
        raise UsageError("--upgrade is about cases of one statement", remedy="use --scenario upgrade")
    if args.since is not None and args.scenario is None:
        raise UsageError("--since names the old texts of an upgrade", remedy="add --scenario upgrade")
    if args.lateness is not None and Disturbance.LATE not in parse_scenarios(args.scenario or Disturbance.RESTART):
        raise UsageError("--lateness is about late rows", remedy="add --scenario late")
    tables = integration_tests.select_tables(context.operations, args.tables, args.product)
    cases = integration_tests.select_cases(context.operations, tables)
    if args.scenario is not None:
        return _run_scenarios(context, tables, cases)
    if not cases:
        raise UsageError(
            "there is no integration test", remedy="headgate test init --integration PRODUCT writes a first one"
        )
    ephemeral_environment.refuse_not_isolated(context.operations, [case.expected for case in cases])
    ends: list[Teardown] = []
    results: list[TestResult] = []
    with _bench(context, ends) as bench, integration_tests.with_one_server(bench, cases) as shared:
        for case in cases:
            results.append(integration_tests.run_case(shared, case))
            if not output.as_json:
                output.print(result_lines(results[-1]))
    return _report(context, results, ends, time.monotonic() - began)


def _run_scenarios(context: CommandContext, tables: set[TableName], cases: Sequence[IntegrationCase]) -> int:
    """Run ready scenarios over the chosen tables, one product after the other unless tables are named."""
    args, output, began = context.args, context.output, time.monotonic()
    scenarios = parse_scenarios(args.scenario)
    project = context.operations.project()
    groups: dict[str, set[TableName]] = {}
    for table in tables:
        name = " ".join(args.tables) if args.tables else project.tables[table].product
        groups.setdefault(name, set()).add(table)
    ephemeral_environment.refuse_not_isolated(context.operations, groups.values())
    ends: list[Teardown] = []
    results: list[TestResult] = []
    with _bench(context, ends) as bench:
        for name, group in sorted(groups.items()):
            inputs = scenario_inputs(project, group, tuple(cases), args.lateness)
            since = args.since or DEPLOYED
            run = ScenarioRun(bench, name, tuple(sorted(group)), *inputs, since=since, late_s=args.lateness)
            for scenario in scenarios:
                results.append(run.run(scenario))
                if not output.as_json:
                    output.print(result_lines(results[-1]))
    return _report(context, results, ends, time.monotonic() - began)


def _report(context: CommandContext, results: Sequence[TestResult], ends: Sequence[Teardown], took: float) -> int:
    output = context.output
    _write_reports(context, results)
    left = [end for end in ends if end.left]
    bad = [result for result in results if not result.passed]
    if output.as_json:
        context.document(
            "headgate/integration-tests",
            passed=not (bad or left),
            took_s=round(took, 1),
            results=[result.as_json() for result in results],
            environments=[end.as_json() for end in ends],
        )
    else:
        output.say(_summary(results, took))
    return 1 if bad or left else 0


def init(context: CommandContext) -> int:
    """Write a first case for a product or a table."""
    context.announce()
    ends: list[Teardown] = []
    with _bench(context, ends) as bench:
        path = integration_tests.write_first_case(context.operations, context.args.table, bench)
    said = "its expected rows were recorded, not verified: review them, then run headgate test --integration"
    context.output.answer({"written": path}, said, lines=[path])
    return 1 if any(end.left for end in ends) else 0


def result_lines(result: TestResult) -> list[str]:
    """Format a result: its outcome, what was found, and the rows that differ."""
    lines = [f"{MARKS[result.outcome]:<6}{result.name}: {result.fact}  ({result.took_s:.1f} s)"]
    if result.path and not result.passed:
        lines.append(f"      {result.path}")
    lines += [f"      {note}" for note in result.notes]
    if result.difference is not None:
        lines += [f"      {line}" for line in difference_lines(result.difference)]
    return lines


@contextmanager
def _bench(context: CommandContext, ends: list[Teardown]) -> Iterator[TestBench]:
    """Delete what killed commands have left, and yield what all tests share. A closed terminal ends tests as Ctrl-C."""
    args, output, operations = context.args, context.output, context.operations
    server = ephemeral_environment.running_server(operations, args.pool) if args.pool is not None else None
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)

    def ended(end: Teardown) -> None:
        ends.append(end)
        output.say(end.words())

    for end in ephemeral_teardown.end_abandoned(context.environ, output.progress):
        output.say(f"left by a command that was killed: {end.words()}")
    yield TestBench(operations, server, seconds=args.timeout, progress=output.progress, ended=ended)


def _write_reports(context: CommandContext, results: Sequence[TestResult]) -> None:
    place, args = context.place, context.args
    for path, document in ((args.junit, junit_xml), (args.markdown, markdown)):
        if path:
            write_whole(path, document(results, project=place.project, environment=place.environment))


def _summary(results: Sequence[TestResult], took_s: float) -> str:
    counts = {outcome: sum(each.outcome is outcome for each in results) for outcome in CaseOutcome}
    told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    return f"{counted(len(results), 'integration test')}: {told} in {took_s:.1f} s"
