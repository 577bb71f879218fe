"""Words for the figures of benchmarks, and the table of CPU and memory that every kind of result has."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from core.bench.quantiles import LEAST, Distribution
from core.bench.result import BenchResult, FigureKind, by_name
from core.model.names import whole_number
from core.text.wording import short_number, short_size
from tui.presentation.styling.table_layout import format_table
from tui.presentation.styling.theme import Glyphs
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
    "memory. Both are those of the process with its children. A phase of less than a",
    "second has no CPU.",
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


def percentile_cells(spread: Distribution | None) -> list[str]:
    """Return P50, P95 and P99 as cells of a table; `-` for those that are not known."""
    known = (spread.p50, spread.p95, spread.p99) if spread is not None else (None, None, None)
    return [second_words(value) if value is not None else "-" for value in known]


def few_lines(spreads: Iterable[Distribution | None], remedy: str) -> list[str]:
    """Say why percentiles are missing, and how there will be some; empty if there are."""
    counts = [each.count for each in spreads if each is not None and each.p95 is None]
    return [f"P95 and P99 need {LEAST} inputs, and there are {min(counts)}: {remedy}", ""] if counts else []


def span_words(spread: Distribution) -> str:
    """Return P50 and P99 or, of few inputs, the largest value, as in `2.0 s, at most 5.0 s`."""
    most = "" if spread.p99 is not None else "at most "
    return f"{second_words(spread.p50)}, {most}{second_words(spread.high)}"


def spread_bars(known: Sequence[tuple[str, Distribution]], glyphs: Glyphs) -> list[str]:
    """Return a bar for each name, up to P50 and then to P99 or, of few inputs, to the largest value."""
    longest = max((spread.high for _, spread in known), default=0.0) or 1.0
    width = max((len(name) for name, _ in known), default=0)
    lines = []
    for name, spread in known:
        half, whole = (max(1, round(value / longest * BAR)) for value in (spread.p50, spread.high))
        drawn = glyphs.full * half + glyphs.rest * (whole - half)
        lines.append(f"  {name:{width}}  {drawn:{BAR}}  {span_words(spread)}")
    return lines


def second_words(value: float) -> str:
    """Format a time in seconds."""
    return took(value) or "0 s"
