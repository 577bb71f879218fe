"""Selects, runs and records integration tests, each in an ephemeral environment."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from core.integration_tests.case import IntegrationCase
from core.integration_tests.case_reader import read_integration_cases
from core.integration_tests.case_writer import recorded_case, recorded_case_path
from core.integration_tests.generated_input import PARTS, generated_parts, sinks_of
from core.integration_tests.results import CheckedTable, Found, TestResult, judged
from core.model.errors import HeadgateError, Refused, UsageError
from core.model.names import TableName
from core.project.ephemeral import Teardown
from core.project.manifest_head import MANIFEST_PATH
from core.project.model import Project
from core.project_reader.ephemeral_project import stand_ins_of
from core.project_reader.layout import manifest_layout
from core.statement_tests.case import Part
from core.statement_tests.fixture_rows import expected_columns_of
from core.statement_tests.request import CaseOutcome
from core.text.sentence import Fact
from core.text.wording import did_you_mean
from tui.agent_client.agent_process import ProgressCallback
from tui.project_folder.declaring_files import FOLDER, read_integration_files
from tui.project_folder.user_named_files import write_new
from tui.services.environment_service import EnvironmentService
from tui.services.ephemeral_environment import (
    EphemeralEnvironment,
    EphemeralRequest,
    NotInTime,
    StatementFailed,
    ephemeral_environment,
)
from tui.services.statement_tests import refuse_problems
from tui.services.table_client import SparkServer

PURPOSE = "headgate test --integration"


@dataclass(frozen=True, slots=True)
class TestBench:
    """What all integration tests of one command share."""

    __test__ = False

    operations: EnvironmentService
    server: SparkServer | None
    """The server to share; None if each test starts a server of its own."""
    seconds: float
    """Longest time, in seconds, for reading one part everywhere."""
    progress: ProgressCallback
    ended: Callable[[Teardown], None]
    """Called at the end of each ephemeral environment."""

    @contextmanager
    def environment(
        self, tables: Iterable[TableName], *, own_server: bool = False, texts: Mapping[str, str] | None = None
    ) -> Iterator[EphemeralEnvironment]:
        """Create an environment for tables, and delete it at the end."""
        server = None if own_server else self.server
        request = EphemeralRequest(tuple(tables), PURPOSE, server=server, texts=texts)
        with ephemeral_environment(self.operations, request, self.progress, ended=self.ended) as found:
            yield found


@contextmanager
def with_one_server(bench: TestBench, tests: Iterable[IntegrationCase]) -> Iterator[TestBench]:
    """Start one server for several tests, in an environment in which nothing is deployed, unless one is shared."""
    every = tuple(tests)
    if bench.server is not None or len(every) < 2:
        yield bench
        return
    with bench.environment(every[0].expected) as host:
        yield replace(bench, server=host.server)


def select_tables(operations: EnvironmentService, words: Iterable[str], products: Iterable[str]) -> set[TableName]:
    """Return the tables given by name, selector or product; all tables with a statement if nothing is given.

    Raises UsageError for an unknown name, and InvalidProject if the project has errors.
    """
    project = operations.project()
    words, products = tuple(words), tuple(products)
    known = sorted({table.product for table in project.tables.values()})
    for product in products:
        if product not in known:
            raise UsageError(f"{product!r} is not a product", remedy=did_you_mean(product, known) or ", ".join(known))
    named = operations.selected(words, declared=True)
    for name in named:
        if name not in project.tables:
            remedy = did_you_mean(name, project.tables) or "headgate inventory lists all"
            raise UsageError(f"{name} is not declared", remedy=remedy)
    statements = {name for name, table in project.tables.items() if not table.external}
    if not (words or products):
        return statements
    return {name for name in statements if name in named or project.tables[name].product in products}


def select_cases(operations: EnvironmentService, tables: set[TableName]) -> tuple[IntegrationCase, ...]:
    """Return the cases that expect rows in one of the tables. Raises InvalidProject if a case has a mistake."""
    project = operations.project()
    texts = operations.projects.read().texts
    layout = manifest_layout(texts.get(MANIFEST_PATH, ""))
    files = read_integration_files(operations.place.folder, layout.folder if layout is not None else FOLDER)
    cases, problems = read_integration_cases(files, project)
    chosen = tuple(case for case in cases if tables & case.expected.keys())
    refuse_problems(f"the integration tests of {operations.place.folder}", problems)
    return chosen


def run_case(bench: TestBench, case: IntegrationCase) -> TestResult:
    """Run a case in an environment of its own, and compare the rows of all tables that it expects, upstream first."""
    began = time.monotonic()
    project = bench.operations.project()
    product = project.tables[next(iter(case.expected))].product
    name = f"{product}/{case.name}" if product else case.name
    within = case.within_s or bench.seconds
    try:
        with bench.environment(case.expected) as found:
            slowest = deliver(found, case.parts, bench, within=within)
            compared = compared_tables(found, case)
            result = judged(name, case.path, compared, tolerance=case.tolerance, slowest_s=slowest)
    except NotDelivered as error:
        result = replace(error.result, name=name, path=case.path)
    except HeadgateError as error:
        if isinstance(error, Refused | UsageError):
            raise
        result = TestResult(name, case.path, CaseOutcome.ERROR, Found.ERROR.of(error=error.sentence))
    return replace(result, took_s=time.monotonic() - began, notes=(*result.notes, *untested(project, case.expected)))


def untested(project: Project, tables: Iterable[TableName]) -> tuple[Fact[Found], ...]:
    """Return what a test of tables leaves out, whatever its result: databases, for which files stand."""
    found = stand_ins_of(project, tables)
    return (Found.STAND_IN.of(tables=found),) if found else ()


def write_first_case(operations: EnvironmentService, word: str, bench: TestBench) -> str:
    """Write a case for a product, or for a table, with the rows that its tables have today; return the file's path.

    Raises Refused if the file exists, UsageError for an unknown name, and any error of the run.
    """
    project = operations.project()
    products = {table.product for table in project.tables.values() if not table.external} - {""}
    if word in products and word not in project.tables:
        tables = select_tables(operations, (), (word,))
    else:
        tables = select_tables(operations, (word,), ())
    sinks, recorded = sinks_of(project, tables), sorted(tables)
    if not sinks:
        raise UsageError(f"{word} has no statement to test", remedy="name a product or a table that has one")
    path = recorded_case_path(project.tables[sinks[0]], word.strip("+"))
    place = Path(operations.place.folder, path)
    if os.path.lexists(place):
        raise Refused(f"{place} exists", remedy="rename it, or edit it; nothing was written")
    parts = generated_parts(project, sinks)
    case = IntegrationCase(f"{word}_recorded", path, parts, dict.fromkeys(recorded, ()), {})
    with bench.environment(sinks) as found:
        deliver(found, parts, bench, within=bench.seconds)
        rows = {name: found.rows(name) for name in found.project.built if name in tables}
        text = recorded_case(case, rows, found.tables, closing_from=PARTS)
    write_new(str(place), text)
    return path


def compared_tables(environment: EphemeralEnvironment, case: IntegrationCase) -> tuple[CheckedTable, ...]:
    """Read all tables that a case expects, and return them with their expected rows, upstream tables first."""
    return tuple(
        CheckedTable(
            name,
            expected_columns_of(environment.tables[name]),
            expected=case.expected[name],
            found=environment.rows(name),
            key=case.keys.get(name, ()),
        )
        for name in environment.project.built
        if name in case.expected
    )


class NotDelivered(HeadgateError):
    """Raised if a statement fails, or is too slow; `result` is the result of the test, without its name."""

    def __init__(self, result: TestResult, *, remedy: str) -> None:
        super().__init__(str(result.fact), remedy=remedy)
        self.result = result


def deliver(
    environment: EphemeralEnvironment,
    parts: tuple[Part, ...],
    bench: TestBench,
    *,
    within: float,
    disturb: Callable[[int], None] = lambda part: None,
) -> float:
    """Deploy, write all parts one after the other, and wait until each is read everywhere.

    `disturb` is called with the number of each part, from 1, after its rows were written. Returns the longest time of a
    part, in seconds. Raises NotDelivered.
    """
    slowest = 0.0
    for number, part in enumerate(parts, 1):
        for name, rows in part.items():
            if rows:
                environment.write_rows(name, rows)
        if number == 1:
            # Static sides are read when a statement starts, so their rows are written before.
            environment.deploy(bench.progress)
        disturb(number)
        try:
            took = environment.wait_until_read(bench.progress, seconds=within, what=f"part {number} of {len(parts)}")
        except StatementFailed as error:
            failed = Found.FAILED.of(part=number, error=error.summary)
            result = TestResult("", "", CaseOutcome.FAILED, failed, table=error.table)
            raise NotDelivered(result, remedy=error.remedy) from error
        except NotInTime as error:
            slow = Found.TOO_SLOW.of(part=number, seconds=within, why=error.facts[0])
            at = str(dict(error.facts[0].values)["table"])
            result = TestResult("", "", CaseOutcome.FAILED, slow, table=at)
            raise NotDelivered(result, remedy=error.remedy) from error
        slowest = max(slowest, took)
    return slowest
