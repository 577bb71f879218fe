"""The result of a benchmark as lines: tables of its figures, and bars."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from core.bench.batch_trace import Ended
from core.bench.keeping_up import MOST_BUSY, Keeping
from core.bench.request import BenchKind
from core.bench.result import BenchResult, Figure, FigureKind, TrialRecord, by_name, spread_of
from core.bench.scaled_project import Axis
from core.text.wording import counted
from tui.presentation.reports.bench_figures import (
    BAR,
    bars,
    few_lines,
    percentile_cells,
    rate_words,
    second_words,
    spread_bars,
    use_lines,
    use_values,
)
from tui.presentation.styling.table_layout import format_table
from tui.presentation.styling.theme import Glyphs
from tui.presentation.styling.value_formatting import short_duration, short_size, utc_moment

PHASES = {"idle": "idle, one probe after another", "load": "under load"}

_LATENCY = ("TABLE", "FROM", "P50", "P95", "P99", "EVENT P50", "WAITS", "BATCHES", "WATERMARKS", "N")
_PATH = (FigureKind.WAITS, FigureKind.BATCHES, FigureKind.WATERMARKS)
_LAST = ("TABLE", "READS", "WAIT", "BATCH", "WATERMARK")
_STAGES = (FigureKind.WAIT, FigureKind.BATCH, FigureKind.WATERMARK)
_LATENCY_MEANS = (
    "P50, P95, P99: from when rows were visible in FROM until all rows due to them",
    "were visible in TABLE. EVENT P50: from the median event time of these rows.",
    "WAITS, BATCHES, WATERMARKS: the medians of what they spent before the batches",
    "that read them, in these batches, and then until a watermark had passed them.",
    "The stages are those of single statements: WAIT, BATCH and WATERMARK begin when",
    "rows are visible in READS.",
)
_RATES = ("TABLE", "SUSTAINED", "SPREAD", "NOT SUSTAINED", "WHY", "LONGEST WAIT", "OBJECTIVE")
_RATES_RIGHT = ("SUSTAINED", "SPREAD", "NOT SUSTAINED", "LONGEST WAIT", "OBJECTIVE")
_RATES_MEAN = (
    "Rates are rows per second over all sources. SUSTAINED: the highest rate at",
    "which no input waited for longer than the objective, and batches took no longer",
    "than the input arrived that they read.",
)
_LONGEST_MEANS = "LONGEST WAIT: that of an input at that rate."
_WHY = {Keeping.BEHIND: "behind its objective", Keeping.RISING: "lag rises"}
MOMENTS = {
    "deployed": "start until deployed",
    "start": "start",
    "server killed": "kill of the server",
    "agent killed": "kill of the agent until another has the server",
}
_STARTUP_MEANS = (
    "Everything starts from nothing: agent, server, plan, statements. Rows arrive",
    "from the first moment on; those of statements that wait for a watermark come",
    "later by its delay and window.",
)
_ENDS = {
    Ended.NO_ROWS: "wrote no rows",
    Ended.WATERMARK: "waited for the watermark to the end",
    Ended.UNREAD: "was not read to the end",
}


def result_lines(result: BenchResult, glyphs: Glyphs) -> list[str]:
    """Return a result as a table with an explanation of its columns, and as bars."""
    draw = {
        BenchKind.LATENCY: _latency_lines,
        BenchKind.STARTUP: _startup_lines,
        BenchKind.SCALE: _scale_lines,
    }.get(BenchKind(result.kind), _rate_lines)
    body = draw(result, glyphs)
    return [*head_lines(result), "", *body, *(f"note: {each}" for each in result.notes)]


def head_lines(result: BenchResult) -> list[str]:
    """Return what was measured, when and on which machine."""
    machine = result.machine
    dirty = ", with changes that are not committed" if result.dirty else ""
    revision = f", commit {result.revision[:12]}{dirty}" if result.revision else ""
    memory, cores = short_size(machine.get("memory")), counted(int(machine.get("cores") or 0), "core")
    return [
        f"{result.kind} of {result.project}, with the settings of {result.environment}{revision}",
        f"{utc_moment(result.started_at)}, {short_duration(result.took_s)}, {_parameters(result.parameters)}",
        f"{cores}, {memory} memory, Java {machine.get('java')}, Spark {machine.get('spark')}, "
        f"{machine.get('disk_kind') or 'unknown'} disk, load {machine.get('load')}",
    ]


def _parameters(given: Mapping[str, object]) -> str:
    """Return how it was measured, in words."""
    words = {
        "since": "against the texts of {}",
        "pairs": "{} pairs",
        "rows": "of {} rows each",
        "repetitions": "{} times",
        "probes": "{} probes",
        "probe_rows": "of {} rows",
        "rate": "{:g} rows/s",
        "window_s": "for {:g} s",
        "axis": "by {}",
        "record_bytes": "records of {} bytes",
        "cores": "server with {} cores",
        "memory": "and {} memory",
        "stand_ins": "files in place of {}",
    }
    known = {
        name: ", ".join(map(str, value)) if isinstance(value, list) else value
        for name, value in given.items()
        if value and (name, value) != ("repetitions", 1)
    }
    return ", ".join(text.format(known[name]) for name, text in words.items() if name in known)


def latency_rows(result: BenchResult, phase: str) -> list[tuple[Figure, dict[FigureKind, Figure]]]:
    """Return the latencies of a phase in the order of the chain, each with all figures of its table and source.

    With several repetitions, each figure is that of the repetition with the median value.
    """
    place = {table: number for number, (table, _) in enumerate(result.stages)}
    found: dict[tuple[str, str], dict[FigureKind, Figure]] = {}
    for (kind, of, table, source), figures in by_name(result.figures).items():
        if of == phase:
            found.setdefault((table, source), {})[kind] = _middle(figures)
    rows = [(each[FigureKind.LATENCY], each) for each in found.values() if FigureKind.LATENCY in each]
    return sorted(rows, key=lambda row: (place.get(row[0].table, len(place)), row[0].table, row[0].source))


def _middle(figures: Sequence[Figure]) -> Figure:
    ordered = sorted(figures, key=lambda each: each.value)
    return ordered[(len(ordered) - 1) // 2]


def _latency_lines(result: BenchResult, glyphs: Glyphs) -> list[str]:
    lines: list[str] = []
    phases = [(phase, words, rows) for phase, words in PHASES.items() if (rows := latency_rows(result, phase))]
    for phase, words, rows in phases:
        cells = [_latency_cells(latency, each) for latency, each in rows]
        lines += [f"{words}:", *format_table(_LATENCY, cells, right=_LATENCY[2:]), ""]
        lines += [*_spread_lines(result, phase), *_missing_lines(rows)]
        more = "more --probes give more" if phase == "idle" else "a longer --window gives more"
        lines += few_lines((latency.spread for latency, _ in rows), more)
    for _, words, rows in phases:
        last = format_table(_LAST, list(_stage_cells(rows, dict(result.stages))), right=_LAST[2:])
        lines += [f"stages, {words}:", *last, ""]
    lines += [*_LATENCY_MEANS, "", *use_lines(result, "PHASE", {"idle": "idle", "load": PHASES["load"]})]
    for _, words, rows in phases:
        known = [(f"{each.table} from {each.source}", each.spread) for each, _ in rows if each.spread is not None]
        lines += [f"{words}: {glyphs.full} p50, {glyphs.rest} p99", *spread_bars(known, glyphs), ""]
    return lines


def _latency_cells(latency: Figure, each: Mapping[FigureKind, Figure]) -> tuple[str, ...]:
    spread = latency.spread
    known = percentile_cells(spread)
    arrived = spread.count if spread else 0
    count = f"{arrived} of {arrived + latency.missing}" if latency.missing else str(arrived)
    kinds = (FigureKind.EVENT_LATENCY, *_PATH)
    return (latency.table, latency.source, *known, *(_value(each, kind) for kind in kinds), count)


def _stage_cells(
    rows: Iterable[tuple[Figure, Mapping[FigureKind, Figure]]], reads: Mapping[str, str]
) -> Iterator[tuple[str, ...]]:
    """Yield the last stage of each table once: that of the rows of the source that arrived last."""
    slowest: dict[str, tuple[Figure, Mapping[FigureKind, Figure]]] = {}
    for latency, each in rows:
        if latency.table not in slowest or latency.value > slowest[latency.table][0].value:
            slowest[latency.table] = (latency, each)
    for table, (_, each) in slowest.items():
        yield (table, reads.get(table, ""), *(_value(each, kind) for kind in _STAGES))


def _value(each: Mapping[FigureKind, Figure], kind: FigureKind) -> str:
    return second_words(each[kind].value) if kind in each else "-"


def _spread_lines(result: BenchResult, phase: str) -> list[str]:
    if result.repetitions < 2:
        return []
    spreads = [
        (spread_of([each.value for each in figures]), table)
        for (kind, of, table, _), figures in by_name(result.figures).items()
        if of == phase and kind is FigureKind.LATENCY
    ]
    widest, table = max(spreads)
    usual = median(each for each, _ in spreads)
    words = f"{result.repetitions} repetitions: their p50 differ by {usual:.0%} of their mean"
    return [f"{words} (median of all tables), at most by {widest:.0%} ({table})", ""]


def _missing_lines(rows: Iterable[tuple[Figure, object]]) -> list[str]:
    lines = [
        f"{latency.table}: {counted(latency.missing, 'input')} of {latency.source} {_ENDS[Ended(latency.missing_why)]}"
        for latency, _ in rows
        if latency.missing
    ]
    return [*lines, ""] if lines else []


def startup_values(result: BenchResult, phase: str) -> list[tuple[str, list[float]]]:
    """Return the times of a phase by table, of every repetition; the time of no single table has an empty name."""
    return [
        (table, [each.value for each in found])
        for (kind, of, table, _), found in by_name(result.figures).items()
        if of == phase and kind is FigureKind.STARTUP
    ]


def _startup_lines(result: BenchResult, glyphs: Glyphs) -> list[str]:
    rows = [
        (words, table, second_words(median(values)), f"{spread_of(values):.0%}" if len(values) > 1 else "")
        for phase, words in MOMENTS.items()
        for table, values in startup_values(result, phase)
    ]
    table = format_table(("FROM", "UNTIL ROWS IN", "MEDIAN", "SPREAD"), rows, right=("MEDIAN", "SPREAD"))
    known = [
        (f"{words}: {table}" if table else words, median(values))
        for phase, words in MOMENTS.items()
        for table, values in startup_values(result, phase)
    ]
    longest = max(value for _, value in known)
    drawn = [
        f"  {second_words(value):>7}  {glyphs.full * max(1, round(value / longest * BAR)):{BAR}}  {name}"
        for name, value in known
    ]
    return [*table, "", *_STARTUP_MEANS, "", *use_lines(result, "FROM", MOMENTS), *drawn, ""]


def _rate_lines(result: BenchResult, glyphs: Glyphs) -> list[str]:
    phases = rate_phases(result)
    if len(phases) > 1:
        return _point_lines(result, "RECORD BYTES", phases, glyphs)
    cells = [_rate_cells(result, table, phases[0]) for table in ("", *(table for table, _ in result.stages))]
    known = [each for each in cells if each is not None]
    table = format_table(_RATES, known, right=_RATES_RIGHT)
    used = use_lines(result, "", dict.fromkeys(phases, "at the highest rate"))
    return [
        *table,
        "",
        *_RATES_MEAN,
        _LONGEST_MEANS,
        "",
        *used,
        *_trial_lines(result.trials, result.repetitions, glyphs),
        "",
    ]


def rate_phases(result: BenchResult) -> list[str]:
    """Return the phases in which the highest rate was searched, in the order in which they were measured."""
    return list(dict.fromkeys(each.phase for each in result.trials))


def _rate_cells(result: BenchResult, table: str, phase: str) -> tuple[str, ...] | None:
    names = by_name(result.figures)
    trials = [each for each in result.trials if each.phase == phase]
    sustained = [each.value for each in names.get((FigureKind.RATE, phase, table, ""), ())]
    failed = [each.value for each in names.get((FigureKind.FAILED_RATE, phase, table, ""), ())]
    if not sustained and not failed:
        return None
    rate = median(sustained) if sustained else None
    spread = f"{spread_of(sustained):.0%}" if len(sustained) > 1 else ""
    why, longest, objective = _reasons(trials, table, rate, min(failed) if failed else None)
    limit = rate_words(median(failed)) if failed else f"none up to {rate_words(max(t.rate for t in trials))}"
    return (table or "chain", rate_words(rate), spread, limit, why, longest, objective)


def _reasons(
    trials: Sequence[TrialRecord], table: str, sustained: float | None, failed: float | None
) -> tuple[str, str, str]:
    """Return why a table or the chain failed at a rate, and the longest wait and the objective where it kept up."""
    at_failure = next((each for each in trials if each.rate == failed), None)
    kept = min(
        (each for each in trials if each.sustained), key=lambda each: abs(each.rate - (sustained or 0.0)), default=None
    )
    slow = [
        each
        for each in (at_failure.statements if at_failure else ())
        if (not table or each["table"] == table) and Keeping(each["keeping"]) in _WHY
    ]
    why = "; ".join(_WHY[Keeping(each["keeping"])] if table else str(each["table"]) for each in slow[:3])
    if not table and len(slow) > 3:
        why += f" and {len(slow) - 3} more"
    mine = [each for each in (kept.statements if kept else ()) if not table or each["table"] == table]
    if not mine:
        return why, "", ""
    longest = max(mine, key=lambda each: each["longest_s"] / each["objective_s"])
    return why, second_words(longest["longest_s"]), second_words(longest["objective_s"])


def _trial_lines(trials: Sequence[TrialRecord], repetitions: int, glyphs: Glyphs) -> Iterator[str]:
    yield f"rates that were tried, and how near the nearest statement was to its limit ({glyphs.full}):"
    yield "the wait in parts of the objective, or the time in batches in parts of the time"
    yield "whose input they read"
    for trial in sorted(trials, key=lambda each: (each.repetition, each.rate)):
        part, table = strain(trial)
        drawn = glyphs.full * max(1, round(min(part, 2.0) / 2.0 * BAR))
        verdict = "sustained" if trial.sustained else "not sustained"
        number = f"{trial.repetition}  " if repetitions > 1 else ""
        yield f"  {number}{rate_words(trial.rate):>8}  {drawn:{BAR}}  {part:4.0%} {table}, {verdict}"


def strain(trial: TrialRecord) -> tuple[float, str]:
    """Return how near the statements came to a limit at a rate, 1 being the limit, and the one that came nearest."""
    return max(
        (max(each["longest_s"] / each["objective_s"], each["busy"] / MOST_BUSY), str(each["table"]))
        for each in trial.statements
    )


AXES = {
    Axis.STATEMENTS: ("COPIES", "copies of each statement"),
    Axis.CORES: ("CORES", "cores of the server"),
    Axis.PARTITIONS: ("PARTITIONS", "shuffle partitions"),
    Axis.CHAIN: ("LENGTH", "tables after the first one"),
}
"""The heading of a column of points of each axis, and what a point is."""

_SCALE = ("P50", "P95", "P99", "WAITS", "BATCHES", "WATERMARKS", "N")
_SCALE_MEANS = (
    "P50, P95, P99: from when rows were visible in their source until all rows due",
    "to them were visible in every table. WAITS, BATCHES, WATERMARKS: the medians of",
    "their parts on the way to the last table: before the batches that read the",
    "rows, in these batches, and then until a watermark had passed them.",
)


def scale_points(result: BenchResult) -> list[str]:
    """Return the points of a result of scalability that have figures, in ascending order."""
    return sorted({each.phase for each in result.figures}, key=int)


def _scale_lines(result: BenchResult, glyphs: Glyphs) -> list[str]:
    title, words = AXES[Axis(result.parameters["axis"])]
    points = scale_points(result)
    if result.parameters["measure"] == "throughput":
        return _point_lines(result, title, points, glyphs)
    counts = result.parameters["statements"]
    found = {point: {each.kind: each for each in whole_figures(result, point)} for point in points}
    rows = [(point, str(counts[point]), *_scale_cells(each)) for point, each in found.items()]
    head = (title, "STATEMENTS", *_SCALE)
    table = format_table(head, rows, right=head)
    latencies = [(point, known.spread) for point, each in found.items() if (known := each.get(FigureKind.LATENCY))]
    few = few_lines((spread for _, spread in latencies), "a longer --window gives more")
    lines = [*table, "", *few, *_SCALE_MEANS, "", *use_lines(result, title, {point: point for point in points})]
    lines.append(f"by {words}: {glyphs.full} p50, {glyphs.rest} p99")
    lines += spread_bars([(f"{point:>4}", spread) for point, spread in latencies if spread is not None], glyphs)
    return [*lines, "", *_cpu_bars(result, words, points, glyphs)]


def whole_figures(result: BenchResult, point: str) -> list[Figure]:
    """Return the figures of a point about all tables together, each of the repetition with the median value."""
    names = by_name(result.figures)
    return [_middle(found) for (_, phase, table, _), found in names.items() if phase == point and not table]


def _scale_cells(each: Mapping[FigureKind, Figure]) -> tuple[str, ...]:
    latency = each.get(FigureKind.LATENCY)
    spread = latency.spread if latency is not None else None
    known = percentile_cells(spread)
    missing = latency.missing if latency is not None else 0
    arrived = spread.count if spread else 0
    count = f"{arrived} of {arrived + missing}" if missing else str(arrived)
    return (*known, *(_value(each, kind) for kind in _PATH), count)


def _point_lines(result: BenchResult, title: str, points: Sequence[str], glyphs: Glyphs) -> list[str]:
    """Return the highest rates at several points, such as sizes of records."""
    sizes = result.kind == BenchKind.THROUGHPUT
    head = (title, "SUSTAINED", "SPREAD", *(["BYTES"] if sizes else []), "NOT SUSTAINED", "WHY")
    rows, drawn = [], []
    for point in points:
        if (cells := _rate_cells(result, "", point)) is not None:
            _, rate, spread, limit, why, _, _ = cells
            value = point_rate(result, point)
            size = [f"{short_size(value * int(point))}/s"] if sizes else []
            rows.append((point, rate, spread, *size, limit, why))
            drawn.append((point, value, rate))
    table = format_table(head, rows, right=head[:-1])
    used = use_lines(result, title, {point: point for point in points})
    words = f"highest sustained rate by {title.lower()}:"
    return [*table, "", *_RATES_MEAN, "", *used, words, *bars(drawn, glyphs.full), ""]


def point_rate(result: BenchResult, point: str) -> float:
    """Return the highest sustained rate at a point, the median of its repetitions; 0 if none was sustained."""
    values = [each.value for each in by_name(result.figures).get((FigureKind.RATE, point, "", ""), ())]
    return median(values) if values else 0.0


def _cpu_bars(result: BenchResult, words: str, points: Sequence[str], glyphs: Glyphs) -> list[str]:
    known = [(point, use_values(result, point).get(FigureKind.SERVER_CPU)) for point in points]
    rows = [(point, value, f"{value:.2f}") for point, value in known if value is not None]
    return [f"CPU of the server in cores, by {words}:", *bars(rows, glyphs.full), ""] if rows else []
