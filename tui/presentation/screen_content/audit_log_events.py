"""Audit, command log and events: who, when, what, confirmed by what, with which outcome.

The console lists them and the command line prints them in the same columns.
"""

from core.model.act_outcomes import NOT_DONE, CommandOutcome
from core.model.events import EventKind
from core.model.states import State
from state.audit_log import op_words
from state.row_types import AuditRow, CommandRow, EventRow
from tui.presentation.styling.styled_text import Line, Span, Tone, fit, left, line, shorten, wrap
from tui.presentation.styling.value_formatting import moment

Record = AuditRow | CommandRow | EventRow
Columns = tuple[tuple[str, int], ...]
AUDIT: Columns = (("WHEN", 13), ("WHO", 12), ("DID", 11), ("TO", 0), ("PLAN", 6), ("TYPED", 14), ("OUTCOME", 12))
COMMANDS: Columns = (("WHEN", 13), ("WHO", 12), ("OUTCOME", 10), ("TOOK", 8), ("COMMAND", 0))
EVENTS: Columns = (("WHEN", 13), ("TABLE", 22), ("KIND", 10), ("WHAT", 0))
"""Titles and cells of the columns; one without cells takes what is left."""
WIDE, WIDE_TABLE = 120, 40
"""From so many columns on, a table's name has as many cells as this."""


def record_head(columns: Columns, width: int) -> Line:
    """Write the heading of a list of records."""
    titles = (left(title, cells) for (title, _), cells in zip(columns, _widths(columns, width), strict=True))
    return line(("  " + "".join(titles).rstrip(), Tone.DIM))


def record_row(one: Record, width: int, now: float) -> Line:
    """Write one record in `width` cells."""
    cells = record_cells(one, moment(one.at, now))
    spans = [Span("  ")]
    for span, room in zip(cells, _widths(_columns(one), width), strict=True):
        spans.append(Span(left(shorten(span.text, room - (span is not cells[-1])), room), span.tone))
    return fit(tuple(spans), width)


def _columns(one: Record) -> Columns:
    return AUDIT if isinstance(one, AuditRow) else COMMANDS if isinstance(one, CommandRow) else EVENTS


def _widths(columns: Columns, width: int) -> tuple[int, ...]:
    cells = [WIDE_TABLE if title == "TABLE" and width >= WIDE else room for title, room in columns]
    return tuple(room or max(width - 2 - sum(cells), 12) for room in cells)


def record_cells(one: Record, when: str) -> tuple[Span, ...]:
    """Return the cell of each column; `when` it was written, in words."""
    at = Span(when, Tone.DIM)
    match one:
        case AuditRow():
            plan, typed = Span(one.plan_hash[:4], Tone.DIM), Span(one.confirmation, Tone.DIM)
            act, outcome = Span(op_words(one.action), Tone.ACCENT), Span(one.outcome, outcome_tone(one.outcome))
            return (at, Span(one.actor), act, Span(one.subject), plan, typed, outcome)
        case CommandRow():
            ms = one.took_ms
            took = "" if ms is None else f"{ms} ms" if ms < 1000 else f"{ms / 1000:.1f} s"
            outcome = Span(one.outcome, outcome_tone(one.outcome))
            return (at, Span(one.actor), outcome, Span(took, Tone.DIM), Span(command_line(one)))
        case EventRow():
            return (at, Span(one.about or "-"), Span(one.kind, Tone.DIM), Span(event_words(one), event_tone(one)))


def command_line(one: CommandRow) -> str:
    """Return the line that does the same as a command."""
    return one.line or f"{op_words(one.op)} {one.subject}"


def outcome_tone(outcome: str) -> Tone:
    """Return the tone of an outcome."""
    return Tone.BAD if outcome in NOT_DONE else Tone.GOOD if outcome == CommandOutcome.DONE else Tone.PLAIN


def command_text(one: CommandRow, width: int) -> tuple[Line, ...]:
    """Write the whole of a command."""
    lines = list(wrap(command_line(one), width - 4, Tone.PLAIN, "   "))
    if one.op == "stage":
        words = (
            f"staging exists only in the console; `headgate plan {one.line.removeprefix(':')}` plans the same directly"
        )
        lines.extend(wrap(words, width - 4, Tone.DIM, "   "))
    if one.detail:
        lines.extend(wrap(one.detail, width - 4, outcome_tone(one.outcome), "   "))
    return tuple(lines)


def audit_text(one: AuditRow, width: int) -> tuple[Line, ...]:
    """Write the whole of an entry."""
    text = f"{one.actor}: {op_words(one.action)} {one.subject}"
    if one.confirmation:
        text += f", confirmed by typing `{one.confirmation}`"
    if one.plan_hash:
        text += f", plan {one.plan_hash[:12]}"
    return wrap(f"{text}: {one.outcome or 'no outcome yet'}", width - 4, Tone.PLAIN, "   ")


def event_words(one: EventRow) -> str:
    """Write what happened, and how often where that is known."""
    return f"{one.summary} ({one.count}x)" if one.count > 1 else str(one.summary)


def event_tone(one: EventRow) -> Tone:
    """Return the tone of an event: what ended with an error is bad."""
    bad = one.kind in (EventKind.EXCEPTION, EventKind.MISSED) or one.state == State.FAILED
    return Tone.BAD if bad else Tone.PLAIN


def event_text(one: EventRow, width: int, now: float) -> tuple[Line, ...]:
    """Write the whole of an event."""
    since = f", first {moment(one.first_at, now)}" if one.count > 1 else ""
    lines = list(wrap(event_words(one) + since, width - 4, event_tone(one), "   "))
    if one.detail:
        lines.extend(wrap(one.detail, width - 4, Tone.PLAIN, "   "))
    return tuple(lines)
