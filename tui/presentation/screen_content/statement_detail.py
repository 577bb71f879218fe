"""The detail of one statement: a tab is a list of lines.

Figures come from the newest batch, curves from the ring of samples.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from core.model.states import Trend
from core.model.table_formats import table_format
from core.observed.batch_time import batch_shares, slowest_part
from core.text.secrets import mask_secrets
from core.text.wording import counted
from state.ledger_snapshot import StatementDetails
from state.registry import StatementLine
from state.row_types import Deployment, Measurement
from tui.presentation.reports.table_history import HistoryEntry
from tui.presentation.screen_content.audit_log_events import event_tone, event_words
from tui.presentation.screen_content.external_inputs import input_overview_lines
from tui.presentation.screen_content.lineage_tab import ColumnDetails, column_lines, lineage_lines
from tui.presentation.screen_content.statement_advice import advise, error_text, spark_ui_words
from tui.presentation.screen_content.statement_log import log_lines
from tui.presentation.screen_content.statement_rows import RowContext, age_words
from tui.presentation.screen_content.table_timeline import timeline_lines
from tui.presentation.styling.diff_highlighting import colour_sql, difference
from tui.presentation.styling.glyphs import STATE_TONES, TREND_TONES, parse_state, sparkline
from tui.presentation.styling.styled_text import EMPTY, Line, Span, Tone, fit, left, line, right, wrap
from tui.presentation.styling.value_formatting import (
    batch_took,
    clock,
    long_duration,
    long_number,
    moment,
    rate,
    short_duration,
    short_number,
    short_size,
)
from tui.presentation.view.ledger_view import LedgerView, StatementView
from tui.presentation.view.table_files import file_words, log_words, looked_at_words, written_as

TABS = ("overview", "sources", "sql", "lineage", "errors", "events", "versions", "history")
SPARK_WIDTH = 32


@dataclass(frozen=True, slots=True)
class DeclaredDetails:
    """What the files say of one statement."""

    dml: str | None = None
    """The statement; None while unknown or when there is no file."""
    ddl: str | None = None
    missing: str = ""
    """Why the files could not be read."""
    columns: ColumnDetails | None = None
    """The lineage of a column; None until it is looked at."""


NOTHING_DECLARED = DeclaredDetails()


def tabs_line(tab: str, width: int) -> Line:
    """Write the line with the tabs."""
    spans: list[Span] = []
    for number, name in enumerate(TABS, 1):
        chosen = name == tab
        spans.append(Span(f" {number} ", Tone.KEY if chosen else Tone.DIM))
        spans.append(Span(name, Tone.TITLE if chosen else Tone.DIM))
    return fit(tuple(spans), width)


def tab_lines(
    tab: str,
    statement: StatementView,
    facts: StatementDetails,
    view: LedgerView,
    *,
    declared: DeclaredDetails = NOTHING_DECLARED,
    history: Sequence[HistoryEntry] | None = None,
    log: Sequence[str] = (),
    look: RowContext,
    width: int,
) -> tuple[Line, ...]:
    """Write a tab; `facts` and `history` may not have been read yet."""
    match tab:
        case "sources":
            return sources_lines(statement, facts, look, width)
        case "sql":
            return sql_lines(statement, facts, declared, look)
        case "lineage":
            return (*lineage_lines(statement, view, look), *column_lines(declared.columns, width))
        case "errors":
            return (*error_lines(statement, facts, look, width), *log_lines(log))
        case "events":
            return event_lines(facts, look)
        case "versions":
            none = line((" an external input has no versions of Headgate's: its log has those of its owner", Tone.DIM))
            return (none,) if statement.external else version_lines(facts, look)
        case "history":
            return timeline_lines(history, look, width)
        case _:
            return overview_lines(statement, facts, view, look, width)


def overview_lines(
    statement: StatementView, facts: StatementDetails, view: LedgerView, look: RowContext, width: int
) -> tuple[Line, ...]:
    """Write the first tab: is it well, is it behind, what is it bound by."""
    row, deployed = statement.line, facts.serving
    lines: list[Line] = []
    reads = ", ".join(
        f"{one.parent}{f'__v{one.version}' if one.version else ''} ({'stream' if one.streamed else 'static'})"
        for one in statement.parents
    )
    if statement.external:
        return input_overview_lines(statement, facts, look, width)
    head = f" {look.glyphs.states[statement.state]} {statement.state} {long_duration(look.now - statement.since)}"
    lines.append(
        line(
            (head, STATE_TONES[statement.state]),
            (f"   restarts {row.restarts}", Tone.DIM),
            ("   reads ", Tone.DIM),
            reads,
        )
    )
    measurement = facts.measurement or statement.line.measurement
    rows = (
        f", {short_number(measurement.rows_total)} rows" if measurement and measurement.rows_total is not None else ""
    )
    pointer = f"pointer {statement.table} {look.glyphs.arrow} v{statement.version}" if row.active else "not serving yet"
    lines.append(
        line(
            (" writes ", Tone.DIM),
            f"{statement.table}__v{statement.version}",
            (f"  {written_as(row.format, deployed.mode) if deployed else row.format}{rows}", Tone.DIM),
            (f"   {pointer}", Tone.DIM),
        )
    )
    if table_format(row.format).transaction_log:
        held, log = file_words(facts.statistics), log_words(facts.statistics, look.now)
        held = "  ".join(filter(None, (held, looked_at_words(facts.statistics, look.now))))
        lines.append(line((" files  ", Tone.DIM), held or "not measured yet"))
        lines.extend([line((" log    ", Tone.DIM), log)] if log else [])
    if measurement is not None:
        lines.extend(_measurement_lines(statement, measurement, facts, look, width))
    lines.extend(_owner_lines(row, deployed))
    lines.append(EMPTY)
    verdict_text, tone = advise(statement, measurement, view, look)
    lines.append(line((" VERDICT  ", Tone.TITLE)))
    lines.extend(wrap(verdict_text, width - 2, tone, " "))
    if row.error:
        lines.append(EMPTY)
        lines.extend(wrap(error_text(row), width - 2, Tone.BAD, " "))
    return tuple(lines)


def _owner_lines(row: StatementLine, deployed: Deployment | None) -> Iterator[Line]:
    about = (("   trigger ", Tone.DIM), row.trigger, ("   revision ", Tone.DIM), row.revision[:8])
    yield line((" owner  ", Tone.DIM), row.owner or "-", *about)
    if deployed is not None and deployed.pool is not None:
        pool = deployed.pool
        yield line((" pool   ", Tone.DIM), pool.name, (f"   {spark_ui_words(pool)}", Tone.DIM))


def _measurement_lines(
    statement: StatementView, measurement: Measurement, facts: StatementDetails, look: RowContext, width: int
) -> tuple[Line, ...]:
    levels = look.glyphs.levels
    room = SPARK_WIDTH if width < 120 else min(width - 60, 64)
    lags = [None if one.lag_rows is None else float(one.lag_rows) for one in facts.samples]
    top = max((value for value in lags if value is not None), default=None)
    words = statement.trend_words(measurement)
    since = (
        f"last {short_duration(look.now - facts.samples[0].at)}, most {short_number(top)}"
        if facts.samples
        else "no samples yet"
    )
    exact = "" if measurement.exact else " (estimate)"
    lines = [
        line(
            (" behind ", Tone.DIM),
            left(long_duration(measurement.behind_s), 7),
            (
                f"  {long_number(measurement.lag_rows)} rows{exact}  {long_number(measurement.lag_files)} files",
                Tone.DIM,
            ),
            (f"   {look.glyphs.trends[statement.trend]} {words}", TREND_TONES[statement.trend]),
            (age_words(measurement, look.now), Tone.DIM),
        ),
        line(
            ("        ", Tone.DIM),
            (
                sparkline(lags, room, levels),
                TREND_TONES[statement.trend] if statement.trend is not Trend.IDLE else Tone.DIM,
            ),
            (f"  {since}", Tone.DIM),
        ),
        line(
            (" in     ", Tone.DIM),
            left(rate(measurement.in_rows_s), 7),
            (sparkline([one.in_rows_s for one in facts.samples], room - 8, levels), Tone.ACCENT),
            ("  out ", Tone.DIM),
            rate(measurement.out_rows_s),
        ),
    ]
    lines.append(_batch_line(statement, measurement, facts, look, room))
    lines.append(_state_line(statement, measurement))
    if slowest_part(measurement.durations):
        lines.append(_time_line(measurement))
    lines.append(
        line(
            (" checkpoint  ", Tone.DIM),
            "no batch committed yet"
            if measurement.batch is None
            else f"batch {long_number(measurement.batch)}  {clock(measurement.committed_at)}",
            (f"  id {(facts.serving.checkpoint_id[:8] if facts.serving else '') or '-'}", Tone.DIM),
        )
    )
    return tuple(lines)


def _batch_line(
    statement: StatementView, measurement: Measurement, facts: StatementDetails, look: RowContext, room: int
) -> Line:
    batches = [None if one.batch_ms is None else float(one.batch_ms) for one in facts.samples]
    return line(
        (" batch  ", Tone.DIM),
        left(batch_took(measurement.batch_ms), 7),
        (sparkline(batches, room - 8, look.glyphs.levels), Tone.ACCENT),
        (f"  trigger {statement.line.trigger}", Tone.DIM),
    )


def _state_line(statement: StatementView, measurement: Measurement) -> Line:
    mark = measurement.watermark[11:19] if len(measurement.watermark) >= 19 else measurement.watermark or "none"
    dropped = "-" if measurement.dropped_by_watermark is None else str(measurement.dropped_by_watermark)
    held = f"{long_number(measurement.state_rows)} rows  {short_size(measurement.state_bytes)}"
    return line(
        (" state  ", Tone.DIM),
        held if measurement.state_rows is not None or statement.line.stateful else "none, it is stateless",
        ("   watermark ", Tone.DIM),
        mark,
        ("   dropped rows ", Tone.DIM),
        dropped,
    )


def _time_line(measurement: Measurement) -> Line:
    shares = "  ".join(f"{part} {round(100 * share)}%" for part, share in batch_shares(measurement.durations).items())
    return line((" time   ", Tone.DIM), shares, (f"   bound by {slowest_part(measurement.durations)}", Tone.DIM))


def sources_lines(statement: StatementView, facts: StatementDetails, look: RowContext, width: int) -> tuple[Line, ...]:
    """Write lag by source."""
    measurement = facts.measurement or statement.line.measurement
    lines = [
        line(
            (
                " "
                + left("SOURCE", 28)
                + right("BEHIND", 9)
                + right("ROWS", 10)
                + right("FILES", 8)
                + right("BYTES", 10),
                Tone.DIM,
            )
        )
    ]
    for source in measurement.sources if measurement else ():
        rows, behind = source.get("rows"), source.get("behind_s")
        mark = "" if source.get("exact", True) else "~"
        missing = bool(source.get("missing"))
        lines.append(
            line(
                " " + left(str(source.get("table", "?")), 28),
                right(short_duration(_number(behind)), 9),
                right(mark + (long_number(rows) if isinstance(rows, int) else "?"), 10),
                right(str(source.get("files", "?")), 8),
                right(short_size(_number(source.get("bytes"))), 10),
                ("   dropped or replaced" if missing else "", Tone.BAD),
                ("" if missing else _versions(source), Tone.DIM),
            )
        )
    if len(lines) == 1:
        lines.append(line((" no lag has been measured yet" if statement.parents else " it reads nothing", Tone.DIM)))
    static = [one.parent for one in statement.parents if not one.streamed]
    if static:
        lines.append(EMPTY)
        lines.append(line((" static  ", Tone.DIM), ", ".join(static), ("   read again by every batch", Tone.DIM)))
    return tuple(lines)


def _versions(source: Mapping[str, object]) -> str:
    """Return how many versions wait, of a source that has versions."""
    found = source.get("versions")
    return f"   {counted(found, 'version')}" if isinstance(found, int) and found else ""


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def sql_lines(
    statement: StatementView, facts: StatementDetails, declared: DeclaredDetails, look: RowContext
) -> tuple[Line, ...]:
    """Write the deployed SQL, and below it what the files say otherwise."""
    if facts.serving is None:
        return (line((" reading", Tone.DIM)),)
    deployed = facts.serving.texts
    lines: list[Line] = []
    if declared.dml is not None or declared.ddl is not None:
        changes = (
            *difference(deployed.dml, declared.dml if declared.dml is not None else deployed.dml),
            *difference(deployed.ddl, declared.ddl if declared.ddl is not None else deployed.ddl),
        )
        if changes:
            lines.append(
                line(
                    (" FILES compared with what is deployed", Tone.CHANGING),
                    ("   p lists all changes, D stages this one", Tone.DIM),
                )
            )
            lines.extend(changes)
            lines.append(EMPTY)
        else:
            lines.append(line((" the files are what is deployed", Tone.DIM)))
    elif declared.missing:
        lines.append(line((f" files: {declared.missing}", Tone.CHANGING)))
    for name, text in (("statement", deployed.dml), ("table", deployed.ddl), ("settings", deployed.yml)):
        if text.strip():
            lines.append(line((f" {look.glyphs.rule} {name}{_version_mark(statement.version)} ", Tone.DIM)))
            lines.extend(colour_sql(text))
    if not lines:
        lines.append(line((" the text is unknown", Tone.DIM)))
    return tuple(lines)


def error_lines(statement: StatementView, facts: StatementDetails, look: RowContext, width: int) -> tuple[Line, ...]:
    """Write exceptions, grouped, newest first."""
    lines: list[Line] = []
    row = statement.line
    if row.error:
        lines.append(line((f" NOW  {row.error_class}", Tone.BAD)))
        lines.extend(wrap(mask_secrets(row.error), width - 3, Tone.PLAIN, "  "))
        lines.append(EMPTY)
    for event in facts.events:
        if event.kind != "exception":
            continue
        times = f"{event.count} times since {moment(event.first_at, look.now)}, last" if event.count > 1 else "once,"
        lines.append(line((f" {times} {moment(event.at, look.now)} {_version_mark(event.version)}", Tone.DIM)))
        lines.extend(wrap(mask_secrets(event.summary), width - 3, Tone.BAD, "  "))
        lines.extend(wrap(mask_secrets(event.detail), width - 5, Tone.DIM, "    ") if event.detail else ())
        lines.append(EMPTY)
    return tuple(lines) or (line((" no exceptions recorded", Tone.DIM)),)


def event_lines(facts: StatementDetails, look: RowContext) -> tuple[Line, ...]:
    """Write events, newest first."""
    lines = [
        line(
            (f" {moment(event.at, look.now):14}", Tone.DIM),
            (f"{_version_mark(event.version).lstrip():2}  {event.kind:10}", Tone.DIM),
            (event_words(event), event_tone(event)),
        )
        for event in facts.events
    ]
    return tuple(lines) or (line((" no events yet", Tone.DIM)),)


def version_lines(facts: StatementDetails, look: RowContext) -> tuple[Line, ...]:
    """Write all versions, newest first: which one serves, which are kept, until when."""
    lines: list[Line] = []
    for row in facts.versions:
        state = parse_state(row.state)
        kept = ""
        if row.drop_after is not None:
            kept = f"deleted, files kept until {moment(row.drop_after, look.now)}"
        elif row.active:
            kept = "serves"
        elif row.stops_at is not None and row.wanted == "running":
            kept = f"was replaced, stops {moment(row.stops_at, look.now)}"
        elif str(state) == "stopped":
            kept = "kept: table and checkpoint exist"
        lines.append(
            line(
                (f" v{row.version:<4}", Tone.TITLE),
                (left(f"{look.glyphs.states[state]} {state}", 13), STATE_TONES[state]),
                (left(kept, 40), Tone.PLAIN),
                (f"since {moment(row.created_at or None, look.now)}", Tone.DIM),
            )
        )
        plan = f"plan {row.plan_hash[:4]}   " if row.plan_hash else ""
        lines.append(line((f"      {plan}revision {row.revision[:8]}   {row.folder}", Tone.DIM)))
    return tuple(lines) or (line((" reading", Tone.DIM)),)


def _version_mark(version: int) -> str:
    """Write a version behind what it is of; an input has none."""
    return f" v{version}" if version else ""
