"""The comparison of two results of benchmarks, as lines and as Markdown."""

from collections.abc import Iterable, Sequence
from functools import partial

from core.bench.paired_comparison import CONFIDENCE, LEAST_PAIRS
from core.bench.result import BenchResult, Better, FigureKind, better_of
from core.bench.result_comparison import Condition, FigureChange, FigureComparison
from core.text.wording import counted
from tui.presentation.reports.bench_figures import rate_words, second_words, use_words
from tui.presentation.styling.table_layout import format_table

_HEAD = ("TABLE", "FIGURE", "OLD", "NEW", "CHANGE", "INTERVAL", "VERDICT")
_RIGHT = ("OLD", "NEW", "CHANGE", "INTERVAL")
_FIGURES = {
    FigureKind.WORK: "time in batches",
    FigureKind.LATENCY: "latency",
    FigureKind.RATE: "sustained rate",
    FigureKind.STARTUP: "startup",
    FigureKind.SERVER_CPU: "CPU of the server",
}


def comparison_lines(found: Sequence[FigureComparison], conditions: Sequence[Condition]) -> list[str]:
    """Return a comparison as a table, with a summary in one sentence and the method."""
    rows = [_cells(each) for each in found]
    table = format_table(_HEAD, rows, right=_RIGHT)
    others = [f"not the same: {each.name} {each.old or 'none'}, now {each.new or 'none'}" for each in conditions]
    return [summary(found), "", *table, "", *_method(found), *others]


def comparison_markdown(
    found: Sequence[FigureComparison], conditions: Sequence[Condition], result: BenchResult
) -> list[str]:
    """Return a comparison as Markdown for a pull request."""
    rows = [_HEAD, tuple("---:" if name in _RIGHT else "---" for name in _HEAD), *map(_cells, found)]
    machine = result.machine
    about = (
        f"{counted(int(machine.get('cores') or 0), 'core')}, Java {machine.get('java')}, Spark {machine.get('spark')}"
    )
    others = [f"- not the same: {each.name} {each.old or 'none'}, now {each.new or 'none'}" for each in conditions]
    return [
        f"**{summary(found)}**",
        "",
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
        *_method(found),
        f"Measured on {about}, load {machine.get('load')}.",
        *others,
    ]


def summary(found: Iterable[FigureComparison]) -> str:
    """Return in one sentence what is worse, what is better, and what could be hidden."""
    listed = tuple(found)
    parts = []
    for change, words in ((FigureChange.WORSE, "worse"), (FigureChange.BETTER, "better")):
        names = [f"{_name(each)} ({_percent(each.comparison.ratio)})" for each in listed if each.change is change]
        if names:
            parts.append(f"{words}: {', '.join(names)}")
    if all(each.change is FigureChange.TOO_FEW for each in listed):
        return f"nothing can be concluded from fewer than {LEAST_PAIRS} repetitions of each side"
    if not parts:
        most = max(each.comparison.largest_hidden for each in listed if each.change is FigureChange.NOT_SHOWN)
        count = min(each.comparison.count for each in listed)
        what = counted(count, "pair" if listed[0].comparison.paired else "repetition")
        return f"no difference that {what} can show; one of up to {most:.0%} could be hidden"
    return "; ".join(parts)


def _name(each: FigureComparison) -> str:
    cpu = "CPU" if each.kind is FigureKind.SERVER_CPU else ""
    return " ".join(filter(None, (each.table or cpu or "chain", each.phase)))


def _cells(each: FigureComparison) -> tuple[str, ...]:
    compared = each.comparison
    words = rate_words if better_of(each.kind) is Better.HIGHER else second_words
    if each.kind is FigureKind.SERVER_CPU:
        words = partial(use_words, each.kind)
    figure = _FIGURES.get(each.kind, str(each.kind))
    known = each.change is not FigureChange.TOO_FEW
    interval = f"{_percent(compared.low)} to {_percent(compared.high)}" if known else "unknown"
    verdict = str(each.change)
    if each.change is FigureChange.NOT_SHOWN:
        what = counted(compared.count, "pair" if compared.paired else "repetition")
        verdict = f"no difference that {what} can show, less than {compared.largest_hidden:.0%}"
    return (
        each.table or "chain",
        " ".join(filter(None, (figure, each.phase, f"from {each.source}" if each.source else ""))),
        words(compared.old), words(compared.new), _percent(compared.ratio), interval, verdict,
    )  # fmt: skip


def _method(found: Sequence[FigureComparison]) -> list[str]:
    one = found[0].comparison
    of = f"ratios of {counted(one.count, 'pair')}" if one.paired else "the repetitions of both sides (Welch)"
    together = f", and all {len(found)} intervals hold together (Bonferroni)" if len(found) > 1 else ""
    return [f"Intervals: Student's t at {CONFIDENCE:.0%} over logarithms of {of}{together}."]


def _percent(ratio: float) -> str:
    return "any" if ratio > 100 else f"{ratio - 1:+.1%}"
