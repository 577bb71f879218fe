"""The tabs of one statement as lines. The first tab is the statement's fact sheet."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from core.observed.time_left import Left, TimeLeft, time_left_from_json
from core.project.revision import RevisionTexts
from core.text.secret_masking import mask_secrets
from core.text.wording import counted
from state.audit_log import op_words
from state.ledger_snapshot import StatementDetails
from tui.presentation.reports.table_history import HistoryEntry, entry_words
from tui.presentation.screen_content.audit_log_events import event_tone, event_words
from tui.presentation.screen_content.lineage_tab import ColumnDetails, column_lines, lineage_lines
from tui.presentation.screen_content.statement_rows import RowContext
from tui.presentation.screen_content.statement_sheet import sheet_lines, statement_sheet
from tui.presentation.styling.styled_text import (
    EMPTY,
    Line,
    Span,
    Tone,
    clean,
    colour_sql,
    difference,
    fit,
    left,
    line,
    width_of,
    wrap,
)
from tui.presentation.styling.table_layout import TableColumn, header, table_row
from tui.presentation.styling.theme import STATE_TONES, parse_state
from tui.presentation.styling.value_formatting import (
    cell_text,
    long_number,
    moment,
    short_duration,
    short_size,
)
from tui.presentation.view.ledger_view import LedgerView, StatementView

TABS = ("overview", "sources", "sql", "lineage", "errors", "events", "versions", "history")
INDENT = " " * 24
_KIND_TONES = {"deploy": Tone.ACCENT, "serves": Tone.ACCENT, "schema": Tone.CHANGING, "stop": Tone.CHANGING}
CELL = 40
"""Maximum width of a value, in cells, unless it is in the last column of a screen with more room."""


@dataclass(frozen=True, slots=True)
class DeclaredDetails:
    """A statement as declared in the project's files."""

    dml: str | None = None
    """SQL of the statement; None if unknown, empty if the statement has no DML file."""
    ddl: str | None = None
    missing: str = ""
    """Why the files could not be read."""
    columns: ColumnDetails | None = None
    """The table's columns, and the lineage of one of them; None until requested."""


NOTHING_DECLARED = DeclaredDetails()


def tabs_line(tab: str, width: int) -> Line:
    """Render the line with the names of the tabs."""
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
    """Render a tab.

    Until they have been read, `facts` may be incomplete, and `history` is None.
    """
    match tab:
        case "sources":
            return sources_lines(statement, facts, look, width)
        case "sql":
            return sql_lines(statement, facts, declared, look)
        case "lineage":
            other = f"v{statement.version}" if _differ(facts, declared) else ""
            return (
                *lineage_lines(statement, view, look),
                *column_lines(declared.columns, width, differs_from=other),
            )
        case "errors":
            return (*error_lines(statement, facts, view, look, width), *log_lines(log))
        case "events":
            return event_lines(facts, look)
        case "versions":
            none = line((" Headgate keeps no versions of an external input; see the log of the table", Tone.DIM))
            return (none,) if statement.external else version_lines(facts, look)
        case "history":
            return timeline_lines(history, look, width)
        case _:
            return sheet_lines(statement_sheet(statement, facts, view, look), look, width)


def _differ(facts: StatementDetails, declared: DeclaredDetails) -> bool:
    """True if the files declare another statement or table than the serving version has."""
    if facts.serving is None:
        return False
    deployed = facts.serving.texts
    pairs = ((declared.dml, deployed.dml), (declared.ddl, deployed.ddl))
    return any(text is not None and text != before for text, before in pairs)


SOURCES = (
    TableColumn("table", "SOURCE", 27),
    TableColumn("behind", "BEHIND", 9, numeric=True),
    TableColumn("rows", "ROWS", 9, numeric=True),
    TableColumn("files", "FILES", 7, numeric=True),
    TableColumn("bytes", "BYTES", 9, numeric=True),
    TableColumn("left", "LOST IN", 8, numeric=True),
    TableColumn("note", "", 0),
)


def sources_lines(statement: StatementView, facts: StatementDetails, look: RowContext, width: int) -> tuple[Line, ...]:
    """Render the lag on each source, followed by the static inputs."""
    measurement = facts.measurement or statement.line.measurement
    lines = [header(SOURCES, width)]
    for each in measurement.sources if measurement else ():
        left = time_left_from_json(each.get("time_left"))
        cell = _left_cell(left.as_of(look.now) if left is not None else None)
        lines.append(table_row({**_source_cells(each), "left": cell}, SOURCES, width))
    if len(lines) == 1:
        lines.append(line((" no lag has been measured yet" if statement.parents else " it reads nothing", Tone.DIM)))
    static = [one.parent for one in statement.parents if not one.streamed]
    if static:
        lines.append(EMPTY)
        lines.append(line((" static  ", Tone.DIM), ", ".join(static), ("   every batch reads it again", Tone.DIM)))
    return tuple(lines)


