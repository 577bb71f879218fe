"""Runs ready scenarios over tables, each in an ephemeral environment of its own."""

import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from core.integration_tests.case import IntegrationCase
from core.integration_tests.disturbed_input import (
    LateInput,
    can_have_column_more,
    columns_with_it,
    late_input,
    lateness_s,
    with_column_more,
    with_value_more,
)
from core.integration_tests.generated_input import (
    PARTS,
    delays_s,
    generated_parts,
    inputs_around_midnight,
    sinks_of,
    stateful_depth,
)
from core.integration_tests.repeatability import repeatability
from core.integration_tests.results import Found, TestResult
from core.integration_tests.scenarios import (
    Disturbance,
    Rows,
    ScenarioInput,
    Shown,
    compared_runs,
    judged_starts,
)
from core.model.actions import StepKind
from core.model.errors import HeadgateError, Refused, UsageError
from core.model.names import TableName
from core.plan.request import PlanRequest
from core.project.manifest_head import MANIFEST_PATH
from core.project.model import Project
from core.project_reader.ephemeral_project import source_ddl, upstream_of
from core.project_reader.revision_reader import revision_of
from core.statement_tests.request import CaseOutcome
from core.statement_tests.upgrade import planned_change
from core.text.sentence import Fact, FactKind
from tui.project_folder.environment_selection import has_ledger
from tui.project_folder.git_objects import texts_differing_from
from tui.project_folder.project_folder_reader import ProjectDeclaration, parse
from tui.services.environment_service import EnvironmentService
from tui.services.ephemeral_environment import DeploymentFailed, EphemeralEnvironment, StatementFailed
from tui.services.integration_tests import NotDelivered, TestBench, deliver, untested
from tui.services.promotion import declared_as_deployed, deployed_tables
from tui.services.statement_tests import DEPLOYED


