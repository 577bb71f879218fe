"""Draws the result of a benchmark as an SVG picture: bars of stages, or the rates that were tried."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import median

from core.bench.request import BenchKind
from core.bench.result import BenchResult, Figure, FigureKind, TrialRecord
from core.bench.scaled_project import Axis
from tui.presentation.diagrams.lineage_svg import CHAR, LINE, SMALL, safe, svg_document
from tui.presentation.reports.bench_figures import rate_words, second_words, span_words, use_values, use_words
from tui.presentation.reports.bench_results import (
    AXES,
    MOMENTS,
    PHASES,
    head_lines,
    latency_rows,
    point_rate,
    rate_phases,
    scale_points,
    startup_values,
    strain,
    whole_figures,
)
from tui.presentation.styling.value_formatting import short_number, took

ROW, THICK, WIDE, TALL = 22.0, 13.0, 520.0, 260.0
BOLD = 8.5
"""Width of a character of the title."""
PANEL, GAP = 130.0, 52.0
"""Height of a panel of points, and the space below it."""

_STAGES = (
    (FigureKind.WAITS, "waits for batches", "bar"),
    (FigureKind.BATCHES, "in batches", "tip-value"),
    (FigureKind.WATERMARKS, "waits for watermarks", "root"),
)


def bench_svg(result: BenchResult) -> str:
    """Return a picture of a result."""
    draw = {BenchKind.LATENCY: _latency, BenchKind.STARTUP: _startup, BenchKind.SCALE: _points}
    several = result.kind == BenchKind.THROUGHPUT and len(rate_phases(result)) > 1
    drawing, width, height, legend = (_points if several else draw.get(BenchKind(result.kind), _rates))(result)
    heads = head_lines(result)
    below = [_text(0, 46 + height + LINE * (number + 2), line, "small dim") for number, line in enumerate(heads[1:])]
    width = max(width, len(heads[0]) * BOLD, *(len(line) * SMALL for line in heads))
    return svg_document(heads[0], width, 46 + height + LINE * 3, drawing, [*legend, *below])


def _latency(result: BenchResult) -> tuple[list[str], float, float, list[str]]:
    phases = [(words, rows) for phase, words in PHASES.items() if (rows := _known(result, phase))]
    spreads = [each.spread for _, rows in phases for each, _ in rows if each.spread is not None]
    longest = max((spread.high for spread in spreads), default=0.0) or 1.0
    names = max(len(f"{each.table} from {each.source}") for _, rows in phases for each, _ in rows) * SMALL + 12
    lines, y = [], 0.0
    for words, rows in phases:
        lines.append(_text(0, y + 12, words, "head"))
        y += ROW
        for latency, each in rows:
            lines += _bar(latency, each, names, y, WIDE / longest)
            y += ROW
        y += 6
    lines += [*_axis(names, y, longest, WIDE / longest)]
    legend = list(_legend(46 + y + 34))
    return lines, names + WIDE + 150, y + 34, legend


def _known(result: BenchResult, phase: str) -> list[tuple[Figure, dict[FigureKind, Figure]]]:
    return [row for row in latency_rows(result, phase) if row[0].spread is not None]


def _bar(latency: Figure, each: dict[FigureKind, Figure], left: float, y: float, scale: float) -> Iterator[str]:
    spread = latency.spread
    assert spread is not None, "only known latencies are drawn"
    stages = [each[kind].value if kind in each else 0.0 for kind, _, _ in _STAGES]
    # Medians of stages do not add up to the median of the whole exactly.
    parts = [stage * spread.p50 / (sum(stages) or 1.0) for stage in stages]
    name = f"{latency.table} from {latency.source}"
    yield f'<text class="small" x="0" y="{y + 10:.1f}">{safe(name)}</text>'
    x = left
    for part, (_, words, colour) in zip(parts, _STAGES, strict=True):
        if part * scale > 0.05:
            tip = f"{name}: {words} {took(part)}"
            yield (
                f'<rect class="{colour}" x="{x:.1f}" y="{y:.1f}" width="{part * scale:.1f}" height="{THICK}">'
                f"<title>{safe(tip)}</title></rect>"
            )
        x += part * scale
    middle = y + THICK / 2
    tail = left + spread.high * scale
    yield f'<path class="condition" d="M{x:.1f} {middle:.1f}H{tail:.1f}"/>'
    for value in (spread.p95, spread.p99):
        if value is not None:
            yield f'<path class="value" d="M{left + value * scale:.1f} {y + 2:.1f}V{y + THICK - 2:.1f}"/>'
    yield _text(tail + 6, y + 10, span_words(spread), "small dim")


def _startup(result: BenchResult) -> tuple[list[str], float, float, list[str]]:
    found = [(words, rows) for phase, words in MOMENTS.items() if (rows := startup_values(result, phase))]
    longest = max(median(values) for _, rows in found for _, values in rows)
    names = max(len(table) for _, rows in found for table, _ in rows) * SMALL + 12
    lines, y = [], 0.0
    for words, rows in found:
        lines.append(_text(0, y + 12, words, "head"))
        y += ROW
        for table, values in rows:
            middle = median(values)
            lines.append(f'<text class="small" x="0" y="{y + 10:.1f}">{safe(table)}</text>')
            lines.append(
                f'<rect class="tip-value" x="{names:.1f}" y="{y:.1f}" width="{middle * WIDE / longest:.1f}" '
                f'height="{THICK}"/>'
            )
            lines.append(_text(names + middle * WIDE / longest + 6, y + 10, took(middle), "small dim"))
            y += ROW
        y += 6
    lines += _axis(names, y, longest, WIDE / longest)
    return lines, names + WIDE + 110, y + 20, []


def _axis(left: float, y: float, longest: float, scale: float) -> Iterator[str]:
    step = _step(longest)
    for number in range(int(longest / step) + 1):
        x = left + number * step * scale
        yield f'<path class="box" d="M{x:.1f} {y - 4:.1f}v5"/>'
        yield _text(x - 4, y + 14, f"{number * step:g}", "small dim")
    yield _text(left + WIDE + 8, y + 14, "seconds", "small dim")


def _step(longest: float) -> float:
    raw = longest / 8
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * each for each in (1, 2, 5, 10) if power * each >= raw)


def _legend(y: float) -> Iterator[str]:
    x = 0.0
    for _, words, colour in _STAGES:
        yield f'<rect class="{colour}" x="{x:.1f}" y="{y - 9:.1f}" width="12" height="10"/>'
        yield _text(x + 17, y, words, "small dim")
        x += 17 + len(words) * SMALL + 18
    yield _text(x, y, "bar: p50; strokes: p95, p99", "small dim")


def _rates(result: BenchResult) -> tuple[list[str], float, float, list[str]]:
    trials = sorted(result.trials, key=lambda each: each.rate)
    low, high = math.log10(trials[0].rate), math.log10(trials[-1].rate)
    most = max(1.2, *(min(_part(each), 3.0) for each in trials))
    left = 52.0

    def at(trial: TrialRecord) -> tuple[float, float]:
        across = (math.log10(trial.rate) - low) / (high - low) if high > low else 0.5
        return left + 20 + across * (WIDE - 40), TALL - min(_part(trial), most) / most * TALL

    one = TALL - TALL / most
    lines = [
        f'<path class="box" style="fill:none" d="M{left} 0V{TALL}H{left + WIDE}"/>',
        f'<path class="condition" d="M{left} {one:.1f}H{left + WIDE}"/>',
        _text(left + WIDE + 6, one + 4, "limit", "small dim"),
        _text(0, -8, "wait or time in batches, in parts of the limit", "small dim"),
        _text(left + WIDE + 6, TALL + 4, "rows/s", "small dim"),
        *(_text(left - 38, TALL - part * TALL / most + 4, f"{part:.0%}", "small dim") for part in (0.5, 1.0)),
    ]
    for before, after in pairwise(trials):
        (x, y), (x_after, y_after) = at(before), at(after)
        if before.repetition == after.repetition:
            lines.append(f'<path class="value" d="M{x:.1f} {y:.1f}L{x_after:.1f} {y_after:.1f}"/>')
    for trial in trials:
        x, y = at(trial)
        colour = "landed" if trial.sustained else "root"
        verdict = "sustained" if trial.sustained else "not sustained"
        tip = f"{short_number(trial.rate)} rows/s, {verdict}: {_part(trial):.0%} of the limit ({strain(trial)[1]})"
        lines.append(
            f'<circle class="{colour} box" cx="{x:.1f}" cy="{y:.1f}" r="6"><title>{safe(tip)}</title></circle>'
        )
        lines.append(
            _text(x - len(short_number(trial.rate)) * CHAR / 2, TALL + 16, short_number(trial.rate), "small dim")
        )
    legend_y = 46 + TALL + 44
    legend = [
        f'<circle class="landed box" cx="6" cy="{legend_y - 4}" r="6"/>', _text(18, legend_y, "sustained", "small dim"),
        f'<circle class="root box" cx="110" cy="{legend_y - 4}" r="6"/>',
        _text(122, legend_y, "not sustained", "small dim"),
    ]  # fmt: skip
    return lines, left + WIDE + 80, TALL + 44, legend


def _part(trial: TrialRecord) -> float:
    return strain(trial)[0]


def _text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{safe(words)}</text>'


@dataclass(frozen=True, slots=True)
class _Panel:
    """Values by point: each line has a name, a colour and one value for each point, None if there is none."""

    title: str
    lines: tuple[tuple[str, str, tuple[float | None, ...]], ...]
    words: Callable[[float], str]


def _points(result: BenchResult) -> tuple[list[str], float, float, list[str]]:
    """Draw latency or rate, CPU and memory by point, one panel above the other."""
    if result.kind == BenchKind.SCALE:
        points, words = scale_points(result), AXES[Axis(result.parameters["axis"])][1]
    else:
        points, words = rate_phases(result), "bytes of a record"
    panels = [each for each in _panels(result, points) if any(value for _, _, values in each.lines for value in values)]
    lines: list[str] = []
    left, y = 64.0, 12.0
    for panel in panels:
        lines += _drawn(panel, points, left, y)
        y += PANEL + GAP
    lines.append(_text(left + WIDE + 6, y - GAP + 18, words, "small dim"))
    return lines, left + WIDE + 6 + max(150.0, len(words) * SMALL), y, []


def _panels(result: BenchResult, points: Sequence[str]) -> Iterator[_Panel]:
    spreads = {point: each.spread for point in points if (each := _whole_latency(result, point)) is not None}
    if spreads:
        known = [spreads.get(point) for point in points]
        lines = [
            ("p50", "value", tuple(each.p50 if each else None for each in known)),
            ("p99", "condition", tuple(each.p99 if each else None for each in known)),
        ]
        yield _Panel("latency", tuple(lines), second_words)
    rates = tuple(point_rate(result, point) or None for point in points)
    yield _Panel("highest sustained rate", (("rate", "value", rates),), rate_words)
    used = [use_values(result, point) for point in points]
    for title, kinds in (
        ("CPU, in cores", (FigureKind.SERVER_CPU, FigureKind.AGENT_CPU)),
        ("resident memory", (FigureKind.SERVER_MEMORY, FigureKind.AGENT_MEMORY)),
    ):
        server, agent = (tuple(each.get(kind) for each in used) for kind in kinds)
        drawn = (("server", "value", server), ("agent", "condition", agent))
        yield _Panel(title, drawn, partial(use_words, kinds[0]))


def _whole_latency(result: BenchResult, point: str) -> Figure | None:
    return next(
        (each for each in whole_figures(result, point) if each.kind is FigureKind.LATENCY and each.spread), None
    )


def _drawn(panel: _Panel, points: Sequence[str], left: float, top: float) -> Iterator[str]:
    most = max(value for _, _, values in panel.lines for value in values if value is not None) * 1.1
    yield _text(0, top - 8, panel.title, "small")
    yield f'<path class="box" style="fill:none" d="M{left} {top}V{top + PANEL}H{left + WIDE}"/>'
    for part in (0.5, 1.0):
        y = top + PANEL - part / 1.1 * PANEL
        yield _text(0, y + 4, panel.words(most / 1.1 * part), "small dim")
        yield f'<path class="box" d="M{left - 4} {y:.1f}h4"/>'
    xs = [left + WIDE * (number + 0.5) / len(points) for number in range(len(points))]
    for x, point in zip(xs, points, strict=True):
        yield _text(x - len(point) * SMALL / 2, top + PANEL + 16, point, "small dim")
    ends: list[float] = []
    for name, colour, values in panel.lines:
        at = [
            (x, top + PANEL - value / most * PANEL, value)
            for x, value in zip(xs, values, strict=True)
            if value is not None
        ]
        if len(at) > 1:
            way = "L".join(f"{x:.1f} {y:.1f}" for x, y, _ in at)
            yield f'<path class="{colour}" d="M{way}"/>'
        for x, y, value in at:
            tip = f"{name} {panel.words(value)}"
            yield f'<circle class="tip-{colour}" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{safe(tip)}</title></circle>'
        if at:
            x, y, value = at[-1]
            # Names of lines that end at nearly the same height are written below each other.
            y = next((end + LINE for end in ends if abs(end - y) < LINE), y)
            ends.append(y)
            yield _text(x + 10, y + 4, f"{name}, {panel.words(value)}", "small dim")
