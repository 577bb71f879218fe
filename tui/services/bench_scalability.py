"""Measures how a project scales: at each point of an axis, in an environment of its own."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core.bench.request import BenchKind
from core.bench.result import BenchResult
from core.bench.scaled_project import AddedTables, Axis, NotScaled, with_chain, with_copies
from core.model.errors import HeadgateError, Refused, UsageError
from core.text.sentence import Fact
from core.text.wording import counted
from tui.services.benchmark_runs import BenchOrder, Reports, answers_of, measured_environment, request_of, result_of
from tui.services.benchmarks import topics_by_brokers
from tui.services.environment_service import EnvironmentService
from tui.services.ephemeral_environment import isolated_project

PARTITIONS = "spark.sql.shuffle.partitions"


@dataclass(frozen=True, slots=True)
class ScaleOrder:
    """Measurements at the points of an axis."""

    axis: Axis
    measured: BenchOrder
    """What is measured at each point: SCALE for latency under load, or THROUGHPUT."""
    points: Mapping[int, BenchOrder]
    """The order of each point, ascending."""

    def expected_s(self, longest_trigger_s: float) -> tuple[float, float]:
        """Return how long all points take at least, and with many statements and long watermarks, in seconds."""
        each = [order.expected_s(longest_trigger_s) for order in self.points.values()]
        return sum(low for low, _ in each), sum(high for _, high in each)


def scale_order(operations: EnvironmentService, order: BenchOrder, axis: Axis, points: Sequence[int]) -> ScaleOrder:
    """Return what is measured at each point, before anything is created.

    Raises UsageError if the machine has fewer cores, and Refused if the tables cannot be scaled along the axis.
    """
    cores = os.cpu_count() or 1
    if axis is Axis.CORES and max(points) > cores:
        raise UsageError(
            f"this machine has {counted(cores, 'core')}, and {max(points)} are asked for",
            remedy=f"give --points up to {cores}",
        )
    if axis is Axis.CORES and order.cores is not None:
        raise UsageError("--cores and --axis cores contradict each other", remedy="leave out --cores")
    return ScaleOrder(axis, order, {each: _at(operations, order, axis, each) for each in sorted(set(points))})


def _at(operations: EnvironmentService, order: BenchOrder, axis: Axis, point: int) -> BenchOrder:
    match axis:
        case Axis.CORES:
            return replace(order, cores=point)
        case Axis.PARTITIONS:
            return replace(order, conf={**order.conf, PARTITIONS: str(point)})
    declared = operations.projects.read_sound_tables()
    project = declared.project
    if axis is Axis.STATEMENTS:
        variables = {each.name: each for each in project.environments[operations.place.environment].variables}
        added = with_copies(project, order.tables.measured, point, variables)
    else:
        added = with_chain(project, order.tables.measured, point)
    if isinstance(added, Fact):
        raise Refused(added.sentence, remedy=added.remedy or "")
    texts = {**declared.texts, **added.texts}
    _refuse_invalid(operations, added, texts)
    measured = (*order.tables.measured, *added.tables)
    topics = topics_by_brokers(isolated_project(operations, measured, texts=texts))
    tables = replace(order.tables, measured=measured, topics=topics)
    return replace(order, tables=tables, texts=texts)


def _refuse_invalid(operations: EnvironmentService, added: AddedTables, texts: Mapping[str, str]) -> None:
    from tui.project_folder.project_folder_reader import parse_sound_tables

    project, problems = parse_sound_tables(operations.place, texts, operations.projects.parse_cache)
    for name in added.tables:
        if name not in project.tables:
            mine = (each.summary for each in problems if each.where is not None and each.where.path in added.texts)
            fact = NotScaled.INVALID.of(table=name, why=next(mine, "its files have errors"))
            raise Refused(fact.sentence, remedy=fact.remedy or "")


def run_scalability(operations: EnvironmentService, order: ScaleOrder, reports: Reports) -> BenchResult:
    """Measure at one point after the other, each in an environment that is deleted before the next one is created.

    A failure ends the measurement; if there is a result of an earlier point, the failure becomes a note of it.
    """
    started_at = time.time()
    found: list[BenchResult] = []
    notes: list[str] = []
    statements: dict[str, int] = {}
    for point, each in order.points.items():
        reports.say(f"{order.axis}: {point}")
        try:
            result = _measure(operations, each, point, reports)
        except HeadgateError as error:
            if not found:
                raise
            notes.append(f"the measurement ended at {order.axis} {point}: {error.summary}")
            break
        found.append(result)
        statements[str(point)] = len(result.stages)
        notes += (note for note in result.notes if note not in notes)
    shown = {name: value for name, value in found[0].parameters.items() if name not in _BY_POINT.get(order.axis, ())}
    measure = "throughput" if order.measured.kind is BenchKind.THROUGHPUT else "latency"
    return replace(
        found[0],
        kind=str(BenchKind.SCALE),
        started_at=started_at,
        took_s=time.time() - started_at,
        parameters={
            **shown,
            "tables": list(order.measured.tables.measured),
            "axis": str(order.axis),
            "measure": measure,
            "points": list(order.points),
            "statements": statements,
        },
        figures=tuple(figure for result in found for figure in result.figures),
        trials=tuple(trial for result in found for trial in result.trials),
        stages=found[-1].stages,
        notes=tuple(notes),
    )


_BY_POINT = {Axis.CORES: ("cores",)}
"""Parameters that differ from point to point."""


def _measure(operations: EnvironmentService, order: BenchOrder, point: int, reports: Reports) -> BenchResult:
    started_at = time.time()
    answers: dict[str, Any] = {}
    with measured_environment(operations, order, reports) as environment:
        request = replace(request_of(operations, order, environment), phase=str(point))
        for answer in answers_of(request, environment, reports):
            answers |= answer
        pool = environment.operations.project().environments[environment.record.name].pool
    return result_of(operations, order, request, answers, pool, started_at=started_at)