@dataclass(slots=True)
class ScenarioRun:
    """The scenarios over one group of tables, with the rows of an undisturbed run, which is made once."""

    bench: TestBench
    name: str
    """The product, or the names of the tables."""
    tables: tuple[TableName, ...]
    input: ScenarioInput
    late_input: ScenarioInput
    """The input of the scenario `late`, whose rows may be late; the same one if a case gives it."""
    since: str = DEPLOYED
    """Where the old statements of an upgrade come from: a git reference, or `DEPLOYED`."""
    late_s: float | None = None
    """By how many seconds rows may be late; None for half of the longest delay of a watermark."""
    _undisturbed: dict[TableName, tuple[tuple[object, ...], ...]] = field(default_factory=dict)

    def run(self, scenario: Disturbance) -> TestResult:
        """Run a scenario. Raises Refused and UsageError if the tables cannot be isolated."""
        began = time.monotonic()
        name = f"{scenario}: {self.name}"
        act = {
            Disturbance.RESTART: self._restart,
            Disturbance.REPLAY: self._replay,
            Disturbance.LATE: self._late,
            Disturbance.SCHEMA: self._schema,
            Disturbance.UPGRADE: self._upgrade,
            Disturbance.RECOVERY: self._recovery,
        }
        try:
            used = self.late_input if scenario is Disturbance.LATE else self.input
            result = self._without_middle(name, used) if scenario is not Disturbance.REPLAY else None
            result = result or act[scenario](name)
        except NotDelivered as error:
            result = replace(error.result, name=name)
        except HeadgateError as error:
            if isinstance(error, Refused | UsageError) and not self._undisturbed:
                raise
            result = TestResult(name, "", CaseOutcome.ERROR, Found.ERROR.of(error=error.sentence))
        note = Shown.INPUT.of(parts=len(used.parts), origin=used.origin)
        notes = (*result.notes, *untested(self.bench.operations.project(), self.tables), note)
        return replace(result, took_s=time.monotonic() - began, notes=notes)

    def _without_middle(self, name: str, used: ScenarioInput) -> TestResult | None:
        """Return the result if the input has no part that can be disturbed; None if it has one."""
        parts, middle = len(used.parts), used.middle
        if parts >= middle:
            return None
        return TestResult(name, "", CaseOutcome.SKIPPED, Shown.NO_MIDDLE.of(part=middle, parts=parts))

    def _restart(self, name: str) -> TestResult:
        undisturbed, after = self._reference(), "after the server was killed when a batch had begun"
        with self.bench.environment(self.tables, own_server=True) as found:

            def kill(part: int) -> None:
                nonlocal after
                if part == self.input.middle:
                    if not found.wait_for_batch(self.bench.progress, seconds=self.bench.seconds):
                        after = f"after the server was killed between batches (none began in {self.bench.seconds:g} s)"
                    found.kill_server(self.bench.progress)

            self._deliver(found, kill)
            disturbed = _rows(found)
        return self._compared(name, undisturbed, disturbed, after)

    def _replay(self, name: str) -> TestResult:
        with self.bench.environment(self.tables) as found:
            self._deliver(found)
            undisturbed = self._undisturbed = _rows(found)
            request = PlanRequest(tables=found.project.built, children="all", rebuild=True)
            try:
                found.deploy(self.bench.progress, request)
            except DeploymentFailed as error:
                # A rebuild compares each new version with the old one before it goes on.
                if error.step.do != StepKind.VALIDATE:
                    raise
                table = error.step.table
                why = Shown.NOT_VALID.of(table=table, why=error.step.note)
                return TestResult(name, "", CaseOutcome.FAILED, why, table=table)
            found.wait_until_read(self.bench.progress, seconds=self.bench.seconds, what="replay")
            disturbed = _rows(found)
        return self._compared(name, undisturbed, disturbed, "in versions that have read the same input again")

    def _late(self, name: str) -> TestResult:
        project = self.bench.operations.project()
        late = late_input(self.late_input, project, upstream_of(project, self.tables), self.late_s)
        if not late.words():
            return TestResult(name, "", CaseOutcome.SKIPPED, Shown.NOT_LATE.of())
        undisturbed = self._reference() if self.late_input == self.input else self._undisturbed_rows(self.late_input)
        with self.bench.environment(self.tables) as found:
            deliver(found, late.parts, self.bench, within=self.bench.seconds)
            disturbed = _rows(found)
        result = self._compared(name, undisturbed, disturbed, late.words(), reordered=True)
        return replace(result, notes=(*result.notes, *self._about_lateness(project, undisturbed, late, result)))

    def _about_lateness(
        self, project: Project, tables: Iterable[TableName], late: LateInput, result: TestResult
    ) -> Iterator[Fact[FactKind]]:
        if late.late_s and not late.late:
            yield Shown.NONE_LATE.of(part=self.late_input.middle - 1, late_s=late.late_s)
        elif late.late and self.late_s is None:
            yield Shown.HALF_DELAY.of()
        if not result.passed:
            for table, delay_s in delays_s(project, tables).items():
                if delay_s < late.late_s:
                    yield Shown.SHORT_DELAY.of(table=table, delay_s=delay_s)

    def _schema(self, name: str) -> TestResult:
        undisturbed, middle = self._reference(), self.input.middle
        # With two parts, no part has the column before its declaration.
        declared_from = min(middle + 1, len(self.input.parts))
        with self.bench.environment(self.tables) as found:
            external = (name for name, table in found.tables.items() if table.external)
            sources = [each for each in external if can_have_column_more(found.tables[each])]
            if not sources:
                return TestResult(name, "", CaseOutcome.SKIPPED, Shown.NO_SOURCE.of())
            if not any(part.get(each) for part in self.input.parts[middle - 1 :] for each in sources):
                return TestResult(name, "", CaseOutcome.SKIPPED, Shown.NO_LATER_ROW.of(part=middle - 1))
            ddls = {each: with_column_more(found.tables[each].parsed_ddl) for each in sources}
            deliver(found, self.input.parts[: middle - 1], self.bench, within=self.bench.seconds)
            try:
                for number, part in enumerate(self.input.parts[middle - 1 :], middle):
                    if number == declared_from:
                        places = {each: found.tables[each].ddl.path for each in sources}
                        folders = found.project.sources
                        declared = {each: source_ddl(ddls[each], folders.get(each, "")) for each in sources}
                        found.declare({places[each]: declared[each] for each in sources})
                        found.deploy(self.bench.progress, PlanRequest(everything=True, children="all"))
                        # A running query keeps the columns with which it was started.
                        _restart(found)
                    for source, rows in part.items():
                        if rows and source in ddls:
                            found.write_rows_as(ddls[source], with_value_more(rows))
                        elif rows:
                            found.write_rows(source, rows)
                    found.wait_until_read(self.bench.progress, seconds=self.bench.seconds, what=f"part {number}")
                disturbed = _rows(found)
                drifted = {each: columns_with_it(found.columns_in_files(each)) for each in disturbed if disturbed[each]}
            except HeadgateError as error:
                why = Shown.NOT_TAKEN.of(sources=tuple(sources), error=error.summary)
                return TestResult(name, "", CaseOutcome.FAILED, why, table=str(getattr(error, "table", "")))
        first = "rows, then in their declaration" if declared_from > middle else "declaration, then in rows"
        result = self._compared(name, undisturbed, disturbed, f"when sources get a column in their {first}")
        table = next((each for each, columns in drifted.items() if columns), None)
        if result.passed and table is not None:
            fact = Shown.DRIFTED.of(table=table, columns=drifted[table])
            return replace(result, outcome=CaseOutcome.FAILED, fact=fact, table=table)
        return result

    def _upgrade(self, name: str) -> TestResult:
        operations, middle = self.bench.operations, self.input.middle
        old, now = texts_before(operations, self.since), operations.projects.read()
        undisturbed = self._reference()
        changes = announced_changes(operations, old, tuple(undisturbed))
        if not changes:
            return TestResult(name, "", CaseOutcome.SKIPPED, Shown.NO_CHANGE.of(since=self.since))
        there = [each for each in self.tables if each in old.project.tables]
        with self.bench.environment(there, texts=old.texts) as found:
            deliver(found, self.input.parts[: middle - 1], self.bench, within=self.bench.seconds)
            idle = tuple(each for each in found.project.built if each in changes and not found.rows(each))
            found.declare_all(now.project, now.texts, self.tables)
            found.deploy(self.bench.progress, PlanRequest(everything=True, children="all"))
            deliver(found, self.input.parts[middle - 1 :], self.bench, within=self.bench.seconds)
            disturbed = _rows(found)
        result = self._compared(name, undisturbed, disturbed, f"after an upgrade from {self.since}")
        if idle:
            result = replace(result, notes=(*result.notes, Shown.NOT_WRITTEN.of(tables=idle)))
        upstream = upstream_of(now.project, [TableName(result.table)]) if result.table else ()
        if why := next((changes[each] for each in upstream if changes.get(each)), ""):
            fact = Shown.ANNOUNCED.of(table=result.table, why=why)
            return replace(result, outcome=CaseOutcome.PASSED, fact=fact)
        return result

    def _recovery(self, name: str) -> TestResult:
        with self.bench.environment(self.tables) as found:
            older: list[_OlderCheckpoint] = []

            def copy(part: int) -> None:
                if part == self.input.middle:
                    older.extend(_copied_checkpoints(found))

            self._deliver(found, copy)
            return judged_starts(name, *_started_with(found, older))

    def _reference(self) -> Rows:
        """Return the rows of all tables in an undisturbed run, upstream tables first."""
        if not self._undisturbed:
            self._undisturbed = self._undisturbed_rows(self.input)
        return self._undisturbed

    def _undisturbed_rows(self, used: ScenarioInput) -> dict[TableName, tuple[tuple[object, ...], ...]]:
        with self.bench.environment(self.tables) as found:
            deliver(found, used.parts, self.bench, within=self.bench.seconds)
            return _rows(found)

    def _deliver(self, environment: EphemeralEnvironment, disturb: Callable[[int], None] = lambda part: None) -> None:
        deliver(environment, self.input.parts, self.bench, within=self.bench.seconds, disturb=disturb)

    def _compared(
        self, name: str, undisturbed: Rows, disturbed: Rows, after: str, *, reordered: bool = False
    ) -> TestResult:
        project = self.bench.operations.project()
        base = project.environments[self.bench.operations.place.environment].naming
        repeatable = repeatability(project, undisturbed, base=base, reordered=reordered)
        return compared_runs(name, undisturbed, disturbed, repeatable, after=after)


