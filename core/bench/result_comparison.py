"""Comparison of two results of benchmarks, or of the two sides of one that measured old and new texts in pairs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from core.bench.paired_comparison import Comparison, Verdict, compare_groups, compare_pairs
from core.bench.result import BenchResult, Better, Figure, FigureKind, FigureName, better_of, by_name
from core.model.errors import UsageError

OLD, NEW = "old", "new"
"""Phases of the figures of a benchmark that measures old and new texts."""

COMPARED = (FigureKind.LATENCY, FigureKind.RATE, FigureKind.WORK, FigureKind.STARTUP, FigureKind.SERVER_CPU)

_ABOUT_MACHINE = ("cores", "memory", "processor", "java", "spark", "disk_kind")


class FigureChange(StrEnum):
    """What a comparison of a figure says."""

    BETTER = "better"
    WORSE = "worse"
    NOT_SHOWN = "no difference shown"
    TOO_FEW = "too few repetitions"


@dataclass(frozen=True, slots=True)
class FigureComparison:
    """A figure of both sides."""

    kind: FigureKind
    phase: str
    """Empty if the phases are the sides."""
    table: str
    source: str
    comparison: Comparison

    @property
    def change(self) -> FigureChange:
        """Whether the new side is better or worse."""
        match self.comparison.verdict:
            case Verdict.TOO_FEW:
                return FigureChange.TOO_FEW
            case Verdict.NOT_SHOWN:
                return FigureChange.NOT_SHOWN
        more_is_better = better_of(self.kind) is Better.HIGHER
        return (
            FigureChange.BETTER if (self.comparison.verdict is Verdict.MORE) == more_is_better else FigureChange.WORSE
        )


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that was not the same for two results, which makes their figures hard to compare."""

    name: str
    old: str
    new: str


def compare_results(old: BenchResult, new: BenchResult) -> tuple[FigureComparison, ...]:
    """Compare the figures that two results share, by their repetitions.

    Raises UsageError if they measured different things, or share no figure.
    """
    if old.kind != new.kind or old.project != new.project:
        mine, other = (f"{each.kind} of {each.project}" for each in (old, new))
        raise UsageError(f"one result is {mine}, the other {other}", remedy="compare results of one kind")
    axes = {_axis(each) for each in (old, new)}
    if len(axes) > 1:
        raise UsageError(
            f"one result is of {', the other of '.join(sorted(axes))}", remedy="compare results of one axis"
        )
    return _compared(_by_point(old), _by_point(new), paired=False)


def _axis(result: BenchResult) -> str:
    """Return what a result of scalability measured, and along which axis; empty for other results."""
    return " by ".join(str(each) for name in ("measure", "axis") if (each := result.parameters.get(name)))


def _by_point(result: BenchResult) -> dict[FigureName, list[Figure]]:
    """Return the figures by name; those of a point of scalability have it as phase, and are about all tables."""
    found = by_name(result.figures)
    if (axis := result.parameters.get("axis")) is None:
        return found
    return {
        (kind, f"{axis} {phase}", table, source): figures
        for (kind, phase, table, source), figures in found.items()
        if not table
    }


def compare_sides(result: BenchResult) -> tuple[FigureComparison, ...]:
    """Compare the sides of a result whose repetitions are pairs. Raises UsageError if they share no figure."""
    sides: dict[str, dict[FigureName, list[Figure]]] = {OLD: {}, NEW: {}}
    for (kind, phase, table, source), figures in by_name(result.figures).items():
        if phase in sides:
            sides[phase][kind, "", table, source] = sorted(figures, key=lambda each: each.repetition)
    return _compared(sides[OLD], sides[NEW], paired=True)


def other_conditions(old: BenchResult, new: BenchResult) -> tuple[Condition, ...]:
    """Return the conditions that differ between two results: the machine's, and how they were measured."""
    return tuple(
        [*_differing(old.machine, new.machine, _ABOUT_MACHINE), *_differing(old.parameters, new.parameters, None)]
    )


def _differing(
    old: Mapping[str, object], new: Mapping[str, object], names: Sequence[str] | None
) -> Iterator[Condition]:
    for name in names if names is not None else sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            yield Condition(name.replace("_", " "), str(old.get(name, "")), str(new.get(name, "")))


def _compared(
    old: Mapping[FigureName, Sequence[Figure]], new: Mapping[FigureName, Sequence[Figure]], *, paired: bool
) -> tuple[FigureComparison, ...]:
    values = {
        name: ([each.value for each in old[name]], [each.value for each in new[name]])
        for name in old
        if name in new and name[0] in COMPARED
    }
    known = {name: sides for name, sides in values.items() if all(each > 0 for side in sides for each in side)}
    if not known:
        raise UsageError("the results have no figure in common", remedy="measure the same tables")
    compare = compare_pairs if paired else compare_groups
    return tuple(
        FigureComparison(*name, comparison=compare(*sides, together=len(known))) for name, sides in known.items()
    )