def _source_cells(source: Mapping[str, object]) -> dict[str, Span]:
    rows = source.get("rows")
    mark = "" if source.get("exact", True) else "~"
    missing, unmeasured = bool(source.get("missing")), str(source.get("unmeasured", ""))
    files = source.get("files", "?")
    return {
        "table": Span(str(source.get("table", "?"))),
        "behind": Span(short_duration(_number(source.get("behind_s")))),
        "rows": Span(mark + (long_number(rows) if isinstance(rows, int) else "?")),
        "files": Span("-" if source.get("topics") else "?" if files is None else str(files)),
        # The size of messages is unknown, and that of a database's changes is the log that is kept for them.
        "bytes": Span(short_size(_number(source.get("wal_bytes" if source.get("topics") else "bytes")))),
        "note": Span("  dropped or replaced", Tone.BAD)
        if missing
        else Span(f"  {unmeasured}" if unmeasured else _versions(source), Tone.DIM),
    }


def _left_cell(left: TimeLeft | None) -> Span:
    if left is None:
        return Span("-", Tone.DIM)
    words = {Left.LOST: "lost", Left.NEVER: "never", Left.UNKNOWN: "?"}.get(left.kind) or short_duration(left.seconds)
    return Span(words, Tone.BAD if left.is_lost else Tone.CHANGING if left.at_risk else Tone.PLAIN)


