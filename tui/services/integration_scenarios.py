"""Runs ready scenarios over tables, each in an ephemeral environment of its own."""

import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from core.integration_tests.case import IntegrationCase
from core.integration_tests.generated_input import PARTS, generated_parts, sinks_of
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
from core.model.errors import HeadgateError, Refused, UsageError
from core.model.names import TableName
from core.plan.request import PlanRequest
from core.project.model import Project
from core.statement_tests.request import CaseOutcome
from tui.services.ephemeral_environment import EphemeralEnvironment
from tui.services.integration_tests import NotDelivered, TestBench, deliver


@dataclass(slots=True)
class ScenarioRun:
    """The scenarios over one group of tables, with the rows of an undisturbed run, which is made once."""

    bench: TestBench
    name: str
    """The product, or the names of the tables."""
    tables: tuple[TableName, ...]
    input: ScenarioInput
    _undisturbed: dict[TableName, tuple[tuple[object, ...], ...]] = field(default_factory=dict)

    def run(self, scenario: Disturbance) -> TestResult:
        """Run a scenario. Raises Refused and UsageError if the tables cannot be isolated."""
        began = time.monotonic()
        name = f"{scenario}: {self.name}"
        act = {
            Disturbance.RESTART: self._restart,
            Disturbance.REPLAY: self._replay,
            Disturbance.RECOVERY: self._recovery,
        }
        try:
            result = act[scenario](name)
        except NotDelivered as error:
            result = replace(error.result, name=name)
        except HeadgateError as error:
            if isinstance(error, Refused | UsageError) and not self._undisturbed:
                raise
            result = TestResult(name, "", CaseOutcome.ERROR, Found.ERROR.of(error=error.sentence))
        used = Shown.INPUT.of(parts=len(self.input.parts), origin=self.input.origin)
        return replace(result, took_s=time.monotonic() - began, notes=(*result.notes, used))

    def _restart(self, name: str) -> TestResult:
        undisturbed = self._reference()
        with self.bench.environment(self.tables, own_server=True) as found:

            def kill(part: int) -> None:
                if part == self.input.middle:
                    found.wait_for_batch(self.bench.progress, seconds=self.bench.seconds)
                    found.kill_server(self.bench.progress)

            self._deliver(found, kill)
            disturbed = _rows(found)
        return self._compared(name, undisturbed, disturbed, "after a restart of the server in the middle")

    def _replay(self, name: str) -> TestResult:
        with self.bench.environment(self.tables) as found:
            self._deliver(found)
            undisturbed = self._undisturbed = _rows(found)
            request = PlanRequest(tables=found.project.built, children="all", rebuild=True)
            found.deploy(self.bench.progress, request)
            found.wait_until_read(self.bench.progress, seconds=self.bench.seconds, what="replay")
            disturbed = _rows(found)
        return self._compared(name, undisturbed, disturbed, "in versions that have read the same input again")

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
            with self.bench.environment(self.tables) as found:
                self._deliver(found)
                self._undisturbed = _rows(found)
        return self._undisturbed

    def _deliver(self, environment: EphemeralEnvironment, disturb: Callable[[int], None] = lambda part: None) -> None:
        deliver(environment, self.input.parts, self.bench, within=self.bench.seconds, disturb=disturb)

    def _compared(self, name: str, undisturbed: Rows, disturbed: Rows, after: str) -> TestResult:
        repeatable = repeatability(self.bench.operations.project(), undisturbed)
        return compared_runs(name, undisturbed, disturbed, repeatable, after=after)


def scenario_input(project: Project, tables: set[TableName], cases: tuple[IntegrationCase, ...]) -> ScenarioInput:
    """Return the input of the case with the most parts among those about the tables alone, or generate one."""
    mine = [case for case in cases if len(case.parts) > 1 and tables.issuperset(case.expected)]
    if mine:
        best = max(mine, key=lambda case: len(case.parts))
        return ScenarioInput(best.parts, f"of {best.path}", middle=2)
    return ScenarioInput(generated_parts(project, sinks_of(project, tables)), "generated", middle=PARTS)


def _rows(environment: EphemeralEnvironment) -> dict[TableName, tuple[tuple[object, ...], ...]]:
    return {name: environment.rows(name) for name in environment.project.built}


@dataclass(frozen=True, slots=True)
class _OlderCheckpoint:
    table: TableName
    checkpoint: str
    copy: str
    batch: int | None
    """The last complete batch in the copy."""


def _copied_checkpoints(environment: EphemeralEnvironment) -> list[_OlderCheckpoint]:
    """Copy the checkpoints of all statements while they are stopped."""
    environment.act("stop", environment.project.built)
    found = []
    positions = environment.positions(stopped=True)
    for each in environment.operations.reader.deployments():
        if each.active and each.table in positions:
            copy = f"{each.checkpoint}.older"
            shutil.copytree(each.checkpoint, copy)
            found.append(_OlderCheckpoint(each.table, each.checkpoint, copy, positions[each.table].batch))
    environment.act("start", environment.project.built)
    return found


def _started_with(
    environment: EphemeralEnvironment, older: Iterable[_OlderCheckpoint]
) -> tuple[list[TableName], list[TableName]]:
    """Put older checkpoints back and start every statement; return those that were refused, and those that started.

    Statements that have read nothing since are left out.
    """
    environment.act("stop", environment.project.built)
    positions = environment.positions(stopped=True)
    refused: list[TableName] = []
    started: list[TableName] = []
    for each in older:
        if positions[each.table].batch != each.batch:
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