def scenario_inputs(
    project: Project,
    tables: set[TableName],
    cases: tuple[IntegrationCase, ...],
    late_s: float | None = None,
) -> tuple[ScenarioInput, ScenarioInput]:
    """Return the input of the case with the most parts among those about the tables alone, twice, or generate two.

    In the first one, the rows of a part reach all tables before the next part. In the second one, for the scenario
    `late`, rows may be late by at most `late_s` seconds, which are those of `lateness_s` if None.
    """
    mine = [case for case in cases if len(case.parts) > 1 and tables.issuperset(case.expected)]
    if mine:
        best = max(mine, key=lambda case: len(case.parts))
        found = ScenarioInput(best.parts, f"of {best.path}", middle=2)
        return found, found
    upstream, sinks = upstream_of(project, tables), sinks_of(project, tables)
    late_s = lateness_s(project, upstream) if late_s is None else late_s
    late = inputs_around_midnight(project, sinks, late_s=late_s) if late_s else generated_parts(project, sinks)
    depth = stateful_depth(project.tables, upstream)
    parts = generated_parts(project, sinks, between=True) if depth else late
    return ScenarioInput(parts, "generated", middle=PARTS + depth), ScenarioInput(late, "generated", middle=PARTS)


def texts_before(operations: EnvironmentService, since: str) -> ProjectDeclaration:
    """Return the project at a git reference or, for `DEPLOYED`, as deployed, with the present headgate.yml.

    Raises UsageError if there is no such reference, or if nothing was ever deployed.
    """
    declared, cache = operations.projects.read(), operations.projects.parse_cache
    if since != DEPLOYED:
        then = texts_differing_from(operations.place.folder, since, declared.texts)
        texts = {path: text for path, text in (dict(declared.texts) | then).items() if text is not None}
        texts[MANIFEST_PATH] = declared.texts[MANIFEST_PATH]
        project, problems = parse(operations.place, texts, cache)
        return ProjectDeclaration(texts, project, problems)
    if not has_ledger(operations.place):
        remedy = "name the commit of the old texts: --since main"
        raise UsageError(f"nothing was ever deployed in {operations.place.title} on this machine", remedy=remedy)
    return declared_as_deployed(deployed_tables(operations.reader), declared, cache, operations.place.environment)