def _versions(source: Mapping[str, object]) -> str:
    if isinstance(skipped := source.get("skipped"), int):
        return f"  skips deleted messages{f': {skipped:,} now' if skipped else ''}"
    found = source.get("versions")
    return f"  {counted(found, 'version')}" if isinstance(found, int) and found else ""


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def sql_lines(
    statement: StatementView, facts: StatementDetails, declared: DeclaredDetails, look: RowContext
) -> tuple[Line, ...]:
    """Render the diff between the deployed SQL and the project's files, followed by the deployed SQL."""
    if facts.serving is None:
        return (line((" reading", Tone.DIM)),)
    deployed = facts.serving.texts
    lines: list[Line] = []
    shown = deployed.shown
    if declared.dml is not None or declared.ddl is not None:
        now = declared.dml if declared.dml is not None else deployed.dml
        changes = (
            *difference(shown["dml"], RevisionTexts(dml=now).shown["dml"]),
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
            lines.append(line((" the files match what is deployed", Tone.DIM)))
    elif declared.missing:
        lines.append(line((f" files: {declared.missing}", Tone.CHANGING)))
    for name, text in zip(("statement", "table", "settings"), shown.values(), strict=True):
        if text.strip():
            lines.append(line((f" {look.glyphs.rule} {name}{_version_mark(statement.version)} ", Tone.DIM)))
            lines.extend(colour_sql(text))
    if not lines:
        lines.append(line((" the text is unknown", Tone.DIM)))
    return tuple(lines)


def error_lines(
    statement: StatementView, facts: StatementDetails, view: LedgerView, look: RowContext, width: int
) -> tuple[Line, ...]:
    """Render the current errors of a statement and of its external inputs, then its past exceptions, latest first.

    Repeated exceptions are counted.
    """
    lines: list[Line] = []
    inputs = [found.line for one in statement.parents if (found := view.statement(one.parent)) and found.external]
    for row in (statement.line, *{each.table: each for each in inputs}.values()):
        if row.error:
            of = "" if row is statement.line else f"  input {row.table}"
            lines.append(line((f" NOW{of}  {row.error_class}", Tone.BAD)))
            lines.extend(wrap(mask_secrets(row.error), width - 3, Tone.PLAIN, "  "))
            lines.append(EMPTY)
    for event in facts.events:
        if event.kind != "exception":
            continue
        times = f"{event.count} times since {moment(event.first_at, look.now)}, last" if event.count > 1 else "once,"
        lines.append(line((f" {times} {moment(event.at, look.now)} {_version_mark(event.version)}", Tone.DIM)))
        lines.extend(wrap(mask_secrets(str(event.summary)), width - 3, Tone.BAD, "  "))
        lines.extend(wrap(mask_secrets(event.detail), width - 5, Tone.DIM, "    ") if event.detail else ())
        lines.append(EMPTY)
    return tuple(lines) or (line((" no exceptions recorded", Tone.DIM)),)


def event_lines(facts: StatementDetails, look: RowContext) -> tuple[Line, ...]:
    """Render events, newest first."""
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
    """Render all versions of a table, newest first, and how long old versions are kept."""
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
    return f" v{version}" if version else ""


def timeline_lines(history: Sequence[HistoryEntry] | None, look: RowContext, width: int) -> tuple[Line, ...]:
    """Render a table's history, newest entry first. `history` is None until it has been read."""
    if history is None:
        return (line((" reading", Tone.DIM)),)
    lines: list[Line] = []
    for entry in reversed(history):
        tone = Tone.BAD if entry.bad else Tone.PLAIN
        kind_tone = Tone.BAD if entry.bad else _KIND_TONES.get(entry.kind, Tone.PLAIN)
        first, *more = wrap(entry_words(entry), width - len(INDENT) - 1, tone)
        when = line((f" {left(moment(entry.at, look.now), 13)}", Tone.DIM), (left(op_words(entry.kind), 10), kind_tone))
        lines.append((*when, *first))
        lines += [(*line(INDENT), *rest) for rest in more]
        for words in entry.detail.splitlines()[:1]:
            lines += wrap(words, width - 1, Tone.DIM, INDENT)[:2]
    return tuple(lines) or (line((" nothing has changed since it was registered", Tone.DIM)),)


def row_lines(columns: Sequence[str], rows: Sequence[Sequence[object]], width: int) -> tuple[Line, ...]:
    """Render rows of a table below the column names. The last column gets what is left of the screen's width."""
    if not (rows and columns):
        return (line((" no rows yet", Tone.DIM)),)
    cells = [[cell_text(one) for one in row] for row in rows]
    full = [max(width_of(row[at]) for row in (columns, *cells)) for at in range(len(columns))]
    *widths, last = (min(each, CELL) for each in full)
    room = width - 1 - sum(each + 2 for each in widths)
    widths.append(min(full[-1], room) if room >= CELL // 2 else last)

    def written(row: Sequence[str]) -> str:
        return " " + "  ".join(left(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip()

    return (line((written(columns), Tone.DIM)), *(line(written(row)) for row in cells))


MOST_LINES, MOST_CHARACTERS = 200, 32_000
"""Maximum number of lines and of characters shown of one logged failure."""
TAB = "\t"
FRAMES = 8
"""Number of stack frames shown per cause of a failure that is too long."""
_BEGINS = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d")
"""Matches the first line of a log record. A line that does not match continues the preceding record."""


def lines_about(lines: Iterable[str], words: Iterable[str]) -> Iterator[str]:
    """Yield the lines of log records that contain any of `words`.

    Long records are shortened, and secrets are masked.
    """
    named = re.compile("|".join(rf"(?<!\w){re.escape(word)}(?!\w)" for word in words if word) or r"(?!)")
    record: list[str] = []
    for text in (*lines, None):
        if text is None or _BEGINS.match(text):
            if any(map(named.search, record)):
                yield from map(mask_secrets, bounded(record))
            record = []
        if text is not None:
            record.append(text)


def bounded(record: Sequence[str]) -> Sequence[str]:
    """Shorten a long log record: omit most stack frames, then lines at the end, and count the omitted lines."""
    if _fits(record):
        return record
    kept: list[str] = []
    frames = 0
    for text in record:
        frames = frames + 1 if text.lstrip().startswith("at ") else 0
        if frames <= FRAMES:
            kept.append(text[: MOST_CHARACTERS // 8])
    while not _fits(kept):
        kept.pop()
    gone = len(record) - len(kept)
    return [*kept, f"\t… {counted(gone, 'more line')}: headgate logs pool has them"] if gone else kept


def _fits(record: Sequence[str]) -> bool:
    return len(record) <= MOST_LINES and sum(map(len, record)) <= MOST_CHARACTERS


def log_lines(log: Sequence[str]) -> tuple[Line, ...]:
    """Render the log lines of the agent and the pool about a statement, including stack traces."""
    if not log:
        return (line((" the logs of agent and pool do not name it", Tone.DIM)),)
    bad = (" ERROR ", " WARN ", " WARNING ")
    told = (
        line((f" {clean(each.replace(TAB, '    '))}", Tone.BAD if any(word in each for word in bad) else Tone.DIM))
        for each in log
    )
    return (line((" LOG of agent and pool", Tone.TITLE)), *told)
