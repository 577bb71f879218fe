"""Formats records of the audit, command and event logs as table cells or in full, for console and command line."""

from dataclasses import replace

from core.model.act_outcomes import NOT_DONE, CommandOutcome
from core.model.events import EventKind
from core.model.states import State
from state.audit_log import op_words
from state.row_types import AuditRow, CommandRow, EventRow
from tui.presentation.styling.styled_text import Line, Span, Tone, fit, wrap
from tui.presentation.styling.table_layout import TableColumn, table_row
from tui.presentation.styling.value_formatting import moment

Record = AuditRow | CommandRow | EventRow
_AT = TableColumn("at", "WHEN", 12)
_WHO = TableColumn("who", "WHO", 11)
_OUTCOME = TableColumn("outcome", "OUTCOME", 9)
AUDIT = (
    _AT,
    _WHO,
    TableColumn("act", "DID", 10),
    TableColumn("subject", "TO", 0),
    TableColumn("plan", "PLAN", 5),
    TableColumn("typed", "TYPED", 13),
    TableColumn("outcome", "OUTCOME", 11),
)
WIDE_AUDIT = (*AUDIT[:2], replace(AUDIT[2], width=14), *AUDIT[3:])
"""Columns of the audit log on a screen at least 120 cells wide."""
COMMANDS = (_AT, _WHO, _OUTCOME, TableColumn("took", "TOOK", 7), TableColumn("line", "COMMAND", 0))
EVENTS = (_AT, TableColumn("table", "TABLE", 21), TableColumn("kind", "KIND", 9), TableColumn("what", "WHAT", 0))
WIDE_EVENTS = (_AT, replace(EVENTS[1], width=39), *EVENTS[2:])
"""Columns of the event list on a screen at least 120 cells wide."""


def audit_columns(width: int) -> tuple[TableColumn, ...]:
    """Return the columns of the audit log that fit into `width` cells."""
    return WIDE_AUDIT if width >= 120 else AUDIT


def event_columns(width: int) -> tuple[TableColumn, ...]:
    """Return the columns of the event list that fit into `width` cells."""
    return WIDE_EVENTS if width >= 120 else EVENTS


def record_row(one: Record, width: int, now: float) -> Line:
    """Format one record as a line of `width` cells."""
    match one:
        case AuditRow():
            columns = audit_columns(width)
        case CommandRow():
            columns = COMMANDS
        case EventRow():
            columns = event_columns(width)
    return fit(table_row(record_cells(one, moment(one.at, now)), columns, width), width)


def record_cells(one: Record, when: str) -> dict[str, Span]:
    """Return a record's cells by column id. `when` is the record's formatted time."""
    at = {"at": Span(when, Tone.DIM)}
    match one:
        case AuditRow():
            return at | {
                "who": Span(one.actor),
                "act": Span(op_words(one.action), Tone.ACCENT),
                "subject": Span(one.subject),
                "plan": Span(one.plan_hash[:4], Tone.DIM),
                "typed": Span(one.confirmation, Tone.DIM),
                "outcome": Span(one.outcome, outcome_tone(one.outcome)),
            }
        case CommandRow():
            ms = one.took_ms
            return at | {
                "who": Span(one.actor),
                "outcome": Span(one.outcome, outcome_tone(one.outcome)),
                "took": Span("" if ms is None else f"{ms} ms" if ms < 1000 else f"{ms / 1000:.1f} s", Tone.DIM),
                "line": Span(command_line(one)),
            }
        case EventRow():
            what = Span(event_words(one), event_tone(one))
            return at | {"table": Span(one.about or "-"), "kind": Span(one.kind, Tone.DIM), "what": what}


def command_line(one: CommandRow) -> str:
    """Return the command line of a logged command, or its operation and subject if it has none."""
    return one.line or f"{op_words(one.op)} {one.subject}"


def outcome_tone(outcome: str) -> Tone:
    """Return the tone in which a command's outcome is shown."""
    return Tone.BAD if outcome in NOT_DONE else Tone.GOOD if outcome == CommandOutcome.DONE else Tone.PLAIN


def command_text(one: CommandRow, width: int) -> tuple[Line, ...]:
    """Format a logged command in full, followed by the agent's answer."""
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
    """Format an audit entry in full."""
    text = f"{one.actor}: {op_words(one.action)} {one.subject}"
    if one.confirmation:
        text += f", confirmed by typing `{one.confirmation}`"
    if one.plan_hash:
        text += f", plan {one.plan_hash[:12]}"
    return wrap(f"{text}: {one.outcome or 'no outcome yet'}", width - 4, Tone.PLAIN, "   ")


def event_words(one: EventRow) -> str:
    """Return an event's summary, with the number of occurrences if there was more than one."""
    return f"{one.summary} ({one.count}x)" if one.count > 1 else str(one.summary)


def event_tone(one: EventRow) -> Tone:
    """Return the tone of an event: BAD for exceptions, failed states and missed objectives."""
    bad = one.kind in (EventKind.EXCEPTION, EventKind.MISSED) or one.state == State.FAILED
    return Tone.BAD if bad else Tone.PLAIN


def event_text(one: EventRow, width: int, now: float) -> tuple[Line, ...]:
    """Format an event in full, with its detail."""
    since = f", first {moment(one.first_at, now)}" if one.count > 1 else ""
    lines = list(wrap(event_words(one) + since, width - 4, event_tone(one), "   "))
    if one.detail:
        lines.extend(wrap(one.detail, width - 4, Tone.PLAIN, "   "))
    return tuple(lines)
