from dataclasses import replace
from random import Random

import pytest

from core.bench.request import BenchKind
from core.bench.result import BenchResult, Figure, FigureKind
from core.bench.result_comparison import (
    NEW,
    OLD,
    Condition,
    FigureChange,
    compare_results,
    compare_sides,
    other_conditions,
)
from core.model.errors import UsageError


def result(kind: BenchKind, *figures: Figure) -> BenchResult:
    machine, parameters = {"cores": 2}, {"rate": 1}
    return BenchResult(str(kind), "p", "dev", 0, 0, "", False, machine, parameters, figures)


def figures(kind: FigureKind, table: str, values: list[float], phase: str = "idle") -> list[Figure]:
    return [Figure(kind, phase, table, n, value) for n, value in enumerate(values, 1)]


def paired(**tables: tuple[list[float], list[float]]) -> BenchResult:
    found = []
    for table, (old, new) in tables.items():
        found += [*figures(FigureKind.WORK, table, old, OLD), *figures(FigureKind.WORK, table, new, NEW)]
    return result(BenchKind.COMPARE, *found)


BASE = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0]


def test_a_statement_that_takes_twice_as_long_is_worse_and_another_is_not() -> None:
    found = compare_sides(paired(slow=(BASE, [2.0, 2.2, 1.9, 2.1, 1.8, 2.0]), same=(BASE, BASE[::-1])))
    assert {each.table: each.change for each in found} == {"slow": FigureChange.WORSE, "same": FigureChange.NOT_SHOWN}
    assert all(each.comparison.paired and each.comparison.count == 6 for each in found)


def test_pairs_are_matched_by_their_number_and_not_by_their_order() -> None:
    body = paired(a=([1.0, 2.0, 4.0, 8.0], [1.1, 2.2, 4.4, 8.8]))
    (found,) = compare_sides(replace(body, figures=body.figures[::-1]))
    assert found.change is FigureChange.WORSE
    assert found.comparison.ratio == pytest.approx(1.1)


def test_a_higher_rate_is_better() -> None:
    old, new = (
        result(BenchKind.THROUGHPUT, *figures(FigureKind.RATE, "", [each * by for each in BASE], ""))
        for by in (100, 200)
    )
    (found,) = compare_results(old, new)
    assert found.change is FigureChange.BETTER
    assert compare_results(new, old)[0].change is FigureChange.WORSE


def test_figures_of_one_side_alone_and_stages_are_left_out() -> None:
    common = figures(FigureKind.LATENCY, "a", BASE)
    old = result(BenchKind.LATENCY, *common, *figures(FigureKind.WAIT, "a", BASE))
    new = result(BenchKind.LATENCY, *common, *figures(FigureKind.LATENCY, "b", BASE))
    assert [(each.kind, each.table) for each in compare_results(old, new)] == [(FigureKind.LATENCY, "a")]


def test_what_cannot_be_compared_is_refused() -> None:
    latency = result(BenchKind.LATENCY, *figures(FigureKind.LATENCY, "a", BASE))
    for other in (result(BenchKind.THROUGHPUT), result(BenchKind.LATENCY), replace(latency, project="q")):
        with pytest.raises(UsageError):
            compare_results(latency, other)


def test_other_conditions_are_named() -> None:
    one = result(BenchKind.LATENCY)
    other = replace(one, machine={"cores": 4, "load": 9}, parameters={"rate": 1, "window_s": 3})
    assert other_conditions(one, other) == (Condition("cores", "2", "4"), Condition("window s", "", "3"))


def test_of_a_hundred_comparisons_without_a_difference_at_most_some_five_show_one() -> None:
    random = Random(7)

    def noise() -> list[float]:
        return [random.lognormvariate(0, 0.2) for _ in range(8)]

    def alarms(tables: int) -> float:
        runs = [compare_sides(paired(**{f"t{n}": (noise(), noise()) for n in range(tables)})) for _ in range(300)]
        return sum(any(each.change is not FigureChange.NOT_SHOWN for each in found) for found in runs) / len(runs)

    assert 0.02 < alarms(1) < 0.08
    assert alarms(10) < 0.08


def by_axis(axis: str, *given: Figure, measure: str = "latency") -> BenchResult:
    return replace(result(BenchKind.SCALE, *given), parameters={"axis": axis, "measure": measure})


def test_results_of_scalability_are_compared_at_their_points_and_as_a_whole() -> None:
    def at(point: str, factor: float) -> list[Figure]:
        values = [each * factor for each in BASE]
        kinds = (FigureKind.LATENCY, FigureKind.SERVER_CPU)
        return [
            *figures(FigureKind.LATENCY, "a", values, point),
            *(each for kind in kinds for each in figures(kind, "", values, point)),
        ]

    found = compare_results(
        by_axis("statements", *at("1", 1), *at("4", 1)), by_axis("statements", *at("1", 1), *at("4", 2))
    )
    assert {(str(each.kind), each.phase, each.table): each.change for each in found} == {
        ("latency", "statements 1", ""): FigureChange.NOT_SHOWN,
        ("server cpu", "statements 1", ""): FigureChange.NOT_SHOWN,
        ("latency", "statements 4", ""): FigureChange.WORSE,
        ("server cpu", "statements 4", ""): FigureChange.WORSE,
    }


def test_points_of_different_axes_are_not_compared() -> None:
    given = figures(FigureKind.LATENCY, "", BASE, "1")
    with pytest.raises(UsageError, match="latency by cores, the other of latency by statements"):
        compare_results(by_axis("statements", *given), by_axis("cores", *given))