def announced_changes(
    operations: EnvironmentService, old: ProjectDeclaration, built: Iterable[TableName]
) -> dict[TableName, str]:
    """Return the statements that have changed, with what a plan announces about their rows; empty for nothing."""
    tables = operations.project().tables
    found = {}
    for name in built:
        before = old.project.tables.get(name)
        if before is None or before.external:
            found[name] = ""
        elif revision_of(before).hash != revision_of(tables[name]).hash:
            definition = planned_change(revision_of(before), revision_of(tables[name]), tables).kind.definition
            found[name] = str(definition.leaves or definition.loses or "")
    return found


def _restart(environment: EphemeralEnvironment) -> None:
    """Restart all statements. Raises the error of the first one that is refused."""
    for outcome in environment.act("restart", environment.project.built):
        if outcome.error is not None:
            raise StatementFailed(f"{outcome.table} does not start: {outcome.error.summary}", table=outcome.table)


def _rows(environment: EphemeralEnvironment) -> dict[TableName, tuple[tuple[object, ...], ...]]:
    """Return the rows of all tables; equal messages of a topic count once, because they are written at least once."""
    found = {name: environment.rows(name) for name in environment.project.built}
    topics = environment.project.topics
    return {name: tuple(dict.fromkeys(rows)) if name in topics else rows for name, rows in found.items()}


@dataclass(frozen=True, slots=True)
class _OlderCheckpoint:
    table: TableName
    checkpoint: str
    copy: str
    planned: int
    """The last batch that has begun in the copy; -1 if none has."""


def _copied_checkpoints(environment: EphemeralEnvironment) -> list[_OlderCheckpoint]:
    """Copy the checkpoints of statements while they are stopped.

    Writers of topics are left out: they may start with older checkpoints, because they write at least once.
    """
    environment.act("stop", environment.project.built)
    found = []
    positions = environment.positions(stopped=True)
    for each in environment.operations.reader.deployments():
        if each.active and each.table in positions and each.table not in environment.project.topics:
            copy = f"{each.checkpoint}.older"
            shutil.copytree(each.checkpoint, copy)
            planned = positions[each.table].planned
            found.append(_OlderCheckpoint(each.table, each.checkpoint, copy, -1 if planned is None else planned))
    environment.act("start", environment.project.built)
    return found


def _started_with(
    environment: EphemeralEnvironment, older: Iterable[_OlderCheckpoint]
) -> tuple[list[TableName], list[TableName]]:
    """Put older checkpoints back and start every statement; return those that were refused, and those that started.

    Statements that have begun nothing since are left out: they repeat at most the batch that had begun, and a table
    skips a batch that it has.
    """
    environment.act("stop", environment.project.built)
    positions = environment.positions(stopped=True)
    refused: list[TableName] = []
    started: list[TableName] = []
    for each in older:
        batch = positions[each.table].batch
        if batch is not None and batch > each.planned:
            shutil.rmtree(each.checkpoint)
            Path(each.copy).rename(each.checkpoint)
            (refused if _is_refused(environment, each.table) else started).append(each.table)
    return refused, started


def _is_refused(environment: EphemeralEnvironment, table: TableName) -> bool:
    """Start a statement, and return whether the agent refused that."""
    try:
        (outcome,) = environment.act("start", (table,))
    except Refused:
        return True
    return isinstance(outcome.error, Refused)
