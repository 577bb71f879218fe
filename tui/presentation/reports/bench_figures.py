"""Words for the figures of benchmarks, and the table of CPU and memory that every kind of result has."""

from collections.abc import Mapping, Sequence
from statistics import median

from core.bench.result import BenchResult, FigureKind, by_name
from core.model.names import whole_number
from core.text.wording import short_number, short_size
from tui.presentation.styling.table_layout import format_table
from tui.presentation.styling.value_formatting import took

BAR = 36
"""Width of the longest bar, in characters."""

USE = {
    FigureKind.SERVER_CPU: "SERVER CPU",
    FigureKind.SERVER_MEMORY: "SERVER MEMORY",
    FigureKind.AGENT_CPU: "AGENT CPU",
    FigureKind.AGENT_MEMORY: "AGENT MEMORY",
}
_MEANS = (
    "CPU: cores in use, in CPU seconds per second. MEMORY: the highest resident",
    "memory. Both are those of the process with its children.",
)


def use_values(result: BenchResult, phase: str) -> dict[FigureKind, float]:
    """Return the CPU and memory of a phase, each the median of its repetitions."""
    found = by_name(result.figures)
    return {
        kind: median([each.value for each in found[name]]) for kind in USE if (name := (kind, phase, "", "")) in found
    }


def use_lines(result: BenchResult, title: str, phases: Mapping[str, str]) -> list[str]:
    """Return a table of CPU and memory by phase, whose words are in `phases`; empty if none was measured."""
    rows = [
        (words, *(use_words(kind, values.get(kind)) for kind in USE))
        for phase, words in phases.items()
        if (values := use_values(result, phase))
    ]
    numeric = all(whole_number(words) is not None for words, *_ in rows)
    right = (*USE.values(), title) if numeric else tuple(USE.values())
    return [*format_table((title, *USE.values()), rows, right=right), "", *_MEANS, ""] if rows else []


def use_words(kind: FigureKind, value: float | None) -> str:
    """Format a CPU or memory figure."""
    if value is None:
        return "-"
    return short_size(value) if kind in (FigureKind.SERVER_MEMORY, FigureKind.AGENT_MEMORY) else f"{value:.2f}"


def bars(rows: Sequence[tuple[str, float, str]], full: str) -> list[str]:
    """Return a line for each (name, value, words), with a bar of a length in proportion to the value."""
    longest = max((value for _, value, _ in rows), default=0.0) or 1.0
    width = max((len(name) for name, _, _ in rows), default=0)
    return [
        f"  {name:>{width}}  {full * max(1, round(value / longest * BAR)):{BAR}}  {words}"
        for name, value, words in rows
    ]


def rate_words(value: float | None) -> str:
    """Format a rate in rows per second; `none` if there is none."""
    return "none" if value is None else f"{short_number(value)}/s"


def second_words(value: float) -> str:
    """Format a time in seconds."""
    return took(value) or "0 s"
